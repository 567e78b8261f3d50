"""Writes elementwise nests over many short rows of a known length: whole vectors, the last of which ends with the row.

for points of the dimensions before: every load of the row, every value, every store        (``loops.known_rows``)
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.codegen import columns, instances, shuffles
from weft.codegen.frame import Frame
from weft.codegen.instances import Instance, Position
from weft.codegen.lanes import Lanes
from weft.codegen.memory import whole
from weft.loops import ir, known_rows


class KnownRowWriter(columns.ColumnWriter):
    """Writes the loops of one nest."""

    def __init__(self, parent: Frame) -> None:
        super().__init__(parent)
        extent = parent.nest.row
        assert extent is not None
        self.lanes_of_row, self.starts = known_rows.vectors(extent, parent.width)

    def write(self, place: Position, scalars: Instance) -> None:
        parent, nest, vector = self.parent, self.nest, self.nest.vector
        assert vector is not None
        lanes = Lanes(self.writer, self.lanes_of_row)
        base = self._base(lanes, scalars)
        for key, stride in parent.strides.items():
            if key[1] == vector and lanes.width > 1:
                parent.offsets[key] = lanes.splat(stride, "i64") * lanes.iota("i64")

        def rows(outside: Position) -> None:
            dim, operands = vector - 1, range(len(nest.operands))
            low, high = (parent.range(0), parent.range(1)) if dim == 0 else ("0", parent.extents[dim])

            def one(index: str, _: list[str]) -> list[str]:
                self.row(parent.enter(outside, dim, index, operands), scalars, base)
                return []

            parent.stretches(low, high, 1, [], one)

        parent.parallel(place, range(vector - 1), rows)

    def _columns(self, place: Position, alone: Instance, base: Instance, tiles: Sequence[int]) -> None:
        tile = [instances.fresh(base, base.values, str(start), None, start) for start in self.starts]
        statements = [s for phase in self.nest.phases for s in (*phase.before, *phase.body)]
        for s in statements:
            if isinstance(s, ir.Load) and self.nest.uses_digits(s.operand):
                self._repeated(s, tile, place)
        self.parent.run([s for s in statements if not isinstance(s, ir.Store)], tile, place)
        self.parent.run([s for s in statements if isinstance(s, ir.Store)], tile, place)

    def _repeated(self, s: ir.Load, tile: Sequence[Instance], place: Position) -> None:
        """The vectors of an operand whose elements are repeated along some digits of the row."""
        nest, operand = self.nest, self.nest.operands[s.operand]
        offsets = [0]
        for dim in nest.digits:
            extent, stride = nest.dims[dim].extent, operand.strides[dim]
            assert extent is not None
            offsets = [offset + stride * digit for offset in offsets for digit in range(extent)]
        width, starts = known_rows.vectors(max(offsets) + 1, tile[0].memory.lanes.width)
        narrow = tile[0] if width == tile[0].memory.lanes.width else self.parent.copy(Lanes(self.writer, width), {})
        pointers = [
            self.writer.element(whole(operand.dtype), place.pointers[s.operand], str(start)) for start in starts
        ]
        loaded = [narrow.memory.load(operand.dtype, pointer) for pointer in pointers]
        for copy, begun in zip(tile, self.starts, strict=True):
            lanes = copy.memory.lanes
            picks = shuffles.picks(starts, offsets[begun : begun + lanes.width])
            copy.values[s.out] = shuffles.picked_value(loaded, picks, lanes)
