"""weft.scipy.stats.norm: density, distribution function and their logarithms and inverses of the normal distribution.

``loc`` is the mean and ``scale`` the standard deviation; all operands are promoted to one float dtype and broadcast::

    logpdf(x, loc, scale)  ->  -(log(2 pi scale**2) + (x - loc)**2 / scale**2) / 2
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import dtypes
from weft import operations as lax
from weft._base.array import Array
from weft.numpy import arithmetic, promotion, selection
from weft.scipy import special


def _positive(scale: Any) -> Any:
    """The scale, NaN where it is not above 0."""
    if isinstance(scale, (int, float, np.ndarray, np.generic)) and np.all(np.asarray(scale) > 0):
        return scale
    return selection.where(lax.gt(scale, lax.full_like(scale, 0)), scale, np.nan)


def _standardized(name: str, x: Any, loc: Any, scale: Any) -> Any:
    x, loc, scale = promotion.promote_args_inexact(f"norm.{name}", x, loc, scale)
    return arithmetic.true_divide(arithmetic.subtract(x, loc), _positive(scale))


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the density at ``x``.

    >>> round(logpdf(0.0).item(), 4)
    -0.9189
    """
    x, loc, scale = promotion.promote_args_inexact("norm.logpdf", x, loc, scale)
    square = lax.square(_positive(scale))
    normalizer = lax.log(arithmetic.multiply(2 * np.pi, square))
    quadratic = arithmetic.true_divide(lax.square(arithmetic.subtract(x, loc)), square)
    return arithmetic.true_divide(arithmetic.add(normalizer, quadratic), -2)


def pdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at ``x``.

    >>> round(pdf(0.0).item(), 4)
    0.3989
    """
    return lax.exp(logpdf(x, loc, scale))


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of at most ``x``.

    >>> cdf(0.0).item()
    0.5
    """
    return special.ndtr(_standardized("cdf", x, loc, scale))


def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the probability of at most ``x``, accurate far below the mean.

    >>> round(logcdf(-20.0).item(), 1)
    -203.9
    """
    return special.log_ndtr(_standardized("logcdf", x, loc, scale))


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of more than ``x``.

    >>> sf(0.0).item()
    0.5
    """
    return cdf(arithmetic.negative(x), arithmetic.negative(loc), scale)


def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the probability of more than ``x``, accurate far above the mean.

    >>> round(logsf(20.0).item(), 1)
    -203.9
    """
    return logcdf(arithmetic.negative(x), arithmetic.negative(loc), scale)


def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value that the probability ``q`` is not to exceed, as the default float: the inverse of ``cdf``.

    >>> ppf(0.5).item()
    0.0
    """
    q, loc, scale = promotion.promote_args_inexact("norm.ppf", q, loc, scale)
    value = arithmetic.add(arithmetic.multiply(special.ndtri(q), _positive(scale)), loc)
    return promotion.convert(value, dtypes.canonicalize_dtype(np.float64))


def isf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value that is exceeded with probability ``q``: the inverse of ``sf``.

    >>> round(isf(1e-9).item(), 2)
    6.0
    """
    return arithmetic.negative(ppf(q, arithmetic.negative(loc), scale))  # 1 - q would round a small q away
