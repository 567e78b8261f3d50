"""Writes elementwise nests that read neighbourhoods (stencils): two rows at a time, which share their loads.

    for pairs of rows: for vectors: load the lines that either row reads; both rows' statements; both rows' stores

On processors that prefetch one long stream better than several short ones (``Target.row_by_row``), one row at a time.

A line is a row of a buffer that several operands read, some elements apart. Loading each operand by itself would make
nearly every vector cross a cache line, which takes two accesses. Where masks have registers they are
shuffled out of whole vectors.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from weft._base.target_model import PAGE
from weft.codegen.arithmetic.emitter import Value
from weft.codegen.memory_access.memory import Mask, first_lanes
from weft.codegen.memory_access.memory_words import whole
from weft.codegen.nests import columns, instances, lane_loops
from weft.codegen.nests.frame import Frame
from weft.codegen.nests.instances import Instance, Position
from weft.loops import elements, ir
from weft.loops.schedules.decisions import Line, Stencil, line_of
from weft.loops.schedules.lane_loops import LaneLoop


class StencilWriter(columns.ColumnWriter):
    """Writes the loops of one nest."""

    def __init__(self, parent: Frame) -> None:
        super().__init__(parent)
        assert isinstance(self.schedule.tile, Stencil)
        self.chosen, self.dim = self.schedule.tile, len(self.nest.dims) - 2
        self.shifts = dict(self.chosen.lines)  # in elements

    def rows(self, position: Position, outer: Sequence[int]) -> None:
        parent, writer, dim, count = self.parent, self.writer, self.dim, self.chosen.rows
        operands = range(len(self.nest.operands))
        firsts = [k for k in operands if self.nest.operands[k].near is None]

        def groups(inner: Position) -> None:
            low, high = (parent.range(0), parent.range(1)) if dim == 0 else ("0", parent.extents[dim])
            even = writer.index("add", low, writer.index("and", writer.index("sub", high, low), str(-count)))

            def group(index: str, _: list[str]) -> list[str]:
                at = [writer.index("add", index, str(row)) for row in range(count)]
                positions = [parent.enter(inner, dim, i, firsts) for i in at]
                self._together(positions)
                for row in positions:
                    self.edges(row)
                return []

            def last(index: str, _: list[str]) -> list[str]:
                self.row(parent.enter(inner, dim, index, operands), self.chosen.last)
                return []

            writer.loop(low, even, count, [], group)
            if count > 1:
                writer.loop(even, high, 1, [], last)

        parent.parallel(position, outer[:-1], groups)

    def _together(self, positions: Sequence[Position]) -> None:
        parent, known = self.parent, [self.hoisted(position)[0].values for position in positions]
        following = self._following(positions[0])

        def tile(_: LaneLoop, at: list[str], mask: Mask | None, __: list[str]) -> list[str]:
            if mask is None:
                self._fetch(following, at)
            self._tile(positions, [[self._copy(row, i, u, mask) for u, i in enumerate(at)] for row in known])
            return []

        lane_loops.write(parent, parent.schedule.loops, (parent.range(2), parent.range(3)), tile)

    def _following(self, position: Position) -> list[tuple[str, str]]:
        """(word, pointer) of the rows to prefetch: those that only the next rows read and write.

        The hardware prefetcher stops at the end of a page, and begins anew in each row.
        """
        parent, writer, found = self.parent, self.writer, []
        if not self.chosen.fetched:
            return found
        for k, operand in enumerate(self.nest.operands):
            if operand.near is None and operand.strides[self.dim] == ir.RUNTIME and operand.strides[-1] == 1:
                element = elements.of(operand.dtype)
                most = PAGE // element.size  # for longer rows it was slower
                near = writer.compare_index("sle", parent.extents[-1], str(most))
                below = max([row for first, row in self.shifts if first == k], default=0) + 1
                ahead = writer.choose_index(near, parent.distance(k, self.dim, str(below)), "0")
                found.append((whole(operand.dtype), writer.element(whole(operand.dtype), position.pointers[k], ahead)))
        return found

    def _fetch(self, rows: Sequence[tuple[str, str]], at: Sequence[str]) -> None:
        for word, row in rows:
            for index in at:
                self.writer.prefetch(self.writer.element(word, row, index))

    def _copy(self, known: dict[int, Value], index: str, number: int, mask: Mask | None = None) -> Instance:
        return instances.fresh(self.base, known, index, mask, number * self.parent.width)

    def _tile(self, positions: Sequence[Position], rows: Sequence[list[Instance]]) -> None:
        lines: dict[Line, dict[int, list[Value]]] = {}
        for s in self.statements:
            for number, (position, tile) in enumerate(zip(positions, rows, strict=True)):
                if not isinstance(s, ir.Load) or s.out in tile[0].values:
                    self.parent.run([s], tile, position)
                    continue
                line, shift = line_of(self.nest, s.operand, number)
                if line not in lines:
                    lines[line] = self._line(line, tile, positions[0])
                for copy, value in zip(tile, lines[line][shift], strict=True):
                    copy.values[s.out] = value

    def _line(self, line: Line, tile: Sequence[Instance], position: Position) -> dict[int, list[Value]]:
        """The vectors of a line in a tile, by their distance in elements."""
        least, most, memory = min(self.shifts[line]), max(self.shifts[line]), tile[0].memory
        if tile[0].mask is not None or line not in self.chosen.shuffled:
            return {shift: [self._load(line, shift, copy, position) for copy in tile] for shift in self.shifts[line]}
        # elements that no shift reads may be outside the buffer
        few = first_lanes(self.parent.lanes, str(most - least))
        after = self._copy({}, self.writer.index("add", tile[-1].index or "0", str(self.parent.width)), 0, few)
        vectors = [self._load(line, least, copy, position) for copy in (*tile, after)]
        pairs = list(itertools.pairwise(vectors))
        return {
            shift: [Value(a.dtype, (memory.window(a.part, b.part, shift - least),)) for a, b in pairs]
            for shift in self.shifts[line]
        }

    def _load(self, line: Line, shift: int, copy: Instance, position: Position) -> Value:
        (first, below), writer = line, self.writer
        type_ = whole(self.nest.operands[first].dtype)
        distance = self.parent.distance(first, self.dim, str(below)) if below else "0"
        row = writer.element(type_, position.pointers[first], distance)
        at = writer.element(type_, row, writer.index("add", copy.index or "0", str(shift)))
        return copy.memory.load(self.nest.operands[first].dtype, at, copy.mask)
