"""weft.scipy.stats.binom: how many of ``n`` independent trials succeed, each with probability ``p``."""

from __future__ import annotations

from typing import Any

from weft._base.array import Array
from weft.scipy.stats.distribution import Distribution, is_probability
from weft.scipy.stats.powers import is_whole, log_choose, log_power, log_rest_power, with_powers

_BINOM = Distribution(
    __name__,
    (1.0, 4.0, 0.25),
    valid=lambda n, p: (n >= 0) & is_whole(n) & is_probability(p),
    support=lambda k, n, p: ((k >= 0) & (k <= n) & is_whole(k), 0),
)


@_BINOM.mass(-0.863)
def logpmf(k: Any, n: Any, p: Any, loc: Any = 0) -> Array:
    return log_choose(n, k) + log_power(k, p) + log_rest_power(n - k, p)


@_BINOM.mass(0.4219)
def pmf(k: Any, n: Any, p: Any, loc: Any = 0) -> Array:
    return with_powers(log_choose(n, k), [(k, p)], [(n - k, p)])
