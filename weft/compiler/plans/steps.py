"""The data of a plan: instructions, and steps that still need machine code or compiled programs.

``plan`` makes them, ``chain`` joins some, ``link`` turns each into an instruction for the runtime (``instructions``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import runtime
from weft._base.record import NamedTuple, Record
from weft.compiler.plans import instructions
from weft.compiler.plans.instructions import Copy, CopyRows, Fill, Gemm, Location, Offset, Output, Sort
from weft.core import kinds
from weft.loops import ir
from weft.loops.nests import Lowered
from weft.loops.routines import register_promotion


class Run(NamedTuple):
    """One kernel call of the plan, still without machine code."""

    lowered: Lowered
    operands: tuple[Location, ...]
    outer: tuple[tuple[int, tuple[int, ...]], ...]

    def describe(self) -> str:
        locations = " ".join(f"{slot}+{offset}" for slot, offset, _ in self.operands)
        return f"{self.lowered.name} [{'x'.join(str(n) for n in self.lowered.space)}] {locations}"


class Chain(Record):
    """Kernel calls that are one compiled function: ``block`` of ``rows`` rows at a time runs through all of them."""

    runs: tuple[Run, ...]
    rows: int
    block: int
    nest: ir.Chain

    def describe(self) -> str:
        by = f", {self.block} of {self.rows} rows at a time" if self.rows > 1 else ""
        return f"kernel of {len(self.runs)}{by}: {'; '.join([run.describe() for run in self.runs])}"


class FusedEpilogue(Record):
    """A matrix product with the kernel that runs on its parts (``epilogues``)."""

    product: Gemm
    form: str
    run: Run

    def describe(self) -> str:
        return f"{instructions.words(self.product)}, on its {self.form}: kernel {self.run.describe()}"


class Launched(Record):
    """Launches of a GPU instead of ``source``; ``nest`` is its kernel (``launches``)."""

    source: Run | Native | Gemm | Sort | Control | FusedEpilogue | tuple[Offset, ...]
    nest: Any  # a nest, a routine, a product, a sort, a resident loop, or run-time starts
    operands: tuple[Location, ...]
    params: bytes
    grids: tuple[tuple[str, str, int, int, int, int], ...]
    wide: tuple[int, ...] = ()
    scratch_bytes: int = 0

    @property
    def call(self) -> tuple[Any, ...]:
        """All that is launched."""
        return self.nest, self.operands, self.params, self.grids, self.wide, self.scratch_bytes

    @property
    def n_words(self) -> int:
        """Words of its parameters. A kernel takes at most GPU_WORDS."""
        return len(self.operands) + len(self.params) // 8

    def describe(self) -> str:
        ways = ", ".join([f"{wide or name} of {x * y} blocks of {n} threads" for name, wide, x, y, n, _ in self.grids])
        source = self.source
        if isinstance(source, Run | Native | Control | FusedEpilogue):
            text = source.describe()
        else:
            text = "; ".join(map(instructions.words, (source,) if isinstance(source, Gemm | Sort) else source))
        return f"launch {ways}: {'kernel ' if isinstance(source, Run) else ''}{text}"


class ByLibrary(Record):
    """A matrix product by the library of a GPU's maker, instead of ``source`` (``library_products``)."""

    source: Gemm | FusedEpilogue
    made: instructions.LibraryProduct

    def describe(self) -> str:
        made, source = self.made, self.source
        how = f"{' in TF32' if made.tf32 else ''}{f', epilogue {made.epilogue}' if made.epilogue else ''}"
        text = source.describe() if isinstance(source, FusedEpilogue) else instructions.words(source)
        return f"product by the maker's library{how}: {text}"


class Control(Record):
    """A loop or a branch of the plan, still without its compiled programs. ``locations``: fields of its instruction."""

    equation: Any
    locations: dict[str, Any]

    def programs(self) -> list[tuple[Any, tuple[bool, ...]]]:
        """(the inner program, which operands it may overwrite), in the order of the instruction."""
        kind, params = self.equation.primitive.kind, self.equation.params
        if isinstance(kind, kinds.Branch):
            return [(branch, (False,) * len(branch.in_avals)) for branch in kind.branches(params)]
        parts = kind.parts(params)
        first = parts.n_consts
        donated = tuple([first <= i < first + parts.n_carry for i in range(len(parts.body.in_avals))])
        found = [(parts.body, donated)]
        return found if parts.cond is None else [*found, (parts.cond, (False,) * len(parts.cond.in_avals))]

    def instruction(self, nested: Sequence[instructions.Nested]) -> instructions.Loop | instructions.Branch:
        """The instruction with the compiled programs, each as (Executable, constants)."""
        kind, params = self.equation.primitive.kind, self.equation.params
        if isinstance(kind, kinds.Branch):
            return instructions.Branch(branches=tuple(nested), **self.locations)
        parts = kind.parts(params)
        cond = nested[1] if parts.cond is not None else None
        trips = -1 if parts.trips is None else parts.trips
        return instructions.Loop(
            body=nested[0],
            cond=cond,
            trips=trips,
            reverse=parts.reverse,
            independent=parts.independent,
            **self.locations,
        )

    def describe(self) -> str:
        kind = self.equation.primitive.kind
        apart = isinstance(kind, kinds.Loop) and kind.parts(self.equation.params).independent
        locations = " ".join(str(location) for location in self.locations.values())
        return f"{self.equation.primitive.name} {locations}{' independent=True' if apart else ''}"


class UnfitCellsError(Exception):
    """Cells of a grid that are no blocks of one launch."""


class Native(Record):
    """A loop in registers: one native function. ``locations``: (location, bytes) of every operand."""

    lowered: register_promotion.Lowered
    locations: tuple[tuple[Location, int], ...]

    def describe(self) -> str:
        locations = " ".join(str(location) for location, _ in self.locations)
        return f"routine {self.lowered.routine.name} {locations} trips {self.lowered.trips}"

    def params(self) -> bytes:
        """The parameter block."""
        scalars = [scalar.tobytes().ljust(8, b"\0") for scalar in self.lowered.scalars]
        return np.array([*self.lowered.trips, *self.lowered.extents], np.int64).tobytes() + b"".join(scalars)


class Plan(Record):
    """What the runtime executes: ``instructions``. Until ``link``, some lack their kernels or programs."""

    n_inputs: int
    outputs: list[Output]
    temps: list[tuple[int, int]]
    arena_bytes: int
    instructions: list[Any]
    on_gpu: bool = False  # then what is neither launched nor moves memory is the host's

    @property
    def sources(self) -> list[Any]:
        """The instructions, and instead of launches what they stand for."""
        return [entry.source if isinstance(entry, Launched | ByLibrary) else entry for entry in self.instructions]

    def runs(self) -> list[Run]:
        """The kernel calls, in order."""
        entries = [part for e in self.sources for part in (e.runs if isinstance(e, Chain) else (e,))]
        runs = [entry.run if isinstance(entry, FusedEpilogue) else entry for entry in entries]
        return [entry for entry in runs if isinstance(entry, Run)]

    def products(self) -> list[Gemm]:
        """The instructions that are matrix products."""
        entries = [entry.product if isinstance(entry, FusedEpilogue) else entry for entry in self.sources]
        return [entry for entry in entries if isinstance(entry, Gemm)]

    def describe(self) -> str:
        counts = f"{self.n_inputs} inputs, {len(self.outputs)} outputs, {len(self.temps)} temporaries"
        lines = [f"{counts}, arena of {self.arena_bytes} bytes"]
        lines += [f"  output {i}: {instructions.words(output)}" for i, output in enumerate(self.outputs)]
        lines += [f"  temporary {i}: {n} bytes at {offset}" for i, (offset, n) in enumerate(self.temps)]
        for instruction in self.instructions:
            host = self.on_gpu and not isinstance(instruction, (Launched, ByLibrary, Control, Copy, CopyRows, Fill))
            before = "  on the host: " if host else "  "
            if isinstance(instruction, FusedEpilogue):
                lines.append(f"{before}{_words(instruction.product)}, on its {instruction.form}:")
                instruction = instruction.run
            if isinstance(instruction, Run):
                lines.append(f"{before}kernel {instruction.describe()}")
            elif isinstance(instruction, (Chain, Control, Native, Launched, ByLibrary)):
                lines.append(before + instruction.describe())
            else:
                lines.append(before + _words(instruction))
        return "\n".join(lines)


def _words(instruction: instructions.Instruction) -> str:
    """An instruction as a line of text; for a product also a machine-dependent order of summation."""
    text = instructions.words(instruction)
    if not isinstance(instruction, Gemm) or not instruction.unit:
        return text
    rows, columns, _ = instruction.whole
    terms = math.prod([extent for extent, _, _ in instruction.summed])
    how = runtime.how_added(instruction.source, instruction.result, rows, columns, terms)
    if how == "chains":
        return f"{text}, added in float32" if instruction.source == "E" else text
    return f"{text}, added in {how}"
