"""sqrt, rsqrt, cbrt."""

from __future__ import annotations

import math

from weft.codegen.arithmetic.features import Sharing
from weft.codegen.arithmetic.lanes import V
from weft.codegen.vector_math.exponential import scale
from weft.codegen.vector_math.piecewise_tables import CBRT

LEAST_ROOTED, LIMIT_ROOTED = (127 - 100) << 23, (127 + 126) << 23  # bits of 2**-100 and 2**126
INVERSE_START = 1420000000.0  # bits of a**(-1/3) are about this less a third of a's bits


def sqrt_f32(emit: Sharing, x: V) -> V:
    return _root_by_products(x) if emit.is_second and x.lanes.native.whole_registers(x) else x.sqrt()


def sqrt_f64(emit: Sharing, x: V) -> V:
    return x.sqrt()


def rsqrt_f32(emit: Sharing, x: V) -> V:
    return 1.0 / sqrt_f32(emit, x)


def rsqrt_f64(emit: Sharing, x: V) -> V:
    return 1.0 / x.sqrt()


def _root_by_products(x: V) -> V:
    """The rounded root of a float32 without the root instruction, whose unit is busy (10 cycles a vector).

    From 14 bits of the inverse root Newton's step gives g = sqrt x and h = 1 / (2 sqrt x); x - g**2, which is exact if
    x is not tiny, gives the error of g (P. Markstein, "Computation of elementary functions on the IBM RISC System/6000
    processor", 1990). The result is correctly rounded for every mantissa, by enumeration on each processor that runs
    tests/codegen/test_roots.py.
    """
    lanes = x.lanes
    zero = x.eq(0.0)
    inverse = lanes.native.inverse_root(x)
    g = x * inverse
    h = (inverse.bits() - (1 << 23)).as_float()  # half of it, without using the multiplication units
    step = (-g).fma(h, 0.5)
    g, h = g.fma(step, g), h.fma(step, h)
    root = lanes.select(zero, x, (-g).fma(g, x).fma(h, g))
    ordinary = (x.bits() - LEAST_ROOTED).compare("ult", LIMIT_ROOTED - LEAST_ROOTED)
    slow = lanes.any(~(ordinary | zero))  # tiny, negative, infinite, NaN
    return V(lanes, "float", lanes.writer.when(slow, lambda: [x.sqrt().text], [lanes.type("float")], [root.text])[0])


def _inverse_start(a: V) -> V:
    """a**(-1/3) of an ordinary float32 to 4 bits, from the bits of a; with 22 bits after three steps."""
    y = (a.bits().to_float("float").fma(-1.0 / 3.0, INVERSE_START)).cast("fptosi", "i32").as_float()
    third = a * (-1.0 / 3.0)
    for _ in range(3):
        y = y * (third * y).fma(y * y, 4.0 / 3.0)
    return y


def _cube_root(x: V) -> tuple[V, V, V]:
    """m in [1, 8), m**(-1/3) to 43 bits and the scale of the root of a positive float64.

    The exponent is divided by three; Newton's steps run in float32 first.
    """
    bits = x.bits()
    exponent = (bits.lshr(52) - 1023).cast("trunc", "i32")
    third = ((exponent + 3072) * 21846).lshr(16) - 1024  # floor division of a small integer
    rest = exponent - third * 3
    m = ((bits & ((1 << 52) - 1)) | ((rest + 1023).cast("sext", "i64") << 52)).as_float()
    y = _inverse_start(m.f32()).f64()
    y = y * ((m * (-1.0 / 3.0)) * y).fma(y * y, 4.0 / 3.0)
    scale = ((third + 1023).cast("sext", "i64") << 52).as_float()
    return m, y, scale


def _corrected(a: V, r: V, weight: V) -> V:
    """A Newton step with the exact residual a - r**3."""
    square = r * r
    low = r.fma(r, -square)
    cube = square * r
    residual = (a - cube) - (square.fma(r, -cube) + low * r)
    return residual.fma(weight, r)


def cbrt_f32(emit: Sharing, x: V) -> V:
    """The root of 2**rest m by a polynomial looked up by rest and three bits of m, times 2**third."""
    lanes, a = x.lanes, x.abs()
    parts = lanes.native.mantissa_and_exponent(a)
    if parts is None:
        return _cbrt_f32(x)
    m, k = parts
    third = k.fma(1.0 / 3.0, -1.0 / 3.0).rint()
    index = (third.fma(-3.0, k) + 1.5 * 2.0**20).bits() + (m.bits() >> 20)  # the sum counts eighths
    x0, constant, *rest = lanes.native.lookups(CBRT, index)
    r = m - x0
    root = scale(r.fma(r.polynomial(rest[::-1]), constant), third)
    if not lanes.native.whole_registers(x):  # scale needs an ordinary exponent there
        root = lanes.select((a + a).eq(a), a, root)
    return root.copysign(x)


def _cbrt_f32(x: V) -> V:
    """Newton for a**(-1/3) without divisions, from the exponent's third; a last exact step."""
    lanes, a = x.lanes, x.abs()
    ordinary = (a > 0.0) & (a < math.inf)
    tiny, huge = a < 2.0**-126, a > 2.0**100  # the cube of the root must neither underflow nor overflow
    a = lanes.select(tiny, a * 2.0**24, lanes.select(huge, a * 2.0**-24, a))
    a = lanes.select(ordinary, a, 1.0)
    y = _inverse_start(a)
    square = y * y
    c = _corrected(a, a * square, square * (1.0 / 3.0))
    c = lanes.select(tiny, c * 2.0**-8, lanes.select(huge, c * 2.0**8, c))
    return lanes.select(ordinary, c.copysign(x), x)


def cbrt_f64(emit: Sharing, x: V) -> V:
    lanes, a = x.lanes, x.abs()
    ordinary = (a > 0.0) & (a < math.inf)
    tiny = a < 2.0**-1022
    d = lanes.select(ordinary, lanes.select(tiny, a * 2.0**60, a), 1.0)
    m, y, scale = _cube_root(d)
    square = y * y
    r = _corrected(m, m * square, square * (1.0 / 3.0)) * scale
    r = lanes.select(tiny, r * 2.0**-20, r)
    return lanes.select(ordinary, r.copysign(x), x)
