"""Predication: statements that only one side of a select needs are skipped for vectors without lanes on that side.

    y = exp x; z = y - 1; out = x > 0 ? x : z      ->      if any lane of x > 0 is false: y = exp x; z = y - 1
                                                           out = x > 0 ? x : z

Selected lanes have the same values as without it. A test takes as long as two instructions, so that only expensive
sides are skipped. If the branch differs from vector to vector, mispredictions can cost more than skipping gains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from weft._base.record import Record
from weft.codegen import elements, instances
from weft.codegen.emitter import Value
from weft.codegen.instances import Instance, Position
from weft.codegen.lanes import V
from weft.loops import ir

if TYPE_CHECKING:
    from weft.codegen.nest import NestWriter

LEAST_COST = 10.0  # of a side that is skipped


class Side(Record):
    """The statements that only one case of a select needs; the last of them gives its value."""

    which: int  # the value by which the choice is made
    case: int  # the case of this side: 0 where ``which`` is false
    statements: tuple[ir.Apply, ...]


Block = Sequence[ir.Statement | Side]


def uses(nest: ir.Nest) -> Counter[int]:
    """How often each value of a nest is used."""
    used = Counter(n for s in nest.statements() for n in ir.arguments(s))
    for phase in nest.phases:
        for reduction in phase.reductions:
            used.update(reduction.args)
            if reduction.index is not None:
                used[reduction.index] += 1
    return used


def sides(parent: NestWriter, statements: Sequence[ir.Statement]) -> Block:
    """A block in which the statements of each expensive side of a select are grouped right before the select."""
    choices = [s for s in statements if isinstance(s, ir.Apply) and s.kind.chooses and len(s.args) == 3]
    if not choices:
        return statements
    moved: dict[int, list[Side]] = {}  # number of a select's result -> its sides
    gone: set[int] = set()
    for choice in reversed(choices):  # outer selects first; selects inside a side belong to that side
        if choice.out not in gone:
            found = [side for case in (0, 1) if (side := _side(statements, choice, case, parent.uses)) is not None]
            moved[choice.out] = found
            gone.update(s.out for side in found for s in side.statements)
    block: list[ir.Statement | Side] = []
    for s in statements:
        if isinstance(s, ir.Apply):
            if s.out in gone:
                continue
            block += moved.get(s.out, ())
        block.append(s)
    return block


def _side(statements: Sequence[ir.Statement], choice: ir.Apply, case: int, used: Counter[int]) -> Side | None:
    which, wanted = choice.args[0], choice.args[1 + case]
    inside: list[ir.Apply] = []
    inner: Counter[int] = Counter([wanted])  # uses by the side itself, and of its value by the select
    for s in reversed(statements):
        if isinstance(s, ir.Apply) and s.out in inner and inner[s.out] == used[s.out]:
            inside.append(s)
            inner.update(s.args)
    if not inside or inside[0].out != wanted or instances.cost(inside) < LEAST_COST:
        return None
    return Side(which, case, tuple(reversed(inside)))


def compute(parent: NestWriter, side: Side, tile: Iterable[Instance], place: Position) -> None:
    """Write a side for every vector of a tile; its values are arbitrary in vectors of which no lane takes it."""
    last = side.statements[-1]
    for copy in tile:
        if last.out not in copy.values:
            copy.values[last.out] = _where_taken(parent, side, copy, place)


def _where_taken(parent: NestWriter, side: Side, copy: Instance, place: Position) -> Value:
    last, lanes, which = side.statements[-1], copy.emit.lanes, copy.values[side.which].part

    def run() -> Value:
        inner = instances.fresh(copy, copy.values, copy.index, copy.mask, copy.slot)
        inner.emit.memo = dict(copy.emit.memo)  # values memoised inside the block are not valid after it
        parent.run(side.statements, [inner], place)
        return inner.values[last.out]

    if which.element != "i1":  # the number of a case
        return run()
    element = elements.of(last.dtype)
    parts = 2 if element.kind == "c" else 1
    needed = lanes.any(which) if side.case else lanes.lacks(which)
    types = [lanes.type(element.register)] * parts
    texts = lanes.writer.when(needed, lambda: [p.text for p in run().parts], types, ["poison"] * parts, rare=False)
    return Value(last.dtype, tuple(V(lanes, element.register, text) for text in texts))
