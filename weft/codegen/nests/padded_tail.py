"""Long bodies where no register masks lanes: whole vectors only, the last elements on padded copies of their own.

    y = f(x), 100 elements, 32 at a time:   x[0:96] -> y[0:96]
                                            a copy of x[96:100] and 28 more -> 32 elements; 4 go to y[96:100]

Both go through one loop, whose pointers change, so that the body is compiled once and no vector pays for a mask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from weft.codegen.memory_access.memory_words import alignment, whole
from weft.codegen.nests import instances, lane_loops
from weft.codegen.nests.instances import Instance, Position
from weft.codegen.nests.loop_distribution import Distributed
from weft.loops.schedules.lane_loops import LaneLoop

if TYPE_CHECKING:
    from weft.codegen.nests.columns import ColumnWriter

Side = Callable[[str], tuple[str, str]]  # the number of an element -> a pointer, and the element's distance from it


def write(columns: ColumnWriter, loop: LaneLoop, base: Instance, position: Position, low: str, high: str) -> None:
    """Write the loop from ``low`` to ``high``."""
    writer, width = columns.writer, columns.parent.width
    step = loop.vectors * width
    main = lane_loops.whole(columns.parent, low, high, step)
    copies = {k: _Copy(columns, k, position.pointers[k], (main, high), step) for k in _moving(columns)}
    _if_some(columns, main, high, [copy.fetch for copy in copies.values() if copy.role == "in"])

    def stretch(start: str, given: list[str]) -> list[str]:
        end, pointers = given[0], dict(zip(copies, given[1:], strict=True))
        at = Position({**position.pointers, **pointers}, position.indices, position.row)

        def tile(index: str, _: list[str]) -> list[str]:
            slots = range(0, step, width)
            indices = [writer.index("add", index, str(slot)) for slot in slots]
            columns.point([instances.fresh(base, base.values, p, None, s) for p, s in zip(indices, slots)], at)
            return []

        if distributed is not None:
            distributed.write(base, at, start, end)
        else:
            columns.parent.stretches(start, end, step, [], tile)
        return [end, writer.index("add", main, str(step)), *[copy.shifted for copy in copies.values()]]

    distributed = Distributed(columns.parent, loop) if loop.parts else None
    begun = [("i64", low), ("i64", main), *[("ptr", position.pointers[k]) for k in copies]]
    writer.repeat(high, begun, stretch)
    _if_some(columns, main, high, [copy.give for copy in copies.values() if copy.role == "out"])


def _moving(columns: ColumnWriter) -> list[int]:
    nest = columns.nest
    return [k for k, operand in enumerate(nest.operands) if operand.strides[nest.vector or 0]]


def _if_some(columns: ColumnWriter, main: str, high: str, parts: Sequence[Callable[[], None]]) -> None:
    """These parts of the code, if elements are left."""

    def some() -> None:
        for part in parts:
            part()

    columns.writer.when(columns.writer.compare_index("slt", main, high), some, rare=False)


class _Copy:
    """Stack memory for the last elements of an operand."""

    def __init__(self, columns: ColumnWriter, operand: int, pointer: str, left: tuple[str, str], step: int) -> None:
        self.writer, self.pointer, self.step = columns.writer, pointer, step
        found = columns.nest.operands[operand]
        self.role, self.word, self.align = found.role, whole(found.dtype), alignment(found.dtype)
        main, high = left
        self.first, self.count = main, self.writer.index("sub", high, main)
        buffer = self.writer.alloca(f"[{step + 1} x {self.word}]")
        # not at the start of a cache line: a streamed store would bypass the caches
        self.buffer = self.writer.element(self.word, buffer, "1")
        self.shifted = self.writer.element(self.word, self.buffer, self.writer.index("sub", "0", main))

    def fetch(self) -> None:
        """Copy the elements that are left; the last one fills the rest."""
        last = self.writer.index("sub", self.count, "1")
        there = self.writer.element(self.word, self.pointer, self.first)
        self._copy(str(self.step), lambda k: (there, self.writer.minimum_index(k, last)), lambda k: (self.buffer, k))

    def give(self) -> None:
        """Copy the elements that are left to where they belong."""
        there = self.writer.element(self.word, self.pointer, self.first)
        self._copy(self.count, lambda k: (self.buffer, k), lambda k: (there, k))

    def _copy(self, count: str, source: Side, sink: Side) -> None:
        writer = self.writer

        def one(k: str, _: list[str]) -> list[str]:
            p, q = (writer.element(self.word, *side(k)) for side in (source, sink))
            word = writer.op(f"load {self.word}, ptr {p}, align {self.align}")
            writer.line(f"store {self.word} {word}, ptr {q}, align {self.align}")
            return []

        writer.loop("0", count, 1, [], one)
