"""weft.scipy.stats.bernoulli: 1 with probability ``p``, else 0."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._base.array import Array
from weft.numpy import promotion
from weft.scipy.stats.location_scale import counted, inline, quantile, where_supported


def _valid(p: Any) -> Any:
    return (p >= 0) & (p <= 1)


@inline
def logpmf(k: Any, p: Any, loc: Any = 0) -> Array:
    """Logarithm of the probability of ``k``.

    >>> round(logpmf(1.0, 0.25).item(), 4)
    -1.3863
    """
    k, p = counted("bernoulli.logpmf", k, p, loc)
    value = wnp.where(k == 1, wnp.log(p), wnp.log1p(-p))
    return wnp.where(_valid(p), where_supported((k == 0) | (k == 1), value, -np.inf, k), np.nan)


@inline
def pmf(k: Any, p: Any, loc: Any = 0) -> Array:
    """The probability of ``k``.

    >>> round(pmf(1.0, 0.25).item(), 4)
    0.25
    """
    return wnp.exp(logpmf(k, p, loc))


@inline
def cdf(k: Any, p: Any) -> Array:
    """The probability of at most ``k``.

    >>> cdf(0.5, 0.25).item()
    0.75
    """
    k, p = promotion.promote_args_inexact("bernoulli.cdf", k, p)
    value = wnp.where(k < 0, 0, wnp.where(k < 1, 1 - p, 1))
    return wnp.where(_valid(p) & ~wnp.isnan(k), value, np.nan)


@inline
def ppf(q: Any, p: Any) -> Array:
    """0 or 1, the least value whose ``cdf`` is at least ``q``; NaN for ``q`` outside 0..1.

    >>> ppf(0.9, 0.25).item()
    1.0
    """
    q, p = promotion.promote_args_inexact("bernoulli.ppf", q, p)
    return wnp.where(_valid(p), quantile(q, wnp.where(q <= 1 - p, 0, 1)), np.nan)
