"""exp, exp2, expm1, log, log1p, logistic.

exp:  x = k ln 2 + r, |r| <= ln 2 / 2, a polynomial in r, a scaling by 2**k that rounds once, also to subnormals.
log:  x = 2**k m, m near 1, s = f / (2 + f) with f = m - 1, log m = 2 atanh s (Tang; fdlibm e_log.c has the same form).
The ``_lite`` functions are float64 kernels with about 40 bits, for float32 functions that round at the end.
"""

from __future__ import annotations

import math

from weft.codegen.arithmetic.features import Sharing
from weft.codegen.arithmetic.lanes import V
from weft.codegen.vector_math import pairs
from weft.codegen.vector_math.coefficients import EXP_F64, EXP_LITE, EXPM1_F64, LOG_F64, LOG_LITE

LOG2_E = 1.4426950408889634
LN2 = math.log(2.0)
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # high part: 33 bits, k * high is exact
LN2_HIGH_F32, LN2_LOW_F32 = 0.693359375, -2.12194440e-4
SQRT_HALF_BITS = {"float": 0x3F3504F3, "double": 0x3FE6A09E667F3BCD}
INF = math.inf
TWO_THIRDS_BITS = 0x3F2AAAAB
FOUR_THIRDS_F32, ROOT_TWO = 4.0 / 3.0, math.sqrt(2.0)  # upper bounds of the reduced arguments of log
# (exp r - 1 - r) / r**2 for |r| <= 0.3466, error 2**-26 of exp r - 1
EXPM1_F32 = (0.001388251781463623, 0.0083665382117033, 0.04166720062494278, 0.1666654348373413, 0.4999999701976776)
# minimax on |r| <= ln 2 / 2: exp r = 1 + r + r**2 p(r) (Cephes expf)
EXP_F32 = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)


def clamp(x: V, low: float, high: float, at_low: float | None = None) -> V:
    """NaN stays. ``at_low``: what smaller numbers become, if not ``low``."""
    lanes = x.lanes
    x = lanes.select(x > high, high, x)
    return lanes.select(x < low, low if at_low is None else at_low, x)


def power_of_two(k: V, shift: int = 0) -> V:
    """2**(k + shift) for a whole k (a float), in the normal range."""
    add, mantissa = _exponent_in_last_bits(k.element, shift)
    return ((k + add).bits() << mantissa).as_float()


def _exponent_in_last_bits(element: str, shift: int) -> tuple[float, int]:
    """What is added to a whole number so that its last bits are an exponent, and the bits of a mantissa."""
    bias, mantissa = (127, 23) if element == "float" else (1023, 52)
    return 1.5 * 2.0**mantissa + (bias + shift), mantissa


def whole_and_power(y: V, shift: int, times: float = 1.0) -> tuple[V, V]:
    """The whole k nearest to y ``times`` a factor as a float, and 2**(k + shift), in the normal range.

    The sum is rounded to whole steps. With an odd ``shift`` what is added is even: ties go where ``rint`` takes them.
    """
    if not y.lanes.features.keeps_sums:
        k = (y * times).rint()
        return k, power_of_two(k, shift)
    add, mantissa = _exponent_in_last_bits(y.element, shift)
    rounded = y + add if times == 1.0 else y.fma(times, add)
    return rounded - add, (rounded.bits() << mantissa).as_float()


def scale(x: V, k: V) -> V:
    """x * 2**k for whole k (a float), rounded once, for x in [0.25, 4): also where the result is subnormal."""
    native = x.lanes.native.scale(x, k)
    if native is not None:
        return native
    half, power = whole_and_power(k * 0.5, 0)
    return x * power * power_of_two(k - half)


# exp


def reduce_exp(x: V) -> tuple[V, V, V]:
    """k, and r = x - k ln 2 as a head and a tail (float64)."""
    k = (x * LOG2_E).rint()
    t = k.fma(-LN2_HIGH, x)
    low = k * LN2_LOW
    r = t - low
    return k, r, (t - r) - low


def exp_parts(high: V, low: V | None = None) -> tuple[V, V, V]:
    """exp(high + low) = (head + tail) * 2**k, head in [0.7, 1.42], float64, relative error below 2**-57 or so."""
    k = (high * LOG2_E).rint()
    rest = k * -LN2_LOW if low is None else k.fma(-LN2_LOW, low)
    r, tail = pairs.fast_two_sum(k.fma(-LN2_HIGH, high), rest)
    one, rest = pairs.fast_two_sum(r.like(1.0), r)
    square = r * r
    head, tail = pairs.fast_two_sum(one, rest + square.fma(r.polynomial_of_halves(square, EXP_F64), tail))
    return head, tail, k


def exp_f32(emit: Sharing, x: V) -> V:
    return _exp_of_any(x) if x.lanes.native.whole_registers(x) else _exp_by_bits(_with_zeros(x, -104.0, 88.8, LN2))


def exp_f64(emit: Sharing, x: V) -> V:
    return _exp_of_any(x) if x.lanes.native.whole_registers(x) else _exp_by_bits(_with_zeros(x, -745.2, 709.9, LN2))


def _with_zeros(x: V, low: float, high: float, step: float) -> V:
    """x for ``_gradually_scaled`` by bits, whose results are 0 below ``low`` and the largest ones above ``high``.

    x = k ``step``: the k used for zeros is one at which 2**(k - 1) has no bits left, so that they, as the masked scores
    of a softmax, are no cold lanes.
    """
    return clamp(x, low, high, at_low=(512 - 126 if x.element == "float" else 4096 - 1022) * step)


def _exp_by_bits(x: V) -> V:
    """exp of x as ``_with_zeros`` gives it."""
    k, half = whole_and_power(x * LOG2_E, -1)
    return _gradually_scaled(expm1_reduced(rest(x, k)), k, half)


def _exp_of_any(x: V) -> V:
    """For a huge x, k is huge too and r arbitrary: the result follows from the scaling alone."""
    k = (x * LOG2_E).rint()
    r = x.lanes.native.within(rest(x, k), 0.5)
    assert r is not None
    return _gradually_scaled(expm1_reduced(r), k)


def ln2_parts(element: str) -> tuple[float, float]:
    """ln 2 as a head whose product with an exponent is exact, and a tail."""
    return (LN2_HIGH_F32, LN2_LOW_F32) if element == "float" else (LN2_HIGH, LN2_LOW)


def rest(x: V, k: V) -> V:
    """x - k ln 2."""
    high, low = ln2_parts(x.element)
    return k.fma(-low, k.fma(-high, x))


def expm1_reduced(r: V) -> V:
    """exp r - 1 for |r| <= ln 2 / 2."""
    square = r * r
    return square.fma(r.polynomial_of_halves(square, EXP_F32 if r.element == "float" else EXP_F64), r)


def _gradually_scaled(q: V, k: V, half: V | None = None) -> V:
    """(1 + q) * 2**k rounded once, ``half`` 2**(k - 1) where it is normal.

    A processor takes 150 cycles to round a number to a subnormal or to zero. So subnormals are rounded as multiples of
    the smallest one, whose bits are that whole number; below ``bottom`` the result is zero.
    """
    lanes, is_single = q.lanes, q.element == "float"
    least, shift, bottom = (-125.0, 149.0, -152.0) if is_single else (-1021.0, 1074.0, -1078.0)
    small = k < least

    def rounded() -> list[V]:
        steps = scale(q + 1.0, lanes.select(k < bottom, bottom, k) + shift).rint()
        return [steps.cast("fptosi", "i32" if is_single else "i64").as_float()]

    if half is not None:
        return lanes.cold(small, rounded, q.fma(2.0, 2.0) * half, rare=False)[0]
    dead = k < bottom
    ordinary = lanes.select(dead, 0.0, scale(q + 1.0, lanes.select(small, least, k)))
    return lanes.cold(small & ~dead, rounded, ordinary, rare=False)[0]


def exp_lite(x: V) -> V:
    """float64 exp with 34 bits, for |x| < 700."""
    k = (x * LOG2_E).rint()
    r = k.fma(-LN2, x)
    return scale(r.polynomial(EXP_LITE), k)


def exp2_f32(emit: Sharing, x: V) -> V:
    return _exp2(x, -150.0, 128.1)


def exp2_f64(emit: Sharing, x: V) -> V:
    return _exp2(x, -1075.0, 1024.1)


def _exp2(x: V, low: float, high: float) -> V:
    if x.lanes.native.whole_registers(x):
        x = clamp(x, 2.0 * low, high)
        k, half = x.rint(), None
    else:
        x = _with_zeros(x, low, high, 1.0)
        k, half = whole_and_power(x, -1)
    return _gradually_scaled(expm1_reduced((x - k) * LN2), k, half)


def expm1_f32(emit: Sharing, x: V) -> V:
    y = clamp(x, -18.0, 89.0)
    k = (y * LOG2_E).rint()
    r = k.fma(-LN2_HIGH_F32, y)
    r = k.fma(-LN2_LOW_F32, r)
    q = (r * r).fma(r.polynomial(EXP_F32), r)
    half = power_of_two(k, -1)  # 2**k itself may overflow
    return x.lanes.select(k.eq(0.0), q, half.fma(q, half - 0.5) * 2.0).copysign(x)


def expm1_f64(emit: Sharing, x: V) -> V:
    lanes, y = x.lanes, clamp(x, -38.0, 709.9)
    k, r, tail = reduce_exp(y)
    square = r * r
    q = square.fma(r.polynomial_of_halves(square, EXP_F64), tail)
    half = power_of_two(k, -1)
    # (r + q) 2**k + (2**k - 1), the large parts first
    head, rest = pairs.two_sum(half - 0.5, half * r)
    result = (head + half.fma(q, rest)) * 2.0
    return lanes.select(k.eq(0.0), r + q, result).copysign(x)


def expm1_short(y: V) -> V:
    """exp y - 1 = 2**k (1 + q) - 1 for |y| <= 80, to 2 ulp but for large y.

    One product is enough for r = y - k ln 2: its error is k times that of ln 2.
    """
    k, power = whole_and_power(y, 0, LOG2_E)
    r = k.fma(-LN2, y)
    square = r * r
    q = square.fma(r.polynomial_of_halves(square, EXPM1_F32 if y.element == "float" else EXPM1_F64), r)
    return power.fma(q, power - 1.0)


def logistic(emit: Sharing, x: V) -> V:
    """1 / (1 + exp(-x)) without overflow, subnormal results included."""
    lanes = x.lanes
    t = (exp_f32 if x.element == "float" else exp_f64)(emit, -x.abs())
    return lanes.select(x > 0.0, 1.0, t) / (t + 1.0)


# log


def split(x: V, floor_bits: int) -> tuple[V, V]:
    """x = 2**k m with m in [sqrt 1/2, sqrt 2), k a float; x positive and normal."""
    mantissa = 23 if x.element == "float" else 52
    bits = x.bits()
    k = (bits - floor_bits) >> mantissa
    m = (bits - (k << mantissa)).as_float()
    return m, k.to_float(x.element)


def normal(x: V) -> tuple[V, V]:
    """A subnormal x scaled up, and the power of two to add to its exponent."""
    lanes = x.lanes
    tiny, by, power = (
        (1.17549435e-38, 2.0**23, -23.0) if x.element == "float" else (2.2250738585072014e-308, 2.0**54, -54.0)
    )
    small = x < tiny
    return lanes.select(small, x * by, x), lanes.select(small, lanes.constant(power, x.element), 0.0)


def special_log(x: V, result: V) -> V:
    """-inf at 0, NaN below, inf and NaN kept."""
    lanes = x.lanes
    edge = lanes.select(x.eq(0.0), -INF, lanes.select(x < 0.0, math.nan, x + x))
    return lanes.select((x > 0.0) & (x < INF), result, edge)


def _log_sum_f32(f: V, k: V, low: V | None = None) -> V:
    """k ln 2 + log(1 + f) + low, 1 + f in [2/3, 4/3), low a correction: the polynomial of Juffa's logf."""
    z = f * f
    r = z.like(-0.130310059).fma(z, -0.121484190)
    t = z.like(0.140869141).fma(z, 0.139814854)
    r, t = r.fma(z, -0.166846052), t.fma(z, 0.200120345)
    r = t.fma(f, r.fma(z, -0.249996200))
    r = r.fma(f, 0.333331972).fma(f, -0.5)
    r = r.fma(z, f) if low is None else r.fma(z, low) + f
    return k.fma(0.693147182, r)


def split_any(x: V, top: float) -> tuple[V, V] | None:
    """x = 2**k m of any x, m in [top / 2, top) (see ``Native.mantissa_and_exponent``), or None."""
    parts = x.lanes.native.mantissa_and_exponent(x)
    if parts is None:
        return None
    m, k = parts
    above = m >= top
    return x.lanes.select(above, m * 0.5, m), x.lanes.select(above, k + 1.0, k)


def log_f32(emit: Sharing, a: V) -> V:
    parts = split_any(a, FOUR_THIRDS_F32)
    if parts is not None:
        return _log_sum_f32(parts[0] - 1.0, parts[1])
    x, k = normal(a)
    bits = x.bits()
    e = (bits - TWO_THIRDS_BITS) & -0x800000
    f = (bits - e).as_float() - 1.0
    return special_log(a, _log_sum_f32(f, e.to_float("float").fma(2.0**-23, k)))


def _log_sum_f64(f: V, k: V, low: V | None = None) -> V:
    """k ln 2 + log(1 + f + low), 1 + f in [0.7, 1.42], low a correction."""
    s = f / (f + 2.0)
    z = s * s
    r = z * z.fma(z.polynomial(LOG_F64), 2.0 / 3.0)
    half = f * f * 0.5
    # k ln 2 + f - (f**2 / 2 - s (f**2 / 2 + r))
    rest = k * LN2_LOW if low is None else k.fma(LN2_LOW, low)
    t = s.fma(half + r, rest)
    return k * LN2_HIGH - ((half - t) - f)


def log_f64(emit: Sharing, a: V) -> V:
    parts = split_any(a, ROOT_TWO)
    if parts is not None:
        return _log_sum_f64(parts[0] - 1.0, parts[1])
    x, shift = normal(a)
    m, k = split(x, SQRT_HALF_BITS["double"])
    return special_log(a, _log_sum_f64(m - 1.0, k + shift))


def log_lite(x: V) -> V:
    """float64 log with about 40 bits of absolute precision relative to the larger terms; x normal and positive."""
    m, k = split(x, SQRT_HALF_BITS["double"])
    f = m - 1.0
    s = f / (m + 1.0)
    return k.fma(LN2, s * (s * s).polynomial(LOG_LITE))


def log1p_sum_f32(x: V, tail: V | None = None) -> V:
    """log(1 + x + tail), tail small beside x: log of the sum with its rounding error as a correction."""
    lanes = x.lanes
    u, error = pairs.two_sum(x.like(1.0), x)
    bits = u.bits()
    e = (bits - TWO_THIRDS_BITS) & -0x800000
    near = e.eq(0)  # then f is x itself
    m = lanes.select(near, x, (bits - e).as_float() - 1.0)
    down = (-e.intrinsic("smin", 120 << 23) + 0x3F800000).as_float()  # 2**-k; for large x there is no error to scale
    if tail is None:
        rest = lanes.select(near, 0.0, error)
    else:
        rest = lanes.select(near, tail, error + tail)
    return special_log(u, _log_sum_f32(m, e.to_float("float") * 2.0**-23, rest * down * (1.0 - m)))


def log1p_f32(emit: Sharing, x: V) -> V:
    return log1p_sum_f32(x).copysign(x)


def log1p_f64(emit: Sharing, x: V) -> V:
    lanes = x.lanes
    u, error = pairs.two_sum(x.like(1.0), x)
    m, k = split(u, SQRT_HALF_BITS["double"])
    near = k.eq(0.0)
    correction = lanes.select(near, 0.0, error / u)
    return special_log(u, _log_sum_f64(lanes.select(near, x, m - 1.0), k, correction)).copysign(x)


def log1p_sum_f64(x: V, tail: V) -> V:
    """log(1 + x + tail) for an ordinary x, tail small beside x: log of the sum, its error as a correction."""
    u, error = pairs.two_sum(x.like(1.0), x)
    m, k = split(u, SQRT_HALF_BITS["double"])
    near = k.eq(0.0)
    correction = x.lanes.select(near, tail, error + tail) / u
    return _log_sum_f64(x.lanes.select(near, x, m - 1.0), k, correction)
