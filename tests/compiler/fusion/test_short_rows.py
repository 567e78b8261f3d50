"""Arrays put together within many short rows: read piece by piece at every point, nothing outside, the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.compiler import ladder

PROGRAMS: dict[str, Callable[..., Any]] = {
    "differences": lambda m, x: m.roll(x, -1, 1) - 2 * x + m.roll(x, 1, 1),
    "roll": lambda m, x: m.roll(x, 2, 1),
    "computed_pieces": lambda m, x: m.concatenate([x[:, 2:] * 2, x[:, :2] + 1], 1),
    "two_sources": lambda m, x: m.concatenate([x[:, :2], (x + x)[:, 2:]], 1),
    "padded": lambda m, x: m.pad(x[:, 1:], ((0, 0), (0, 1))) - x,
    "reversed_piece": lambda m, x: m.concatenate([x[:, ::-1][:, :2], x[:, 2:]], 1),
    "sliced": lambda m, x: m.roll(x, -1, 1)[:, 1:3] + x[:, :2],
    "transposed": lambda m, x: m.roll(x, 1, 1).T + x.T,
    "reduced": lambda m, x: (m.roll(x, 1, 1) * x).sum(1),
    "column": lambda m, x: m.roll(x, 1, 1)[:, 0] + x[:, 1],
    "nested": lambda m, x: m.roll(m.roll(x, 1, 1) + x, 3, 1),
    "three_pieces": lambda m, x: m.concatenate([x[:, 3:], x[:, 1:3], x[:, :1]], 1),
    "every_other_row": lambda m, x: m.roll(x[::2], 1, 1) + x[1::2],
    "two_axes": lambda m, x: m.roll(x.reshape(-1, 2, x.shape[1]), (1, 2), (1, 2)),
}


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(0).integers(-9, 9, shape).astype(dtype)


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_equal_numpys(name: str) -> None:
    for shape in ((1000, 5), (2002, 4), (600, 8)):
        x = numbers(*shape)
        found = weft.jit(lambda x: PROGRAMS[name](jnp, x))(x)
        np.testing.assert_array_equal(np.asarray(found), PROGRAMS[name](np, x))


@pytest.mark.parametrize("dtype", ["float64", "int32", "uint64", "complex64", "complex128", "bfloat16", "int8", "bool"])
def test_rungs_agree_for_other_dtypes(dtype: str) -> None:
    def function(x: Any) -> Any:
        return jnp.where(jnp.roll(x, 1, 1) == x, jnp.roll(x, -2, 1), x)

    x = numbers(1003, 5).astype(jnp.dtype(dtype))
    closed = weft.make_jaxpr(function)(x)
    program = ladder.compiled(closed)
    expected = ladder.by_reference(closed, [x])[0]
    for found in (ladder.by_machine_code(program, [x])[0], ladder.by_loops(program, [x])[0]):
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def test_one_kernel_reads_the_pieces() -> None:
    text = weft.jit(PROGRAMS["differences"], static_argnums=0).lower(jnp, numbers(1000, 5)).as_text("loops")
    assert text.count("nest ") == 1
    assert text.count(" if v") == 4


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_nothing_outside_the_array_is_used(dtype: str) -> None:
    """Pieces that start before the array and end after it: NaN around them must not arrive."""
    whole = np.full((1002, 5), np.nan, dtype)
    whole[1:-1] = numbers(1000, 5)
    inner = weft.jit(lambda x: (jnp.roll(x[1:-1], 1, 1) + jnp.roll(x[1:-1], -1, 1)) * 1)(whole)
    expected = np.roll(whole[1:-1], 1, 1) + np.roll(whole[1:-1], -1, 1)
    np.testing.assert_array_equal(np.asarray(inner), expected)


def test_rows_by_an_index() -> None:
    """A window of a gather has no condition: it is not read where a piece of it would lie outside of the array."""
    x, indices = numbers(1500, 3, 9), np.array([1, 0, 2])
    for move in (2, -1):
        moved = weft.jit(lambda x, indices, by: jnp.roll(x[:, indices], by, 2), static_argnums=2)(x, indices, move)
        np.testing.assert_array_equal(np.asarray(moved), np.roll(x[:, indices], move, 2))
    ranks = weft.jit(lambda x: jnp.roll(jnp.take_along_axis(x, jnp.argsort(x, 0), 0), 1, 2))(x)
    np.testing.assert_array_equal(np.asarray(ranks), np.roll(np.sort(x, 0), 1, 2))


def test_gradients_and_batches() -> None:
    x = numbers(1000, 5)
    weights = numbers(1000, 5)
    gradient = weft.jit(weft.grad(lambda x: (jnp.roll(x, 1, 1) * weights).sum()))(x)
    np.testing.assert_array_equal(np.asarray(gradient), np.roll(weights, -1, 1))
    batched = weft.jit(weft.vmap(lambda row: jnp.roll(row, 2)))(x)
    np.testing.assert_array_equal(np.asarray(batched), np.roll(x, 2, 1))
