"""Writes sorted scatters for the threads of a GPU: the thread of the first update of a place makes all of that place.

updates of places 3 3 5 7 7 7     threads 0, 2 and 3 have work: two updates, one, three, in their order
"""

from __future__ import annotations

from weft.codegen import indexed, instances, runs
from weft.codegen.columns import ColumnWriter
from weft.codegen.gpu import threads
from weft.codegen.gpu.points import PointWriter
from weft.codegen.instances import Position
from weft.loops import ir


class RunWriter(PointWriter):
    """Writes the entry of a nest whose first loop is over the updates of a sorted scatter."""

    def _point(self, p: str, place: Position) -> None:
        writer, (first, *others) = self.writer, self.indices(p)
        here = self._offset(first, others, place)
        before = self._offset(writer.maximum_index(writer.index("sub", first, "1"), "0"), others, place)
        is_other = writer.op(f"icmp ne i64 {here}, {before}")
        begins = writer.op(f"or i1 {is_other}, {writer.compare_index('eq', first, '0')}")
        last = writer.index("sub", self.extents[0], "1")

        def one(now: list[str]) -> tuple[list[str], str]:
            base = instances.fresh(self.scalars, self.scalars.values)
            base.scalars = dict(self.scalars.values)
            ColumnWriter(self).point([base], self.at_point(place, [now[0], *others]))
            following = writer.index("add", now[0], "1")
            there = self._offset(writer.minimum_index(following, last), others, place)
            is_same = writer.op(f"icmp eq i64 {here}, {there}")
            more = writer.op(f"and i1 {is_same}, {writer.compare_index('sle', following, last)}")
            return [following], more

        threads.when(writer, begins, lambda: writer.rounds("true", 1 << 40, [("i64", first)], one))

    def _offset(self, index: str, others: list[str], place: Position) -> str:
        """The place of an update."""
        needed = runs.place_statements(self.nest)
        (update,) = [s for s in needed if isinstance(s, ir.Update)]
        point = self.copy(self.scalar, dict(self.scalars.values))
        self.run([s for s in needed if s is not update], [point], self.at_point(place, [index, *others]))
        offset = indexed.uniform_offset(self, update.offset, point)
        assert offset is not None
        return offset
