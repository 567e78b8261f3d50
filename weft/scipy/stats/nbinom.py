"""weft.scipy.stats.nbinom: how many trials fail before ``n`` succeed, each with probability ``p``."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy import special
from weft.scipy.stats.location_scale import counted, inline, is_whole, log_rest_power, where_supported, with_powers


def _valid(n: Any, p: Any) -> Any:
    return (n > 0) & (p > 0) & (p <= 1)


@inline
def logpmf(k: Any, n: Any, p: Any, loc: Any = 0) -> Array:
    """Logarithm of the probability of ``k``.

    >>> round(logpmf(2.0, 3.0, 0.25).item(), 4)
    -2.9425
    """
    k, n, p = counted("nbinom.logpmf", k, n, p, loc, valid=_valid)
    inside = (k >= 0) & is_whole(k)
    k = wnp.where(inside | wnp.isnan(k), k, 0)
    ways = -special.betaln(n, k + 1) - wnp.log(k + n)
    return where_supported(inside, ways + n * wnp.log(p) + log_rest_power(k, p), -np.inf, k)


@inline
def pmf(k: Any, n: Any, p: Any, loc: Any = 0) -> Array:
    """The probability of ``k``.

    >>> round(pmf(2.0, 3.0, 0.25).item(), 4)
    0.0527
    """
    k, n, p = counted("nbinom.pmf", k, n, p, loc, valid=_valid)
    inside = (k >= 0) & is_whole(k)
    k = wnp.where(inside | wnp.isnan(k), k, 0)
    ways = -special.betaln(n, k + 1) - wnp.log(k + n)
    return where_supported(inside, with_powers(ways, [(n, p)], [(k, p)]), 0, k)
