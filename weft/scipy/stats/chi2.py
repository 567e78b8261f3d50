"""weft.scipy.stats.chi2: the distribution of a sum of ``df`` squares of normal values.

It is a gamma distribution of shape ``df / 2`` and twice the scale.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy.stats import gamma
from weft.scipy.stats.distribution import Distribution

_CHI2 = Distribution(__name__, (0.5, 3.0))


class _Function(Protocol):
    def __call__(self, x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array: ...


def _of_gamma(function: Callable[..., Array], gives: float) -> _Function:
    def call(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
        return function(x, wnp.true_divide(df, 2), loc, 2 * scale)

    call.__name__ = function.__name__
    return _CHI2.plain(gives)(call)


logpdf = _of_gamma(gamma.logpdf, -1.5155)
pdf = _of_gamma(gamma.pdf, 0.2197)
cdf = _of_gamma(gamma.cdf, 0.0811)
logcdf = _of_gamma(gamma.logcdf, -2.512)
sf = _of_gamma(gamma.sf, 0.9189)
logsf = _of_gamma(gamma.logsf, -0.0846)
