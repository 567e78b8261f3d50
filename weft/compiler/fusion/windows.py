"""Axes of scatters and of assembled arrays for fusion: a scatter's space, the piece that an access reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft._base.record import Record
from weft.compiler.fusion import groups
from weft.compiler.fusion.dimensions import Dimensions
from weft.compiler.fusion.groups import Group
from weft.core import index_maps, kinds
from weft.core.index_maps import CONSTANT, FIXED, Affine, Piece, constant
from weft.core.programs.jaxpr import JaxprEqn, Literal
from weft.loops import kernel
from weft.loops.index_math import UNIT
from weft.loops.kernel import Access, Axis, Node
from weft.loops.schedules.thresholds import LONG

MOST_PIECES = 4  # pieces of an array in short rows; each costs a load and a choice for every vector
SHORT_ROW = 16  # elements of a row whose pieces are read at every point
LEAST_BYTES = 4  # bytes of an element; not every processor has masked loads of narrower ones


class Space(Record):
    """The axes of a scatter's updates: parallel ones, then the ordered ones, outer to inner."""

    axes: tuple[Axis, ...]
    ordered: tuple[int, ...]
    access: Access  # of the updates


def writes_nothing(equation: JaxprEqn) -> bool:
    """Whether an update has no elements: its loops would not say so along a dimension in which the array has one."""
    kind = equation.primitive.kind
    if isinstance(kind, kinds.Scatter):
        return not equation.invars[2].aval.size or not equation.outvars[0].aval.size
    return isinstance(kind, kinds.DynamicUpdateSlice) and not equation.invars[1].aval.size


def scatter_space(dims: Dimensions, equation: JaxprEqn) -> Space:
    """The axes of a scatter. Parallel are dimensions along which different points always update different elements.

    Those are the dimensions that a window covers in full, those without an index, those that the array shares with
    the indices, and all of a window that is the only one.
    """
    windows, updates = dims.windows[equation], equation.invars[2]
    movable = {dim for dim, most in zip(windows.starts, windows.most, strict=True) if most}
    if all(updates.aval.shape[dim] == 1 for dim in windows.batch):
        movable = set()
    free = [update_dim for dim, update_dim in enumerate(windows.moved) if update_dim is not None and dim not in movable]
    within = [dim for dim in range(updates.aval.ndim) if dim not in windows.batch and dim not in free]
    ordered = [*[dim for dim in windows.batch if dim not in free], *within]
    symbols = dims.sizes.symbols(updates)
    axes = {
        dim: groups.new_axis(symbols[dim], updates.aval.shape[dim]) for dim in (*free, *ordered) if symbols[dim] != UNIT
    }
    access = tuple([Affine(axes[dim].key) if dim in axes else FIXED for dim in range(updates.aval.ndim)])
    return Space(tuple(axes.values()), tuple([axes[dim].key for dim in ordered if dim in axes]), access)


def pieces_read(
    dims: Dimensions, group: Group, equation: JaxprEqn, pieces: Sequence[Piece]
) -> dict[Access, tuple[Node, ...]] | None:
    """What a group reads at each of its accesses to an assembled array, instead of it; None if it cannot.

    That is one operand; or one for each piece of short rows, and the index chooses among them (``loops.assembled``).
    """
    extents = {axis.key: axis.extent for axis in group.axes}
    found, chooses = {}, False
    for access in group.wanted.get(equation.outvars[0], ()):
        one = index_maps.piece_of(pieces, access, extents)
        read = [one] if one else index_maps.pieces_of(pieces, access, extents) or ()
        found[access] = tuple([_read(equation.invars[piece.operand], inner) for piece, inner in read])
        chooses |= one is None
    if chooses and (group.tree is not None or not in_short_rows(dims, equation, pieces)):
        return None
    group.chooses |= chooses
    return found


def _read(operand: Any, access: Access) -> Node:
    return Node(kernel.Constant(operand), ()) if type(operand) is Literal else Node(operand, access)


def in_short_rows(dims: Dimensions, equation: JaxprEqn, pieces: Sequence[Piece]) -> bool:
    """Whether an array is assembled within many short rows, from slices of rows that are as long.

    Its pieces are so short that copying each takes longer than reading all of them for every vector.
    """
    out = equation.outvars[0]
    return out in dims.of_slices and are_short(out.aval, pieces)


def are_short(array: Any, pieces: Sequence[Piece]) -> bool:
    """Whether the pieces are few, and cut short rows of an array of many elements."""
    cut = [dim for piece in pieces for dim, extent in enumerate(piece.region.extent) if extent != array.shape[dim]]
    if not cut or len(pieces) > MOST_PIECES or np.dtype(array.dtype).itemsize < LEAST_BYTES or array.size < LONG:
        return False
    return math.prod(array.shape[min(cut) :]) <= SHORT_ROW and all(piece.region.is_dense for piece in pieces)


def piece_space(dims: Dimensions, piece: Piece, operand: Any, out: Any) -> tuple[list[Axis], Access, Access]:
    """Axes of a piece's region, the region's access to the output, and its access to the operand."""
    axes: list[Axis] = []
    uses: list[Affine] = []
    region, symbols = piece.region, dims.sizes.symbols(out)
    named = {dim.axis: i for i, dim in enumerate(piece.index_map) if dim.axis != CONSTANT}
    inner = dims.symbols(operand)
    for dim, extent in enumerate(region.extent):
        if symbols[dim] == UNIT:
            uses.append(FIXED)
            continue
        if extent == 1 and operand.aval.shape and (dim not in named or inner[named[dim]] == UNIT):
            uses.append(constant(region.start[dim]))
            continue
        whole = region.start[dim] == 0 and region.step[dim] == 1 and extent == out.aval.shape[dim]
        source = UNIT
        if dim in named and operand.aval.shape[named[dim]] == extent and piece.index_map[named[dim]].step == 1:
            source = inner[named[dim]]
        symbol = symbols[dim] if whole else source
        # slabs of a fill share one nest, whichever dimensions they cover in full
        if symbol == UNIT or not operand.aval.shape:
            symbol = dims.sizes.fresh()
        axes.append(groups.new_axis(symbol, extent))
        uses.append(Affine(axes[-1].key, region.start[dim], region.step[dim]))
    if not operand.aval.shape:
        return axes, tuple(uses), ()
    moved = tuple([FIXED if use.axis == CONSTANT else Affine(use.axis) for use in uses])
    return axes, tuple(uses), index_maps.compose(piece.index_map, moved)


def interleaved(last: Access, uses: Access) -> bool:
    """Whether two pieces alternate along the last dimension, so that one kernel should write both."""
    return bool(uses) and all(access[-1].axis == CONSTANT or access[-1].step != 1 for access in (last, uses))
