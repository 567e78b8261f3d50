"""What all entries of a sort have in common: words of keys, moves of values, and how a warp ranks elements by 8 bits.

The words of a key ascend as its elements do (``sort_words``). A warp finds by votes which of its lanes have the same 8
bits: each such element is behind those of lower lanes and those that the warp's counter has counted (Adinets, Merrill,
"Onesweep", 2022). So equal elements keep their order.
"""

from __future__ import annotations

from weft._base.target import Target
from weft._base.target_model import GPU_THREADS, WARP
from weft.codegen.cpu import families
from weft.codegen.gpu import threads
from weft.codegen.gpu.sort_words import ordered
from weft.codegen.writer import Writer
from weft.loops.gpu.grid_sorts import COUNTERS, DIGITS, WARPS, Sorting

BITS = 8
SHIFT = WARP.bit_length() - 1
# numbers of parameters (``grid_sorts.launches``)
TILES, KEPT_TILES, TOGETHER, WORDS, POSITIONS = 6, 9, 12, 16, 18
# words that are numbers: tiles of a row, rows of a block, where totals begin, passes
N_TILES, N_TOGETHER, TOTALS, N_PASSES = f"%w{TILES}", f"%w{TOGETHER}", "%w15", "%w20"


class SortWriter:
    """Writes one entry of a sort; those that inherit from it have the entries."""

    def __init__(self, sorting: Sorting, target: Target, entry: str) -> None:
        self.sorting, self.entry = sorting, entry
        self.writer = families.writer(target)
        self.word = f"i{8 * sorting.word_bytes}"  # of an element in working memory

    def write(self) -> Writer:
        writer = self.writer
        self.thread, self.block = threads.number(writer, "tid.x"), threads.number(writer, "ctaid.x")
        self.lane = writer.index("and", self.thread, str(WARP - 1))
        self.warp = writer.index("lshr", self.thread, str(SHIFT))
        self.scratch = writer.op("addrspacecast ptr addrspace(1) %scratch to ptr")
        self.rows, self.n, self.inner, self.kept = "%w0", "%w1", "%w2", "%w3"
        self.body()
        return writer

    def body(self) -> None:
        """The instructions of the entry."""
        raise NotImplementedError

    # numbers and addresses

    def _divided(self, p: str, at: int, divisor: str) -> tuple[str, str]:
        """``threads.divided`` by the numbers in words ``at`` and ``at`` + 1."""
        return threads.divided(self.writer, p, (f"%w{at}", f"%w{at + 1}"), divisor)

    def _begins(self, row: str, count: str) -> str:
        """The first element of a row of ``count`` elements."""
        writer = self.writer
        outer, column = self._divided(row, 4, self.inner)
        return writer.index("add", writer.index("mul", writer.index("mul", outer, count), self.inner), column)

    def _at(self, begin: str, index: str) -> str:
        return self.writer.index("add", begin, self.writer.index("mul", index, self.inner))

    def _operand(self, number: int) -> str:
        return self.writer.op(f"addrspacecast ptr addrspace(1) %o{number} to ptr")

    def _element(self, type_: str, nbytes: int, base: str, index: str) -> tuple[str, str]:
        """Type and address of an element."""
        writer = self.writer
        return type_, writer.element("i8", base, writer.index("mul", index, str(nbytes)))

    def _load(self, type_: str, nbytes: int, base: str, index: str) -> str:
        type_, pointer = self._element(type_, nbytes, base, index)
        return self.writer.op(f"load {type_}, ptr {pointer}, align {min(nbytes, 8)}")

    def _store(self, type_: str, nbytes: int, text: str, base: str, index: str) -> None:
        type_, pointer = self._element(type_, nbytes, base, index)
        self.writer.line(f"store {type_} {text}, ptr {pointer}, align {min(nbytes, 8)}")

    def _below(self, x: str, y: str) -> str:
        return self.writer.compare_index("slt", x, y)

    def _half(self, text: str) -> str:
        """An index as i32."""
        return self.writer.op(f"trunc i64 {text} to i32")

    def _whole(self, text: str) -> str:
        """An i32, which is not negative, as an index."""
        return self.writer.op(f"zext i32 {text} to i64")

    # keys

    def _ordered(self, key: int, text: str, wide: str) -> str:
        order, nbytes, _, infinity = self.sorting.keys[key]
        return ordered(self.writer, text, (order, nbytes, infinity, self.sorting.largest), wide)

    def _key(self, key: int, index: str, wide: str) -> str:
        """The word of a key's element."""
        _, nbytes, distance, _ = self.sorting.keys[key]
        pointer = self.writer.element("i8", self._operand(key), self.writer.index("mul", index, str(distance)))
        raw = self.writer.op(f"load i{8 * nbytes}, ptr {pointer}, align {nbytes}")
        return self._ordered(key, raw, wide)

    def _wide(self, key: int) -> tuple[str, int]:
        """Type and bytes of the words of a key."""
        nbytes = max(self.sorting.keys[key][1], 4)
        return f"i{8 * nbytes}", nbytes

    def _digit(self, word: str, type_: str, number: str) -> str:
        """8 bits of a word as i32; ``number`` (an index) from the lowest ones on."""
        writer = self.writer
        shift = writer.index("shl", number, "3")
        if type_ == "i32":
            shifted = writer.op(f"lshr i32 {word}, {self._half(shift)}")
            return writer.op(f"and i32 {shifted}, {DIGITS - 1}")
        return writer.op(f"and i32 {self._half(writer.op(f'lshr i64 {word}, {shift}'))}, {DIGITS - 1}")

    def _digit_of(self, item: str, number: str) -> str:
        """8 bits of an element in working memory."""
        if not self.sorting.direct:
            return self._digit(item, self.word, number)
        wide = self._wide(0)[0]
        return self._digit(self._ordered(0, item, wide), wide, number)

    def _moved(self, row: str, index: str, position: str) -> None:
        """Move the values and the position of element ``position`` of a row to ``index`` of the result."""
        sorting, first = self.sorting, len(self.sorting.keys)
        source, to = self._at(self._begins(row, self.n), position), self._at(self._begins(row, self.kept), index)
        types = ["<2 x i64>" if nbytes == 16 else f"i{8 * nbytes}" for nbytes in sorting.values]
        found = [
            self._load(type_, nbytes, self._operand(first + 2 * k), source)
            for k, (type_, nbytes) in enumerate(zip(types, sorting.values, strict=True))
        ]
        for k, (type_, nbytes, text) in enumerate(zip(types, sorting.values, found, strict=True)):
            self._store(type_, nbytes, text, self._operand(first + 2 * k + 1), to)
        if sorting.position_bytes:
            type_ = f"i{8 * sorting.position_bytes}"
            text = position if type_ == "i64" else self._half(position)
            self._store(type_, sorting.position_bytes, text, self._operand(first + 2 * len(types)), to)

    # what the threads of a block find together

    def _counter(self, index: str) -> str:
        return threads.shared(
            self.writer, self.writer.index("add", self.writer.index("mul", index, "4"), str(COUNTERS))
        )

    def _before(self, value: str) -> str:
        """The sum of the i32 of all threads before this one."""
        writer = self.writer
        total = value
        for k in range(SHIFT):
            given = [("i32", "-1"), ("i32", total), ("i32", str(1 << k)), ("i32", "0")]
            other = writer.call("llvm.nvvm.shfl.sync.up.i32", "i32", given)
            has = writer.compare_index("sge", self.lane, str(1 << k))
            total = writer.op(f"add i32 {total}, {writer.op(f'select i1 {has}, i32 {other}, i32 0')}")
        last = writer.compare_index("eq", self.lane, str(WARP - 1))
        threads.when(writer, last, lambda: self._store("i32", 4, total, threads.shared(writer, "0"), self.warp))
        threads.barrier(writer)
        for k in range(WARPS - 1):
            one = self._load("i32", 4, threads.shared(writer, "0"), str(k))
            counts = self._below(str(k), self.warp)
            total = writer.op(f"add i32 {total}, {writer.op(f'select i1 {counts}, i32 {one}, i32 0')}")
        threads.barrier(writer)
        return writer.op(f"sub i32 {total}, {value}")

    def _peers(self, digit: str) -> str:
        """Which lanes of the warp have the same digit."""
        writer, mask = self.writer, "-1"
        for bit in range(BITS):
            own = writer.op(f"and i32 {writer.op(f'lshr i32 {digit}, {bit}')}, 1")
            one = writer.op(f"icmp ne i32 {own}, 0")
            vote = writer.call("llvm.nvvm.vote.ballot.sync", "i32", [("i32", "-1"), ("i1", one)])
            others = writer.op(f"xor i32 {vote}, {writer.op(f'add i32 {own}, -1')}")
            mask = writer.op(f"and i32 {mask}, {others}")
        return mask

    def _rank(self, digit: str, mask: str) -> str:
        """How many elements of the warp with the same digit are before this one; the warp's counter counts them."""
        writer = self.writer
        below = writer.call("llvm.nvvm.read.ptx.sreg.lanemask.lt", "i32", [])
        lower = writer.op(f"and i32 {mask}, {below}")
        first = writer.op(f"icmp eq i32 {lower}, 0")
        index = writer.index("add", writer.index("mul", self.warp, str(DIGITS)), self._whole(digit))
        pointer = self._counter(index)

        def count() -> list[str]:
            number = writer.call("llvm.ctpop.i32", "i32", [("i32", mask)])
            return [writer.op(f'atomicrmw add ptr {pointer}, i32 {number} syncscope("block") monotonic')]

        (old,) = writer.when(first, count, ["i32"], ["0"], rare=False)
        leader = writer.call("llvm.cttz.i32", "i32", [("i32", mask), ("i1", "true")])
        old = writer.call(
            "llvm.nvvm.shfl.sync.idx.i32", "i32", [("i32", "-1"), ("i32", old), ("i32", leader), ("i32", "31")]
        )
        return writer.op(f"add i32 {old}, {writer.call('llvm.ctpop.i32', 'i32', [('i32', lower)])}")

    def _clear(self, count: int) -> None:
        for k in range(count):
            self._store("i32", 4, "0", self._counter(self._number(k)), "0")
        threads.barrier(self.writer)

    def _number(self, k: int) -> str:
        """The number of this thread's element ``k`` among those of all threads."""
        return self.writer.index("add", self.thread, str(k * GPU_THREADS))

    def _prefix_sums(self) -> str:
        """The counters of warps become the first position of each warp and digit; gives that of this thread's digit."""
        writer, firsts, total = self.writer, [], "0"
        for k in range(WARPS):
            firsts.append(total)
            total = writer.op(f"add i32 {total}, {self._load('i32', 4, self._counter(self._number(k)), '0')}")
        base = self._before(total)
        for k, first in enumerate(firsts):
            self._store("i32", 4, writer.op(f"add i32 {base}, {first}"), self._counter(self._number(k)), "0")
        return base

    def _start(self, digit: str) -> str:
        """The first position of a digit of this warp."""
        index = self.writer.index("add", self.writer.index("mul", self.warp, str(DIGITS)), self._whole(digit))
        return self._load("i32", 4, self._counter(index), "0")
