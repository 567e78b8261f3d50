"""Updates of a window whose place the program knows, and arrays assembled of assembled ones: counts and values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.compiler import ladder
from weft import lax
from weft.compiler.instructions import Copy


def stencil(u: Any) -> Any:
    return u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]


UPDATES: dict[str, tuple[Callable[[Any], Any], Callable[[np.ndarray], None]]] = {
    "add": (
        lambda u: u.at[1:-1, 1:-1].add(stencil(u)),
        lambda u: u.__setitem__(np.s_[1:-1, 1:-1], u[1:-1, 1:-1] + stencil(u)),
    ),
    "set": (
        lambda u: u.at[1:-1, 1:-1].set(stencil(u)),
        lambda u: u.__setitem__(np.s_[1:-1, 1:-1], stencil(u)),
    ),
    "min": (
        lambda u: u.at[1:-1, 1:-1].min(stencil(u)),
        lambda u: u.__setitem__(np.s_[1:-1, 1:-1], np.minimum(u[1:-1, 1:-1], stencil(u))),
    ),
    "rows": (lambda u: u.at[1:].add(u[:-1]), lambda u: u.__setitem__(np.s_[1:], u[1:] + u[:-1])),
    "columns": (
        lambda u: u.at[:, :-2].multiply(u[:, 2:]),
        lambda u: u.__setitem__(np.s_[:, :-2], u[:, :-2] * u[:, 2:]),
    ),
    "a corner": (
        lambda u: u.at[:5, :7].set(u[1:, 1:8]),
        lambda u: u.__setitem__(np.s_[:5, :7], u[1:, 1:8].copy()),
    ),
}


@pytest.mark.parametrize("name", UPDATES)
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_updates_of_known_windows(name: str, dtype: Any) -> None:
    function, in_place = UPDATES[name]
    x = np.random.default_rng(0).integers(-50, 50, (6, 8)).astype(dtype)
    expected = x.copy()
    in_place(expected)
    assert np.asarray(weft.jit(function)(x)).tobytes() == expected.tobytes()
    assert np.asarray(weft.jit(lambda u: lax.fori_loop(0, 1, lambda i, v: function(v), u))(x)).tolist() == (
        expected.tolist()
    )


def test_a_stencil_is_one_kernel_with_its_columns_and_two_rows_of_the_border() -> None:
    program = ladder.compiled(weft.make_jaxpr(UPDATES["add"][0])(np.zeros((60, 80), np.float32)))
    assert program.plan.arena_bytes == 0, program.text("plan")
    assert ladder.n_kernels(program) == 3, program.text("kernel")
    assert not any(isinstance(entry, Copy) for entry in program.plan.instructions)


def test_an_update_of_little_stays_in_place() -> None:
    program = ladder.compiled(weft.make_jaxpr(lambda u: u.at[0].set(u[1] * 2))(np.zeros((60, 80), np.float32)))
    assert "scatter" in program.text("kernel")


@pytest.mark.parametrize("start", [(0, 0), (1, 2), (5, 0), (-1, 0), (0, 9)])
@pytest.mark.parametrize("mode", ["drop", "clip"])
def test_windows_at_the_edge(start: tuple[int, int], mode: str) -> None:
    x = np.arange(48, dtype=np.float32).reshape(6, 8)
    numbers = lax.ScatterDimensionNumbers((0, 1), (), (0, 1))

    def function(u: Any) -> Any:
        return lax.scatter_add(u, jnp.stack([jnp.int32(k) for k in start]), u[1:, 2:] * 2, numbers, mode=mode)

    with weft.disable_jit():
        expected = np.asarray(function(jnp.asarray(x)))
    assert np.asarray(weft.jit(function)(x)).tolist() == expected.tolist()


def test_the_gradient_through_a_known_window() -> None:
    x = np.random.default_rng(1).standard_normal((5, 6))

    def loss(u: Any) -> Any:
        return jnp.sum(jnp.sin(UPDATES["add"][0](u)))

    with weft.enable_x64():
        gradient = np.asarray(weft.jit(weft.grad(loss))(x))
        for place in ((0, 0), (2, 3), (4, 5), (1, 1)):
            step = np.zeros_like(x)
            step[place] = 1e-6
            slope = (float(loss(jnp.asarray(x + step))) - float(loss(jnp.asarray(x - step)))) / 2e-6
            np.testing.assert_allclose(gradient[place], slope, rtol=1e-6, atol=1e-8)


def test_blocks_of_blocks_are_written_once() -> None:
    rng = np.random.default_rng(2)
    a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((4, 5), (4, 3), (6, 8)))

    def block(a: Any, b: Any, c: Any) -> Any:
        return lax.concatenate([lax.concatenate([a * 2, b], 1), c + 1], 0)

    program = ladder.compiled(weft.make_jaxpr(block)(a, b, c))
    assert program.plan.arena_bytes == 0, program.text("plan")
    expected = np.block([[a * 2, b], [c + 1]])
    assert np.asarray(weft.jit(block)(a, b, c)).tolist() == expected.tolist()

    def kept(a: Any, b: Any, c: Any) -> Any:
        top = lax.concatenate([a * 2, b], 1)
        return lax.concatenate([top, c + 1], 0), top

    whole, top = weft.jit(kept)(a, b, c)
    assert np.asarray(whole).tolist() == expected.tolist()
    assert np.asarray(top).tolist() == expected[:4].tolist()
    padded = weft.jit(lambda a, b: lax.concatenate([lax.pad(a, np.float32(7), ((1, 1, 0), (0, 0, 1))), b], 1))
    wide = np.full((6, 9), 7, np.float32)
    wide[1:5, ::2] = a
    assert np.asarray(padded(a, c)).tolist() == np.concatenate([wide, c], 1).tolist()


@pytest.mark.parametrize("update", ["add", "set", "max", "multiply"])
@pytest.mark.parametrize("shape", [(1, 1), (17, 9), (40, 70), (700, 900)])
def test_a_window_that_does_not_read_the_array_is_written_by_vectors(shape: tuple[int, int], update: str) -> None:
    rng = np.random.default_rng(shape[0])
    x = rng.integers(-50, 50, shape).astype(np.float32)
    for _ in range(3):
        low = [int(rng.integers(0, extent)) for extent in shape]
        place = tuple(slice(begin, int(rng.integers(begin + 1, extent + 1))) for begin, extent in zip(low, shape))
        v = rng.integers(-9, 9, x[place].shape).astype(np.float32)
        ufunc = {"add": np.add, "set": lambda _, v: v, "max": np.maximum, "multiply": np.multiply}[update]
        want = x.copy()
        want[place] = ufunc(x[place], v)

        def f(x: Any, v: Any, place: Any = place) -> Any:
            return getattr(x.at[place], update)(v)

        for donated in ((), (0,)):
            jitted = weft.jit(f, donate_argnums=donated)
            np.testing.assert_array_equal(jitted(jnp.asarray(x), v), want)
    text = weft.jit(lambda x, v: x.at[1:-1].add(v), donate_argnums=0).lower(np.ones(999), np.ones(997)).compile()
    assert "lanes" in text.as_text("loops")


@pytest.mark.parametrize("start", [-2, 0, 3, 5, 6])
@pytest.mark.parametrize("mode", ["drop", "clip"])
def test_one_window_at_a_place_that_is_known_late(start: int, mode: str) -> None:
    x, v = np.arange(90, dtype=np.float32).reshape(9, 10), np.ones((4, 10), np.float32)
    numbers = lax.ScatterDimensionNumbers((0, 1), (), (0,))
    first = min(max(start, 0), 5) if mode == "clip" else start
    want = x.copy()
    if 0 <= first <= 5:
        want[first : first + 4] += 1
    f = weft.jit(lambda x, s, v: lax.scatter_add(x, s, v, numbers, mode=mode))
    np.testing.assert_array_equal(f(x, np.array([start], np.int32), v), want)
