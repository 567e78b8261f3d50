"""Regions of an assembled output: a fill that is mostly overwritten becomes disjoint slabs around what remains.

pad f32[6,8] by one on every side: rows 0 and 7 whole, columns 0 and 9 of the rows between, the operand itself
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.core.kinds import Piece

MAX_PADDED = 2  # dimensions; more slabs than these give cost more calls than the second write


def disjoint(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces that have elements; a leading fill under one dense region is cut into slabs."""
    found = [piece for piece in pieces if 0 not in piece.extent]
    if len(found) != 2 or not found[0].fill or any(step != 1 for step in found[1].step):
        return found
    fill, body = found
    if any(fill.start) or any(step != 1 for step in fill.step) or fill.index_map:
        return found
    padded = [dim for dim, extent in enumerate(fill.extent) if extent != body.extent[dim]]
    if len(padded) > MAX_PADDED:
        return found
    slabs: list[Piece] = []
    start, extent = [0] * len(fill.extent), list(fill.extent)
    for dim in padded:
        low, high = body.start[dim], body.start[dim] + body.extent[dim]
        for first, count in ((0, low), (high, fill.extent[dim] - high)):
            if count:
                slab_start, slab_extent = list(start), list(extent)
                slab_start[dim], slab_extent[dim] = first, count
                slabs.append(Piece(fill.operand, tuple(slab_start), fill.step, tuple(slab_extent), fill.index_map))
        start[dim], extent[dim] = low, body.extent[dim]
    return [*slabs, body]
