"""The inverse error function for random normal values, rounded exactly as XLA's CPU backend does.

``erf_inv`` is more accurate (0.6 ulp; this one loses up to 65, in float64 15,000, near 1, where 1 - x**2 cancels). But
random normal values are promised bit for bit, so they use this one: Giles' polynomials in w = -log1p(-x**2), the
logarithm by Cephes' forms or that of the C library, every product followed by a sum contracted.
"""

from __future__ import annotations

import math

from weft.codegen.arithmetic import cold
from weft.codegen.arithmetic.features import Sharing
from weft.codegen.arithmetic.lanes import V
from weft.codegen.vector_math import library_log
from weft.codegen.vector_math.exponential import SQRT_HALF_BITS, split

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
# float64: Cephes' log1p, and Giles' three polynomials in w - 3.125, sqrt(w) - 3.25 and sqrt(w) - 5
LOG1P_P_F64 = (
    4.5270000862445199635215e-5, 4.9854102823193375972212e-1, 6.5787325942061044846969, 2.9911919328553073277375e1,
    6.0949667980987787057556e1, 5.7112963590585538103336e1, 2.0039553499201281259648e1,
)  # fmt: skip
LOG1P_Q_F64 = (
    1.0, 1.5062909083469192043167e1, 8.3047565967967209469434e1, 2.2176239823732856465394e2, 3.0909872225312059774938e2,
    2.1642788614495947685003e2, 6.0118660497603843919306e1,
)  # fmt: skip
CENTRE_F64 = (
    -3.6444120640178196996e-21, -1.685059138182016589e-19, 1.2858480715256400167e-18, 1.115787767802518096e-17,
    -1.333171662854620906e-16, 2.0972767875968561637e-17, 6.6376381343583238325e-15, -4.0545662729752068639e-14,
    -8.1519341976054721522e-14, 2.6335093153082322977e-12, -1.2975133253453532498e-11, -5.4154120542946279317e-11,
    1.051212273321532285e-09, -4.1126339803469836976e-09, -2.9070369957882005086e-08, 4.2347877827932403518e-07,
    -1.3654692000834678645e-06, -1.3882523362786468719e-05, 0.0001867342080340571352, -0.00074070253416626697512,
    -0.0060336708714301490533, 0.24015818242558961693, 1.6536545626831027356,
)  # fmt: skip
MIDDLE_F64 = (
    2.2137376921775787049e-09, 9.0756561938885390979e-08, -2.7517406297064545428e-07, 1.8239629214389227755e-08,
    1.5027403968909827627e-06, -4.013867526981545969e-06, 2.9234449089955446044e-06, 1.2475304481671778723e-05,
    -4.7318229009055733981e-05, 6.8284851459573175448e-05, 2.4031110387097893999e-05, -0.0003550375203628474796,
    0.00095328937973738049703, -0.0016882755560235047313, 0.0024914420961078508066, -0.0037512085075692412107,
    0.005370914553590063617, 1.0052589676941592334, 3.0838856104922207635,
)  # fmt: skip
TAIL_F64 = (
    -2.7109920616438573243e-11, -2.5556418169965252055e-10, 1.5076572693500548083e-09, -3.7894654401267369937e-09,
    7.6157012080783393804e-09, -1.4960026627149240478e-08, 2.9147953450901080826e-08, -6.7711997758452339498e-08,
    2.2900482228026654717e-07, -9.9298272942317002539e-07, 4.5260625972231537039e-06, -1.9681778105531670567e-05,
    7.5995277030017761139e-05, -0.00021503011930044477347, -0.00013871931833623122026, 1.0103004648645343977,
    4.8499064014085844221,
)  # fmt: skip


def _log(x: V) -> V:
    """log x for positive x, subnormal ones taken for the least normal."""
    lanes = x.lanes
    m, e = split(lanes.select(x > 2.0**-126, x, 2.0**-126), SQRT_HALF_BITS["float"])
    t = m - 1.0
    square = t * t
    cube = square * t
    first, second, third = (t.polynomial(part) for part in LOG_PARTS)
    tail = cube.fma(first.fma(cube, second).fma(cube, third), e * LN2_TAIL)
    return e.fma(LN2_HEAD, square.fma(-0.5, t) + tail)


def _log1p_near(x: V, numerator: tuple[float, ...], denominator: tuple[float, ...]) -> V:
    square = x * x
    ratio = x.polynomial(numerator) / x.polynomial(denominator)
    return x + square.fma(-0.5, (x * square) * ratio)


def _log1p(x: V) -> V:
    near = _log1p_near(x, LOG1P_P, LOG1P_Q)
    return x.lanes.select(x.abs() < LOG1P_RANGE, near, _log(x + 1.0))


def _log1p_f64(emit: Sharing, x: V) -> V:
    near = _log1p_near(x, LOG1P_P_F64, LOG1P_Q_F64)
    return cold.mend_lanes(emit, "log1p_beyond", _is_beyond(x), _log1p_beyond, (x,), (near,), _is_beyond)[0]


def _log1p_beyond(x: V) -> list[V]:
    return [library_log.log_f64(x + 1.0)]


def _is_beyond(x: V) -> V:
    return ~(x.abs() < LOG1P_RANGE)


def erf_inv_drawn(emit: Sharing, x: V) -> V:
    """The inverse of erf at a float32 in -1..1, infinite at the ends and NaN outside."""
    log = _log1p(x * -x)
    near = x * (-2.5 - log).polynomial(CENTRE)
    usual = log > -5.0  # but for one of 300 in -1..1: outside the logarithm is that of 2**-126
    return x.lanes.cold(~usual, lambda: [_drawn_far(x, log)], near, rare=False)[0]


def _drawn_far(x: V, log: V) -> V:
    return x * _inside(x, ((-log).sqrt() - 3.0).polynomial(TAIL))


def erf_inv_drawn_f64(emit: Sharing, x: V) -> V:
    """The inverse of erf at a float64 in -1..1, infinite at the ends and NaN outside."""
    w = -_log1p_f64(emit, x * -x)
    near = x * (w - 3.125).polynomial(CENTRE_F64)
    usual = (w < 6.25) & (x.abs() < 1.0)  # but for one of 1000 in -1..1
    return x.lanes.cold(~usual, lambda: [_drawn_far_f64(x, w)], near, rare=False)[0]


def _drawn_far_f64(x: V, w: V) -> V:
    lanes, root = x.lanes, w.sqrt()
    p = lanes.select(w < 16.0, (root - 3.25).polynomial(MIDDLE_F64), (root - 5.0).polynomial(TAIL_F64))
    return x * _inside(x, p)


def _inside(x: V, p: V) -> V:
    """p, or what makes the product with x infinite at -1 and 1, and NaN beyond them."""
    lanes, a = x.lanes, x.abs()
    return lanes.select(a < 1.0, p, lanes.select(a.eq(1.0), x.like(math.inf), math.nan))
