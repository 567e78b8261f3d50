"""Links a plan with its kernels: makes the runtime's instructions with machine code, parameters and ways to split.

kernel exp [4096x1024] 0+0 1+0    ->    Kernel(<code>, ((0, 0, -1), (1, 0, -1)), params, (), "first", 4096, ...)
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

from weft.compiler.plans.instructions import Instruction, Kernel, Launch, Nested, Routine
from weft.compiler.plans.steps import ByLibrary, Chain, Control, FusedEpilogue, Launched, Native, Plan, Run
from weft.compiler.storage import cache
from weft.core.programs.jaxpr import ClosedJaxpr
from weft.core.tracing import source_info
from weft.loops import ir
from weft.loops.nests import Lowered
from weft.loops.schedules import costs
from weft.loops.schedules.parallel import Outline

UNKNOWN_TRIPS = 1000  # assumed iterations of a loop that ends by a condition

Split = tuple[str, int, int, float, int, int, int, int]  # the fields of a Kernel from ``split`` on


def instructions(
    planned: Plan, kernels: Sequence[cache.Compiled], nested: Callable[[ClosedJaxpr, tuple[bool, ...]], Nested]
) -> list[Instruction]:
    """The instructions of a plan; ``nested``: the Executable and the constants of a program that control flow runs."""
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
            made.append(_chain(entry, next(compiled)))
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
    trips, (lanes, nanoseconds) = entry.lowered.trips, compiled.outline
    often = math.prod(trips) if trips else UNKNOWN_TRIPS
    if lanes:
        often *= -(-entry.lowered.extents[0] // compiled.target.lanes)
    return Routine(compiled.kernel, entry.locations, entry.params(), nanoseconds * often)


def _launched_ns(entry: Launched) -> float:
    """About how long a launch takes. A CPU's figures are good enough: the number decides only how soon somebody looks
    for its end."""
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
    return split_call(compiled.outline, low.outer, low.extents)


def split_call(outline: Outline, outer: Sequence[int], extents: Sequence[int]) -> Split:
    """How the runtime may split a call of a kernel, its cost, and its scratch memory."""
    split, extent, grain = outline.split_at(extents)
    first = extents[0] if extents else 1
    vector = extents[outline.vector] if outline.vector is not None else 1
    return (
        split, extent, grain, outline.points(outer, extents) * outline.nanoseconds, outline.scratch_bytes(extents),
        outline.partial_bytes(split, extents), first, vector,
    )  # fmt: skip


def _chain(entry: Chain, compiled: cache.Compiled) -> Kernel:
    """A chain of kernels as one kernel: the parameters one after the other, and where each begins."""
    begins = 1 + len(entry.runs) * ir.CHAIN_WORDS
    splits = [split_call(o, r.lowered.outer, r.lowered.extents) for r, o in zip(entry.runs, compiled.outline)]
    partial_at = -(-max([split[4] for split in splits]) // 64) * 64
    words, blocks = [entry.block], b""
    for run, (split, extent, _, _, _, _, first, vector) in zip(entry.runs, splits):
        factor = first // entry.rows if run.lowered.extents else 1
        last = (split == "blocks" and extent) or vector
        words += [begins + len(blocks) // 8, factor, 0, first, 0, last, partial_at]
        blocks += run.lowered.params.block()
    params = struct.pack(f"<{len(words)}q", *words) + blocks
    locations = tuple([location for run in entry.runs for location in run.operands])
    cost, partial = math.fsum([split[3] for split in splits]), max([split[5] for split in splits])
    split, memory = "first" if entry.rows > 1 else "none", partial_at + partial
    return Kernel(compiled.kernel, locations, params, (), split, entry.rows, 1, cost, memory, 0, entry.rows, 1)


def nanoseconds(run: Run) -> float:
    return run.lowered.points * costs.nanoseconds(run.lowered.nest)
