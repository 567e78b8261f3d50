"""Runs a routine with NumPy: an oracle between the reference interpreter and machine code, as ``loop_interpreter``.

A value is an array (lanes, size): one row for each lane, a single one if it is common to all lanes or there are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.compiler.matrix_products import exact_products
from tests.loops import loop_interpreter
from weft.loops import ir, reduction_tree
from weft.loops.routines import routine
from weft.loops.routines.register_promotion import Lowered


@dataclass(slots=True)
class _Run:
    """One call: flat buffers of the operands, the parameters, the number of lanes, values so far."""

    program: routine.Routine
    low: Lowered
    buffers: Sequence[np.ndarray]
    lanes: int
    values: dict[int, np.ndarray] = field(default_factory=dict)
    row: int = 0  # of the enclosing loop's iteration


def interpret(low: Lowered, buffers: Sequence[np.ndarray]) -> None:
    """Run a routine on flat buffers, one for each operand."""
    program = low.routine
    run = _Run(program, low, buffers, low.extents[0] if program.lanes else 1)
    if run.lanes:  # without lanes nothing runs
        with np.errstate(all="ignore"):
            _block(run, program.block)


def _block(run: _Run, block: routine.Block) -> list[np.ndarray]:
    for s in block.statements:
        _statement(run, s)
    return [run.values[n] for n in block.results]


def _define(run: _Run, out: int, value: np.ndarray) -> None:
    """The value of a number: of its dtype, with its number of elements, in each lane if it differs between them."""
    kind = run.program.types[out]
    assert value.dtype == kind.dtype and value.shape[1] == kind.size, (out, value.dtype, value.shape, kind)
    assert kind.lanes or len(value) == 1, f"v{out} is common to all lanes, but made of values that are not"
    run.values[out] = np.broadcast_to(value, (run.lanes if kind.lanes else 1, kind.size))


def _statement(run: _Run, s: Any) -> None:
    values, types = run.values, run.program.types
    match s:
        case routine.Constant(out, bits):
            _define(run, out, np.frombuffer(bits, types[out].dtype).reshape(1, -1))
        case ir.Param(out, index):
            _define(run, out, np.asarray(run.low.scalars[index], types[out].dtype).reshape(1, 1))
        case routine.Pick(out, sources):
            columns = np.broadcast_arrays(*[values[value][:, element] for value, element in sources])
            _define(run, out, np.stack(columns, 1))
        case routine.Spread(out, value):
            _define(run, out, values[value])
        case ir.Apply():
            _define(run, s.out, loop_interpreter.applied(s, [values[n] for n in s.args]))
        case routine.Fold():
            _fold(run, s)
        case routine.Running():
            _running(run, s)
        case routine.Product():
            _define(run, s.out, _product(s, values[s.lhs], values[s.rhs]))
        case ir.Load(out, operand):
            positions = _positions(run, operand, types[out].size)
            _define(run, out, run.buffers[operand][positions])
        case ir.Store(operand, value):
            run.buffers[operand][_positions(run, operand, types[value].size)] = values[value]
        case routine.Slice():
            source = values[s.value] if s.value is not None else run.buffers[s.operand or 0][None]
            starts = s.starts if s.value is not None else _sized(run, s.starts)
            _define(run, s.out, source[:, np.asarray(s.offsets, np.int64) + _offset(run, starts, s.guarded)])
        case routine.Take():
            source = values[s.value] if s.value is not None else run.buffers[s.operand or 0][None]
            source, index = np.broadcast_arrays(source[:, None], values[s.index][..., None])[0], values[s.index]
            _define(run, s.out, np.take_along_axis(source, index[..., None].astype(np.int64), 2)[..., 0])
        case routine.Update():
            updated = values[s.value].copy()
            updated[:, np.asarray(s.offsets, np.int64) + _offset(run, s.starts, s.guarded)] = values[s.update]
            _define(run, s.out, updated)
        case ir.Guard(operand, value):
            _guard(run, operand, values[value])
        case routine.Repeat():
            _repeat(run, s)
        case routine.Choose():
            case_ = min(max(_one(run, s.index), 0), len(s.blocks) - 1)
            for out, result in zip(s.outs, _block(run, s.blocks[case_]), strict=True):
                _define(run, out, result)
        case _:
            raise AssertionError(f"no meaning for {type(s).__name__}")


def _one(run: _Run, n: int) -> int:
    (value,) = run.values[n].ravel()
    return int(value)


def _positions(run: _Run, operand: int, size: int) -> np.ndarray:
    """The positions of an operand, or of its row: (lanes, size)."""
    info = run.program.operands[operand]
    lanes = run.lanes if info.lanes else 1
    first = run.row * lanes if info.size else 0
    return (first + np.arange(lanes)[:, None]) * size + np.arange(size)


def _sized(run: _Run, starts: Sequence[tuple[int, int, int | None]]) -> list[tuple[int, int, int]]:
    """Starts in an array in memory, with its sizes."""
    sizes = run.low.extents
    return [(start, sizes[most], 1 if stride is None else sizes[stride]) for start, most, stride in starts]


def _offset(run: _Run, starts: Sequence[tuple[int, int, int | None]], guarded: bool) -> int:
    total = 0
    for n, most, stride in starts:
        start = _one(run, n)
        clamped = min(max(start, 0), most)
        total += clamped * (1 if stride is None else stride)
        if guarded:
            _guard(run, -1, np.asarray(clamped != start))
    return total


def _guard(run: _Run, operand: int, found: np.ndarray) -> None:
    if found.any():
        run.buffers[operand][0] = 1


def _fold(run: _Run, s: routine.Fold) -> None:
    order = np.arange(s.kept * s.outer * s.run) if s.positions is None else np.asarray(s.positions)
    rows = [run.values[n][:, order].reshape(-1, s.kept, s.outer, s.run) for n in s.args]
    outs = reduction_tree.reduce_rows(s.kind, rows, dict(s.params), s.accumulators, s.tree)
    for out, result in zip(s.outs, outs, strict=True):
        _define(run, out, np.asarray(result).astype(run.program.types[out].dtype))


def _running(run: _Run, s: routine.Running) -> None:
    arrays = [run.values[n].reshape(len(run.values[n]), s.run, -1).swapaxes(1, 2) for n in s.args]
    outs = reduction_tree.running(s.kind, arrays, dict(s.params), s.accumulators)
    for out, result in zip(s.outs, outs, strict=True):
        moved = result.swapaxes(1, 2).reshape(len(result), -1)
        _define(run, out, moved.astype(run.program.types[out].dtype))


def _product(s: routine.Product, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    """Terms in order, each rounded once with the sum; those of complex numbers are rounded before."""
    batch, m, n, k = s.extents
    left, right = lhs.reshape(-1, batch, m, 1, k), rhs.reshape(-1, batch, 1, k, n).swapaxes(3, 4)
    total = left[..., 0] * right[..., 0]
    for step in range(1, k):
        pair = left[..., step], right[..., step]
        total = exact_products.fma(*pair, total) if lhs.dtype.kind == "f" else total + np.multiply(*pair)
    return total.reshape(len(total), -1)


def _repeat(run: _Run, s: routine.Repeat) -> None:
    state, outer, count = [run.values[n] for n in s.initial], run.row, 0
    trips = None if s.trips is None else run.low.trips[s.trips]
    while True:
        if s.cond is not None:
            _arguments(run, s.cond, state)
            (goes_on,) = _block(run, s.cond)
            assert s.by_element or goes_on.size == 1
            if not goes_on.any():
                break
        elif count == trips:
            break
        run.row = trips - 1 - count if s.reverse and trips is not None else count
        _arguments(run, s.body, state)
        state, count = _block(run, s.body), count + 1
    run.row = outer
    for out, value in zip(s.outs, state, strict=True):
        _define(run, out, value)


def _arguments(run: _Run, block: routine.Block, state: Sequence[np.ndarray]) -> None:
    for n, value in zip(block.arguments, state, strict=True):
        _define(run, n, value)
