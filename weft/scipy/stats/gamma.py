"""weft.scipy.stats.gamma: the gamma distribution of shape ``a``.

cdf(x, a, loc, scale)  ->  gammainc(a, (x - loc) / scale)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy import special
from weft.scipy.stats.distribution import Distribution
from weft.scipy.stats.powers import log_power, with_powers

_GAMMA = Distribution(__name__, (0.5, 2.0), support=lambda x, a: ((x >= 0) & (x < np.inf), 1))


@_GAMMA.density(-1.1931)
def logpdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return log_power(a - 1, x) - x - special.gammaln(a) - wnp.log(scale)


@_GAMMA.density(0.3033)
def pdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return with_powers(-x - special.gammaln(a) - wnp.log(scale), [(a - 1, x)])


@_GAMMA.continuous(0.0902)
def cdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return special.gammainc(a, wnp.where(x < 0, 0, x))


@_GAMMA.continuous(0.9098)
def sf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    return special.gammaincc(a, wnp.where(x < 0, 0, x))


logcdf = _GAMMA.log(cdf, -2.4057)
logsf = _GAMMA.log(sf, -0.0945)
