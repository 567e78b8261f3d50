"""Writes a loop whose body is distributed: loops over a block of elements, one for each part.

    for block in range:  for vector in block: first part -> buffers;  for vector in block: second part; ...

Parts and blocks are decided by ``loops/schedules/loop_distribution.py``.
"""

from __future__ import annotations

from weft.codegen.memory_access.memory import lanes_below
from weft.codegen.memory_access.memory_words import whole
from weft.codegen.nests import instances
from weft.codegen.nests.frame import Frame
from weft.codegen.nests.instances import Instance, Position
from weft.loops import ir
from weft.loops.schedules.lane_loops import LaneLoop, Part, kept


class Distributed:
    """The loops of one nest; ``buffers`` have the values of a block that later parts need."""

    def __init__(self, parent: Frame, loop: LaneLoop) -> None:
        self.parent, self.loop = parent, loop
        self.buffers = {s.out: parent.writer.alloca(f"[{loop.block} x {whole(s.dtype)}]") for s in kept(loop)}

    def write(self, base: Instance, position: Position, low: str, high: str) -> None:
        """The loops from ``low`` to ``high``."""
        writer = self.parent.writer

        def block(begin: str, _: list[str]) -> list[str]:
            end = writer.minimum_index(writer.index("add", begin, str(self.loop.block)), high)
            for part in self.loop.parts:
                self._part(part, base, position, (begin, end))
            return []

        self.parent.stretches(low, high, self.loop.block, [], block)

    def _part(self, part: Part, base: Instance, position: Position, bounds: tuple[str, str]) -> None:
        parent, writer, step = self.parent, self.parent.writer, self.loop.vectors * self.parent.width
        begin, end = bounds

        def vectors(index: str, _: list[str]) -> list[str]:
            first, mask = writer.index("sub", index, begin), None
            if self.loop.rest == "masked":
                mask = lanes_below(parent.lanes, writer.index("sub", end, index), True)
            copies = [
                instances.fresh(base, base.values, writer.index("add", index, str(slot)), mask, slot)
                for slot in range(0, step, parent.width)
            ]
            at = [writer.index("add", first, str(copy.slot)) for copy in copies]
            for s in part.taken:
                for copy, k in zip(copies, at, strict=True):
                    copy.values[s.out] = copy.memory.load(s.dtype, self._element(s, k))
            parent.run(part.statements, copies, position)
            for s in part.kept:
                for copy, k in zip(copies, at, strict=True):
                    copy.memory.store(copy.values[s.out], self._element(s, k))
            return []

        writer.loop(begin, end, step, [], vectors)

    def _element(self, s: ir.Apply, index: str) -> str:
        return self.parent.writer.element(whole(s.dtype), self.buffers[s.out], index)
