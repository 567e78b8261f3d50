"""Functions of positions give JAX's values, dtypes and errors: eagerly and jitted, in and out of bounds."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.oracle import differential, together
from weft.errors import AxisError, ShapeError

# expressions over x f32[5,4], v f32[5], k i32[5] (some out of bounds), m bool[5], u u8[3], e f32[0], n i32[2,3]
VALUES = """
x[k]
x[k,k]
x[:,k]
x[u]
x[..., n]
x[n, None]
x[1:4, k]
x[::-1, k]
x[::2, n]
x.at[k].set(7)
x.at[k].add(v[:, None])
x.at[k, k].min(-2.5)
x.at[k].max(v[:, None])
x.at[:, n].multiply(2)
x.at[k].set(7, mode='clip')
x.at[n].get(mode='fill')
x.at[n].get(mode='fill', fill_value=3)
x.at[k].get(mode='clip')
k.at[n].get(mode='fill')
m.at[n].get(mode='fill')
u.at[n].get(mode='fill')
x.at[-1].add(1)
x.at[1:3, ::2].set(0)
x.at[::-1].set(x)
x.at[True].set(1)
x.at[False].set(1)
x.at[k].apply(lambda t: t * 2)
x.at[n].divide(3)
v.at[n].power(2)
x.at[...].add(1)
jnp.take(x, n)
jnp.take(x, k, axis=0)
jnp.take(x, k, axis=1, mode='wrap')
jnp.take(x, k, axis=-1, mode='clip')
jnp.take(x, n, mode='fill', fill_value=-1)
jnp.take(x, -1)
jnp.take(k, n)
jnp.take(x, 2, axis=1)
jnp.take(e, k[:0])
jnp.take(x, k, axis=2)
jnp.take(x, v)
jnp.take(e, k)
jnp.take(x, k, mode='raise')
jnp.take(x, k, mode='foo')
jnp.take_along_axis(x, k[:, None], axis=1)
jnp.take_along_axis(x, n[:1, :1], axis=0)
jnp.take_along_axis(x, n[:1, :1], axis=0, mode='clip')
jnp.take_along_axis(x, k, axis=None)
jnp.take_along_axis(x, jnp.argmax(x, 1, keepdims=True), 1)
jnp.take_along_axis(x, k, axis=0)
jnp.take_along_axis(x, v[:, None], axis=0)
jnp.take_along_axis(x, n, axis=1)
jnp.choose(k, [v, v + 1, v + 2], mode='clip')
jnp.choose(k, [v, 1, 2], mode='wrap')
jnp.choose(k, [v, 1], mode='foo')
jnp.choose(v, [v, 1], mode='clip')
jnp.repeat(v, np.array([1, 0, 2, 3, 1]))
jnp.repeat(x, np.array([1, 0, 2, 3, 1]), axis=0)
jnp.repeat(x, np.array([1, 0, 2, 3]), axis=1, total_repeat_length=8)
jnp.repeat(x, np.array([1, 0, 2, 3]), axis=1, total_repeat_length=4)
jnp.repeat(v, 3)
jnp.repeat(v, np.array([2]))
jnp.repeat(v, np.zeros(5, int))
jnp.repeat(v, k * 0 + 2, total_repeat_length=10)
jnp.nonzero(m, size=4)
jnp.nonzero(x > 0, size=30, fill_value=-1)
jnp.nonzero(x > 0, size=30, fill_value=(-1, -2))
jnp.nonzero(x > 0, size=3)
jnp.nonzero(e, size=3)
jnp.nonzero(e, size=3, fill_value=5)
jnp.nonzero(v[0], size=1)
jnp.argwhere(m, size=4)
jnp.argwhere(x > 0, size=30, fill_value=-1)
jnp.flatnonzero(x > 0, size=5)
jnp.where(x > 0, size=5, fill_value=9)
jnp.where(x > 0, x, 0)
jnp.where(x > 0, x)
jnp.bincount(k, length=6)
jnp.bincount(k, v, length=3)
jnp.bincount(m, length=4)
jnp.bincount(v, length=4)
jnp.bincount(x, length=4)
jnp.bincount(k, length=0)
jnp.bincount(k, v[:2], length=3)
jnp.put(x, k, v, inplace=False)
jnp.put(x, k, 9, inplace=False)
jnp.put(x, n, v[:2], mode='wrap', inplace=False)
jnp.put(x, n, v[:2], mode='clip', inplace=False)
jnp.put(x, n, v)
jnp.put(x, n, v, mode='foo', inplace=False)
jnp.put_along_axis(x, k[:, None], 5., axis=1, inplace=False)
jnp.put_along_axis(x, k[:, None], v[:, None], axis=1, inplace=False)
jnp.put_along_axis(x, k[:, None], v[:, None], axis=1, inplace=False, mode='clip')
jnp.put_along_axis(x, k, v, axis=None, inplace=False)
jnp.put_along_axis(x, k[:, None], v[:, None], axis=1)
jnp.place(v, m, v[:2], inplace=False)
jnp.place(x, x > 0, v, inplace=False)
jnp.place(x, x > 0, v)
jnp.place(x, m, v, inplace=False)
jnp.fill_diagonal(x, 1., inplace=False)
jnp.fill_diagonal(x, v, inplace=False)
jnp.fill_diagonal(x[:2, :2], v[:1], inplace=False)
jnp.fill_diagonal(v, 1., inplace=False)
jnp.fill_diagonal(x, 1., wrap=True, inplace=False)
jnp.delete(x, 1, axis=0)
jnp.delete(x, -2, axis=1)
jnp.delete(x, 7)
jnp.delete(x, slice(1, 3), axis=0)
jnp.delete(x, slice(0, 5, 2), axis=0)
jnp.delete(x, slice(4, 0, -1), axis=0)
jnp.delete(x, np.array([0, 2, 0]), axis=1)
jnp.delete(x, np.array([-1, 1]))
jnp.delete(x, [0, 2])
jnp.delete(v, np.array([True, False, True, False, False]))
ops.segment_sum(x, k, 4)
ops.segment_sum(v, k, 4, mode='clip')
ops.segment_prod(v, abs(k), 9)
ops.segment_max(x, k, 4)
ops.segment_min(k, abs(k), 9)
ops.segment_min(m, abs(k), 9)
ops.segment_sum(v, k, 4, bucket_size=2)
ops.segment_sum(m, abs(k), 9)
ops.segment_sum(v, k, -1)
ops.segment_sum(v, v, 3)
x.take(k, 0)
m.nonzero(size=3)
v.repeat(2)
"""

SORTING = """
jnp.sort(x)
jnp.sort(x, axis=0, descending=True)
jnp.sort(x, axis=None)
jnp.sort(k)
jnp.sort(m)
jnp.sort(w)
jnp.sort(w, stable=False)
jnp.sort(v[0])
jnp.sort(x, axis=2)
jnp.sort(x, kind='mergesort')
jnp.sort(c)
jnp.sort(x.astype(jnp.bfloat16))
jnp.argsort(x)
jnp.argsort(x, axis=0, descending=True)
jnp.argsort(x, axis=None)
jnp.argsort(k)
jnp.argsort(k, descending=True)
jnp.argsort(w)
jnp.argsort(c)
jnp.argsort(x, dtype=np.int16)
jnp.argsort(x, order=1)
x.argsort(axis=0)
x.sort(axis=0)
jnp.lexsort((v, k))
jnp.lexsort((k, m))
jnp.lexsort(x)
jnp.lexsort(v)
jnp.lexsort((v, x))
jnp.sort_complex(v)
jnp.partition(v, 2)[2]
jnp.partition(v, 9)
jnp.argpartition(v, 2)[2]
jnp.median(x)
jnp.median(x, axis=0, keepdims=True)
jnp.median(x, axis=(0, 1))
jnp.median(k)
jnp.median(w)
jnp.nanmedian(w)
jnp.nanmedian(x, axis=1)
jnp.quantile(x, 0.3)
jnp.quantile(x, 0.3, axis=1)
jnp.quantile(x, jnp.array([0.1, 0.9]), axis=0)
jnp.quantile(x, jnp.array([0.1, 0.9]), axis=(0, 1), keepdims=True)
jnp.quantile(x, jnp.array([0.1, 0.9]), axis=1, keepdims=True)
jnp.quantile(x, 0.3, method='lower')
jnp.quantile(x, 0.3, method='higher', axis=1)
jnp.quantile(x, jnp.array([0.3, 0.5]), method='nearest', axis=1)
jnp.quantile(x, jnp.array([0.3, 0.5]), method='midpoint', axis=0)
jnp.quantile(x, 0.3, method='foo')
jnp.quantile(k, 0.3)
jnp.quantile(x, 1.5)
jnp.nanquantile(w, 0.3)
jnp.nanquantile(w, jnp.array([0.3, 0.8]))
jnp.nanquantile(x, jnp.array([0.3, 0.8]), axis=1)
jnp.nanquantile(x, jnp.array([0.3, 0.8]), axis=0, keepdims=True)
jnp.percentile(x, 30)
jnp.percentile(x, jnp.array([30, 60]), axis=1)
jnp.nanpercentile(w, 30)
jnp.nanpercentile(w, 30, method='nearest')
jnp.unique(k, size=3)
jnp.unique(k, size=7)
jnp.unique(k, size=7, fill_value=-3)
jnp.unique(w, size=8)
jnp.unique(w, size=9, equal_nan=False)
jnp.unique(k, size=5, return_index=True, return_inverse=True, return_counts=True)
jnp.unique(k, size=7, return_index=True, return_inverse=True, return_counts=True, fill_value=9)
jnp.unique(x > 0, axis=0, size=6)
jnp.unique(n, return_inverse=True, size=6)
jnp.unique_values(w, size=9)
jnp.unique_counts(k, size=4)
jnp.unique_inverse(k, size=4)
jnp.unique_all(k, size=4)
jnp.union1d(k, n, size=9)
jnp.union1d(k, v, size=12, fill_value=-9)
jnp.setdiff1d(k, n, size=5)
jnp.setdiff1d(k, n, size=5, fill_value=-9)
jnp.setdiff1d(k, n, size=2, assume_unique=True)
jnp.setxor1d(k, n, size=9)
jnp.setxor1d(k, n, size=12, fill_value=-9)
jnp.intersect1d(k, n, size=4)
jnp.intersect1d(k, n, size=4, fill_value=-9)
jnp.intersect1d(v, v, size=7, return_indices=True)
jnp.intersect1d(k, n, size=3, return_indices=True, fill_value=9)
jnp.intersect1d(w, v, size=3, assume_unique=True, return_indices=True)
jnp.setdiff1d(w, v, size=8)
jnp.setxor1d(w, v, size=12)
jnp.unique(c, size=3, return_inverse=True)
jnp.unique(e, size=2)
jnp.isin(w, v, method='sort')
jnp.isin(n, k, method='sort', invert=True)
jnp.isin(k, n, method='sort', assume_unique=True)
jnp.isin(w, v, method='binary_search')
jnp.isin(n, k, method='binary_search', invert=True)
jnp.isin(e, v, method='sort')
jnp.isin(v, e, method='binary_search')
jnp.searchsorted(jnp.sort(x[0]), x)
jnp.searchsorted(jnp.sort(v), v, side='right')
jnp.searchsorted(jnp.sort(v), v, side='right', method='sort')
jnp.searchsorted(jnp.sort(v), v, method='sort')
jnp.searchsorted(jnp.sort(v), x, method='compare_all')
jnp.searchsorted(jnp.sort(w), w, method='compare_all')
jnp.searchsorted(jnp.sort(w), w, side='right')
jnp.searchsorted(jnp.sort(k), v, method='scan_unrolled')
jnp.searchsorted(v, v, sorter=jnp.argsort(v))
jnp.searchsorted(jnp.sort(k), 3)
jnp.searchsorted(e, v)
jnp.searchsorted(v, v, side='middle')
jnp.searchsorted(v, v, method='foo')
jnp.searchsorted(x, v)
jnp.digitize(x, jnp.array([-1., 0, 1]))
jnp.digitize(x, jnp.array([1., 0, -1]))
jnp.digitize(x, jnp.array([1., 0, -1]), right=True)
jnp.digitize(jnp.array([-1., 0.5, 1, 0]), jnp.array([1., 0, -1]))
jnp.digitize(jnp.array([-1., 0.5, 1, 0]), jnp.array([1., 0, -1]), right=True)
jnp.digitize(k, jnp.array([0, 3]), right=True)
jnp.digitize(x, x)
jnp.interp(x, jnp.arange(5.), v)
jnp.interp(x, jnp.arange(5.), v, left=9, right=-9)
jnp.interp(x, jnp.arange(5.), v, left='extrapolate', right='extrapolate')
jnp.interp(x, jnp.arange(5.), v, period=3)
jnp.interp(k, jnp.arange(5), k)
jnp.interp(x, v, x)
jnp.histogram(x)
jnp.histogram(x, bins=4, range=(-1, 1))
jnp.histogram(x, bins=jnp.array([-1., 0, 2]), density=True)
jnp.histogram(k, weights=v, bins=3)
jnp.histogram_bin_edges(x, 5)
jnp.histogram_bin_edges(v * 0, 5)
jnp.histogram2d(x[0], x[1], bins=3)
jnp.histogram2d(x[0], x[1], bins=(3, jnp.array([-1., 0, 1])), density=True)
jnp.histogramdd(x[:, :3], bins=2)
jnp.histogramdd(x[:, :2], bins=2, range=[(-1, 1), (0, 2)], weights=v)
jnp.extract(m, v, size=4)
jnp.extract(x > 0, x, size=4, fill_value=-1)
jnp.compress(m, x, axis=0, size=2)
jnp.compress(m, v, size=2, fill_value=3)
x.compress(m, axis=0, size=3)
jnp.insert(v, 1, 9)
jnp.insert(v, -1, 9)
jnp.insert(x, 1, 9, axis=1)
jnp.insert(x, 1, jnp.arange(5), axis=1)
jnp.insert(v, np.array([1, 3]), 9)
jnp.insert(v, np.array([3, 1]), np.array([7., 8.]))
jnp.insert(v, np.array([1]), np.array([7., 8.]))
jnp.insert(v, 1, np.array([7., 8.]))
jnp.insert(x, slice(0, 2), 9, axis=0)
jnp.insert(v, k[:3], v[:3])
jnp.insert(x, k[:2], 5)
jnp.delete(v, k[:1], assume_unique_indices=True)
jnp.delete(v, k[1], assume_unique_indices=True)
jnp.delete(x, k[0], axis=0, assume_unique_indices=True)
jnp.delete(v, jnp.array([1, 3]), assume_unique_indices=True)
jnp.packbits(m)
jnp.packbits(x > 0, axis=1, bitorder='little')
jnp.packbits(k, axis=0)
jnp.packbits(v)
jnp.unpackbits(u)
jnp.unpackbits(u, count=10, bitorder='little')
jnp.unpackbits(u, count=-3)
jnp.unpackbits(u[:, None], axis=1)
jnp.unpackbits(k)
jnp.ravel_multi_index((k, k), (3, 4), mode='clip')
jnp.ravel_multi_index((k, k), (3, 4), mode='wrap', order='F')
jnp.ravel_multi_index((k, k), (3, 4), mode=('wrap', 'clip'))
jnp.ravel_multi_index((k, k), (3, 4), mode='foo')
jnp.ravel_multi_index((v, k), (3, 4), mode='clip')
jnp.mask_indices(3, jnp.tril, size=6)
jnp.tril_indices(3, 1, 4)
jnp.triu_indices_from(x)
jnp.diag(x)
jnp.diagonal(x, 1)
J.lax.index_take(x, (abs(k) % 5, abs(k) % 4), (0, 1))
J.lax.sort((v, k), num_keys=2)
J.lax.sort([k, v], dimension=0)
J.lax.sort((v, x))
J.lax.sort(())
J.lax.sort((v, k), num_keys=3)
J.lax.sort_key_val(k, v)
J.lax.top_k(x, 2)
J.lax.top_k(x, 2, axis=0)
J.lax.top_k(k, 5)
J.lax.top_k(w, 4)
J.lax.top_k(x, 9)
J.lax.top_k(x.astype(jnp.bfloat16), 3)
"""

_WITHOUT_SIZE = """
jnp.mask_indices(3, jnp.tril)
jnp.insert(v, m, 9)
jnp.ravel_multi_index((abs(k) % 3, abs(k) % 4), (3, 4))
jnp.ravel_multi_index((k, k), (3, 4))
jnp.unique(k)
jnp.unique(w)
jnp.unique(w, equal_nan=False)
jnp.unique(x > 0, axis=0)
jnp.unique(x > 0, axis=1, return_index=True, return_inverse=True, return_counts=True)
jnp.unique(n, return_inverse=True)
jnp.unique_all(w)
jnp.unique_counts(k)
jnp.union1d(k, n)
jnp.union1d(k, v)
jnp.setdiff1d(k, n)
jnp.setxor1d(k, n)
jnp.intersect1d(k, n)
jnp.intersect1d(k, n, return_indices=True)
jnp.extract(m, v)
jnp.compress(m, x, axis=0)
jnp.compress([True, False], v)
jnp.compress(m, x, axis=1)
jnp.nonzero(m)
jnp.nonzero(x > 0)
jnp.argwhere(x > 0)
jnp.argwhere(v[0])
jnp.flatnonzero(x > 0)
jnp.where(x > 0)
jnp.bincount(abs(k))
jnp.bincount(abs(k), v, minlength=12)
jnp.bincount(abs(k)[:0])
ops.segment_sum(x, abs(k))
jnp.choose(abs(k) % 2, [v, v + 1])
jnp.choose(k, [v, v + 1])
jnp.delete(v, k[:2])
jnp.delete(v, m)
jnp.place(x, x > 100, v, inplace=False)
x[m]
x[m, 1]
x[x > 0]
x[:, m[:4]]
x[m[:4]]
x.at[m].set(0)
x.at[m].add(1)
x.at[m].set(v[:3, None])
x.at[x > 0].set(0)
jnp.trim_zeros(v * m)
"""


def _arguments(J: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "x": J.numpy.asarray(rng.normal(size=(5, 4)).astype(np.float32)),
        "v": J.numpy.asarray(np.array([1.5, -2.0, 0.0, 4.0, 0.5], np.float32)),
        "k": J.numpy.asarray(np.array([3, -1, 3, 8, -7], np.int32)),
        "m": J.numpy.asarray(np.array([True, False, True, True, False])),
        "u": J.numpy.asarray(np.array([1, 0, 3], np.uint8)),
        "e": J.numpy.asarray(np.zeros(0, np.float32)),
        "w": J.numpy.asarray(np.array([1.5, np.nan, -2.0, 1.5, np.nan, np.inf, 0.0, -np.inf], np.float32)),
        "c": J.numpy.asarray(np.array([1 + 2j, 1 - 2j, 0.5, -3j], np.complex64)),
        "n": J.numpy.asarray(np.array([[0, 3, -4], [4, 2, 100]], np.int32)),
    }


def _function(J: Any, expression: str) -> Callable[..., Any]:
    return eval(f"lambda x, v, k, m, u, e, w, c, n: {expression}", {"jnp": J.numpy, "ops": J.ops, "np": np, "J": J})


def _evaluated(expression: str, jitted: bool) -> Any:
    """The leaves of weft's value of an expression, or the error."""
    J = differential.namespace("weft")
    function = _function(J, expression)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = (J.jit(function) if jitted else function)(*_arguments(J).values())
    except Exception as error:
        return error
    return J.tree.leaves(value)


def _rows(text: str) -> list[str]:
    return text.strip().splitlines()


@functools.cache
def _of_jax() -> together.Together:
    J = differential.namespace("jax")
    given = tuple(_arguments(J).values())
    rows = [*_rows(VALUES), *_rows(SORTING), *_rows(_WITHOUT_SIZE)]
    return together.Together({row: (_function(J, row), given) for row in rows})


@pytest.mark.parametrize("expression", _rows(VALUES) + _rows(SORTING))
def test_values(expression: str) -> None:
    """Eagerly, and jitted unless it is an error."""
    expected = _of_jax()[expression]
    _compare(expected, _evaluated(expression, False))
    if not isinstance(expected, Exception):
        _compare(expected, _evaluated(expression, True))


@pytest.mark.parametrize("expression", _rows(_WITHOUT_SIZE))
def test_values_that_need_values(expression: str) -> None:
    _compare(_of_jax()[expression], _evaluated(expression, False))


def _compare(expected: Any, found: Any) -> None:
    if isinstance(expected, Exception):
        is_both = isinstance(found, AxisError | ShapeError) and isinstance(found, type(expected))  # JAX's, by function
        assert is_both or type(found).__name__ == type(expected).__name__, f"{expected!r} expected, got {found!r}"
        return
    assert not isinstance(found, Exception), found
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert (mine.shape, mine.dtype, mine.weak_type) == (theirs.shape, theirs.dtype, theirs.weak_type)
        np.testing.assert_allclose(np.asarray(mine), np.asarray(theirs), rtol=1e-6)
