"""Which statements of a routine compute an equation: one rule for each kind of operation, in lanes and without.

``at`` is where the lanes' dimensions begin in an array: None in routines without lanes, and if they all share it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.core import index_maps, kinds
from weft.core.index_maps import CONSTANT, Affine, IndexMap, Region
from weft.core.programs import check_scopes
from weft.core.programs.jaxpr import JaxprEqn
from weft.core.symbolic.sizes import number, present
from weft.loops import gathered, guards, indexed, ir
from weft.loops.routines import routine
from weft.loops.routines.promoted_values import LARGEST, LARGEST_IN_PLACE, VECTOR, Memory, TooLarge, Values

MOST_GENERATED = 1 << 16  # elements of a generated array that are inspected

Rule = Callable[[Values, JaxprEqn, Any, list[Any]], Sequence[int]]  # the operands: values, or Memory


def _elementwise(low: Values, equation: JaxprEqn, kind: kinds.Elementwise, args: list[int]) -> Sequence[int]:
    out = equation.outvars[0].aval
    found = {low.first(atom) for atom in equation.invars if atom.aval.shape} - {None}
    if len(found) > 1:
        raise TooLarge("lanes meet others along another dimension")
    at = found.pop() if found else 0 if low.own(out) else None
    low.begins(equation.outvars[0], at)
    shape = low.without(out.shape, at)
    stretched = []
    for arg, atom in zip(args, equation.invars, strict=True):
        given = low.inner_shape(atom)
        if at is not None and given and low.first(atom) is None:
            if any(extent != 1 for extent in given[at : at + len(low.shared)]):
                raise TooLarge("lanes are combined with an array that is not in lanes")
            given = low.without(given, at)
        stretched.append(low.stretched(arg, given, shape))
    if any(low.types[arg].lanes for arg in stretched):
        stretched = [low.spread(arg) for arg in stretched]
    size = math.prod(shape)
    made = low.apply(equation.primitive.name, kind, stretched, out.dtype, ir.params_of(equation), size)
    low.guard(equation, stretched, size)
    low.for_all += 0.0 if at is not None else kind.cost * size
    return [made]


def _inner(low: Values, index_map: IndexMap, at: int | None, out_at: int | None) -> IndexMap:
    """The index map of one lane; the lanes' dimensions begin at ``at`` in the operand, at ``out_at`` in the result."""
    count = len(low.shared)
    if at is not None:
        if out_at is None or index_map[at : at + count] != tuple([Affine(out_at + k) for k in range(count)]):
            raise TooLarge("lanes are moved to other dimensions")
        index_map = index_map[:at] + index_map[at + count :]
    if out_at is None:
        return index_map
    if any(out_at <= use.axis < out_at + count for use in index_map):
        raise TooLarge("lanes take different elements")
    axes = [use.axis - count if use.axis >= out_at else use.axis for use in index_map]
    return tuple([
        use if use.axis == CONSTANT else Affine(axis, use.start, use.step)
        for use, axis in zip(index_map, axes, strict=True)
    ])  # fmt: skip


def _out_at(low: Values, index_map: IndexMap, at: int | None, out: Any, otherwise: int | None) -> int | None:
    """Where the lanes' dimensions begin in a result, if they are in the operand of this map."""
    if at is None:
        return otherwise
    axis = index_map[at].axis
    if axis == CONSTANT or out.shape[axis : axis + len(low.shared)] != low.shared:
        raise TooLarge("lanes are not a dimension of the result")
    return axis


def _view(low: Values, equation: JaxprEqn, kind: kinds.View, args: list[int]) -> Sequence[int]:
    operand, out = equation.invars[0].aval, equation.outvars[0].aval
    at, index_map = low.first(equation.invars[0]), kind.index_map(operand, out, equation.params)
    out_at = _out_at(low, index_map, at, out, 0 if low.own(out) else None)
    low.begins(equation.outvars[0], out_at)
    inner = _inner(low, index_map, at, out_at)
    return [low.reordered(args[0], _positions(inner, low.without(operand.shape, at), low.without(out.shape, out_at)))]


def _positions(index_map: IndexMap, shape: Sequence[int], out_shape: Sequence[int]) -> np.ndarray:
    """For every element of a view its position in the operand."""
    offset, strides = index_maps.as_strides(index_map, index_maps.strides_of(shape), len(out_shape))
    positions = np.full(out_shape, offset, np.int64)
    for index, stride in zip(np.indices(out_shape, np.int64, sparse=True), strides, strict=True):
        positions += index * number(stride)
    return positions


def _reshape(low: Values, equation: JaxprEqn, kind: kinds.Reshape, args: list[int]) -> Sequence[int]:
    operand, out = equation.invars[0].aval, equation.outvars[0].aval
    at, count = low.first(equation.invars[0]), len(low.shared)
    if operand.dtype != out.dtype:
        raise TooLarge("bytes are read as another dtype")
    dims = [0]
    if at is not None:
        before = math.prod(operand.shape[:at])
        dims = [
            k for k in range(out.ndim) if math.prod(out.shape[:k]) == before and out.shape[k : k + count] == low.shared
        ]
    if not dims or (at is None and low.own(out)):
        raise TooLarge("lanes are not a dimension of the result")
    low.begins(equation.outvars[0], dims[0])
    return args


def _assemble(low: Values, equation: JaxprEqn, kind: kinds.Assemble, args: list[int]) -> Sequence[int]:
    out, count = equation.outvars[0].aval, len(low.shared)
    at = [low.first(atom) if atom.aval.shape else None for atom in equation.invars]
    given = list(kind.pieces([atom.aval for atom in equation.invars], out, equation.params))
    out_at = 0 if low.own(out) else None
    for piece in given:
        out_at = _out_at(low, piece.index_map, at[piece.operand], out, out_at)
    low.begins(equation.outvars[0], out_at)
    shape = low.without(out.shape, out_at)
    source, element = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for piece in given:
        region, atom = piece.region, equation.invars[piece.operand]
        if out_at is not None:
            whole = Region.box((0,) * count, low.shared)
            if Region(*[sizes[out_at : out_at + count] for sizes in region]) != whole:
                raise TooLarge("a part of the lanes")
            region = Region(*[low.without(sizes, out_at) for sizes in region])
        inner = _inner(low, piece.index_map if atom.aval.shape else (), at[piece.operand], out_at)
        if 0 not in region.extent:
            source[region.slices] = args[piece.operand]
            element[region.slices] = _positions(inner, low.inner_shape(atom), region.extent)
    pairs = zip(source.ravel().tolist(), element.ravel().tolist(), strict=True)
    return [low.pick(out.dtype, list(pairs))]


def _generate(low: Values, equation: JaxprEqn, kind: kinds.Generate, args: list[int]) -> Sequence[int]:
    out = equation.outvars[0].aval
    if out.size > MOST_GENERATED:
        raise TooLarge(f"{present(out.size)} elements are made")
    return [low.brought(np.asarray(kind.reference(**equation.params)))]


def _reduction(low: Values, equation: JaxprEqn, kind: kinds.Reduction, args: list[int]) -> Sequence[int]:
    """Each lane reduces a part of the array, in the order in which the whole array is reduced."""
    (at, *others), whole = [low.first(atom) for atom in equation.invars], equation.invars[0].aval.shape
    along = sorted(kind.axes(equation.params))
    over_lanes = at is not None and any(at <= axis < at + len(low.shared) for axis in along)
    if kind.operands is not None or not along or over_lanes or 0 in whole or any(other != at for other in others):
        raise TooLarge("a reduction over lanes, with initial values, or of no elements")
    if at is None and any(low.own(out.aval) for out in equation.outvars):
        raise TooLarge("lanes would take different elements of a reduction that is common to all of them")
    if guards.sum_wraps(equation) and check_scopes.wants_integers(equation):
        raise TooLarge("a sum of integers that is to be checked")
    for out in equation.outvars:
        low.begins(out, None if at is None else at - sum(axis < at for axis in along))
    axes = [axis - len(low.shared) if at is not None and axis >= at else axis for axis in along]
    shape = low.without(whole, at)
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    first = len(along) - 1
    while first > 0 and along[first - 1] == along[first] - 1:
        first -= 1
    order = np.arange(math.prod(shape)).reshape(shape).transpose([*kept, *axes])
    positions = None if [*kept, *axes] == list(range(len(shape))) else tuple(order.ravel().tolist())
    depth = low.depth_of(args)
    extents = [math.prod([shape[axis] for axis in group]) for group in (kept, axes[:first], axes[first:])]
    outs = [low.value(v.aval.dtype, extents[0], depth) for v in equation.outvars]
    tree = "row" if along[-1] == len(whole) - 1 else "column"
    low.append(ir.reduced(equation, outs, args, None, tree, routine.Fold, *extents, positions), depth)
    low.work += 2.0 * len(args) * low.pieces(extents[0]) * math.prod(extents[1:]) / (1 if extents[0] > 1 else VECTOR)
    return outs


def _cumulative(low: Values, equation: JaxprEqn, kind: kinds.Cumulative, args: list[int]) -> Sequence[int]:
    axis, shape = kind.axis(equation.params), equation.invars[0].aval.shape
    order = np.moveaxis(np.arange(math.prod(shape)).reshape(shape), axis, 0)
    if kind.reverse(equation.params):
        order = order[::-1]
    ordered = [low.reordered(arg, order) for arg in args]
    depth = low.depth_of(ordered)
    outs = [low.value(v.aval.dtype, v.aval.size, depth) for v in equation.outvars]
    low.append(ir.scanned(equation, outs, ordered, routine.Running, shape[axis]), depth)
    low.work += 4.0 * len(args) * shape[axis]
    back = np.empty(order.size, np.int64)
    back[order.ravel()] = np.arange(order.size)
    return [low.reordered(out, back) for out in outs]


def _product(low: Values, equation: JaxprEqn, kind: kinds.Contraction, args: list[int]) -> Sequence[int]:
    (left_sum, right_sum), (left_batch, right_batch) = equation.params["dimension_numbers"]
    lhs, rhs = (atom.aval.shape for atom in equation.invars)
    out = equation.outvars[0].aval
    if any(atom.aval.dtype != out.dtype for atom in equation.invars) or out.dtype.kind not in "fc":
        raise TooLarge("a product of other types than floats")
    left_free = [d for d in range(len(lhs)) if d not in (*left_sum, *left_batch)]
    right_free = [d for d in range(len(rhs)) if d not in (*right_sum, *right_batch)]
    left = np.arange(math.prod(lhs)).reshape(lhs).transpose([*left_batch, *left_free, *left_sum])
    right = np.arange(math.prod(rhs)).reshape(rhs).transpose([*right_batch, *right_sum, *right_free])
    batch, k = math.prod([lhs[d] for d in left_batch]), math.prod([lhs[d] for d in left_sum])
    m, n = math.prod([lhs[d] for d in left_free]), math.prod([rhs[d] for d in right_free])
    if k == 0:
        raise TooLarge("a product of no elements")
    a, b = low.reordered(args[0], left), low.reordered(args[1], right)
    depth = low.depth_of([a, b])
    made = low.value(out.dtype, out.size, depth)
    low.append(routine.Product(made, a, b, (batch, m, n, k)), depth)
    low.work += 4.0 * k * low.pieces(batch * m * n)
    return [made]


def _identity(low: Values, equation: JaxprEqn, kind: kinds.Identity, args: list[int]) -> Sequence[int]:
    for atom, out in zip(equation.invars, equation.outvars, strict=False):
        low.begins(out, low.first(atom))
    return args[: len(equation.outvars)]


# run-time starts


def _starts(starts: Sequence[int], shape: Sequence[int], sizes: Sequence[int]) -> tuple[Any, ...]:
    strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    entries = zip(starts, shape, sizes, strides, strict=True)
    return tuple([(start, extent - size, stride) for start, extent, size, stride in entries if extent != size])


def _far_starts(low: Values, starts: Sequence[int], shape: Sequence[int], sizes: Sequence[int]) -> tuple[Any, ...]:
    """``_starts`` for an array in memory: bounds and strides are parameters."""
    found = []
    for d, (start, extent, size) in enumerate(zip(starts, shape, sizes, strict=True)):
        if extent != size or size == 1:
            stride = low.extent(math.prod(shape[d + 1 :])) if d + 1 < len(shape) else None
            found.append((start, low.extent(extent - size), stride))
    return tuple(found)


def _source(source: Any) -> tuple[int | None, int | None]:
    """(the value, None) or (None, the operand): what elements are taken from."""
    return (None, source.operand) if isinstance(source, Memory) else (source, None)


def _update(low: Values, equation: JaxprEqn, kind: kinds.DynamicUpdateSlice, args: list[int]) -> Sequence[int]:
    array, update, *given = args
    shape, region = (atom.aval.shape for atom in equation.invars[:2])
    starts = _starts(given, shape, region)
    offsets = np.arange(math.prod(shape)).reshape(shape)[tuple(slice(n) for n in region)].ravel().tolist()
    depth = low.depth_of([array, update, *(start for start, _, _ in starts)])
    out = low.value(low.types[array].dtype, low.types[array].size, depth, LARGEST_IN_PLACE)
    low.append(routine.Update(out, array, update, tuple(offsets), starts, low.guards_index(equation)), depth)
    low.work += 6.0 * low.pieces(min(low.types[array].size, LARGEST))
    return [out]


def _slice(low: Values, equation: JaxprEqn, kind: kinds.DynamicSlice, operands: list[Any]) -> Sequence[int]:
    out, shape = equation.outvars[0].aval, equation.invars[0].aval.shape
    value, operand = _source(operands[0])
    if low.shared and (operand is None or low.own(out)):
        raise TooLarge("a slice whose start differs between lanes")
    given = [low.in_registers(v) for v in operands[1:]]
    starts = _far_starts(low, given, shape, out.shape) if value is None else _starts(given, shape, out.shape)
    offsets = tuple(_positions(index_maps.identity(len(shape)), shape, out.shape).ravel().tolist())
    depth = low.depth_of([start for start, _, _ in starts] + ([] if value is None else [value]))
    made = low.value(out.dtype, out.size, depth)
    low.work += 4.0 * low.pieces(out.size) + 4.0
    low.append(routine.Slice(made, value, operand, offsets, starts, low.guards_index(equation)), depth)
    return [made]


def _gather(low: Values, equation: JaxprEqn, kind: kinds.Gather, operands: list[Any]) -> Sequence[int]:
    """Elements at computed positions; their indices are clamped."""
    out = equation.outvars[0].aval
    if "index" in check_scopes.wanted(equation) or not gathered.is_small(equation):
        raise TooLarge(
            "a gather that is checked, of many elements, of windows larger than the array, or of a huge array"
        )
    positions, inside = gathered.positions(low, equation, low.in_registers(operands[1]))
    value, operand = _source(operands[0])
    depth = low.depth_of([positions] if value is None else [positions, value])
    made = low.value(out.dtype, out.size, depth)
    low.append(routine.Take(made, value, operand, positions), depth)
    low.work += 2.0 * out.size
    fill = kind.fill(out, equation.params)
    if fill is None or inside is None:
        return [made]
    filled = low.constant(np.asarray([fill]).astype(out.dtype))
    return [low.apply("choose", indexed.CHOOSE, (inside, made, filled), out.dtype)]


IN_LANES: dict[type, Rule] = {
    kinds.Elementwise: _elementwise,
    kinds.View: _view,
    kinds.Reshape: _reshape,
    kinds.Assemble: _assemble,
    kinds.Generate: _generate,
    kinds.Reduction: _reduction,
    kinds.Identity: _identity,
    kinds.DynamicSlice: _slice,
}
RULES: dict[type, Rule] = {
    **IN_LANES,
    kinds.Gather: _gather,
    kinds.Cumulative: _cumulative,
    kinds.Contraction: _product,
    kinds.DynamicUpdateSlice: _update,
}
FROM_MEMORY = frozenset([kinds.DynamicSlice, kinds.Gather])  # kinds that read a part of an operand that is in memory
