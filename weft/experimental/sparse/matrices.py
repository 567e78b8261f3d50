"""What COO, CSR and CSC share: matrices of two dimensions. Each says which row and column an element has.

``fromdense`` is BCOO's, in another format; a product gathers rows of the dense operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from weft import numpy as jnp
from weft.experimental.sparse import bcoo_layout, operators
from weft.experimental.sparse.batched import BCOO
from weft.experimental.sparse.matrix import JAXSparse, add_rows, buffers_of_scipy, compiled, gather_rows
from weft.numpy import promotion

_INSTALLED = operators  # the methods of BCOO


class Plain(JAXSparse):
    """A matrix without batch or dense dimensions, whose transpose has the same buffers."""

    _scipy: ClassVar[str]  # SciPy's format whose buffers have the same names

    def __init__(self, args: tuple[Any, Any, Any], *, shape: Sequence[int]) -> None:
        super().__init__(args, shape=shape)
        kind = type(self).__name__
        if len(self.shape) != 2 or self.data.ndim != 1:
            raise ValueError(f"[{kind}] is a matrix: shape {self.shape}, data {self.data.shape}")
        for name in self._leaves[1:]:
            buffer, wanted = getattr(self, name), self._extent(name)
            if buffer.shape != (wanted,):
                raise ValueError(f"[{kind}] {name} of shape {buffer.shape} should be ({wanted},) for {self.shape}")

    def _extent(self, name: str) -> int:
        """How many numbers a buffer of indices has."""
        return self.data.shape[0]

    def _indices(self) -> tuple[Any, Any, bool]:
        """The row of every element, the column, and whether rows are in order."""
        raise NotImplementedError

    def _exchanged(self) -> Any:
        """Rows and columns exchanged."""
        raise NotImplementedError

    @classmethod
    def _of_bcoo(cls, arr: BCOO) -> Self:
        """The matrix of a BCOO one whose indices are in order."""
        raise NotImplementedError

    @classmethod
    def fromdense(cls, mat: Any, *, nse: int | None = None, index_dtype: Any = "int32") -> Self:
        """The matrix of a dense one, in this format; ``nse`` elements are stored, as many as needed by default.

        Under ``jit`` nse must be given.
        """
        mat = jnp.asarray(mat)
        if mat.ndim != 2:
            raise ValueError(f"[{cls.__name__}] is a matrix: it cannot be made of an array of shape {mat.shape}")
        return cls._of_bcoo(bcoo_layout.bcoo_fromdense(mat, nse=nse, index_dtype=index_dtype))

    @classmethod
    def from_scipy_sparse(cls, mat: Any, *, index_dtype: Any = "int32") -> Self:
        """The matrix of one of SciPy's, in this format."""
        theirs = mat.asformat(cls._scipy)
        return cls(buffers_of_scipy(theirs, cls._leaves, index_dtype), shape=theirs.shape)

    def todense(self) -> Any:
        """The dense matrix."""
        return dense(self)

    def transpose(self, axes: Sequence[int] | None = None) -> Any:
        """Rows and columns exchanged, by another reading of the same buffers: no element moves."""
        if axes is not None and tuple(axes) != (1, 0):
            raise NotImplementedError(f"[{type(self).__name__}.transpose] axes {axes}: only (1, 0)")
        return self._exchanged()

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, JAXSparse):
            raise NotImplementedError(f"[{type(self).__name__}] the product of two sparse arrays needs BCOO")
        return product(type(self).__name__, self, other, False)


@compiled()
def dense(mat: Plain) -> Any:
    """The dense matrix; equal indices add up."""
    rows, columns, _ = mat._indices()
    return bcoo_layout.bcoo_todense(BCOO((mat.data, jnp.stack([rows, columns], axis=1)), shape=mat.shape))


@compiled("name", "transpose")
def product(name: str, mat: Plain, dense: Any, transpose: bool) -> Any:
    """The product of a matrix, or of its transpose, by a dense vector or matrix.

    Rows of the dense operand, each times an element, are added to the rows of the result that the elements have.
    """
    mat = mat.T if transpose else mat
    rows, columns, in_order = mat._indices()
    dense = jnp.asarray(dense)
    if dense.ndim not in (1, 2) or dense.shape[0] != mat.shape[1]:
        raise ValueError(f"[{name}] a matrix of shape {mat.shape} cannot be multiplied by an array of {dense.shape}")
    data, dense = promotion.promote_dtypes(mat.data, dense)
    values = (data if dense.ndim == 1 else data[:, None]) * gather_rows(dense, columns[:, None])
    return add_rows((mat.shape[0], *dense.shape[1:]), rows[:, None], values, is_sorted=in_order)
