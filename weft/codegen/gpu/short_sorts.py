"""Writes sorts of short rows for the threads of a GPU: in one launch, in the memory of blocks.

ranks      a thread for an element: its position is how many elements of the row are before it
row_sort   a block for a row, whose positions are sorted, by 8 bits of a key after the other
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from weft._base.target_model import GPU_THREADS, WARP
from weft.codegen.gpu import threads
from weft.codegen.gpu.sorts import N_TOGETHER, TOGETHER, SortWriter
from weft.loops.gpu import grid_sorts
from weft.loops.gpu.grid_sorts import DIGITS, NEAR, WARPS

ENTRIES = ("ranks", "row_sort")
AT_ONCE = 4  # elements that are compared in a turn of a loop: an estimate


class ShortSortWriter(SortWriter):
    """Writes these entries."""

    def body(self) -> None:
        {"ranks": self._ranks, "row_sort": self._row_sort}[self.entry]()

    def _ranks(self) -> None:
        writer, keys = self.writer, range(len(self.sorting.keys))
        alone = writer.compare_index("eq", self.inner, "1")  # rows lie one after the other, not side by side
        quotient, rest = self._divided(self.thread, TOGETHER + 1, writer.choose_index(alone, self.n, N_TOGETHER))
        within, index = writer.choose_index(alone, quotient, rest), writer.choose_index(alone, rest, quotient)
        row = writer.index("add", writer.index("mul", self.block, N_TOGETHER), within)
        count = writer.index("mul", self.n, N_TOGETHER)
        inside = writer.op(f"and i1 {self._below(self.thread, count)}, {self._below(row, self.rows)}")
        first, bases, at = writer.index("mul", within, self.n), [], 0
        begin = writer.choose_index(inside, self._begins(row, self.n), "0")
        own = writer.choose_index(inside, index, "0")
        words = [self._key(k, self._at(begin, own), self._wide(k)[0]) for k in keys]
        for k in keys:
            base = threads.shared(writer, str(at))
            slot, put = writer.index("add", first, own), functools.partial(self._store, *self._wide(k), words[k], base)
            threads.when(writer, inside, functools.partial(put, slot))
            bases.append(self._element("", self._wide(k)[1], base, first)[1])
            at += GPU_THREADS * self._wide(k)[1]
        threads.barrier(writer)

        def rank() -> None:
            found = self._counted(bases, words, "0", own, True)
            found = writer.op(f"add i32 {found}, {self._counted(bases, words, own, self.n, False)}")
            found = self._whole(found)
            threads.when(writer, self._below(found, self.kept), lambda: self._moved(row, found, own))

        threads.when(writer, inside, rank)

    def _counted(self, bases: Sequence[str], words: Sequence[str], low: str, high: str, equal: bool) -> str:
        """How many elements from ``low`` to ``high`` are less than the given one, or equal to it."""
        writer = self.writer

        def before(j: str) -> str:
            is_before = "true" if equal else "false"
            for k in reversed(range(len(words))):
                type_ = self._wide(k)[0]
                word = self._load(*self._wide(k), bases[k], j)
                less = writer.op(f"icmp {'ule' if is_before == 'true' else 'ult'} {type_} {word}, {words[k]}")
                if is_before in ("true", "false"):
                    is_before = less
                    continue
                same = writer.op(f"icmp eq {type_} {word}, {words[k]}")
                is_before = writer.op(f"or i1 {less}, {writer.op(f'and i1 {same}, {is_before}')}")
            return writer.op(f"zext i1 {is_before} to i32")

        def several(count: int) -> Callable[[str, list[str]], list[str]]:
            def some(j: str, now: list[str]) -> list[str]:
                total = now[0]
                for k in range(count):
                    total = writer.op(f"add i32 {total}, {before(writer.index('add', j, str(k)))}")
                return [total]

            return some

        length = writer.index("and", writer.index("sub", high, low), str(-AT_ONCE))
        middle = writer.index("add", low, length)
        (total,) = writer.loop(low, middle, AT_ONCE, [("i32", "0")], several(AT_ONCE))
        (total,) = writer.loop(middle, high, 1, [("i32", total)], several(1))
        return total

    def _row_sort(self) -> None:
        writer, row, keys = self.writer, self.block, len(self.sorting.keys)
        count = writer.index("and", writer.index("add", self.n, "7"), "-8")
        most = max([self._wide(k)[1] for k in range(keys)])
        self.near = threads.shared(writer, str(NEAR))
        halves = [writer.index("mul", count, str(most + 2 * k)) for k in range(3)]  # two arrays of positions, and ranks
        arrays = [writer.element("i8", self.near, at) for at in halves]
        begin = self._begins(row, self.n)
        for key in reversed(range(keys)):
            type_, nbytes = self._wide(key)

            def read(i: str, _: list[str], key: int = key) -> list[str]:
                self._store(*self._wide(key), self._key(key, self._at(begin, i), self._wide(key)[0]), self.near, i)
                if key == keys - 1:
                    self._store("i16", 2, writer.op(f"trunc i64 {i} to i16"), arrays[0], i)
                return []

            writer.loop(self.thread, self.n, GPU_THREADS, [], read)

            def digit(number: str, _: list[str], type_: str = type_, nbytes: int = nbytes) -> list[str]:
                odd = writer.op(f"trunc i64 {number} to i1")
                source, target = (
                    writer.op(f"select i1 {odd}, ptr {x}, ptr {y}") for x, y in (arrays[1::-1], arrays[:2])
                )
                self._near_digit((type_, nbytes), number, source, target, arrays[2])
                return []

            writer.loop("0", str(grid_sorts.passes(self.sorting, key)), 1, [], digit)

        def move(i: str, _: list[str]) -> list[str]:
            position = writer.op(f"zext i16 {self._load('i16', 2, arrays[0], i)} to i64")
            self._moved(row, i, position)
            return []

        writer.loop(self.thread, self.kept, GPU_THREADS, [], move)

    def _near_digit(self, wide: tuple[str, int], number: str, source: str, target: str, ranks: str) -> None:
        """Sort the positions of a row by 8 bits of their words."""
        writer = self.writer
        self._clear(WARPS)
        chunks = writer.index("lshr", writer.index("add", self.n, str(GPU_THREADS - 1)), "8")
        first = writer.index("add", writer.index("mul", self.warp, writer.index("mul", chunks, str(WARP))), self.lane)

        def at(chunk: str) -> tuple[str, str, str, str]:
            index = writer.index("add", first, writer.index("mul", chunk, str(WARP)))
            inside = self._below(index, self.n)
            safe = writer.choose_index(inside, index, "0")
            position = writer.op(f"zext i16 {self._load('i16', 2, source, safe)} to i64")
            digit = self._digit(self._load(*wide, self.near, position), wide[0], number)
            return index, inside, position, writer.op(f"select i1 {inside}, i32 {digit}, i32 {DIGITS - 1}")

        def count(chunk: str, nothing: list[str]) -> list[str]:
            index, inside, _, digit = at(chunk)
            rank = writer.op(f"trunc i32 {self._rank(digit, self._peers(digit))} to i16")
            threads.when(writer, inside, lambda: self._store("i16", 2, rank, ranks, index))
            return nothing

        def move(chunk: str, _: list[str]) -> list[str]:
            index, inside, position, digit = at(chunk)

            def one() -> None:
                rank = writer.op(f"zext i16 {self._load('i16', 2, ranks, index)} to i32")
                to = self._whole(writer.op(f"add i32 {rank}, {self._start(digit)}"))
                self._store("i16", 2, writer.op(f"trunc i64 {position} to i16"), target, to)

            threads.when(writer, inside, one)
            return []

        writer.loop("0", chunks, 1, [], count)
        threads.barrier(writer)
        self._prefix_sums()
        threads.barrier(writer)
        writer.loop("0", chunks, 1, [], move)
        threads.barrier(writer)
