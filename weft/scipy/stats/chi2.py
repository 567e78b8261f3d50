"""weft.scipy.stats.chi2: the distribution of a sum of ``df`` squares of normal values.

It is a gamma distribution of shape ``df / 2`` and twice the scale.
"""

from __future__ import annotations

from typing import Any

from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy.stats import gamma
from weft.scipy.stats.location_scale import inline


@inline
def logpdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the density at ``x``.

    >>> round(logpdf(0.5, 3.0).item(), 4)
    -1.5155
    """
    return gamma.logpdf(x, wnp.true_divide(df, 2), loc, 2 * scale)


@inline
def pdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at ``x``.

    >>> round(pdf(0.5, 3.0).item(), 4)
    0.2197
    """
    return gamma.pdf(x, wnp.true_divide(df, 2), loc, 2 * scale)


@inline
def cdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of at most ``x``.

    >>> round(cdf(0.5, 3.0).item(), 4)
    0.0811
    """
    return gamma.cdf(x, wnp.true_divide(df, 2), loc, 2 * scale)


@inline
def logcdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the probability of at most ``x``.

    >>> round(logcdf(0.5, 3.0).item(), 4)
    -2.512
    """
    return gamma.logcdf(x, wnp.true_divide(df, 2), loc, 2 * scale)


@inline
def sf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of more than ``x``.

    >>> round(sf(0.5, 3.0).item(), 4)
    0.9189
    """
    return gamma.sf(x, wnp.true_divide(df, 2), loc, 2 * scale)


@inline
def logsf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the probability of more than ``x``.

    >>> round(logsf(0.5, 3.0).item(), 4)
    -0.0846
    """
    return gamma.logsf(x, wnp.true_divide(df, 2), loc, 2 * scale)
