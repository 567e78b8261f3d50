"""A stack of a few arrays that is only reduced or sliced again is never made: its arrays are combined one by one.

    s = concatenate x[None] y[None]; t = exp s; r = reduce_max[axes=(0,)] t    ->    r = max (exp x) (exp y)

Elements are combined in the order of docs/NUMERICS.md, so that the bits stay. Equations between the stack and the
reductions are repeated for each array. What these lines gain: a stack is as many times as large as its result, so that
the largest of three shifted slices of a million numbers takes a third of the time, the mean of eight arrays a sixth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from weft._base.record import NamedTuple
from weft.compiler import reduction_steps, views
from weft.core import kinds, rewrite
from weft.core.jaxpr import Atom, ClosedJaxpr, JaxprEqn, Literal, Var
from weft.core.rewrite import Splicer

MOST_ARRAYS = 16  # arrays in a stack
MOST_EQUATIONS = 96  # equations that a stack may become


class _Stack(NamedTuple):
    """A stack and all computed from it: its number, the dimension along which it is stacked, its length."""

    number: int
    dim: int
    length: int


def unstacked(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program without such stacks."""
    members = _Members(closed)
    if not members.of:
        return closed
    pieces = dict[Atom, Sequence[Atom]]()

    def rule(equation: JaxprEqn, splicer: Splicer) -> Sequence[Atom] | None:
        stack = members.of.get(equation.outvars[0]) if equation.outvars else None
        read = [v for v in rewrite.variables(equation.invars) if v in pieces]
        if stack is not None:
            each = (
                [_apart(splicer, equation, stack, i, pieces) for i in range(stack.length)] if read else equation.invars
            )
            pieces[equation.outvars[0]] = each
        if stack is not None or not read:
            return None
        parts, picked = pieces[read[0]], _picked(equation, members.of[read[0]].dim)
        if picked is not None:
            return [parts[picked]]
        program = reduction_steps.written_out(equation, [len(parts)])
        axes = equation.primitive.kind.axes(equation.params)
        return program and splicer.splice(
            program, [views.squeeze(splicer.bind, x, axes) for x in parts], equation.source
        )

    return Splicer(closed, rule).run()


class _Members:
    """``of`` gives the stack of every variable that is computed from one that can be taken apart."""

    def __init__(self, closed: ClosedJaxpr) -> None:
        self.of: dict[Var, _Stack] = {}
        self.failed: set[int] = set()
        self.joined: dict[int, int] = {}  # a stack that is combined with another one -> that one
        self.made: Counter[int] = Counter()  # equations that a stack becomes
        self.reduced: set[int] = set()
        for equation in closed.jaxpr.eqns:
            self._see(equation)
        if not self.of:
            return
        for v in rewrite.variables(closed.jaxpr.outvars):
            if v in self.of:
                self._fail([self.of[v]])
        total: Counter[int] = Counter()
        for number, count in self.made.items():
            total[self._root(number)] += count
        reduced, failed = {self._root(n) for n in self.reduced}, {self._root(n) for n in self.failed}
        good = {n for n in reduced - failed if total[n] <= MOST_EQUATIONS}
        self.of = {v: stack for v, stack in self.of.items() if self._root(stack.number) in good}

    def _root(self, number: int) -> int:
        while number in self.joined:
            number = self.joined[number]
        return number

    def _fail(self, stacks: Sequence[_Stack]) -> None:
        self.failed.update(stack.number for stack in stacks)

    def _see(self, equation: JaxprEqn) -> None:
        read = [self.of[v] for v in rewrite.variables(equation.invars) if v in self.of] if self.of else []
        kind = equation.primitive.kind
        if not read:
            dim = _stacked_along(equation) if isinstance(kind, kinds.Assemble) else None
            if dim is not None:
                self.of[equation.outvars[0]] = _Stack(len(self.of), dim, len(equation.invars))
            return
        first = read[0]
        if isinstance(kind, kinds.Elementwise) and _takes_apart(equation, first.dim, self.of):
            for other in read[1:]:
                self._join(first, other)
            self.of[equation.outvars[0]] = _Stack(len(self.of), first.dim, first.length)
            self._join(first, self.of[equation.outvars[0]])
            self.made[first.number] += first.length
        elif (count := _reduces(equation, first)) is not None:
            self.reduced.add(first.number)
            self.made[first.number] += count
        elif _picked(equation, first.dim) is None:
            self._fail(read)

    def _join(self, left: _Stack, right: _Stack) -> None:
        a, b = self._root(left.number), self._root(right.number)
        if a != b:
            self.joined[b] = a


def _stacked_along(equation: JaxprEqn) -> int | None:
    """The dimension along which all operands have one element and are put together in order."""
    out, avals = equation.outvars[0].aval, [atom.aval for atom in equation.invars]
    pieces = equation.primitive.kind.pieces(avals, out, equation.params)
    if not 2 <= len(pieces) <= MOST_ARRAYS or not out.size or len(pieces) != len(avals):
        return None
    along = [dim for dim, extent in enumerate(out.shape) if extent == len(pieces) and avals[0].shape[dim] == 1]
    for dim in along:
        shape = (*out.shape[:dim], 1, *out.shape[dim + 1 :])
        places = [(*[0] * dim, i, *[0] * (out.ndim - dim - 1)) for i in range(len(pieces))]
        if all(aval.shape == shape for aval in avals) and [piece.region.start for piece in pieces] == places:
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
    kind = equation.primitive.kind
    if not isinstance(kind, kinds.Reduction) or tuple(kind.axes(equation.params)) != (stack.dim,):
        return None
    program = reduction_steps.written_out(equation, [stack.length])
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


def _apart(splicer: Splicer, equation: JaxprEqn, stack: _Stack, i: int, pieces: Mapping[Atom, Sequence[Atom]]) -> Atom:
    """An elementwise equation for array ``i`` of a stack."""
    operands: list[Atom] = []
    for atom in equation.invars:
        if isinstance(atom, Literal) or not atom.aval.shape or atom.aval.shape[stack.dim] == 1:
            operands.append(atom)
        elif atom in pieces:
            operands.append(pieces[atom][i])
        else:
            operands.append(views.slice_in_dim(splicer.bind, atom, i, i + 1, stack.dim))
    return splicer.bind(equation.primitive, *operands, **equation.params)[0]
