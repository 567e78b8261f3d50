"""weft.scipy.stats.bernoulli: 1 with probability ``p``, else 0."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._base.array import Array
from weft.numpy import promotion
from weft.scipy.stats.location_scale import (
    counted,
    inline,
    is_share,
    log_power,
    log_rest_power,
    quantile,
    where_supported,
)


@inline
def logpmf(k: Any, p: Any, loc: Any = 0) -> Array:
    """Logarithm of the probability of ``k``.

    >>> round(logpmf(1.0, 0.25).item(), 4)
    -1.3863
    """
    k, p = counted("bernoulli.logpmf", k, p, loc, valid=is_share)
    inside = (k == 0) | (k == 1)
    k = wnp.where(inside | wnp.isnan(k), k, 0)
    return where_supported(inside, log_power(k, p) + log_rest_power(1 - k, p), -np.inf, k)


@inline
def pmf(k: Any, p: Any, loc: Any = 0) -> Array:
    """The probability of ``k``.

    >>> round(pmf(1.0, 0.25).item(), 4)
    0.25
    """
    k, p = counted("bernoulli.pmf", k, p, loc, valid=is_share)
    return where_supported((k == 0) | (k == 1), wnp.where(k == 1, p, 1 - p), 0, k)


@inline
def cdf(k: Any, p: Any) -> Array:
    """The probability of at most ``k``.

    >>> cdf(0.5, 0.25).item()
    0.75
    """
    k, p = promotion.promote_args_inexact("bernoulli.cdf", k, p)
    value = wnp.where(k < 0, 0, wnp.where(k < 1, 1 - p, 1))
    return wnp.where(is_share(p) & ~wnp.isnan(k), value, np.nan)


@inline
def ppf(q: Any, p: Any) -> Array:
    """0 or 1, the least value whose ``cdf`` is at least ``q``; NaN for ``q`` outside 0..1.

    >>> ppf(0.9, 0.25).item()
    1.0
    """
    q, p = promotion.promote_args_inexact("bernoulli.ppf", q, p)
    return wnp.where(is_share(p), quantile(q, wnp.where(q <= 1 - p, 0, 1)), np.nan)
