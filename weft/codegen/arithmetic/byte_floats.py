"""Floats of one byte (float8_*, float6_*, float4_*): exact widening to float32, and rounding from it to nearest even.

A format has M mantissa bits, a bias, a largest finite code and a sign above its other bits. Larger values become
infinity; where the format has none, NaN; where it has neither, the largest finite value. float8_e8m0fnu has the powers
of two and NaN alone.
"""

from __future__ import annotations

import numpy as np

from weft._base.record import Record
from weft.codegen.arithmetic.lanes import V


class Format(Record):
    mantissa: int
    bias: int
    largest: int  # code of the largest finite value
    infinity: int | None
    nan: int | None  # 0x80: the format has neither -0 nor infinities
    sign: int = 0x80


FORMATS = {
    "float8_e3m4": Format(4, 3, 0x6F, 0x70, 0x78),
    "float8_e4m3": Format(3, 7, 0x77, 0x78, 0x7C),
    "float8_e5m2": Format(2, 15, 0x7B, 0x7C, 0x7E),
    "float8_e4m3fn": Format(3, 7, 0x7E, None, 0x7F),
    "float8_e4m3b11fnuz": Format(3, 11, 0x7F, None, 0x80),
    "float8_e4m3fnuz": Format(3, 8, 0x7F, None, 0x80),
    "float8_e5m2fnuz": Format(2, 16, 0x7F, None, 0x80),
    "float6_e2m3fn": Format(3, 1, 0x1F, None, None, 0x20),
    "float6_e3m2fn": Format(2, 3, 0x1F, None, None, 0x20),
    "float4_e2m1fn": Format(1, 1, 0x07, None, None, 0x08),
}
POWERS = "float8_e8m0fnu"  # codes 0 to 254: 2**(code - 127); 255: NaN


def decode(code: V, dtype: np.dtype) -> V:
    """Codes (i8) as float32. The scaling is exact for subnormal codes too."""
    bits = code.cast("zext", "i32")
    if dtype.name == POWERS:
        return _decode_power(bits)
    form, lanes = FORMATS[dtype.name], code.lanes
    magnitude = bits & (form.sign - 1)
    value = (magnitude << (23 - form.mantissa)).as_float() * 2.0 ** (127 - form.bias)
    value = (value.bits() | ((bits & form.sign) << (32 - form.sign.bit_length()))).as_float()
    if form.nan == 0x80:
        return lanes.select(bits.eq(0x80), float("nan"), value)
    if form.nan is None:
        return value
    beyond = magnitude > form.largest
    if form.infinity is None:
        return lanes.select(beyond, float("nan"), value)
    infinite = lanes.constant(float("inf"), "float").copysign(value)
    special = lanes.select(magnitude.eq(form.infinity), infinite, float("nan"))
    return lanes.select(beyond, special, value)


def encode(x: V, dtype: np.dtype) -> V:
    """Codes of float32 values rounded to nearest even; too large ones become what the format has for them."""
    if dtype.name == POWERS:
        return _encode_power(x)
    form, lanes = FORMATS[dtype.name], x.lanes
    # in float64, scaled so that the format's subnormals are subnormal there: one integer rounding then fits all
    bits = (x.abs().f64() * 2.0 ** (form.bias - 1023)).bits()
    drop = 52 - form.mantissa
    rounded = (bits + (bits.lshr(drop) & 1) + ((1 << (drop - 1)) - 1)).lshr(drop)
    above = form.infinity or form.nan or form.largest
    code = lanes.select(rounded > form.largest, above, rounded)
    sign = (x.bits().lshr(32 - form.sign.bit_length()) & form.sign).cast("zext", "i64")
    if form.nan is None:  # NaN becomes -0, as in XLA, whatever its sign
        return lanes.select(x.isnan(), form.sign, code | sign).cast("trunc", "i8")
    code = lanes.select(x.isnan(), form.nan, code)
    if form.nan == 0x80:
        sign = lanes.select(code.eq(0), 0, sign)
    return (code | sign).cast("trunc", "i8")


def next_code(a: V, b: V, x: V, y: V, dtype: np.dtype) -> V:
    """The code of the neighbour of x (code a) towards y (code b)."""
    lanes, form = a.lanes, FORMATS.get(dtype.name)
    down, zero, nan = y < x, None, 0xFF
    if form is not None:
        down = (y.abs() < x.abs()) | ((a ^ b) & form.sign).ne(0)
        zero, nan = (b & form.sign) | 1, form.nan
    stepped = a + lanes.select(down, lanes.constant(-1, a.element), 1)
    if zero is not None:
        stepped = lanes.select(x.eq(0.0), zero, stepped)
    if nan == 0x80:
        stepped = lanes.select(stepped.eq(nan), 0, stepped)
    stepped = lanes.select(x.eq(y), b, stepped)
    return stepped if nan is None else lanes.select(x.compare("uno", y), nan, stepped)


def _decode_power(bits: V) -> V:
    lanes = bits.lanes
    value = lanes.select(bits.eq(0), 0x400000, bits << 23).as_float()  # 2**-127 is subnormal in float32
    return lanes.select(bits.eq(255), float("nan"), value)


def _encode_power(x: V) -> V:
    """The nearest power of two, the larger one for a number in the middle. 0 and negative numbers become NaN, tiny ones
    2**-127.

    As in ml_dtypes and XLA, all numbers between 2**-127 (subnormal in float32) and 2**-126 are rounded up.
    """
    lanes, bits = x.lanes, x.bits()
    code = lanes.select(bits.eq(0x400000), 0, (bits + 0x400000).lshr(23))
    valid = (x > 0.0) & (x < float("inf"))
    return lanes.select(valid, code, 255).cast("trunc", "i8")
