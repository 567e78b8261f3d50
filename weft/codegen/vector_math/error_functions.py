"""erf, erfc and the inverse of erf.

By tables in registers (``piecewise``), for float32 also by shorter ones. Else erf is 1 - exp of a polynomial, erfc
exp(-x**2) times a smooth function, and the inverse polynomials in log(1 - x**2); float32 in float64 but for erf.
"""

from __future__ import annotations

import math

from weft.codegen.arithmetic.features import Sharing
from weft.codegen.arithmetic.lanes import V
from weft.codegen.vector_math import exponential, pairs, piecewise
from weft.codegen.vector_math.coefficients import (
    ERF_EXPONENT,
    ERF_F64,
    ERF_INV_CENTRE,
    ERF_INV_CENTRE_F64,
    ERF_INV_TAIL,
    ERF_INV_TAIL_F64,
    ERFC_EXPONENT,
    ERFC_LITE,
    EXP_F64,
)
from weft.codegen.vector_math.exponential import exp_lite, log_f32, log_f64, log_lite, scale
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

ERFC_NEAR = 3.92
FAR_F32, FAR = 64, 600  # exponents: 2**k times 2 to them is normal for every k of erfc
# minimax of log(1 - erf t) for t > 0.93 and of erf t / t - 1 below
ERFC_LOG_F32 = (
    (-1.72853470e-5, 3.83197126e-4),
    (-3.88396438e-3, 2.42546219e-2),
    -1.06777877e-1,
    -6.34846687e-1,
    -1.28717512e-1,
)
ERF_F32 = (-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1)


def erf_f32(emit: Sharing, x: V) -> V:
    result = piecewise.odd_steps(x, ERF_PIECES, 0.125, 3.93, 0.3125)
    if result is None:
        result = piecewise.odd_short(x, ERF_SHORT, 0.53, 3.97)  # where it is 1
    return _erf_f32(emit, x) if result is None else result


def _erf_f32(emit: Sharing, x: V) -> V:
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


def erfc_f32(emit: Sharing, x: V) -> V:
    if x.lanes.native.holds(ERFC_PIECES[0], x.element):
        return x.lanes.cold(x > ERFC_NEAR, lambda: [_erfc_pieces(x)], _erfc_near(x))[0]
    return _erfc_short(x) if x.lanes.native.holds(ERFCX_SHORT[0], x.element) else _erfc_f32(x)


def _erfc_near(x: V) -> V:
    """erfc up to ``ERFC_NEAR``, by 32 intervals around equal steps of a (a + 2): narrow where erfc falls fast."""
    lanes, a = x.lanes, x.abs()
    a = lanes.select(a > ERFC_NEAR, ERFC_NEAR, a)  # beyond, 2 - erfc a is 2
    index = a.fma(a.fma(1.35, 2.7), 2.0**23).bits()
    x0, constant, *rest = lanes.native.lookups(ERFC_PIECES, index)
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
        constant, rest = piecewise.parts(a, ERFCX_PIECES, -4)
    else:
        p = r.polynomial_of_halves(z, EXP_F64)
        distance, rest, constant = piecewise.by_quarters(a, ERFCX_PIECES_F64, 2.0)
        rest = distance * rest
    rest = z.fma(p, r).fma(constant + rest, rest)
    value = scale(constant + (-low).fma(constant + rest, rest), k)
    return lanes.select(x < 0.0, 2.0 - value, value)


def _erfc_short(x: V) -> V:
    """exp(-x**2), the square exact, times 8 polynomials."""
    lanes, a = x.lanes, x.abs()
    a = lanes.select(a > 10.2, 10.2, a)
    square, low = pairs.two_product(a, a)
    k, power = exponential.whole_and_power(square, FAR_F32, -exponential.LOG2_E)
    q = exponential.expm1_reduced(exponential.rest(-square, k) - low)
    r, rest, constant = piecewise.by_halves(a, ERFCX_SHORT, 0.75)
    rest = r * rest
    value = (constant + q.fma(constant + rest, rest)) * power * 2.0**-FAR_F32
    return lanes.select(x.bits() < 0, 2.0 - value, value)


def _erfc_f32(x: V) -> V:
    lanes, d = x.lanes, x.f64()
    a = exponential.clamp(d.abs(), 0.5, 10.2)
    v = (a - 1.0) / (a + 1.0)
    tail = exp_lite(-(a * a)) * v.polynomial(ERFC_LITE) / a
    tail = lanes.select(d < 0.0, 2.0 - tail, tail)
    near = 1.0 - d.fma((d * d).polynomial(ERF_F64), d)
    result = lanes.select(d.abs() < 0.5, near, tail).f32()
    return lanes.select(x.isnan(), x, result)


def erf_f64(emit: Sharing, x: V) -> V:
    if not x.lanes.native.holds(ERF_PIECES_F64[0], x.element):
        return _erf_f64(x)
    a, top = x.abs(), 15.99 * 0.371
    r, rest, constant = piecewise.by_steps(x.lanes.select(a > top, top, a), ERF_PIECES_F64, 0.371)
    return r.fma(rest, constant).copysign(x)


def _erf_f64(x: V) -> V:
    """1 - exp(-|x| h), h the polynomial -log(erfc |x|) / |x|."""
    a = x.abs()
    a = x.lanes.select(a > 5.93, 5.93, a)
    exponent = a * a.polynomial_of_halves(a * a, ERF_EXPONENT)
    return exponential.expm1_short(-exponent).copysign(x)


def erfc_f64(emit: Sharing, x: V) -> V:
    return _erfc_pieces(x) if x.lanes.native.holds(ERFCX_PIECES_F64[0], x.element) else _erfc_f64(x)


def _erfc_f64(x: V) -> V:
    """exp(-a**2 + g(v)) 2 / (a + 2), a = |x|, the square kept exactly: g is small and smooth.

    An error ``wrong`` of 1 / (a + 2) changes erfcx a by about ``wrong`` times 1 + 2.5 / (a + 2).
    """
    lanes, a = x.lanes, x.abs()
    a = lanes.select(a > 28.0, 28.0, a)
    square, low = pairs.two_product(a, a)
    below = a + 2.0
    inverse = 1.0 / below
    wrong = (-inverse).fma(a - (below - 2.0), (-inverse).fma(below, 1.0))
    low = (-wrong).fma(inverse.fma(2.5, 1.0), low)
    v = inverse.fma(-4.0, 1.0)
    g = v.polynomial_of_halves(v * v, ERFC_EXPONENT)
    k, power = exponential.whole_and_power((g - square) * exponential.LOG2_E, FAR)
    r = k.fma(-exponential.LN2_HIGH, -square) + (k.fma(-exponential.LN2_LOW, g) - low)
    z = r * r
    q = z.fma(r.polynomial_of_halves(z, EXP_F64), r)
    inverse = inverse + inverse
    value = q.fma(inverse, inverse) * power * 2.0**-FAR
    return lanes.select(x < 0.0, 2.0 - value, value)


def erf_inv_f32(emit: Sharing, x: V) -> V:
    return _erf_inv_pieces(emit, x) if x.lanes.native.holds(ERF_INV_SHORT[0], x.element) else _erf_inv_f32(x)


def _erf_inv_pieces(emit: Sharing, x: V) -> V:
    """x f(w), w = -log(1 - x**2), f(w) as head and tail."""
    single, a = x.element == "float", x.abs()
    w = -(log_f32 if single else log_f64)(emit, (-a).fma(a, 1.0))
    tables, shift = (ERF_INV_PIECES, 0.5) if single else (ERF_INV_PIECES_F64, 2.5)
    if x.lanes.native.holds(tables[0], x.element):
        r, rest, constant = piecewise.by_quarters(w, tables, shift)
    else:
        r, rest, constant = piecewise.by_halves(w, ERF_INV_SHORT, 1.5)
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


def erf_inv_f64(emit: Sharing, x: V) -> V:
    return (_erf_inv_pieces if x.lanes.native.holds(ERF_INV_PIECES_F64[0], x.element) else _erf_inv_f64)(emit, x)


def _erf_inv_f64(emit: Sharing, x: V) -> V:
    """x f(w), w = -log(1 - x**2): a polynomial in w up to 6.25, beyond (one in 500 of a uniform x) in sqrt w."""
    lanes, a = x.lanes, x.abs()
    w = -log_f64(emit, (-a).fma(a, 1.0))
    u = w - 3.125
    near = u.polynomial_of_halves(u * u, ERF_INV_CENTRE_F64)

    def far() -> list[V]:
        s = w.sqrt() - 4.25
        return [s.polynomial_of_halves(s * s, ERF_INV_TAIL_F64)]

    y = a * lanes.cold(w > 6.25, far, near)[0]
    return lanes.select(a.eq(1.0), math.inf, y).copysign(x)
