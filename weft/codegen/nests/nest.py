"""Compiles a ``loops.ir.Nest`` to the LLVM text of one function.

    void k(void* const* operands, const int64_t* params, const int64_t* range, void* scratch)

Parallel dimensions become serial loops over the given range. If the vector dimension is parallel, tiles of vectors run
through all phases together (``columns``). If it is reduced, every phase is a vector loop along it, and statements that
run once per parallel point are scalar (``rows``). An ``Instance`` is one vector of a tile, with its own emitter and
values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft._base.target import Target
from weft.codegen import module_text
from weft.codegen.arithmetic.emitter import Emitter, Value
from weft.codegen.arithmetic.lanes import V
from weft.codegen.memory_access import accesses, indexed, mixed_radix, nontemporal_stores
from weft.codegen.memory_access.memory import Memory
from weft.codegen.memory_access.memory_words import whole
from weft.codegen.nests import (
    blocks,
    columns,
    guards,
    predication,
    rows,
    runs,
    scans,
    short_rows,
    stencils,
    transposed_tiles,
)
from weft.codegen.nests.frame import STOP, Frame
from weft.codegen.nests.instances import Instance, Position, apply, index_value
from weft.codegen.writer import Writer
from weft.loops import elements, ir
from weft.loops.schedules import costs, peeled_regions
from weft.loops.schedules.blocks import RowBlock
from weft.loops.schedules.decisions import Schedule, ShortRows, Stencil, Transposed

# for each way in which vectors of a tile reach memory together
WRITERS: dict[type, Callable[[Frame], columns.ColumnWriter]] = {
    type(None): columns.ColumnWriter,
    RowBlock: blocks.BlockWriter,
    ShortRows: short_rows.ShortRowWriter,
    Stencil: stencils.StencilWriter,
    Transposed: transposed_tiles.TransposedWriter,
}
PARAMETERS = (
    "ptr noalias readonly %operands, ptr noalias readonly %params, ptr noalias readonly %range, ptr noalias %scratch"
)


class NestWriter(Frame):
    """Writes one function. ``text()`` gives the module."""

    def __init__(self, schedule: Schedule, target: Target) -> None:
        super().__init__(schedule, target)
        self.kept_guards = guards.kept(self.nest, self.reduced)

    def text(self, symbol: str = "k") -> str:
        simple = not self.columns or len(self.nest.dims) == 1
        return module_text.text(self.written(), symbol, PARAMETERS, simple=simple)

    def written(self) -> Writer:
        """The function's instructions."""
        position = self._entry()
        self.scalars = self.copy(self.scalar, {})
        self.run(self.nest.setup, [self.scalars], position)
        _writer(self.schedule)(self).write(position)
        if self.stop_word:
            self.writer.branch(STOP)
            self.writer.label(STOP)
        if self.streams is not None:
            self.streams.finish()
        return self.writer

    # entry

    def _entry(self) -> Position:
        nest = self.nest
        self.extents = [self.param(d) for d in range(len(nest.dims))]
        slot, pointers = len(nest.dims), {}
        for k, operand in enumerate(nest.operands):
            pointers[k] = self._pointer(k)
            for d, stride in enumerate(operand.strides):
                if stride == ir.RUNTIME:
                    self.strides[k, d] = self.param(slot)
                    slot += 1
                    if d in (nest.vector, *nest.digits[-1:]) and self.width > 1:
                        splat = self.lanes.splat(self.strides[k, d], "i64")
                        self.offsets[k, d] = splat * self.lanes.iota("i64")
        self._scalar_slots = slot
        if nest.digits and nest.row is None:
            self.digits = mixed_radix.Digits(self)
        if nest.rows:
            self._row_bases()
        return Position(pointers, {})

    def _pointer(self, operand: int) -> str:
        at = self.writer.element("ptr", "%operands", str(operand))
        return self.writer.op(f"load ptr, ptr {at}, align 8")

    def _row_bases(self) -> None:
        writer = self.writer
        count = str(costs.ROW_LANES if self.columns else 1)
        for d in self.reduced:
            count = writer.index("mul", count, self.extents[d])
        count = writer.index("add", count, str(costs.ROW_PADDING))
        base = "%scratch"
        for dtype in self.nest.rows:
            self.row_bases.append(base)
            size = writer.index("mul", count, str(elements.of(dtype).size))
            size = writer.index("and", writer.index("add", size, "63"), "-64")
            base = writer.element("i8", base, size)

    # positions

    def limits(self, position: Position, dim: int) -> tuple[str, str]:
        low, high = (self.range(0), self.range(1)) if dim == 0 else ("0", self.extents[dim])
        if self.nest.dims[dim].runs:
            low, high = [runs.moved_on(self, position, limit) for limit in (low, high)]
        return low, high

    def stream(self, position: Position) -> None:
        """From here on, use non-temporal stores where that pays."""
        if self.schedule.streamed is not None:
            self.streams = nontemporal_stores.Streams(self, position, self.schedule.streamed)

    # statements

    def run(self, statements: Sequence[ir.Statement], copies: list[Instance], position: Position) -> None:
        """Emit the statements for every copy, statement by statement, so that the copies interleave."""
        for statement in peeled_regions.grouped(statements, self.schedule.peeled):
            if isinstance(statement, peeled_regions.PeeledRegion):
                predication.compute(self, statement, copies, position)
            elif isinstance(statement, ir.Apply):
                for copy in copies:
                    if statement.out not in copy.values:
                        copy.values[statement.out] = apply(statement, copy)
            elif isinstance(statement, ir.Load):
                self.load(statement, copies, position)
            elif isinstance(statement, ir.Store):
                self.store(statement, copies, position)
            elif isinstance(statement, ir.Guard):
                at_once = id(statement) not in self.kept_guards
                guards.write(self, statement, copies, position.pointers[statement.operand], at_once)
            elif isinstance(statement, ir.LoadAt):
                indexed.load_at(self, statement, copies, position)
            elif isinstance(statement, ir.Update):
                self.update(statement, copies, position)
            elif isinstance(statement, ir.RowLoad | ir.RowStore):
                self._row(statement, copies, position)
            elif isinstance(statement, ir.Param):
                value = self._param(statement)
                for copy in copies:
                    copy.values[statement.out] = copy.memory.splat(value)
            elif isinstance(statement, ir.IndexOf):
                self._index(statement, copies, position)
            else:
                scans.step(statement, copies)

    def update(self, s: ir.Update, copies: list[Instance], position: Position) -> None:
        """Emit an update for every copy."""
        indexed.update(self, s, copies, position)

    def load(self, s: ir.Load, copies: list[Instance], position: Position) -> None:
        copies, dtype = [copy for copy in copies if s.out not in copy.values], self.nest.operands[s.operand].dtype
        if not copies:
            return
        step = self.step(s.operand, copies[0])
        if not step.kind:
            shared = accesses.load_along(copies[0].memory, dtype, position.pointers[s.operand], step)
            for copy in copies:
                copy.values[s.out] = shared
            return
        for copy, pointer in zip(copies, self._pointers(s.operand, copies, position), strict=True):
            copy.values[s.out] = accesses.load_along(copy.memory, dtype, pointer, step, copy.mask)

    def store(self, s: ir.Store, copies: list[Instance], position: Position) -> None:
        step = self.step(s.operand, copies[0])
        if copies[0].index is None:
            for copy in copies:
                copy.memory.store_scalar(copy.values[s.value], position.pointers[s.operand])
            return
        if not step.kind:
            raise ValueError(f"[codegen] store to operand {s.operand} has no stride along the vector dimension")
        pointers = self._pointers(s.operand, copies, position)
        if step.kind == 1:
            pointers = list(pointers)
            if self.streams is not None and self.streams.take(s.operand, copies):
                self.streams.store(s, copies, pointers)
                return
        for copy, pointer in zip(copies, pointers, strict=True):
            accesses.store_along(copy.memory, copy.values[s.value], pointer, step, copy.mask)

    def _pointers(self, number: int, copies: Sequence[Instance], position: Position) -> Iterator[str]:
        """The address of each vector's first lane; the vectors of a tile lie at constant distances from the first."""
        operand, pointer = self.nest.operands[number], position.pointers[number]
        assert self.nest.vector is not None
        if operand.strides[self.nest.vector] == 1:
            pointer = self.writer.element(whole(operand.dtype), pointer, copies[0].index or "0")
        for copy in copies:
            distance = str(copy.slot - copies[0].slot)
            if operand.strides[self.nest.vector] != 1:
                distance = self.distance(number, self.nest.vector, copy.index or "0")
            yield self.writer.element(whole(operand.dtype), pointer, distance)

    def _row(self, s: ir.RowLoad | ir.RowStore, copies: list[Instance], position: Position) -> None:
        dtype, writer = self.nest.rows[s.row], self.writer
        for copy in copies:
            number = position.row
            if self.columns:
                number = writer.index("add", writer.index("mul", number, str(costs.ROW_LANES)), str(copy.slot))
            elif copy.index is not None:
                assert self.nest.vector is not None
                number = writer.index("mul", number, self.extents[self.nest.vector])
                number = writer.index("add", number, copy.index)
            p = writer.element(whole(dtype), self.row_bases[s.row], number)
            if isinstance(s, ir.RowLoad):
                copy.values[s.out] = copy.memory.load(dtype, p)
            else:
                copy.memory.store(copy.values[s.value], p)

    def _param(self, s: ir.Param) -> Value:
        dtypes = self.nest.scalars[: s.index]
        slot = self._scalar_slots + sum(2 if d == elements.COMPLEX128 else 1 for d in dtypes)
        p = self.writer.element("i64", "%params", str(slot))
        return Memory(self.scalar, self.target).load_scalar(s.dtype, p)

    def _index(self, s: ir.IndexOf, copies: list[Instance], position: Position) -> None:
        shared: Value | None = None
        for copy in copies:
            if s.out in copy.values:
                continue
            if s.dim == self.nest.vector and copy.index is not None:
                copy.values[s.out] = index_value(copy.emit, copy.index, s.dtype)
            else:
                if shared is None:
                    one = Emitter(self.scalar)
                    shared = one.convert(
                        Value(elements.INT64, (V(self.scalar, "i64", position.indices[s.dim]),)), s.dtype
                    )
                    shared = copy.memory.splat(one.settle(shared))
                copy.values[s.out] = shared


def _writer(schedule: Schedule) -> Callable[[NestWriter], Any]:
    """The writer of the loops of a nest, as its schedule asks."""
    return rows.RowWriter if schedule.phases else WRITERS[type(schedule.tile)]
