"""COO, CSR and CSC: sparse matrices without batch or dense dimensions, with products by dense vectors and matrices.

[[0, 2, 0],   COO data [2, 1, 4], row [0, 1, 1], col [1, 0, 2]     CSR data [2, 1, 4], indices [1, 0, 2],
 [1, 0, 4]]                                                            indptr [0, 1, 3]; CSC the same of columns
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import numpy as jnp
from weft.experimental.sparse import bcoo_layout
from weft.experimental.sparse.bcoo import BCOO
from weft.experimental.sparse.matrix import JAXSparse, add_rows, compiled, diagonal, gather_rows, pointers_of, rows_of
from weft.numpy import promotion


def _product(name: str, data: Any, out: Any, taken: Any, dense: Any, sizes: tuple[int, int], in_order: bool) -> Any:
    """Row ``taken[e]`` of a dense operand, times ``data[e]``, added to row ``out[e]`` of the result."""
    dense = jnp.asarray(dense)
    if dense.ndim not in (1, 2) or dense.shape[0] != sizes[1]:
        raise ValueError(f"[{name}] a matrix of shape {sizes} cannot be multiplied by an array of {dense.shape}")
    data, dense = promotion.promote_dtypes(data, dense)
    rows = gather_rows(dense, taken[:, None])
    values = (data if dense.ndim == 1 else data[:, None]) * rows
    return add_rows((sizes[0], *dense.shape[1:]), out[:, None], values, is_sorted=in_order)


def _check_matrix(m: Any, buffers: Sequence[str]) -> None:
    if len(m.shape) != 2 or m.data.ndim != 1:
        raise ValueError(f"[{type(m).__name__}] is a matrix: shape {m.shape}, data {m.data.shape}")
    for name in buffers:
        if getattr(m, name).shape != m.data.shape:
            raise ValueError(
                f"[{type(m).__name__}] {name} of shape {getattr(m, name).shape} does not match data {m.data.shape}"
            )


class _Plain(JAXSparse):
    """A matrix without batch or dense dimensions, whose transpose has the same buffers."""

    def _exchanged(self) -> Any:
        """Rows and columns exchanged."""
        raise NotImplementedError

    def _times(self, dense: Any) -> Any:
        """The product by a dense vector or matrix."""
        raise NotImplementedError

    def transpose(self, axes: Sequence[int] | None = None) -> Any:
        """Rows and columns exchanged, by another reading of the same buffers: no element moves."""
        if axes is not None and tuple(axes) != (1, 0):
            raise NotImplementedError(f"[{type(self).__name__}.transpose] axes {axes}: only (1, 0)")
        return self._exchanged()

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, JAXSparse):
            raise NotImplementedError(f"[{type(self).__name__}] the product of two sparse arrays needs BCOO")
        return self._times(other)


class COO(_Plain):
    """A sparse matrix of values, rows and columns: ``COO((data, row, col), shape=shape)``.

    >>> from weft.experimental import sparse
    >>> (sparse.COO.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]])) @ jnp.array([1.0, 10.0])).tolist()
    [20.0, 3.0]
    """

    row: Any
    col: Any
    _leaves, _static = ("data", "row", "col"), ("shape", "_rows_sorted", "_cols_sorted")

    def __init__(
        self, args: tuple[Any, Any, Any], *, shape: Sequence[int], rows_sorted: bool = False, cols_sorted: bool = False
    ) -> None:
        self.data, self.row, self.col = (jnp.asarray(buffer) for buffer in args)
        self._rows_sorted, self._cols_sorted = rows_sorted, cols_sorted
        super().__init__(args, shape=shape)
        _check_matrix(self, ("row", "col"))

    @classmethod
    def fromdense(cls, mat: Any, *, nse: int | None = None, index_dtype: Any = "int32") -> COO:
        """The COO matrix of a dense one; see ``coo_fromdense``."""
        return coo_fromdense(mat, nse=nse, index_dtype=index_dtype)

    @classmethod
    def from_scipy_sparse(cls, mat: Any, *, index_dtype: Any = "int32") -> COO:
        """The COO matrix of one of SciPy's."""
        coo = mat.tocoo()
        return cls((coo.data, coo.row.astype(index_dtype), coo.col.astype(index_dtype)), shape=coo.shape)

    @classmethod
    def _empty(cls, shape: Sequence[int], *, dtype: Any = None, index_dtype: Any = "int32") -> COO:
        none = jnp.zeros(0, index_dtype)
        return cls((jnp.zeros(0, dtype), none, none), shape=shape, rows_sorted=True, cols_sorted=True)

    @classmethod
    def _eye(cls, N: int, M: int, k: int, *, dtype: Any = None, index_dtype: Any = "int32") -> COO:
        size, row, col = diagonal(N, M, k)
        places = jnp.arange(size, dtype=index_dtype)
        made = (jnp.ones(size, dtype), places + row, places + col)
        return cls(made, shape=(N, M), rows_sorted=True, cols_sorted=True)

    def todense(self) -> Any:
        """The dense matrix."""
        return coo_todense(self)

    def _exchanged(self) -> COO:
        return COO((self.data, self.col, self.row), shape=self.shape[::-1],
                   rows_sorted=self._cols_sorted, cols_sorted=self._rows_sorted)  # fmt: skip

    def _times(self, dense: Any) -> Any:
        return _coo_product("COO", self, dense, False)


class CSR(_Plain):
    """A sparse matrix of values, columns and row pointers: ``CSR((data, indices, indptr), shape=shape)``."""

    indices: Any
    indptr: Any
    _leaves = ("data", "indices", "indptr")

    def __init__(self, args: tuple[Any, Any, Any], *, shape: Sequence[int]) -> None:
        self.data, self.indices, self.indptr = (jnp.asarray(buffer) for buffer in args)
        super().__init__(args, shape=shape)
        _check_matrix(self, ("indices",))
        pointers = self.shape[isinstance(self, CSC)] + 1
        if self.indptr.shape != (pointers,):
            raise ValueError(
                f"[{type(self).__name__}] of shape {self.shape} has {pointers} pointers, not {self.indptr.shape}"
            )

    @classmethod
    def fromdense(cls, mat: Any, *, nse: int | None = None, index_dtype: Any = "int32") -> Any:
        """The CSR matrix of a dense one; see ``csr_fromdense``."""
        return csr_fromdense(mat, nse=nse, index_dtype=index_dtype)

    @classmethod
    def from_scipy_sparse(cls, mat: Any, *, index_dtype: Any = "int32") -> Any:
        """The matrix of one of SciPy's, in this format."""
        theirs = mat.tocsc() if cls is CSC else mat.tocsr()
        return cls((theirs.data, theirs.indices.astype(index_dtype), theirs.indptr.astype(index_dtype)),
                   shape=theirs.shape)  # fmt: skip

    @classmethod
    def _empty(cls, shape: Sequence[int], *, dtype: Any = None, index_dtype: Any = "int32") -> Any:
        pointers = jnp.zeros(shape[cls is CSC] + 1, index_dtype)
        return cls((jnp.zeros(0, dtype), jnp.zeros(0, index_dtype), pointers), shape=shape)

    @classmethod
    def _eye(cls, N: int, M: int, k: int, *, dtype: Any = None, index_dtype: Any = "int32") -> Any:
        if cls is CSC:
            return CSR._eye(M, N, -k, dtype=dtype, index_dtype=index_dtype).T
        size, row, col = diagonal(N, M, k)
        pointers = jnp.clip(jnp.arange(N + 1, dtype=index_dtype) - row, 0, size)
        return cls((jnp.ones(size, dtype), jnp.arange(size, dtype=index_dtype) + col, pointers), shape=(N, M))

    def todense(self) -> Any:
        """The dense matrix."""
        return csr_todense(self)

    def _exchanged(self) -> Any:
        other = CSR if isinstance(self, CSC) else CSC
        return other((self.data, self.indices, self.indptr), shape=self.shape[::-1])

    def _times(self, dense: Any) -> Any:
        return _csr_product("CSR", self, dense, False)


class CSC(CSR):
    """A sparse matrix of values, rows and column pointers: ``CSC((data, indices, indptr), shape=shape)``."""

    @classmethod
    def fromdense(cls, mat: Any, *, nse: int | None = None, index_dtype: Any = "int32") -> Any:
        """The CSC matrix of a dense one."""
        return csr_fromdense(jnp.asarray(mat).T, nse=nse, index_dtype=index_dtype).T

    def todense(self) -> Any:
        """The dense matrix."""
        return csr_todense(self.T).T

    def _times(self, dense: Any) -> Any:
        return _csr_product("CSC", self.T, dense, True)


def _places(name: str, mat: Any, nse: int | None, index_dtype: Any) -> BCOO:
    mat = jnp.asarray(mat)
    if mat.ndim != 2:
        raise ValueError(f"[{name}] takes a matrix, got an array of shape {mat.shape}")
    return bcoo_layout.bcoo_fromdense(mat, nse=nse, index_dtype=index_dtype)


def coo_fromdense(mat: Any, *, nse: int | None = None, index_dtype: Any = "int32") -> COO:
    """The COO matrix of a dense one; ``nse`` elements are stored, as many as needed by default.

    Under ``jit`` nse must be given. Places that are not needed have indices out of bounds.
    """
    found = _places("coo_fromdense", mat, nse, index_dtype)
    return COO((found.data, found.indices[:, 0], found.indices[:, 1]), shape=found.shape, rows_sorted=True)


@compiled()
def coo_todense(mat: COO) -> Any:
    """The dense matrix of a COO matrix; equal indices add up."""
    indices = jnp.stack([mat.row, mat.col], axis=1)
    return bcoo_layout.bcoo_todense(BCOO((mat.data, indices), shape=mat.shape, indices_sorted=mat._rows_sorted))


def coo_matvec(mat: COO, v: Any, transpose: bool = False) -> Any:
    """The product of a COO matrix, or of its transpose, and a vector."""
    return _coo_product("coo_matvec", mat, v, transpose)


def coo_matmat(mat: COO, B: Any, *, transpose: bool = False) -> Any:
    """The product of a COO matrix, or of its transpose, and a dense matrix."""
    return _coo_product("coo_matmat", mat, B, transpose)


@compiled("name", "transpose")
def _coo_product(name: str, mat: COO, dense: Any, transpose: bool) -> Any:
    mat = mat.T if transpose else mat
    return _product(name, mat.data, mat.row, mat.col, dense, (mat.shape[0], mat.shape[1]), mat._rows_sorted)


def csr_fromdense(mat: Any, *, nse: int | None = None, index_dtype: Any = "int32") -> CSR:
    """The CSR matrix of a dense one; ``nse`` elements are stored, as many as needed by default.

    Under ``jit`` nse must be given.
    """
    found = _places("csr_fromdense", mat, nse, index_dtype)
    rows, columns = found.indices[:, 0], found.indices[:, 1]
    return CSR((found.data, columns, pointers_of(rows, found.shape[0])), shape=found.shape)


@compiled()
def csr_todense(mat: CSR) -> Any:
    """The dense matrix of a CSR matrix."""
    rows = rows_of(mat.indptr, mat.nse).astype(mat.indices.dtype)
    indices = jnp.stack([rows, mat.indices], axis=1)
    return bcoo_layout.bcoo_todense(BCOO((mat.data, indices), shape=mat.shape))


def csr_matvec(mat: CSR, v: Any, transpose: bool = False) -> Any:
    """The product of a CSR matrix, or of its transpose, and a vector."""
    return _csr_product("csr_matvec", mat, v, transpose)


def csr_matmat(mat: CSR, B: Any, *, transpose: bool = False) -> Any:
    """The product of a CSR matrix, or of its transpose, and a dense matrix."""
    return _csr_product("csr_matmat", mat, B, transpose)


@compiled("name", "transpose")
def _csr_product(name: str, mat: CSR, dense: Any, transpose: bool) -> Any:
    rows = rows_of(mat.indptr, mat.nse)
    if transpose:
        return _product(name, mat.data, mat.indices, rows, dense, (mat.shape[1], mat.shape[0]), False)
    return _product(name, mat.data, rows, mat.indices, dense, (mat.shape[0], mat.shape[1]), True)
