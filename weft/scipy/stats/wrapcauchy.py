"""weft.scipy.stats.wrapcauchy: the Cauchy distribution wrapped around a circle, of concentration ``c`` in 0..1."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._base.array import Array
from weft.numpy import promotion
from weft.scipy.stats.location_scale import inline, where_supported


@inline
def logpdf(x: Any, c: Any) -> Array:
    """Logarithm of the density at ``x``; -inf and 0 outside 0..2 pi.

    >>> round(logpdf(0.5, 0.3).item(), 4)
    -1.3585
    """
    x, c = promotion.promote_args_inexact("wrapcauchy.logpdf", x, c)
    inside = (x >= 0) & (x < 2 * np.pi)
    distance = wnp.square(1 - c) + 4 * c * wnp.square(wnp.sin(wnp.where(inside, x, 0) / 2))
    density = wnp.log((1 - c) * (1 + c)) - wnp.log(2 * np.pi * distance)
    return wnp.where((c > 0) & (c < 1), where_supported(inside, density, -np.inf, x), np.nan)


@inline
def pdf(x: Any, c: Any) -> Array:
    """The density at ``x``; -inf and 0 outside 0..2 pi.

    >>> round(pdf(0.5, 0.3).item(), 4)
    0.257
    """
    return wnp.exp(logpdf(x, c))
