"""Single instructions of AVX-512 where LLVM needs several: multiplication by 2**k, NaN-propagating extrema, mantissas
and exponents, tables in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.codegen.arithmetic import shuffles
from weft.codegen.arithmetic.lanes import FLOAT_BITS, FLOAT_OF, INT_OF, Lanes, V, literals
from weft.codegen.cpu.avx2 import Avx2, by_instruction

_CURRENT_ROUNDING = "4"
_RANGE_MIN, _RANGE_MAX = "4", "5"  # with the sign of the chosen operand
_RANGE_NEARER = "2"  # smaller magnitude with the first operand's sign; the number if one is NaN
_MANTISSA_FROM_1, _MANTISSA_AROUND_1 = "12", "15"  # in [1, 2), [0.75, 1.5); -0 as 0, NaN below 0


class Avx512(Avx2):
    """The answers of x86 processors with AVX-512: its F, BW, CD, DQ and VL."""

    table_bytes = 128
    permuted = 16

    def whole_registers(self, x: V) -> bool:
        return x.lanes.width * FLOAT_BITS[x.element] >= 128

    def scale(self, x: V, k: V) -> V:
        """A scalar by LLVM's function, for which k must be an ordinary exponent."""
        if self.whole_registers(x):
            return _each(lambda a, b: _masked("scalef", [a, b]), x, k)
        lanes, n = x.lanes, k.cast("fptosi", "i32")
        name = f"llvm.ldexp.{lanes.suffix(x.element)}.{lanes.suffix('i32')}"
        arguments = [(lanes.type(x.element), x.text), (lanes.type("i32"), n.text)]
        return V(lanes, x.element, lanes.writer.call(name, lanes.type(x.element), arguments))

    def within(self, x: V, bound: float) -> V | None:
        if not self.whole_registers(x):
            return None
        return _each(lambda a, b: _masked("range", [a, b], _RANGE_NEARER), x, x.like(bound))

    def inverse_root(self, x: V) -> V:
        def start(part: V) -> str:
            type_, mask = part.lanes.type("float"), ("i16" if part.lanes.width == 16 else "i8", "-1")
            name = f"llvm.x86.avx512.rsqrt14.ps.{part.lanes.width * FLOAT_BITS['float']}"
            return part.lanes.writer.call(name, type_, [(type_, part.text), (type_, "zeroinitializer"), mask])

        return _each(start, x)

    def mantissa_and_exponent(self, x: V) -> tuple[V, V]:
        return _mantissa(x, _MANTISSA_FROM_1), _exponent(x)

    def mantissa_and_power(self, x: V) -> tuple[V, V]:
        m = _mantissa(x, _MANTISSA_AROUND_1)
        return m, _exponent(x) - _exponent(m)

    def extremum(self, x: V, y: V, larger: bool, numbers: bool) -> V:
        found = super().extremum(x, y, larger, numbers)
        return _nan_or_range(x, y, larger, numbers) if found is None else found

    def mended(self, x: V, y: V, one: V, larger: bool) -> V:
        """By two masks, computed once from ``one`` and applied to every vector by one instruction.

        They change something only if ``one`` is NaN or the zero that should win.
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
        return (by_instruction(x, y, larger).bits() & keep | add).as_float()

    def with_sign_of(self, x: V, y: V) -> V:
        return x.copysign(y)

    def lookup(self, table: Sequence[float], index: V) -> V:
        """table[index & 31] of 32 floats for an index of i32, table[index & 15] of 16 doubles for one of i64.

        One permutation of two registers.
        """
        element = FLOAT_OF[index.element]
        per = 512 // FLOAT_BITS[element]
        first, second = literals(table[:per], element), literals(table[per:], element)
        index.lanes.writer.literals = True
        return shuffles.by_parts([index], per, lambda part: _permuted(first, part, second), element)

    def picked(self, low: V, high: V, picks: V) -> V:
        return V(low.lanes, "float", _permuted(low.text, picks, high.text))


def _each(function: Callable[..., str], *vectors: V) -> V:
    """``function`` on every 512-bit part of the vectors, or on the whole ones; shorter ones are widened to 128 bits."""
    bits, element = FLOAT_BITS[vectors[0].element], vectors[0].element
    return shuffles.by_parts(vectors, max(min(vectors[0].lanes.width, 512 // bits), 128 // bits), function, element)


def _mantissa(x: V, kind: str) -> V:
    return _each(lambda a: _masked("getmant", [a], kind), x)


def _exponent(x: V) -> V:
    return _each(lambda a: _masked("getexp", [a]), x)


def _nan_or_range(x: V, y: V, larger: bool, numbers: bool) -> V:
    lanes, bits = x.lanes, FLOAT_BITS[x.element]
    if lanes.width * bits < 128:
        wide = Lanes(lanes.writer, 128 // bits)
        picked = _nan_or_range(shuffles.widened(x, wide), shuffles.widened(y, wide), larger, numbers)
        return shuffles.narrowed(picked.text, lanes, wide, x.element)
    picked = _each(lambda a, b: _masked("range", [a, b], _RANGE_MAX if larger else _RANGE_MIN), x, y)
    return picked if numbers else lanes.select(x.compare("uno", y), x + y, picked)


def _masked(name: str, vectors: Sequence[V], immediate: str = "") -> str:
    """The masked intrinsic with all lanes on."""
    lanes, element = vectors[0].lanes, vectors[0].element
    bits, type_ = lanes.width * FLOAT_BITS[element], lanes.type(element)
    arguments = [(type_, x.text) for x in vectors] + ([("i32", immediate)] if immediate else [])
    arguments += [(type_, "zeroinitializer"), ("i16" if lanes.width == 16 else "i8", "-1")]
    if bits == 512:
        arguments.append(("i32", _CURRENT_ROUNDING))
    suffix = f"{'ps' if element == 'float' else 'pd'}.{bits}"
    return lanes.writer.call(f"llvm.x86.avx512.mask.{name}.{suffix}", type_, arguments)


def _permuted(low: str, index: V, high: str) -> str:
    """The numbered lanes of two whole registers, one after the other."""
    element, lanes = FLOAT_OF[index.element], index.lanes
    type_, name = lanes.type(element), f"llvm.x86.avx512.vpermi2var.{'ps' if element == 'float' else 'pd'}.512"
    return lanes.writer.call(name, type_, [(type_, low), (lanes.type(index.element), index.text), (type_, high)])
