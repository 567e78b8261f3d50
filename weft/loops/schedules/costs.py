"""Estimates of a nest: instructions and nanoseconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft._base.target_model import (
    DOUBLE,
    DOUBLE_FUNCTION,
    FUNCTION,
    NS_PER_ACCESS,
    NS_PER_BYTE,
    NS_PER_INSTRUCTION,
)
from weft.loops import elements, ir
from weft.loops.routines import routine
from weft.loops.schedules import uniform

ROW_LANES = 64  # slots of a row buffer for each reduced index when the vector dimension is parallel
ROW_PADDING = 64  # elements behind a row buffer, as whole vectors may be stored past its end


def instructions(statements: Iterable[ir.Statement]) -> float:
    """The estimated number of vector instructions of the statements."""
    total = 0.0
    for s in statements:
        if isinstance(s, ir.Update):
            total += 2.0 + instructions(s.steps)
        else:
            total += s.kind.cost if isinstance(s, ir.Apply) else 1.0
    return total


def chain(statements: Iterable[ir.Statement], rounding: float) -> float:
    """The cost of the longest chain of operations that need each other's results; halves take ``rounding`` more."""
    done: dict[int, float] = {}
    for s in statements:
        if isinstance(s, ir.Apply):
            own = s.kind.cost + (rounding if elements.of(s.dtype).kind == "h" else 0.0)
            done[s.out] = own + max([done.get(n, 0.0) for n in s.args], default=0.0)
    return max(done.values(), default=0.0)


def waits(statements: Sequence[ir.Statement], rounding: float) -> bool:
    """Whether a function waits for another one, or for roundings to halves that together take as long as one."""
    costliest = max([s.kind.cost for s in statements if isinstance(s, ir.Apply)], default=0.0)
    return chain(statements, rounding) - costliest >= FUNCTION


def _time(statements: Iterable[ir.Statement]) -> float:
    """The nanoseconds of the statements for one vector."""
    total = 0.0
    for s in statements:
        times = 1.0
        if isinstance(s, ir.Apply) and elements.of(s.dtype).register == "double":
            times = DOUBLE if s.kind.cost < FUNCTION else DOUBLE_FUNCTION
        total += instructions([s]) * times
    return total * NS_PER_INSTRUCTION


def nanoseconds(nest: ir.Nest | ir.Chain | routine.Routine) -> float:
    """The estimated nanoseconds of one point of the whole space (parallel and reduced) on one core.

    For a routine it is the time of one run, for a chain that of one point of each of its nests.
    """
    if isinstance(nest, ir.Chain):
        return sum(nanoseconds(part) for part in nest.nests)
    if not isinstance(nest, ir.Nest | routine.Routine):  # a product on a GPU
        return 0.0
    if isinstance(nest, routine.Routine):
        return nest.cost * NS_PER_INSTRUCTION
    reduced = any(dim.role == "reduced" for dim in nest.dims)
    lanes = nest.width if nest.vector is not None else 1
    total, differ = 0.0, uniform.moving(nest)
    for phase in nest.phases:
        statements = phase.body if reduced else (*phase.before, *phase.body)
        total += _time(statements) / lanes
        total += sum([2.0 * NS_PER_INSTRUCTION / lanes for _ in phase.reductions])
        for s in statements:
            if isinstance(s, ir.LoadAt) and s.inside is not None:
                total += elements.of(nest.operands[s.operand].dtype).size * NS_PER_BYTE
            elif isinstance(s, ir.Load | ir.Store) and any(nest.operands[s.operand].strides):
                operand = nest.operands[s.operand]
                element = elements.of(operand.dtype)
                along = nest.digits[-1] if nest.uses_digits(s.operand) else nest.vector
                strided = along is not None and operand.strides[along] == ir.RUNTIME
                total += element.size * NS_PER_BYTE + (0.5 if strided else 0.0)
            elif isinstance(s, ir.LoadAt | ir.Update):
                total += NS_PER_ACCESS / (1 if s.offset in differ else lanes)
    return total
