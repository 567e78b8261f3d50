"""Scatters in strict order with expensive updates: values are computed by vectors, then applied one by one.

    for block of 256: for vector in block: offsets, values -> stack;   for update in block: read, combine, write

Several updates may hit the same element, so that lanes cannot store at once. Computing the updates needs no order.
"""

from __future__ import annotations

import numpy as np

from weft.codegen.arithmetic.emitter import Value
from weft.codegen.memory_access import indexed
from weft.codegen.memory_access.memory import lanes_below
from weft.codegen.memory_access.memory_words import whole
from weft.codegen.nests import instances
from weft.codegen.nests.frame import Frame
from weft.codegen.nests.instances import Instance, Position
from weft.loops import elements, ir
from weft.loops.schedules.decisions import ORDERED_BLOCK as BLOCK


class OrderedWriter:
    """Writes the innermost loop of a scatter whose lanes run along updates that may hit the same element."""

    def __init__(self, parent: Frame, phase: ir.Phase) -> None:
        self.parent, self.writer = parent, parent.writer
        (self.update,) = [s for s in phase.body if isinstance(s, ir.Update)]
        self.computed = [s for s in phase.body if s is not self.update]
        self.kept: dict[int, tuple[np.dtype, str]] = {}  # value number -> its dtype and its stack buffer for a block

    def row(self, base: Instance, position: Position) -> None:
        """All updates at one point of the outer dimensions."""
        parent, writer = self.parent, self.writer
        assert parent.nest.vector is not None
        extent = parent.extents[parent.nest.vector]

        def block(start: str, _: list[str]) -> list[str]:
            parent.poll()
            stop = writer.minimum_index(writer.index("add", start, str(BLOCK)), extent)
            writer.loop(
                start, stop, parent.width, [], lambda index, _: self._compute(base, position, start, stop, index)
            )
            length = writer.index("sub", stop, start)
            writer.loop("0", length, 1, [], lambda at, _: self._apply(base, position, start, at))
            return []

        writer.loop("0", extent, BLOCK, [], block)

    def _compute(self, base: Instance, position: Position, start: str, stop: str, index: str) -> list[str]:
        """Compute a vector of updates and store it on the stack."""
        parent, writer = self.parent, self.writer
        mask = lanes_below(parent.lanes, writer.index("sub", stop, index), mostly_whole=True)
        copy = instances.fresh(base, base.values, index, mask)
        parent.run(self.computed, [copy], position)
        at = writer.index("sub", index, start)
        for number in ir.arguments(self.update):
            if number not in base.scalars:
                self._keep(number, copy.values[number], copy, at)
        return []

    def _keep(self, number: int, value: Value, copy: Instance, at: str) -> None:
        if number not in self.kept:
            element = elements.of(value.dtype)
            size = (BLOCK + self.parent.width) * element.size
            self.kept[number] = value.dtype, self.writer.alloca(f"[{size} x i8]")
        dtype, stack = self.kept[number]
        copy.memory.store(value, self.writer.element(whole(dtype), stack, at))

    def _apply(self, base: Instance, position: Position, start: str, at: str) -> list[str]:
        """Apply one update."""
        parent, writer, s = self.parent, self.writer, self.update
        assert parent.nest.vector is not None
        point = parent.copy(parent.scalar, dict(base.scalars))

        def load(number: int) -> None:
            if number in self.kept:
                dtype, stack = self.kept[number]
                point.values[number] = point.memory.load_scalar(dtype, writer.element(whole(dtype), stack, at))

        inside, done = writer.fresh_label(), writer.fresh_label()
        if s.inside is not None:
            load(s.inside)
            writer.branch_if(point.values[s.inside].part.text, inside, done)
            writer.label(inside)
        for number in ir.arguments(s):
            if number != s.inside:
                load(number)
        here = parent.enter(position, parent.nest.vector, writer.index("add", start, at), [s.operand])
        indexed.updated(parent, s, [point], here.replace(row=position.row))
        if s.inside is not None:
            writer.branch(done)
            writer.label(done)
        return []
