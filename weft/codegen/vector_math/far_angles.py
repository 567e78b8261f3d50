"""Reduction modulo pi / 2 of angles of any size: the part of the product with 2 / pi that matters modulo 4.

After M. Payne and R. Hanek, "Radian reduction for trigonometric functions", 1983: in floats for float32, in integers
for float64, whose lanes are reduced one by one. Both give NaN for infinities and NaN.
"""

from __future__ import annotations

import math
import struct

from weft.codegen.arithmetic.integers import leading_zeros
from weft.codegen.arithmetic.lanes import Lanes, V

PI_HALF_HIGH, PI_HALF_LOW = 1.5707963267948966, 6.123233995736766e-17
BITS = 1155  # bits of 2 / pi; only the largest float64 need the last ones
TWO_OVER_PI = int(
    "517cc1b727220a94fe13abe8fa9a6ee06db14acc9e21c820ff28b1d5ef5de2b0db92371d2126e9700324977504e8c90e7f0ef58e5894d39f7441"
    "1afa975da24274ce38135a2fbf209cc8eb1cc1a99cfa4e422fc5defc941d8ffc4bffef02cc07f79788c5ad05368fb69b3f6793e584dba7a31fb3"
    "4f2ff516ba93dd63f5f2f8bd9e839cfbc529497535fdafd88fc6ae842",
    16,
)
WORDS = tuple([TWO_OVER_PI >> k & (1 << 64) - 1 for k in range(0, BITS, 64)])
ROUNDER = 6755399441055744.0  # 1.5 * 2**52: whole numbers are added to its low bits
PART = 29  # bits of 2 / pi for float32, whose products with it are exact
PARTS_F32 = tuple([  # as float64, of 2 / pi / 4
    struct.unpack("<q", struct.pack("<d", math.ldexp(TWO_OVER_PI >> BITS - k & (1 << PART) - 1, -k - 2)))[0]
    for k in range(PART, 9 * PART, PART)
])  # fmt: skip
HALF_QUADRANT = 1 << 61  # where the quadrant is in the two highest bits


def _signed(quadrant: V, sign: V) -> V:
    """-quadrant where ``sign`` is -1."""
    return (quadrant ^ sign) - sign


def reduce_f32(x: V, needed: V) -> list[V]:
    """r in [-pi/4, pi/4] and the quadrant (its low two bits), x = quadrant * pi/2 + r, for float32 values as float64.

    2 / pi is divided into parts of 29 bits, whose products with x are exact. Products that are multiples of 4 count
    nothing; the sum of the first two others is exact. Its distance to the nearest whole number is kept, and the smaller
    products are added to that; ``rest`` sums what these additions round away.
    """
    lanes, writer = x.lanes, x.lanes.writer
    single, type_ = Lanes(writer, 1), lanes.type("double")

    def add(offset: str, values: list[str]) -> list[str]:
        fraction, rest, quadrant = (V(lanes, "double", text) for text in values)
        part = single.looked_up("two_over_pi_f32", PARTS_F32, V(single, "i64", offset), "double")
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
    """r as head and tail, and the quadrant, of one lane: to 2**-100, or 2**-64 beside a multiple of pi / 2."""
    lanes, bits = x.lanes, x.bits()
    exponent = bits.lshr(52) & 0x7FF
    mantissa = ((bits & ((1 << 52) - 1)) | 1 << 52) << (exponent & 7)
    offset = exponent.lshr(3) ^ 0xFF
    low, middle, high = (lanes.looked_up("two_over_pi", WORDS, offset, "i64", k) for k in (0, 8, 16))
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
    quadrant = _signed((high + HALF_QUADRANT).lshr(62), bits >> 63)
    finite = exponent < 0x7FF
    return [lanes.select(finite, r, math.nan), error - (r - product), lanes.select(finite, quadrant, 0)]
