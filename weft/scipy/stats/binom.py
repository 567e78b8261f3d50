"""weft.scipy.stats.binom: how many of ``n`` independent trials succeed, each with probability ``p``."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy.stats.location_scale import (
    counted,
    inline,
    is_share,
    is_whole,
    log_choose,
    log_power,
    log_rest_power,
    where_supported,
    with_powers,
)


def _valid(n: Any, p: Any) -> Any:
    return (n >= 0) & is_whole(n) & is_share(p)


@inline
def logpmf(k: Any, n: Any, p: Any, loc: Any = 0) -> Array:
    """Logarithm of the probability of ``k``.

    >>> round(logpmf(1.0, 4.0, 0.25).item(), 4)
    -0.863
    """
    k, n, p = counted("binom.logpmf", k, n, p, loc, valid=_valid)
    inside = (k >= 0) & (k <= n) & is_whole(k)
    k = wnp.where(inside | wnp.isnan(k), k, 0)
    value = log_choose(n, k) + log_power(k, p) + log_rest_power(n - k, p)
    return where_supported(inside, value, -np.inf, k)


@inline
def pmf(k: Any, n: Any, p: Any, loc: Any = 0) -> Array:
    """The probability of ``k``.

    >>> round(pmf(1.0, 4.0, 0.25).item(), 4)
    0.4219
    """
    k, n, p = counted("binom.pmf", k, n, p, loc, valid=_valid)
    inside = (k >= 0) & (k <= n) & is_whole(k)
    k = wnp.where(inside | wnp.isnan(k), k, 0)
    return where_supported(inside, with_powers(log_choose(n, k), [(k, p)], [(n - k, p)]), 0, k)
