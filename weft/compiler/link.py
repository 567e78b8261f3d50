"""Links a plan with its kernels: makes the runtime's instructions with machine code, parameters and ways to split.

kernel exp [4096x1024] 0+0 1+0    ->    Kernel(<code>, ((0, 0, -1), (1, 0, -1)), params, (), "first", 4096, ...)
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

from weft.compiler import cache
from weft.compiler.instructions import Instruction, Kernel, Launch, Nested, Routine
from weft.compiler.steps import ByLibrary, Chain, Control, FusedEpilogue, Launched, Native, Plan, Run
from weft.core import source_info
from weft.core.jaxpr import ClosedJaxpr
from weft.loops import costs, ir
from weft.loops.nests import Lowered
from weft.loops.parallel import partial_bytes, split_at, split_of

UNKNOWN_TRIPS = 1000  # assumed iterations of a loop that ends by a condition

Split = tuple[str, int, int, float, int, int, int, int]  # the fields of a Kernel from ``split`` on


def instructions(
    planned: Plan, kernels: Sequence[cache.Compiled], nested: Callable[[ClosedJaxpr, tuple[bool, ...]], Nested]
) -> list[Instruction]:
    """The instructions of a plan; ``nested`` gives what stands for a program that control flow runs."""
    compiled = iter(kernels)
    made: list[Instruction] = []
    latest: tuple[Any, ...] = (None, None, None, ())
    for entry in planned.instructions:
        if isinstance(entry, Run):
            low, kernel = entry.lowered, next(compiled)
            if kernel is not latest[0] or low.extents is not latest[1] or low.outer is not latest[2]:
                latest = kernel, low.extents, low.outer, _split_call(low, kernel)  # equal calls follow each other
            made.append(_kernel(entry, kernel, latest[3]))
        elif isinstance(entry, Chain):
            made.append(_chain(entry, next(compiled).kernel))
        elif isinstance(entry, FusedEpilogue):
            kernel = next(compiled)
            epilogue = _kernel(entry.run, kernel, _split_call(entry.run.lowered, kernel))
            made.append(entry.product._replace(form=entry.form, epilogue=epilogue))
        elif isinstance(entry, Native):
            made.append(_routine(entry, next(compiled)))
        elif isinstance(entry, Launched):
            fields = (entry.operands, entry.params, entry.grids, entry.wide, entry.scratch_bytes)
            made.append(Launch(next(compiled).kernel, *fields, _launched_ns(entry), _where(entry)))
        elif isinstance(entry, ByLibrary):
            made.append(entry.made)
        elif isinstance(entry, Control):
            made.append(entry.instruction([nested(inner, donated) for inner, donated in entry.programs()]))
        else:
            made.append(entry)
    return made


def _routine(entry: Native, compiled: cache.Compiled) -> Routine:
    trips = entry.lowered.trips
    often = math.prod(trips) if trips else UNKNOWN_TRIPS
    if entry.lowered.routine.lanes:
        often *= -(-entry.lowered.extents[0] // compiled.target.lanes)
    return Routine(compiled.kernel, entry.places, entry.params(), compiled.ns_per_point * often)


def _launched_ns(entry: Launched) -> float:
    """What a launch may take: by a CPU's figures, which decide no more than how soon one looks for its end."""
    return nanoseconds(entry.source) if isinstance(entry.source, Run) else 0.0


def lines(sources: Sequence[Any]) -> str:
    """Positions in the user's program, as words."""
    return " or ".join(dict.fromkeys([source_info.summarize(source) for source in sources if source]))


def _where(entry: Launched) -> str:
    """Where a launch comes from in the user's program, if that is known."""
    if isinstance(entry.source, Run | FusedEpilogue):
        return lines((entry.source if isinstance(entry.source, Run) else entry.source.run).lowered.lines)
    return lines([entry.source.equation.source]) if isinstance(entry.source, Control) else ""


def _kernel(entry: Run, compiled: cache.Compiled, split: Split) -> Kernel:
    return Kernel(compiled.kernel, entry.operands, entry.lowered.params.block(), entry.outer, *split)


def _split_call(low: Lowered, compiled: cache.Compiled) -> Split:
    return split_call(low.nest, low.extents, low.points, compiled.ns_per_point)


def split_call(nest: ir.Nest, extents: Sequence[int], points: int, ns_per_point: float) -> Split:
    """How the runtime may split a call of a kernel, its cost, and its scratch memory."""
    split, extent, grain = split_at(nest, extents)
    first = extents[0] if extents else 1
    vector = extents[nest.vector] if nest.vector is not None else 1
    blocks = extent if split == "blocks" else 0
    return (
        split, extent, grain, points * ns_per_point, costs.scratch_bytes(nest, extents),
        partial_bytes(nest, extents, blocks), first, vector,
    )  # fmt: skip


def _chain(entry: Chain, kernel: Any) -> Kernel:
    """A chain of kernels as one kernel: the parameters one after the other, and where each begins."""
    begins = 1 + len(entry.runs) * ir.CHAIN_WORDS
    scratch = max(costs.scratch_bytes(run.lowered.nest, run.lowered.extents) for run in entry.runs)
    partial_at = -(-scratch // 64) * 64
    words, blocks, partial = [entry.block], b"", 0
    for run in entry.runs:
        low = run.lowered
        split, extent, _ = split_of(low)
        n_blocks = extent if split == "blocks" else 0
        vector = low.extents[low.nest.vector] if low.nest.vector is not None else 1
        factor = low.extents[0] // entry.rows if low.extents else 1
        whole = (0, low.extents[0] if low.extents else 1, 0, n_blocks or vector)
        words += [begins + len(blocks) // 8, factor, *whole, partial_at]
        blocks += low.params.block()
        partial = max(partial, partial_bytes(low.nest, low.extents, n_blocks))
    params = struct.pack(f"<{len(words)}q", *words) + blocks
    places = tuple([place for run in entry.runs for place in run.operands])
    cost = math.fsum([nanoseconds(run) for run in entry.runs])
    split = "first" if entry.rows > 1 else "none"
    memory = partial_at + partial
    return Kernel(kernel, places, params, (), split, entry.rows, 1, cost, memory, 0, entry.rows, 1)


def nanoseconds(run: Run) -> float:
    return run.lowered.points * costs.nanoseconds(run.lowered.nest)
