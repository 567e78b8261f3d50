"""weft.scipy.stats.beta: the beta distribution of exponents ``a`` and ``b``, from ``loc`` to ``loc + scale``.

cdf(x, a, b, loc, scale)  ->  betainc(a, b, (x - loc) / scale)
"""

from __future__ import annotations

from typing import Any

from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy import special
from weft.scipy.stats.distribution import Distribution
from weft.scipy.stats.powers import log_power, log_rest_power, with_powers

_BETA = Distribution(__name__, (0.5, 2.0, 1.0), support=lambda x, a, b: ((x >= 0) & (x <= 1), 0.5))


@_BETA.density(0.0)
def logpdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return log_power(a - 1, x) + log_rest_power(b - 1, x) - special.betaln(a, b) - wnp.log(scale)


@_BETA.density(1.0)
def pdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return with_powers(-special.betaln(a, b) - wnp.log(scale), [(a - 1, x)], [(b - 1, x)])


@_BETA.continuous(0.25)
def cdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return special.betainc(a, b, wnp.clip(x, 0, 1))


@_BETA.continuous(0.75)
def sf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return special.betainc(b, a, 1 - wnp.clip(x, 0, 1))


logcdf = _BETA.log(cdf, -1.3863)
logsf = _BETA.log(sf, -0.2877)
