"""weft.scipy.stats.betabinom: a binomial distribution whose probability is beta distributed."""

from __future__ import annotations

from typing import Any

from weft._base.array import Array
from weft.scipy import special
from weft.scipy.stats.distribution import Distribution, positive
from weft.scipy.stats.powers import is_whole, log_choose

_BETABINOM = Distribution(
    __name__,
    (1.0, 4.0, 2.0, 3.0),
    valid=lambda n, a, b: (n >= 0) & is_whole(n) & positive(a, b),
    support=lambda k, n, a, b: ((k >= 0) & (k <= n) & is_whole(k), 0),
)


@_BETABINOM.mass(-1.2528)
def logpmf(k: Any, n: Any, a: Any, b: Any, loc: Any = 0) -> Array:
    return log_choose(n, k) + special.betaln(k + a, n - k + b) - special.betaln(a, b)


pmf = _BETABINOM.exp(logpmf, 0.2857)
