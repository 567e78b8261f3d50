"""weft.scipy.stats.truncnorm: a normal distribution cut off at ``a`` and ``b`` standard deviations from ``loc``.

The mass between two places is a difference of distribution functions, taken in logarithms and from the nearer tail.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import nn
from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy import special
from weft.scipy.stats import norm
from weft.scipy.stats.distribution import Distribution

_TRUNCNORM = Distribution(
    __name__,
    (0.5, -1.0, 2.0),
    valid=lambda a, b: a < b,
    support=lambda x, a, b: ((x >= a) & (x <= b), 0),
)


def _log_mass(a: Any, b: Any) -> Any:
    """Logarithm of the probability of a standard normal value between a and b; -inf where a is b."""
    right = a > 0
    low, high = wnp.where(right, -b, a), wnp.where(right, -a, b)  # mirrored: at least one of them is not above 0
    left = high <= 0
    upper, lower = special.log_ndtr(wnp.where(left, high, -1)), special.log_ndtr(wnp.where(left, low, -2))
    gap = upper - lower
    empty = gap <= 0
    tail = wnp.where(empty, -np.inf, upper + nn.log1mexp(wnp.where(empty, 1, gap)))
    low, high = wnp.where(left, -1, low), wnp.where(left, 1, high)
    return wnp.where(left, tail, wnp.log1p(-special.ndtr(low) - special.ndtr(-high)))


@_TRUNCNORM.density(-0.8438)
def logpdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return norm.logpdf(x) - wnp.log(scale) - _log_mass(a, b)


@_TRUNCNORM.continuous(-0.4294)
def logcdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    inside = wnp.clip(x, a, b)
    share = _log_mass(a, inside) - _log_mass(a, b)
    rest = _log_mass(inside, b) - _log_mass(a, b)
    near_one = share > -0.1
    share = wnp.where(near_one, wnp.log1p(-wnp.exp(wnp.where(near_one, rest, -1))), share)
    found = wnp.where(x <= a, -np.inf, wnp.where(x >= b, 0, share))
    return wnp.where(wnp.isnan(x), np.nan, found)


@_TRUNCNORM.plain(-1.0523)
def logsf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return logcdf(-x, -b, -a, -loc, scale)


pdf = _TRUNCNORM.exp(logpdf, 0.4301)
cdf = _TRUNCNORM.exp(logcdf, 0.6509)
sf = _TRUNCNORM.exp(logsf, 0.3491)
