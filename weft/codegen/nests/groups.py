"""Totals of many blocks, by groups of 256 of them: the upper level of the reduction tree of docs/NUMERICS.md.

Groups that ended are combined in memory: the loop over blocks has as many registers as without them.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.codegen.arithmetic.emitter import Value
from weft.codegen.nests import reduce_tree
from weft.codegen.nests.frame import Frame
from weft.codegen.nests.instances import Position
from weft.loops.reduction_tree import GROUP_BLOCKS

Combine = Callable[[list[Value], list[Value]], list[Value]]  # of totals of all reductions of a phase


class Groups:
    """The groups of a phase, whose totals begin as ``identities``; in a nest that is not ``long`` there is only one."""

    def __init__(self, frame: Frame, block: int, identities: list[Value], combine: Combine) -> None:
        """``block``: how many indices of the last reduced dimension a block has."""
        self.frame, self.writer, self.block = frame, frame.writer, block
        self.identities, self.combine = identities, combine
        self.kept_in: list[str] = []
        if frame.nest.long:
            self.kept_in = [self.writer.alloca(type_) for type_, _ in reduce_tree.flatten(identities)]
            self._keep(identities)

    def number(self, position: Position, start: str) -> str:
        """The number of the block at index ``start``, among those of all rows; not known if there is only one group."""
        if not self.kept_in:
            return ""
        writer, (*outer, last), row = self.writer, self.frame.reduced, "0"
        for dim in outer:
            row = writer.index("add", writer.index("mul", row, self.frame.extents[dim]), position.indices[dim])
        per_row = self._blocks(writer.index("add", self.frame.extents[last], str(self.block - 1)))
        return writer.index("add", writer.index("mul", row, per_row), self._blocks(start))

    def before(self, number: str, totals: list[Value]) -> list[Value]:
        """The values to combine the block of this number with: the totals so far, or the identities of a new group."""
        if not self.kept_in:
            return totals
        writer = self.writer
        is_first = writer.compare_index("eq", writer.index("and", number, str(GROUP_BLOCKS - 1)), "0")

        def new_group() -> list[Value]:
            self._keep(self.all(totals))
            return self.identities

        return reduce_tree.when(writer, is_first, new_group, totals)

    def all(self, totals: list[Value]) -> list[Value]:
        """The totals of all blocks so far, from those of the last group."""
        if not self.kept_in:
            return totals
        flat = reduce_tree.flatten(self.identities)
        kept = [self.writer.load(type_, at) for (type_, _), at in zip(flat, self.kept_in, strict=True)]
        return self.combine(reduce_tree.rebuild(self.identities, kept), totals)

    def _keep(self, totals: list[Value]) -> None:
        for (type_, text), at in zip(reduce_tree.flatten(totals), self.kept_in, strict=True):
            self.writer.line(f"store {type_} {text}, ptr {at}")

    def _blocks(self, index: str) -> str:
        return self.writer.index("lshr", index, str(self.block.bit_length() - 1))
