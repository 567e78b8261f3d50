"""weft.scipy.stats.betabinom: a binomial distribution whose probability is beta distributed."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy import special
from weft.scipy.stats.location_scale import counted, inline, is_whole, log_choose, positive, where_supported


def _valid(n: Any, a: Any, b: Any) -> Any:
    return (n >= 0) & is_whole(n) & positive(a, b)


@inline
def logpmf(k: Any, n: Any, a: Any, b: Any, loc: Any = 0) -> Array:
    """Logarithm of the probability of ``k``.

    >>> round(logpmf(1.0, 4.0, 2.0, 3.0).item(), 4)
    -1.2528
    """
    k, n, a, b = counted("betabinom.logpmf", k, n, a, b, loc, valid=_valid)
    inside = (k >= 0) & (k <= n) & is_whole(k)
    k = wnp.where(inside | wnp.isnan(k), k, 0)
    value = log_choose(n, k) + special.betaln(k + a, n - k + b) - special.betaln(a, b)
    return where_supported(inside, value, -np.inf, k)


@inline
def pmf(k: Any, n: Any, a: Any, b: Any, loc: Any = 0) -> Array:
    """The probability of ``k``.

    >>> round(pmf(1.0, 4.0, 2.0, 3.0).item(), 4)
    0.2857
    """
    return wnp.exp(logpmf(k, n, a, b, loc))
