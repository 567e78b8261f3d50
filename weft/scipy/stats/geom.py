"""weft.scipy.stats.geom: how many trials it takes until one succeeds, each with probability ``p``."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy.stats.location_scale import counted, inline, is_whole, log_rest_power, where_supported, with_powers


def _valid(p: Any) -> Any:
    return (p > 0) & (p <= 1)


@inline
def logpmf(k: Any, p: Any, loc: Any = 0) -> Array:
    """Logarithm of the probability of ``k``.

    >>> round(logpmf(2.0, 0.25).item(), 4)
    -1.674
    """
    k, p = counted("geom.logpmf", k, p, loc, valid=_valid)
    inside = (k >= 1) & is_whole(k)
    value = log_rest_power(wnp.where(inside, k, 1) - 1, p) + wnp.log(p)
    return where_supported(inside, value, -np.inf, k)


@inline
def pmf(k: Any, p: Any, loc: Any = 0) -> Array:
    """The probability of ``k``.

    >>> round(pmf(2.0, 0.25).item(), 4)
    0.1875
    """
    k, p = counted("geom.pmf", k, p, loc, valid=_valid)
    inside = (k >= 1) & is_whole(k)
    return where_supported(inside, with_powers(wnp.log(p), [], [(wnp.where(inside, k, 1) - 1, p)]), 0, k)
