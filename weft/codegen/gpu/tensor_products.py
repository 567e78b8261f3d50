"""Writes matrix products for tensor cores: float16, bfloat16 and TF32, with sums of float32 in the order of the terms.

entry mma          64 x 64 elements by a block; any strides, element by element
entry mma_aligned  the same tiles; 16 bytes at a time go to the block's memory behind the threads' backs
entry mma_large    likewise 128 x 256 elements, 64 x 64 by each warp

"""

from __future__ import annotations

from collections.abc import Callable

from weft._base.target import Target
from weft._base.target_model import WARP
from weft.codegen.gpu import threads
from weft.codegen.gpu.tensor_tiles import FRAGMENT, TensorTiles
from weft.codegen.writer import Writer
from weft.loops import elements
from weft.loops.gpu.grid_products import LARGE, SMALL, STAGES, Product, n_words

FLOATS = "{float, float, float, float}"
_KINDS = {"E": "m16n8k16.row.col.bf16", "e": "m16n8k16.row.col.f32.f32", "f": "m16n8k8.row.col.tf32"}


class TensorWriter(TensorTiles):
    """Writes one entry."""

    def __init__(self, product: Product, target: Target, entry: str) -> None:
        super().__init__(product, target, LARGE if entry == "mma_large" else SMALL)
        self.entry, self.type = entry, elements.of(product.stored).memory
        self.kind = _KINDS["f" if product.source.itemsize == 4 else "e" if product.source.kind == "f" else "E"]

    # the frame

    def write(self) -> Writer:
        writer, tile = self.writer, self.tile
        block = self._begin()
        warp = self._i("lshr", self.t, 5)
        across = tile.columns // tile.warp_columns
        self.down = self._i("mul", self._i("lshr", warp, across.bit_length() - 1), tile.warp_rows)
        self.across = self._i("mul", self._i("and", warp, across - 1), tile.warp_columns)
        whole = list(self.base)
        if self.entry != "mma":
            self._choose_tile(block, self.tile)
            self._finish(self._pipelined())
            return writer
        count = writer.index("mul", writer.index("mul", "%w8", "%w9"), "%w3")
        blocks = f"%w{n_words(self.product) - 1}"

        def item(at: str, _: list[str]) -> list[str]:  # as many as there are, however many blocks
            self.base = list(whole)
            self.row, self.column = self._corner_of(at, SMALL.rows)
            self._finish(self._in_turn())
            threads.barrier(writer)
            return []

        writer.loop(block, count, blocks, [], item)
        return writer

    @property
    def _zeros(self) -> list[tuple[str, str]]:
        tile = self.tile
        return [("float", "0.0")] * (tile.warp_rows * tile.warp_columns // WARP)

    def _loaders(self) -> Callable[[str, int], list[str]]:
        """A function that gives all words of a step of a stage: those of the left operand, then of the right one."""
        tile, product = self.tile, self.product
        a = self._fragments(self.a, self.down, tile.warp_rows // FRAGMENT)
        b = self._fragments(self.b, self.across, tile.warp_columns // FRAGMENT)

        def load(stage: str, step: int) -> list[str]:
            words = [word for fragment in (*a(stage, step), *b(stage, step)) for word in fragment]
            return [self._in_tf32(word) for word in words] if product.source.itemsize == 4 else words

        return load

    def _in_tf32(self, word: str) -> str:
        """A float32 to the 11 bits of TF32, halves away from zero."""
        return self.writer.call(
            "llvm.nvvm.f2tf32.rna", "i32", [("float", self.writer.op(f"bitcast i32 {word} to float"))]
        )

    def _stepped(self, words: list[str], sums: list[str]) -> list[str]:
        """The sums after a step. They are of fragments in rows, 16 x 8 elements each, 4 in a thread."""
        writer, tile, half = self.writer, self.tile, "<2 x half>"
        type_ = "i32"
        if ".f32.f32" in self.kind:
            type_, words = half, [writer.op(f"bitcast i32 {word} to {half}") for word in words]
        downs, acrosses = tile.warp_rows // FRAGMENT, tile.warp_columns // 8
        left, right = words[: 4 * downs], words[4 * downs :]
        now = list(sums)
        for i in range(downs):
            for j in range(acrosses) if i % 2 == 0 else reversed(range(acrosses)):  # a neighbour's words are at hand
                at = 4 * (i * acrosses + j)
                given = [(type_, x) for x in (*left[4 * i : 4 * i + 4], *right[2 * j : 2 * j + 2])]
                given += [("float", x) for x in now[at : at + 4]]
                now[at : at + 4] = self._parts(writer.call(f"llvm.nvvm.mma.{self.kind}", FLOATS, given), FLOATS)
        return now

    # the loop over terms

    def _pipelined(self) -> list[str]:
        """STAGES - 1 stages are under way, and the words of the next step are loaded before this one is multiplied."""
        writer, stage = self.writer, self.stage
        starts = [self._copies(side) for side in (self.a, self.b)]
        words_of = self._loaders()

        def load(at: str, to: str) -> None:
            for start in starts:
                start(at, to)
            writer.call("llvm.nvvm.cp.async.commit.group", "void", [])

        def arrived() -> None:
            writer.call("llvm.nvvm.cp.async.wait.group", "void", [("i32", str(STAGES - 2))])
            threads.barrier(writer)

        def following(at: str) -> str:
            after = self._i("add", at, stage)
            return writer.op(f"select i1 {writer.op(f'icmp eq i32 {after}, {STAGES * stage}')}, i32 0, i32 {after}")

        for number in range(STAGES - 1):
            load(str(number * self.terms), str(number * stage))
        arrived()
        first, sums = words_of("0", 0), self._zeros
        state = [("i32", word) for word in first] + [("i32", "0"), ("i32", str((STAGES - 1) * stage))]

        def terms(at: str, now: list[str]) -> list[str]:
            totals, words, (read, written) = now[: len(sums)], now[len(sums) : -2], now[-2:]
            later = words_of(read, 1)
            load(writer.index("add", at, str((STAGES - 1) * self.terms)), written)
            totals = self._stepped(words, totals)
            arrived()
            read = following(read)
            words = words_of(read, 0)
            return [*self._stepped(later, totals), *words, read, following(written)]

        return writer.loop("0", self.k, self.terms, [*sums, *state], terms)[: len(sums)]

    def _in_turn(self) -> list[str]:
        """Words are brought by registers, into one stage while the other is multiplied."""
        writer, stage = self.writer, self.stage
        fetches = [self._fetches(side) for side in (self.a, self.b)]
        words_of = self._loaders()

        def put(words: list[list[str]], to: str) -> None:
            for (_, store), some in zip(fetches, words, strict=True):
                store(some, to)
            threads.barrier(writer)

        put([fetch("0") for fetch, _ in fetches], "0")
        sums = self._zeros

        def terms(at: str, now: list[str]) -> list[str]:
            totals, read = now[:-1], now[-1]
            later = [fetch(writer.index("add", at, str(self.terms))) for fetch, _ in fetches]
            for step in (0, 1):
                totals = self._stepped(words_of(read, step), totals)
            read = self._i("sub", stage, read)
            put(later, read)
            return [*totals, read]

        return writer.loop("0", self.k, self.terms, [*sums, ("i32", "0")], terms)[:-1]

    # the end

    def _finish(self, sums: list[str]) -> None:
        """Stores the sums, two columns at once where they lie at an even offset."""
        writer = self.writer
        group, pair = self._i("lshr", self.lane, 2), self._i("shl", self._i("and", self.lane, 3), 1)
        row = writer.index("add", self.row, self._wide(self._i("add", self.down, group)))
        column = writer.index("add", self.column, self._wide(self._i("add", self.across, pair)))
        if self.epilogue is not None:
            downs, acrosses = self.tile.warp_rows // FRAGMENT, self.tile.warp_columns // 8
            bits = [(0, 1), (8, 0), *[(0, 8 << bit) for bit in range(acrosses.bit_length() - 1)]]
            bits += [(FRAGMENT << bit, 0) for bit in range(downs.bit_length() - 1)]
            self._consume(sums, self.tile, (row, column), bits)
            return
        if self.entry != "mma_aligned":  # a large tile is chosen where all pairs are
            self._store_all(sums, row, column, paired=self.entry == "mma_large")
            return
        even = self._pairs()
        threads.when(writer, even, lambda: self._store_all(sums, row, column, True))
        threads.when(writer, writer.op(f"xor i1 {even}, true"), lambda: self._store_all(sums, row, column, False))

    def _pairs(self) -> str:
        """Whether the first of two columns always lies at an even offset."""
        writer = self.writer
        odd, batch = self.n, self.dims["batch"]
        shift = str(self.product.stored.itemsize.bit_length() - 1)
        for d in range(self.dims["rows"].number):
            odd = writer.index("or", odd, f"%w{self.dims['rows'].begin + 5 * d + 4}")
        for d in range(batch.number):
            odd = writer.index("or", odd, writer.index("lshr", f"%w{batch.begin + 6 * d + 5}", shift))
        address = writer.index("lshr", writer.op(f"ptrtoint ptr {self.base[2]} to i64"), shift)
        odd = writer.index("and", writer.index("or", odd, address), "1")
        return writer.compare_index("eq", odd, "0")

    def _store_all(self, sums: list[str], row: str, column: str, paired: bool) -> None:
        writer, tile = self.writer, self.tile
        acrosses = tile.warp_columns // 8

        def one(i: int, at: str) -> None:
            start = writer.element(self.type, self.base[2], self._offset("rows", at, 1))
            for j in range(acrosses):
                where = writer.index("add", column, str(8 * j))
                x, y = sums[4 * (i // 2 * acrosses + j) + 2 * (i % 2) :][:2]
                self._put(start, where, (x, y), paired)

        for i in range(2 * (tile.warp_rows // FRAGMENT)):
            at = writer.index("add", row, str(8 * i))
            threads.when(writer, writer.compare_index("slt", at, self.m), lambda i=i, at=at: one(i, at))

    def _put(self, start: str, column: str, values: tuple[str, str], paired: bool) -> None:
        writer, type_, size = self.writer, self.type, self.product.stored.itemsize
        x, y = [self.memory.leave(self.product.stored, self._rounded([text]).part).text for text in values]

        def one(text: str, at: str) -> None:
            writer.line(f"store {type_} {text}, ptr {writer.element(type_, start, at)}")

        def both() -> None:
            first = writer.op(f"insertelement <2 x {type_}> poison, {type_} {x}, i32 0")
            pair = writer.op(f"insertelement <2 x {type_}> {first}, {type_} {y}, i32 1")
            writer.line(f"store <2 x {type_}> {pair}, ptr {writer.element(type_, start, column)}, align {2 * size}")

        if paired:
            threads.when(writer, writer.compare_index("slt", column, self.n), both)
            return
        for k, text in enumerate((x, y)):
            at = writer.index("add", column, str(k))
            threads.when(writer, writer.compare_index("slt", at, self.n), lambda text=text, at=at: one(text, at))
