"""Writes products of matrices for the threads of a GPU, in the order of docs/NUMERICS.md.

entry tiles        64 x 64 elements of the result by a block of threads, 4 x 4 by each
entry tiles_large  128 x 128 elements, 8 x 8 by each

Eight terms of both operands are in the block's memory, turned so that neighbours lie along rows and columns; while
they are multiplied, the next ones are on their way. There too is what chains before this one gave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft._base.target import Target
from weft._base.target_model import GPU_THREADS
from weft.codegen.gpu import threads
from weft.codegen.gpu.products import ProductWriter
from weft.codegen.memory_access.memory_words import whole
from weft.codegen.writer import Writer
from weft.loops.gpu.grid_products import CHAIN, DEPTH, PAD, PLAIN_LARGE, PLAIN_SMALL, Product, stage_words

SIDE = 16  # threads of a block, each way
VECTOR = 4  # elements of a fragment that lie side by side
Fetch = Callable[[str], list[list[str]]]
Store = Callable[[list[list[str]], str], None]


class TileProductWriter(ProductWriter):
    """Writes one entry."""

    def __init__(self, product: Product, target: Target, entry: str) -> None:
        super().__init__(product, target)
        self.entry, self.tile = entry, PLAIN_LARGE if entry == "tiles_large" else PLAIN_SMALL
        self.each = self.tile.rows // SIDE  # rows and columns of a thread
        self.count = self.each**2
        self.size = self.element.size // self.parts  # bytes of a number
        self.pitch = self.tile.rows + PAD
        self.plane = DEPTH * self.pitch * self.size  # bytes of a part of the terms of an operand
        self.stage = stage_words(self.tile) * self.size * self.parts

    def write(self) -> Writer:
        writer, block = self.writer, self._begin()
        if self.entry == "tiles_large":
            self._choose_tile(block, self.tile)
        else:
            self.row, self.column = self._corner_of(block, self.tile.rows)
        self.t = self._low(threads.number(writer, "tid.x"))
        lane, warp = self._i("and", self.t, 31), self._i("lshr", self.t, 5)
        # 4 x 8 threads of a warp: few read what lies in different rows of banks
        across = self._i("add", self._i("and", lane, 7), self._i("shl", self._i("and", warp, 1), 3))
        down = self._i("add", self._i("lshr", lane, 3), self._i("shl", self._i("lshr", warp, 1), 2))
        self.down, self.across = (self._i("shl", x, 2) for x in (down, across))
        self._finish(self._sums_of_all())
        return writer

    # tiles in the block's memory

    def _fetches(self, operand: int) -> tuple[Fetch, Store]:
        """Functions that load this thread's elements of a tile, from a term on, and store them in a stage."""
        writer, product, register = self.writer, self.product, self.element.register
        along = product.a_along if operand == 0 else not product.b_along
        begin, end, kind = ((self.row, self.m, "rows"), (self.column, self.n, "columns"))[operand]
        bits = (DEPTH if along else self.tile.rows).bit_length() - 1
        low, high = self._i("and", self.t, (1 << bits) - 1), self._i("lshr", self.t, bits)
        step, passes = GPU_THREADS >> bits, self.tile.rows * DEPTH // GPU_THREADS
        highs = [self._wide(self._i("add", high, p * step)) for p in range(passes)]
        indices = highs if along else [self._wide(low)]
        free = [self._offset(kind, self._clamped(writer.index("add", begin, index), end), 0) for index in indices]
        term, index = (low, high) if along else (high, low)
        terms = [self._wide(low)] if along else highs
        to = self._i("mul", self._i("add", self._i("mul", term, self.pitch), index), self.size)
        to = self._i("add", to, operand * self.plane * self.parts)
        plus = step * self.size * (1 if along else self.pitch)
        beside = self._beside(operand, free, terms)

        def fetch(at: str) -> list[list[str]]:
            def near() -> list[tuple[str, str]]:
                return [(register, text) for text in self._whole(operand, beside, at)]

            def careful() -> list[tuple[str, str]]:
                return [(register, text) for text in self._part(operand, free, terms, at)]

            if not beside:
                found = [text for _, text in careful()]
            else:
                last = writer.index("add", at, str(DEPTH))
                found = writer.either(writer.compare_index("sle", last, self.k), near, careful)
            return [found[self.parts * p : self.parts * (p + 1)] for p in range(passes)]

        def store(values: list[list[str]], stage: str) -> None:
            start = self._i("add", to, stage)
            for p, parts in enumerate(values):
                for k, text in enumerate(parts):
                    pointer = self._in_block(start, p * plus + k * self.plane)
                    writer.line(f"store {register} {text}, ptr addrspace(3) {pointer}")

        return fetch, store

    def _clamped(self, at: str, end: str) -> str:
        """A row or column; 0 for one that is outside, whose sums nobody reads."""
        return self.writer.choose_index(self.writer.compare_index("slt", at, end), at, "0")

    def _beside(self, operand: int, free: list[str], terms: list[str]) -> list[str]:
        """The bytes of a thread's elements behind a tile's first term; none if terms have several dimensions."""
        writer = self.writer
        if self.dims["summed"].number != 1:
            return []
        offsets = [writer.index("add", x, self._offset("summed", term, operand)) for x in free for term in terms]
        return [writer.index("mul", offset, str(self.product.source.itemsize)) for offset in offsets]

    def _whole(self, operand: int, beside: list[str], at: str) -> list[str]:
        """The elements of a tile whose terms are all there."""
        begin = self._offset("summed", at, operand)
        start = self.writer.element(whole(self.product.source), self.base[operand], begin)
        return [part.text for offset in beside for part in self._at(self.writer.element("i8", start, offset)).parts]

    def _part(self, operand: int, free: list[str], terms: list[str], at: str) -> list[str]:
        """Those of any tile; for terms that are not there some that change no sum, not even -0."""
        writer, register = self.writer, self.element.register
        nothing = "-0.0" if operand == 0 and self._zero == "0.0" else self._zero
        numbers = [writer.index("add", at, term) for term in terms]
        inside = [writer.compare_index("slt", number, self.k) for number in numbers]
        offsets = [self._offset("summed", self._clamped(number, self.k), operand) for number in numbers]
        found = []
        for start in free:
            for offset, ok in zip(offsets, inside, strict=True):
                value = self._load(operand, writer.index("add", start, offset))
                found += [writer.op(f"select i1 {ok}, {register} {x.text}, {register} {nothing}") for x in value.parts]
        return found

    def _fragment(self, operand: int, stage: str, term: int) -> list[list[str]]:
        """The parts of this thread's elements of an operand, of a term: two groups of four where there are eight."""
        writer, register = self.writer, self.element.register
        first = self._i("mul", (self.down, self.across)[operand], self.size)
        start = self._i("add", first, stage)
        type_, parts = f"<{VECTOR} x {register}>", list[list[str]]()
        for k in range(self.parts):
            found: list[str] = []
            for group in range(self.each // VECTOR):
                plus = (operand * self.parts + k) * self.plane
                plus += (term * self.pitch + group * SIDE * VECTOR) * self.size
                pointer = self._in_block(start, plus)
                vector = writer.op(f"load {type_}, ptr addrspace(3) {pointer}, align {min(16, VECTOR * self.size)}")
                found += [writer.op(f"extractelement {type_} {vector}, i64 {i}") for i in range(VECTOR)]
            parts.append(found)
        return [list(element) for element in zip(*parts, strict=True)]

    # the loop over terms

    def _sums_of_all(self) -> list[list[str]]:
        """The parts of this thread's elements."""
        writer, stage, register = self.writer, self.stage, self.element.register
        fetches = [self._fetches(operand) for operand in (0, 1)]
        zeros = [self._zero] * (self.count * self.sums)

        def put(values: Sequence[list[list[str]]], to: str) -> None:
            for (_, store), some in zip(fetches, values, strict=True):
                store(some, to)
            threads.barrier(writer)

        put([fetch("0") for fetch, _ in fetches], "0")

        def terms(at: str, now: list[str]) -> list[str]:
            sums, read = now[:-1], now[-1]
            after = writer.index("add", at, str(DEPTH))
            following = [fetch(after) for fetch, _ in fetches]
            fragments = [self._fragment(operand, read, 0) for operand in (0, 1)]
            for term in range(DEPTH):
                left, right = fragments
                if term + 1 < DEPTH:
                    fragments = [self._fragment(operand, read, term + 1) for operand in (0, 1)]
                for i in range(self.count):
                    mine = slice(self.sums * i, self.sums * (i + 1))
                    sums[mine] = self._term(left[i // self.each], right[i % self.each], sums[mine])
            read = self._i("sub", stage, read)
            put(following, read)
            ended = writer.compare_index("eq", writer.index("and", after, str(CHAIN - 1)), "0")
            ended = writer.op(f"and i1 {ended}, {writer.compare_index('slt', after, self.k)}")
            first = writer.compare_index("eq", after, str(CHAIN))
            sums = writer.when(
                ended, lambda: self._kept(sums, first) or zeros, [register] * len(sums), sums, rare=False
            )
            return [*sums, read]

        carried = [*[(register, text) for text in zeros], ("i32", "0")]
        sums = writer.loop("0", self.k, DEPTH, carried, terms)[:-1]
        found = [text for element in self._chains(sums) for text in element]
        several = writer.compare_index("sgt", self.k, str(CHAIN))
        found = writer.when(several, lambda: self._totals(found), [register] * len(found), found, rare=False)
        return [found[self.parts * i : self.parts * (i + 1)] for i in range(self.count)]

    def _chains(self, sums: list[str]) -> list[list[str]]:
        return [self._chain(sums[self.sums * i : self.sums * (i + 1)]) for i in range(self.count)]

    # totals of the chains before, in the block's memory

    def _kept_at(self, number: int) -> str:
        start = self._i("add", self._i("mul", self.t, self.size), 2 * self.stage)
        return self._in_block(start, number * GPU_THREADS * self.size)

    def _totals(self, found: list[str]) -> list[str]:
        """What the chains before gave, with this one."""
        loads = [f"load {self.element.register}, ptr addrspace(3) {self._kept_at(k)}" for k in range(len(found))]
        return [self._sum(self.writer.op(load), text) for load, text in zip(loads, found, strict=True)]

    def _kept(self, sums: list[str], is_first: str) -> None:
        writer, register = self.writer, self.element.register
        found = [text for element in self._chains(sums) for text in element]
        others = writer.op(f"xor i1 {is_first}, true")
        found = writer.when(others, lambda: self._totals(found), [register] * len(found), found, rare=False)
        for k, text in enumerate(found):
            writer.line(f"store {register} {text}, ptr addrspace(3) {self._kept_at(k)}")

    # the end

    def _finish(self, found: list[list[str]]) -> None:
        writer = self.writer

        def number(k: int, begin: str, mine: str) -> str:
            group, within = divmod(k, VECTOR)
            return writer.index(
                "add", writer.index("add", begin, self._wide(mine)), str(group * SIDE * VECTOR + within)
            )

        if self.epilogue is not None:
            further = [SIDE * VECTOR << bit for bit in range((self.each // VECTOR).bit_length() - 1)]
            bits = [(0, across) for across in (1, 2, *further)] + [(down, 0) for down in (1, 2, *further)]
            first = number(0, self.row, self.down), number(0, self.column, self.across)
            self._consume([text for parts in found for text in parts], self.tile, first, bits)
            return
        columns = [number(j, self.column, self.across) for j in range(self.each)]
        inside = [writer.compare_index("slt", column, self.n) for column in columns]

        def one(i: int, row: str) -> None:
            for j, column in enumerate(columns):
                parts = found[i * self.each + j]
                threads.when(writer, inside[j], lambda column=column, parts=parts: self._store(row, column, parts))

        for i in range(self.each):
            row = number(i, self.row, self.down)
            threads.when(writer, writer.compare_index("slt", row, self.m), lambda i=i, row=row: one(i, row))
