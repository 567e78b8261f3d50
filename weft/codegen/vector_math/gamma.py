"""lgamma and digamma.

lgamma: below 2.5 a polynomial around 2 after one or two steps of the recurrence; up to 8 the product of the steps down
to that range; beyond 8 Stirling's series. digamma: steps up to 8 as one fraction, then its asymptotic series.
Negative arguments are reflected in a cold block. float32 functions are evaluated in float64 by shorter polynomials.
"""

from __future__ import annotations

import math

from weft.codegen.arithmetic.features import Sharing
from weft.codegen.arithmetic.lanes import V
from weft.codegen.vector_math.exponential import log_f64, log_lite
from weft.codegen.vector_math.gamma_coefficients import (
    COSPI_F64,
    DIGAMMA_F64,
    DIGAMMA_LITE,
    LGAMMA_F64,
    LGAMMA_LITE,
    SINPI_F64,
    STIRLING_F64,
    STIRLING_LITE,
)

INF = math.inf
STIRLING_FROM = 8.0
HALF_LOG_TWO_PI = 0.9189385332046727
TINY = 2.0**-1000  # below this, x (x + 1) would lose digits


def _log(emit: Sharing, x: V, lite: bool) -> V:
    return log_lite(x) if lite else log_f64(emit, x)


def _lgamma_positive(emit: Sharing, x: V, lite: bool) -> V:
    """log gamma(x) for x > 0, finite."""
    lanes = x.lanes
    far = x >= STIRLING_FROM
    low, one, steps = x < 0.5, x < 1.5, x
    product = lanes.select(low, x * (x + 1.0), lanes.select(one, x, 1.0))
    for _ in range(6):  # down to [1.5, 2.5)
        step = steps >= 2.5
        steps = lanes.select(step, steps - 1.0, steps)
        product = lanes.select(step, product * steps, product)
    d = lanes.select(low, x, lanes.select(one, x - 1.0, steps - 2.0))
    log = _log(emit, lanes.select(far, x, product), lite)
    near = d * d.polynomial(LGAMMA_LITE if lite else LGAMMA_F64)
    near = near + lanes.select(one, -log, log)
    y = lanes.select(far, x, STIRLING_FROM)
    inverse = 1.0 / y
    series = (inverse * inverse).polynomial(STIRLING_LITE if lite else STIRLING_F64)
    stirling = inverse.fma(series, (y - 0.5).fma(log - 1.0, HALF_LOG_TWO_PI - 0.5))
    return lanes.select(far, stirling, near)


def _fraction(a: V) -> V:
    """The signed distance to the nearest whole number, exact."""
    return a - a.rint()


def _lgamma(emit: Sharing, x: V, lite: bool) -> V:
    lanes, a = x.lanes, x.abs()
    ordinary = (a < INF) & (a > (2.0**-300 if lite else TINY))
    y = lanes.select(ordinary, a, 1.0)
    positive = _lgamma_positive(emit, y, lite)

    def reflected() -> list[V]:
        """log(pi / (a |sin pi a|)) - log gamma(a)."""
        r = _fraction(y)
        sine = (r * (r * r).polynomial(SINPI_F64)).abs()
        whole = r.eq(0.0)
        below = lanes.select(whole, 1.0, y * sine)
        value = -_log(emit, below * (1.0 / math.pi), lite) - positive
        return [lanes.select(whole, INF, value)]

    (result,) = lanes.cold((x < 0.0) & ordinary, reflected, positive)
    if lite:  # no float32 is so small that its logarithm needs more care
        tiny = -log_lite(lanes.select(a.eq(0.0), 1.0, a))
    else:
        (tiny,) = lanes.cold(~ordinary, lambda: [-log_f64(emit, a)], result)
    result = lanes.select(ordinary, result, lanes.select(a.eq(0.0) | a.eq(INF), INF, tiny))
    return lanes.select(x.isnan(), x, result)


def lgamma_f32(emit: Sharing, x: V) -> V:
    return _lgamma(emit, x.f64(), True).f32()


def lgamma_f64(emit: Sharing, x: V) -> V:
    return _lgamma(emit, x, False)


def _digamma_positive(emit: Sharing, x: V, lite: bool) -> V:
    """digamma(x) for x > 0: the steps up to 8 are summed as one fraction top / bottom."""
    lanes = x.lanes
    top, bottom, y = x.like(0.0), x.like(1.0), x
    for _ in range(8):
        step = y < STIRLING_FROM
        top = lanes.select(step, top.fma(y, bottom), top)
        bottom = lanes.select(step, bottom * y, bottom)
        y = lanes.select(step, y + 1.0, y)
    inverse = 1.0 / y
    series = (inverse * inverse).polynomial(DIGAMMA_LITE if lite else DIGAMMA_F64)
    return (_log(emit, y, lite) + inverse.fma(series, -0.5) * inverse) - top / bottom


def _digamma(emit: Sharing, x: V, lite: bool) -> V:
    lanes = x.lanes
    negative = x < 0.0
    a = lanes.select(negative, 1.0 - x, x)
    ordinary = (a < INF) & (a > 1e-300)
    value = _digamma_positive(emit, lanes.select(ordinary, a, 1.0), lite)

    def reflected() -> list[V]:
        """digamma(1 - x) - pi / tan(pi x)."""
        r = _fraction(x)
        z = r * r
        cotangent = z.polynomial(COSPI_F64) * math.pi / (r * z.polynomial(SINPI_F64))
        return [lanes.select(r.eq(0.0), math.nan, value - cotangent)]

    (value,) = lanes.cold(negative, reflected, value)
    edge = lanes.select(x.eq(INF), INF, lanes.select(a < 1.0, -1.0 / x, math.nan))
    return lanes.select(ordinary, value, edge)


def digamma_f32(emit: Sharing, x: V) -> V:
    return _digamma(emit, x.f64(), True).f32()


def digamma_f64(emit: Sharing, x: V) -> V:
    return _digamma(emit, x, False)
