"""weft.scipy.stats.poisson: how many independent events happen, if ``mu`` are expected."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._base.array import Array
from weft.numpy import promotion
from weft.scipy import special
from weft.scipy.stats.distribution import Distribution, inline
from weft.scipy.stats.powers import is_whole, log_power, with_powers

_POISSON = Distribution(
    __name__, (2.0, 3.0), valid=lambda mu: mu >= 0, support=lambda k, mu: ((k >= 0) & is_whole(k), 0)
)


@_POISSON.mass(-1.4959)
def logpmf(k: Any, mu: Any, loc: Any = 0) -> Array:
    return log_power(k, mu) - special.gammaln(k + 1) - mu


@_POISSON.mass(0.224)
def pmf(k: Any, mu: Any, loc: Any = 0) -> Array:
    return with_powers(-special.gammaln(k + 1) - mu, [(k, mu)])


@_POISSON.discrete(0.4232)
def cdf(k: Any, mu: Any, loc: Any = 0) -> Array:
    """The probability of at most ``k``."""
    at_most = special.gammaincc(wnp.floor(wnp.where(k < 0, 0, k)) + 1, mu)
    return wnp.where(k < 0, 0, at_most)


_SUMMED = 100.0  # the largest mu whose entropy is summed term by term
_TERMS = 256  # beyond mu = 100 a term at 256 is below 1e-37
# H = log(2 pi e mu) / 2 + the sum of these over mu**1, mu**2, ...: Evans, Boersma, Blachman and Jagers (1988).
_ASYMPTOTIC = (-1 / 12, -1 / 24, -19 / 360, -9 / 80, -863 / 2520)


@inline
def entropy(mu: Any, loc: Any = 0) -> Array:
    """The entropy in nats: sums up to 100, an asymptotic series above; NaN for negative ``mu``.

    >>> round(entropy(3.0).item(), 4)
    1.9315
    """
    mu, _ = promotion.promote_args_inexact("poisson.entropy", mu, loc)
    summed = mu <= _SUMMED
    small = wnp.expand_dims(wnp.where(summed & (mu > 0), mu, 1), -1)
    k = promotion.with_rank(wnp.arange(_TERMS, dtype=promotion.dtype_of(mu)), small.ndim)
    logs = logpmf(k, small)
    total = -wnp.sum(wnp.exp(logs) * logs, axis=-1)
    large = wnp.where(summed, _SUMMED, mu)
    series = wnp.zeros_like(large)
    for coefficient in reversed(_ASYMPTOTIC):
        series = (series + coefficient) / large
    series = 0.5 * wnp.log(2 * np.pi * np.e * large) + series
    value = wnp.where(summed, wnp.where(mu == 0, 0, total), series)
    return wnp.where(mu >= 0, value, np.nan)
