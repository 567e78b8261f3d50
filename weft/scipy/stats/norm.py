"""weft.scipy.stats.norm: density, distribution function and their logarithms and inverses of the normal distribution.

``loc`` is the mean and ``scale`` the standard deviation.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import dtypes
from weft import numpy as wnp
from weft._base.array import Array
from weft.numpy import promotion
from weft.scipy import special
from weft.scipy.stats.distribution import Distribution, where_valid

_NORM = Distribution(__name__, (0.5,))


@_NORM.plain(-1.0439)
def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    square = wnp.square(where_valid(scale > 0, scale))
    return (wnp.log(2 * np.pi * square) + wnp.square(x - loc) / square) / -2


@_NORM.continuous(0.6915)
def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return special.ndtr(x)


@_NORM.continuous(-0.3689)
def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the probability of at most ``x``, accurate far below the mean."""
    return special.log_ndtr(x)


@_NORM.inverse(-0.6745)
def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value that the probability ``q`` is not to exceed, as the default float: the inverse of ``cdf``."""
    return promotion.convert(special.ndtri(q) * scale + loc, dtypes.canonicalize_dtype(np.float64))


@_NORM.plain(0.6745)
def isf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return -ppf(q, -loc, scale)  # 1 - q would round a small q away


pdf = _NORM.exp(logpdf, 0.3521)
sf = _NORM.mirrored(cdf, 0.3085)
logsf = _NORM.mirrored(logcdf, -1.1759)
