"""Writes rows that are cut for the threads of a GPU, where they are long and few, in the order of docs/NUMERICS.md.

parts    a warp for one block of the tree, whose accumulators go to working memory
whole    a block for a row: its parts by runs of 256, all runs in order, and what follows the reduction
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft._base.target import Target
from weft._base.target_model import GPU_THREADS, WARP
from weft.codegen.arithmetic.emitter import Emitter, Value
from weft.codegen.arithmetic.lanes import V
from weft.codegen.gpu import threads
from weft.codegen.gpu.teams import TeamWriter
from weft.codegen.memory_access.memory import Memory
from weft.codegen.memory_access.memory_words import whole
from weft.codegen.nests import reduce_tree
from weft.codegen.nests.instances import Position
from weft.codegen.nests.reduce_tree import Accumulators
from weft.codegen.writer import Writer
from weft.loops import ir
from weft.loops.gpu import grid
from weft.loops.reduction_tree import BLOCK_LANES, GROUP_BLOCKS


class CutRowWriter(TeamWriter):
    """Writes one of the two entries."""

    def __init__(self, nest: ir.Nest, target: Target, entry: str) -> None:
        super().__init__(nest, target)
        self.entry = entry

    def write(self) -> Writer:
        writer, position = self.writer, self.begin()
        thread, block = threads.number(writer, "tid.x"), threads.number(writer, "ctaid.x")
        if self.entry == "whole":
            self.lane, self.runs = thread, grid.runs_at_once(self.nest)
            self._whole(block, position)
            return writer
        self.lane = writer.index("and", thread, str(WARP - 1))
        warp = writer.index("lshr", thread, str(WARP.bit_length() - 1))
        part = writer.index("add", writer.index("mul", block, str(GPU_THREADS // WARP)), warp)
        parts = writer.index("mul", self.word(0), self.word(1))
        threads.when(writer, self.below(part, parts), lambda: self._part(part, position))
        return writer

    def _part(self, number: str, position: Position) -> None:
        """One block of the tree of one row: its accumulators go to working memory."""
        writer, (phase, *_) = self.writer, self.nest.phases
        row, block = self.divided(number, self.cuts, self.word(1))
        point, position = self.at_row(row, position)
        self.run([s for s in phase.before if not isinstance(s, ir.Store | ir.Update | ir.Guard)], [point], position)
        start = writer.index("mul", block, str(BLOCK_LANES))
        stop = writer.minimum_index(writer.index("add", start, str(BLOCK_LANES)), self.extents[self.last])
        accs = reduce_tree.flat_accs(self.tree_block(phase, point, position, start, stop))

        def keep() -> None:
            for value, at in zip(accs, self.part_addresses(number, len(accs)), strict=True):
                point.memory.store_scalar(value, at)

        threads.when(writer, writer.compare_index("eq", self.lane, "0"), keep)

    def _whole(self, row: str, position: Position) -> None:
        """A row from its parts, and what follows."""
        writer, (phase, *rest) = self.writer, self.nest.phases
        like, (point, position) = phase.reductions, self.at_row(row, position)
        self.before(phase.before, point, position)
        first = writer.index("mul", row, self.word(1))
        none = [reduce_tree.identities(r, point.emit) for r in like]
        of = [np.dtype(dtype) for r in like for dtype, _ in r.accumulators]
        offsets = grid.run_offsets(self.nest)
        stages = [threads.shared(writer, str(offset)) for offset in offsets[:-1]]

        def some_runs(begin: str, now: list[Accumulators]) -> list[Accumulators]:
            count = writer.index("sub", self.word(1), begin)
            count = writer.minimum_index(count, str(self.runs * GROUP_BLOCKS))
            self._bring(of, stages, writer.index("add", first, begin), count)
            threads.barrier(writer)
            first_warp = writer.compare_index("slt", self.lane, str(WARP))
            found = reduce_tree.when(
                writer, first_warp, lambda: self._runs(of, stages, count, now), reduce_tree.flat_accs(now)
            )
            threads.barrier(writer)
            return reduce_tree.group_accs(like, found)

        bounds = ("0", self.word(1), self.runs * GROUP_BLOCKS)
        self.finish(phase, point, self.carry(bounds, none, like, some_runs))
        for phase in rest:
            self.before(phase.before, point, position)

    def _bring(self, of: Sequence[np.dtype], stages: Sequence[str], first: str, count: str) -> None:
        """All threads: the accumulators of parts come to the block's memory."""
        writer, memory = self.writer, Memory(self.scalar, self.target)

        def some(numbers: Sequence[str], _: list[Value]) -> list[Value]:
            addresses = [self.part_addresses(writer.index("add", first, number), len(of)) for number in numbers]
            loaded = [[memory.load_scalar(d, p) for d, p in zip(of, each, strict=True)] for each in addresses]
            for number, values in zip(numbers, loaded, strict=True):
                for value, stage in zip(values, stages, strict=True):
                    memory.store_scalar(value, writer.element(whole(value.dtype), stage, self._apart(number)))
            return []

        self.at_once((self.lane, count, GPU_THREADS), [], some)

    def _apart(self, number: str) -> str:
        """The slot of a part: one is left out after each run, so that runs begin in different banks."""
        run = self.writer.index("lshr", number, str(GROUP_BLOCKS.bit_length() - 1))
        return self.writer.index("add", number, run)

    def _runs(self, of: Sequence[np.dtype], stages: Sequence[str], count: str, now: list[Accumulators]) -> list[Value]:
        """The first warp: a run by each thread, and then all of them in order."""
        writer, like = self.writer, self.nest.phases[0].reductions
        memory, none = Memory(self.scalar, self.target), [reduce_tree.identities(r, Emitter(self.scalar)) for r in like]
        begin = writer.index("mul", self.lane, str(GROUP_BLOCKS))
        end = writer.minimum_index(writer.index("add", begin, str(GROUP_BLOCKS)), count)

        def some(numbers: Sequence[str], accs: list[Accumulators]) -> list[Accumulators]:
            at = [self._apart(number) for number in numbers]
            pairs = list(zip(of, stages, strict=True))
            addresses = [[writer.element(whole(d), stage, slot) for d, stage in pairs] for slot in at]
            loaded = [[memory.load_scalar(d, p) for d, p in zip(of, each, strict=True)] for each in addresses]
            for values in loaded:
                accs = self.combined(like, accs, reduce_tree.group_accs(like, values))
            return accs

        mine = self.several((begin, end, 1), none, like, some)
        for run in range(self.runs):
            other = [tuple([threads.shuffled(v, "idx", str(run)) for v in group]) for group in mine]
            there = V(self.scalar, "i1", writer.compare_index("slt", str(run * GROUP_BLOCKS), count))
            both = self.combined(like, now, other)
            now = [reduce_tree.where(there, new, old) for new, old in zip(both, now, strict=True)]
        return reduce_tree.flat_accs(now)
