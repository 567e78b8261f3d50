"""BCSR: rows one after the other, with pointers to where each begins, behind batch and in front of dense dimensions.

An array of shape ``batch + (rows, columns) + dense`` has ``data`` ``[*batch, nse, *dense]``, column ``indices``
``[*batch, nse]``, ``indptr`` ``[*batch, rows + 1]``. Elements behind the last pointer are padding::

    [[0, 2, 0],   data    [2, 1, 4]   indptr [0, 1, 3]
     [1, 0, 4]]   indices [1, 0, 2]

For a product or a change of shape the row of each element is written out (``rows_of``), and BCOO does the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import numpy as jnp
from weft.experimental.sparse import bcoo_layout, bcoo_products, bcoo_shapes, matrix, operators
from weft.experimental.sparse.batched import BCOO, Batched
from weft.experimental.sparse.matrix import JAXSparse, compiled, over_batches, pointers_of, rows_of

_INSTALLED = operators  # the methods of BCOO


class BCSR(Batched):
    """A sparse matrix of values, columns and row pointers: ``BCSR((data, indices, indptr), shape=shape)``.

    >>> from weft.experimental import sparse
    >>> m = sparse.BCSR.fromdense(jnp.array([[0.0, 2.0, 0.0], [1.0, 0.0, 4.0]]))
    >>> m.indptr.tolist(), (m @ jnp.ones(3)).tolist()
    ([0, 1, 3], [2.0, 5.0])
    """

    indptr: Any
    _leaves, _index_rank, _sparse_rank = ("data", "indices", "indptr"), 1, 2

    def _extents(self) -> dict[str, tuple[int, ...]]:
        pointers = (self.sparse_shape[0] + 1,)
        return {"data": (self.nse, *self.dense_shape), "indices": (self.nse,), "indptr": pointers}

    @classmethod
    def fromdense(
        cls, mat: Any, *, nse: int | None = None, index_dtype: Any = "int32", n_dense: int = 0, n_batch: int = 0
    ) -> BCSR:
        """The BCSR array of a dense one; see ``bcsr_fromdense``."""
        return bcsr_fromdense(mat, nse=nse, index_dtype=index_dtype, n_dense=n_dense, n_batch=n_batch)

    @classmethod
    def from_bcoo(cls, arr: BCOO) -> BCSR:
        """The same array, its elements sorted; two dimensions must be sparse."""
        if arr.n_sparse != 2:
            raise NotImplementedError(f"[BCSR.from_bcoo] BCSR has two sparse dimensions, {arr!r} has {arr.n_sparse}")
        return _from_bcoo(arr)

    @classmethod
    def from_scipy_sparse(cls, mat: Any, *, index_dtype: Any = None, n_dense: int = 0, n_batch: int = 0) -> BCSR:
        """The BCSR matrix of one of SciPy's."""
        matrix.refuse_dimensions_of_scipy("BCSR", n_dense, n_batch)
        csr = mat.tocsr()
        buffers = matrix.buffers_of_scipy(csr, cls._leaves, index_dtype or "int32")
        return cls(buffers, shape=csr.shape, indices_sorted=bool(csr.has_sorted_indices))

    def to_bcoo(self) -> BCOO:
        """The same array with a row index for every element."""
        return _to_bcoo(self)

    def todense(self) -> Any:
        """The dense array."""
        return bcsr_todense(self)

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCSR:
        """The same array in which no index repeats; ``nse`` must be given under ``jit``."""
        return BCSR.from_bcoo(self.to_bcoo().sum_duplicates(nse=nse, remove_zeros=remove_zeros))

    def transpose(self, axes: Sequence[int] | None = None) -> Any:
        """Not possible without sorting: raises NotImplementedError; ``to_bcoo()`` has a transpose."""
        raise NotImplementedError("[BCSR.transpose] is not implemented: use `to_bcoo().transpose()`")

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, JAXSparse):
            raise NotImplementedError("[BCSR] the product of two sparse arrays needs BCOO: see `to_bcoo()`")
        return self.to_bcoo() @ other

    def __rmatmul__(self, other: Any) -> Any:
        return other @ self.to_bcoo()

    def __mul__(self, other: Any) -> BCSR:
        return BCSR.from_bcoo(self.to_bcoo() * other)

    __rmul__ = __mul__

    def __neg__(self) -> BCSR:
        return BCSR.tree_unflatten(self.tree_flatten()[1], (-self.data, self.indices, self.indptr))

    def __pos__(self) -> BCSR:
        return self


@compiled()
def _from_bcoo(arr: BCOO) -> BCSR:
    if not arr.indices_sorted:
        arr = bcoo_layout.with_buffers(arr, arr.data, bcoo_layout.padded(arr.indices, arr.sparse_shape)).sort_indices()
    rows, columns = arr.indices[..., 0], arr.indices[..., 1]
    count = arr.sparse_shape[0]
    indptr = over_batches(lambda rows: pointers_of(rows, count), rows.shape[: arr.n_batch], rows)
    buffers, unique = (arr.data, columns, indptr), arr.unique_indices
    return BCSR(buffers, shape=arr.shape, indices_sorted=True, unique_indices=unique)


@compiled()
def _to_bcoo(m: BCSR) -> BCOO:
    nse, batch = m.nse, m.indptr.shape[: m.n_batch]
    rows = over_batches(lambda indptr: rows_of(indptr, nse), batch, m.indptr)
    rows = jnp.broadcast_to(rows, m.indices.shape) if rows.shape != m.indices.shape else rows
    indices = jnp.stack([rows.astype(m.indices.dtype), m.indices], axis=-1)
    return BCOO((m.data, indices), shape=m.shape,
                indices_sorted=m.indices_sorted, unique_indices=m.unique_indices)  # fmt: skip


def bcsr_fromdense(
    mat: Any, *, nse: int | None = None, n_batch: int = 0, n_dense: int = 0, index_dtype: Any = "int32"
) -> BCSR:
    """The BCSR array of a dense one, whose sparse dimensions must be two; ``nse`` must be given under ``jit``."""
    return BCSR.from_bcoo(
        bcoo_layout.bcoo_fromdense(mat, nse=nse, n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype)
    )


def bcsr_todense(mat: BCSR) -> Any:
    """The dense array of a BCSR array."""
    return bcoo_layout.bcoo_todense(mat.to_bcoo())


def bcsr_extract(indices: Any, indptr: Any, mat: Any) -> Any:
    """The values of a dense array at the positions that columns and row pointers name: data of a BCSR array."""
    mat, indices, indptr = jnp.asarray(mat), jnp.asarray(indices), jnp.asarray(indptr)
    batch = mat.shape[: indices.ndim - 1]
    zeros = jnp.zeros((*batch, indices.shape[-1], *mat.shape[len(batch) + 2 :]), mat.dtype)
    positions = BCSR((zeros, indices, indptr), shape=mat.shape).to_bcoo()
    return bcoo_layout.bcoo_extract(positions, mat, assume_unique=True).data


def bcsr_dot_general(
    lhs: Any,
    rhs: Any,
    *,
    dimension_numbers: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Any:
    """``lax.dot_general`` of a BCSR and a dense array; the result is dense. See ``bcoo_dot_general``."""
    if isinstance(lhs, JAXSparse) and isinstance(rhs, JAXSparse):
        raise NotImplementedError("[bcsr_dot_general] the product of two sparse arrays needs BCOO: see `to_bcoo()`")
    lhs, rhs = (x.to_bcoo() if isinstance(x, BCSR) else x for x in (lhs, rhs))
    return bcoo_products.bcoo_dot_general(
        lhs, rhs, dimension_numbers=dimension_numbers, preferred_element_type=preferred_element_type
    )


def bcsr_sum_duplicates(mat: BCSR, nse: int | None = None) -> BCSR:
    """The same array in which no index repeats; ``nse`` must be given under ``jit``."""
    return BCSR.from_bcoo(bcoo_layout.bcoo_sum_duplicates(mat.to_bcoo(), nse=nse))


def bcsr_broadcast_in_dim(
    mat: BCSR, *, shape: Sequence[int], broadcast_dimensions: Sequence[int], sharding: Any = None
) -> BCSR:
    """``lax.broadcast_in_dim`` of a BCSR array; new dimensions are batch or dense."""
    wide = bcoo_shapes.bcoo_broadcast_in_dim(mat.to_bcoo(), shape=shape, broadcast_dimensions=broadcast_dimensions)
    return BCSR.from_bcoo(wide)


def bcsr_concatenate(operands: Sequence[BCSR], *, dimension: int) -> BCSR:
    """BCSR arrays of one layout joined along a batch or sparse dimension."""
    return BCSR.from_bcoo(bcoo_shapes.bcoo_concatenate([m.to_bcoo() for m in operands], dimension=dimension))
