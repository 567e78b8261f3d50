"""Sparse arrays from nothing: empty, the identity, random.

eye(3) -> BCOO(float32[3, 3], nse=3)     random_bcoo(key, (100, 100), nse=0.1) -> BCOO(float32[100, 100], nse=1000)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from weft import numpy as jnp
from weft import random
from weft.batching.vmap import vmap
from weft.experimental.sparse import operators
from weft.experimental.sparse.bcoo import BCOO
from weft.experimental.sparse.bcoo_layout import split_counts
from weft.experimental.sparse.bcsr import BCSR
from weft.experimental.sparse.matrix import JAXSparse
from weft.experimental.sparse.rows_and_columns import COO, CSC, CSR

FORMATS: dict[str, Any] = {"bcoo": BCOO, "bcsr": BCSR, "coo": COO, "csr": CSR, "csc": CSC}
_INSTALLED = operators  # the methods of BCOO


def _format(name: str, sparse_format: str) -> Any:
    if sparse_format not in FORMATS:
        raise ValueError(f"[{name}] sparse_format must be one of {sorted(FORMATS)}, got {sparse_format!r}")
    return FORMATS[sparse_format]


def empty(
    shape: Sequence[int], dtype: Any = None, index_dtype: Any = "int32", sparse_format: str = "bcoo", **kwds: Any
) -> JAXSparse:
    """A sparse array of zeros: ``sparse_format`` is "bcoo", "bcsr", "coo", "csr" or "csc".

    BCOO and BCSR take ``n_batch``, ``n_dense`` and ``nse`` (places of padding, none by default).
    """
    return _format("empty", sparse_format)._empty(shape, dtype=dtype, index_dtype=index_dtype, **kwds)


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
    columns = N if M is None else M
    if sparse_format == "bcsr":
        return BCSR.from_bcoo(BCOO._eye(N, columns, k, dtype=dtype, index_dtype=index_dtype, **kwds))
    return _format("eye", sparse_format)._eye(N, columns, k, dtype=dtype, index_dtype=index_dtype, **kwds)


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
    """A BCOO array with random places and values of ``generator(key, shape, dtype, **kwds)``.

    ``nse`` is the number of elements of a batch, or, between 0 and 1, their share of the sparse places.
    """
    shape = tuple(shape)
    n_sparse = split_counts("random_bcoo", len(shape), n_batch, n_dense)
    batch, sparse, dense = shape[:n_batch], shape[n_batch : n_batch + n_sparse], shape[n_batch + n_sparse :]
    places = math.prod(sparse)
    count = math.ceil(nse * places) if 0 < nse < 1 else int(nse)
    if not count >= 0 or (unique_indices and count > places):
        raise ValueError(f"[random_bcoo] nse={nse} different places of {places}")
    place_key, value_key = random.split(key)

    def place_batch(key: Any) -> Any:
        if unique_indices:
            flat = random.choice(key, places, (count,), replace=False)
        else:
            flat = random.randint(key, (count,), 0, max(places, 1))
        flat = jnp.sort(flat) if sorted_indices else flat
        columns = jnp.unravel_index(flat, sparse) if sparse else ()
        wide = [column.astype(indices_dtype or "int32") for column in columns]
        return jnp.stack(wide, axis=-1) if wide else jnp.zeros((count, 0), indices_dtype or "int32")

    place: Callable[[Any], Any] = place_batch
    for extent in reversed(batch):
        place = _for_keys(place, extent)
    data = generator(value_key, (*batch, count, *dense), dtype, **kwds)
    return BCOO((data, place(place_key)), shape=shape,
                indices_sorted=sorted_indices, unique_indices=unique_indices)  # fmt: skip


def _for_keys(place: Callable[[Any], Any], extent: int) -> Callable[[Any], Any]:
    return lambda key: vmap(place)(random.split(key, extent))
