"""weft.scipy.stats.gennorm: the generalised normal distribution, of density ``exp(-|x|**beta)`` up to a factor."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy import special
from weft.scipy.stats.location_scale import inline, promoted


@inline
def logpdf(x: Any, beta: Any) -> Array:
    """Logarithm of the density at ``x``.

    >>> round(logpdf(0.5, 2.0).item(), 4)
    -0.8224
    """
    x, beta = promoted("gennorm.logpdf", x, beta)
    density = wnp.log(0.5 * beta) - special.gammaln(1 / beta) - wnp.abs(x) ** beta
    return wnp.where(beta > 0, density, np.nan)


@inline
def pdf(x: Any, beta: Any) -> Array:
    """The density at ``x``.

    >>> round(pdf(0.5, 2.0).item(), 4)
    0.4394
    """
    return wnp.exp(logpdf(x, beta))


@inline
def cdf(x: Any, beta: Any) -> Array:
    """The probability of at most ``x``.

    >>> round(cdf(0.5, 2.0).item(), 4)
    0.7602
    """
    x, beta = promoted("gennorm.cdf", x, beta)
    tail = 0.5 * special.gammaincc(1 / beta, wnp.abs(x) ** beta)
    return wnp.where(beta > 0, wnp.where(x > 0, 1 - tail, tail), np.nan)
