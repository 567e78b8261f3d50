"""Loops of small kernels as one kernel of a GPU, which a block of threads runs whole (``loops.resident``).

    scan of 10000 steps of a product and tanh on [64]   ->   launch loop of 1 block of 1024 threads

A step of such a loop takes less than a launch. All that its body does has to be launches, copies, or loops and branches
of these; else the loop stays one of the plan, whose launches follow each other without the host's waiting.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._base.record import NamedTuple
from weft._base.target_model import GPU_RESIDENT_ROUNDS, GPU_RESIDENT_TERMS, GPU_SHARED, GPU_THREADS, GPU_WORDS, WARP
from weft.compiler import instructions
from weft.compiler.instructions import Gemm, Place
from weft.compiler.steps import Control, Launched, Plan, Run
from weft.core import kinds
from weft.core.jaxpr import ClosedJaxpr
from weft.loops import grid, resident

MANY, SOME = 1024, 512  # threads of a block; a thread of the larger one has 64 registers
SIDE_BY_SIDE = (resident.POINT, "vector", "warps", "short", "loop", "parts", "column_parts", "column_whole")
ALONE_ROUNDS = 2  # blocks one after the other of a kernel that needs barriers of its own
ALIGNED = 64

Inner = Callable[[ClosedJaxpr, tuple[bool, ...]], Plan | None]


class UnfitError(Exception):
    """A step that a block's threads do not do."""


class At(NamedTuple):
    """An address while the program is made: a base, bytes behind it, numbers of run-time offsets."""

    base: int
    offset: int = 0
    moved: tuple[int, ...] = ()


def resident_loop(entry: Control, inner: Inner) -> Launched | None:
    """The launch of a loop, or None if its body is too large or does anything else. ``inner``: a program's plan."""
    if isinstance(entry.equation.primitive.kind, kinds.Branch):
        return None
    for near in (True, False):
        maker = _Maker(inner, near)
        try:
            made = maker.control(entry, maker.operand, True)
        except UnfitError:
            return None
        if not near or maker.arena_bytes + maker.shared_bytes <= GPU_SHARED:
            return maker.launched(entry, made)
    return None


class _Maker:
    """Makes the record and its words."""

    def __init__(self, inner: Inner, near: bool) -> None:
        self.inner, self.near = inner, near
        self.words = [0]  # the first: where the arena begins in the block's memory
        self.operands: dict[Place, int] = {}
        self.arena_bytes = self.shared_bytes = 0
        # threads of a kernel, and of a block of one; whether one has barriers of its own
        self.most, self.widest, self.alone = 0, 0, False
        self._bases = self._offsets = 0

    def launched(self, entry: Control, made: Any) -> Launched:
        self.words[0] = -(-self.shared_bytes // ALIGNED) * ALIGNED
        nbytes = self.words[0] + (self.arena_bytes if self.near else 0)
        scratch = 0 if self.near else self.arena_bytes
        name = entry.equation.primitive.name
        few = self.widest <= SOME and (self.alone or self.most <= SOME)
        threads = GPU_THREADS if self.most <= GPU_THREADS else SOME if few else MANY
        program = resident.Resident(len(self.operands), len(self.words), threads, self.near, (made,), name)
        params = struct.pack(f"<{len(self.words)}q", *self.words)
        grids = (("loop", "", 1, 1, threads, nbytes),)
        return Launched(entry, program, tuple(self.operands), params, grids, (), scratch)

    # addresses

    def operand(self, place: Place) -> At:
        """A place of the plan around it, as an operand of the kernel."""
        return At(-1 - self.operands.setdefault(place, len(self.operands)))

    def word(self, value: int) -> int:
        self.words.append(int(value))
        if len(self.words) + len(self.operands) + 1 > GPU_WORDS:
            raise UnfitError
        return len(self.words) - 1

    def place(self, at: At) -> resident.Place:
        return resident.Place(at.base, self.word(at.offset) if at.offset else None, at.moved)

    def base(self) -> int:
        self._bases += 1
        return self._bases

    def arena(self, nbytes: int) -> At:
        """Memory of the kernel's own; base 0."""
        begin = self.arena_bytes
        self.arena_bytes += -(-nbytes // ALIGNED) * ALIGNED
        return At(0, begin)

    # control

    def control(self, entry: Control, resolve: Callable[[Place], At], outermost: bool = False) -> Any:
        plans = []
        for program, donated in entry.programs():
            planned = self.inner(program, donated)
            if planned is None:
                raise UnfitError
            plans.append(planned)
        if isinstance(entry.equation.primitive.kind, kinds.Branch):
            return self._branch(entry, plans, resolve)
        return self._loop(entry, plans, resolve, outermost)

    def _branch(self, entry: Control, plans: Sequence[Plan], resolve: Callable[[Place], At]) -> resident.Choose:
        which = self.place(resolve(entry.places["which"]))
        operands = [resolve(place) for place, _ in entry.places["operands"]]
        results = [(resolve(place), nbytes) for place, nbytes in entry.places["results"]]
        branches = []
        for planned in plans:
            slots = self._frame(planned, operands, [at for at, _ in results])
            steps = self.steps(planned, slots)
            for number, (at, nbytes) in enumerate(results):
                found = slots[planned.n_inputs + number]
                if found != at and nbytes:
                    steps.append(resident.Copy(self.place(at), self.place(found), self.word(nbytes)))
            branches.append(tuple(steps))
        return resident.Choose(which, tuple(branches))

    def _loop(
        self, entry: Control, plans: Sequence[Plan], resolve: Callable[[Place], At], outermost: bool
    ) -> resident.Repeat:
        places, (body, *cond) = entry.places, plans
        parts = entry.equation.primitive.kind.parts(entry.equation.params)
        captured = [resolve(place) for place, _ in places["captured"]]
        tested = [resolve(place) for place, _ in places["tested"]]
        homes = [(resolve(place), nbytes) for place, nbytes in places["carry"]]
        now, later = ([At(self.base()) for _ in homes] for _ in range(2))
        rows = [(At(self.base()), resolve(place), stride) for place, stride in places["inputs"]]
        made = [(At(self.base()), resolve(place), stride) for place, stride in places["outputs"]]
        slots = self._frame(body, [*captured, *now, *[at for at, *_ in rows]], [*later, *[at for at, *_ in made]])
        results = slots[body.n_inputs :]
        steps = self.steps(body, slots)
        for result, (at, _, stride) in zip(results[len(homes) :], made, strict=False):
            if result != at and stride:
                steps.append(resident.Copy(self.place(at), self.place(result), self.word(stride)))
        carry = []
        for k, (home, nbytes) in enumerate(homes):
            stays = results[k] == now[k] or nbytes == 0
            copied = None if stays or results[k] == later[k] else self.place(results[k])
            start = self.place(self.arena(nbytes)) if outermost and self.near and nbytes else None
            spare = None if stays else self.place(self.arena(nbytes))
            size = self.word(nbytes)
            carry.append(resident.Carry(self.place(home), start, spare, copied, size, now[k].base, later[k].base))
        moving = [resident.Row(at.base, self.place(first), self.word(stride)) for at, first, stride in (*rows, *made)]
        trips = self.word(-1 if parts.trips is None else parts.trips)
        if not cond:
            return resident.Repeat(tuple(carry), tuple(moving), tuple(steps), trips, parts.reverse)
        answer = self.arena(1)
        slots = self._frame(cond[0], [*tested, *now], [answer])
        asked, found = self.steps(cond[0], slots), self.place(slots[cond[0].n_inputs])
        return resident.Repeat(tuple(carry), tuple(moving), tuple(steps), trips, parts.reverse, tuple(asked), found)

    def _frame(self, planned: Plan, inputs: Sequence[At], results: Sequence[At]) -> list[At]:
        """The addresses of a program's slots: inputs, results (some are an input or another result), temporaries."""
        slots = list(inputs)
        for spec, at in zip(planned.outputs, results, strict=True):
            if isinstance(spec, instructions.SameOutput):
                at = slots[planned.n_inputs + spec.source]
            elif not isinstance(spec, instructions.NewOutput):
                at = slots[spec.source]
            slots.append(at)
        arena = self.arena(planned.arena_bytes)
        return [*slots, *[At(arena.base, arena.offset + offset) for offset, _ in planned.temps]]

    # steps

    def steps(self, planned: Plan, slots: Sequence[At]) -> list[Any]:
        found: list[Any] = []
        offsets: dict[int, int] = {}  # of this program

        def resolve(place: Place) -> At:
            slot, offset, number = place
            at = slots[slot]
            moved = (*at.moved, offsets[number]) if number >= 0 else at.moved
            return At(at.base, at.offset + offset, moved)

        for entry in planned.instructions:
            if isinstance(entry, Launched):
                found += self._calls(entry, resolve)
            elif isinstance(entry, Control):
                found.append(self.control(entry, resolve))
            elif isinstance(entry, instructions.Copy):
                to, source = self.place(resolve(entry.to)), self.place(resolve(entry.source))
                found.append(resident.Copy(to, source, self.word(entry.nbytes)))
            elif isinstance(entry, instructions.Fill):
                found.append(resident.Fill(self.place(resolve(entry.to)), entry.byte, self.word(entry.nbytes)))
            elif isinstance(entry, instructions.Offset):
                self._offsets += 1
                offsets[entry.number] = self._offsets
                terms = [
                    (self.place(resolve((slot, offset, -1))), np.dtype(char), self.word(most), self.word(stride))
                    for slot, offset, char, most, stride in entry.terms
                ]
                flag = None if entry.word is None else self.place(resolve(entry.word))
                found.append(resident.Offset(self._offsets, tuple(terms), flag))
            else:
                raise UnfitError
        return found

    def _calls(self, entry: Launched, resolve: Callable[[Place], At]) -> list[resident.Call]:
        """A call for each launch; neighbours of a nest's points need not be one thread's."""
        grids = entry.grids
        if isinstance(entry.source, Run) and grids[0][0] in ("points", "tiles"):
            low = entry.source.lowered
            grids = ((resident.POINT, "", -(-grid.points_of(low.nest, low.extents) // GPU_THREADS), 1, GPU_THREADS, 0),)
        if isinstance(entry.source, Gemm):
            extents = (*entry.source.rows, *entry.source.columns, *entry.source.summed, *entry.source.batch)
            if int(np.prod([float(extent) for extent, *_ in extents])) > GPU_RESIDENT_TERMS:
                raise UnfitError
        if isinstance(entry.source, instructions.Sort) and len(grids) > 1:  # of long rows
            raise UnfitError
        places = tuple([self.place(resolve(place)) for place in entry.operands])
        scratch = self.place(self.arena(entry.scratch_bytes)) if entry.scratch_bytes else None
        first = len(self.words)
        for value in struct.unpack(f"<{len(entry.params) // 8}q", entry.params):
            self.word(value)
        found = []
        for name, _, x, y, n, nbytes in grids:
            lanes = name == "loop" and entry.nest.lanes
            if lanes:
                x, n = -(-x * n // grid.GPU_LANE_THREADS), grid.GPU_LANE_THREADS
            free = name in SIDE_BY_SIDE
            side_by_side = MANY // n if free and n % WARP == 0 else 1
            if y != 1 or -(-x // side_by_side) > (GPU_RESIDENT_ROUNDS if free else ALONE_ROUNDS):
                raise UnfitError
            self.shared_bytes = max(self.shared_bytes, nbytes)
            found.append(resident.Call(entry.nest, name, places, scratch, first, self.word(x), n))
            self.most, self.widest, self.alone = max(self.most, x * n), max(self.widest, n), self.alone or not free
        return found
