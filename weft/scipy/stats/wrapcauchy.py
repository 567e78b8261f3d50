"""weft.scipy.stats.wrapcauchy: the Cauchy distribution wrapped around a circle, of concentration ``c`` in 0..1."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy.stats.distribution import Distribution

_WRAPCAUCHY = Distribution(__name__, (0.5, 0.3))


@_WRAPCAUCHY.plain(-1.3585)
def logpdf(x: Any, c: Any) -> Array:
    """Logarithm of the density at ``x``; -inf and 0 outside 0..2 pi."""
    inside = (x >= 0) & (x < 2 * np.pi)
    distance = wnp.square(1 - c) + 4 * c * wnp.square(wnp.sin(wnp.where(inside, x, 0) / 2))
    density = wnp.log((1 - c) * (1 + c)) - wnp.log(2 * np.pi * distance)
    outside = wnp.where(wnp.isnan(x), np.nan, -np.inf)
    return wnp.where((c > 0) & (c < 1), wnp.where(inside, density, outside), np.nan)


pdf = _WRAPCAUCHY.exp(logpdf, 0.257)
