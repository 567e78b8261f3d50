"""Per-lane early exit: loops over arrays that leave finished elements as they are, so each vector of lanes ends alone.

    while any(live):  x = where(live, new(x), x);  live = live & (error > tol)      ends lane by lane, as if mapped

The condition is that a mask holds anywhere (and, perhaps, that a count of steps is small, if nothing reads the count
afterwards). The body is followed with a false mask: where each of its results is then the state itself, a finished
element stays so. Equal values have equal numbers, so the mask is found too where the body computes it anew.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from weft import operations as lax
from weft.core import kinds
from weft.core.programs.eval import eval_jaxpr
from weft.core.programs.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal
from weft.core.programs.rewrite import Makers
from weft.core.tracing.trace import trace_to_jaxpr
from weft.loops.numpy_emit import NumpyEmit
from weft.loops.routines.register_promotion import Flatten


def mask(parts: kinds.LoopParts, atoms: Sequence[Any], flatten: Flatten, unread: Collection[int]) -> ClosedJaxpr | None:
    """A loop's condition for one element, on the operands of its own condition, or None if elements do not end alone.

    Its results are the mask and, if the loop has a second condition that is not about elements, that condition.
    ``unread`` are the parts of the state whose results nothing reads.
    """
    if parts.cond is None:
        return None
    cond, body = flatten(parts.cond), flatten(parts.body)
    found = _any_of(cond.jaxpr)
    if found is None:
        return None
    each, negated, alone = found
    values = _Values()
    n_tested, n_consts = parts.n_cond_consts, parts.n_cond_consts + parts.n_consts
    consts = [
        values.literal(atom.val, atom.aval.dtype) if type(atom) is Literal else values.number("operand", id(atom))
        for atom in atoms[:n_consts]
    ]
    state = [values.number("state", k) for k in range(parts.n_carry)]
    for k, number in enumerate(state):
        values.reads[number] = frozenset([k])
    outs = values.follow(cond, [*consts[:n_tested], *state], [each, *([] if alone is None else [alone])])
    values.assume(outs[0], negated)
    results = values.follow(body, [*consts[n_tested:], *state], body.jaxpr.outvars)
    counts = {k for k, (old, new) in enumerate(zip(state, results, strict=True)) if not values.are_same(old, new)}
    counted = [values.reads[results[k]] for k in counts] + [values.reads[number] for number in outs[1:]]
    if not counts <= set(unread) or not all(reads <= counts for reads in counted) or values.reads[outs[0]] & counts:
        return None
    return _test(cond, each, negated, alone)


def _any_of(jaxpr: Jaxpr) -> tuple[Any, bool, Any] | None:
    """(mask, whether negated, the other condition or None) of a program that tells whether a mask holds anywhere."""
    makers = Makers([(out, equation) for equation in jaxpr.eqns for out in equation.outvars])

    def any_of(atom: Any) -> tuple[Any, bool] | None:
        equation, outer = makers.of(atom), False
        if equation is not None and _table(equation) == NEGATION:  # not all of the others
            equation, outer = makers.of(equation.invars[0]), True
        found = None if equation is None else _of_two(equation)
        if equation is None or found is None:
            return None
        negated, *others = (outer ^ value for value in found)
        if others != [True, True, not negated]:
            return None
        (operand,) = equation.invars
        every = sorted(equation.primitive.kind.axes(equation.params)) == list(range(operand.aval.ndim))
        return (operand, negated) if every and type(operand) is not Literal else None

    (goes_on,) = jaxpr.outvars
    found = any_of(goes_on)
    if found is not None:
        return (*found, None)
    maker = makers.of(goes_on)
    if maker is None or _table(maker) != CONJUNCTION:
        return None
    for atom, other in (maker.invars, maker.invars[::-1]):
        found = any_of(atom)
        if found is not None:
            return (*found, other)
    return None


NEGATION, CONJUNCTION = (True, False), (False, False, False, True)


def _table(equation: JaxprEqn) -> tuple[bool, ...] | None:
    """The results of an elementwise operation on truth values, the last operand changing first; None for any other."""
    kind, operands = equation.primitive.kind, equation.invars
    if not isinstance(kind, kinds.Elementwise) or len(operands) not in (1, 2, 3):
        return None
    if any(v.aval.dtype != bool for v in (*operands, *equation.outvars)):
        return None
    columns = np.array(list(itertools.product([False, True], repeat=len(operands)))).T
    return tuple(np.asarray(kind.reference(*columns, **equation.params)).tolist())


def _of_two(equation: JaxprEqn) -> tuple[bool, ...] | None:
    """The results of a reduction of two truth values, the last changing first; None for any other operation."""
    kind, emit = equation.primitive.kind, NumpyEmit()
    if not isinstance(kind, kinds.Reduction) or kind.needs_index or len(equation.invars) != 1:
        return None
    if equation.invars[0].aval.dtype != bool or equation.outvars[0].aval.dtype != bool:
        return None
    first, second = np.array(list(itertools.product([False, True], repeat=2))).T
    left, right = (tuple(kind.prepare(emit, (x,), None, **equation.params)) for x in (first, second))
    found = kind.finish(emit, kind.combine(emit, left, right, **equation.params), **equation.params)
    return tuple(np.asarray(found[0]).astype(bool).tolist())


def _test(cond: ClosedJaxpr, each: Any, negated: bool, alone: Any) -> ClosedJaxpr:
    jaxpr = cond.jaxpr
    wanted = Jaxpr(jaxpr.constvars, jaxpr.invars, [each] if alone is None else [each, alone], jaxpr.eqns)

    def flat(*args: Any) -> list[Any]:
        goes_on, *others = eval_jaxpr(wanted, cond.consts, *args)
        goes_on = lax.bitwise_not(goes_on) if negated else goes_on
        return [lax.bitwise_and(goes_on, lax.broadcast(other, goes_on.shape)) for other in others] or [goes_on]

    return trace_to_jaxpr(flat, cond.in_avals)[0]


class _Values:
    """Numbers for values: equal numbers are equal values. Some truth values are known."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}
        self.known: dict[int, bool] = {}
        # the table of the operation on truth values that made one, and its operands
        self.made: dict[int, tuple[tuple[bool, ...] | None, tuple[int, ...]]] = {}
        self.reads: dict[int, frozenset[int]] = {}  # the parts of the state that a value depends on

    def number(self, *key: Any) -> int:
        found = self.numbers.setdefault(key, len(self.numbers))
        self.reads.setdefault(found, frozenset())
        return found

    def literal(self, value: Any, dtype: Any) -> int:
        array = np.asarray(value).astype(dtype)
        found = self.number("literal", array.dtype, array.tobytes())
        if array.dtype == bool:
            self.known[found] = bool(array)
        return found

    def assume(self, number: int, value: bool) -> None:
        """That a truth value is known, and what follows for those that it was made of."""
        if number in self.known:
            return
        self.known[number] = value
        table, args = self.made.get(number, (None, ()))
        rows = [row for row, result in self.rows(table, args) if result == value]
        for arg, column in zip(args, zip(*rows, strict=True)):
            if len(set(column)) == 1:
                self.assume(arg, column[0])

    def rows(self, table: tuple[bool, ...] | None, args: tuple[int, ...]) -> list[tuple[tuple[bool, ...], bool]]:
        """The rows of a table in which operands have the values that are known."""
        each = zip(itertools.product([False, True], repeat=len(args)), table or (), strict=table is not None)
        return [(row, found) for row, found in each if all(self.known.get(a, v) == v for a, v in zip(args, row))]

    def are_same(self, a: int, b: int) -> bool:
        return a == b or (a in self.known and self.known[a] == self.known.get(b))

    def follow(self, closed: ClosedJaxpr, operands: Sequence[int], wanted: Sequence[Any]) -> list[int]:
        """The numbers of ``wanted`` values of a program."""
        jaxpr = closed.jaxpr
        env: dict[Any, int] = dict(zip(jaxpr.invars, operands, strict=True))
        for variable, const in zip(jaxpr.constvars, closed.consts, strict=True):
            env[variable] = self.number("constant", id(const))

        def of(atom: Any) -> int:
            return self.literal(atom.val, atom.aval.dtype) if type(atom) is Literal else env[atom]

        for equation in jaxpr.eqns:
            args = tuple([of(atom) for atom in equation.invars])
            for k, out in enumerate(equation.outvars):
                env[out] = self.result(equation, args, k)
        return [of(atom) for atom in wanted]

    def result(self, equation: JaxprEqn, args: tuple[int, ...], k: int) -> int:
        simple = self.simpler(equation, args)
        if simple is not None:
            return simple
        primitive, out = equation.primitive, equation.outvars[k].aval
        found = self.number(primitive, _named(equation), args, k, out.dtype)
        self.made[found] = (_table(equation), args)
        self.reads[found] = frozenset().union(*[self.reads[arg] for arg in args])
        return found

    def simpler(self, equation: JaxprEqn, args: tuple[int, ...]) -> int | None:
        """The number that is known for a result, or None."""
        kind, known = equation.primitive.kind, self.known
        out = equation.outvars[0].aval
        if isinstance(kind, kinds.View | kinds.Reshape) and len(args) == 1:  # the operand has one value everywhere
            value = known.get(args[0])
            if value is not None:
                return self.literal(value, bool)
            return args[0] if type(equation.invars[0]) is Literal else None
        if not isinstance(kind, kinds.Elementwise):
            return None
        if kind.chooses and len(args) == 3:
            value = known.get(args[0])
            return args[1] if args[1] == args[2] else None if value is None else args[1 + value]
        if all(arg in known for arg in args):
            values = [np.asarray(known[arg]) for arg in args]
            return self.literal(kind.reference(*values, **equation.params), out.dtype)
        rows = self.rows(_table(equation), args)
        if rows:
            results = [result for _, result in rows]
            if len(set(results)) == 1:
                return self.literal(results[0], bool)
            same = [k for k in range(len(args)) if [row[k] for row, _ in rows] == results]
            return args[same[0]] if same else None
        identity = kind.identity(out.dtype) if kind.identity is not None and out.dtype.kind in "iu" else None
        if identity is not None:
            same = self.literal(identity, out.dtype)
            return args[0] if args[1] == same else args[1] if args[0] == same else None
        return None


def _named(equation: JaxprEqn) -> Any:
    """What two equations that compute the same of the same operands have in common."""
    # 1, 1.0 and True are equal, and so are 0.0 and -0.0
    found = tuple([(name, type(value), value, str(value)) for name, value in sorted(equation.params.items())])
    try:
        hash(found)
    except TypeError:
        return id(equation)
    return found
