"""The stream: long programs return at once, in order; errors, interrupts, forks and exits end well."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.runtime import machine_code
from weft import runtime
from weft.compiler.plans.instructions import Callback, DonatedOutput, NewOutput

array, aval = machine_code.array, machine_code.aval


@pytest.fixture(autouse=True)
def asynchronous() -> Iterator[None]:
    before = runtime.get_async()
    runtime.set_async(True)
    yield
    runtime.stream_drain()
    runtime.set_async(before)


def add_one(size: int = 1000, cost_ns: float = 50_000.0) -> runtime.Executable:
    return machine_code.unary_executable(machine_code.unary_kernel("fadd", "1.0"), size, cost_ns)


def callback(function: Callable[[np.ndarray], Any], size: int = 1000, cost_ns: float = 50_000.0) -> runtime.Executable:
    """A program of estimated cost that ends in a Python step: result = function(argument + 1)."""
    kind = aval((size,))
    first = machine_code.unary_step(machine_code.unary_kernel("fadd", "1.0"), 0, 2, size, cost_ns)
    step = Callback(function, ((2, 0, kind),), ((1, 0, kind),))
    return runtime.Executable(
        1, [NewOutput(kind.nbytes, kind)], [(0, kind.nbytes)], kind.nbytes, [first, step], "callback", (kind,)
    )


def zeros(size: int = 1000) -> runtime.Array:
    return array(np.zeros(size))


def run(executable: runtime.Executable, *args: runtime.Array) -> runtime.Array:
    (result,) = executable.run(args)
    return result


def test_a_call_returns_before_the_program_has_run() -> None:
    release = threading.Event()

    def hold(x: np.ndarray) -> np.ndarray:
        assert release.wait(60)
        return x

    y = run(callback(hold), zeros())
    z = run(add_one(), y)
    w = run(add_one(cost_ns=1.0), z)
    assert not y.is_ready() and not z.is_ready() and not w.is_ready()
    release.set()
    assert np.asarray(w)[0] == 3
    assert y.is_ready() and z.is_ready()


def test_short_programs_on_ready_inputs_run_at_once() -> None:
    assert run(add_one(cost_ns=100.0), zeros()).is_ready()


def test_a_ready_result_is_reached_without_waiting() -> None:
    y = run(add_one(), zeros())
    deadline = time.monotonic() + 30
    while not y.is_ready():
        assert time.monotonic() < deadline
    assert np.asarray(y)[-1] == 1


def test_order_is_kept_over_a_thousand_programs() -> None:
    x = zeros()
    seen: list[float] = []

    def note(values: np.ndarray) -> np.ndarray:
        seen.append(float(values[0]))
        return values

    step, noted = add_one(), callback(note)
    for i in range(1000):
        x = run(noted if i % 100 == 50 else step, x)
    assert np.asarray(x)[0] == 1000
    assert seen == [float(i + 1) for i in range(50, 1000, 100)]


def test_set_async_switches_it_off() -> None:
    runtime.set_async(False)
    assert not runtime.get_async()
    assert run(add_one(), zeros()).is_ready()


def test_errors_surface_at_every_use_and_pass_on() -> None:
    error = ZeroDivisionError("mine")
    launched = threading.Event()

    def fail(x: np.ndarray) -> np.ndarray:
        assert launched.wait(60)
        raise error

    y = run(callback(fail), zeros())
    z = run(add_one(), y)  # of an array that has failed already the call itself would raise
    launched.set()
    for _ in range(2):
        for result in (z, y):
            with pytest.raises(ZeroDivisionError, match="mine"):
                np.asarray(result)
            with pytest.raises(ZeroDivisionError, match="mine"):
                result.block_until_ready()
    with pytest.raises(ZeroDivisionError, match="mine"):
        run(add_one(cost_ns=1.0), y)
    assert np.asarray(run(add_one(), zeros()))[0] == 1  # the stream goes on


def test_errors_say_where_their_program_was_launched() -> None:
    def fail(x: np.ndarray) -> np.ndarray:
        raise KeyError

    y = run(callback(fail), zeros())
    for _ in range(2):
        with pytest.raises(KeyError) as info:
            y.block_until_ready()
    (note,) = info.value.__notes__
    assert re.fullmatch(r"The program callback was launched at .*test_stream.py:\d+\.", note)


def test_an_unseen_error_disturbs_nobody() -> None:
    def fail(x: np.ndarray) -> np.ndarray:
        raise KeyError

    for _ in range(300):
        run(callback(fail), zeros())
    assert np.asarray(run(add_one(), zeros()))[0] == 1
    with pytest.raises(KeyError):
        runtime.stream_barrier()
    for _ in range(300):  # the others are seen here, and not in a later test
        with contextlib.suppress(KeyError):
            runtime.stream_barrier()
    runtime.stream_barrier()


def test_memory_that_runs_out_on_the_stream() -> None:
    kind = aval((1000,))
    step = machine_code.unary_step(machine_code.unary_kernel("fadd", "1.0"), 0, 1, 1000, 50_000.0)
    large = runtime.Executable(1, [NewOutput(4000, kind)], [(0, 2**50)], 2**50, [step], "large", (kind,))
    with pytest.raises(MemoryError, match=r"RESOURCE_EXHAUSTED.*\[large\] temporaries: 1\.0 PiB"):
        run(large, zeros()).block_until_ready()


def test_donation_waits_and_reuses() -> None:
    kind = aval((1000,))
    step = machine_code.unary_step(machine_code.unary_kernel("fadd", "1.0"), 0, 1, 1000, 50_000.0)
    executable = runtime.Executable(1, [DonatedOutput(0, 4000, kind)], [], 0, [step], "donate", (kind,))
    x = zeros()
    pointer = x.unsafe_buffer_pointer()
    for _ in range(50):
        (y,) = executable.run([x], [True])
        assert x.is_deleted()
        x = y
    assert np.asarray(x)[0] == 50
    assert x.unsafe_buffer_pointer() == pointer


def test_arguments_may_be_deleted_behind_the_stream() -> None:
    results = []
    for i in range(200):
        x = array(np.full(1000, float(i)))
        results.append(run(add_one(), x))
        x.delete()
    assert [float(np.asarray(r)[0]) for r in results] == [i + 1 for i in range(200)]


def test_numpy_and_scalar_arguments_are_read_before_the_call_returns() -> None:
    kind, scalar = aval((1000,)), aval(())
    kernel = machine_code.unary_kernel("fadd", "1.0")
    steps = [machine_code.unary_step(kernel, 0, 2, 1000, 50_000.0), machine_code.unary_step(kernel, 1, 3, 1)]
    executable = runtime.Executable(2, [NewOutput(4000, kind), NewOutput(4, scalar)], [], 0, steps, "f", (kind, scalar))
    _, tree = runtime.tree_flatten((0, 0))
    entry = runtime.CacheEntry(executable, (0, 1), (), tree, (kind, scalar), ())
    function = runtime.JitFunction(lambda args, kwargs, caller: (None, entry), (), ())
    x = np.zeros(1000, np.float32)
    function(x, 0.0)
    results = []
    for i in range(100):
        x[:] = i
        results.append(function(x, float(i)))
    x[:] = -1
    assert [(float(np.asarray(a)[0]), float(np.asarray(b))) for a, b in results] == [(i + 1, i + 1) for i in range(100)]


def test_callbacks_may_run_programs_and_wait_for_them() -> None:
    inner = add_one()

    def work(x: np.ndarray) -> np.ndarray:
        y = run(inner, array(x))
        assert y.is_ready()
        return np.asarray(run(inner, y))

    assert np.asarray(run(callback(work), zeros()))[0] == 3


def test_a_callback_may_wait_for_later_programs() -> None:
    box: list[runtime.Array] = []
    filled = threading.Event()

    def work(x: np.ndarray) -> np.ndarray:
        assert filled.wait(60)
        return x + np.asarray(box[0])

    y = run(callback(work), zeros())
    box.append(run(add_one(), zeros()))
    box.append(run(callback(lambda x: x), zeros()))
    filled.set()
    assert np.asarray(y)[0] == 2
    assert np.asarray(box[1])[0] == 1


def test_a_callback_that_waits_for_itself_fails() -> None:
    box: list[runtime.Array] = []
    filled = threading.Event()

    def work(x: np.ndarray) -> np.ndarray:
        assert filled.wait(60)
        return np.asarray(box[0])

    box.append(run(callback(work), zeros()))
    dependent = run(add_one(), box[0])
    filled.set()
    with pytest.raises(RuntimeError, match="waits for"):
        box[0].block_until_ready()
    with pytest.raises(RuntimeError, match="waits for"):
        dependent.block_until_ready()
    assert np.asarray(run(add_one(), zeros()))[0] == 1


def test_many_threads_launch_and_wait() -> None:
    failures: list[str] = []

    def work(seed: int) -> None:
        executable, noted = add_one(), callback(lambda x: x)
        for i in range(60):
            x = array(np.full(1000, float(seed)))
            for j in range(5):
                x = run(noted if (i + j) % 7 == 0 else executable, x)
            if np.asarray(x)[0] != seed + 5:
                failures.append(f"{seed} {i}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_other_exceptions_from_signals_leave_the_stream_alone() -> None:
    class Alarm(Exception):
        pass

    def ring(*_: Any) -> None:
        raise Alarm

    release = threading.Event()
    y = run(callback(lambda x: x + (0 if release.wait(60) else 1)), zeros())
    old = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        start = time.monotonic()
        with pytest.raises(Alarm):
            y.block_until_ready()
        assert time.monotonic() - start < 20
    finally:
        signal.signal(signal.SIGALRM, old)
    release.set()
    assert np.asarray(y)[0] == 1


def test_an_interrupt_cancels_what_was_launched() -> None:
    # About ten seconds of work on one chunk-sized program after the other.
    slow = machine_code.unary_kernel("fdiv", "1.5")
    size = 30_000_000
    kind = aval((size,))
    steps = [machine_code.unary_step(slow, 0, 1, size, 2e8) for _ in range(500)]
    executable = runtime.Executable(1, [NewOutput(kind.nbytes, kind)], [], 0, steps, "slow", (kind,))
    y = run(executable, zeros(size))
    z = run(add_one(size), y)
    old = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            z.block_until_ready()
        for result in (y, z):
            with pytest.raises(RuntimeError, match="interrupted"):
                result.block_until_ready()
        assert time.monotonic() - start < 8
    finally:
        signal.signal(signal.SIGALRM, old)
    assert np.asarray(run(add_one(), zeros()))[0] == 1


FORK = """
import os, sys
sys.path.insert(0, ".")
import numpy as np
from tests.runtime.test_stream import add_one, callback, run, zeros
from weft import runtime

runtime.set_async(True)
x = zeros()
for _ in range(50):
    x = run(add_one(), x)
child = os.fork()
if child == 0:
    ok = np.asarray(x)[0] == 50 and np.asarray(run(callback(lambda v: v), run(add_one(), x)))[0] == 52
    os._exit(0 if ok else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert np.asarray(run(add_one(), x))[0] == 51
print("done")
"""


def python(code: str, **environment: str) -> str:
    process = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()


def test_fork_drains() -> None:
    for _ in range(3):
        assert python(FORK) == "done"


EXIT = """
import sys, threading
sys.path.insert(0, ".")
import numpy as np
from tests.runtime import test_stream
from weft import runtime
runtime.set_async(True)
def shout(x):
    print("ran", flush=True)
    return x
x = test_stream.zeros()
kept = [test_stream.run(test_stream.add_one(), x) for _ in range(100)]
last = test_stream.run(test_stream.callback(shout), kept[-1])
"""


def test_the_environment_switches_it_off() -> None:
    code = "from weft import runtime; print(runtime.get_async())"
    assert python(code, WEFT_SYNC="1") == "False"
    assert python(code, WEFT_SYNC="0") == python(code, WEFT_SYNC="") == "True"


def test_exit_drains() -> None:
    for _ in range(3):
        assert python(EXIT) == "ran"


def test_nothing_is_left_behind() -> None:
    function = callback(lambda x: x)
    for _ in range(20):
        run(function, run(add_one(), zeros()))
    runtime.stream_drain()
    gc.collect()
    before = runtime.memory_stats()
    references = sys.getrefcount(function)
    for _ in range(2000):
        run(function, run(add_one(), zeros()))
    runtime.stream_drain()
    run(function, zeros()).block_until_ready()
    runtime.stream_drain()
    gc.collect()
    assert sys.getrefcount(function) == references
    after = runtime.memory_stats()
    # Small blocks are counted to within 1 MiB per thread; a leak would be 16 MiB.
    assert after["live_bytes"] <= before["live_bytes"] + (4 << 20), (before, after)
