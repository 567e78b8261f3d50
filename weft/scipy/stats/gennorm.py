"""weft.scipy.stats.gennorm: the generalised normal distribution, of density ``exp(-|x|**beta)`` up to a factor."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy import special
from weft.scipy.stats.distribution import Distribution

_GENNORM = Distribution(__name__, (0.5, 2.0))


@_GENNORM.plain(-0.8224)
def logpdf(x: Any, beta: Any) -> Array:
    density = wnp.log(0.5 * beta) - special.gammaln(1 / beta) - wnp.abs(x) ** beta
    return wnp.where(beta > 0, density, np.nan)


@_GENNORM.plain(0.7602)
def cdf(x: Any, beta: Any) -> Array:
    tail = 0.5 * special.gammaincc(1 / beta, wnp.abs(x) ** beta)
    return wnp.where(beta > 0, wnp.where(x > 0, 1 - tail, tail), np.nan)


pdf = _GENNORM.exp(logpdf, 0.4394)
