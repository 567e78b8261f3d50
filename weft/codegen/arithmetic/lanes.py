"""Vectors of W lanes (W = 1: scalars) with Python operators, in which all vector math is written.

``Lanes`` knows the width, ``V`` is a value with a known LLVM element type. Nothing is reassociated or contracted:
``x * y + z`` is a rounded product and a rounded sum, ``x.fma(y, z)`` is one rounding. Shift right is arithmetic;
``lshr`` is logical. Comparisons are ordered (false on NaN) on floats, signed on integers.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.codegen.arithmetic.features import Features, Native
from weft.codegen.writer import Writer

FLOAT_BITS = {"float": 32, "double": 64}
INT_OF = {"float": "i32", "double": "i64"}
FLOAT_OF = {"i32": "float", "i64": "double"}
SUFFIX = {"float": "f32", "double": "f64"}
BYTES = {"i1": 1, "i8": 1, "i16": 2, "half": 2, "i32": 4, "float": 4, "i64": 8, "double": 8, "ptr": 8}


def literal(value: Any, element: str) -> str:
    """LLVM text of a scalar constant. Floats are written as the hex of a double, which is exact."""
    if element == "float" or element == "double":
        number = float(np.float32(value)) if element == "float" else float(value)
        if math.isnan(number):
            return "0x7FF8000000000000"
        return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"
    if element == "i1":
        return "true" if value else "false"
    return str(int(value))


def literals(values: Sequence[float], element: str) -> str:
    """LLVM text of a constant vector."""
    return "<" + ", ".join([f"{element} {literal(value, element)}" for value in values]) + ">"


class V:
    """One value: W lanes of an LLVM element type."""

    __slots__ = ("element", "lanes", "text")

    def __init__(self, lanes: Lanes, element: str, text: str) -> None:
        self.lanes = lanes
        self.element = element
        self.text = text

    def binary(self, op: str, y: V | float | int) -> V:
        lanes = self.lanes
        other = y.text if isinstance(y, V) else lanes.every(literal(y, self.element), self.element)
        return made(lanes, self.element, f"{op} {lanes.type(self.element)} {self.text}, {other}")

    def __add__(self, y: V | float | int) -> V:
        return self.binary("fadd" if self.element in FLOAT_BITS else "add", y)

    def __sub__(self, y: V | float | int) -> V:
        return self.binary("fsub" if self.element in FLOAT_BITS else "sub", y)

    def __mul__(self, y: V | float | int) -> V:
        return self.binary("fmul" if self.element in FLOAT_BITS else "mul", y)

    def __truediv__(self, y: V | float | int) -> V:
        return self.binary("fdiv", y)

    def __radd__(self, y: float | int) -> V:
        return self.like(y) + self

    def __rsub__(self, y: float | int) -> V:
        return self.like(y) - self

    def __rmul__(self, y: float | int) -> V:
        return self.like(y) * self

    def __rtruediv__(self, y: float | int) -> V:
        return self.like(y) / self

    def __neg__(self) -> V:
        if self.element in FLOAT_BITS:
            return made(self.lanes, self.element, f"fneg {self.lanes.type(self.element)} {self.text}")
        return self.like(0) - self

    def __and__(self, y: V | int) -> V:
        return self.binary("and", y)

    def __or__(self, y: V | int) -> V:
        return self.binary("or", y)

    def __xor__(self, y: V | int) -> V:
        return self.binary("xor", y)

    def __invert__(self) -> V:
        return self.binary("xor", True if self.element == "i1" else -1)

    def __lshift__(self, y: V | int) -> V:
        return self.binary("shl", y)

    def __rshift__(self, y: V | int) -> V:
        return self.binary("ashr", y)

    def lshr(self, y: V | int) -> V:
        return self.binary("lshr", y)

    def like(self, value: float | int) -> V:
        """A constant of this value's type."""
        return self.lanes.constant(value, self.element)

    def compare(self, predicate: str, y: V | float | int) -> V:
        lanes = self.lanes
        op = "fcmp" if self.element in FLOAT_BITS else "icmp"
        other = y.text if isinstance(y, V) else lanes.every(literal(y, self.element), self.element)
        return made(lanes, "i1", f"{op} {predicate} {lanes.type(self.element)} {self.text}, {other}")

    def _ordered(self, name: str, y: V | float | int) -> V:
        return self.compare(("o" if self.element in FLOAT_BITS else "s") + name, y)

    def __lt__(self, y: V | float | int) -> V:
        return self._ordered("lt", y)

    def __le__(self, y: V | float | int) -> V:
        return self._ordered("le", y)

    def __gt__(self, y: V | float | int) -> V:
        return self._ordered("gt", y)

    def __ge__(self, y: V | float | int) -> V:
        return self._ordered("ge", y)

    def eq(self, y: V | float | int) -> V:
        return self.compare("oeq" if self.element in FLOAT_BITS else "eq", y)

    def ne(self, y: V | float | int) -> V:
        return self.compare("une" if self.element in FLOAT_BITS else "ne", y)

    def isnan(self) -> V:
        return self.compare("uno", self)

    def cast(self, op: str, element: str) -> V:
        lanes = self.lanes
        return made(lanes, element, f"{op} {lanes.type(self.element)} {self.text} to {lanes.type(element)}")

    def bits(self) -> V:
        """The same bits as an integer."""
        return self.cast("bitcast", INT_OF[self.element])

    def as_float(self) -> V:
        return self.cast("bitcast", FLOAT_OF[self.element])

    def f64(self) -> V:
        return self.cast("fpext", "double")

    def f32(self) -> V:
        return self.cast("fptrunc", "float")

    def to_float(self, element: str) -> V:
        return self.cast("sitofp", element)

    def intrinsic(self, name: str, *others: V | float | int) -> V:
        """``llvm.<name>`` on values of this type."""
        lanes = self.lanes
        type_ = lanes.type(self.element)
        arguments = [(type_, self.text)]
        for y in others:
            text = y.text if isinstance(y, V) else lanes.every(literal(y, self.element), self.element)
            arguments.append((type_, text))
        name = f"llvm.{name}.{lanes.suffix(self.element)}"
        return made(lanes, self.element, lanes.writer.called(name, type_, arguments))

    def fma(self, y: V | float, z: V | float) -> V:
        return self.intrinsic("fma", y, z)

    def abs(self) -> V:
        """The absolute value; that of the least integer is itself."""
        if self.element in FLOAT_BITS:
            return self.intrinsic("fabs")
        lanes, type_ = self.lanes, self.lanes.type(self.element)
        name = f"llvm.abs.{lanes.suffix(self.element)}"
        return made(lanes, self.element, lanes.writer.called(name, type_, [(type_, self.text), ("i1", "false")]))

    def sqrt(self) -> V:
        return self.intrinsic("sqrt")

    def rint(self) -> V:
        return self.intrinsic("rint")

    def floor(self) -> V:
        return self.intrinsic("floor")

    def trunc(self) -> V:
        return self.intrinsic("trunc")

    def copysign(self, y: V) -> V:
        return self.intrinsic("copysign", y)

    def with_sign_of(self, y: V) -> V:
        """``copysign`` of a value that has its sign clear: by bits, one instruction less than LLVM's."""
        native = self.lanes.native.with_sign_of(self, y)
        if native is not None:
            return native
        sign = y.bits() & (-1 << (FLOAT_BITS[self.element] - 1))
        return (self.bits() | sign).as_float()

    def polynomial(self, coefficients: Sequence[float | V]) -> V:
        """Horner with fma, highest power first."""
        first = coefficients[0]
        result = first if isinstance(first, V) else self.like(first)
        for c in coefficients[1:]:
            result = self.intrinsic("fma", result, c)  # LLVM reuses the register of the second factor, which is dead
        return result

    def polynomial_of_halves(self, square: V, coefficients: Sequence[float | V]) -> V:
        """``polynomial`` as even plus odd powers, each by Horner in ``square``: half the latency."""
        one, other = square.polynomial(coefficients[-1::-2][::-1]), square.polynomial(coefficients[-2::-2][::-1])
        return other.fma(self, one)


def made(lanes: Lanes, element: str, instruction: str) -> V:
    """The value of an instruction, which is written."""
    writer, value = lanes.writer, V.__new__(V)  # a call less than the class makes, as instructions are many
    writer.count += 1
    value.lanes, value.element, value.text = lanes, element, f"%v{writer.count}"
    writer.lines.append(f"{value.text} = {instruction}")
    return value


class Value:
    """One operand of an expression: a dtype, and one vector, or two for complex numbers."""

    __slots__ = ("dtype", "loose", "parts")

    def __init__(self, dtype: np.dtype, parts: tuple[V, ...], loose: bool = False) -> None:
        self.dtype, self.parts = dtype, parts
        self.loose = loose  # not yet rounded to the dtype

    @property
    def part(self) -> V:
        return self.parts[0]


class _Names(dict[str, str]):
    """Names by element type: a table, since every instruction asks for some."""

    def __init__(self, width: int, name: Callable[[int, str], str]) -> None:
        self.width, self.name = width, name

    def __missing__(self, element: str) -> str:
        return self.setdefault(element, self.name(self.width, element))


def _type(width: int, element: str) -> str:
    return element if width == 1 else f"<{width} x {element}>"


def _suffix(width: int, element: str) -> str:
    name = SUFFIX.get(element, element)
    return name if width == 1 else f"v{width}{name}"


_names = functools.cache(_Names)


class Lanes:
    """``width`` lanes over a writer."""

    __slots__ = ("features", "native", "suffix", "type", "width", "writer")

    def __init__(self, writer: Writer, width: int) -> None:
        self.writer = writer
        self.features: Features = writer
        self.native: Native[V] = writer.native
        self.width = width
        self.type: Callable[[str], str] = _names(width, _type).__getitem__  # the LLVM type of a vector of such elements
        self.suffix: Callable[[str], str] = _names(width, _suffix).__getitem__  # in the names of intrinsics

    def constant_text(self, value: Any, element: str) -> str:
        text = literal(value, element)
        return text if self.width == 1 else self.every(text, element)

    def every(self, text: str, element: str) -> str:
        """One literal in every lane."""
        if self.width == 1:
            return text
        constant = f"splat ({element} {text})"
        if element in FLOAT_BITS and self.width * BYTES[element] == 64:
            return self.writer.hold(self.type(element), constant)
        self.writer.literals = self.writer.literals or element != "i1"
        return constant

    def constant(self, value: Any, element: str) -> V:
        return V(self, element, self.constant_text(value, element))

    def iota(self, element: str) -> V:
        """0, 1, ..., W - 1."""
        if self.width == 1:
            return V(self, element, "0")
        lanes = "<" + ", ".join([f"{element} {k}" for k in range(self.width)]) + ">"
        whole = self.width * BYTES[element] == 64
        return V(self, element, self.writer.hold(self.type(element), lanes) if whole else lanes)

    def flags(self, lanes: Sequence[bool]) -> V:
        """A mask that is known when the code is written."""
        return V(self, "i1", "<" + ", ".join([f"i1 {'true' if lane else 'false'}" for lane in lanes]) + ">")

    def splat(self, scalar: str, element: str) -> V:
        """One scalar in every lane."""
        if self.width == 1:
            return V(self, element, scalar)
        if not scalar.startswith("%"):
            return V(self, element, self.every(scalar, element))
        type_, writer = self.type(element), self.writer
        one = writer.op(f"insertelement {type_} poison, {element} {scalar}, i64 0")
        zeros = f"<{self.width} x i32> zeroinitializer"
        every = writer.op(f"shufflevector {type_} {one}, {type_} poison, {zeros}")
        writer.splats[every] = scalar
        return V(self, element, every)

    def one_of(self, x: V) -> V | None:
        """The scalar in every lane of ``x`` if ``splat`` made it, otherwise None."""
        scalar = self.writer.splats.get(x.text)
        return None if scalar is None else V(Lanes(self.writer, 1), x.element, scalar)

    def looked_up(self, name: str, words: Sequence[int], offset: V, element: str, start: int = 0) -> V:
        """What lies ``offset`` bytes after the byte ``start`` of the module's constant words, for a single lane."""
        given = ", ".join([f"i64 {word}" for word in words])
        self.writer.declarations[name] = f"@{name} = private constant [{len(words)} x i64] [{given}]"
        base = f"getelementptr (i8, ptr @{name}, i64 {start})" if start else f"@{name}"
        return V(self, element, self.writer.load(element, self.writer.element("i8", base, offset.text), 1))

    def select(self, condition: V, yes: V | float | int, no: V | float | int) -> V:
        element = yes.element if isinstance(yes, V) else no.element  # type: ignore[union-attr]
        a = yes.text if isinstance(yes, V) else self.constant_text(yes, element)
        b = no.text if isinstance(no, V) else self.constant_text(no, element)
        t = self.type(element)
        # LLVM would make branches of single elements' selects in loops, which data decides and no processor foresees
        kept = ", !unpredictable !{}" if self.width == 1 else ""
        return made(self, element, f"select {self.type('i1')} {condition.text}, {t} {a}, {t} {b}{kept}")

    def any(self, mask: V) -> str:
        """A scalar i1: whether any lane is true."""
        if self.width == 1:
            return mask.text
        name = f"llvm.vector.reduce.or.v{self.width}i1"
        return self.writer.call(name, "i1", [(self.type("i1"), mask.text)])

    def lacks(self, mask: V) -> str:
        """A scalar i1: whether any lane is false. For ``any(~mask)`` LLVM would repeat the comparison."""
        every = mask.text
        if self.width > 1:
            name = f"llvm.vector.reduce.and.v{self.width}i1"
            every = self.writer.call(name, "i1", [(self.type("i1"), mask.text)])
        return self.writer.op(f"xor i1 {every}, true")

    def cold(self, mask: V, slow: Any, *fast: V, rare: bool = True) -> list[V]:
        """``slow()`` in the lanes of ``mask``, ``fast`` elsewhere; the slow block runs only if any lane of it holds.

        A block that is ``rare`` spills registers, so that the code around it keeps its own.
        """
        words = self._words(mask, fast[0].element)

        def block() -> list[str]:
            held = mask if words is None else words < 0
            return [self.select(held, s, f).text for s, f in zip(slow(), fast, strict=True)]

        types = [self.type(f.element) for f in fast]
        texts = self.writer.when(self.any(mask), block, types, [f.text for f in fast], rare)
        return [V(self, f.element, t) for f, t in zip(fast, texts, strict=True)]

    def _words(self, mask: V, element: str) -> V | None:
        """``mask`` as negative integers as wide as ``element``; None if it need not be.

        Where masks have no registers, LLVM takes a vector of i1 to another block in halves of others.
        """
        if self.writer.model.masks or self.width == 1 or element == "i1":
            return None
        return mask.cast("sext", f"i{8 * BYTES[element]}")

    def shuffle(self, x: str, y: str, element: str, indices: Sequence[int], width: int) -> str:
        """A vector of numbered lanes of two ``width``-vectors (y's are numbered after x's)."""
        t = f"<{width} x {element}>"
        picks = ", ".join(map("i32 %d".__mod__, indices))
        return self.writer.op(f"shufflevector {t} {x}, {t} {y}, <{len(indices)} x i32> <{picks}>")

    def extract(self, x: V, lane: int) -> str:
        if self.width == 1:
            return x.text
        return self.writer.op(f"extractelement {self.type(x.element)} {x.text}, i64 {lane}")
