"""sqrt, rsqrt, cbrt."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from weft.codegen.lanes import V

if TYPE_CHECKING:
    from weft.codegen.emitter import Emitter

INVERSE_START = 1420000000.0  # bits of a**(-1/3) are about this less a third of a's bits
# minimax-like start for m**(1/3) on [1, 8): a quadratic through three points, 5 bits
START = (-0.0172, 0.2940, 0.7370)


def sqrt(emit: Emitter, x: V) -> V:
    return x.sqrt()


def rsqrt(emit: Emitter, x: V) -> V:
    return 1.0 / x.sqrt()


def _cube_root(x: V, steps: int) -> V:
    """Of a positive float64: the exponent divided by three, then Newton's steps doubling the bits."""
    bits = x.bits()
    exponent = (bits.lshr(52) - 1023).cast("trunc", "i32")
    third = ((exponent + 3072) * 21846).lshr(16) - 1024  # floor division of a small integer
    rest = exponent - third * 3
    m = ((bits & ((1 << 52) - 1)) | ((rest + 1023).cast("sext", "i64") << 52)).as_float()
    r = m.polynomial(START)
    for _ in range(steps):
        r = r - (r - m / (r * r)) * (1.0 / 3.0)
    return r * ((third + 1023).cast("sext", "i64") << 52).as_float()


def _corrected(a: V, r: V, weight: V) -> V:
    """A Newton step with the exact residual a - r**3."""
    square = r * r
    low = r.fma(r, -square)
    cube = square * r
    residual = (a - cube) - (square.fma(r, -cube) + low * r)
    return residual.fma(weight, r)


def cbrt_f32(emit: Emitter, x: V) -> V:
    """Newton for a**(-1/3) without divisions, from the exponent's third; a last exact step."""
    lanes, a = x.lanes, x.abs()
    ordinary = (a > 0.0) & (a < math.inf)
    tiny, huge = a < 2.0**-126, a > 2.0**100  # the cube of the root must neither vanish nor overflow
    a = lanes.select(tiny, a * 2.0**24, lanes.select(huge, a * 2.0**-24, a))
    a = lanes.select(ordinary, a, 1.0)
    y = (a.bits().to_float("float").fma(-1.0 / 3.0, INVERSE_START)).cast("fptosi", "i32").as_float()
    third = a * (-1.0 / 3.0)
    for _ in range(3):
        y = y * (third * y).fma(y * y, 4.0 / 3.0)
    square = y * y
    c = _corrected(a, a * square, square * (1.0 / 3.0))
    c = lanes.select(tiny, c * 2.0**-8, lanes.select(huge, c * 2.0**8, c))
    return lanes.select(ordinary, c.copysign(x), x)


def cbrt_f64(emit: Emitter, x: V) -> V:
    lanes, a = x.lanes, x.abs()
    ordinary = (a > 0.0) & (a < math.inf)
    tiny, huge = a < 2.0**-1000, a > 2.0**1000  # the cube of the root must neither vanish nor overflow
    d = lanes.select(tiny, a * 2.0**90, lanes.select(huge, a * 2.0**-90, a))
    d = lanes.select(ordinary, d, 1.0)
    r = _cube_root(d, 4)
    r = _corrected(d, r, 1.0 / (r * r * 3.0))
    r = lanes.select(tiny, r * 2.0**-30, lanes.select(huge, r * 2.0**30, r))
    return lanes.select(ordinary, r.copysign(x), x)
