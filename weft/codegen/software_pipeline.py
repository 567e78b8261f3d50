"""Software pipelining of long elementwise bodies: an iteration runs half of the body for each of two vectors.

    late = nothing
    for vector in range, and once more:  early = first(vector); second(vector - 1, late); late = early

A body of 150 instructions fills the reorder window of the processor, which then waits for the dependence chain of one
vector. The halves of two vectors are independent of each other. There is no prologue or epilogue: masks exclude the
vector before the first and the one after the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft._base.record import Record
from weft.codegen import elements, instances, reduce_tree
from weft.codegen.instances import Instance, Position
from weft.codegen.lanes import V
from weft.codegen.memory import Mask, lanes_below
from weft.loops import ir

if TYPE_CHECKING:
    from weft.codegen.nest import NestWriter

LONG_BODY = 30.0  # bodies of at least this cost are halved
ROUNDING = 6.0  # instructions that round a half precision
LEAST_SHARE = 0.2  # least share of the cost in the cheaper half
CHEAP = 4.0  # up to this cost, values made of loads and used only in the second half are computed there


class Halves(Record):
    """The statements of both halves of a body, and the values that the second takes from the first."""

    first: tuple[ir.Statement, ...]
    second: tuple[ir.Statement, ...]
    carried: tuple[ir.Apply, ...]


def halves(parent: NestWriter, statements: Sequence[ir.Statement], known: set[int]) -> Halves | None:
    """The halves of a body; None if it is short or not elementwise, or if the target has no mask registers."""
    nest, total = parent.nest, _cost(statements)
    if not parent.target.avx512 or parent.width == 1 or total < LONG_BODY:
        return None
    if len(nest.phases) > 1 or parent.reduced or parent.inner:
        return None
    simple = [s for s in statements if isinstance(s, ir.Apply | ir.Load | ir.Store)]
    if len(simple) < len(statements):
        return None
    applied = [s for s in simple if isinstance(s, ir.Apply) and s.out not in known]
    first = _first(applied)
    cost = _cost([s for s in applied if s.out in first])
    if min(cost, total - cost) < LEAST_SHARE * total:
        return None
    rest = {s.out for s in applied} - first
    now = {n for s in applied if s.out in first for n in s.args}
    later = {n for s in applied if s.out in rest for n in s.args}
    later |= {s.value for s in simple if isinstance(s, ir.Store)}

    def half(computed: set[int], used: set[int], stores: bool) -> tuple[ir.Statement, ...]:
        """Statements in the order of the body. Both halves load what both use, which is cheaper than carrying it."""
        return tuple(
            s
            for s in simple
            if (stores if isinstance(s, ir.Store) else s.out in (used if isinstance(s, ir.Load) else computed))
        )

    return Halves(half(first, now, False), half(rest, later, True), tuple(s for s in applied if s.out in first & later))


def _cost(statements: Sequence[ir.Statement]) -> float:
    """The cost, with the instructions that round to a half precision."""
    rounded = [s for s in statements if isinstance(s, ir.Apply) and elements.of(s.dtype).kind == "h"]
    return instances.cost(statements) + ROUNDING * len(rounded)


def _first(applied: Sequence[ir.Apply]) -> set[int]:
    """The values of the first half: those ready within half of the longest dependence chain."""
    done: dict[int, float] = {}
    users: dict[int, list[int]] = {}
    for s in applied:
        done[s.out] = max((done.get(n, 0.0) for n in s.args), default=0.0) + _cost([s])
        for n in s.args:
            users.setdefault(n, []).append(s.out)
    half = max(done.values(), default=0.0) / 2
    first = {n for n, time in done.items() if time <= half}
    for s in reversed(applied):
        cheap = s.kind.cost <= CHEAP and not any(n in done for n in s.args)
        if cheap and not any(n in first for n in users.get(s.out, ())):
            first.discard(s.out)
    return first


def write(parent: NestWriter, cut: Halves, low: str, high: str, base: Instance, wide: dict, place: Position) -> None:
    """Write the loop from ``low`` to ``high``; ``wide`` are the values known before it."""
    writer, lanes, width = parent.writer, parent.lanes, parent.width
    initial = [base.emit.const(0, s.dtype) for s in cut.carried]
    none = lanes.constant_text(False, "i1")

    def body(index: str, texts: list[str]) -> list[str]:
        mask = lanes_below(lanes, writer.index("sub", high, index), True)
        early = instances.fresh(base, wide, index, mask)
        parent.run(cut.first, [early], place)
        before = Mask(texts[0], V(lanes, "i1", texts[1]), True)
        late = instances.fresh(base, wide, writer.index("sub", index, str(width)), before)
        values = reduce_tree.rebuild(initial, texts[2:])
        late.values.update((s.out, value) for s, value in zip(cut.carried, values, strict=True))
        parent.run(cut.second, [late], place)
        following = reduce_tree.flatten([early.values[s.out] for s in cut.carried])
        return [mask.remaining, mask.lanes.text, *[text for _, text in following]]

    carried = [("i64", "0"), (lanes.type("i1"), none), *reduce_tree.flatten(initial)]
    some = writer.choose_index(writer.compare_index("slt", low, high), writer.index("add", high, str(width)), low)
    writer.loop(low, some, width, carried, body)
