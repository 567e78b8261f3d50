"""Elementwise nests that read an operand across its rows: tiles turned on the way.

An operand is turned if it has a run-time stride along the lanes and stride 1 along another parallel dimension (u).
For each tile of W lanes by W steps of u its elements are loaded along u, transposed (words of 4 bytes in registers,
others one by one) and kept in a stack buffer, from which the body loads along the lanes: whole cache lines both ways
instead of W gathers of one element each.

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
        turned = [k for k in strided if nest.operands[k].strides[dim] == 1 and _size(nest, k) in (4, 8)]
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

    def _turn(self, operand: int, place: Place, at: tuple[str, str], size: tuple[str, str], full: str) -> None:
        """Fill the buffer: element (v, u) of the tile goes to buffer[u][v]."""
        writer, word = self.writer, self.words[operand]
        assert self.nest.vector is not None
        stride = self.parent.strides[operand, self.nest.vector]
        corner = writer.index("add", writer.index("mul", at[0], stride), at[1])
        source = writer.element(word, place.pointers[operand], corner)
        whole_tile, part, done = (writer.fresh_label() for _ in range(3))
        shuffled = _size(self.nest, operand) == 4 and self.width in (8, 16)
        if shuffled:
            writer.branch_if(full, whole_tile, part)
            writer.label(whole_tile)
            self._shuffle(operand, source, stride)
            writer.branch(done)
            writer.label(part)

        def row(v: str, _: list[str]) -> list[str]:
            line = writer.element(word, source, writer.index("mul", v, stride))

            def one(u: str, _: list[str]) -> list[str]:
                align = self._align(operand)
                value = writer.op(f"load {word}, ptr {writer.element(word, line, u)}, align {align}")
                sink = writer.element(word, self.buffers[operand], writer.index("add", self._row(u), v))
                writer.line(f"store {word} {value}, ptr {sink}, align {align}")
                return []

            writer.loop("0", size[1], 1, [], one)
            return []

        writer.loop("0", size[0], 1, [], row)
        if shuffled:
            writer.branch(done)
            writer.label(done)

    def _align(self, operand: int) -> int:
        return elements.of(self.nest.operands[operand].dtype).bytes

    def _shuffle(self, operand: int, source: str, stride: str) -> None:
        """W rows of W words of 4 bytes; every shuffle is one instruction on x86."""
        writer, width, word = self.writer, self.width, self.words[operand]
        type_, rows, p = self.parent.lanes.type(word), [], source
        for k in range(width):
            rows.append(writer.op(f"load {type_}, ptr {p}, align {self._align(operand)}"))
            if k + 1 < width:
                p = writer.element(word, p, stride)
        rows = self._quarters(self._interleave(rows))
        for k, row in enumerate(rows):
            sink = writer.element(word, self.buffers[operand], str(k * width))
            writer.line(f"store {type_} {row}, ptr {sink}, align {self._align(operand)}")

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
