"""What the lanes read along short last dimensions and the one before them, which are collapsed into one loop.

The lanes run along the collapsed dimension, so that short rows fill them. The digits of its index (see ``mixed_radix``)
are periodic: apart from the first, they depend only on the position within one block of the short dimensions. Values
that depend on them are computed once, for one block and the vectors in flight, and stored in tables on the stack:

    y[b, i, j] = x[b, j, i] + c[i, j]    position p = (b, r), with r = (i, j) in the block
        at r:  the offset of x[0, j, i], the element c[i, j]
    for vectors at p = (b, r):  elements of x + stride * b at W offsets from r on;  W elements of c from r on

Operands whose axes can be collapsed are loaded as whole vectors; where the W offsets are close together, two vectors
are loaded and the lanes picked from them (``windows``).

What these lines gain: rows of 5 elements plus a row take two thirds of the time, a batch of small matrices plus their
transposes a tenth, a transpose to rows of 9 to 63 elements with vectors of 8 lanes a tenth or less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.codegen.arithmetic.emitter import Value
from weft.codegen.arithmetic.lanes import V
from weft.codegen.memory_access import windows
from weft.codegen.memory_access.memory_words import whole
from weft.codegen.nests import instances
from weft.codegen.nests.frame import Frame
from weft.codegen.nests.instances import Instance, Position
from weft.codegen.writer import Carried
from weft.loops import elements, ir


class Tables:
    """What the statements of one nest read that depends on digits."""

    def __init__(self, parent: Frame, statements: Sequence[ir.Statement]) -> None:
        assert parent.digits is not None
        self.parent, self.nest, self.writer, self.digits = parent, parent.nest, parent.writer, parent.digits
        self.ahead = parent.schedule.loops[0].vectors * parent.width  # elements that are in flight
        self.slots = ir.COLLAPSED + self.ahead  # entries of a table
        self.reads = self.digits.reads(statements)
        self.tables: dict[int, str] = {}  # value -> what is known of it at each position
        self.offsets: dict[int, windows.Offsets] = {}  # value -> those of its operand
        self.block = "1"  # elements of the short dimensions
        for base in self.digits.bases[1:]:
            self.block = self.writer.index("mul", self.block, base)

    def fill(self, position: Position) -> None:
        """Write the tables, at one point of the dimensions before the lanes."""
        self.tables = {s.out: self._table(s, position) for s in self.reads}
        entries = self.writer.index("add", self.block, str(self.ahead))
        for s in self.reads:
            if isinstance(s, ir.Load) and not self.nest.repeats(s):
                found = windows.offsets(self.parent, self.digits, s.operand, self.tables[s.out], entries, self.slots)
                self.offsets[s.out] = found

    def start(self, low: str) -> Carried:
        """The block, and the position in it."""
        at = [self.writer.op(f"{op} i64 {low}, {self.block}") for op in ("udiv", "urem")]
        self.moves = {
            loop.vectors: self._move(loop.vectors * self.parent.width) for loop in self.parent.schedule.loops[:-1]
        }
        return [("i64", one) for one in at]

    def _move(self, step: int) -> Callable[[list[str]], list[str]]:
        """Gives the block, and the position in it, so many elements further on."""
        writer = self.writer
        blocks, on = [writer.op(f"{op} i64 {step}, {self.block}") for op in ("udiv", "urem")]

        def moved(at: list[str]) -> list[str]:
            within = writer.index("add", at[1], on)
            over = writer.compare_index("sge", within, self.block)
            carry = writer.op(f"zext i1 {over} to i64")
            within = writer.index("sub", within, writer.choose_index(over, self.block, "0"))
            return [writer.index("add", writer.index("add", at[0], blocks), carry), within]

        return moved

    def read(self, tile: Sequence[Instance], position: Position, at: Sequence[str]) -> None:
        """Give the vectors of a tile their values; the first begins at this block, and this position in it."""
        block, within = at
        for copy in tile:
            here = [block, self.writer.index("add", within, str(copy.slot)) if copy.slot else within]
            for s in self.reads:
                copy.values[s.out] = self._read(s, copy, here, position, self.tables[s.out])

    def after(self, tile: Sequence[Instance], at: list[str]) -> list[str]:
        """The block after a tile, and the position in it."""
        return self.moves[len(tile)](at) if tile[0].mask is None else at

    def _table(self, s: ir.Load | ir.IndexOf, position: Position) -> str:
        """A table for a block and the vectors in flight: of periodic values, otherwise of offsets or first digits."""
        writer, point = self.writer, self.parent.copy(self.parent.scalar, {})
        dtype = elements.INT64
        if self.nest.repeats(s):
            dtype = s.dtype if isinstance(s, ir.IndexOf) else self.nest.operands[s.operand].dtype
        table = writer.alloca(f"[{self.slots} x {whole(dtype)}]")

        def entry(index: str, _: list[str]) -> list[str]:
            digits, copy = self.digits.at(index), instances.fresh(point, {})
            if isinstance(s, ir.IndexOf):
                number = digits[self.digits.dims.index(s.dim)]
                value = copy.emit.settle(copy.emit.convert(self._integer(number), dtype))
            elif self.nest.repeats(s):
                value = copy.memory.load_scalar(
                    dtype, self.digits.address(s.operand, position.pointers[s.operand], digits)
                )
            else:
                value = self._integer(self.digits.offset(s.operand, digits))
            copy.memory.store_scalar(value, writer.element(whole(dtype), table, index))
            return []

        writer.loop("0", writer.index("add", self.block, str(self.ahead)), 1, [], entry)
        return table

    def _integer(self, number: str) -> Value:
        return Value(elements.INT64, (V(self.parent.scalar, "i64", number),))

    def _read(self, s: ir.Load | ir.IndexOf, copy: Instance, at: list[str], position: Position, table: str) -> Value:
        writer, lanes = self.writer, copy.memory.lanes
        block, within = at
        if self.nest.repeats(s):
            dtype = s.dtype if isinstance(s, ir.IndexOf) else self.nest.operands[s.operand].dtype
            return copy.memory.load(dtype, writer.element(whole(dtype), table, within))
        if isinstance(s, ir.IndexOf):
            first = writer.element("i64", table, within)
            digits = copy.memory.load(elements.INT64, first).part + lanes.splat(block, "i64")
            return copy.emit.settle(copy.emit.convert(Value(elements.INT64, (digits,)), s.dtype))
        begin, dtype = self.parent.distance(s.operand, self.digits.dims[0], block), self.nest.operands[s.operand].dtype
        origin = position.pointers[s.operand]
        return windows.load(copy.memory, self.offsets[s.out], dtype, origin, (begin, within), copy.mask)
