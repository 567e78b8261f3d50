"""pow: 2**(y log2 x), with more bits of the logarithm than the result has, and the special cases of IEEE 754.

float32: in float64. float64: log x as a head and a tail. If registers hold tables, both look up c near 1 / m, so that
the logarithm is -log c and a short series in r = m c - 1; otherwise it is the atanh series of a quotient.
"""

from __future__ import annotations

import math

from weft.codegen.arithmetic.features import Sharing
from weft.codegen.arithmetic.lanes import V
from weft.codegen.vector_math import pairs
from weft.codegen.vector_math.coefficients import (
    EXP2_LITE,
    EXP_F64,
    LOG2_LITE,
    LOG_F64,
    POW_INVERSE,
    POW_LOG2,
    POW_LOG2_SERIES,
    POW_LOG_HIGH,
    POW_LOG_LOW,
    POW_SERIES,
)
from weft.codegen.vector_math.exponential import (
    INF,
    LN2_HIGH,
    LN2_LOW,
    LOG2_E,
    SQRT_HALF_BITS,
    clamp,
    exp_parts,
    normal,
    scale,
    split,
)
from weft.codegen.vector_math.pairs import Pair

STEP = 2.0**48  # added to m in [0.75, 1.5) it rounds to sixteenths, which the last bits of the sum count
THIRD = 1.0 / 3.0


def pow_f32(emit: Sharing, x: V, y: V) -> V:
    """Through float64: exp2(y log2 x) with 34 bits after an exact reduction."""
    power = _log2_lite(x.abs()) * y.f64()
    if not power.lanes.native.whole_registers(power):  # scale needs a small n there
        power = clamp(power, -300.0, 300.0)
    n = power.rint()
    f = power - n
    return _pow_edges(x, y, scale(f.polynomial_of_halves(f * f, EXP2_LITE), n).f32())


def _log2_lite(a: V) -> V:
    """log2 of a float32 in float64, by table (see ``_log_by_table``) where there are any."""
    native = a.lanes.native
    found = native.mantissa_and_power(a)
    if found is None:
        m, k = split(a.f64(), SQRT_HALF_BITS["double"])
        s = (m - 1.0) / (m + 1.0)
        return s.fma((s * s).polynomial(LOG2_LITE), k)
    m, k = (part.f64() for part in found)
    index = (m + STEP).bits()
    r = m.fma(native.lookup(POW_INVERSE, index), -1.0)
    return r.fma(r.polynomial_of_halves(r * r, POW_LOG2_SERIES), k + native.lookup(POW_LOG2, index))


def pow_f64(emit: Sharing, x: V, y: V) -> V:
    a = x.abs()
    log, exp = _log_by_table(a), _exp_of_pair
    if log is None:
        exp = _exp_of_long_pair
        b, shift = normal(a)
        m, k = split(b, SQRT_HALF_BITS["double"])
        log = _log_pair(m - 1.0, k + shift)
    bounded = clamp(y, -(2.0**75), 2.0**75)
    high, low = pairs.two_product(log[0], bounded)
    low = log[1].fma(bounded, low)
    return _pow_edges(x, y, exp(high, low))


def _exp_of_pair(high: V, low: V) -> V:
    """exp(high + low) to 0.6 ulp; where the result over- or underflows it follows from k alone."""
    lanes = high.lanes
    if not lanes.native.whole_registers(high):  # scale needs a small k there
        usable = high.abs() < 800.0
        high, low = clamp(high, -800.0, 800.0), lanes.select(usable, low, 0.0)
    k = (high * LOG2_E).rint()
    r, tail = pairs.fast_two_sum(k.fma(-LN2_HIGH, high), k.fma(-LN2_LOW, low))
    bounded = lanes.native.within(r, 0.5)
    r = r if bounded is None else bounded
    head, rest = pairs.fast_two_sum(r.like(1.0), r)
    square = r * r
    return scale(head + (rest + square.fma(r.polynomial_of_halves(square, EXP_F64), tail)), k)


def _exp_of_long_pair(high: V, low: V) -> V:
    lanes = high.lanes
    low = lanes.select(high.abs() < 800.0, low, 0.0)
    head, tail, k = exp_parts(clamp(high, -800.0, 800.0), low)
    return scale(head + tail, k)


def _log_by_table(a: V) -> Pair | None:
    """log a of any a >= 0 as an unevaluated sum, error about 2**-71 and 2**-65 of the result; None without tables.

    a = 2**k m, m in [0.75, 1.5), c near 1 / m: k ln 2 - log c + r - r**2 / 2 + r**3 / 3 + r**4 q(r), r = m c - 1 as a
    head and a tail. The first three are exact, and c is 1 where the result may be small.
    """
    native = a.lanes.native
    found = native.mantissa_and_power(a)
    if found is None:
        return None
    m, k = found
    index = (m + STEP).bits()
    c, log_high, log_low = native.lookups((POW_INVERSE, POW_LOG_HIGH, POW_LOG_LOW), index)
    product, tail = pairs.two_product(m, c)
    r = product - 1.0
    head, error = pairs.fast_two_sum(k.fma(LN2_HIGH, log_high), r)
    square, square_low = pairs.two_product(r, r)
    factor = r.fma(THIRD, -0.5)  # -1/2 + r/3 with its tail
    factor_low = r.fma(THIRD, -(factor + 0.5))
    bent, bent_low = pairs.two_product(square, factor)
    head, more = pairs.fast_two_sum(head, bent)
    rest = (square * square).fma(
        r.polynomial_of_halves(square, POW_SERIES), square.fma(factor_low, square_low.fma(factor, bent_low))
    )
    slope = (-r).fma((-r).fma(1.0 - r, 1.0), 1.0)  # of log at 1 + r, for the tail of r
    rest = rest + tail.fma(slope, k.fma(LN2_LOW, log_low))
    return pairs.fast_two_sum(head, (error + more) + rest)


def _log_pair(f: V, k: V) -> Pair:
    """k ln 2 + log(1 + f) as an unevaluated sum, error about 2**-65, for 1 + f in [0.7, 1.42]."""
    below, low = pairs.fast_two_sum(f.like(2.0), f)
    inverse = 1.0 / below
    quotient = f * inverse
    rest = (-quotient).fma(low, (-quotient).fma(below, f))
    s = pairs.fast_two_sum(quotient, rest * inverse)
    z = pairs.square(s)
    third = pairs.scale(z, (6.66666666666666629659e-01, 3.70074341541718826e-17))
    inner = pairs.fast_two_sum(third[0], (z[0] * z[0]).fma(z[0].polynomial(LOG_F64), third[1]))
    product = pairs.multiply(s, inner)
    result = pairs.add((s[0] * 2.0, s[1] * 2.0), product)
    scaled = pairs.two_sum(k * LN2_HIGH, result[0])
    return pairs.fast_two_sum(scaled[0], scaled[1] + k.fma(LN2_LOW, result[1]))


def _pow_edges(x: V, y: V, result: V) -> V:
    """The result if x is positive and both are finite; for others, in a cold block, the special cases of IEEE 754.

    Powers 1/2, 1, 2 and -1 are those of sqrt, x, x * x and 1 / x, so that a literal exponent may be rewritten.
    """
    lanes = x.lanes
    ordinary = (x > 0.0) & (x < INF) & (y.abs() < INF)
    exact = y.eq(0.5) | y.eq(2.0) | y.abs().eq(1.0)

    def rare() -> list[V]:
        root = lanes.select(x.eq(-INF), INF, (x + 0.0).sqrt())
        power = lanes.select(y.eq(0.5), root, lanes.select(y.eq(2.0), x * x, lanes.select(y > 0.0, x, 1.0 / x)))
        return [lanes.select(exact, power, _pow_special(x, y, result))]

    return lanes.cold(exact | ~ordinary, rare, result)[0]


def _pow_special(x: V, y: V, result: V) -> V:
    """IEEE 754 pow at zeros, infinities, negative bases, NaN; ``result`` is |x| ** y for ordinary values."""
    lanes = x.lanes
    a, b = x.abs(), y.abs()
    half = y * 0.5
    whole = y.rint().eq(y) & (b < INF)
    odd = whole & half.rint().ne(half)
    positive = y > 0.0
    at_zero = lanes.select(positive, lanes.constant(0.0, x.element), INF)
    at_inf = lanes.select(positive, lanes.constant(INF, x.element), 0.0)
    result = lanes.select(a.eq(0.0), at_zero, lanes.select(a.eq(INF), at_inf, result))
    extreme = lanes.select((a > 1.0) ^ positive, lanes.constant(0.0, x.element), INF)
    extreme = lanes.select(a.eq(1.0), 1.0, extreme)
    result = lanes.select(b.eq(INF), extreme, result)
    negative = x.bits() < 0
    result = lanes.select(negative & odd, -result, result)
    domain = (x < 0.0) & (a < INF) & (b < INF) & ~whole
    result = lanes.select(domain, math.nan, result)
    result = lanes.select(x.compare("uno", y), x + y, result)
    return lanes.select(y.eq(0.0) | x.eq(1.0), 1.0, result)
