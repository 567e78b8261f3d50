"""How a routine in lanes is run: vectors of lanes at a time, rows fetched ahead, functions done vector by vector.

schedule: 64 lanes at a time, then 32, then 16; rows 2048 bytes apart fetched 4 ahead
"""

from __future__ import annotations

from weft._base.target import Target
from weft._base.target_model import PAIRED
from weft.loops import elements, ir
from weft.loops.routines import routine

WORK_OF_A_TILE = 400  # estimated instructions: longer programs fill the processor with smaller tiles
STATE_OF_A_TILE = 16  # registers for the state
REGISTERS_OF_A_VECTOR = 4  # for the state and constants, where functions are called
TILES = (8, 4, 2)  # vectors of a tile; for bfloat16 the width at which it comes in pairs is left out
AHEAD = 4  # prefetch distance in rows; 2 to 16 take the same time
FAR_BYTES = 2048  # rows at least so far apart are prefetched: the hardware prefetcher stops at the end of a page
LONG = 8.0  # instructions; longer functions are computed vector by vector, to need fewer registers


def widths(program: routine.Routine, target: Target) -> list[int]:
    """How many lanes a tile may have, most first; each width takes what the ones before left."""
    repeat = next(s for s in program.block.statements if isinstance(s, routine.Repeat))
    registers = 0
    for n in [n for n in repeat.initial if program.types[n].lanes]:
        element = elements.of(program.types[n].dtype)
        registers += program.types[n].size * element.parts * max(element.bytes // 4, 1)
    few = min(WORK_OF_A_TILE / max(program.cost, 1.0), STATE_OF_A_TILE / max(registers, 1))
    if _calls(program):  # while one vector is in a function, all of them hold their state
        few = min(few, target.model.registers // REGISTERS_OF_A_VECTOR)
    pairs = any(kind.dtype == elements.BFLOAT16 for kind in program.types)
    wide = [n * target.lanes for n in TILES if n <= few and not (pairs and n * target.lanes == PAIRED)]
    return [*dict.fromkeys([*wide[:1], *wide[-1:]]), target.lanes]  # the widest, the narrowest, and a vector


def whole_first(program: routine.Routine, target: Target) -> bool:
    """Whether the widest tiles are whole ones only, and narrower ones take the rest.

    Where no register masks lanes, masks of many vectors and what they choose between need more registers than there
    are. Where functions are called, lanes wait for each other's results, and a wide tile pays for lanes it lacks.
    """
    return not target.model.masks and not _calls(program)


def _calls(program: routine.Routine) -> bool:
    return any(isinstance(s, ir.Apply) and s.kind.cost >= LONG for s in routine.statements(program.block))


def text(program: routine.Routine, target: Target) -> str:
    """The schedule as a line."""
    fetched = any(operand.size for operand in program.operands)
    rows = f"; rows {FAR_BYTES} bytes apart fetched {AHEAD} ahead" if fetched else ""
    tiles = widths(program, target)
    whole = " if there are as many" if len(tiles) > 2 and whole_first(program, target) else ""
    first, *rest = map(str, tiles)
    return f"schedule: {', then '.join([first + whole, *rest])} lanes at a time{rows}"
