"""A schedule as one line of text, printed with its nest in ``as_text("loops")``.

schedule: lanes i0 x16; 2 in flight, last masked; out1 streamed from 64 MB
schedule: lanes i1 x16; loops 2 | 1 | masked in flight; next row of in0 fetched
"""

from __future__ import annotations

from weft._base.target import Target
from weft.loops import ir
from weft.loops.routines import lane_tiles, routine
from weft.loops.schedules import decisions, lane_loops
from weft.loops.schedules.blocks import RowBlock
from weft.loops.schedules.decisions import ORDERED_BLOCK, RowPhase, Schedule, ShortRows, Stencil, Transposed
from weft.loops.schedules.lane_loops import LaneLoop


def text(nest: ir.Nest | routine.Routine, target: Target) -> str:
    """How the nest or routine is run on a target; nothing is decided for routines that are not in lanes."""
    if isinstance(nest, routine.Routine):
        return lane_tiles.text(nest, target) if nest.lanes else ""
    schedule = decisions.of(nest, target)
    if nest.vector is None:
        beside = f", {schedule.beside} side by side" if schedule.beside else ""
        return "schedule: " + (
            "runs of equal targets in a register" if nest.dims and nest.dims[0].runs else f"one by one{beside}"
        )
    parts = [f"lanes i{nest.vector} x{schedule.lanes}"]
    parts += _rows(schedule) if schedule.phases else _columns(schedule, target)
    if schedule.near and any(operand.strides[nest.vector] == ir.RUNTIME for operand in schedule.nest.operands):
        parts.append(f"strides {_listed('', schedule.near)} shuffled")
    if schedule.streamed is not None:
        stored = _listed("out", schedule.streamed.operands)
        parts.append(f"{stored} streamed from {schedule.streamed.bytes >> 20} MB")
    return "schedule: " + "; ".join([*parts, *_sides(schedule)])


def _listed(prefix: str, numbers: list[int] | tuple[int, ...]) -> str:
    return " ".join([f"{prefix}{number}" for number in numbers])


def _rows(schedule: Schedule) -> list[str]:
    runs = [run for run in schedule.phases if run.phase.body]
    found = [_loop(run) for run in runs]
    if len(set(found)) == 1:
        parts = [f"{found[0]} in flight, last masked" if len(runs[0].loops) > 1 and not runs[0].ordered else found[0]]
    else:
        parts = [f"loops {' | '.join(found)} in flight"]
    if schedule.together > 1:
        parts.append(f"{schedule.together} rows together")
    fetched = sorted({k for run in runs for k in run.fetched})
    return [*parts, *([f"next row of {_listed('in', fetched)} fetched"] if fetched else [])]


def _loop(run: RowPhase) -> str:
    if run.ordered:
        return f"{ORDERED_BLOCK} updates by vectors, then one by one"
    if run.first is not None:
        return f"{_loop(run.first)} ({'with' if run.flags else 'then'} positions)"
    return str(run.loops[0].vectors) if len(run.loops) > 1 else "masked"


def _columns(schedule: Schedule, target: Target) -> list[str]:
    masked = "masked, stores tested" if target.model.tests_masks else "masked"
    loop, tile = schedule.loops[-1], schedule.tile
    last = "last lanes one by one" if loop.rest == "apart" else "last masked"
    counts = [one.vectors for one in schedule.loops[:-1]]
    if isinstance(tile, RowBlock):
        parts = [f"blocks of {tile.rows} x {schedule.nest.row}", f"{len(tile.vectors)} of {tile.width} lanes"]
        return [", ".join([*parts, last] if tile.rows > 1 else parts)]
    if decisions.is_collapsed(schedule.nest):
        return [f"digits' values from tables, {counts[0]} in flight, {last}"]
    if isinstance(tile, Transposed):
        turned = _listed("in", tile.operands)
        return [f"{turned} transposed along i{tile.dim}, blocks of {tile.block} lanes"]
    if isinstance(tile, Stencil):
        fetched = ["next rows fetched"] if tile.fetched else []
        shuffled = f"{len(tile.shuffled)} of {len(tile.lines)} lines shuffled"
        return [f"{tile.rows} rows by {counts[0]} in flight, {last}", shuffled, *fetched]
    if loop.rest == "copied":
        return [f"{loop.vectors} in flight, last on padded copies", *_parts(loop)]
    parts = [f"{' then '.join(map(str, counts))} in flight, {last}" if counts else masked, *_parts(loop)]
    if schedule.passes is not None:
        parts.append(f"{schedule.passes.rows} rows at a time above {schedule.passes.columns} columns")
    return [*parts, *(_short(tile, schedule.nest) if isinstance(tile, ShortRows) else [])]


def _short(short: ShortRows, nest: ir.Nest) -> list[str]:
    parts = []
    if short.blocks:
        parts.append(f"blocks of {' '.join([f'{nest.operands[k].role}{k}' for k in short.blocks])} transposed")
    if any(short.looped_blocks if short.blocks else short.looped):
        parts.append("elements in a loop")
    if short.shared:
        parts.append(f"{_listed('v', [s.out for s in short.shared])} kept for {short.rows} points")
    return parts


def _parts(loop: LaneLoop) -> list[str]:
    if not loop.parts:
        return []
    values = _listed("v", [s.out for s in lane_loops.kept(loop)]) or "nothing"
    if not loop.block:
        return [f"in halves, {values} carried"]
    return [f"{len(loop.parts)} parts over blocks of {loop.block} elements, {values} kept"]


def _sides(schedule: Schedule) -> list[str]:
    """The values that are computed only where a select takes them."""
    return [f"{_listed('v', [one.out for one in s.statements])} where v{s.which} is {s.case}" for s in schedule.peeled]
