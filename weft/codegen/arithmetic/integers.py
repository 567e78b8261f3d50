"""Integer division, power and bit counts; cases that trap or are undefined in LLVM get defined results."""

from __future__ import annotations

from weft.codegen.arithmetic.lanes import Lanes, V
from weft.loops.elements import Element


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
    """Whether to use LLVM's division: for scalars, literal divisors, and 64 bits without conversion to floats."""
    by_floats = _bits(x) < 64 or x.lanes.writer.model.long_quotients
    return x.lanes.width == 1 or y.text.startswith("splat") or not by_floats


def quotient(x: V, y: V, signed: bool) -> V:
    """x / y rounded to zero; any value where y is 0."""
    bits, lanes = _bits(x), x.lanes
    if _by_instruction(x, y):
        if y.text.startswith("splat") and not y.text.endswith((" 0)", " -1)")):
            return x.binary("sdiv" if signed else "udiv", y)
        bad = y.eq(0)
        if signed:
            bad = bad | (y.eq(-1) & x.eq(-(1 << (bits - 1))))
        return x.binary("sdiv" if signed else "udiv", lanes.select(bad, 1, y))
    one = lanes.one_of(y)
    if bits == 64:
        return _long_quotient(x, y, signed) if one is None else _long_quotient_by_one(x, y, one, signed)
    if one is not None and bits == 8 and lanes.width > 2:
        return _byte_quotient(x, y, one, signed)
    if one is not None and bits > 8:
        return _quotient_by_one(x, y, one, signed)
    if bits == 32:
        found = _short_quotient(x, y, signed, "double", 2.0**-51)
        return lanes.select(y.eq(-1), -x, found) if signed else found
    widen = "sext" if signed else "zext"
    found = _short_quotient(x.cast(widen, "i32"), y.cast(widen, "i32"), True, "float", 2.0**-22)
    return found.cast("trunc", x.element)


def natural_quotient(x: V, y: V) -> V:
    """x / y of signed integers, x >= 0 and y >= 2; for uniform y the shifted high half of a product.

    The error of the factor 2**(bits - 1 + length) / y + 1 is smaller than the distance of x / y to the next integer
    (see ``_quotient_by_one``).
    """
    bits, lanes, writer = _bits(x), x.lanes, x.lanes.writer
    one = lanes.one_of(y) if lanes.width > 1 else y
    if one is None or bits < 32 or (lanes.width < 2 and (bits == 64 or not writer.defines(y.text))):
        return quotient(x, y, False)
    long = bits == 64

    def prepare() -> list[str]:
        size = one if long else one.cast("zext", "i64")
        length = 64 - leading_zeros(size - 1)
        power = size.like(1) << (length + 31)
        factor = power.binary("udiv", size)
        if long:  # in digits of 32 bits: the divisor has at most one
            factor = (factor << 32) + ((power - factor * size) << 32).binary("udiv", size)
        scalars = [v.cast("trunc", "i32") if not long else v for v in (factor + 1, length - 1)]
        return [size.lshr(32).ne(0).text, *[lanes.splat(v.text, x.element).text for v in scalars]]

    large, *texts = writer.beside(y.text, "natural factor", prepare)
    factor, shift = (V(lanes, x.element, text) for text in texts)
    if not long:
        return _high_product(x, factor, False).lshr(shift)
    found = _long_high_product(x, factor).lshr(shift)
    return V(
        lanes, "i64", writer.when(large, lambda: [_large_quotient(x, y).text], [lanes.type("i64")], [found.text])[0]
    )


def _large_quotient(x: V, y: V) -> V:
    return _long_quotient(x, y, False) if x.lanes.writer.model.long_quotients else x.binary("udiv", y)


def _byte_quotient(x: V, y: V, one: V, signed: bool) -> V:
    """x / y of bytes, where y holds ``one`` in every lane: (|x| + 1) m >> 16 with m = floor(65535 / |y|).

    m is 65536 / |y| or less than that by at most 1. So (|x| + 1) m is at most 256 too small. The 1 that was added to
    |x| makes up for it: it counts for 65536 / |y|, which is at least 256.
    """
    lanes, few = Lanes(x.lanes.writer, x.lanes.width // 2), Lanes(x.lanes.writer, 4)
    size = few.splat(one.cast("sext" if signed else "zext", "i32").text, "i32")
    size = (size.abs() if signed else size).intrinsic("smax", 1)
    factor = (65535.0 / size.to_float("float")).cast("fptosi", "i32").cast("trunc", "i16")
    m = V(lanes, "i16", lanes.shuffle(factor.text, "poison", "i16", [0] * lanes.width, few.width)).cast("zext", "i32")

    def divided(a: V, b: V) -> V:
        size = (a.abs() if signed else a) + 1
        found = (size.cast("zext", "i32") * m).lshr(16).cast("trunc", "i16")
        sign = (a ^ b) >> 15
        return (found ^ sign) - sign if signed else found

    (even, odd), (below, _) = _even_and_odd(x, lanes, signed), _even_and_odd(y, lanes, signed)
    pairs = divided(even, below) & 0xFF | divided(odd, below) << 8
    return V(x.lanes, x.element, lanes.writer.op(f"bitcast {lanes.type('i16')} {pairs.text} to {x.lanes.type('i8')}"))


def _even_and_odd(x: V, lanes: Lanes, signed: bool) -> tuple[V, V]:
    """The bytes at even and at odd positions, each in 16 bits."""
    pairs = V(lanes, "i16", lanes.writer.op(f"bitcast {x.lanes.type('i8')} {x.text} to {lanes.type('i16')}"))
    return ((pairs << 8) >> 8, pairs >> 8) if signed else (pairs & 0xFF, pairs.lshr(8))


def _quotient_by_one(x: V, y: V, one: V, signed: bool) -> V:
    """x / y of 16 or 32 bits, y holds ``one`` in every lane: the high half of a product, shifted.

    T. Granlund and P. Montgomery, "Division by invariant integers using multiplication" (1994), figures 4.1 and 5.1.
    """
    bits, lanes, writer = _bits(x), x.lanes, x.lanes.writer

    def prepare() -> list[str]:
        divisor = one.cast("sext" if signed else "zext", "i64")
        size = (divisor.abs() if signed else divisor).intrinsic("umax", 1)
        length = 64 - leading_zeros(size - 1)  # 2**length is the least power of two that is at least the divisor
        if signed:
            length = length.intrinsic("umax", 1)
            factor = (size.like(1) << (length + (bits - 1))).binary("udiv", size) + 1
            scalars = [factor, length - 1, divisor >> 63]
        else:
            factor = (((size.like(1) << length) - size) << bits).binary("udiv", size) + 1
            first = length.intrinsic("umin", 1)
            scalars = [factor, first, length - first]
        return [lanes.splat(v.cast("trunc", x.element).text, x.element).text for v in scalars]

    texts = writer.beside(y.text, "factor", prepare)
    factor, first, second = (V(lanes, x.element, text) for text in texts)
    if signed:
        found = ((x + _high_product(x, factor, True)) >> first) - (x >> (bits - 1))
        return (found ^ second) - second
    high = _high_product(x, factor, False)
    return (high + (x - high).lshr(first)).lshr(second)


def _high_product(x: V, y: V, signed: bool) -> V:
    """The upper half of the product of two vectors of 16 or 32 bits."""
    lanes, writer, widen = x.lanes, x.lanes.writer, "sext" if signed else "zext"
    if x.element == "i16" or lanes.width % 2:
        bits = _bits(x)
        wide = x.cast(widen, f"i{2 * bits}") * y.cast(widen, f"i{2 * bits}")
        return wide.lshr(bits).cast("trunc", x.element)
    half = Lanes(writer, lanes.width // 2)
    a, b = (V(half, "i64", writer.op(f"bitcast {lanes.type('i32')} {v.text} to {half.type('i64')}")) for v in (x, y))

    def upper(v: V) -> V:
        return v >> 32 if signed else v.lshr(32)

    def lower(v: V) -> V:
        return (v << 32) >> 32 if signed else v & 0xFFFFFFFF

    products = (lower(a) * lower(b), upper(a) * upper(b))
    even, odd = (writer.op(f"bitcast {half.type('i64')} {v.text} to {lanes.type('i32')}") for v in products)
    picks = [(k | 1) + k % 2 * lanes.width for k in range(lanes.width)]
    return V(lanes, "i32", lanes.shuffle(even, odd, "i32", picks, lanes.width))


def _long_high_product(x: V, y: V) -> V:
    """The upper half of the product of two vectors of unsigned 64 bits."""
    (a, b), (c, d) = [(v & 0xFFFFFFFF, v.lshr(32)) for v in (x, y)]
    middle = b * c + (a * c).lshr(32)
    return b * d + middle.lshr(32) + (a * d + (middle & 0xFFFFFFFF)).lshr(32)


def _long_quotient_by_one(x: V, y: V, one: V, signed: bool) -> V:
    """x / y of 64 bits, where y holds ``one`` in every lane; by a shift if that is a power of two."""
    lanes, writer, type_ = x.lanes, x.lanes.writer, x.lanes.type("i64")

    def prepare() -> list[str]:
        size = one.abs() if signed else one
        scalars = [63 - leading_zeros(size | 1), size - 1, one >> 63]
        conditions = [(size & (size - 1)).ne(0), size.lshr(31).ne(0)]
        return [*[v.text for v in conditions], *[lanes.splat(v.text, "i64").text for v in scalars]]

    general, large, *texts = writer.beside(y.text, "power of two", prepare)
    shift, below, sign = (V(lanes, "i64", text) for text in texts)
    found = (((x + ((x >> 63) & below)) >> shift) ^ sign) - sign if signed else x.lshr(shift)

    def divided() -> list[str]:
        small = _long_quotient(x, y, signed, small=True).text
        return writer.when(large, lambda: [_long_quotient(x, y, signed).text], [type_], [small])

    return V(lanes, "i64", writer.when(general, divided, [type_], [found.text], rare=False)[0])


def _short_quotient(x: V, y: V, signed: bool, wide: str, excess: float) -> V:
    """x times the inverse of y; the inverse is computed once if y does not change in a loop.

    The inverse is slightly too large, by less than the distance of a fractional quotient to the next integer.
    """
    to_float, to_int = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
    inverse = (1.0 / y.cast(to_float, wide)) * (1.0 + excess)
    return (x.cast(to_float, wide) * inverse).cast(to_int, x.element)


def _long_quotient(x: V, y: V, signed: bool, small: bool = False) -> V:
    """The quotient of 64-bit magnitudes, in two steps: of x in floats, then of the remainder of that.

    The first quotient is at most 2**15 too small, the second at most 1, which a comparison finds. A ``small`` divisor,
    below 2**31, needs no comparison: half a divisor is added to the remainder first, which is more than the error.
    """
    lanes = x.lanes
    a, b = (v.abs() if signed else v for v in (x, y))
    inverse = (1.0 / b.cast("uitofp", "double")) * (1.0 - 2.0**-50)
    quotient = (a.cast("uitofp", "double") * inverse).cast("fptoui", "i64")
    rest = a - quotient * b
    size = rest.cast("uitofp", "double")
    more = (size.fma(inverse, inverse * 0.5) if small else size * inverse).cast("fptoui", "i64")
    quotient = quotient + more
    if not small:
        quotient = lanes.select((rest - more * b).compare("uge", b), quotient + 1, quotient)
    return lanes.select((x ^ y) < 0, -quotient, quotient) if signed else quotient


def divide(x: V, y: V, found: V) -> V:
    """Truncating; x / 0 = -1, the least integer / -1 is itself."""
    return x.lanes.select(y.eq(0), -1, found)


def remainder(x: V, y: V, found: V) -> V:
    """Sign of the dividend; x % 0 = x, the least integer % -1 is 0."""
    return x - found * y


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
