"""weft.scipy.stats.bernoulli: 1 with probability ``p``, otherwise 0."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._base.array import Array
from weft.scipy.stats.distribution import Distribution, is_probability, quantile
from weft.scipy.stats.powers import log_power, log_rest_power

_BERNOULLI = Distribution(__name__, (1.0, 0.25), is_probability, lambda k, p: ((k == 0) | (k == 1), 0))


@_BERNOULLI.mass(-1.3863)
def logpmf(k: Any, p: Any, loc: Any = 0) -> Array:
    return log_power(k, p) + log_rest_power(1 - k, p)


@_BERNOULLI.mass(0.25)
def pmf(k: Any, p: Any, loc: Any = 0) -> Array:
    return wnp.where(k == 1, p, 1 - p)


@_BERNOULLI.plain(1.0)
def cdf(k: Any, p: Any) -> Array:
    """The probability of at most ``k``."""
    value = wnp.where(k < 0, 0, wnp.where(k < 1, 1 - p, 1))
    return wnp.where(is_probability(p) & ~wnp.isnan(k), value, np.nan)


@_BERNOULLI.plain(0.0)
def ppf(q: Any, p: Any) -> Array:
    """0 or 1, the least value whose ``cdf`` is at least ``q``; NaN for ``q`` outside 0..1."""
    return wnp.where(is_probability(p), quantile(q, wnp.where(q <= 1 - p, 0, 1)), np.nan)
