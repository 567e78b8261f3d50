"""weft.scipy.stats.logistic: the logistic distribution, whose distribution function is ``expit``."""

from __future__ import annotations

from typing import Any

from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy import special
from weft.scipy.stats.distribution import Distribution

_LOGISTIC = Distribution(__name__, (0.5,))


@_LOGISTIC.continuous(-1.4482)
def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    size = wnp.abs(x)
    return -size - 2 * wnp.log1p(wnp.exp(-size)) - wnp.log(scale)


@_LOGISTIC.continuous(0.6225)
def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return special.expit(x)


@_LOGISTIC.continuous(0.3775)
def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return special.expit(-x)


@_LOGISTIC.inverse(-1.0986)
def ppf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return loc + scale * special.logit(x)


@_LOGISTIC.inverse(1.0986)
def isf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return loc - scale * special.logit(x)


pdf = _LOGISTIC.exp(logpdf, 0.235)
