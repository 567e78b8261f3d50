"""weft.scipy.stats.nbinom: how many trials fail before ``n`` succeed, each with probability ``p``."""

from __future__ import annotations

from typing import Any

from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy import special
from weft.scipy.stats.distribution import Distribution
from weft.scipy.stats.powers import is_whole, log_rest_power, with_powers

_NBINOM = Distribution(
    __name__,
    (2.0, 3.0, 0.25),
    valid=lambda n, p: (n > 0) & (p > 0) & (p <= 1),
    support=lambda k, n, p: ((k >= 0) & is_whole(k), 0),
)


def _log_ways(n: Any, k: Any) -> Any:
    return -special.betaln(n, k + 1) - wnp.log(k + n)


@_NBINOM.mass(-2.9425)
def logpmf(k: Any, n: Any, p: Any, loc: Any = 0) -> Array:
    return _log_ways(n, k) + n * wnp.log(p) + log_rest_power(k, p)


@_NBINOM.mass(0.0527)
def pmf(k: Any, n: Any, p: Any, loc: Any = 0) -> Array:
    return with_powers(_log_ways(n, k), [(n, p)], [(k, p)])
