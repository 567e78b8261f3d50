"""Many short rows whose length is compiled in: whole vectors that overlap, against NumPy, by elements."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.compiler import ladder
from weft.loops.schedules import blocks, thresholds

DTYPES = ["bool", "int8", "uint16", "int32", "bfloat16", "float32", "float64", "complex64", "complex128"]
LENGTHS = (2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65)

PROGRAMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "a part": lambda m, x, i: x[:, 1:],
    "reversed": lambda m, x, i: x[:, ::-1],
    "every second": lambda m, x, i: x[:, ::2],
    "backwards by two": lambda m, x, i: x[:, ::-2],
    "repeated": lambda m, x, i: m.repeat(m.repeat(x, 3, axis=0), 2, axis=1),
    "by an index": lambda m, x, i: x[i],
    "a row and a column": lambda m, x, i: m.where(x == x[:1], x[:, :1], x),
    "joined": lambda m, x, i: m.concatenate([x, x[:, ::-1], x[:, :2]], 1),
    "padded": lambda m, x, i: m.pad(x, ((1, 2), (1, 3))),
    "neighbours": lambda m, x, i: m.where(x[:, 1:] == x[:, :-1], x[:, 1:], x[:, :-1]),
    "turned": lambda m, x, i: m.swapaxes(x[: len(x) // 12 * 12].reshape(-1, 12, x.shape[1]), 1, 2),
    "turned, of few": lambda m, x, i: m.swapaxes(x[: len(x) // 6 * 6].reshape(-1, 6, x.shape[1]), 1, 2)[:, ::-1],
    "with positions": lambda m, x, i: m.where(m.arange(x.shape[1]) > 2, x, x[::-1]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_of_every_length(name: str) -> None:
    rng = np.random.default_rng(0)
    for number, length in enumerate(LENGTHS):
        dtype = DTYPES[(number + len(name)) % len(DTYPES)]
        rows = thresholds.MANY // length + 1 + number
        x = rng.integers(0, 2, (rows, length)).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
        if x.dtype.kind in "fc":
            x[0, 0], x[-1, -1], x[1, 0] = np.nan, -0.0, np.inf
        i = rng.integers(0, rows, rows).astype(np.int32)
        with weft.enable_x64(True):
            got = np.asarray(weft.jit(lambda x, i: PROGRAMS[name](jnp, x, i))(x, i))
        expected = np.asarray(PROGRAMS[name](np, x, i))
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape), (length, dtype)
        assert got.tobytes() == expected.tobytes(), (length, dtype)


@pytest.mark.parametrize("length", [3, 5, 8, 13, 27])
def test_a_result_in_the_memory_of_an_operand(length: int) -> None:
    """The last vector begins inside of the one before it, whose results may have replaced its operands."""
    x = np.arange(20000 // length * length, dtype=np.float32).reshape(-1, length)
    given = jnp.asarray(x) + 0
    got = weft.jit(lambda x: x * 3 + x[:, :1], donate_argnums=0)(given)
    np.testing.assert_array_equal(np.asarray(got), x * 3 + x[:, :1])


REPEATS: dict[str, Callable[[Any, Any], Any]] = {
    "both": lambda m, x: m.repeat(m.repeat(x, 2, axis=0), 2, axis=1),
    "both, the other order": lambda m, x: m.repeat(m.repeat(x, 3, axis=1), 2, axis=0),
    "three axes": lambda m, x: m.repeat(m.repeat(m.repeat(x.reshape(-1, 2, x.shape[1]), 2, 2), 3, 1), 2, 0),
    "tiles of repeats": lambda m, x: m.tile(m.repeat(x, 2, axis=1), (3, 2)),
    "within rows": lambda m, x: (
        m.broadcast_to(x[:, None, :, None], (x.shape[0], 2, x.shape[1], 3)) == x[:1, None, :1, None]
    ),
    "a new axis": lambda m, x: m.broadcast_to(m.repeat(x, 2, axis=0)[:, None], (2 * x.shape[0], 3, x.shape[1])),
}


@pytest.mark.parametrize("name", REPEATS)
def test_elements_repeated_along_several_axes(name: str) -> None:
    for number, (rows, length) in enumerate(
        ((1300, 7), (1700, 5), (4100, 2), (900, 10), (90, 56), (900, 1), (4, 3), (0, 7))
    ):
        dtype = DTYPES[(number + len(name)) % len(DTYPES)]
        x = np.random.default_rng(0).integers(0, 2, (rows, length))
        x = x.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
        with weft.enable_x64(True):
            got = np.asarray(weft.jit(lambda x: REPEATS[name](jnp, x))(x))
        np.testing.assert_array_equal(got, REPEATS[name](np, x), err_msg=f"{rows} {length} {dtype}")


def test_repeats_along_two_axes_are_one_kernel() -> None:
    x = np.zeros((1600, 7), np.float32)
    program = ladder.compiled(weft.make_jaxpr(lambda x: REPEATS["both"](jnp, x))(x))
    assert (ladder.n_kernels(program), program.plan.arena_bytes) == (1, 0)


def test_vectors_of_a_row_end_with_it() -> None:
    for lanes in (4, 8, 16, 64):
        for extent in range(2, blocks.longest(lanes) + 1):
            width, starts = blocks.along(extent, lanes)
            covered = {start + lane for start in starts for lane in range(width)}
            assert covered == set(range(extent))
            assert len(starts) <= blocks.VECTORS


def test_the_length_of_many_short_rows_is_compiled_in() -> None:
    """Not of few, nor of long ones, whose kernels serve every length."""
    for shape, known in (((3000, 10), True), (((3, 10)), False), ((3000, 100), False)):
        x = np.zeros((shape[0], shape[1] + 1), np.float32)
        text = weft.jit(lambda x: x[:, 1:] * 2).lower(x).compile().as_text("loops")
        assert (f"blocks of 1 x {shape[1]}" in text) == known, text


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_elements_of_narrow_rows_take_turns(count: int) -> None:
    """Repeats, and transposes to narrow rows, of every dtype; whole vectors, and what is left of them."""
    for number, dtype in enumerate(DTYPES):
        columns = 1030 + number
        x = (
            np.random.default_rng(0)
            .integers(0, 2, (count, columns))
            .astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
        )
        with weft.enable_x64(True):
            got = weft.jit(lambda x: (x[0][:, None] == x.T, jnp.repeat(x, count, axis=1), jnp.repeat(x[:, 1:], count)))(
                x
            )
        expected = (x[0][:, None] == x.T, np.repeat(x, count, axis=1), np.repeat(x[:, 1:], count))
        for one, other in zip(got, expected, strict=True):
            np.testing.assert_array_equal(np.asarray(one), other, err_msg=dtype)


def test_repeats_are_stored_as_whole_vectors() -> None:
    text = weft.jit(lambda x: jnp.repeat(x, 3)).lower(np.zeros(9000, np.float32)).compile().as_text("loops")
    assert re.search(r"blocks of \d+ x 3, 3 of \d+ lanes", text)


BACKWARDS: dict[str, Callable[[Any, Any], Any]] = {
    "all": lambda m, x: x[:, ::-1],
    "blocks": lambda m, x: x[: len(x) // 17 * 17].reshape(-1, 17, x.shape[1])[:, 1:, ::-1],
    "and forwards": lambda m, x: m.where(x == x[:, ::-1], x, x[:, ::-1]),
    "and a column": lambda m, x: m.where(x[:, ::-1] == x[:, :1], x[:, ::-1], x[:1, :]),
    "and turned": lambda m, x: x[:, ::-1] == x.reshape(x.shape[1], -1).T,
    "and a number": lambda m, x: x[:, ::-1] == x[:1, :1],
    "with positions": lambda m, x: m.where(m.arange(x.shape[1]) > 1, x[:, ::-1], x),
}


@pytest.mark.parametrize("name", BACKWARDS)
def test_narrow_rows_backwards(name: str) -> None:
    """Rows of channels, of every dtype: whole blocks of vectors, and what is left of them."""
    for number, dtype in enumerate(DTYPES):
        length = 2 + number % 3
        x = np.random.default_rng(0).integers(0, 2, (1037 + number, length))
        x = x.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
        if x.dtype.kind in "fc":
            x[0, 0], x[-1, -1], x[1, 0] = np.nan, -0.0, np.inf
        for rows in (len(x), 300, 16, 0):
            with weft.enable_x64(True):
                got = np.asarray(weft.jit(lambda x: BACKWARDS[name](jnp, x))(x[:rows]))
            expected = np.asarray(BACKWARDS[name](np, x[:rows]))
            assert (got.dtype, got.shape) == (expected.dtype, expected.shape), (rows, dtype)
            assert got.tobytes() == expected.tobytes(), (rows, dtype)


def test_narrow_rows_backwards_are_whole_vectors() -> None:
    text = weft.jit(lambda x: x[:, ::-1]).lower(np.zeros((3000, 3), np.uint8)).compile().as_text("loops")
    assert re.search(r"blocks of \d+ x 3, 3 of \d+ lanes", text)


@pytest.mark.parametrize("dtype", ["uint8", "float32", "complex64"])
def test_many_short_rows_are_padded_by_a_fill_of_all(dtype: str) -> None:
    for rows, length in ((300, 3), (300, 62), (300, 63), (5, 3), (0, 3), (400, 0)):
        for widths in (((0, 0), (1, 1)), ((0, 0), (0, 2)), ((2, 1), (1, 0))):
            x = np.random.default_rng(0).integers(0, 9, (rows, length)).astype(dtype)
            got = weft.jit(lambda x, w=widths: jnp.pad(x, w, constant_values=7))(x)
            np.testing.assert_array_equal(np.asarray(got), np.pad(x, widths, constant_values=7))


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_accesses_by_several_indices(axis: int) -> None:
    """A row of rows, each of which lies where an index says."""
    x = np.arange(1100 * 2 * 2 * 3, dtype=np.float32).reshape(1100, 2, 2, 3)
    i = np.array([[0, 1], [1, 0], [1, 1]], np.int32)
    for mode in ("fill", "clip", "wrap"):
        got = weft.jit(lambda x, i: jnp.take(x, i, axis, mode=mode))(x, i)  # noqa: B023 - called here
        np.testing.assert_array_equal(np.asarray(got), np.take(x, i, axis))
