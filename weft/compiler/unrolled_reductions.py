"""Reductions of a few elements that do not lie along rows become elementwise operations on slices of the array.

    b:f32[n,m] = reduce_sum[axes=(1, 3)] a:f32[n,2,m,2]    ->    b = (a[:, 0, :, 0] + a[:, 0, :, 1]) + (a[:, 1, ...
    b:f32[n] = reduce_sum[axes=(1,)] a:f32[n,1]            ->    b = 0.0 + a[:, 0]

Rows of a few elements have loops of their own (``codegen.short_rows``). But where the elements lie in several rows, or
only a few elements lie side by side in the result, a loop over the reduced dimensions inside of a vector leaves most
lanes empty: pooling of images by two took three to ten times as long. What computes the operand alone is repeated for
each slice. Reductions over structural unit dimensions, which transposes of broadcasts are, would be separate kernels.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from weft.compiler import reduction_steps, views
from weft.compiler.dimensions import dimensions
from weft.core import kinds, rewrite
from weft.core.jaxpr import Atom, ClosedJaxpr, JaxprEqn, Literal, Var
from weft.core.rewrite import Makers, Splicer
from weft.loops.index_math import UNIT

MOST_ELEMENTS = 16  # elements that are combined to one
MOST_EQUATIONS = 96  # equations that a reduction may become
MANY = 16384  # elements of the array from which on it pays
FEW = 4  # elements of a row that is written out: of few rows around which others lie, or of narrow elements
WORD = 4  # bytes of an element: rows of such elements are transposed in vectors
NARROW = 32  # elements side by side in the result from which on a loop fills the lanes

_MOVED = (kinds.Elementwise, kinds.View, kinds.Reshape)

Index = dict[int, int]  # reduced axis -> place along it


def unrolled_reductions(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program without such reductions."""
    known = rewrite.index(closed.jaxpr)
    chosen = _over_units(closed)
    slices = _Slices(known.uses)
    for number, eqn in enumerate(known.eqns):
        fits = _is_short(eqn) and slices.count(eqn, known.makers) <= MOST_EQUATIONS
        if fits and not _is_read_again(eqn, known.eqns[number + 1 :]):
            chosen.add(eqn.outvars[0])
    if not chosen:
        return closed

    def rule(eqn: JaxprEqn, splicer: Splicer) -> Sequence[Atom] | None:
        program = _program(eqn) if eqn.outvars[0] in chosen else None
        if program is None:
            return None
        places = list(itertools.chain(*_places(eqn)))
        if len(places) == 1:
            taken = [views.squeeze(splicer.bind, eqn.invars[0], _axes(eqn))]
        else:
            taken = [slices.at(splicer, eqn.invars[0], place) for place in places]
        made = splicer.splice(program, taken, eqn.source)
        # the place of the only element is a number, and results, as operands of some kinds, are in memory
        return [views.broadcast(splicer.bind, v, v.aval.shape) if type(v) is Literal else v for v in made]

    return Splicer(closed, rule, (kinds.Reduction,)).run()


def _program(eqn: JaxprEqn) -> ClosedJaxpr | None:
    return reduction_steps.written_out(eqn, [len(row) for row in _places(eqn)])


def _axes(eqn: JaxprEqn) -> list[int]:
    return sorted(eqn.primitive.kind.axes(eqn.params))


def _over_units(closed: ClosedJaxpr) -> set[Var]:
    """Results of reductions over structural unit dimensions only."""
    found = [
        eqn for eqn in closed.jaxpr.eqns
        if isinstance(eqn.primitive.kind, kinds.Reduction) and {eqn.invars[0].aval.shape[a] for a in _axes(eqn)} == {1}
    ]  # fmt: skip
    dims = dimensions(closed.jaxpr) if found else None
    return {
        eqn.outvars[0] for eqn in found
        if dims is not None and {dims.symbols(eqn.invars[0])[axis] for axis in _axes(eqn)} == {UNIT}
    }  # fmt: skip


def _is_short(eqn: JaxprEqn) -> bool:
    if not isinstance(eqn.primitive.kind, kinds.Reduction):
        return False
    shape, axes = eqn.invars[0].aval.shape, _axes(eqn)
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
    shape, axes = eqn.invars[0].aval.shape, _axes(eqn)
    first = len(axes) - 1
    while first and axes[first - 1] == axes[first] - 1:
        first -= 1

    def along(some: Sequence[int]) -> list[Index]:
        ranges = [range(shape[axis]) for axis in some]
        return [dict(zip(some, place, strict=True)) for place in itertools.product(*ranges)]

    return [[{**outer, **inner} for inner in along(axes[first:])] for outer in along(axes[:first])]


class _Slices:
    """Slices of an array without the reduced axes; of what is computed elementwise for them alone, the operands'."""

    def __init__(self, uses: Mapping[Var, int]) -> None:
        self.uses = uses

    def _maker(self, atom: Atom, makers: Makers) -> JaxprEqn | None:
        """The elementwise equation that computes an array which nothing else reads."""
        maker = None if isinstance(atom, Literal) or self.uses[atom] != 1 else makers.of(atom)
        if maker is None or not isinstance(maker.primitive.kind, kinds.Elementwise) or len(maker.outvars) != 1:
            return None
        ranks = {v.aval.ndim for v in maker.invars} - {0}
        return maker if ranks <= {atom.aval.ndim} else None

    def count(self, eqn: JaxprEqn, makers: Makers) -> float:
        """How many equations a reduction becomes; too many if its operand is computed for others too."""
        program = None if isinstance(eqn.invars[0], Literal) else _program(eqn)
        if program is None:
            return math.inf
        return self._equations(eqn.invars[0], makers) * len(program.in_avals) + len(program.jaxpr.eqns)

    def _equations(self, atom: Atom, makers: Makers) -> float:
        maker = self._maker(atom, makers)
        if maker is not None:
            return 1 + sum(self._equations(v, makers) for v in maker.invars if v.aval.shape)
        other = makers.of(atom)
        return math.inf if other is not None and isinstance(other.primitive.kind, kinds.Elementwise) else 2

    def at(self, splicer: Splicer, atom: Atom, place: Index) -> Atom:
        """The slice at a place along the reduced axes, without them."""
        if not atom.aval.shape:
            return atom
        maker = self._maker(atom, splicer.makers)
        if maker is not None:
            operands = [self.at(splicer, v, place) for v in maker.invars]
            return splicer.bind(maker.primitive, *operands, **maker.params)[0]
        start, stop = [0] * atom.aval.ndim, list(atom.aval.shape)
        for axis, number in place.items():
            if atom.aval.shape[axis] > 1:
                start[axis], stop[axis] = number, number + 1
        return views.squeeze(splicer.bind, views.slice(splicer.bind, atom, start, stop), sorted(place))
