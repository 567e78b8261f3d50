"""Software pipelining of long elementwise bodies: an iteration runs half of the body for each of two vectors.

    late = nothing
    for vector in range, and once more:  early = first(vector); second(vector - 1, late); late = early

The halves, and whether there are any, are decided by ``loops/two_halves.py``. There is no prologue or epilogue: masks
exclude the vector before the first and the one after the last.
"""

from __future__ import annotations

from weft.codegen import instances, reduce_tree
from weft.codegen.frame import Frame
from weft.codegen.instances import Instance, Position
from weft.codegen.lanes import V
from weft.codegen.memory import Mask, lanes_below
from weft.loops.two_halves import Halves


def write(parent: Frame, cut: Halves, low: str, high: str, base: Instance, wide: dict, place: Position) -> None:
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
