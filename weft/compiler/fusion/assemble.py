"""Regions of an assembled output: a fill that is mostly overwritten is cut into slabs around the other region.

pad f32[6,8] by one on every side: rows 0 and 7 whole, columns 0 and 9 of the rows between, the operand itself

A region that is itself assembled, and read only here, is replaced by its own regions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.core import index_maps, kinds
from weft.core.index_maps import Piece
from weft.core.programs.jaxpr import JaxprEqn
from weft.loops.schedules.thresholds import are_many

MAX_PADDED = 2  # dimensions; with more slabs, calls cost more than writing twice
FILLED = 64  # elements of a row, and fewer: to fill all of many rows is faster than to write their ends


def disjoint(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces that have elements; a leading fill under one dense region is cut into slabs."""
    found = [piece for piece in pieces if 0 not in piece.region.extent]
    if len(found) != 2 or not found[0].fill or not found[1].region.is_dense or not found[0].region.extent:
        return found
    fill, body = found
    padded = [dim for dim, extent in enumerate(fill.region.extent) if extent != body.region.extent[dim]]
    *rows, last = fill.region.extent
    if len(padded) > MAX_PADDED or (padded[-1:] == [len(rows)] and last <= FILLED and are_many((), rows)):
        return found
    slabs = index_maps.around(body.region, fill.region.extent)
    return [*[Piece(fill.operand, slab, fill.index_map) for slab in slabs], body]


def regions(equation: JaxprEqn, maker_of: Callable[[Any], Any]) -> list[tuple[Piece, Any]]:
    """The pieces of an assembled output with the atoms they hold; pieces that are assembled themselves are expanded.

    ``maker_of`` gives the equation of an atom that only this equation reads, or None.
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
            joined = [Piece(part.operand, part.region.within(piece.region), part.index_map) for part, _ in inside]
            found += zip(joined, [leaf for _, leaf in inside], strict=True)
    return found


def _is_whole(piece: Piece, atom: Any) -> bool:
    shape = piece.region.extent
    return shape == atom.aval.shape and piece.index_map == index_maps.identity(len(shape))
