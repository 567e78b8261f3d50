"""Weak callbacks that an interrupt meets: they run to their end, and the interrupt is raised afterwards."""

import functools
import gc
import signal
import subprocess
import sys
import weakref

import pytest

import weft
import weft.numpy as jnp
from weft import runtime
from weft.core.caches.weak_table import WeakTable


class Owner:
    pass


def test_an_interrupt_in_a_finalizer_is_raised_after_it() -> None:
    done: list[str] = []

    def forget(_: object) -> None:
        if not done:
            done.append("interrupted")
            signal.raise_signal(signal.SIGINT)
        done.append("to the end")

    owner = Owner()
    reference = weakref.ref(owner, runtime.finalizer(forget))
    with pytest.raises(KeyboardInterrupt):
        del owner
        for _ in range(10):
            pass
    assert reference() is None
    assert done == ["interrupted", "to the end"]


def test_other_errors_in_a_finalizer_are_reported_as_pythons_are(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: reported.append(report.exc_value))

    def fail(_: object) -> None:
        raise ValueError("from the finalizer")

    owner = Owner()
    reference = weakref.ref(owner, runtime.finalizer(fail))
    del owner
    assert reference() is None
    assert [str(error) for error in reported] == ["from the finalizer"]


INTERRUPTED = """
import signal
import weft, weft.numpy as jnp

signal.signal(signal.SIGALRM, signal.default_int_handler)

caught, calls, x = 0, 300, jnp.ones(3)
for i in range(calls):
    try:
        f = weft.jit(lambda x: x + i)
        f(x)
        signal.setitimer(signal.ITIMER_REAL, 1e-6 * (i % 60))
        del f
        for _ in range(20_000):
            pass
    except KeyboardInterrupt:
        caught += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
print(caught)
"""


def test_no_interrupt_is_lost_while_functions_die() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "ignored" not in ended.stderr, ended.stderr
    assert int(ended.stdout) >= 290  # a timer of zero microseconds is no timer


def test_a_table_forgets_what_has_died() -> None:
    table: WeakTable[int] = WeakTable()
    first, second = Owner(), Owner()
    table.set(first, 1)
    table.set(second, 2)
    assert (table.get(first), table.get(second), len(table)) == (1, 2, 2)
    del first
    assert len(table) == 1
    assert table.pop(second) == 2
    assert table.get(second) is None
    with pytest.raises(TypeError, match="weak reference"):
        table.set(1, 3)


def test_a_dead_functions_traces_are_dropped() -> None:
    held = jnp.arange(7.0)
    reference = weakref.ref(held)
    f = weft.jit(functools.partial(jnp.add, held))
    f(1.0)
    del f, held
    gc.collect()
    assert reference() is None
