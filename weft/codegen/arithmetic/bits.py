"""The bits of integers and bools: logic, shifts, counts. Part of the emitter."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from weft.codegen.arithmetic import integers
from weft.codegen.arithmetic.lanes import Lanes, V, Value
from weft.loops import elements


class BitEmitter(ABC):
    """Operations on bits."""

    lanes: Lanes

    @abstractmethod
    def value(self, dtype: np.dtype, *parts: V) -> Value:
        """A new value; integers of fewer bits than their registers have are wrapped."""

    def _unsigned(self, x: Value) -> V:
        """The bits of a value; bits beyond those of its dtype are clear."""
        element = elements.of(x.dtype)
        return x.part & ((1 << element.bits) - 1) if element.kind == "n" else x.part

    def and_(self, x: Value, y: Value) -> Value:
        return Value(x.dtype, (x.part & y.part,))

    def or_(self, x: Value, y: Value) -> Value:
        return Value(x.dtype, (x.part | y.part,))

    def xor(self, x: Value, y: Value) -> Value:
        return Value(x.dtype, (x.part ^ y.part,))

    def not_(self, x: Value) -> Value:
        return self.value(x.dtype, ~x.part)

    def shift_left(self, x: Value, y: Value) -> Value:
        element, count = elements.of(x.dtype), self._count(y)
        return self.value(x.dtype, self.lanes.select(count.compare("ult", element.bits), x.part << count, 0))

    def shift_right_logical(self, x: Value, y: Value) -> Value:
        element, count = elements.of(x.dtype), self._count(y)
        v = self._unsigned(x)
        return self.value(x.dtype, self.lanes.select(count.compare("ult", element.bits), v.lshr(count), 0))

    def _count(self, y: Value) -> V:
        """By how much to shift: a large value is cut to the bits of the processor's counts."""
        bits = elements.of(y.dtype).bits
        return y.part.intrinsic("umin", bits) if bits > self.lanes.native.count_bits else y.part

    def shift_right_arithmetic(self, x: Value, y: Value) -> Value:
        element = elements.of(x.dtype)
        count = y.part.intrinsic("umin", element.bits - 1)
        if element.signed:
            return self.value(x.dtype, x.part >> count)
        v = x.part << (8 - element.bits) >> (8 - element.bits) if element.kind == "n" else x.part
        return self.value(x.dtype, v >> count)

    def population_count(self, x: Value) -> Value:
        return self.value(x.dtype, self._unsigned(x).intrinsic("ctpop"))

    def clz(self, x: Value) -> Value:
        element = elements.of(x.dtype)
        count = integers.leading_zeros(self._unsigned(x))
        return self.value(x.dtype, count - (8 - element.bits) if element.kind == "n" else count)
