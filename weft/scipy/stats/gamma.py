"""weft.scipy.stats.gamma: the gamma distribution of shape ``a``.

cdf(x, a, loc, scale)  ->  gammainc(a, (x - loc) / scale)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy import special
from weft.scipy.stats.location_scale import inline, log_power, standardized, where_supported, with_powers


@inline
def logpdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the density at ``x``.

    >>> round(logpdf(0.5, 2.0).item(), 4)
    -1.1931
    """
    y, a, scale = standardized("gamma.logpdf", x, a, loc, scale)
    inside = y >= 0
    safe = wnp.where(inside, y, 1)
    density = log_power(a - 1, safe) - safe - special.gammaln(a) - wnp.log(scale)
    density = wnp.where(safe == np.inf, -np.inf, density)
    return where_supported(inside, density, -np.inf, y)


@inline
def pdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at ``x``.

    >>> round(pdf(0.5, 2.0).item(), 4)
    0.3033
    """
    y, a, scale = standardized("gamma.pdf", x, a, loc, scale)
    inside = (y >= 0) & (y < np.inf)
    safe = wnp.where(inside, y, 1)
    density = with_powers(-safe - special.gammaln(a) - wnp.log(scale), [(a - 1, safe)])
    return where_supported(inside, density, 0, y)


@inline
def cdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of at most ``x``.

    >>> round(cdf(0.5, 2.0).item(), 4)
    0.0902
    """
    y, a, _ = standardized("gamma.cdf", x, a, loc, scale)
    return special.gammainc(a, wnp.where(y < 0, 0, y))


@inline
def logcdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the probability of at most ``x``.

    >>> round(logcdf(0.5, 2.0).item(), 4)
    -2.4057
    """
    return wnp.log(cdf(x, a, loc, scale))


@inline
def sf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of more than ``x``.

    >>> round(sf(0.5, 2.0).item(), 4)
    0.9098
    """
    y, a, _ = standardized("gamma.sf", x, a, loc, scale)
    return special.gammaincc(a, wnp.where(y < 0, 0, y))


@inline
def logsf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the probability of more than ``x``.

    >>> round(logsf(0.5, 2.0).item(), 4)
    -0.0945
    """
    return wnp.log(sf(x, a, loc, scale))
