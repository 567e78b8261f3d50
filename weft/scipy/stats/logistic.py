"""weft.scipy.stats.logistic: the logistic distribution, whose distribution function is ``expit``."""

from __future__ import annotations

from typing import Any

from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy import special
from weft.scipy.stats.location_scale import inline, leveled, standardized


@inline
def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the density at ``x``.

    >>> round(logpdf(0.5).item(), 4)
    -1.4482
    """
    y, scale = standardized("logistic.logpdf", x, loc, scale)
    size = wnp.abs(y)
    return -size - 2 * wnp.log1p(wnp.exp(-size)) - wnp.log(scale)


@inline
def pdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at ``x``.

    >>> round(pdf(0.5).item(), 4)
    0.235
    """
    return wnp.exp(logpdf(x, loc, scale))


@inline
def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of at most ``x``.

    >>> round(cdf(0.5).item(), 4)
    0.6225
    """
    y, _ = standardized("logistic.cdf", x, loc, scale)
    return special.expit(y)


@inline
def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of more than ``x``.

    >>> round(sf(0.5).item(), 4)
    0.3775
    """
    y, _ = standardized("logistic.sf", x, loc, scale)
    return special.expit(-y)


@inline
def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value that the probability ``q`` is not to exceed, the inverse of ``cdf``; NaN for ``q`` outside 0..1.

    >>> round(ppf(0.25).item(), 4)
    -1.0986
    """
    q, loc, scale = leveled("logistic.ppf", q, loc, scale)
    return loc + scale * special.logit(q)


@inline
def isf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value that is exceeded with probability ``q``, the inverse of ``sf``; NaN for ``q`` outside 0..1.

    >>> round(isf(0.25).item(), 4)
    1.0986
    """
    q, loc, scale = leveled("logistic.isf", q, loc, scale)
    return loc - scale * special.logit(q)
