"""Sparse arrays from nothing: empty, the identity, random.

eye(3) -> BCOO(float32[3, 3], nse=3)     random_bcoo(key, (100, 100), nse=0.1) -> BCOO(float32[100, 100], nse=1000)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from weft import numpy as jnp
from weft import random
from weft.batching.vmap import vmap
from weft.experimental.sparse.batched import BCOO
from weft.experimental.sparse.bcoo_layout import bcoo_update_layout, split_counts
from weft.experimental.sparse.bcsr import BCSR
from weft.experimental.sparse.coo import COO
from weft.experimental.sparse.csr import CSC, CSR
from weft.experimental.sparse.matrix import JAXSparse

FORMATS: dict[str, Callable[[BCOO], JAXSparse]] = {
    "bcoo": lambda arr: arr,
    "bcsr": BCSR.from_bcoo,
    "coo": functools.partial(COO._of_bcoo, cols_sorted=True),  # as those of ``empty`` and ``eye`` are
    "csr": CSR._of_bcoo,
    "csc": CSC._of_bcoo,
}


def _in_format(name: str, sparse_format: str, made: Callable[..., BCOO], **layout: Any) -> JAXSparse:
    """A BCOO array in another format; ``layout`` is what only arrays with batch dimensions have."""
    if sparse_format not in FORMATS:
        raise ValueError(f"[{name}] sparse_format must be one of {sorted(FORMATS)}, got {sparse_format!r}")
    if layout and not sparse_format.startswith("b"):
        raise TypeError(f"[{name}] {', '.join(layout)} of a {sparse_format!r} matrix: only BCOO and BCSR have them")
    return FORMATS[sparse_format](made(**layout))


def empty(
    shape: Sequence[int], dtype: Any = None, index_dtype: Any = "int32", sparse_format: str = "bcoo", **kwds: Any
) -> JAXSparse:
    """A sparse array of zeros: ``sparse_format`` is "bcoo", "bcsr", "coo", "csr" or "csc".

    BCOO and BCSR take ``n_batch``, ``n_dense`` and ``nse`` (elements of padding, none by default).
    """
    made = functools.partial(_empty, tuple(shape), dtype, index_dtype)
    return _in_format("empty", sparse_format, made, **kwds)


def _empty(
    shape: tuple[int, ...], dtype: Any, index_dtype: Any, n_dense: int = 0, n_batch: int = 0, nse: int = 0
) -> BCOO:
    """All zeros: ``nse`` elements of padding."""
    n_sparse = len(shape) - n_dense - n_batch
    if n_sparse < 0 or n_dense < 0 or n_batch < 0 or nse < 0:
        raise ValueError(f"[empty] shape {shape} has no {n_batch} batch and {n_dense} dense dimensions, nse={nse}")
    batch, sparse, dense = shape[:n_batch], shape[n_batch : n_batch + n_sparse], shape[n_batch + n_sparse :]
    data = jnp.zeros((*batch, nse, *dense), dtype)
    indices = jnp.full((*batch, nse, n_sparse), jnp.array(sparse, index_dtype), index_dtype)
    return BCOO((data, indices), shape=shape, indices_sorted=True, unique_indices=True)


def eye(
    N: int,
    M: int | None = None,
    k: int = 0,
    dtype: Any = None,
    index_dtype: Any = "int32",
    sparse_format: str = "bcoo",
    **kwds: Any,
) -> JAXSparse:
    """Ones on the k-th diagonal of an N x M matrix.

    >>> from weft.experimental import sparse
    >>> sparse.eye(2, 3, 1).todense().tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    made = functools.partial(_eye, N, N if M is None else M, k, dtype, index_dtype)
    return _in_format("eye", sparse_format, made, **kwds)


def _eye(rows: int, columns: int, k: int, dtype: Any, index_dtype: Any, n_batch: int = 0, n_dense: int = 0) -> BCOO:
    size = max(0, min(rows + min(k, 0), columns - max(k, 0)))
    along = jnp.arange(size, dtype=index_dtype)
    indices = jnp.stack([along + max(0, -k), along + max(0, k)], axis=1)
    made = BCOO((jnp.ones(size, dtype), indices), shape=(rows, columns), indices_sorted=True, unique_indices=True)
    return bcoo_update_layout(made, n_batch=n_batch, n_dense=n_dense, on_inefficient=None)


def random_bcoo(
    key: Any,
    shape: Sequence[int],
    *,
    dtype: Any = float,
    indices_dtype: Any = None,
    nse: float = 0.2,
    n_batch: int = 0,
    n_dense: int = 0,
    unique_indices: bool = True,
    sorted_indices: bool = False,
    generator: Callable[..., Any] = random.uniform,
    **kwds: Any,
) -> BCOO:
    """A BCOO array with random indices and values of ``generator(key, shape, dtype, **kwds)``.

    ``nse`` is the number of elements of a batch, or, between 0 and 1, their share of the sparse positions.
    """
    shape = tuple(shape)
    n_sparse = split_counts("random_bcoo", len(shape), n_batch, n_dense)
    batch, sparse, dense = shape[:n_batch], shape[n_batch : n_batch + n_sparse], shape[n_batch + n_sparse :]
    positions = math.prod(sparse)
    count = math.ceil(nse * positions) if 0 < nse < 1 else int(nse)
    if not count >= 0 or (unique_indices and count > positions):
        raise ValueError(f"[random_bcoo] nse={nse} different positions of {positions}")
    position_key, value_key = random.split(key)

    def position_batch(key: Any) -> Any:
        if unique_indices:
            flat = random.choice(key, positions, (count,), replace=False)
        else:
            flat = random.randint(key, (count,), 0, max(positions, 1))
        flat = jnp.sort(flat) if sorted_indices else flat
        columns = jnp.unravel_index(flat, sparse) if sparse else ()
        wide = [column.astype(indices_dtype or "int32") for column in columns]
        return jnp.stack(wide, axis=-1) if wide else jnp.zeros((count, 0), indices_dtype or "int32")

    position: Callable[[Any], Any] = position_batch
    for extent in reversed(batch):
        position = _for_keys(position, extent)
    data = generator(value_key, (*batch, count, *dense), dtype, **kwds)
    return BCOO((data, position(position_key)), shape=shape,
                indices_sorted=sorted_indices, unique_indices=unique_indices)  # fmt: skip


def _for_keys(position: Callable[[Any], Any], extent: int) -> Callable[[Any], Any]:
    return lambda key: vmap(position)(random.split(key, extent))
