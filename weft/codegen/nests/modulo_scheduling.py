"""Writes a loop whose body is pipelined: an iteration runs half of the body for each of two vectors.

    late = nothing
    for vector in range, and once more:  early = first(vector); second(vector - 1, late); late = early

The halves are decided by ``loops/schedules/modulo_scheduling.py``. There is no prologue or epilogue: masks exclude the
vector before the first and the one after the last.
"""

from __future__ import annotations

from weft.codegen.arithmetic.lanes import V
from weft.codegen.memory_access.memory import Mask, lanes_below
from weft.codegen.nests import instances, reduce_tree
from weft.codegen.nests.frame import Frame
from weft.codegen.nests.instances import Instance, Position
from weft.loops.schedules.lane_loops import LaneLoop


def write(parent: Frame, loop: LaneLoop, base: Instance, position: Position, low: str, high: str) -> None:
    """Write the loop from ``low`` to ``high``."""
    writer, lanes, width = parent.writer, parent.lanes, parent.width
    first, second = loop.parts
    initial = [base.emit.const(0, s.dtype) for s in first.kept]
    none = lanes.constant_text(False, "i1")

    def body(index: str, texts: list[str]) -> list[str]:
        mask = lanes_below(lanes, writer.index("sub", high, index), True)
        early = instances.fresh(base, base.values, index, mask)
        parent.run(first.statements, [early], position)
        before = Mask(texts[0], V(lanes, "i1", texts[1]), True)
        late = instances.fresh(base, base.values, writer.index("sub", index, str(width)), before)
        values = reduce_tree.rebuild(initial, texts[2:])
        late.values.update((s.out, value) for s, value in zip(second.taken, values, strict=True))
        parent.run(second.statements, [late], position)
        following = reduce_tree.flatten([early.values[s.out] for s in first.kept])
        return [mask.remaining, mask.lanes.text, *[text for _, text in following]]

    carried = [("i64", "0"), (lanes.type("i1"), none), *reduce_tree.flatten(initial)]
    some = writer.choose_index(writer.compare_index("slt", low, high), writer.index("add", high, str(width)), low)
    writer.loop(low, some, width, carried, body)
