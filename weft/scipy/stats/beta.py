"""weft.scipy.stats.beta: the beta distribution of exponents ``a`` and ``b``, from ``loc`` to ``loc + scale``.

cdf(x, a, b, loc, scale)  ->  betainc(a, b, (x - loc) / scale)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy import special
from weft.scipy.stats.location_scale import (
    inline,
    log_power,
    log_rest_power,
    standardized,
    where_supported,
    with_powers,
)


@inline
def logpdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the density at ``x``.

    >>> round(logpdf(0.5, 2.0, 1.0).item(), 4)
    0.0
    """
    y, a, b, scale = standardized("beta.logpdf", x, a, b, loc, scale)
    inside = (y >= 0) & (y <= 1)
    safe = wnp.where(inside, y, 0.5)
    density = log_power(a - 1, safe) + log_rest_power(b - 1, safe) - special.betaln(a, b) - wnp.log(scale)
    return where_supported(inside, density, -np.inf, y)


@inline
def pdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at ``x``.

    >>> round(pdf(0.5, 2.0, 1.0).item(), 4)
    1.0
    """
    y, a, b, scale = standardized("beta.pdf", x, a, b, loc, scale)
    inside = (y >= 0) & (y <= 1)
    safe = wnp.where(inside, y, 0.5)
    density = with_powers(-special.betaln(a, b) - wnp.log(scale), [(a - 1, safe)], [(b - 1, safe)])
    return where_supported(inside, density, 0, y)


@inline
def cdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of at most ``x``.

    >>> round(cdf(0.5, 2.0, 1.0).item(), 4)
    0.25
    """
    y, a, b, _ = standardized("beta.cdf", x, a, b, loc, scale)
    return special.betainc(a, b, wnp.clip(y, 0, 1))


@inline
def logcdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the probability of at most ``x``.

    >>> round(logcdf(0.5, 2.0, 1.0).item(), 4)
    -1.3863
    """
    return wnp.log(cdf(x, a, b, loc, scale))


@inline
def sf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The probability of more than ``x``.

    >>> round(sf(0.5, 2.0, 1.0).item(), 4)
    0.75
    """
    y, a, b, _ = standardized("beta.sf", x, a, b, loc, scale)
    return special.betainc(b, a, 1 - wnp.clip(y, 0, 1))


@inline
def logsf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the probability of more than ``x``.

    >>> round(logsf(0.5, 2.0, 1.0).item(), 4)
    -0.2877
    """
    return wnp.log(sf(x, a, b, loc, scale))
