"""Writes elementwise nests that read an operand across its rows: tiles are transposed in registers.

An operand is *transposed* if it has a run-time stride along the lanes and stride 1 along another parallel dimension, u.
The elements of a tile of W lanes by W steps of u are loaded along u, transposed in registers and stored in a stack
buffer, from which the body loads them along the lanes. So whole cache lines are read, and nothing is gathered.

    for blocks of 32 lanes (64 of bytes): for tiles of W steps of u:
        transpose the tiles of the block; for u in tile: for vectors: body

If stores are non-temporal and rows do not start at a cache line, the rows of a block start earlier, at the last cache
line that starts before the block.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from weft._base.record import Record
from weft._base.target_model import LINE
from weft.codegen.arithmetic.lanes import Lanes
from weft.codegen.memory_access import register_transpose
from weft.codegen.memory_access.memory import first_lanes, lanes_below
from weft.codegen.memory_access.memory_words import whole
from weft.codegen.memory_access.nontemporal_stores import bytes_of
from weft.codegen.nests import columns, instances
from weft.codegen.nests.frame import Frame
from weft.codegen.nests.instances import Instance, Position
from weft.loops import elements, ir
from weft.loops.schedules.decisions import SMALL_STRIDES, Transposed

if TYPE_CHECKING:
    from weft.codegen.memory_access.nontemporal_stores import Shift


class TileBlock(Record):
    """The lanes from ``first`` on, in the range ``low`` to ``high``; rows may begin up to ``back`` lanes earlier."""

    first: str
    low: str
    high: str
    back: str
    shift: Shift | None


class TransposedWriter(columns.ColumnWriter):
    """Writes the tiles over the lanes and another dimension of one nest."""

    def __init__(self, parent: Frame) -> None:
        super().__init__(parent)
        assert isinstance(self.schedule.tile, Transposed)
        self.chosen = chosen = self.schedule.tile
        self.dim, self.transposed = chosen.dim, chosen.operands
        self.wide = Lanes(self.writer, chosen.lanes)
        self.width, self.lead, self.size = chosen.lanes, chosen.lead, chosen.block
        self.pitch = self.lead + self.size  # words of a row of a buffer, starting ``lead`` words before the block
        self.words = words = {k: whole(self.nest.operands[k].dtype) for k in self.transposed}
        room = self.width * (self.pitch + 1)  # vectors may be loaded past the end
        self.buffers = {k: self.writer.alloca(f"[{room} x {words[k]}]") for k in self.transposed}

    def rows(self, position: Position, outer: Sequence[int]) -> None:
        parent, wide = self.parent, self.in_lanes(self.wide)
        assert self.nest.vector is not None

        def turn() -> None:
            parent.parallel(position, [d for d in outer if d != self.dim], lambda inner: self._blocks(inner, wide))

        if not self.chosen.near:
            turn()
            return
        stride = parent.strides[self.transposed[0], self.nest.vector]
        small = self.writer.compare_index("ule", stride, str(SMALL_STRIDES[-1]))
        self.writer.either(small, lambda: parent.parallel(position, outer, self.vectors), turn)

    def _blocks(self, position: Position, base: Instance) -> None:
        """All tiles, at the indices of the other dimensions."""
        parent, writer = self.parent, self.writer
        low, high = parent.range(2), parent.range(3)
        start, stop = (parent.range(0), parent.range(1)) if self.dim == 0 else ("0", parent.extents[self.dim])
        shift = None
        if parent.streams is not None and self.chosen.masked:
            shift = parent.streams.shift(position, self.dim, low)
        back = writer.choose_index(shift.some, str(self.lead), "0") if shift is not None else "0"

        def block(first: str, _: list[str]) -> list[str]:
            def along(u: str, _: list[str]) -> list[str]:
                parent.poll()
                self._tile(position, base, TileBlock(first, low, high, back, shift), (u, stop))
                return []

            writer.loop(start, stop, self.width, [], along)
            return []

        writer.loop(low, writer.index("add", high, back), self.size, [], block)

    def _tile(self, position: Position, base: Instance, block: TileBlock, steps: tuple[str, str]) -> None:
        parent, writer = self.parent, self.writer
        columns = writer.minimum_index(writer.index("sub", steps[1], steps[0]), str(self.width))
        last = writer.index("add", block.first, str(self.size))
        self._transpose_lanes(position, block, last, steps[0], columns)
        others = [k for k in range(len(self.nest.operands)) if k not in self.transposed]

        def rows(write: Callable[[Position, str], None]) -> None:
            def row(step: str, _: list[str]) -> list[str]:
                inner = parent.enter(position, self.dim, writer.index("add", steps[0], step), others)
                write(inner, writer.index("mul", step, str(self.pitch)))
                return []

            writer.loop("0", columns, 1, [], row)

        if not self.chosen.twice:
            rows(lambda inner, at: self._any_row(inner, base, block, last, at))
            return
        inside = writer.compare_index("sle", last, block.high)
        if block.shift is not None:
            inside = writer.op(f"and i1 {inside}, {writer.compare_index('eq', block.back, '0')}")
        writer.either(
            inside,
            lambda: rows(lambda inner, at: self._whole_row(inner, base, block, at)),
            lambda: rows(lambda inner, at: self._any_row(inner, base, block, last, at)),
        )

    def _transpose_lanes(self, position: Position, block: TileBlock, last: str, u: str, columns: str) -> None:
        """Fill the buffers: element (v, u) of the tiles goes to buffer[u][v - first + lead]."""
        writer = self.writer

        def tile(v: str, _: list[str]) -> list[str]:
            rows = writer.minimum_index(writer.index("sub", block.high, v), str(self.width))
            full = writer.compare_index("eq", writer.index("add", rows, columns), str(2 * self.width))
            column = writer.index("add", writer.index("sub", v, block.first), str(self.lead))
            for k in self.transposed:
                self._transpose_tile(k, position, (v, u), (rows, columns), full, column)
            return []

        begin = writer.index("sub", block.first, block.back)
        if block.shift is not None:
            begin = writer.maximum_index(begin, block.low)
        writer.loop(begin, writer.minimum_index(last, block.high), self.width, [], tile)

    def _whole_row(self, position: Position, base: Instance, block: TileBlock, row: str) -> None:
        """The body along all lanes of a block, in a row whose cache lines are aligned with the block."""
        slots = range(0, self.size, self.width)
        vectors = [
            instances.fresh(base, base.values, self.writer.index("add", block.first, str(slot)), None, slot)
            for slot in slots
        ]
        self._body(vectors, position, [self.writer.index("add", row, str(self.lead + slot)) for slot in slots])

    def _any_row(self, position: Position, base: Instance, block: TileBlock, last: str, row: str) -> None:
        """The body along the lanes of a block that exist, or from the start of the cache line of its first lane."""
        writer, width = self.writer, self.width
        shift = "0"
        if block.shift is not None:
            shift = block.shift.lanes(position, block.first)
            if self.lead > width:  # the first block has no whole vectors before it
                is_first = writer.compare_index("eq", block.first, block.low)
                shift = writer.choose_index(is_first, writer.index("and", shift, str(width - 1)), shift)
        end = writer.minimum_index(writer.index("sub", last, shift), block.high)

        def vector(aligned: str, _: list[str]) -> list[str]:
            v, stop = aligned, block.high
            # the first block has no lanes before it; a block ends where the next one begins
            if block.shift is not None:
                v = writer.maximum_index(aligned, block.low)
                stop = writer.minimum_index(writer.index("add", aligned, str(width)), stop)
            mask = lanes_below(self.wide, writer.index("sub", stop, v), True)
            column = writer.index("add", writer.index("sub", v, block.first), str(self.lead))
            at = writer.index("add", row, column)
            self._body([instances.fresh(base, base.values, v, mask)], position, [at])
            return []

        writer.loop(writer.index("sub", block.first, shift), end, width, [], vector)

    def _body(self, vectors: list[Instance], position: Position, at: Sequence[str]) -> None:
        """The statements for these vectors; transposed operands are in the buffers at offsets ``at``."""
        writer = self.writer
        for s in self.statements:
            if isinstance(s, ir.Load) and s.operand in self.transposed:
                for copy, index in zip(vectors, at, strict=True):
                    p = writer.element(self.words[s.operand], self.buffers[s.operand], index)
                    copy.values[s.out] = copy.memory.load(self.nest.operands[s.operand].dtype, p)
        self.parent.run(self.statements, vectors, position)

    def _side(self, operand: int) -> int:
        """The side, in words, of the blocks transposed in registers; with words of 4 bytes a tile is one block."""
        size = bytes_of(self.nest, operand)
        if size == 4 and self.width in (8, 16):
            return self.width
        return min(self.width, max(self.parent.model.register_bytes, LINE // 2) // size if size >= 8 else 16 // size)

    def _transpose_tile(
        self, operand: int, position: Position, at: tuple[str, str], size: tuple[str, str], full: str, column: str
    ) -> None:
        """Fill the buffer with a tile whose lanes begin in its column ``column``."""
        writer, word, side = self.writer, self.words[operand], self._side(operand)
        assert self.nest.vector is not None
        stride = self.parent.strides[operand, self.nest.vector]
        corner = writer.index("add", writer.index("mul", at[0], stride), at[1])
        source = writer.element(word, position.pointers[operand], corner)
        buffer = writer.element(word, self.buffers[operand], column)
        if side == self.width:
            self._write_block(operand, (source, buffer), stride, size, full)
            return

        def rows(v: str, _: list[str]) -> list[str]:
            line, left = writer.element(word, source, writer.index("mul", v, stride)), self._rest(size[0], v, side)

            def block(u: str, _: list[str]) -> list[str]:
                right = self._rest(size[1], u, side)
                whole_block = writer.compare_index("eq", writer.index("add", left, right), str(2 * side))
                sink = writer.element(word, buffer, writer.index("add", self._at_row(u), v))
                self._write_block(operand, (writer.element(word, line, u), sink), stride, (left, right), whole_block)
                return []

            writer.loop("0", size[1], side, [], block)
            return []

        writer.loop("0", size[0], side, [], rows)

    def _at_row(self, index: str) -> str:
        return self.writer.index("mul", index, str(self.pitch))

    def _rest(self, size: str, start: str, side: int) -> str:
        return self.writer.minimum_index(self.writer.index("sub", size, start), str(side))

    def _write_block(self, operand: int, at: tuple[str, str], stride: str, size: tuple[str, str], full: str) -> None:
        """One block from ``at[0]`` to ``at[1]`` in the buffer: in registers if it is ``full`` or loads have masks."""
        writer, word, (source, sink) = self.writer, self.words[operand], at
        if self.parent.model.masks and bytes_of(self.nest, operand) <= register_transpose.WIDEST:
            self._shuffle(operand, source, stride, sink, (full, size))
            return

        def row(v: str, _: list[str]) -> list[str]:
            line = writer.element(word, source, writer.index("mul", v, stride))

            def one(u: str, _: list[str]) -> list[str]:
                align = self._align(operand)
                value = writer.op(f"load {word}, ptr {writer.element(word, line, u)}, align {align}")
                target = writer.element(word, sink, writer.index("add", self._at_row(u), v))
                writer.line(f"store {word} {value}, ptr {target}, align {align}")
                return []

            writer.loop("0", size[1], 1, [], one)
            return []

        def part() -> None:
            writer.loop("0", size[0], 1, [], row)

        writer.either(full, lambda: self._shuffle(operand, source, stride, sink), part)

    def _align(self, operand: int) -> int:
        return elements.of(self.nest.operands[operand].dtype).bytes

    def _shuffle(
        self,
        operand: int,
        source: str,
        stride: str,
        sink: str,
        part: tuple[str, tuple[str, str]] | None = None,
    ) -> None:
        """Transpose one square block, or with ``part`` (whether it is full; its rows and columns) a part of one."""
        writer, word, side = self.writer, self.words[operand], self._side(operand)
        type_, align = register_transpose.row_type(side, bytes_of(self.nest, operand)), self._align(operand)

        def plain() -> list[tuple[str, str]]:
            def whole(p: str) -> str:
                return writer.op(f"load {type_}, ptr {p}, align {align}")

            return [(type_, row) for row in self._rows(word, source, [stride] * (side - 1), whole)]

        def some() -> list[tuple[str, str]]:
            assert part is not None
            lanes, (height, width) = Lanes(writer, side), part[1]
            mask = first_lanes(lanes, width, few=True).lanes.text

            def masked(p: str) -> str:
                given = [(f"ptr align {align}", p), (lanes.type("i1"), mask), (type_, "zeroinitializer")]
                return writer.call(f"llvm.masked.load.{lanes.suffix(word)}.p0", type_, given)

            # the last row is loaded again for those that are not there
            there = [writer.compare_index("sgt", height, str(k + 1)) for k in range(side - 1)]
            steps = [writer.choose_index(yes, stride, "0") for yes in there]
            return [(type_, row) for row in self._rows(word, source, steps, masked)]

        rows = [row for _, row in plain()] if part is None else writer.either(part[0], plain, some)
        type_, columns = register_transpose.columns(self.wide, rows, bytes_of(self.nest, operand))
        for k, column in enumerate(columns):
            target = writer.element(word, sink, str(k * self.pitch))
            writer.line(f"store {type_} {column}, ptr {target}, align {align}")

    def _rows(self, word: str, first: str, steps: Sequence[str], load: Callable[[str], str]) -> list[str]:
        """A vector at ``first`` and one after each step."""
        pointers = list(itertools.accumulate(steps, lambda p, step: self.writer.element(word, p, step), initial=first))
        return [load(p) for p in pointers]
