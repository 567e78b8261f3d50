"""Scatters whose order matters, on a GPU: the updates are sorted by target, stably, so that threads share the targets.

    x.at[i].add(u), x: f32[100], i: i32[10000]    ->    p = argsort(i);  x.at[i[p]].add(u[p]), its indices sorted

Updates of one target follow each other in their order, so that the result has the same bits. What is outside of the
array comes last.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import operations as lax
from weft._base.target_model import GPU_SERIAL_ROWS
from weft.core import kinds
from weft.core.programs.jaxpr import JaxprEqn
from weft.dispatch.programs import in_place

LEAST = 256  # updates from which a sort, which is a few launches, takes less than one thread that makes them
OFTEN = 64  # updates of a target, on average, up to which one thread makes them sooner than the host makes all
MOST = 1 << 31  # updates, and targets


def in_order(equation: JaxprEqn) -> Callable[..., Any] | None:
    """A function that replaces the scatter; None if it stays."""
    kind, params, numbers = equation.primitive.kind, equation.params, equation.params["dimension_numbers"]
    assert isinstance(kind, kinds.Scatter)
    array, indices, updates = [atom.aval for atom in equation.invars[:3]]
    if kind.free(array.dtype, params) or kind.ordered(params) or len(equation.invars) != 3:
        return None
    rows = math.prod([array.shape[dim] for dim in numbers.operand_batching_dims])
    if rows >= GPU_SERIAL_ROWS or in_place.is_marked(equation):
        return None
    indexed = (*numbers.operand_batching_dims, *numbers.scatter_dims_to_operand_dims)
    windows = kind.windows([array, indices, updates], array, params)
    sizes = [1 if windows.moved[dim] is None else updates.shape[windows.moved[dim]] for dim in indexed]
    count, targets = math.prod(indices.shape[:-1]), math.prod([array.shape[dim] for dim in indexed])
    is_worth = LEAST <= count <= min(OFTEN * targets, MOST - 1) and 0 < targets < MOST - 1
    if not indexed or not is_worth or not updates.size or any(size != 1 for size in sizes):
        return None
    return functools.partial(_scattered, equation)


def _scattered(equation: JaxprEqn, array: Any, indices: Any, updates: Any) -> Any:
    kind, params, numbers = equation.primitive.kind, equation.params, equation.params["dimension_numbers"]
    assert isinstance(kind, kinds.Scatter)
    indices = lax.convert_element_type(indices, np.int32) if indices.dtype.itemsize < 4 else indices
    batch, dtype = indices.ndim - 1, indices.dtype
    count = math.prod(indices.shape[:-1])
    counted = [
        lax.reshape(lax.broadcasted_iota(dtype, indices.shape[:-1], dim), (count, 1))
        for dim in numbers.scatter_indices_batching_dims
    ]
    indices = lax.reshape(indices, (count, indices.shape[-1]))
    indices = lax.concatenate([*counted, indices], 1) if counted else indices
    in_front = [dim for dim in range(updates.ndim) if dim not in numbers.update_window_dims]
    updates = lax.transpose(updates, (*in_front, *numbers.update_window_dims))
    updates = lax.reshape(updates, (count, *updates.shape[batch:]))
    indexed = (*numbers.operand_batching_dims, *numbers.scatter_dims_to_operand_dims)
    changed = lax.ScatterDimensionNumbers(
        tuple(range(1, updates.ndim)),
        tuple(sorted([*numbers.inserted_window_dims, *numbers.operand_batching_dims])),
        indexed,
    )
    key = _targets(indices, [array.shape[dim] for dim in indexed], kind.clips(params))
    targets = math.prod([array.shape[dim] for dim in indexed])
    if indexed == tuple(range(array.ndim)) and updates.dtype.itemsize in (4, 8):
        bits = targets.bit_length()
        key, updates = lax.sort_order_p.bind(
            key, lax.reshape(updates, (count,)), dimension=0, num_keys=1, moved=(0, 1), positions=None, bits=bits
        )  # fmt: skip
        flat = lax.ScatterDimensionNumbers((), (0,), (0,))
        mode = lax.GatherScatterMode.FILL_OR_DROP
        given = {**params, "dimension_numbers": flat, "indices_are_sorted": True, "mode": mode}
        key = lax.reshape(lax.convert_element_type(key, np.int32), (count, 1))
        return lax.reshape(equation.primitive.bind(lax.reshape(array, (targets,)), key, updates, **given), array.shape)
    _, order = lax.sort((key, lax.iota(np.int32, count)), num_keys=1)
    given = {**params, "dimension_numbers": changed, "indices_are_sorted": True}
    return equation.primitive.bind(array, _taken(indices, order), _taken(updates, order), **given)


def _targets(indices: Any, extents: Sequence[int], clips: bool) -> Any:
    """The number of each update's target in row-major order; that of what is outside is greater than all."""
    count, targets = indices.shape[0], math.prod(extents)
    number, inside = lax.full((count,), np.int32(0)), None
    for k, extent in enumerate(extents):
        at = lax.reshape(lax.slice_in_dim(indices, k, k + 1, axis=1), (count,))
        zero, most = (np.asarray(n, at.dtype) for n in (0, extent - 1))
        if not clips:
            within = lax.bitwise_and(lax.ge(at, lax.full((count,), zero)), lax.le(at, lax.full((count,), most)))
            inside = within if inside is None else lax.bitwise_and(inside, within)
        at = lax.convert_element_type(lax.clamp(zero, at, most), np.int32)
        number = lax.add(lax.mul(number, lax.full((count,), np.int32(extent))), at)
    if inside is not None:
        number = lax.select(inside, number, lax.full((count,), np.int32(targets)))
    narrow = next(dtype for dtype in (np.uint8, np.uint16, np.uint32) if targets <= np.iinfo(dtype).max)
    return lax.convert_element_type(number, narrow)


def _taken(x: Any, order: Any) -> Any:
    """The rows of an array in an order."""
    numbers = lax.GatherDimensionNumbers(tuple(range(1, x.ndim)), (0,), (0,))
    starts = lax.reshape(order, (order.shape[0], 1))
    return lax.gather(x, starts, numbers, (1, *x.shape[1:]), mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS)
