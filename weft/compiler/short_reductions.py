"""Reductions of a few elements that do not lie along rows become elementwise operations on slices of the array.

    b:f32[n,m] = reduce_sum[axes=(1, 3)] a:f32[n,2,m,2]    ->    b = (a[:, 0, :, 0] + a[:, 0, :, 1]) + (a[:, 1, ...

Rows of a few elements have loops of their own (``codegen.short_rows``). But where the elements lie in several rows, or
only a few elements lie side by side in the result, a loop over the reduced dimensions inside of a vector leaves most
lanes empty: pooling of images by two took three to ten times as long. Elements are combined in the order of
docs/NUMERICS.md, so that the bits stay; what computes the operand alone is repeated for each slice.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from weft import operations as lax
from weft.compiler import algebra, unstacked
from weft.core import kinds, rewrite
from weft.core.jaxpr import Atom, ClosedJaxpr, JaxprEqn, Literal, Var

MOST_ELEMENTS = 16  # that are combined to one
MOST_EQUATIONS = 96  # that a reduction may become
MANY = 16384  # elements of the array from which on it pays
FEW = 4  # elements of a row that is written out: of few rows around which others lie, or of narrow elements
WORD = 4  # bytes of an element of which vectors of rows are transposed
NARROW = 32  # elements side by side in the result from which on a loop fills the lanes

_MOVED = (kinds.Elementwise, kinds.View, kinds.Reshape)

Index = dict[int, int]  # reduced axis -> place along it


def short_reductions(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program without such reductions."""
    eqns = closed.jaxpr.eqns
    found = [number for number, eqn in enumerate(eqns) if _is_short(eqn)]
    if not found:
        return closed
    index = rewrite.index(closed.jaxpr)
    sliced = _Slices(index.makers, index.uses)
    builder, changed = rewrite.Builder(), False
    for number, eqn in enumerate(eqns):
        builder.source = eqn.source
        if number in found and sliced.count(eqn) <= MOST_EQUATIONS and not _is_read_again(eqn, eqns[number + 1 :]):
            changed = True
            rows = [[sliced.at(builder, eqn.invars[0], place) for place in row] for row in _places(eqn)]
            unstacked.combined(builder, eqn, rows)
        else:
            builder.eqns.append(eqn)
    return rewrite.with_equations(closed, builder.eqns) if changed else closed


def _is_short(eqn: JaxprEqn) -> bool:
    kind = eqn.primitive.kind
    if not isinstance(kind, kinds.Reduction) or eqn.primitive not in algebra.COMBINED_BY:
        return False
    shape, axes = eqn.invars[0].aval.shape, sorted(kind.axes(eqn.params))
    count = math.prod([shape[axis] for axis in axes])
    if not 2 <= count <= MOST_ELEMENTS or math.prod(shape) < MANY:
        return False
    along = [axis for axis in axes if shape[axis] > 1]
    inner = [extent for axis, extent in enumerate(shape) if axis > along[-1] and axis not in axes]
    if math.prod(inner) > 1:
        return math.prod(inner) < NARROW
    if any(shape[axis] > 1 for axis in range(along[0], along[-1]) if axis not in axes):
        return True
    before = [shape[axis] for axis in range(along[0]) if shape[axis] > 1]
    few = len(before) > 1 and before[-1] <= FEW
    return count <= FEW and (few or np.dtype(eqn.invars[0].aval.dtype).itemsize < WORD)


def _is_read_again(eqn: JaxprEqn, later: Sequence[JaxprEqn]) -> bool:
    """Whether the result is combined with arrays as large as the operand, as in a softmax: one kernel computes both."""
    least, derived = eqn.invars[0].aval.size, set(eqn.outvars)
    for one in later:
        read = rewrite.variables(one.invars)
        if derived.isdisjoint(read) or not isinstance(one.primitive.kind, _MOVED):
            continue
        others = [v for v in read if v not in derived and v.aval.size >= least]
        if others and one.outvars[0].aval.size >= least:
            return True
        derived.update(one.outvars)
    return False


def _places(eqn: JaxprEqn) -> list[list[Index]]:
    """The places along the reduced axes: of each row that the tree of a reduction takes by itself, in order."""
    shape, axes = eqn.invars[0].aval.shape, sorted(eqn.primitive.kind.axes(eqn.params))
    first = len(axes) - 1
    while first and axes[first - 1] == axes[first] - 1:
        first -= 1

    def along(some: Sequence[int]) -> list[Index]:
        ranges = [range(shape[axis]) for axis in some]
        return [dict(zip(some, place, strict=True)) for place in itertools.product(*ranges)]

    return [[{**outer, **inner} for inner in along(axes[first:])] for outer in along(axes[:first])]


class _Slices:
    """Slices of an array without the reduced axes; of what is computed elementwise for them alone, the operands'."""

    def __init__(self, makers: rewrite.Makers, uses: Mapping[Var, int]) -> None:
        self.makers, self.uses = makers, uses

    def _maker(self, atom: Atom) -> JaxprEqn | None:
        """The elementwise equation that computes an array which nothing else reads."""
        maker = None if isinstance(atom, Literal) or self.uses[atom] != 1 else self.makers.of(atom)
        if maker is None or not isinstance(maker.primitive.kind, kinds.Elementwise) or len(maker.outvars) != 1:
            return None
        ranks = {v.aval.ndim for v in maker.invars} - {0}
        return maker if ranks <= {atom.aval.ndim} else None

    def count(self, eqn: JaxprEqn) -> float:
        """How many equations a reduction becomes; too many if its operand is computed for others too."""
        operand = eqn.invars[0]
        if isinstance(operand, Literal):
            return math.inf
        each = self._equations(operand) + 2
        shape = operand.aval.shape
        return each * math.prod([shape[axis] for axis in eqn.primitive.kind.axes(eqn.params)])

    def _equations(self, atom: Atom) -> float:
        maker = self._maker(atom)
        if maker is not None:
            return 1 + sum(self._equations(v) for v in maker.invars if v.aval.shape)
        other = self.makers.of(atom)
        return math.inf if other is not None and isinstance(other.primitive.kind, kinds.Elementwise) else 2

    def at(self, builder: rewrite.Builder, atom: Atom, place: Index) -> Atom:
        """The slice at a place along the reduced axes, without them."""
        if not atom.aval.shape:
            return atom
        maker = self._maker(atom)
        if maker is not None:
            operands = [self.at(builder, v, place) for v in maker.invars]
            return builder.bind(maker.primitive, *operands, **maker.params)[0]
        start, limit = [0] * atom.aval.ndim, list(atom.aval.shape)
        for axis, number in place.items():
            if atom.aval.shape[axis] > 1:
                start[axis], limit[axis] = number, number + 1
        given = {"start_indices": tuple(start), "limit_indices": tuple(limit), "strides": None}
        (part,) = builder.bind(lax.slice_p, atom, **given)
        return builder.bind(lax.squeeze_p, part, dimensions=tuple(sorted(place)))[0]
