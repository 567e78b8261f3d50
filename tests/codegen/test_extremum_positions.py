"""Extrema and their positions where shortcuts could go wrong: ties, NaN, zeros, rows of nothing but the worst value."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as jnp

VALUES = {
    "float32": [-np.inf, np.inf, np.nan, 0.0, -0.0, 1.0],
    "bfloat16": [-np.inf, np.inf, np.nan, 0.0, 2.0],
    "int8": [-128, 127, 0],
    "uint32": [0, 2**32 - 1, 7],
    "bool": [False, True],
    "complex64": [complex(-np.inf, -np.inf), complex(0, np.nan), 1 + 2j, 1 - 2j, complex(np.inf, 0)],
}


def _first(x: np.ndarray, axis: int, larger: bool) -> np.ndarray:
    """By plain comparison in Python: the first NaN, else the first of the best."""

    def of_row(row: np.ndarray) -> int:
        best = 0
        for i in range(1, len(row)):
            a, b = ((v.real, v.imag) if np.iscomplexobj(row) else (float(v),) for v in (row[i], row[best]))
            if any(np.isnan(b)):
                break
            if any(np.isnan(a)) or (a > b if larger else a < b):
                best = i
        return best

    return (
        np.apply_along_axis(of_row, axis, x) if x.dtype != ml_dtypes.bfloat16 else _first(x.astype("f4"), axis, larger)
    )


@pytest.mark.parametrize("dtype", VALUES)
@pytest.mark.parametrize("axis", [0, 1])
def test_first_of_equals_and_first_nan(dtype: str, axis: int) -> None:
    random = np.random.default_rng(axis)
    numpy_dtype = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    values = np.array(VALUES[dtype], numpy_dtype)
    for length in (1, 2, 16, 31, 33, 64, 300):
        for chosen in (values[:1], values[1:2], values[:2], values):
            shape = (length, 19) if axis == 0 else (19, length)
            x = chosen[random.integers(len(chosen), size=shape)]
            for name, larger in (("argmax", True), ("argmin", False)):
                got = np.asarray(weft.jit(lambda x, n=name: getattr(jnp, n)(x, axis))(x))
                np.testing.assert_array_equal(got, _first(x, axis, larger), err_msg=f"{name} {shape} {chosen}")


@pytest.mark.parametrize("length", [8192, 8193, 20_000])
def test_over_several_blocks(length: int) -> None:
    for fill, best in ((-np.inf, -np.inf), (0.0, 1.0), (0.0, np.nan)):
        for position in (0, 8191, 8192 % length, length - 1):
            x = np.full((2, length), fill, np.float32)
            x[:, position] = best
            want = 0 if fill == best else position
            assert np.asarray(jnp.argmax(x, 1)).tolist() == [want, want]
            assert np.asarray(jnp.argmax(x.T.copy(), 0)).tolist() == [want, want]


SHORT = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint64"]
ORDERS = ["random", "all worst", "all best", "rising", "falling", "one best at the end"]


def _row(dtype: np.dtype, order: str, size: int) -> np.ndarray:
    low, high = (0, 1) if dtype == np.bool_ else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    wide = np.uint64 if high > np.iinfo(np.int64).max else np.int64
    random = np.random.default_rng(size).integers(low, high, size, wide, endpoint=True)
    if order in ("rising", "falling"):
        return np.sort(random)[:: 1 if order == "rising" else -1].astype(dtype)
    row = np.full(size, high if order == "all best" else low, wide)
    row[-1] = high if order == "one best at the end" else row[-1]
    return (random if order == "random" else row).astype(dtype)


@pytest.mark.parametrize("dtype", SHORT)
@pytest.mark.parametrize("order", ORDERS)
def test_extrema_of_bools_and_integers_and_their_positions_over_blocks_and_threads(dtype: str, order: str) -> None:
    def found(x: np.ndarray, axis: int | None) -> list[np.ndarray]:
        return [np.asarray(f(x, axis=axis)) for f in compiled]

    names = ("argmax", "argmin", "max", "min", "all", "any")
    compiled = [weft.jit(getattr(jnp, name), static_argnames="axis") for name in names]
    with weft.enable_x64(True):
        for size in (1, 63, 64, 257, 8193, 70_001):
            x = _row(np.dtype(dtype), order, size)
            rows = np.stack([x, x[::-1], x])
            for array, axis in ((x, None), (rows, -1), (rows, 0), (rows.T, 0), (rows[:, ::2], 1)):
                several = found(array, axis)
                with weft.threads(1):
                    alone = found(array, axis)
                for name, one, two in zip(names, alone, several, strict=True):
                    np.testing.assert_array_equal(one, getattr(np, name)(array, axis=axis), f"{name} {size} {axis}")
                    np.testing.assert_array_equal(two, one)


def test_a_bool_of_any_byte_is_true() -> None:
    x = np.zeros(300, np.uint8)
    x[[7, 250]] = 2, 255
    flags = weft.numpy.asarray(x.view(np.bool_), copy=False)
    assert [f(flags).item() for f in (jnp.any, jnp.max, jnp.argmax, jnp.argmin, jnp.all)] == [True, True, 7, 0, False]


def test_a_computed_value_is_searched_where_it_is_computed() -> None:
    x = np.random.default_rng(0).integers(-100, 100, (4, 20_000)).astype(np.int8)
    positions = weft.jit(lambda x: (jnp.argmax(x % 3 + (x > 50), axis=1), jnp.argmin(x > 98, axis=1)))(x)
    np.testing.assert_array_equal(positions[0], np.argmax(x % 3 + (x > 50), axis=1))
    np.testing.assert_array_equal(positions[1], np.argmin(x > 98, axis=1))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("size", [1, 15, 16, 17, 33, 8200])
def test_rows_have_the_extremum_of_their_numbers_and_nan_where_there_is_one(size, dtype):
    rng = np.random.default_rng(size)
    x = rng.standard_normal((7, size))
    x[1, rng.integers(size)] = np.nan
    x[2, -1] = -np.nan
    x[3] = -np.inf
    x[4] = -0.0
    x[4, size // 2] = 0.0
    x[5] = np.nan
    with weft.enable_x64(dtype == "float64"):
        values = jnp.asarray(x).astype(dtype)
        known = np.asarray(values).astype(np.float64)
        for ours, theirs in ((jnp.max, np.max), (jnp.min, np.min)):
            found = np.asarray(weft.jit(lambda v, f=ours: f(v, axis=1))(values)).astype(np.float64)
            np.testing.assert_array_equal(found, theirs(known, axis=1))
            assert np.signbit(found[4]) == (ours is jnp.min and size > 1)


@pytest.mark.parametrize("size", [5, 40, 100])
def test_rows_have_the_extremum_of_their_complex_numbers(size):
    rng = np.random.default_rng(size)
    x = (rng.integers(-2, 3, (3, size)) + 1j * rng.integers(-3, 3, (3, size))).astype(np.complex64)
    for ours, best in ((jnp.max, max), (jnp.min, min)):
        found = np.asarray(weft.jit(lambda v, f=ours: f(v, axis=1))(x))
        assert found.tolist() == [best(row, key=lambda z: (z.real, z.imag)) for row in x.tolist()]


@pytest.mark.parametrize("name", ["any", "all", "max", "min", "argmax", "argmin"])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "float32"])
def test_what_is_kept_beside_a_reduction_is_all_stored(name: str, dtype: str) -> None:
    """A reduction that needs no further element does not end the loop that stores them."""
    x = (np.arange(120_000).reshape(3, 40_000) % 120).astype(dtype)

    def kept(x: Any, axis: int | None) -> Any:
        y = x == 0 if dtype == "bool" else x * 3
        return y, getattr(jnp, name)(y, axis=axis)

    want = x == 0 if dtype == "bool" else (x * np.array(3, dtype)).astype(dtype)
    for axis in (1, None):
        every, found = weft.jit(kept, static_argnums=1)(x, axis)
        np.testing.assert_array_equal(every, want)
        np.testing.assert_array_equal(found, getattr(np, name)(want, axis=axis))


@pytest.mark.parametrize("name", ["any", "max"])
def test_all_elements_beside_a_reduction_are_checked(name: str) -> None:
    """An index outside is found behind the element that decides a reduction."""
    x, i = np.ones(40_000, np.float32), np.arange(40_000)
    i[39_000] = 50_000
    with weft.checks("index"), pytest.raises(weft.errors.IndexCheckError, match="50000"):
        weft.jit(lambda x, i: getattr(jnp, name)(x[i] > 0))(x, i)
