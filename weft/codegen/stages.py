"""Writes the stages of a long elementwise body: loops over a block of elements, one after the other.

    for block in range:  for vector in block: first stage -> buffers;  for vector in block: second stage; ...

Stages and blocks are decided by ``loops/stages.py``.
"""

from __future__ import annotations

from weft.codegen import instances
from weft.codegen.frame import Frame
from weft.codegen.instances import Instance, Position
from weft.codegen.memory import lanes_below
from weft.codegen.memory_words import whole
from weft.loops import ir
from weft.loops.stages import Stage, Stages


class StageWriter:
    """Writes the loops of one nest; ``buffers`` have the values of a block that later stages need."""

    def __init__(self, parent: Frame, cut: Stages) -> None:
        self.parent, self.cut = parent, cut
        self.buffers = {s.out: parent.writer.alloca(f"[{cut.block} x {whole(s.dtype)}]") for s in cut.kept}

    def write(self, base: Instance, place: Position, low: str, high: str, step: int, masked: bool = False) -> None:
        """The loops from ``low`` to ``high``, ``step`` elements at a time; ``masked``: the last ones with a mask."""
        writer = self.parent.writer

        def block(begin: str, _: list[str]) -> list[str]:
            end = writer.minimum_index(writer.index("add", begin, str(self.cut.block)), high)
            for stage in self.cut.stages:
                self._stage(stage, base, place, (begin, end), step, masked)
            return []

        self.parent.stretches(low, high, self.cut.block, [], block)

    def _stage(
        self, stage: Stage, base: Instance, place: Position, bounds: tuple[str, str], step: int, masked: bool
    ) -> None:
        parent, writer = self.parent, self.parent.writer
        begin, end = bounds

        def vectors(index: str, _: list[str]) -> list[str]:
            first = writer.index("sub", index, begin)
            mask = lanes_below(parent.lanes, writer.index("sub", end, index), True) if masked else None
            copies = [
                instances.fresh(base, base.values, writer.index("add", index, str(slot)), mask, slot)
                for slot in range(0, step, parent.width)
            ]
            at = [writer.index("add", first, str(copy.slot)) for copy in copies]
            for s in stage.taken:
                for copy, k in zip(copies, at, strict=True):
                    copy.values[s.out] = copy.memory.load(s.dtype, self._place(s, k))
            parent.run(stage.statements, copies, place)
            for s in stage.kept:
                for copy, k in zip(copies, at, strict=True):
                    copy.memory.store(copy.values[s.out], self._place(s, k))
            return []

        writer.loop(begin, end, step, [], vectors)

    def _place(self, s: ir.Apply, index: str) -> str:
        return self.parent.writer.element(whole(s.dtype), self.buffers[s.out], index)
