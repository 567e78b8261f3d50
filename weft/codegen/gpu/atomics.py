"""Writes updates that threads may make in any order: each is one atomic addition, maximum or minimum.

update out at v9: old -> old + v7      ->      atomicrmw add ptr %p, i32 %v7

Floats are added where the program allows any order; a complex number is two additions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import dtypes
from weft.codegen.gpu import threads
from weft.codegen.memory_access import indexed
from weft.codegen.memory_access.memory_words import whole
from weft.codegen.nests import instances
from weft.codegen.nests.frame import Frame
from weft.codegen.nests.instances import Instance, Position
from weft.loops import elements, ir

_OPERATIONS = {"sum": "add", "max": "max", "min": "min"}
_FLOATS = "fhc"  # kinds of elements
_HALVES = {elements.FLOAT16: "half", elements.BFLOAT16: "bfloat"}


def update(parent: Frame, s: ir.Update, copy: Instance, position: Position) -> None:
    """The statement for one point."""
    if s.inside is None:
        _updated(parent, s, copy, position)
        return
    inner = instances.fresh(copy, copy.values)
    threads.when(parent.writer, copy.values[s.inside].part.text, lambda: _updated(parent, s, inner, position))


def _updated(parent: Frame, s: ir.Update, copy: Instance, position: Position) -> None:
    """The value to add is what the update makes of the neutral element."""
    writer, dtype = parent.writer, parent.nest.operands[s.operand].dtype
    offset = indexed.uniform_offset(parent, s.offset, copy)
    assert offset is not None and s.free is not None
    element = elements.of(dtype)
    copy.values[s.old] = copy.emit.const(_neutral(s.free, dtype), dtype)
    for step in s.steps:
        copy.values[step.out] = instances.apply(step, copy)
    new = copy.emit.settle(copy.values[s.new])
    pointer = writer.element(whole(dtype), position.pointers[s.operand], offset)
    type_, operation = element.register, ("u" if s.free != "sum" and not element.signed else "") + _OPERATIONS[s.free]
    if element.kind in _FLOATS:
        type_, operation = _HALVES.get(dtype, type_), "fadd"
    for k, part in enumerate(new.parts):
        text = part.text
        if element.kind == "h":
            text = writer.op(f"bitcast {element.memory} {copy.memory.leave(dtype, part).text} to {type_}")
        at = writer.element(element.memory, pointer, str(k))
        writer.op(f'atomicrmw {operation} ptr {at}, {type_} {text} syncscope("device") monotonic')


def _neutral(free: str, dtype: np.dtype) -> Any:
    if elements.of(dtype).kind in _FLOATS:
        return complex(-0.0, -0.0) if elements.of(dtype).kind == "c" else -0.0  # 0.0 + -0.0 would be 0.0
    limits = dtypes.iinfo(dtype)
    return {"sum": 0, "max": limits.min, "min": limits.max}[free]
