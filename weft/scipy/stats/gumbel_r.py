"""weft.scipy.stats.gumbel_r: the distribution of the largest of many values.

cdf(x, loc, scale)  ->  exp(-exp(-(x - loc) / scale))
"""

from __future__ import annotations

from typing import Any

from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy.stats.location_scale import inline, leveled, log1mexp_of_exp, standardized


@inline
def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the density at ``x``.

    >>> round(logpdf(0.5).item(), 4)
    -1.1065
    """
    y, scale = standardized("gumbel_r.logpdf", x, loc, scale)
    return -(y + wnp.exp(-y)) - wnp.log(scale)


@inline
def pdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at ``x``.

    >>> round(pdf(0.5).item(), 4)
    0.3307
    """
    return wnp.exp(logpdf(x, loc, scale))


@inline
def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of at most ``x``.

    >>> round(cdf(0.5).item(), 4)
    0.5452
    """
    return wnp.exp(logcdf(x, loc, scale))


@inline
def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the probability of at most ``x``.

    >>> round(logcdf(0.5).item(), 4)
    -0.6065
    """
    y, _ = standardized("gumbel_r.logcdf", x, loc, scale)
    return -wnp.exp(-y)


@inline
def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of more than ``x``.

    >>> round(sf(0.5).item(), 4)
    0.4548
    """
    return -wnp.expm1(logcdf(x, loc, scale))


@inline
def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the probability of more than ``x``.

    >>> round(logsf(0.5).item(), 4)
    -0.788
    """
    y, _ = standardized("gumbel_r.logsf", x, loc, scale)
    return log1mexp_of_exp(-y)


@inline
def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value that the probability ``q`` is not to exceed, the inverse of ``cdf``; NaN for ``q`` outside 0..1.

    >>> round(ppf(0.25).item(), 4)
    -0.3266
    """
    q, loc, scale = leveled("gumbel_r.ppf", q, loc, scale)
    return loc - scale * wnp.log(-wnp.log(q))
