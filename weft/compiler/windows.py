"""Data-dependent windows and assembled arrays as fuse sees them: a scatter's space, the piece that an access reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weft.compiler import groups
from weft.compiler.dimensions import Dimensions
from weft.core import index_maps
from weft.core.index_maps import FIXED, Affine, Piece
from weft.core.jaxpr import JaxprEqn, Literal
from weft.loops import kernel
from weft.loops.index_math import UNIT
from weft.loops.kernel import Access, Axis, Node


@dataclass(frozen=True, slots=True)
class Space:
    """The axes of a scatter's updates: parallel ones, then the ordered ones, outer to inner."""

    axes: tuple[Axis, ...]
    ordered: tuple[int, ...]
    access: Access  # of the updates


def scatter_space(dims: Dimensions, equation: JaxprEqn) -> Space:
    """Parallel are the dimensions in which different points always meet different elements.

    Those are the ones that a window covers in full or that no index moves, and those that the array walks together
    with the indices.
    """
    windows, updates = dims.windows[equation], equation.invars[2]
    movable = {dim for dim, most in zip(windows.starts, windows.most, strict=True) if most}
    free = [update_dim for dim, update_dim in enumerate(windows.moved) if update_dim is not None and dim not in movable]
    within = [dim for dim in range(updates.aval.ndim) if dim not in windows.batch and dim not in free]
    ordered = [*[dim for dim in windows.batch if dim not in free], *within]
    symbols = dims.sizes.symbols(updates)
    axes = {
        dim: groups.new_axis(symbols[dim], updates.aval.shape[dim]) for dim in (*free, *ordered) if symbols[dim] != UNIT
    }
    access = tuple([Affine(axes[dim].key) if dim in axes else FIXED for dim in range(updates.aval.ndim)])
    return Space(tuple(axes.values()), tuple([axes[dim].key for dim in ordered if dim in axes]), access)


def piece_read(pieces: Sequence[Piece], equation: JaxprEqn, access: Access, extents: Mapping[int, int]) -> Node | None:
    """The operand that holds everything an access to an assembled array reads, and where; None if several do."""
    found = index_maps.piece_of(pieces, access, extents)
    if found is None:
        return None
    piece, read = found
    operand = equation.invars[piece.operand]
    return Node(kernel.Constant(operand), ()) if type(operand) is Literal else Node(operand, read)
