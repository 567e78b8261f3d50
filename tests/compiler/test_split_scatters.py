"""Many updates of a small array of integers: the same as by one scatter, whatever is updated."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft.compiler import inline, split_scatters

N = 40_003  # no multiple of the number of parts


def indices(extent, n=N):
    return np.random.default_rng(0).integers(-2 * extent, 2 * extent, n).astype(np.int32)


def is_split(function, *args):
    closed = inline.inline(weft.make_jaxpr(function)(*args))
    return split_scatters.split_scatters(closed) is not closed


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.int16])
@pytest.mark.parametrize("name", ["add", "subtract", "max", "min"])
@pytest.mark.parametrize("mode", ["drop", "clip"])
def test_combiners(dtype, name, mode):
    """Results wrap as one after the other would; indices from the end, and out of bounds."""
    rng = np.random.default_rng(1)
    at, updates = indices(50), rng.integers(0, 100, N).astype(dtype)
    x = rng.integers(0, 100, 50).astype(dtype)

    def update(x, at, updates):
        return getattr(x.at[at], name)(updates, mode=mode)

    expected, places = x.copy(), np.where(at < 0, at + 50, at)
    inside = (places >= 0) & (places < 50)
    places, given = (np.clip(places, 0, 49), updates) if mode == "clip" else (places[inside], updates[inside])
    ufunc = {"add": np.add, "subtract": np.subtract, "max": np.maximum, "min": np.minimum}[name]
    ufunc.at(expected, places, given)
    np.testing.assert_array_equal(weft.jit(update)(x, at, updates), expected)
    assert is_split(update, x, at, updates)


def test_windows_and_counts():
    """Rows as windows; counts; a histogram."""
    at = np.abs(indices(20)) % 20
    rows = np.random.default_rng(2).integers(0, 9, (N, 3)).astype(np.int32)
    expected = np.zeros((20, 3), np.int32)
    np.add.at(expected, at, rows)
    np.testing.assert_array_equal(weft.jit(lambda r, i: jnp.zeros((20, 3), int).at[i].add(r))(rows, at), expected)
    np.testing.assert_array_equal(weft.jit(lambda i: jnp.bincount(i, length=15))(at), np.bincount(at)[:15])
    values = np.random.default_rng(3).normal(size=N).astype(np.float32)
    got, expected = jnp.histogram(values, 30, (-2, 2))[0], np.histogram(values, 30, (-2, 2))[0]
    assert got.dtype == np.float32 and got.sum() == expected.sum() and np.abs(got - expected).max() <= 2


def test_floats_and_large_arrays_stay():
    """Sums of floats keep their order; a large array would be cleared and added more often than it is updated."""
    at = np.abs(indices(50)) % 50
    assert not is_split(lambda i: jnp.zeros(50).at[i].add(1.0), at)
    assert not is_split(lambda i: jnp.zeros(9000, int).at[i].add(1), at)
    assert not is_split(lambda i: jnp.zeros(50, int).at[i].add(1), at[:9000])
