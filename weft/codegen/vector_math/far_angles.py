"""Reduction modulo pi / 2 of angles of any size (M. Payne, R. Hanek, "Radian reduction for trigonometric functions",
1983): of the product with 2 / pi only the bits that matter modulo 4 are computed, in integers.

For single lanes, so that each of a vector's lanes is reduced in turn, in a cold function that all calls of a module
share. Results are exact to 2**-100, or 2**-64 for the nearest multiples of pi / 2. Infinities and NaN give NaN and 0.
"""

from __future__ import annotations

import math
import struct

from weft.codegen.integers import leading_zeros
from weft.codegen.lanes import Lanes, V

PI_HALF_HIGH, PI_HALF_LOW = 1.5707963267948966, 6.123233995736766e-17
BITS = 1155  # of 2 / pi, of which the last ones are for the largest float64
TWO_OVER_PI = (
    int(
        "28be60db9391054a7f09d5f47d4d377036d8a5664f10e4107f9458eaf7aef1586dc91b8e909374b801924bba827464873f877ac72c4a69cfba20"
        "8d7d4baed1213a671c09ad17df904e64758e60d4ce7d272117e2ef7e4a0ec7fe25fff7816603fbcbc462d6829b47db4d9fb3c9f2c26dd3d18fd9"
        "a797fa8b5d49eeb1faf97c5ecf41ce7de294a4ba9afed7ec47e3574215",
        16,
    )
    >> 3
)
WORDS = tuple([TWO_OVER_PI >> k & (1 << 64) - 1 for k in range(0, BITS, 64)])
ROUNDER = 6755399441055744.0  # 1.5 * 2**52: whole numbers are added to its low bits
# 2 / pi / 4 for float32, in parts of 29 bits
PARTS_F32 = tuple(
    struct.unpack("<q", struct.pack("<d", float(TWO_OVER_PI >> BITS - 29 * k & (1 << 29) - 1) * 2.0 ** (-29 * k - 2)))[
        0
    ]
    for k in range(1, 9)
)
HALF_TURN = 1 << 61  # half a quadrant, where the quadrant is in the two highest bits


def _signed(quadrant: V, sign: V) -> V:
    """-quadrant where ``sign`` is -1."""
    return (quadrant ^ sign) - sign


def reduce_f32(x: V, needed: V) -> list[V]:
    """r in [-pi/4, pi/4] and the quadrant (its low two bits), x = quadrant * pi/2 + r, for float32 values as float64.

    2 / pi is divided into parts of 29 bits, whose products with x are exact, and so is the sum of the first two that
    are no multiples of 4. Of it only the distance to the nearest whole number is left, before smaller ones are added;
    ``rest`` is what is rounded away then.
    """
    lanes, writer = x.lanes, x.lanes.writer
    single, type_ = Lanes(writer, 1), lanes.type("double")

    def add(place: str, values: list[str]) -> list[str]:
        fraction, rest, quadrant = (V(lanes, "double", text) for text in values)
        part = single.looked_up("two_over_pi_f32", PARTS_F32, V(single, "i64", place), "double")
        turns = x * lanes.splat(part.text, "double")
        more = (turns - turns.rint()) * 4.0
        total = fraction + more
        rest = rest + (more - (total - fraction))
        whole = total.rint()
        return [(total - whole).text, rest.text, (quadrant + whole).text]

    started = [(type_, lanes.constant_text(value, "double")) for value in (0.0, 0.0, ROUNDER)]
    stop = writer.choose_index(lanes.any(needed), str(8 * len(PARTS_F32)), "0")
    texts = writer.loop("0", stop, 8, started, add)
    fraction, rest, quadrant = (V(lanes, "double", text) for text in texts)
    r = fraction.fma(PI_HALF_HIGH, fraction.fma(PI_HALF_LOW, rest * PI_HALF_HIGH))
    return [lanes.select(r.isnan(), math.nan, r), quadrant.bits()]


def reduce_f64(x: V) -> list[V]:
    """r as head and tail, and the quadrant."""
    lanes, bits = x.lanes, x.bits()
    exponent = bits.lshr(52) & 0x7FF
    mantissa = ((bits & ((1 << 52) - 1)) | 1 << 52) << (exponent & 7)
    place = exponent.lshr(3) ^ 0xFF
    low, middle, high = (lanes.looked_up("two_over_pi", WORDS, place, "i64", k) for k in (0, 8, 16))
    wide = mantissa.cast("zext", "i128")
    below = wide * low.cast("zext", "i128")
    within = wide * middle.cast("zext", "i128") + below.lshr(64)
    low, middle = below.cast("trunc", "i64"), within.cast("trunc", "i64")
    high = mantissa * high + within.lshr(64).cast("trunc", "i64")
    # the fraction without its leading zeros or ones, as two signed parts of 53 and 63 bits
    fraction = high << 2
    shift = leading_zeros(fraction ^ (fraction >> 63)) + 1
    first, second = high.intrinsic("fshl", middle, shift), middle.intrinsic("fshl", low, shift)
    head = (first & -(1 << 11)).to_float("double")
    rest = (first.intrinsic("fshl", second, 52) & ((1 << 63) - 1)).to_float("double") * 2.0**-52
    unit = (((961 - shift) << 52) | (bits & -(1 << 63))).as_float()
    head, rest = head * unit, rest * unit
    product = head * PI_HALF_HIGH
    error = head.fma(PI_HALF_HIGH, -product) + (head * PI_HALF_LOW + rest * PI_HALF_HIGH)
    r = product + error
    quadrant = _signed((high + HALF_TURN).lshr(62), bits >> 63)
    finite = exponent < 0x7FF
    return [lanes.select(finite, r, math.nan), error - (r - product), lanes.select(finite, quadrant, 0)]
