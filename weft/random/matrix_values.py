"""Random values that take a matrix factorization: orthogonal matrices, correlated normal values.

orthogonal(key, 3)  ->  jit[name=_orthogonal]: normal values f32[3,3], their q, columns times the signs of r
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from weft import dtypes
from weft._base.array import Array
from weft.dispatch import devices
from weft.dispatch.calls import jit as jit_module
from weft.numpy import axes, linalg, promotion, rearrange
from weft.numpy.linear_algebra import decompositions, einstein
from weft.numpy.pointwise import elementary
from weft.operations import sign
from weft.operations.linalg import matrices
from weft.random import distributions, keys, sampling

jit = jit_module.jit
METHODS = ("svd", "eigh", "cholesky")


def orthogonal(
    key: Any, n: int, shape: Any = (), dtype: Any = None, m: int | None = None, *, out_sharding: Any = None
) -> Array:
    """Matrices of n rows and m columns (None: n), uniform among those with orthonormal rows or columns.

    The result is [*shape, n, m], real or, for a complex ``dtype``, unitary: rows are orthonormal where n <= m, columns
    where m <= n (Mezzadri, "How to generate random matrices from the classical compact groups", 2007).

    >>> q = orthogonal(keys.key(0), 3)
    >>> np.abs(np.round(q @ q.T, 3)).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    if out_sharding is not None:
        return devices.placed(lambda: orthogonal(key, n, shape, dtype, m), out_sharding=out_sharding)
    typed = keys.single("orthogonal", key)
    target = dtypes.canonicalize_dtype(np.float64) if dtype is None else dtypes.check_user_dtype(dtype, "orthogonal")
    rows = operator.index(n)
    columns = rows if m is None else operator.index(m)
    return _orthogonal(typed, rows, columns, axes.canonical_shape(shape), target)


@jit(static_argnums=(1, 2, 3, 4))
def _orthogonal(key: Any, n: int, m: int, shape: tuple[int, ...], dtype: Any) -> Any:
    z = sampling.normal(key, (*shape, max(n, m), min(n, m)), dtype)
    q, r = decompositions.qr(z)
    signs = sign(linalg.diagonal(r))
    x = q * rearrange.expand_dims(signs, -2)
    return matrices.transposed(x) if n < m else x


def multivariate_normal(
    key: Any,
    mean: Any,
    cov: Any,
    shape: Any = None,
    dtype: Any = None,
    method: str = "cholesky",
    *,
    out_sharding: Any = None,
) -> Array:
    """Normal values with a ``mean`` ([..., n]) and covariance ``cov`` ([..., n, n]), whose batches are broadcast.

    The result is [*shape, n]; ``shape`` is by default that of the batches. ``method`` says by which factors of the
    covariance: "cholesky", which must be definite, "svd" or "eigh". ValueError for another and for shapes that do not
    fit.

    >>> multivariate_normal(keys.key(0), np.zeros(2, np.float32), np.eye(2, dtype=np.float32), (3,)).shape
    (3, 2)
    """
    if out_sharding is not None:
        return devices.placed(
            lambda: multivariate_normal(key, mean, cov, shape, dtype, method), out_sharding=out_sharding
        )
    typed = keys.single("multivariate_normal", key)
    mean, cov = promotion.promote_dtypes_inexact(mean, cov)
    if method not in METHODS:
        raise ValueError("method must be one of {'svd', 'eigh', 'cholesky'}")
    target = promotion.dtype_of(mean) if dtype is None else dtypes.check_user_dtype(dtype, "multivariate_normal")
    if not dtypes.issubdtype(target, np.floating):
        raise ValueError(f"dtype argument to `multivariate_normal` must be a float dtype, got {target}")
    wanted = None if shape is None else axes.canonical_shape(shape)
    return _multivariate_normal(typed, mean, cov, wanted, target, method)


@jit(static_argnums=(3, 4, 5))
def _multivariate_normal(key: Any, mean: Any, cov: Any, shape: Any, dtype: Any, method: str) -> Any:
    of_mean, of_cov = promotion.shape_of(mean), promotion.shape_of(cov)
    for name, extents, least in (("mean", of_mean, 1), ("cov", of_cov, 2)):
        if len(extents) < least:
            raise ValueError(f"multivariate_normal requires {name}.ndim >= {least}, got {name}.ndim == {len(extents)}")
    n = of_mean[-1]
    if of_cov[-2:] != (n, n):
        raise ValueError(
            f"multivariate_normal requires cov.shape == (..., n, n) for n={n}, but got cov.shape == {of_cov}."
        )
    batch = distributions.shape_around("normal", shape, promotion.broadcast_shapes(of_mean[:-1], of_cov[:-2]))
    if method == "svd":
        u, s, _ = decompositions.svd(cov)
        factor = u * elementary.sqrt(s[..., None, :])
    elif method == "eigh":
        w, v = decompositions.eigh(cov)
        factor = v * elementary.sqrt(w[..., None, :])
    else:
        factor = decompositions.cholesky(cov)
    values = sampling.normal(key, (*batch, n), dtype)
    return promotion.with_rank(mean, values.ndim) + einstein.einsum("...ij,...j->...i", factor, values)
