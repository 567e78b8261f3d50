"""Data movement: small and negative strides, interleaved pieces, narrow last dimensions; against NumPy, by elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.compiler import ladder
from weft._base import target

DTYPES = ["bool", "int8", "uint16", "int32", "bfloat16", "float32", "float64", "complex64", "complex128"]

MOVES: dict[str, Callable[[Any, Any], Any]] = {
    "reversed": lambda m, x: x[:, ::-1],
    "reversed rows": lambda m, x: x[::-1],
    "reversed both": lambda m, x: m.flip(x, (0, 1)),
    "every second": lambda m, x: x[:, ::2],
    "every third": lambda m, x: x[1:, 1::3],
    "every fourth": lambda m, x: x[:, 3::4],
    "every fifth": lambda m, x: x[:, ::5],
    "backwards by two": lambda m, x: x[:, ::-2],
    "transposed": lambda m, x: x.T,
    "stack of two": lambda m, x: m.stack([x, x[::-1]], -1),
    "stack of three": lambda m, x: m.stack([x, x[:, ::-1], x], -1),
    "stack of five": lambda m, x: m.stack([x] * 5, -1),
    "stack between": lambda m, x: m.stack([x, x], 1),
    "joined": lambda m, x: m.concatenate([x, x[:, :1], x[:, ::-1]], 1),
    "repeated": lambda m, x: m.repeat(x, 2, axis=1),
    "repeated thrice": lambda m, x: m.repeat(x, 3, axis=0),
    "tiled": lambda m, x: m.tile(x, (2, 3)),
    "rolled": lambda m, x: m.roll(x, 5, 1),
    "padded": lambda m, x: m.pad(x, ((1, 2), (0, 3))),
}
SHAPES = [(3, 5), (17, 33), (2, 100), (100, 2), (1, 70), (5000, 3), (3, 5000), (4100, 4), (0, 7)]


@pytest.mark.parametrize("name", MOVES)
def test_moves(name: str) -> None:
    for number, shape in enumerate(SHAPES):
        for dtype in (DTYPES[number % 9], DTYPES[(number + 4) % 9]):
            numpy_dtype = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
            values = np.random.default_rng(0).integers(0, 100, size=shape).astype(numpy_dtype)
            with weft.enable_x64(True):
                got = np.asarray(weft.jit(lambda x: MOVES[name](jnp, x))(values))
            np.testing.assert_array_equal(got, MOVES[name](np, values), err_msg=f"{shape} {dtype}")


def test_a_running_sum_from_the_end_of_a_reversed_view() -> None:
    x = np.random.default_rng(0).integers(-9, 9, size=(19, 50)).astype(np.int32)
    for axis in (0, 1):
        got = weft.jit(lambda x, a=axis: weft.lax.cumsum(x[:, ::-1], a, reverse=True))(x)
        turned = np.flip(x[:, ::-1], axis)
        np.testing.assert_array_equal(np.asarray(got), np.flip(np.cumsum(turned, axis), axis))


def test_pieces_that_take_turns_are_one_kernel() -> None:
    x = np.zeros((50, 7), np.float32)
    program = ladder.compiled(weft.make_jaxpr(lambda x, y, z: jnp.stack([x, y * 2, jnp.sin(z)], -1))(x, x, x))
    assert (ladder.n_kernels(program), program.plan.arena_bytes) == (1, 0)


@pytest.mark.parametrize(("shape", "lanes"), [((256, 32, 256), "i1"), ((256, 31, 20), "i1 of 20"), ((4, 8, 16), "i2")])
def test_lanes_run_along_a_short_dimension_ahead_of_a_narrower_one(shape: tuple[int, ...], lanes: str) -> None:
    """Where it fills them; shorter ones are one row with it; with few rows lanes run along the last one, of two."""
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    half = shape[2] // 2
    repeated = weft.jit(lambda x: jnp.repeat(x[:, :, :half], 2, -1))
    assert f"parallel {lanes} lanes" in repeated.lower(x).compile().as_text("loops")
    np.testing.assert_array_equal(np.asarray(repeated(x)), np.repeat(x[:, :, :half], 2, -1))


@pytest.mark.parametrize(
    "dtype", ["float32", "int32", "float64", "complex64", "complex128", "int16", "float16", "int8", "bool"]
)
def test_operands_read_across_their_rows(dtype: str) -> None:
    """Whole tiles, parts of tiles on either side, and neither, of words of 1 to 16 bytes."""
    rng = np.random.default_rng(7)
    with weft.enable_x64(True):
        add = weft.jit(lambda x, y: (y == x.T, x.T))
        for rows, columns in ((16, 16), (64, 48), (65, 17), (31, 130), (1, 40), (40, 1), (200, 15)):
            x = rng.integers(0, 2 if dtype == "bool" else 100, (rows, columns)).astype(dtype)
            y = rng.integers(0, 2 if dtype == "bool" else 100, (columns, rows)).astype(dtype)
            y[: columns // 2] = x.T[: columns // 2]
            equal, turned = add(x, y)
            np.testing.assert_array_equal(np.asarray(equal), y == x.T)
            np.testing.assert_array_equal(np.asarray(turned), x.T)
            assert turned.dtype == x.dtype


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint16", "bfloat16", "float32", "float64", "complex64", "complex128"]
)
def test_tiles_of_every_word_are_turned_in_registers(dtype: str) -> None:
    """Not element by element: blocks of 16 by 16 bytes, 8 by 8 words of 16 bits; 16, 8, 4 of more (AVX2: half)."""
    size = jnp.dtype(dtype).itemsize
    side = {1: 16, 2: 8, 4: 16, 8: 8, 16: 4}[size] // (1 if target.host().model.masks or size == 2 else 2)
    with weft.enable_x64(True):
        text = weft.jit(lambda x: x.T).lower(jnp.zeros((300, 200), dtype)).compile().as_text("llvm")
    units = [unit for unit in (1, 2, 4, 8) if unit >= min(size, 8)]
    found = sum(text.count(f"shufflevector <{side * size // unit} x i{8 * unit}>") for unit in units)
    assert found >= side * (side.bit_length() - 1)


def test_a_row_kernel_that_computes_for_long_fetches_the_next_row() -> None:
    """And one that does not leaves that to the processor; so do rows too long to wait in the cache (at run time)."""
    x = jnp.zeros((300, 200), np.float32)
    for function, fetches in ((weft.nn.softmax, True), (weft.nn.logsumexp, True), (jnp.var, False), (jnp.sum, False)):
        text = weft.jit(lambda x, f=function: f(x, axis=-1)).lower(x).compile().as_text("llvm")
        assert ("call void @llvm.prefetch" in text) == fetches
