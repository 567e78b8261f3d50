"""Runs a nest with NumPy: an oracle between the reference interpreter and machine code.

Values are whole arrays over the nest's space (parallel dimensions, then reduced ones); loads gather, stores scatter,
reductions use ``loops.reduction_tree``. Statements run in the order of the schedule for this machine: the halves of a
body one after the other, the sides of a select only for points that take them. It is slow on purpose, to be simple.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft._base import target
from weft.core.symbolic.sizes import present
from weft.loops import ir, reduction_tree
from weft.loops.nests import Lowered
from weft.loops.schedules import decisions, peeled_regions


@dataclass(slots=True)
class _Run:
    """One call: flat buffers, element offsets and strides of the operands, the space, values so far."""

    nest: ir.Nest
    buffers: Sequence[np.ndarray]
    positions: list[np.ndarray]  # for each operand the positions that are accessed, over the whole space
    extents: tuple[int, ...]
    indices: list[np.ndarray]  # for each dimension its index, over the whole space
    scalars: list[Any]
    values: dict[int, Any] = field(default_factory=dict)
    rows: dict[int, np.ndarray] = field(default_factory=dict)


def interpret(low: Lowered, buffers: Sequence[np.ndarray], offsets: Sequence[int] | None = None) -> None:
    """Run a lowered kernel on flat buffers, one for each operand; ``offsets`` replace the bindings' own."""
    starts = [b.offset for b in low.operands] if offsets is None else list(offsets)
    for around in np.ndindex(*low.outer):
        bases = [s + sum(i * step for i, step in zip(around, b.outer, strict=True))
                 for s, b in zip(starts, low.operands, strict=True)]  # fmt: skip
        indices = _indices(low.nest, low.extents)
        positions = [_positions(base, b.strides, indices) for base, b in zip(bases, low.operands, strict=True)]
        extents = low.extents[: len(low.extents) - len(low.nest.digits)]
        schedule = decisions.of(low.nest, target.host())
        nest = schedule.nest  # in which extrema of half precisions may be those of words
        words = [b.view(o.dtype) if b.dtype != o.dtype else b for b, o in zip(buffers, nest.operands, strict=True)]
        run = _Run(nest, words, positions, extents, indices, _scalars(low))
        _statements(run, nest.setup)
        for phase in nest.phases:
            _scheduled(run, phase.before, schedule)
            loop = schedule.loops[-1] if schedule.loops else None
            for statements in [part.statements for part in loop.parts] if loop and loop.parts else [phase.body]:
                _scheduled(run, statements, schedule)
            for reduction in phase.reductions:
                _reduce(run, reduction)
        _statements(run, nest.edges)


def _scheduled(run: _Run, statements: Sequence[ir.Statement], schedule: decisions.Schedule) -> None:
    """The statements in the order of the schedule."""
    for s in peeled_regions.grouped(statements, schedule.peeled):
        if isinstance(s, peeled_regions.PeeledRegion):
            _side(run, s)
        else:
            _statements(run, [s])


def _side(run: _Run, side: peeled_regions.PeeledRegion) -> None:
    """Statements of one case; their value elsewhere is that of a case that nobody takes."""
    _statements(run, side.statements)
    last, which = side.statements[-1].out, np.asarray(run.values[side.which])
    if which.dtype == bool:
        value, taken = np.broadcast_arrays(run.values[last], which == bool(side.case))
        run.values[last] = np.where(taken, value, np.zeros((), value.dtype))
    for s in side.statements[:-1]:
        del run.values[s.out]  # nothing else may use them


def _indices(nest: ir.Nest, extents: Sequence[int]) -> list[np.ndarray]:
    """The index along every loop, then the digits of the last loop (see ``ir``)."""
    rank = len(extents) - len(nest.digits)
    indices = []
    for dim, extent in enumerate(extents[:rank]):
        shape = [1] * rank
        shape[dim] = extent
        indices.append(np.arange(extent, dtype=np.int64).reshape(shape))
    if nest.digits:
        indices += [np.asarray(digit) for digit in np.unravel_index(indices[-1], extents[rank:])]
    return indices


def _positions(base: int, strides: Sequence[int], indices: Sequence[np.ndarray]) -> np.ndarray:
    total = np.full((1,) * (indices[0].ndim if indices else 0), base, np.int64)
    for stride, index in zip(strides, indices, strict=True):
        if stride:
            total = total + stride * index
    return total


def _scalars(low: Lowered) -> list[Any]:
    """The scalar parameters."""
    return [np.asarray(present(value), dtype)[()] for dtype, value in low.params.scalars]


def _statements(run: _Run, statements: Sequence[ir.Statement]) -> None:
    values = run.values
    for s in statements:
        match s:
            case ir.Load(out, operand):
                values[out] = run.buffers[operand][run.positions[operand]]
            case ir.Store(operand, value):
                _store(run, operand, values[value])
            case ir.LoadAt(out, operand, offset, inside):
                positions = run.positions[operand] + values[offset].astype(np.int64)
                values[out] = _loaded(run.buffers[operand], positions, True if inside is None else values[inside])
            case ir.Update():
                _update(run, s)
            case ir.RowStore(row, value):
                run.rows[row] = np.asarray(values[value])
            case ir.RowLoad(out, row):
                values[out] = run.rows[row]
            case ir.Param(out, index, dtype):
                values[out] = np.asarray(run.scalars[index], dtype)
            case ir.IndexOf(out, dim, dtype):
                values[out] = run.indices[dim].astype(dtype)
            case ir.Apply():
                _apply(s, values)
            case ir.Scan():
                _scan(run, s)


def _loaded(buffer: np.ndarray, positions: np.ndarray, inside: Any) -> np.ndarray:
    """The elements at ``positions``, all of them in the buffer where ``inside`` holds; zero elsewhere."""
    positions, inside = np.broadcast_arrays(positions, inside)
    read = positions[inside]
    assert not read.size or (read.min() >= 0 and read.max() < buffer.size), "a load outside its operand"
    found = np.zeros(positions.shape, buffer.dtype)
    found[inside] = buffer[read]
    return found


def _store(run: _Run, operand: int, value: Any) -> None:
    """Write a value; at row level the reduced dimensions have extent 1."""
    positions = run.positions[operand]
    shape = np.broadcast_shapes(positions.shape, np.shape(value))
    if 0 in shape or 0 in positions.shape:
        return
    run.buffers[operand][np.broadcast_to(positions, shape)] = np.broadcast_to(value, shape)


def applied(s: ir.Apply, args: Sequence[Any]) -> np.ndarray:
    """The value of an elementwise statement of these arguments."""
    operands = np.broadcast_arrays(*args) if args else []
    with np.errstate(all="ignore"):
        result = np.asarray(s.kind.reference(*operands, **dict(s.params)))
    assert result.dtype == s.dtype, f"{s.name} gave {result.dtype}, not {s.dtype}"
    return result


def _apply(s: ir.Apply, values: dict[int, Any]) -> None:
    values[s.out] = applied(s, [values[arg] for arg in s.args])


def _update(run: _Run, s: ir.Update) -> None:
    """Apply the updates of one reduced index after another, those of all parallel points at once."""
    n_parallel = sum(dim.role == "parallel" for dim in run.nest.dims)
    positions = _space(run, run.positions[s.operand] + run.values[s.offset].astype(np.int64))
    inside = _space(run, True if s.inside is None else run.values[s.inside])
    used = {arg for step in s.steps for arg in step.args} | {s.new}
    given = {n: _space(run, run.values[n]) for n in used if n in run.values}
    buffer = run.buffers[s.operand]
    for at in np.ndindex(*run.extents[n_parallel:]):
        here = (*[slice(None)] * n_parallel, *at)
        keep = inside[here]
        position = positions[here][keep]
        values = {s.old: buffer[position], **{n: value[here][keep] for n, value in given.items()}}
        for step in s.steps:
            _apply(step, values)
        buffer[position] = np.broadcast_to(values[s.new], position.shape)


def _space(run: _Run, value: Any) -> np.ndarray:
    shape = run.extents
    value = np.asarray(value)
    return np.broadcast_to(value.reshape((1,) * (len(shape) - value.ndim) + value.shape), shape)


def _reduce(run: _Run, s: ir.Reduce) -> None:
    n_parallel = sum(dim.role == "parallel" for dim in run.nest.dims)
    reduced = run.extents[n_parallel:]
    rows = []
    for arg in s.args:
        full = np.ascontiguousarray(_space(run, run.values[arg]))
        n_outer = int(np.prod(reduced[:-1], dtype=np.int64))
        rows.append(full.reshape(*run.extents[:n_parallel], n_outer, reduced[-1]))
    outs = reduction_tree.reduce_rows(s.kind, rows, dict(s.params), s.accumulators, s.tree)
    for out, result, dtype in zip(s.outs, outs, s.dtypes, strict=True):
        run.values[out] = np.asarray(result).astype(dtype).reshape(*result.shape, *[1] * len(reduced))


def _scan(run: _Run, s: ir.Scan) -> None:
    """Along the one reduced dimension, which is the last of the nest."""
    arrays = [np.ascontiguousarray(_space(run, run.values[arg])) for arg in s.args]
    outs = reduction_tree.running(s.kind, arrays, dict(s.params), s.accumulators)
    for out, result, dtype in zip(s.outs, outs, s.dtypes, strict=True):
        run.values[out] = np.asarray(result).astype(dtype)
