"""Run-time offsets that a GPU finds itself, so that the host does not wait for the positions that a program computes.

    offset 0 of i; launch kernel exp 0+0+d0 1+0   ->   launch starts of i -> temporary; launch kernel exp moved by it

Offsets that a step of the host needs, or a kernel without room for more parameters, are found by the host, which waits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft._base.target_model import GPU_WORDS
from weft.compiler.plans.buffer_assignment import ALIGNMENT
from weft.compiler.plans.instructions import Location, Offset
from weft.compiler.plans.steps import Launched, Plan, Run
from weft.loops.gpu import grid, grid_starts
from weft.loops.gpu.grid_starts import OFFSET


def device_starts(planned: Plan) -> Plan:
    """The plan with such launches."""
    offsets = {entry.number: entry for entry in planned.instructions if isinstance(entry, Offset)}
    waited, moving = set[int](), set[int]()
    for entry in planned.instructions:
        if isinstance(entry, Run | Launched):
            (moving if _is_moved(entry) else waited).update([location[2] for location in entry.operands])
    numbers = [number for number in offsets if number in moving]
    if not numbers:
        return planned
    begin = -(-planned.arena_bytes // ALIGNMENT) * ALIGNMENT
    slot = planned.n_inputs + len(planned.outputs) + len(planned.temps)
    locations = {number: (slot, k * OFFSET.itemsize, -1) for k, number in enumerate(numbers)}
    found = list[Any]()
    for entry in planned.instructions:
        if isinstance(entry, Offset):
            if entry.number in locations:
                launch = _starts((entry,), locations)
                last: Any = found[-1] if found else None
                follows = isinstance(last, Launched) and type(last.source) is tuple
                if follows and last.n_words + launch.n_words <= GPU_WORDS:
                    launch = _starts((*found.pop().source, entry), locations)
                found.append(launch)
            if entry.number in waited:
                found.append(entry)
        else:
            found.append(_moved(entry, offsets, locations) if _is_moved(entry) else entry)
    nbytes = OFFSET.itemsize * len(numbers)
    return planned.replace(instructions=found, temps=[*planned.temps, (begin, nbytes)], arena_bytes=begin + nbytes)


def _starts(offsets: tuple[Offset, ...], locations: dict[int, Location]) -> Launched:
    """The launch that finds some offsets."""
    operands, terms, records = list[Location](), list[tuple[int, int]](), []
    for offset in offsets:
        operands += [(slot, at, -1) for slot, at, *_ in offset.terms]
        operands.append(locations[offset.number])
        operands += [] if offset.word is None else [offset.word]
        terms += [(most, stride) for *_, most, stride in offset.terms]
        dtypes = tuple([np.dtype(char) for _, _, char, _, _ in offset.terms])
        records.append((dtypes, offset.word is not None))
    params, grids = grid_starts.launches(terms)
    return Launched(offsets, grid_starts.Starts(tuple(records)), tuple(operands), params, grids)


def _numbers(entry: Launched) -> list[int]:
    """The offsets at which its operands begin."""
    return list(dict.fromkeys([number for _, _, number in entry.operands if number >= 0]))


def _is_moved(entry: Any) -> bool:
    """Whether it is a launch that has room for these as operands."""
    return isinstance(entry, Launched) and entry.n_words + len(_numbers(entry)) <= GPU_WORDS


def _moved(entry: Launched, offsets: dict[int, Offset], locations: dict[int, Location]) -> Launched:
    """The launch of a kernel that moves its operands itself."""
    numbers = _numbers(entry)
    if not numbers:
        return entry
    moved = tuple([(k, numbers.index(location[2])) for k, location in enumerate(entry.operands) if location[2] >= 0])
    operands = [(slot, offset, -1) for slot, offset, _ in entry.operands]
    grids, wide = entry.grids, entry.wide
    if not all(_is_aligned(offsets[entry.operands[k][2]]) for k in wide if entry.operands[k][2] >= 0):
        grids, wide = tuple([(name, "", *rest) for name, _, *rest in grids]), ()
    return entry.replace(
        nest=grid_starts.Moved(entry.nest, moved),
        operands=(*operands, *[locations[number] for number in numbers]),
        grids=grids,
        wide=wide,
    )


def _is_aligned(offset: Offset) -> bool:
    """Whether it is a multiple of the bytes of a wide access."""
    return all(stride % grid.ALIGNED == 0 for *_, stride in offset.terms)
