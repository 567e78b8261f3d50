"""Which dimension of a call the threads share, and in which parts: a decision by the sizes of the call.

A chunk costs a fraction of a microsecond to hand out; the runtime makes chunks of at least the grain from the estimated
cost (``runtime/src/pool.h``). Bits do not depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.loops import ir
from weft.loops.nests import Lowered
from weft.loops.reduction_tree import BLOCK_LANES, BLOCK_ROWS

VECTOR_GRAIN = 16  # chunks of a split vector dimension are multiples of so many vectors
COLUMN_GRAIN = 4  # vectors, if every point has reduced dimensions
WIDE_GRAIN = 16  # vectors, if every point has reduced dimensions and there are enough columns
ENOUGH_BLOCKS = 8  # blocks of rows, enough for the threads
LIGHT = 8.0  # cost of the operations at a point
ENOUGH_CHUNKS = 16  # points of the first dimension from which it is split instead of the vector dimension


def split_of(low: Lowered) -> tuple[str, int, int]:
    """(the dimension that the runtime may split, its extent, the grain of chunks)."""
    return split_at(low.nest, low.extents)


def split_at(nest: ir.Nest, extents: Sequence[int]) -> tuple[str, int, int]:
    """As ``split_of``, for a nest whose dimensions have these extents."""
    if nest.split and nest.vector == 0 and nest.dims[0].role == "reduced":
        return "blocks", -(-extents[0] // BLOCK_LANES), 1
    if nest.split:  # split rows if there are few columns, or many with a body so cheap that whole rows are read as fast
        blocks, chunks = -(-extents[1] // BLOCK_ROWS), -(-extents[0] // (nest.width * COLUMN_GRAIN))
        if blocks > max(chunks, 1) or (blocks >= ENOUGH_BLOCKS and _is_light(nest)):
            return "blocks", blocks, 1
    if not nest.dims or nest.dims[0].role == "reduced":
        return "none", 0, 1
    vector = nest.vector if nest.vector is not None and nest.dims[nest.vector].role == "parallel" else None
    if vector == 0 and len(nest.dims) > 1:  # each column takes long
        grain = WIDE_GRAIN if extents[0] >= 4 * WIDE_GRAIN * nest.width else COLUMN_GRAIN
        return "vector", extents[0], nest.width * grain
    if vector == 0 or (vector is not None and extents[0] < ENOUGH_CHUNKS < extents[vector] // nest.width):
        return "vector", extents[vector], nest.width * VECTOR_GRAIN
    return "first", extents[0], 1


def _is_light(nest: ir.Nest) -> bool:
    """Whether a point, and the end of a column, take only a few instructions."""
    statements = [s for phase in nest.phases for s in (*phase.before, *phase.body)]
    return sum(s.kind.cost for s in statements if isinstance(s, ir.Apply)) <= LIGHT


def partial_bytes(nest: ir.Nest, extents: Sequence[int], blocks: int) -> int:
    """Bytes of the accumulators that a split nest leaves between its two passes."""
    if not nest.split:
        return 0
    count = sum(len(reduce.accumulators) for phase in nest.phases for reduce in phase.reductions)
    columns = extents[0] if nest.dims[0].role == "parallel" else 1
    return count * blocks * columns * 16
