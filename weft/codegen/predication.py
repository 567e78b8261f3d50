"""Predication: statements that only one side of a select needs are skipped for vectors without lanes on that side.

    y = exp x; z = y - 1; out = x > 0 ? x : z      ->      if any lane of x > 0 is false: y = exp x; z = y - 1
                                                           out = x > 0 ? x : z

Selected lanes have the same values as without it. Which sides are skipped is decided by ``loops/sides.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from weft.codegen import instances
from weft.codegen.emitter import Value
from weft.codegen.instances import Instance, Position
from weft.codegen.lanes import V
from weft.loops import elements
from weft.loops.sides import Side

if TYPE_CHECKING:
    from weft.codegen.nest import NestWriter


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
