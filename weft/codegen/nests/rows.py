"""Writes nests whose lanes run along the last reduced dimension: each phase is a vector loop.

for parallel dims: for phase: before (scalar); splat; for outer reduced dims: a map, or ``row_reductions``
"""

from __future__ import annotations

from collections.abc import Callable

from weft.codegen.arithmetic.emitter import Value
from weft.codegen.memory_access.memory import Mask
from weft.codegen.nests import argmax_two_pass, instances, lane_loops, ordered, reduce_tree
from weft.codegen.nests.column_blocks import PARTIAL_BYTES
from weft.codegen.nests.instances import Instance, Position
from weft.codegen.nests.row_reductions import RowReducer
from weft.codegen.nests.rows_together import RowsTogether
from weft.loops import ir
from weft.loops.reduction_tree import BLOCK_LANES
from weft.loops.schedules.decisions import RowPhase
from weft.loops.schedules.lane_loops import LaneLoop


class RowWriter(RowReducer):
    """Writes the loops of one nest."""

    def write(self, position: Position) -> None:
        scalars = self.parent.scalars
        if self.nest.split:
            self._split(position, scalars)
            return
        self.parent.stream(position)
        outer = [d for d, dim in enumerate(self.nest.dims) if dim.role == "parallel"]
        if self.schedule.together > 1:
            together = RowsTogether(self, outer[-1])
            self.parent.parallel(position, outer[:-1], together.write)
        else:
            self.parent.parallel(position, outer, self.alone)

    def alone(self, position: Position) -> None:
        """All phases of one row."""
        self._point(position, instances.fresh(self.parent.scalars, self.parent.scalars.values))

    def _point(self, position: Position, point: Instance, first_phase: int = 0) -> None:
        for run in self.schedule.phases[first_phase:]:
            self.parent.run(run.phase.before, [point], position)
            if run.phase.reductions:
                totals = self.reduce(run, point, position)
                self.finish(run.phase, point, totals)
            elif run.phase.body:
                self._map(run, point, position)

    # a phase without reductions

    def _map(self, run: RowPhase, point: Instance, position: Position) -> None:
        base = self.wide(run.phase, point)
        self._outer(run.phase, position, 0, lambda inner: self._map_row(run, base, inner))

    def _outer(self, phase: ir.Phase, position: Position, depth: int, inner: Callable[[Position], None]) -> None:
        if depth == len(self.outer_reduced):
            inner(position)
            return
        dim, operands = self.outer_reduced[depth], ir.operands(phase.body)

        def body(index: str, _: list[str]) -> list[str]:
            self._outer(phase, self.parent.enter(position, dim, index, operands), depth + 1, inner)
            return []

        self.writer.loop("0", self.parent.extents[dim], 1, [], body)

    def _map_row(self, run: RowPhase, base: Instance, position: Position) -> None:
        phase = run.phase
        base = self.hoisted(phase, base, position)
        if run.ordered:
            ordered.OrderedWriter(self.parent, phase).row(base, position)
            return

        def vector(_: LaneLoop, at: list[str], mask: Mask | None, digits: list[str]) -> list[str]:
            tile = [instances.fresh(base, base.values, index, mask) for index in at]
            digits = self.fill(phase, tile, position, digits)
            self.parent.run(phase.body, tile, position)
            return digits

        lane_loops.write(self.parent, run.loops, ("0", self.parent.extents[self.vector]), vector, self.digits("0"))

    # split nests

    def _split(self, position: Position, scalars: Instance) -> None:
        """Mode 0: accumulators of blocks lov..hiv to the partial buffer. Mode 1: combine all, run the other phases."""
        parent, writer, run, phase = self.parent, self.writer, self.schedule.phases[0], self.nest.phases[0]
        point = instances.fresh(scalars, scalars.values)
        parent.run(phase.before, [point], position)
        low, high, mode = parent.range(2), parent.range(3), parent.range(4)
        partial = writer.op(f"inttoptr i64 {parent.range(5)} to ptr")
        length = parent.extents[self.vector]
        count = writer.op(
            f"lshr i64 {writer.index('add', length, str(BLOCK_LANES - 1))}, {BLOCK_LANES.bit_length() - 1}"
        )
        blocks, finish, done = (writer.fresh_label() for _ in range(3))
        writer.branch_if(writer.compare_index("eq", mode, "0"), blocks, finish)
        writer.label(blocks)
        base = self.hoisted(phase, self.wide(phase, point), position)

        identities = self.identities(phase)
        shared = all(argmax_two_pass.absorbing(r) is not None for r in phase.reductions)

        def block(index: str, before: list[Value]) -> list[Value]:
            """One block. For extrema it starts from the worker's earlier result: combining it twice is harmless."""
            start = writer.index("mul", index, str(BLOCK_LANES))
            accs = self.more(run, base, position, start, before) if shared else self.block(run, base, position, start)
            for k, value in enumerate(accs):
                point.memory.store_scalar(value, self._slot(partial, count, k, index))
            return accs if shared else []

        reduce_tree.carry(writer.loop, (low, high, 1), identities if shared else [], block)
        writer.branch(done)
        writer.label(finish)
        groups = self.groups(phase)

        def add(index: str, totals: list[Value]) -> list[Value]:
            before = groups.before(index, totals)
            loaded = [
                point.memory.load_scalar(v.dtype, self._slot(partial, count, k, index))
                for k, v in enumerate(identities)
            ]
            return self.combine(phase, before, loaded)

        self.finish(phase, point, groups.all(reduce_tree.carry(writer.loop, ("0", count, 1), identities, add)))
        self._point(position, point, 1)
        writer.branch(done)
        writer.label(done)

    def _slot(self, partial: str, count: str, accumulator: int, block: str) -> str:
        row = self.writer.index("mul", count, str(accumulator))
        at = self.writer.index("mul", self.writer.index("add", row, block), str(PARTIAL_BYTES))
        return self.writer.element("i8", partial, at)
