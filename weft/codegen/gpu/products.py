"""Writes matrix products for the threads of a GPU: what the writers of tiles, vectors and tensor cores share.

Numbers of rows, columns, terms and products become offsets of operands; blocks get their tiles.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft._base.record import NamedTuple
from weft._base.target import Target
from weft._base.target_model import GPU_AT_ONCE
from weft.codegen.arithmetic.emitter import Emitter, Value
from weft.codegen.arithmetic.lanes import Lanes, V
from weft.codegen.cpu import families
from weft.codegen.gpu import threads
from weft.codegen.gpu.product_epilogues import EpilogueWriter
from weft.codegen.memory_access.memory import Memory
from weft.codegen.memory_access.memory_words import whole
from weft.codegen.writer import Writer
from weft.loops import elements
from weft.loops.gpu.grid_products import Product, Tile, n_words
from weft.loops.schedules import costs

# Rows of tiles that are computed together, so that blocks of one time share rows and columns in a cache. An estimate.
GROUP = 8


class Dims(NamedTuple):
    """Dimensions of one kind: the word at which they begin, how many there are, and how many strides each has."""

    begin: int
    number: int
    strides: int


class ProductWriter:
    """What the writers of all entries of a product share; ``row`` and ``column`` are those at which a tile begins."""

    row: str
    column: str

    def __init__(self, product: Product, target: Target) -> None:
        self.product, self.target = product, target
        self.writer = families.writer(target)
        self.one = Lanes(self.writer, 1)
        self.memory = Memory(self.one, target)
        self.element = elements.of(product.result)
        self.epilogue: EpilogueWriter | None = None
        self.first = ""  # where the result begins, that of all products
        begin, self.dims = 10, dict[str, Dims]()
        for kind, count, strides in (
            ("rows", product.rows, 2), ("columns", product.columns, 1), ("summed", product.summed, 2),
            ("batch", product.batch, 3),
        ):  # fmt: skip
            self.dims[kind] = Dims(begin, count, strides)
            begin += count * (3 + strides)

    def _begin(self) -> str:
        """Operands and sizes; gives the number of this block."""
        writer = self.writer
        operands = (0, 1, self.product.made)
        self.base = [writer.op(f"addrspacecast ptr addrspace(1) %o{k} to ptr") for k in operands]
        self.first, epilogue = self.base[2], self.product.epilogue
        if epilogue is not None:
            self.epilogue = EpilogueWriter(epilogue, self.target, writer, n_words(self.product))
        self.m, self.n, self.k = "%w0", "%w1", "%w2"
        return threads.number(writer, "ctaid.x")

    def write(self) -> Writer:
        """The function of this entry."""
        raise NotImplementedError

    # numbers

    def _divided(self, p: str, at: int, divisor: str) -> tuple[str, str]:
        """``threads.divided`` by the numbers in words ``at`` and ``at`` + 1."""
        return threads.divided(self.writer, p, (f"%w{at}", f"%w{at + 1}"), divisor)

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

    def _corner_of(self, item: str, per: int) -> tuple[str, str]:
        """Row and column of a tile or an element, with the operands of its product."""
        writer = self.writer
        number, within = self._divided(item, 6, writer.index("mul", "%w8", "%w9"))
        row, column = self._divided(within, 4, "%w9")
        self.base = [writer.element("i8", p, self._offset("batch", number, k)) for k, p in enumerate(self.base)]
        return (writer.index("mul", row, str(per)), writer.index("mul", column, str(per)))

    def _load(self, operand: int, offset: str) -> Value:
        """An element of an operand, in the type of the sums."""
        return self._at(self.writer.element(whole(self.product.source), self.base[operand], offset))

    def _at(self, pointer: str) -> Value:
        found = self.memory.load_scalar(self.product.source, pointer)
        return Emitter(self.one).convert(found, self.product.result)

    def _store(self, row: str, column: str, parts: list[str]) -> None:
        writer = self.writer
        at = writer.index("add", self._offset("rows", row, 1), column)
        if self.epilogue is not None:
            self.epilogue.elements([(self._number(at), self._rounded(parts), "true")])
            return
        self.memory.store_scalar(self._rounded(parts), writer.element(whole(self.product.stored), self.base[2], at))

    def _consume(self, sums: list[str], tile: Tile, first: tuple[str, str], bits: Sequence[tuple[int, int]]) -> None:
        """The epilogue of all elements of a thread, some at once, so that its text does not stand there for each.

        ``first``: row and column of the first element; ``bits``: what each bit of an element's number adds to them. A
        short one stands there twice, without tests for tiles that are inside.
        """
        writer, register, parts = self.writer, self.element.register, self.parts
        count = len(sums) // parts
        at_once = min(count // 2, 2 * GPU_AT_ONCE)
        held = writer.alloca(f"[{len(sums)} x {register}]")
        for k, text in enumerate(sums):
            writer.line(f"store {register} {text}, ptr {writer.element(register, held, str(k))}")

        def some(number: str, inside: bool) -> list[str]:
            begin = writer.element(register, held, writer.index("mul", number, str(parts)))
            texts = [writer.load(register, writer.element(register, begin, str(k))) for k in range(at_once * parts)]
            values = [self._rounded(texts[parts * k : parts * (k + 1)]) for k in range(at_once)]
            numbered = self._numbered(number, at_once, first, bits)
            assert self.epilogue is not None
            self.epilogue.elements(
                [(at, x, "true" if inside else there) for x, (at, there) in zip(values, numbered, strict=True)]
            )
            return []

        def all_(inside: bool) -> None:
            writer.loop("0", str(count), at_once, [], lambda number, _: some(number, inside))

        assert self.product.epilogue is not None
        nest = self.product.epilogue.nest
        if costs.instructions(nest.statements()) > GPU_AT_ONCE:
            all_(False)
            return
        ends = ((self.row, tile.rows, self.m), (self.column, tile.columns, self.n))
        inside = [writer.compare_index("sle", writer.index("add", at, str(side)), end) for at, side, end in ends]
        writer.either(writer.op(f"and i1 {inside[0]}, {inside[1]}"), lambda: all_(True), lambda: all_(False))

    def _numbered(
        self, begin: str, count: int, first: tuple[str, str], bits: Sequence[tuple[int, int]]
    ) -> list[tuple[str, str]]:
        """Numbers of elements among all, and whether they exist; ``begin``: a multiple of ``count``, a power of two."""
        writer, (row, column) = self.writer, first
        for bit, (down, across) in list(enumerate(bits))[count.bit_length() - 1 :]:
            digit = writer.index("and", writer.index("lshr", begin, str(bit)), "1")
            row = writer.index("add", row, writer.index("mul", digit, str(down)))
            column = writer.index("add", column, writer.index("mul", digit, str(across)))
        rows, columns, found = dict[int, tuple[str, str]](), dict[int, str](), list[tuple[str, str]]()
        for k in range(count):
            mine = [plus for bit, plus in enumerate(bits) if k >> bit & 1]
            down, across = (sum([plus[side] for plus in mine]) for side in (0, 1))
            if down not in rows:
                at = writer.index("add", row, str(down))
                number = self._number(writer.index("add", self._offset("rows", at, 1), column))
                rows[down] = number, writer.compare_index("slt", at, self.m)
            if across not in columns:
                columns[across] = writer.compare_index("slt", writer.index("add", column, str(across)), self.n)
            number, there = rows[down]
            found.append((writer.index("add", number, str(across)), writer.op(f"and i1 {there}, {columns[across]}")))
        return found

    def _number(self, at: str) -> str:
        """The number among all elements of the one at this offset of its product."""
        writer, stored = self.writer, elements.of(self.product.stored)
        begins = [writer.op(f"ptrtoint ptr {p} to i64") for p in (self.base[2], self.first)]
        shift = str((stored.bytes * stored.parts).bit_length() - 1)
        return writer.index("add", writer.index("lshr", writer.index("sub", *begins), shift), at)

    def _rounded(self, parts: list[str]) -> Value:
        """An element as it is stored."""
        value = Value(self.product.result, tuple([V(self.one, self.element.register, text) for text in parts]))
        emitter = Emitter(self.one)
        return emitter.settle(emitter.convert(value, self.product.stored))

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

    @property
    def parts(self) -> int:
        """Numbers of an element: a complex one has two."""
        return self.element.parts

    def _term(self, left: list[str], right: list[str], sums: list[str]) -> list[str]:
        """The sums of an element with a product more: of a complex one four, of its parts."""
        pairs = ((0, 0), (1, 1), (0, 1), (1, 0))[: self.sums]
        return [self._added(left[i], right[j], total) for (i, j), total in zip(pairs, sums, strict=True)]

    @property
    def sums(self) -> int:
        """Sums of an element in a chain."""
        return self.parts**2

    def _chain(self, sums: list[str]) -> list[str]:
        """An element of these sums."""
        if self.parts == 1:
            return sums
        register = self.element.register
        return [self.writer.op(f"fsub {register} {sums[0]}, {sums[1]}"), self._sum(sums[2], sums[3])]

    # 32-bit numbers; literals fold

    def _i(self, op: str, x: str | int, y: str | int) -> str:
        x, y = str(x), str(y)
        if y == "0" and op in ("add", "sub", "or", "xor", "shl", "lshr"):
            return x
        if x == "0" and op in ("add", "or", "xor"):
            return y
        if op == "mul" and "0" in (x, y):
            return "0"
        return self.writer.op(f"{op} i32 {x}, {y}")

    def _sums(self, *parts: str | int) -> str:
        total = "0"
        for part in parts:
            total = self._i("add", part, total) if total == "0" else self._i("add", total, part)
        return total

    def _wide(self, x: str) -> str:
        return self.writer.op(f"zext i32 {x} to i64") if x.startswith("%") else x

    def _low(self, x: str) -> str:
        return self.writer.op(f"trunc i64 {x} to i32") if x.startswith("%") else x

    def _in_block(self, offset: str, plus: int = 0) -> str:
        """The address of a byte of the block's memory."""
        self.writer.declarations[threads.SHARED] = threads.DECLARATION
        pointer = self.writer.op(f"getelementptr i8, ptr addrspace(3) {threads.SHARED}, i32 {offset}")
        return self.writer.op(f"getelementptr i8, ptr addrspace(3) {pointer}, i32 {plus}") if plus else pointer

    # tiles

    def _choose_tile(self, block: str, tile: Tile) -> None:
        """The tile of this block, GROUP rows of tiles at a time."""
        writer = self.writer
        number = self._low(block)
        downs, acrosses = (
            self._low(writer.index("lshr", writer.index("add", extent, str(side - 1)), str(side.bit_length() - 1)))
            for extent, side in ((self.m, tile.rows), (self.n, tile.columns))
        )
        tiles = self._i("mul", downs, acrosses)
        product = self._i("udiv", number, tiles)
        within = self._i("sub", number, self._i("mul", product, tiles))
        width = self._i("mul", acrosses, GROUP)
        group = self._i("udiv", within, width)
        first = self._i("mul", group, GROUP)
        left = self._i("sub", downs, first)
        height = writer.op(f"select i1 {writer.op(f'icmp ult i32 {left}, {GROUP}')}, i32 {left}, i32 {GROUP}")
        at = self._i("sub", within, self._i("mul", group, width))
        column = self._i("udiv", at, height)
        row = self._i("add", first, self._i("sub", at, self._i("mul", column, height)))
        product = self._wide(product)
        self.base = [writer.element("i8", p, self._offset("batch", product, k)) for k, p in enumerate(self.base)]
        self.row = writer.index("mul", self._wide(row), str(tile.rows))
        self.column = writer.index("mul", self._wide(column), str(tile.columns))
