"""weft.scipy.stats.pareto: the Pareto distribution of exponent ``b``, from ``loc + scale`` upwards.

sf(x, b, loc, scale)  ->  ((x - loc) / scale) ** -b
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import nn
from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy.stats.location_scale import inline, leveled, standardized, where_supported


@inline
def logpdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the density at ``x``.

    >>> round(logpdf(2.0, 3.0).item(), 4)
    -1.674
    """
    y, b, scale = standardized("pareto.logpdf", x, b, loc, scale)
    logarithm = wnp.log(wnp.where(y < 1, 1, y))
    return wnp.where(y < 1, -np.inf, wnp.log(b) - (b + 1) * logarithm - wnp.log(scale))


@inline
def pdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at ``x``.

    >>> round(pdf(2.0, 3.0).item(), 4)
    0.1875
    """
    return wnp.exp(logpdf(x, b, loc, scale))


@inline
def cdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of at most ``x``.

    >>> round(cdf(2.0, 3.0).item(), 4)
    0.875
    """
    return -wnp.expm1(logsf(x, b, loc, scale))


@inline
def logcdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the probability of at most ``x``.

    >>> round(logcdf(2.0, 3.0).item(), 4)
    -0.1335
    """
    logarithm = -logsf(x, b, loc, scale)
    inside = logarithm > 0
    return where_supported(inside, nn.log1mexp(wnp.where(inside, logarithm, 1)), -np.inf, logarithm)


@inline
def sf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of more than ``x``.

    >>> round(sf(2.0, 3.0).item(), 4)
    0.125
    """
    return wnp.exp(logsf(x, b, loc, scale))


@inline
def logsf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the probability of more than ``x``.

    >>> round(logsf(2.0, 3.0).item(), 4)
    -2.0794
    """
    y, b, _ = standardized("pareto.logsf", x, b, loc, scale)
    return -b * wnp.log(wnp.where(y < 1, 1, y))


@inline
def ppf(q: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value that the probability ``q`` is not to exceed, the inverse of ``cdf``; NaN for ``q`` outside 0..1.

    >>> round(ppf(0.25, 3.0).item(), 4)
    1.1006
    """
    q, b, loc, scale = leveled("pareto.ppf", q, b, loc, scale)
    return loc + scale * wnp.exp(-wnp.log1p(-q) / b)
