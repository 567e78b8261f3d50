"""Writes elementwise nests whose results are narrow rows side by side, by interleaving vectors of their elements.

    y = stack [a, b] -1    lanes along a and b:   a0 a1 a2 a3   b0 b1 b2 b3   ->   a0 b0 a1 b1   a2 b2 a3 b3

Rows of 2 to 4 elements, whose number is compiled in: repeats, stacks along the last axis, transposes to narrow rows.
Element by element, or by masks, a store of such a vector takes ten times as long.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.codegen import columns, flat_rows, instances, shuffles
from weft.codegen.emitter import Value
from weft.codegen.instances import Instance, Position
from weft.codegen.memory import whole
from weft.loops import ir


class InterleavedWriter(columns.ColumnWriter):
    """Writes the loops of one nest."""

    def _columns(self, place: Position, alone: Instance, base: Instance, tiles: Sequence[int]) -> None:
        if flat_rows.has_rows(self.nest):
            tiles = (flat_rows.lanes(self.nest, self.parent.width) // self.parent.width,)
        super()._columns(place, alone, base, tiles)

    def _inside(self, tile: list[Instance], place: Position) -> None:
        """All elements of the rows of a tile."""
        parent, nest = self.parent, self.nest
        dim, count = len(nest.dims) - 1, nest.interleaved
        assert count is not None
        if tile[0].mask is not None:
            super()._inside(tile, place)
            return
        if flat_rows.has_rows(nest):
            if tile[0].memory.lanes.width < parent.width:  # one element of what no block holds
                super()._inside(tile, place)
            else:
                flat_rows.Block(parent, tile, place).write()
            return
        statements = [s for phase in nest.phases for s in (*phase.before, *phase.body)]
        stores = [s for s in statements if isinstance(s, ir.Store)]
        turns = []
        shared: list[dict[int, Value]] = [{} for _ in tile]
        for number in range(count):
            inner = parent.enter(place, dim, str(number), range(len(nest.operands)))
            copies = [
                instances.fresh(c, {**c.values, **same}, c.index, c.mask, c.slot) for c, same in zip(tile, shared)
            ]
            parent.run([s for s in statements if not isinstance(s, ir.Store)], copies, inner)
            if not number:
                shared = [{n: v for n, v in c.values.items() if n in self._same(statements)} for c in copies]
            turns.append(copies)
        for s in stores:
            for k in range(len(tile)):
                self._store(s, [copies[k] for copies in turns], place)

    def _same(self, statements: Sequence[ir.Statement]) -> set[int]:
        """The values that are the same for all elements of a row."""
        dim, differ = len(self.nest.dims) - 1, set[int]()
        for s in statements:
            moves = isinstance(s, ir.Load | ir.LoadAt) and self.nest.operands[s.operand].strides[dim]
            if moves or (isinstance(s, ir.IndexOf) and s.dim == dim) or not differ.isdisjoint(ir.arguments(s)):
                differ.update([n for n in (getattr(s, "out", None),) if n is not None])
        return {s.out for s in statements if isinstance(s, ir.Load | ir.LoadAt | ir.Apply | ir.IndexOf)} - differ

    def _store(self, s: ir.Store, turns: Sequence[Instance], place: Position) -> None:
        """One vector of rows: their elements in turns."""
        copy, dtype, count = turns[0], self.nest.operands[s.operand].dtype, len(turns)
        assert copy.index is not None
        width = copy.memory.lanes.width
        pointer = self.writer.element(
            whole(dtype), place.pointers[s.operand], self.writer.index("mul", copy.index, str(count))
        )
        for vector in range(count):
            picks = [divmod(vector * width + lane, count) for lane in range(width)]
            values = [turn.values[s.value] for turn in turns]
            value = shuffles.picked_value(values, [(turn, row) for row, turn in picks], copy.memory.lanes)
            copy.memory.store(value, self.writer.element(whole(dtype), pointer, str(vector * width)))
