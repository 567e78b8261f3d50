"""Reductions of segments: rows that carry the same number are combined, by one scatter.

segment_sum(f32[5,4], i32[5], num_segments=3)   ->  scatter-add into f32[3,4] zeros, in the order of the rows
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import core, dtypes
from weft import operations as lax
from weft._base import unbuilt
from weft._base.array import Array
from weft.dispatch import devices
from weft.numpy import promotion, reductions
from weft.numpy.array_creation import creation
from weft.numpy.pointwise import arithmetic
from weft.numpy.subscripts import index_updates

_RESULTS: dict[str, Callable[..., Any]] = {
    "add": reductions.sum,
    "multiply": reductions.prod,
    "min": reductions.min,
    "max": reductions.max,
}


def _identity(op: str, dtype: Any) -> Any:
    """The identity: the number that leaves any other unchanged."""
    if op in ("add", "multiply"):
        return np.asarray(op == "multiply", dtype)
    if dtype == np.bool_:
        return np.asarray(op == "min")
    if dtypes.issubdtype(dtype, np.inexact):
        return np.asarray(np.inf if op == "min" else -np.inf, dtype)
    return np.asarray(dtypes.iinfo(dtype).max if op == "min" else dtypes.iinfo(dtype).min, dtype)


def _reduce_segments(name: str, op: str, data: Any, segment_ids: Any, num_segments: Any, **options: Any) -> Any:
    promotion.check_arraylike(name, data, segment_ids)
    out_sharding = options.pop("out_sharding", None)
    if out_sharding is not None:
        return devices.placed(
            lambda: _reduce_segments(name, op, data, segment_ids, num_segments, **options), out_sharding=out_sharding
        )
    bucket_size = options.pop("bucket_size", None)
    parsed = lax.GatherScatterMode.FILL_OR_DROP
    if options["mode"] is not None:
        parsed = lax.GatherScatterMode.from_any(options["mode"])
    options.update(mode=parsed, wrap_negative_indices=False)
    if num_segments is None:
        core.concrete_or_error(None, segment_ids, f"{name}() `num_segments` argument.")
        ids = np.asarray(segment_ids)
        num_segments = int(ids.max()) + 1 if ids.size else 0
    count = core.concrete_or_error(int, num_segments, f"{name}() `num_segments` argument.")
    if count < 0:
        raise ValueError("num_segments must be non-negative.")
    shape, dtype = promotion.shape_of(data), promotion.dtype_of(data)
    fill = _identity(op, dtype)
    segment_ids = promotion.as_array(segment_ids)
    if bucket_size is None:
        out = lax.full((count, *shape[1:]), fill, dtype)
        return getattr(index_updates.IndexUpdate(out, segment_ids), op)(data, **options)
    buckets = -(-promotion.shape_of(segment_ids)[0] // bucket_size)
    out = lax.full((buckets, count, *shape[1:]), fill, dtype)
    bucket = arithmetic.floor_divide(creation.arange(promotion.shape_of(segment_ids)[0]), bucket_size)
    segment_row, bucket_row = segment_ids[None, :], bucket[None, :]
    partial = getattr(index_updates.IndexUpdate(out, (bucket_row, segment_row)), op)(data, **options)
    return _RESULTS[op](partial, axis=0).astype(dtype)


def segment_sum(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: Any = None,
    out_sharding: Any = None,
) -> Array:
    """The sums of the rows of ``data`` with the same number in ``segment_ids``, one for each of ``num_segments``.

    Numbers out of bounds are left out (negative ones too), or moved inside with ``mode="clip"``. Without
    ``num_segments``, which needs values, there are as many as the largest number asks for. ``bucket_size``: sum so many
    rows each before their sums are added.

    >>> segment_sum(weft.numpy.array([1.0, 2.0, 3.0]), np.array([0, 2, 0]), num_segments=3).tolist()
    [4.0, 0.0, 2.0]
    """
    return _reduce_segments(
        "segment_sum", "add", data, segment_ids, num_segments, indices_are_sorted=indices_are_sorted,
        unique_indices=unique_indices, bucket_size=bucket_size, mode=mode, out_sharding=out_sharding,
    )  # fmt: skip


def segment_prod(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: Any = None,
    out_sharding: Any = None,
) -> Any:
    """The products of the rows of each segment, 1 where there is none; otherwise as ``segment_sum``."""
    return _reduce_segments(
        "segment_prod", "multiply", data, segment_ids, num_segments, indices_are_sorted=indices_are_sorted,
        unique_indices=unique_indices, bucket_size=bucket_size, mode=mode, out_sharding=out_sharding,
    )  # fmt: skip


def segment_max(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: Any = None,
    out_sharding: Any = None,
) -> Any:
    """The largest of the rows of each segment, the least number there is (-inf) where there is none."""
    return _reduce_segments(
        "segment_max", "max", data, segment_ids, num_segments, indices_are_sorted=indices_are_sorted,
        unique_indices=unique_indices, bucket_size=bucket_size, mode=mode, out_sharding=out_sharding,
    )  # fmt: skip


def segment_min(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: Any = None,
    out_sharding: Any = None,
) -> Any:
    """The smallest of the rows of each segment, the largest number there is (inf) where there is none."""
    return _reduce_segments(
        "segment_min", "min", data, segment_ids, num_segments, indices_are_sorted=indices_are_sorted,
        unique_indices=unique_indices, bucket_size=bucket_size, mode=mode, out_sharding=out_sharding,
    )  # fmt: skip


__getattr__ = unbuilt.fallback("weft.ops")
