"""The inverse error function of uniform draws, in float32 exactly as XLA's CPU backend rounds it.

``erf_inv`` is more accurate (0.6 ulp; this one loses up to 65 near 1, where 1 - x**2 cancels), but random normal values
are promised bit for bit, so they are made of this one: Giles' polynomial in w = -log1p(-x**2), the logarithm by Cephes'
two forms, every product that feeds one sum contracted.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from weft.codegen.lanes import V

if TYPE_CHECKING:
    from weft.codegen.emitter import Emitter

# Cephes' log1p: x - x**2 / 2 + x**3 P(x) / Q(x), for 1 + x in [sqrt 1/2, sqrt 2]
LOG1P_P = (4.5270000862e-5, 0.49854102823, 6.5787325942, 29.911919328, 60.949667981, 57.112963591, 20.039553499)
LOG1P_Q = (1.0, 15.062909083, 83.047565968, 221.76239824, 309.09872222, 216.42788614, 60.118660498)
LOG1P_RANGE = 0.41421356237309504
# Cephes' logf: the three interleaved parts of one polynomial, and ln 2 as a head and a tail
LOG_PARTS = (
    (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1),
    (-1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1),
    (2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
)
LN2_HEAD, LN2_TAIL = 0.693359375, -2.12194440e-4
# Giles' two polynomials, highest power first: in w - 2.5 below 5 and in sqrt(w) - 3 beyond
CENTRE = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
    0.246640727, 1.50140941,
)  # fmt: skip
TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
    1.00167406, 2.83297682,
)  # fmt: skip


def _log(x: V) -> V:
    """log x for positive x, subnormal ones taken for the least normal."""
    lanes = x.lanes
    bits = lanes.select(x > 2.0**-126, x, 2.0**-126).bits()
    m = ((bits & 0x007FFFFF) | 0x3F000000).as_float()
    low = m < math.sqrt(0.5)
    e = (bits.lshr(23) - 126).to_float("float") - lanes.select(low, x.like(1.0), 0.0)
    t = (m - 1.0) + lanes.select(low, m, 0.0)
    square = t * t
    cube = square * t
    first, second, third = (t.polynomial(part) for part in LOG_PARTS)
    tail = cube.fma(first.fma(cube, second).fma(cube, third), e * LN2_TAIL)
    return e.fma(LN2_HEAD, square.fma(-0.5, t) + tail)


def _log1p(x: V) -> V:
    lanes, square = x.lanes, x * x
    ratio = x.polynomial(LOG1P_P) / x.polynomial(LOG1P_Q)
    near = x + square.fma(-0.5, (x * square) * ratio)
    return lanes.select(x.abs() < LOG1P_RANGE, near, _log(x + 1.0))


def erf_inv_drawn(emit: Emitter, x: V) -> V:
    """The inverse of erf at a float32 in -1..1, infinite at the ends and NaN outside."""
    lanes, a = x.lanes, x.abs()
    log = _log1p(x * -x)
    centre = log > -5.0
    s = lanes.select(centre, -2.5 - log, (-log).sqrt() - 3.0)
    p = s.polynomial([lanes.select(centre, x.like(c), t) for c, t in zip(CENTRE, TAIL, strict=True)])
    edge = lanes.select(a.eq(1.0), x.like(math.inf), math.nan)
    return x * lanes.select(a < 1.0, p, edge)
