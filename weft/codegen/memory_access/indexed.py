"""Accesses at computed offsets: a scalar access if the offset is the same in every lane, otherwise a gather.

Offsets are clamped, so that lanes beyond a mask also read inside the operand. If the operand also has a stride along
the lanes, those lanes read its first element.
"""

from __future__ import annotations

from weft.codegen.arithmetic.emitter import Value
from weft.codegen.arithmetic.lanes import V
from weft.codegen.memory_access.memory import Mask
from weft.codegen.memory_access.memory_words import whole
from weft.codegen.nests import guards, instances
from weft.codegen.nests.frame import Frame
from weft.codegen.nests.instances import Instance, Position
from weft.loops import ir


def load_at(parent: Frame, s: ir.LoadAt, tile: list[Instance], position: Position) -> None:
    """The statement for every copy of a tile."""
    tile = [copy for copy in tile if s.out not in copy.values]
    if not tile:
        return
    offset = uniform_offset(parent, s.offset, tile[0])
    if s.inside is not None:
        assert offset is not None
        for copy in tile:
            copy.values[s.out] = _load_inside(parent, s, copy, _moved(parent, s.operand, position, offset))
        return
    if offset is not None:
        parent.load(ir.Load(s.out, s.operand), tile, _moved(parent, s.operand, position, offset))
        return
    for copy in tile:
        copy.values[s.out] = _gather(parent, s, copy, position)


def _load_inside(parent: Frame, s: ir.LoadAt, copy: Instance, position: Position) -> Value:
    """Load the lanes that are inside the operand."""
    operand, lanes, pointer = parent.nest.operands[s.operand], copy.memory.lanes, position.pointers[s.operand]
    assert s.inside is not None
    inside = copy.values[s.inside].part
    if parent.stride(s.operand, copy):
        assert copy.index is not None and parent.nest.vector is not None
        distance = parent.distance(s.operand, parent.nest.vector, copy.index)
        pointer = parent.writer.element(whole(operand.dtype), pointer, distance)
        if copy.mask is not None:
            inside = inside & copy.mask.lanes
        if lanes.width > 1 and parent.stride(s.operand, copy) == 1 and copy.memory.masks(operand.dtype):
            return copy.memory.load(operand.dtype, pointer, Mask("0", inside))
        if lanes.width > 1:
            return copy.memory.load_inside(operand.dtype, pointer, parent.step(s.operand, copy).times(lanes), inside)
    return copy.memory.load_inside(operand.dtype, pointer, lanes.splat("0", "i64"), inside)


def uniform_offset(parent: Frame, number: int, copy: Instance) -> str | None:
    """An offset as one i64 name, or None if it differs from lane to lane."""
    if copy.memory.lanes.width > 1 and number in parent.moving and number not in copy.scalars:
        return None
    part = _uniform(parent, number, copy)
    return part.text if part.element == "i64" else parent.writer.op(f"sext {part.element} {part.text} to i64")


def _uniform(parent: Frame, number: int, copy: Instance) -> V:
    """The value in one lane of a uniform value."""
    if copy.memory.lanes.width == 1:
        return copy.values[number].part
    if number in copy.scalars:
        return copy.scalars[number].part
    vector = copy.values[number].part
    return V(parent.scalar, vector.element, vector.lanes.extract(vector, 0))


def _moved(parent: Frame, operand: int, position: Position, offset: str) -> Position:
    """The position with one operand's pointer advanced by ``offset`` elements."""
    pointer = parent.writer.element(whole(parent.nest.operands[operand].dtype), position.pointers[operand], offset)
    return position.replace(pointers={**position.pointers, operand: pointer})


def _gather(parent: Frame, s: ir.LoadAt, copy: Instance, position: Position) -> Value:
    """Load lanes at different offsets."""
    operand, lanes = parent.nest.operands[s.operand], copy.memory.lanes
    offsets = copy.values[s.offset].part
    if parent.stride(s.operand, copy):
        assert copy.index is not None and parent.nest.vector is not None
        offsets = offsets if offsets.element == "i64" else offsets.cast("sext", "i64")
        first = parent.distance(s.operand, parent.nest.vector, copy.index)
        offsets = offsets + lanes.splat(first, "i64") + parent.step(s.operand, copy).times(lanes)
        if copy.mask is not None:
            offsets = lanes.select(copy.mask.lanes, offsets, 0)
    return copy.memory.load_at(operand.dtype, position.pointers[s.operand], offsets)


def update(parent: Frame, s: ir.Update, tile: list[Instance], position: Position) -> None:
    """Read, combine, write; along the lanes every point has a different element."""
    moves = tile[0].index is None or parent.stride(s.operand, tile[0])
    if not moves or {s.offset, s.inside} & parent.moving:
        raise ValueError(f"[codegen] updates of operand {s.operand} may hit one element along the vector dimension")
    if s.inside is None:
        updated(parent, s, tile, position)
        return
    inner = [instances.fresh(c, c.values, c.index, c.mask, c.slot) for c in tile]
    parent.writer.when(
        _uniform(parent, s.inside, tile[0]).text, lambda: updated(parent, s, inner, position), rare=False
    )


def updated(parent: Frame, s: ir.Update, tile: list[Instance], position: Position) -> None:
    """``update`` for a window that is known to be inside."""
    offset = uniform_offset(parent, s.offset, tile[0])
    assert offset is not None
    position = _moved(parent, s.operand, position, offset)
    if s.steps:
        parent.load(ir.Load(s.old, s.operand), tile, position)
    for step in s.steps:
        for copy in tile:
            copy.values[step.out] = instances.apply(step, copy)
    if s.guard is not None:
        guards.write(parent, s.guard, tile, position.pointers[s.guard.operand], at_once=True)
    parent.store(ir.Store(s.operand, s.new), tile, position)
