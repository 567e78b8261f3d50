"""Single instructions of AVX-512 where LLVM needs several: multiplication by 2**k, NaN-propagating extrema, mantissas
and exponents, tables in registers.

Each function returns None if the target has no AVX-512; ``scale`` and ``within`` also if the value is not a vector of
whole registers (a scalar). The caller then writes the general expression, which gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.codegen import shuffles
from weft.codegen.lanes import FLOAT_BITS, FLOAT_OF, Lanes, V, literal

_CURRENT_ROUNDING = "4"
_RANGE_MIN, _RANGE_MAX = "4", "5"  # with the sign of the chosen operand
_RANGE_NEARER = "2"  # smaller magnitude with the first operand's sign; the number if one is NaN
_MANTISSA_FROM_1, _MANTISSA_AROUND_1 = "12", "15"  # in [1, 2), [0.75, 1.5); -0 as 0, NaN below 0


def scale(x: V, k: V) -> V | None:
    """x * 2**k for whole k, rounded once."""
    return _by_registers(x, k, lambda a, b: _call(a, b, "scalef", ""))


def nan_or_range(x: V, y: V, larger: bool, numbers: bool) -> V | None:
    """The larger (smaller) of x and y, +0 above -0; NaN if either is NaN, unless both are known to be ``numbers``."""
    lanes, bits = x.lanes, FLOAT_BITS[x.element]
    if lanes.features.avx512 and lanes.width * bits < 128:
        wide = Lanes(lanes.writer, 128 // bits)
        picked = nan_or_range(shuffles.widened(x, wide), shuffles.widened(y, wide), larger, numbers)
        assert picked is not None
        return shuffles.narrowed(picked.text, lanes, wide, x.element)
    picked = _by_registers(x, y, lambda a, b: _call(a, b, "range", _RANGE_MAX if larger else _RANGE_MIN))
    return picked if numbers or picked is None else lanes.select(x.compare("uno", y), x + y, picked)


def within(x: V, bound: float) -> V | None:
    """x clamped to [-bound, bound]; NaN gives the bound."""
    return _by_registers(x, x.like(bound), lambda a, b: _call(a, b, "range", _RANGE_NEARER))


def mantissa_and_exponent(x: V) -> tuple[V, V] | None:
    """m in [1, 2) and a whole k with x = m * 2**k, for subnormal x too.

    Zeros give (1, -inf), infinity gives (1, inf), negative numbers give NaN.
    """
    if not x.lanes.features.avx512:
        return None
    return _each(x, lambda a: _unary(a, "getmant", _MANTISSA_FROM_1)), _each(x, lambda a: _unary(a, "getexp", ""))


def mantissa_and_power(x: V) -> tuple[V, V] | None:
    """``mantissa_and_exponent`` with m in [0.75, 1.5)."""
    if not x.lanes.features.avx512:
        return None
    m = _each(x, lambda a: _unary(a, "getmant", _MANTISSA_AROUND_1))
    return m, _each(x, lambda a: _unary(a, "getexp", "")) - _each(m, lambda a: _unary(a, "getexp", ""))


def _each(x: V, function: Callable[[V], str]) -> V:
    """``function`` on every 512-bit part of x; a shorter x is widened to at least 128 bits."""
    lanes, bits = x.lanes, FLOAT_BITS[x.element]
    if lanes.width * bits < 128:
        wide = Lanes(lanes.writer, 128 // bits)
        return shuffles.narrowed(function(shuffles.widened(x, wide)), lanes, wide, x.element)
    per = min(lanes.width, 512 // bits)
    narrow = Lanes(lanes.writer, per)
    return shuffles.joined(
        [function(shuffles.part(x, narrow, s)) for s in range(0, lanes.width, per)], lanes, per, x.element
    )


def whole_registers(x: V) -> bool:
    """Whether ``scale`` and ``within`` give a value for ``x``."""
    return x.lanes.features.avx512 and x.lanes.width * FLOAT_BITS[x.element] >= 128


def _by_registers(x: V, y: V, function: Callable[[V, V], str]) -> V | None:
    """``function`` on every 512-bit part, or on the whole if it fits one register."""
    lanes = x.lanes
    if not whole_registers(x):
        return None
    per = min(lanes.width, 512 // FLOAT_BITS[x.element])
    narrow, texts = Lanes(lanes.writer, per), []
    for start in range(0, lanes.width, per):
        a, b = (shuffles.part(v, narrow, start) for v in (x, y))
        texts.append(function(a, b))
    return shuffles.joined(texts, lanes, per, x.element)


def _call(a: V, b: V, name: str, immediate: str) -> str:
    """The masked intrinsic with all lanes on."""
    lanes, type_ = a.lanes, a.lanes.type(a.element)
    arguments = [(type_, a.text), (type_, b.text), *([("i32", immediate)] if immediate else [])]
    return _masked(lanes, a.element, name, arguments)


def _unary(a: V, name: str, immediate: str) -> str:
    arguments = [(a.lanes.type(a.element), a.text), *([("i32", immediate)] if immediate else [])]
    return _masked(a.lanes, a.element, name, arguments)


def _masked(lanes: Lanes, element: str, name: str, arguments: list[tuple[str, str]]) -> str:
    bits, type_ = lanes.width * FLOAT_BITS[element], lanes.type(element)
    suffix = f"{'ps' if element == 'float' else 'pd'}.{bits}"
    arguments = [*arguments, (type_, "zeroinitializer"), ("i16" if lanes.width == 16 else "i8", "-1")]
    if bits == 512:
        arguments.append(("i32", _CURRENT_ROUNDING))
    return lanes.writer.call(f"llvm.x86.avx512.mask.{name}.{suffix}", type_, arguments)


def inverse_root(x: V) -> V:
    """1 / sqrt x of float32 to 14 bits, for whole registers."""

    def start(part: V) -> str:
        type_, mask = part.lanes.type("float"), ("i16" if part.lanes.width == 16 else "i8", "-1")
        name = f"llvm.x86.avx512.rsqrt14.ps.{part.lanes.width * FLOAT_BITS['float']}"
        return part.lanes.writer.call(name, type_, [(type_, part.text), (type_, "zeroinitializer"), mask])

    return _each(x, start)


def picked(low: V, high: V, picks: V) -> V:
    """Lane ``picks & 31`` of two whole registers of float32, one after the other."""
    lanes = low.lanes
    type_ = lanes.type("float")
    given = [(type_, low.text), (lanes.type("i32"), picks.text), (type_, high.text)]
    return V(lanes, "float", lanes.writer.call("llvm.x86.avx512.vpermi2var.ps.512", type_, given))


def lookup(table: Sequence[float], index: V) -> V:
    """table[index & 31] of 32 floats for an index of i32, table[index & 15] of 16 doubles for one of i64.

    One permutation of two registers.
    """
    lanes, element = index.lanes, FLOAT_OF[index.element]
    per = 512 // FLOAT_BITS[element]
    wide = Lanes(lanes.writer, per)
    type_, name = wide.type(element), f"llvm.x86.avx512.vpermi2var.{'ps' if element == 'float' else 'pd'}.512"
    first, second = (
        "<" + ", ".join(f"{element} {literal(c, element)}" for c in table[start : start + per]) + ">"
        for start in (0, per)
    )

    lanes.writer.literals = True

    def find(part: V) -> str:
        return lanes.writer.call(name, type_, [(type_, first), (wide.type(index.element), part.text), (type_, second)])

    if lanes.width < per:
        return shuffles.narrowed(find(shuffles.widened(index, wide)), lanes, wide, element)
    return shuffles.joined(
        [find(shuffles.part(index, wide, start)) for start in range(0, lanes.width, per)], lanes, per, element
    )
