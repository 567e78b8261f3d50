"""Elementwise nests that read an operand across its rows: tiles turned on the way.

An operand is turned if it has a run-time stride along the lanes and stride 1 along another parallel dimension (u).
For each tile of W lanes by W steps of u its elements are loaded along u, transposed in registers (words of 1 and 2
bytes in blocks of 128 bits a side; at the arrays' ends one by one) and kept in a stack buffer, from which the body
loads along the lanes: whole cache lines both ways instead of W gathers of one element each.

    for blocks of 4 W lanes: for tiles of W along u: for tiles of W lanes: turn; for u in tile: body
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.codegen import copies, elements
from weft.codegen.copies import Copy, Place
from weft.codegen.memory import first_lanes, whole
from weft.loops import ir

if TYPE_CHECKING:
    from weft.codegen.nest import NestWriter

TILES = 4  # tiles of lanes next to each other: rows of the output are written 256 bytes at a time


def across(nest: ir.Nest, width: int) -> tuple[int | None, list[int]]:
    """The dimension u and the operands to turn; None if there is nothing to turn."""
    if nest.vector is None or width == 1 or any(dim.role == "reduced" for dim in nest.dims):
        return None, []
    indexed = any(isinstance(s, ir.LoadAt | ir.Update) for s in nest.statements())
    if indexed or nest.vector + 1 < len(nest.dims):  # narrow dimensions within
        return None, []
    strided = [k for k, o in enumerate(nest.operands) if o.role == "in" and o.strides[nest.vector] == ir.RUNTIME]
    for dim in reversed(range(len(nest.dims))):
        turned = [k for k in strided if nest.operands[k].strides[dim] == 1 and _size(nest, k) <= 8]
        if turned and all(o.strides[nest.vector] == 1 for o in nest.operands if o.role == "out"):
            return dim, turned
    return None, []


def _size(nest: ir.Nest, operand: int) -> int:
    element = elements.of(nest.operands[operand].dtype)
    return element.bytes * element.parts


class Turner:
    """Writes the tiles over the lanes and dimension ``dim`` of one nest."""

    def __init__(self, parent: NestWriter, statements: list[ir.Statement], dim: int, turned: list[int]) -> None:
        self.parent = parent
        self.nest = parent.nest
        self.writer = parent.writer
        self.statements = statements
        self.dim = dim
        self.turned = turned
        self.width = parent.width
        words = {k: whole(self.nest.operands[k].dtype) for k in turned}
        self.words = words
        self.buffers = {k: self.writer.alloca(f"[{self.width * self.width} x {words[k]}]") for k in turned}

    def write(self, place: Place, base: Copy) -> None:
        """All tiles, at the indices of the other dimensions."""
        parent, writer, width = self.parent, self.writer, self.width
        low, high = parent.range(2), parent.range(3)
        start, stop = (parent.range(0), parent.range(1)) if self.dim == 0 else ("0", parent.extents[self.dim])

        def block(first: str, _: list[str]) -> list[str]:
            last = writer.minimum_index(writer.index("add", first, str(TILES * width)), high)

            def along(u: str, _: list[str]) -> list[str]:
                parent.poll()

                def tile(v: str, _: list[str]) -> list[str]:
                    self._tile(place, base, (v, last), (u, stop))
                    return []

                writer.loop(first, last, width, [], tile)
                return []

            writer.loop(start, stop, width, [], along)
            return []

        writer.loop(low, high, TILES * width, [], block)

    def _tile(self, place: Place, base: Copy, lanes: tuple[str, str], steps: tuple[str, str]) -> None:
        parent, writer = self.parent, self.writer
        rows = writer.minimum_index(writer.index("sub", lanes[1], lanes[0]), str(self.width))
        columns = writer.minimum_index(writer.index("sub", steps[1], steps[0]), str(self.width))
        full = writer.compare_index("eq", writer.index("add", rows, columns), str(2 * self.width))
        for k in self.turned:
            self._turn(k, place, (lanes[0], steps[0]), (rows, columns), full)
        mask = first_lanes(parent.lanes, rows)
        others = [k for k in range(len(self.nest.operands)) if k not in self.turned]

        def body(step: str, _: list[str]) -> list[str]:
            inner = parent.enter(place, self.dim, writer.index("add", steps[0], step), others)
            copy = copies.fresh(base, base.values, lanes[0], mask)
            for s in self.statements:
                if isinstance(s, ir.Load) and s.operand in self.turned:
                    p = writer.element(self.words[s.operand], self.buffers[s.operand], self._row(step))
                    copy.values[s.out] = copy.memory.load(self.nest.operands[s.operand].dtype, p)
            parent.run(self.statements, [copy], inner)
            return []

        writer.loop("0", columns, 1, [], body)

    def _row(self, index: str) -> str:
        return self.writer.index("mul", index, str(self.width))

    def _side(self, operand: int) -> int:
        """Words along a side of the blocks that are turned in registers; tiles of 4-byte words are one."""
        size = _size(self.nest, operand)
        if size == 4 and self.width in (8, 16):
            return self.width
        return min(self.width, (64 if self.writer.avx512 else 32) // size if size == 8 else 16 // size)

    def _turn(self, operand: int, place: Place, at: tuple[str, str], size: tuple[str, str], full: str) -> None:
        """Fill the buffer: element (v, u) of the tile goes to buffer[u][v]."""
        writer, word, side = self.writer, self.words[operand], self._side(operand)
        assert self.nest.vector is not None
        stride = self.parent.strides[operand, self.nest.vector]
        corner = writer.index("add", writer.index("mul", at[0], stride), at[1])
        source = writer.element(word, place.pointers[operand], corner)
        buffer = self.buffers[operand]
        if side == self.width:
            self._turn_block(operand, (source, buffer), stride, size, full)
            return

        def rows(v: str, _: list[str]) -> list[str]:
            line, left = writer.element(word, source, writer.index("mul", v, stride)), self._rest(size[0], v, side)

            def block(u: str, _: list[str]) -> list[str]:
                right = self._rest(size[1], u, side)
                whole_block = writer.compare_index("eq", writer.index("add", left, right), str(2 * side))
                sink = writer.element(word, buffer, writer.index("add", self._row(u), v))
                self._turn_block(operand, (writer.element(word, line, u), sink), stride, (left, right), whole_block)
                return []

            writer.loop("0", size[1], side, [], block)
            return []

        writer.loop("0", size[0], side, [], rows)

    def _rest(self, size: str, start: str, side: int) -> str:
        return self.writer.minimum_index(self.writer.index("sub", size, start), str(side))

    def _turn_block(self, operand: int, at: tuple[str, str], stride: str, size: tuple[str, str], full: str) -> None:
        """One block from ``at[0]`` to ``at[1]`` in the buffer: in registers if it is ``full``."""
        writer, word, (source, sink) = self.writer, self.words[operand], at
        whole_block, part, done = (writer.fresh_label() for _ in range(3))
        writer.branch_if(full, whole_block, part)
        writer.label(whole_block)
        self._shuffle(operand, source, stride, sink)
        writer.branch(done)
        writer.label(part)

        def row(v: str, _: list[str]) -> list[str]:
            line = writer.element(word, source, writer.index("mul", v, stride))

            def one(u: str, _: list[str]) -> list[str]:
                align = self._align(operand)
                value = writer.op(f"load {word}, ptr {writer.element(word, line, u)}, align {align}")
                place = writer.element(word, sink, writer.index("add", self._row(u), v))
                writer.line(f"store {word} {value}, ptr {place}, align {align}")
                return []

            writer.loop("0", size[1], 1, [], one)
            return []

        writer.loop("0", size[0], 1, [], row)
        writer.branch(done)
        writer.label(done)

    def _align(self, operand: int) -> int:
        return elements.of(self.nest.operands[operand].dtype).bytes

    def _shuffle(self, operand: int, source: str, stride: str, sink: str) -> None:
        """As many rows of as many words as a side has; every shuffle is one instruction on x86."""
        writer, word, side = self.writer, self.words[operand], self._side(operand)
        type_, rows, p = f"<{side} x {word}>", [], source
        for k in range(side):
            rows.append(writer.op(f"load {type_}, ptr {p}, align {self._align(operand)}"))
            if k + 1 < side:
                p = writer.element(word, p, stride)
        if _size(self.nest, operand) == 4 and side in (8, 16):
            rows = self._quarters(self._interleave(rows))
        else:
            rows = self._riffle(rows, word)
        for k, row in enumerate(rows):
            place = writer.element(word, sink, str(k * self.width))
            writer.line(f"store {type_} {row}, ptr {place}, align {self._align(operand)}")

    def _riffle(self, rows: list[str], word: str) -> list[str]:
        """Each step moves one bit of a word's row to its column, and one of its column to its row."""
        side, half = len(rows), len(rows) // 2
        low = [k // 2 + (k % 2) * side for k in range(side)]
        high = [k + half for k in low]
        for _ in range(side.bit_length() - 1):
            pairs = zip(rows[:half], rows[half:], strict=True)
            rows = [self.parent.lanes.shuffle(a, b, word, picks, side) for a, b in pairs for picks in (low, high)]
        return rows

    def _pick(self, a: str, b: str, chunks: list[int], chunk: int) -> str:
        """Chunks of ``chunk`` lanes by number (b's follow a's)."""
        lanes = [c * chunk + lane for c in chunks for lane in range(chunk)]
        return self.parent.lanes.shuffle(a, b, "i32", lanes, self.width)

    def _interleave(self, rows: list[str]) -> list[str]:
        """4 x 4 transposes inside 128-bit quarters: result 4 k + j has, in quarter q, rows 4 k.. of column 4 q + j."""
        width, out = self.width, []
        quarters = range(width // 4)
        for k in range(0, width, 4):
            low = [[c for q in quarters for c in (4 * q, width + 4 * q, 4 * q + 1, width + 4 * q + 1)]]
            low.append([c + 2 for c in low[0]])
            t = [self._pick(rows[k + r], rows[k + r + 1], low[h], 1) for r in (0, 2) for h in (0, 1)]
            half = width // 2
            for h in (0, 1):
                for part in (0, 1):
                    chunks = [c for q in quarters for c in (2 * q + part, half + 2 * q + part)]
                    out.append(self._pick(t[h], t[h + 2], chunks, 2))
        return out

    def _quarters(self, u: list[str]) -> list[str]:
        """Quarter q of u[4 k + j] becomes quarter k of result 4 q + j."""
        out = [""] * self.width
        for j in range(4):
            if self.width == 8:
                out[j] = self._pick(u[j], u[4 + j], [0, 2], 4)
                out[4 + j] = self._pick(u[j], u[4 + j], [1, 3], 4)
                continue
            even = [self._pick(u[k + j], u[k + 4 + j], [0, 2, 4, 6], 4) for k in (0, 8)]
            odd = [self._pick(u[k + j], u[k + 4 + j], [1, 3, 5, 7], 4) for k in (0, 8)]
            out[j] = self._pick(even[0], even[1], [0, 2, 4, 6], 4)
            out[8 + j] = self._pick(even[0], even[1], [1, 3, 5, 7], 4)
            out[4 + j] = self._pick(odd[0], odd[1], [0, 2, 4, 6], 4)
            out[12 + j] = self._pick(odd[0], odd[1], [1, 3, 5, 7], 4)
        return out
