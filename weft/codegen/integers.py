"""Integer division, power and bit counts, with the edge cases that trap or are undefined in LLVM defined away."""

from __future__ import annotations

from weft.codegen.elements import Element
from weft.codegen.lanes import V


def wrap(x: V, element: Element) -> V:
    """Keep the low ``element.bits`` bits of an i8, sign-extended if signed."""
    if element.signed:
        return x << (8 - element.bits) >> (8 - element.bits)
    return x & ((1 << element.bits) - 1)


def predicate(direction: str, signed: bool) -> str:
    return direction if direction in ("eq", "ne") else ("s" if signed else "u") + direction


def _bits(x: V) -> int:
    return int(x.element[1:])


def _by_instruction(x: V, y: V) -> bool:
    """Does the processor divide these: scalars, divisors known here, and 64 bits without conversions of them."""
    return x.lanes.width == 1 or y.text.startswith("splat") or (_bits(x) == 64 and not x.lanes.writer.avx512)


def _quotient(x: V, y: V, signed: bool) -> V:
    """x / y; any value where y is 0."""
    bits, lanes = _bits(x), x.lanes
    if _by_instruction(x, y):
        if y.text.startswith("splat") and not y.text.endswith((" 0)", " -1)")):
            return x.binary("sdiv" if signed else "udiv", y)
        bad = y.eq(0)
        if signed:
            bad = bad | (y.eq(-1) & x.eq(-(1 << (bits - 1))))
        return x.binary("sdiv" if signed else "udiv", lanes.select(bad, 1, y))
    if bits == 64:
        return _long_quotient(x, y, signed)
    if bits == 32:
        quotient = _short_quotient(x, y, signed, "double", 2.0**-51)
        return lanes.select(y.eq(-1), -x, quotient) if signed else quotient
    widen = "sext" if signed else "zext"
    quotient = _short_quotient(x.cast(widen, "i32"), y.cast(widen, "i32"), True, "float", 2.0**-22)
    return quotient.cast("trunc", x.element)


def _short_quotient(x: V, y: V, signed: bool, wide: str, excess: float) -> V:
    """x times the inverse of y, which is computed once where y is the same in all of a loop.

    The inverse is somewhat too large: a quotient that is no integer is further below the next one.
    """
    to_float, to_int = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
    inverse = (1.0 / y.cast(to_float, wide)) * (1.0 + excess)
    return (x.cast(to_float, wide) * inverse).cast(to_int, x.element)


def _long_quotient(x: V, y: V, signed: bool) -> V:
    """The same for 64 bits, of magnitudes: a quotient at most 2**15 too small, that of the rest at most 1."""
    lanes = x.lanes
    a, b = (v.intrinsic("smax", -v) if signed else v for v in (x, y))
    inverse = (1.0 / b.cast("uitofp", "double")) * (1.0 - 2.0**-50)
    quotient = (a.cast("uitofp", "double") * inverse).cast("fptoui", "i64")
    rest = a - quotient * b
    more = (rest.cast("uitofp", "double") * inverse).cast("fptoui", "i64")
    quotient = quotient + more
    quotient = lanes.select((rest - more * b).compare("uge", b), quotient + 1, quotient)
    return lanes.select((x ^ y) < 0, -quotient, quotient) if signed else quotient


def divide(x: V, y: V, signed: bool) -> V:
    """Truncating; x / 0 = -1, the least integer / -1 is itself."""
    return x.lanes.select(y.eq(0), -1, _quotient(x, y, signed))


def remainder(x: V, y: V, signed: bool) -> V:
    """Sign of the dividend; x % 0 = x, the least integer % -1 is 0."""
    return x.lanes.select(y.eq(0), x, x - _quotient(x, y, signed) * y)


def leading_zeros(x: V) -> V:
    lanes = x.lanes
    type_ = lanes.type(x.element)
    name = f"llvm.ctlz.{lanes.suffix(x.element)}"
    return V(lanes, x.element, lanes.writer.call(name, type_, [(type_, x.text), ("i1", "false")]))


def power(x: V, y: V, exponent: Element) -> V:
    """x ** y modulo 2**bits by squaring; a negative exponent gives 0 (1 for x = 1, +-1 for x = -1)."""
    lanes, writer = x.lanes, x.lanes.writer
    count, type_, exponent_type = y, lanes.type(x.element), lanes.type(y.element)
    head, done = writer.fresh_label(), writer.fresh_label()
    before = writer.block
    writer.branch(head)
    writer.label(head)
    at = len(writer.lines)
    result, square, left = (V(lanes, v.element, writer.name()) for v in (x, x, y))
    odd = (left & 1).ne(0)
    new_result = lanes.select(odd, result * square, result)
    new_square = square * square
    new_left = left.lshr(1)
    writer.branch_if(lanes.any(new_left.ne(0)), head, done)
    one = lanes.constant_text(1, x.element)
    writer.lines[at:at] = [
        f"{result.text} = phi {type_} [ {one}, %{before} ], [ {new_result.text}, %{head} ]",
        f"{square.text} = phi {type_} [ {x.text}, %{before} ], [ {new_square.text}, %{head} ]",
        f"{left.text} = phi {exponent_type} [ {y.text}, %{before} ], [ {new_left.text}, %{head} ]",
    ]
    writer.label(done)
    if not exponent.signed:
        return new_result
    unit = lanes.select(x.eq(1), 1, lanes.select(x.eq(-1), new_result, 0))
    return lanes.select(count < 0, unit, new_result)
