"""Writes short rows for parts of a warp: 2, 4, 8 or 16 threads have a row, one element each.

    softmax of [1000000, 10]: 16 threads a row; what a phase keeps of the row stays in registers

A thread without an element holds the identity. To combine with it changes nothing, so the fold of the tree leaves out
the distances at which no thread meets an element; the bits are the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft._base.target_model import GPU_THREADS, WARP
from weft.codegen.arithmetic.emitter import Emitter, Value
from weft.codegen.arithmetic.lanes import V
from weft.codegen.gpu import threads
from weft.codegen.gpu.points import STORES
from weft.codegen.gpu.teams import TeamWriter
from weft.codegen.nests import instances, reduce_tree
from weft.codegen.nests.instances import Instance, Position
from weft.codegen.writer import Writer
from weft.loops import ir


class ShortRowWriter(TeamWriter):
    """Writes the entry ``short``."""

    def write(self) -> Writer:
        writer, position = self.writer, self.begin()
        thread, block = threads.number(writer, "tid.x"), threads.number(writer, "ctaid.x")
        self.shift = self.word(self.cuts + 2)  # of the threads of a row
        self.team_size = writer.op(f"shl i64 1, {self.shift}")
        self.lane = writer.index("and", thread, writer.index("sub", self.team_size, "1"))
        number = writer.index("add", writer.index("mul", block, str(GPU_THREADS)), thread)
        row = writer.index("lshr", number, self.shift)
        self.there = self.below(row, self.word(0))  # all threads of a warp take part in its shuffles
        row = writer.choose_index(self.there, row, "0")
        self.inside = self.below(self.lane, self.extents[self.last])
        self.index = writer.choose_index(self.inside, self.lane, "0")
        self.kept: dict[int, Value] = {}
        point, position = self.at_row(row, position)
        for phase in self.nest.phases:
            self.before(phase.before, point, position)
            if phase.body or phase.reductions:
                self._phase(phase, point, position)
        return writer

    def before(self, statements: Sequence[ir.Statement], point: Instance, position: Position) -> None:
        first = self.writer.op(f"and i1 {self.there}, {self.writer.compare_index('eq', self.lane, '0')}")
        self._run(statements, self.there, first, point, position)

    def _run(
        self, statements: Sequence[ir.Statement], loads: str, stores: str, point: Instance, position: Position
    ) -> None:
        """Statements; only threads where these conditions hold load and store."""
        for s in statements:
            if isinstance(s, ir.RowStore):
                self.kept[s.row] = point.values[s.value]
            elif isinstance(s, ir.RowLoad):
                point.values[s.out] = self.kept[s.row]
            elif isinstance(s, STORES):
                threads.when(self.writer, stores, lambda s=s: self.run([s], [point], position))
            elif isinstance(s, ir.Load | ir.LoadAt):
                zero = Emitter(self.scalar).const(0, self.nest.operands[s.operand].dtype)
                (value,) = reduce_tree.when(self.writer, loads, lambda s=s: [self._loaded(s, point, position)], [zero])
                point.values[s.out] = value
            else:
                self.run([s], [point], position)

    def _loaded(self, s: ir.Load | ir.LoadAt, point: Instance, position: Position) -> Value:
        inner = instances.fresh(point, point.values)
        self.run([s], [inner], position)
        return inner.values[s.out]

    def _phase(self, phase: ir.Phase, point: Instance, position: Position) -> None:
        inner = self.enter(position, self.last, self.index, ir.operands(phase.body))
        (vector,) = self.entered(phase.body, [point], inner)
        mine = self.writer.op(f"and i1 {self.there}, {self.inside}")
        self._run(phase.body, mine, mine, vector, inner)
        inside = V(self.scalar, "i1", self.inside)
        for reduction in phase.reductions:
            none = reduce_tree.identities(reduction, Emitter(self.scalar))
            seeds = reduce_tree.seeds(reduction, Emitter(self.scalar), self.lane)
            new = reduce_tree.step(reduction, vector.emit, vector.values, seeds, None)
            accs, distance = reduce_tree.where(inside, new, seeds), WARP // 4
            while distance:
                others = tuple([threads.shuffled(v, "down", str(distance)) for v in accs])
                meets = V(self.scalar, "i1", self.writer.compare_index("ult", str(distance), self.team_size))
                both = reduce_tree.combine(reduction, Emitter(self.scalar), accs, others)
                accs, distance = reduce_tree.where(meets, both, accs), distance // 2
            first = self.writer.index("sub", threads.number(self.writer, "laneid"), self.lane)
            lane = self.writer.op(f"trunc i64 {first} to i32")
            accs = tuple([threads.shuffled(v, "idx", lane) for v in accs])
            total = reduce_tree.combine(reduction, Emitter(self.scalar), none, accs)
            outs = reduce_tree.finish(reduction, point.emit, total)
            point.values.update(zip(reduction.outs, outs, strict=True))
