"""Summaries of samples: the most frequent value, ranks, the standard error of the mean.

rankdata(f32[4])  ->  argsort, and for ties the positions where a sorted value differs from the one before it
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import dtypes
from weft import numpy as wnp
from weft._base.array import Array
from weft._base.record import NamedTuple
from weft.numpy import axes, promotion


class ModeResult(NamedTuple):
    """The most frequent value and how often it occurs."""

    mode: Any
    count: Any


_POLICIES = ("propagate", "omit", "raise")


def _check_policy(nan_policy: str) -> None:
    if nan_policy not in _POLICIES:
        raise ValueError(f"Illegal nan_policy value {nan_policy!r}; expected one of {{'propagate', 'omit', 'raise'}}")
    if nan_policy != "propagate":
        raise NotImplementedError(f"Logic for `nan_policy` of {nan_policy} is not implemented")


def _rows(x: Any, axis: int | None) -> tuple[Any, int]:
    """The array with the axis in question, or all of its elements, last; and where that axis was."""
    rank = len(promotion.shape_of(x))
    if axis is None or rank == 0:
        return wnp.ravel(x), 0
    position = axes.canonical_axis(axis, rank)
    return wnp.moveaxis(x, position, -1), position


def mode(a: Any, axis: int | None = 0, nan_policy: str = "propagate", keepdims: bool = False) -> ModeResult:
    """The most frequent value along ``axis`` (None: of all), the least of several, and its count.

    An empty axis gives NaN and 0; NaN is a value like others, as in JAX. ValueError for an unknown ``nan_policy``,
    NotImplementedError for "omit" and "raise".

    >>> found = mode(np.int32([1, 2, 2, 3]))
    >>> found.mode.item(), found.count.item()
    (2, 2)
    """
    promotion.check_arraylike("mode", a)
    _check_policy(nan_policy)
    x = wnp.asarray(a)
    rank = len(promotion.shape_of(x))
    rows, reduced = _rows(x, axis)
    shape = promotion.shape_of(rows)
    if shape[-1] == 0:
        dtype = dtypes.canonicalize_dtype(np.float64)
        found = ModeResult(wnp.full(shape[:-1], np.nan, dtype), wnp.zeros(shape[:-1], dtype))
    else:
        ordered = wnp.sort(rows, axis=-1)
        first = _group_starts(ordered)
        position = promotion.with_rank(wnp.arange(shape[-1]), len(shape))
        start = _cumulative_max(wnp.where(first, position, 0))
        length = position - start + 1  # of the group so far: the largest is the whole of a longest group
        best = wnp.argmax(length, axis=-1, keepdims=True)
        found = ModeResult(
            wnp.squeeze(wnp.take_along_axis(ordered, best, axis=-1), -1), wnp.max(length, axis=-1).astype(np.int32)
        )
    if not keepdims:
        return found
    if axis is None or rank == 0:
        return ModeResult(*[wnp.reshape(value, (1,) * max(rank, 1)) for value in found])
    return ModeResult(*[wnp.expand_dims(value, reduced) for value in found])


def _group_starts(ordered: Any) -> Any:
    """Where a sorted value differs from the one before it; NaN does not differ from NaN."""
    later, earlier = ordered[..., 1:], ordered[..., :-1]
    differs = wnp.not_equal(later, earlier)
    if dtypes.issubdtype(promotion.dtype_of(ordered), np.inexact):
        differs = differs & ~(wnp.isnan(later) & wnp.isnan(earlier))
    return wnp.concatenate([wnp.ones_like(ordered[..., :1], dtype=np.bool_), differs], axis=-1)


def _cumulative_max(x: Any) -> Any:
    return wnp.maximum.accumulate(x, axis=-1)


def _ordinals(rows: Any) -> tuple[Any, Any]:
    """(the order that sorts rows, the position of every element in it)."""
    order = wnp.argsort(rows, axis=-1)
    return order, wnp.argsort(order, axis=-1)


def rankdata(a: Any, method: str = "average", *, axis: int | None = None, nan_policy: str = "propagate") -> Array:
    """The ranks of the elements, from 1, along ``axis`` (None: of all, flattened).

    Equal elements get the average, "min" or "max" of their ranks; with "dense" ranks are counted without gaps, with
    "ordinal" equal ones are ranked as they come. Floating point; a row with NaN is all NaN. ValueError for another
    method, NotImplementedError for another ``nan_policy``.

    >>> rankdata(np.int32([30, 10, 20, 30])).tolist()
    [3.5, 1.0, 2.0, 3.5]
    """
    promotion.check_arraylike("rankdata", a)
    _check_policy(nan_policy)
    if method not in ("average", "min", "max", "dense", "ordinal"):
        raise ValueError(f"unknown method '{method}': choose average, min, max, dense or ordinal")
    rows, position = _rows(wnp.asarray(a), axis)
    shape = promotion.shape_of(rows)
    dtype = dtypes.canonicalize_dtype(np.float64)
    if shape[-1] == 0:
        return wnp.zeros(promotion.shape_of(rows) if axis is None else promotion.shape_of(a), dtype)
    order, ordinal = _ordinals(rows)
    ranks = _ranks(wnp.take_along_axis(rows, order, axis=-1), ordinal, method).astype(dtype)
    if dtypes.issubdtype(promotion.dtype_of(rows), np.inexact):
        ranks = wnp.where(wnp.any(wnp.isnan(rows), axis=-1, keepdims=True), np.nan, ranks)
    return ranks if axis is None or ranks.ndim == 1 else wnp.moveaxis(ranks, -1, position)


def _ranks(ordered: Any, ordinal: Any, method: str) -> Any:
    """The ranks of sorted values, put where the values came from."""
    if method == "ordinal":
        return ordinal + 1
    first = _group_starts(ordered)
    if method == "dense":
        return wnp.take_along_axis(wnp.cumsum(first, axis=-1), ordinal, axis=-1)
    count = promotion.shape_of(ordered)[-1]
    position = wnp.arange(count)
    least = _cumulative_max(wnp.where(first, position, 0)) + 1
    last = wnp.concatenate([first[..., 1:], wnp.ones_like(first[..., :1])], axis=-1)
    most = wnp.minimum.accumulate(wnp.where(last, position, count)[..., ::-1], axis=-1)[..., ::-1] + 1
    chosen = {"min": least, "max": most}.get(method)
    if chosen is None:
        chosen = (least + most).astype(dtypes.canonicalize_dtype(np.float64)) / 2
    return wnp.take_along_axis(chosen, ordinal, axis=-1)


def sem(a: Any, axis: int | None = 0, ddof: int = 1, nan_policy: str = "propagate", *, keepdims: bool = False) -> Array:
    """The standard error of the mean along ``axis`` (None: of all): ``std(a, ddof) / sqrt(count)``.

    ``nan_policy="omit"`` leaves NaN out. ValueError for another policy than that and "propagate".

    >>> round(sem(np.float32([1, 2, 3, 4])).item(), 4)
    0.6455
    """
    promotion.check_arraylike("sem", a)
    if nan_policy not in ("propagate", "omit"):
        raise ValueError(f"{nan_policy} is not supported: [sem] nan_policy is 'propagate' or 'omit'")
    (x,) = promotion.promote_dtypes_inexact(a)
    over = None if axis is None else axes.canonical_axis(axis, len(promotion.shape_of(x)))
    if nan_policy == "omit":
        count = wnp.sum(~wnp.isnan(x), axis=over, keepdims=keepdims)
        deviation = wnp.nanstd(x, axis=over, ddof=ddof, keepdims=keepdims)
    else:
        deviation = wnp.std(x, axis=over, ddof=ddof, keepdims=keepdims)
        count = promotion.constant_like(np.size(x) if over is None else promotion.shape_of(x)[over], x)
    return deviation / wnp.sqrt(promotion.convert(count, promotion.dtype_of(deviation)))
