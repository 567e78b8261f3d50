"""erf, erfc and the inverse of erf.

With AVX-512 by tables (``piecewise``). Else, float32: erf by Juffa's polynomial in the
exponent, the others in float64; float64: x + x y(x**2) near zero, beyond 0.84 erfc(x) = exp(-x**2 - 0.5625 + g) / x
with the square kept exactly; the inverse refines a polynomial by one step.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from weft.codegen import avx512
from weft.codegen.lanes import V
from weft.codegen.vector_math import exponential, pairs, piecewise
from weft.codegen.vector_math.coefficients import (
    ERF_F64,
    ERF_INV_CENTRE,
    ERF_INV_FAR,
    ERF_INV_TAIL,
    ERFC_FAR_F64,
    ERFC_LITE,
    ERFC_NEAR_F64,
    EXP_F64,
)
from weft.codegen.vector_math.exponential import exp_lite, exp_parts, log_f32, log_f64, log_lite, scale
from weft.codegen.vector_math.piecewise_tables import (
    ERF as ERF_PIECES,
)
from weft.codegen.vector_math.piecewise_tables import (
    ERF_INV as ERF_INV_PIECES,
)
from weft.codegen.vector_math.piecewise_tables import (
    ERFC as ERFC_PIECES,
)
from weft.codegen.vector_math.piecewise_tables import (
    ERFCX as ERFCX_PIECES,
)
from weft.codegen.vector_math.piecewise_tables_f64 import (
    ERF as ERF_PIECES_F64,
)
from weft.codegen.vector_math.piecewise_tables_f64 import (
    ERF_INV as ERF_INV_PIECES_F64,
)
from weft.codegen.vector_math.piecewise_tables_f64 import (
    ERFCX as ERFCX_PIECES_F64,
)
from weft.codegen.vector_math.short_piecewise_tables import ERF as ERF_SHORT
from weft.codegen.vector_math.short_piecewise_tables import ERF_INV as ERF_INV_SHORT
from weft.codegen.vector_math.short_piecewise_tables import ERFCX as ERFCX_SHORT

if TYPE_CHECKING:
    from weft.codegen.emitter import Emitter

BREAK = 0.84375
ERFC_NEAR = 3.92
TWO_OVER_ROOT_PI = 1.1283791670955126
# minimax of log(1 - erf t) for t > 0.93 and of erf t / t - 1 below
ERFC_LOG_F32 = (
    (-1.72853470e-5, 3.83197126e-4),
    (-3.88396438e-3, 2.42546219e-2),
    -1.06777877e-1,
    -6.34846687e-1,
    -1.28717512e-1,
)
ERF_F32 = (-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1)


def erf_f32(emit: Emitter, x: V) -> V:
    result = piecewise.odd_steps(x, ERF_PIECES, 0.125, 3.93, 0.3125)
    if result is None:
        result = piecewise.odd_short(x, ERF_SHORT, 0.53, 3.93)
    return _erf_f32(emit, x) if result is None else result


def _erf_f32(emit: Emitter, x: V) -> V:
    lanes, z = x.lanes, x * x
    t = exponential.clamp(x.abs(), 0.0, 10.0)
    (a, b), (c, d), *rest = ERFC_LOG_F32
    r = t.like(a).fma(t, b)
    u = t.like(c).fma(t, d)
    r = r.fma(t * t, u)
    for coefficient in rest:
        r = r.fma(t, coefficient)
    r = r.fma(t, -t)
    big = (1.0 - exponential.exp_f32(emit, r)).copysign(x)
    small = z.polynomial(ERF_F32).fma(x, x)
    return lanes.select(t > 0.927734375, big, small)


def erfc_f32(emit: Emitter, x: V) -> V:
    if not x.lanes.writer.avx512:
        return _erfc_pieces(x) if x.lanes.writer.short_tables else _erfc_f32(x)
    return x.lanes.cold(x > ERFC_NEAR, lambda: [_erfc_pieces(x)], _erfc_near(x))[0]


def _erfc_near(x: V) -> V:
    """erfc up to ``ERFC_NEAR``, by 32 intervals around equal steps of a (a + 2): narrow where erfc falls fast."""
    lanes, a = x.lanes, x.abs()
    a = lanes.select(a > ERFC_NEAR, ERFC_NEAR, a)  # beyond, 2 - erfc a is 2
    index = a.fma(a.fma(1.35, 2.7), 2.0**23).bits()
    x0, constant, *rest = [avx512.lookup(row, index) for row in ERFC_PIECES]
    r = a - x0
    value = r.fma(r.polynomial(rest[::-1]), constant)
    return lanes.select(x < 0.0, 2.0 - value, value)


def _erfc_pieces(x: V) -> V:
    """exp(-x**2) times exp(x**2) erfc(x): the square with its tail, the product as c + (d + q (c + d))."""
    lanes, a, single = x.lanes, x.abs(), x.element == "float"
    top = 10.2 if single else 28.0
    a = lanes.select(a > top, top, a)
    square, low = pairs.two_product(a, a)
    # in float32 the shift makes a negative r smaller, and the error 1.49 instead of 1.56 ulp
    k = square.fma(-exponential.LOG2_E, -0.08 if single else 0.0).rint()
    ln2_high, ln2_low = exponential.ln2_parts(x.element)
    head = k.fma(-ln2_high, -square)
    r = k.fma(-ln2_low, head)
    low = low - k.fma(-ln2_low, head - r)
    z = r * r
    if single:
        p = r.polynomial(exponential.EXP_F32)
        if lanes.writer.avx512:
            constant, rest = piecewise.parts(a, ERFCX_PIECES, -4)
        else:
            distance, rest, constant = piecewise.by_halves(a, ERFCX_SHORT, 0.75)
            rest = distance * rest
    else:
        p = r.polynomial_of_halves(z, EXP_F64)
        distance, rest, constant = piecewise.by_quarters(a, ERFCX_PIECES_F64, 2.0)
        rest = distance * rest
    rest = z.fma(p, r).fma(constant + rest, rest)
    value = scale(constant + (-low).fma(constant + rest, rest), k)
    return lanes.select(x < 0.0, 2.0 - value, value)


def _erfc_f32(x: V) -> V:
    lanes, d = x.lanes, x.f64()
    a = exponential.clamp(d.abs(), 0.5, 10.2)
    v = (a - 1.0) / (a + 1.0)
    tail = exp_lite(-(a * a)) * v.polynomial(ERFC_LITE) / a
    tail = lanes.select(d < 0.0, 2.0 - tail, tail)
    near = 1.0 - d.fma((d * d).polynomial(ERF_F64), d)
    result = lanes.select(d.abs() < 0.5, near, tail).f32()
    return lanes.select(x.isnan(), x, result)


def _erf_near(x: V) -> V:
    """erf x - x for |x| < 0.84."""
    z = x * x
    return x * z.polynomial_of_halves(z * z, ERF_F64)


def _erfc_far(a: V) -> V:
    """erfc for a in [0.84, 28]."""
    lanes, near = a.lanes, a < 2.0
    padding = (0.0,) * (len(ERFC_FAR_F64) - len(ERFC_NEAR_F64))
    chosen = [
        lanes.select(near, lanes.constant(p, "double"), q)
        for p, q in zip(padding + ERFC_NEAR_F64, ERFC_FAR_F64, strict=True)
    ]
    t = lanes.select(near, a - 1.0, 2.0) / (a + 1.0)
    g = t.polynomial_of_halves(t * t, chosen)
    square, low = pairs.two_product(a, a)
    high, rest = pairs.fast_two_sum(-square, a.like(-0.5625))
    high, error = pairs.fast_two_sum(high, g)
    head, tail, k = exp_parts(high, (error + rest) - low)
    inverse = 1.0 / a
    q = head * inverse
    q = ((-q).fma(a, head) + tail).fma(inverse, q)
    return scale(q, k)


def erf_f64(emit: Emitter, x: V) -> V:
    if not x.lanes.writer.avx512:
        return _erf_f64(x)
    a, top = x.abs(), 15.99 * 0.371
    r, rest, constant = piecewise.by_steps(x.lanes.select(a > top, top, a), ERF_PIECES_F64, 0.371)
    return r.fma(rest, constant).copysign(x)


def _erf_f64(x: V) -> V:
    lanes, a = x.lanes, x.abs()
    far = (1.0 - _erfc_far(exponential.clamp(a, BREAK, 6.5))).copysign(x)
    return lanes.select(a > BREAK, far, x + _erf_near(x))


def erfc_f64(emit: Emitter, x: V) -> V:
    return _erfc_pieces(x) if x.lanes.writer.avx512 else _erfc_f64(x)


def _erfc_f64(x: V) -> V:
    lanes, a = x.lanes, x.abs()
    far = _erfc_far(exponential.clamp(a, BREAK, 28.0))
    far = lanes.select(x < 0.0, 2.0 - far, far)
    rest = _erf_near(x)
    high, low = pairs.two_sum(x - 0.5, rest)
    near = lanes.select(x < 0.25, 1.0 - (x + rest), (0.5 - high) - low)
    return lanes.select(a > BREAK, far, near)


def erf_inv_f32(emit: Emitter, x: V) -> V:
    writer = x.lanes.writer
    return _erf_inv_pieces(emit, x) if writer.avx512 or writer.short_tables else _erf_inv_f32(x)


def _erf_inv_pieces(emit: Emitter, x: V) -> V:
    """x f(w), w = -log(1 - x**2), f(w) as head and tail."""
    single, a = x.element == "float", x.abs()
    w = -(log_f32 if single else log_f64)(emit, (-a).fma(a, 1.0))
    if not x.lanes.writer.avx512:
        r, rest, constant = piecewise.by_halves(w, ERF_INV_SHORT, 1.5)
    else:
        tables, shift = (ERF_INV_PIECES, 0.5) if single else (ERF_INV_PIECES_F64, 2.5)
        r, rest, constant = piecewise.by_quarters(w, tables, shift)
    head = r.fma(rest, constant)
    y, error = pairs.two_product(a, head)
    y = y + a.fma(r.fma(rest, constant - head), error)
    return x.lanes.select(a.eq(1.0), math.inf, y).copysign(x)


def _erf_inv_f32(x: V) -> V:
    """x P(w), w = -log(1 - x**2): one polynomial up to w = 5, one in sqrt w beyond (the form of Giles)."""
    lanes, d = x.lanes, x.f64()
    inside = d.abs() < 1.0
    y = lanes.select(inside, d, 0.0)
    w = -log_lite((1.0 - y) * (y + 1.0))
    p = lanes.select(w < 5.0, w.polynomial(ERF_INV_CENTRE), w.sqrt().polynomial(ERF_INV_TAIL))
    edge = lanes.select(d.abs().eq(1.0), d * math.inf, math.nan)
    return lanes.select(x.eq(0.0), x, lanes.select(inside, y * p, edge).f32())


def erf_inv_f64(emit: Emitter, x: V) -> V:
    return _erf_inv_pieces(emit, x) if x.lanes.writer.avx512 else _erf_inv_f64(emit, x)


def _erf_inv_f64(emit: Emitter, x: V) -> V:
    """One Halley step on the polynomial's value, with erf below 0.5 and erfc above."""
    lanes = x.lanes
    a = lanes.select(x.abs() < 1.0, x.abs(), 0.5)
    w = -log_f64(emit, (1.0 - a) * (a + 1.0))
    s = w.sqrt()
    p = lanes.select(s < 4.1, s.polynomial(ERF_INV_TAIL), s.polynomial(ERF_INV_FAR))
    y = a * lanes.select(w < 5.0, w.polynomial(ERF_INV_CENTRE), p)
    middle = y > BREAK
    near = (y - a) + _erf_near(y)
    near = lanes.select(y > 0.4, ((y - 0.5) + _erf_near(y)) + (0.5 - a), near)
    far = (1.0 - a) - _erfc_far(exponential.clamp(y, BREAK, 28.0))
    # f = erf y - a, f' = 2 / sqrt pi exp(-y**2), f'' = -2 y f'
    step = lanes.select(middle, far, near) / (exponential.exp_f64(emit, -(y * y)) * TWO_OVER_ROOT_PI)
    y = y - step / (y.fma(step, 1.0))
    edge = lanes.select(x.abs().eq(1.0), lanes.constant(math.inf, "double"), math.nan)
    result = lanes.select(x.abs() < 1.0, y, edge).copysign(x)
    tiny = x.abs() < 2.0**-500
    return lanes.select(tiny, x * (TWO_OVER_ROOT_PI**-1), lanes.select(x.isnan(), x, result))
