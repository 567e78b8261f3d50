"""BCOO arrays from dense ones and back, their indices sorted and made unique, and their dimensions stored otherwise.

bcoo_fromdense f32[2,3] -> data f32[nse], indices i32[nse,2]   bcoo_todense: one scatter-add   bcoo_extract: one gather
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import errors
from weft import numpy as jnp
from weft import operations as lax
from weft.experimental.sparse.batched import BCOO
from weft.experimental.sparse.matrix import (
    SparseEfficiencyError,
    SparseEfficiencyWarning,
    add_rows,
    compiled,
    gather_rows,
    over_batches,
)


def split_counts(name: str, rank: int, n_batch: int, n_dense: int) -> int:
    """The number of sparse dimensions of an array of this rank; ValueError if the counts do not fit."""
    if n_batch < 0 or n_dense < 0 or n_batch + n_dense > rank:
        raise ValueError(f"[{name}] an array of rank {rank} has no {n_batch} batch and {n_dense} dense dimensions")
    return rank - n_batch - n_dense


def nonzero_mask(mat: Any, n_batch: int, n_dense: int) -> Any:
    """Which positions of the batch and sparse dimensions hold a value that is not all zero."""
    mask = mat != 0
    return jnp.any(mask, axis=tuple(range(mat.ndim - n_dense, mat.ndim))) if n_dense else mask


def count_elements(mask: Any, n_batch: int) -> int:
    """The largest number of elements of a batch; needs values, so that nse has to be given under jit."""
    if 0 in mask.shape:
        return 0
    counts = jnp.sum(mask, axis=tuple(range(n_batch, mask.ndim)), dtype="int32")
    return int(jnp.max(counts))


def bcoo_fromdense(
    mat: Any, *, nse: int | None = None, n_batch: int = 0, n_dense: int = 0, index_dtype: Any = "int32"
) -> BCOO:
    """The BCOO array of a dense one. ``nse`` elements are stored for each batch, as many as needed by default.

    Under ``jit`` nse must be given, as a shape may not depend on values. With fewer elements than nse the rest is
    padding, with more the last ones are dropped.

    >>> from weft.experimental import sparse
    >>> sparse.bcoo_fromdense(jnp.array([0.0, 3.0]), nse=2).indices.tolist()
    [[1], [2]]
    """
    mat = jnp.asarray(mat)
    n_sparse = split_counts("bcoo_fromdense", mat.ndim, n_batch, n_dense)
    mask = nonzero_mask(mat, n_batch, n_dense)
    if nse is None:
        nse = count_elements(mask, n_batch)
    return _fromdense(mat, mask, nse, n_batch, n_sparse, np.dtype(index_dtype))


@compiled("nse", "n_batch", "n_sparse", "index_dtype")
def _fromdense(mat: Any, mask: Any, nse: int, n_batch: int, n_sparse: int, index_dtype: Any) -> BCOO:
    """The elements of a dense array where the mask is set, padded to ``nse``."""
    sparse_shape = mat.shape[n_batch : n_batch + n_sparse]

    def find(mask: Any) -> Any:
        if not n_sparse:
            return jnp.zeros((nse, 0), index_dtype)
        positions = jnp.nonzero(mask, size=nse, fill_value=sparse_shape)
        return jnp.stack([position.astype(index_dtype) for position in positions], axis=1)

    indices = over_batches(find, mat.shape[:n_batch], mask)
    data = over_batches(gather_rows, mat.shape[:n_batch], mat, indices)
    return BCOO((data, indices), shape=mat.shape, indices_sorted=True, unique_indices=True)


@compiled()
def bcoo_todense(mat: BCOO) -> Any:
    """The dense array of a BCOO array.

    >>> from weft.experimental import sparse
    >>> sparse.bcoo_todense(sparse.BCOO((jnp.ones(2), jnp.array([[1], [1]])), shape=(3,))).tolist()
    [0.0, 2.0, 0.0]
    """
    inner = mat.sparse_shape + mat.dense_shape

    def dense(data: Any, indices: Any) -> Any:
        return add_rows(inner, indices, data, is_sorted=mat.indices_sorted)

    if mat.dtype == np.bool_:
        words = BCOO((mat.data.astype("int32"), mat.indices), shape=mat.shape)
        return bcoo_todense(words) != 0
    return over_batches(dense, mat.batch_shape, mat.data, mat.indices)


def bcoo_extract(sparr: BCOO, arr: Any, *, assume_unique: bool | None = None) -> BCOO:
    """The values of a dense array at the positions of a BCOO array, as a BCOO array with the same indices.

    Where indices repeat, the first position takes the value and the others zero, unless ``assume_unique``.
    """
    arr = jnp.asarray(arr)
    if arr.shape != sparr.shape:
        raise ValueError(f"[bcoo_extract] the dense array is {arr.shape}, the sparse one {sparr.shape}")
    return _extract(sparr, arr, sparr.unique_indices if assume_unique is None else assume_unique)


@compiled("unique")
def _extract(sparr: BCOO, arr: Any, unique: bool) -> BCOO:
    data = over_batches(gather_rows, sparr.batch_shape, arr, sparr.indices)
    if not unique:
        first = over_batches(_is_first, _index_batch(sparr), sparr.indices)
        first = jnp.expand_dims(first, tuple(range(first.ndim, first.ndim + sparr.n_dense)))
        data = jnp.where(first, data, jnp.zeros((), data.dtype))
    return with_buffers(sparr, data, sparr.indices)


def with_buffers(like: BCOO, data: Any, indices: Any, shape: Sequence[int] | None = None) -> BCOO:
    """A BCOO array of the promises of another, and of its shape if none is given."""
    shape, in_order, unique = like.shape if shape is None else shape, like.indices_sorted, like.unique_indices
    return BCOO((data, indices), shape=shape, indices_sorted=in_order, unique_indices=unique)


def _index_batch(mat: BCOO) -> tuple[int, ...]:
    return mat.indices.shape[: mat.n_batch]


def _order(indices: Any) -> Any:
    """The positions of rows in lexicographic order, equal ones in the order they have."""
    if not indices.shape[1]:
        return jnp.arange(indices.shape[0])
    return jnp.lexsort(tuple(indices[:, column] for column in reversed(range(indices.shape[1]))))


def groups(indices: Any) -> tuple[Any, Any, Any]:
    """Rows in lexicographic order: the order, the sorted rows, and the number of the group of each sorted row."""
    order = _order(indices)
    rows = indices[order]
    new = jnp.any(rows[1:] != rows[:-1], axis=1) if rows.shape[0] else jnp.zeros((0,), bool)
    numbers = jnp.concatenate([jnp.zeros(min(1, rows.shape[0]), "int32"), jnp.cumsum(new, dtype="int32")])
    return order, rows, numbers


def _is_first(indices: Any) -> Any:
    """Which rows do not occur before."""
    order, _, numbers = groups(indices)
    first = jnp.concatenate([jnp.ones(min(1, len(order)), bool), numbers[1:] != numbers[:-1]])
    return jnp.zeros(indices.shape[0], bool).at[order].set(first)


@compiled()
def bcoo_sort_indices(mat: BCOO) -> BCOO:
    """The same array with its elements in the order of their indices."""

    def order(data: Any, indices: Any) -> tuple[Any, Any]:
        positions = _order(indices)
        return data[positions], indices[positions]

    data, indices = over_batches(order, mat.batch_shape, mat.data, mat.indices)
    return BCOO((data, indices), shape=mat.shape, indices_sorted=True, unique_indices=mat.unique_indices)


def inside(indices: Any, sparse_shape: Sequence[int]) -> Any:
    """Which rows of indices are in bounds: the others are padding."""
    bounds = jnp.array(tuple(sparse_shape), indices.dtype)
    return jnp.all((indices >= 0) & (indices < bounds), axis=-1)


def padded(indices: Any, sparse_shape: Sequence[int]) -> Any:
    """Rows that are out of bounds as the one row of padding: the extents."""
    bounds = jnp.array(tuple(sparse_shape), indices.dtype)
    return jnp.where(inside(indices, sparse_shape)[..., None], indices, bounds)


def bcoo_sum_duplicates(mat: BCOO, nse: int | None = None) -> BCOO:
    """The same array with sorted indices, each once; ``nse`` must be given under ``jit``.

    >>> from weft.experimental import sparse
    >>> m = sparse.BCOO((jnp.array([1.0, 2.0, 3.0]), jnp.array([[1], [0], [1]])), shape=(2,))
    >>> m = sparse.bcoo_sum_duplicates(m)
    >>> m.indices.tolist(), m.data.tolist()
    ([[0], [1]], [2.0, 4.0])
    """
    return _sum_duplicates(mat, _unique_count(mat) if nse is None else nse)


@compiled("nse")
def _sum_duplicates(mat: BCOO, nse: int) -> BCOO:
    bounds = mat.sparse_shape

    def combine(data: Any, indices: Any) -> tuple[Any, Any]:
        order, rows, numbers = groups(padded(indices, bounds))
        valid = inside(rows, bounds)
        target = jnp.where(valid, numbers, nse)[:, None].astype("int32")
        summed = add_rows((nse, *data.shape[1:]), target, data[order], is_sorted=False)
        empty = jnp.full((nse, len(bounds)), jnp.array(bounds, rows.dtype), rows.dtype)
        return summed, empty.at[target[:, 0]].set(rows, mode="drop")

    data, indices = over_batches(combine, mat.batch_shape, mat.data, mat.indices)
    return BCOO((data, indices), shape=mat.shape, indices_sorted=True, unique_indices=True)


def _unique_count(mat: BCOO) -> int:
    """The largest number of different indices in bounds of a batch."""
    return int(_largest_count(mat.indices, mat.sparse_shape)) if mat.nse and 0 not in mat.shape else 0


@compiled("bounds")
def _largest_count(indices: Any, bounds: tuple[int, ...]) -> Any:
    def count(indices: Any) -> Any:
        _, rows, numbers = groups(padded(indices, bounds))
        return jnp.max(jnp.where(inside(rows, bounds), numbers + 1, 0))

    return jnp.max(over_batches(count, indices.shape[:-2], indices))


@compiled()
def remove_zeros(mat: BCOO) -> BCOO:
    """The same array in which what is stored as zero is padding."""
    mask = jnp.any(mat.data != 0, axis=tuple(range(mat.n_batch + 1, mat.data.ndim)))
    bounds = jnp.array(mat.sparse_shape, mat.indices.dtype)
    return BCOO((mat.data, jnp.where(mask[..., None], mat.indices, bounds)), shape=mat.shape)


# -- other layouts ----------------------------------------------------------------------------------------------------


def bcoo_update_layout(
    mat: BCOO, *, n_batch: int | None = None, n_dense: int | None = None, on_inefficient: str | None = "error"
) -> BCOO:
    """The same array with other numbers of batch and dense dimensions.

    Fewer batch or dense dimensions store the same elements with more indices each. More of them store zeros; unless the
    extents are 1, ``on_inefficient`` says whether that is an "error" (SparseEfficiencyError), a reason to "warn", or
    fine (None).
    """
    n_batch = mat.n_batch if n_batch is None else n_batch
    n_dense = mat.n_dense if n_dense is None else n_dense
    split_counts("bcoo_update_layout", mat.ndim, n_batch, n_dense)
    if on_inefficient not in ("error", "warn", None):
        raise ValueError(f"[bcoo_update_layout] on_inefficient must be 'error', 'warn' or None, got {on_inefficient!r}")
    grown = mat.shape[mat.n_batch : n_batch] + mat.shape[mat.ndim - n_dense : mat.ndim - mat.n_dense]
    if math.prod(grown) > 1:
        text = (
            f"[bcoo_update_layout] {mat!r} with n_batch={n_batch} and n_dense={n_dense} stores every element "
            f"{math.prod(grown)} times over; say on_inefficient=None if that is meant"
        )
        if on_inefficient == "error":
            raise SparseEfficiencyError(text)
        if on_inefficient == "warn":
            errors.warn(text, SparseEfficiencyWarning)
    if n_dense < mat.n_dense:
        mat = _dense_to_sparse(mat, mat.n_dense - n_dense)
    if n_batch < mat.n_batch:
        mat = _batch_to_sparse(mat, n_batch)
    if n_batch > mat.n_batch:
        mat = _sparse_to_batch(mat, n_batch)
    return _sparse_to_dense(mat, n_dense) if n_dense > mat.n_dense else mat


def grid(shape: Sequence[int], dtype: Any) -> Any:
    """All indices of an array of this shape, in order: i32[size, rank]."""
    size = math.prod(shape)
    if not shape:
        return jnp.zeros((1, 0), dtype)
    return jnp.stack(
        [position.astype(dtype) for position in jnp.unravel_index(jnp.arange(size), tuple(shape))], axis=-1
    )


@compiled("count")
def _dense_to_sparse(mat: BCOO, count: int) -> BCOO:
    """The first ``count`` dense dimensions become the last sparse ones."""
    extents = mat.dense_shape[:count]
    size = math.prod(extents)

    def move(data: Any, indices: Any) -> tuple[Any, Any]:
        positions = jnp.tile(grid(extents, indices.dtype), (indices.shape[0], 1))
        kept = jnp.repeat(padded(indices, mat.sparse_shape), size, axis=0)
        positions = jnp.where(inside(kept, mat.sparse_shape)[:, None], positions, jnp.array(extents, positions.dtype))
        return data.reshape(-1, *data.shape[1 + count :]), jnp.concatenate([kept, positions], axis=1)

    data, indices = over_batches(move, mat.batch_shape, mat.data, mat.indices)
    return with_buffers(mat, data, indices)


@compiled("n_batch")
def _batch_to_sparse(mat: BCOO, n_batch: int) -> BCOO:
    """The batch dimensions from ``n_batch`` on become the first sparse ones."""
    data = jnp.broadcast_to(mat.data, (*mat.batch_shape, *mat.data.shape[mat.n_batch :]))
    indices = jnp.broadcast_to(mat.indices, (*mat.batch_shape, *mat.indices.shape[mat.n_batch :]))
    moved, outer = mat.batch_shape[n_batch:], mat.batch_shape[:n_batch]
    positions = grid(moved, indices.dtype).reshape(*moved, 1, len(moved))
    positions = jnp.broadcast_to(positions, (*outer, *moved, mat.nse, len(moved)))
    valid = inside(indices, mat.sparse_shape)[..., None]
    positions = jnp.where(valid, positions, jnp.array(moved, positions.dtype))
    columns = jnp.concatenate([positions, padded(indices, mat.sparse_shape)], axis=-1)
    count = math.prod(moved) * mat.nse
    data = data.reshape(*outer, count, *mat.dense_shape)
    columns = columns.reshape(*outer, count, columns.shape[-1])
    return BCOO((data, columns), shape=mat.shape, unique_indices=mat.unique_indices)


@compiled("n_batch")
def _sparse_to_batch(mat: BCOO, n_batch: int) -> BCOO:
    """The first sparse dimensions become batch dimensions: every batch has room for all elements."""
    count = n_batch - mat.n_batch
    moved, left = mat.sparse_shape[:count], mat.sparse_shape[count:]

    def move(data: Any, indices: Any) -> tuple[Any, Any]:
        indices = padded(indices, mat.sparse_shape)
        positions = (*[indices[:, k] for k in range(count)], jnp.arange(indices.shape[0]))
        wide = jnp.zeros((*moved, *data.shape), data.dtype).at[positions].set(data, mode="drop")
        room = jnp.array(left, indices.dtype)
        columns = jnp.full((*moved, indices.shape[0], len(left)), room, indices.dtype)
        return wide, columns.at[positions].set(indices[:, count:], mode="drop")

    data, indices = over_batches(move, mat.batch_shape, mat.data, mat.indices)
    return BCOO((data, indices), shape=mat.shape)


@compiled("n_dense")
def _sparse_to_dense(mat: BCOO, n_dense: int) -> BCOO:
    """The last sparse dimensions become dense ones: every value is an array with one element of the old."""
    count = n_dense - mat.n_dense
    kept = mat.n_sparse - count
    moved = mat.sparse_shape[kept:]

    def move(data: Any, indices: Any) -> tuple[Any, Any]:
        positions = (jnp.arange(indices.shape[0]), *[indices[:, kept + k] for k in range(count)])
        wide = jnp.zeros((data.shape[0], *moved, *data.shape[1:]), data.dtype)
        return wide.at[positions].set(data, mode="drop"), indices[:, :kept]

    data, indices = over_batches(move, mat.batch_shape, mat.data, mat.indices)
    return BCOO((data, indices), shape=mat.shape)


def is_integer(value: Any) -> bool:
    """Whether a value is an int of Python or NumPy."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def zero_padding(mat: BCOO) -> Any:
    """The data with zeros where the indices are out of bounds."""
    valid = inside(mat.indices, mat.sparse_shape)
    valid = lax.reshape(valid, (*valid.shape, *[1] * mat.n_dense))
    return jnp.where(valid, mat.data, jnp.zeros((), mat.data.dtype))
