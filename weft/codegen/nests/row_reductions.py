"""Reductions of rows whose lanes run along the last reduced dimension: the accumulators of a phase.

    for block of 8192: 32 lane accumulators over the block; fold; total = combine(total, block); see also ``groups``

The 32 accumulators are 32 / W vectors. A cheap body is written 32 / W times, for 32 elements a step. An expensive body
is written once, and the accumulators rotate: after a multiple of 32 elements they are in their original order.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.codegen.arithmetic.emitter import Emitter, Value
from weft.codegen.arithmetic.lanes import Lanes, V
from weft.codegen.memory_access.memory import Mask, lanes_below
from weft.codegen.memory_access.memory_words import whole
from weft.codegen.nests import argmax_two_pass, instances, lane_loops, reduce_tree
from weft.codegen.nests.frame import Frame
from weft.codegen.nests.groups import Groups
from weft.codegen.nests.instances import Instance, Position
from weft.codegen.nests.reduce_tree import Accumulators
from weft.loops import elements, ir
from weft.loops.reduction_tree import BLOCK_LANES
from weft.loops.schedules import uniform
from weft.loops.schedules.decisions import SEARCHED, RowPhase
from weft.loops.schedules.lane_loops import LaneLoop


class RowReducer:
    """Writes what reduces along the rows of one nest."""

    def __init__(self, parent: Frame) -> None:
        assert parent.nest.vector is not None
        self.parent = parent
        self.nest, self.schedule = parent.nest, parent.schedule
        self.writer = parent.writer
        self.vector = parent.nest.vector
        self.outer_reduced = [d for d in parent.reduced if d != self.vector]
        self.lanes = self.schedule.accumulators

    # parts

    def wide(self, phase: ir.Phase, point: Instance) -> Instance:
        """A copy of W lanes that holds the scalars used in the body."""
        base = self.parent.copy(self.parent.lanes, {})
        wanted = ir.used(phase)
        base.values = {n: base.memory.splat(v) for n, v in point.values.items() if n in wanted}
        base.scalars = dict(point.values)
        return base

    def hoisted(self, phase: ir.Phase, base: Instance, position: Position) -> Instance:
        hoisted = self.parent.hoist(phase.body, base, position)
        values = {**base.values, **{n: base.memory.splat(v) for n, v in hoisted.items()}}
        return Instance(base.emit, base.memory, values, scalars={**base.scalars, **hoisted})

    # digits of the position, carried through the vector loops

    def digits(self, position: str) -> list[tuple[str, str]]:
        digits = self.parent.digits
        return [] if digits is None else [("i64", digit) for digit in digits.at(position)]

    def fill(self, phase: ir.Phase, tile: list[Instance], position: Position, now: Sequence[str]) -> list[str]:
        """Load the values that depend on digits, for a tile of vectors; gives the digits after the tile."""
        digits = self.parent.digits
        if digits is None:
            return []
        reads = digits.reads(phase.body)
        for copy in tile:
            if reads:
                digits.fill(copy, position, reads, now)
            now = digits.advanced(now, digits.step)
        return list(now)

    # a phase with reductions

    def reduce(self, run: RowPhase, point: Instance, position: Position) -> list[Value]:
        base = self.wide(run.phase, point)
        totals = self.identities(run.phase)
        groups = self.groups(run.phase)
        return groups.all(self._totals(run, base, position, 0, totals, groups))

    def identities(self, phase: ir.Phase) -> list[Value]:
        emit = Emitter(self.parent.scalar)
        return reduce_tree.flat_accs([reduce_tree.identities(reduction, emit) for reduction in phase.reductions])

    def groups(self, phase: ir.Phase) -> Groups:
        return Groups(self.parent, BLOCK_LANES, self.identities(phase), lambda a, b: self.combine(phase, a, b))

    def _totals(
        self, run: RowPhase, base: Instance, position: Position, depth: int, totals: list[Value], groups: Groups
    ) -> list[Value]:
        """Totals after the loops over reduced dimensions from number ``depth`` inwards."""
        phase = run.phase
        if depth < len(self.outer_reduced):
            dim, operands = self.outer_reduced[depth], ir.operands(phase.body)

            def outer(index: str, inner: list[Value]) -> list[Value]:
                at = self.parent.enter(position, dim, index, operands)
                return self._totals(run, base, at, depth + 1, inner, groups)

            return reduce_tree.carry(self.writer.loop, ("0", self.parent.extents[dim], 1), totals, outer)
        base = self.hoisted(phase, base, position)

        def block(start: str, inner: list[Value]) -> list[Value]:
            return self.more(run, base, position, start, groups.before(groups.number(position, start), inner))

        bounds = "0", self.parent.extents[self.vector], BLOCK_LANES
        return reduce_tree.carry(self.writer.loop, bounds, totals, block)

    def more(self, run: RowPhase, base: Instance, position: Position, start: str, totals: list[Value]) -> list[Value]:
        """Totals after one more block; the block is skipped if it cannot change them."""
        phase, first = run.phase, run.first
        emit = Emitter(self.parent.scalar)
        absorbed = argmax_two_pass.is_absorbed(phase, emit, reduce_tree.group_accs(phase.reductions, totals))

        def after() -> list[Value]:
            if first is None:
                return self.combine(phase, totals, self.block(run, base, position, start))
            (reduction,) = phase.reductions
            if run.flags:
                best, at = self._flag(first.phase, base, position, start)
                return argmax_two_pass.improved(reduction, emit, best, totals, lambda: at)
            (best,) = self.block(first, base, position, start)

            def at_best(led: ir.Phase = first.phase) -> Value:
                return self._find(led, base, position, start, best)[0]

            return argmax_two_pass.improved(reduction, emit, best, totals, at_best)

        if absorbed is None:
            return after()
        return reduce_tree.when(self.writer, self.writer.op(f"xor i1 {absorbed}, true"), after, totals)

    def _flag(self, phase: ir.Phase, base: Instance, position: Position, start: str) -> tuple[Value, Value]:
        """The extremum of a block of bools and its first position, in one pass that ends at the first such value."""
        emit = Emitter(self.parent.scalar)
        (reduction,) = phase.reductions
        self.parent.poll()
        better, worse = (
            emit.const(v, reduction.accumulators[0][0])
            for v in (argmax_two_pass.absorbing(reduction), reduction.accumulators[0][1])
        )
        at, found = self._find(phase, base, position, start, better)
        begin = Value(elements.INT64, (V(self.parent.scalar, "i64", start),))
        return emit.select(found, worse, better), emit.select(found, begin, at)

    def _find(
        self, phase: ir.Phase, base: Instance, position: Position, start: str, best: Value
    ) -> tuple[Value, Value]:
        """The first index of a block where the value is ``best``, and whether there is one."""
        parent, writer = self.parent, self.writer
        stop, wanted, lanes = self._stop(start), base.memory.splat(best), parent.lanes
        length = writer.index("sub", stop, start)
        main = writer.index("add", start, writer.index("and", length, str(-SEARCHED * lanes.width)))

        def holds(at: str, mask: Mask | None = None) -> V:
            copy = instances.fresh(base, base.values, at, mask)
            parent.run(phase.body, [copy], position)
            (value,) = reduce_tree.prepared(phase.reductions[0], copy.emit, copy.values)
            found = copy.emit.compare("eq", value, wanted).part
            return found if mask is None else found & mask.lanes

        def rest(at: str) -> V:
            return holds(at, lanes_below(lanes, writer.index("sub", stop, at), False))

        at, found = argmax_two_pass.first(lanes, start, main, SEARCHED, holds)
        missed = writer.op(f"xor i1 {found}, true")
        types = ["i64", "i1"]
        at, found = writer.when(
            missed, lambda: argmax_two_pass.first(lanes, main, stop, 1, rest), types, [at, found], rare=False
        )
        one = parent.scalar
        return Value(elements.INT64, (V(one, "i64", at),)), Value(elements.BOOL, (V(one, "i1", found),))

    def _stop(self, start: str) -> str:
        """The end of the block that begins at ``start``."""
        stop = self.writer.index("add", start, str(BLOCK_LANES))
        return self.writer.minimum_index(stop, self.parent.extents[self.vector])

    def finish(self, phase: ir.Phase, point: Instance, totals: list[Value]) -> None:
        """Give a point the results of its reductions."""
        for reduction, accs in zip(phase.reductions, reduce_tree.group_accs(phase.reductions, totals), strict=True):
            outs = reduce_tree.finish(reduction, point.emit, accs)
            point.values.update(zip(reduction.outs, outs, strict=True))

    def combine(
        self, phase: ir.Phase, left: list[Value], right: list[Value], lanes: Lanes | None = None
    ) -> list[Value]:
        emit, (a, b) = (
            Emitter(lanes or self.parent.scalar),
            [reduce_tree.group_accs(phase.reductions, v) for v in (left, right)],
        )
        both = zip(phase.reductions, a, b, strict=True)
        return reduce_tree.flat_accs([reduce_tree.combine(reduction, emit, x, y) for reduction, x, y in both])

    def block(self, run: RowPhase, base: Instance, position: Position, start: str) -> list[Value]:
        """Folded accumulators of one block of at most 8192 elements."""
        return self.blocks(run, [(base, position)], start)

    def blocks(self, run: RowPhase, rows: Sequence[tuple[Instance, Position]], start: str) -> list[Value]:
        """Folded accumulators of one block of each of these rows: a row is a lane."""
        writer, width, (base, _) = self.writer, self.parent.width, rows[0]
        self.parent.poll()
        if self.nest.short is not None:
            return self._folded(run.phase, base, self._short(run.phase, rows))
        per_block, stop = self.lanes // width, self._stop(start)
        reductions = run.phase.reductions * len(rows)
        vectors = [
            [reduce_tree.seeds(r, instances.fresh(base, {}).emit, start, k * width) for r in reductions]
            for k in range(per_block)
        ]
        vectors = self._sweep(run, rows, (start, stop), vectors)
        length = writer.index("sub", stop, start)
        last, rounded = (
            writer.index("add", start, writer.index("and", writer.index("add", length, str(n - 1)), str(-n)))
            for n in (width, self.lanes)
        )
        if per_block > 1:
            vectors = self._rotated(reductions, vectors, (last, rounded))
        return self._folded(run.phase, base, [list(accs) for accs in zip(*vectors, strict=True)])

    def _folded(self, phase: ir.Phase, base: Instance, columns: list[list[Accumulators]]) -> list[Value]:
        """The accumulators of each row, folded; ``columns`` are the vectors of each row and reduction."""
        size = len(phase.reductions)
        folded = [reduce_tree.fold_rows(r, base.emit, columns[n::size]) for n, r in enumerate(phase.reductions)]
        return reduce_tree.flat_accs(folded)

    def _short(self, phase: ir.Phase, rows: Sequence[tuple[Instance, Position]]) -> list[list[Accumulators]]:
        """The accumulators of rows of a few elements: without a loop, in one vector for each row and reduction."""
        width, extent, lanes = self.parent.width, self.nest.short or 0, self.parent.lanes
        starts = range(0, extent, width)
        last = lanes.flags([lane < extent - starts[-1] for lane in range(width)])
        part = Mask(str(extent - starts[-1]), last) if extent % width else None
        shared, found = self.shared(phase) if len(rows) > 1 else [], []
        known: list[dict[int, Value]] = [{} for _ in starts]
        for base, position in rows:
            tile = [
                instances.fresh(base, {**base.values, **known[u]}, str(at), part if at == starts[-1] else None, at)
                for u, at in enumerate(starts)
            ]
            self.parent.run(phase.body, tile, position)
            known = [{out: copy.values[out] for out in shared} for copy in tile]
            for r in phase.reductions:
                begun = [reduce_tree.seeds(r, copy.emit, "0", copy.slot) for copy in tile]
                made = [
                    reduce_tree.step(r, copy.emit, copy.values, accs, copy.mask)
                    for copy, accs in zip(tile, begun, strict=True)
                ]
                found.append([reduce_tree.halved(r, base.emit, made, self.lanes // width)])
        return found

    def _rotated(
        self, reductions: Sequence[ir.Reduce], vectors: list[list[Accumulators]], bounds: tuple[str, str]
    ) -> list[list[Accumulators]]:
        """The accumulators as ``_sweep`` leaves them after vectors without elements."""
        flat = [v for groups in vectors for v in reduce_tree.flat_accs(groups)]
        carried, per = reduce_tree.flatten(flat), len(flat) // len(vectors)
        of_vector = len(carried) // len(vectors)

        def body(_: str, texts: list[str]) -> list[str]:
            return [*texts[of_vector:], *texts[:of_vector]]

        values = reduce_tree.rebuild(flat, self.writer.loop(*bounds, self.parent.width, carried, body))
        return [reduce_tree.group_accs(reductions, values[k : k + per]) for k in range(0, len(values), per)]

    def _sweep(
        self,
        run: RowPhase,
        rows: Sequence[tuple[Instance, Position]],
        bounds: tuple[str, str],
        vectors: list[list[Accumulators]],
    ) -> list[list[Accumulators]]:
        """The accumulators after all vectors; each vector moves them on by one. Those of all rows are a list."""
        writer, width, phase = self.writer, self.parent.width, run.phase
        reductions = phase.reductions * len(rows)
        flat = [v for groups in vectors for v in reduce_tree.flat_accs(groups)]

        def split(values: list[Value]) -> list[list[Accumulators]]:
            per = len(values) // len(vectors)
            return [reduce_tree.group_accs(reductions, values[k * per : (k + 1) * per]) for k in range(len(vectors))]

        carried, following_row = self.digits(bounds[0]), self._following_row(run, rows[-1][1])
        shared = self.shared(phase) if len(rows) > 1 else []

        def body(_: LaneLoop, at: list[str], mask: Mask | None, texts: list[str]) -> list[str]:
            digits, texts = texts[: len(carried)], texts[len(carried) :]
            now = split(reduce_tree.rebuild(flat, texts))
            for word, row in following_row:
                writer.prefetch(writer.element(word, row, at[0]))
            new: list[list[Accumulators]] = [[] for _ in at]
            known: list[dict[int, Value]] = [{} for _ in at]  # what all rows share
            for base, position in rows:
                tile = [
                    instances.fresh(base, {**base.values, **known[u]}, index, mask, u * width)
                    for u, index in enumerate(at)
                ]
                digits = self.fill(phase, tile, position, digits)
                self.parent.run(phase.body, tile, position)
                known = [{out: copy.values[out] for out in shared} for copy in tile]
                for copy, made, accs in zip(tile, new, now, strict=False):
                    begun = accs[len(made) : len(made) + len(phase.reductions)]
                    made += [
                        reduce_tree.step(r, copy.emit, copy.values, before, copy.mask)
                        for r, before in zip(phase.reductions, begun, strict=True)
                    ]
            following = [*now[len(at) :], *new]
            return [*digits, *reduce_tree.texts([v for groups in following for v in reduce_tree.flat_accs(groups)])]

        begun = [*carried, *reduce_tree.flatten(flat)]
        texts = lane_loops.write(self.parent, run.loops, bounds, body, begun, short=True)
        return split(reduce_tree.rebuild(flat, texts[len(carried) :]))

    def shared(self, phase: ir.Phase) -> list[int]:
        """The values of the body that are the same for rows side by side: of nothing that a row computes before it."""
        row, own = self.vector - 1, {out for s in phase.before if (out := getattr(s, "out", None)) is not None}
        differ = uniform.differing(phase.body, lambda s: uniform.along(self.nest, (row,), s), own)
        return [s.out for s in phase.body if isinstance(s, ir.Load | ir.Apply) and s.out not in differ]

    def _following_row(self, run: RowPhase, position: Position) -> list[tuple[str, str]]:
        """(word, pointer) of the rows to prefetch for the next point."""
        writer, found = self.writer, []
        for k in run.fetched:
            dtype, word = self.nest.operands[k].dtype, whole(self.nest.operands[k].dtype)
            most = self.parent.model.fetched_bytes // elements.of(dtype).size
            near = writer.compare_index("sle", self.parent.extents[self.vector], str(most))
            ahead = writer.op(f"select i1 {near}, i64 {self.parent.strides[k, self.vector - 1]}, i64 0")
            found.append((word, writer.element(word, position.pointers[k], ahead)))
        return found
