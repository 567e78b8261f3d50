"""The mixed-radix digits of a flattened dimension, for operands whose axes cannot be collapsed.

The reduction tree runs over row-major positions. A vector of W positions within one row of the innermost axis is loaded
from an address computed from the digits. A vector that crosses rows, and the last, short one, are assembled piece by
piece in stack buffers. The digits of the next vector follow by additions with carries.

    position p of f32[3,5] has digits (p // 5, p % 5);  x[0] of f32[5] is read at p % 5
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from weft.codegen.arithmetic.emitter import Value
from weft.codegen.memory_access import accesses
from weft.codegen.memory_access.accesses import Step
from weft.codegen.memory_access.memory import first_lanes
from weft.codegen.memory_access.memory_words import whole
from weft.codegen.nests import reduce_tree
from weft.codegen.nests.frame import Frame, distance
from weft.codegen.nests.instances import Instance, Position, fresh, index_value
from weft.codegen.writer import Carried
from weft.loops import elements, ir


class Digits:
    """The digits of one nest's flattened dimension. Digits are lists of i64 names, outermost first."""

    def __init__(self, parent: Frame) -> None:
        self.nest, self.writer, self.lanes = parent.nest, parent.writer, parent.lanes  # not the parent, which has this
        self.extents, self.strides, self.offsets = parent.extents, parent.strides, parent.offsets
        self.dims = self.nest.digits
        one = "1"
        self.bases = []  # if an extent is 0 no loop runs
        for d in self.dims:
            extent = self.extents[d]
            self.bases.append(self.writer.choose_index(self.writer.compare_index("slt", extent, one), one, extent))
        self.step = self.at(str(self.lanes.width))  # of a whole vector
        self.buffers: dict[int, str] = {}  # value number -> stack memory of a vector

    def at(self, position: str) -> list[str]:
        """The digits of a position."""
        writer, digits = self.writer, []
        for base in reversed(self.bases[1:]):
            digits.append(writer.op(f"urem i64 {position}, {base}"))
            position = writer.op(f"udiv i64 {position}, {base}")
        return [position, *reversed(digits)]

    def advanced(self, digits: Sequence[str], step: Sequence[str] | None = None) -> list[str]:
        """The digits after ``step`` (None: one) more positions."""
        writer, carry, found = self.writer, "", []
        digits_and_bases = list(zip(digits, step or [*["0"] * (len(digits) - 1), "1"], self.bases, strict=True))
        for number, (digit, add, base) in reversed(list(enumerate(digits_and_bases))):
            moved = writer.index("add", digit, add)
            moved = writer.index("add", moved, carry) if carry else moved
            if number:
                over = writer.compare_index("sge", moved, base)
                carry = writer.op(f"zext i1 {over} to i64")
                moved = writer.index("sub", moved, writer.choose_index(over, base, "0"))
            found.append(moved)
        return found[::-1]

    def moved(self, pointers: dict[int, str], digits: Sequence[str], operands: Iterable[int]) -> dict[int, str]:
        """The pointers of operands at the given digits."""
        result = dict(pointers)
        for k in operands:
            result[k] = self.address(k, pointers[k], digits)
        return result

    def address(self, operand: int, pointer: str, digits: Sequence[str]) -> str:
        """The address of an operand at the given digits."""
        return self.writer.element(whole(self.nest.operands[operand].dtype), pointer, self.offset(operand, digits))

    def offset(self, operand: int, digits: Sequence[str]) -> str:
        """The offset of that address, in elements, from the address at digits of 0."""
        offset = "0"
        for dim, digit in zip(self.dims, digits, strict=True):
            if self.nest.operands[operand].strides[dim]:
                offset = self.writer.index("add", offset, distance(self, operand, dim, digit))
        return offset

    # vectors along the flattened dimension

    def reads(self, body: Sequence[ir.Statement]) -> list[ir.Load | ir.IndexOf]:
        """The statements of a body whose values depend on digits."""
        found = [s for s in body if isinstance(s, ir.Load | ir.IndexOf) and self.nest.reads_digits(s)]
        return sorted(found, key=lambda s: isinstance(s, ir.IndexOf))

    def fill(
        self, copy: Instance, position: Position, reads: Sequence[ir.Load | ir.IndexOf], digits: Sequence[str]
    ) -> None:
        """Load the values of ``reads`` for the W lanes of a copy; ``digits`` are the first lane's."""
        writer = self.writer
        assert copy.index is not None and self.nest.vector is not None
        last = writer.index("add", digits[-1], str(self.lanes.width))
        remaining = writer.index("sub", self.extents[self.nest.vector], copy.index)
        in_row = writer.compare_index("sle", last, self.bases[-1])
        if copy.mask is not None:  # memory may be read past the last position within its row
            in_row = writer.op(f"and i1 {in_row}, {writer.compare_index('sge', remaining, str(self.lanes.width))}")

        def across() -> list[Value]:
            count, here = writer.minimum_index(remaining, str(self.lanes.width)), digits
            if copy.mask is not None:  # all lanes are past the last position: their values do not matter
                past = writer.compare_index("slt", count, "1")
                count = writer.choose_index(past, "1", count)
                here = [writer.choose_index(past, "0", digit) for digit in digits]
            return self._piece_by_piece(fresh(copy, {}), position, reads, here, count)

        inside: list[Value] = []

        def together() -> Carried:
            inside.extend(self._within_row(fresh(copy, {}), position, reads, digits))
            return reduce_tree.flatten(inside)

        texts = writer.either(in_row, together, lambda: reduce_tree.flatten(across()))
        copy.values.update(zip([s.out for s in reads], reduce_tree.rebuild(inside, texts), strict=True))

    def _within_row(
        self, copy: Instance, position: Position, reads: Sequence[ir.Load | ir.IndexOf], digits: Sequence[str]
    ) -> list[Value]:
        values = []
        for s in reads:
            if isinstance(s, ir.IndexOf):
                digit = digits[self.dims.index(s.dim)]
                if s.dim == self.dims[-1]:
                    values.append(index_value(copy.emit, digit, s.dtype))
                else:
                    splat = copy.memory.lanes.splat(digit, "i64")
                    values.append(copy.emit.settle(copy.emit.convert(Value(elements.INT64, (splat,)), s.dtype)))
                continue
            operand = self.nest.operands[s.operand]
            pointer, key = self.address(s.operand, position.pointers[s.operand], digits), (s.operand, self.dims[-1])
            step = Step(operand.strides[self.dims[-1]])
            if step.kind == ir.RUNTIME:
                step = Step(step.kind, self.strides[key], self.offsets.get(key) or copy.memory.lanes.iota("i64"))
            values.append(accesses.load_along(copy.memory, operand.dtype, pointer, step, copy.mask))
        return values

    def _piece_by_piece(
        self,
        copy: Instance,
        position: Position,
        reads: Sequence[ir.Load | ir.IndexOf],
        digits: Sequence[str],
        count: str,
    ) -> list[Value]:
        """Store the pieces of rows in stack buffers, as whole vectors: each overwrites the excess of the one before."""
        writer, lanes = self.writer, self.lanes

        def piece(start: str, now: list[str]) -> list[str]:
            rest = writer.index("sub", self.bases[-1], now[-1])
            mask = first_lanes(lanes, writer.minimum_index(rest, writer.index("sub", count, start)))
            values = self._within_row(fresh(copy, {}, None, mask), position, reads, now)
            for s, value in zip(reads, values, strict=True):
                copy.memory.store(value, writer.element(whole(value.dtype), self._buffer(s, value.dtype), start))
            rows_on = [*["0"] * (len(now) - 1), rest]
            return [writer.index("add", start, rest), *self.advanced(now, rows_on)]

        writer.repeat(count, [("i64", "0"), *[("i64", digit) for digit in digits]], piece)
        return [copy.memory.load(dtype, self._buffer(s, dtype)) for s, dtype in self._dtypes(reads)]

    def _dtypes(self, reads: Sequence[ir.Load | ir.IndexOf]) -> list[tuple[ir.Load | ir.IndexOf, np.dtype]]:
        return [(s, s.dtype if isinstance(s, ir.IndexOf) else self.nest.operands[s.operand].dtype) for s in reads]

    def _buffer(self, s: ir.Load | ir.IndexOf, dtype: np.dtype) -> str:
        """A buffer of two vectors, as a piece may begin at the last lane."""
        found = self.buffers.get(s.out)
        if found is None:
            found = self.buffers[s.out] = self.writer.alloca(f"[{2 * self.lanes.width} x {whole(dtype)}]")
        return found
