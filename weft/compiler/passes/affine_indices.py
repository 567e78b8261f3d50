"""Integer arrays whose elements are known to be an affine function of their position along one dimension.

    iota i32[24]; broadcast_in_dim to i32[24,6]; where(i < 0, i + 24, i)      Affine(0): the position along dimension 0
    concatenate (broadcast 3) (broadcast 5) i32[2]                            components 3 and 5

If a component of index vectors counts the rows of an array, the rows become a batch (``indexing``,
``gathers``); constant components give a window at a known position (``indexing``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.compiler.passes import algebra
from weft.core import index_maps, kinds
from weft.core.index_maps import CONSTANT, Affine, constant
from weft.core.programs.jaxpr import Atom, JaxprEqn, Literal
from weft.core.programs.rewrite import Makers
from weft.core.symbolic.sizes import whole

LOOK_BACK = 8  # most equations between an iota and the index vectors


def affine(atom: Atom, makers: Makers, steps: int = LOOK_BACK) -> Affine | None:
    """The elements of an array as a function of their position; None if it is not known."""
    if isinstance(atom, Literal):
        return constant(whole(atom.val)) if atom.aval.dtype.kind in "iu" else None
    maker = makers.of(atom) if steps else None
    found = None if maker is None else _made(maker, atom, makers, steps - 1)
    return found if found is not None and _is_held(found, atom.aval) else None


def _made(maker: JaxprEqn, atom: Atom, makers: Makers, steps: int) -> Affine | None:
    kind, operands, out = maker.primitive.kind, maker.invars, atom.aval
    if isinstance(kind, kinds.Generate):
        return Affine(kind.dimension(maker.params))
    if isinstance(kind, kinds.Elementwise) and kind.chooses:
        found = affine(operands[1], makers, steps) if algebra.is_negative(operands[0], operands[1], makers) else None
        return found if found is not None and _bounds(found, out)[0] >= 0 else None
    is_converted = isinstance(kind, kinds.Elementwise) and kind.converts
    if not is_converted and not isinstance(kind, (kinds.View, kinds.Reshape)):
        return None
    found = affine(operands[0], makers, steps)
    if found is None or found.axis == CONSTANT or is_converted:
        return found
    if isinstance(kind, kinds.View):
        return index_maps.compose((found,), kind.index_map(operands[0].aval, out, maker.params))[0]
    moved = [dim for dim, extent in enumerate(out.shape) if extent != 1]
    return Affine(moved[0], found.start, found.step) if operands[0].aval.ndim == 1 and len(moved) == 1 else None


def _bounds(index: Affine, aval: Any) -> tuple[int, int]:
    return index_maps.indices(index, dict(enumerate(aval.shape)))


def _is_held(index: Affine, aval: Any) -> bool:
    """Whether an array has an integer dtype that holds all these values."""
    if aval.dtype.kind not in "iu":
        return False
    (low, high), limits = _bounds(index, aval), np.iinfo(aval.dtype)
    return limits.min <= low and high <= limits.max


def components(indices: Atom, makers: Makers) -> list[Affine | None]:
    """Each component of index vectors (their last dimension) as a function of the position in the other dimensions."""
    shape = indices.aval.shape
    last, maker = len(shape) - 1, makers.of(indices)
    if maker is None or not isinstance(maker.primitive.kind, kinds.Assemble):
        found = affine(indices, makers)
        if found is not None and found.axis == last:
            return [constant(found.start + found.step * k) for k in range(shape[last])]
        return [found] * shape[last]
    parts: list[Affine | None] = [None] * shape[last]
    for piece in maker.primitive.kind.pieces([v.aval for v in maker.invars], indices.aval, maker.params):
        operand, region = maker.invars[piece.operand], piece.region
        if region.extent == operand.aval.shape and region.extent[:last] == shape[:last]:
            parts[region.slices[last]] = components(operand, makers)
    return parts


def columns(indices: Atom, makers: Makers) -> list[Atom] | None:
    """The components of index vectors as arrays i32[*batch,1], if the program concatenates such arrays."""
    shape = indices.aval.shape
    if shape[-1] == 1:
        return [indices]
    maker = makers.of(indices)
    if maker is None or not isinstance(maker.primitive.kind, kinds.Assemble):
        return None
    pieces = maker.primitive.kind.pieces([v.aval for v in maker.invars], indices.aval, maker.params)
    found = [maker.invars[piece.operand] for piece in pieces]
    is_split = all(not isinstance(v, Literal) and v.aval.shape == (*shape[:-1], 1) for v in found)
    return found if is_split and len(found) == shape[-1] else None


def is_fill(array: Atom, makers: Makers) -> bool:
    """Whether an array is one value, broadcast."""
    maker = makers.of(array)
    return maker is not None and isinstance(maker.primitive.kind, kinds.View) and not maker.invars[0].aval.shape
