"""COO: sparse matrices of values, rows and columns, with products by dense vectors and matrices.

[[0, 2, 0],   data [2, 1, 4]
 [1, 0, 4]]   row  [0, 1, 1]   col [1, 0, 2]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.experimental.sparse import matrices
from weft.experimental.sparse.batched import BCOO


class COO(matrices.Plain):
    """A sparse matrix of values, rows and columns: ``COO((data, row, col), shape=shape)``.

    >>> from weft.experimental import sparse
    >>> (sparse.COO.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]])) @ jnp.array([1.0, 10.0])).tolist()
    [20.0, 3.0]
    """

    row: Any
    col: Any
    _leaves, _static = ("data", "row", "col"), ("shape", "_rows_sorted", "_cols_sorted")
    _scipy = "coo"

    def __init__(
        self, args: tuple[Any, Any, Any], *, shape: Sequence[int], rows_sorted: bool = False, cols_sorted: bool = False
    ) -> None:
        self._rows_sorted, self._cols_sorted = rows_sorted, cols_sorted
        super().__init__(args, shape=shape)

    @classmethod
    def _of_bcoo(cls, arr: BCOO, cols_sorted: bool = False) -> COO:
        buffers = arr.data, arr.indices[:, 0], arr.indices[:, 1]
        return cls(buffers, shape=arr.shape, rows_sorted=True, cols_sorted=cols_sorted)

    def _indices(self) -> tuple[Any, Any, bool]:
        return self.row, self.col, self._rows_sorted

    def _exchanged(self) -> COO:
        return COO((self.data, self.col, self.row), shape=self.shape[::-1],
                   rows_sorted=self._cols_sorted, cols_sorted=self._rows_sorted)  # fmt: skip


def coo_fromdense(mat: Any, *, nse: int | None = None, index_dtype: Any = "int32") -> COO:
    """The COO matrix of a dense one; ``nse`` elements are stored, as many as needed by default.

    Under ``jit`` nse must be given. Positions that are not needed have indices out of bounds.
    """
    return COO.fromdense(mat, nse=nse, index_dtype=index_dtype)


def coo_todense(mat: COO) -> Any:
    """The dense matrix of a COO matrix; equal indices add up."""
    return matrices.dense(mat)


def coo_matvec(mat: COO, v: Any, transpose: bool = False) -> Any:
    """The product of a COO matrix, or of its transpose, and a vector."""
    return matrices.product("coo_matvec", mat, v, transpose)


def coo_matmat(mat: COO, B: Any, *, transpose: bool = False) -> Any:
    """The product of a COO matrix, or of its transpose, and a dense matrix."""
    return matrices.product("coo_matmat", mat, B, transpose)
