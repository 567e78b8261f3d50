"""Short last dimensions are collapsed into the one before them, so that lanes are full: every kind of operand, any
range of the collapsed dimension, on all rungs of the ladder and against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
import weft.numpy as jnp
from tests.compiler import ladder

DTYPES = ["bool", "int8", "uint16", "int32", "bfloat16", "float16", "float32", "float64", "complex64", "complex128"]

# (m, x, c): c has the shape of a block
PROGRAMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "a constant block": lambda m, x, c: m.where(c == c, x, c),
    "transposed blocks": lambda m, x, c: m.swapaxes(x, -1, -2).copy(),
    "with their transposes": lambda m, x, c: m.where(x == m.swapaxes(x, -1, -2), x, c),
    "triangles": lambda m, x, c: m.tril(x),
    "a row, a column, an element of each": lambda m, x, c: m.where(x[:, :1] == x[:, :, :1], x[:, :1, :1], c),
    "backwards": lambda m, x, c: m.where(x == x[:, ::-1, ::-1], x[::-1], c),
    "blocks in the order of columns": lambda m, x, c: m.moveaxis(x, 0, -1).copy(),
    "part of each": lambda m, x, c: m.where(x[:, 1:, 1:] == x[:, 1:, :-1], c[1:, 1:], x[:, :-1, :-1]),
}
SHAPES = [(700, 3, 3), (150, 6, 6), (129, 5, 12), (90, 2, 15), (64, 8, 8), (500, 4, 2), (99, 3, 21), (40, 40, 41)]


def values(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    numpy_dtype = np.dtype(getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)
    return np.random.default_rng(seed).integers(0, 3, size=shape).astype(numpy_dtype)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    program = PROGRAMS[name]
    for number, shape in enumerate(SHAPES):
        if name in ("with their transposes", "a row, a column, an element of each") and shape[1] != shape[2]:
            continue
        for dtype in DTYPES[number % 2 :: 2]:
            x, c = values(shape, dtype), values(shape[1:], dtype, 1)
            with weft.enable_x64(True):
                got = weft.jit(lambda x, c: program(jnp, x, c))(x, c)
            np.testing.assert_array_equal(np.asarray(got), program(np, x, c), err_msg=f"{shape} {dtype}")


def test_lanes_run_along_the_collapsed_dimension() -> None:
    x = jnp.ones((400, 6, 6))  # from 16,384 elements on AVX2 runs rows of a known length
    text = weft.jit(lambda x: x + jnp.swapaxes(x, 1, 2)).lower(x).compile().as_text("loops")
    assert "parallel i0 lanes" in text and "digit i1; digit i2; digit i3" in text
    assert "digit" not in weft.jit(lambda x: x + jnp.swapaxes(x, 1, 2)).lower(x[:2]).compile().as_text("loops")


def test_vectors_of_short_bodies_share_the_search_for_the_next_position() -> None:
    weights = jnp.arange(64.0)
    for rows in (300, 333, 1001):
        x = jnp.asarray(np.random.default_rng(rows).normal(size=(rows, 64)).astype(np.float32))
        compiled = weft.jit(lambda x, w: x * w + w)
        np.testing.assert_array_equal(compiled(x, weights), np.asarray(x) * np.asarray(weights) + np.asarray(weights))
    assert "from tables, 4 in flight" in compiled.lower(x, weights).compile().as_text("loops")


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint32", "float64", "bfloat16"])
@pytest.mark.parametrize(("rows", "columns"), [(3000, 3), (3000, 4), (2500, 5), (1500, 7), (700, 10), (200, 40)])
def test_windows_of_rows(rows: int, columns: int, dtype: str) -> None:
    """Parts of short rows, and rows beside one element for each, whose lanes are picked from two vectors."""
    x, y = values((rows, columns), dtype), values((rows,), dtype, 1)

    def program(m: Any, x: Any, y: Any) -> Any:
        parts = x[1:, :-1], x[:-1, 1:], x[:-1, ::-1][:, 1:]
        return m.where(parts[0] == parts[1], parts[2], y[:-1, None]), m.where(x[:, 1:] == y[:, None], 1, x[:, :-1])

    found = weft.jit(lambda x, y: program(jnp, x, y))(x, y)
    for got, want in zip(found, program(np, x, y), strict=True):
        np.testing.assert_array_equal(np.asarray(got).astype(np.float64), want.astype(np.float64))


@settings(max_examples=25, deadline=None)
@given(
    batch=st.integers(60, 400), rows=st.integers(1, 9), columns=st.integers(2, 22), outer=st.integers(1, 3),
    kept=st.lists(st.booleans(), min_size=4, max_size=4), flipped=st.booleans(),
)  # fmt: skip
def test_any_extents_and_broadcasts(
    batch: int, rows: int, columns: int, outer: int, kept: list[bool], flipped: bool
) -> None:
    rng = np.random.default_rng(batch)
    shape = (outer, batch, rows, columns)
    x = rng.normal(size=(outer, batch, columns, rows)).astype(np.float32)
    y = rng.normal(size=[n if keep else 1 for n, keep in zip(shape, kept, strict=True)]).astype(np.float32)

    def program(m: Any, x: Any, y: Any) -> Any:
        y = y[..., ::-1] if flipped else y
        return m.swapaxes(x, -1, -2) * 2 - y + m.arange(rows, dtype="float32")[:, None]

    got = weft.jit(lambda x, y: program(jnp, x, y))(x, y)
    np.testing.assert_array_equal(np.asarray(got), program(np, x, y))


def test_all_rungs_of_the_ladder_agree() -> None:
    x = np.random.default_rng(0).normal(size=(150, 6, 6)).astype(np.float32)
    closed = ladder.traced(lambda x: [jnp.tril(x + jnp.swapaxes(x, 1, 2)) * jnp.arange(6.0) + x[:, :1]], [x])
    program = ladder.compiled(closed)
    want = ladder.by_eager(closed, [x])
    for got in (ladder.by_machine_code(program, [x]), ladder.by_loops(program, [x]), ladder.by_reference(closed, [x])):
        np.testing.assert_array_equal(got[0], want[0])
