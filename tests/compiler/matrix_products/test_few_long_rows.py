"""Vectors by matrices of few long rows: read side by side, with the bits of the same matrix laid out the other way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp

# Columns of less, just as many, and more than one, two, eight and sixteen terms a lane, which has 64 bytes.
TERMS = [1, 2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 24, 31, 33, 40, 57, 64, 65, 72, 100, 128, 129, 131, 200, 256, 257]
# Ends of vectors, of tiles and of pages; pitches of half a page and of whole ones, whose lines share sets of a cache.
LENGTHS = [5, 65, 511, 512, 1000, 1024, 2051, 4096]
DTYPES = ["float32", "float64", "complex64", "complex128", "int32", "uint64"]

by_matrix = weft.jit(lambda x, m: x @ m)
by_columns = weft.jit(lambda x, m: x @ m.T)  # m's rows are contiguous: chains lie along vectors


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0, 2**31 - 1, shape).astype(dtype)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if dtype.startswith("complex") else x).astype(dtype)


def assert_same_bits(found: Any, expected: Any) -> None:
    a, b = np.asarray(found), np.asarray(expected)
    np.testing.assert_array_equal(a, b)
    if a.dtype.kind in "fc":
        for part in (np.real, np.imag):
            signs = [np.signbit(part(v)[~np.isnan(part(v))]) for v in (a, b)]
            np.testing.assert_array_equal(*signs)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", LENGTHS)
def test_bits_are_those_of_the_other_layout(n: int, dtype: str, threads: int) -> None:
    rng = np.random.default_rng(n)
    with weft.enable_x64(True), weft.threads(threads):
        for k in TERMS:
            x, m = numbers(rng, (k,), dtype), numbers(rng, (k, n), dtype)
            found = by_matrix(jnp.array(x), jnp.array(m))
            assert_same_bits(found, by_columns(jnp.array(x), jnp.array(m.T.copy())))
            if np.dtype(dtype).kind in "iu":
                np.testing.assert_array_equal(np.asarray(found), x @ m)
            else:
                exact = x.astype(np.clongdouble) @ m.astype(np.clongdouble)
                bound = (k + 2) * np.finfo(dtype).eps * (np.abs(x) @ np.abs(m))
                assert (np.abs(np.asarray(found) - exact) <= bound).all()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("divisor", [1, 512])
@pytest.mark.parametrize("k", [3, 33, 72, 128, 200])
def test_rows_of_a_matrix_from_memory(k: int, divisor: int, dtype: str, threads: int) -> None:
    """More than 16 MB are read in longer pieces. Rows of whole pages share sets; others end within a vector."""
    rng = np.random.default_rng(k)
    n = ((17 << 20) // (k * np.dtype(dtype).itemsize) // divisor | 1) * divisor
    with weft.threads(threads):
        x, m = numbers(rng, (k,), dtype), numbers(rng, (k, n), dtype)
        assert_same_bits(by_matrix(jnp.array(x), jnp.array(m)), by_columns(jnp.array(x), jnp.array(m.T.copy())))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("k", [3, 16, 24, 100])
def test_zeros_infinities_and_nan_stay_in_their_columns(k: int, dtype: str) -> None:
    rng = np.random.default_rng(k)
    with weft.enable_x64(True):
        x, m = numbers(rng, (k,), dtype), numbers(rng, (k, 3000), dtype)
        x[0] = -0.0
        m[:, 7] = -0.0
        m[k - 1, 100], m[1, 2999], m[:, 1500] = np.inf, np.nan, np.finfo(dtype).smallest_subnormal
        found = by_matrix(jnp.array(x), jnp.array(m))
        assert_same_bits(found, by_columns(jnp.array(x), jnp.array(m.T.copy())))
        assert np.flatnonzero(~np.isfinite(np.asarray(found))).tolist() == [100, 2999]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_products_that_vanish_below_zero_are_positive_zeros(dtype: str) -> None:
    """A lane of one such product is -0; where lanes have none, their sums are +0 and so is the total."""
    tiny = float(np.finfo(dtype).smallest_normal) ** 0.75
    with weft.enable_x64(True):
        for k in TERMS:
            x, m = np.full((k,), -tiny, dtype), np.full((k, 3000), tiny, dtype)
            found = np.asarray(by_matrix(jnp.array(x), jnp.array(m)))
            assert_same_bits(found, by_columns(jnp.array(x), jnp.array(m.T.copy())))
            if k < 64 // np.dtype(dtype).itemsize:
                assert not np.signbit(found.real).any()


@pytest.mark.parametrize("k", [5, 16, 33, 100])
def test_operands_that_begin_anywhere(k: int) -> None:
    rng = np.random.default_rng(k)
    x, m = numbers(rng, (3 * k,), "float32"), numbers(rng, (k + 2, 5000), "float32")
    cut = weft.jit(lambda x, m: x[::3] @ m[1:-1, 3:-7])
    expected = by_matrix(jnp.array(x[::3].copy()), jnp.array(m[1:-1, 3:-7].copy()))
    assert_same_bits(cut(jnp.array(x), jnp.array(m)), expected)


@pytest.mark.parametrize("left", [1, 16, 40])
def test_the_last_of_many_terms_are_few_columns(left: int) -> None:
    block = 512 * 16  # terms of float32 that are added to those before
    rng = np.random.default_rng(left)
    x, m = numbers(rng, (block + left,), "float32"), numbers(rng, (block + left, 700), "float32")
    first = np.asarray(by_matrix(jnp.array(x[:block]), jnp.array(m[:block])))
    last = np.asarray(by_matrix(jnp.array(x[block:]), jnp.array(m[block:])))
    assert_same_bits(by_matrix(jnp.array(x), jnp.array(m)), first + last)
