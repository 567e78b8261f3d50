"""Rules: the factors (``core.sharding.factors``) of an equation, by the kind of its operation.

A kind without a rule is whole, and so is a dimension that nothing is known of: every device reads and computes all of
it. Loops and branches have no factors of their own; ``links`` ties their operands and results to the variables inside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from weft.core import kinds
from weft.core.index_maps import CONSTANT
from weft.core.programs.jaxpr import JaxprEqn
from weft.core.sharding.factors import WHOLE, Dim, Draft, Factors, whole

Shape = tuple[int, ...]


def factors(eqn: JaxprEqn) -> Factors:
    """The factors of an equation that has no programs inside."""
    rule = _RULES.get(type(eqn.primitive.kind))
    found = None if rule is None else rule(eqn)
    return everything_whole(eqn) if found is None else found


def everything_whole(eqn: JaxprEqn) -> Factors:
    """The fallback: operands and results are whole."""
    return Factors(tuple(map(whole, _shapes(eqn.invars))), tuple(map(whole, _shapes(eqn.outvars))), (), passes=False)


def _shapes(atoms: Sequence[Any]) -> list[Shape]:
    return [atom.aval.shape for atom in atoms]


# -- the same index ----------------------------------------------------------------------------------------------------

_pointwise: dict[Any, Factors] = {}
_POINTWISE_BOUND = 4096


def _elementwise(eqn: JaxprEqn) -> Factors:
    """Dimensions at the same position; an operand of other extents is repeated."""
    out = eqn.outvars[0].aval.shape
    key = (out, len(eqn.outvars), *[atom.aval.shape for atom in eqn.invars])
    found = _pointwise.get(key)
    if found is None:
        draft = Draft()
        dims = draft.of(out)
        operands = [
            [dim if n == extent else WHOLE for dim, n, extent in zip(dims, shape, out, strict=True)] if shape else []
            for shape in key[2:]
        ]
        if len(_pointwise) >= _POINTWISE_BOUND:
            _pointwise.clear()
        found = _pointwise[key] = draft.done(operands, [dims] * len(eqn.outvars))
    return found


def _identity(eqn: JaxprEqn) -> Factors:
    """Result i is operand i."""
    draft = Draft()
    dims = [draft.of(shape) for shape in _shapes(eqn.outvars)]
    return draft.done(dims, dims)


def _view(eqn: JaxprEqn) -> Factors:
    """Dimensions that are taken whole and in order; what a broadcast adds may be cut anyhow."""
    operand, out = eqn.invars[0].aval, eqn.outvars[0].aval
    index_map = eqn.primitive.kind.index_map(operand, out, eqn.params)
    named = [index.axis for index in index_map]
    draft, dims = Draft(), [WHOLE] * operand.ndim
    results = [WHOLE if axis in named else draft.new(extent) for axis, extent in enumerate(out.shape)]
    for dim, (axis, start, step) in enumerate(index_map):
        whole_axis = (start, step) == (0, 1) and named.count(axis) == 1
        if axis != CONSTANT and whole_axis and operand.shape[dim] == out.shape[axis]:
            dims[dim] = results[axis] = draft.new(out.shape[axis])
    return draft.done([dims], [results])


# -- reshapes ----------------------------------------------------------------------------------------------------------


def _reshape(eqn: JaxprEqn) -> Factors | None:
    operand, out = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    if 0 in operand or math.prod(operand) != math.prod(out):
        return None
    draft = Draft()
    dims, results = split_or_joined(operand, out, draft)
    return draft.done([dims], [results])


def split_or_joined(old: Shape, new: Shape, draft: Draft) -> tuple[list[Dim], list[Dim]]:
    """The factors of two shapes of the same elements, from the outermost dimension on.

    >>> split_or_joined((6, 4), (2, 3, 4), Draft())
    ([(0, 1), 2], [0, 1, 2])
    >>> split_or_joined((4, 9), (6, 6), Draft())  # halves of both are the same elements, and no smaller parts
    ([(0, -1), -1], [(0, -1), -1])
    """
    sides = [(dim, n) for dim, n in enumerate(old) if n != 1], [(dim, n) for dim, n in enumerate(new) if n != 1]
    left, right = (iter(side) for side in sides)
    parts: tuple[list[list[int]], list[list[int]]] = ([[] for _ in old], [[] for _ in new])
    (i, a), (j, b) = (next(left, (0, 1)), next(right, (0, 1)))  # the current dimensions, and what is left of them
    while a > 1 and b > 1:
        common = math.gcd(a, b)
        if common > 1:
            factor = draft.new(common)
            parts[0][i].append(factor)
            parts[1][j].append(factor)
            a, b = a // common, b // common
        if a > 1 and b > 1:  # up to the next boundary that both shapes have, no parts are the same elements
            while a != b:
                if a < b:
                    a *= next(left)[1]
                else:
                    b *= next(right)[1]
            a = b = 1
        if a == 1:
            i, a = next(left, (0, 1))
        if b == 1:
            j, b = next(right, (0, 1))
    rows, columns = (zip(found, shape, strict=True) for found, shape in zip(parts, (old, new), strict=True))
    return [_joined(found, n, draft) for found, n in rows], [_joined(found, n, draft) for found, n in columns]


def _joined(found: list[int], extent: int, draft: Draft) -> Dim:
    """The factors of a dimension; ``WHOLE`` last if they do not make up all of it."""
    if not found:
        return WHOLE
    if math.prod([draft.extents[factor] for factor in found]) != extent:
        return (*found, WHOLE)
    return found[0] if len(found) == 1 else tuple(found)


# -- moves of elements -------------------------------------------------------------------------------------------------


def _assemble(eqn: JaxprEqn) -> Factors:
    """A dimension along which every piece fills all of the result."""
    out = eqn.outvars[0].aval
    avals = [atom.aval for atom in eqn.invars]
    draft, dims = Draft(), [list(whole(aval.shape)) for aval in avals]
    results = draft.of(out.shape)
    for piece in eqn.primitive.kind.pieces(avals, out, eqn.params):
        shape = avals[piece.operand].shape
        if not shape:
            continue
        fills = dict.fromkeys(range(out.ndim), False)
        for dim, (axis, start, step) in enumerate(piece.index_map):
            if axis != CONSTANT and (start, step) == (0, 1) and shape[dim] == out.shape[axis]:
                dims[piece.operand][dim], fills[axis] = results[axis], True
        for axis, full in fills.items():
            if not full or piece.region.extent[axis] != out.shape[axis]:
                results[axis] = WHOLE
    kept = set(results)
    dims = [[dim if dim in kept else WHOLE for dim in found] for found in dims]
    return draft.done(dims, [results])


def _generate(eqn: JaxprEqn) -> Factors:
    return _from_nothing(eqn)


def _from_nothing(eqn: JaxprEqn) -> Factors:
    """An operation without operands: each device makes its part."""
    draft = Draft()
    return draft.done([], [draft.of(eqn.outvars[0].aval.shape)])


def _dynamic_slice(eqn: JaxprEqn) -> Factors:
    operand, out = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    draft = Draft()
    dims = [draft.new(n) if n == taken else WHOLE for n, taken in zip(operand, out, strict=True)]
    return draft.done([dims, *[()] * (len(eqn.invars) - 1)], [dims])


def _dynamic_update_slice(eqn: JaxprEqn) -> Factors:
    operand, update = eqn.invars[0].aval.shape, eqn.invars[1].aval.shape
    draft = Draft()
    dims = [draft.new(n) if n == taken else WHOLE for n, taken in zip(operand, update, strict=True)]
    return draft.done([dims, dims, *[()] * (len(eqn.invars) - 2)], [dims])


def _windows(eqn: JaxprEqn, stacked: Shape, draft: Draft) -> tuple[list[Dim], list[Dim], list[Dim]]:
    """The dimensions of the array, the indices and the stacked windows."""
    array, indices = eqn.invars[0].aval.shape, eqn.invars[1].aval.shape
    windows = eqn.primitive.kind.windows([atom.aval for atom in eqn.invars], eqn.outvars[0].aval, eqn.params)
    rows: list[Dim] = [*draft.of(indices[:-1]), WHOLE]
    found: list[Dim] = list(whole(stacked))
    for dim, row in zip(windows.batch, rows[:-1], strict=True):
        found[dim] = row
    dims: list[Dim] = list(whole(array))
    for dim, own in enumerate(windows.moved):
        if own is None:
            continue
        if own in windows.batch:
            dims[dim] = found[own]
        elif (stacked[own] == array[dim] and dim not in windows.starts) or (
            stacked[own] == array[dim] and windows.most[windows.starts.index(dim)] == 0
        ):
            dims[dim] = found[own] = draft.new(array[dim])
    return dims, rows, found


def _gather(eqn: JaxprEqn) -> Factors:
    draft = Draft()
    dims, rows, found = _windows(eqn, eqn.outvars[0].aval.shape, draft)
    return draft.done([dims, rows], [found])


def _scatter(eqn: JaxprEqn) -> Factors:
    """Windows along whole dimensions, and batches that the array has too; other updates are made by all devices."""
    draft = Draft()
    dims, rows, found = _windows(eqn, eqn.invars[2].aval.shape, draft)
    rows, found = ([dim if dim in dims else WHOLE for dim in group] for group in (rows, found))
    return draft.done([dims, rows, found], [dims])


# -- combinations of elements ------------------------------------------------------------------------------------------


def _reduction(eqn: JaxprEqn) -> Factors:
    kind, avals = eqn.primitive.kind, [atom.aval for atom in eqn.invars]
    axes, draft = kind.axes(eqn.params), Draft()
    count = kind.operands(avals) if kind.operands else len(avals)
    dims = draft.of(avals[0].shape)
    for axis in axes:
        if kind.combiner is None:
            dims[axis] = WHOLE
        else:
            draft.reduced[dims[axis]] = kind.combiner
    kept = [dim for axis, dim in enumerate(dims) if axis not in axes]
    return draft.done([*[dims] * count, *[()] * (len(avals) - count)], [kept] * len(eqn.outvars), passes=False)


def _cumulative(eqn: JaxprEqn) -> Factors:
    return _along(eqn, eqn.primitive.kind.axis(eqn.params))


def _along(eqn: JaxprEqn, axis: int) -> Factors:
    """Operands and results of one rank; their dimension ``axis`` is whole."""
    draft = Draft()
    dims = [WHOLE if dim == axis else draft.new(n) for dim, n in enumerate(eqn.invars[0].aval.shape)]
    return draft.done([dims] * len(eqn.invars), [dims] * len(eqn.outvars))


def _window(eqn: JaxprEqn) -> Factors:
    """A dimension may be cut if each result reads only the element at its own position along it."""
    along = eqn.primitive.kind.windows(eqn.params).along
    draft = Draft()
    shape = eqn.invars[0].aval.shape
    dims = [draft.new(n) if each.is_trivial else WHOLE for n, each in zip(shape, along, strict=True)]
    operands = [dims if atom.aval.ndim else [] for atom in eqn.invars]
    return draft.done(operands, [dims] * len(eqn.outvars))


def _contraction(eqn: JaxprEqn) -> Factors:
    (left_sum, right_sum), (left_batch, right_batch) = eqn.params["dimension_numbers"]
    draft = Draft()
    left = draft.of(eqn.invars[0].aval.shape)
    right = [WHOLE] * eqn.invars[1].aval.ndim
    for i, j in (*zip(left_batch, right_batch, strict=True), *zip(left_sum, right_sum, strict=True)):
        right[j] = left[i]
    for dim, extent in enumerate(eqn.invars[1].aval.shape):
        if right[dim] == WHOLE:
            right[dim] = draft.new(extent)
    for i in left_sum:
        draft.reduced[left[i]] = "sum"
    out = [left[i] for i in left_batch]
    out += [dim for i, dim in enumerate(left) if i not in (*left_sum, *left_batch)]
    out += [dim for i, dim in enumerate(right) if i not in (*right_sum, *right_batch)]
    return draft.done([left, right], [out], passes=False)


def _external(eqn: JaxprEqn) -> Factors | None:
    """Sorts run along one axis, routines on each matrix of a batch; nothing is known of others."""
    kind, avals = eqn.primitive.kind, [atom.aval for atom in eqn.invars]
    if kind.ordering is not None:
        return _along(eqn, kind.ordering(eqn.params).axis)
    if kind.batch is None:
        return None
    draft, count = Draft(), kind.batch(avals, eqn.params)
    batch = draft.of(avals[0].shape[:count])
    operands, results = (
        [[*batch, *whole(shape[count:])] for shape in _shapes(atoms)] for atoms in (eqn.invars, eqn.outvars)
    )
    return draft.done(operands, results)


def _resolve(eqn: JaxprEqn) -> Factors | None:
    rule = eqn.primitive.kind.factors
    avals = [[atom.aval for atom in atoms] for atoms in (eqn.invars, eqn.outvars)]
    return None if rule is None else rule(*avals, eqn.params)


_RULES: dict[type, Callable[[JaxprEqn], Factors | None]] = {
    kinds.Elementwise: _elementwise,
    kinds.Identity: _identity,
    kinds.View: _view,
    kinds.Reshape: _reshape,
    kinds.Assemble: _assemble,
    kinds.Generate: _generate,
    kinds.DynamicSlice: _dynamic_slice,
    kinds.DynamicUpdateSlice: _dynamic_update_slice,
    kinds.Gather: _gather,
    kinds.Scatter: _scatter,
    kinds.Reduction: _reduction,
    kinds.Cumulative: _cumulative,
    kinds.Window: _window,
    kinds.Contraction: _contraction,
    kinds.External: _external,
    kinds.Resolve: _resolve,
}


# -- where whole dimensions lie ----------------------------------------------------------------------------------------

# Kinds whose results have the dimensions of their operands, perhaps longer or shorter.
_KEEP = (kinds.View, kinds.Assemble, kinds.DynamicUpdateSlice, kinds.Window)
_KEEP_IF_EQUAL = (kinds.Cumulative, kinds.External)


def kept_whole(eqn: JaxprEqn, found: Factors) -> Factors:
    """The factors for propagation: a dimension that is whole in the making lies in the result as in the operand.

    It is gathered before it is used, and each device keeps its part of the result.
    """
    kind, out = eqn.primitive.kind, eqn.outvars[0].aval if eqn.outvars else None
    if out is None or not isinstance(kind, (*_KEEP, *_KEEP_IF_EQUAL)) or WHOLE not in found.results[0]:
        return found
    extents, operands = list(found.extents), [list(dims) for dims in found.operands]
    results = list(found.results[0])
    for number, (dims, atom) in enumerate(zip(found.operands, eqn.invars, strict=True)):
        shape = atom.aval.shape
        for dim, own in _same_dimensions(eqn, shape):
            if dims[dim] != WHOLE or found.results[0][own] != WHOLE:
                continue
            if shape[dim] != out.shape[own] and isinstance(kind, _KEEP_IF_EQUAL):
                continue
            if results[own] == WHOLE:
                results[own] = len(extents)
                extents.append(out.shape[own])
            operands[number][dim] = results[own]
    if len(extents) == len(found.extents):
        return found
    return Factors(
        tuple(map(tuple, operands)), (tuple(results),) * len(found.results), tuple(extents), found.reduced, found.passes
    )


def _same_dimensions(eqn: JaxprEqn, shape: Shape) -> list[tuple[int, int]]:
    """Dimensions of an operand of this shape, and those of the result that correspond."""
    kind, out = eqn.primitive.kind, eqn.outvars[0].aval
    if isinstance(kind, kinds.View):
        index_map = kind.index_map(eqn.invars[0].aval, out, eqn.params)
        return [(dim, index.axis) for dim, index in enumerate(index_map) if index.axis != CONSTANT]
    same = len(shape) == out.ndim and all(v.aval.ndim == out.ndim for v in eqn.outvars)
    return [(dim, dim) for dim in range(out.ndim)] if same else []


# -- programs inside ---------------------------------------------------------------------------------------------------


class Link:
    """Variables that are the same value, or elements of it: ``drop[i]`` leading dimensions of variable i are whole."""

    __slots__ = ("drop", "variables")

    def __init__(self, variables: Sequence[Any], drop: Sequence[int] | None = None) -> None:
        self.variables = list(variables)
        self.drop = [0] * len(self.variables) if drop is None else list(drop)


def links(eqn: JaxprEqn) -> list[Link] | None:
    """What ties the operands and results of a loop or branch to the variables inside; None for other equations."""
    kind = eqn.primitive.kind
    if isinstance(kind, kinds.Loop):
        return _loop_links(eqn, kind.parts(eqn.params))
    if not isinstance(kind, kinds.Branch):
        return None
    jaxprs = [branch.jaxpr for branch in kind.branches(eqn.params)]
    inside = [Link([atom, *[j.invars[i] for j in jaxprs]]) for i, atom in enumerate(eqn.invars[1:])]
    return inside + [Link([out, *[j.outvars[i] for j in jaxprs]]) for i, out in enumerate(eqn.outvars)]


def _loop_links(eqn: JaxprEqn, parts: kinds.LoopParts) -> list[Link]:
    body, cond = parts.body.jaxpr, None if parts.cond is None else parts.cond.jaxpr
    found, first = [], parts.n_cond_consts
    if cond is not None:
        found = [Link([eqn.invars[i], cond.invars[i]]) for i in range(first)]
    operands = eqn.invars[first:]
    found += [Link([operands[i], body.invars[i]]) for i in range(parts.n_consts)]
    for i in range(parts.n_carry):
        index = parts.n_consts + i
        state = [operands[index], body.invars[index], body.outvars[i], eqn.outvars[i]]
        found.append(Link(state if cond is None else [*state, cond.invars[first + i]]))
    for index in range(parts.n_consts + parts.n_carry, len(operands)):
        found.append(Link([operands[index], body.invars[index]], [1, 0]))
    for index in range(parts.n_carry, len(eqn.outvars)):
        found.append(Link([eqn.outvars[index], body.outvars[index]], [1, 0]))
    return found
