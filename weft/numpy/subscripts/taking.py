"""Elements taken by arrays of their positions: take, take_along_axis, choose, repeat with counts.

Positions out of bounds give NaN (or the lowest integer) unless ``mode`` says otherwise, as in ``x.at[i].get``::

    take(f32[5,4], i32[3], axis=0)              ->  gather of rows, f32[3,4]
    take_along_axis(f32[5,4], i32[5,2], axis=1) ->  gather within each row: axis 0 is a batch
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import core, dtypes, errors
from weft import operations as lax
from weft._base.array import Array
from weft.core.interruptible import interruptible
from weft.core.programs import check_scopes
from weft.dispatch import devices
from weft.dispatch.calls import jit as jit_module
from weft.numpy import axes, promotion, rearrange, reductions
from weft.numpy.array_creation import creation
from weft.numpy.pointwise import arithmetic, selection
from weft.numpy.subscripts import index_updates, indexing

jit = jit_module.jit


def take(
    a: Any,
    indices: Any,
    axis: int | None = None,
    out: None = None,
    mode: str | None = None,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    fill_value: Any = None,
) -> Array:
    """Slices of ``a`` at ``indices`` along ``axis``, which are replaced by the indices' axes; None: of flattened ``a``.

    ``mode``: "fill" (default) gives ``fill_value`` (NaN, or the lowest integer) out of bounds, "wrap" counts around,
    "clip" takes the nearest and does not count from the end.

    ValueError for indices that are no integers, IndexError for taking from an empty axis.

    >>> take(weft.numpy.arange(5.0), np.array([1, -1])).tolist()
    [1.0, 4.0]
    """
    promotion.check_arraylike("take", a, indices)
    reductions.refuse_out("take", out)
    if mode == "raise":
        raise NotImplementedError("The 'raise' mode to jnp.take is not supported.")
    if mode not in (None, "fill", "wrap", "clip"):
        raise ValueError(f"Invalid mode '{mode}' for np.take")
    with check_scopes.as_given(mode):
        return _take(
            a,
            indices,
            axis=axis,
            mode=mode,
            unique_indices=unique_indices,
            indices_are_sorted=indices_are_sorted,
            fill_value=fill_value,
        )


_TAKE_STATIC = ("axis", "mode", "unique_indices", "indices_are_sorted", "fill_value")


@functools.partial(jit, static_argnames=_TAKE_STATIC)
def _take(
    a: Any, indices: Any, *, axis: int | None, mode: str | None = None, fill_value: Any = None, **promises: bool
) -> Any:
    if axis is None:
        a, axis = rearrange.ravel(a), 0
    shape = promotion.shape_of(a)
    dim = axes.canonical_axis(axis, len(shape))
    taken = promotion.shape_of(indices)
    if promotion.dtype_of(indices) == np.bool_:
        indices = promotion.convert(indices, np.dtype(np.int32))
    if not dtypes.issubdtype(promotion.dtype_of(indices), np.integer):
        raise ValueError("indices must have an integer type")
    if 0 in taken:
        return lax.full_like(a, 0, shape=(*shape[:dim], *taken, *shape[dim + 1 :]))
    if shape[dim] == 0:
        raise IndexError("Cannot do a non-empty jnp.take() from an empty axis.")
    indices, parsed = _by_mode(indices, shape[dim], mode)
    rank = len(taken)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(*range(dim), *range(dim + rank, len(shape) + rank - 1)),
        collapsed_slice_dims=(dim,),
        start_index_map=(dim,),
    )
    with check_scopes.as_given(mode):  # here too, since a call outside of jit traces this in a program of its own
        return lax.gather(
            a,
            lax.broadcast_in_dim(indices, (*taken, 1), tuple(range(rank))),
            numbers,
            (*shape[:dim], 1, *shape[dim + 1 :]),
            mode=parsed,
            fill_value=fill_value,
            **promises,
        )


def _by_mode(indices: Any, extent: Any, mode: str | None) -> tuple[Any, Any]:
    """Indices for a mode of ``take``, and the mode of the gather."""
    if mode == "clip":
        return indices, lax.GatherScatterMode.CLIP
    if extent > dtypes.iinfo(promotion.dtype_of(indices)).max:  # int8 into 300 elements
        indices = promotion.convert(indices, np.dtype(np.int32))
    size = promotion.constant_like(extent, indices, any_rank=True)
    if mode == "wrap":
        return arithmetic.remainder(indices, size), lax.GatherScatterMode.PROMISE_IN_BOUNDS
    negative = lax.lt(indices, promotion.constant_like(0, indices, any_rank=True))
    return selection.where(negative, lax.add(indices, size), indices), lax.GatherScatterMode.FILL_OR_DROP


@jit(static_argnames=("axis", "mode", "fill_value", "wrap_negative_indices"))
def take_along_axis(
    arr: Any,
    indices: Any,
    axis: int | None = -1,
    mode: Any = None,
    fill_value: Any = None,
    *,
    wrap_negative_indices: bool | None = None,
) -> Array:
    """For each position of the other axes, elements of ``arr`` along ``axis`` at ``indices``, as argsort gives them.

    The other axes of both are broadcast together. ``mode`` and ``fill_value`` are those of ``x.at[].get`` with the
    default "fill"; mode "one_hot" compares and adds instead of a gather. From an axis of extent 0 come zeros.

    TypeError for indices that are no integers, ValueError for different ranks.

    >>> x = weft.numpy.array([[3.0, 1.0], [5.0, 9.0]])
    >>> take_along_axis(x, weft.numpy.array([[1], [0]])).tolist()
    [[1.0], [5.0]]
    """
    promotion.check_arraylike("take_along_axis", arr, indices)
    dtype = promotion.dtype_of(indices)
    if not dtypes.issubdtype(dtype, np.integer):
        raise TypeError(f"take_along_axis indices must be of integer type, got {dtype}")
    if axis is None:
        arr, axis = rearrange.ravel(arr), 0
    shape, taken = promotion.shape_of(arr), promotion.shape_of(indices)
    if len(shape) != len(taken):
        raise ValueError(f"indices and arr must have the same number of dimensions; {len(taken)} vs. {len(shape)}")
    dim = axes.canonical_axis(axis, len(shape))
    one = (*shape[:dim], 1, *shape[dim + 1 :])
    result_shape = promotion.broadcast_shapes(taken, one)
    if shape[dim] == 0 or 0 in result_shape:
        return lax.full(result_shape, 0, promotion.dtype_of(arr))
    parsed = lax.GatherScatterMode.FILL_OR_DROP if mode is None else lax.GatherScatterMode.from_any(mode)
    wide = dtypes.canonicalize_dtype(np.int64 if shape[dim] >= 2**31 else np.int32)
    if np.dtype(dtype).itemsize < wide.itemsize or dtypes.issubdtype(dtype, np.unsignedinteger):
        indices = promotion.convert(indices, wide)
    if wrap_negative_indices is None or wrap_negative_indices:
        integer = promotion.dtype_of(indices)
        negative = lax.lt(indices, np.asarray(0, integer))
        wrapped = lax.add(indices, core.scalar(shape[dim], integer))
        indices = lax.select_n(negative, promotion.as_array(indices), wrapped)
    if parsed is lax.GatherScatterMode.ONE_HOT:
        return _selected_along(arr, indices, dim)
    with check_scopes.as_given(mode):
        return _gather_along(arr, indices, dim, parsed, fill_value)


def _selected_along(arr: Any, indices: Any, dim: int) -> Any:
    """Mode "one_hot": every element is compared with every index, without a gather; 0 where there is none."""
    arr, dtype = lax.expand_dims(arr, (dim,)), promotion.dtype_of(arr)
    indices = lax.expand_dims(indices, (dim + 1,))
    numbers = lax.broadcasted_iota(promotion.dtype_of(indices), promotion.shape_of(arr), dim + 1)
    hit = lax.eq(*promotion.promote_shapes(numbers, indices))
    chosen = selection.where(hit, arr, np.asarray(0, dtype))
    if dtype == np.bool_:
        return reductions.any(chosen, axis=dim + 1)
    return reductions.sum(chosen, axis=dim + 1, dtype=dtype)


def _gather_along(arr: Any, indices: Any, dim: int, mode: Any, fill_value: Any) -> Any:
    """One gather: axes that both have are batches, axes that only ``arr`` has are windows."""
    shape, taken = promotion.shape_of(arr), promotion.shape_of(indices)
    block: list[int] = []  # extents of the index vectors' dimensions
    dropped: list[int] = []  # axes of ``arr`` of extent 1 that the indices have
    batches: list[tuple[int, int]] = []
    offset_dims: list[int] = []
    sizes: list[int] = []
    target = 0
    for axis, (own, given) in enumerate(zip(shape, taken, strict=True)):
        if axis == dim:
            target = len(sizes)
            sizes.append(1)
            block.append(given)
        elif given == 1:
            offset_dims.append(axis)
            sizes.append(own)
        elif own == 1:
            dropped.append(axis)
            block.append(given)
        else:
            batches.append((len(sizes), len(block)))
            sizes.append(1)
            block.append(given)
    starts = lax.reshape(indices, (*block, 1)) if taken != (*block, 1) else indices
    if dropped:
        arr = lax.squeeze(arr, dropped)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(offset_dims),
        collapsed_slice_dims=(target,),
        start_index_map=(target,),
        operand_batching_dims=tuple([own for own, _ in batches]),
        start_indices_batching_dims=tuple([given for _, given in batches]),
    )
    return lax.gather(arr, starts, numbers, sizes, mode=mode, fill_value=fill_value)


def choose(a: Any, choices: Any, out: None = None, mode: str = "raise") -> Array:
    """From the arrays in ``choices`` the elements that ``a`` numbers; all are broadcast together.

    ``mode``: "raise" (outside a trace only) refuses numbers out of bounds, "wrap" counts around, "clip" takes the
    nearest.

    >>> choose(weft.numpy.array([1, 0]), [weft.numpy.array([1, 2]), weft.numpy.array([3, 4])], mode="clip").tolist()
    [3, 2]
    """
    reductions.refuse_out("choose", out)
    choices = list(choices)
    promotion.check_arraylike("choose", a, *choices)
    if not dtypes.issubdtype(promotion.dtype_of(a), np.integer):
        raise ValueError("`a` array must be integer typed")
    count = len(choices)
    if mode == "raise":
        core.concrete_or_error(
            None,
            a,
            "The error occurred because jnp.choose was jit-compiled with mode='raise'. Use mode='wrap' or mode='clip' "
            "instead.",
        )
        values = np.asarray(a)
        if ((values < 0) | (values >= count)).any():
            raise ValueError("invalid entry in choice array")
    elif mode == "wrap":
        a = arithmetic.remainder(a, count)
    elif mode == "clip":
        a = selection.clip(a, 0, count - 1)
    else:
        raise ValueError(f"mode={mode!r} not understood. Must be 'raise', 'wrap', or 'clip'")
    shape = promotion.broadcast_shapes(*(promotion.shape_of(v) for v in (a, *choices)))
    a, *choices = [promotion.broadcast_to(v, shape) for v in (a, *choices)]
    stacked = creation.array(choices)
    grid = creation.indices(shape, sparse=True) if shape else ()
    return indexing.index(stacked, (promotion.as_array(a), *grid))


def repeat(
    a: Any, repeats: Any, axis: int | None = None, *, total_repeat_length: int | None = None, out_sharding: Any = None
) -> Array:
    """Each element ``repeats`` times along ``axis`` (None: of the flattened array).

    ``repeats`` is one count or one for each element. Traced counts need ``total_repeat_length``, the length of the
    result: elements that do not fit are left out, and where some are missing the last one fills up.

    >>> repeat(weft.numpy.arange(2), 2).tolist()
    [0, 0, 1, 1]
    >>> repeat(weft.numpy.arange(3), np.array([2, 0, 1])).tolist()
    [0, 0, 2]
    """
    if out_sharding is not None:
        return devices.placed(
            lambda: repeat(a, repeats, axis, total_repeat_length=total_repeat_length), out_sharding=out_sharding
        )
    promotion.check_arraylike("repeat", a, repeats)
    if total_repeat_length is None:
        if isinstance(repeats, core.Tracer):
            raise errors.ConcretizationTypeError(
                repeats,
                "When jit-compiling jnp.repeat, the total number of repeats must be static. To fix this, either "
                "specify a static value for `repeats`, or pass a static value to `total_repeat_length`.",
            )
        counts = np.asarray(repeats)
        if counts.size == 1:
            return rearrange.repeat_evenly(a, repeats=int(counts.reshape(()).item()), axis=axis)
    if axis is None:
        a, axis = rearrange.ravel(a), 0
    dim = axes.canonical_axis(axis, len(promotion.shape_of(a)))
    counts = rearrange.ravel(repeats) if isinstance(repeats, core.Tracer) else np.ravel(repeats)
    extent = promotion.shape_of(a)[dim]
    if counts.shape == (1,):
        counts = promotion.broadcast_to(counts, (extent,))
    if counts.shape[0] != extent:
        raise ValueError(
            f"repeats must have the length of the axis: {counts.shape[0]} counts for {extent} elements of axis {dim}"
        )
    total = (
        int(np.sum(counts))
        if total_repeat_length is None
        else core.concrete_or_error(int, total_repeat_length, "jnp.repeat argument `total_repeat_length`")
    )
    if extent == 0 or total == 0:
        shape = promotion.shape_of(a)
        return lax.full_like(a, 0, shape=(*shape[:dim], total if extent else 0, *shape[dim + 1 :]))
    return take(a, _sources(promotion.as_array(counts), total), axis=dim)


def _sources(counts: Any, total: int) -> Any:
    """Which element each index of a repetition comes from: a running count of the indices where elements begin."""
    before = index_updates.IndexUpdate(rearrange.roll(counts, 1), 0).set(0)
    begins = reductions.cumsum(before)
    zeros = creation.zeros(total, np.dtype(np.int32))
    marks = index_updates.IndexUpdate(zeros, begins).add(1)
    return arithmetic.subtract(reductions.cumsum(marks), 1)


def trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Array:
    """``filt`` without the zeros at its front ("f") and back ("b"); outside a trace only.

    >>> trim_zeros(weft.numpy.array([0, 1, 2, 0])).tolist()
    [1, 2]
    """
    filt = promotion.unwrapped(filt)
    values = np.asarray(core.concrete_or_error(None, filt, "Error arose in the `filt` argument of trim_zeros()"))
    shape = values.shape
    chosen = range(len(shape)) if axis is None else axes.canonical_axes(axis, len(shape))
    indices = interruptible(values.size, np.nonzero, values)
    cuts = [slice(None)] * len(shape)
    for dim in chosen:
        found = indices[dim]
        first = int(found.min()) if found.size else shape[dim]
        last = int(found.max()) + 1 if found.size else shape[dim]
        start = first if "f" in trim.lower() else 0
        stop = last if "b" in trim.lower() and found.size else shape[dim]
        cuts[dim] = slice(start, stop)
    return indexing.index(creation.asarray(filt), tuple(cuts))


def index_take(src: Any, idxs: Sequence[Any], axes: Sequence[int]) -> Array:
    """Elements of ``src`` at vectors of indices, one for each of ``axes``; out of bounds they count around.

    >>> index_take(weft.numpy.array([[1, 2], [3, 4]]), (np.array([0, 1]), np.array([1, 1])), (0, 1)).tolist()
    [2, 4]
    """
    columns = [lax.expand_dims(promotion.as_array(idx), (1,)) for idx in idxs]
    vectors = columns[0] if len(columns) == 1 else lax.concatenate(columns, 1)
    shape = promotion.shape_of(src)
    extents = promotion.constant(np.asarray([shape[axis] for axis in axes]))
    vectors = arithmetic.remainder(vectors, lax.expand_dims(extents, (0,)))
    chosen = tuple(axes)
    numbers = lax.GatherDimensionNumbers(tuple(range(1, len(shape) - len(chosen) + 1)), chosen, chosen)
    sizes = [1 if axis in chosen else extent for axis, extent in enumerate(shape)]
    return lax.gather(src, vectors, numbers, sizes)
