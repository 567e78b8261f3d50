"""Loops and branches of many launches: nobody waits between them, and the bits are the CPU's."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.gpu import driver, native_build
from tests.gpu.beside_the_cpu import check, launches, same
from weft import lax
from weft.compiler.gpu import device_starts
from weft.compiler.plans.steps import Control

pytestmark = pytest.mark.skipif(
    native_build.compiler() is None, reason="there is no C++ compiler to build the driver with"
)
X = np.random.default_rng(0).standard_normal((140, 141)).astype(np.float32)  # more than one block does alone


def calls_of(device: Any, function: Callable[..., Any], *args: Any) -> dict[str, int]:
    """What a second call asks the driver for, before anybody looks at its results."""
    check(device, function, args)
    jitted, arguments = weft.jit(function), [weft.device_put(x, device) for x in args]
    with weft.default_device(device):
        assert any(isinstance(e, Control) for e in jitted.lower(*arguments).compile()._program().plan.instructions)
        counts: dict[str, int] = {}
        for _ in range(2):
            driver.calls()
            found = jitted(*arguments)
            counts = driver.calls()
            weft.tree.map(lambda x: x.block_until_ready(), found)
    return counts


def heat(u: Any) -> Any:
    def step(i: Any, u: Any) -> Any:
        inner = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]
        return u.at[1:-1, 1:-1].add(0.1 * inner)

    return lax.fori_loop(0, 3, step, u)


def summed(xs: Any) -> Any:
    return lax.scan(lambda c, x: (jnp.tanh(c) + x, c[0]), xs[0] * 0, xs, reverse=True)


def test_steps_of_a_known_number_follow_each_other(device: Any) -> None:
    for function, x in ((heat, X), (summed, np.stack([X, X + 1, X * 2]))):
        counts = calls_of(device, function, x)
        assert counts["cuLaunchKernel"] >= 6 and "cuEventQuery" not in counts


def moved(x: Any) -> Any:
    """Rows are read and written at positions that the program computes; some are clamped."""

    def step(i: Any, s: Any) -> Any:
        x, total = s
        return x.at[i * 50 + 3].set(jnp.sin(x[i]) * 2), total + lax.dynamic_slice(x, (total.astype(int), i), (3, 4))[
            1, 2
        ]

    return lax.fori_loop(0, 4, step, (x, jnp.float32(0)))


def moved_until(x: Any) -> Any:
    def step(s: Any) -> Any:
        i, x = s
        return i + 1, lax.dynamic_update_slice(x, lax.dynamic_slice(x, (i, i - 1), (3, 8)) + 1, (i + 3, i * 4))

    return lax.while_loop(lambda s: (s[0] < 4) & (s[1].max() < 100), step, (0, x))


def test_positions_that_are_computed_are_not_waited_for(device: Any) -> None:
    counts = calls_of(device, moved, X)
    assert counts["cuLaunchKernel"] >= 12 and counts["cuEventRecord"] == 1 and "cuMemcpyDtoHAsync_v2" not in counts
    counts = calls_of(device, moved_until, X)
    assert counts["cuEventRecord"] - 1 == 2  # looks at the condition


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64"])
def test_starts_of_every_type_are_clamped(device: Any, dtype: str) -> None:
    def function(x: Any, i: Any, j: Any) -> Any:
        small = lax.dynamic_slice(x, (i, j), (4, 8)) * 2 + lax.dynamic_slice_in_dim(x, j, 4)[:, :8]
        return small, lax.dynamic_update_slice(x, small, (j, i))

    with weft.enable_x64(dtype == "int64"):
        for i, j in ((3, 5), (120, 7), (0, -9 if dtype[0] == "i" else 200)):
            launches(
                device, function, X[:, :140], np.array(i, dtype), np.array(j % 256 if dtype[0] == "u" else j, dtype)
            )


def test_more_starts_than_a_kernel_takes(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Any, *starts: Any) -> Any:
        total = jnp.zeros((2, 2, 2, 2))
        for k in range(0, len(starts), 4):
            total += lax.dynamic_slice(x, starts[k : k + 4], (2, 2, 2, 2)) * k
        return total

    args = X[:6, :56].reshape(2, 3, 7, 8), *np.arange(160, dtype=np.uint32) % 7
    assert launches(device, function, *args).count("launch starts") == 2
    monkeypatch.setattr(device_starts, "GPU_WORDS", 5)
    compiled = check(device, lambda x, i, j: lax.dynamic_slice(x, (i, j), (4, 8)) * 2 + x[:4, :8], (X, 7, 200))
    assert "launch starts" not in compiled.as_text("plan")


def test_starts_beyond_an_array_are_told_of(device: Any) -> None:
    function = weft.jit(lambda x, i: lax.dynamic_slice(x, (i,), (4,)) * 2, checks="index")
    x = np.arange(12, dtype=np.float32)
    with weft.default_device(device):
        assert np.array_equal(np.asarray(function(x, np.int32(8))), x[8:] * 2)
        for start in (9, -15):
            with pytest.raises(weft.errors.CheckError, match="dynamic_slice"):
                np.asarray(function(x, np.int32(start)))


def until(limit: int) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        cond = lambda s: (s[1] < limit) & (jnp.abs(s[0]).max() > 1e-4)
        return lax.while_loop(cond, lambda s: (s[0] * 0.9, s[1] + 1), (x, 0))

    return function


@pytest.mark.parametrize("limit", [0, 1, 4, 5, 8, 40])
def test_steps_until_a_condition_are_asked_for_ahead(device: Any, limit: int) -> None:
    counts = calls_of(device, until(limit), X)
    looks = counts["cuEventRecord"] - 1  # and one for the end of the program
    assert looks == {0: 1, 1: 1, 4: 2, 5: 2, 8: 3, 40: 5}[limit]


def exchanged(x: Any) -> Any:
    """Parts of the state are exchanged, or are copied."""
    cond = lambda s: s[3] < 6
    return lax.while_loop(cond, lambda s: (s[1], s[0] + s[2], s[1], s[3] + 1), (x, x + 1, x * 2, 0))


def with_answer(x: Any) -> Any:
    """The condition is a part of the state."""
    return lax.while_loop(lambda s: s[1], lambda s: (s[0] * 0.5, jnp.abs(s[0]).max() > 0.1), (x, jnp.bool_(True)))


def inner_loops(x: Any) -> Any:
    def step(s: Any) -> Any:
        y = lax.fori_loop(0, 3, lambda i, y: jnp.sin(y) + i, s[0])
        return y, s[1] + 1

    return lax.while_loop(lambda s: s[1] < 3, step, (x, 0))


def inner_branch(x: Any) -> Any:
    def step(s: Any) -> Any:
        return lax.cond(s[0][0, 0] > 0, lambda y: y - 1, lambda y: y.at[3].set(2) * 0.5, s[0]), s[1] + 1

    return lax.while_loop(lambda s: s[1] < 6, step, (x, 0))


def inner_while(x: Any) -> Any:
    def step(i: Any, x: Any) -> Any:
        return lax.while_loop(lambda y: jnp.abs(y).max() > 1, lambda y: y * 0.7, x) * 3

    return lax.fori_loop(0, 3, step, x)


def until_small(x: Any) -> Any:
    """Numbers of inner steps that change slowly."""

    def step(s: Any) -> Any:
        y, n = lax.while_loop(lambda y: jnp.abs(y[0]).max() > 1, lambda y: (y[0] * 0.7, y[1] + 1), (s[0], 0))
        return y * 3 + 1 / (s[1] + 1), s[1] + 1, s[2] + n

    return lax.while_loop(lambda s: s[1] < 20, step, (x, 0, 0))


def until_numbers(x: Any) -> Any:
    """Numbers of inner steps that change from step to step, three loops deep."""

    def step(s: Any) -> Any:
        x, i = s

        def middle(s: Any) -> Any:
            few = lambda u: (u[1], u[0][::-1] * 1.01 + s[1], u[2] + 1)
            return lax.while_loop(lambda u: u[2] < (i + s[1]) % 4, few, (s[0], s[0] * 2, 0))[0], s[1] + 1

        return lax.while_loop(lambda s: s[1] < i % 3 + 1, middle, (x, 0))[0], i + 1

    return lax.while_loop(lambda s: s[1] < 12, step, (x, 0))


def loops_in_branches(x: Any) -> Any:
    def step(s: Any) -> Any:
        x, i = s
        down = lambda k, y: lax.while_loop(
            lambda s: s[1] < k + i // 6, lambda s: (s[0][:, ::-1] * 0.9, s[1] + 1), (y, 0)
        )
        up = lambda x: lax.while_loop(lambda s: s[1] < i % 5, lambda s: (s[0][::-1] + 0.5, s[1] + 1), (x, 0))[0]
        several = [up, lambda x: lax.fori_loop(0, 2, lambda k, y: down(k, y)[0], x), lambda x: x - 1]
        return lax.switch(i % 4, several, x), i + 1

    return lax.while_loop(lambda s: s[1] < 14, step, (x, 0))


def loop_in_scan(x: Any) -> Any:
    def step(c: Any, row: Any) -> Any:
        y, n = lax.while_loop(lambda s: jnp.abs(s[0]).max() > 1, lambda s: (s[0] * 0.6, s[1] + 1), (c + row, 0))
        return y, (n, y[0])

    return lax.scan(step, x, jnp.stack([x * (i % 5) for i in range(9)]), reverse=True)


def loop_in_condition(x: Any) -> Any:
    def cond(s: Any) -> Any:
        y = lax.while_loop(lambda k: k[0] < s[1] % 3, lambda k: (k[0] + 1, k[1] * 0.99), (0, s[0]))[1]
        return (jnp.abs(y).max() > 0.5) & (s[1] < 9)

    return lax.while_loop(cond, lambda s: (s[0] * 0.95, s[1] + 1), (x, 0))


def ordered(x: Any) -> Any:
    """A step that is the host's."""
    return lax.while_loop(lambda s: s[1] < 3, lambda s: (jnp.linalg.qr(s[0])[0] + s[1], s[1] + 1), (x, 0))


NESTED = [until_numbers, loops_in_branches, loop_in_scan, loop_in_condition]


def test_loops_inside_of_others_are_asked_for_ahead(device: Any) -> None:
    counts = calls_of(device, until_small, X)
    assert counts["cuEventRecord"] <= 10  # of 20 steps, each with a loop
    counts = calls_of(device, inner_branch, X)
    assert counts["cuEventRecord"] - 1 == 2  # as without the branch


def test_handlers_of_signals_may_run_programs_while_a_loop_is_asked_for(device: Any) -> None:
    function = weft.jit(until_small)
    xs = [X * 4**k for k in range(3)]  # loops inside take more steps of each
    wanted = [weft.tree.leaves(function(x)) for x in xs]
    found: list[Any] = []

    def handler(*_: object) -> None:
        if not running and len(found) < 2:
            running.append(True)
            found.append(function(xs[len(found) + 1]))
            running.pop()

    with weft.default_device(device):
        own = function(X)
        running, before = list[bool](), signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.03, 0.03)
        try:
            while len(found) < 2:
                own = function(X)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    for left, right in zip([own, *found], wanted, strict=True):
        assert all(same(x, y) for x, y in zip(weft.tree.leaves(left), right, strict=True))


@pytest.mark.parametrize("function", [exchanged, with_answer, inner_loops, inner_branch, inner_while, ordered, *NESTED])
def test_loops_have_the_bits_of_the_cpu(device: Any, function: Callable[..., Any]) -> None:
    x = X[:, :140] if function is ordered else X
    check(device, function, (x,))


@pytest.mark.parametrize("which", [-3, 0, 1, 2, 3, 99])
def test_a_branch_does_not_wait(device: Any, which: int) -> None:
    def function(which: Any, x: Any) -> Any:
        several = [lambda x: x, jnp.sin, lambda x: x[::-1] @ x.T @ x, lambda x: jnp.pad(x[:, 1:-1], ((0, 0), (1, 1)))]
        return lax.switch(which, several, x)

    counts = calls_of(device, function, np.int32(which), X)
    assert "cuEventQuery" not in counts


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "complex64"])
def test_what_a_branch_passes_on(device: Any, dtype: str) -> None:
    x = (X[:3, :5] * 9).astype(dtype)
    for flag in (True, False):
        check(device, lambda p, x: lax.cond(p, lambda x: (x, x[1:]), lambda x: (x * 2, x[:-1]), x), (flag, x))


def test_prints_in_a_loop_are_in_order(device: Any, capfd: pytest.CaptureFixture[str]) -> None:
    def function(x: Any) -> Any:
        def step(s: Any) -> Any:
            y = s[0] * 2
            weft.debug.print("step {} {}", s[1], y[0, 0], ordered=True)
            return y, s[1] + 1

        return lax.while_loop(lambda s: s[1] < 6, step, (x, 0))

    with weft.default_device(device):
        found = weft.jit(function)(np.ones_like(X))[0]
        weft.effects_barrier()
    assert np.array_equal(np.asarray(found), np.full_like(X, 64))
    assert capfd.readouterr().out.split("\n")[:-1] == [f"step {k} {2.0 ** (k + 1)}" for k in range(6)]


def test_errors_of_callbacks_in_a_loop_are_raised(device: Any) -> None:
    def told(i: Any) -> Any:
        if i == 2:
            raise ValueError("step two")
        return np.float32(i)

    def function(x: Any) -> Any:
        def step(i: Any, x: Any) -> Any:
            return x + weft.pure_callback(told, weft.ShapeDtypeStruct((), np.float32), i)

        return lax.fori_loop(0, 4, step, x)

    with weft.default_device(device), pytest.raises(Exception, match="step two"):
        weft.jit(function)(X).block_until_ready()
