"""Writes the loops over the lanes (``loops.schedules.lane_loops``) whose bodies are not cut.

for tiles of 2 vectors: body;  for a vector with a mask: body
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.codegen.memory_access.memory import Mask, lanes_below
from weft.codegen.nests.frame import Frame
from weft.codegen.writer import Carried
from weft.loops.schedules.lane_loops import LaneLoop

# (loop, the indices of the vectors' first lanes, mask, carried values) -> the next values; a vector of a loop whose
# rest is "apart" is one element
Body = Callable[[LaneLoop, list[str], Mask | None, list[str]], Sequence[str]]


def write(
    parent: Frame,
    loops: Sequence[LaneLoop],
    bounds: tuple[str, str],
    body: Body,
    carried: Carried = (),
    short: bool = False,
) -> list[str]:
    """The loops over a range; ``carried`` values go from each iteration to the next, and from loop to loop.

    Long loops check for interrupts, unless the range is ``short``. Gives the values after the last loop.
    """
    writer, width, (low, high), types = parent.writer, parent.width, bounds, [type_ for type_, _ in carried]
    values = [value for _, value in carried]
    for loop in loops:
        step, end = width * loop.vectors if loop.rest != "apart" else 1, high
        if loop.rest == "left":
            end = whole(parent, low, high, step)

        def tile(index: str, now: list[str], loop: LaneLoop = loop) -> Sequence[str]:
            mask = None
            if loop.rest == "masked":
                mask = lanes_below(parent.lanes, writer.index("sub", high, index), loop.tested)
            return body(loop, [writer.index("add", index, str(u * width)) for u in range(loop.vectors)], mask, now)

        write_loop = parent.stretches if not short and (loop.rest == "left" or loop.tested) else writer.loop
        values = write_loop(low, end, step, list(zip(types, values, strict=True)), tile)
        low = end
    return values


def whole(parent: Frame, low: str, high: str, step: int) -> str:
    """The end of the last whole step."""
    writer = parent.writer
    length = writer.index("sub", high, low)
    if step & (step - 1):
        return writer.index("sub", high, writer.index("urem", length, str(step)))
    return writer.index("add", low, writer.index("and", length, str(-step)))
