"""Loops of small kernels as one kernel of a GPU, which a block of threads runs whole (``loops.gpu.resident``).

    scan of 10000 steps of a product and tanh on [64]   ->   launch loop of 1 block of 1024 threads

A step of such a loop takes less than a launch. All that its body does has to be launches, copies, or loops and branches
of these; otherwise the plan keeps the loop, and the host launches the kernels of each step without waiting.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from weft._base.record import NamedTuple
from weft._base.target_model import (
    GPU_RESIDENT_ROUNDS,
    GPU_RESIDENT_TERMS,
    GPU_SHARED,
    GPU_THREADS,
    GPU_WORDS,
    WARP,
)
from weft.compiler.gpu.cell_memory import ALIGNED
from weft.compiler.plans import instructions
from weft.compiler.plans.instructions import Gemm, Location
from weft.compiler.plans.steps import Control, FusedEpilogue, Launched, Plan, Run
from weft.core import kinds
from weft.core.programs.jaxpr import ClosedJaxpr
from weft.loops.gpu import grid, grid_products, resident

MANY, SOME = 1024, 512  # threads of a block; a thread of the larger one has 64 registers
SIDE_BY_SIDE = (resident.POINT, "vector", "warps", "short", "loop", "parts", "column_parts", "column_whole")
ALONE_ROUNDS = 2  # blocks one after the other of a kernel that needs barriers of its own: an estimate
MOST_BYTES = 4 * GPU_RESIDENT_ROUNDS * MANY  # bytes of a copy or a fill
KEPT = 64 << 10  # bytes of the block's memory up to which what a loop only reads is copied there: an estimate
# Terms of a product that a thread may hold, and its registers for all of them, by the number of threads: half of its
# registers, and at least 40 stay for the kernels of a step. An estimate.
HELD_TERMS, HELD_REGISTERS = (4, 8, 16, 32), ((GPU_THREADS, 128), (SOME, 64), (MANY, 24))

Inner = Callable[[ClosedJaxpr, tuple[bool, ...], bool], Plan | None]  # the last: whether it is for a cell of a grid


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
    try:
        first = Maker(inner, MANY, True)
        first.control(entry, first.operand, True)
        few = first.widest <= SOME and (first.alone or first.most <= SOME)
        threads = GPU_THREADS if first.most <= GPU_THREADS else SOME if few else MANY
        for near in (True, False):
            maker = Maker(inner, threads, near)
            made = maker.control(entry, maker.operand, True)
            if not near or maker.launched_bytes() <= GPU_SHARED:
                return maker.launched(entry, made)
    except UnfitError:
        pass
    return None


class Maker:
    """Makes the record and its words."""

    in_cells = False

    def __init__(self, inner: Inner, threads: int, near: bool) -> None:
        self.inner, self.threads, self.near = inner, threads, near
        self.words = [0]  # the first: where the arena begins in the block's memory
        self.operands: dict[Location, int] = {}
        self.arena_bytes = self.shared_bytes = 0
        # threads of a kernel, and of a block of one; whether one has barriers of its own
        self.most, self.widest, self.alone = 0, 0, False
        self.held_terms = 0  # that threads have in registers
        self.captured: dict[int, int] = {}  # operands that the loop only reads, and their bytes
        self.kept: dict[int, At] = {}  # copies of those
        self._bases = self._offsets = 0

    def launched_bytes(self) -> int:
        """Bytes of the block's memory."""
        return -(-self.shared_bytes // ALIGNED) * ALIGNED + (self.arena_bytes if self.near else 0)

    def launched(self, entry: Control, made: Any) -> Launched:
        steps, nbytes = (*self._copies(), made), self.launched_bytes()
        self.words[0] = -(-self.shared_bytes // ALIGNED) * ALIGNED
        name, (blocks, scratch) = entry.equation.primitive.name, self.blocks()
        program = resident.Resident(len(self.operands), len(self.words), self.threads, self.near, steps, name)
        params = struct.pack(f"<{len(self.words)}q", *self.words)
        grids = (("loop", "", blocks, 1, self.threads, nbytes),)
        return Launched(entry, program, tuple(self.operands), params, grids, (), scratch)

    def blocks(self) -> tuple[int, int]:
        """How many blocks do the same, and bytes of the GPU's memory that they take together."""
        return 1, 0 if self.near else self.arena_bytes

    # addresses

    def operand(self, location: Location) -> At:
        """A location of the plan around it, as an operand of the kernel."""
        return At(-1 - self.operands.setdefault(location, len(self.operands)))

    def word(self, value: int) -> int:
        self.words.append(int(value))
        if len(self.words) + len(self.operands) + 1 > GPU_WORDS:
            raise UnfitError
        return len(self.words) - 1

    def location(self, at: At, held: bool = False) -> resident.Location:
        """The address; what a loop only reads may be a copy in the block's memory, unless threads hold it."""
        if at.base in self.captured and self.near and not held:
            nbytes = self.captured[at.base]
            if at.base not in self.kept and self.arena_bytes + nbytes <= KEPT:
                self.kept[at.base] = self.arena(nbytes)
            if at.base in self.kept:
                at = At(0, self.kept[at.base].offset + at.offset, at.moved)
        return resident.Location(at.base, self.word(at.offset) if at.offset else None, at.moved)

    def _copies(self) -> list[resident.Copy]:
        """What is brought to the block's memory before the loop."""
        return [
            resident.Copy(self.location(to), self.location(At(base), True), self.word(self.captured[base]))
            for base, to in self.kept.items()
        ]

    def base(self) -> int:
        self._bases += 1
        return self._bases

    def arena(self, nbytes: int) -> At:
        """Memory of the kernel's own; base 0."""
        begin = self.arena_bytes
        self.arena_bytes += -(-nbytes // ALIGNED) * ALIGNED
        return At(0, begin)

    # control

    def during(self) -> AbstractContextManager[None]:
        """A block after which memory that was taken in it may be taken again."""
        return contextlib.nullcontext()

    def control(self, entry: Control, resolve: Callable[[Location], At], outermost: bool = False) -> Any:
        plans = []
        for program, donated in entry.programs():
            planned = self.inner(program, donated, self.in_cells)
            if planned is None:
                raise UnfitError
            plans.append(planned)
        if isinstance(entry.equation.primitive.kind, kinds.Branch):
            return self._branch(entry, plans, resolve)
        return self._loop(entry, plans, resolve, outermost)

    def _branch(self, entry: Control, plans: Sequence[Plan], resolve: Callable[[Location], At]) -> resident.Choose:
        which = self.location(resolve(entry.locations["which"]))
        operands = [resolve(location) for location, _ in entry.locations["operands"]]
        results = [(resolve(location), nbytes) for location, nbytes in entry.locations["results"]]
        branches = []
        for planned in plans:
            slots = self._frame(planned, operands, [at for at, _ in results])
            with self.during():
                steps = self.steps(planned, slots)
            for number, (at, nbytes) in enumerate(results):
                found = slots[planned.n_inputs + number]
                if found != at and nbytes:
                    steps.append(resident.Copy(self.location(at), self.location(found), self.word(nbytes)))
            branches.append(tuple(steps))
        return resident.Choose(which, tuple(branches))

    def _loop(
        self, entry: Control, plans: Sequence[Plan], resolve: Callable[[Location], At], outermost: bool
    ) -> resident.Repeat:
        locations, (body, *cond) = entry.locations, plans
        parts = entry.equation.primitive.kind.parts(entry.equation.params)
        captured = [resolve(location) for location, _ in locations["captured"]]
        if outermost:
            self.captured = {at.base: nbytes for at, (_, nbytes) in zip(captured, locations["captured"], strict=True)}
        tested = [resolve(location) for location, _ in locations["tested"]]
        homes = [(resolve(location), nbytes) for location, nbytes in locations["carry"]]
        now, later = ([At(self.base()) for _ in homes] for _ in range(2))
        rows = [(At(self.base()), resolve(location), stride) for location, stride in locations["inputs"]]
        made = [(At(self.base()), resolve(location), stride) for location, stride in locations["outputs"]]
        slots = self._frame(body, [*captured, *now, *[at for at, *_ in rows]], [*later, *[at for at, *_ in made]])
        results = slots[body.n_inputs :]
        stay = [results[k] == now[k] or nbytes == 0 for k, (_, nbytes) in enumerate(homes)]
        spares = [None if stays else self.arena(nbytes) for stays, (_, nbytes) in zip(stay, homes, strict=True)]
        steps = self.steps(body, slots)
        left = [
            resident.Copy(self.location(at), self.location(result), self.word(stride))
            for result, (at, _, stride) in zip(results[len(homes) : len(homes) + len(made)], made, strict=True)
            if result != at and stride
        ]
        if left and any(self.is_too_much(stride, MOST_BYTES) for (_, _, stride) in made):
            raise UnfitError
        carry = []
        for k, (home, nbytes) in enumerate(homes):
            spare = spares[k]
            copied = None if spare is None or results[k] == later[k] else self.location(results[k])
            start = self.location(self.arena(nbytes)) if outermost and self.near and nbytes else None
            if copied is not None and self.is_too_much(nbytes, MOST_BYTES):
                raise UnfitError
            location = None if spare is None else self.location(spare)
            size = self.word(nbytes)
            carry.append(resident.Carry(self.location(home), start, location, copied, size, now[k].base, later[k].base))
        avals = parts.body.in_avals[parts.n_consts + parts.n_carry :]
        moving = [
            resident.Row(
                at.base, self.location(first), self.word(stride), self._ahead(stride, aval) if outermost else None
            )
            for (at, first, stride), aval in zip(rows, avals, strict=True)
        ]
        moving += [resident.Row(at.base, self.location(first), self.word(stride)) for at, first, stride in made]
        trips = self.word(-1 if parts.trips is None else parts.trips)
        whole = resident.Repeat(tuple(carry), tuple(moving), tuple(steps), tuple(left), trips, parts.reverse)
        if not cond:
            return whole
        answer = self.arena(1)
        slots = self._frame(cond[0], [*tested, *now], [answer])
        asked, found = self.steps(cond[0], slots), self.location(slots[cond[0].n_inputs])
        return whole.replace(cond=tuple(asked), answer=found)

    def is_too_much(self, work: float, most: int) -> bool:
        """Whether one block should not do so much of a step."""
        return work > most

    def _ahead(self, stride: int, aval: Any) -> tuple[resident.Location, resident.Location] | None:
        """Where rows are brought ahead: those of a word for each thread."""
        if not self.near or aval.dtype.itemsize % 4 or not 0 < stride <= 4 * self.threads:
            return None
        return self.location(self.arena(stride)), self.location(self.arena(stride))

    def _frame(self, planned: Plan, inputs: Sequence[At], results: Sequence[At]) -> list[At]:
        """The addresses of a program's slots: inputs, results (some are an input or another result), temporaries."""
        slots = list(inputs)
        for spec, at in zip(planned.outputs, results, strict=True):
            if isinstance(spec, instructions.SameOutput):
                at = slots[planned.n_inputs + spec.source]
            elif not isinstance(spec, instructions.NewOutput):
                at = slots[spec.source]
            slots.append(at)
        return [*slots, *self.temporaries(planned)]

    def temporaries(self, planned: Plan) -> list[At]:
        arena = self.arena(planned.arena_bytes)
        return [At(arena.base, arena.offset + offset) for offset, _ in planned.temps]

    # steps

    def steps(self, planned: Plan, slots: list[At]) -> list[Any]:
        offsets: dict[int, int] = {}  # of this program
        return [step for entry in planned.instructions for step in self.step(entry, slots, offsets)]

    def resolved(self, location: Location, slots: Sequence[At], offsets: dict[int, int]) -> At:
        slot, offset, number = location
        at = slots[slot]
        moved = (*at.moved, offsets[number]) if number >= 0 else at.moved
        return At(at.base, at.offset + offset, moved)

    def step(self, entry: Any, slots: Sequence[At], offsets: dict[int, int]) -> list[Any]:
        """What an instruction is; ``offsets``: the numbers of this kernel's for those of the program."""

        def resolve(location: Location) -> At:
            return self.resolved(location, slots, offsets)

        if isinstance(entry, Launched):
            return list(self._calls(entry, resolve))
        if isinstance(entry, Control):
            return [self.control(entry, resolve)]
        if isinstance(entry, instructions.CopyRows) and not entry.steps:  # of one row
            entry = instructions.Copy(entry.to, entry.source, entry.nbytes)
        if isinstance(entry, instructions.Copy | instructions.Fill) and self.is_too_much(entry.nbytes, MOST_BYTES):
            raise UnfitError
        if isinstance(entry, instructions.Copy):
            to, source = self.location(resolve(entry.to)), self.location(resolve(entry.source))
            return [resident.Copy(to, source, self.word(entry.nbytes))]
        if isinstance(entry, instructions.Fill):
            return [resident.Fill(self.location(resolve(entry.to)), entry.byte, self.word(entry.nbytes))]
        if not isinstance(entry, instructions.Offset):
            raise UnfitError
        self._offsets += 1
        offsets[entry.number] = self._offsets
        terms = [
            (self.location(resolve((slot, offset, -1))), np.dtype(char), self.word(most), self.word(stride))
            for slot, offset, char, most, stride in entry.terms
        ]
        flag = None if entry.word is None else self.location(resolve(entry.word))
        return [resident.Offset(self._offsets, tuple(terms), flag)]

    def _calls(self, entry: Launched, resolve: Callable[[Location], At]) -> list[resident.Call]:
        """A call for each launch; neighbours of a nest's points need not be one thread's."""
        grids = entry.grids
        if isinstance(entry.source, Run) and grids[0][0] in ("points", "tiles"):
            low = entry.source.lowered
            grids = ((resident.POINT, "", -(-grid.points_of(low.nest, low.extents) // GPU_THREADS), 1, GPU_THREADS, 0),)
        gemm = entry.source.product if isinstance(entry.source, FusedEpilogue) else entry.source
        if isinstance(gemm, Gemm):
            extents = (*gemm.rows, *gemm.columns, *gemm.summed, *gemm.batch)
            if self.is_too_much(float(np.prod([float(extent) for extent, *_ in extents])), GPU_RESIDENT_TERMS):
                raise UnfitError
            if self.in_cells:
                grids = grid_products.launches(entry.nest, gemm, True)[1]
        if isinstance(entry.source, instructions.Sort) and len(grids) > 1:  # of long rows
            raise UnfitError
        held = self._held(entry, [resolve(location) for location in entry.operands])
        if held is not None:
            return [held]
        locations = tuple([self.location(resolve(location)) for location in entry.operands])
        scratch = self.location(self.arena(entry.scratch_bytes)) if entry.scratch_bytes else None
        first = len(self.words)
        for value in struct.unpack(f"<{len(entry.params) // 8}q", entry.params):
            self.word(value)
        found = []
        for name, _, x, y, n, nbytes in grids:
            lanes = name == "loop" and entry.nest.lanes
            if lanes:
                x, n = -(-x * n // grid.GPU_LANE_THREADS), grid.GPU_LANE_THREADS
            free = name in SIDE_BY_SIDE
            side_by_side = self.threads // n if free and n % WARP == 0 else 1
            if y != 1 or self.is_too_much(x * n if free else x, GPU_RESIDENT_ROUNDS * MANY if free else ALONE_ROUNDS):
                raise UnfitError
            self.shared_bytes = max(self.shared_bytes, nbytes)
            once = x <= side_by_side
            found.append(resident.Call(entry.nest, name, locations, scratch, first, self.word(x), n, once))
            self.most, self.widest, self.alone = max(self.most, x * n), max(self.widest, n), self.alone or not free
        return found

    def _held(self, entry: Launched, ats: Sequence[At]) -> resident.Call | None:
        """A product whose matrix no step changes, in registers, if there are enough."""
        gemm, kernel = entry.source, entry.nest
        if not isinstance(gemm, Gemm) or kernel.form != "vector" or gemm.batch or kernel.result.kind == "c":
            return None
        rows, columns, terms = gemm.rows[0][0], gemm.columns[0][0], gemm.summed[0][0]
        matrix, count = (1, columns) if rows == 1 else (0, rows)
        n = -(-count * resident.HELD_THREADS // WARP) * WARP
        each = next((each for each in HELD_TERMS if each * resident.HELD_THREADS >= terms), 0)
        size = max(kernel.result.itemsize // 4, 1)
        if (
            not each
            or not terms * count
            or n > self.threads
            or ats[matrix].base not in self.captured
            or ats[matrix].moved
        ):
            return None
        at_most = max(n, GPU_THREADS) if self.threads == MANY else self.threads
        registers = next(most for threads, most in HELD_REGISTERS if at_most <= threads)
        if self.held_terms + each * size > registers:
            return None
        self.held_terms += each * size
        locations = tuple([self.location(at, k == matrix) for k, at in enumerate(ats)])
        first = len(self.words)
        for value in struct.unpack(f"<{len(entry.params) // 8}q", entry.params):
            self.word(value)
        self.most = max(self.most, n)
        held = resident.Held(matrix, each, each * resident.HELD_THREADS == terms)
        return resident.Call(kernel, "vector", locations, None, first, self.word(n), GPU_THREADS, True, held)
