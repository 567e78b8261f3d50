"""Elements as words of memory: how the registers of a value become the vector that is stored, and the reverse.

A bool is a byte, a half precision its 16 bits or 8, a complex number two floats side by side.
"""

from __future__ import annotations

import numpy as np

from weft._base.target_model import PAIRED
from weft.codegen.arithmetic import floats, integers
from weft.codegen.arithmetic.emitter import Value
from weft.codegen.arithmetic.lanes import Lanes, V
from weft.loops import elements


def whole(dtype: np.dtype) -> str:
    """LLVM integer type of one element in memory, complex numbers as one integer."""
    element = elements.of(dtype)
    return f"i{8 * element.size}"


def alignment(dtype: np.dtype) -> int:
    return elements.of(dtype).bytes


class Words:
    """Conversions between values and vectors of words, of as many lanes as a vector has."""

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        self.writer = lanes.writer

    def arrive(self, dtype: np.dtype, v: V) -> V:
        element = elements.of(dtype)
        if element.kind == "b":
            return v.ne(0)
        if element.kind == "n":
            return integers.wrap(v, element)
        if dtype == elements.BFLOAT16 and self.lanes.width == PAIRED:
            return self._from_pairs(v)
        return floats.decode(v, dtype) if element.kind == "h" else v

    def leave(self, dtype: np.dtype, v: V) -> V:
        element = elements.of(dtype)
        if element.kind == "b":
            return v.cast("zext", "i8")
        if element.kind == "n":  # the unused bits of the byte are zero
            return v & ((1 << element.bits) - 1)
        if dtype == elements.BFLOAT16 and self.lanes.width == PAIRED:
            return self._to_pairs(v)
        return floats.encode(v, dtype) if element.kind == "h" else v

    def _from_pairs(self, v: V) -> V:
        """bfloat16 as float32, even positions first, then odd ones: two instructions and no shuffle."""
        lanes, half = self.lanes, Lanes(self.writer, PAIRED // 2)
        words = V(half, "i32", self.writer.op(f"bitcast {lanes.type('i16')} {v.text} to {half.type('i32')}"))
        even, odd = words << 16, words & -0x10000
        return V(lanes, "i32", lanes.shuffle(even.text, odd.text, "i32", range(PAIRED), half.width)).as_float()

    def _to_pairs(self, v: V) -> V:
        lanes, half, bits = self.lanes, Lanes(self.writer, PAIRED // 2), v.bits().text
        picks = range(half.width), range(half.width, PAIRED)
        even, odd = (V(half, "i32", lanes.shuffle(bits, "poison", "i32", pick, PAIRED)) for pick in picks)
        words = even.lshr(16) | (odd & -0x10000)
        return V(lanes, "i16", self.writer.op(f"bitcast {half.type('i32')} {words.text} to {lanes.type('i16')}"))

    def join(self, dtype: np.dtype, text: str, width: int) -> Value:
        """Value from the vector of memory words (one lane: from scalars)."""
        element, lanes = elements.of(dtype), self.lanes
        if element.parts == 1:
            return Value(dtype, (self.arrive(dtype, V(lanes, element.memory, text)),))
        pairs = text
        if element.register == "float":
            pairs = self.writer.op(f"bitcast {lanes.type('i64')} {text} to <{2 * width} x float>")
        picks = (range(0, 2 * width, 2), range(1, 2 * width, 2))
        parts = (lanes.shuffle(pairs, "poison", element.register, p, 2 * width) for p in picks)
        return Value(dtype, tuple(V(lanes, element.register, p) for p in parts))

    def pack(self, value: Value) -> tuple[str, str]:
        """(LLVM type, text) of the vector to store."""
        element, lanes, width = elements.of(value.dtype), self.lanes, self.lanes.width
        if element.parts == 1:
            return lanes.type(element.memory), self.leave(value.dtype, value.part).text
        order = [k // 2 + (k % 2) * width for k in range(2 * width)]
        text = lanes.shuffle(value.parts[0].text, value.parts[1].text, element.register, order, width)
        type_ = f"<{2 * width} x {element.register}>"
        if element.register == "float":
            return lanes.type("i64"), self.writer.op(f"bitcast {type_} {text} to {lanes.type('i64')}")
        return type_, text

    def word(self, dtype: np.dtype) -> tuple[str, int]:
        """LLVM type of the words that vectors in memory are made of, and how many of them an element has."""
        element = elements.of(dtype)
        if element.parts == 1:
            return element.memory, 1
        return ("i64", 1) if element.register == "float" else ("double", 2)

    def vector_type(self, dtype: np.dtype) -> tuple[str, str]:
        """(LLVM type, intrinsic suffix) of a whole vector in memory."""
        word, count = self.word(dtype)
        lanes = self.lanes if count == 1 else Lanes(self.writer, count * self.lanes.width)
        return lanes.type(word), lanes.suffix(word)
