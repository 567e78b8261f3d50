"""Writes a function of a nest for the threads of a GPU: a thread for each point, or for four side by side.

entry points: p = block * threads + thread;  indices of p by division;  everything of this point
entry wide:   the same of four points, as vectors of 16 bytes; the last few of a row one by one
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from weft._base.target import Target
from weft._base.target_model import GPU_AT_ONCE, GPU_THREADS
from weft.codegen.arithmetic.emitter import Value
from weft.codegen.arithmetic.lanes import V
from weft.codegen.gpu import atomics, threads
from weft.codegen.memory_access.memory import Mask, Memory
from weft.codegen.memory_access.memory_words import whole
from weft.codegen.nests import instances, reduce_tree
from weft.codegen.nests.columns import ColumnWriter
from weft.codegen.nests.instances import Instance, Position
from weft.codegen.nests.nest import NestWriter
from weft.codegen.writer import Carried, Writer
from weft.loops import elements, ir
from weft.loops.gpu import grid
from weft.loops.schedules import peeled_regions
from weft.loops.schedules.decisions import Schedule

WIDTH = grid.PER_THREAD
LOADS = (ir.Load, ir.RowLoad, ir.Param, ir.IndexOf)  # they need no value
STORES = (ir.Store, ir.RowStore, ir.Update, ir.Guard)  # no value needs them


class AlignedMemory(Memory):
    """Accesses of whole vectors at addresses that are multiples of their size, or of 16."""

    def load(self, dtype: np.dtype, pointer: str, mask: Mask | None = None) -> Value:
        type_, _ = self.vector_type(dtype)
        text = self.writer.op(f"load {type_}, ptr {pointer}, align {self._aligned(dtype)}")
        return self.join(dtype, text, self.lanes.width)

    def put(self, dtype: np.dtype, packed: tuple[str, str], pointer: str, mask: Mask | None) -> None:
        self.writer.line(f"store {packed[0]} {packed[1]}, ptr {pointer}, align {self._aligned(dtype)}")

    def _aligned(self, dtype: np.dtype) -> int:
        return min(grid.ALIGNED, self.lanes.width * elements.of(dtype).size)


class PointWriter(NestWriter):
    """Writes one entry; ``lanes`` 1 or 4."""

    def __init__(self, nest: ir.Nest, target: Target, lanes: int) -> None:
        nest = nest.replace(split=False)
        super().__init__(Schedule(nest, lanes, peeled=peeled_regions.of(nest, target.model.test)), target)
        self.form, self.kept_guards = grid.form(nest), frozenset()
        if lanes == 1:  # nothing is shared by lanes
            self.moving = self.uniform_offsets = frozenset()

    # the frame

    def param(self, slot: int) -> str:
        return f"%w{slot}"

    def poll(self) -> None:
        """A GPU's kernel is not interrupted."""

    def stretches(
        self, low: str, high: str, step: int, carried: Carried, body: Callable[[str, list[str]], Sequence[str]]
    ) -> list[str]:
        return self.writer.loop(low, high, step, carried, body)

    def limits(self, position: Position, dim: int) -> tuple[str, str]:
        return "0", self.extents[dim]

    def _pointer(self, operand: int) -> str:
        return self.writer.op(f"addrspacecast ptr addrspace(1) %o{operand} to ptr")

    def _param(self, s: ir.Param) -> Value:
        slot = self._scalar_slots + sum([words_of(dtype) for dtype in self.nest.scalars[: s.index]])
        return scalar_of(Memory(self.scalar, self.target), s.dtype, slot)

    def _row_bases(self) -> None:
        """Buffers of rows lie side by side, a column for each point."""
        count = self.word(0)
        for d in self.reduced:
            count = self.writer.index("mul", count, self.extents[d])
        self._buffers(self.writer.once("addrspacecast ptr addrspace(1) %scratch to ptr"), count)

    def _buffers(self, base: str, count: str) -> None:
        """Where the row buffers of so many elements begin."""
        writer = self.writer
        for dtype in self.nest.rows:
            self.row_bases.append(base)
            size = writer.index("mul", count, str(elements.of(dtype).size))
            base = writer.element("i8", base, writer.index("and", writer.index("add", size, "63"), "-64"))

    def word(self, number: int) -> str:
        """A number of ``grid.launches``."""
        return f"%w{self._words_begin + number}"

    def begin(self) -> Position:
        """Parameters, and what is computed once."""
        self._words_begin = nest_words(self.nest)
        position = self._entry()
        self.scalars = self.copy(self.scalar, {})
        self.run(self.nest.setup, [self.scalars], position)
        return position

    def at_once(
        self, bounds: tuple[str, str, int], values: list[Value],
        body: Callable[[Sequence[str], list[Value]], list[Value]],
    ) -> list[Value]:  # fmt: skip
        """A loop whose body gets several indices, to load their elements before the first is used."""
        writer, (first, stop, step) = self.writer, bounds

        def of(count: int) -> Callable[[str, list[Value]], list[Value]]:
            return lambda index, now: body([writer.index("add", index, str(k * step)) for k in range(count)], now)

        length = writer.maximum_index(writer.index("sub", stop, first), "0")
        main = writer.index("add", first, writer.index("and", length, str(-GPU_AT_ONCE * step)))
        values = reduce_tree.carry(writer.loop, (first, main, GPU_AT_ONCE * step), values, of(GPU_AT_ONCE))
        return reduce_tree.carry(writer.loop, (main, stop, step), values, of(1))

    def update(self, s: ir.Update, copies: list[Instance], position: Position) -> None:
        if s.free in (None, "once") or self.reduced:
            super().update(s, copies, position)
            return
        for copy in copies:
            atomics.update(self, s, copy, position)

    # points

    def write(self) -> Writer:
        """The function of this entry."""
        writer = self.writer
        position = self.begin()
        thread, block = threads.number(writer, "tid.x"), threads.number(writer, "ctaid.x")
        each = GPU_THREADS if self.width > 1 else GPU_THREADS * self.form.per_thread
        first = writer.index("add", writer.index("mul", block, str(each)), thread)
        if self.width > 1:
            threads.when(writer, writer.compare_index("slt", first, self.word(1)), lambda: self._tile(first, position))
            return writer

        def point(k: str, _: list[str]) -> list[str]:
            p = writer.index("add", first, writer.index("mul", k, str(GPU_THREADS)))
            threads.when(writer, writer.compare_index("slt", p, self.word(0)), lambda: self._point(p, position))
            return []

        if self.form.per_thread == 1:
            point("0", [])
        else:
            writer.loop("0", str(self.form.per_thread), 1, [], point)
        return writer

    def indices(self, p: str, last: int | None = None) -> list[str]:
        """The index of point ``p`` along each parallel dimension; ``last``: the word with another divisor for the last
        dimension."""
        dims = [d for d, dim in enumerate(self.nest.dims) if dim.role == "parallel"]
        found: list[str] = []
        for number in reversed(range(1, len(dims))):
            at = last if last is not None and number == len(dims) - 1 else 2 * number
            p, rest = self.divided(p, at, self._extent(dims[number], at))
            found.append(rest)
        return [p, *reversed(found)] if dims else []

    def _extent(self, dim: int, at: int) -> str:
        if at == 2 * dim:
            return self.extents[dim]
        rounded = self.writer.index("add", self.extents[dim], str(WIDTH - 1))
        return self.writer.index("lshr", rounded, str(WIDTH.bit_length() - 1))

    def divided(self, p: str, at: int, divisor: str) -> tuple[str, str]:
        """``threads.divided`` by the numbers in words ``at`` and ``at`` + 1."""
        return threads.divided(self.writer, p, (self.word(at), self.word(at + 1)), divisor)

    def at_point(self, position: Position, indices: Sequence[str]) -> Position:
        """The position inside of the loops over parallel dimensions."""
        for dim, index in enumerate(indices):
            position = self.enter(position, dim, index, range(len(self.nest.operands)))
        return position

    def _point(self, p: str, position: Position) -> None:
        self.point_number = p
        base = instances.fresh(self.scalars, self.scalars.values)
        base.scalars = dict(self.scalars.values)
        ColumnWriter(self).point([base], self.at_point(position, self.indices(p)))

    def _tile(self, tile: str, position: Position) -> None:
        """Four points along the last dimension, or what is left of them."""
        writer, dims = self.writer, self.nest.dims
        indices = self.indices(tile, 2 * len(dims))
        index = writer.index("mul", indices[-1], str(WIDTH))
        position = self.at_point(position, indices[:-1])
        inside = writer.compare_index("sle", writer.index("add", index, str(WIDTH)), self.extents[len(dims) - 1])
        whole_tile, part, done = (writer.fresh_label() for _ in range(3))
        writer.branch_if(inside, whole_tile, part)
        writer.label(whole_tile)
        lanes = self.copy(self.lanes, {})
        wide = {n: lanes.memory.splat(v) for n, v in self.scalars.values.items()}
        hoisted = self.hoist(self.nest.phases[0].body, instances.fresh(self.scalars, self.scalars.values), position)
        wide |= {n: lanes.memory.splat(v) for n, v in hoisted.items()}
        vector = Instance(lanes.emit, AlignedMemory(self.lanes, self.target), wide, index)
        vector.scalars = {**self.scalars.values, **hoisted}
        for phase in self.nest.phases:
            self.run([*phase.before, *phase.body], [vector], position)
        writer.branch(done)
        writer.label(part)

        def one(at: str, _: list[str]) -> list[str]:
            alone = instances.fresh(self.scalars, self.scalars.values)
            inner = self.enter(position, len(dims) - 1, at, range(len(self.nest.operands)))
            for phase in self.nest.phases:
                self.run([*phase.before, *phase.body], [alone], inner)
            return []

        writer.loop(index, self.extents[len(dims) - 1], 1, [], one)
        writer.branch(done)
        writer.label(done)

    def load(self, s: ir.Load, copies: list[Instance], position: Position) -> None:
        """An operand that may be unaligned is read as one vector where the address allows it, otherwise element by
        element."""
        if self.width == 1 or s.operand in self.form.aligned or self.stride(s.operand, copies[0]) != 1:
            super().load(s, copies, position)
            return
        dtype, writer, (copy,) = self.nest.operands[s.operand].dtype, self.writer, copies
        element, memory = elements.of(dtype), copies[0].memory
        pointer, type_ = (
            writer.element(whole(dtype), position.pointers[s.operand], copy.index or "0"),
            memory.vector_type(dtype)[0],
        )
        nbytes = min(grid.ALIGNED, WIDTH * element.size)
        low = writer.index("and", writer.op(f"ptrtoint ptr {pointer} to i64"), str(nbytes - 1))

        def singles() -> Carried:
            text = "poison"
            for lane in range(WIDTH):
                one = writer.load(element.memory, writer.element(whole(dtype), pointer, str(lane)), element.bytes)
                text = writer.op(f"insertelement {type_} {text}, {element.memory} {one}, i64 {lane}")
            return [(type_, text)]

        def together() -> Carried:
            return [(type_, writer.load(type_, pointer, nbytes))]

        (text,) = writer.either(writer.compare_index("eq", low, "0"), together, singles)
        copy.values[s.out] = memory.join(dtype, text, WIDTH)

    def _row(self, s: ir.RowLoad | ir.RowStore, copies: list[Instance], position: Position) -> None:
        dtype, writer = self.nest.rows[s.row], self.writer
        at = writer.index("add", writer.index("mul", position.row, self.word(0)), self.point_number)
        self.row_access(s, copies, writer.element(whole(dtype), self.row_bases[s.row], at))

    def row_access(self, s: ir.RowLoad | ir.RowStore, copies: list[Instance], pointer: str) -> None:
        for copy in copies:
            if isinstance(s, ir.RowLoad):
                copy.values[s.out] = copy.memory.load(self.nest.rows[s.row], pointer)
            else:
                copy.memory.store(copy.values[s.value], pointer)


def nest_words(nest: ir.Nest) -> int:
    """The words of a nest's own parameters."""
    strides = sum([stride == ir.RUNTIME for operand in nest.operands for stride in operand.strides])
    return len(nest.dims) + strides + sum(map(words_of, nest.scalars))


def scalar_of(memory: Memory, dtype: np.dtype, slot: int) -> Value:
    """The scalar parameter that begins at a word."""
    element, writer, parts = elements.of(dtype), memory.writer, []
    for k in range(element.parts):
        word = f"%w{slot + k * element.bytes // 8}"
        if k * element.bytes % 8:
            word = writer.op(f"lshr i64 {word}, {8 * (k * element.bytes % 8)}")
        if element.bytes < 8:
            word = writer.op(f"trunc i64 {word} to i{8 * element.bytes}")
        if not element.memory.startswith("i"):
            word = writer.op(f"bitcast i{8 * element.bytes} {word} to {element.memory}")
        parts.append(memory.arrive(dtype, V(memory.lanes, element.memory, word)))
    return Value(dtype, tuple(parts))


def words_of(dtype: np.dtype) -> int:
    """The words of a scalar parameter."""
    return 2 if dtype == elements.COMPLEX128 else 1


def grid_words(nest: ir.Nest) -> int:
    """All words of a kernel's parameters."""
    parallel = sum([dim.role == "parallel" for dim in nest.dims])
    how = grid.form(nest)
    own = 3 if how.teams or how.scans or how.columns else 4 if how.turned >= 0 else 0
    behind = 2 + 2 * max(parallel - 1, 0) + 2 + own
    return nest_words(nest) + behind
