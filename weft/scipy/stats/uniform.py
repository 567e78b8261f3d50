"""weft.scipy.stats.uniform: density, distribution function and its inverse between ``loc`` and ``loc + scale``."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy.stats.distribution import Distribution, where_valid

_UNIFORM = Distribution(__name__, (0.25,))


@_UNIFORM.plain(-0.0)
def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    x = where_valid(scale > 0, x)
    inside = wnp.where(wnp.isnan(x - loc), np.nan, -wnp.log(scale))
    return wnp.where((x > loc + scale) | (x < loc), -np.inf, inside)


@_UNIFORM.plain(0.25)
def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    x = where_valid(scale > 0, x)
    above = (x >= loc + scale) & (x >= loc)
    return wnp.where(x < loc, 0, wnp.where(above, 1, (x - loc) / scale))


@_UNIFORM.inverse(0.25)
def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return q * scale + loc


pdf = _UNIFORM.exp(logpdf, 1.0)
