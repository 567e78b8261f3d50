"""Canonical numbering of a nest: parameters in the order of first use, values in the order of statements.

The numbers that lowering gives depend on the position of operations in the program. Without this, two kernels that
compute the same would be compiled twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from weft.loops import ir
from weft.loops.body import Body, Phase


def make_canonical(body: Body) -> None:
    """Reorder and renumber the statements of a body canonically."""
    numbers: dict[int, int] = {}
    slots: dict[int, int] = {}  # number of a scalar -> its position among the parameters

    def renumbered(statements: Iterable[ir.Statement]) -> list[ir.Statement]:
        return [_renumbered(s, numbers, slots) for s in statements]

    body.setup = renumbered(_by_first_use(body.setup, body.phases))
    phases: list[Phase] = []
    for before, inside, reductions in body.phases:
        new_before, new_body = renumbered(before), renumbered(inside)
        phases.append((new_before, new_body, [_reduction(r, numbers) for r in reductions]))
    body.phases = phases
    order = [*slots, *[k for k in range(len(body.scalars)) if k not in slots]]
    body.scalars = [body.scalars[k] for k in order]


def _by_first_use(setup: Sequence[ir.Statement], phases: Sequence[Phase]) -> list[ir.Statement]:
    made = {out: s for s in setup for out in _outs(s)}
    ordered: dict[int, ir.Statement] = {}  # by identity: a statement may give several values

    for before, body, reductions in phases:
        for s in (*before, *body):
            _add_needed(ir.arguments(s), made, ordered)
        for reduction in reductions:
            args = reduction.args if reduction.index is None else (*reduction.args, reduction.index)
            _add_needed(args, made, ordered)
    for s in setup:
        if id(s) not in ordered:
            _add_needed(ir.arguments(s), made, ordered)
            ordered[id(s)] = s
    return list(ordered.values())


def _add_needed(values: Iterable[int], made: dict[int, ir.Statement], ordered: dict[int, ir.Statement]) -> None:
    """Append the statements that make the values, after those that they need."""
    for n in values:
        s = made.get(n)
        if s is not None and id(s) not in ordered:
            _add_needed(ir.arguments(s), made, ordered)
            ordered[id(s)] = s


def _outs(statement: ir.Statement) -> tuple[int, ...]:
    if isinstance(statement, ir.Scan):
        return statement.outs
    if isinstance(statement, ir.Store | ir.RowStore | ir.Update | ir.Guard):
        return ()
    return (statement.out,)


def _renumbered(s: ir.Statement, numbers: dict[int, int], slots: dict[int, int]) -> ir.Statement:
    """The statement with new numbers for its values and parameters; those it defines get the next free ones."""

    def new(n: int) -> int:
        return numbers.setdefault(n, len(numbers))

    if isinstance(s, ir.Apply):
        args = tuple([new(n) for n in s.args])
        return ir.Apply(new(s.out), s.name, s.kind, s.params, args, s.dtype)
    if isinstance(s, ir.Load):
        return ir.Load(new(s.out), s.operand)
    if isinstance(s, ir.Store):
        return ir.Store(s.operand, new(s.value))
    if isinstance(s, ir.Guard):
        return ir.Guard(s.operand, new(s.value), s.fails)
    if isinstance(s, ir.Param):
        return ir.Param(new(s.out), slots.setdefault(s.index, len(slots)), s.dtype)
    if isinstance(s, ir.IndexOf):
        return ir.IndexOf(new(s.out), s.dim, s.dtype)
    if isinstance(s, ir.RowStore):
        return ir.RowStore(s.row, new(s.value))
    if isinstance(s, ir.RowLoad):
        return ir.RowLoad(new(s.out), s.row)
    if isinstance(s, ir.LoadAt):
        offset, inside = new(s.offset), None if s.inside is None else new(s.inside)
        return ir.LoadAt(new(s.out), s.operand, offset, inside)
    if isinstance(s, ir.Scan):
        args = tuple([new(n) for n in s.args])
        outs = tuple([new(n) for n in s.outs])
        return ir.Scan(outs, s.name, s.kind, s.params, args, s.accumulators, s.dtypes)
    offset, inside = new(s.offset), None if s.inside is None else new(s.inside)
    old = new(s.old)
    steps = tuple([_step(step, new) for step in s.steps])
    made = new(s.new)
    guard = None if s.guard is None else s.guard.replace(value=made)
    return ir.Update(s.operand, offset, inside, old, steps, made, guard, s.free)


def _step(step: ir.Apply, new: Any) -> ir.Apply:
    args = tuple([new(n) for n in step.args])
    return ir.Apply(new(step.out), step.name, step.kind, step.params, args, step.dtype)


def _reduction(r: ir.Reduce, numbers: dict[int, int]) -> ir.Reduce:
    args = tuple([numbers[n] for n in r.args])
    index = None if r.index is None else numbers[r.index]
    outs = tuple([numbers.setdefault(n, len(numbers)) for n in r.outs])
    return ir.Reduce(outs, r.name, r.kind, r.params, args, index, r.accumulators, r.dtypes, r.tree)
