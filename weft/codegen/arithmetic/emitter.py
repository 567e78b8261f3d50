"""The emitter that generates code: it writes the scalar expressions of ``core.emit`` as LLVM vectors of W lanes.

A ``Value`` is a dtype and one register (two for complex numbers) of ``lanes.V``. Half precisions are float32 in
registers. A value that is not yet rounded to its dtype is ``loose``; it is rounded once, at the end of the primitive's
expression (``settle``) or where the exact bits are needed. One emitter is used for one basic block. ``memo`` shares
work between functions of one operand: sin and cos reduce the argument once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.codegen import vector_math
from weft.codegen.arithmetic import complex_math, convert, floats, integers
from weft.codegen.arithmetic.bits import BitEmitter
from weft.codegen.arithmetic.lanes import Lanes, V, Value
from weft.core.emit import integer_power
from weft.loops import elements

FLOAT_PREDICATES = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


class Emitter(BitEmitter):
    """Implements ``core.emit.Emit``."""

    def __init__(self, lanes: Lanes, is_second: bool = False) -> None:
        self.lanes = lanes
        self.is_second = is_second  # the second of ``lane_loops.SHARING`` vectors: computed without the unit for roots
        self.memo: dict[Any, Any] = {}
        self.numbers = False  # True where no operand of an extremum is NaN
        self.any_nan = True  # False where every NaN has bits that the dtype of the result can hold

    # values

    def value(self, dtype: np.dtype, *parts: V) -> Value:
        """A new value: loose if its dtype is smaller than its register, wrapped if it is a narrow integer."""
        kind = elements.of(dtype).kind
        if kind == "n":
            return Value(dtype, (integers.wrap(parts[0], elements.of(dtype)),))
        return Value(dtype, parts, kind == "h")

    def settle(self, x: Value) -> Value:
        """x rounded to its dtype."""
        return Value(x.dtype, (floats.round_to(x.part, x.dtype, self.any_nan),)) if x.loose else x

    def const(self, value: Any, dtype: np.dtype) -> Value:
        dtype = np.dtype(dtype)
        element = elements.of(dtype)
        number = np.asarray(value, dtype)
        if element.kind == "c":
            parts = (np.real(number), np.imag(number))
        elif element.kind == "h":
            parts = (number.astype(np.float32),)
        else:
            parts = (number[()],)
        return Value(dtype, tuple([self.lanes.constant(p, element.register) for p in parts]))

    def _held(self, x: Value, part: V) -> Value:
        """A result that is exact in half precision because x is, so that it is not rounded again."""
        element = elements.of(x.dtype)
        if element.kind == "h" and element.bits == 8:
            return self.value(x.dtype, part)
        return Value(x.dtype, (part,), x.loose)

    def convert(self, x: Value, dtype: np.dtype) -> Value:
        dtype = np.dtype(dtype)
        if dtype == x.dtype:
            return x
        if dtype == elements.INT32 and ("index", x.part.text) in self.memo:
            return self.short_index(self.memo["index", x.part.text])
        return convert.convert(self, self.settle(x), dtype)

    def short_index(self, index: str) -> Value:
        """index, index + 1, ... as int32, from the i64 name of the first."""
        lanes = self.lanes
        first = lanes.splat(lanes.writer.op(f"trunc i64 {index} to i32"), "i32")
        return Value(elements.INT32, (first + lanes.iota("i32"),))

    def bitcast(self, x: Value, dtype: np.dtype) -> Value:
        dtype = np.dtype(dtype)
        return x if dtype == x.dtype else convert.bitcast(self, self.settle(x), dtype)

    # arithmetic

    def add(self, x: Value, y: Value) -> Value:
        if len(x.parts) == 2:
            return self.value(x.dtype, x.parts[0] + y.parts[0], x.parts[1] + y.parts[1])
        (a,), (b,) = x.parts, y.parts
        return self.value(x.dtype, a | b if a.element == "i1" else a + b)

    def sub(self, x: Value, y: Value) -> Value:
        if len(x.parts) == 2:
            return self.value(x.dtype, x.parts[0] - y.parts[0], x.parts[1] - y.parts[1])
        return self.value(x.dtype, x.part - y.part)

    def mul(self, x: Value, y: Value) -> Value:
        if len(x.parts) == 2:
            return self.value(x.dtype, *complex_math.multiply(x.parts, y.parts))
        (a,), (b,) = x.parts, y.parts
        return self.value(x.dtype, a & b if a.element == "i1" else a * b)

    def div(self, x: Value, y: Value) -> Value:
        if len(x.parts) == 2:
            return self.value(x.dtype, *complex_math.divide(x.parts, y.parts))
        element = elements.of(x.dtype)
        if element.kind in "fh":
            return self.value(x.dtype, floats.divide(x.part, y.part))
        return self.value(x.dtype, integers.divide(x.part, y.part, self._quotient(x, y)))

    def _quotient(self, x: Value, y: Value) -> V:
        """The quotient of integers, computed once for div and rem of the same operands."""
        key = "quotient", x.dtype, x.part.text, y.part.text
        if key not in self.memo:
            self.memo[key] = integers.quotient(x.part, y.part, elements.of(x.dtype).signed)
        return self.memo[key]

    def rem(self, x: Value, y: Value) -> Value:
        element = elements.of(x.dtype)
        if element.kind in "fh":
            return self.value(x.dtype, floats.remainder(self, x.part, y.part))
        return self.value(x.dtype, integers.remainder(x.part, y.part, self._quotient(x, y)))

    def natural_quotient(self, x: Value, y: Value) -> Value:
        return self.value(x.dtype, integers.natural_quotient(x.part, y.part))

    def neg(self, x: Value) -> Value:
        parts = tuple(-p for p in x.parts)
        return self._held(x, *parts) if elements.of(x.dtype).kind == "h" else self.value(x.dtype, *parts)

    def abs(self, x: Value) -> Value:
        element = elements.of(x.dtype)
        if element.kind == "c":
            return self.value(elements.real_of(x.dtype), complex_math.magnitude(*x.parts))
        if element.kind in "fh":
            return self._held(x, x.part.abs())
        if not element.signed:
            return x
        return self.value(x.dtype, x.part.abs())

    def sign(self, x: Value) -> Value:
        element, lanes, v = elements.of(x.dtype), self.lanes, x.part
        if element.kind == "c":
            return self.value(x.dtype, *complex_math.sign(*x.parts))
        if element.kind in "fh":
            keep = v.eq(0.0) | v.isnan()
            return self._held(x, lanes.select(keep, v, v.like(1.0).copysign(v)))
        if not element.signed:
            return self.value(x.dtype, v.intrinsic("umin", 1))
        return self.value(x.dtype, v.intrinsic("smin", 1).intrinsic("smax", -1))

    def _extremum(self, x: Value, y: Value, float_name: str, int_name: str) -> Value:
        element = elements.of(x.dtype)
        if element.kind == "c":
            left = complex_math.lexicographic(x.parts, y.parts, "gt" if int_name == "max" else "lt")
            return self.select(Value(elements.BOOL, (left,)), y, x)
        if element.kind == "b":
            return Value(x.dtype, (x.part | y.part if int_name == "max" else x.part & y.part,))
        if element.kind in "fh":
            native = self.lanes.native.extremum(x.part, y.part, int_name == "max", self.numbers)
            picked = native or x.part.intrinsic(float_name, y.part)
            return Value(x.dtype, (picked,), x.loose or y.loose)
        return Value(x.dtype, (x.part.intrinsic(("s" if element.signed else "u") + int_name, y.part),))

    def max(self, x: Value, y: Value) -> Value:
        return self._extremum(x, y, "maximum", "max")

    def min(self, x: Value, y: Value) -> Value:
        return self._extremum(x, y, "minimum", "min")

    def fma(self, x: Value, y: Value, z: Value) -> Value:
        if elements.of(x.dtype).kind in "fh":
            return self.value(x.dtype, x.part.fma(y.part, z.part))
        return self.add(self.mul(x, y), z)

    def integer_pow(self, x: Value, y: int) -> Value:
        return integer_power(self, x, y)

    def pow(self, x: Value, y: Value) -> Value:
        if elements.of(x.dtype).kind in "biun":
            return self.value(x.dtype, integers.power(x.part, y.part, elements.of(y.dtype)))
        return self.function("pow", x, self.convert(y, x.dtype))

    # comparison

    def compare(self, direction: str, x: Value, y: Value) -> Value:
        x, y = self.settle(x), self.settle(y)
        element = elements.of(x.dtype)
        if direction.endswith("_to"):
            a, b = (floats.total_order(v.part) if element.kind in "fh" else v.part for v in (x, y))
            result = a.compare(integers.predicate(direction[:-3], element.signed or element.kind in "fh"), b)
        elif element.kind == "c":
            result = complex_math.compare(direction, x.parts, y.parts)
        elif element.kind in "fh":
            result = x.part.compare(FLOAT_PREDICATES[direction], y.part)
        else:
            result = x.part.compare(integers.predicate(direction, element.signed), y.part)
        return Value(elements.BOOL, (result,))

    def select(self, which: Value, on_false: Value, on_true: Value) -> Value:
        parts = tuple(self.lanes.select(which.part, t, f) for t, f in zip(on_true.parts, on_false.parts, strict=True))
        return Value(on_true.dtype, parts, on_true.loose or on_false.loose)

    def loop(
        self, going: Value, state: Sequence[Value], body: Callable[..., tuple[Value, Sequence[Value]]], bound: int
    ) -> tuple[Value, ...]:
        """A loop that runs until the last lane is done; lanes that are done keep their values."""
        lanes, memo = self.lanes, self.memo
        state = [self.settle(v) for v in state]
        flat = [p for v in state for p in v.parts]
        carried = [(lanes.type(p.element), p.text) for p in (going.part, *flat)]

        def rebuilt(texts: Sequence[str]) -> list[Value]:
            rest = iter(texts)
            return [Value(v.dtype, tuple(V(lanes, p.element, next(rest)) for p in v.parts)) for v in state]

        def turn(texts: list[str]) -> tuple[list[str], str]:
            active, values = V(lanes, "i1", texts[0]), rebuilt(texts[1:])
            self.memo = dict(memo)  # values memoised in one round are valid in that round only
            goes_on, following = body(*values)
            kept = [
                lanes.select(active, new, old).text
                for v, old_value in zip(following, values, strict=True)
                for new, old in zip(self.settle(v).parts, old_value.parts, strict=True)
            ]
            active = active & goes_on.part
            return [active.text, *kept], lanes.any(active)

        texts = lanes.writer.rounds(lanes.any(going.part), bound, carried, turn)
        self.memo = memo
        return tuple(rebuilt(texts[1:]))

    def is_finite(self, x: Value) -> Value:
        if elements.of(x.dtype).kind not in "fhc":
            return self.const(True, elements.BOOL)
        x = self.settle(x)
        finite = x.part.abs() < float("inf")
        for part in x.parts[1:]:
            finite = finite & (part.abs() < float("inf"))
        return Value(elements.BOOL, (finite,))

    # rounding and float structure

    def floor(self, x: Value) -> Value:
        return self._held(x, x.part.floor())

    def ceil(self, x: Value) -> Value:
        return self._held(x, x.part.intrinsic("ceil"))

    def round_half_even(self, x: Value) -> Value:
        return self._held(x, x.part.rint())

    def round_half_away(self, x: Value) -> Value:
        return self._held(x, floats.round_half_away(x.part))

    def nextafter(self, x: Value, y: Value) -> Value:
        x, y = self.settle(x), self.settle(y)
        a, b = floats.encode(x.part, x.dtype), floats.encode(y.part, y.dtype)
        bits = floats.next_bits(a, b, x.part, y.part, x.dtype)
        return Value(x.dtype, (floats.decode(bits, x.dtype),))

    def reduce_precision(self, x: Value, exponent_bits: int, mantissa_bits: int) -> Value:
        x = self.settle(x)
        parts = tuple(floats.reduce_precision(p, exponent_bits, mantissa_bits) for p in x.parts)
        return self.value(x.dtype, *parts)

    # complex parts

    def complex(self, re: Value, im: Value) -> Value:
        return Value(elements.complex_of(re.dtype), (re.part, im.part))

    def real(self, x: Value) -> Value:
        return Value(elements.real_of(x.dtype), (x.parts[0],)) if len(x.parts) == 2 else x

    def imag(self, x: Value) -> Value:
        if len(x.parts) == 1:
            return self.const(0, x.dtype)
        return Value(elements.real_of(x.dtype), (x.parts[1],))

    def conj(self, x: Value) -> Value:
        return Value(x.dtype, (x.parts[0], -x.parts[1])) if len(x.parts) == 2 else x

    # functions

    def function(self, name: str, *args: Value) -> Value:
        dtype = args[0].dtype
        key = (name, *(p.text for a in args for p in a.parts), dtype)
        found = self.memo.get(key)
        if found is None:
            if len(args[0].parts) == 2:
                raise TypeError(f"[codegen] {name} of complex values must be expanded by its operation.")
            if name == "square":
                parts = (args[0].part * args[0].part,)
            else:
                parts = (vector_math.function(self, name, *(a.part for a in args)),)
            found = self.memo[key] = self.value(dtype, *parts)
        return found

    def __getattr__(self, name: str) -> Any:
        """``emit.sin(x)`` is ``emit.function("sin", x)``."""
        if name.startswith("_") or name not in vector_math.NAMES:
            raise AttributeError(name)
        return lambda *args: self.function(name, *args)
