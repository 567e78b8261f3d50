"""The structure of floats: half precisions, rounding to fewer bits, total order, next value, quotient, remainder."""

from __future__ import annotations

import numpy as np

from weft.codegen.arithmetic import byte_floats, cold
from weft.codegen.arithmetic.features import Sharing
from weft.codegen.arithmetic.lanes import FLOAT_BITS, SUFFIX, V
from weft.loops import elements

MANTISSA = {"float": 23, "double": 52}
EXPONENT = {"float": 8, "double": 11}
# For remainders: bounds of the quotient and of the divisor, the factor by which an inverse is too large.
REMAINDERS = {
    "float": (2.0**22, 2.0**-100, 2.0**126, 2.0**-22),
    "double": (2.0**51, 2.0**-900, 2.0**1022, 2.0**-51),
}
LEAST_DIVIDED = 2.0**-900  # for smaller dividends the remainder may be subnormal


def _sign(element: str) -> int:
    return -(1 << (FLOAT_BITS[element] - 1))


def round_to(x: V, dtype: np.dtype, any_nan: bool = True) -> V:
    """A float32 rounded to a smaller type and back, to nearest even; NaN stays NaN, subnormals are kept.

    Without ``any_nan`` every NaN must have zeros in the bits that are rounded away, so that rounding cannot carry into
    the sign.
    """
    if dtype == elements.FLOAT16:
        return x.cast("fptrunc", "half").cast("fpext", "float")
    if dtype != elements.BFLOAT16:
        return byte_floats.decode(byte_floats.encode(x, dtype), dtype)
    bits = x.bits()
    # in integers, since the processor's own conversion flushes subnormals; adding the last kept bit rounds ties to even
    rounded = ((bits | (bits.lshr(16) & 1)) + 0x7FFF) & -0x10000
    if not any_nan and not x.lanes.native.full_nans:
        return rounded.as_float()
    return x.lanes.select(x.isnan(), (bits & -0x10000) | 0x400000, rounded).as_float()


def encode(x: V, dtype: np.dtype) -> V:
    """The bits, as an integer of the dtype's size, of a float32 that is exact in the dtype (or of the float itself)."""
    if dtype == elements.BFLOAT16:
        return x.bits().lshr(16).cast("trunc", "i16")
    if dtype == elements.FLOAT16:
        return x.cast("fptrunc", "half").cast("bitcast", "i16")
    return x.bits() if elements.of(dtype).kind == "f" else byte_floats.encode(x, dtype)


def decode(bits: V, dtype: np.dtype) -> V:
    """The inverse of ``encode``."""
    if dtype == elements.BFLOAT16:
        return (bits.cast("zext", "i32") << 16).as_float()
    if dtype == elements.FLOAT16:
        return bits.cast("bitcast", "half").cast("fpext", "float")
    return bits.as_float() if elements.of(dtype).kind == "f" else byte_floats.decode(bits, dtype)


def narrow_odd(x: V) -> V:
    """float64 to float32 rounded to odd, so that a later rounding to a smaller type is the only one."""
    lanes = x.lanes
    near = x.f32()
    back = near.f64()
    bits = near.bits()
    inward = lanes.select(back.abs() > x.abs(), bits - 1, bits)
    odd = lanes.select(back.ne(x) & x.eq(x), inward | 1, bits)
    return odd.as_float()


def total_order(x: V) -> V:
    """An integer whose signed order is that of the bits: -NaN < -inf < ... < -0 < +0 < ... < inf < NaN."""
    bits = x.bits()
    return bits ^ ((bits >> (FLOAT_BITS[x.element] - 1)).lshr(1))


def next_bits(a: V, b: V, x: V, y: V, dtype: np.dtype) -> V:
    """Bits of the neighbour of x (bits a) towards y (bits b); a and b may be shorter than x and y."""
    lanes, width = a.lanes, int(a.element[1:])
    if width == 8:
        return byte_floats.next_code(a, b, x, y, dtype)
    sign = -(1 << (width - 1))
    toward_zero = (y.abs() < x.abs()) | ((a ^ b) < 0)
    stepped = a + lanes.select(toward_zero, lanes.constant(-1, a.element), 1)
    stepped = lanes.select(x.eq(0.0), (b & sign) | 1, stepped)
    stepped = lanes.select(x.eq(y), b, stepped)
    nan = {16: a | b | 0x7FFF, 32: a | 0x7FC00000, 64: a | 0x7FF8000000000000}[width]
    return lanes.select(x.compare("uno", y), nan, stepped)


def round_half_away(x: V) -> V:
    t = x.trunc()
    away = (x - t).abs() >= 0.5
    step = x.like(1.0).copysign(x)
    # copysign again: trunc(-0.4) is -0.0 already, and a whole number keeps its sign
    return x.lanes.select(away, t + step, t)


def reduce_precision(x: V, exponent_bits: int, mantissa_bits: int) -> V:
    """Round to nearest even with fewer bits; overflow gives inf, underflow a signed zero."""
    lanes, element = x.lanes, x.element
    mantissa, exponent, width = MANTISSA[element], EXPONENT[element], FLOAT_BITS[element]
    bits = x.bits()
    sign = bits & _sign(element)
    drop = mantissa - mantissa_bits
    if drop > 0:
        bits = (bits + (bits.lshr(drop) & 1) + ((1 << (drop - 1)) - 1)) & -(1 << drop)
    if exponent_bits < exponent:
        bias, small_bias = (1 << (exponent - 1)) - 1, (1 << (exponent_bits - 1)) - 1
        magnitude = bits & ~_sign(element) & ((1 << width) - 1)
        inf = ((1 << exponent) - 1) << mantissa
        largest = (bias + small_bias) << mantissa | ((1 << mantissa) - (1 << max(drop, 0)))
        least = (bias - small_bias + 1) << mantissa
        bits = lanes.select(magnitude > largest, sign | inf, bits)
        bits = lanes.select(magnitude < least, sign, bits)
    return lanes.select(x.isnan(), x, bits.as_float())


def divide(x: V, y: V) -> V:
    """x / y, without a division for float64 if y is the same in all lanes.

    The quotient is x times the inverse of y, corrected by the remainder times the inverse. That is correctly rounded
    for every x that is not tiny (N. Brisebarre, J.-M. Muller, S. K. Raina, "Accelerating correctly rounded
    floating-point division when the divisor is known in advance", 2004). For zeros, infinities and NaN the first
    product is the result.
    """
    lanes, one = x.lanes, x.lanes.one_of(y)
    if one is None or x.element == "float" or not lanes.writer.model.waits:
        return x / y

    def prepare() -> list[str]:
        unusual = ~((one.abs() >= 1.0) & (one.abs() <= 2.0**60))
        return [lanes.splat((1.0 / one).text, "double").text, unusual.text]

    text, unusual = lanes.writer.beside(y.text, "inverse", prepare)
    inverse = V(lanes, "double", text)
    quotient = x * inverse
    rest = (-quotient).fma(y, x)
    inexact = rest.compare("one", 0.0)
    found = lanes.select(inexact, rest.fma(inverse, quotient), quotient)
    slow = lanes.writer.op(f"or i1 {unusual}, {lanes.any(inexact & (x.abs() < LEAST_DIVIDED))}")
    return V(lanes, "double", lanes.writer.when(slow, lambda: [(x / y).text], [lanes.type("double")], [found.text])[0])


def remainder(emit: Sharing, x: V, y: V) -> V:
    """C's fmod, exact. Lanes with a quotient below 2**22 (2**51) are fast: one fma gives their remainder.

    If y is the same in all lanes the quotient is a product with an inverse, which is rounded up: quotients below 2**20
    (2**49) are then at most one too large.
    """
    lanes, one = x.lanes, x.lanes.one_of(y)
    a, b = x.abs(), y.abs()
    limit, least, most, excess = REMAINDERS[x.element]

    def prepare() -> list[str]:
        assert one is not None
        size = one.abs()
        below = one.lanes.select((size < most) & (size > least), one.like(limit / 4.0), 0.0)
        return [
            lanes.splat((1.0 / size * (1.0 + excess)).text, x.element).text,
            lanes.splat(below.text, x.element).text,
        ]

    if one is None:
        quotient, below = (a / b).trunc(), lanes.select((b < most) & (b > least), b.like(limit), 0.0)
    else:
        inverse, below = (V(lanes, x.element, t) for t in lanes.writer.beside(y.text, "remainder", prepare))
        quotient = (a * inverse).trunc()
    rest = (-quotient).fma(b, a)
    rest = lanes.select(rest < 0.0, rest + b, rest)
    if one is None:
        rest = lanes.select(rest >= b, rest - b, rest)
    slow = ~(quotient < below)  # huge quotients, tiny and huge divisors, zero, infinities and NaN
    name = f"far_remainder_{SUFFIX[x.element]}"
    return cold.mend_lanes(emit, name, slow, _far_remainder, (x, y), (rest.copysign(x),))[0]


def _far_remainder(x: V, y: V) -> list[V]:
    """The remainder of any two numbers, in one lane: the digits of a long division, 11 bits each."""
    if x.element == "float":
        return [v.f32() for v in _far_remainder(x.f64(), y.f64())]
    lanes, writer = x.lanes, x.lanes.writer
    inf, hidden = 0x7FF << 52, 1 << 52
    a, b = x.bits() & ~_sign("double"), y.bits() & ~_sign("double")
    # a = m 2**(exponent - 1075) with a whole m, also where a is subnormal
    a_exponent, b_exponent = (v.lshr(52).intrinsic("smax", 1) for v in (a, b))
    m, n = a - ((a_exponent << 52) - hidden), b - ((b_exponent << 52) - hidden)
    n, digits = n.intrinsic("umax", 1), a_exponent - b_exponent

    def digit(values: list[str]) -> tuple[list[str], str]:
        rest, left = (V(lanes, "i64", text) for text in values)
        shift = left.intrinsic("smin", 11)
        rest, left = (rest << shift).binary("urem", n), left - shift
        return [rest.text, left.text], (left > 0).text

    def divided() -> list[str]:
        started = [("i64", m.binary("urem", n).text), ("i64", digits.text)]
        return writer.rounds((digits > 0).text, 2046 // 11 + 1, started, digit)[:1]

    (rest,) = writer.when((digits >= 0).text, divided, ["i64"], [m.text], rare=False)
    # rest 2**(b_exponent - 1075), by two products that are exact since the result is a float
    half = (b_exponent - 1).lshr(1)
    found = V(lanes, "i64", rest).as_float()
    for power in (half, b_exponent - 1 - half):
        found = found * ((power + 1023) << 52).as_float()
    found = lanes.select(digits < 0, x, found.copysign(x))
    ordinary = (a < inf) & (b - 1).compare("ult", inf)
    return [lanes.select(ordinary, found, (x * y) / (x * y))]
