"""sinh, cosh, tanh and their inverses."""

from __future__ import annotations

import math
from collections.abc import Callable

from weft.codegen.arithmetic.features import Sharing
from weft.codegen.arithmetic.lanes import V
from weft.codegen.vector_math import exponential, pairs, piecewise
from weft.codegen.vector_math.coefficients import R_COTH_F64, SINH_F64
from weft.codegen.vector_math.exponential import LN2, log1p_sum_f64
from weft.codegen.vector_math.piecewise_tables import TANH as TANH_PIECES
from weft.codegen.vector_math.piecewise_tables_f64 import TANH_AT_POINTS, TANH_POINTS, TANH_SLOPES

# (sinh x - x) / x**3 in x**2 on [0, 1], error 2**-32
SINH_F32 = (2.80628026e-06, 1.98381020e-4, 8.33333968e-3, 1.66666666e-1)
INF = math.inf


SINH_OVERFLOW_F32 = 89.41598510742188  # the largest argument with a finite result


def _half_exp_f32(x: V) -> tuple[V, V, V]:
    """exp(|x|) / 2 as head and tail, and exp(-|x|) / 2, up to where the head overflows."""
    a = exponential.clamp(x.abs(), 0.0, SINH_OVERFLOW_F32)
    k = (a * exponential.LOG2_E).rint()
    r = k.fma(-exponential.LN2_HIGH_F32, a)
    r = k.fma(-exponential.LN2_LOW_F32, r)
    q = exponential.expm1_reduced(r)
    head = q + 1.0
    tail = q - (head - 1.0)
    half = exponential.power_of_two(k, -2)
    high, low = head * half * 2.0, tail * half * 2.0
    return high, low, 0.25 / high


def sinh_f32(emit: Sharing, x: V) -> V:
    lanes, a = x.lanes, x.abs()
    high, low, inverse = _half_exp_f32(x)
    head, tail = pairs.fast_two_sum(high, -inverse)
    big = lanes.select(a > SINH_OVERFLOW_F32, INF, head + (tail + low))
    z = a * a
    small = (a * z).fma(z.polynomial(SINH_F32), a)
    return lanes.select(x.isnan(), x, lanes.select(a < 1.0, small, big).copysign(x))


def cosh_f32(emit: Sharing, x: V) -> V:
    lanes, a = x.lanes, x.abs()
    high, low, inverse = _half_exp_f32(x)
    result = lanes.select(a > SINH_OVERFLOW_F32, INF, high + (inverse + low))
    return lanes.select(x.isnan(), x, result)


SINH_OVERFLOW = 710.4758600739439  # the largest argument with a finite result


def _half_exp(x: V) -> tuple[V, V, V]:
    """exp(|x|) / 2 as head and tail, and exp(-|x|) / 2, up to where the head overflows."""
    a = exponential.clamp(x.abs(), 0.0, SINH_OVERFLOW)
    head, tail, k = exponential.exp_parts(a)
    half = exponential.power_of_two(k, -2)
    high, low = head * half * 2.0, tail * half * 2.0
    return high, low, 0.25 / high


def sinh_f64(emit: Sharing, x: V) -> V:
    lanes, a = x.lanes, x.abs()
    high, low, inverse = _half_exp(x)
    head, tail = pairs.fast_two_sum(high, -inverse)
    big = lanes.select(a > SINH_OVERFLOW, INF, head + (tail + low))
    z = a * a
    small = (a * z).fma(z.polynomial(SINH_F64), a)
    result = lanes.select(a < 1.0, small, big)
    return lanes.select(x.isnan(), x, result.copysign(x))


def cosh_f64(emit: Sharing, x: V) -> V:
    lanes, a = x.lanes, x.abs()
    high, low, inverse = _half_exp(x)
    result = lanes.select(a > SINH_OVERFLOW, INF, high + (inverse + low))
    return lanes.select(x.isnan(), x, result)


def tanh_f32(emit: Sharing, x: V) -> V:
    result = piecewise.odd(x, TANH_PIECES, -4, 9.5)
    return _tanh(x, 9.02) if result is None else result


TANH_STEP, TANH_TOP = 1.25, 19.1  # distance of the points; x from which on tanh is 1


def tanh_f64(emit: Sharing, x: V) -> V:
    """tanh c + (1 - tanh c**2) / (tanh c + coth r) with |x| = c + r, c the nearest of 16 points."""
    lanes, a = x.lanes, x.abs()
    if not lanes.native.holds(TANH_POINTS, x.element):
        return _tanh(x, 19.1)
    a = lanes.select(a > TANH_TOP, TANH_TOP, a)
    index = a.fma(1.0 / TANH_STEP, 1.5 * 2.0**52).bits()  # rounded to whole steps, the last bits count them
    r = a - lanes.native.lookup(TANH_POINTS, index)
    at_point = lanes.native.lookup(TANH_AT_POINTS, index)
    below = (r * r).polynomial((*R_COTH_F64, 1.0))
    return (at_point + r * lanes.native.lookup(TANH_SLOPES, index) / at_point.fma(r, below)).copysign(x)


def _tanh(x: V, top: float) -> V:
    """n / (n + 2) with n = exp(2 |x|) - 1, the result 1 from ``top`` on."""
    a = x.abs()
    a = x.lanes.select(a > top, top, a)
    n = exponential.expm1_short(a + a)
    return (n / (n + 2.0)).with_sign_of(x)


# inverses


def asinh_f32(emit: Sharing, x: V) -> V:
    """log1p(a + a**2 / (1 + sqrt(1 + a**2))); beyond 2**30 log a + ln 2, as log1p(a - 1)."""
    lanes, a = x.lanes, x.abs()
    big = a > 2.0**30
    z = a * a
    u, tail = pairs.two_sum(a, z / ((z + 1.0).sqrt() + 1.0))
    result = exponential.log1p_sum_f32(lanes.select(big, a, u), lanes.select(big, -1.0, tail))
    result = lanes.select(big, result + LN2, result)
    return lanes.select(x.abs() < INF, result.copysign(x), x)


def atanh_f32(emit: Sharing, x: V) -> V:
    """log1p(2 a / (1 - a)) / 2, the quotient as head and tail."""
    lanes, a = x.lanes, x.abs()
    y = lanes.select(a < 1.0, a, 0.0)
    below = 1.0 - y
    low = (1.0 - below) - y
    inverse = 1.0 / below
    twice = y * 2.0
    u = twice * inverse
    tail = ((-u).fma(below, twice) - u * low) * inverse
    result = exponential.log1p_sum_f32(u, tail) * 0.5
    edge = lanes.select(a.eq(1.0), lanes.constant(INF, "float"), lanes.select(x.isnan(), x, math.nan))
    return lanes.select(a < 1.0, result, edge).copysign(x)


def asinh_f64(emit: Sharing, x: V) -> V:
    """log1p(a + a**2 / (1 + sqrt(1 + a**2))), the sum as head and tail; beyond 2**28 log a + ln 2, as log1p(a - 1)."""
    lanes, a = x.lanes, x.abs()
    big = a > 2.0**28
    z = a * a
    u, tail = pairs.two_sum(a, z / ((z + 1.0).sqrt() + 1.0))
    result = log1p_sum_f64(lanes.select(big, a, u), lanes.select(big, -1.0, tail))
    result = lanes.select(big, result + LN2, result)
    return lanes.select(a < INF, result.copysign(x), x)


def _acosh(x: V, far: float, log1p_sum: Callable[[V, V], V]) -> V:
    """log1p(t + sqrt(t (x + 1))), t = x - 1, the root with its tail; far out log x + ln 2, as log1p(x - 1)."""
    lanes = x.lanes
    big = x > far
    y = lanes.select((x >= 1.0) & ~big, x, 2.0)
    t, t_low = pairs.two_sum(y, y.like(-1.0))
    square, low = pairs.two_product(t, y + 1.0)
    root = square.sqrt()
    rest = ((-root).fma(root, square) + low) / lanes.select(square > 0.0, root + root, 1.0)
    u, tail = pairs.two_sum(root, t)
    result = log1p_sum(lanes.select(big, x, u), lanes.select(big, -1.0, tail + (rest + t_low)))
    result = lanes.select(big, result + LN2, result)
    return lanes.select(x < 1.0, math.nan, lanes.select(x < INF, result, x))


def acosh_f32(emit: Sharing, x: V) -> V:
    return _acosh(x, 2.0**30, exponential.log1p_sum_f32)


def acosh_f64(emit: Sharing, x: V) -> V:
    return _acosh(x, 2.0**28, log1p_sum_f64)


def atanh_f64(emit: Sharing, x: V) -> V:
    """log1p(2 a / (1 - a)) / 2, the quotient as head and tail."""
    lanes, a = x.lanes, x.abs()
    y = lanes.select(a < 1.0, a, 0.0)
    below = 1.0 - y
    low = (1.0 - below) - y
    inverse = 1.0 / below
    twice = y * 2.0
    u = twice * inverse
    tail = ((-u).fma(below, twice) - u * low) * inverse
    result = log1p_sum_f64(u, tail) * 0.5
    edge = lanes.select(a.eq(1.0), lanes.constant(INF, "double"), lanes.select(x.isnan(), x, math.nan))
    return lanes.select(a < 1.0, result, edge).copysign(x)
