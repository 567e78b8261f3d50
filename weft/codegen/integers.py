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


def _quotient(x: V, y: V, signed: bool) -> V:
    """x / y for y not 0 and not the overflowing pair. Vectors up to 32 bits divide exactly as floats."""
    lanes, bits = x.lanes, _bits(x)
    if lanes.width == 1 or bits == 64 or y.text.startswith("splat"):
        return x.binary("sdiv" if signed else "udiv", y)
    to_float, to_int = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
    if bits == 32:  # a quotient of 32-bit integers is at least 2**-32 (relative) from the next integer
        return (x.cast(to_float, "double") / y.cast(to_float, "double")).cast(to_int, x.element)
    widen = "sext" if signed else "zext"
    a, b = (v.cast(widen, "i32").cast("sitofp", "float") for v in (x, y))
    return (a / b).cast("fptosi", "i32").cast("trunc", x.element)


def _safe_divisor(x: V, y: V, signed: bool) -> V:
    bad = y.eq(0)
    if signed:
        bad = bad | (y.eq(-1) & x.eq(-(1 << (_bits(x) - 1))))
    return x.lanes.select(bad, 1, y)


def divide(x: V, y: V, signed: bool) -> V:
    """Truncating; x / 0 = -1, the least integer / -1 is itself."""
    if y.text.startswith("splat") and not y.text.endswith((" 0)", " -1)")):
        return _quotient(x, y, signed)
    return x.lanes.select(y.eq(0), -1, _quotient(x, _safe_divisor(x, y, signed), signed))


def remainder(x: V, y: V, signed: bool) -> V:
    """Sign of the dividend; x % 0 = x, the least integer % -1 is 0."""
    if y.text.startswith("splat") and not y.text.endswith((" 0)", " -1)")):
        return x - _quotient(x, y, signed) * y
    divisor = _safe_divisor(x, y, signed)
    rest = x - _quotient(x, divisor, signed) * divisor
    return x.lanes.select(y.eq(0), x, rest)


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
