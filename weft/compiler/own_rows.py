"""Scatters whose index vectors count the rows of the array: each row is updated by entries of its own.

    x.at[arange(n), y].add(u), x: f32[n,m]   ->   a scatter along axis 1, for which axis 0 of x, y and u is a batch

Rows are then independent: they are shared out to the workers, and walked together with what makes and reads the array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import operations as lax
from weft.compiler import expansions
from weft.core import kinds
from weft.core.index_maps import Affine
from weft.core.jaxpr import ClosedJaxpr, JaxprEqn, Literal
from weft.core.rewrite import Makers

LOOK_BACK = 8  # equations between a count and the index vectors


Counted = tuple[int, int, int]  # component of the index vectors, dimension of the indices, axis of the array


def own_rows(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program with such scatters by batches."""
    return expansions.expand(closed, (kinds.Scatter,), _rewritten)


def _rewritten(equation: JaxprEqn, makers: Makers) -> tuple[tuple[Counted, ...], Callable[..., Any]] | None:
    """What counts rows, and a function of the scatter's operands with its result; None if nothing does."""
    array, indices, _ = equation.invars
    numbers = equation.params["dimension_numbers"]
    maker = makers.of(indices)
    if maker is None or not isinstance(maker.primitive.kind, kinds.Assemble):
        return None
    found: list[Counted] = []
    taken = set(numbers.scatter_indices_batching_dims)
    last = indices.aval.ndim - 1
    for piece in maker.primitive.kind.pieces([v.aval for v in maker.invars], indices.aval, maker.params):
        column = maker.invars[piece.operand]
        if piece.fill or column.aval.shape != (*indices.aval.shape[:-1], 1):
            continue
        component, dim = piece.region.start[last], counted(column, makers, LOOK_BACK)
        axis = numbers.scatter_dims_to_operand_dims[component]
        if dim is None or dim in taken or axis not in numbers.inserted_window_dims:
            continue
        if indices.aval.shape[dim] == array.aval.shape[axis]:
            found.append((component, dim, axis))
            taken.add(dim)
    if not found or len(found) == indices.aval.shape[last]:
        return None
    return tuple(found), _batched(equation, found)


def counted(atom: Any, makers: Makers, steps: int) -> int | None:
    """The dimension of an array along which its elements count 0, 1, 2, ..., or None."""
    maker = makers.of(atom) if steps else None
    if maker is None:
        return None
    kind, operands, params = maker.primitive.kind, maker.invars, maker.params
    if isinstance(kind, kinds.Generate):
        return kind.dimension(params) if _holds_positions(atom) else None
    if maker.primitive is lax.select_n_p and _is_negative(operands[0], operands[1], makers):
        return counted(operands[1], makers, steps - 1)  # a count is never negative
    if maker.primitive is lax.convert_element_type_p and _holds_positions(atom):
        return counted(operands[0], makers, steps - 1)
    if isinstance(kind, kinds.View) and (dim := counted(operands[0], makers, steps - 1)) is not None:
        use = kind.index_map(operands[0].aval, atom.aval, params)[dim]
        return use.axis if use == Affine(use.axis) else None
    if isinstance(kind, kinds.Reshape) and (dim := counted(operands[0], makers, steps - 1)) is not None:
        moved = [d for d, extent in enumerate(atom.aval.shape) if extent != 1]
        return moved[0] if operands[0].aval.ndim == 1 and len(moved) == 1 else None
    return None


def _holds_positions(atom: Any) -> bool:
    """Whether its dtype holds every position along its dimensions."""
    dtype = atom.aval.dtype
    return dtype.kind in "iu" and max(atom.aval.shape, default=1) - 1 <= np.iinfo(dtype).max


def _is_negative(atom: Any, value: Any, makers: Makers) -> bool:
    """Whether it says where a value is negative."""
    maker = makers.of(atom)
    if maker is None or maker.primitive is not lax.lt_p or maker.invars[0] is not value:
        return False
    return isinstance(maker.invars[1], Literal) and not maker.invars[1].val


def _batched(equation: Any, found: Sequence[Counted]) -> Callable[..., Any]:
    """The scatter without the components that count, whose axes and dimensions go together."""
    numbers = equation.params["dimension_numbers"]
    known = zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True)
    pairs = sorted([*known, *[(axis, dim) for _, dim, axis in found]])
    starts = numbers.scatter_dims_to_operand_dims
    kept = [k for k in range(len(starts)) if all(k != component for component, _, _ in found)]
    axes = {axis for _, _, axis in found}
    changed = lax.ScatterDimensionNumbers(
        numbers.update_window_dims,
        tuple([d for d in numbers.inserted_window_dims if d not in axes]),
        tuple([starts[k] for k in kept]),
        tuple([d for d, _ in pairs]),
        tuple([d for _, d in pairs]),
    )

    def scatter(array: Any, indices: Any, updates: Any) -> Any:
        last = indices.ndim - 1
        columns = [lax.slice_in_dim(indices, k, k + 1, axis=last) for k in kept]
        starts = lax.concatenate(columns, last) if len(columns) > 1 else columns[0]
        return equation.primitive.bind(array, starts, updates, **{**equation.params, "dimension_numbers": changed})

    return scatter
