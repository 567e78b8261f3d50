"""Conversion between dtypes: saturating from float to integer (NaN to 0), one rounding from float64 to halves."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from weft.codegen.arithmetic import floats
from weft.codegen.arithmetic.lanes import V, Value
from weft.loops import elements


class Rounding(Protocol):
    """What a conversion asks of the emitter."""

    def value(self, dtype: np.dtype, *parts: V) -> Value: ...
    def settle(self, x: Value) -> Value: ...
    def convert(self, x: Value, dtype: np.dtype) -> Value: ...


def convert(emit: Rounding, x: Value, dtype: np.dtype) -> Value:
    """x as ``dtype``; x is settled and of another dtype."""
    source, target = elements.of(x.dtype), elements.of(dtype)
    v = x.part
    if source.kind == "c":
        if target.kind == "c":
            return emit.value(dtype, *(_float_to_float(p, target.register) for p in x.parts))
        if target.kind == "b":
            return emit.value(dtype, v.ne(0.0) | x.parts[1].ne(0.0))
        real = elements.real_of(x.dtype)
        return emit.convert(emit.value(real, v), dtype)
    if target.kind == "c":
        part = emit.convert(x, elements.real_of(dtype))
        return emit.value(dtype, part.part, part.part.like(0.0))
    if target.kind == "b":
        return emit.value(dtype, v.ne(0.0 if source.kind in "fh" else 0))
    if source.kind in "fh":
        if target.kind in "fh":
            if target.kind == "h" and v.element == "double":
                return emit.value(dtype, floats.narrow_odd(v))
            return emit.value(dtype, _float_to_float(v, target.register))
        return emit.value(dtype, _saturate(v, target))
    if target.kind in "fh":
        return emit.value(dtype, _integer_to_float(v, source, target.register))
    return emit.value(dtype, _integer_to_integer(v, source, target))


def _float_to_float(v: V, register: str) -> V:
    if v.element == register:
        return v
    return v.cast("fpext" if register == "double" else "fptrunc", register)


def _integer_to_float(v: V, source: elements.Element, register: str) -> V:
    if source.kind == "b":
        one = v.lanes.constant(1, register)
        return v.lanes.select(v, one, 0)
    if source.bits < 32:  # widen first: one instruction everywhere
        v = v.cast("sext" if source.signed else "zext", "i32")
        return v.cast("sitofp", register)
    return v.cast("sitofp" if source.signed else "uitofp", register)


def _integer_to_integer(v: V, source: elements.Element, target: elements.Element) -> V:
    have, want = int(v.element[1:]), int(target.register[1:])
    if have == want:
        return v
    if have > want:
        return v.cast("trunc", target.register)
    return v.cast("sext" if source.signed else "zext", target.register)


def _saturate(v: V, target: elements.Element) -> V:
    """The nearest integer of the target, NaN to 0; integers below 32 bits are clamped in the float first."""
    lanes = v.lanes
    low = -(1 << (target.bits - 1)) if target.signed else 0
    high = (1 << (target.bits - (1 if target.signed else 0))) - 1
    if target.bits < 32:
        v = lanes.select(v.isnan(), 0.0, v)
        v = lanes.select(v > low, v, low)
        v = lanes.select(v < high, v, high)
        return v.cast("fptosi", "i32").cast("trunc", target.register)
    # a lane out of range is poison until the select replaces it
    result = lanes.select(v < high + 1, v.cast("fptosi" if target.signed else "fptoui", target.register), high)
    if not target.signed:
        return lanes.select(v > 0, result, 0)
    return lanes.select(v.isnan(), 0, lanes.select(v >= low, result, low))


def bitcast(emit: Rounding, x: Value, dtype: np.dtype) -> Value:
    """The same bits under another dtype of the same size."""
    source, target = elements.of(x.dtype), elements.of(dtype)
    v = x.part
    if source.kind == "b":
        return emit.value(dtype, v.cast("zext", target.register))
    if target.kind == "b":
        return emit.value(dtype, v.ne(0))
    bits = floats.encode(v, x.dtype) if source.kind in "fh" else v
    if target.kind in "fh":
        return emit.settle(emit.value(dtype, floats.decode(bits, dtype)))
    return emit.value(dtype, bits)
