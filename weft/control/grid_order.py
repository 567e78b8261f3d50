"""Which cells of a grid may run at the same time: those that write to different blocks, and read no block of another.

    grid (i, j, k), a block of the output for every (i, j), a sum kept over k   ->   apart (i, j), in order k

Index maps are computed for all cells beforehand, in NumPy, unless they depend on prefetched arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from weft._base.record import Record
from weft.control import known_scalars
from weft.core.programs.rewrite import dce

if TYPE_CHECKING:
    from weft.control.grid_cells import Parts

# Cells of a grid: index maps of larger grids are not computed beforehand. So many cells of two matrices in blocks take
# 0.2 s and 90 MB.
MOST_CELLS = 1 << 20
PARALLEL, ARBITRARY = "parallel", "arbitrary"


class Order(Record):
    """Axes whose cells run apart, and axes whose cells run one after the other.

    ``starts``: for each array the first elements of its blocks, i[cells apart, cells in order, dimensions]; None if
    they depend on prefetched arrays. ``kept``: for each output, whether all cells in order write to one block (else
    each writes to another). ``read``: for each output and scratch array, whether the first cell in order reads it.
    """

    apart: tuple[int, ...]
    inner: tuple[int, ...]
    starts: tuple[np.ndarray | None, ...]
    kept: tuple[bool, ...]
    read: tuple[bool, ...]


def order(parts: Parts) -> Order | None:
    """How cells may run apart; None if they run in row-major order.

    ValueError if cells that differ along a parallel axis write to the same block.
    """
    grid, n_in = parts.grid, len(parts.inputs)
    has_effects = any(program.effects for program in (parts.body, *parts.maps))
    if not parts.outputs or not 1 < math.prod(grid) <= MOST_CELLS or has_effects:
        return None
    tables = [_starts(parts, which) for which in range(len(parts.arrays))]
    numbers = [_numbers(parts, which, tables[which]) for which in range(n_in, len(tables))]
    shared = [axis for axis in range(len(grid)) if not all(_is_free(grid, axis, found) for found in numbers)]
    _check_parallel(parts, shared, numbers)
    free = tuple([axis for axis in range(len(grid)) if axis not in shared])
    parallel = tuple([axis for axis in free if parts.semantics[axis] == PARALLEL])
    for apart, trusted in (*[(free[:n], False) for n in range(len(free), 0, -1)], (parallel, True)):
        inner = tuple([axis for axis in range(len(grid)) if axis not in apart])
        if math.prod([grid[axis] for axis in apart]) <= 1:
            continue
        read = _reads_at_first(parts, inner)
        kept = [_is_kept(_sorted(found, grid, apart, inner)) for found in numbers if found is not None]
        if None in kept or (any(read[len(parts.outputs) :]) and not trusted):
            continue
        ordered = [None if table is None else _sorted(table, grid, apart, inner) for table in tables]
        return Order(apart, inner, tuple(ordered), tuple(map(bool, kept)), tuple(read))
    return None


def _check_parallel(parts: Parts, shared: Sequence[int], numbers: Sequence[np.ndarray | None]) -> None:
    """ValueError for a block that some cells along a parallel axis, but not all, write to.

    A block that all cells share is allowed: kernels for a TPU have scratch among their outputs. Such cells run in
    order.
    """
    for axis in shared:
        if parts.semantics[axis] != PARALLEL:
            continue
        for which, found in enumerate(numbers):
            if found is not None and np.any(found != found[0]) and not _is_free(parts.grid, axis, found):
                raise ValueError(
                    f"[{parts.name}] cells that differ along axis {axis} of the grid {parts.grid} write to the same "
                    f"block of output {which}, but the axis is said to be {PARALLEL!r}: which of them is last is not "
                    f"known. Say {ARBITRARY!r} for it, or let the index map of the output depend on it"
                )


def _starts(parts: Parts, which: int) -> np.ndarray | None:
    """The first elements of the blocks of an array, i[cells, dimensions]; None if they depend on prefetched arrays."""
    grid, block = parts.grid, parts.blocks[which]
    padded = block.padded(parts.arrays[which].shape)
    ids = [np.ravel(x).astype(np.int32) for x in np.indices(grid)]
    unknown = [None] * len(parts.prefetched)
    found = known_scalars.results(parts.maps[which], [*ids, *unknown])
    if found is None:
        return None
    table = np.zeros((math.prod(grid), len(padded)), np.int64)
    for d, (index, step, extent, size) in enumerate(zip(found, block.steps(), padded, block.shape, strict=True)):
        first = np.asarray(index).astype(np.int32) * np.int32(step)
        table[:, d] = np.clip(np.where(first < 0, first + extent, first), 0, extent - size)
    return table


def _numbers(parts: Parts, which: int, table: np.ndarray | None) -> np.ndarray | None:
    """A number for the block of each cell, equal for equal blocks; None if blocks may overlap otherwise."""
    block = parts.blocks[which]
    if table is None or np.any(table % np.asarray(block.shape, np.int64)):
        return None
    padded = block.padded(parts.arrays[which].shape)
    number = np.zeros(len(table), np.int64)
    for d, (extent, size) in enumerate(zip(padded, block.shape, strict=True)):
        number = number * -(-extent // size) + table[:, d] // size
    return number


def _is_free(grid: Sequence[int], axis: int, numbers: np.ndarray | None) -> bool:
    """Whether cells that differ along an axis always write to different blocks."""
    if grid[axis] == 1:
        return True
    if numbers is None:
        return False
    position = np.ravel(np.indices(grid)[axis])
    by_block = np.lexsort((position, numbers))
    return not np.any((np.diff(numbers[by_block]) == 0) & (np.diff(position[by_block]) != 0))


def _sorted(table: np.ndarray, grid: Sequence[int], apart: Sequence[int], inner: Sequence[int]) -> np.ndarray:
    """What is known of cells, as [cells apart, cells in order, ...]."""
    rest = table.shape[1:]
    axes = (*apart, *inner, *range(len(grid), len(grid) + len(rest)))
    counts = [math.prod([grid[axis] for axis in some]) for some in (apart, inner)]
    return table.reshape(*grid, *rest).transpose(axes).reshape(*counts, *rest)


def _is_kept(numbers: np.ndarray) -> bool | None:
    """True if cells in order all write to one block, False if each writes to another, None if it is neither."""
    if numbers.shape[1] == 1 or not np.any(np.diff(numbers, axis=1)):
        return True
    ascending = np.sort(numbers, axis=1)
    return False if np.all(np.diff(ascending, axis=1)) else None


def _reads_at_first(parts: Parts, inner: Sequence[int]) -> list[bool]:
    """For each output and scratch array, whether the first of cells in order reads what it holds before."""
    first = len(parts.captured)
    zero = np.zeros(1, np.int32)
    known = {first + axis: zero for axis in range(len(parts.grid)) if axis in inner or parts.grid[axis] == 1}
    used = dce(known_scalars.specialised(parts.body, known).jaxpr)[1]
    return used[len(used) - len(parts.outputs) - len(parts.scratch) :]
