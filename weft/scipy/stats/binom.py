"""weft.scipy.stats.binom: how many of ``n`` independent trials succeed, each with probability ``p``."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy import special
from weft.scipy.stats.location_scale import counted, inline, is_whole, log_choose, where_supported


@inline
def logpmf(k: Any, n: Any, p: Any, loc: Any = 0) -> Array:
    """Logarithm of the probability of ``k``.

    >>> round(logpmf(1.0, 4.0, 0.25).item(), 4)
    -0.863
    """
    k, n, p = counted("binom.logpmf", k, n, p, loc)
    inside = (k >= 0) & (k <= n) & is_whole(k)
    k = wnp.where(inside | wnp.isnan(k), k, 0)
    value = log_choose(n, k) + special.xlogy(k, p) + special.xlog1py(n - k, -p)
    return where_supported(inside, value, -np.inf, k)


@inline
def pmf(k: Any, n: Any, p: Any, loc: Any = 0) -> Array:
    """The probability of ``k``.

    >>> round(pmf(1.0, 4.0, 0.25).item(), 4)
    0.4219
    """
    return wnp.exp(logpmf(k, n, p, loc))
