"""Peeled regions: statements that only one case of a select needs, skipped for vectors without lanes of that case.

    y = exp x; z = y - 1; out = x > 0 ? x : z      ->      if any lane of x > 0 is false: y = exp x; z = y - 1
                                                           out = x > 0 ? x : z

A test takes as long as two instructions, so that only expensive regions are skipped. If the branch differs from vector
to vector, mispredictions can cost more than skipping gains. What all numbers need (where ``x != x`` is false) is never
peeled: a test would only keep the vectors that are in flight from being computed side by side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeGuard

import numpy as np

from weft._base.record import Record
from weft.loops import ir
from weft.loops.schedules import costs

LEAST_TESTS = 5  # tests that cost as much as the cheapest region that is skipped


class PeeledRegion(Record):
    """The statements that only one case of a select needs; the last of them gives its value."""

    select: int  # the result of the select
    which: int  # the value by which the choice is made
    case: int  # the case of this region: 0 where ``which`` is false
    statements: tuple[ir.Apply, ...]


WithRegions = Sequence[ir.Statement | PeeledRegion]


def _uses(nest: ir.Nest) -> Counter[int]:
    """How often each value of a nest is used."""
    used = Counter(n for s in nest.statements() for n in ir.arguments(s))
    for phase in nest.phases:
        for reduction in phase.reductions:
            used.update(reduction.args)
            if reduction.index is not None:
                used[reduction.index] += 1
    return used


def of(nest: ir.Nest, test: float, parts: Iterable[Sequence[ir.Statement]] = ()) -> tuple[PeeledRegion, ...]:
    """The expensive regions of a nest, and of ``parts`` of its bodies, outer ones first; ``test``: the cost of a test.

    A region of a body that is cut is none of its parts, which may have smaller ones.
    """
    bodies = [block for phase in nest.phases for block in (phase.before, phase.body)]
    blocks = [nest.setup, *bodies, nest.edges, *parts]
    waiting, found = [block for block in blocks if any(map(_is_choice, block))], list[PeeledRegion]()
    counts = _uses(nest) if waiting else Counter[int]()
    for block in waiting:  # it grows: a region may have regions itself
        gone: set[int] = set()
        for choice in reversed([s for s in block if _is_choice(s)]):
            if choice.out in gone:  # selects inside a region belong to that region
                continue
            needed = _case_of_numbers(block, choice.args[0])
            regions = [_region(block, choice, case, counts, LEAST_TESTS * test) for case in (0, 1) if case != needed]
            found += [region for region in regions if region is not None]
            waiting += [region.statements for region in regions if region is not None]
            gone.update([s.out for region in regions if region is not None for s in region.statements])
    return tuple(dict.fromkeys(found))


def _is_choice(s: ir.Statement) -> TypeGuard[ir.Apply]:
    return isinstance(s, ir.Apply) and s.kind.chooses and len(s.args) == 3


def grouped(statements: Sequence[ir.Statement], regions: Sequence[PeeledRegion]) -> WithRegions:
    """A block in which the statements of each region, if it has all of them, stand right before the select."""
    here = {s.out for s in statements if isinstance(s, ir.Apply)} if regions else set[int]()
    moved: dict[int, list[PeeledRegion]] = {}  # number of a select's result -> its regions
    gone: set[int] = set()
    for region in regions:
        if region.select in here and region.select not in gone and here.issuperset([s.out for s in region.statements]):
            moved.setdefault(region.select, []).append(region)
            gone.update([s.out for s in region.statements])
    if not moved:
        return statements
    block: list[ir.Statement | PeeledRegion] = []
    for s in statements:
        if isinstance(s, ir.Apply):
            if s.out in gone:
                continue
            block += moved.get(s.out, ())
        block.append(s)
    return block


def _case_of_numbers(statements: Sequence[ir.Statement], which: int) -> int | None:
    """The case of all numbers but NaN if ``which`` compares a value with itself; None for any other choice."""
    for s in statements:
        if isinstance(s, ir.Apply) and s.out == which:
            if len(s.args) != 2 or s.args[0] != s.args[1] or s.dtype != np.bool_:
                return None
            found = {bool(s.kind.reference(x, x, **dict(s.params))) for x in (np.zeros((), bool), np.ones((), bool))}
            return int(found.pop()) if len(found) == 1 else None
    return None


def _region(
    statements: Sequence[ir.Statement], choice: ir.Apply, case: int, used: Counter[int], least: float
) -> PeeledRegion | None:
    which, wanted = choice.args[0], choice.args[1 + case]
    inside: list[ir.Apply] = []
    inner: Counter[int] = Counter([wanted])  # uses by the region itself, and of its value by the select
    for s in reversed(statements):
        if isinstance(s, ir.Apply) and s.out in inner and inner[s.out] == used[s.out]:
            inside.append(s)
            inner.update(s.args)
    if not inside or inside[0].out != wanted or costs.instructions(inside) < least:
        return None
    return PeeledRegion(choice.out, which, case, tuple(reversed(inside)))
