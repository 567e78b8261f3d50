"""CSR and CSC: sparse matrices with pointers to where each row (column) begins, with products by dense arrays.

[[0, 2, 0],   data [2, 1, 4]   CSR indices [1, 0, 2], indptr [0, 1, 3]
 [1, 0, 4]]   data [1, 2, 4]   CSC indices [1, 0, 1], indptr [0, 1, 2, 3]: the CSR of the transpose
"""

from __future__ import annotations

from typing import Any, ClassVar

from weft import numpy as jnp
from weft.experimental.sparse import matrices
from weft.experimental.sparse.batched import BCOO
from weft.experimental.sparse.matrix import pointers_of, rows_of


class CSR(matrices.Plain):
    """A sparse matrix of values, columns and row pointers: ``CSR((data, indices, indptr), shape=shape)``."""

    indices: Any
    indptr: Any
    _leaves, _scipy = ("data", "indices", "indptr"), "csr"
    _pointed: ClassVar[int] = 0  # the dimension that has pointers

    def _extent(self, name: str) -> int:
        return self.shape[self._pointed] + 1 if name == "indptr" else super()._extent(name)

    @classmethod
    def _of_bcoo(cls, arr: BCOO) -> CSR:
        rows, columns = arr.indices[:, 0], arr.indices[:, 1]
        return cls((arr.data, columns, pointers_of(rows, arr.shape[0])), shape=arr.shape)

    def _indices(self) -> tuple[Any, Any, bool]:
        return rows_of(self.indptr, self.nse), self.indices, True

    def _exchanged(self) -> Any:
        return CSC((self.data, self.indices, self.indptr), shape=self.shape[::-1])


class CSC(CSR):
    """A sparse matrix of values, rows and column pointers: ``CSC((data, indices, indptr), shape=shape)``."""

    _scipy, _pointed = "csc", 1

    @classmethod
    def fromdense(cls, mat: Any, *, nse: int | None = None, index_dtype: Any = "int32") -> Any:
        """The CSC matrix of a dense one."""
        return CSR.fromdense(jnp.asarray(mat).T, nse=nse, index_dtype=index_dtype).T

    @classmethod
    def _of_bcoo(cls, arr: BCOO) -> Any:
        return CSR._of_bcoo(arr.T.sort_indices()).T

    def _indices(self) -> tuple[Any, Any, bool]:
        columns, rows, _ = self.T._indices()
        return rows, columns, False

    def _exchanged(self) -> Any:
        return CSR((self.data, self.indices, self.indptr), shape=self.shape[::-1])


def csr_fromdense(mat: Any, *, nse: int | None = None, index_dtype: Any = "int32") -> CSR:
    """The CSR matrix of a dense one; ``nse`` elements are stored, as many as needed by default.

    Under ``jit`` nse must be given.
    """
    return CSR.fromdense(mat, nse=nse, index_dtype=index_dtype)


def _as_csr(mat: Any) -> CSR:
    """A matrix that has the buffers of a CSR one, as a BCSR one has."""
    return mat if isinstance(mat, CSR) else CSR((mat.data, mat.indices, mat.indptr), shape=mat.shape)


def csr_todense(mat: CSR) -> Any:
    """The dense matrix of a CSR matrix."""
    return matrices.dense(_as_csr(mat))


def csr_matvec(mat: CSR, v: Any, transpose: bool = False) -> Any:
    """The product of a CSR matrix, or of its transpose, and a vector."""
    return matrices.product("csr_matvec", _as_csr(mat), v, transpose)


def csr_matmat(mat: CSR, B: Any, *, transpose: bool = False) -> Any:
    """The product of a CSR matrix, or of its transpose, and a dense matrix."""
    return matrices.product("csr_matmat", _as_csr(mat), B, transpose)
