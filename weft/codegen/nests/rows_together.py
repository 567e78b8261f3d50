"""Reductions of several rows at a time: their loops are one, and their accumulators are folded together.

    for 8 rows: a vector of each, of each, ...;  fold pairs of rows, pairs of pairs, ...  ->  one vector of 8 results

A single row pays for its loops and for a fold in which each combination waits for the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft.codegen.arithmetic.emitter import Emitter, Value
from weft.codegen.arithmetic.lanes import Lanes, V
from weft.codegen.nests import instances, lane_loops, reduce_tree
from weft.codegen.nests.instances import Instance, Position
from weft.loops import ir
from weft.loops.reduction_tree import BLOCK_LANES

if TYPE_CHECKING:
    from weft.codegen.nests.rows import RowWriter

ALONE = 64  # elements: longer rows are read one after the other, as prefetchers like it
EVICTED = 2048  # elements: so many of two operands, of 8 bytes, fill the first cache


class RowsTogether:
    """Writes the loop over the rows of a nest, along the parallel dimension ``dim``."""

    def __init__(self, rows: RowWriter, dim: int) -> None:
        self.rows, self.dim, self.parent = rows, dim, rows.parent
        self.writer, self.nest, self.many = rows.writer, rows.nest, rows.schedule.together
        self.first, *others = rows.schedule.phases
        self.ends = [s for run in others for s in run.phase.before]
        self.lanes = Lanes(self.writer, self.many)

    def write(self, position: Position) -> None:
        """All rows. A long one alone is read as fast, unless what rows share leaves the first cache meanwhile."""
        parent, writer, every = self.parent, self.writer, range(len(self.nest.operands))
        low, high = parent.limits(position, self.dim)
        length = parent.extents[self.rows.vector]
        is_near = writer.compare_index("sle", length, str(ALONE))
        if self.rows.shared(self.first.phase):
            is_one, is_long = (
                writer.compare_index(sign, length, str(bound))
                for sign, bound in (("sle", BLOCK_LANES), ("sge", EVICTED))
            )
            is_near = writer.op(f"or i1 {is_near}, {writer.op(f'and i1 {is_one}, {is_long}')}")
        end = writer.choose_index(is_near, lane_loops.whole(parent, low, high, self.many), low)

        def some(index: str, _: list[str]) -> list[str]:
            read = ir.operands((*self.first.phase.before, *self.first.phase.body))
            points, totals = self._reduced(self._positions(position, index, read))
            later = ir.operands(self.ends)
            if self._ends_in_lanes():
                self._end(parent.enter(position, self.dim, index, every), totals)
            else:
                self._end_apart(self._positions(position, index, later), points, totals)
            return []

        def one(index: str, _: list[str]) -> list[str]:
            self.rows.alone(parent.enter(position, self.dim, index, every))
            return []

        writer.loop(low, end, self.many, [], some)
        writer.loop(end, high, 1, [], one)

    def _positions(self, position: Position, index: str, operands: Sequence[int]) -> list[Position]:
        """The positions of rows that follow each other."""
        positions = [self.parent.enter(position, self.dim, index, operands)]
        while len(positions) < self.many:
            after = self.parent.enter(positions[-1], self.dim, "1", operands)
            indices = {**after.indices, self.dim: self.writer.index("add", index, str(len(positions)))}
            positions.append(after.replace(indices=indices))
        return positions

    def _reduced(self, positions: Sequence[Position]) -> tuple[list[Instance], list[Value]]:
        """The rows' own values, and their totals, a row in each lane."""
        rows, phase, scalars = [], self.first.phase, self.parent.scalars
        points = [instances.fresh(scalars, scalars.values) for _ in positions]
        for point, position in zip(points, positions, strict=True):
            self.parent.run(phase.before, [point], position)
            rows.append((self.rows.hoisted(phase, self.rows.wide(phase, point), position), position))
        emit = Emitter(self.lanes)
        begun = reduce_tree.flat_accs([reduce_tree.identities(reduction, emit) for reduction in phase.reductions])
        return points, self.rows.combine(phase, begun, self.rows.blocks(self.first, rows, "0"), self.lanes)

    # what is done once for each row

    def _ends_in_lanes(self) -> bool:
        """Whether the rows' results are read and written as a vector."""
        strides = [operand.strides[self.dim] for operand in self.nest.operands]
        plain = all(
            isinstance(s, ir.Apply | ir.Param)
            or (isinstance(s, ir.Store) and strides[s.operand] == 1)
            or (isinstance(s, ir.Load) and strides[s.operand] in (0, 1))
            for s in self.ends
        )
        return plain and not self.first.phase.before

    def _end(self, position: Position, totals: list[Value]) -> None:
        wide = self.parent.copy(self.lanes, {})
        wide.values = {n: wide.memory.splat(v) for n, v in self.parent.scalars.values.items()}
        self.rows.finish(self.first.phase, wide, totals)
        for s in self.ends:
            if isinstance(s, ir.Store):
                wide.memory.store(wide.values[s.value], position.pointers[s.operand])
            elif isinstance(s, ir.Load) and self.nest.operands[s.operand].strides[self.dim]:
                wide.values[s.out] = wide.memory.load(self.nest.operands[s.operand].dtype, position.pointers[s.operand])
            else:
                self.parent.run([s], [wide], position)

    def _end_apart(self, positions: Sequence[Position], points: Sequence[Instance], totals: list[Value]) -> None:
        one = self.parent.scalar
        for row, (point, position) in enumerate(zip(points, positions, strict=True)):
            own = [
                Value(v.dtype, tuple([V(one, p.element, self.lanes.extract(p, row)) for p in v.parts])) for v in totals
            ]
            self.rows.finish(self.first.phase, point, own)
            self.parent.run(self.ends, [point], position)
