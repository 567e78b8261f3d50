"""Memory of a block that runs a cell of a grid: temporaries give theirs back, and a copy that is read only needs none.

    copy k[h] -> t;  product q t -> s;  softmax s -> p       t is read where it lies in k, s and p are near

Near is the block's own memory. What does not fit there is in memory of the GPU, a part for each block.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from typing import Any

from weft._base.record import NamedTuple
from weft.compiler.plans import instructions
from weft.compiler.plans.instructions import Location
from weft.compiler.plans.steps import Control, Launched, Plan, Run
from weft.loops import ir
from weft.loops.gpu import grid_products

ALIGNED = 64


class Region(NamedTuple):
    """Some bytes, of the block's memory if ``near``."""

    near: bool
    begin: int
    end: int


class Memory:
    """The regions of a block that are in use; ``limit``: bytes of its own memory."""

    def __init__(self, limit: int) -> None:
        self.limit, self.used, self.peaks = limit, list[Region](), {True: 0, False: 0}

    def take(self, nbytes: int) -> Region:
        """The first free region: in the block's memory, or else in the other."""
        size = -(-max(nbytes, 1) // ALIGNED) * ALIGNED
        begin = self._begin(True, size)
        near = begin + size <= self.limit
        begin = begin if near else self._begin(False, size)
        found = Region(near, begin, begin + size)
        self.used.append(found)
        self.peaks[near] = max(self.peaks[near], found.end)
        return found

    def give(self, region: Region) -> None:
        self.used.remove(region)

    def _begin(self, near: bool, size: int) -> int:
        begin = 0
        for _, low, high in sorted([region for region in self.used if region.near == near]):
            if low - begin >= size:
                break
            begin = max(begin, high)
        return begin


def lives(planned: Plan, seen: Collection[int]) -> dict[int, tuple[int, int]]:
    """The first and last instruction that needs each temporary; ``seen``: those that are views (``views``).

    What an offset reads is needed up to the next instruction with a barrier.
    """
    found: dict[int, tuple[int, int]] = {}
    first = planned.n_inputs + len(planned.outputs)
    barriers = [not isinstance(entry, instructions.Offset) for entry in planned.instructions]
    for number, entry in enumerate(planned.instructions):
        last = number
        while not barriers[last] and last + 1 < len(barriers):
            last += 1
        for slot in itertools.chain(*_slots(entry)):
            if slot >= first and slot not in seen:
                found[slot] = found.get(slot, (number, 0))[0], last
    return found


def views(planned: Plan) -> dict[int, tuple[int, Location]]:
    """Instructions that copy what lies side by side in an input that nothing writes: (the copy, where it lies)."""
    first, writes = planned.n_inputs + len(planned.outputs), dict[int, int]()
    for entry in planned.instructions:
        for slot in _slots(entry)[1]:
            writes[slot] = writes.get(slot, 0) + 1
    for spec in planned.outputs:
        if isinstance(spec, instructions.DonatedOutput):
            writes[spec.source] = writes.get(spec.source, 0) + 1
    found = {}
    for number, entry in enumerate(planned.instructions):
        copied = _copied(entry)
        if copied is None:
            continue
        (to, offset, moved), source = copied
        is_kept = source[0] < planned.n_inputs and not writes.get(source[0])
        if is_kept and to >= first and writes[to] == 1 and offset == 0 and moved < 0:
            found[number] = to, source
    return found


def _copied(entry: Any) -> tuple[Location, Location] | None:
    """(to, from), if a launch copies an array whose elements lie side by side to such a one."""
    if not isinstance(entry, Launched) or not isinstance(entry.source, Run):
        return None
    low = entry.source.lowered
    statements = list(low.nest.statements())
    if len(statements) != 2 or len(low.operands) != 2 or low.outer or low.nest.rows:
        return None
    load, store = statements
    if not isinstance(load, ir.Load) or not isinstance(store, ir.Store) or store.value != load.out:
        return None
    source, to = low.operands[load.operand], low.operands[store.operand]
    if source.dtype != to.dtype or not all(_is_dense(x.strides, low.extents) for x in (source, to)):
        return None
    return entry.operands[store.operand], entry.operands[load.operand]


def _is_dense(strides: Sequence[int], extents: Sequence[int]) -> bool:
    step = 1
    for extent, stride in zip(reversed(extents), reversed(strides), strict=True):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True


def _slots(entry: Any) -> tuple[list[int], list[int]]:
    """The slots that an instruction reads, and those that it writes."""
    if isinstance(entry, Launched):
        made, nowhere = written(entry.nest, len(entry.operands)), _nowhere(entry.nest)
        pairs = [(location[0], k in made) for k, location in enumerate(entry.operands) if k != nowhere]
        return [slot for slot, _ in pairs], [slot for slot, writes in pairs if writes]
    if isinstance(entry, Control):
        read, wrote = list[int](), list[int]()
        for name, locations in entry.locations.items():
            some = [locations[0]] if name == "which" else [location[0] for location, _ in locations]
            (wrote if name in ("carry", "outputs", "results") else read).extend(some)
        return read, wrote
    if isinstance(entry, instructions.Offset):
        return [slot for slot, *_ in entry.terms], [entry.word[0]] if entry.word is not None else []
    to = [location[0] for location in (getattr(entry, "to", None),) if location is not None]
    source = getattr(entry, "source", None)
    return [source[0]] if source is not None else [], to


def _nowhere(nest: Any) -> int:
    """The number of the operand that is neither read nor written: the product that an epilogue consumes; or -1."""
    return nest.made if isinstance(nest, grid_products.Product) and nest.epilogue is not None else -1


def written(nest: Any, count: int) -> set[int]:
    """The numbers of the operands that a kernel writes, as far as is known: otherwise all of them."""
    if isinstance(nest, ir.Nest):
        return {k for k, operand in enumerate(nest.operands) if operand.role == "out"}
    if not isinstance(nest, grid_products.Product):
        return set(range(count))
    if nest.epilogue is None:
        return {nest.made}
    operands = enumerate(nest.epilogue.nest.operands, grid_products.OPERANDS)
    return {k for k, operand in operands if operand.role == "out"}
