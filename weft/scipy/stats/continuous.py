"""The table of continuous distributions: a row states what a distribution has of its own (see ``distribution``).

A formula of more than a line is a function above the rows. ``Plain`` formulas see their operands as users give them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import dtypes, nn
from weft import numpy as wnp
from weft._base.array import Array
from weft.numpy import promotion
from weft.scipy import special
from weft.scipy.stats.distribution import Distribution, Plain, exp, mirrored, quantile, rest, where_valid
from weft.scipy.stats.powers import log1mexp_of_exp, log_power, log_rest_power, with_powers

BETA = Distribution(
    "beta",
    (0.5, 2.0, 1.0),
    support=lambda x, a, b: ((x >= 0) & (x <= 1), 0.5),
    logpdf=lambda x, a, b, loc=0, scale=1: (
        log_power(a - 1, x) + log_rest_power(b - 1, x) - special.betaln(a, b) - wnp.log(scale)
    ),
    pdf=lambda x, a, b, loc=0, scale=1: with_powers(-special.betaln(a, b) - wnp.log(scale), [(a - 1, x)], [(b - 1, x)]),
    cdf=lambda x, a, b, loc=0, scale=1: special.betainc(a, b, wnp.clip(x, 0, 1)),
    sf=lambda x, a, b, loc=0, scale=1: special.betainc(b, a, 1 - wnp.clip(x, 0, 1)),
    gives={"logpdf": 0.0, "pdf": 1.0, "cdf": 0.25, "logcdf": -1.3863, "sf": 0.75, "logsf": -0.2877},
)


def _cauchy_logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    size = wnp.abs(x)
    far = size > 1e8  # where 1 + x**2 is x**2, which may overflow
    squares = wnp.where(far, 2 * wnp.log(wnp.where(far, size, 1)), wnp.log1p(wnp.square(wnp.where(far, 0, x))))
    return -math.log(math.pi) - wnp.log(scale) - squares


def _cauchy_logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    low = wnp.arctan2(wnp.ones_like(x), wnp.abs(x)) / np.pi  # the smaller tail, without taking it from 1
    return wnp.where(x > 0, wnp.log1p(-low), wnp.log(low))


def _cotangent(q: Any) -> Any:
    """The cotangent of pi q, for q from 0 to 1."""
    low = q < 0.5
    angle = np.pi * wnp.abs(wnp.where(low, q, 1 - q))
    ratio = wnp.cos(angle) / wnp.sin(angle)
    return quantile(q, wnp.where(q == 0.5, 0, wnp.where(low, ratio, -ratio)))


CAUCHY = Distribution(
    "cauchy",
    (0.5,),
    logpdf=_cauchy_logpdf,
    cdf=lambda x, loc=0, scale=1: wnp.arctan2(wnp.ones_like(x), -x) / np.pi,
    logcdf=_cauchy_logcdf,
    sf=mirrored("cdf"),
    logsf=mirrored("logcdf"),
    ppf=lambda q, loc=0, scale=1: loc - scale * _cotangent(q),
    isf=lambda q, loc=0, scale=1: loc + scale * _cotangent(q),
    gives={
        "logpdf": -1.3679, "pdf": 0.2546, "cdf": 0.6476, "logcdf": -0.4345, "sf": 0.3524, "logsf": -1.0429,
        "ppf": -1.0, "isf": 1.0,
    },
)  # fmt: skip


EXPON = Distribution(
    "expon",
    (0.5,),
    support=lambda x: (x >= 0, 0),
    logpdf=lambda x, loc=0, scale=1: -x - wnp.log(scale),
    cdf=lambda x, loc=0, scale=1: wnp.where(x < 0, 0, -wnp.expm1(-x)),
    logcdf=lambda x, loc=0, scale=1: wnp.where(x <= 0, -np.inf, nn.log1mexp(wnp.where(x <= 0, 1, x))),
    sf=lambda x, loc=0, scale=1: wnp.where(x < 0, 1, wnp.exp(-x)),
    logsf=lambda x, loc=0, scale=1: wnp.where(x < 0, 0, -x),
    ppf=lambda q, loc=0, scale=1: loc - scale * wnp.log1p(-q),
    gives={
        "logpdf": -0.5, "pdf": 0.6065, "cdf": 0.3935, "logcdf": -0.9328, "sf": 0.6065, "logsf": -0.5, "ppf": 0.2877,
    },
)  # fmt: skip

GAMMA = Distribution(
    "gamma",
    (0.5, 2.0),
    support=lambda x, a: ((x >= 0) & (x < np.inf), 1),
    logpdf=lambda x, a, loc=0, scale=1: log_power(a - 1, x) - x - special.gammaln(a) - wnp.log(scale),
    pdf=lambda x, a, loc=0, scale=1: with_powers(-x - special.gammaln(a) - wnp.log(scale), [(a - 1, x)]),
    cdf=lambda x, a, loc=0, scale=1: special.gammainc(a, wnp.where(x < 0, 0, x)),
    sf=lambda x, a, loc=0, scale=1: special.gammaincc(a, wnp.where(x < 0, 0, x)),
    gives={"logpdf": -1.1931, "pdf": 0.3033, "cdf": 0.0902, "logcdf": -2.4057, "sf": 0.9098, "logsf": -0.0945},
)


def _of_gamma(name: str) -> Plain:
    """That of a gamma distribution of shape ``df / 2`` and twice the scale."""
    return Plain(lambda x, df, loc=0, scale=1: GAMMA.functions[name](x, wnp.true_divide(df, 2), loc, 2 * scale))


CHI2 = Distribution(
    "chi2",
    (0.5, 3.0),
    logpdf=_of_gamma("logpdf"),
    pdf=_of_gamma("pdf"),
    cdf=_of_gamma("cdf"),
    logcdf=_of_gamma("logcdf"),
    sf=_of_gamma("sf"),
    logsf=_of_gamma("logsf"),
    gives={"logpdf": -1.5155, "pdf": 0.2197, "cdf": 0.0811, "logcdf": -2.512, "sf": 0.9189, "logsf": -0.0846},
)


def _gennorm_logpdf(x: Any, beta: Any) -> Array:
    density = wnp.log(0.5 * beta) - special.gammaln(1 / beta) - wnp.abs(x) ** beta
    return wnp.where(beta > 0, density, np.nan)


def _gennorm_cdf(x: Any, beta: Any) -> Array:
    tail = 0.5 * special.gammaincc(1 / beta, wnp.abs(x) ** beta)
    return wnp.where(beta > 0, wnp.where(x > 0, 1 - tail, tail), np.nan)


GENNORM = Distribution(
    "gennorm",
    (0.5, 2.0),
    logpdf=_gennorm_logpdf,
    cdf=_gennorm_cdf,
    gives={"logpdf": -0.8224, "pdf": 0.4394, "cdf": 0.7602},
)

GUMBEL_L = Distribution(
    "gumbel_l",
    (0.5,),
    logpdf=lambda x, loc=0, scale=1: x - wnp.exp(x) - wnp.log(scale),
    cdf=rest("logsf"),
    logcdf=lambda x, loc=0, scale=1: log1mexp_of_exp(x),
    sf=exp("logsf"),
    logsf=lambda x, loc=0, scale=1: -wnp.exp(x),
    ppf=lambda p, loc=0, scale=1: loc + scale * wnp.log(-wnp.log1p(-p)),
    gives={
        "logpdf": -1.1487, "pdf": 0.317, "cdf": 0.8077, "logcdf": -0.2136, "sf": 0.1923, "logsf": -1.6487,
        "ppf": -1.2459,
    },
)  # fmt: skip

GUMBEL_R = Distribution(
    "gumbel_r",
    (0.5,),
    logpdf=lambda x, loc=0, scale=1: -(x + wnp.exp(-x)) - wnp.log(scale),
    cdf=exp("logcdf"),
    logcdf=lambda x, loc=0, scale=1: -wnp.exp(-x),
    sf=rest("logcdf"),
    logsf=lambda x, loc=0, scale=1: log1mexp_of_exp(-x),
    ppf=lambda p, loc=0, scale=1: loc - scale * wnp.log(-wnp.log(p)),
    gives={
        "logpdf": -1.1065, "pdf": 0.3307, "cdf": 0.5452, "logcdf": -0.6065, "sf": 0.4548, "logsf": -0.788,
        "ppf": -0.3266,
    },
)  # fmt: skip


def _laplace_cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    tail = 0.5 * wnp.exp(-wnp.abs(x))
    return wnp.where(x > 0, 1 - tail, tail)


LAPLACE = Distribution(
    "laplace",
    (0.5,),
    logpdf=lambda x, loc=0, scale=1: -wnp.abs(x) - wnp.log(2 * scale),
    cdf=_laplace_cdf,
    gives={"logpdf": -1.1931, "pdf": 0.3033, "cdf": 0.6967},
)


def _logistic_logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    size = wnp.abs(x)
    return -size - 2 * wnp.log1p(wnp.exp(-size)) - wnp.log(scale)


LOGISTIC = Distribution(
    "logistic",
    (0.5,),
    logpdf=_logistic_logpdf,
    cdf=lambda x, loc=0, scale=1: special.expit(x),
    sf=lambda x, loc=0, scale=1: special.expit(-x),
    ppf=lambda x, loc=0, scale=1: loc + scale * special.logit(x),
    isf=lambda x, loc=0, scale=1: loc - scale * special.logit(x),
    gives={"logpdf": -1.4482, "pdf": 0.235, "cdf": 0.6225, "sf": 0.3775, "ppf": -1.0986, "isf": 1.0986},
)


def _norm_logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    square = wnp.square(where_valid(scale > 0, scale))
    return (wnp.log(2 * np.pi * square) + wnp.square(x - loc) / square) / -2


def _norm_logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the probability of at most ``x``, accurate far below the mean."""
    return special.log_ndtr(x)


def _norm_ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The value that the probability ``q`` is not to exceed, as the default float: the inverse of ``cdf``."""
    return promotion.convert(special.ndtri(q) * scale + loc, dtypes.canonicalize_dtype(np.float64))


NORM = Distribution(
    "norm",
    (0.5,),
    logpdf=Plain(_norm_logpdf),
    cdf=lambda x, loc=0, scale=1: special.ndtr(x),
    logcdf=_norm_logcdf,
    sf=mirrored("cdf"),
    logsf=mirrored("logcdf"),
    ppf=_norm_ppf,
    isf=Plain(lambda q, loc=0, scale=1: -NORM.functions["ppf"](q, -loc, scale)),  # 1 - q would round a small q away
    gives={
        "logpdf": -1.0439, "pdf": 0.3521, "cdf": 0.6915, "logcdf": -0.3689, "sf": 0.3085, "logsf": -1.1759,
        "ppf": -0.6745, "isf": 0.6745,
    },
)  # fmt: skip


def _pareto_logcdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    logarithm = b * wnp.log(wnp.where(x < 1, 1, x))
    return wnp.where(logarithm <= 0, -np.inf, nn.log1mexp(wnp.where(logarithm <= 0, 1, logarithm)))


PARETO = Distribution(
    "pareto",
    (2.0, 3.0),
    support=lambda x, b: (x >= 1, 1),
    logpdf=lambda x, b, loc=0, scale=1: wnp.log(b) - (b + 1) * wnp.log(x) - wnp.log(scale),
    cdf=rest("logsf"),
    logcdf=_pareto_logcdf,
    sf=exp("logsf"),
    logsf=lambda x, b, loc=0, scale=1: -b * wnp.log(wnp.where(x < 1, 1, x)),
    ppf=lambda q, b, loc=0, scale=1: loc + scale * wnp.exp(-wnp.log1p(-q) / b),
    gives={
        "logpdf": -1.674, "pdf": 0.1875, "cdf": 0.875, "logcdf": -0.1335, "sf": 0.125, "logsf": -2.0794, "ppf": 1.1006,
    },
)  # fmt: skip


def _t_logpdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    half = df / 2
    normalizer = special.betaln(wnp.full_like(half, 0.5), half) + wnp.log(df) / 2 + wnp.log(scale)
    return -normalizer - (half + 0.5) * wnp.log1p(wnp.square(x) / df)


T = Distribution("t", (0.5, 3.0), logpdf=_t_logpdf, gives={"logpdf": -1.161, "pdf": 0.3132})


def _log_mass(a: Any, b: Any) -> Any:
    """Logarithm of the probability of a standard normal value between a and b; -inf where a is b.

    A difference of distribution functions, taken in logarithms and from the nearer tail.
    """
    right = a > 0
    low, high = wnp.where(right, -b, a), wnp.where(right, -a, b)  # mirrored: at least one of them is not above 0
    left = high <= 0
    upper, lower = special.log_ndtr(wnp.where(left, high, -1)), special.log_ndtr(wnp.where(left, low, -2))
    gap = upper - lower
    empty = gap <= 0
    tail = wnp.where(empty, -np.inf, upper + nn.log1mexp(wnp.where(empty, 1, gap)))
    low, high = wnp.where(left, -1, low), wnp.where(left, 1, high)
    return wnp.where(left, tail, wnp.log1p(-special.ndtr(low) - special.ndtr(-high)))


def _truncnorm_logcdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    inside = wnp.clip(x, a, b)
    share = _log_mass(a, inside) - _log_mass(a, b)
    rest = _log_mass(inside, b) - _log_mass(a, b)
    near_one = share > -0.1
    share = wnp.where(near_one, wnp.log1p(-wnp.exp(wnp.where(near_one, rest, -1))), share)
    found = wnp.where(x <= a, -np.inf, wnp.where(x >= b, 0, share))
    return wnp.where(wnp.isnan(x), np.nan, found)


TRUNCNORM = Distribution(
    "truncnorm",
    (0.5, -1.0, 2.0),
    valid=lambda a, b: a < b,
    support=lambda x, a, b: ((x >= a) & (x <= b), 0),
    logpdf=lambda x, a, b, loc=0, scale=1: NORM.functions["logpdf"](x) - wnp.log(scale) - _log_mass(a, b),
    cdf=exp("logcdf"),
    logcdf=_truncnorm_logcdf,
    sf=exp("logsf"),
    logsf=Plain(lambda x, a, b, loc=0, scale=1: TRUNCNORM.functions["logcdf"](-x, -b, -a, -loc, scale)),
    gives={"logpdf": -0.8438, "pdf": 0.4301, "cdf": 0.6509, "logcdf": -0.4294, "sf": 0.3491, "logsf": -1.0523},
)


def _uniform_logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    x = where_valid(scale > 0, x)
    inside = wnp.where(wnp.isnan(x - loc), np.nan, -wnp.log(scale))
    return wnp.where((x > loc + scale) | (x < loc), -np.inf, inside)


def _uniform_cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    x = where_valid(scale > 0, x)
    above = (x >= loc + scale) & (x >= loc)
    return wnp.where(x < loc, 0, wnp.where(above, 1, (x - loc) / scale))


UNIFORM = Distribution(
    "uniform",
    (0.25,),
    logpdf=Plain(_uniform_logpdf),
    cdf=Plain(_uniform_cdf),
    ppf=lambda q, loc=0, scale=1: q * scale + loc,
    gives={"logpdf": -0.0, "pdf": 1.0, "cdf": 0.25, "ppf": 0.25},
)


def _vonmises_logpdf(x: Any, kappa: Any) -> Array:
    """Logarithm of the density at ``x``; NaN for ``kappa`` below 0."""
    density = -2 * kappa * wnp.square(wnp.sin(x / 2)) - wnp.log(2 * np.pi * special.i0e(kappa))
    return wnp.where(kappa >= 0, density, np.nan)


VONMISES = Distribution("vonmises", (0.5, 2.0), logpdf=_vonmises_logpdf, gives={"logpdf": -0.9067, "pdf": 0.4039})


def _wrapcauchy_logpdf(x: Any, c: Any) -> Array:
    """Logarithm of the density at ``x``; -inf and 0 outside 0..2 pi."""
    inside = (x >= 0) & (x < 2 * np.pi)
    distance = wnp.square(1 - c) + 4 * c * wnp.square(wnp.sin(wnp.where(inside, x, 0) / 2))
    density = wnp.log((1 - c) * (1 + c)) - wnp.log(2 * np.pi * distance)
    outside = wnp.where(wnp.isnan(x), np.nan, -np.inf)
    return wnp.where((c > 0) & (c < 1), wnp.where(inside, density, outside), np.nan)


WRAPCAUCHY = Distribution("wrapcauchy", (0.5, 0.3), logpdf=_wrapcauchy_logpdf, gives={"logpdf": -1.3585, "pdf": 0.257})
