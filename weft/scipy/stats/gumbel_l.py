"""weft.scipy.stats.gumbel_l: the distribution of the smallest of many values.

sf(x, loc, scale)  ->  exp(-exp((x - loc) / scale))
"""

from __future__ import annotations

from typing import Any

from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy.stats.distribution import Distribution
from weft.scipy.stats.powers import log1mexp_of_exp

_GUMBEL_L = Distribution(__name__, (0.5,))


@_GUMBEL_L.continuous(-1.1487)
def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return x - wnp.exp(x) - wnp.log(scale)


@_GUMBEL_L.continuous(-0.2136)
def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return log1mexp_of_exp(x)


@_GUMBEL_L.continuous(-1.6487)
def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return -wnp.exp(x)


@_GUMBEL_L.inverse(-1.2459)
def ppf(p: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return loc + scale * wnp.log(-wnp.log1p(-p))


pdf = _GUMBEL_L.exp(logpdf, 0.317)
cdf = _GUMBEL_L.rest(logsf, 0.8077)
sf = _GUMBEL_L.exp(logsf, 0.1923)
