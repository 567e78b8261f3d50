"""Writes elementwise nests over short rows in blocks of points at known positions (``loops.schedules.blocks``).

    for blocks: every load, every value, every store

All of a block is read before any of it is written, since a result may lie in the memory of an operand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.codegen.arithmetic.lanes import Lanes
from weft.codegen.memory_access import accesses
from weft.codegen.memory_access.memory_words import whole
from weft.codegen.nests import columns, instances
from weft.codegen.nests.frame import Frame
from weft.codegen.nests.instances import Instance, Position
from weft.loops import ir
from weft.loops.routines import routine
from weft.loops.schedules import blocks, uniform
from weft.loops.schedules.blocks import Point, RowBlock
from weft.loops.schedules.lane_loops import Loops


class BlockWriter(columns.ColumnWriter):
    """Writes the loops of one nest."""

    def __init__(self, parent: Frame) -> None:
        super().__init__(parent)
        assert isinstance(self.schedule.tile, RowBlock) and self.nest.row is not None
        self.block, self.extent, self.dim = self.schedule.tile, self.nest.row, self.nest.last
        self.across = self.nest.vector != self.dim  # vectors lie across rows; the last rows may fill no vector
        if not self.across:
            self.lanes = Lanes(self.writer, self.block.width)

    def rows(self, position: Position, outer: Sequence[int]) -> None:
        if self.across:
            super().rows(position, outer)
            return
        parent, dim, lanes = self.parent, outer[-1], self.lanes
        for key, stride in parent.strides.items():
            if key[1] == self.dim:
                parent.offsets[key] = lanes.splat(stride, "i64") * lanes.iota("i64")

        def rows(outside: Position) -> None:
            low, high = (parent.range(0), parent.range(1)) if dim == 0 else ("0", parent.extents[dim])

            def one(index: str, _: list[str]) -> list[str]:
                self.row(parent.enter(outside, dim, index, range(len(self.nest.operands))))
                return []

            parent.stretches(low, high, 1, [], one)

        parent.parallel(position, outer[:-1], rows)

    def columns(self, position: Position, alone: Instance, base: Instance, loops: Loops) -> None:
        if self.across:
            super().columns(position, alone, base, loops)
        else:
            self._points(base, self.block, position)

    def inside(self, tile: list[Instance], position: Position) -> None:
        first = tile[0]
        if first.mask is not None:
            super().inside(tile, position)
            return
        lanes = first.memory.lanes.width
        block = self.block if lanes * len(tile) == self.block.rows else blocks.block(self.nest, 1)
        if lanes != block.width:
            wide = self.parent.copy(Lanes(self.writer, block.width), {})
            wide.values = {n: wide.memory.splat(first.scalars[n]) for n in first.values}
            first = wide.replace(index=first.index, scalars=first.scalars)
        self._points(first, block, position)

    def _points(self, base: Instance, block: RowBlock, position: Position) -> None:
        """A block, of the row or from the row at ``base`` on."""
        starts = [0 if self.across else lanes[0][1] for lanes in block.vectors]
        copies = [instances.fresh(base, base.values, base.index if self.across else str(k), None, k) for k in starts]
        for s in self.statements:
            if isinstance(s, ir.Load) and s.out not in base.values:
                self._load(s, copies, block, position)
        self._compute([s for s in self.statements if not isinstance(s, ir.Store)], copies, block, position)
        for s in self.statements:
            if isinstance(s, ir.Store):
                pointers, offset = self._at(s.operand, base, position)
                offsets = [[offset(point) for point in lanes] for lanes in block.vectors]
                accesses.store(base.memory, [copy.values[s.value] for copy in copies], offsets, pointers)

    def _compute(
        self, statements: Sequence[ir.Statement], copies: list[Instance], block: RowBlock, position: Position
    ) -> None:
        """The values of all vectors; those that are the same for all elements of a row once."""
        parent, rows = self.parent, [[row for row, _ in lanes] for lanes in block.vectors]
        if all(some == rows[0] for some in rows):
            dims = [self.dim, *self.nest.digits]
            differ = uniform.differing(statements, lambda s: uniform.along(self.nest, dims, s))
            same = [s for s in statements if not isinstance(s, ir.Guard) and differ.isdisjoint(routine.outs(s))]
            parent.run(same, copies[:1], position)
            for copy in copies[1:]:
                copy.values.update({n: copies[0].values[n] for s in same for n in routine.outs(s)})
            statements = [s for s in statements if isinstance(s, ir.Guard) or not differ.isdisjoint(routine.outs(s))]
        if not block.by_elements:
            parent.run(statements, copies, position)
            return
        for copy, lanes in zip(copies, block.vectors, strict=True):
            indices = {**position.indices, self.dim: str(lanes[0][1])}
            parent.run(statements, [copy], position.replace(indices=indices))

    def _load(self, s: ir.Load, copies: Sequence[Instance], block: RowBlock, position: Position) -> None:
        """Values of all vectors, unless their elements are apart in a row at a distance that is not known."""
        operand = self.nest.operands[s.operand]
        if not self.across and operand.strides[self.dim] == ir.RUNTIME:
            return
        pointers, offset = self._at(s.operand, copies[0], position)
        wanted = [[offset(point) for point in lanes] for lanes in block.vectors]
        loaded = accesses.load(copies[0].memory, operand.dtype, pointers, wanted)
        for copy, value in zip(copies, loaded, strict=True):
            copy.values[s.out] = value

    def _at(
        self, number: int, copy: Instance, position: Position
    ) -> tuple[list[str], Callable[[Point], accesses.Access]]:
        """Pointers to elements of an operand in the first row of a block, and where its points lie relative to them."""
        operand, pointer, nest, writer = self.nest.operands[number], position.pointers[number], self.nest, self.writer
        if nest.uses_digits(number):
            offsets = [0]
            for dim in nest.digits:
                extent = nest.dims[dim].extent
                assert extent is not None
                offsets = [offset + operand.strides[dim] * digit for offset in offsets for digit in range(extent)]
            return [pointer], lambda point: (0, offsets[point[1]])
        apart, step = operand.apart or operand.strides[self.dim - 1 : self.dim + 1]
        if self.across:
            pointer = writer.element(whole(operand.dtype), pointer, writer.index("mul", copy.index or "0", str(apart)))
        if operand.apart is not None or step != ir.RUNTIME:
            return [pointer], lambda point: (0, apart * point[0] + step * point[1])
        distances = [self.parent.distance(number, self.dim, str(element)) for element in range(self.extent)]
        pointers = [writer.element(whole(operand.dtype), pointer, distance) for distance in distances]
        return pointers, lambda point: (point[1], apart * point[0])
