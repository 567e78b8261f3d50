"""The larger and the smaller of two floats on x86, whose own instructions drop NaN and do not order zeros.

max(x, 0.5):  x if x is NaN or both are zeros, else the larger;  one more instruction mends both cases
"""

from __future__ import annotations

from weft.codegen import avx512
from weft.codegen.lanes import FLOAT_BITS, INT_OF, V


def extremum(x: V, y: V, larger: bool, numbers: bool = False) -> V | None:
    """The larger (smaller) of x and y, +0 above -0; NaN if either is NaN, unless both are known to be ``numbers``.

    None where LLVM's own expression is as good.
    """
    lanes, writer = x.lanes, x.lanes.writer
    for one, other in ((x, y), (y, x)):
        scalar = lanes.one_of(one)
        if scalar is not None and writer.avx512:
            return _by_masks(other, one, scalar, larger)
        if scalar is not None and writer.mends_extrema:
            return _by_sum_or_bits(other, one, scalar, larger)
    return avx512.nan_or_range(x, y, larger, numbers)


def _picked(x: V, y: V, larger: bool) -> V:
    """What one instruction of the processor gives: x if x is NaN or if both are zeros."""
    return x.lanes.select(y > x if larger else y < x, y, x)


def _by_masks(x: V, y: V, one: V, larger: bool) -> V:
    """``extremum`` where y holds ``one`` in every lane.

    Two masks, which one instruction applies, correct the result if ``one`` is NaN or is the zero that should win; they
    are constants, and have no effect for any other ``one``.
    """
    lanes = x.lanes

    def prepare() -> list[str]:
        bits, sign = one.bits(), -(1 << (FLOAT_BITS[x.element] - 1))
        wins = bits.eq(0 if larger else sign)
        keep = one.lanes.select(wins, bits.like(~sign if larger else -1), -1)
        add = one.lanes.select(wins, bits.like(0 if larger else sign), 0)
        add = one.lanes.select(one.isnan(), bits, add)
        return [lanes.splat(v.text, v.element).text for v in (keep, add)]

    texts = lanes.writer.beside(y.text, f"extremum {larger}", prepare)
    keep, add = (V(lanes, INT_OF[x.element], text) for text in texts)
    return (_picked(x, y, larger).bits() & keep | add).as_float()


def _by_sum_or_bits(x: V, y: V, one: V, larger: bool) -> V:
    """The same by one addition, or one "or".

    -0 added to a number changes nothing, and +0 makes -0 to +0, which is the larger one. No number that is at most -0
    is positive. NaN added, or its bits set in a number, is NaN.
    """
    lanes = x.lanes

    def prepare() -> list[str]:
        if larger:
            zero = one.lanes.select(one.bits().eq(0), one, -0.0)
            return [lanes.splat(one.lanes.select(one.isnan(), one, zero).text, x.element).text]
        bits = one.bits()
        sign = one.lanes.select(bits.eq(-(1 << (FLOAT_BITS[x.element] - 1))), bits, 0)
        mended = one.lanes.select(one.isnan(), bits, sign)
        return [lanes.splat(mended.text, mended.element).text]

    (text,) = lanes.writer.beside(y.text, f"extremum {larger}", prepare)
    picked = _picked(x, y, larger)
    if larger:
        return picked + V(lanes, x.element, text)
    return (picked.bits() | V(lanes, INT_OF[x.element], text)).as_float()
