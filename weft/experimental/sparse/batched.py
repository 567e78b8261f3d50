"""BCOO: values with the indices of each, behind any number of batch dimensions.

A BCOO array of shape ``batch + sparse + dense`` has ``data`` of shape ``[*batch, nse, *dense]`` and ``indices`` of
shape ``[*batch, nse, len(sparse)]``. Equal indices add up. An index out of bounds is padding, whatever its value: that
is how ``nse`` is a static number while fewer elements are there. A batch extent of 1 in a buffer is shared::

    [[0, 2, 0],      data    [2, 1, 4]
     [1, 0, 4]]      indices [[0, 1], [1, 0], [1, 2]]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from weft.experimental.sparse.matrix import JAXSparse


class Batched(JAXSparse):
    """A sparse array with batch dimensions in front of those that are indexed, and dense ones behind them."""

    indices: Any
    indices_sorted: bool
    unique_indices: bool
    _static = ("shape", "indices_sorted", "unique_indices")
    _index_rank: ClassVar[int]  # of the indices without a batch
    _sparse_rank: ClassVar[int | None] = None  # where it is the same for every array of a format

    def __init__(
        self, args: tuple[Any, ...], *, shape: Sequence[int], indices_sorted: bool = False, unique_indices: bool = False
    ) -> None:
        self.indices_sorted, self.unique_indices = indices_sorted, unique_indices
        super().__init__(args, shape=shape)
        kind, names, rank = type(self).__name__, self._leaves[1:], self._index_rank
        dtypes = [getattr(self, name).dtype for name in names]
        if not np.issubdtype(dtypes[0], np.integer) or dtypes[0] != dtypes[-1]:
            found = ", ".join(map(str, dtypes))
            raise TypeError(f"[{kind}] {' and '.join(names)} must be integers of one dtype, got {found}")
        if self.indices.ndim < rank:
            raise ValueError(f"[{kind}] indices have at least {rank} dimensions, got {self.indices.shape}")
        self._check()

    @classmethod
    def tree_unflatten(cls, aux_data: Any, children: Sequence[Any]) -> Any:
        made = super().tree_unflatten(aux_data, children)
        buffers = made.data, made.indices
        made.shape = shape_of_buffers(*buffers, made.shape, own=cls._index_rank, n_sparse=cls._sparse_rank)
        return made

    @property
    def nse(self) -> int:
        return self.indices.shape[-self._index_rank]

    @property
    def n_batch(self) -> int:
        """The number of batch dimensions."""
        return self.indices.ndim - self._index_rank

    @property
    def n_sparse(self) -> int:
        """The number of dimensions that are indexed."""
        return self.indices.shape[-1] if self._sparse_rank is None else self._sparse_rank

    @property
    def n_dense(self) -> int:
        """The number of dimensions of every value."""
        return self.data.ndim - 1 - self.n_batch

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The extents of the batch dimensions."""
        return self.shape[: self.n_batch]

    @property
    def sparse_shape(self) -> tuple[int, ...]:
        """The extents of the dimensions that are indexed."""
        return self.shape[self.n_batch : self.n_batch + self.n_sparse]

    @property
    def dense_shape(self) -> tuple[int, ...]:
        """The extents of the dimensions of every value."""
        return self.shape[self.n_batch + self.n_sparse :]

    def __repr__(self) -> str:
        text = super().__repr__()
        if text.endswith("(<invalid>)"):
            return text
        counts = {"n_batch": self.n_batch, "n_dense": self.n_dense}
        return text[:-1] + "".join(f", {name}={count}" for name, count in counts.items() if count) + ")"

    def _extents(self) -> dict[str, tuple[int, ...]]:
        """The extents of each buffer behind those of the batch."""
        raise NotImplementedError

    def _check(self) -> None:
        """ValueError where a buffer does not fit the shape."""
        kind, n_batch = type(self).__name__, self.n_batch
        if self.n_dense < 0 or n_batch + self.n_sparse + self.n_dense != self.ndim:
            raise ValueError(
                f"[{kind}] data {self.data.shape} and indices {self.indices.shape} have {n_batch} batch, "
                f"{self.n_sparse} sparse and {self.n_dense} dense dimensions, which do not make the shape {self.shape}"
            )
        for name, rest in self._extents().items():
            buffer = getattr(self, name)
            fits = all(have in (1, want) for have, want in zip(buffer.shape[:n_batch], self.batch_shape, strict=False))
            if not fits or buffer.shape[n_batch:] != rest:
                wanted = (*self.batch_shape, *rest)
                raise ValueError(f"[{kind}] {name} of shape {buffer.shape} should be {wanted} for {self.shape}")


class BCOO(Batched):
    """A sparse array of values and indices: ``BCOO((data, indices), shape=shape)``.

    ``indices_sorted`` and ``unique_indices`` are promises, not looked at. ValueError if buffers and shape disagree.

    >>> from weft.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.array([[0.0, 2.0, 0.0], [1.0, 0.0, 4.0]]))
    >>> m
    BCOO(float32[2, 3], nse=3)
    >>> m.indices.tolist(), m.data.tolist()
    ([[0, 1], [1, 0], [1, 2]], [2.0, 1.0, 4.0])
    >>> (m @ jnp.ones(3)).tolist()
    [2.0, 5.0]
    """

    _leaves, _index_rank = ("data", "indices"), 2
    if TYPE_CHECKING:  # `operators` installs these
        fromdense: Any
        from_scipy_sparse: Any
        astype: Any
        reshape: Any
        sort_indices: Any
        sum_duplicates: Any
        update_layout: Any

    def _extents(self) -> dict[str, tuple[int, ...]]:
        return {"data": (self.nse, *self.dense_shape), "indices": (self.nse, self.n_sparse)}


def shape_of_buffers(
    data: Any, indices: Any, shape: tuple[int, ...], *, own: int, n_sparse: int | None = None
) -> tuple[int, ...]:
    """The shape of an array whose buffers may have gained or lost batch dimensions, as under ``vmap``.

    The sparse and dense extents stay; the batch extents are read from the buffers. ``own`` is the rank of indices
    without a batch, whose last extent is the number of sparse dimensions unless that is given. Leaves that are no
    arrays (a tree of axes, say) leave the shape as it is.
    """
    ranked = all(isinstance(getattr(buffer, "shape", None), tuple) for buffer in (data, indices))
    if not ranked or len(indices.shape) < own or len(data.shape) < len(indices.shape) - own + 1:
        return shape
    n_batch = len(indices.shape) - own
    inner = (indices.shape[-1] if n_sparse is None else n_sparse) + len(data.shape) - 1 - n_batch
    if len(shape) == n_batch + inner:
        return shape
    pairs = zip(data.shape[:n_batch], indices.shape[:n_batch], strict=True)
    return tuple(max(a, b) if a and b else 0 for a, b in pairs) + shape[len(shape) - inner :]
