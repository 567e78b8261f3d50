"""sqrt, rsqrt, cbrt."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from weft.codegen.lanes import V

if TYPE_CHECKING:
    from weft.codegen.emitter import Emitter

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


def cbrt_f32(emit: Emitter, x: V) -> V:
    lanes = x.lanes
    ordinary = (x.abs() > 0.0) & (x.abs() < math.inf)
    d = lanes.select(ordinary, x.abs(), 1.0).f64()
    return lanes.select(ordinary, _cube_root(d, 3).f32().copysign(x), x)


def cbrt_f64(emit: Emitter, x: V) -> V:
    lanes, a = x.lanes, x.abs()
    ordinary = (a > 0.0) & (a < math.inf)
    tiny, huge = a < 2.0**-1000, a > 2.0**1000  # the cube of the root must neither vanish nor overflow
    d = lanes.select(tiny, a * 2.0**90, lanes.select(huge, a * 2.0**-90, a))
    d = lanes.select(ordinary, d, 1.0)
    r = _cube_root(d, 4)
    # last correction with the exact residual d - r**3
    square = r * r
    low = r.fma(r, -square)
    cube = square * r
    residual = (d - cube) - (square.fma(r, -cube) + low * r)
    r = r + residual / (square * 3.0)
    r = lanes.select(tiny, r * 2.0**-30, lanes.select(huge, r * 2.0**30, r))
    return lanes.select(ordinary, r.copysign(x), x)
