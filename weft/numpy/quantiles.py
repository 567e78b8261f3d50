"""Order statistics: quantile, percentile, median, and those that leave NaN out.

The reduced axes are sorted as one; the position q * (n - 1) between two elements is interpolated::

    quantile(f32[5,4], 0.3, axis=1)   ->  sort along axis 1, gather at floor and ceil of 0.9, weighted sum f32[5]
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import core, dtypes
from weft import operations as lax
from weft._base.array import Array
from weft.dispatch import devices
from weft.dispatch.calls import jit as jit_module
from weft.numpy import axes, promotion, rearrange, reductions
from weft.numpy.pointwise import selection
from weft.numpy.subscripts import indexing

jit = jit_module.jit
_METHODS = ("linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf")


def _check(name: str, a: Any, q: Any, method: str, out: Any, overwrite_input: bool, weights: Any) -> None:
    promotion.check_arraylike(name, a, q, *(() if weights is None else (weights,)))
    if overwrite_input or out is not None:
        raise ValueError(f"jax.numpy.{name} does not support overwrite_input=True or out != None")
    if method not in _METHODS:
        raise ValueError(f"Unrecognized method {method!r}; must be one of {list(_METHODS)}")
    if weights is not None and method != "inverted_cdf":
        raise NotImplementedError(f"{method} doesn't support weights. Only method 'inverted_cdf' supports weights.")


def _quantile(a: Any, q: Any, axis: Any, method: str, keepdims: bool, squash_nans: bool, weights: Any) -> Any:
    own, work = (promotion.inexact_dtype(promotion.dtype_of(x)) for x in (a, q))
    work = own if own.itemsize > work.itemsize else work  # positions and weights
    a = promotion.as_array(a if promotion.dtype_of(a) == own else promotion.convert(a, own))
    q = promotion.as_array(q if promotion.dtype_of(q) == work else promotion.convert(q, work))
    if dtypes.issubdtype(promotion.dtype_of(a), np.complexfloating):
        raise ValueError("quantile does not support complex input, as the operation is poorly defined.")
    q_shape = promotion.shape_of(q)
    if len(q_shape) > 1:
        raise ValueError(f"q must be have rank <= 1, got shape {q_shape}")
    if not promotion.shape_of(a) and axis in (None, ()):  # a vector of one element, as in JAX, not as in NumPy
        a, axis = rearrange.ravel(a), None
        weights = None if weights is None else rearrange.ravel(weights)
    shape = promotion.shape_of(a)
    if weights is not None:
        weights = _spread_weights(weights, shape, axis)
    rows, dim, kept = _one_axis(a, axis, len(shape))
    thin = keepdims and len(kept) == len(shape) - 1  # the axis stays as one of extent 1
    if method == "inverted_cdf":
        shares = None if weights is None else _one_axis(weights, axis, len(shape))[0]
        picked = _picked_by_weight(rows, shares, q, dim, thin, squash_nans)
    elif squash_nans:
        picked = _picked_squashing(rows, q, dim, method, thin)
    else:
        picked = _picked(rows, q, dim, method, thin)
    if keepdims and not thin:
        target = [1 if dim not in kept else shape[dim] for dim in range(len(shape))]
        picked = lax.reshape(picked, (*q_shape, *target))
    return picked


def _one_axis(a: Any, axis: Any, rank: int) -> tuple[Any, int, tuple[int, ...]]:
    """The reduced axes as one, its number, and the axes that stay."""
    if axis is None:
        return rearrange.ravel(a), 0, ()
    reduced = axes.canonical_axes(axis, rank)
    kept = tuple(dim for dim in range(rank) if dim not in reduced)
    if len(reduced) == 1:
        return a, reduced[0], kept
    shape = promotion.shape_of(a)
    rows = lax.transpose(a, (*kept, *reduced))
    count = math.prod(shape[dim] for dim in reduced)
    return lax.reshape(rows, (*(shape[dim] for dim in kept), count)), len(kept), kept


def _spread_weights(weights: Any, shape: tuple[int, ...], axis: Any) -> Any:
    """Weights of the shape of ``a``; given for the reduced axes alone, they are the same for the others."""
    own = promotion.shape_of(weights)
    if own == shape:
        return promotion.as_array(weights)
    if axis is None:
        raise ValueError(f"Weights shape must match the shape of a when axis is None: a has {shape}, weights {own}")
    reduced = axes.canonical_axes(axis, len(shape))
    if own != tuple(shape[d] for d in reduced):
        raise ValueError(
            f"Shape of weights must be consistent with shape of a along specified axis: weights {own}, a {shape}"
        )
    order = sorted(range(len(reduced)), key=lambda number: reduced[number])
    return lax.broadcast_in_dim(lax.transpose(weights, order), shape, sorted(reduced))


def _picked_by_weight(rows: Any, shares: Any, q: Any, dim: int, keepdims: bool, squash_nans: bool) -> Any:
    """The first element, in order, up to which the weights add up to the share ``q`` of their total (or more)."""
    dtype = promotion.dtype_of(q)
    if shares is None:
        shares = lax.full_like(rows, 1, dtype)
    spoiled = lax.ne(rows, rows)
    shares = promotion.convert(shares, dtype)
    if squash_nans:
        shares = lax.select(spoiled, lax.full_like(shares, 0), shares)
    rows = lax.select(spoiled, lax.full_like(rows, np.nan), rows)  # of one sign: behind all numbers
    ordered, weights = lax.sort((rows, shares), dimension=dim, num_keys=1)
    passed = lax.cumsum(weights, dim)
    extents = promotion.shape_of(rows)
    total = lax.slice_in_dim(passed, max(extents[dim] - 1, 0), extents[dim], axis=dim)
    spread = len(promotion.shape_of(q))
    wide = (*promotion.shape_of(q), *extents)
    levels = lax.mul(
        lax.broadcast_in_dim(q, wide, tuple(range(spread))),
        lax.broadcast_in_dim(total, wide, tuple(range(spread, len(wide)))),
    )
    passed = lax.broadcast_in_dim(passed, wide, tuple(range(spread, len(wide))))
    # an element counts only if it has weight itself: q = 0 gives the least of these
    counts = lax.bitwise_and(lax.ge(passed, levels), lax.gt(passed, lax.full_like(passed, 0)))
    at = lax.argmax(counts, spread + dim, np.dtype(np.int32))
    hit = lax.eq(lax.broadcasted_iota(np.int32, wide, spread + dim), lax.expand_dims(at, (spread + dim,)))
    chosen = lax.broadcast_in_dim(ordered, wide, tuple(range(spread, len(wide))))
    chosen = lax.select(hit, chosen, lax.full_like(chosen, 0))
    picked = reductions.sum(chosen, axis=spread + dim, keepdims=keepdims)
    if squash_nans:
        empty = reductions.all(spoiled, axis=dim, keepdims=keepdims)
    else:
        empty = reductions.any(spoiled, axis=dim, keepdims=keepdims)
    empty = lax.broadcast_in_dim(empty, promotion.shape_of(picked), tuple(range(spread, len(picked.shape))))
    return lax.select(empty, lax.full_like(picked, np.nan), picked)


def _picked(rows: Any, q: Any, dim: int, method: str, keepdims: bool) -> Any:
    """Elements at positions that follow from the length of a row."""
    dtype = promotion.dtype_of(q)
    spoiled = reductions.any(lax.ne(rows, rows), axis=dim, keepdims=True)
    ordered = lax.sort(selection.where(spoiled, np.nan, rows), dimension=dim)
    zero, one, integer = np.asarray(0, dtype), np.asarray(1, dtype), dtypes.canonicalize_dtype(np.int64)
    total = core.scalar(promotion.shape_of(rows)[dim], dtype)
    position = lax.mul(q, lax.sub(total, one))
    below, above = lax.floor(position), lax.ceil(position)
    high_weight = lax.sub(position, below)
    low_weight = lax.sub(one, high_weight)
    low = lax.clamp(zero, below, lax.sub(total, one))
    high = lax.clamp(zero, above, lax.sub(total, one))
    low, high = promotion.convert(low, integer), promotion.convert(high, integer)
    at_low, at_high = _at(ordered, low, dim, keepdims), _at(ordered, high, dim, keepdims)
    spread, weights_shape = tuple(range(len(promotion.shape_of(q)))), promotion.shape_of(at_low)
    if spread and len(weights_shape) > len(spread):
        low_weight, high_weight = [lax.broadcast_in_dim(w, weights_shape, spread) for w in (low_weight, high_weight)]
    return _between(at_low, at_high, low_weight, high_weight, method)


def _at(ordered: Any, position: Any, dim: int, keepdims: bool) -> Any:
    """Elements at positions along an axis, the axes of ``position`` first."""
    rank = len(promotion.shape_of(position))
    shape = promotion.shape_of(ordered)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(range(rank, rank + len(shape) - (0 if keepdims else 1))),
        collapsed_slice_dims=() if keepdims else (dim,),
        start_index_map=(dim,),
    )
    starts = lax.broadcast_in_dim(position, (*promotion.shape_of(position), 1), tuple(range(rank)))
    return lax.gather(ordered, starts, numbers, (*shape[:dim], 1, *shape[dim + 1 :]))


def _picked_squashing(rows: Any, q: Any, dim: int, method: str, keepdims: bool) -> Any:
    """``_picked`` for rows that differ in the number of elements that are not NaN."""
    dtype = promotion.dtype_of(q)
    ordered = lax.sort(selection.where(lax.ne(rows, rows), np.nan, rows), dimension=dim)
    found = lax.bitwise_not(lax.ne(ordered, ordered))
    counts = reductions.sum(found, axis=dim, dtype=dtype, keepdims=keepdims)
    lead, rank = len(promotion.shape_of(q)), len(promotion.shape_of(counts))
    q, counts = lax.expand_dims(q, range(lead, lead + rank)), lax.expand_dims(counts, range(lead))
    zero, one, integer = np.asarray(0, dtype), np.asarray(1, dtype), dtypes.canonicalize_dtype(np.int64)
    position = lax.mul(q, lax.sub(counts, one))
    below, above = lax.floor(position), lax.ceil(position)
    high_weight = lax.sub(position, below)
    low_weight = lax.sub(one, high_weight)
    low = lax.max(zero, lax.min(below, lax.sub(counts, one)))
    high = lax.max(zero, lax.min(above, lax.sub(counts, one)))
    low, high = promotion.convert(low, integer), promotion.convert(high, integer)
    shape = promotion.shape_of(low)
    grid = [lax.broadcasted_iota(integer, shape, lead + dim) for dim in range(rank)]

    def at(position: Any) -> Any:
        return indexing.index(ordered, (*grid[:dim], position, *grid[dim + keepdims :]))

    return _between(at(low), at(high), low_weight, high_weight, method)


def _between(low: Any, high: Any, low_weight: Any, high_weight: Any, method: str) -> Any:
    own, work = promotion.dtype_of(low), promotion.dtype_of(low_weight)
    if method == "linear":
        below = lax.mul(promotion.convert(low, work), low_weight)
        above = lax.mul(promotion.convert(high, work), high_weight)
        return promotion.convert(lax.add(below, above), own)
    if method == "lower":
        return low
    if method == "higher":
        return high
    if method == "nearest":
        nearer = lax.le(high_weight, np.asarray(0.5, work))
        if promotion.shape_of(nearer) != promotion.shape_of(low):
            nearer = promotion.broadcast_to(nearer, promotion.shape_of(low))
        return lax.select(nearer, low, high)
    return lax.mul(lax.add(low, high), np.asarray(0.5, own))


def quantile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: bool = False, *, weights: Any = None,
) -> Array:  # fmt: skip
    """The ``q``-th quantiles (0 to 1) of ``a`` over ``axis`` (None: all); NaN where there is one.

    The axes of ``q`` come first. ``method``: "linear", "lower", "higher", "midpoint" or "nearest" where the position
    lies between two elements; "inverted_cdf" takes the first element up to which at least the share ``q`` of all
    ``weights`` lies (without weights, of all elements). Weights have the shape of ``a`` or that of the axes.

    >>> quantile(weft.numpy.array([1.0, 2.0, 4.0]), 0.75).item()
    3.0
    """
    _check("quantile", a, q, method, out, overwrite_input, weights)
    return _quantile_of(a, q, axis=axis, method=method, keepdims=keepdims, weights=weights)


def _quantile_program(a: Any, q: Any, *, axis: Any, method: str, keepdims: bool, weights: Any) -> Any:
    return _quantile(a, q, axis, method, keepdims, False, weights)


_quantile_program.__name__ = "quantile"
_quantile_of = jit(_quantile_program, static_argnames=("axis", "method", "keepdims"))


@jit(static_argnames=("axis", "overwrite_input", "method", "keepdims"))
def nanquantile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: bool = False, *, weights: Any = None,
) -> Array:  # fmt: skip
    """``quantile`` of the elements that are not NaN.

    >>> nanquantile(weft.numpy.array([1.0, np.nan, 4.0]), 0.5).item()
    2.5
    """
    _check("nanquantile", a, q, method, out, overwrite_input, weights)
    return _quantile(a, q, axis, method, keepdims, True, weights)


def _hundredth(q: Any) -> Any:
    (q,) = promotion.promote_dtypes_inexact(q)
    return lax.div(q, promotion.constant_like(100, q))


def percentile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: bool = False, *, weights: Any = None, out_sharding: Any = None,
) -> Array:  # fmt: skip
    """``quantile`` of ``q`` in percent.

    >>> percentile(weft.numpy.array([1.0, 2.0, 4.0]), 75).item()
    3.0
    """
    if out_sharding is not None:
        return devices.placed(
            lambda: percentile(a, q, axis, out, overwrite_input, method, keepdims, weights=weights),
            out_sharding=out_sharding,
        )
    _check("percentile", a, q, method, out, overwrite_input, weights)
    options = {"overwrite_input": overwrite_input, "method": method, "keepdims": keepdims, "weights": weights}
    return _percentile(a, q, axis=axis, out=out, **options)


def _percentile_program(
    a: Any, q: Any, *, axis: Any, out: None, overwrite_input: bool, method: str, keepdims: bool, weights: Any
) -> Any:
    promotion.check_arraylike("percentile", a, q)
    return quantile(a, _hundredth(q), axis, out, overwrite_input, method, keepdims, weights=weights)


_percentile_program.__name__ = "percentile"
_percentile = jit(_percentile_program, static_argnames=("axis", "overwrite_input", "method", "keepdims"))


@jit(static_argnames=("axis", "overwrite_input", "method", "keepdims"))
def nanpercentile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: bool = False, *, weights: Any = None,
) -> Array:  # fmt: skip
    """``percentile`` of the elements that are not NaN.

    >>> nanpercentile(weft.numpy.array([1.0, np.nan, 4.0]), 50).item()
    2.5
    """
    promotion.check_arraylike("nanpercentile", a, q)
    return nanquantile(a, _hundredth(q), axis, out, overwrite_input, method, keepdims, weights=weights)


def median(a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False) -> Array:
    """The middle of the elements over ``axis`` (None: all), or the mean of the middle two; NaN where there is one.

    >>> median(weft.numpy.array([1.0, 2.0, 4.0])).item()
    2.0
    """
    promotion.check_arraylike("median", a)
    return _median(a, axis=axis, out=out, overwrite_input=overwrite_input, keepdims=keepdims)


def _median_program(a: Any, *, axis: Any, out: None, overwrite_input: bool, keepdims: bool) -> Any:
    return quantile(a, 0.5, axis, out, overwrite_input, "midpoint", keepdims)


_median_program.__name__ = "median"
_median = jit(_median_program, static_argnames=("axis", "overwrite_input", "keepdims"))


@jit(static_argnames=("axis", "overwrite_input", "keepdims"))
def nanmedian(
    a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False
) -> Array:
    """``median`` of the elements that are not NaN.

    >>> nanmedian(weft.numpy.array([1.0, np.nan, 4.0])).item()
    2.5
    """
    promotion.check_arraylike("nanmedian", a)
    return nanquantile(a, 0.5, axis, out, overwrite_input, "midpoint", keepdims)
