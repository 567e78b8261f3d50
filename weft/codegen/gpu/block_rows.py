"""Writes rows for blocks of threads, where they are too long for a warp, in the order of docs/NUMERICS.md.

held      a block reads its row once: each thread keeps 16 elements in registers through all phases
blocks    longer rows, 8192 elements at a time; what a phase keeps of a row is in memory

One warp for each reduction combines elements in order, through the memory of the block; where every order gives the
same bits each thread combines its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from weft._base.target import Target
from weft._base.target_model import WARP
from weft.codegen.arithmetic.emitter import Emitter, Value
from weft.codegen.arithmetic.lanes import V
from weft.codegen.gpu import threads
from weft.codegen.gpu.points import LOADS, STORES
from weft.codegen.gpu.row_parts import RowParts, Spot
from weft.codegen.gpu.teams import TeamWriter
from weft.codegen.memory_access.memory_words import whole
from weft.codegen.nests import reduce_tree
from weft.codegen.nests.groups import Groups
from weft.codegen.nests.instances import Instance, Position
from weft.codegen.nests.reduce_tree import Accumulators
from weft.codegen.writer import Writer
from weft.loops import elements, ir
from weft.loops.gpu import grid
from weft.loops.gpu.grid import RESULT, SLOT
from weft.loops.reduction_tree import BLOCK_LANES

Elements = list[tuple[Instance, Position]]  # of a thread: a value, and where its first element is


class BlockRowWriter(TeamWriter):
    """Writes one of the two entries."""

    def __init__(self, nest: ir.Nest, target: Target, entry: str) -> None:
        super().__init__(nest, target)
        self.held = entry == "held"
        self.parts = RowParts(self.writer, grid.row_lanes(nest), target, self.held)
        self.kept: dict[tuple[str, int], list[Value]] = {}  # of a row that is held: what was loaded, and row buffers
        # the tree's blocks that a block of threads may have at a time
        self.n_blocks = -(-grid.held_threads(nest) // grid.ROW_THREADS) if self.held else 1

    def write(self) -> Writer:
        writer, position = self.writer, self.begin()
        self.lane = threads.number(writer, "tid.x")
        self.warp = writer.index("lshr", self.lane, str(WARP.bit_length() - 1))
        self.thread = writer.index("and", self.lane, str(WARP - 1))
        self.warps = self.word(self.cuts + 2) if self.held else str(grid.ROW_THREADS // WARP)
        self.aligned = writer.compare_index("ne", self.word(self.cuts + 4), "0")
        for k in grid.row_vectors(self.nest):
            low = writer.index("and", writer.op(f"ptrtoint ptr {position.pointers[k]} to i64"), str(grid.ALIGNED - 1))
            self.aligned = writer.op(f"and i1 {self.aligned}, {writer.compare_index('eq', low, '0')}")
        self.team(threads.number(writer, "ctaid.x"), "0", position)
        return writer

    def _buffers_of_team(self, row: str, within: str) -> None:
        if not self.held:
            super()._buffers_of_team(row, within)

    # a part of a row

    def _part(
        self,
        phase: ir.Phase,
        point: Instance,
        position: Position,
        spot: Spot,
        start: str,
        use: Callable[[int, Instance], None],
    ) -> None:
        """The body at the elements of this thread, and then ``use(number of a value, values)``, one after the other."""
        made = (self._singles if self.parts.lanes.width == 1 else self._vectors)(phase, point, position, spot, start)
        for s in phase.body:
            if isinstance(s, LOADS):
                self._load_all(s, made, spot)
        rest = [s for s in phase.body if not isinstance(s, LOADS + STORES)]
        for number, (vector, inner) in enumerate(made):
            self.run(rest, [vector], inner)
            for s in phase.body:
                if isinstance(s, STORES):
                    self._store(s, number, vector, inner, spot)
            use(number, vector)

    def _spot(self, start: str, stop: str) -> Spot:
        return self.parts.spot(self.thread, self.warp, self.aligned, start, stop)

    def _singles(self, phase: ir.Phase, point: Instance, position: Position, spot: Spot, start: str) -> Elements:
        """Elements one by one; instead of those that do not exist the first one of the part is computed."""
        made = []
        for e in range(self.parts.count):
            index = self.writer.index("add", spot.at, str(e * WARP))
            index = self.writer.choose_index(self.parts.inside(spot, e), index, start)
            inner = self.enter(position, self.last, index, ir.operands(phase.body))
            made += [(vector, inner) for vector in self.entered(phase.body, [point], inner)]
        return made

    def _vectors(self, phase: ir.Phase, point: Instance, position: Position, spot: Spot, start: str) -> Elements:
        inner, used, made = self.enter(position, self.last, spot.at, ir.operands(phase.body)), ir.used(phase), []
        values = {n: self.parts.memory.splat(value) for n, value in point.values.items() if n in used}
        for _ in range(self.parts.count):
            made.append((Instance(Emitter(self.parts.lanes), self.parts.memory, dict(values)), inner))
            made[-1][0].scalars = point.scalars
        return made

    def _load_all(self, s: ir.Statement, made: Elements, spot: Spot) -> None:
        """A statement that needs no value, for all elements."""
        assert isinstance(s, LOADS)
        key = (
            ("operand", s.operand) if isinstance(s, ir.Load) else ("row", s.row) if isinstance(s, ir.RowLoad) else None
        )
        if key is not None and key in self.kept:
            found = self.kept[key]
        elif isinstance(s, ir.RowLoad):
            found = self.parts.load(self.nest.rows[s.row], self._row_address(s.row, spot, made[0][1]), spot)
        elif self.parts.lanes.width > 1 and isinstance(s, ir.Load) and self.nest.operands[s.operand].strides[self.last]:
            found = self.parts.load(self.nest.operands[s.operand].dtype, made[0][1].pointers[s.operand], spot)
        elif self.parts.lanes.width > 1 and isinstance(s, ir.IndexOf) and s.dim == self.last:
            found = [self.parts.positions(spot, number, s.dtype) for number in range(len(made))]
        else:
            for vector, inner in made:
                self.run([s], [vector], inner)
            found = [vector.values[s.out] for vector, _ in made]
        if self.held and key is not None:
            self.kept[key] = found
        for (vector, _), value in zip(made, found, strict=True):
            vector.values[s.out] = value

    def _store(self, s: ir.Statement, number: int, vector: Instance, inner: Position, spot: Spot) -> None:
        if isinstance(s, ir.RowStore) and self.held:
            self.kept.setdefault(("row", s.row), []).append(vector.values[s.value])
        elif isinstance(s, ir.RowStore):
            self.parts.store(vector.values[s.value], number, self._row_address(s.row, spot, inner), spot)
        elif isinstance(s, ir.Store) and self.parts.lanes.width > 1:
            self.parts.store(vector.values[s.value], number, inner.pointers[s.operand], spot)
        else:
            threads.when(self.writer, self.parts.inside(spot, number), lambda: self.run([s], [vector], inner))

    def _row_address(self, row: int, spot: Spot, inner: Position) -> str:
        """Where this thread's first element is in a row buffer."""
        at = inner.row
        if self.parts.lanes.width == 1:  # the address is that of an element that exists
            before = self.writer.index("sub", at, inner.indices[self.last])
            at = self.writer.index("add", before, spot.at)
        return self.writer.element(whole(self.nest.rows[row]), self.row_bases[row], at)

    # the loops of a phase

    def _elements(self, phase: ir.Phase, point: Instance, position: Position, bounds: tuple[str, str]) -> None:
        def part(start: str, _: list[str]) -> list[str]:
            stop = bounds[1]
            if not self.held:
                stop = self.writer.minimum_index(self.writer.index("add", start, str(BLOCK_LANES)), stop)
            self._part(phase, point, position, self._spot(start, stop), start, lambda number, vector: None)
            return []

        if self.held:
            part("0", [])
        else:
            self.writer.loop(bounds[0], bounds[1], BLOCK_LANES, [], part)

    def level(
        self,
        phase: ir.Phase,
        point: Instance,
        position: Position,
        depth: int,
        totals: list[Accumulators],
        groups: Groups,
    ) -> list[Accumulators]:
        if not self.held or not phase.reductions:
            return super().level(phase, point, position, depth, totals, groups)
        extent, like = self.extents[self.last], phase.reductions
        found = self._blocks_of_tree(phase, point, position, "0", extent)
        for block, accs in enumerate(found):
            both = self.combined(like, totals, accs)
            there = V(self.scalar, "i1", self.below(str(block * BLOCK_LANES), extent))
            totals = both if not block else [reduce_tree.where(there, b, t) for b, t in zip(both, totals, strict=True)]
        return totals

    def tree_block(
        self, phase: ir.Phase, point: Instance, position: Position, start: str, stop: str
    ) -> list[Accumulators]:
        return self._blocks_of_tree(phase, point, position, start, stop)[0]

    def _blocks_of_tree(
        self, phase: ir.Phase, point: Instance, position: Position, start: str, stop: str
    ) -> list[list[Accumulators]]:
        """What a part's blocks of the tree combine to; where any order is right, what the thread's own elements do."""
        writer, like, spot = self.writer, phase.reductions, self._spot(start, stop)
        found = [[reduce_tree.identities(r, Emitter(self.scalar)) for r in like] for _ in range(self.n_blocks)]
        ordered = [number for number, r in enumerate(like) if not grid.is_exact(r)]
        stages = self._stages(phase, ordered)
        exact = {number: r for number, r in enumerate(like) if number not in ordered}
        own = {number: reduce_tree.seeds(r, Emitter(self.scalar), spot.at) for number, r in exact.items()}

        def use(at: int, vector: Instance) -> None:
            for number, reduction in enumerate(like):
                prepared = reduce_tree.prepared(reduction, vector.emit, vector.values)
                if number in own:
                    own[number] = self._appended(reduction, own[number], prepared, at, spot)
                    continue
                for value, stage in zip(prepared, stages[number], strict=True):
                    address = writer.element(whole(value.dtype), stage, spot.first)
                    self.parts.store(value, at, address, spot, everywhere=True)

        self._part(phase, point, position, spot, start, use)
        for number, accs in own.items():
            found[0][number] = accs
        if not ordered:
            return found
        threads.barrier(writer)
        for task, number in enumerate(ordered):
            for block in range(self.n_blocks):  # a block of threads has two warps, and four for two blocks of the tree
                mine = writer.compare_index("eq", self.warp, str(task % 2 + 2 * block))
                threads.when(
                    writer, mine, lambda n=number, b=block: self._combine(phase, n, stages[n], b, (start, stop))
                )
        threads.barrier(writer)
        for block in range(self.n_blocks):
            for number in ordered:
                found[block][number] = self._kept(phase, number, str(block))
        return found

    def _appended(
        self, reduction: ir.Reduce, accs: Accumulators, value: Accumulators, number: int, spot: Spot
    ) -> Accumulators:
        """The thread's accumulators after the elements of a value; some of these may not exist."""
        lanes, emit, count = self.parts.lanes, Emitter(self.scalar), self.parts.lanes.width
        single = [tuple([Value(v.dtype, tuple([V(self.scalar, p.element, lanes.extract(p, lane)) for p in v.parts]))
                         for v in value]) for lane in range(count)]  # fmt: skip

        def all_of(now: Accumulators, tested: bool) -> list[tuple[str, str]]:
            for lane, element in enumerate(single):
                new = reduce_tree.appended(reduction, emit, now, element)
                inside = V(self.scalar, "i1", self.parts.inside(spot, number * count + lane)) if tested else None
                now = new if inside is None else reduce_tree.where(inside, new, now)
            return reduce_tree.flatten(now)

        texts = self.writer.either(spot.full, lambda: all_of(accs, False), lambda: all_of(accs, True))
        return tuple(reduce_tree.rebuild(accs, texts))

    def finish(self, phase: ir.Phase, point: Instance, totals: Sequence[Accumulators]) -> None:
        """Combines the accumulators of all threads, where any order is right."""
        like, found = phase.reductions, list(totals)
        exact = [number for number, r in enumerate(like) if grid.is_exact(r)]
        if exact:
            some, writer = [like[number] for number in exact], self.writer
            own = self.folded(some, [totals[number] for number in exact])
            first = writer.compare_index("eq", self.thread, "0")
            for number, accs in zip(exact, own, strict=True):
                threads.when(writer, first, lambda n=number, accs=accs: self._leave(phase, n, accs, self.warp))
            threads.barrier(writer)
            is_first = writer.compare_index("eq", self.warp, "0")
            threads.when(writer, is_first, lambda: self._of_warps(phase, exact, first))
            threads.barrier(writer)
            for number in exact:
                found[number] = self._kept(phase, number, str(WARP))
        super().finish(phase, point, found)

    def _of_warps(self, phase: ir.Phase, exact: Sequence[int], first: str) -> None:
        """One warp combines what all warps have stored; the result goes to the slot behind theirs."""
        some, brought = [phase.reductions[number] for number in exact], []
        inside = V(self.scalar, "i1", self.below(self.thread, self.warps))
        at = self.writer.choose_index(inside.text, self.thread, "0")
        for number, reduction in zip(exact, some, strict=True):
            none = reduce_tree.identities(reduction, Emitter(self.scalar))
            brought.append(reduce_tree.where(inside, self._kept(phase, number, at), none))
        for number, accs in zip(exact, self.folded(some, brought), strict=True):
            threads.when(self.writer, first, lambda n=number, accs=accs: self._leave(phase, n, accs, str(WARP)))

    # the memory of the block: slots of results, which phases do not share, and elements of one phase

    def _results(self, phase: ir.Phase, number: int) -> list[str]:
        phases = self.nest.phases[: next(k for k, other in enumerate(self.nest.phases) if other is phase)]
        before = [*[r for other in phases for r in other.reductions], *phase.reductions[:number]]
        count = sum([len(r.accumulators) for r in before])
        slots = range(count, count + len(phase.reductions[number].accumulators))
        return [threads.shared(self.writer, self._behind_rows(str(k * RESULT))) for k in slots]

    def _behind_rows(self, offset: str) -> str:
        """An offset in the memory of a block, behind row buffers that are there."""
        writer = self.writer
        if self.held or not self.nest.rows:
            return offset
        kept = writer.compare_index("ne", self.word(self.cuts + 2), "0")
        return writer.index("add", writer.choose_index(kept, self.word(self.cuts + 3), "0"), offset)

    def _leave(self, phase: ir.Phase, number: int, accs: Accumulators, slot: str) -> None:
        offset = self.writer.index("mul", slot, str(SLOT))
        for value, base in zip(accs, self._results(phase, number), strict=True):
            self.parts.scalar.store_scalar(value, self.writer.element("i8", base, offset))

    def _kept(self, phase: ir.Phase, number: int, slot: str) -> Accumulators:
        offset = self.writer.index("mul", slot, str(SLOT))
        pairs = zip(phase.reductions[number].accumulators, self._results(phase, number), strict=True)
        load = self.parts.scalar.load_scalar
        return tuple([load(np.dtype(dtype), self.writer.element("i8", base, offset)) for (dtype, _), base in pairs])

    def _stages(self, phase: ir.Phase, ordered: Sequence[int]) -> dict[int, list[str]]:
        """Where the elements of each reduction are."""
        writer, found = self.writer, dict[int, list[str]]()
        offset = self._behind_rows(str(grid.result_bytes(self.nest)))
        for number in ordered:
            found[number] = []
            for dtype, _ in phase.reductions[number].accumulators:
                found[number].append(threads.shared(writer, offset))
                nbytes = writer.index("mul", self.warps, str(grid.WARP_PART * elements.of(dtype).size))
                offset = writer.index("add", offset, nbytes)
        return found

    def _combine(self, phase: ir.Phase, number: int, stage: Sequence[str], block: int, bounds: tuple[str, str]) -> None:
        """A warp: the elements of one block of the tree, in order."""
        writer, reduction, memory = self.writer, phase.reductions[number], self.parts.scalar
        begin = writer.index("add", self.thread, str(block * BLOCK_LANES))
        count = writer.index("sub", bounds[1], bounds[0])
        count = writer.minimum_index(count, str((block + 1) * BLOCK_LANES)) if self.n_blocks > 1 else count
        dtypes = [np.dtype(dtype) for dtype, _ in reduction.accumulators]

        def some(indices: Sequence[str], now: list[Accumulators]) -> list[Accumulators]:
            found = []
            for index in indices:
                pairs = zip(dtypes, stage, strict=True)
                found.append(tuple([memory.load_scalar(d, writer.element(whole(d), base, index)) for d, base in pairs]))
            for element in found:
                now = [reduce_tree.appended(reduction, Emitter(self.scalar), now[0], element)]
            return now

        seeds = [reduce_tree.seeds(reduction, Emitter(self.scalar), writer.index("add", bounds[0], begin))]
        (accs,) = self.folded([reduction], self.several((begin, count, WARP), seeds, [reduction], some))
        first = writer.compare_index("eq", self.thread, "0")
        threads.when(writer, first, lambda: self._leave(phase, number, accs, str(block)))
