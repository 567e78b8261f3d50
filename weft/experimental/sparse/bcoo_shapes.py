"""BCOO arrays of other shapes: transposed, reshaped, broadcast, joined, cut, summed. The values stay, indices change.

bcoo_slice rows 1..3: indices - 1 where inside, otherwise padding     bcoo_reduce_sum over axis 0: one column less
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from weft import numpy as jnp
from weft import operations as lax
from weft.batching.vmap import vmap
from weft.experimental.sparse.batched import BCOO
from weft.experimental.sparse.bcoo_layout import (
    bcoo_sum_duplicates,
    bcoo_update_layout,
    grid,
    inside,
    padded,
    with_buffers,
    zero_padding,
)
from weft.experimental.sparse.matrix import compiled
from weft.numpy import promotion


@compiled("permutation")
def bcoo_transpose(mat: BCOO, *, permutation: Sequence[int]) -> BCOO:
    """The array with its dimensions in the order ``permutation``, which may not mix batch, sparse and dense ones."""
    order = tuple(int(axis) for axis in permutation)
    if sorted(order) != list(range(mat.ndim)):
        raise ValueError(f"[bcoo_transpose] permutation {order} is none of {mat.ndim} dimensions")
    first, last = mat.n_batch, mat.n_batch + mat.n_sparse
    batch, sparse, dense = order[:first], order[first:last], order[last:]
    if sorted(batch) != list(range(first)) or sorted(dense) != list(range(last, mat.ndim)):
        raise NotImplementedError(
            f"[bcoo_transpose] permutation {order} moves dimensions between batch, sparse and dense of {mat!r}: "
            "change the layout first, with `update_layout`"
        )
    data = lax.transpose(mat.data, (*batch, first, *[axis - last + first + 1 for axis in dense]))
    indices = lax.transpose(mat.indices, (*batch, first, first + 1))
    columns = [axis - first for axis in sparse]
    moved = columns != list(range(len(columns)))
    if moved:
        indices = jnp.stack([indices[..., column] for column in columns], axis=-1)
    shape = tuple(mat.shape[axis] for axis in order)
    in_order = mat.indices_sorted and not moved
    return BCOO((data, indices), shape=shape, indices_sorted=in_order, unique_indices=mat.unique_indices)


def drop_columns(mat: BCOO, columns: Sequence[int]) -> BCOO:
    """The array summed over some of its sparse dimensions: their indices are left out, padding stays padding."""
    if not columns:
        return mat
    kept = [d for d in range(mat.n_sparse) if d not in columns]
    data, shape = zero_padding(mat), [e for d, e in enumerate(mat.sparse_shape) if d in kept]
    indices = padded(mat.indices, mat.sparse_shape)
    indices = jnp.stack([indices[..., d] for d in kept], axis=-1) if kept else indices[..., :0]
    prefix = mat.indices_sorted and kept == list(range(len(kept)))
    return BCOO((data, indices), shape=(*mat.batch_shape, *shape, *mat.dense_shape), indices_sorted=prefix)


@compiled("axes")
def bcoo_reduce_sum(mat: BCOO, *, axes: Sequence[int]) -> BCOO:
    """The sum over ``axes``, as a BCOO array.

    >>> from weft.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.array([[0.0, 2.0], [3.0, 4.0]]))
    >>> sparse.bcoo_reduce_sum(m, axes=(0,)).todense().tolist()
    [3.0, 6.0]
    """
    axes = tuple(sorted(int(axis) for axis in axes))
    if any(not 0 <= axis < mat.ndim for axis in axes) or len(set(axes)) < len(axes):
        raise ValueError(f"[bcoo_reduce_sum] axes {axes} are not different axes of {mat!r}")
    last = mat.n_batch + mat.n_sparse
    dense = tuple(axis - mat.ndim for axis in axes if axis >= last)
    if dense:
        data = jnp.sum(mat.data, axis=dense, dtype=mat.dtype)
        shape = tuple(extent for axis, extent in enumerate(mat.shape) if axis - mat.ndim not in dense)
        mat = with_buffers(mat, data, mat.indices, shape)
    batch = [axis for axis in axes if axis < mat.n_batch]
    columns = [axis - mat.n_batch for axis in axes if mat.n_batch <= axis < last]
    if batch:  # summed batch dimensions become the last ones, then sparse ones, whose columns are left out
        kept = [axis for axis in range(mat.n_batch) if axis not in batch]
        order = (*kept, *batch, *range(mat.n_batch, mat.ndim))
        columns = [*range(len(batch)), *[column + len(batch) for column in columns]]
        mat = bcoo_update_layout(bcoo_transpose(mat, permutation=order), n_batch=len(kept))
    return drop_columns(mat, columns)


def _split_sizes(mat: BCOO, new_sizes: Sequence[int]) -> tuple[int, int]:
    """How many of the new dimensions are batch and sparse; ValueError if they would mix."""
    position, counts = 0, []
    groups = (mat.batch_shape, mat.sparse_shape, mat.dense_shape)
    for number, group in enumerate(groups):
        target, product, start = math.prod(group), 1, position
        rest = any(groups[number + 1 :])
        while position < len(new_sizes) and group and (product != target or (not rest and position < len(new_sizes))):
            product *= new_sizes[position]
            position += 1
        if product != target and group:
            raise ValueError(
                f"[bcoo_reshape] sizes {tuple(new_sizes)} mix batch, sparse and dense dimensions of {mat!r}: change "
                "the layout first, with `update_layout`"
            )
        counts.append(position - start)
    if position != len(new_sizes):
        raise ValueError(f"[bcoo_reshape] sizes {tuple(new_sizes)} do not fit {mat!r}")
    return counts[0], counts[1]


@compiled("new_sizes", "dimensions", "sharding")
def bcoo_reshape(
    mat: BCOO, *, new_sizes: Sequence[int], dimensions: Sequence[int] | None = None, sharding: Any = None
) -> BCOO:
    """The array in another shape, of batch, sparse and dense dimensions each by themselves (ValueError otherwise)."""
    sizes = tuple(int(size) for size in new_sizes)
    if dimensions is not None:
        mat = bcoo_transpose(mat, permutation=dimensions)
    if math.prod(sizes) != mat.size:
        raise ValueError(f"[bcoo_reshape] {mat!r} cannot take the shape {sizes}: sizes differ")
    n_batch, n_sparse = _split_sizes(mat, sizes)
    batch, sparse, dense = sizes[:n_batch], sizes[n_batch : n_batch + n_sparse], sizes[n_batch + n_sparse :]
    data = jnp.broadcast_to(mat.data, (*mat.batch_shape, *mat.data.shape[mat.n_batch :]))
    indices = jnp.broadcast_to(mat.indices, (*mat.batch_shape, mat.nse, mat.n_sparse))
    data = data.reshape(*batch, mat.nse, *dense)
    indices = indices.reshape(*batch, mat.nse, mat.n_sparse)
    if sparse != mat.sparse_shape:
        valid = inside(indices, mat.sparse_shape)
        flat = sum((indices[..., d] * math.prod(mat.sparse_shape[d + 1 :]) for d in range(mat.n_sparse)), start=0)
        positions = jnp.unravel_index(jnp.where(valid, flat, 0), sparse) if sparse else ()
        columns = [jnp.where(valid, p, extent) for p, extent in zip(positions, sparse, strict=True)]
        moved = jnp.stack(columns, axis=-1).astype(indices.dtype) if columns else indices[..., :0]
        data, indices = (zero_padding(mat).reshape(data.shape) if not sparse else data), moved
    return with_buffers(mat, data, indices, sizes)


@compiled("dimensions")
def bcoo_squeeze(arr: BCOO, *, dimensions: Sequence[int]) -> BCOO:
    """The array without some dimensions of extent 1."""
    dims = tuple(int(d) for d in dimensions)
    if any(not 0 <= d < arr.ndim or arr.shape[d] != 1 for d in dims):
        raise ValueError(f"[bcoo_squeeze] dimensions {dims} of {arr!r} are not all of extent 1")
    first, last = arr.n_batch, arr.n_batch + arr.n_sparse
    batch = tuple(d for d in dims if d < first)
    dense = tuple(d - last + first + 1 for d in dims if d >= last)
    data, indices = lax.squeeze(arr.data, batch + dense), lax.squeeze(arr.indices, batch)
    shape = tuple(e for d, e in enumerate(arr.shape) if d not in dims or first <= d < last)
    made = with_buffers(arr, data, indices, shape)
    out = drop_columns(made, [d - first for d in dims if first <= d < last])
    return with_buffers(arr, out.data, out.indices, out.shape)


@compiled("shape", "broadcast_dimensions", "sharding")
def bcoo_broadcast_in_dim(
    mat: BCOO, *, shape: Sequence[int], broadcast_dimensions: Sequence[int], sharding: Any = None
) -> BCOO:
    """``lax.broadcast_in_dim``: new dimensions before the sparse ones are batch, between them sparse, behind dense."""
    shape, where = tuple(map(int, shape)), tuple(map(int, broadcast_dimensions))
    if len(where) != mat.ndim or any(mat.shape[d] not in (1, shape[axis]) for d, axis in enumerate(where)):
        raise ValueError(f"[bcoo_broadcast_in_dim] {mat!r} does not broadcast to {shape} along {where}")
    n_batch, n_sparse = mat.n_batch, mat.n_sparse
    if n_sparse:
        new_batch, new_last = where[n_batch], where[n_batch + n_sparse - 1] + 1
    else:
        new_batch = new_last = where[n_batch - 1] + 1 if n_batch else 0
    rows = [*where[:n_batch]]
    buffer_shape = [1] * new_batch
    data_shape, index_shape = list(buffer_shape), list(buffer_shape)
    for d, axis in enumerate(rows):
        data_shape[axis], index_shape[axis] = mat.data.shape[d], mat.indices.shape[d]
    dense_axes = [axis - new_last + new_batch + 1 for axis in where[n_batch + n_sparse :]]
    data = lax.broadcast_in_dim(
        mat.data, (*data_shape, mat.nse, *shape[new_last:]), (*rows, new_batch, *dense_axes)
    )  # fmt: skip
    indices = lax.broadcast_in_dim(
        mat.indices, (*index_shape, mat.nse, n_sparse), (*rows, new_batch, new_batch + 1)
    )  # fmt: skip
    sparse_axes = [axis - new_batch for axis in where[n_batch : n_batch + n_sparse]]
    data, indices = _spread_columns(mat, data, indices, shape[new_batch:new_last], sparse_axes)
    return BCOO((data, indices), shape=shape, unique_indices=mat.unique_indices)


def _spread_columns(mat: BCOO, data: Any, indices: Any, sparse: tuple[int, ...], axes: list[int]) -> tuple[Any, Any]:
    """Elements repeated along new or widened sparse dimensions, with an index for each element."""
    old = dict(zip(axes, range(mat.n_sparse), strict=True))
    new = [axis for axis in range(len(sparse)) if axis not in old or sparse[axis] != mat.sparse_shape[old[axis]]]
    if not new:
        return data, indices
    spread = [sparse[axis] for axis in new]
    size, rank = math.prod(spread), indices.ndim - 2
    positions = jnp.tile(grid(spread, indices.dtype), (indices.shape[rank], 1))
    valid = jnp.repeat(inside(indices, mat.sparse_shape), size, axis=rank)
    data, indices = jnp.repeat(data, size, axis=rank), jnp.repeat(indices, size, axis=rank)
    columns = []
    for axis, extent in enumerate(sparse):
        column = positions[:, new.index(axis)] if axis in new else indices[..., old[axis]]
        columns.append(jnp.where(valid, column, extent).astype(indices.dtype))
    return data, jnp.stack(columns, axis=-1)


@compiled("dimension")
def bcoo_concatenate(operands: Sequence[BCOO], *, dimension: int) -> BCOO:
    """Arrays of one layout joined along a batch or sparse dimension."""
    operands = list(operands)
    if not operands or any(not isinstance(operand, BCOO) for operand in operands):
        raise ValueError(f"[bcoo_concatenate] takes at least one BCOO array and nothing else, got {operands}")
    first = operands[0]
    layouts = {(m.n_batch, m.n_sparse, m.n_dense, m.shape[:dimension] + m.shape[dimension + 1 :]) for m in operands}
    if len(layouts) > 1:
        raise ValueError(f"[bcoo_concatenate] layouts or shapes differ beside dimension {dimension}: {operands}")
    if not 0 <= dimension < first.n_batch + first.n_sparse:
        raise NotImplementedError(f"[bcoo_concatenate] dimension {dimension} of {first!r} is dense, or none")
    total = sum(m.shape[dimension] for m in operands)
    shape = (*first.shape[:dimension], total, *first.shape[dimension + 1 :])
    datas = promotion.promote_dtypes(*[m.data for m in operands])
    rank = first.n_batch
    bounds = shape[rank : rank + first.n_sparse]
    if dimension < rank:
        nse = max(m.nse for m in operands)
        parts = [_wider(m, data, nse) for m, data in zip(operands, datas, strict=True)]
        data = jnp.concatenate([data for data, _ in parts], axis=dimension)
        indices = jnp.concatenate([indices for _, indices in parts], axis=dimension)
        unique = all(m.unique_indices for m in operands)
        return BCOO((data, indices), shape=shape, unique_indices=unique)
    column, offset, moved = dimension - rank, 0, []
    for m in operands:
        shift = jnp.array([offset if d == column else 0 for d in range(m.n_sparse)], m.indices.dtype)
        valid = inside(m.indices, m.sparse_shape)[..., None]
        moved.append(jnp.where(valid, m.indices + shift, jnp.array(bounds, m.indices.dtype)))
        offset += m.shape[dimension]
    full = [(*shape[:rank], *x.shape[rank:]) for x in datas]
    data = jnp.concatenate([jnp.broadcast_to(x, s) for x, s in zip(datas, full, strict=True)], axis=rank)
    indices = jnp.concatenate([jnp.broadcast_to(x, (*shape[:rank], *x.shape[rank:])) for x in moved], axis=rank)
    return BCOO((data, indices), shape=shape, unique_indices=all(m.unique_indices for m in operands))


def _wider(m: BCOO, data: Any, nse: int) -> tuple[Any, Any]:
    """Buffers with room for ``nse`` elements in every batch."""
    data = jnp.broadcast_to(data, (*m.batch_shape, *data.shape[m.n_batch :]))
    indices = jnp.broadcast_to(m.indices, (*m.batch_shape, *m.indices.shape[m.n_batch :]))
    room = (*m.batch_shape, nse - m.nse)
    more = jnp.broadcast_to(jnp.array(m.sparse_shape, indices.dtype), (*room, m.n_sparse))
    zeros = jnp.zeros((*room, *m.dense_shape), data.dtype)
    return jnp.concatenate([data, zeros], axis=m.n_batch), jnp.concatenate([indices, more], axis=m.n_batch)


@compiled("start_indices", "limit_indices", "strides")
def bcoo_slice(
    mat: BCOO, *, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None = None
) -> BCOO:
    """``mat[start:limit:stride]`` in every dimension; no more elements are stored than the result has.

    >>> from weft.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.arange(5.0))
    >>> sparse.bcoo_slice(m, start_indices=(1,), limit_indices=(5,), strides=(2,)).todense().tolist()
    [1.0, 3.0]
    """
    steps = (1,) * mat.ndim if strides is None else tuple(strides)
    if not len(start_indices) == len(limit_indices) == len(steps) == mat.ndim:
        raise ValueError(f"[bcoo_slice] {mat!r} needs {mat.ndim} starts, limits and strides")
    ranges = list(zip(start_indices, limit_indices, steps, mat.shape, strict=True))
    if any(not (0 <= start <= limit <= extent and step > 0) for start, limit, step, extent in ranges):
        raise ValueError(f"[bcoo_slice] starts {start_indices}, limits {limit_indices}, strides {steps} of {mat!r}")
    shape = tuple(-(-(limit - start) // step) for start, limit, step, _ in ranges)
    first, last = mat.n_batch, mat.n_batch + mat.n_sparse

    def cut(buffer: Any, axis: int, d: int) -> Any:
        start, limit, step, extent = ranges[d]
        return lax.slice_in_dim(buffer, start, limit, step, axis) if buffer.shape[axis] == extent else buffer

    data, indices = _cut_buffers(mat, cut)
    columns, keep = [], inside(indices, mat.sparse_shape)
    for d, (start, limit, step, _) in enumerate(ranges[first:last]):
        column = indices[..., d]
        keep = keep & (column >= start) & (column < limit) & ((column - start) % step == 0)
        columns.append((column - start) // step)
    return _kept(mat, data, columns, keep, shape)


def _cut_buffers(mat: BCOO, cut: Callable[[Any, int, int], Any]) -> tuple[Any, Any]:
    """The buffers, cut along the dimensions that are not indexed: ``cut(buffer, axis, dimension)``."""
    first, last = mat.n_batch, mat.n_batch + mat.n_sparse
    data, indices = mat.data, mat.indices
    for d in range(first):
        data, indices = cut(data, d, d), cut(indices, d, d)
    for d in range(last, mat.ndim):
        data = cut(data, d - last + first + 1, d)
    return data, indices


def _kept(mat: BCOO, data: Any, columns: list[Any], keep: Any, shape: tuple[int, ...]) -> BCOO:
    """What is left of an array after a cut: padding where ``keep`` is false, and no more room than needed."""
    sparse = shape[mat.n_batch : mat.n_batch + mat.n_sparse]
    columns = [jnp.where(keep, column, extent) for column, extent in zip(columns, sparse, strict=True)]
    dtype = mat.indices.dtype
    indices = jnp.stack(columns, axis=-1).astype(dtype) if columns else jnp.zeros((*keep.shape, 0), dtype)
    keep = keep.reshape(*keep.shape, *[1] * mat.n_dense)
    data = jnp.where(keep, data, jnp.zeros((), data.dtype))
    out = BCOO((data, indices), shape=shape, unique_indices=mat.unique_indices)
    return bcoo_sum_duplicates(out, nse=math.prod(sparse)) if out.nse > math.prod(sparse) else out


@compiled("slice_sizes")
def bcoo_dynamic_slice(mat: BCOO, start_indices: Sequence[Any], slice_sizes: Sequence[int]) -> BCOO:
    """``lax.dynamic_slice``: sizes are static, starts are values, moved so that the slice lies inside."""
    sizes = tuple(int(size) for size in slice_sizes)
    if not len(start_indices) == len(sizes) == mat.ndim:
        raise ValueError(f"[bcoo_dynamic_slice] {mat!r} needs {mat.ndim} starts and sizes")
    if any(not 0 <= size <= extent for size, extent in zip(sizes, mat.shape, strict=True)):
        raise TypeError(f"[bcoo_dynamic_slice] sizes {sizes} are not between 0 and those of {mat!r}")
    starts = [jnp.asarray(start).astype(mat.indices.dtype) for start in start_indices]
    starts = [jnp.where(s < 0, s + e, s) for s, e in zip(starts, mat.shape, strict=True)]
    starts = [jnp.clip(s, 0, e - size) for s, e, size in zip(starts, mat.shape, sizes, strict=True)]
    first, last = mat.n_batch, mat.n_batch + mat.n_sparse

    def cut(buffer: Any, axis: int, d: int) -> Any:
        if buffer.shape[axis] != mat.shape[d] or sizes[d] == mat.shape[d]:
            return buffer
        return lax.dynamic_slice_in_dim(buffer, starts[d], sizes[d], axis)

    data, indices = _cut_buffers(mat, cut)
    keep = inside(indices, mat.sparse_shape)
    columns = [indices[..., d] - starts[first + d] for d in range(mat.n_sparse)]
    for column, size in zip(columns, sizes[first:last], strict=True):
        keep = keep & (column >= 0) & (column < size)
    return _kept(mat, data, columns, keep, sizes)


@compiled("dimensions")
def bcoo_rev(operand: BCOO, dimensions: Sequence[int]) -> BCOO:
    """The array with the order of elements reversed along ``dimensions``."""
    dims = tuple(int(d) for d in dimensions)
    if any(not 0 <= d < operand.ndim for d in dims) or len(set(dims)) < len(dims):
        raise ValueError(f"[bcoo_rev] dimensions {dims} are not different dimensions of {operand!r}")
    first, last = operand.n_batch, operand.n_batch + operand.n_sparse
    data = lax.rev(operand.data, (*[d for d in dims if d < first],
                                  *[d - last + first + 1 for d in dims if d >= last]))  # fmt: skip
    indices = lax.rev(operand.indices, tuple(d for d in dims if d < first))
    if any(first <= d < last for d in dims):
        valid = inside(indices, operand.sparse_shape)
        columns = []
        for d, extent in enumerate(operand.sparse_shape):
            turned = extent - 1 - indices[..., d] if first + d in dims else indices[..., d]
            columns.append(jnp.where(valid, turned, extent))
        indices = jnp.stack(columns, axis=-1).astype(operand.indices.dtype)
    return BCOO((data, indices), shape=operand.shape, unique_indices=operand.unique_indices)


@compiled("dimension_numbers", "slice_sizes", "unique_indices", "indices_are_sorted", "mode", "fill_value")
def bcoo_gather(
    operand: BCOO,
    start_indices: Any,
    dimension_numbers: Any,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: Any = None,
    fill_value: Any = None,
) -> BCOO:
    """``lax.gather`` of a BCOO array without batch dimensions: one slice for every start, as batches of the result.

    The window dimensions must stand behind those of the starts (NotImplementedError otherwise); starts are moved so
    that slices lie inside, whatever ``mode`` says.
    """
    starts = jnp.asarray(start_indices)
    n_starts = starts.ndim - 1
    windows = operand.ndim - len(dimension_numbers.collapsed_slice_dims)
    behind = tuple(range(n_starts, n_starts + windows))
    if operand.n_batch or tuple(dimension_numbers.offset_dims) != behind or dimension_numbers.operand_batching_dims:
        raise NotImplementedError(
            f"[bcoo_gather] of {operand!r} with {dimension_numbers}: only operands without batch dimensions, and "
            "windows behind the dimensions of the starts"
        )

    def one(start: Any) -> BCOO:
        full: list[Any] = [0] * operand.ndim
        for position, d in enumerate(dimension_numbers.start_index_map):
            full[d] = start[position]
        piece = bcoo_dynamic_slice(operand, full, slice_sizes)
        return bcoo_squeeze(piece, dimensions=dimension_numbers.collapsed_slice_dims)

    for _ in range(n_starts):
        one = vmap(one)
    return one(starts)
