"""weft.scipy.stats.laplace: the double exponential distribution around ``loc``.

logpdf(x, loc, scale)  ->  -|x - loc| / scale - log(2 scale)
"""

from __future__ import annotations

from typing import Any

from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy.stats.location_scale import inline, standardized


@inline
def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the density at ``x``.

    >>> round(logpdf(0.5).item(), 4)
    -1.1931
    """
    y, scale = standardized("laplace.logpdf", x, loc, scale)
    return -wnp.abs(y) - wnp.log(2 * scale)


@inline
def pdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at ``x``.

    >>> round(pdf(0.5).item(), 4)
    0.3033
    """
    return wnp.exp(logpdf(x, loc, scale))


@inline
def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of at most ``x``.

    >>> round(cdf(0.5).item(), 4)
    0.6967
    """
    y, _ = standardized("laplace.cdf", x, loc, scale)
    tail = 0.5 * wnp.exp(-wnp.abs(y))
    return wnp.where(y > 0, 1 - tail, tail)
