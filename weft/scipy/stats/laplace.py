"""weft.scipy.stats.laplace: the double exponential distribution around ``loc``."""

from __future__ import annotations

from typing import Any

from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy.stats.distribution import Distribution

_LAPLACE = Distribution(__name__, (0.5,))


@_LAPLACE.continuous(-1.1931)
def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return -wnp.abs(x) - wnp.log(2 * scale)


@_LAPLACE.continuous(0.6967)
def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    tail = 0.5 * wnp.exp(-wnp.abs(x))
    return wnp.where(x > 0, 1 - tail, tail)


pdf = _LAPLACE.exp(logpdf, 0.3033)
