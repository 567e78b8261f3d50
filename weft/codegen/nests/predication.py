"""Predication: statements that only one side of a select needs are skipped for vectors without lanes on that side.

    y = exp x; z = y - 1; out = x > 0 ? x : z      ->      if any lane of x > 0 is false: y = exp x; z = y - 1
                                                           out = x > 0 ? x : z

Selected lanes have the same values as without it. Which regions are skipped is decided by
``loops/schedules/peeled_regions.py``.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable

from weft.codegen.arithmetic.emitter import Value
from weft.codegen.arithmetic.lanes import V
from weft.codegen.nests import instances
from weft.codegen.nests.frame import Frame
from weft.codegen.nests.instances import Instance, Position
from weft.loops import elements
from weft.loops.schedules.peeled_regions import PeeledRegion


def compute(parent: Frame, region: PeeledRegion, tile: Iterable[Instance], position: Position) -> None:
    """Write a region for the vectors of a tile; its values are arbitrary if no lane takes it.

    One test decides for all vectors: over many lanes it nearly always falls out the same way, and is predicted.
    """
    last = region.statements[-1]
    copies = [copy for copy in tile if last.out not in copy.values]
    if not copies:
        return
    which = [copy.values[region.which].part for copy in copies]
    if which[0].element != "i1":  # the number of a case
        values = _computed(parent, region, copies, position)
    else:
        values = _where_taken(parent, region, copies, which, position)
    for copy, value in zip(copies, values, strict=True):
        copy.values[last.out] = value


def _computed(parent: Frame, region: PeeledRegion, copies: list[Instance], position: Position) -> list[Value]:
    inner = [instances.fresh(copy, copy.values, copy.index, copy.mask, copy.slot) for copy in copies]
    for new, copy in zip(inner, copies, strict=True):
        new.emit.memo = dict(copy.emit.memo)  # values memoised inside the block are not valid after it
    parent.run(region.statements, inner, position)
    return [new.values[region.statements[-1].out] for new in inner]


def _where_taken(
    parent: Frame, region: PeeledRegion, copies: list[Instance], which: list[V], position: Position
) -> list[Value]:
    last, lanes = region.statements[-1], copies[0].emit.lanes
    element = elements.of(last.dtype)
    parts = 2 if element.kind == "c" else 1
    joined = functools.reduce(operator.or_ if region.case else operator.and_, which)
    needed = lanes.any(joined) if region.case else lanes.lacks(joined)
    types = [lanes.type(element.register)] * (parts * len(copies))

    def run() -> list[str]:
        return [p.text for value in _computed(parent, region, copies, position) for p in value.parts]

    texts = lanes.writer.when(needed, run, types, ["poison"] * len(types), rare=False)
    found = [V(lanes, element.register, text) for text in texts]
    return [Value(last.dtype, tuple(found[k : k + parts])) for k in range(0, len(found), parts)]
