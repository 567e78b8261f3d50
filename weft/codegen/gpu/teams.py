"""Writes rows for teams of threads, which are warps here, in the order of docs/NUMERICS.md.

    warps    a warp for a row: thread l has the accumulator l, of elements l, l + 32, ...; a fold by shuffles

Elements go to the same thread in every phase, so that what a phase keeps of a row needs no barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft._base.target import Target
from weft._base.target_model import GPU_THREADS, WARP
from weft.codegen.arithmetic.emitter import Emitter, Value
from weft.codegen.gpu import threads
from weft.codegen.gpu.points import LOADS, STORES, PointWriter
from weft.codegen.memory_access.memory_words import whole
from weft.codegen.nests import instances, reduce_tree
from weft.codegen.nests.groups import Combine, Groups
from weft.codegen.nests.instances import Instance, Position
from weft.codegen.nests.reduce_tree import Accumulators
from weft.codegen.writer import Writer
from weft.loops import ir
from weft.loops.gpu import grid
from weft.loops.reduction_tree import BLOCK_LANES


class TeamWriter(PointWriter):
    """Writes the entry ``warps`` of a nest whose rows are reduced."""

    size = WARP  # threads of a team

    def __init__(self, nest: ir.Nest, target: Target) -> None:
        super().__init__(nest, target, 1)
        self.last = self.reduced[-1]
        parallel = sum([dim.role == "parallel" for dim in nest.dims])
        self.cuts = 2 + 2 * max(parallel - 1, 0)  # the number of the first word that is a team's own

    def _row_bases(self) -> None:
        """They are those of a team, which is known later."""

    def write(self) -> Writer:
        writer = self.writer
        position = self.begin()
        thread, block = threads.number(writer, "tid.x"), threads.number(writer, "ctaid.x")
        self.lane = writer.index("and", thread, str(self.size - 1))
        self.warp = writer.index("lshr", thread, str(WARP.bit_length() - 1))
        team = writer.index("add", writer.index("mul", block, str(GPU_THREADS // WARP)), self.warp)
        threads.when(writer, self.below(team, self.word(0)), lambda: self.team(team, self.warp, position))
        return writer

    def below(self, x: str, y: str) -> str:
        return self.writer.compare_index("slt", x, y)

    def at_row(self, row: str, position: Position) -> tuple[Instance, Position]:
        point = instances.fresh(self.scalars, self.scalars.values)
        point.scalars = dict(self.scalars.values)
        return point, self.at_point(position, self.indices(row))

    # a row

    def team(self, row: str, within: str, position: Position) -> None:
        """All phases of a row; ``within``: the number of the team in its block."""
        if self.nest.rows:
            self._buffers_of_team(row, within)
        point, position = self.at_row(row, position)
        for phase in self.nest.phases:
            self.before(phase.before, point, position)
            if phase.body or phase.reductions:
                none = [reduce_tree.identities(r, point.emit) for r in phase.reductions]
                groups = Groups(self, BLOCK_LANES, reduce_tree.flat_accs(none), self._joining(phase.reductions))
                totals = groups.all(reduce_tree.flat_accs(self.level(phase, point, position, 0, none, groups)))
                self.finish(phase, point, reduce_tree.group_accs(phase.reductions, totals))

    def _buffers_of_team(self, row: str, within: str) -> None:
        """Row buffers in the memory of the block if they fit there, otherwise in working memory."""
        writer, kept, nbytes = self.writer, self.word(self.cuts + 2), self.word(self.cuts + 3)
        near = threads.shared(writer, writer.index("mul", within, nbytes))
        memory = writer.op("addrspacecast ptr addrspace(1) %scratch to ptr")
        far = writer.element("i8", memory, writer.index("mul", row, nbytes))
        is_kept = writer.compare_index("ne", kept, "0")
        count = self.extents[self.reduced[0]]
        for d in self.reduced[1:]:
            count = writer.index("mul", count, self.extents[d])
        self._buffers(writer.op(f"select i1 {is_kept}, ptr {near}, ptr {far}"), count)

    def _row(self, s: ir.RowLoad | ir.RowStore, copies: list[Instance], position: Position) -> None:
        at = self.writer.element(whole(self.nest.rows[s.row]), self.row_bases[s.row], position.row)
        self.row_access(s, copies, at)

    def before(self, statements: Sequence[ir.Statement], point: Instance, position: Position) -> None:
        """Statements of the row: every thread computes them, one of a team stores."""
        for s in statements:
            if isinstance(s, ir.Store | ir.Update | ir.Guard):
                first = self.writer.compare_index("eq", self.lane, "0")
                inner = instances.fresh(point, point.values)
                threads.when(self.writer, first, lambda s=s, inner=inner: self.run([s], [inner], position))
            else:
                self.run([s], [point], position)

    def part_addresses(self, part: str, count: int) -> list[str]:
        """Where the accumulators of a part of a row or a column are, in working memory."""
        writer = self.writer
        memory = writer.op("addrspacecast ptr addrspace(1) %scratch to ptr")
        first = writer.element("i8", memory, writer.index("mul", part, str(grid.SLOT * count)))
        return [writer.element("i8", first, str(grid.SLOT * k)) for k in range(count)]

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

        def inner(index: str, values: list[Value]) -> list[Value]:
            return reduce_tree.flat_accs(body(index, reduce_tree.group_accs(like, values)))

        carried = reduce_tree.carry(self.writer.loop, bounds, reduce_tree.flat_accs(totals), inner)
        return reduce_tree.group_accs(like, carried)

    def level(
        self,
        phase: ir.Phase,
        point: Instance,
        position: Position,
        depth: int,
        totals: list[Accumulators],
        groups: Groups,
    ) -> list[Accumulators]:
        """The loops from reduced dimension ``depth`` inwards; gives the totals after them."""
        dim, like = self.reduced[depth], phase.reductions
        if dim != self.last:

            def outer(index: str, now: list[Accumulators]) -> list[Accumulators]:
                inner = self.enter(position, dim, index, ir.operands(phase.body))
                return self.level(phase, point, inner, depth + 1, now, groups)

            return self.carry(("0", self.extents[dim], 1), totals, like, outer)
        if not like:
            self._elements(phase, point, position, ("0", self.extents[dim]))
            return totals

        def block(start: str, now: list[Accumulators]) -> list[Accumulators]:
            stop = self.writer.minimum_index(self.writer.index("add", start, str(BLOCK_LANES)), self.extents[dim])
            before = groups.before(groups.number(position, start), reduce_tree.flat_accs(now))
            accs = self.tree_block(phase, point, position, start, stop)
            return self.combined(like, reduce_tree.group_accs(like, before), accs)

        return self.carry(("0", self.extents[dim], BLOCK_LANES), totals, like, block)

    def _joining(self, like: Sequence[ir.Reduce]) -> Combine:
        """``combined`` of the accumulators of all reductions in one list."""
        grouped = reduce_tree.group_accs
        return lambda a, b: reduce_tree.flat_accs(self.combined(like, grouped(like, a), grouped(like, b)))

    def combined(
        self, like: Sequence[ir.Reduce], left: Sequence[Accumulators], right: Sequence[Accumulators]
    ) -> list[Accumulators]:
        emit = Emitter(self.scalar)
        return [reduce_tree.combine(r, emit, a, b) for r, a, b in zip(like, left, right, strict=True)]

    # elements

    def several(
        self, bounds: tuple[str, str, int], totals: list[Accumulators], like: Sequence[ir.Reduce],
        body: Callable[[Sequence[str], list[Accumulators]], list[Accumulators]],
    ) -> list[Accumulators]:  # fmt: skip
        """``carry`` that gives ``body`` several indices, so that their elements are loaded before the first is used."""

        def some(indices: Sequence[str], values: list[Value]) -> list[Value]:
            return reduce_tree.flat_accs(body(indices, reduce_tree.group_accs(like, values)))

        return reduce_tree.group_accs(like, self.at_once(bounds, reduce_tree.flat_accs(totals), some))

    def _elements(self, phase: ir.Phase, point: Instance, position: Position, bounds: tuple[str, str]) -> None:
        """The body at this thread's elements."""
        first = self.writer.index("add", bounds[0], self.lane)

        def some(indices: Sequence[str], _: list[Accumulators]) -> list[Accumulators]:
            self.elements(phase, point, position, indices)
            return []

        self.several((first, bounds[1], self.size), [], [], some)

    def elements(self, phase: ir.Phase, point: Instance, position: Position, indices: Sequence[str]) -> list[Instance]:
        """The body at several elements: all are loaded before one is computed, and computed before one is stored."""
        made = []
        for index in indices:
            inner = self.enter(position, self.last, index, ir.operands(phase.body))
            made += [(vector, inner) for vector in self.entered(phase.body, [point], inner)]
        for kinds in (LOADS, (), STORES):
            some = [s for s in phase.body if (isinstance(s, kinds) if kinds else not isinstance(s, LOADS + STORES))]
            for vector, inner in made:
                self.run(some, [vector], inner)
        return [vector for vector, _ in made]

    def folded(self, like: Sequence[ir.Reduce], accs: list[Accumulators]) -> list[Accumulators]:
        """The accumulators of a warp, combined: thread l with l + 16, then l + 8, ...; every thread has the result."""
        distance = WARP // 2
        while distance:
            others = [tuple([threads.shuffled(v, "down", str(distance)) for v in group]) for group in accs]
            accs = self.combined(like, accs, others)
            distance //= 2
        return [tuple([threads.shuffled(v, "idx", "0") for v in group]) for group in accs]

    # one block of the tree

    def tree_block(
        self, phase: ir.Phase, point: Instance, position: Position, start: str, stop: str
    ) -> list[Accumulators]:
        like, first = phase.reductions, self.writer.index("add", start, self.lane)

        def some(indices: Sequence[str], accs: list[Accumulators]) -> list[Accumulators]:
            for v in self.elements(phase, point, position, indices):
                accs = [reduce_tree.step(r, v.emit, v.values, acc, None) for r, acc in zip(like, accs, strict=True)]
            return accs

        seeds = [reduce_tree.seeds(r, Emitter(self.scalar), first) for r in like]
        accs = self.several((first, stop, WARP), seeds, like, some)
        return self.folded(like, accs)
