"""Writes matrix products for the threads of a GPU, in the order of docs/NUMERICS.md.

tiles    64 x 64 elements of the result by a block of threads, 4 x 4 by each; 16 terms of both operands at a time
         are in the block's memory
vector   16 threads (of float32) for an element, each with the sum of every 16th term; a fold by shuffles
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft._base.record import NamedTuple
from weft._base.target import Target
from weft._base.target_model import GPU_THREADS
from weft.codegen.cpu import families
from weft.codegen.emitter import Emitter, Value
from weft.codegen.gpu import threads
from weft.codegen.lanes import Lanes, V
from weft.codegen.memory import Memory
from weft.codegen.memory_words import whole
from weft.codegen.writer import Writer
from weft.loops import elements
from weft.loops.grid_products import DEPTH, PITCH, SIDE, Product, chains

BLOCK = 512  # terms of a chain
EACH = 4  # rows and columns of a thread
ROWS = SIDE // EACH  # of threads, each way


class Dims(NamedTuple):
    """Dimensions of one kind: the word at which they begin, how many there are, and how many strides each has."""

    begin: int
    number: int
    strides: int


class ProductWriter:
    """Writes the only entry of a product."""

    def __init__(self, product: Product, target: Target) -> None:
        self.product, self.target = product, target
        self.writer = families.writer(target)
        self.one = Lanes(self.writer, 1)
        self.memory = Memory(self.one, target)
        self.element = elements.of(product.result)
        begin, self.dims = 10, dict[str, Dims]()
        for kind, count, strides in (
            ("rows", product.rows, 2), ("columns", product.columns, 1), ("summed", product.summed, 2),
            ("batch", product.batch, 3),
        ):  # fmt: skip
            self.dims[kind] = Dims(begin, count, strides)
            begin += count * (3 + strides)

    def write(self) -> Writer:
        writer = self.writer
        self.base = [writer.op(f"addrspacecast ptr addrspace(1) %o{k} to ptr") for k in range(3)]
        self.m, self.n, self.k = "%w0", "%w1", "%w2"
        self.thread, block = threads.number(writer, "tid.x"), threads.number(writer, "ctaid.x")
        if self.product.form == "vector":
            self._vector(block)
        else:
            self._tile(block)
        return writer

    # numbers

    def _divided(self, p: str, at: int, divisor: str) -> tuple[str, str]:
        writer = self.writer
        quotient = writer.index("lshr", writer.index("mul", p, f"%w{at}"), f"%w{at + 1}")
        return quotient, writer.index("sub", p, writer.index("mul", quotient, divisor))

    def _offset(self, kind: str, p: str, stride: int) -> str:
        """The offset of number ``p`` of the rows, columns, terms or products, by stride number ``stride`` of each."""
        writer, dims, offset = self.writer, self.dims[kind], "0"
        for d in reversed(range(dims.number)):
            at = dims.begin + d * (3 + dims.strides)
            digit = p
            if d:
                p, digit = self._divided(p, at + 1, f"%w{at}")
            offset = writer.index("add", offset, writer.index("mul", digit, f"%w{at + 3 + stride}"))
        return offset

    def _place_of(self, item: str, per: int) -> tuple[str, str]:
        """Row and column of a tile or an element, with the operands of its product."""
        writer = self.writer
        number, within = self._divided(item, 6, writer.index("mul", "%w8", "%w9"))
        row, column = self._divided(within, 4, "%w9")
        self.base = [writer.element("i8", p, self._offset("batch", number, k)) for k, p in enumerate(self.base)]
        return (writer.index("mul", row, str(per)), writer.index("mul", column, str(per)))

    def _load(self, operand: int, offset: str) -> Value:
        """An element of an operand, in the type of the sums."""
        dtype = self.product.source
        pointer = self.writer.element(whole(dtype), self.base[operand], offset)
        return Emitter(self.one).convert(self.memory.load_scalar(dtype, pointer), self.product.result)

    def _store(self, row: str, column: str, text: str) -> None:
        writer, product = self.writer, self.product
        value = Value(product.result, (V(self.one, self.element.register, text),))
        at = writer.index("add", self._offset("rows", row, 1), column)
        self.memory.store_scalar(value, writer.element(whole(product.result), self.base[2], at))

    def _added(self, a: str, b: str, total: str) -> str:
        """total + a * b, rounded once."""
        register, writer = self.element.register, self.writer
        if register in ("float", "double"):
            given = [(register, a), (register, b), (register, total)]
            return writer.call(f"llvm.fma.{self.one.suffix(register)}", register, given)
        return writer.op(f"add {register} {writer.op(f'mul {register} {a}, {b}')}, {total}")

    def _sum(self, a: str, b: str) -> str:
        register = self.element.register
        return self.writer.op(f"{'fadd' if register in ('float', 'double') else 'add'} {register} {a}, {b}")

    @property
    def _zero(self) -> str:
        return "0.0" if self.element.register in ("float", "double") else "0"

    def _blocks(self, count: int, body: Callable[[str, str, list[str]], list[str]]) -> list[str]:
        """The sums over all terms: ``body(first, last, sums)`` adds those of a chain to zeros."""
        writer, register = self.writer, self.element.register

        def block(first: str, totals: list[str]) -> list[str]:
            last = writer.minimum_index(writer.index("add", first, str(self._length)), self.k)
            sums = body(first, last, [self._zero] * count)
            is_first = writer.compare_index("eq", first, "0")
            return [
                writer.op(f"select i1 {is_first}, {register} {one}, {register} {self._sum(total, one)}")
                for total, one in zip(totals, sums, strict=True)
            ]

        return writer.loop("0", self.k, self._length, [(register, self._zero)] * count, block)

    # tiles

    def _tile(self, block: str) -> None:
        writer, self._length = self.writer, BLOCK
        self.row, self.column = self._place_of(block, SIDE)
        size = elements.of(self.product.result).size
        self.tiles = [threads.shared(writer, str(k * DEPTH * PITCH * size)) for k in (0, 1)]
        mine = self.thread
        across = writer.index("mul", writer.index("and", mine, str(ROWS - 1)), str(EACH))
        down = writer.index("mul", writer.index("lshr", mine, str(ROWS.bit_length() - 1)), str(EACH))
        a, b = self._lent(0), self._lent(1)

        def depth(first: str, last: str, sums: list[str]) -> list[str]:
            def some(at: str, now: list[str]) -> list[str]:
                self._fill(0, a, at, last)
                self._fill(1, b, at, last)
                threads.barrier(writer)
                now = self._multiplied(down, across, now)
                threads.barrier(writer)
                return now

            return writer.loop(first, last, DEPTH, [(self.element.register, text) for text in sums], some)

        totals = self._blocks(EACH * EACH, depth)
        rows = [writer.index("add", writer.index("add", self.row, down), str(i)) for i in range(EACH)]
        columns = [writer.index("add", writer.index("add", self.column, across), str(j)) for j in range(EACH)]
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                inside = [writer.compare_index("slt", x, y) for x, y in ((row, self.m), (column, self.n))]
                both = writer.op(f"and i1 {inside[0]}, {inside[1]}")
                text = totals[EACH * i + j]
                threads.when(writer, both, lambda row=row, column=column, text=text: self._store(row, column, text))

    def _lent(self, operand: int) -> list[tuple[str, str, str, str]]:
        """What this thread brings of a tile: place across, term, the former's offset and whether it is inside."""
        writer, found = self.writer, []
        along = self.product.a_along if operand == 0 else not self.product.b_along
        begin, end, kind = ((self.row, self.m, "rows"), (self.column, self.n, "columns"))[operand]
        for j in range(SIDE * DEPTH // GPU_THREADS):
            number = writer.index("add", self.thread, str(j * GPU_THREADS))
            bits = (DEPTH if along else SIDE).bit_length() - 1
            low, high = writer.index("and", number, str((1 << bits) - 1)), writer.index("lshr", number, str(bits))
            term, place = (low, high) if along else (high, low)
            at = writer.index("add", begin, place)
            inside = writer.compare_index("slt", at, end)
            at = writer.choose_index(inside, at, "0")
            found.append((place, term, self._offset(kind, at, 0), inside))
        return found

    def _fill(self, operand: int, lent: Sequence[tuple[str, str, str, str]], at: str, last: str) -> None:
        """Bring this thread's elements of a tile of both operands; what is outside is zero."""
        writer, register, size = self.writer, self.element.register, str(PITCH)
        for place, term, offset, inside in lent:
            number = writer.index("add", at, term)
            within = writer.compare_index("slt", number, last)
            number = writer.choose_index(within, number, "0")
            value = self._load(operand, writer.index("add", offset, self._offset("summed", number, operand)))
            both = writer.op(f"and i1 {inside}, {within}")
            text = writer.op(f"select i1 {both}, {register} {value.part.text}, {register} {self._zero}")
            to = writer.index("add", writer.index("mul", term, size), place)
            pointer = writer.element(register, self.tiles[operand], to)
            writer.line(f"store {register} {text}, ptr {pointer}")

    def _multiplied(self, down: str, across: str, sums: list[str]) -> list[str]:
        """The sums of this thread after the terms of a tile."""
        writer, register = self.writer, self.element.register

        def term(at: str, now: list[str]) -> list[str]:
            start, found = writer.index("mul", at, str(PITCH)), []
            for tile, first in zip(self.tiles, (down, across), strict=True):
                p = writer.element(register, tile, writer.index("add", start, first))
                vector = writer.op(f"load <{EACH} x {register}>, ptr {p}, align {min(16, EACH * self.element.size)}")
                found.append(
                    [writer.op(f"extractelement <{EACH} x {register}> {vector}, i64 {i}") for i in range(EACH)]
                )
            return [
                self._added(a, b, now[EACH * i + j]) for i, a in enumerate(found[0]) for j, b in enumerate(found[1])
            ]

        return writer.loop("0", str(DEPTH), 1, [(register, text) for text in sums], term)

    # vectors

    def _vector(self, block: str) -> None:
        writer, width = self.writer, chains(self.product)
        self._length = BLOCK * width
        lane = writer.index("and", self.thread, str(width - 1))
        team = writer.index("lshr", self.thread, str(width.bit_length() - 1))
        item = writer.index("add", writer.index("mul", block, str(GPU_THREADS // width)), team)
        count = writer.index("mul", writer.index("mul", "%w8", "%w9"), "%w3")
        inside = writer.compare_index("slt", item, count)
        item = writer.choose_index(inside, item, "0")  # all threads of a warp take part in its shuffles
        row, column = self._place_of(item, 1)
        a, b = self._offset("rows", row, 0), self._offset("columns", column, 0)

        def chain(first: str, last: str, sums: list[str]) -> list[str]:
            def term(at: str, now: list[str]) -> list[str]:
                x = self._load(0, writer.index("add", a, self._offset("summed", at, 0)))
                y = self._load(1, writer.index("add", b, self._offset("summed", at, 1)))
                return [self._added(x.part.text, y.part.text, now[0])]

            start = writer.index("add", first, lane)
            (text,) = writer.loop(start, last, width, [(self.element.register, sums[0])], term)
            distance = width // 2
            while distance:
                value = Value(self.product.result, (V(self.one, self.element.register, text),))
                text = self._sum(text, threads.shuffled(value, "down", str(distance)).part.text)
                distance //= 2
            return [text]

        (total,) = self._blocks(1, chain)
        first = writer.op(f"and i1 {inside}, {writer.compare_index('eq', lane, '0')}")
        threads.when(writer, first, lambda: self._store(row, column, total))
