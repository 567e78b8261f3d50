"""weft.scipy.stats.pareto: the Pareto distribution of exponent ``b``, from ``loc + scale`` upwards.

sf(x, b, loc, scale)  ->  ((x - loc) / scale) ** -b
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import nn
from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy.stats.distribution import Distribution

_PARETO = Distribution(__name__, (2.0, 3.0), support=lambda x, b: (x >= 1, 1))


@_PARETO.density(-1.674)
def logpdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return wnp.log(b) - (b + 1) * wnp.log(x) - wnp.log(scale)


@_PARETO.continuous(-2.0794)
def logsf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return -b * wnp.log(wnp.where(x < 1, 1, x))


@_PARETO.continuous(-0.1335)
def logcdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    logarithm = b * wnp.log(wnp.where(x < 1, 1, x))
    return wnp.where(logarithm <= 0, -np.inf, nn.log1mexp(wnp.where(logarithm <= 0, 1, logarithm)))


@_PARETO.inverse(1.1006)
def ppf(q: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return loc + scale * wnp.exp(-wnp.log1p(-q) / b)


pdf = _PARETO.exp(logpdf, 0.1875)
cdf = _PARETO.rest(logsf, 0.875)
sf = _PARETO.exp(logsf, 0.125)
