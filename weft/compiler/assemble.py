"""Regions of an assembled output: a fill that is mostly overwritten becomes disjoint slabs around what remains.

pad f32[6,8] by one on every side: rows 0 and 7 whole, columns 0 and 9 of the rows between, the operand itself

A region that is itself assembled, for this output only, is put together where it belongs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.core import kinds
from weft.core.kinds import DimMap, Piece

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
                slabs.append(Piece(fill.operand, tuple(slab_start), fill.step, tuple(slab_extent), (), False))
        start[dim], extent[dim] = low, body.extent[dim]
    return [*slabs, body]


def regions(equation: Any, maker_of: Callable[[Any], Any]) -> list[tuple[Piece, Any]]:
    """The pieces of an assembled output with the atoms they hold, those of pieces that are assembled in their place.

    ``maker_of`` gives the equation of an atom that nothing but this equation reads, or None.
    """
    kind, out = equation.primitive.kind, equation.outvars[0]
    pieces = disjoint(kind.pieces([atom.aval for atom in equation.invars], out.aval, equation.params))
    found: list[tuple[Piece, Any]] = []
    for piece in pieces:
        atom = equation.invars[piece.operand]
        inner = None if piece.fill or not _is_whole(piece, atom) else maker_of(atom)
        if inner is None or not isinstance(inner.primitive.kind, kinds.Assemble):
            found.append((piece, atom))
            continue
        inside = regions(inner, maker_of)
        if any(part.fill for part, _ in inside):
            found.append((piece, atom))
        else:
            found += [(_placed(part, piece), leaf) for part, leaf in inside]
    return found


def _is_whole(piece: Piece, atom: Any) -> bool:
    identity = tuple([DimMap(dim) for dim in range(len(piece.extent))])
    return piece.extent == atom.aval.shape and tuple(piece.index_map) == identity


def _placed(part: Piece, piece: Piece) -> Piece:
    """A piece of a piece, as one of the output."""
    start = tuple([at + step * inner for at, step, inner in zip(piece.start, piece.step, part.start, strict=True)])
    step = tuple([outer * inner for outer, inner in zip(piece.step, part.step, strict=True)])
    return Piece(part.operand, start, step, part.extent, part.index_map)
