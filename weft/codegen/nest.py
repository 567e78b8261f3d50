"""Compiles a ``loops.ir.Nest`` to the LLVM text of one function.

    void k(void* const* operands, const int64_t* params, const int64_t* range, void* scratch)

Parallel dimensions become serial loops over the given range. If the vector dimension is parallel, tiles of vectors run
through all phases together (``columns``). If it is reduced, every phase is a vector loop along it, and statements that
run once per parallel point are scalar (``rows``). An ``Instance`` is one vector of a tile, with its own emitter and
values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft._base.target import Target
from weft.codegen import (
    collapsed_loops,
    columns,
    guards,
    indexed,
    interleaved,
    known_rows,
    mixed_radix,
    nontemporal_stores,
    predication,
    rows,
    runs,
    short_rows,
)
from weft.codegen.emitter import Emitter, Value
from weft.codegen.instances import Instance, Position, apply, index_value, scan
from weft.codegen.lanes import Lanes, V
from weft.codegen.memory import Memory, whole
from weft.codegen.writer import Carried, Writer
from weft.loops import costs, elements, ir, sides, uniform
from weft.loops.decisions import Schedule

PARAMETERS = (
    "ptr noalias readonly %operands, ptr noalias readonly %params, ptr noalias readonly %range, ptr noalias %scratch"
)
STRETCH = 1 << 14  # iterations between checks for an interrupt, in a loop without blocks
STOP = "stop"


class NestWriter:
    """Writes one function. ``text()`` gives the module."""

    def __init__(self, schedule: Schedule, target: Target) -> None:
        self.schedule, self.nest = schedule, schedule.nest
        nest = self.nest
        self.target, self.model = target, target.model
        self.writer = Writer.of(target)
        self.width = schedule.lanes
        self.scalar = Lanes(self.writer, 1)
        self.lanes = Lanes(self.writer, self.width)
        self.extents: list[str] = []
        self.strides: dict[tuple[int, int], str] = {}
        self.offsets: dict[tuple[int, int], V] = {}
        self.row_bases: list[str] = []
        self.stop_word = ""  # the address of the stop word, if the code polls it
        self.reduced = [d for d, dim in enumerate(nest.dims) if dim.role == "reduced"]
        self.digits: mixed_radix.Digits | None = None
        self.streams: nontemporal_stores.Streams | None = None
        self.scalars = Instance(Emitter(self.scalar), Memory(self.scalar, target), {})  # with the values of the setup
        self.inner = [
            d
            for d, dim in enumerate(nest.dims)
            if dim.role == "parallel" and nest.vector is not None and d > nest.vector
        ]
        self._uses: Counter[int] | None = None  # once it was asked for
        self.moving = uniform.moving(nest)
        self.kept_guards = guards.kept(nest, self.reduced)
        self.places = uniform.places(nest, self.inner)

    def text(self, symbol: str = "k") -> str:
        simple = not self.columns or len(self.nest.dims) == 1
        return self.written().text(symbol, PARAMETERS, simple=simple)

    def written(self) -> Writer:
        """The function's instructions."""
        place = self._entry()
        self.scalars = scalars = self.copy(self.scalar, {})
        self.run(self.nest.setup, [scalars], place)
        _LOOPS.get(self.schedule.form, columns.ColumnWriter)(self).write(place, scalars)
        if self.stop_word:
            self.writer.branch(STOP)
            self.writer.label(STOP)
        if self.streams is not None:
            self.streams.finish()
        return self.writer

    # interrupts: the results of a kernel that was told to stop are discarded

    def poll(self) -> None:
        """Return from the kernel if the runtime asks for it: one load and a branch every few thousand elements."""
        writer, stay = self.writer, self.writer.fresh_label()
        if not self.stop_word:
            place = writer.once("getelementptr i64, ptr %range, i64 6")
            self.stop_word = writer.once(f"load ptr, ptr {place}, align 8")
        told = writer.op(f"load atomic i32, ptr {self.stop_word} monotonic, align 4")
        writer.branch_if(writer.op(f"icmp ne i32 {told}, 0"), STOP, stay, cold=True)
        writer.label(stay)

    def stretches(
        self, low: str, high: str, step: int, carried: Carried, body: Callable[[str, list[str]], Sequence[str]]
    ) -> list[str]:
        """``writer.loop`` with a check for an interrupt every ``STRETCH`` iterations, between whole steps.

        A nest of one parallel dimension needs no checks: the runtime calls it for one stretch at a time.
        """
        writer, length = self.writer, STRETCH - STRETCH % step
        if [dim.role for dim in self.nest.dims] == ["parallel"]:
            return writer.loop(low, high, step, carried, body)

        def stretch(start: str, values: list[str]) -> list[str]:
            self.poll()
            stop = writer.minimum_index(writer.index("add", start, str(length)), high)
            begun = [(type_, value) for (type_, _), value in zip(carried, values, strict=True)]
            return writer.loop(start, stop, step, begun, body)

        return writer.loop(low, high, length, carried, stretch)

    # entry

    def param(self, slot: int) -> str:
        return self.writer.op(f"load i64, ptr {self.writer.element('i64', '%params', str(slot))}, align 8")

    def range(self, slot: int) -> str:
        return self.writer.op(f"load i64, ptr {self.writer.element('i64', '%range', str(slot))}, align 8")

    def _entry(self) -> Position:
        nest, writer = self.nest, self.writer
        self.extents = [self.param(d) for d in range(len(nest.dims))]
        slot, pointers = len(nest.dims), {}
        for k, operand in enumerate(nest.operands):
            pointers[k] = writer.op(f"load ptr, ptr {writer.element('ptr', '%operands', str(k))}, align 8")
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

    @property
    def uses(self) -> Counter[int]:
        """How often each value is used; needed only for nests with a select."""
        if self._uses is None:
            self._uses = sides.uses(self.nest)
        return self._uses

    @property
    def columns(self) -> bool:
        """Whether the vector dimension is parallel (or absent)."""
        return self.nest.vector is None or self.nest.dims[self.nest.vector].role == "parallel"

    # places

    def stream(self, place: Position) -> None:
        """From here on, use non-temporal stores where that pays."""
        if self.schedule.streamed is not None:
            self.streams = nontemporal_stores.Streams(self, place, self.schedule.streamed)

    def copy(self, lanes: Lanes, values: dict[int, Value]) -> Instance:
        return Instance(Emitter(lanes), Memory(lanes, self.target), values)

    def enter(self, place: Position, dim: int, index: str, operands: Iterable[int]) -> Position:
        """The place inside the loop over ``dim``."""
        pointers = dict(place.pointers)
        for k in operands:
            stride = self.nest.operands[k].strides[dim]
            if stride:
                pointers[k] = self.writer.element(
                    whole(self.nest.operands[k].dtype), pointers[k], self.distance(k, dim, index)
                )
        indices = {**place.indices, dim: index}
        if self.digits is not None and self.columns and dim in self.reduced[-1:]:
            at = self.digits.at(index)
            pointers = self.digits.moved(pointers, at, operands)
            indices.update(zip(self.nest.digits, at, strict=True))
        row = place.row
        if self.nest.rows and self.nest.dims[dim].role == "reduced":
            row = self.writer.index("add", self.writer.index("mul", row, self.extents[dim]), index)
        return Position(pointers, indices, row)

    def enter_run(self, begin: Position, dim: int, index: str, operands: Iterable[int]) -> Position:
        """The place ``index`` further on than ``begin``, where only the last digit of the flattened ``dim`` moves."""
        last, pointers = self.nest.digits[-1], dict(begin.pointers)
        for k in operands:
            for moved in (dim, last):
                if self.nest.operands[k].strides[moved]:
                    element = whole(self.nest.operands[k].dtype)
                    pointers[k] = self.writer.element(element, pointers[k], self.distance(k, moved, index))
        indices = {**begin.indices, dim: self.writer.index("add", begin.indices[dim], index), last: index}
        row = self.writer.index("add", begin.row, index) if self.nest.rows else begin.row
        return Position(pointers, indices, row)

    def distance(self, operand: int, dim: int, index: str) -> str:
        """The distance, in elements, from an operand's first element to the one at ``index`` along a dimension."""
        return mixed_radix.distance(self, operand, dim, index)

    def parallel(self, place: Position, dims: Sequence[int], inner: Callable[[Position], None]) -> None:
        """Serial loops over ``dims``, the first dimension of the nest within the given range."""
        if not dims:
            inner(place)
            return
        dim, operands = dims[0], range(len(self.nest.operands))
        low, high = (self.range(0), self.range(1)) if dim == 0 else ("0", self.extents[dim])
        if self.nest.dims[dim].runs:
            low, high = [runs.moved_on(self, place, limit) for limit in (low, high)]

        def body(index: str, _: list[str]) -> list[str]:
            self.parallel(self.enter(place, dim, index, operands), dims[1:], inner)
            return []

        self.writer.loop(low, high, 1, [], body)

    # statements

    def run(self, statements: Sequence[ir.Statement], copies: list[Instance], place: Position) -> None:
        """Emit the statements for every copy, statement by statement, so that the copies interleave."""
        for statement in sides.grouped(statements, lambda: self.uses, self.model.test):
            if isinstance(statement, sides.Side):
                predication.compute(self, statement, copies, place)
            elif isinstance(statement, ir.Apply):
                for copy in copies:
                    if statement.out not in copy.values:
                        copy.values[statement.out] = apply(statement, copy)
            elif isinstance(statement, ir.Load):
                self.load(statement, copies, place)
            elif isinstance(statement, ir.Store):
                self.store(statement, copies, place)
            elif isinstance(statement, ir.Guard):
                at_once = id(statement) not in self.kept_guards
                guards.write(self, statement, copies, place.pointers[statement.operand], at_once)
            elif isinstance(statement, ir.LoadAt):
                indexed.load_at(self, statement, copies, place)
            elif isinstance(statement, ir.Update):
                indexed.update(self, statement, copies, place)
            elif isinstance(statement, ir.RowLoad | ir.RowStore):
                self._row(statement, copies, place)
            elif isinstance(statement, ir.Param):
                value = self._param(statement)
                for copy in copies:
                    copy.values[statement.out] = copy.memory.splat(value)
            elif isinstance(statement, ir.IndexOf):
                self._index(statement, copies, place)
            else:
                for copy in copies:
                    scan(statement, copy)

    def stride(self, operand: int, copy: Instance) -> int:
        """Stride class of an operand along the copy's lanes."""
        if copy.index is None or self.nest.vector is None:
            return 0
        return self.nest.operands[operand].strides[self.nest.vector]

    def hoist(self, statements: Sequence[ir.Statement], copy: Instance, place: Position) -> dict[int, Value]:
        """Scalars computed before the vector loop: loads that do not depend on it, and addresses computed from them."""
        assert self.nest.vector is not None
        hoisted = {}
        for s in statements:
            if not isinstance(s, ir.Load) or self.nest.uses_digits(s.operand):
                continue
            if any(self.nest.operands[s.operand].strides[d] for d in self.inner):
                continue
            if not self.nest.operands[s.operand].strides[self.nest.vector]:
                hoisted[s.out] = copy.memory.load_scalar(self.nest.operands[s.operand].dtype, place.pointers[s.operand])
        known = {**(copy.values if copy.memory.lanes.width == 1 else copy.scalars), **hoisted}
        return {**hoisted, **self.uniform(statements, known, place)}

    def uniform(self, statements: Sequence[ir.Statement], known: dict[int, Value], place: Position) -> dict[int, Value]:
        """Scalar values of statements from which addresses are computed, if their operands are known here."""
        if not self.places:
            return {}
        point = self.copy(self.scalar, dict(known))
        for s in statements:
            wanted = getattr(s, "out", None) in self.places and s.out not in point.values  # type: ignore[union-attr]
            if wanted and all(n in point.values for n in ir.arguments(s)):
                self.run([s], [point], place)
        return {n: value for n, value in point.values.items() if n not in known}

    def load(self, s: ir.Load, copies: list[Instance], place: Position) -> None:
        operand, pointer, writer = self.nest.operands[s.operand], place.pointers[s.operand], self.writer
        shared: Value | None = None
        first = ""  # address of the tile's first vector; the others are at constant distances
        for copy in copies:
            stride = self.stride(s.operand, copy)
            if s.out in copy.values:
                continue
            if not stride:
                shared = shared or copy.memory.splat(copy.memory.load_scalar(operand.dtype, pointer))
                copy.values[s.out] = shared
                continue
            assert copy.index is not None and self.nest.vector is not None
            if stride == ir.REVERSED:
                p = writer.element(whole(operand.dtype), pointer, writer.index("sub", "0", copy.index))
                copy.values[s.out] = copy.memory.load_reversed(operand.dtype, p, copy.mask)
                continue
            if stride == 1:
                first = first or writer.element(whole(operand.dtype), pointer, copies[0].index or "0")
                p = writer.element(whole(operand.dtype), first, str(copy.slot - copies[0].slot))
                copy.values[s.out] = copy.memory.load(operand.dtype, p, copy.mask)
                continue
            key = s.operand, self.nest.vector
            p = writer.element(whole(operand.dtype), pointer, writer.index("mul", copy.index, self.strides[key]))
            offsets = self.offsets[key] if key in self.offsets else copy.memory.lanes.iota("i64")
            copy.values[s.out] = copy.memory.load_strided(
                operand.dtype, p, self.strides[key], offsets, copy.mask, self.schedule.near
            )

    def store(self, s: ir.Store, copies: list[Instance], place: Position) -> None:
        operand, pointer, writer = self.nest.operands[s.operand], place.pointers[s.operand], self.writer
        if self.stride(s.operand, copies[0]) == 1:
            self._store_side_by_side(s, copies, pointer)
            return
        for copy in copies:
            value = copy.values[s.value]
            stride = self.stride(s.operand, copy)
            if copy.index is None:
                copy.memory.store_scalar(value, pointer)
            elif stride == ir.REVERSED:
                p = writer.element(whole(operand.dtype), pointer, writer.index("sub", "0", copy.index))
                copy.memory.store_reversed(value, p, copy.mask)
            elif stride == ir.RUNTIME:
                assert self.nest.vector is not None
                key = s.operand, self.nest.vector
                p = writer.element(whole(operand.dtype), pointer, writer.index("mul", copy.index, self.strides[key]))
                offsets = self.offsets[key] if key in self.offsets else copy.memory.lanes.iota("i64")
                copy.memory.store_strided(value, p, self.strides[key], offsets, copy.mask, self.schedule.near)
            else:
                raise ValueError(f"[codegen] store to operand {s.operand} has no stride along the vector dimension")

    def _store_side_by_side(self, s: ir.Store, copies: list[Instance], pointer: str) -> None:
        word = whole(self.nest.operands[s.operand].dtype)
        first = self.writer.element(word, pointer, copies[0].index or "0")
        pointers = [self.writer.element(word, first, str(copy.slot - copies[0].slot)) for copy in copies]
        if self.streams is not None and self.streams.take(s.operand, copies):
            self.streams.store(s, copies, pointers)
            return
        for copy, p in zip(copies, pointers, strict=True):
            copy.memory.store(copy.values[s.value], p, copy.mask)

    def _row(self, s: ir.RowLoad | ir.RowStore, copies: list[Instance], place: Position) -> None:
        dtype, writer = self.nest.rows[s.row], self.writer
        for copy in copies:
            position = place.row
            if self.columns:
                position = writer.index("add", writer.index("mul", position, str(costs.ROW_LANES)), str(copy.slot))
            elif copy.index is not None:
                assert self.nest.vector is not None
                position = writer.index("mul", position, self.extents[self.nest.vector])
                position = writer.index("add", position, copy.index)
            p = writer.element(whole(dtype), self.row_bases[s.row], position)
            if isinstance(s, ir.RowLoad):
                copy.values[s.out] = copy.memory.load(dtype, p)
            else:
                copy.memory.store(copy.values[s.value], p)

    def _param(self, s: ir.Param) -> Value:
        dtypes = self.nest.scalars[: s.index]
        slot = self._scalar_slots + sum(2 if d == elements.COMPLEX128 else 1 for d in dtypes)
        p = self.writer.element("i64", "%params", str(slot))
        return Memory(self.scalar, self.target).load_scalar(s.dtype, p)

    def _index(self, s: ir.IndexOf, copies: list[Instance], place: Position) -> None:
        shared: Value | None = None
        for copy in copies:
            if s.out in copy.values:
                continue
            if s.dim == self.nest.vector and copy.index is not None:
                copy.values[s.out] = index_value(copy.emit, copy.index, s.dtype)
            else:
                if shared is None:
                    one = Emitter(self.scalar)
                    shared = one.convert(Value(elements.INT64, (V(self.scalar, "i64", place.indices[s.dim]),)), s.dtype)
                    shared = copy.memory.splat(one.settle(shared))
                copy.values[s.out] = shared


_LOOPS: dict[str, Callable[[NestWriter], Any]] = {
    "rows": rows.RowWriter,
    "collapsed": collapsed_loops.CollapsedLoopWriter,
    "known rows": known_rows.KnownRowWriter,
    "interleaved": interleaved.InterleavedWriter,
    "short rows": short_rows.ShortRowWriter,
}
