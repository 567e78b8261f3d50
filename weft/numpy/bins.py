"""Positions in sorted arrays: searchsorted, digitize, interp, histograms.

searchsorted compares in total order (-0.0 equals 0.0, NaN is above all). "scan" halves an interval for each value,
"compare_all" compares every value with every element, "sort" merges values and elements::

    searchsorted(f32[5], f32[3])   ->  scan of 3 steps over (low u32[3], high u32[3]) with a gather of the middle
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import core, dtypes, runtime
from weft import operations as lax
from weft._base.array import Array
from weft.batching.vmap import vmap
from weft.control import scan as scan_module
from weft.dispatch.calls import jit as jit_module
from weft.numpy import calculus, promotion, rearrange, reductions, searching
from weft.numpy.array_creation import creation, even_spacing
from weft.numpy.pointwise import arithmetic, selection
from weft.numpy.subscripts import index_updates, indexing

jit = jit_module.jit
_METHODS = ("scan", "scan_unrolled", "sort", "compare_all")


@jit(static_argnames=("side", "method"))
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None, *, method: str = "scan") -> Array:
    """Where each element of ``v`` belongs in sorted ``a``: before ("left") or after ("right") equal elements.

    ``sorter``: positions that sort ``a``. ``method``: "scan", "scan_unrolled", "sort" or "compare_all"; the result is
    the same.

    >>> searchsorted(weft.numpy.array([1, 3, 5]), weft.numpy.array([3, 4])).tolist()
    [1, 2]
    """
    promotion.check_arraylike("searchsorted", a, v, *(() if sorter is None else (sorter,)))
    if side not in ("left", "right"):
        raise ValueError(f"invalid argument {side=}, expected 'left' or 'right'")
    if method not in _METHODS:
        raise ValueError(f"invalid argument {method=}, expected one of {sorted(_METHODS)}")
    if len(promotion.shape_of(a)) != 1:
        raise ValueError("a should be 1-dimensional")
    a, v = promotion.promote_dtypes(a, v)
    if sorter is not None:
        a = indexing.index(promotion.as_array(a), sorter)
    dtype = dtypes.canonicalize_dtype(np.int64) if promotion.shape_of(a)[0] >= 2**31 else np.dtype(np.int32)
    if method == "sort":
        return _searchsorted_sort_impl(a, v, side=side, dtype=dtype)
    if method == "compare_all":
        return _searchsorted_compare_all_impl(a, v, side=side, dtype=dtype)
    return _searchsorted_scan_impl(a, v, side=side, dtype=dtype, unrolled=method == "scan_unrolled")


def _total(x: Any) -> Any:
    """Floats with one zero and one NaN, for comparisons in total order."""
    dtype = promotion.dtype_of(x)
    if not dtypes.issubdtype(dtype, np.floating):
        return x
    one_zero = lax.select(lax.eq(x, np.asarray(0, dtype)), lax.full_like(x, 0), x)
    return lax.select(lax.ne(x, x), lax.full_like(x, np.nan), one_zero)


def _before(x: Any, y: Any, or_equal: bool) -> Any:
    """Whether x stands before y; complex numbers by their real parts, or by the imaginary ones if these are equal."""
    if dtypes.issubdtype(promotion.dtype_of(x), np.complexfloating):
        parts = [(_total(lax.real(value)), _total(lax.imag(value))) for value in (x, y)]
        (x_real, x_imag), (y_real, y_imag) = parts
        alike = lax.bitwise_and(lax.le_to_p.bind(x_real, y_real), lax.le_to_p.bind(y_real, x_real))
        by_imag = (lax.le_to_p if or_equal else lax.lt_to_p).bind(x_imag, y_imag)
        return lax.bitwise_or(lax.lt_to_p.bind(x_real, y_real), lax.bitwise_and(alike, by_imag))
    return (lax.le_to_p if or_equal else lax.lt_to_p).bind(_total(x), _total(y))


@jit(static_argnames=("side", "dtype", "unrolled"))
def _searchsorted_scan_impl(a: Any, v: Any, *, side: str, dtype: Any, unrolled: bool) -> Any:
    """The search for one value, or for each of several."""
    count = promotion.shape_of(a)[0]
    if not count:
        return lax.full_like(promotion.as_array(v), 0, dtype)
    if promotion.shape_of(v):
        return vmap(functools.partial(_searchsorted_scan_impl, a, side=side, dtype=dtype, unrolled=unrolled))(v)
    steps = count.bit_length()
    wide = np.dtype(np.uint32) if count < 2**31 else np.dtype(np.uint64)

    def halve(interval: tuple[Any, Any], _: Any) -> tuple[tuple[Any, Any], None]:
        low, high = interval
        middle = lax.add(low, arithmetic.floor_divide(lax.sub(high, low), 2))
        left = _before(v, lax.dynamic_index_in_dim(a, middle, 0, keepdims=False), or_equal=side == "left")
        return (lax.select(left, low, middle), lax.select(left, middle, high)), None

    start = np.asarray(0, wide), core.scalar(count, wide)
    (_, high), _ = scan_module.scan(halve, start, None, length=steps, unroll=steps if unrolled else 1)
    return promotion.convert(high, dtype)


@jit(static_argnames=("side", "dtype"))
def _searchsorted_compare_all_impl(a: Any, v: Any, *, side: str, dtype: Any) -> Any:
    before = vmap(functools.partial(_before, or_equal=side == "right"), in_axes=(0, None))
    return reductions.sum(before(a, promotion.as_array(v)), axis=0, dtype=dtype)


@jit(static_argnames=("side", "dtype"))
def _searchsorted_sort_impl(a: Any, v: Any, *, side: str, dtype: Any) -> Any:
    pair = (rearrange.ravel(v), a) if side == "left" else (a, rearrange.ravel(v))
    ranks = _ranks(lax.concatenate(list(pair), 0))
    count, total = math.prod(promotion.shape_of(v)), promotion.shape_of(ranks)[0]
    own = lax.slice(ranks, (0,), (count,)) if side == "left" else lax.slice(ranks, (total - count,), (total,))
    positions = promotion.convert(lax.sub(own, _ranks(rearrange.ravel(v))), dtype)
    return positions if len(promotion.shape_of(v)) == 1 else lax.reshape(positions, promotion.shape_of(v))


def _ranks(x: Any) -> Any:
    """The position of each element after sorting."""
    positions = lax.iota(np.dtype(np.int32), promotion.shape_of(x)[0])
    ranks = lax.full_like(positions, 0)
    return index_updates.IndexUpdate(ranks, lax.sort((x, positions))[1]).set(positions)


@jit(static_argnames=("right", "method"))
def digitize(x: Any, bins: Any, right: bool = False, *, method: str | None = None) -> Array:
    """The number of the bin of each element: between ``bins[i-1]`` (included unless ``right``) and ``bins[i]``.

    ``bins`` ascend or descend.

    >>> digitize(weft.numpy.array([0.5, 2.5]), weft.numpy.array([1.0, 2.0, 3.0])).tolist()
    [0, 2]
    """
    promotion.check_arraylike("digitize", x, bins)
    shape = promotion.shape_of(bins)
    if len(shape) != 1:
        raise ValueError(f"digitize: bins must be a 1-dimensional array; got bins={bins}")
    bins = promotion.as_array(bins)
    if not shape[0]:
        return creation.zeros_like(x, dtype=np.dtype(np.int32))
    options = {"method": method or "scan"}
    side = "left" if right else "right"
    return selection.where(
        lax.ge(bins[-1], bins[0]),
        searchsorted(bins, x, side=side, **options),
        lax.sub(core.scalar(shape[0], np.int32), searchsorted(lax.rev(bins, (0,)), x, side=side, **options)),
    )


def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Array:
    """The piecewise linear function through the points (``xp``, ``fp``) at ``x``; ``xp`` ascends.

    Below ``xp[0]`` it is ``left`` (``fp[0]``), above ``xp[-1]`` ``right`` (``fp[-1]``); "extrapolate" goes on linearly.
    With ``period`` it is periodic.

    >>> interp(1.5, weft.numpy.array([1.0, 2.0]), weft.numpy.array([10.0, 20.0])).item()
    15.0
    """
    static = (isinstance(left, str), isinstance(right, str))
    for side in (left, right):
        if isinstance(side, str) and side != "extrapolate":
            raise ValueError(f"the only valid string value of `left`/`right` is 'extrapolate', but got: {side}")
    low, high = (None if isinstance(side, str) else side for side in (left, right))
    return _interp(x, xp, fp, low, high, period, extrapolate=static)


@jit(static_argnames=("extrapolate",))
def _interp(x: Any, xp: Any, fp: Any, left: Any, right: Any, period: Any, *, extrapolate: tuple[bool, bool]) -> Any:
    promotion.check_arraylike("interp", x, xp, fp)
    if promotion.shape_of(xp) != promotion.shape_of(fp) or len(promotion.shape_of(xp)) != 1:
        raise ValueError("xp and fp must be one-dimensional arrays of equal size")
    x, xp = promotion.promote_dtypes_inexact(x, xp)
    (fp,) = promotion.promote_dtypes_inexact(fp)
    x, xp, fp = map(promotion.as_array, (x, xp, fp))
    if period is not None:
        period = promotion.as_array(arithmetic.absolute(period))
        x, xp = arithmetic.remainder(x, period), arithmetic.remainder(xp, period)
        xp, fp = lax.sort((xp, fp), num_keys=1)
        xp = lax.concatenate([xp[-1:] - period, xp, xp[:1] + period], 0)
        fp = lax.concatenate([fp[-1:], fp, fp[:1]], 0)
    count = promotion.shape_of(xp)[0]
    above = selection.clip(searchsorted(xp, x, side="right"), 1, count - 1)
    rise = arithmetic.subtract(fp[above], fp[above - 1])
    run = arithmetic.subtract(xp[above], xp[above - 1])
    offset = arithmetic.subtract(x, xp[above - 1])
    least = float(np.spacing(np.finfo(np.dtype(promotion.dtype_of(xp))).eps))
    flat = lax.le(lax.abs(run), np.asarray(least, promotion.dtype_of(run)))
    start = fp[above - 1]
    along = fp[above - 1] + arithmetic.divide(offset, selection.where(flat, 1, run)) * rise
    result = selection.where(flat, start, along)
    if not extrapolate[0]:
        end = fp[0] if left is None else left
        result = selection.where(x < xp[0], end, result) if period is None else result
    if not extrapolate[1]:
        end = fp[-1] if right is None else right
        result = selection.where(x > xp[-1], end, result) if period is None else result
    return result


@jit(static_argnames=("bins",))
def _even_edges(a: Any, limits: Any, *, bins: int) -> Any:
    (a,) = promotion.promote_dtypes_inexact(a)
    dtype = promotion.dtype_of(a)
    if limits is None:
        low, high = (reductions.min(a), reductions.max(a)) if promotion.shape_of(a) != (0,) else (0.0, 1.0)
    else:
        low, high = limits
    low, high = creation.asarray(low, dtype=dtype), creation.asarray(high, dtype=dtype)
    flat = low == high
    half = np.asarray(0.5, dtype)
    low, high = selection.where(flat, low - half, low), selection.where(flat, high + half, high)
    return even_spacing.linspace(low, high, bins + 1, dtype=dtype)


def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Array:
    """The borders of ``bins`` equal bins over ``range`` (by default from the least to the largest of ``a``).

    >>> histogram_bin_edges(weft.numpy.array([0.0, 4.0]), 2).tolist()
    [0.0, 2.0, 4.0]
    """
    if isinstance(bins, str):
        raise NotImplementedError("string values for `bins` not implemented.")
    promotion.check_arraylike("histogram_bin_edges", a, bins)
    if promotion.shape_of(bins):
        (edges,) = promotion.promote_dtypes_inexact(bins)
        return promotion.convert(promotion.as_array(edges), promotion.dtype_of(edges))
    if range is not None and (not hasattr(range, "__len__") or len(range) != 2):
        raise ValueError(f"`range` must be either None or a sequence of scalars, got {range}")
    limits = None if range is None else (range[0], range[1])
    return _even_edges(rearrange.ravel(a), limits, bins=int(bins))


def histogram(a: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: bool | None = None) -> Any:
    """How many elements of ``a`` (or how much of ``weights``) each bin holds, and the borders of the bins.

    The last bin includes its upper border. ``density``: divided by the total and the widths.

    >>> [x.tolist() for x in histogram(weft.numpy.array([1.0, 2.0, 2.0]), bins=2, range=(0, 4))]
    [[1.0, 2.0], [0.0, 2.0, 4.0]]
    """
    promotion.check_arraylike("histogram", a, *(() if weights is None else (weights,)))
    if weights is not None and promotion.shape_of(weights) != promotion.shape_of(a):
        raise ValueError("weights should have the same shape as a.")
    (values,) = promotion.promote_dtypes_inexact(a)
    edges = histogram_bin_edges(values, bins, range, weights)
    values = rearrange.ravel(values)
    numbers = _bin_numbers(values, edges)
    count = promotion.shape_of(edges)[0]
    if weights is None:  # counted in integers, whose sums threads share
        totals = promotion.convert(searching.bincount(numbers, length=count)[1:], promotion.dtype_of(values))
    else:
        totals = searching.bincount(numbers, rearrange.ravel(weights), length=count)[1:]
    if density:
        widths = calculus.diff(edges)
        totals = arithmetic.divide(arithmetic.divide(totals, widths), reductions.sum(totals))
    return totals, edges


def _bin_numbers(values: Any, edges: Any) -> Any:
    """The number of the bin of each value from 1; 0, or beyond the last, outside."""
    numbers = searchsorted(edges, values, side="right")
    return selection.where(values == edges[-1], promotion.shape_of(edges)[0] - 1, numbers)


def histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: bool | None = None
) -> tuple[Any, list[Any]]:
    """The histogram of points in several dimensions, the rows of ``sample``; one list of borders per dimension.

    >>> histogramdd(weft.numpy.array([[0.0, 0.0], [1.0, 1.0]]), bins=2)[0].tolist()
    [[1, 0], [0, 1]]
    """
    promotion.check_arraylike("histogramdd", sample)
    if promotion.shape_of(sample) == () or len(promotion.shape_of(sample)) != 2:
        raise ValueError("histogramdd: sample should be a two-dimensional array")
    count, dims = promotion.shape_of(sample)
    (points,) = promotion.promote_dtypes_inexact(sample)
    points = promotion.as_array(points)
    per_axis: Sequence[Any] = list(bins) if isinstance(bins, Sequence) else [bins] * dims
    if len(per_axis) != dims:
        raise ValueError("should be a bin for each dimension.")
    limits = [None] * dims if range is None else list(range)
    if len(limits) != dims:
        raise ValueError(f"Expected one range per dimension, got {len(limits)} ranges for {dims} dimensions")
    edges = [histogram_bin_edges(points[:, d], per_axis[d], limits[d]) for d in np.arange(dims)]
    extents = [promotion.shape_of(edge)[0] + 1 for edge in edges]
    counts = math.prod(extents)
    if counts > np.iinfo(np.int32).max:
        raise ValueError(
            f"[histogramdd] {counts} counts, those beyond the borders included, are more than int32 numbers"
        )
    flat = creation.zeros(count, np.dtype(np.int32))
    for dim, edge in enumerate(edges):
        flat = flat * extents[dim] + _bin_numbers(points[:, dim], edge)
    totals = searching.bincount(flat, weights, length=counts)
    totals = rearrange.reshape(totals, tuple(extents))[(slice(1, -1),) * dims]
    if density:
        totals = arithmetic.divide(totals, reductions.sum(totals))
        for dim, edge in enumerate(edges):
            shape = [-1 if d == dim else 1 for d in np.arange(dims)]
            totals = arithmetic.divide(totals, rearrange.reshape(calculus.diff(edge), shape))
    return totals, edges


def histogram2d(
    x: Any, y: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: bool | None = None
) -> tuple[Any, Any, Any]:
    """The histogram of points in the plane, and the borders of the bins along both axes.

    >>> histogram2d(weft.numpy.array([0.0, 1.0]), weft.numpy.array([0.0, 1.0]), bins=2)[0].tolist()
    [[1, 0], [0, 1]]
    """
    promotion.check_arraylike("histogram2d", x, y)
    if (
        isinstance(bins, runtime.Array | np.ndarray)
        and promotion.shape_of(bins)
        and promotion.shape_of(bins)[0] not in (1, 2)
    ):
        bins = [bins, bins]
    sample = creation.asarray([x, y]).T
    totals, edges = histogramdd(sample, bins, range, weights, density)
    return totals, edges[0], edges[1]
