"""Writes nests in which short last dimensions and the one before them are collapsed into one loop.

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

from weft.codegen import columns, instances, lane_loops, windows
from weft.codegen.emitter import Value
from weft.codegen.frame import Frame
from weft.codegen.instances import Instance, Position
from weft.codegen.lanes import V
from weft.codegen.memory import Mask
from weft.codegen.memory_words import whole
from weft.loops import elements, ir
from weft.loops.lane_loops import LaneLoop


class CollapsedLoopWriter(columns.ColumnWriter):
    """Writes the loops of one nest."""

    def __init__(self, parent: Frame) -> None:
        super().__init__(parent)
        assert parent.digits is not None
        self.digits = parent.digits
        self.ahead = parent.schedule.loops[0].vectors * parent.width  # elements that are in flight
        self.slots = ir.COLLAPSED + self.ahead  # entries of a table
        self.offsets: dict[int, windows.Offsets] = {}  # value -> those of its operand
        self.block = "1"  # elements of the short dimensions
        for base in self.digits.bases[1:]:
            self.block = self.writer.index("mul", self.block, base)

    def write(self, place: Position, scalars: Instance) -> None:
        nest, base = self.nest, self._base(self.parent.lanes, scalars)
        outer = [d for d, dim in enumerate(nest.dims) if dim.role == "parallel" and d != nest.vector]
        self.parent.parallel(place, outer, lambda inner: self._flat(inner, scalars, base))

    def _flat(self, place: Position, scalars: Instance, base: Instance) -> None:
        """The collapsed dimension, at one point of the dimensions before it."""
        parent, writer = self.parent, self.writer
        known = {**scalars.values, **parent.hoist(self.hoistable, scalars, place)}
        base = base.replace(values={n: base.memory.splat(v) for n, v in known.items()}, scalars=known)
        tables = {s.out: self._table(s, place) for s in self.digits.reads(self.statements)}
        self._find_offsets(tables)
        low, high = parent.range(2), parent.range(3)
        at = [writer.op(f"{op} i64 {low}, {self.block}") for op in ("udiv", "urem")]
        moves = {loop: self._move(loop.vectors * parent.width) for loop in parent.schedule.loops[:-1]}

        def tile(loop: LaneLoop, each: list[str], mask: Mask | None, at: list[str]) -> list[str]:
            self._side_by_side(each, at, mask, base, place, tables)
            return moves[loop](at) if loop in moves else at

        lane_loops.write(parent, parent.schedule.loops, (low, high), tile, [("i64", one) for one in at])

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

    def _side_by_side(
        self,
        each: Sequence[str],
        at: list[str],
        mask: Mask | None,
        base: Instance,
        place: Position,
        tables: dict[int, str],
    ) -> None:
        """Vectors side by side at these indices, the first lane at position ``at[1]`` of block ``at[0]``."""
        slots = range(0, len(each) * self.parent.width, self.parent.width)
        copies = [
            instances.fresh(base, base.values, index, mask, slot) for index, slot in zip(each, slots, strict=True)
        ]
        for copy in copies:
            here = [at[0], self.writer.index("add", at[1], str(copy.slot)) if copy.slot else at[1]]
            for s in self.digits.reads(self.statements):
                copy.values[s.out] = self._read(s, copy, here, place, tables[s.out])
        self.point(copies, place)

    def _find_offsets(self, tables: dict[int, str]) -> None:
        entries = self.writer.index("add", self.block, str(self.ahead))
        for s in self.digits.reads(self.statements):
            if isinstance(s, ir.Load) and not self.nest.repeats(s):
                found = windows.offsets(self.parent, self.digits, s.operand, tables[s.out], entries, self.slots)
                self.offsets[s.out] = found

    def _table(self, s: ir.Load | ir.IndexOf, place: Position) -> str:
        """A table for a block and the vectors in flight: of periodic values, otherwise of offsets or first digits."""
        writer, point = self.writer, self.parent.copy(self.parent.scalar, {})
        dtype = elements.INT64
        if self.nest.repeats(s):
            dtype = s.dtype if isinstance(s, ir.IndexOf) else self.nest.operands[s.operand].dtype
        table = writer.alloca(f"[{self.slots} x {whole(dtype)}]")

        def entry(position: str, _: list[str]) -> list[str]:
            digits, copy = self.digits.at(position), instances.fresh(point, {})
            if isinstance(s, ir.IndexOf):
                number = digits[self.digits.dims.index(s.dim)]
                value = copy.emit.settle(copy.emit.convert(self._integer(number), dtype))
            elif self.nest.repeats(s):
                value = copy.memory.load_scalar(
                    dtype, self.digits.address(s.operand, place.pointers[s.operand], digits)
                )
            else:
                value = self._integer(self.digits.offset(s.operand, digits))
            copy.memory.store_scalar(value, writer.element(whole(dtype), table, position))
            return []

        writer.loop("0", writer.index("add", self.block, str(self.ahead)), 1, [], entry)
        return table

    def _integer(self, number: str) -> Value:
        return Value(elements.INT64, (V(self.parent.scalar, "i64", number),))

    def _read(self, s: ir.Load | ir.IndexOf, copy: Instance, at: list[str], place: Position, table: str) -> Value:
        writer, lanes = self.writer, copy.memory.lanes
        block, within = at
        if self.nest.repeats(s):
            dtype = s.dtype if isinstance(s, ir.IndexOf) else self.nest.operands[s.operand].dtype
            return copy.memory.load(dtype, writer.element(whole(dtype), table, within))
        if isinstance(s, ir.IndexOf):
            places = writer.element("i64", table, within)
            digits = copy.memory.load(elements.INT64, places).part + lanes.splat(block, "i64")
            return copy.emit.settle(copy.emit.convert(Value(elements.INT64, (digits,)), s.dtype))
        begin, dtype = self.parent.distance(s.operand, self.digits.dims[0], block), self.nest.operands[s.operand].dtype
        origin = place.pointers[s.operand]
        return windows.load(copy.memory, self.offsets[s.out], dtype, origin, (begin, within), copy.mask)
