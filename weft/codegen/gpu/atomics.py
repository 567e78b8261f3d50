"""Writes updates that threads may make in any order: each is one atomic addition, maximum or minimum of an integer.

update out at v9: old -> old + v7      ->      atomicrmw add ptr %p, i32 %v7
"""

from __future__ import annotations

from weft import dtypes
from weft.codegen import indexed, instances
from weft.codegen.frame import Frame
from weft.codegen.gpu import threads
from weft.codegen.instances import Instance, Position
from weft.codegen.memory_words import whole
from weft.loops import elements, ir

_OPERATIONS = {"sum": "add", "max": "max", "min": "min"}


def update(parent: Frame, s: ir.Update, copy: Instance, place: Position) -> None:
    """The statement for one point."""
    if s.inside is None:
        _updated(parent, s, copy, place)
        return
    inner = instances.fresh(copy, copy.values)
    threads.when(parent.writer, copy.values[s.inside].part.text, lambda: _updated(parent, s, inner, place))


def _updated(parent: Frame, s: ir.Update, copy: Instance, place: Position) -> None:
    """What the update makes of an element that changes nothing is what it brings to any."""
    writer, dtype = parent.writer, parent.nest.operands[s.operand].dtype
    offset = indexed.uniform_offset(parent, s.offset, copy)
    assert offset is not None and s.free is not None
    limits = dtypes.iinfo(dtype)
    copy.values[s.old] = copy.emit.const({"sum": 0, "max": limits.min, "min": limits.max}[s.free], dtype)
    for step in s.steps:
        copy.values[step.out] = instances.apply(step, copy)
    element, text = elements.of(dtype), copy.values[s.new].part.text
    operation = ("u" if s.free != "sum" and not element.signed else "") + _OPERATIONS[s.free]
    pointer = writer.element(whole(dtype), place.pointers[s.operand], offset)
    writer.op(f'atomicrmw {operation} ptr {pointer}, {element.register} {text} syncscope("device") monotonic')
