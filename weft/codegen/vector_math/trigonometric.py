"""sin, cos, tan and their inverses.

Reduction modulo pi / 2 by three exact products while |x| is ordinary; a vector with a larger lane enters a cold
block that calls ``far_angles``, whose results are used only in the lanes that need them.
"""

from __future__ import annotations

import functools
import math

from weft.codegen.arithmetic import cold
from weft.codegen.arithmetic.features import Sharing
from weft.codegen.arithmetic.lanes import V
from weft.codegen.vector_math import far_angles, pairs, piecewise
from weft.codegen.vector_math.coefficients import (
    ASIN_F64,
    ASIN_LITE,
    ATAN_F64,
    COS_F64,
    COS_LITE,
    SIN_F64,
    SIN_LITE,
)
from weft.codegen.vector_math.far_angles import PI_HALF_HIGH, PI_HALF_LOW
from weft.codegen.vector_math.piecewise_tables_f64 import ATAN as ATAN_PIECES

ATAN_STEP = 0.0626
TWO_OVER_PI = 0.6366197723675814
LIMIT_F32 = 71476.0  # three float32 parts of pi / 2 are exact up to here (found by search)
LIMIT_F64 = 2.0**28
LIMIT_MIXED = 2.0**40
ROUNDER_F32 = 12582912.0  # 1.5 * 2**23: adding it rounds to a whole number, kept in the low bits
ROUNDER_F64 = 6755399441055744.0  # 1.5 * 2**52
# minimax on |r| <= pi / 4; that of the sine is most accurate where r is just above a power of two and its sine below,
# since a rounding of r is then a whole ulp of the sine
# in t = -r**2: (sin r - r) / (r t) and (cos r - 1) / t
SIN_F32 = (1.9579024e-4, 8.33266973e-3, 1.66666627e-1)
COS_F32 = (2.44677067e-5, 1.38877297e-3, 4.16666567e-2, 0.5)
# (atan t - t) / t**3 in t**2 on [0, 1], error 2**-29
ATAN_F32 = (
    1.4886919393e-3,
    -9.1446297606e-3,
    2.6305001110e-2,
    -4.8960514027e-2,
    7.0319142500e-2,
    -8.9318267774e-2,
    1.1088261629e-1,
    -1.4284003795e-1,
    1.9999949321e-1,
    -3.3333333081e-1,
)
# pi / 2 in parts of 33 bits, so that multiples up to 2**20 are exact, and a tail (Cody and Waite)
PIO2 = (1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624871116645580e-21, 8.47842766036889956997e-32)


def _reduce_f32(emit: Sharing, x: V) -> tuple[V, V]:
    """r in [-pi/4, pi/4] and the quadrant (its low two bits), x = quadrant * pi/2 + r."""
    key = ("reduce", x.text)
    if key not in emit.memo:
        j = x.fma(TWO_OVER_PI, ROUNDER_F32)
        q = j - ROUNDER_F32
        if x.lanes.features.scalar:
            emit.memo[key] = _reduce_scalar_f32(emit, x, q, j.bits())
        else:
            r, quadrant = _mended_f32(emit, x, _remainder_f32(x, q), j.bits())
            emit.memo[key] = r, quadrant
    return emit.memo[key]


def _remainder_f32(x: V, q: V) -> V:
    return q.fma(-5.39030253e-15, q.fma(-3.13916473e-7, q.fma(-1.57079601, x)))


def _reduce_scalar_f32(emit: Sharing, x: V, q: V, quadrant: V) -> tuple[V, V]:
    """A jump where x is its own remainder: a loop that waits for a sine of its own state does not wait for q."""
    lanes = x.lanes

    def turned() -> list[str]:
        return [v.text for v in _mended_f32(emit, x, _remainder_f32(x, q), quadrant)]

    r, n = lanes.writer.when(q.ne(0.0).text, turned, ["float", "i32"], [x.text, quadrant.text], rare=False)
    return V(lanes, "float", r), V(lanes, "i32", n)


def _exceeds(x: V, limit: float) -> V:
    """Also true of NaN."""
    return x.abs().compare("ugt", limit)


def _mended_f32(emit: Sharing, x: V, r: V, quadrant: V) -> list[V]:
    return cold.mend(emit, "reduce_far_f32", _exceeds(x, LIMIT_F32), _reduce_far_f32, (x,), (r, quadrant))


def _reduce_far_f32(emit: Sharing, x: V, *usual: V) -> list[V]:
    """For a vector with large lanes: in float64, and for lanes too large for that by ``far_angles``."""
    lanes, d = x.lanes, x.f64()
    r, quadrant = _narrow(*_reduce_large_f32(d))
    if usual:
        far = _exceeds(x, LIMIT_F32)
        r, quadrant = lanes.select(far, r, usual[0]), lanes.select(far, quadrant, usual[1])
    huge = _exceeds(x, LIMIT_MIXED)
    s, n = _narrow(*far_angles.reduce_f32(d, huge))
    return [lanes.select(huge, s, r), lanes.select(huge, n, quadrant)]


def _reduce_huge(emit: Sharing, d: V, *usual: V) -> list[V]:
    huge = _exceeds(d, LIMIT_MIXED)
    found = far_angles.reduce_f32(d, huge)
    return [d.lanes.select(huge, new, old) for new, old in zip(found, usual, strict=True)] if usual else found


def _narrow(r: V, quadrant: V) -> tuple[V, V]:
    return r.f32(), quadrant.cast("trunc", "i32")


def _reduce_large_f32(d: V) -> tuple[V, V]:
    """By two products in float64, up to 2**40."""
    j = d.fma(TWO_OVER_PI, ROUNDER_F64)
    q = j - ROUNDER_F64
    return q.fma(-PI_HALF_LOW, q.fma(-PI_HALF_HIGH, d)), j.bits()


def _quadrant(x: V, sine: V, cosine: V, quadrant: V) -> V:
    """sin of the angle; for a cosine the caller adds 1 to the quadrant."""
    value = x.lanes.select((quadrant & 1).ne(0), cosine, sine)
    width = 32 if x.element == "float" else 64
    return (value.bits() ^ ((quadrant << (width - 2)) & (-1 << (width - 1)))).as_float()


def _polynomials_f32(emit: Sharing, x: V, r: V) -> tuple[V, V]:
    key = ("sincos", x.text)
    if key not in emit.memo:
        t = (-r).fma(r, 0.0)  # not -0, so that the sine of -0 is -0 + -0
        emit.memo[key] = t.polynomial(SIN_F32).fma(r * t, r), t.polynomial(COS_F32).fma(t, 1.0)
    return emit.memo[key]


def sin_f32(emit: Sharing, x: V) -> V:
    r, q = _reduce_f32(emit, x)
    return _quadrant(x, *_polynomials_f32(emit, x, r), q)


def cos_f32(emit: Sharing, x: V) -> V:
    r, q = _reduce_f32(emit, x)
    return _quadrant(x, *_polynomials_f32(emit, x, r), q + 1)


def tan_f32(emit: Sharing, x: V) -> V:
    """Reduction and quotient in float64, one rounding."""
    lanes = x.lanes
    d = x.f64()
    r, quadrant = cold.mend(emit, "reduce_huge_f32", _exceeds(d, LIMIT_MIXED), _reduce_huge, (d,), _reduce_large_f32(d))
    z = r * r
    sine, cosine = r * z.polynomial(SIN_LITE), z.polynomial(COS_LITE)
    odd = (quadrant & 1).ne(0)
    result = (lanes.select(odd, -cosine, sine) / lanes.select(odd, sine, cosine)).f32()
    return lanes.select(x.eq(0.0), x, result)


def _reduce_f64(emit: Sharing, x: V) -> tuple[V, V, V]:
    """r as head and tail, and the quadrant."""
    key = ("reduce", x.text)
    if key not in emit.memo:
        q = (x * TWO_OVER_PI).rint()
        # q has at most 29 bits: with fma each step below is exact but for the last
        a = q.fma(-PIO2[0], x)
        b = (-q) * PIO2[1]
        r = a + b
        t = r - a
        low = (a - (r - t)) + (b - t) + q.fma(-PIO2[1], -b)
        low = q.fma(-PIO2[2], low)
        low = q.fma(-PIO2[3], low)
        head, tail = pairs.two_sum(r, low)
        usual = head, tail, q.cast("fptosi", "i64")
        far = functools.partial(_exceeds, limit=LIMIT_F64)
        emit.memo[key] = tuple(cold.mend_lanes(emit, "reduce_far_f64", far(x), far_angles.reduce_f64, (x,), usual, far))
    return emit.memo[key]


def _polynomials_f64(emit: Sharing, x: V, r: V, tail: V) -> tuple[V, V, V, V]:
    """sin and cos of r + tail, each as head and tail."""
    key = ("sincos", x.text)
    if key not in emit.memo:
        z = r * r
        # sin: r + (tail (1 - z/2) + r z (-1/6 + z S(z)))
        s = (r * z).fma(z.fma(z.polynomial(SIN_F64), -1.0 / 6.0), z.fma(-0.5, 1.0) * tail)
        half = z * 0.5
        w = half.like(1.0) - half
        # cos: 1 - z/2 + (z**2 C(z) - r tail), with the rounding errors of z/2
        c = ((1.0 - w) - half) + (z * z).fma(z.polynomial(COS_F64), (-r).fma(tail, r.fma(r, -z) * -0.5))
        emit.memo[key] = (*pairs.fast_two_sum(r, s), *pairs.fast_two_sum(w, c))
    return emit.memo[key]


def sin_f64(emit: Sharing, x: V) -> V:
    r, tail, q = _reduce_f64(emit, x)
    sine, _, cosine, _ = _polynomials_f64(emit, x, r, tail)
    return x.lanes.select(x.eq(0.0), x, _quadrant(x, sine, cosine, q))


def cos_f64(emit: Sharing, x: V) -> V:
    r, tail, q = _reduce_f64(emit, x)
    sine, _, cosine, _ = _polynomials_f64(emit, x, r, tail)
    return _quadrant(x, sine, cosine, q + 1)


def tan_f64(emit: Sharing, x: V) -> V:
    lanes = x.lanes
    r, tail, q = _reduce_f64(emit, x)
    sine, sine_low, cosine, cosine_low = _polynomials_f64(emit, x, r, tail)
    odd = (q & 1).ne(0)
    top, top_low = lanes.select(odd, -cosine, sine), lanes.select(odd, -cosine_low, sine_low)
    bottom, bottom_low = lanes.select(odd, sine, cosine), lanes.select(odd, sine_low, cosine_low)
    t = top / bottom
    rest = (-t).fma(bottom_low, (-t).fma(bottom, top) + top_low)
    tiny = x.abs() < 2.0**-500
    return lanes.select(tiny | ~(x.abs() < math.inf), lanes.select(tiny, x, math.nan), t + rest / bottom)


# inverses


def atan_f32(emit: Sharing, x: V) -> V:
    return atan2_f32(emit, x, x.like(1.0))


def atan2_f32(emit: Sharing, y: V, x: V) -> V:
    """The quotient of the smaller by the larger, a polynomial on [0, 1], a multiple of pi/2 as head and tail."""
    lanes = x.lanes
    a, b = y.abs(), x.abs()
    steep = a > b
    top, bottom = lanes.select(steep, b, a), lanes.select(steep, a, b)
    both = top.eq(bottom)  # 0 / 0 and inf / inf
    t = lanes.select(both, lanes.select(top.eq(0.0), top, 1.0), top / bottom)
    z = t * t
    r = (t * z).fma(z.polynomial(ATAN_F32), t)
    left = x.bits() < 0
    r = lanes.select(steep ^ left, -r, r)
    none = r.like(0.0)
    high = lanes.select(steep, 1.57079637, lanes.select(left, 3.14159274, none))
    low = lanes.select(steep, -4.37113883e-8, lanes.select(left, -8.74227766e-8, none))
    return lanes.select(x.compare("uno", y), x + y, (high + (r + low)).copysign(y))


def atan_f64(emit: Sharing, x: V) -> V:
    """By polynomials that are looked up; beyond 1 as pi / 2 - atan(1 / |x|); all with tails."""
    lanes, a = x.lanes, x.abs()
    if not lanes.native.holds(ATAN_PIECES[0], x.element):
        return atan2_f64(emit, x, x.like(1.0))
    far = a > 1.0
    inverse = 1.0 / a
    r, rest, angle = piecewise.by_steps(lanes.select(far, inverse, a), ATAN_PIECES, ATAN_STEP)
    rest = r * rest
    head = PI_HALF_HIGH - angle
    tail = ((PI_HALF_HIGH - head) - angle) + (PI_HALF_LOW - rest)
    tail = lanes.select(a < math.inf, (inverse.fma(a, -1.0)).fma(inverse, tail), tail)
    return (lanes.select(far, head, angle) + lanes.select(far, tail, rest)).copysign(x)


# tan of the breakpoints 0, 1/2, 1, 3/2, infinity and their angles as head and tail (fdlibm s_atan.c uses the same)
ATAN_STEPS = (
    (7.0 / 16.0, 0.5, 4.63647609000806093515e-01, 2.26987774529616870924e-17),
    (11.0 / 16.0, 1.0, 7.85398163397448278999e-01, 3.06161699786838301793e-17),
    (19.0 / 16.0, 1.5, 9.82793723247329054082e-01, 1.39033110312309984516e-17),
)


def atan2_f64(emit: Sharing, y: V, x: V) -> V:
    """Reduces by (a - c b) / (b + c a) for the breakpoint c next to a / b, with a single division."""
    lanes = x.lanes
    a, b = y.abs(), x.abs()
    a, b = _comparable(a, b)
    top, bottom = a, b
    angle, angle_low = a.like(0.0), a.like(0.0)
    for bound, c, high, low in ATAN_STEPS:
        beyond = a > b * bound
        top = lanes.select(beyond, b.fma(-c, a), top)
        bottom = lanes.select(beyond, a.fma(c, b), bottom)
        angle, angle_low = lanes.select(beyond, high, angle), lanes.select(beyond, low, angle_low)
    beyond = a > b * (39.0 / 16.0)
    top, bottom = lanes.select(beyond, -b, top), lanes.select(beyond, a, bottom)
    angle, angle_low = lanes.select(beyond, PI_HALF_HIGH, angle), lanes.select(beyond, PI_HALF_LOW, angle_low)
    t = top / bottom
    t = lanes.select(bottom.eq(0.0), 0.0, t)
    z = t * t
    r = (t * z).fma(z.polynomial(ATAN_F64), angle_low)
    left = x.bits() < 0
    # on the left half plane pi - angle, the heads first
    back, error = pairs.fast_two_sum(angle.like(math.pi), -angle)
    head = lanes.select(left, back, angle)
    turned = lanes.select(left, -t, t)
    rest = lanes.select(left, (2.0 * PI_HALF_LOW - r) + error, r)
    high, low = pairs.two_sum(head, turned)
    result = high + (low + rest)
    result = lanes.select(left | angle.ne(0.0), result, t + r)
    return lanes.select(x.compare("uno", y), x + y, result.copysign(y))


def _comparable(a: V, b: V) -> tuple[V, V]:
    """Magnitudes scaled so that neither products overflow nor the quotient is lost; equal infinities become 1, 1."""
    lanes = a.lanes
    huge = (a > 2.0**1000) | (b > 2.0**1000)
    factor = lanes.select(huge, lanes.constant(2.0**-30, a.element), 1.0)
    a, b = a * factor, b * factor
    both = a.eq(math.inf) & b.eq(math.inf)
    a, b = lanes.select(both, 1.0, a), lanes.select(both, 1.0, b)
    # a finite magnitude beside an infinite one is zero
    a, b = lanes.select(b.eq(math.inf), 0.0, a), lanes.select(a.eq(math.inf), 0.0, b)
    a, b = lanes.select(a.eq(math.inf), 1.0, a), lanes.select(b.eq(math.inf), 1.0, b)
    small = (a < 2.0**-900) & (b < 2.0**-900)
    factor = lanes.select(small, lanes.constant(2.0**100, a.element), 1.0)
    return a * factor, b * factor


def asin_f32(emit: Sharing, x: V) -> V:
    lanes, a = x.lanes, x.abs().f64()
    large = a > 0.5
    z = lanes.select(large, 0.5 - a * 0.5, a * a)
    t = lanes.select(large, z.sqrt(), a)
    r = t * z.polynomial(ASIN_LITE)
    r = lanes.select(large, PI_HALF_HIGH - r * 2.0, r)
    return r.f32().copysign(x)


def acos_f32(emit: Sharing, x: V) -> V:
    lanes, d = x.lanes, x.f64()
    a = d.abs()
    large = a > 0.5
    z = lanes.select(large, 0.5 - a * 0.5, a * a)
    t = lanes.select(large, z.sqrt(), d)
    r = t * z.polynomial(ASIN_LITE)
    near = lanes.select(d < 0.0, math.pi - r * 2.0, r * 2.0)
    return lanes.select(large, near, PI_HALF_HIGH - r).f32()


def _asin_parts(x: V) -> tuple[V, V, V, V]:
    """|x| > 0.5; the root t of z as head and tail (or |x|); t z P(z)."""
    lanes, a = x.lanes, x.abs()
    large = a > 0.5
    half = 0.5 - a * 0.5  # exact
    z = lanes.select(large, half, a * a)
    root = half.sqrt()
    low = (-root).fma(root, half) / (root + root)
    low = lanes.select(large & (half > 0.0), low, 0.0)
    t = lanes.select(large, root, a)
    return large, t, low, t * z * z.polynomial(ASIN_F64)


def asin_f64(emit: Sharing, x: V) -> V:
    lanes = x.lanes
    large, t, low, r = _asin_parts(x)
    high, rest = pairs.fast_two_sum(t.like(PI_HALF_HIGH), t * -2.0)
    reflected = high + (rest + (PI_HALF_LOW - (r + low) * 2.0))
    return lanes.select(large, reflected, t + r).copysign(x)


def acos_f64(emit: Sharing, x: V) -> V:
    lanes = x.lanes
    large, t, low, r = _asin_parts(x)
    rest = r + low
    left = x < 0.0
    high, error = pairs.fast_two_sum(t.like(math.pi), t * -2.0)
    near = lanes.select(left, high + (error + (2.0 * PI_HALF_LOW - rest * 2.0)), (t + rest) * 2.0)
    signed, signed_rest = t.copysign(x), r.copysign(x)
    high, error = pairs.fast_two_sum(t.like(PI_HALF_HIGH), -signed)
    middle = high + (error + (PI_HALF_LOW - signed_rest))
    return lanes.select(large, near, middle)
