"""Roots of vectors that are computed without the instruction for them give its bits: all mantissas, both parities."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as jnp

WIDTH = 16  # lanes of a vector
EXPONENTS = (-100, -99, 0, 1, 124, 125)  # the least that products reach, the largest, and the middle

root = weft.jit(jnp.sqrt)
inverse = weft.jit(weft.lax.rsqrt)
shifted = weft.jit(
    lambda x: jnp.where(x < -jnp.inf, 0.0, jnp.abs(jnp.sqrt(jnp.abs(x) + 0.0)) - 0.0)
)  # long enough for three vectors together


def same_bits(got: weft.Array, want: np.ndarray) -> bool:
    return np.array_equal(np.asarray(got).view(np.uint32), want.view(np.uint32))


def mantissas(exponent: int) -> np.ndarray:
    return (np.arange(1 << 23, dtype=np.uint32) | np.uint32((exponent + 127) << 23)).view(np.float32)


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_every_mantissa_has_its_rounded_root(exponent):
    x = mantissas(exponent)
    want = np.sqrt(x)
    for vectors in range(3):  # every value lies in each lane of a tile once
        at = np.roll(x, vectors * WIDTH)
        assert same_bits(root(at), np.roll(want, vectors * WIDTH))
        assert same_bits(shifted(at), np.roll(want, vectors * WIDTH))
        assert same_bits(inverse(at), np.float32(1) / np.roll(want, vectors * WIDTH))


def borders() -> np.ndarray:
    """Every exponent, subnormals, both zeros, infinities, NaN, and neighbours of where products end."""
    bits = np.concatenate([
        np.arange(0, 0x7F80_0000, 1 << 20, dtype=np.uint32), np.arange(256, dtype=np.uint32),
        *[np.arange(edge - 8, edge + 8, dtype=np.uint32) for edge in (27 << 23, 253 << 23, 254 << 23, 1 << 23)],
        np.array([0x7F7F_FFFF, 0x7F80_0000, 0x7FC0_0000, 0x7FC0_1234, 0x8000_0000], np.uint32),
        np.array([0xFF80_0000, 0xFFC0_0000, 0xBF80_0000, 0x8000_0001], np.uint32),
    ])  # fmt: skip
    return bits.view(np.float32)


@pytest.mark.filterwarnings("ignore:(invalid|divide by zero):RuntimeWarning")
@pytest.mark.parametrize("fill", [1.0, 0.0, 2.0**-120])
def test_unusual_values_beside_others(fill):
    """One of them in a vector of others, in each lane of three vectors."""
    unusual = borders()
    rows = np.full((len(unusual), 3 * WIDTH), fill, np.float32)
    rows[np.arange(len(unusual)), np.arange(len(unusual)) * 7 % (3 * WIDTH)] = unusual
    x = rows.reshape(-1)
    assert same_bits(root(x), np.sqrt(x))
    assert same_bits(inverse(x), np.float32(1) / np.sqrt(x))
    got, want = np.asarray(shifted(x)), np.sqrt(np.abs(x))
    assert np.array_equal(np.isnan(got), np.isnan(want))
    assert same_bits(jnp.asarray(got[~np.isnan(got)]), want[~np.isnan(want)])


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 31, 32, 33, 47, 48, 49, 95, 96, 97, 143, 1000])
def test_ends_of_tiles(size):
    x = np.random.default_rng(size).random(size + 1, dtype=np.float32)[1:]
    assert same_bits(root(x), np.sqrt(x))
    assert same_bits(shifted(x), np.sqrt(x))
    half = weft.jit(lambda x: (x * 2 + 1) ** 0.5)
    assert same_bits(half(x), np.sqrt(x * np.float32(2) + np.float32(1)))


def long_rows(size: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, a row that meets all of them, and sqrt(|rows| * row + 1) + row."""
    rows = np.random.default_rng(size).random((count, size), dtype=np.float32)
    row = np.float32(0.5) + np.arange(size, dtype=np.float32) / size
    return rows, row, np.sqrt(np.abs(rows) * row + np.float32(1)) + row


def root_of_rows(x, r):
    return jnp.sqrt(jnp.abs(x) * r + 1.0) + r


@pytest.mark.parametrize("size", [16383, 16384, 16385, 16416, 19200, 33600, 49152])
def test_tiles_of_three_end_where_stretches_of_long_rows_do(size):
    """In place, where an element that is computed twice shows."""
    rows, row, want = long_rows(size, 2)
    got = weft.jit(root_of_rows, donate_argnums=0)(jnp.array(rows), jnp.array(row))
    np.testing.assert_allclose(got, want, rtol=1e-6)
    temporary = weft.jit(lambda a, r: root_of_rows(jnp.cumsum(a, axis=1), r))(rows, row)
    sums = np.cumsum(rows.astype(np.float64), axis=1)
    np.testing.assert_allclose(temporary, np.sqrt(sums * row + 1) + row, rtol=1e-4)


def test_rows_on_several_threads_do_not_reach_into_each_other():
    rows, row, want = long_rows(19200, 333)
    compiled = weft.jit(root_of_rows)
    for _ in range(10):
        np.testing.assert_allclose(compiled(rows, row), want, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "complex64"])
def test_long_rows_of_other_types(dtype):
    with weft.enable_x64(dtype == "float64"):
        rows, row, want = long_rows(19200, 2)
        x, r = (jnp.asarray(v).astype(dtype) for v in (rows, row))
        got = np.asarray(weft.jit(root_of_rows, donate_argnums=0)(x, r)).astype(np.complex128)
    np.testing.assert_allclose(got, want, rtol={"float16": 5e-3, "bfloat16": 4e-2}.get(dtype, 1e-5))


def test_of_three_vectors_one_is_computed_by_products():
    """The tests above look at both ways on processors that have them."""
    if not weft._base.target.host().model.waits:
        assert "rsqrt14" not in root.lower(jnp.ones(8)).compile().as_text("asm")
        return
    pair = root.lower(jnp.ones(8)).compile().as_text("llvm")
    three = shifted.lower(jnp.ones(8)).compile().as_text("llvm")
    for text, vectors in ((pair, 2), (three, 3)):
        tile = text[: text.index("call <16 x float> @llvm.masked.load")]
        assert tile.count("call <16 x float> @llvm.x86.avx512.rsqrt14") == 1
        assert tile.count("call <16 x float> @llvm.sqrt") == vectors  # the last of them where products do not reach
