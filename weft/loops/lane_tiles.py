"""How a routine in lanes is run: vectors of lanes at a time, rows fetched ahead, functions done vector by vector.

schedule: 64 lanes at a time, then 32, then 16; rows 2048 bytes apart fetched 4 ahead
"""

from __future__ import annotations

from weft._base.target import Target
from weft.loops import elements, routine
from weft.loops.target_model import PAIRED

WORK_OF_A_TILE = 400  # estimated instructions: longer programs fill the processor with smaller tiles
STATE_OF_A_TILE = 16  # registers for the state
TILES = (8, 4, 2)  # vectors of a tile; the width at which bfloat16 comes in pairs is left out
AHEAD = 4  # prefetch distance in rows; 2 to 16 take the same time
FAR_BYTES = 2048  # rows at least so far apart are prefetched: the hardware prefetcher stops at the end of a page
LONG = 8.0  # instructions; longer functions are computed vector by vector, to need fewer registers


def widths(program: routine.Routine, target: Target) -> list[int]:
    """How many lanes a tile may have, most first; each width takes what the ones before left."""
    repeat = next(s for s in program.block.statements if isinstance(s, routine.Repeat))
    registers = 0
    for n in repeat.initial:
        element = elements.of(program.types[n].dtype)
        registers += program.types[n].size * element.parts * max(element.bytes // 4, 1)
    few = min(WORK_OF_A_TILE / max(program.cost, 1.0), STATE_OF_A_TILE / max(registers, 1))
    wide = [count * target.lanes for count in TILES if count <= few and count * target.lanes != PAIRED]
    return [*wide[:2], target.lanes]


def text(program: routine.Routine, target: Target) -> str:
    """The schedule as a line."""
    fetched = any(isinstance(s, routine.Read | routine.Write) and s.row for s in routine.statements(program.block))
    rows = f"; rows {FAR_BYTES} bytes apart fetched {AHEAD} ahead" if fetched else ""
    return f"schedule: {', then '.join(map(str, widths(program, target)))} lanes at a time{rows}"
