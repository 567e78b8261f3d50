"""weft.scipy.stats.expon: the exponential distribution from ``loc`` upwards; ``scale`` is its mean."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import nn
from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy.stats.distribution import Distribution

_EXPON = Distribution(__name__, (0.5,), support=lambda x: (x >= 0, 0))


@_EXPON.density(-0.5)
def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return -x - wnp.log(scale)


@_EXPON.continuous(0.3935)
def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return wnp.where(x < 0, 0, -wnp.expm1(-x))


@_EXPON.continuous(-0.9328)
def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return wnp.where(x <= 0, -np.inf, nn.log1mexp(wnp.where(x <= 0, 1, x)))


@_EXPON.continuous(0.6065)
def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return wnp.where(x < 0, 1, wnp.exp(-x))


@_EXPON.continuous(-0.5)
def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return wnp.where(x < 0, 0, -x)


@_EXPON.inverse(0.2877)
def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return loc - scale * wnp.log1p(-q)


pdf = _EXPON.exp(logpdf, 0.6065)
