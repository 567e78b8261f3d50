"""Writes nests whose lanes run along a parallel dimension (or that have no lanes): tiles of vectors.

    for outer parallel dims: for tile in vector range:          # full tiles of U vectors, then a tail
        for narrow parallel dims after the vector dimension: for phase:
            before; for reduced indices in tree order: body, reductions of every vector

The tail uses masked vectors if the target has masked access, otherwise the same expressions on one element at a time.
Here each vector loads and stores by itself. Writers of tiles whose vectors load and store together derive from this
one, and override how ``rows`` are walked, and what is done for the ``columns`` of a row or ``inside`` a tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft.codegen.arithmetic.emitter import Emitter, Value
from weft.codegen.memory_access import collapsed_loops
from weft.codegen.memory_access.memory import Mask
from weft.codegen.nests import (
    column_blocks,
    instances,
    lane_loops,
    modulo_scheduling,
    padded_tail,
    reduce_tree,
    runs,
    scans,
)
from weft.codegen.nests.frame import Frame
from weft.codegen.nests.groups import Groups
from weft.codegen.nests.instances import Instance, Position
from weft.codegen.nests.loop_distribution import Distributed
from weft.loops import ir
from weft.loops.reduction_tree import BLOCK_ROWS
from weft.loops.schedules.decisions import is_collapsed
from weft.loops.schedules.lane_loops import LaneLoop, Loops

if TYPE_CHECKING:
    from weft.codegen.arithmetic.lanes import Lanes


class ColumnWriter:
    """Writes the loops of one nest."""

    def __init__(self, parent: Frame) -> None:
        self.parent = parent
        self.nest, self.schedule = parent.nest, parent.schedule
        self.writer, self.lanes = parent.writer, parent.lanes
        self.scalars = self.base = parent.scalars  # the values of the setup; ``write`` puts the base into all lanes
        self.tables: collapsed_loops.Tables | None = None  # if the lanes run along several dimensions, made one
        self.blocks = column_blocks.Blocks(parent) if parent.nest.split else None
        self.statements = [s for p in self.nest.phases for s in (*p.before, *p.body)]
        # loads per parallel point, hoisted out of the vector loop if they do not depend on it
        self.hoistable = [s for p in self.nest.phases for s in (p.before if parent.reduced else (*p.before, *p.body))]

    def write(self, position: Position) -> None:
        parent, nest, scalars = self.parent, self.nest, self.scalars
        outer = [
            d for d, dim in enumerate(nest.dims) if dim.role == "parallel" and d not in (nest.vector, *parent.inner)
        ]
        if is_collapsed(nest):
            self.tables = collapsed_loops.Tables(parent, self.statements)
        if nest.vector is not None:
            self.base = self.in_lanes(self.lanes)
            parent.stream(position)
            self.rows(position, outer)
        elif nest.dims and nest.dims[0].runs:
            runs.write(parent, position)
        elif self.schedule.beside and outer:
            scans.rows(parent, position, outer, scalars)
        else:
            parent.parallel(
                position, outer, lambda inner: self.point([instances.fresh(scalars, scalars.values)], inner)
            )

    def rows(self, position: Position, outer: Sequence[int]) -> None:
        """All points of the dimensions before the lanes."""
        self.parent.parallel(position, outer, self.row)

    def in_lanes(self, lanes: Lanes) -> Instance:
        """A copy with ``lanes`` lanes that holds the scalars used in the phases."""
        base, wanted = self.parent.copy(lanes, {}), self._wanted()
        base.values = {n: base.memory.splat(v) for n, v in self.scalars.values.items() if n in wanted}
        return base

    def row(self, position: Position, loops: Loops | None = None) -> None:
        """Everything at one point of the dimensions before the lanes, by the schedule's loops or these."""
        self.vectors(position, loops)
        self.edges(position)

    def edges(self, position: Position) -> None:
        """The statements that run once for each row."""
        if not self.nest.edges:
            return
        copies = [instances.fresh(self.scalars, self.scalars.values)]
        first = self.writer.compare_index("eq", self.parent.range(2), "0")
        self.writer.when(first, lambda: self.parent.run(self.nest.edges, copies, position), rare=False)

    def _wanted(self) -> set[int]:
        from_phases: set[int] = set()
        for phase in self.nest.phases:
            for s in phase.before:
                from_phases.update(ir.arguments(s))
            from_phases |= ir.used(phase)
        return from_phases

    def vectors(self, position: Position, loops: Loops | None = None) -> None:
        """All lanes of a row; what does not depend on the lane is computed before."""
        base, alone = self.hoisted(position)
        loops = self.schedule.loops if loops is None else loops
        if self.blocks and self.schedule.passes is not None:
            self.blocks.passes(self.schedule.passes, lambda: self.columns(position, alone, base, loops))
        else:
            self.columns(position, alone, base, loops)

    def hoisted(self, position: Position) -> tuple[Instance, Instance]:
        """The values that are the same for all lanes of a row: in all lanes, and in one."""
        hoisted = self.parent.hoist(self.hoistable, self.scalars, position)
        known = {**self.scalars.values, **hoisted}
        wide = {**self.base.values, **{n: self.base.memory.splat(v) for n, v in hoisted.items()}}
        return self.base.replace(values=wide, scalars=known), instances.fresh(self.scalars, known)

    def columns(self, position: Position, alone: Instance, base: Instance, loops: Loops) -> None:
        """Process the range of the lanes; where stores are streamed, up to a cache line and from there on."""
        parent = self.parent
        if self.tables is not None:
            self.tables.fill(position)
        low, high = self.blocks.range if self.blocks else (parent.range(2), parent.range(3))
        streamed = self.schedule.streamed
        if len(loops) == 1 or parent.streams is None or streamed is None or not streamed.aligned:
            self._stretch(position, alone, base, loops, (low, high))
            return
        end = parent.streams.first_line(position, low, high)

        def stretch(start: str, ends: list[str]) -> list[str]:
            self._stretch(position, alone, base, loops, (start, ends[0]))
            return [ends[0], high]

        self.writer.repeat(high, [("i64", low), ("i64", end)], stretch)

    def _stretch(
        self, position: Position, alone: Instance, base: Instance, loops: Loops, bounds: tuple[str, str]
    ) -> None:
        """The loops over one part of the range."""
        last, width = loops[-1], self.parent.width
        if last.rest == "copied":
            padded_tail.write(self, last, base, position, *bounds)
        elif last.block:
            Distributed(self.parent, last).write(base, position, *bounds)
        elif last.parts:
            modulo_scheduling.write(self.parent, last, base, position, *bounds)
        else:

            def tile(loop: LaneLoop, at: list[str], mask: Mask | None, carried: list[str]) -> Sequence[str]:
                one = alone if loop.rest == "apart" else base
                vectors = [instances.fresh(one, one.values, k, mask, u * width) for u, k in enumerate(at)]
                if self.tables is not None:
                    self.tables.read(vectors, position, carried)
                self.inside(vectors, position)
                return self.tables.after(vectors, carried) if self.tables is not None else carried

            begun = self.tables.start(bounds[0]) if self.tables is not None else ()
            lane_loops.write(self.parent, loops, bounds, tile, begun)

    # one tile

    def inside(self, tile: list[Instance], position: Position) -> None:
        """The narrow dimensions within a tile, so that its memory is read once."""

        def point(inner: Position) -> None:
            self.point([instances.fresh(c, c.values, c.index, c.mask, c.slot) for c in tile], inner)

        if self.parent.inner:
            self.parent.parallel(position, self.parent.inner, point)
        else:
            self.point(tile, position)

    def point(self, tile: list[Instance], position: Position) -> None:
        done = self.writer.fresh_label() if self.blocks else ""
        for number, phase in enumerate(self.nest.phases):
            self.parent.run(phase.before, tile, position)
            if not self.parent.reduced:
                self.parent.run(phase.body, tile, position)
            elif phase.body or phase.reductions:
                self._reduce(phase, tile, position)
            if self.blocks and number == 0:  # another call finishes the reductions from the partial buffer
                finish = self.writer.fresh_label()
                self.writer.branch_if(self.blocks.leaves, done, finish)
                self.writer.label(finish)
        if self.blocks:
            self.writer.branch(done)
            self.writer.label(done)

    def _reduce(self, phase: ir.Phase, tile: list[Instance], position: Position) -> None:
        for reduction in phase.reductions:
            if reduction.tree != "column":
                raise ValueError(f"[codegen] the tree of {reduction.name} is {reduction.tree}, its lanes are parallel")
        if any(isinstance(s, ir.Scan) for s in phase.body):
            scans.ScanLoop(self.parent, phase, [(tile, position)]).write()
            return
        totals = [v for c in tile for r in phase.reductions for v in reduce_tree.identities(r, c.emit)]
        loop = _ReducedLoop(self, phase, tile)
        groups = Groups(self.parent, BLOCK_ROWS, totals, loop.combine)
        values = groups.all(loop.level(0, position, totals, groups))
        for copy, accs in zip(tile, loop.accumulators(values), strict=True):
            for reduction, group in zip(phase.reductions, accs, strict=True):
                outs = reduce_tree.finish(reduction, copy.emit, group)
                copy.values.update(zip(reduction.outs, outs, strict=True))


class _ReducedLoop:
    """The loops over the reduced dimensions for one tile, carrying accumulators of every copy."""

    def __init__(self, parent: ColumnWriter, phase: ir.Phase, tile: list[Instance]) -> None:
        self.parent = parent
        self.nest = parent.parent
        self.writer = parent.writer
        self.phase = phase
        self.tile = tile
        self.operands = ir.operands(phase.body)

    def accumulators(self, values: Sequence[Value]) -> list[list[reduce_tree.Accumulators]]:
        """Accumulators by copy and reduction, from the carried values."""
        size = len(values) // len(self.tile)
        groups = [values[k * size : (k + 1) * size] for k in range(len(self.tile))]
        return [reduce_tree.group_accs(self.phase.reductions, g) for g in groups]

    def level(self, depth: int, position: Position, values: list[Value], groups: Groups) -> list[Value]:
        """Loops from reduced dimension number ``depth`` inwards; gives the values after them."""
        dim, writer = self.nest.reduced[depth], self.writer
        extent = self.nest.extents[dim]
        if depth + 1 < len(self.nest.reduced):

            def outer(index: str, inner: list[Value]) -> list[Value]:
                return self.level(depth + 1, self.nest.enter(position, dim, index, self.operands), inner, groups)

            return reduce_tree.carry(writer.loop, ("0", extent, 1), values, outer)
        if not self.phase.reductions:

            def one(index: str, inner: list[Value]) -> list[Value]:
                return self._body(self.nest.enter(position, dim, index, self.operands), inner)

            return reduce_tree.carry(self.nest.stretches, ("0", extent, 1), values, one)

        blocks = self.parent.blocks
        low, high = blocks.rows if blocks else ("0", extent)
        if self.parent.schedule.beside and len(self.tile) == 1:
            end = lane_loops.whole(self.nest, low, high, self.parent.schedule.beside * BLOCK_ROWS)
            if blocks:
                end = writer.choose_index(blocks.gathers, low, end)
            values, low = self._beside(position, dim, (low, end), values, groups), end

        def block(start: str, inner: list[Value]) -> list[Value]:
            self.nest.poll()
            stop = writer.minimum_index(writer.index("add", start, str(BLOCK_ROWS)), high)

            def walk(begun: list[Value]) -> list[Value]:
                return self._rows(position, dim, start, stop, begun)

            seeds = [v for c in self.tile for r in self.phase.reductions for v in self._seeds(r, c, start)]
            after = blocks.accumulators(self.tile, self.phase.reductions, start, seeds, walk) if blocks else walk(seeds)
            return self.combine(groups.before(groups.number(position, start), inner), after)

        return reduce_tree.carry(writer.loop, (low, high, BLOCK_ROWS), values, block)

    def _beside(
        self, position: Position, dim: int, bounds: tuple[str, str], values: list[Value], groups: Groups
    ) -> list[Value]:
        """Several blocks at a time: in one alone each row's combination waits for that of the row before."""
        writer, many = self.writer, self.parent.schedule.beside

        def some(start: str, totals: list[Value]) -> list[Value]:
            self.nest.poll()
            starts = [writer.index("add", start, str(k * BLOCK_ROWS)) for k in range(many)]
            seeds = [
                v for at in starts for c in self.tile for r in self.phase.reductions for v in self._seeds(r, c, at)
            ]
            size = len(seeds) // many
            positions = [self.nest.enter(position, dim, at, self.operands) for at in starts]

            def one(index: str, begun: list[Value]) -> list[Value]:
                after: list[Value] = []
                for k, at in enumerate(starts):
                    inner = self.nest.enter(positions[k], dim, index, self.operands)
                    inner = inner.replace(indices={**inner.indices, dim: writer.index("add", at, index)})
                    after += self._body(inner, begun[k * size : (k + 1) * size])
                return after

            made = reduce_tree.carry(writer.loop, ("0", str(BLOCK_ROWS), 1), seeds, one)
            for k, at in enumerate(starts):
                block = made[k * size : (k + 1) * size]
                if self.parent.blocks:
                    self.parent.blocks.keep(self.tile, self.phase.reductions, at, block)
                totals = self.combine(groups.before(groups.number(position, at), totals), block)
            return totals

        return reduce_tree.carry(writer.loop, (*bounds, many * BLOCK_ROWS), values, some)

    def _rows(self, position: Position, dim: int, low: str, high: str, values: list[Value]) -> list[Value]:
        """The indices ``low`` to ``high`` of the last reduced dimension.

        A flattened dimension is walked in runs of indices that share all digits but the last, so that no index is
        divided.
        """
        nest, writer = self.nest, self.writer
        if nest.digits is None:

            def one(index: str, begun: list[Value]) -> list[Value]:
                return self._body(nest.enter(position, dim, index, self.operands), begun)

            return reduce_tree.carry(writer.loop, (low, high, 1), values, one)
        base = nest.digits.bases[-1]

        def run(number: str, begun: list[Value]) -> list[Value]:
            first = writer.index("mul", number, base)
            begin = nest.enter(position, dim, first, self.operands)
            start = writer.index("sub", low, first)
            start = writer.choose_index(writer.compare_index("slt", start, "0"), "0", start)
            stop = writer.minimum_index(writer.index("sub", high, first), base)

            def one(index: str, values: list[Value]) -> list[Value]:
                return self._body(nest.enter_run(begin, dim, index, self.operands), values)

            return reduce_tree.carry(writer.loop, (start, stop, 1), begun, one)

        ends = writer.index("add", high, writer.index("sub", base, "1"))
        first_run, last_run = [writer.op(f"udiv i64 {index}, {base}") for index in (low, ends)]
        return reduce_tree.carry(writer.loop, (first_run, last_run, 1), values, run)

    def _seeds(self, reduction: ir.Reduce, copy: Instance, start: str) -> reduce_tree.Accumulators:
        """The accumulators with which a block starts: the same position in every lane."""
        one = reduce_tree.seeds(reduction, Emitter(self.nest.scalar), start)
        return tuple(copy.memory.splat(v) for v in one)

    def combine(self, left: list[Value], right: list[Value]) -> list[Value]:
        results: list[Value] = []
        for copy, a, b in zip(self.tile, self.accumulators(left), self.accumulators(right), strict=True):
            emit = instances.fresh(copy, {}, None, None).emit
            for reduction, x, y in zip(self.phase.reductions, a, b, strict=True):
                results.extend(reduce_tree.combine(reduction, emit, x, y))
        return results

    def _body(self, inner: Position, values: list[Value]) -> list[Value]:
        vectors: list[Instance] = self.nest.entered(self.phase.body, self.tile, inner)
        self.nest.run(self.phase.body, vectors, inner)
        results: list[Value] = []
        for copy, accs in zip(vectors, self.accumulators(values), strict=True):
            for reduction, group in zip(self.phase.reductions, accs, strict=True):
                # a masked tail needs no care here: every lane has its own accumulators
                results.extend(reduce_tree.step(reduction, copy.emit, copy.values, group, None))
        return results
