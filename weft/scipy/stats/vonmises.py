"""weft.scipy.stats.vonmises: the normal distribution of angles, of concentration ``kappa``."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy import special
from weft.scipy.stats.distribution import Distribution

_VONMISES = Distribution(__name__, (0.5, 2.0))


@_VONMISES.plain(-0.9067)
def logpdf(x: Any, kappa: Any) -> Array:
    """Logarithm of the density at ``x``; NaN for ``kappa`` below 0."""
    density = -2 * kappa * wnp.square(wnp.sin(x / 2)) - wnp.log(2 * np.pi * special.i0e(kappa))
    return wnp.where(kappa >= 0, density, np.nan)


pdf = _VONMISES.exp(logpdf, 0.4039)
