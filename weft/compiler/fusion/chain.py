"""Fuses scatters with the producers of their array and the consumers of their result into one function (a chain).

    kernel zeros -> a;  kernel scatter-add a;  kernel softmax a -> y       ->  for rows in blocks: all three

If a scatter's windows stay within rows of the array (a batched one, one entry per row) and its neighbours work on the
same rows, a block of rows runs through all kernels while it is in cache, on all workers. A scatter in strict order runs
as a whole, on one worker: its neighbours join it if they are short enough for one worker.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from weft import codegen  # noqa: F401 - the package is entered whole
from weft.codegen.nests import kernel_chains
from weft.compiler.checks import guards
from weft.compiler.plans.instructions import DonatedOutput, Guard
from weft.compiler.plans.link import nanoseconds
from weft.compiler.plans.steps import Chain, Plan, Run
from weft.loops import ir
from weft.loops.schedules.parallel import split_of

MOST = 8  # most kernels of a chain
SHORT_NS = 10_000.0  # nanoseconds: up to this time one worker is as fast as several
FEW_ROWS = 16  # rows: up to so many are not divided among workers
BLOCK_BYTES = 1 << 14  # bytes of a block of rows; with its other operands it fits the L1 cache


def chain(planned: Plan) -> Plan:
    """The plan with its scatters fused with their neighbours."""
    if len(planned.instructions) < 2:
        return planned
    kinds_of = {id(entry.lowered.nest): entry for entry in planned.instructions if isinstance(entry, Run)}
    if not any(map(_is_scatter, kinds_of.values())):
        return planned
    made: list[Any] = []
    runs: list[Any] = []
    for entry in [*planned.instructions, None]:
        if isinstance(entry, Run) or (isinstance(entry, Guard) and runs):
            runs.append(entry)
            continue
        made += guards.in_order(runs, lambda found: _joined(planned, found))
        made.append(entry)
        runs = []
    return planned.replace(instructions=made[:-1])


def _joined(planned: Plan, runs: Sequence[Run]) -> list[Any]:
    """Consecutive kernels, with those around each scatter fused."""
    made: list[list[Run]] = []
    for run in runs:
        group = [run]
        while made and _fits(planned, made[-1], group):
            group = [*made.pop(), *group]
        made.append(group)
    return [_chain(planned, group) for group in made]


def _is_scatter(run: Run) -> bool:
    return ir.Update in [type(s) for s in run.lowered.nest.statements()]


def _fits(planned: Plan, before: Sequence[Run], after: Sequence[Run]) -> bool:
    """Whether kernels with a scatter among them can be fused: they share memory, and have common rows or are short."""
    runs = [*before, *after]
    if len(runs) > MOST or not any(map(_is_scatter, runs)):
        return False
    shared = _written(planned, runs) & _touched(planned, before) & _touched(planned, after)
    return bool(shared) and _rows(planned, runs) > 0


def _rows(planned: Plan, runs: Sequence[Run]) -> int:
    """The number of rows over which kernels can be tiled: 1 if each runs as a whole, 0 if they cannot be fused."""
    if any(run.lowered.outer for run in runs):
        return 0
    extents = [run.lowered.extents[0] for run in runs if _is_scatter(run) and run.lowered.extents]
    rows = min(extents, default=0)
    if rows > FEW_ROWS and not _overlap(planned, runs) and all(_is_local(planned, run, rows, runs) for run in runs):
        return rows
    parallel = [run for run in runs if split_of(run.lowered)[0] != "none"]
    return 1 if all(nanoseconds(run) <= SHORT_NS and _runs_whole(run) for run in parallel) else 0


def _runs_whole(run: Run) -> bool:
    """Whether one call runs the whole kernel: a full reduction takes two, split columns one with another range."""
    return not run.lowered.nest.split or run.lowered.nest.dims[0].role == "reduced"


def _is_local(planned: Plan, run: Run, rows: int, runs: Sequence[Run]) -> bool:
    """Whether a kernel, in every row, accesses only that row of what the kernels write."""
    low, written = run.lowered, _written(planned, runs)
    if kernel_chains.walked(low.nest) is None or low.nest.split or low.extents[0] % rows:
        return False
    loaded_at = {s.operand for s in low.nest.statements() if isinstance(s, ir.LoadAt)}
    for k, (binding, (slot, offset, moved)) in enumerate(zip(low.operands, run.operands, strict=True)):
        if _memory(planned, slot) not in written:
            continue
        item, per_row = binding.dtype.itemsize, low.extents[0] // rows
        row = per_row * binding.strides[0] * item
        if moved >= 0 or k in loaded_at or row * rows != binding.variable.aval.nbytes or min(binding.strides) < 0:
            return False
        inner = zip((per_row, *low.extents[1:]), binding.strides, strict=True)
        if offset + item * (1 + sum((n - 1) * stride for n, stride in inner)) > row:
            return False
    return True


def _chain(planned: Plan, runs: Sequence[Run]) -> Run | Chain:
    if len(runs) == 1:
        return runs[0]
    rows = _rows(planned, runs)
    scatter = next(run for run in runs if _is_scatter(run))
    target = next(b.variable for b in scatter.lowered.operands if b.role == "out")
    block = max(1, BLOCK_BYTES * rows // max(target.aval.nbytes, 1))
    nest = ir.Chain(tuple([run.lowered.nest for run in runs]), "_".join([run.lowered.name for run in runs][-2:]))
    return Chain(tuple(runs), rows, min(block, rows), nest)


# memory


def _memory(planned: Plan, slot: int) -> int:
    """The slot that owns the memory: for a result in a donated input, that input."""
    position = slot - planned.n_inputs
    if 0 <= position < len(planned.outputs) and isinstance(found := planned.outputs[position], DonatedOutput):
        return found.source
    return slot


def _touched(planned: Plan, runs: Sequence[Run]) -> set[int]:
    return {_memory(planned, slot) for run in runs for slot, _, _ in run.operands}


def _written(planned: Plan, runs: Sequence[Run]) -> set[int]:
    return {
        _memory(planned, slot)
        for run in runs
        for binding, (slot, _, _) in zip(run.lowered.operands, run.operands, strict=True)
        if binding.role == "out"
    }


def _overlap(planned: Plan, runs: Sequence[Run]) -> bool:
    """Whether temporaries with different live ranges share memory, so that rows would not be independent."""
    first = planned.n_inputs + len(planned.outputs)
    spans = sorted([planned.temps[slot - first] for slot in _touched(planned, runs) if slot >= first])
    return any(low[0] + low[1] > high[0] for low, high in itertools.pairwise(spans))
