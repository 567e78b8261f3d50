"""The part of a grid that one core runs: ``core_axis`` of ``emit_pipeline``.

grid (8, 3), its first axis parallel, two cores   ->   core 0: cells 0 to 3 of the first axis, core 1: 4 to 7
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import operations as lax
from weft.experimental.pallas import cells
from weft.operations import collectives
from weft.operations.pointwise.convert import convert

PARALLEL = "parallel"
INT32 = np.dtype(np.int32)


def part(
    grid: Sequence[Any], core: Any, semantics: Sequence[Any] | None
) -> tuple[tuple[Any, ...], tuple[Any, ...] | None]:
    """(the extents of the part of this core, where it begins); (the grid, None) where there is one core.

    ``core``: the number of an axis of the kernel's grid, a name (or several), or None for all. The axis that is cut is
    the first parallel one whose extent is a multiple of the number of cores, or else the largest (of those that are
    not traced). ValueError if the semantics do not fit the grid, NotImplementedError if none is parallel.
    """
    grid = tuple(grid)
    if core is None:
        return grid, None
    if isinstance(core, int):
        count, number = cells.num_programs(core), cells.program_id(core)
    else:
        count, number = collectives.axis_size(core), collectives.axis_index(core)
    if not isinstance(count, int):
        raise NotImplementedError(f"[emit_pipeline] core_axis={core!r} has a traced extent: give the grid a known one")
    if count == 1:
        return grid, None
    words = [getattr(word, "value", word) for word in semantics or ["arbitrary"] * len(grid)]
    if len(words) != len(grid):
        raise ValueError(f"[emit_pipeline] dimension_semantics {words} are not one for each axis of the grid {grid}")
    parallel = [axis for axis, word in enumerate(words) if word == PARALLEL]
    if not parallel:
        raise NotImplementedError(
            f"[emit_pipeline] {count} cores along core_axis={core!r} share a grid without a parallel axis: say "
            f"dimension_semantics with {PARALLEL!r} for one of the axes of {grid}"
        )
    even = [axis for axis in parallel if isinstance(grid[axis], int) and grid[axis] % count == 0]
    known = [axis for axis in parallel if isinstance(grid[axis], int)]
    axis = even[0] if even else max(known, key=lambda axis: (grid[axis], -axis)) if known else parallel[0]
    return _cut(grid, axis, count, convert(number, INT32, False))


def _cut(grid: tuple[Any, ...], axis: int, count: int, number: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The first cores have one cell more along the axis than the others, if they cannot have the same."""
    extent = grid[axis]
    if isinstance(extent, int) and extent % count == 0:
        size: Any = extent // count
        first = lax.mul(number, np.int32(size))
    else:
        cells_ = convert(extent, INT32, False)
        each, rest = lax.div(cells_, np.int32(count)), lax.rem(cells_, np.int32(count))
        size = lax.add(each, convert(lax.lt(number, rest), INT32, False))
        first = lax.add(lax.mul(number, each), lax.min(number, rest))
    firsts = [np.int32(0)] * len(grid)
    return (*grid[:axis], size, *grid[axis + 1 :]), (*firsts[:axis], first, *firsts[axis + 1 :])
