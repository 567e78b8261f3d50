"""Writes rows for blocks of threads, where they are too long for a warp, in the order of docs/NUMERICS.md.

All threads compute elements. One warp for each reduction combines them, through the memory of the block; where every
order gives the same bits each thread combines its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from weft._base.target_model import GPU_ROW_THREADS, WARP
from weft.codegen import reduce_tree
from weft.codegen.emitter import Emitter
from weft.codegen.gpu import threads
from weft.codegen.gpu.teams import TeamWriter
from weft.codegen.instances import Instance, Position
from weft.codegen.memory import Memory
from weft.codegen.memory_words import whole
from weft.codegen.reduce_tree import Accumulators
from weft.codegen.writer import Writer
from weft.loops import elements, grid, ir
from weft.loops.grid import SLOT
from weft.loops.reduction_tree import BLOCK_LANES

WARPS = GPU_ROW_THREADS // WARP  # of a block


class BlockRowWriter(TeamWriter):
    """Writes the entry ``blocks``."""

    size = GPU_ROW_THREADS

    def write(self) -> Writer:
        writer, place = self.writer, self.begin()
        self.lane = threads.number(writer, "tid.x")
        self.warp = writer.index("lshr", self.lane, str(WARP.bit_length() - 1))
        self.team(threads.number(writer, "ctaid.x"), "0", place)
        return writer

    def tree_block(
        self, phase: ir.Phase, point: Instance, place: Position, start: str, stop: str
    ) -> list[Accumulators]:
        """All threads leave elements in the block's memory; a warp for each reduction combines them there.

        Where any order is right each thread combines its own, and leaves what its warp has.
        """
        writer, like = self.writer, phase.reductions
        lent = {number: grid.lent_row(self.nest, phase, r) for number, r in enumerate(like)}
        stages, results = self._stages(like, lent, start)
        free = [number for number, r in enumerate(like) if grid.is_exact(r)]
        first = writer.index("add", start, self.lane)

        staged = [number for number in range(len(like)) if number not in free]

        def some(indices: Sequence[str], accs: list[Accumulators]) -> list[Accumulators]:
            for index, v in zip(indices, self.elements(phase, point, place, indices), strict=True):
                at = writer.index("sub", index, start)
                for number in [number for number in staged if lent[number] is None]:
                    prepared = reduce_tree.prepared(like[number], v.emit, v.values)
                    for value, base in zip(prepared, stages[number], strict=True):
                        v.memory.store(value, writer.element(whole(value.dtype), base, at))
                accs = [
                    reduce_tree.step(like[n], v.emit, v.values, acc, None) for n, acc in zip(free, accs, strict=True)
                ]
            return accs

        exact = [like[number] for number in free]
        seeds = [reduce_tree.seeds(r, Emitter(self.scalar), first) for r in exact]
        own = self.folded(exact, self.several((first, stop, self.size), seeds, exact, some))
        lane = writer.index("and", self.lane, str(WARP - 1))
        is_first = writer.compare_index("eq", lane, "0")
        for number, accs in zip(free, own, strict=True):
            threads.when(writer, is_first, lambda n=number, accs=accs: self._leave(accs, results[n], self.warp))
        threads.barrier(writer)
        for number in staged:
            mine = writer.compare_index("eq", self.warp, str(number % WARPS))

            def combine(number: int = number) -> None:
                self._combine_staged(like[number], stages[number], results[number], lane, (start, stop))

            threads.when(writer, mine, combine)
        threads.barrier(writer)
        found = [self._result(r, bases, n in free) for n, (r, bases) in enumerate(zip(like, results, strict=True))]
        threads.barrier(writer)
        return found

    def _leave(self, accs: Accumulators, bases: Sequence[str], number: str) -> None:
        memory, offset = Memory(self.scalar, self.target), self.writer.index("mul", number, str(SLOT))
        for value, base in zip(accs, bases, strict=True):
            memory.store_scalar(value, self.writer.element("i8", base, offset))

    def _result(self, reduction: ir.Reduce, bases: Sequence[str], of_warps: bool) -> Accumulators:
        """What is in the block's memory: the accumulators of all warps, combined, or those of the one that did it."""
        memory, emit, total = Memory(self.scalar, self.target), Emitter(self.scalar), None
        for warp in range(WARPS if of_warps else 1):
            places = [self.writer.element("i8", base, str(SLOT * warp)) for base in bases]
            pairs = zip(reduction.accumulators, places, strict=True)
            accs = tuple([memory.load_scalar(np.dtype(dtype), place) for (dtype, _), place in pairs])
            total = accs if total is None else reduce_tree.combine(reduction, emit, total, accs)
        assert total is not None
        return total

    def _combine_staged(
        self, reduction: ir.Reduce, stage: Sequence[str], result: Sequence[str], lane: str, bounds: tuple[str, str]
    ) -> None:
        writer, memory, emit = self.writer, Memory(self.scalar, self.target), Emitter(self.scalar)
        count = writer.index("sub", bounds[1], bounds[0])
        dtypes = [np.dtype(dtype) for dtype, _ in reduction.accumulators]

        def some(indices: Sequence[str], now: list[Accumulators]) -> list[Accumulators]:
            found = []
            for index in indices:
                pairs = zip(dtypes, stage, strict=True)
                found.append(tuple([memory.load_scalar(d, writer.element(whole(d), base, index)) for d, base in pairs]))
            for element in found:
                now = [reduce_tree.appended(reduction, Emitter(self.scalar), now[0], element)]
            return now

        seeds = [reduce_tree.seeds(reduction, emit, writer.index("add", bounds[0], lane))]
        (found,) = self.folded([reduction], self.several((lane, count, WARP), seeds, [reduction], some))

        threads.when(writer, writer.compare_index("eq", lane, "0"), lambda: self._leave(found, result, "0"))

    def _stages(
        self, like: Sequence[ir.Reduce], lent: Mapping[int, int | None], start: str
    ) -> tuple[list[list[str]], list[list[str]]]:
        """Addresses, by reduction and accumulator: of elements, which may lie in a row buffer, and of results."""
        writer = self.writer
        kept = writer.compare_index("ne", self.word(self.cuts + 2), "0")
        offset = writer.choose_index(kept, self.word(self.cuts + 3), "0")
        length = writer.minimum_index(self.extents[self.last], str(BLOCK_LANES))
        stages, results = list[list[str]](), list[list[str]]()
        for number, reduction in enumerate(like):
            stages.append([])
            results.append([])
            for dtype, _ in reduction.accumulators:
                results[-1].append(threads.shared(writer, offset))
                if grid.is_exact(reduction):
                    offset = writer.index("add", offset, str(SLOT * WARPS))
                    continue
                offset = writer.index("add", offset, str(SLOT))
                row = lent[number]
                if row is not None:
                    stages[-1].append(writer.element(whole(self.nest.rows[row]), self.row_bases[row], start))
                    continue
                stages[-1].append(threads.shared(writer, offset))
                nbytes = writer.index("mul", length, str(elements.of(dtype).size))
                nbytes = writer.index("and", writer.index("add", nbytes, str(SLOT - 1)), str(-SLOT))
                offset = writer.index("add", offset, nbytes)
        return stages, results
