"""The table of discrete distributions: a row states what a distribution has of its own (see ``distribution``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._base.array import Array
from weft.numpy import promotion
from weft.scipy import special
from weft.scipy.stats.distribution import Distribution, Plain, is_probability, positive, quantile
from weft.scipy.stats.powers import is_whole, log_choose, log_power, log_rest_power, with_powers


def _bernoulli_cdf(k: Any, p: Any) -> Array:
    value = wnp.where(k < 0, 0, wnp.where(k < 1, 1 - p, 1))
    return wnp.where(is_probability(p) & ~wnp.isnan(k), value, np.nan)


def _bernoulli_ppf(q: Any, p: Any) -> Array:
    """0 or 1, the least value whose ``cdf`` is at least ``q``; NaN for ``q`` outside 0..1."""
    return wnp.where(is_probability(p), quantile(q, wnp.where(q <= 1 - p, 0, 1)), np.nan)


BERNOULLI = Distribution(
    "bernoulli",
    (1.0, 0.25),
    valid=is_probability,
    support=lambda k, p: ((k == 0) | (k == 1), 0),
    logpmf=lambda k, p, loc=0: log_power(k, p) + log_rest_power(1 - k, p),
    pmf=lambda k, p, loc=0: wnp.where(k == 1, p, 1 - p),
    cdf=_bernoulli_cdf,
    ppf=_bernoulli_ppf,
    gives={"logpmf": -1.3863, "pmf": 0.25, "cdf": 1.0, "ppf": 0.0},
)

BETABINOM = Distribution(
    "betabinom",
    (1.0, 4.0, 2.0, 3.0),
    valid=lambda n, a, b: (n >= 0) & is_whole(n) & positive(a, b),
    support=lambda k, n, a, b: ((k >= 0) & (k <= n) & is_whole(k), 0),
    logpmf=lambda k, n, a, b, loc=0: log_choose(n, k) + special.betaln(k + a, n - k + b) - special.betaln(a, b),
    gives={"logpmf": -1.2528, "pmf": 0.2857},
)

BINOM = Distribution(
    "binom",
    (1.0, 4.0, 0.25),
    valid=lambda n, p: (n >= 0) & is_whole(n) & is_probability(p),
    support=lambda k, n, p: ((k >= 0) & (k <= n) & is_whole(k), 0),
    logpmf=lambda k, n, p, loc=0: log_choose(n, k) + log_power(k, p) + log_rest_power(n - k, p),
    pmf=lambda k, n, p, loc=0: with_powers(log_choose(n, k), [(k, p)], [(n - k, p)]),
    gives={"logpmf": -0.863, "pmf": 0.4219},
)

GEOM = Distribution(
    "geom",
    (2.0, 0.25),
    valid=lambda p: (p > 0) & (p <= 1),
    support=lambda k, p: ((k >= 1) & is_whole(k), 1),
    logpmf=lambda k, p, loc=0: log_rest_power(k - 1, p) + wnp.log(p),
    pmf=lambda k, p, loc=0: with_powers(wnp.log(p), [], [(k - 1, p)]),
    gives={"logpmf": -1.674, "pmf": 0.1875},
)


def _log_ways(n: Any, k: Any) -> Any:
    return -special.betaln(n, k + 1) - wnp.log(k + n)


NBINOM = Distribution(
    "nbinom",
    (2.0, 3.0, 0.25),
    valid=lambda n, p: (n > 0) & (p > 0) & (p <= 1),
    support=lambda k, n, p: ((k >= 0) & is_whole(k), 0),
    logpmf=lambda k, n, p, loc=0: _log_ways(n, k) + n * wnp.log(p) + log_rest_power(k, p),
    pmf=lambda k, n, p, loc=0: with_powers(_log_ways(n, k), [(n, p)], [(k, p)]),
    gives={"logpmf": -2.9425, "pmf": 0.0527},
)

_SUMMED = 100.0  # the largest mu whose entropy is summed term by term
_TERMS = 256  # beyond mu = 100 a term at 256 is below 1e-37
# H = log(2 pi e mu) / 2 + the sum of these over mu**1, mu**2, ...: Evans, Boersma, Blachman and Jagers (1988).
_ASYMPTOTIC = (-1 / 12, -1 / 24, -19 / 360, -9 / 80, -863 / 2520)


def _poisson_entropy(mu: Any, loc: Any = 0) -> Array:
    """The entropy in nats: sums up to 100, an asymptotic series above; NaN for negative ``mu``."""
    summed = mu <= _SUMMED
    small = wnp.expand_dims(wnp.where(summed & (mu > 0), mu, 1), -1)
    k = promotion.with_rank(wnp.arange(_TERMS, dtype=promotion.dtype_of(mu)), small.ndim)
    logs = POISSON.functions["logpmf"](k, small)
    total = -wnp.sum(wnp.exp(logs) * logs, axis=-1)
    large = wnp.where(summed, _SUMMED, mu)
    series = wnp.zeros_like(large)
    for coefficient in reversed(_ASYMPTOTIC):
        series = (series + coefficient) / large
    series = 0.5 * wnp.log(2 * np.pi * np.e * large) + series
    value = wnp.where(summed, wnp.where(mu == 0, 0, total), series)
    return wnp.where(mu >= 0, value, np.nan)


POISSON = Distribution(
    "poisson",
    (2.0, 3.0),
    valid=lambda mu: mu >= 0,
    support=lambda k, mu: ((k >= 0) & is_whole(k), 0),
    logpmf=lambda k, mu, loc=0: log_power(k, mu) - special.gammaln(k + 1) - mu,
    pmf=lambda k, mu, loc=0: with_powers(-special.gammaln(k + 1) - mu, [(k, mu)]),
    cdf=lambda k, mu, loc=0: wnp.where(k < 0, 0, special.gammaincc(wnp.floor(wnp.where(k < 0, 0, k)) + 1, mu)),
    entropy=Plain(_poisson_entropy),
    gives={"logpmf": -1.4959, "pmf": 0.224, "cdf": 0.4232, "entropy": 1.9315},
)
