"""Tiles of operands of tensor cores in the memory of a block: how they come there, and how warps load them.

A tile has rows of 64 bytes of terms, where its terms lie side by side, and otherwise rows of free indices. Chunks of 16
bytes are permuted within a row, so that neither side meets a bank of the memory twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft._base.record import Record
from weft._base.target import Target
from weft._base.target_model import GPU_THREADS
from weft.codegen.gpu import threads
from weft.codegen.gpu.products import ProductWriter
from weft.loops.gpu.grid_products import ALIGNED, STEP, Product, Tile

WORDS = "{i32, i32, i32, i32}"
FRAGMENT = 16  # rows or columns of a fragment


class Side(Record):
    """A tile in the block's memory, at byte ``start`` of a stage: ``extent`` free indices, STEP bytes of terms.

    ``along``: a row holds the terms of one free index; otherwise the free indices of one term.
    """

    operand: int
    kind: str  # of its free dimensions
    extent: int
    along: bool
    start: int
    size: int  # bytes of an element

    @property
    def row_bytes(self) -> int:
        return STEP if self.along else self.extent * self.size

    @property
    def unit(self) -> str:
        return f"i{8 * self.size}"

    @property
    def n_rows(self) -> int:
        return self.extent if self.along else STEP // self.size


class TensorTiles(ProductWriter):
    """What an entry does with both operands."""

    def __init__(self, product: Product, target: Target, tile: Tile) -> None:
        super().__init__(product, target)
        self.tile, size = tile, product.source.itemsize
        self.terms = STEP // size  # of a stage
        self.a = Side(0, "rows", tile.rows, product.a_along, 0, size)
        self.b = Side(1, "columns", tile.columns, not product.b_along, tile.rows * STEP, size)
        self.stage = (tile.rows + tile.columns) * STEP
        self.t = self._low(threads.number(self.writer, "tid.x"))
        self.lane = self._i("and", self.t, 31)

    def _begin_and_end(self, side: Side) -> tuple[str, str]:
        return (self.row, self.m) if side.operand == 0 else (self.column, self.n)

    # tiles in the block's memory

    def _turned(self, side: Side, chunk: str, row: str) -> str:
        """The position of a chunk within its row."""
        if side.along:
            return self._i("xor", chunk, self._i("and", self._i("lshr", row, 1), 3))
        if side.size == 4:
            return self._i("xor", chunk, self._i("shl", self._i("and", row, 3), 1))
        return self._i("xor", chunk, self._i("and", row, 7))

    def _rows_of(self, side: Side, chunk_bits: int) -> tuple[str, str, int, int]:
        """What this thread brings: number within a row, the first row, rows between two of its own, and how many."""
        within, row = self._i("and", self.t, (1 << chunk_bits) - 1), self._i("lshr", self.t, chunk_bits)
        step = GPU_THREADS >> chunk_bits
        return within, row, step, side.n_rows // step

    def _copies(self, side: Side) -> Callable[[str, str], None]:
        """A function that starts the copies of a tile: of terms from a number on, into a stage."""
        chunk, row, step, passes = self._rows_of(side, (side.row_bytes // ALIGNED).bit_length() - 1)
        to = self._sums(self._i("mul", row, side.row_bytes), self._i("mul", self._turned(side, chunk, row), ALIGNED))
        first = self._wide(self._i("mul", chunk, ALIGNED // side.size))
        rows = [self._wide(self._i("add", row, p * step)) for p in range(passes)]
        sources = (self._along if side.along else self._across)(side, first, rows)

        def start(at: str, stage: str) -> None:
            for p, (pointer, inside, nbytes) in enumerate(sources(at)):
                nbytes = self.writer.op(f"select i1 {inside}, i32 {nbytes}, i32 0")
                target = self._in_block(self._sums(to, side.start, stage), p * step * side.row_bytes)
                pointer = self.writer.op(f"addrspacecast ptr {pointer} to ptr addrspace(1)")
                given = [("ptr addrspace(3)", target), ("ptr addrspace(1)", pointer), ("i32", nbytes)]
                self.writer.call("llvm.nvvm.cp.async.cg.shared.global.16.s", "void", given)

        return start

    def _along(self, side: Side, first: str, rows: list[str]) -> Callable[[str], list[tuple[str, str, str]]]:
        """Where the chunks of free indices come from, whether these are inside, and the bytes that are."""
        writer, (begin, end) = self.writer, self._begin_and_end(side)
        free = [self._free(side, writer.index("add", begin, row), end) for row in rows]

        def sources(at: str) -> list[tuple[str, str, str]]:
            term = writer.index("add", at, first)
            nbytes = self._bytes(writer.index("sub", self.k, term), side.size)
            here = writer.element(side.unit, self.base[side.operand], self._offset("summed", term, side.operand))
            return [(writer.element(side.unit, here, offset), inside, nbytes) for offset, inside in free]

        return sources

    def _across(self, side: Side, first: str, rows: list[str]) -> Callable[[str], list[tuple[str, str, str]]]:
        """The same of chunks of terms."""
        writer, (begin, end) = self.writer, self._begin_and_end(side)
        index = writer.index("add", begin, first)
        nbytes = self._bytes(writer.index("sub", end, index), side.size)
        start = writer.element(side.unit, self.base[side.operand], self._offset(side.kind, index, 0))

        def sources(at: str) -> list[tuple[str, str, str]]:
            found = []
            for row in rows:
                term = writer.index("add", at, row)
                pointer = writer.element(side.unit, start, self._offset("summed", term, side.operand))
                found.append((pointer, writer.compare_index("slt", term, self.k), nbytes))
            return found

        return sources

    def _bytes(self, left: str, size: int) -> str:
        """The bytes of a chunk with so many elements left, from 0 to 16."""
        writer = self.writer
        left = writer.minimum_index(writer.maximum_index(left, "0"), str(ALIGNED // size))
        return self._low(writer.index("mul", left, str(size)))

    # element by element

    def _fetches(self, side: Side) -> tuple[Callable[[str], list[str]], Callable[[list[str], str], None]]:
        """Functions that load this thread's words of a tile, of terms from a number on, and store them in a stage."""
        writer, each = self.writer, 4 // side.size
        bits = (side.row_bytes // 4).bit_length() - 1
        word, row, step, passes = self._rows_of(side, bits)
        turned = self._turned(side, self._i("lshr", word, 2), row)
        to = self._sums(self._i("mul", row, side.row_bytes), self._i("mul", turned, ALIGNED), side.start)
        to = self._i("add", to, self._i("shl", self._i("and", word, 3), 2))
        begin, end = self._begin_and_end(side)
        numbers = [self._wide(self._i("add", self._i("mul", word, each), e)) for e in range(each)]
        rows = [self._wide(self._i("add", row, p * step)) for p in range(passes)]
        free = [self._free(side, writer.index("add", begin, at), end) for at in (rows if side.along else numbers)]

        def fetch(at: str) -> list[str]:
            terms = [
                self._of_term(side, writer.index("add", at, number)) for number in (numbers if side.along else rows)
            ]
            pairs = (
                [[(one, term) for term in terms] for one in free]
                if side.along
                else [[(one, term) for one in free] for term in terms]
            )
            return [self._packed(side, pair) for pair in pairs]

        def store(words: list[str], stage: str) -> None:
            at = self._i("add", to, stage)
            for p, text in enumerate(words):
                writer.line(f"store i32 {text}, ptr addrspace(3) {self._in_block(at, p * step * side.row_bytes)}")

        return fetch, store

    def _free(self, side: Side, at: str, end: str) -> tuple[str, str]:
        """Offset of a free index, and whether it is inside."""
        inside = self.writer.compare_index("slt", at, end)
        return self._offset(side.kind, self.writer.choose_index(inside, at, "0"), 0), inside

    def _of_term(self, side: Side, at: str) -> tuple[str, str]:
        inside = self.writer.compare_index("slt", at, self.k)
        return self._offset("summed", self.writer.choose_index(inside, at, "0"), side.operand), inside

    def _packed(self, side: Side, elements: list[Any]) -> str:
        """A word of elements that lie side by side in the block's memory; 0 for one that is outside."""
        writer, type_, text = self.writer, side.unit, ""
        for (free, free_inside), (term, term_inside) in elements:
            offset = writer.index("add", free, term)
            value = writer.op(f"load {type_}, ptr {writer.element(type_, self.base[side.operand], offset)}")
            inside = writer.op(f"and i1 {free_inside}, {term_inside}")
            value = writer.op(f"select i1 {inside}, {type_} {value}, {type_} 0")
            if side.size == 4:
                return value
            value = writer.op(f"zext i16 {value} to i32")
            text = self._i("or", text, self._i("shl", value, 16)) if text else value
        return text

    # fragments

    def _fragments(self, side: Side, first: str, count: int) -> Callable[[str, int], list[list[str]]]:
        """A function that loads the words of ``count`` fragments from free index ``first`` on, in a stage at a step."""
        if side.size == 4 and not side.along:
            return self._words_of_columns(side, first, count)
        lane, left = self.lane, side.operand == 0
        low, high = self._i("and", lane, 7), self._i("lshr", lane, 4)
        middle = self._i("and", self._i("lshr", lane, 3), 1)
        if side.along == left:
            row, chunk = self._i("and", lane, 15), high
        else:
            row, chunk = self._i("add", self._i("shl", high, 3), low), middle
        addresses: dict[int, str] = {}
        if side.along:
            start = self._i("mul", self._i("add", first, row), STEP)
            for step in (0, 1):
                turned = self._turned(side, self._i("add", chunk, 2 * step), row)
                addresses[step] = self._sums(start, self._i("mul", turned, ALIGNED), side.start)
        else:
            start = self._i("mul", row, side.row_bytes)
            origin = self._i("add", self._i("lshr", first, 3), chunk)
            for number in range(count):
                turned = self._turned(side, self._i("add", origin, 2 * number), row)
                addresses[number] = self._sums(start, self._i("mul", turned, ALIGNED), side.start)
        name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4{'' if side.along else '.trans'}.b16.p3"

        def load(stage: str, step: int) -> list[list[str]]:
            found = []
            for number in range(count):
                key, plus = (step, FRAGMENT * number * STEP) if side.along else (number, step * 16 * side.row_bytes)
                pointer = self._in_block(self._i("add", addresses[key], stage), plus)
                found.append(self._parts(self.writer.call(name, WORDS, [("ptr addrspace(3)", pointer)]), WORDS))
            return found

        return load

    def _words_of_columns(self, side: Side, first: str, count: int) -> Callable[[str, int], list[list[str]]]:
        """The same for words whose rows hold free indices."""
        group, row = self._i("lshr", self.lane, 2), self._i("and", self.lane, 3)
        start = self._sums(self._i("mul", row, side.row_bytes), self._i("shl", self._i("and", group, 3), 2), side.start)
        origin = self._i("add", self._i("lshr", first, 2), self._i("lshr", group, 2))
        addresses = [
            self._i("add", start, self._i("mul", self._turned(side, self._i("add", origin, 2 * number), row), ALIGNED))
            for number in range(2 * count)
        ]
        order = [(0, 0), (1, 0), (0, 1), (1, 1)] if side.operand == 0 else [(0, 0), (0, 1), (1, 0), (1, 1)]

        def load(stage: str, step: int) -> list[list[str]]:
            found: list[list[str]] = []
            for number in range(count):
                at = [self._i("add", addresses[2 * number + half], stage) for half in (0, 1)]
                words = []
                for half, later in order:
                    pointer = self._in_block(at[half], (8 * step + 4 * later) * side.row_bytes)
                    words.append(self.writer.op(f"load i32, ptr addrspace(3) {pointer}"))
                found.append(words)
            return found

        return load

    def _parts(self, text: str, type_: str) -> list[str]:
        return [self.writer.op(f"extractvalue {type_} {text}, {k}") for k in range(4)]
