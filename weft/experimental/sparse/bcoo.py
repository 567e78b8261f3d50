"""BCOO: values with the indices of each, behind any number of batch dimensions.

A BCOO array of shape ``batch + sparse + dense`` has ``data`` of shape ``[*batch, nse, *dense]`` and ``indices`` of
shape ``[*batch, nse, len(sparse)]``. Equal indices add up. An index out of bounds is padding, whatever its value: that
is how ``nse`` is a static number while fewer elements are there. A batch extent of 1 in a buffer is shared::

    [[0, 2, 0],      data    [2, 1, 4]
     [1, 0, 4]]      indices [[0, 1], [1, 0], [1, 2]]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from weft import numpy as jnp
from weft.experimental.sparse.matrix import JAXSparse


class Batched(JAXSparse):
    """A sparse array with batch dimensions in front of those that are indexed, and dense ones behind them."""

    indices: Any
    indices_sorted: bool
    unique_indices: bool
    n_batch: Any
    n_sparse: Any
    _static = ("shape", "indices_sorted", "unique_indices")
    _index_rank: ClassVar[int]  # of the indices without a batch
    _sparse_rank: ClassVar[int | None] = None  # where it is the same for every array of a format

    @classmethod
    def tree_unflatten(cls, aux_data: Any, children: Sequence[Any]) -> Any:
        made = super().tree_unflatten(aux_data, children)
        buffers = made.data, made.indices
        made.shape = shape_of_buffers(*buffers, made.shape, own=cls._index_rank, n_sparse=cls._sparse_rank)
        return made

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

    def _check(self, buffers: Callable[[], Sequence[tuple[str, Any, tuple[int, ...]]]]) -> None:
        """ValueError where a buffer does not fit the shape; ``buffers``: name, buffer, extents behind the batch."""
        kind, n_batch = type(self).__name__, self.n_batch
        if n_batch < 0 or self.n_dense < 0 or n_batch + self.n_sparse + self.n_dense != self.ndim:
            raise ValueError(
                f"[{kind}] data {self.data.shape} and indices {self.indices.shape} have {n_batch} batch, "
                f"{self.n_sparse} sparse and {self.n_dense} dense dimensions, which do not make the shape {self.shape}"
            )
        for name, buffer, rest in buffers():
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
        _eye: Any
        astype: Any
        reshape: Any
        sort_indices: Any
        sum_duplicates: Any
        update_layout: Any

    def __init__(
        self, args: tuple[Any, Any], *, shape: Sequence[int], indices_sorted: bool = False, unique_indices: bool = False
    ) -> None:
        self.data, self.indices = (jnp.asarray(buffer) for buffer in args)
        self.indices_sorted, self.unique_indices = indices_sorted, unique_indices
        super().__init__(args, shape=shape)
        if not np.issubdtype(self.indices.dtype, np.integer):
            raise TypeError(f"[BCOO] indices must be integers, got {self.indices.dtype}")
        if self.indices.ndim < 2:
            shape = self.indices.shape
            raise ValueError(f"[BCOO] indices need a dimension of elements and one of columns, got {shape}")
        values, places = (self.nse, *self.dense_shape), (self.nse, self.n_sparse)
        self._check(lambda: (("data", self.data, values), ("indices", self.indices, places)))

    @property
    def nse(self) -> int:
        return self.indices.shape[-2]

    @property
    def n_batch(self) -> int:
        """The number of batch dimensions."""
        return self.indices.ndim - 2

    @property
    def n_sparse(self) -> int:
        """The number of dimensions that are indexed."""
        return self.indices.shape[-1]

    @classmethod
    def _empty(
        cls,
        shape: Sequence[int],
        *,
        dtype: Any = None,
        index_dtype: Any = "int32",
        n_dense: int = 0,
        n_batch: int = 0,
        nse: int = 0,
    ) -> BCOO:
        """All zeros: ``nse`` places of padding."""
        shape = tuple(shape)
        n_sparse = len(shape) - n_dense - n_batch
        if n_sparse < 0 or n_dense < 0 or n_batch < 0 or nse < 0:
            raise ValueError(f"[BCOO] shape {shape} has no {n_batch} batch and {n_dense} dense dimensions, nse={nse}")
        batch, sparse, dense = shape[:n_batch], shape[n_batch : n_batch + n_sparse], shape[n_batch + n_sparse :]
        data = jnp.zeros((*batch, nse, *dense), dtype)
        indices = jnp.full((*batch, nse, n_sparse), jnp.array(sparse, index_dtype), index_dtype)
        return cls((data, indices), shape=shape, indices_sorted=True, unique_indices=True)


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
