"""weft.scipy.stats.vonmises: the normal distribution of angles, of concentration ``kappa``.

logpdf(x, kappa)  ->  -2 kappa sin(x / 2)**2 - log(2 pi i0e(kappa))
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._base.array import Array
from weft.numpy import promotion
from weft.scipy import special
from weft.scipy.stats.location_scale import inline


@inline
def logpdf(x: Any, kappa: Any) -> Array:
    """Logarithm of the density at ``x``; NaN for ``kappa`` below 0.

    >>> round(logpdf(0.5, 2.0).item(), 4)
    -0.9067
    """
    x, kappa = promotion.promote_args_inexact("vonmises.logpdf", x, kappa)
    density = -2 * kappa * wnp.square(wnp.sin(x / 2)) - wnp.log(2 * np.pi * special.i0e(kappa))
    return wnp.where(kappa >= 0, density, np.nan)


@inline
def pdf(x: Any, kappa: Any) -> Array:
    """The density at ``x``; NaN for ``kappa`` below 0.

    >>> round(pdf(0.5, 2.0).item(), 4)
    0.4039
    """
    return wnp.exp(logpdf(x, kappa))
