"""The order in which every reduction and running combination combines its elements, as a NumPy program.

The order depends only on the operand's logical shape, the reduced axes and the combiner (docs/NUMERICS.md). The last
maximal run of adjacent reduced axes is treated as one dimension, in row-major order; reduced axes before it are
iterated in order. If the run contains the operand's last axis the tree is "row" (32 lane accumulators), otherwise
"column" (element after element). The blocks of all rows go by groups of 256. Running combinations go by runs of 64
elements, blocks of 128 runs and groups of 256 blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.core import kinds
from weft.loops import numpy_emit

LANES = 32
BLOCK_LANES = 8192  # elements of a block of the tree "row"
BLOCK_ROWS = 256  # elements of a block of the tree "column": so many rows of the operand
RUN = 64  # elements that a running combination takes one by one; a block of it has BLOCK_LANES elements
GROUP_BLOCKS = 256

Values = tuple[np.ndarray, ...]


def reduce(kind: kinds.Reduction, arrays: Sequence[np.ndarray], params: dict[str, Any], avals: Sequence[Any]) -> Values:
    """A reduction of whole arrays along ``kind.axes(params)``; one array for each of its outputs."""
    axes = sorted(kind.axes(params))
    rank = arrays[0].ndim
    kept = [axis for axis in range(rank) if axis not in axes]
    first = len(axes)
    while first > 0 and (first == len(axes) or axes[first - 1] == axes[first] - 1):
        first -= 1
    outer, run = axes[:first], axes[first:]
    rows = []
    for array in arrays:
        moved = np.transpose(array, [*kept, *outer, *run])
        shape = moved.shape[: len(kept)]
        n_outer = int(np.prod(moved.shape[len(kept) : len(kept) + len(outer)], dtype=np.int64))
        n_run = int(np.prod(moved.shape[len(kept) + len(outer) :], dtype=np.int64))
        rows.append(np.ascontiguousarray(moved).reshape(*shape, n_outer, n_run))
    tree = "row" if axes and axes[-1] == rank - 1 else "column"
    accumulators = [(np.dtype(dtype), identity) for dtype, identity in kind.accumulators(avals, params)]
    return reduce_rows(kind, rows, params, accumulators, tree)


def reduce_rows(
    kind: kinds.Reduction, rows: Sequence[np.ndarray], params: dict[str, Any], accumulators: Sequence[Any], tree: str
) -> Values:
    """The tree over arrays of shape (kept..., outer, run)."""
    emit = numpy_emit.NumpyEmit()
    shape, n_outer, n_run = rows[0].shape[:-2], *rows[0].shape[-2:]
    block, reduce_block = (BLOCK_LANES, _block_lanes) if tree == "row" else (BLOCK_ROWS, _block_rows)
    blocks = [(outer, start) for outer in range(n_outer) for start in range(0, n_run, block)]
    with np.errstate(all="ignore"):
        total = _identity(accumulators, shape)
        for first in range(0, len(blocks), GROUP_BLOCKS):
            group = _identity(accumulators, shape)
            for outer, start in blocks[first : first + GROUP_BLOCKS]:
                values = [row[..., outer, start : start + block] for row in rows]
                partial = reduce_block(emit, kind, values, params, accumulators, start)
                group = tuple(kind.combine(emit, group, partial, **params))
            total = tuple(kind.combine(emit, total, group, **params))
        return tuple(np.asarray(out) for out in kind.finish(emit, total, **params))


def _identity(accumulators: Sequence[Any], shape: tuple[int, ...]) -> Values:
    return tuple(np.full(shape, identity, dtype) for dtype, identity in accumulators)


def _prepared(
    emit: Any, kind: kinds.Reduction, values: Sequence[np.ndarray], params: dict[str, Any], start: int
) -> Values:
    index = start + np.arange(values[0].shape[-1], dtype=np.int64)
    prepared = kind.prepare(emit, tuple(values), index if kind.needs_index else None, **params)
    return tuple(np.broadcast_to(value, values[0].shape) for value in prepared)


def _block_lanes(
    emit: Any, kind: kinds.Reduction, values: Sequence[np.ndarray], params: dict[str, Any], accumulators: Any, at: int
) -> Values:
    """Element i goes to lane i % 32; then lane l takes lane l + 16, l + 8, l + 4, l + 2, l + 1."""
    shape = values[0].shape[:-1]
    lanes = _identity(accumulators, (*shape, LANES))
    prepared = _prepared(emit, kind, values, params, at)
    for start in range(0, values[0].shape[-1], LANES):
        chunk = tuple(value[..., start : start + LANES] for value in prepared)
        count = chunk[0].shape[-1]
        new = kind.combine(emit, tuple(lane[..., :count] for lane in lanes), chunk, **params)
        lanes = tuple(np.concatenate([n, lane[..., count:]], -1) for n, lane in zip(new, lanes, strict=True))
    width = LANES
    while width > 1:
        width //= 2
        left, right = (tuple(lane[..., s] for lane in lanes) for s in (slice(0, width), slice(width, 2 * width)))
        lanes = tuple(kind.combine(emit, left, right, **params))
    return tuple(lane[..., 0] for lane in lanes)


def _block_rows(
    emit: Any, kind: kinds.Reduction, values: Sequence[np.ndarray], params: dict[str, Any], accumulators: Any, at: int
) -> Values:
    """Elements in order."""
    acc = _identity(accumulators, values[0].shape[:-1])
    prepared = _prepared(emit, kind, values, params, at)
    for i in range(values[0].shape[-1]):
        acc = tuple(kind.combine(emit, acc, tuple(value[..., i] for value in prepared), **params))
    return acc


def running(
    kind: kinds.Cumulative, arrays: Sequence[np.ndarray], params: dict[str, Any], accumulators: Sequence[Any]
) -> Values:
    """A running combination along the last axis; results before they are rounded to the outputs' dtypes."""
    emit, shape, length = numpy_emit.NumpyEmit(), arrays[0].shape[:-1], arrays[0].shape[-1]
    width = min(length, RUN)
    if not width:
        return tuple(arrays)

    def combined(left: Values, right: Values) -> Values:
        return tuple(kind.combine(emit, left, right, **params))

    with np.errstate(all="ignore"):
        padding = [*[(0, 0) for _ in shape], (0, -length % width)]
        wide = [np.pad(array.astype(dtype), padding) for array, (dtype, _) in zip(arrays, accumulators, strict=True)]
        elements = [array.reshape(*shape, array.shape[-1] // width, width) for array in wide]
        state, states = _identity(accumulators, elements[0].shape[:-1]), []
        for i in range(width):
            state = combined(state, tuple(array[..., i] for array in elements))
            states.append(state)
        local = _stacked(states)
        bases = _bases([tuple(end[..., k] for end in state) for k in range(elements[0].shape[-2] - 1)],
                       _identity(accumulators, shape), combined)  # fmt: skip
        if bases:
            before = tuple(base[..., None] for base in _stacked(bases))
            whole = combined(before, tuple(one[..., 1:, :] for one in local))
            local = tuple(np.concatenate([one[..., :1, :], w], -2) for one, w in zip(local, whole, strict=True))
        rows = tuple(one.reshape(wide[0].shape)[..., :length] for one in local)
        return tuple(np.asarray(out) for out in kind.finish(emit, rows, **params))


def _stacked(states: Sequence[Values]) -> Values:
    return tuple(np.stack(column, -1) for column in zip(*states, strict=True))


def _bases(ends: Sequence[Values], identity: Values, combined: Callable[[Values, Values], Values]) -> list[Values]:
    """What was before each run but the first, from the combinations of the runs."""
    groups, blocks, runs, bases = identity, identity, identity, []
    for number, end in enumerate(ends, 1):
        runs = combined(runs, end)
        inside = combined(blocks, runs)
        bases.append(combined(groups, inside))
        if number * RUN % BLOCK_LANES == 0:
            blocks, runs = inside, identity
        if number * RUN % (GROUP_BLOCKS * BLOCK_LANES) == 0:
            groups, blocks = bases[-1], identity
    return bases
