"""weft.scipy.stats.multivariate_normal: the normal distribution of vectors, by the Cholesky factor of its covariance.

logpdf(x, mean, cov)  ->  -|L^-1 (x - mean)|**2 / 2 - sum(log(diag L)) - n log(2 pi) / 2
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._base.array import Array
from weft.dispatch.calls import jit as jit_module
from weft.numpy import promotion
from weft.scipy.linalg import solve_triangular


def logpdf(x: Any, mean: Any, cov: Any, allow_singular: None = None) -> Array:
    """Logarithm of the density at ``x``, along the last axis; NaN for a covariance that is not positive definite.

    ``x`` and ``mean`` are ``[..., n]``, ``cov`` is ``[..., n, n]``, or a number: a multiple of the identity; a mean of
    rank 0 makes all of them numbers. ValueError for shapes that do not fit, NotImplementedError for
    ``allow_singular``.

    >>> round(logpdf(np.zeros(2, np.float32), np.zeros(2, np.float32), np.eye(2, dtype=np.float32)).item(), 4)
    -1.8379
    """
    if allow_singular is not None:
        raise NotImplementedError("allow_singular argument of multivariate_normal.logpdf")
    return _logpdf(x, mean, cov)


@jit_module.jit
def _logpdf(x: Any, mean: Any, cov: Any) -> Any:
    promotion.check_arraylike("multivariate_normal.logpdf", x, mean, cov)
    x, mean, cov = promotion.promote_dtypes_inexact(x, mean, cov)
    shape = promotion.shape_of(mean)
    if not shape:
        return -wnp.square(x - mean) / cov / 2 - (math.log(2 * math.pi) + wnp.log(cov)) / 2
    count = shape[-1]
    x, mean = promotion.promote_shapes(x, mean)
    covariance = promotion.shape_of(cov)
    if not covariance:
        square = wnp.sum(wnp.square(x - mean), axis=-1) / cov
        return -square / 2 - count / 2 * (math.log(2 * math.pi) + wnp.log(cov))
    if len(covariance) < 2 or covariance[-2:] != (count, count):
        raise ValueError("multivariate_normal.logpdf got incompatible shapes")
    factor = wnp.linalg.cholesky(cov)
    y = x - mean
    batch = np.broadcast_shapes(promotion.shape_of(y)[:-1], covariance[:-2])
    y = wnp.broadcast_to(y, (*batch, count))
    factor = wnp.broadcast_to(factor, (*batch, count, count))
    whitened = solve_triangular(factor, y[..., None], lower=True)[..., 0]
    logs = wnp.sum(wnp.log(wnp.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)
    return -wnp.sum(wnp.square(whitened), axis=-1) / 2 - count / 2 * math.log(2 * math.pi) - logs


def pdf(x: Any, mean: Any, cov: Any) -> Array:
    """The density at ``x``, as ``logpdf``.

    >>> round(pdf(np.zeros(2, np.float32), np.zeros(2, np.float32), np.eye(2, dtype=np.float32)).item(), 4)
    0.1592
    """
    return wnp.exp(logpdf(x, mean, cov))
