"""Register promotion: a loop with a small state becomes a routine, with every array of its body in registers.

In: the parts of a Loop equation, with calls inlined. Out: a ``Routine``. Its operands are, in order: the captures of
the condition, the captures of the body, the initial state, the inputs, the final state, the outputs. Loop invariants
are computed before the loop. ``TooLarge`` is raised if a value or the program is too large for registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._base.record import Record
from weft.core import kinds
from weft.core.programs.jaxpr import ClosedJaxpr, DropVar, Jaxpr, JaxprEqn, Literal
from weft.core.symbolic.sizes import fixed, present
from weft.loops import ir
from weft.loops.routines import promotion_rules, routine
from weft.loops.routines.known_integers import known_integers
from weft.loops.routines.promoted_values import TooLarge, Values
from weft.loops.routines.routine import Block

MOST_WORK = 2500  # estimated vector instructions of a routine
LARGEST_SCALAR = 8  # values up to this size may have one register per element
SHUFFLE = 2.0  # instructions to move one element

Flatten = Callable[[ClosedJaxpr], ClosedJaxpr]


class Lowered(Record):
    """A routine, the trip counts of its loops, the sizes it needs, and its scalar parameters."""

    routine: routine.Routine
    trips: tuple[int, ...]
    extents: tuple[int, ...]
    scalars: tuple[Any, ...]


def lower_loop(parts: kinds.LoopParts, atoms: Sequence[Any], flatten: Flatten, name: str) -> Lowered:
    """The routine of a loop on operands that are variables (its operands, in order) or literals."""
    return Lowering(flatten).lowered(parts, atoms, name)


class Lowering(Values):
    """Lowers loops, branches and the programs inside of them."""

    rules = promotion_rules.RULES

    def __init__(self, flatten: Flatten) -> None:
        super().__init__()
        self.flatten = flatten
        self.trips: list[int] = []

    # the whole

    def lowered(self, parts: kinds.LoopParts, atoms: Sequence[Any], name: str) -> Lowered:
        made = fixed(self.loop_routine(parts, atoms, name))
        return Lowered(made, tuple(self.trips), tuple(self.extents), tuple(self.scalars))

    def loop_routine(self, parts: kinds.LoopParts, atoms: Sequence[Any], name: str) -> routine.Routine:
        first = parts.n_cond_consts + parts.n_consts
        captured = [self.captured(atom) for atom in atoms[:first]]
        state = [self.in_registers(self.captured(atom)) for atom in atoms[first:][: parts.n_carry]]
        given = len(self.scalars)
        elements = parts.body.in_avals[parts.n_consts + parts.n_carry :]
        rows = [(self.operand(aval, "in", True), aval) for aval in elements]
        outs = [self.operand(aval, "out", False) for aval in parts.body.out_avals[: parts.n_carry]]
        ys = [self.operand(aval, "out", True) for aval in parts.body.out_avals[parts.n_carry :]]
        self.word = len(self.operands)
        results = self.repeat(parts, captured, state, rows, ys)
        for operand, value in zip(outs, results, strict=True):
            self.append(ir.Store(operand, value), 0)
        if self.guarded:
            self.operands.append(routine.Operand(np.dtype(np.uint8), "out", 0))
        self.blocks[0], self.scalars = known_integers(self.blocks[0], self.scalars, given)
        block = Block((), tuple(self.blocks[0]), ())
        if self.work > MOST_WORK:
            raise TooLarge(f"about {present(self.work):.0f} instructions")
        return routine.Routine(
            tuple(self.types), tuple(self.operands), len(self.trips), len(self.extents),
            tuple([np.dtype(scalar.dtype) for scalar in self.scalars]), block,
            self.is_scalar(), guarded=self.guarded, cost=max(self.work, 1.0), name=name,
        )  # fmt: skip

    def is_scalar(self) -> bool:
        """Whether moving elements between vectors would cost more than computing them one by one."""
        return max(kind.size for kind in self.types) <= LARGEST_SCALAR and self.single < SHUFFLE * self.moved

    def matched(self, values: Sequence[int], avals: Sequence[Any]) -> list[int]:
        """Values that enter or leave control flow, in the form in which values of these types are held."""
        return list(values)

    # programs

    def program(self, closed: ClosedJaxpr, args: Sequence[Any]) -> list[int]:
        """The values of a program's results."""
        flat = self.flatten(closed)
        jaxpr: Jaxpr = flat.jaxpr
        env: dict[Any, Any] = {}
        for v, const in zip(jaxpr.constvars, flat.consts, strict=True):
            env[v] = self.brought(np.asarray(const))
        env.update(zip(jaxpr.invars, args, strict=True))
        for equation in jaxpr.eqns:
            if equation.effects:
                raise TooLarge(f"{equation.primitive.name} has an effect")
            operands = [self.atom(atom, env) for atom in equation.invars]
            outs = self.equation(equation, operands)
            for v, out in zip(equation.outvars, outs, strict=True):
                if not isinstance(v, DropVar):
                    env[v] = out
        return [self.in_registers(self.result(atom, env)) for atom in jaxpr.outvars]

    def atom(self, atom: Any, env: dict[Any, Any]) -> Any:
        if isinstance(atom, Literal):
            return self.literal(atom)
        return env[atom]

    def result(self, atom: Any, env: dict[Any, Any]) -> Any:
        """The value of a program's result."""
        return self.atom(atom, env)

    def equation(self, equation: JaxprEqn, operands: list[Any]) -> Sequence[int]:
        kind = equation.primitive.kind
        if isinstance(kind, kinds.Loop):
            return self.inner_loop(kind.parts(equation.params), operands)
        if isinstance(kind, kinds.Routine):  # a loop inside, which has become a routine already
            given = iter(operands)
            literals = [v if v is None else self.constant(v.reshape(-1)) for v in equation.params["literals"]]
            return self.inner_loop(equation.params["parts"], [next(given) if v is None else v for v in literals])
        if isinstance(kind, kinds.Branch):
            return self.branch(kind.branches(equation.params), operands)
        rule = self.rules.get(type(kind))
        if rule is None:
            raise TooLarge(f"{equation.primitive.name} has no form in registers")
        if type(kind) not in promotion_rules.FROM_MEMORY:
            operands = [self.in_registers(value) for value in operands]
        return rule(self, equation, kind, operands)

    # control flow

    def repeat(
        self, parts: kinds.LoopParts, captured: list[Any], state: list[int], rows: list[tuple[int, Any]], ys: list[int]
    ) -> list[int]:
        depth = len(self.blocks)
        floor = self.floors[-1]
        avals = parts.body.in_avals[parts.n_consts :][: parts.n_carry]
        state = self.matched(state, avals)
        arguments = [self.variable(aval, depth) for aval in avals]
        n_tested = parts.n_cond_consts
        cond = None
        by_element = False
        if parts.cond is not None:
            test, by_element = self.test(parts)
            statements, results = self.block(lambda: self.program(test, [*captured[:n_tested], *arguments]), floor)
            cond = Block(tuple(arguments), tuple(statements), tuple(results))
            arguments = [self.variable(aval, depth) for aval in avals]

        def body() -> Sequence[int]:
            inside = len(self.blocks) - 1
            elements = [self.load(operand, aval.dtype, self.size_of(aval), inside) for operand, aval in rows]
            results = self.program(parts.body, [*captured[n_tested:], *arguments, *elements])
            results = self.matched(results, parts.body.out_avals)
            for operand, value in zip(ys, results[parts.n_carry :], strict=True):
                self.append(ir.Store(operand, value), len(self.blocks) - 1)
            return results[: parts.n_carry]

        statements, results = self.block(body, floor)
        trips = None
        if parts.trips is not None:
            trips = len(self.trips)
            self.trips.append(parts.trips)
        outs = [self.variable(aval, depth - 1) for aval in avals]
        inner = Block(tuple(arguments), tuple(statements), tuple(results))
        repeat = routine.Repeat(tuple(outs), tuple(state), inner, cond, trips, parts.reverse, by_element)
        self.append(repeat, depth - 1)
        return outs

    def test(self, parts: kinds.LoopParts) -> tuple[ClosedJaxpr, bool]:
        """The condition to compute, and whether each lane has its own."""
        return parts.cond, False

    def inner_loop(self, parts: kinds.LoopParts, operands: list[Any]) -> list[int]:
        first = parts.n_cond_consts + parts.n_consts
        if len(operands) != first + parts.n_carry or len(parts.body.out_avals) != parts.n_carry:
            raise TooLarge("a loop over rows inside another")
        state = [self.in_registers(value) for value in operands[first:]]
        return self.repeat(parts, operands[:first], state, [], [])

    def branch(self, branches: Sequence[ClosedJaxpr], operands: list[Any]) -> list[int]:
        depth = len(self.blocks)
        blocks = []
        for closed in branches:
            statements, results = self.block(lambda closed=closed: self.way(closed, operands[1:]), depth)
            blocks.append(Block((), tuple(statements), tuple(results)))
        outs = [self.variable(aval, depth - 1) for aval in branches[0].out_avals]
        index = self.in_registers(operands[0])
        self.append(routine.Choose(tuple(outs), index, tuple(blocks)), depth - 1)
        return outs

    def way(self, closed: ClosedJaxpr, operands: Sequence[Any]) -> list[int]:
        """The results of a branch, with the types that all branches share."""
        return self.matched(self.program(closed, operands), closed.out_avals)
