"""Writes a function of a nest for teams of threads: a warp or a block for each row, in the order of docs/NUMERICS.md.

    warps    a warp for a row: thread l has the accumulator l, of elements l, l + 32, ...; a fold by shuffles
    blocks   a block for a row: all threads compute elements, one warp for each reduction combines them

Elements go to the same thread in every phase, so that what a phase keeps of a row needs no barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from weft._base.target import Target
from weft._base.target_model import GPU_THREADS, WARP
from weft.codegen import instances, reduce_tree
from weft.codegen.emitter import Emitter
from weft.codegen.gpu import threads
from weft.codegen.gpu.points import PointWriter
from weft.codegen.instances import Instance, Position
from weft.codegen.memory import Memory
from weft.codegen.memory_words import whole
from weft.codegen.reduce_tree import Accumulators
from weft.codegen.writer import Writer
from weft.loops import elements, grid, ir
from weft.loops.reduction_tree import BLOCK_LANES

SLOT = grid.SLOT  # bytes of a result that threads share
AT_ONCE = 4  # elements of a thread that are loaded before the first of them is combined
RUN = grid.RUN_BLOCKS * BLOCK_LANES  # elements of a run of blocks


class TeamWriter(PointWriter):
    """Writes one entry of a nest whose rows are reduced."""

    def __init__(self, nest: ir.Nest, target: Target, entry: str) -> None:
        super().__init__(nest, target, 1)
        self.entry, self.size = entry, GPU_THREADS if entry == "blocks" else WARP
        self.last = self.reduced[-1]
        parallel = sum([dim.role == "parallel" for dim in nest.dims])
        self.cuts = 2 + 2 * max(parallel - 1, 0)  # the number of the first word that is a team's own

    def _row_bases(self) -> None:
        """They are those of a team, which is known later."""

    def write(self) -> Writer:
        writer = self.writer
        place = self.begin()
        thread, block = threads.number(writer, "tid.x"), threads.number(writer, "ctaid.x")
        self.lane = writer.index("and", thread, str(self.size - 1))
        self.warp = writer.index("lshr", thread, str(WARP.bit_length() - 1))
        if self.entry == "blocks":
            self._team(block, "0", place)
            return writer
        team = writer.index("add", writer.index("mul", block, str(GPU_THREADS // WARP)), self.warp)
        threads.when(writer, self.below(team, self.word(0)), lambda: self._team(team, self.warp, place))
        return writer

    def below(self, x: str, y: str) -> str:
        return self.writer.compare_index("slt", x, y)

    def at_row(self, row: str, place: Position) -> tuple[Instance, Position]:
        point = instances.fresh(self.scalars, self.scalars.values)
        point.scalars = dict(self.scalars.values)
        return point, self.at_point(place, self.indices(row))

    # a row

    def _team(self, row: str, within: str, place: Position) -> None:
        """All phases of a row; ``within``: the number of the team in its block."""
        if self.nest.rows:
            self._buffers_of_team(row, within)
        point, place = self.at_row(row, place)
        for phase in self.nest.phases:
            self.before(phase.before, point, place)
            if phase.body or phase.reductions:
                totals = [reduce_tree.identities(r, point.emit) for r in phase.reductions]
                self.finish(phase, point, self._level(phase, point, place, 0, totals))

    def _buffers_of_team(self, row: str, within: str) -> None:
        """Row buffers in the memory of the block if they fit there, else in working memory."""
        writer, kept, nbytes = self.writer, self.word(self.cuts + 2), self.word(self.cuts + 3)
        near = threads.shared(writer, writer.index("mul", within, nbytes))
        memory = writer.op("addrspacecast ptr addrspace(1) %scratch to ptr")
        far = writer.element("i8", memory, writer.index("mul", row, nbytes))
        is_kept = writer.compare_index("ne", kept, "0")
        count = self.extents[self.reduced[0]]
        for d in self.reduced[1:]:
            count = writer.index("mul", count, self.extents[d])
        self._buffers(writer.op(f"select i1 {is_kept}, ptr {near}, ptr {far}"), count)

    def _row(self, s: ir.RowLoad | ir.RowStore, copies: list[Instance], place: Position) -> None:
        at = self.writer.element(whole(self.nest.rows[s.row]), self.row_bases[s.row], place.row)
        self.row_access(s, copies, at)

    def before(self, statements: Sequence[ir.Statement], point: Instance, place: Position) -> None:
        """Statements of the row: every thread computes them, one of a team stores."""
        for s in statements:
            if isinstance(s, ir.Store | ir.Update | ir.Guard):
                first = self.writer.compare_index("eq", self.lane, "0")
                inner = instances.fresh(point, point.values)
                threads.when(self.writer, first, lambda s=s, inner=inner: self.run([s], [inner], place))
            else:
                self.run([s], [point], place)

    def finish(self, phase: ir.Phase, point: Instance, totals: Sequence[Accumulators]) -> None:
        for reduction, total in zip(phase.reductions, totals, strict=True):
            outs = reduce_tree.finish(reduction, point.emit, total)
            point.values.update(zip(reduction.outs, outs, strict=True))

    # the loops of a phase

    def carry(
        self,
        bounds: tuple[str, str, int],
        totals: list[Accumulators],
        like: Sequence[ir.Reduce],
        body: Callable[[str, list[Accumulators]], list[Accumulators]],
    ) -> list[Accumulators]:
        """A loop that carries accumulators."""
        values = reduce_tree.flat_accs(totals)

        def inner(index: str, texts: list[str]) -> list[str]:
            groups = reduce_tree.group_accs(like, reduce_tree.rebuild(values, texts))
            return [text for _, text in reduce_tree.flatten(reduce_tree.flat_accs(body(index, groups)))]

        texts = self.writer.loop(*bounds, reduce_tree.flatten(values), inner)
        return reduce_tree.group_accs(like, reduce_tree.rebuild(values, texts))

    def _level(
        self, phase: ir.Phase, point: Instance, place: Position, depth: int, totals: list[Accumulators]
    ) -> list[Accumulators]:
        """The loops from reduced dimension ``depth`` inwards; gives the totals after them."""
        dim, like = self.reduced[depth], phase.reductions
        if dim != self.last:

            def outer(index: str, now: list[Accumulators]) -> list[Accumulators]:
                inner = self.enter(place, dim, index, ir.operands(phase.body))
                return self._level(phase, point, inner, depth + 1, now)

            return self.carry(("0", self.extents[dim], 1), totals, like, outer)
        if not like:
            self._elements(phase, point, place, ("0", self.extents[dim]), lambda *_: None)
            return totals

        def run(start: str, now: list[Accumulators]) -> list[Accumulators]:
            stop = self.writer.minimum_index(self.writer.index("add", start, str(RUN)), self.extents[dim])
            begun = [reduce_tree.identities(r, Emitter(self.scalar)) for r in like]
            return self.combined(like, now, self._blocks(phase, point, place, (start, stop), begun))

        return self.carry(("0", self.extents[dim], RUN), totals, like, run)

    def _blocks(
        self, phase: ir.Phase, point: Instance, place: Position, bounds: tuple[str, str], totals: list[Accumulators]
    ) -> list[Accumulators]:
        """The blocks of a run, in order."""

        def block(start: str, now: list[Accumulators]) -> list[Accumulators]:
            stop = self.writer.minimum_index(self.writer.index("add", start, str(BLOCK_LANES)), bounds[1])
            of = self.block_of_warp if self.size == WARP else self._block_of_threads
            return self.combined(phase.reductions, now, of(phase, point, place, start, stop))

        return self.carry((*bounds, BLOCK_LANES), totals, phase.reductions, block)

    def combined(
        self, like: Sequence[ir.Reduce], left: Sequence[Accumulators], right: Sequence[Accumulators]
    ) -> list[Accumulators]:
        emit = Emitter(self.scalar)
        return [reduce_tree.combine(r, emit, a, b) for r, a, b in zip(like, left, right, strict=True)]

    # elements

    def _elements(
        self, phase: ir.Phase, point: Instance, place: Position, bounds: tuple[str, str],
        use: Callable[[str, Instance], None],
    ) -> None:  # fmt: skip
        """The body at this thread's elements, one after the other; ``use`` gets each and its index."""
        first = self.writer.index("add", bounds[0], self.lane)

        def one(index: str, _: list[str]) -> list[str]:
            use(index, self._element(phase, point, place, index))
            return []

        self.writer.loop(first, bounds[1], self.size, [], one)

    def _element(self, phase: ir.Phase, point: Instance, place: Position, index: str) -> Instance:
        inner = self.enter(place, self.last, index, ir.operands(phase.body))
        (vector,) = self.entered(phase.body, [point], inner)
        self.run(phase.body, [vector], inner)
        return vector

    def _accumulated(
        self, phase: ir.Phase, like: Sequence[ir.Reduce], seeds: list[Accumulators], bounds: tuple[str, str],
        elements: Callable[[str], Instance],
    ) -> list[Accumulators]:  # fmt: skip
        """Accumulators of this thread after its elements, several of which are computed side by side."""
        writer, (first, stop) = self.writer, bounds

        def several(count: int) -> Callable[[str, list[Accumulators]], list[Accumulators]]:
            def body(index: str, accs: list[Accumulators]) -> list[Accumulators]:
                at = [writer.index("add", index, str(k * self.size)) for k in range(count)]
                for vector in [elements(place) for place in at]:
                    accs = [
                        reduce_tree.step(r, vector.emit, vector.values, acc, None)
                        for r, acc in zip(like, accs, strict=True)
                    ]
                return accs

            return body

        length = writer.maximum_index(writer.index("sub", stop, first), "0")
        main = writer.index("add", first, writer.index("and", length, str(-AT_ONCE * self.size)))
        accs = self.carry((first, main, AT_ONCE * self.size), seeds, like, several(AT_ONCE))
        return self.carry((main, stop, self.size), accs, like, several(1))

    def _folded(self, like: Sequence[ir.Reduce], accs: list[Accumulators]) -> list[Accumulators]:
        """The accumulators of a warp, combined: thread l with l + 16, then l + 8, ...; every thread has the result."""
        distance = WARP // 2
        while distance:
            others = [tuple([threads.shuffled(v, "down", str(distance)) for v in group]) for group in accs]
            accs = self.combined(like, accs, others)
            distance //= 2
        return [tuple([threads.shuffled(v, "idx", "0") for v in group]) for group in accs]

    # one block of the tree

    def block_of_warp(
        self, phase: ir.Phase, point: Instance, place: Position, start: str, stop: str
    ) -> list[Accumulators]:
        like, first = phase.reductions, self.writer.index("add", start, self.lane)
        seeds = [reduce_tree.seeds(r, Emitter(self.scalar), first) for r in like]
        accs = self._accumulated(
            phase, like, seeds, (first, stop), lambda index: self._element(phase, point, place, index)
        )
        return self._folded(like, accs)

    def _block_of_threads(
        self, phase: ir.Phase, point: Instance, place: Position, start: str, stop: str
    ) -> list[Accumulators]:
        """All threads leave elements in the block's memory; a warp for each reduction combines them there."""
        writer, like = self.writer, phase.reductions
        stages, results, _ = self._stages(like)

        def leave(index: str, vector: Instance) -> None:
            at = writer.index("sub", index, start)
            for reduction, bases in zip(like, stages, strict=True):
                for value, base in zip(reduce_tree.prepared(reduction, vector.emit, vector.values), bases, strict=True):
                    vector.memory.store(value, writer.element(whole(value.dtype), base, at))

        self._elements(phase, point, place, (start, stop), leave)
        threads.barrier(writer)
        lane = writer.index("and", self.lane, str(WARP - 1))
        for number, reduction in enumerate(like):
            mine = writer.compare_index("eq", self.warp, str(number % (GPU_THREADS // WARP)))

            def combine(number: int = number, reduction: ir.Reduce = reduction) -> None:
                self._combine_staged(reduction, stages[number], results[number], lane, (start, stop))

            threads.when(writer, mine, combine)
        threads.barrier(writer)
        memory = Memory(self.scalar, self.target)
        return [
            tuple([memory.load_scalar(np.dtype(d), base) for (d, _), base in zip(r.accumulators, bases, strict=True)])
            for r, bases in zip(like, results, strict=True)
        ]

    def _combine_staged(
        self, reduction: ir.Reduce, stage: Sequence[str], result: Sequence[str], lane: str, bounds: tuple[str, str]
    ) -> None:
        writer, memory, emit = self.writer, Memory(self.scalar, self.target), Emitter(self.scalar)
        count = writer.index("sub", bounds[1], bounds[0])
        dtypes = [np.dtype(dtype) for dtype, _ in reduction.accumulators]

        def one(index: str, now: list[Accumulators]) -> list[Accumulators]:
            pairs = zip(dtypes, stage, strict=True)
            element = tuple([memory.load_scalar(d, writer.element(whole(d), base, index)) for d, base in pairs])
            return [reduce_tree.appended(reduction, Emitter(self.scalar), now[0], element)]

        seeds = [reduce_tree.seeds(reduction, emit, writer.index("add", bounds[0], lane))]
        (found,) = self._folded([reduction], self.carry((lane, count, WARP), seeds, [reduction], one))

        def keep() -> None:
            for value, base in zip(found, result, strict=True):
                memory.store_scalar(value, base)

        threads.when(writer, writer.compare_index("eq", lane, "0"), keep)

    def _stages(self, like: Sequence[ir.Reduce]) -> tuple[list[list[str]], list[list[str]], str]:
        """Addresses in the block's memory, by reduction and accumulator: of elements, and of results."""
        writer = self.writer
        kept = writer.compare_index("ne", self.word(self.cuts + 2), "0")
        offset = writer.choose_index(kept, self.word(self.cuts + 3), "0")
        length = writer.minimum_index(self.extents[self.last], str(BLOCK_LANES))
        stages, results = list[list[str]](), list[list[str]]()
        for reduction in like:
            stages.append([])
            results.append([])
            for dtype, _ in reduction.accumulators:
                results[-1].append(threads.shared(writer, offset))
                offset = writer.index("add", offset, str(SLOT))
                stages[-1].append(threads.shared(writer, offset))
                nbytes = writer.index("mul", length, str(elements.of(dtype).size))
                nbytes = writer.index("and", writer.index("add", nbytes, str(SLOT - 1)), str(-SLOT))
                offset = writer.index("add", offset, nbytes)
        return stages, results, offset
