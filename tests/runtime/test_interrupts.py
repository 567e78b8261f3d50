"""Ctrl-C: whatever runs, KeyboardInterrupt comes within 0.2 s, the kernel ends within 0.2 s, the process computes on.

What an interrupted program has written is discarded: its results raise where they are used, as do those made of them.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = '''
import os, signal, sys, threading, time
import numpy as np
import weft, weft.numpy as jnp
from weft import lax

f = weft.jit(lambda x: jnp.sum(x) + 1)
small = jnp.ones(10)
f(small)
{setup}

def now():
    return time.perf_counter(), time.process_time() / weft.runtime.Pool.get_threads()

def since(start):
    """Seconds; on a machine that others keep busy, those that this process had."""
    wall, own = (end - begin for end, begin in zip(now(), start))
    assert wall < 10
    return min(wall, own)

def interrupt():
    global sent
    time.sleep({after})
    sent = now()
    os.kill(os.getpid(), signal.SIGINT)

def attempt():
    global sent
    sent = None
    killer = threading.Thread(target=interrupt)
    killer.start()
    try:
        while True:
            {work}
    except KeyboardInterrupt:
        elapsed = since(sent)
    killer.join()
    return elapsed

times, rests = [], []
for _ in range(3):
    times.append(attempt())
    start = now()
    weft.runtime.stream_drain()
    rests.append(since(start))
    assert float(f(small)) == 11
print(min(times), min(rests))
'''

CASES = {
    "many kernels": (
        "large = jnp.ones(1 << 22).block_until_ready()",
        "weft.jit(lambda x: jnp.sin(x) * 2)(large).block_until_ready()",
    ),
    "one long kernel": (
        "large = jnp.ones(1 << 25).block_until_ready();"
        " g = weft.jit(lambda x: jnp.sum(jnp.cos(jnp.sin(jnp.exp(x)) * 2 + x)))",
        "g(large).block_until_ready()",
    ),
    "one long row": (
        "large = jnp.ones(1 << 28).block_until_ready(); g = weft.jit(lambda x: jnp.cumsum(x)[-1]); g(jnp.ones(9))",
        "g(large).block_until_ready()",
    ),
    "two long rows": (
        "large = jnp.ones((2, 1 << 25)).block_until_ready(); g = weft.jit(lambda x: weft.nn.softmax(jnp.sin(x)));"
        " g(large[:, :9])",
        "g(large).block_until_ready()",
    ),
    "long columns": (
        "large = jnp.ones((1 << 24, 3)).block_until_ready(); g = weft.jit(lambda x: jnp.cumsum(x, axis=0));"
        " g(large[:9])",
        "g(large).block_until_ready()",
    ),
    "a gather": (
        "large = ((jnp.arange(1 << 25) * 7919) % (1 << 25)).block_until_ready();"
        " g = weft.jit(lambda x: x[x]); g(large[:9])",
        "g(large).block_until_ready()",
    ),
    "a scatter": (
        "large = (jnp.arange(1 << 25) % 1000).block_until_ready();"
        " g = weft.jit(lambda i: jnp.zeros(1000, int).at[i].add(i)); g(large[:9])",
        "g(large).block_until_ready()",
    ),
    "a transposition": (
        "large = jnp.ones((1 << 13, 1 << 13)).block_until_ready(); g = weft.jit(lambda x: x.T + 1); g(large[:9, :9])",
        "g(large).block_until_ready()",
    ),
    "one large product": ("large = jnp.ones((6000, 6000)).block_until_ready()", "(large @ large).block_until_ready()"),
    "one large complex product": (
        "large = jnp.ones((3000, 3000), 'complex64').block_until_ready(); large[:9, :9] @ large[:9, :9]",
        "(large @ large).block_until_ready()",
    ),
    "a sort by two keys": (
        "large = jnp.sin(jnp.arange(1 << 23)).block_until_ready(); jnp.lexsort((large[:9], large[:9]))",
        "jnp.lexsort((large, large)).block_until_ready()",
    ),
    "a sort of short rows": (
        "large = jnp.sin(jnp.arange(1 << 23)).reshape(-1, 64).block_until_ready(); jnp.argsort(large[:9])",
        "jnp.argsort(large).block_until_ready()",
    ),
    "a sort of one row": (
        "large = jnp.sin(jnp.arange(1 << 25)).block_until_ready(); jnp.sort(large[:9])",
        "jnp.sort(large).block_until_ready()",
    ),
    "different elements": (
        "large = (jnp.arange(1 << 23) * 7919 % 1_000_003).block_until_ready()",
        "jnp.unique(large, return_counts=True)",
    ),
    "a loop": (
        "g = weft.jit(lambda n: lax.fori_loop(0, n, lambda i, x: x * 1.5 + i, 0.0))",
        "g(2_000_000_000).block_until_ready()",
    ),
    "a loop that threads share": (
        "weft.runtime.set_async(False); from weft.experimental import pallas as pl;"
        " spec = pl.BlockSpec((8, 64), lambda i: (i, 0));"
        " step = lambda i, x: jnp.cumsum(jnp.sin(x @ x.T @ x), 1); large = jnp.ones((16384, 64));"
        " body = lambda x, y: y.__setitem__(..., lax.fori_loop(0, 100, step, x[...]));"
        " g = weft.jit(pl.pallas_call(body, out_shape=large, grid=2048, in_specs=[spec], out_specs=spec));"
        " assert 'independent=True' in g.lower(large).compile().as_text('plan')",
        "g(large)",
    ),
    "tracing": ("", "weft.make_jaxpr(lambda x: sum(x * i for i in range(100_000)))(1.0)"),
    "compiling": (
        "",
        "n = time.perf_counter();"
        " weft.jit(lambda x: [x := jnp.sin(x) * n + jnp.sum(x) for _ in range(300)][-1])(small)",
    ),
    "reading a result": (
        "large = jnp.ones(1 << 25).block_until_ready(); g = weft.jit(lambda x: jnp.cos(jnp.sin(jnp.exp(x)) * 2 + x))",
        "np.asarray(g(large))",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_interrupt_comes_within_a_fifth_of_a_second(name: str) -> None:
    setup, work = CASES[name]
    code = PROGRAM.format(setup=setup, work=work, after=0.3)
    process = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, timeout=120, env={**os.environ, "WEFT_CHECK": "0", "WEFT_CACHE": "off"},
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    fastest, rest = map(float, process.stdout.split())
    assert fastest <= 0.2
    assert rest <= 0.2


FAILED = '''
import os, signal, threading, time
import weft, weft.numpy as jnp

large = jnp.ones((2, 1 << 25)).block_until_ready()
f = weft.jit(lambda x: jnp.cumsum(jnp.sin(x), axis=1))
f(large[:, :9])
given = jnp.ones((2, 1 << 25)).block_until_ready()
dependent = weft.jit(lambda x: jnp.cumsum(jnp.cos(x), axis=1), donate_argnums=0)(given)
def interrupted():
    """Interrupt a chain of programs; False if the interrupt came when its last one was done."""
    global dependent
    timer = threading.Timer(0.01, lambda: os.kill(os.getpid(), signal.SIGINT))
    dependent = f(f(f(dependent)))  # to allocate the results may take as long as to compute them
    try:
        timer.start()
        dependent.block_until_ready()
        time.sleep(10)
    except KeyboardInterrupt:
        pass
    timer.join()
    weft.runtime.stream_drain()
    try:
        dependent.block_until_ready()
    except RuntimeError:
        return True
    return False

assert any(interrupted() for _ in range(20))
print("interrupted")
for _ in range(2):  # every time they are used
    try:
        print(float(dependent[0, 0]))
    except RuntimeError as error:
        print("was interrupted" in str(error))
assert given.is_deleted()
print(float(f(large)[1, 0]) > 0)
'''


def test_results_of_interrupted_programs_raise() -> None:
    process = subprocess.run(
        [sys.executable, "-c", FAILED],
        capture_output=True, text=True, timeout=120, env={**os.environ, "WEFT_CHECK": "0", "WEFT_CACHE": "off"},
    )  # fmt: skip
    assert process.stdout.split() == ["interrupted", "True", "True", "True"], process.stdout + process.stderr


COPIES = '''
import signal
import numpy as np
import weft, weft.numpy as jnp

count, elements = 0, 1 << 25

def note(*_):
    global count
    count += 1

def handled(work):
    """How many signals were handled while the work went on: without a look for them, all come when it is over."""
    global count
    work()
    count = 0
    signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
    work()
    seen = count
    signal.setitimer(signal.ITIMER_REAL, 0)
    return seen

signal.signal(signal.SIGALRM, note)
singles, doubles = np.ones(elements, np.float32), np.ones(elements)
ours, first = jnp.ones(elements), weft.jit(lambda x: x[0])
for work in (
    lambda: jnp.asarray(singles),
    lambda: jnp.asarray(doubles),
    lambda: jnp.asarray(singles.astype(">f4")),
    lambda: jnp.asarray(singles.reshape(2, -1).T),
    lambda: jnp.asarray(singles.reshape(1, 1, -1)[..., ::2]),
    lambda: weft.device_put(singles),
    lambda: first(singles),
    lambda: first(doubles),
    lambda: ours.__array__(copy=True),
    lambda: ours.__array__(np.float64),
    lambda: jnp.from_dlpack(singles, copy=True),
    lambda: ours.tobytes(),
    lambda: ours[:4_000_000].tolist(),
):
    print(handled(work))
'''


def test_signals_are_handled_between_blocks_of_a_copy() -> None:
    process = subprocess.run(
        [sys.executable, "-c", COPIES], capture_output=True, text=True, timeout=120,
        env={**os.environ, "WEFT_CHECK": "0"},
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    counts = list(map(int, process.stdout.split()))
    assert len(counts) == 13
    assert min(counts) >= 6, counts


INSIDE = """
import os, signal, threading, time
import numpy as np
import weft, weft.numpy as jnp
from weft import lax

count_to = weft.jit(lambda n: lax.fori_loop(0, n, lambda i, x: x * 1.5 + i, 0.0))
count_to(3)
began, ended = threading.Event(), []

def work(n):
    began.set()
    ended.append(float(count_to(n)))
    return np.float32(0)

def interrupt():
    began.wait()
    time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
f = weft.jit(lambda n: weft.pure_callback(work, weft.ShapeDtypeStruct((), "float32"), n))
try:
    f(2_000_000_000).block_until_ready()
except KeyboardInterrupt:
    print("interrupted")
weft.runtime.stream_drain()
print(len(ended), int(count_to(1)))
"""


def test_a_kernel_that_a_callback_runs_ends_with_the_interrupt() -> None:
    process = subprocess.run(
        [sys.executable, "-c", INSIDE], capture_output=True, text=True, timeout=120,
        env={**os.environ, "WEFT_CHECK": "0"},
    )  # fmt: skip
    assert process.stdout.split() == ["interrupted", "0", "0"], process.stdout + process.stderr
