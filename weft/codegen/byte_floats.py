"""Floats of one byte (float8_*): exact widening to float32, and rounding from float32 to nearest even.

A format has M mantissa bits, a bias and a largest finite code; larger values become infinity, or NaN if it has none.
"""

from __future__ import annotations

import numpy as np

from weft._base.record import Record
from weft.codegen.lanes import V


class Format(Record):
    mantissa: int
    bias: int
    largest: int  # code of the largest finite value
    infinity: int | None
    nan: int  # 0x80: the format has neither -0 nor infinities


FORMATS = {
    "float8_e3m4": Format(4, 3, 0x6F, 0x70, 0x78),
    "float8_e4m3": Format(3, 7, 0x77, 0x78, 0x7C),
    "float8_e5m2": Format(2, 15, 0x7B, 0x7C, 0x7E),
    "float8_e4m3fn": Format(3, 7, 0x7E, None, 0x7F),
    "float8_e4m3b11fnuz": Format(3, 11, 0x7F, None, 0x80),
    "float8_e4m3fnuz": Format(3, 8, 0x7F, None, 0x80),
    "float8_e5m2fnuz": Format(2, 16, 0x7F, None, 0x80),
}


def _format(dtype: np.dtype) -> Format:
    if dtype.name not in FORMATS:
        raise TypeError(f"[codegen] {dtype.name} is a storage type that kernels cannot read or write.")
    return FORMATS[dtype.name]


def decode(code: V, dtype: np.dtype) -> V:
    """Codes (i8) as float32. The scaling is exact for subnormal codes too."""
    form, lanes = _format(dtype), code.lanes
    bits = code.cast("zext", "i32")
    magnitude = bits & 0x7F
    value = (magnitude << (23 - form.mantissa)).as_float() * 2.0 ** (127 - form.bias)
    value = (value.bits() | ((bits & 0x80) << 24)).as_float()
    if form.nan == 0x80:
        return lanes.select(bits.eq(0x80), float("nan"), value)
    beyond = magnitude > form.largest
    if form.infinity is None:
        return lanes.select(beyond, float("nan"), value)
    infinite = lanes.constant(float("inf"), "float").copysign(value)
    special = lanes.select(magnitude.eq(form.infinity), infinite, float("nan"))
    return lanes.select(beyond, special, value)


def encode(x: V, dtype: np.dtype) -> V:
    """Codes of float32 values rounded to nearest even; values too large become infinity or NaN."""
    form, lanes = _format(dtype), x.lanes
    # in float64, scaled so that the format's subnormals are subnormal there: one integer rounding then fits all
    bits = (x.abs().f64() * 2.0 ** (form.bias - 1023)).bits()
    drop = 52 - form.mantissa
    rounded = (bits + (bits.lshr(drop) & 1) + ((1 << (drop - 1)) - 1)).lshr(drop)
    code = lanes.select(rounded > form.largest, form.nan if form.infinity is None else form.infinity, rounded)
    code = lanes.select(x.isnan(), form.nan, code)
    sign = (x.bits().lshr(24) & 0x80).cast("zext", "i64")
    if form.nan == 0x80:
        sign = lanes.select(code.eq(0), 0, sign)
    return (code | sign).cast("trunc", "i8")
