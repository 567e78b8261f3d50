"""weft.scipy.stats.geom: how many trials it takes until one succeeds, each with probability ``p``."""

from __future__ import annotations

from typing import Any

from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy.stats.distribution import Distribution
from weft.scipy.stats.powers import is_whole, log_rest_power, with_powers

_GEOM = Distribution(
    __name__, (2.0, 0.25), valid=lambda p: (p > 0) & (p <= 1), support=lambda k, p: ((k >= 1) & is_whole(k), 1)
)


@_GEOM.mass(-1.674)
def logpmf(k: Any, p: Any, loc: Any = 0) -> Array:
    return log_rest_power(k - 1, p) + wnp.log(p)


@_GEOM.mass(0.1875)
def pmf(k: Any, p: Any, loc: Any = 0) -> Array:
    return with_powers(wnp.log(p), [], [(k - 1, p)])
