"""What processes do to a program: fork with work in flight, spawn, executors, exit. Nothing may hang or go wrong.

``WEFT_STRESS=1`` runs the long forms.
"""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import weft
import weft.numpy as jnp

LONG = os.environ.get("WEFT_STRESS") == "1"

FORKS = """
import os, sys, threading, time, warnings
import numpy as np
import weft, weft.numpy as jnp

warnings.simplefilter("ignore")  # Python warns of forks among threads; these are the point
count = int(sys.argv[1])
f = weft.jit(lambda x: jnp.sum(jnp.sin(x) * 2 + jnp.cos(x)))
g = weft.jit(lambda x: x @ x + 1)
large, square = jnp.ones(200_000), jnp.ones((100, 100))
expected = float(f(large))
stop = threading.Event()

def busy(number):
    while not stop.is_set():
        if number == 0:
            f(large).block_until_ready()
        elif number == 1:
            np.asarray(g(square))
        else:  # compilations: new programs, new shapes
            n = time.perf_counter_ns() % 1000 + 2
            weft.jit(lambda x: jnp.tanh(x) * n)(jnp.ones(n)).block_until_ready()

threads = [threading.Thread(target=busy, args=(number,), daemon=True) for number in range(3)]
for thread in threads:
    thread.start()
for number in range(count):
    pending = [f(large) for _ in range(3)]
    child = os.fork()
    if child == 0:
        status = 1
        try:
            ok = float(f(large)) == expected and float(pending[-1]) == expected
            ok = ok and float(g(square)[0, 0]) == 101
            if number % 10 == 0:  # with a compilation
                h = weft.jit(lambda x: jnp.exp(x) + number)
                ok = ok and abs(float(h(jnp.zeros(7))[3]) - 1 - number) < 1e-6
            status = 0 if ok else 2
        finally:
            os._exit(status)
    deadline = time.monotonic() + 60
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > deadline:
            os.kill(child, 9)
            sys.exit(f"fork {number} hangs")
        time.sleep(0.0005)
    if status != 0:
        sys.exit(f"fork {number}: status {status}")
stop.set()
for thread in threads:
    thread.join()
print("forks", count)
"""


def python(code: str, *arguments: str, timeout: float = 300, status: int = 0) -> str:
    return run("-c", code, *arguments, timeout=timeout, status=status)


def run(*arguments: str, timeout: float = 300, status: int = 0) -> str:
    process = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True, text=True, timeout=timeout, env={**os.environ, "WEFT_CHECK": "0"},
    )  # fmt: skip
    assert process.returncode == status, process.stderr + process.stdout
    return process.stdout.strip()


def test_forks_with_running_work() -> None:
    count = "200" if LONG else "60"
    assert python(FORKS, count) == f"forks {count}"


POOLS = """
import concurrent.futures, multiprocessing, sys, warnings
import weft, weft.numpy as jnp

def square_sum(n):
    return float(weft.jit(lambda x: jnp.sum(x * x))(jnp.arange(float(n))))

if __name__ == "__main__":
    warnings.simplefilter("ignore")  # Python warns of forks among threads
    pending = weft.jit(lambda x: jnp.sum(jnp.exp(x)))(jnp.ones(1_000_000))
    context = multiprocessing.get_context(sys.argv[1])
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        print(*pool.map(square_sum, range(1, 9)), float(pending))
"""


# In an interpreter of its own: a worker of the tests may hold libraries that must not be forked.
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_process_pools(method: str, tmp_path: pathlib.Path) -> None:
    program = tmp_path / "pools.py"
    program.write_text(POOLS)
    *answers, pending = (float(word) for word in run(str(program), method).split())
    assert answers == [sum(i * i for i in range(n)) for n in range(1, 9)]
    assert np.isclose(pending, np.e * 1_000_000, rtol=1e-5)


COMPILING = """
import faulthandler, os, sys, threading
import weft, weft.numpy as jnp
stop = False
def work(k):
    n = 0
    while not stop:
        weft.jit(lambda x, n=n: jnp.sin(x) * (n + k) + x[: 1 + n % 7].sum())(jnp.ones(8 + n % 5))
        n += 1
threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
for thread in threads:
    thread.start()
failed = 0
for k in range(int(sys.argv[1])):
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(90, exit=True)
        float(weft.jit(lambda x: (jnp.cos(x) * k).sum())(jnp.ones(3)))
        os._exit(0)
    failed += os.waitpid(child, 0)[1] != 0
stop = True
for thread in threads:
    thread.join()
print(failed)
"""


def test_children_compile_whatever_the_threads_of_their_parent_were_at() -> None:
    """From the first moment on, when those threads load the compiler; ``WEFT_STRESS=1`` is the long form."""
    count = "2000" if os.environ.get("WEFT_STRESS") == "1" else "12"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COMPILING, count],
        capture_output=True, text=True, check=True, env={**os.environ, "WEFT_CACHE": "off", "WEFT_CHECK": "0"},
    )  # fmt: skip
    assert done.stdout.split() == ["0"], done.stderr


def test_a_child_of_a_child_works() -> None:
    code = """
import os
import weft, weft.numpy as jnp
f = weft.jit(lambda x: jnp.sum(x) + 1)
x = jnp.ones(1_000_000)
y = f(x)
def generation(n):
    global y
    child = os.fork()
    if child:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    y = f(x)
    if n == 0:
        os._exit(0 if float(y) == 1_000_001 else 3)
    generation(n - 1)
child = os.fork()
if child == 0:
    generation(4)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert python(code) == "0"


EXITS = {
    "results pending": "ys = [f(large) for _ in range(50)]",
    "daemon threads in kernels": """
import threading
def busy():
    while True: f(large)
for _ in range(4): threading.Thread(target=busy, daemon=True).start()
import time; time.sleep(0.2)
""",
    "daemon threads in compilations": """
import threading, time
def busy(k):
    n = 0
    while True:
        n += 1
        weft.jit(lambda x: jnp.tanh(x) * n + k)(jnp.ones(n + 2))
for k in range(3): threading.Thread(target=busy, args=(k,), daemon=True).start()
time.sleep(0.2)
""",
    "a call at exit with results pending": """
import atexit
ys = [f(large) for _ in range(50)]
atexit.register(lambda: f(large))
""",
    "work started at exit": "import atexit\natexit.register(lambda: print(float(f(large)) > 0))",
    "callbacks pending": """
def told(x):
    weft.debug.callback(lambda total: f(large), jnp.sum(x))
    return x + 1
ys = [weft.jit(told)(large) for _ in range(3)]
""",
}


@pytest.mark.parametrize("name", EXITS)
def test_the_interpreter_ends_with_work_in_flight(name: str) -> None:
    start = """
import weft, weft.numpy as jnp
f = weft.jit(lambda x: jnp.sum(jnp.sin(x) * 2 + jnp.cos(x)))
large = jnp.ones(3_000_000)
f(large)
"""
    python(start + EXITS[name], timeout=60)


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts the threads that Linux shows")
def test_the_stream_has_no_thread_when_the_interpreter_ends() -> None:
    code = """
import atexit, os, time
os.environ["WEFT_CACHE"] = "off"  # no thread that writes
import weft, weft.numpy as jnp
f = weft.jit(lambda x: jnp.cumsum(jnp.sin(x)))
large = jnp.ones(100_000)
weft.runtime.set_async(False)
f(large)
count = lambda: len(os.listdir("/proc/self/task"))
time.sleep(0.3)  # threads that have ended are gone
before = count()
weft.runtime.set_async(True)
atexit.register(lambda: print(count() - before))  # after the stream's own, which the first launch registers
f(large)
print(count() - before)
"""
    assert python(code) == "1\n0"


ENDED = """
import functools, sys, threading, time, types
import numpy as np
import weft, weft.numpy as jnp

class Static:
    __hash__ = lambda self: 1
    __eq__ = lambda self, other: True
    __del__ = lambda self, print=print: print("deleted")

class Lingering:  # ends while the interpreter finalises: whoever sleeps asks for the GIL meanwhile
    __del__ = lambda self, sleep=time.sleep: sleep(0.6)

def slow(x):
    f.clear_cache()  # the call holds the last references of its entry from now on
    inside.set()
    time.sleep(0.3)
    return x

@functools.partial(weft.jit, static_argnums=0)
def f(static, x):
    return weft.pure_callback(slow, weft.ShapeDtypeStruct((), np.float32), x)

inside = threading.Event()
f(Static(), 1.0).block_until_ready()
weft.clear_caches()  # its program holds the first Static
inside.clear()
print("first")
threading.Thread(target=lambda: f(Static(), 1.0), daemon=True).start()
inside.wait()
sys.modules["lingering"] = types.ModuleType("lingering")
sys.modules["lingering"].value = Lingering()
print("last")
sys.exit(7)
"""


def test_a_thread_that_the_interpreter_ends_runs_no_destructors() -> None:
    assert python(ENDED, status=7, timeout=60).endswith("last")


CROWD = """
import sys, threading, time
import numpy as np
import weft, weft.numpy as jnp

f = weft.jit(lambda tree, x: {k: jnp.sum(jnp.sin(x) * 2 + v) for k, v in tree.items()})
called = weft.jit(lambda x: weft.pure_callback(lambda v: v, weft.ShapeDtypeStruct((), np.float32), jnp.sum(x)))
donated = weft.jit(lambda x: jnp.cos(x), donate_argnums=0)
looped = weft.jit(lambda x: weft.lax.fori_loop(0, 10_000, lambda i, x: x * 0.5 + i, x))
x = jnp.ones(300_000)
tree = {str(k): float(k) for k in range(8)}
calls = [
    lambda: f(tree, x),
    lambda: called(x).block_until_ready(),
    lambda: donated(jnp.asarray(np.ones(100_000, np.float32))).block_until_ready(),
    lambda: looped(1.0).block_until_ready(),
    lambda: np.asarray(x + 1),
    lambda: weft.jit(lambda x: x * time.perf_counter_ns())(1.0),
]
for call in calls:
    call()
ready = threading.Barrier(len(calls) + 1)

def work(call):
    ready.wait()
    while True:
        call()

for call in calls:
    threading.Thread(target=work, args=(call,), daemon=True).start()
ready.wait()
time.sleep(float(sys.argv[1]))
sys.exit(7)
"""


def test_daemon_threads_do_not_hinder_the_exit() -> None:
    for number in range(100 if LONG else 3):
        assert python(CROWD, str(number % 7 * 0.01), status=7, timeout=60) == ""


def test_thread_pools() -> None:
    f = weft.jit(lambda x: jnp.sum(jnp.sin(x)) + x[0])
    arrays = [jnp.arange(float(n)) + 1 for n in (10, 1000, 100_000, 300_000)]
    expected = [float(f(x)) for x in arrays]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda i: float(f(arrays[i % 4])), range(400)))
    assert answers == [expected[i % 4] for i in range(400)]


def test_sixteen_threads() -> None:
    """The same and different functions, new shapes, eager operations, callbacks, configurations: 3 s, long 60 s."""
    shared = weft.jit(lambda x: jnp.sum(jnp.sin(x) * 2 + 1))
    product = weft.jit(lambda x: x @ x)
    total = weft.jit(lambda x: jnp.sum(x))
    scalar = weft.ShapeDtypeStruct((), np.float32)
    calling = weft.jit(lambda x: weft.pure_callback(lambda v: np.asarray(total(v)), scalar, x) + 1)
    failures: list[str] = []
    calls = [0] * 16
    deadline = time.monotonic() + (60 if LONG else 3)
    sizes = [3, 100, 5000, 200_000]
    expected = {n: float(shared(jnp.arange(float(n)))) for n in sizes}

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        while (calls[number] == 0 or time.monotonic() < deadline) and not failures:  # once, however busy the machine
            n = sizes[int(rng.integers(4))]
            calls[number] += 1
            if float(shared(jnp.arange(float(n)))) != expected[n]:
                failures.append(f"shared {n}")
            k = int(rng.integers(2, 400))
            if float(weft.jit(lambda x, k=k: jnp.sum(x) * k)(jnp.ones(k))) != k * k:
                failures.append(f"own {k}")
            if float(product(jnp.ones((k, k)))[-1, -1]) != k:
                failures.append(f"product {k}")
            with weft.enable_x64(bool(number % 2)):
                if jnp.asarray(1.0).dtype != (np.float64 if number % 2 else np.float32):
                    failures.append("configuration")
            if float((jnp.ones(k) + k).max()) != k + 1:
                failures.append(f"eager {k}")
            if float(calling(jnp.ones(k))) != k + 1:
                failures.append(f"callback {k}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive()
    assert not failures


CRAMPED = """
import pickle, resource
import weft

leaves, f = [0] * 1_000_000, weft.jit(lambda tree: tree[0])
structure = weft.tree.structure(leaves)
pickled = pickle.dumps(structure)
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (2 << 20),) * 2)
calls = [
    lambda: weft.tree.flatten(leaves), lambda: weft.tree.leaves(leaves), lambda: weft.tree.structure(leaves),
    lambda: weft.tree.map(lambda x: x, leaves), lambda: f(leaves), lambda: repr(structure),
    lambda: structure.compose(structure), lambda: pickle.loads(pickled),
]
for call in calls:
    try:
        call()
    except MemoryError:
        print("MemoryError")
"""


@pytest.mark.skipif(bool(weft.runtime.sanitizer), reason="sanitizers end a process that has no memory")
def test_a_process_without_memory_raises() -> None:
    assert python(CRAMPED).split() == ["MemoryError"] * 8


COMPILES_CRAMPED = """
import resource
import weft, weft.numpy as jnp

weft.config.update("cache", False)
x = jnp.ones(8)
weft.jit(jnp.sin)(x)  # LLVM is there
f = weft.jit(lambda x: jnp.cos(x) * jnp.tanh(x))
pages = int(open("/proc/self/statm").read().split()[0])
_, most = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (12 << 20), most))
try:
    f(x)
except weft.errors.OutOfMemoryError as error:
    print("compiling" in str(error))
resource.setrlimit(resource.RLIMIT_AS, (most, most))
print(f(x).shape)
"""


@pytest.mark.skipif(bool(weft.runtime.sanitizer), reason="sanitizers reserve more addresses than any limit leaves")
def test_a_process_without_memory_to_compile_raises_and_compiles_later() -> None:
    assert python(COMPILES_CRAMPED).split() == ["True", "(8,)"]
