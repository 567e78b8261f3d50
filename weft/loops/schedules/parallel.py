"""Which dimension of a call the threads share, and in which parts: a decision by the sizes of the call.

A chunk costs a fraction of a microsecond to hand out; the runtime makes chunks of at least the grain from the estimated
cost (``runtime/src/threads/pool.h``). Bits do not depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft._base.record import NamedTuple
from weft.loops import elements, ir
from weft.loops.nests import Lowered
from weft.loops.reduction_tree import BLOCK_LANES, BLOCK_ROWS
from weft.loops.routines import routine
from weft.loops.schedules import costs

VECTOR_GRAIN = 16  # chunks of a split vector dimension are multiples of so many vectors
COLUMN_GRAIN = 4  # vectors, if every point has reduced dimensions
WIDE_GRAIN = 16  # vectors, if every point has reduced dimensions and there are enough columns
ENOUGH_BLOCKS = 8  # blocks of rows, enough for the threads
LIGHT = 8.0  # cost of the operations at a point
LONG_ROWS = 512  # elements: the columns of longer rows are summed some rows at a time, which prefetchers follow
ENOUGH_CHUNKS = 16  # points of the first dimension from which it is split instead of the vector dimension


class Outline(NamedTuple):
    """What is asked of a nest to call it: plain values, which stay when the nest itself is gone."""

    roles: tuple[str, ...]  # of its dimensions
    vector: int | None
    width: int
    split: bool
    is_light: bool
    rows: tuple[int, ...]  # bytes of an element of each row of scratch
    accumulators: int
    nanoseconds: float  # of a point

    def points(self, outer: Sequence[int], extents: Sequence[int]) -> int:
        """The number of points of the whole space."""
        return math.prod(outer) * math.prod(extents[: len(extents) - self.roles.count("digit")])

    def split_at(self, extents: Sequence[int]) -> tuple[str, int, int]:
        """(the dimension that the runtime may split, its extent, the grain of chunks) at these extents."""
        roles, vector, width = self.roles, self.vector, self.width
        if self.split and vector == 0 and roles[0] == "reduced":
            return "blocks", -(-extents[0] // BLOCK_LANES), 1
        if self.split:  # split rows if there are few columns, or many with a body so cheap that rows are read as fast
            blocks, chunks = -(-extents[1] // BLOCK_ROWS), -(-extents[0] // (width * COLUMN_GRAIN))
            if blocks > max(chunks, 1) or (blocks >= ENOUGH_BLOCKS and self.is_light):
                return "blocks", blocks, 1
        if not roles or roles[0] == "reduced":
            return "none", 0, 1
        vector = vector if vector is not None and roles[vector] == "parallel" else None
        if vector == 0 and len(roles) > 1:  # each column takes long
            grain = WIDE_GRAIN if extents[0] >= 4 * WIDE_GRAIN * width else COLUMN_GRAIN
            return "vector", extents[0], width * grain
        if vector == 0 or (vector is not None and extents[0] < ENOUGH_CHUNKS < extents[vector] // width):
            return "vector", extents[vector], width * VECTOR_GRAIN
        return "first", extents[0], 1

    def partial_bytes(self, split: str, extents: Sequence[int]) -> int:
        """Bytes of the accumulators that a nest keeps in memory between its passes, if ``split_at`` gives this."""
        columns, blocks = 1, 0
        if split == "blocks":
            blocks, columns = self.split_at(extents)[1], extents[0] if self.roles[0] == "parallel" else 1
        elif split == "vector" and self.split and self.is_light and extents[0] >= LONG_ROWS:
            columns, blocks = extents[0], -(-extents[1] // BLOCK_ROWS)
        return self.accumulators * blocks * columns * 16

    def scratch_bytes(self, extents: Sequence[int]) -> int:
        """Bytes of scratch one call needs."""
        if not self.rows:
            return 0
        columns = self.vector is None or self.roles[self.vector] == "parallel"
        count = costs.ROW_LANES if columns else 1
        for role, extent in zip(self.roles, extents, strict=True):
            if role == "reduced":
                count *= extent
        return sum([((count + costs.ROW_PADDING) * size + 63) & ~63 for size in self.rows])


def outline(nest: Any) -> Any:
    """The outline of a nest, or those of a chain's nests; a routine's lanes and nanoseconds; None for others."""
    if isinstance(nest, ir.Chain):
        return tuple(map(outline, nest.nests))
    if isinstance(nest, routine.Routine):
        return nest.lanes, costs.nanoseconds(nest)
    if not isinstance(nest, ir.Nest):
        return None
    reductions = [reduce for phase in nest.phases for reduce in phase.reductions]
    return Outline(
        tuple([dim.role for dim in nest.dims]), nest.vector, nest.width, nest.split,
        nest.split and _is_light(nest), tuple([elements.of(dtype).size for dtype in nest.rows]),
        sum([len(reduce.accumulators) for reduce in reductions]), costs.nanoseconds(nest),
    )  # fmt: skip


def split_of(low: Lowered) -> tuple[str, int, int]:
    """(the dimension that the runtime may split, its extent, the grain of chunks)."""
    return outline(low.nest).split_at(low.extents)


def _is_light(nest: ir.Nest) -> bool:
    """Whether a point, and the end of a column, take only a few instructions."""
    statements = [s for phase in nest.phases for s in (*phase.before, *phase.body)]
    return sum([s.kind.cost for s in statements if isinstance(s, ir.Apply)]) <= LIGHT
