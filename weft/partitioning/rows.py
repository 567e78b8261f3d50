"""Rows by index where the devices share the array, or the indices: lookups and updates that move no array.

    table[i]            each device looks up the rows it has and gives zeros for others; the sum is the result
    array.at[i].add(u)  each device updates the rows it has;  or, where the devices share i and u, each adds its part to
                        zeros (one of them to the array), and the sum is the result

Factors of dimensions that indices point into are made here and not in ``rules``: only programs that are cut have them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.core import kinds
from weft.core.programs.jaxpr import JaxprEqn
from weft.core.sharding.factors import WHOLE, Dim, Factors
from weft.operations.data_movement import assemble, shape
from weft.operations.pointwise import arithmetic, convert, logic
from weft.partitioning import moves
from weft.partitioning.specs import Axes, Spec


def shared(eqn: JaxprEqn, found: Factors) -> Factors:
    """The factors with those of rows: dimensions that indices point into, and (of sums) the updates."""
    kind = eqn.primitive.kind
    if not isinstance(kind, (kinds.Gather, kinds.Scatter)) or eqn.outvars[0].aval.dtype.kind not in "iufcV":
        return found
    extents, reduced = list(found.extents), dict(found.reduced)
    array, result = list(found.operands[0]), list(found.results[0])
    rest = [list(dims) for dims in found.operands[1:]]
    for dim in _pointed_into(eqn):
        if array[dim] == WHOLE and not (isinstance(kind, kinds.Scatter) and kind.clips(eqn.params)):
            array[dim] = row = len(extents)
            extents.append(eqn.invars[0].aval.shape[dim])
            if isinstance(kind, kinds.Gather):
                reduced[row] = "sum"
            else:
                result[dim] = row
    if isinstance(kind, kinds.Scatter) and kind.combiner is not None:
        for at, position in enumerate(_windows(eqn).batch):
            if rest[0][at] == WHOLE:
                rest[0][at] = rest[1][position] = len(extents)
                reduced[len(extents)] = kind.combiner
                extents.append(eqn.invars[1].aval.shape[at])
    operands: Sequence[Sequence[Dim]] = [array, *rest]
    return Factors(tuple(map(tuple, operands)), (tuple(result),), tuple(extents), reduced, found.passes)


def _windows(eqn: JaxprEqn) -> kinds.Windows:
    kind: Any = eqn.primitive.kind
    return kind.windows([atom.aval for atom in eqn.invars], eqn.outvars[0].aval, eqn.params)


def _pointed_into(eqn: JaxprEqn) -> dict[int, int]:
    """Dimensions along which a window has one element: dimension -> component of the index vector."""
    windows, extents = _windows(eqn), eqn.invars[0].aval.shape
    rows = enumerate(zip(windows.starts, windows.most, strict=True))
    return {dim: at for at, (dim, most) in rows if extents[dim] > 1 and most == extents[dim] - 1}


def is_shared(eqn: JaxprEqn, operands: Sequence[Spec]) -> bool:
    """Whether an equation whose operands lie so needs the programs of this module."""
    if not isinstance(eqn.primitive.kind, (kinds.Gather, kinds.Scatter)):
        return False
    return bool(_cut(eqn, operands[0])) or bool(_updates_cut(eqn, operands))


def _cut(eqn: JaxprEqn, spec: Spec) -> dict[int, tuple[int, Axes]]:
    """Component of the index vector -> the dimension that it points into, and the axes along which that is cut."""
    return {at: (dim, spec[dim]) for dim, at in _pointed_into(eqn).items() if spec[dim]}


def _updates_cut(eqn: JaxprEqn, operands: Sequence[Spec]) -> Axes:
    """The axes along which updates are cut that the devices make to an array in common."""
    kind = eqn.primitive.kind
    if not isinstance(kind, kinds.Scatter) or kind.combiner is None:
        return ()
    lies = {axis for axes in operands[0] for axis in axes}
    return tuple([axis for axes in operands[1][:-1] for axis in axes if axis not in lies])


def local(eqn: JaxprEqn, params: dict[str, Any], operands: Sequence[Spec]) -> Any:
    """The function of shards that gives this device's part of the result."""
    cut = _cut(eqn, operands[0])
    if isinstance(eqn.primitive.kind, kinds.Gather):
        return lambda table, indices: [_looked_up(eqn, params, cut, table, indices)]
    axes = _updates_cut(eqn, operands)

    def run(array: Any, indices: Any, updates: Any) -> list[Any]:
        kind: Any = eqn.primitive.kind
        if axes and kind.combiner == "sum":
            array = logic.select(_is_first(axes), array, assemble.full_like(array, 0))
        shifted = _with_components(indices, {at: _own(indices, at, array, *found)[0] for at, found in cut.items()})
        return [eqn.primitive.bind(array, shifted, updates, **params)]

    return run


def _looked_up(eqn: JaxprEqn, params: dict[str, Any], cut: dict[int, Any], table: Any, indices: Any) -> Any:
    """The rows that this device has, zeros for the others; rows that no device has come from the first one."""
    kind: Any = eqn.primitive.kind
    fill = kind.fill(eqn.outvars[0].aval, params)
    mine, inside, components = [], [], {}
    for at, (dim, axes) in cut.items():
        extent = eqn.invars[0].aval.shape[dim]
        whole = _component(indices, at)
        if fill is None:
            whole = logic.clamp(whole.dtype.type(0), whole, whole.dtype.type(extent - 1))
        inside.append(_between(whole, extent))
        own, here = _own(indices, at, table, dim, axes, whole)
        mine.append(here)
        components[at] = logic.clamp(own.dtype.type(0), own, own.dtype.type(table.shape[dim] - 1))
    found = eqn.primitive.bind(table, _with_components(indices, components), **params)
    zero = assemble.full_like(found, 0)
    out = logic.select(_spread(_all(mine), found.shape, eqn), found, zero)
    if fill is None:
        return out
    first = _is_first(tuple([axis for _, axes in cut.values() for axis in axes]))
    missing = logic.bitwise_and(logic.bitwise_not(_all(inside)), first)
    return logic.select(_spread(missing, found.shape, eqn), assemble.full_like(found, fill[()]), out)


def _component(indices: Any, at: int) -> Any:
    """One component of the index vectors, as a signed integer."""
    found = shape.index_in_dim(indices, at, indices.ndim - 1, keepdims=False)
    wanted = np.dtype(np.int64 if found.dtype.itemsize == 8 else np.int32)
    return found if found.dtype == wanted else convert.convert(found, wanted, False)


def _own(indices: Any, at: int, array: Any, dim: int, axes: Axes, whole: Any = None) -> tuple[Any, Any]:
    """Indices into the rows of this device, and whether they are inside."""
    whole = _component(indices, at) if whole is None else whole
    first = moves.first_index(axes, array.shape[dim])
    own = arithmetic.sub(whole, first if first.dtype == whole.dtype else convert.convert(first, whole.dtype, False))
    return own, _between(own, array.shape[dim])


def _between(index: Any, extent: int) -> Any:
    return logic.bitwise_and(logic.ge(index, index.dtype.type(0)), logic.lt(index, index.dtype.type(extent)))


def _with_components(indices: Any, components: dict[int, Any]) -> Any:
    """Index vectors with some components replaced."""
    if not components:
        return indices
    count, last = indices.shape[-1], indices.ndim - 1
    parts = [components[at] if at in components else _component(indices, at) for at in range(count)]
    return assemble.concatenate([shape.expand_dims(part, (last,)) for part in parts], last)


def _all(conditions: Sequence[Any]) -> Any:
    found = conditions[0]
    for other in conditions[1:]:
        found = logic.bitwise_and(found, other)
    return found


def _spread(condition: Any, sizes: tuple[int, ...], eqn: JaxprEqn) -> Any:
    """A condition on index vectors as one on the elements of their windows."""
    return shape.broadcast_in_dim(condition, sizes, _windows(eqn).batch)


def _is_first(axes: Axes) -> Any:
    """Whether this device is the first along some axes."""
    return logic.eq(moves.index_along(axes), np.int32(0))
