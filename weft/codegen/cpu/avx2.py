"""Single instructions of AVX2: permutations by a vector of numbers, extrema with one number, a fence.

The instructions of x86 for the larger and the smaller of two floats drop NaN and do not order zeros:

max(x, 0.5):  x if x is NaN or both are zeros, otherwise the larger;  one more instruction mends both cases
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.codegen.arithmetic import shuffles
from weft.codegen.arithmetic.features import Native
from weft.codegen.arithmetic.lanes import FLOAT_BITS, INT_OF, V, literals
from weft.codegen.writer import Writer


class Avx2(Native[V]):
    """The answers of x86 processors with AVX2."""

    table_bytes = 32
    permuted = 8

    def extremum(self, x: V, y: V, larger: bool, numbers: bool) -> V | None:
        """If one of the two is the same in all lanes; otherwise LLVM's own expression is as good."""
        for one, other in ((x, y), (y, x)):
            scalar = x.lanes.one_of(one)
            if scalar is not None:
                return self.mended(other, one, scalar, larger)
        return None

    def mended(self, x: V, y: V, one: V, larger: bool) -> V:
        """The extremum where y holds ``one`` in every lane: mended by one addition, or one "or".

        -0 added to a number changes nothing, and +0 makes -0 to +0, which is the larger one. No number that is at most
        -0 is positive. NaN added, or its bits set in a number, is NaN.
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
        found = by_instruction(x, y, larger)
        if larger:
            return found + V(lanes, x.element, text)
        return (found.bits() | V(lanes, INT_OF[x.element], text)).as_float()

    def lookup(self, table: Sequence[float], index: V) -> V:
        """table[index & 7] of 8 floats for an index of i32."""
        index.lanes.writer.literals = True
        return shuffles.by_parts([index], 8, lambda part: _permuted(literals(table, "float"), part), "float")

    def picked(self, low: V, high: V, picks: V) -> V:
        parts = [V(low.lanes, "float", _permuted(half.text, picks)) for half in (low, high)]
        return low.lanes.select(picks >= low.lanes.width, parts[1], parts[0])

    def fence(self, writer: Writer) -> None:
        writer.call("llvm.x86.sse.sfence", "void", [])


def _permuted(words: str, index: V) -> str:
    given = [("<8 x float>", words), ("<8 x i32>", index.text)]
    return index.lanes.writer.call("llvm.x86.avx2.permps", "<8 x float>", given)


def by_instruction(x: V, y: V, larger: bool) -> V:
    """The extremum as x86 has it: x if x is NaN or if both are zeros."""
    return x.lanes.select(y > x if larger else y < x, y, x)
