"""Writes rows that are cut for the threads of a GPU, where they are long and few, in the order of docs/NUMERICS.md.

parts    a warp for one block of the tree, whose accumulators go to working memory
whole    a thread for a row: the accumulators of its parts, in order, and what follows the reduction
"""

from __future__ import annotations

import numpy as np

from weft._base.target_model import GPU_THREADS, WARP
from weft.codegen import reduce_tree
from weft.codegen.gpu import threads
from weft.codegen.gpu.teams import TeamWriter
from weft.codegen.instances import Position
from weft.codegen.reduce_tree import Accumulators
from weft.codegen.writer import Writer
from weft.loops import grid, ir
from weft.loops.grid import SLOT
from weft.loops.reduction_tree import BLOCK_LANES


class CutRowWriter(TeamWriter):
    """Writes one of the two entries."""

    def write(self) -> Writer:
        writer, place = self.writer, self.begin()
        thread, block = threads.number(writer, "tid.x"), threads.number(writer, "ctaid.x")
        self.lane = writer.index("and", thread, str(WARP - 1))
        if self.entry == "whole":
            row = writer.index("add", writer.index("mul", block, str(WARP)), thread)
            threads.when(writer, self.below(row, self.word(0)), lambda: self._whole(row, place))
            return writer
        warp = writer.index("lshr", thread, str(WARP.bit_length() - 1))
        part = writer.index("add", writer.index("mul", block, str(GPU_THREADS // WARP)), warp)
        parts = writer.index("mul", self.word(0), self.word(1))
        threads.when(writer, self.below(part, parts), lambda: self._part(part, place))
        return writer

    def _part(self, number: str, place: Position) -> None:
        """One block of the tree of one row: its accumulators go to working memory."""
        writer, (phase, *_) = self.writer, self.nest.phases
        row, block = self.divided(number, self.cuts, self.word(1))
        point, place = self.at_row(row, place)
        self.run([s for s in phase.before if not isinstance(s, ir.Store | ir.Update | ir.Guard)], [point], place)
        start = writer.index("mul", block, str(BLOCK_LANES))
        stop = writer.minimum_index(writer.index("add", start, str(BLOCK_LANES)), self.extents[self.last])
        accs = reduce_tree.flat_accs(self.block_of_warp(phase, point, place, start, stop))

        def keep() -> None:
            for value, at in zip(accs, self._kept(number, len(accs)), strict=True):
                point.memory.store_scalar(value, at)

        threads.when(writer, writer.compare_index("eq", self.lane, "0"), keep)

    def _kept(self, part: str, count: int) -> list[str]:
        """Where the accumulators of a part are."""
        writer = self.writer
        memory = writer.op("addrspacecast ptr addrspace(1) %scratch to ptr")
        first = writer.element("i8", memory, writer.index("mul", part, str(SLOT * count)))
        return [writer.element("i8", first, str(SLOT * k)) for k in range(count)]

    def _whole(self, row: str, place: Position) -> None:
        """A row from its parts, and what follows."""
        writer, (phase, *rest) = self.writer, self.nest.phases
        like, (point, place) = phase.reductions, self.at_row(row, place)
        self.run(phase.before, [point], place)
        first = writer.index("mul", row, self.word(1))
        last = writer.index("add", first, self.word(1))
        none = [reduce_tree.identities(r, point.emit) for r in like]
        dtypes = [np.dtype(dtype) for r in like for dtype, _ in r.accumulators]

        def part(number: str, now: list[Accumulators]) -> list[Accumulators]:
            kept = zip(dtypes, self._kept(number, len(dtypes)), strict=True)
            accs = reduce_tree.group_accs(like, [point.memory.load_scalar(dtype, at) for dtype, at in kept])
            return self.combined(like, now, accs)

        def run(begin: str, now: list[Accumulators]) -> list[Accumulators]:
            end = writer.minimum_index(writer.index("add", begin, str(grid.RUN_BLOCKS)), last)
            return self.combined(like, now, self.carry((begin, end, 1), none, like, part))

        self.finish(phase, point, self.carry((first, last, grid.RUN_BLOCKS), none, like, run))
        for phase in rest:
            self.run(phase.before, [point], place)
