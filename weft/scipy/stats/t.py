"""weft.scipy.stats.t: Student's distribution of ``df`` degrees of freedom.

logpdf(x, df)  ->  -betaln(1/2, df/2) - log(df) / 2 - (df + 1) / 2 * log1p(x**2 / df)
"""

from __future__ import annotations

from typing import Any

from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy import special
from weft.scipy.stats.location_scale import inline, standardized


@inline
def logpdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the density at ``x``.

    >>> round(logpdf(0.5, 3.0).item(), 4)
    -1.161
    """
    y, df, scale = standardized("t.logpdf", x, df, loc, scale)
    half = df / 2
    normalizer = special.betaln(wnp.full_like(half, 0.5), half) + wnp.log(df) / 2 + wnp.log(scale)
    return -normalizer - (half + 0.5) * wnp.log1p(wnp.square(y) / df)


@inline
def pdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at ``x``.

    >>> round(pdf(0.5, 3.0).item(), 4)
    0.3132
    """
    return wnp.exp(logpdf(x, df, loc, scale))
