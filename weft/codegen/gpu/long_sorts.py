"""Writes sorts of long rows for the threads of a GPU: a pass for each 8 bits of a key, the lowest bits first.

    begin, words  make the words of a key, and positions; neither where only a key is moved
    count         counts how many elements of a tile have each value of the 8 bits
    offsets       says where the elements of each tile and value go
    move          sorts a tile in its block's memory, and moves its elements there, neighbours side by side
    values        moves the values to where the positions say

Launches of all passes are the same: the number of a pass is in working memory. Elements of a tile are in the order of
warp, item and lane.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft._base.target_model import GPU_THREADS, WARP
from weft.codegen.gpu import threads
from weft.codegen.gpu.sorts import KEPT_TILES, N_PASSES, N_TILES, POSITIONS, TILES, TOTALS, WORDS, SortWriter
from weft.loops.gpu import grid_sorts
from weft.loops.gpu.grid_sorts import DIGITS, ITEMS, NEAR, TILE, WARPS


class LongSortWriter(SortWriter):
    """Writes the other entries."""

    def body(self) -> None:
        name = self.entry.rstrip("0123456789")
        if name == "words":
            self._words(int(self.entry[len(name) :]))
            return
        ways = {"begin": self._begin, "count": self._count, "offsets": self._offsets, "move": self._move}
        (ways | {"values": self._values})[name]()

    def _tile(self, at: int = TILES) -> tuple[str, str, str]:
        """Row, number and first element of this block's tile."""
        row, tile = self._divided(self.block, at + 1, f"%w{at}")
        return row, tile, self.writer.index("mul", tile, str(TILE))

    def _in_order(self, first: str) -> list[tuple[str, str, str]]:
        """For each element of this thread: its index, an index that exists, and whether its own does."""
        writer = self.writer
        begin = writer.index(
            "add", writer.index("add", first, writer.index("mul", self.warp, str(ITEMS * WARP))), self.lane
        )
        found = []
        for k in range(ITEMS):
            index = writer.index("add", begin, str(k * WARP))
            inside = self._below(index, self.n)
            found.append((index, writer.choose_index(inside, index, first), inside))
        return found

    def _begin(self) -> None:
        self._state(0)

    def _state(self, key: int) -> None:
        """Note that no pass by this key is done yet, and how many there are."""
        writer = self.writer
        is_first = writer.compare_index("eq", writer.index("add", self.block, self.thread), "0")

        def put() -> None:
            self._store("i64", 8, "0", self.scratch, "0")
            count = N_PASSES if self.sorting.direct else str(grid_sorts.passes(self.sorting, key))
            self._store("i64", 8, count, self.scratch, "1")

        threads.when(writer, is_first, put)

    def _far(self, at: int, nbytes: int, odd: str | None, row: str) -> str:
        """A row of an array in working memory: the word ``at`` is its offset; in an ``odd`` pass the next word is added
        to it."""
        writer = self.writer
        base = writer.element("i8", self.scratch, f"%w{at}")
        if odd is not None:
            other = writer.element("i8", base, f"%w{at + 1}")
            base = writer.op(f"select i1 {odd}, ptr {other}, ptr {base}")
        return self._element("", nbytes, base, writer.index("mul", row, self.n))[1]

    def _words(self, key: int) -> None:
        writer, (row, _, first) = self.writer, self._tile()
        self._state(key)
        last = key == len(self.sorting.keys) - 1
        words, positions = self._far(WORDS, self.sorting.word_bytes, None, row), self._far(POSITIONS, 4, None, row)
        begin, wide = self._begins(row, self.n), self._wide(key)[0]
        items = self._in_order(first)
        found = [safe if last else self._whole(self._load("i32", 4, positions, safe)) for _, safe, _ in items]
        made = [self._key(key, self._at(begin, position), wide) for position in found]
        for (index, _, inside), position, text in zip(items, found, made, strict=True):

            def put(index: str = index, position: str = position, text: str = text) -> None:
                word = text if wide == self.word else writer.op(f"zext {wide} {text} to {self.word}")
                self._store(self.word, self.sorting.word_bytes, word, words, index)
                if last:
                    self._store("i32", 4, self._half(position), positions, index)

            threads.when(writer, inside, put)

    def _source(self, number: str, row: str) -> tuple[str, str]:
        """Address of a row's words before a pass, and whether the pass is odd."""
        writer, nbytes = self.writer, self.sorting.word_bytes
        odd = writer.op(f"trunc i64 {number} to i1")
        base = self._far(WORDS, nbytes, odd, row)
        if not self.sorting.direct:
            return base, odd
        given = self._row(0, nbytes, row)
        return writer.op(f"select i1 {writer.compare_index('eq', number, '0')}, ptr {given}, ptr {base}"), odd

    def _row(self, operand: int, nbytes: int, row: str) -> str:
        """A row of an operand whose rows lie one after the other."""
        return self._element("", nbytes, self._operand(operand), self.writer.index("mul", row, self.n))[1]

    @property
    def _carried(self) -> str:
        """The type of what travels with a key."""
        return f"i{8 * self.sorting.carried_bytes}"

    def _counted(self, first: str) -> list[str]:
        """The positions of this thread's elements of a tile."""
        writer = self.writer
        begin = writer.index("add", writer.index("mul", self.warp, str(ITEMS * WARP)), self.lane)
        start = self._half(writer.index("add", first, begin))
        return [writer.op(f"add i32 {start}, {k * WARP}") for k in range(ITEMS)]

    @property
    def _greatest(self) -> str:
        """The element that comes after all others: what stands for elements behind the end of a row, which are not
        moved."""
        order, nbytes, _, _ = self.sorting.keys[0]
        return str((1 << (8 * nbytes - 1)) - 1) if self.sorting.direct and order == "i" else "-1"

    def _items(self, first: str, arrays: Sequence[tuple[str, int, str, str]]) -> list[list[str]]:
        """This thread's elements of a tile, of arrays as (type, bytes, address, what is behind the end)."""
        writer = self.writer
        begin = writer.index("add", writer.index("mul", self.warp, str(ITEMS * WARP)), self.lane)
        left = writer.index("sub", self.n, first)
        bases = [self._element("", nbytes, base, first)[1] for _, nbytes, base, _ in arrays]

        def load(whole: bool) -> list[tuple[str, str]]:
            found = []
            for (type_, nbytes, _, none), base in zip(arrays, bases, strict=True):
                for k in range(ITEMS):
                    at = writer.index("add", begin, str(k * WARP))
                    inside = "true" if whole else self._below(at, left)
                    text = self._load(type_, nbytes, base, at if whole else writer.choose_index(inside, at, "0"))
                    found.append(
                        (type_, text if whole else writer.op(f"select i1 {inside}, {type_} {text}, {type_} {none}"))
                    )
            return found

        is_whole = writer.compare_index("sge", left, str(TILE))
        texts = writer.either(is_whole, lambda: load(True), lambda: load(False))
        return [texts[k : k + ITEMS] for k in range(0, len(texts), ITEMS)]

    def _tile_count(self, row: str, tile: str, digit: str) -> tuple[str, str]:
        """Where the counter of a tile and a digit is: an address and an index."""
        writer = self.writer
        number = writer.index("add", writer.index("mul", row, str(DIGITS)), digit)
        base = writer.element("i8", self.scratch, str(grid_sorts.LINE))
        return base, writer.index("add", writer.index("mul", number, N_TILES), tile)

    def _count(self) -> None:
        writer, (row, tile, first) = self.writer, self._tile()
        self._clear(1)
        number = self._load("i64", 8, self.scratch, "0")
        (items,) = self._items(
            first, [(self.word, self.sorting.word_bytes, self._source(number, row)[0], self._greatest)]
        )
        for item in items:
            pointer = self._counter(self._whole(self._digit_of(item, number)))
            writer.op(f'atomicrmw add ptr {pointer}, i32 1 syncscope("block") monotonic')
        threads.barrier(writer)
        total = self._load("i32", 4, self._counter(self.thread), "0")
        self._store("i32", 4, total, *self._tile_count(row, tile, self.thread))

    def _offsets(self) -> None:
        """A block for each row and digit: the counters of its tiles become sums of those before."""
        writer = self.writer
        per = writer.index("lshr", writer.index("add", N_TILES, str(GPU_THREADS - 1)), "8")
        low = writer.index("mul", self.thread, per)
        high = writer.minimum_index(writer.index("add", low, per), N_TILES)
        base, begin = self._tile_count("0", "0", self.block)

        def at(i: str) -> str:
            return self._load("i32", 4, base, writer.index("add", begin, i))

        (total,) = writer.loop(low, high, 1, [("i32", "0")], lambda i, now: [writer.op(f"add i32 {now[0]}, {at(i)}")])
        before = self._before(total)

        def put(i: str, now: list[str]) -> list[str]:
            count = at(i)
            self._store("i32", 4, now[0], base, writer.index("add", begin, i))
            return [writer.op(f"add i32 {now[0]}, {count}")]

        (whole,) = writer.loop(low, high, 1, [("i32", before)], put)
        totals = writer.element("i8", self.scratch, TOTALS)
        last = writer.compare_index("eq", self.thread, str(GPU_THREADS - 1))
        threads.when(writer, last, lambda: self._store("i32", 4, whole, totals, self.block))
        is_first = writer.compare_index("eq", writer.index("add", self.block, self.thread), "0")

        def step() -> None:
            done = writer.index("add", self._load("i64", 8, self.scratch, "0"), "1")
            self._store("i64", 8, done, self.scratch, "0")

        threads.when(writer, is_first, step)

    def _move(self) -> None:
        writer, sorting, (row, tile, first) = self.writer, self.sorting, self._tile()
        self._clear(WARPS)
        number = writer.index("sub", self._load("i64", 8, self.scratch, "0"), "1")
        is_last = writer.compare_index("eq", self._load("i64", 8, self.scratch, "1"), writer.index("add", number, "1"))
        base, odd = self._source(number, row)
        arrays = [(self.word, sorting.word_bytes, base, self._greatest)]
        nbytes, size = sorting.word_bytes, sorting.carried_bytes
        is_first = writer.compare_index("eq", number, "0")
        if sorting.carried >= 0:
            given = self._row(1 + 2 * sorting.carried, size, row)
            far = writer.op(f"select i1 {is_first}, ptr {given}, ptr {self._far(POSITIONS, size, odd, row)}")
            arrays.append((self._carried, size, far, "0"))
        elif size:
            arrays.append((self._carried, size, self._far(POSITIONS, size, odd, row), "0"))
        if sorting.direct and sorting.position_bytes:  # there are none yet
            begun, (_, *later) = self._items(first, arrays[:1])[0], arrays
            counted = self._counted(first)

            def read() -> list[tuple[str, str]]:
                return [("i32", text) for text in self._items(first, later)[0]]

            found, more = begun, [writer.either(is_first, lambda: [("i32", text) for text in counted], read)]
        else:
            found, *more = self._items(first, arrays)
        digits = [self._digit_of(item, number) for item in found]
        masks = [self._peers(digit) for digit in digits]
        ranks = [self._rank(digit, mask) for digit, mask in zip(digits, masks, strict=True)]
        threads.barrier(writer)
        mine = self._prefix_sums()
        totals = writer.index("add", writer.index("mul", row, str(DIGITS)), self.thread)
        start = self._before(self._load("i32", 4, writer.element("i8", self.scratch, TOTALS), totals))
        start = writer.op(f"add i32 {start}, {self._load('i32', 4, *self._tile_count(row, tile, self.thread))}")
        words = threads.shared(writer, str(NEAR + 4 * DIGITS))
        near = threads.shared(writer, str(NEAR + 4 * DIGITS + TILE * nbytes))
        starts = threads.shared(writer, str(NEAR))
        self._store("i32", 4, writer.op(f"sub i32 {start}, {mine}"), starts, self.thread)
        threads.barrier(writer)
        for k, (digit, rank) in enumerate(zip(digits, ranks, strict=True)):
            to = self._whole(writer.op(f"add i32 {rank}, {self._start(digit)}"))
            self._store(self.word, nbytes, found[k], words, to)
            for carried in more:
                self._store(self._carried, size, carried[k], near, to)
        threads.barrier(writer)
        self._written(row, first, number, (is_last, odd), (words, near, starts))

    def _written(self, row: str, first: str, number: str, passes: tuple[str, str], near: tuple[str, str, str]) -> None:
        """Store the elements of a tile, which lie in order in the block's memory, where they belong in the row."""
        writer, sorting, (is_last, odd), (words, carried, starts) = self.writer, self.sorting, passes, near
        nbytes, size = sorting.word_bytes, sorting.carried_bytes
        even = writer.op(f"xor i1 {odd}, true")
        goes_on = writer.op(f"xor i1 {is_last}, true")

        def target(at: int, each: int, operand: int) -> str:
            """Where the elements go: to working memory, or, in the last pass, to the result number ``operand``
            (-1: there is none)."""
            far = self._far(at, each, even, row)
            result = self._row(operand, each, row) if operand >= 0 else far
            return far if operand < 0 else writer.op(f"select i1 {is_last}, ptr {result}, ptr {far}")

        results = [2 + 2 * k if k >= 0 else -1 for k in (sorting.own, sorting.carried)]
        if sorting.direct and sorting.position_bytes:
            results[1] = 1 + 2 * len(sorting.values)
        to = target(WORDS, nbytes, results[0])
        beside = target(POSITIONS, size, results[1]) if size else ""

        def one(index: str) -> None:
            item = self._load(self.word, nbytes, words, index)
            start = self._load("i32", 4, starts, self._whole(self._digit_of(item, number)))
            at = self._whole(writer.op(f"add i32 {start}, {self._half(index)}"))
            if size:
                self._store(self._carried, size, self._load(self._carried, size, carried, index), beside, at)
            if sorting.own >= 0:
                self._store(self.word, nbytes, item, to, at)
            else:
                threads.when(writer, goes_on, lambda: self._store(self.word, nbytes, item, to, at))

        def once(index: str, _: list[str]) -> list[str]:
            one(index)
            return []

        def whole() -> None:
            for k in range(ITEMS):
                one(self._number(k))

        def part() -> None:
            writer.loop(self.thread, left, GPU_THREADS, [], once)

        left = writer.index("sub", self.n, first)
        writer.either(writer.compare_index("sge", left, str(TILE)), whole, part)

    def _values(self) -> None:
        writer, (row, _, first) = self.writer, self._tile(KEPT_TILES)
        positions = self._far(POSITIONS, 4, None, row)
        indices = [writer.index("add", first, self._number(k)) for k in range(ITEMS)]
        for index in indices:

            def one(index: str = index) -> None:
                self._moved(row, index, self._whole(self._load("i32", 4, positions, index)))

            threads.when(writer, self._below(index, self.kept), one)
