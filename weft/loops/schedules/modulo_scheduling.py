"""Modulo scheduling of a long elementwise body: an iteration runs one half for a vector, the other for the one before.

A body of 150 instructions fills the reorder window of the processor, which then waits for the dependence chain of one
vector. The halves of two vectors are independent of each other.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft._base.target_model import Model
from weft.loops import elements, ir
from weft.loops.schedules import costs
from weft.loops.schedules.lane_loops import Loops, Part

LEAST_SHARE = 0.2  # least share of the cost in the cheaper half
CHEAP = 4.0  # up to this cost, values made of loads and used only in the second half are computed there


def pipelined(loops: Loops, nest: ir.Nest, model: Model, lanes: int) -> Loops:
    """The only loop over the lanes, divided into two parts.

    Unchanged if its body is short or not elementwise, or if the target has no mask registers, which exclude the vector
    before the first and the one after the last.
    """
    phase, *others = nest.phases
    if not model.masks or lanes == 1 or others:
        return loops
    if any(dim.role != "parallel" for dim in nest.dims) or nest.vector != len(nest.dims) - 1:
        return loops
    statements = [*phase.before, *phase.body]
    simple = [s for s in statements if isinstance(s, ir.Apply | ir.Load | ir.Store | ir.Guard)]
    total = _cost(statements, model)
    if total < model.pipelined or len(simple) < len(statements):
        return loops
    applied = [s for s in simple if isinstance(s, ir.Apply)]
    first = _first(applied, model)
    cost = _cost([s for s in applied if s.out in first], model)
    if min(cost, total - cost) < LEAST_SHARE * total:
        return loops
    rest = {s.out for s in applied} - first
    now = {n for s in applied if s.out in first for n in s.args}
    later = {n for s in applied if s.out in rest for n in s.args}
    later |= {s.value for s in simple if isinstance(s, ir.Store | ir.Guard)}

    def half(computed: set[int], used: set[int], stores: bool) -> tuple[ir.Statement, ...]:
        """Statements in the order of the body. Both halves load what both use, which is cheaper than carrying it."""
        return tuple(
            s
            for s in simple
            if (
                stores
                if isinstance(s, ir.Store | ir.Guard)
                else s.out in (used if isinstance(s, ir.Load) else computed)
            )
        )

    carried = tuple([s for s in applied if s.out in first & later])
    (loop,) = loops
    return (
        loop.replace(parts=(Part(half(first, now, False), (), carried), Part(half(rest, later, True), carried, ()))),
    )


def _cost(statements: Sequence[ir.Statement], model: Model) -> float:
    """The cost, with the instructions that round to a half precision."""
    rounded = [s for s in statements if isinstance(s, ir.Apply) and elements.of(s.dtype).kind == "h"]
    return costs.instructions(statements) + model.rounding * len(rounded)


def _first(applied: Sequence[ir.Apply], model: Model) -> set[int]:
    """The values of the first half: those ready within half of the longest dependence chain."""
    done: dict[int, float] = {}
    users: dict[int, list[int]] = {}
    for s in applied:
        done[s.out] = max((done.get(n, 0.0) for n in s.args), default=0.0) + _cost([s], model)
        for n in s.args:
            users.setdefault(n, []).append(s.out)
    half = max(done.values(), default=0.0) / 2
    first = {n for n, time in done.items() if time <= half}
    for s in reversed(applied):
        cheap = s.kind.cost <= CHEAP and not any(n in done for n in s.args)
        if cheap and not any(n in first for n in users.get(s.out, ())):
            first.discard(s.out)
    return first
