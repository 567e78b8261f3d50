"""The bits of integers and bools: logic, shifts, counts. Part of the emitter."""

from __future__ import annotations

import numpy as np

from weft.codegen import integers
from weft.codegen.lanes import Lanes, V, Value
from weft.loops import elements


class BitEmitter:
    """Operations on bits; ``value`` wraps integers of fewer bits than their registers have."""

    lanes: Lanes

    def value(self, dtype: np.dtype, *parts: V) -> Value:
        raise NotImplementedError

    def and_(self, x: Value, y: Value) -> Value:
        return Value(x.dtype, (x.part & y.part,))

    def or_(self, x: Value, y: Value) -> Value:
        return Value(x.dtype, (x.part | y.part,))

    def xor(self, x: Value, y: Value) -> Value:
        return Value(x.dtype, (x.part ^ y.part,))

    def not_(self, x: Value) -> Value:
        return self.value(x.dtype, ~x.part)

    def shift_left(self, x: Value, y: Value) -> Value:
        element = elements.of(x.dtype)
        shifted = self.lanes.select(y.part.compare("ult", element.bits), x.part << y.part, 0)
        return self.value(x.dtype, shifted)

    def shift_right_logical(self, x: Value, y: Value) -> Value:
        element = elements.of(x.dtype)
        v = x.part & ((1 << element.bits) - 1) if element.kind == "n" else x.part
        return self.value(x.dtype, self.lanes.select(y.part.compare("ult", element.bits), v.lshr(y.part), 0))

    def shift_right_arithmetic(self, x: Value, y: Value) -> Value:
        element = elements.of(x.dtype)
        count = y.part.intrinsic("umin", element.bits - 1)
        if element.signed:
            return self.value(x.dtype, x.part >> count)
        v = x.part << (8 - element.bits) >> (8 - element.bits) if element.kind == "n" else x.part
        return self.value(x.dtype, v >> count)

    def population_count(self, x: Value) -> Value:
        element = elements.of(x.dtype)
        v = x.part & ((1 << element.bits) - 1) if element.kind == "n" else x.part
        return self.value(x.dtype, v.intrinsic("ctpop"))

    def clz(self, x: Value) -> Value:
        element = elements.of(x.dtype)
        v = x.part & ((1 << element.bits) - 1) if element.kind == "n" else x.part
        count = integers.leading_zeros(v)
        return self.value(x.dtype, count - (8 - element.bits) if element.kind == "n" else count)
