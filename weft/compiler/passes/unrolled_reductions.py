"""Reductions of a few elements that do not lie along rows become elementwise operations on parts of the array.

    b:f32[n,m] = reduce_sum[axes=(1, 3)] a:f32[n,2,m,2]    ->    b = (a[:, 0, :, 0] + a[:, 0, :, 1]) + (a[:, 1, ...
    b:f32[n] = reduce_sum[axes=(1,)] a:f32[n,1]            ->    b = 0.0 + a[:, 0]
    s = concatenate x[None] y[None]; b = reduce_max[axes=(0,)] (exp s)    ->    b = max (exp x) (exp y)

Rows of a few elements have loops of their own (``codegen.nests.short_rows``). But where the elements lie in several
rows, or only a few elements lie side by side in the result, a loop over the reduced dimensions inside of a vector
leaves most lanes empty: pooling of images by two took three to ten times as long. What computes the operand alone is
repeated for each part. Reductions over structural unit dimensions, which transposes of broadcasts are, would be
separate kernels. A stack of a few arrays that is only reduced, or sliced again, is never made: it is as many times as
large as its result, so that the largest of three shifted slices of a million numbers takes a third of the time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from weft.compiler.fusion.dimensions import dimensions
from weft.compiler.passes import reduction_steps
from weft.core import kinds
from weft.core.programs import rewrite
from weft.core.programs.jaxpr import Atom, ClosedJaxpr, JaxprEqn, Literal, Var
from weft.core.programs.rewrite import Index, Makers, Splicer
from weft.loops.index_math import UNIT
from weft.operations.data_movement import views

MOST_ELEMENTS = 16  # elements that are combined to one; arrays in a stack
MOST_EQUATIONS = 96  # equations that a reduction, or a stack, may become
MANY = 16384  # elements of the array from which on it pays
FEW = 4  # elements of a row that is written out: of few rows around which others lie, or of narrow elements
WORD = 4  # bytes of an element: rows of such elements are transposed in vectors
NARROW = 32  # elements side by side in the result from which on a loop fills the lanes

_MOVED = (kinds.Elementwise, kinds.View, kinds.Reshape)

Point = dict[int, int]  # reduced axis -> point along it


def unrolled_reductions(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program without such reductions."""
    known = rewrite.index(closed.jaxpr)
    stacks = _stacks(closed)
    parts, chosen = _Parts(known, stacks), _over_units(closed)
    for number, eqn in enumerate(known.eqns):
        fits = _is_short(eqn) and parts.count(eqn) <= MOST_EQUATIONS
        if fits and not _is_read_again(eqn, known.eqns[number + 1 :]):
            chosen.add(eqn.outvars[0])
    if not chosen and not stacks:
        return closed

    def rule(eqn: JaxprEqn, splicer: Splicer) -> Sequence[Atom] | None:
        operand = eqn.invars[0]
        stack = None if isinstance(operand, Literal) else stacks.get(operand)
        if isinstance(eqn.primitive.kind, kinds.View):
            picked = None if stack is None else _picked(eqn, stack.dim)
            return None if stack is None or picked is None else [parts.at(splicer, operand, {stack.dim: picked})]
        program = _program(eqn) if stack is not None or eqn.outvars[0] in chosen else None
        if program is None:
            return None
        points = itertools.chain(*_points(eqn))
        taken = [views.squeeze(splicer.bind, parts.at(splicer, operand, point), _axes(eqn)) for point in points]
        made = splicer.splice(program, taken, eqn.source)
        # the position of the only element is a number, and results, as operands of some kinds, are in memory
        return [views.broadcast(splicer.bind, v, v.aval.shape) if type(v) is Literal else v for v in made]

    return Splicer(closed, rule, (kinds.Reduction, kinds.View)).run()


def _program(eqn: JaxprEqn) -> ClosedJaxpr | None:
    return reduction_steps.written_out(eqn, [len(row) for row in _points(eqn)])


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


def _points(eqn: JaxprEqn) -> list[list[Point]]:
    """The points along the reduced axes, in order: a list for each row that the tree of a reduction takes by itself."""
    shape, axes = eqn.invars[0].aval.shape, _axes(eqn)
    first = len(axes) - 1
    while first and axes[first - 1] == axes[first] - 1:
        first -= 1

    def along(some: Sequence[int]) -> list[Point]:
        ranges = [range(shape[axis]) for axis in some]
        return [dict(zip(some, point, strict=True)) for point in itertools.product(*ranges)]

    return [[{**outer, **inner} for inner in along(axes[first:])] for outer in along(axes[:first])]


class _Parts:
    """Parts of arrays at one index along some axes. A value that is computed elementwise for them alone is computed
    from its operands' parts."""

    def __init__(self, known: Index, stacks: dict[Var, _Stack]) -> None:
        self.known, self.stacks = known, stacks
        self.made: dict[tuple[Var, tuple[tuple[int, int], ...]], Atom] = {}

    def _maker(self, atom: Atom, makers: Makers) -> JaxprEqn | None:
        """The elementwise equation that computes an array that nothing else reads, or that is read in parts alone."""
        maker = makers.of(atom)
        if maker is None or isinstance(atom, Literal) or (self.known.uses[atom] != 1 and atom not in self.stacks):
            return None
        if not isinstance(maker.primitive.kind, kinds.Elementwise) or len(maker.outvars) != 1:
            return None
        ranks = {v.aval.ndim for v in maker.invars} - {0}
        return maker if ranks <= {atom.aval.ndim} else None

    def count(self, eqn: JaxprEqn) -> float:
        """How many equations a reduction becomes; too many if its operand is computed for others too."""
        program = None if isinstance(eqn.invars[0], Literal) else _program(eqn)
        if program is None:
            return math.inf
        return self._equations(eqn.invars[0]) * len(program.in_avals) + len(program.jaxpr.eqns)

    def _equations(self, atom: Atom) -> float:
        maker = self._maker(atom, self.known.makers)
        if maker is not None:
            return 1 + sum(self._equations(v) for v in maker.invars if v.aval.shape)
        other = self.known.makers.of(atom)
        return math.inf if other is not None and isinstance(other.primitive.kind, kinds.Elementwise) else 2

    def at(self, splicer: Splicer, atom: Atom, point: Point) -> Atom:
        """The part at a point along some axes, whose extents then are 1."""
        shape = atom.aval.shape
        moved = {axis: number for axis, number in point.items() if shape and shape[axis] > 1}
        if isinstance(atom, Literal) or not moved:
            return atom
        key = atom, tuple(moved.items())
        if key not in self.made:
            self.made[key] = self._made(splicer, atom, moved)
        return self.made[key]

    def _made(self, splicer: Splicer, atom: Var, point: Point) -> Atom:
        maker = self._maker(atom, splicer.makers)
        if maker is not None:
            operands = [self.at(splicer, v, point) for v in maker.invars]
            return splicer.bind(maker.primitive, *operands, **maker.params)[0]
        if atom in self.stacks:
            return splicer.makers[atom].invars[point[self.stacks[atom].dim]]
        start, stop = [0] * atom.aval.ndim, list(atom.aval.shape)
        for axis, number in point.items():
            start[axis], stop[axis] = number, number + 1
        return views.slice(splicer.bind, atom, start, stop)


# stacks


class _Stack:
    """A stack along a dimension, others that are combined with it, and what is computed of them elementwise."""

    def __init__(self, dim: int, length: int) -> None:
        self.dim, self.length = dim, length
        self.members: list[Var] = []
        self.equations = 0  # that all become
        self.is_reduced = self.is_needed = False  # by a reduction along the dimension; as a whole, by another reader


def _stacks(closed: ClosedJaxpr) -> dict[Var, _Stack]:
    """The stack that each variable is, or is computed from: those that are reduced, and need not be made."""
    of: dict[Var, _Stack] = {}
    for eqn in closed.jaxpr.eqns:
        read = [of[v] for v in rewrite.variables(eqn.invars) if v in of] if of else []
        kind = eqn.primitive.kind
        if not read:
            dim = _stacked_along(eqn) if isinstance(kind, kinds.Assemble) else None
            if dim is not None:
                _add(of, _Stack(dim, len(eqn.invars)), eqn.outvars)
        elif isinstance(kind, kinds.Elementwise) and _takes_apart(eqn, read[0].dim, of):
            stack = max(read, key=lambda one: len(one.members))
            for other in {id(one): one for one in read}.values():
                if other is not stack:
                    stack.equations += other.equations
                    stack.is_reduced |= other.is_reduced
                    stack.is_needed |= other.is_needed
                    _add(of, stack, other.members)
            _add(of, stack, eqn.outvars)
            stack.equations += stack.length
        elif (count := _reduces(eqn, read[0])) is not None:
            read[0].is_reduced = True
            read[0].equations += count
        elif _picked(eqn, read[0].dim) is None:
            for stack in read:
                stack.is_needed = True
    for v in rewrite.variables(closed.jaxpr.outvars):
        if v in of:
            of[v].is_needed = True
    return {v: s for v, s in of.items() if s.is_reduced and not s.is_needed and s.equations <= MOST_EQUATIONS}


def _add(of: dict[Var, _Stack], stack: _Stack, members: Sequence[Var]) -> None:
    stack.members += members
    of.update(dict.fromkeys(members, stack))


def _stacked_along(equation: JaxprEqn) -> int | None:
    """The dimension along which all operands have one element and are put together in order."""
    out, avals = equation.outvars[0].aval, [atom.aval for atom in equation.invars]
    pieces = equation.primitive.kind.pieces(avals, out, equation.params)
    if not 2 <= len(pieces) <= MOST_ELEMENTS or not out.size or len(pieces) != len(avals):
        return None
    along = [dim for dim, extent in enumerate(out.shape) if extent == len(pieces) and avals[0].shape[dim] == 1]
    for dim in along:
        shape = (*out.shape[:dim], 1, *out.shape[dim + 1 :])
        starts = [(*[0] * dim, i, *[0] * (out.ndim - dim - 1)) for i in range(len(pieces))]
        if all(aval.shape == shape for aval in avals) and [piece.region.start for piece in pieces] == starts:
            return dim
    return None


def _takes_apart(equation: JaxprEqn, dim: int, of: dict[Var, _Stack]) -> bool:
    """Whether an elementwise equation can be computed for each array; arrays of the stack's shape are sliced."""
    out = equation.outvars[0].aval
    for atom in equation.invars:
        if isinstance(atom, Var) and atom in of and (of[atom].dim != dim or atom.aval.shape != out.shape):
            return False
        if atom.aval.shape and len(atom.aval.shape) != out.ndim:
            return False
    return len(equation.outvars) == 1


def _reduces(equation: JaxprEqn, stack: _Stack) -> int | None:
    """The equations that a reduction of a stack along its dimension becomes; None for any other equation."""
    if not isinstance(equation.primitive.kind, kinds.Reduction) or _axes(equation) != [stack.dim]:
        return None
    program = _program(equation)
    return None if program is None else len(program.jaxpr.eqns) + stack.length


def _picked(equation: JaxprEqn, dim: int) -> int | None:
    """The array of a stack that an equation takes out of it."""
    kind, out = equation.primitive.kind, equation.outvars[0].aval
    if not isinstance(kind, kinds.View) or len(equation.invars) != 1:
        return None
    shape = equation.invars[0].aval.shape
    if out.shape != (*shape[:dim], 1, *shape[dim + 1 :]):
        return None
    uses = kind.index_map(equation.invars[0].aval, out, equation.params)
    moved = [(use.axis, use.start, use.step) for d, use in enumerate(uses) if d != dim and shape[d] != 1]
    whole = moved == [(d, 0, 1) for d in range(len(shape)) if d != dim and shape[d] != 1]
    return uses[dim].start if whole else None
