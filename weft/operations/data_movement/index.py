"""Slices whose start is known only at run time: dynamic_slice, dynamic_update_slice and their forms along one axis.

Starts are scalar integers of one dtype. Negative ones count from the end (unless that is switched off). Then every
start is clamped so that the slice is inside the operand.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import core, dtypes, runtime
from weft.core import kinds
from weft.core.tangents import Zero, is_undefined
from weft.operations import key_words, mapped
from weft.operations.data_movement import shape
from weft.operations.data_movement.gather import gather_p
from weft.operations.data_movement.shape import shape_of
from weft.operations.later import ops
from weft.operations.pointwise import convert, logic
from weft.operations.pointwise.arithmetic import add
from weft.operations.pointwise.elementwise import INTEGER, SIGNED, category
from weft.operations.settings import GatherDimensionNumbers, GatherScatterMode, ScatterDimensionNumbers
from weft.operations.static import canonical_axis, canonical_shape, integer
from weft.runtime import Array

__all__ = [
    "dynamic_slice",
    "dynamic_slice_in_dim",
    "dynamic_slice_p",
    "dynamic_update_slice",
    "dynamic_update_slice_in_dim",
    "dynamic_update_slice_p",
]

ArrayLike = Any
Starts = Any


def _check_starts(name: str, starts: Sequence[Any], ndim: int) -> None:
    listed = ", ".join(aval.str_short() for aval in starts)
    if len(starts) != ndim:
        raise ValueError(
            f"[{name}] Length of slice indices must match number of operand dimensions ({len(starts)} vs {ndim})"
        )
    if any(aval.shape for aval in starts):
        raise TypeError(f"start_indices arguments to {name} must be scalars, got indices ({listed})")
    if starts and (category(starts[0].dtype) not in INTEGER or any(s.dtype != starts[0].dtype for s in starts)):
        raise TypeError(f"start_indices arguments to {name} must be integers of the same type, got ({listed})")


def _slice_typing(x: Any, *starts: Any, slice_sizes: tuple[int, ...]) -> Any:
    name = "dynamic_slice"
    _check_starts(name, starts, x.ndim)
    if len(slice_sizes) != x.ndim:
        raise ValueError(f"[{name}] slice_sizes {slice_sizes} must have one entry for each axis of {x.str_short()}")
    if any(n > extent for n, extent in zip(slice_sizes, x.shape, strict=True)):
        raise TypeError(
            f"[{name}] slice slice_sizes must be less than or equal to operand shape, got slice_sizes {slice_sizes} "
            f"for operand shape {x.shape}."
        )
    if any(n < 0 for n in slice_sizes):
        raise TypeError(f"[{name}] slice slice_sizes must be greater than or equal to zero, got {slice_sizes}.")
    return runtime.ShapedArray(slice_sizes, x.dtype, x.weak_type)


def _clamped(starts: Sequence[Any], sizes: Sequence[int], extents: Sequence[int]) -> list[int]:
    triples = zip(starts, sizes, extents, strict=True)
    return [builtins.min(builtins.max(int(s), 0), extent - n) for s, n, extent in triples]


def _region(starts: Sequence[Any], sizes: Sequence[int], extents: Sequence[int]) -> tuple[builtins.slice, ...]:
    return tuple(builtins.slice(s, s + n) for s, n in zip(_clamped(starts, sizes, extents), sizes, strict=True))


dynamic_slice_p = core.Primitive(
    "dynamic_slice",
    kind=kinds.DynamicSlice(
        sizes=lambda avals, out, params: params["slice_sizes"],
        reference=lambda x, *starts, slice_sizes: x[_region(starts, slice_sizes, x.shape)],
    ),
)
dynamic_slice_p.def_abstract_eval(_slice_typing)
dynamic_slice_p.extents = lambda params, shapes: {"slice_sizes": shapes.new}
dynamic_slice_p.on_words = key_words.with_starts


def _slice_transpose(ct: Any, x: Any, *starts: Any, slice_sizes: tuple[int, ...]) -> list[Any]:
    """The cotangent, written into zeros at the same start."""
    back = dynamic_update_slice_p.bind(ops.full(x.aval.shape, 0, x.aval.dtype), ct, *starts)
    return [back] + [None] * len(starts)


def _slice_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    """The same slice of the tangent. It is recorded before the slice of the operand, as in JAX."""
    moved = tangents[0]
    if type(moved) is not Zero:
        moved = dynamic_slice_p.bind(moved, *primals[1:], **params)
    out = dynamic_slice_p.bind(*primals, **params)
    return out, Zero.from_primal_value(out) if type(moved) is Zero else moved


dynamic_slice_p.jvp, dynamic_slice_p.transpose = _slice_jvp, _slice_transpose


def _index_vectors(size: int, starts: list[Any], dims: list[mapped.Dim]) -> Any:
    """Scalar starts, some of them mapped, as one index vector for each element."""
    columns = [
        ops.broadcast(start, (size, 1)) if dim is None else shape.expand_dims(start, (1,))
        for start, dim in zip(starts, dims, strict=True)
    ]
    return ops.concatenate(columns, 1)


def _slice_batch(size: int, values: list[Any], dims: list[mapped.Dim], *, slice_sizes: tuple[int, ...]) -> Any:
    array, *starts = values
    array_dim, *start_dims = dims
    if all(dim is None for dim in start_dims):
        assert array_dim is not None
        zero = core.get_aval(starts[0]).dtype.type(0) if starts else 0
        starts.insert(array_dim, zero)
        sizes = (*slice_sizes[:array_dim], size, *slice_sizes[array_dim:])
        return dynamic_slice_p.bind(array, *starts, slice_sizes=sizes), array_dim
    whole = tuple(range(len(slice_sizes)))
    numbers = GatherDimensionNumbers(offset_dims=whole, collapsed_slice_dims=(), start_index_map=whole)
    return gather_p.batch(
        size, [array, _index_vectors(size, starts, start_dims)], [array_dim, 0], dimension_numbers=numbers,
        slice_sizes=slice_sizes, indices_are_sorted=array_dim is not None, unique_indices=array_dim is not None,
        fill_value=None, mode=GatherScatterMode.CLIP,
    )  # fmt: skip


dynamic_slice_p.batch = _slice_batch


def _update_typing(x: Any, update: Any, *starts: Any) -> Any:
    name = "dynamic_update_slice"
    if x.ndim != update.ndim:
        raise TypeError(
            f"{name} update must have the same rank as operand, got update shape {update.shape} for operand shape "
            f"{x.shape}."
        )
    if any(n > extent for n, extent in zip(update.shape, x.shape, strict=True)):
        raise TypeError(
            f"{name} update shape must be smaller than operand shape, got update shape {update.shape} for operand "
            f"shape {x.shape}."
        )
    if x.dtype != update.dtype:
        raise TypeError(f"lax.{name} requires arguments to have the same dtypes, got {x.dtype}, {update.dtype}.")
    _check_starts(name, starts, x.ndim)
    return runtime.ShapedArray(x.shape, x.dtype, False)


def _update_reference(x: Any, update: Any, *starts: Any) -> Any:
    out = np.array(x)
    out[_region(starts, update.shape, x.shape)] = update
    return out


dynamic_update_slice_p = core.Primitive(
    "dynamic_update_slice", kind=kinds.DynamicUpdateSlice(reference=_update_reference)
)
dynamic_update_slice_p.def_abstract_eval(_update_typing)
dynamic_update_slice_p.on_words = key_words.with_starts


def _update_transpose(ct: Any, x: Any, update: Any, *starts: Any) -> list[Any]:
    """The operand gets the cotangent outside the region, the update the cotangent inside."""
    update_aval = update.aval if is_undefined(update) else core.get_aval(update)
    back_x = back_update = None
    if is_undefined(x):
        back_x = dynamic_update_slice_p.bind(ct, ops.full(update_aval.shape, 0, update_aval.dtype), *starts)
    if is_undefined(update):
        back_update = dynamic_slice_p.bind(ct, *starts, slice_sizes=update_aval.shape)
    return [back_x, back_update] + [None] * len(starts)


dynamic_update_slice_p.linear, dynamic_update_slice_p.transpose = builtins.slice(0, 2), _update_transpose


def _update_batch(size: int, values: list[Any], dims: list[mapped.Dim]) -> Any:
    array, update, *starts = values
    array_dim, update_dim, *start_dims = dims
    if all(dim is None for dim in start_dims):
        array, update = mapped.in_front(size, array, array_dim), mapped.in_front(size, update, update_dim)
        zero = core.get_aval(starts[0]).dtype.type(0) if starts else 0
        return dynamic_update_slice_p.bind(array, update, zero, *starts), 0
    windows = mapped.shifted(range(core.get_aval(array).ndim - (array_dim is not None)))
    array, update = mapped.in_front(size, array, array_dim), mapped.in_front(size, update, update_dim)
    out = ops.scatter(
        array, _index_vectors(size, starts, start_dims), update,
        ScatterDimensionNumbers(
            update_window_dims=windows, inserted_window_dims=(), scatter_dims_to_operand_dims=windows,
            operand_batching_dims=(0,), scatter_indices_batching_dims=(0,),
        ),
        indices_are_sorted=True, unique_indices=True, mode=GatherScatterMode.CLIP,
    )  # fmt: skip
    return out, 0


dynamic_update_slice_p.batch = _update_batch


# ---- start indices


def _index_list(name: str, starts: Starts, ndim: int) -> list[Any]:
    """Start indices as a list; an array of them is split."""
    if isinstance(starts, (tuple, list)):
        found = list(starts)
    else:
        aval = core.get_aval(starts)
        if aval.ndim != 1:
            raise ValueError(f"[{name}] Slice indices must be a 1D sequence, got {aval.shape}")
        if isinstance(starts, np.ndarray):
            found = list(starts.astype(aval.dtype))
        else:
            found = [shape.index_in_dim(starts, i, 0, keepdims=False) for i in builtins.range(aval.shape[0])]
    if len(found) != ndim:
        raise ValueError(
            f"[{name}] Length of slice indices must match number of operand dimensions ({len(found)} vs {ndim})"
        )
    return [_of_a_byte(start) for start in found]


def _of_a_byte(start: Any) -> Any:
    """A start index; those of fewer than 8 bits, which would not hold an extent, as int32."""
    aval = core.get_aval(start)
    narrow = category(aval.dtype) in INTEGER and dtypes.itemsize_bits(aval.dtype) < 8
    return convert.convert(start, np.dtype(np.int32)) if narrow else start


def _wrap_negative(start: Any, extent: int, allowed: bool) -> Any:
    """A start index counted from the end, as one from the front: computed now, or in the program if it is traced."""
    if isinstance(start, (bool, np.bool_)):
        return start
    if isinstance(start, (int, np.integer)):
        wrapped = int(start) + extent if allowed and start < 0 else int(start)
        dtype = dtypes.canonicalize_dtype(np.int64 if isinstance(start, int) else start.dtype)
        return dtype.type(builtins.min(builtins.max(wrapped, np.iinfo(dtype).min), np.iinfo(dtype).max))
    aval = core.get_aval(start)
    if not allowed or aval.shape or category(aval.dtype) not in SIGNED:
        return start
    negative = logic.lt(start, aval.dtype.type(0))
    from_end = add(convert.convert(start, aval.dtype, False), core.scalar(extent, aval.dtype)[()])
    return logic.select_n(negative, start, from_end)


def _start_indices(name: str, starts: Starts, extents: tuple[int, ...], allow_negative: Any) -> list[Any]:
    found = _index_list(name, starts, len(extents))
    allowed = [allow_negative] * len(extents) if isinstance(allow_negative, bool) else list(allow_negative)
    if len(allowed) != len(extents):
        raise ValueError(f"[{name}] allow_negative_indices has {len(allowed)} entries for {len(extents)} dimensions")
    return [_wrap_negative(s, n, ok) for s, n, ok in zip(_wide_enough(found, extents), extents, allowed, strict=True)]


def _wide_enough(starts: list[Any], extents: tuple[int, ...]) -> list[Any]:
    """Start indices of one small signed type as int32 where an extent is beyond it, as those from the end would be."""
    kinds_of = {core.get_aval(start).dtype for start in starts}
    dtype = kinds_of.pop() if len(kinds_of) == 1 else np.dtype(np.int64)
    if dtype not in (np.int8, np.int16) or builtins.max(extents) <= np.iinfo(dtype).max:
        return starts
    return [convert.convert(start, np.dtype(np.int32)) for start in starts]


# ---- public functions


def dynamic_slice(
    operand: ArrayLike,
    start_indices: Starts,
    slice_sizes: Sequence[int],
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Array:
    """A slice of the given sizes at start indices that may be traced; starts are clamped to fit.

    >>> lax.dynamic_slice(np.int32([1, 2, 3, 4]), (2,), (2,)).tolist()
    [3, 4]
    """
    starts = _start_indices("dynamic_slice", start_indices, shape_of(operand), allow_negative_indices)
    return dynamic_slice_p.bind(operand, *starts, slice_sizes=canonical_shape("dynamic_slice", slice_sizes))


def dynamic_update_slice(
    operand: ArrayLike,
    update: ArrayLike,
    start_indices: Starts,
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Array:
    """The operand with ``update`` written at start indices that may be traced; starts are clamped to fit.

    >>> lax.dynamic_update_slice(np.int32([1, 2, 3, 4]), np.int32([8, 9]), (1,)).tolist()
    [1, 8, 9, 4]
    """
    if not isinstance(start_indices, (tuple, list)) and core.get_aval(start_indices).ndim == 0:
        start_indices = [start_indices]
    starts = _start_indices("dynamic_update_slice", start_indices, shape_of(operand), allow_negative_indices)
    return dynamic_update_slice_p.bind(operand, update, *starts)


def _one_start(start_index: ArrayLike, axis: int, rank: int) -> list[Any]:
    """The start index among zeros of its dtype."""
    if isinstance(start_index, int):
        zero: Any = 0
    else:
        dtype = core.get_aval(start_index).dtype
        zero = dtype.type(0)
    return [start_index if d == axis else zero for d in builtins.range(rank)]


def dynamic_slice_in_dim(
    operand: ArrayLike,
    start_index: ArrayLike,
    slice_size: int,
    axis: int = 0,
    *,
    allow_negative_indices: bool = True,
) -> Array:
    """``dynamic_slice`` along one axis.

    >>> lax.dynamic_slice_in_dim(np.int32([1, 2, 3, 4]), 9, 2).tolist()
    [3, 4]
    """
    sizes = list(shape_of(operand))
    axis = canonical_axis(axis, len(sizes), "dynamic_slice_in_dim")
    starts = _one_start(start_index, axis, len(sizes))
    sizes[axis] = integer(slice_size, "dynamic_slice_in_dim", "slice_size")
    return dynamic_slice(operand, starts, sizes, allow_negative_indices=allow_negative_indices)


def dynamic_index_in_dim(
    operand: ArrayLike,
    index: ArrayLike,
    axis: int = 0,
    keepdims: bool = True,
    *,
    allow_negative_indices: bool = True,
) -> Array:
    """One position of one axis, which is kept with extent 1 or dropped; the index may be traced."""
    axis = canonical_axis(axis, len(shape_of(operand)), "dynamic_index_in_dim")
    out = dynamic_slice_in_dim(operand, index, 1, axis, allow_negative_indices=allow_negative_indices)
    return out if keepdims else shape.squeeze(out, (axis,))


def dynamic_update_slice_in_dim(
    operand: ArrayLike,
    update: ArrayLike,
    start_index: ArrayLike,
    axis: int,
    *,
    allow_negative_indices: bool = True,
) -> Array:
    """``dynamic_update_slice`` along one axis.

    >>> lax.dynamic_update_slice_in_dim(np.int32([1, 2, 3, 4]), np.int32([8, 9]), 1, 0).tolist()
    [1, 8, 9, 4]
    """
    rank = len(shape_of(operand))
    axis = canonical_axis(axis, rank, "dynamic_update_slice_in_dim")
    starts = _one_start(start_index, axis, rank)
    return dynamic_update_slice(operand, update, starts, allow_negative_indices=allow_negative_indices)


def dynamic_update_index_in_dim(
    operand: ArrayLike,
    update: ArrayLike,
    index: ArrayLike,
    axis: int,
    *,
    allow_negative_indices: bool = True,
) -> Array:
    """The operand with one position of one axis replaced; the index may be traced."""
    axis = canonical_axis(axis, len(shape_of(operand)), "dynamic_update_index_in_dim")
    if len(shape_of(update)) != len(shape_of(operand)):
        update = shape.expand_dims(update, (axis,))
    return dynamic_update_slice_in_dim(operand, update, index, axis, allow_negative_indices=allow_negative_indices)
