"""Non-temporal (streamed) stores for results too large for the caches, chosen at run time by a branch for each tile.

An ordinary store first reads the cache line that it overwrites, and the line is written back when it is evicted. A
streamed store does neither, but its line is then in no cache when it is read. A nest contains no sizes, so both kinds
of store are generated for whole vectors, and selected by a test of the address:

    %limit = 0 where the operand is large and is not written in place, otherwise 63
    if ((address | %limit) & 63) == 0: streamed stores, else: ordinary ones
"""

from __future__ import annotations

from collections.abc import Sequence

from weft._base.record import Record
from weft._base.target_model import LINE
from weft.codegen.nests.frame import Frame
from weft.codegen.nests.instances import Instance, Position
from weft.codegen.writer import Writer
from weft.loops import elements, ir
from weft.loops.schedules.decisions import Streamed


def bytes_of(nest: ir.Nest, operand: int) -> int:
    """Bytes of an operand's element."""
    return elements.of(nest.operands[operand].dtype).size


class Shift(Record):
    """The number of lanes between the start of a cache line and a position in it, if rows are streamed."""

    writer: Writer
    operand: int
    size: int  # bytes of an element
    kept: str  # bits of an address: those within a line, or none
    some: str  # whether there is a row with such lanes (an i1)

    def lanes(self, position: Position, first: str) -> str:
        writer = self.writer
        address = writer.op(f"ptrtoint ptr {position.pointers[self.operand]} to i64")
        there = writer.index("add", address, writer.index("mul", first, str(self.size)))
        return writer.index("lshr", writer.index("and", there, self.kept), str(self.size.bit_length() - 1))


class Streams:
    """The streamed operands of a nest."""

    def __init__(self, parent: Frame, position: Position, chosen: Streamed) -> None:
        self.nest, self.strides = parent.nest, parent.strides  # not the parent, which has this object
        self.writer, self.width = parent.writer, chosen.lanes
        self.limits = {k: self._limit(k, position, chosen.bytes, parent.extents) for k in chosen.operands}

    def _vector(self, operand: int) -> int:
        """Bytes of a vector in memory."""
        return bytes_of(self.nest, operand) * self.width

    def _limit(self, operand: int, position: Position, least: int, extents: Sequence[str]) -> str:
        writer, nest = self.writer, self.nest
        assert nest.vector is not None
        moving = [
            (other.role, bytes_of(nest, k)) for k, other in enumerate(nest.operands) if other.strides[nest.vector]
        ]
        read = max([size for role, size in moving if role == "in"], default=0)  # several may read one buffer
        size = str(sum(size for role, size in moving if role == "out") + read)
        for extent, stride in zip(extents, nest.operands[operand].strides, strict=True):
            size = writer.index("mul", size, extent) if stride else size
        ordinary = writer.compare_index("slt", size, str(least))
        for k, other in enumerate(nest.operands):
            if other.role == "in" and bytes_of(nest, k) == bytes_of(nest, operand):
                same = writer.op(f"icmp eq ptr {position.pointers[operand]}, {position.pointers[k]}")
                ordinary = writer.op(f"or i1 {ordinary}, {same}")
        return writer.choose_index(ordinary, str(LINE - 1), "0")

    def shift(self, position: Position, dim: int, low: str) -> Shift:
        """Where cache lines begin in the rows along ``dim``, from lane ``low`` on, for the first streamed operand."""
        writer, nest, operand = self.writer, self.nest, next(iter(self.limits))
        size = bytes_of(nest, operand)
        kept = writer.index("xor", self.limits[operand], str(LINE - 1))
        stride = self.strides.get((operand, dim), "1")
        rows = writer.index("or", writer.index("mul", stride, str(size)), writer.index("mul", low, str(size)))
        address = writer.op(f"ptrtoint ptr {position.pointers[operand]} to i64")
        some = writer.compare_index("ne", writer.index("and", writer.index("or", address, rows), kept), "0")
        return Shift(writer, operand, size, kept, some)

    def first_line(self, position: Position, low: str, high: str) -> str:
        """The first lane after ``low`` at which a cache line begins; ``high`` if ``low`` is one or there is none."""
        writer, operand = self.writer, next(iter(self.limits))
        size = bytes_of(self.nest, operand)

        def in_row() -> list[str]:
            address = writer.op(f"ptrtoint ptr {position.pointers[operand]} to i64")
            there = writer.index("add", address, writer.index("mul", low, str(size)))
            rest = writer.index("and", writer.index("sub", "0", there), str(LINE - 1))
            lanes = writer.index("lshr", rest, str(size.bit_length() - 1))
            end = writer.minimum_index(writer.index("add", low, lanes), high)
            return [writer.choose_index(writer.compare_index("eq", rest, "0"), high, end)]

        is_streamed = writer.compare_index("eq", self.limits[operand], "0")
        return writer.when(is_streamed, in_row, ["i64"], [high], rare=False)[0]

    def take(self, operand: int, copies: Sequence[Instance]) -> bool:
        """Whether these vectors of an operand can be streamed: nearly all of them are whole."""
        if operand not in self.limits or copies[0].index is None or copies[0].memory.lanes.width != self.width:
            return False
        mask = copies[0].mask
        return mask is None or (mask.mostly_whole and copies[0].memory.masks(self.nest.operands[operand].dtype))

    def store(self, s: ir.Store, copies: Sequence[Instance], pointers: Sequence[str]) -> None:
        """Store a tile of vectors side by side, or one vector that may be masked."""
        writer, dtype = self.writer, self.nest.operands[s.operand].dtype
        packed = [copy.memory.pack(copy.values[s.value]) for copy in copies]
        address = writer.op(f"ptrtoint ptr {pointers[0]} to i64")
        aligned = min(self._vector(s.operand), LINE)
        rest = writer.index("and", writer.index("or", address, self.limits[s.operand]), str(aligned - 1))
        chosen, mask = writer.compare_index("eq", rest, "0"), copies[0].mask
        if mask is not None:
            whole = writer.compare_index("sge", mask.remaining, str(self.width))
            chosen = writer.op(f"and i1 {chosen}, {whole}")

        def past() -> None:
            for (type_, text), pointer in zip(packed, pointers, strict=True):
                writer.stream(type_, text, pointer, aligned)

        def kept() -> None:
            for copy, vector, pointer in zip(copies, packed, pointers, strict=True):
                copy.memory.put(dtype, vector, pointer, copy.mask)

        writer.either(chosen, past, kept)

    def finish(self) -> None:
        """A fence after the streamed stores, which are unordered: when the kernel ends everything is in memory."""
        writer = self.writer
        flags = list(self.limits.values())
        least = flags[0]
        for flag in flags[1:]:
            least = writer.index("and", least, flag)
        writer.when(writer.compare_index("eq", least, "0"), lambda: writer.native.fence(writer), rare=False)
