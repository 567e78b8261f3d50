"""weft.scipy.stats.truncnorm: a normal distribution cut off at ``a`` and ``b`` standard deviations from ``loc``.

The mass between two places is a difference of distribution functions, taken in logarithms and from the nearer tail.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import nn
from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy import special
from weft.scipy.stats import norm
from weft.scipy.stats.location_scale import inline, standardized, where_supported


def _log_mass(a: Any, b: Any) -> Any:
    """Logarithm of the probability of a standard normal value between a and b; -inf where a is b."""
    right = a > 0
    low, high = wnp.where(right, -b, a), wnp.where(right, -a, b)  # mirrored: at least one of them is not above 0
    left = high <= 0
    upper, lower = special.log_ndtr(wnp.where(left, high, -1)), special.log_ndtr(wnp.where(left, low, -2))
    gap = upper - lower
    empty = gap <= 0
    tail = wnp.where(empty, -np.inf, upper + nn.log1mexp(wnp.where(empty, 1, gap)))
    low, high = wnp.where(left, -1, low), wnp.where(left, 1, high)
    return wnp.where(left, tail, wnp.log1p(-special.ndtr(low) - special.ndtr(-high)))


@inline
def logpdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the density at ``x``.

    >>> round(logpdf(0.5, -1.0, 2.0).item(), 4)
    -0.8438
    """
    y, a, b, scale = standardized("truncnorm.logpdf", x, a, b, loc, scale, valid=wnp.less)
    density = norm.logpdf(y) - wnp.log(scale) - _log_mass(a, b)
    outside = (y < a) | (y > b)
    return where_supported(~(outside | wnp.isnan(y)), density, -np.inf, y)


@inline
def pdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at ``x``.

    >>> round(pdf(0.5, -1.0, 2.0).item(), 4)
    0.4301
    """
    return wnp.exp(logpdf(x, a, b, loc, scale))


@inline
def logcdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the probability of at most ``x``.

    >>> round(logcdf(0.5, -1.0, 2.0).item(), 4)
    -0.4294
    """
    y, a, b, _ = standardized("truncnorm.logcdf", x, a, b, loc, scale, valid=wnp.less)
    inside = wnp.clip(y, a, b)
    share = _log_mass(a, inside) - _log_mass(a, b)
    rest = _log_mass(inside, b) - _log_mass(a, b)
    near_one = share > -0.1
    share = wnp.where(near_one, wnp.log1p(-wnp.exp(wnp.where(near_one, rest, -1))), share)
    found = wnp.where(y <= a, -np.inf, wnp.where(y >= b, 0, share))
    return wnp.where(wnp.isnan(y), np.nan, found)


@inline
def cdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of at most ``x``.

    >>> round(cdf(0.5, -1.0, 2.0).item(), 4)
    0.6509
    """
    return wnp.exp(logcdf(x, a, b, loc, scale))


@inline
def logsf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the probability of more than ``x``.

    >>> round(logsf(0.5, -1.0, 2.0).item(), 4)
    -1.0523
    """
    return logcdf(-x, -b, -a, -loc, scale)


@inline
def sf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of more than ``x``.

    >>> round(sf(0.5, -1.0, 2.0).item(), 4)
    0.3491
    """
    return wnp.exp(logsf(x, a, b, loc, scale))
