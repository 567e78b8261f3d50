"""Cells of a grid as one kernel of a GPU: each is a block, which runs its loop whole (``resident_loops``).

    64 cells, each a scan over blocks of terms    ->    launch loop of 64 blocks of 256 threads

A cell may do more in a step the more cells there are, since together they keep a GPU busy.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from typing import Any

from weft._base.target_model import GPU_ROWS, GPU_SHARED, GPU_THREADS, GPU_TILES, GPU_WORDS, WARP
from weft.compiler.gpu import blocks_ahead, cell_memory, resident_loops
from weft.compiler.gpu.cell_memory import ALIGNED
from weft.compiler.gpu.resident_loops import At, UnfitError
from weft.compiler.plans.instructions import Location
from weft.compiler.plans.steps import Control, Launched, Plan, UnfitCellsError
from weft.core import kinds
from weft.loops.gpu import resident


def is_of_cells(entry: Control) -> bool:
    """Whether a loop's steps do not depend on each other."""
    kind = entry.equation.primitive.kind
    return isinstance(kind, kinds.Loop) and kind.parts(entry.equation.params).independent


def resident_cells(entry: Control, inner: resident_loops.Inner) -> Launched:
    """The launch of cells of a grid; UnfitCellsError if one of them is too much for a block."""
    try:
        first = _Maker(inner, resident_loops.MANY, entry, 0)
        first.cell(entry)
        threads = next((n for n in (GPU_THREADS, resident_loops.SOME) if first.widest <= n), resident_loops.MANY)
        maker = _Maker(inner, threads, entry, GPU_SHARED - first.shared_bytes)
        return maker.launched(entry, maker.cell(entry))
    except UnfitError:
        raise UnfitCellsError from None


class _Maker(resident_loops.Maker):
    """Makes the record and its words; ``room``: bytes of a block's own memory for temporaries."""

    in_cells = True

    def __init__(self, inner: resident_loops.Inner, threads: int, entry: Control, room: int) -> None:
        super().__init__(inner, threads, True)
        self.cells = entry.equation.primitive.kind.parts(entry.equation.params).trips
        self.memory, self.taken = cell_memory.Memory(room // ALIGNED * ALIGNED), list[cell_memory.Region]()
        self.far = self.base()  # the base of a cell's part of the GPU's memory
        self.reads = dict[blocks_ahead.Key, list[blocks_ahead.Read]]()  # the blocks that launches read

    def launched_bytes(self) -> int:
        return -(-self.shared_bytes // ALIGNED) * ALIGNED + self.memory.peaks[True]

    def blocks(self) -> tuple[int, int]:
        return self.cells, self.memory.peaks[False] * self.cells

    def is_too_much(self, work: float, most: int) -> bool:
        """The more cells there are, the more work one may do: the others keep the GPU busy meanwhile."""
        return work * max(GPU_TILES - self.cells, 0) > most * GPU_TILES

    # memory

    def arena(self, nbytes: int) -> At:
        region = self.memory.take(nbytes)
        self.taken.append(region)
        return self._at(region)

    def _at(self, region: cell_memory.Region) -> At:
        return At(0 if region.near else self.far, region.begin)

    @contextlib.contextmanager
    def during(self) -> Iterator[None]:
        before, self.taken = self.taken, []
        yield
        for region in self.taken:
            self.memory.give(region)
        self.taken = before

    def temporaries(self, planned: Plan) -> list[At]:
        """``steps`` takes memory for each."""
        return [At(0) for _ in planned.temps]

    # steps

    def _calls(self, entry: Launched, resolve: Callable[[Location], At]) -> list[resident.Call]:
        found, reads = super()._calls(entry, resolve), blocks_ahead.reads(entry)
        for k, at in enumerate(map(resolve, entry.operands)):
            read = reads.get(k, blocks_ahead.Read(0))
            dims = [dim._replace(word=dim.word + found[0].words) if dim.word >= 0 else dim for dim in read.dims]
            self.reads.setdefault((at.base, at.moved), []).append(read._replace(begin=at.offset, dims=tuple(dims)))
        return found

    def _brought(self, step: Any, fixed: Collection[int]) -> Any:
        """A loop of a cell, with the blocks that are brought ahead as far as there is room behind all else."""
        few = self.cells * self.threads <= GPU_ROWS * WARP  # others run while one waits, where there are more
        if not isinstance(step, resident.Repeat) or step.cond or not few:
            return step
        origins = blocks_ahead.Origins(step, fixed, self.words)
        bases, ahead, early = dict[blocks_ahead.Key, int](), list[resident.Ahead](), set[int]()
        for key, number in blocks_ahead.candidates(step).items():
            block, steps = blocks_ahead.block(self.reads[key]), origins.of(number)
            if block is None or steps is None or len(self.words) + len(self.operands) + 8 * len(steps) + 8 > GPU_WORDS:
                continue
            pair = self._pair(block.rows * block.run, ALIGNED * len(steps))
            if pair is None:
                continue
            bases[key], source = self.base(), self.location(At(key[0], block.begin, key[1]))
            words = self.word(block.run), self.word(block.rows), self.word(block.stride)
            ahead.append(resident.Ahead(bases[key], source, pair, *words, *block.shares(self.threads)))
            early |= steps
            for dim in [dim for read in self.reads[key] for dim in read.dims if dim.word >= 0 and dim.extent != 1]:
                self.words[dim.word] = block.moved(dim.stride) // dim.unit

        def to(location: resident.Location) -> resident.Location:
            base = bases.get((location.base, location.moved))
            return location if base is None else resident.Location(base)

        body = origins.left(resident.moved(step.body, to), early)
        return step.replace(body=body, ahead=tuple(ahead), early=origins.early(early, lambda: self._behind(1)))

    def _pair(self, nbytes: int, more: int) -> tuple[resident.Location, resident.Location] | None:
        """Two buffers for a block, used for nothing else; None where cells have no room for them and ``more`` bytes."""
        end = self.launched_bytes() + more + 2 * -(-nbytes // ALIGNED) * ALIGNED
        if end > GPU_SHARED or end * self.cells > 2 * GPU_SHARED * GPU_TILES:
            return None
        return self._behind(nbytes), self._behind(nbytes)

    def _behind(self, nbytes: int) -> resident.Location:
        """Memory behind all that a cell has."""
        begin = self.memory.peaks[True]
        self.memory.peaks[True] = begin + -(-nbytes // ALIGNED) * ALIGNED
        return self.location(At(0, begin))

    def cell(self, entry: Control) -> resident.Cell:
        """What a block does of the cells of a grid."""
        ((body, donated),) = entry.programs()
        planned, locations, resolve = self.inner(body, donated, True), entry.locations, self.operand
        if planned is None:
            raise UnfitError
        captured = [resolve(location) for location, _ in locations["captured"]]
        rows, made = ([(At(self.base()), resolve(p), n) for p, n in locations[way]] for way in ("inputs", "outputs"))
        slots = self._frame(planned, [*captured, *[at for at, *_ in rows]], [at for at, *_ in made])
        steps = self.steps(planned, slots)
        results = zip(slots[planned.n_inputs :], made, strict=False)
        steps += [
            resident.Copy(self.location(at), self.location(result), self.word(stride))
            for result, (at, _, stride) in results
            if result != at and stride
        ]
        bases = [resident.Row(at.base, self.location(first), self.word(n)) for at, first, n in (*rows, *made)]
        fixed = {at.base for at in (*captured, *[at for at, *_ in rows])}
        fixed -= {at.base for at in slots[planned.n_inputs :]}
        steps = [self._brought(step, fixed) for step in steps]
        return resident.Cell(tuple(bases), tuple(steps), self.far, self.word(self.memory.peaks[False]))

    def steps(self, planned: Plan, slots: list[At]) -> list[Any]:
        found, offsets, regions = list[Any](), dict[int, int](), dict[int, cell_memory.Region]()
        n_before, views = planned.n_inputs + len(planned.outputs), cell_memory.views(planned)
        lives = cell_memory.lives(planned, {to for to, _ in views.values()})
        for number, entry in enumerate(planned.instructions):
            if number in views:
                to, source = views[number]
                slots[to] = self.resolved(source, slots, offsets)
                continue
            for slot in [slot for slot, (begin, _) in lives.items() if begin == number]:
                regions[slot] = self.memory.take(planned.temps[slot - n_before][1])
                slots[slot] = self._at(regions[slot])
            with self.during():
                found += self.step(entry, slots, offsets)
            for slot in [slot for slot, (_, end) in lives.items() if end == number]:
                self.memory.give(regions[slot])
        return found
