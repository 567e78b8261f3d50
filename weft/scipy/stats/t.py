"""weft.scipy.stats.t: Student's distribution of ``df`` degrees of freedom."""

from __future__ import annotations

from typing import Any

from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy import special
from weft.scipy.stats.distribution import Distribution

_T = Distribution(__name__, (0.5, 3.0))


@_T.continuous(-1.161)
def logpdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    half = df / 2
    normalizer = special.betaln(wnp.full_like(half, 0.5), half) + wnp.log(df) / 2 + wnp.log(scale)
    return -normalizer - (half + 0.5) * wnp.log1p(wnp.square(x) / df)


pdf = _T.exp(logpdf, 0.3132)
