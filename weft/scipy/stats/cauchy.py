"""weft.scipy.stats.cauchy: the Cauchy distribution around ``loc``; ``scale`` is half the distance of its quartiles.

Tails are computed from arctan2, without taking them from 1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy.stats.distribution import Distribution, quantile

_CAUCHY = Distribution(__name__, (0.5,))


def _cotangent(q: Any) -> Any:
    """The cotangent of pi q, for q from 0 to 1."""
    low = q < 0.5
    angle = np.pi * wnp.abs(wnp.where(low, q, 1 - q))
    ratio = wnp.cos(angle) / wnp.sin(angle)
    return quantile(q, wnp.where(q == 0.5, 0, wnp.where(low, ratio, -ratio)))


@_CAUCHY.continuous(-1.3679)
def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    size = wnp.abs(x)
    far = size > 1e8  # where 1 + x**2 is x**2, which may overflow
    squares = wnp.where(far, 2 * wnp.log(wnp.where(far, size, 1)), wnp.log1p(wnp.square(wnp.where(far, 0, x))))
    return -math.log(math.pi) - wnp.log(scale) - squares


@_CAUCHY.continuous(0.6476)
def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return wnp.arctan2(wnp.ones_like(x), -x) / np.pi


@_CAUCHY.continuous(-0.4345)
def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    low = wnp.arctan2(wnp.ones_like(x), wnp.abs(x)) / np.pi  # the smaller tail
    return wnp.where(x > 0, wnp.log1p(-low), wnp.log(low))


@_CAUCHY.inverse(-1.0)
def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return loc - scale * _cotangent(q)


@_CAUCHY.inverse(1.0)
def isf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return loc + scale * _cotangent(q)


pdf = _CAUCHY.exp(logpdf, 0.2546)
sf = _CAUCHY.mirrored(cdf, 0.3524)
logsf = _CAUCHY.mirrored(logcdf, -1.0429)
