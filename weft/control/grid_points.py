"""Grids whose cells compute every element from the elements at the same index: the body is run on whole arrays.

grid (i, j), blocks (8, 8) of x, y and out at (i, j): out = x * 2 + y    ->    out = x * 2 + y, of whole arrays
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import operations as lax
from weft.control import known_scalars
from weft.control.grid_order import Order
from weft.core import kinds
from weft.core.programs import rewrite
from weft.core.programs.jaxpr import Jaxpr, JaxprEqn, Literal
from weft.core.tracing.trace import literal_value


def on_whole_arrays(parts: Any, order: Order) -> list[Any] | None:
    """The outputs of such a grid; None if it is none."""
    if parts.scratch or any(parts.grid[axis] > 1 for axis in order.inner):
        return None
    program = known_scalars.specialised(parts.body, {})
    jaxpr, used = rewrite.dce(program.jaxpr)
    first = len(parts.captured) + len(parts.grid) + len(parts.prefetched)
    if program.consts or any(used[len(parts.captured) : first]):
        return None
    read = [which for which in range(len(parts.arrays)) if used[first + which] or which >= len(parts.inputs)]
    if not _are_alike(parts, order, read) or not _is_pointwise(jaxpr, parts.blocks[-1].seen):
        return None
    unread = [None] * (first - len(parts.captured))
    env: dict[Any, Any] = dict(zip(jaxpr.invars, (*parts.captured, *unread, *parts.arrays), strict=True))

    def value(atom: Any) -> Any:
        return literal_value(atom) if isinstance(atom, Literal) else env[atom]

    for eqn in jaxpr.eqns:
        operands = [value(atom) for atom in eqn.invars]
        is_view = isinstance(eqn.primitive.kind, kinds.View)  # of a scalar, which is as good as it is
        env[eqn.outvars[0]] = operands[0] if is_view else eqn.primitive.bind(*operands, **eqn.params)
    shape = tuple(parts.outputs[-1].shape)
    found = [value(atom) for atom in jaxpr.outvars]
    return [x if np.shape(x) == shape else lax.broadcast_in_dim(x, shape, ()) for x in found]


def _are_alike(parts: Any, order: Order, read: Sequence[int]) -> bool:
    """Whether the blocks of some arrays begin at the same indices, and are all of each array."""
    block, shape, table = parts.blocks[-1], tuple(parts.outputs[-1].shape), order.starts[-1]
    if table is None or not block.seen or any(element is not None for element in block.elements):
        return False
    for which in read:
        own = order.starts[which]
        if parts.blocks[which] != block or tuple(parts.arrays[which].shape) != shape or own is None:
            return False
        if not np.array_equal(own, table):
            return False
    # blocks of an output are different ones
    return table.shape[0] == math.prod(n // size for n, size in zip(block.padded(shape), block.shape, strict=True))


def _is_pointwise(jaxpr: Jaxpr, shape: tuple[int, ...]) -> bool:
    """Whether a program computes scalars, and arrays of this shape element by element."""
    atoms = [*jaxpr.outvars, *[atom for eqn in jaxpr.eqns for atom in (*eqn.invars, *eqn.outvars)]]
    return all(atom.aval.shape in ((), shape) for atom in atoms) and all(map(_is_point, jaxpr.eqns))


def _is_point(eqn: JaxprEqn) -> bool:
    kind = eqn.primitive.kind
    return isinstance(kind, kinds.Elementwise) or (isinstance(kind, kinds.View) and eqn.invars[0].aval.shape == ())
