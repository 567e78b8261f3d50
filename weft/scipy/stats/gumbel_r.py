"""weft.scipy.stats.gumbel_r: the distribution of the largest of many values.

cdf(x, loc, scale)  ->  exp(-exp(-(x - loc) / scale))
"""

from __future__ import annotations

from typing import Any

from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy.stats.distribution import Distribution
from weft.scipy.stats.powers import log1mexp_of_exp

_GUMBEL_R = Distribution(__name__, (0.5,))


@_GUMBEL_R.continuous(-1.1065)
def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return -(x + wnp.exp(-x)) - wnp.log(scale)


@_GUMBEL_R.continuous(-0.6065)
def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return -wnp.exp(-x)


@_GUMBEL_R.continuous(-0.788)
def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return log1mexp_of_exp(-x)


@_GUMBEL_R.inverse(-0.3266)
def ppf(p: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return loc - scale * wnp.log(-wnp.log(p))


pdf = _GUMBEL_R.exp(logpdf, 0.3307)
cdf = _GUMBEL_R.exp(logcdf, 0.5452)
sf = _GUMBEL_R.rest(logcdf, 0.4548)
