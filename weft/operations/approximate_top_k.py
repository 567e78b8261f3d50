"""``lax.approx_max_k`` and ``lax.approx_min_k``; on a CPU they return the exact largest and smallest elements.

approx_max_k(f32[3,50], 5)  ->  top_k[axis=1 k=5]
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import core, dtypes
from weft import operations as lax
from weft.operations import static

__all__ = ["approx_max_k", "approx_min_k"]


def _checked(
    name: str, operand: Any, k: int, reduction_dimension: int, recall_target: float, aggregate_to_topk: bool
) -> tuple[int, int]:
    aval = core.get_aval(operand)
    if not dtypes.issubdtype(aval.dtype, np.floating):
        raise ValueError(f"operand must be a floating type: [{name}] got {aval.dtype}")
    axis = static.canonical_axis(reduction_dimension, len(aval.shape), name)
    count = static.integer(k, name, "k")
    if count <= 0:
        raise ValueError(f"k must be positive, got {count}")
    if count > aval.shape[axis]:
        raise ValueError(f"k must be smaller than the size of reduction_dim {aval.shape[axis]}, got {count}")
    if not 0 < recall_target <= 1:
        raise ValueError(f"[{name}] recall_target must be in (0, 1], got {recall_target}")
    if not aggregate_to_topk:
        raise NotImplementedError(f"[{name}] aggregate_to_topk=False: partial results exist on accelerators only")
    return count, axis


def approx_max_k(
    operand: Any,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> list[Any]:
    """The ``k`` largest elements along a dimension, descending, and their positions (int32); the result is exact.

    ``recall_target`` and ``reduction_input_size_override`` have no effect. ValueError for operands that are not floats
    and for an impossible ``k``, NotImplementedError for ``aggregate_to_topk=False``.

    >>> [x.tolist() for x in lax.approx_max_k(np.float32([3, 9, 5]), 2)]
    [[9.0, 5.0], [1, 2]]
    """
    count, axis = _checked("approx_max_k", operand, k, reduction_dimension, recall_target, aggregate_to_topk)
    return lax.top_k(operand, count, axis=axis)


def approx_min_k(
    operand: Any,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> list[Any]:
    """The ``k`` smallest elements along a dimension, ascending, and their positions, as ``approx_max_k``; NaN last.

    >>> [x.tolist() for x in lax.approx_min_k(np.float32([3, 9, 5]), 2)]
    [[3.0, 5.0], [0, 2]]
    """
    count, axis = _checked("approx_min_k", operand, k, reduction_dimension, recall_target, aggregate_to_topk)
    dtype = core.get_aval(operand).dtype
    work = lax.convert_element_type(operand, np.dtype(np.float32)) if dtype.itemsize == 1 else operand
    least = np.copysign(np.nan, -1).astype(core.get_aval(work).dtype)  # the sign of float8's is lost in arithmetic
    turned = lax.select(lax.ne(work, work), lax.full_like(work, least), lax.neg(work))
    values, indices = lax.top_k(turned, count, axis=axis)
    return [lax.convert_element_type(lax.neg(values), dtype), indices]
