"""A stack of a few arrays that is only reduced or sliced again is never made: its arrays are combined one by one.

    s = concatenate x[None] y[None]; t = exp s; r = reduce_max[axes=(0,)] t    ->    r = max (exp x) (exp y)

Elements are combined in the order of docs/NUMERICS.md, so that the bits stay. Equations between the stack and the
reductions are repeated for each array. What these lines gain: a stack is as many times as large as its result, so that
the largest of three shifted slices of a million numbers takes a third of the time, the mean of eight arrays a sixth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import operations as lax
from weft._base.record import NamedTuple
from weft.compiler import algebra
from weft.core import kinds, rewrite
from weft.core.jaxpr import Atom, ClosedJaxpr, JaxprEqn, Literal, Var
from weft.loops.reduction_tree import LANES

MOST_ARRAYS = 16  # in a stack
MOST_EQUATIONS = 96  # that a stack may become


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
    builder, pieces = rewrite.Builder(), dict[Var, list[Atom]]()
    for equation in closed.jaxpr.eqns:
        builder.source = equation.source
        stack = members.of.get(equation.outvars[0]) if equation.outvars else None
        read = [members.of[v] for v in rewrite.variables(equation.invars) if v in members.of]
        if stack is not None and not read:
            pieces[equation.outvars[0]] = list(equation.invars)
        elif stack is not None:
            pieces[equation.outvars[0]] = [_apart(builder, equation, stack, i, pieces) for i in range(stack.length)]
        elif read and (picked := _picked(equation, read[0].dim)) is not None:
            _sliced(builder, equation, pieces[equation.invars[0]][picked])  # type: ignore[index] - a stack is a Var
        elif read:
            _combined(builder, equation, pieces[equation.invars[0]])  # type: ignore[index] - a stack is a Var
        else:
            builder.eqns.append(equation)
    return rewrite.with_equations(closed, builder.eqns)


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
        elif _reduces(equation, first.dim):
            self.reduced.add(first.number)
            self.made[first.number] += (2 if equation.primitive in algebra.COMBINED_BY else 6) * first.length
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


def _reduces(equation: JaxprEqn, dim: int) -> bool:
    """Whether a stack is reduced along its dimension."""
    if equation.primitive in algebra.FIRST_STAYS and equation.invars[0].aval.dtype.kind == "c":
        return False
    known = equation.primitive in algebra.COMBINED_BY or equation.primitive in algebra.FIRST_STAYS
    return known and equation.primitive.kind.axes(equation.params) == (dim,)


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


def _sliced(builder: rewrite.Builder, equation: JaxprEqn, value: Atom) -> None:
    """One array of a stack, under the name of the slice."""
    params = {"start_indices": (0,) * value.aval.ndim, "limit_indices": value.aval.shape, "strides": None}
    builder.bind(lax.slice_p, value, **params)
    builder.eqns[-1] = builder.eqns[-1].replace(outvars=equation.outvars)


def _apart(builder: rewrite.Builder, equation: JaxprEqn, stack: _Stack, i: int, pieces: dict[Var, list[Atom]]) -> Atom:
    """An elementwise equation for array ``i`` of a stack."""
    operands: list[Atom] = []
    for atom in equation.invars:
        if isinstance(atom, Literal) or not atom.aval.shape or atom.aval.shape[stack.dim] == 1:
            operands.append(atom)
        elif atom in pieces:
            operands.append(pieces[atom][i])
        else:
            start, limit = [0] * atom.aval.ndim, list(atom.aval.shape)
            start[stack.dim], limit[stack.dim] = i, i + 1
            params = {"start_indices": tuple(start), "limit_indices": tuple(limit), "strides": None}
            operands += builder.bind(lax.slice_p, atom, **params)
    return builder.bind(equation.primitive, *operands, **equation.params)[0]


def _combined(builder: rewrite.Builder, equation: JaxprEqn, values: Sequence[Atom]) -> None:
    """The reduction of a stack as operations on its arrays."""
    (axis,) = equation.primitive.kind.axes(equation.params)
    if equation.primitive in algebra.FIRST_STAYS:
        _position(builder, equation, [builder.bind(lax.squeeze_p, value, dimensions=(axis,))[0] for value in values])
        return
    combined(builder, equation, [[builder.bind(lax.squeeze_p, value, dimensions=(axis,))[0] for value in values]])


def combined(builder: rewrite.Builder, equation: JaxprEqn, rows: Sequence[Sequence[Atom]]) -> None:
    """A reduction as operations on its few elements, of each row (``loops.reduction_tree``) in order."""
    kind, out, operand = equation.primitive.kind, equation.outvars[0], equation.invars[0]
    ((dtype, _),) = kind.accumulators([operand.aval], equation.params)
    combine = algebra.COMBINED_BY[equation.primitive]
    totals = []
    for row in rows:
        parts = [_converted(builder, part, dtype) for part in row]
        if not totals and combine in algebra.ADDITIONS and np.dtype(dtype).kind in "fcV":
            zero = Literal(np.dtype(dtype).type(0), parts[0].aval.update(shape=(), weak_type=False))
            parts[0] = builder.bind(combine, parts[0], zero)[0]  # -0.0 plus the identity is +0.0
        lanes = operand.aval.ndim - 1 in kind.axes(equation.params)
        totals.append(_by_halves(builder, combine, parts) if lanes else _in_order(builder, combine, parts))
    _converted(builder, _in_order(builder, combine, totals), out.aval.dtype)
    builder.eqns[-1] = builder.eqns[-1].replace(outvars=[out])  # the last operation, or its conversion


def _in_order(builder: rewrite.Builder, combine: Any, parts: Sequence[Atom]) -> Atom:
    total = parts[0]
    for part in parts[1:]:
        total = builder.bind(combine, total, part)[0]
    return total


def _by_halves(builder: rewrite.Builder, combine: Any, parts: list[Atom]) -> Atom:
    half = LANES // 2
    while half:
        for lane in range(min(half, len(parts) - half)):
            parts[lane] = builder.bind(combine, parts[lane], parts[lane + half])[0]
        parts, half = parts[:half], half // 2
    return parts[0]


def _position(builder: rewrite.Builder, equation: JaxprEqn, parts: Sequence[Atom]) -> None:
    """The position of the extremum of these arrays: the first of equals, and the first NaN before all."""
    out, stays = equation.outvars[0], algebra.FIRST_STAYS[equation.primitive]
    scalar = out.aval.update(shape=(), weak_type=False)
    places = [
        builder.bind(
            lax.broadcast_in_dim_p,
            Literal(out.aval.dtype.type(k), scalar),
            shape=out.aval.shape,
            broadcast_dimensions=(),
            sharding=None,
        )[0]
        for k in range(len(parts))
    ]
    best, at = parts[0], places[0]
    for part, place in zip(parts[1:], places[1:], strict=True):
        (kept,) = builder.bind(stays, best, part)
        if np.dtype(best.aval.dtype).kind in "fV":
            (is_nan,) = builder.bind(lax.ne_p, best, best)
            (kept,) = builder.bind(lax.or_p, kept, is_nan)
        if part is not parts[-1]:
            (best,) = builder.bind(lax.select_n_p, kept, part, best)
        (at,) = builder.bind(lax.select_n_p, kept, place, at)
    builder.eqns[-1] = builder.eqns[-1].replace(outvars=[out])


def _converted(builder: rewrite.Builder, atom: Atom, dtype: Any) -> Atom:
    if atom.aval.dtype == np.dtype(dtype):
        return atom
    return builder.bind(lax.convert_element_type_p, atom, new_dtype=np.dtype(dtype), weak_type=False, sharding=None)[0]
