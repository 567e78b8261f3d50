"""weft.scipy.stats.cauchy: the Cauchy distribution around ``loc``; ``scale`` is half the distance of its quartiles.

Tails are computed from arctan2, without taking them from 1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy.stats.location_scale import inline, leveled, quantile, standardized


def _cotangent(q: Any) -> Any:
    """The cotangent of pi q, for q from 0 to 1."""
    low = q < 0.5
    angle = np.pi * wnp.abs(wnp.where(low, q, 1 - q))
    ratio = wnp.cos(angle) / wnp.sin(angle)
    return quantile(q, wnp.where(q == 0.5, 0, wnp.where(low, ratio, -ratio)))


@inline
def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the density at ``x``.

    >>> round(logpdf(0.5).item(), 4)
    -1.3679
    """
    y, scale = standardized("cauchy.logpdf", x, loc, scale)
    size = wnp.abs(y)
    far = size > 1e8  # where 1 + y**2 is y**2, which may overflow
    squares = wnp.where(far, 2 * wnp.log(wnp.where(far, size, 1)), wnp.log1p(wnp.square(wnp.where(far, 0, y))))
    return -math.log(math.pi) - wnp.log(scale) - squares


@inline
def pdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at ``x``.

    >>> round(pdf(0.5).item(), 4)
    0.2546
    """
    return wnp.exp(logpdf(x, loc, scale))


@inline
def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of at most ``x``.

    >>> round(cdf(0.5).item(), 4)
    0.6476
    """
    y, _ = standardized("cauchy.cdf", x, loc, scale)
    return wnp.arctan2(wnp.ones_like(y), -y) / np.pi


@inline
def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the probability of at most ``x``.

    >>> round(logcdf(0.5).item(), 4)
    -0.4345
    """
    y, _ = standardized("cauchy.logcdf", x, loc, scale)
    low = wnp.arctan2(wnp.ones_like(y), wnp.abs(y)) / np.pi  # the smaller tail
    return wnp.where(y > 0, wnp.log1p(-low), wnp.log(low))


@inline
def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of more than ``x``.

    >>> round(sf(0.5).item(), 4)
    0.3524
    """
    return cdf(-x, -loc, scale)


@inline
def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the probability of more than ``x``.

    >>> round(logsf(0.5).item(), 4)
    -1.0429
    """
    return logcdf(-x, -loc, scale)


@inline
def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value that the probability ``q`` is not to exceed, the inverse of ``cdf``; NaN for ``q`` outside 0..1.

    >>> round(ppf(0.25).item(), 4)
    -1.0
    """
    q, loc, scale = leveled("cauchy.ppf", q, loc, scale)
    return loc - scale * _cotangent(q)


@inline
def isf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value that is exceeded with probability ``q``, the inverse of ``sf``; NaN for ``q`` outside 0..1.

    >>> round(isf(0.25).item(), 4)
    1.0
    """
    q, loc, scale = leveled("cauchy.isf", q, loc, scale)
    return loc + scale * _cotangent(q)
