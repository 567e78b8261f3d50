"""Writes columns that are cut for the threads of a GPU, where they are long and few, in the order of docs/NUMERICS.md.

column_parts    a thread for 256 rows of one column, whose accumulators go to working memory
column_whole    a thread for a column: the accumulators of its parts, in order, and what follows the reduction
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft._base.target import Target
from weft._base.target_model import GPU_THREADS
from weft.codegen.arithmetic.emitter import Emitter
from weft.codegen.gpu import threads
from weft.codegen.gpu.points import STORES
from weft.codegen.gpu.teams import TeamWriter
from weft.codegen.nests import reduce_tree
from weft.codegen.nests.instances import Position
from weft.codegen.nests.reduce_tree import Accumulators
from weft.codegen.writer import Writer
from weft.loops import ir
from weft.loops.reduction_tree import BLOCK_ROWS, GROUP_BLOCKS


class CutColumnWriter(TeamWriter):
    """Writes one of the two entries."""

    size = 1

    def __init__(self, nest: ir.Nest, target: Target, entry: str) -> None:
        super().__init__(nest, target)
        self.entry, self.lane = entry, "0"
        self.cuts += 2  # behind the words of points
        self.of = [np.dtype(dtype) for r in nest.phases[0].reductions for dtype, _ in r.accumulators]

    def write(self) -> Writer:
        writer, position = self.writer, self.begin()
        thread, block = threads.number(writer, "tid.x"), threads.number(writer, "ctaid.x")
        number = writer.index("add", writer.index("mul", block, str(GPU_THREADS)), thread)
        n_blocks = self.word(self.cuts)
        if self.entry == "column_parts":
            count = writer.index("mul", self.word(0), n_blocks)
            threads.when(writer, self.below(number, count), lambda: self._part(number, position))
        else:
            threads.when(writer, self.below(number, self.word(0)), lambda: self._whole(number, n_blocks, position))
        return writer

    def _part(self, number: str, position: Position) -> None:
        writer, phase = self.writer, self.nest.phases[0]
        block, column = self.divided(number, self.cuts + 1, self.word(0))
        point, position = self.at_row(column, position)
        self.run([s for s in phase.before if not isinstance(s, STORES)], [point], position)
        start = writer.index("mul", block, str(BLOCK_ROWS))
        stop = writer.minimum_index(writer.index("add", start, str(BLOCK_ROWS)), self.extents[self.last])

        def some(indices: Sequence[str], accs: list[Accumulators]) -> list[Accumulators]:
            for v in self.elements(phase, point, position, indices):
                pairs = zip(phase.reductions, accs, strict=True)
                accs = [reduce_tree.step(r, v.emit, v.values, acc, None) for r, acc in pairs]
            return accs

        seeds = [reduce_tree.seeds(r, Emitter(self.scalar), start) for r in phase.reductions]
        accs = self.several((start, stop, 1), seeds, phase.reductions, some)
        for value, at in zip(reduce_tree.flat_accs(accs), self.part_addresses(number, len(self.of)), strict=True):
            point.memory.store_scalar(value, at)

    def _whole(self, column: str, n_blocks: str, position: Position) -> None:
        """A column from its parts, by groups of 256, and what follows."""
        writer, (phase, *rest) = self.writer, self.nest.phases
        like, (point, position) = phase.reductions, self.at_row(column, position)
        self.before(phase.before, point, position)
        none = [reduce_tree.identities(r, point.emit) for r in like]

        def parts(blocks: Sequence[str], now: list[Accumulators]) -> list[Accumulators]:
            loaded = []
            for block in blocks:
                part = writer.index("add", writer.index("mul", block, self.word(0)), column)
                kept = self.part_addresses(part, len(self.of))
                values = [point.memory.load_scalar(dtype, at) for dtype, at in zip(self.of, kept, strict=True)]
                loaded.append(reduce_tree.group_accs(like, values))
            for accs in loaded:
                now = self.combined(like, now, accs)
            return now

        def group(begin: str, now: list[Accumulators]) -> list[Accumulators]:
            end = writer.minimum_index(writer.index("add", begin, str(GROUP_BLOCKS)), n_blocks)
            return self.combined(like, now, self.several((begin, end, 1), none, like, parts))

        self.finish(phase, point, self.carry(("0", n_blocks, GROUP_BLOCKS), none, like, group))
        for phase in rest:
            self.before(phase.before, point, position)
