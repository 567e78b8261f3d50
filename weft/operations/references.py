"""NumPy oracles with JAX's semantics, where NumPy's own function differs from the operation.

Arrays in, arrays out, independent of the emitter. Elementary functions are evaluated in the next wider precision
and rounded, so that tests can state errors in ulps of the narrow type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import dtypes
from weft._base import lazy

WIDER = {
    np.dtype(np.float32): np.dtype(np.float64),
    np.dtype(np.complex64): np.dtype(np.complex128),
    np.dtype(np.float64): np.dtype(np.longdouble),
    np.dtype(np.complex128): np.dtype(np.clongdouble),
}


def precise(function: Callable[..., Any]) -> Callable[..., Any]:
    """Evaluate a NumPy function in the next wider precision and round."""

    def reference(*arrays: Any, **params: Any) -> Any:
        dtype = arrays[0].dtype
        wide = WIDER.get(dtype, dtype)
        return rounded(function(*(a.astype(wide) for a in arrays)), dtype)

    return reference


def rounded(wide: Any, dtype: np.dtype) -> Any:
    """The result in the precision of the operands; complex operands may give real results."""
    if np.iscomplexobj(wide) or dtype.kind != "c":
        return np.asarray(wide).astype(dtype)
    return np.asarray(wide).astype(np.float32 if dtype == np.complex64 else np.float64)


def doubled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Evaluate in float64, for functions that know no wider type (scipy's)."""

    def reference(*arrays: Any, **params: Any) -> Any:
        return np.asarray(function(*(a.astype(np.float64) for a in arrays))).astype(arrays[0].dtype)

    return reference


def special(name: str) -> Callable[..., Any]:
    """A function of scipy.special, looked up at its first use."""
    return doubled(lambda *arrays: getattr(lazy.scipy_special, name)(*arrays))


def trunc_div(x: Any, y: Any) -> Any:
    """Integers truncate; x / 0 is -1 (unsigned: all ones) and min / -1 is min."""
    if x.dtype.kind == "c":
        return complex_div(x, y)
    if x.dtype.kind not in "iu":
        return np.true_divide(x, y)
    all_ones = np.array(-1).astype(x.dtype)
    safe = np.where(y == 0, np.ones_like(y), y)
    quotient = np.floor_divide(x, safe)
    if x.dtype.kind == "i":
        exact = np.multiply(quotient, safe) == x
        quotient = np.where((quotient < 0) & ~exact, quotient + np.ones_like(x), quotient)
        lowest = np.array(np.iinfo(x.dtype).min, x.dtype)
        quotient = np.where((x == lowest) & (y == -1), lowest, quotient)
    return np.where(y == 0, all_ones, quotient).astype(x.dtype)


def complex_div(x: Any, y: Any) -> Any:
    """C99 G.5.1: a zero divisor gives infinities of its signs, an infinite divisor zeros."""
    out: Any = np.array(np.true_divide(x, y))
    huge = np.copysign(np.inf, y.real)
    zero = (y == 0) & ~(np.isnan(x.real) & np.isnan(x.imag))
    out.real, out.imag = np.where(zero, huge * x.real, out.real), np.where(zero, huge * x.imag, out.imag)
    lost = np.isnan(out.real) & np.isnan(out.imag) & (np.isinf(y.real) | np.isinf(y.imag)) & np.isfinite(x)
    re, im = (np.copysign(np.where(np.isinf(part), 1.0, 0.0), part) for part in (y.real, y.imag))
    out.real = np.where(lost, 0.0 * (x.real * re + x.imag * im), out.real)
    out.imag = np.where(lost, 0.0 * (x.imag * re - x.real * im), out.imag)
    return out


def rem(x: Any, y: Any) -> Any:
    """The remainder has the dividend's sign; x rem 0 is x for integers, NaN for floats."""
    if x.dtype.kind not in "iu":
        return np.fmod(x, y)
    safe = np.where((y == 0) | (y == np.array(-1).astype(y.dtype)), np.ones_like(y), y)
    if x.dtype.kind == "u":
        safe = np.where(y == 0, np.ones_like(y), y)
    return np.where(y == 0, x, np.fmod(x, safe)).astype(x.dtype)


def maximum(x: Any, y: Any) -> Any:
    """NaN propagates; +0 is above -0; complex numbers compare by their parts in order."""
    if x.dtype.kind == "c":
        return np.where(lexicographic_greater(x, y), x, y)
    if x.dtype.kind == "f":
        return np.where((x == y) & np.signbit(x), y, np.maximum(x, y))
    return np.maximum(x, y)


def minimum(x: Any, y: Any) -> Any:
    if x.dtype.kind == "c":
        return np.where(lexicographic_greater(y, x), x, y)
    if x.dtype.kind == "f":
        return np.where((x == y) & np.signbit(y), y, np.minimum(x, y))
    return np.minimum(x, y)


def lexicographic_greater(x: Any, y: Any) -> Any:
    return np.where(x.real == y.real, x.imag > y.imag, x.real > y.real)


def sign(x: Any) -> Any:
    """NaN and signed zeros stay themselves."""
    if x.dtype.kind == "c":
        size = np.abs(x.astype(np.complex128))
        return np.where(size == 0, 0, x / np.where(size == 0, 1, size)).astype(x.dtype)
    return np.where(x == 0, x, np.sign(x)).astype(x.dtype)


def round_half_away(x: Any) -> Any:
    whole = np.trunc(x)
    return np.copysign(np.where(np.abs(x - whole) >= 0.5, whole + np.sign(x), whole), x).astype(x.dtype)


def integer_pow(x: Any, *, y: int) -> Any:
    if x.dtype.kind in "iu":
        return np.power(x, np.array(y).astype(x.dtype))
    wide = WIDER.get(x.dtype, x.dtype)
    return np.power(x.astype(wide), y).astype(x.dtype)


def power(x: Any, y: Any) -> Any:
    """Floats by C's pow; an integer exponent is exact in float64."""
    if x.dtype.kind == "c":
        base, exponent = x.astype(np.complex128), y.astype(np.complex128)
        out = np.exp(exponent * np.log(base))
        out = np.where((base == 0) & (exponent.real > 0), 0, out)
        return np.where(exponent == 0, 1, out).astype(x.dtype)
    wide, y = WIDER[x.dtype], y.astype(x.dtype)
    out = np.power(x.astype(wide), y.astype(wide)).astype(x.dtype)
    root = np.where(x == -np.inf, x.dtype.type(np.inf), np.sqrt(x + x.dtype.type(0)))
    for exponent, exact in ((0.5, root), (1, x), (2, x * x), (-1, x.dtype.type(1) / x)):  # as in the operation
        out = np.where(y == exponent, exact, out)
    return out


def shift_left(x: Any, y: Any) -> Any:
    inside = in_width(x, y)
    return np.where(inside, np.left_shift(x, np.where(inside, y, np.zeros_like(y))), np.zeros_like(x))


def shift_right_logical(x: Any, y: Any) -> Any:
    bits = x.view(f"u{x.dtype.itemsize}")
    inside = in_width(x, y)
    shift = np.where(inside, y, np.zeros_like(y)).view(bits.dtype)
    return np.where(inside, np.right_shift(bits, shift), np.zeros_like(bits)).view(x.dtype)


def shift_right_arithmetic(x: Any, y: Any) -> Any:
    signed = x.view(f"i{x.dtype.itemsize}")
    top = np.array(8 * x.dtype.itemsize - 1).astype(y.dtype)
    shift = np.where(in_width(x, y), y, top).view(signed.dtype)
    return np.right_shift(signed, shift).view(x.dtype)


def in_width(x: Any, y: Any) -> Any:
    return (y >= 0) & (y < 8 * x.dtype.itemsize)


def population_count(x: Any) -> Any:
    return np.bitwise_count(x.view(f"u{x.dtype.itemsize}")).astype(x.dtype)


def clz(x: Any) -> Any:
    bits = x.view(f"u{x.dtype.itemsize}").astype(np.uint64)
    width = 8 * x.dtype.itemsize
    out = np.full(x.shape, width, np.int64)
    for bit in range(width):
        out = np.where(bits >> np.uint64(bit) != 0, width - 1 - bit, out)
    return out.astype(x.dtype)


def mulhi(x: Any, y: Any) -> Any:
    """The high half of the full product."""
    wide = np.multiply(x.astype(object), y.astype(object))
    return np.asarray(wide >> (8 * x.dtype.itemsize)).astype(x.dtype)


def convert(x: Any, dtype: Any) -> Any:
    """Truncates toward zero and saturates; NaN to integer is 0; complex to real drops the imaginary part."""
    dtype = np.dtype(dtype)
    if x.dtype.kind == "c" and not dtypes.issubdtype(dtype, np.complexfloating):
        x = x.real
    if dtype == np.bool_:
        return np.asarray(x != np.zeros((), x.dtype))
    if dtypes.issubdtype(x.dtype, np.floating) and dtypes.issubdtype(dtype, np.integer):
        return saturate(x.astype(np.float64) if x.dtype.itemsize < 8 else x, dtype)
    if x.dtype == np.float64 and dtype.itemsize <= 2 and dtypes.issubdtype(dtype, np.floating):
        return round_once(x, dtype)
    return x.astype(dtype)


def round_once(x: Any, dtype: np.dtype) -> Any:
    """float64 to a half precision without a double rounding: float32 rounded to odd in between."""
    near = x.astype(np.float32)
    inexact = np.isfinite(near) & (near.astype(np.float64) != x)
    bits = near.view(np.uint32)
    above = np.abs(near.astype(np.float64)) > np.abs(x)
    odd = np.where(inexact, (bits - above.astype(np.uint32)) | np.uint32(1), bits).astype(np.uint32)
    return odd.view(np.float32).astype(dtype)


def saturate(x: Any, dtype: np.dtype) -> Any:
    info = dtypes.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    inside = (x > low) & (x < high)
    whole = np.where(inside, np.trunc(x), 0).astype(dtype)
    out = np.where(x >= high, np.array(high).astype(dtype), np.where(x <= low, np.array(low).astype(dtype), whole))
    return np.where(np.isnan(x), np.zeros_like(out), out).astype(dtype)


def reduce_precision(x: Any, *, exponent_bits: int, mantissa_bits: int) -> Any:
    """Round to a format of the given field widths and back: overflow to inf, underflow to a signed zero."""
    wide = x.astype(np.float64)
    bias = 2 ** (exponent_bits - 1) - 1
    mantissa, exponent = np.frexp(wide)
    scaled = np.ldexp(mantissa, mantissa_bits + 1)
    whole = np.rint(scaled)
    if mantissa_bits == 0:  # the even neighbour is the one whose biased exponent is even
        whole = np.where((np.abs(scaled) == 1.5) & (exponent % 2 == 0), np.copysign(1.0, scaled), whole)
    kept = np.ldexp(whole, exponent - mantissa_bits - 1)
    largest = np.ldexp(2.0 - 2.0**-mantissa_bits, bias)
    kept = np.where(np.abs(kept) > largest, np.copysign(np.inf, wide), kept)
    kept = np.where(np.abs(kept) < np.ldexp(1.0, 1 - bias), np.copysign(0.0, wide), kept)
    return np.where(np.isfinite(wide), kept, wide).astype(x.dtype)


def total_order(compare: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Comparison in IEEE total order: -NaN < -inf < -0 < +0 < inf < NaN."""

    def reference(x: Any, y: Any) -> Any:
        return compare(total_order_key(x), total_order_key(y))

    return reference


def total_order_key(x: Any) -> Any:
    if not dtypes.issubdtype(x.dtype, np.floating):
        return x
    bits = x.view(f"i{x.dtype.itemsize}")
    return np.where(bits < 0, bits ^ np.array(np.iinfo(bits.dtype).max, bits.dtype), bits)
