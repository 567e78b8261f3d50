"""weft.scipy.stats.expon: the exponential distribution from ``loc`` upwards; ``scale`` is its mean.

logpdf(x, loc, scale)  ->  -(x - loc) / scale - log(scale), -inf below loc
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import nn
from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy.stats.location_scale import inline, leveled, standardized, where_supported


@inline
def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the density at ``x``.

    >>> round(logpdf(0.5).item(), 4)
    -0.5
    """
    y, scale = standardized("expon.logpdf", x, loc, scale)
    return wnp.where(y < 0, -np.inf, -y - wnp.log(scale))


@inline
def pdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at ``x``.

    >>> round(pdf(0.5).item(), 4)
    0.6065
    """
    return wnp.exp(logpdf(x, loc, scale))


@inline
def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of at most ``x``.

    >>> round(cdf(0.5).item(), 4)
    0.3935
    """
    y, _ = standardized("expon.cdf", x, loc, scale)
    return wnp.where(y < 0, 0, -wnp.expm1(-y))


@inline
def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the probability of at most ``x``.

    >>> round(logcdf(0.5).item(), 4)
    -0.9328
    """
    y, _ = standardized("expon.logcdf", x, loc, scale)
    inside = y > 0
    return where_supported(inside, nn.log1mexp(wnp.where(inside, y, 1)), -np.inf, y)


@inline
def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of more than ``x``.

    >>> round(sf(0.5).item(), 4)
    0.6065
    """
    y, _ = standardized("expon.sf", x, loc, scale)
    return wnp.where(y < 0, 1, wnp.exp(-y))


@inline
def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the probability of more than ``x``.

    >>> round(logsf(0.5).item(), 4)
    -0.5
    """
    y, _ = standardized("expon.logsf", x, loc, scale)
    return wnp.where(y < 0, 0, -y)


@inline
def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value that the probability ``q`` is not to exceed, the inverse of ``cdf``; NaN for ``q`` outside 0..1.

    >>> round(ppf(0.25).item(), 4)
    0.2877
    """
    q, loc, scale = leveled("expon.ppf", q, loc, scale)
    return loc - scale * wnp.log1p(-q)
