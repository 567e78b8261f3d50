"""Position and Instance: the indices at the code being written, and the values of one vector of a tile."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft._base.record import Record, field
from weft.codegen.arithmetic.emitter import Emitter, Value
from weft.codegen.memory_access.memory import Mask, Memory
from weft.loops import elements, ir
from weft.loops.schedules import lane_loops


class Position(Record):
    """The loop indices and pointers at the code being written."""

    pointers: dict[int, str]  # operand -> address at the current indices, the vector dimension's left out
    indices: dict[int, str]  # dimension -> index
    row: str = "0"  # linear index over the reduced dimensions entered so far


class Instance(Record, frozen=False):
    """One vector (or scalar) for which statements are emitted."""

    emit: Emitter
    memory: Memory
    values: dict[int, Value]
    index: str | None = None  # along the vector dimension; None outside its loop
    mask: Mask | None = None
    slot: int = 0  # first lane within the tile
    states: dict[int, tuple[Value, ...]] = field(default_factory=dict)  # Scan statement -> accumulators of its run
    scalars: dict[int, Value] = field(default_factory=dict)  # uniform values, as one lane
    # of a run of a running combination: whether there are runs before it (an i1 name), and what they combine to
    before: tuple[str, dict[int, tuple[Value, ...]]] | None = None


def index_value(emit: Emitter, index: str, dtype: np.dtype) -> Value:
    """index, index + 1, ... as ``dtype``; in 32 bits where the dtype has no more."""
    lanes = emit.lanes
    if elements.of(dtype).kind in "iu" and elements.of(dtype).bits <= 32:
        return emit.convert(emit.short_index(index), dtype)
    wide = lanes.splat(index, "i64")
    wide = wide + lanes.iota("i64") if lanes.width > 1 else wide
    emit.memo["index", wide.text] = index  # so that a later conversion to 32 bits starts from it
    return emit.settle(emit.convert(Value(elements.INT64, (wide,)), dtype))


def applied(statement: ir.Apply, emit: Emitter, args: Sequence[Value]) -> Value:
    """The value of a primitive of these arguments, rounded once to its dtype."""
    emit.any_nan = any(a.dtype != statement.dtype and elements.of(a.dtype).kind in "fhc" for a in args)
    return typed(emit, statement.kind.scalar(emit, *args, **dict(statement.params)), statement.dtype)


def apply(statement: ir.Apply, copy: Instance) -> Value:
    return applied(statement, copy.emit, [copy.values[n] for n in statement.args])


def typed(emit: Emitter, value: Value, dtype: np.dtype) -> Value:
    """A finished value: converted and rounded to the dtype of its statement."""
    value = emit.settle(value)
    return value if value.dtype == dtype else emit.settle(emit.convert(value, dtype))


def fresh(
    base: Instance, values: dict[int, Value], index: str | None = None, mask: Mask | None = None, slot: int = 0
) -> Instance:
    """A copy with an emitter of its own, as each loop body needs: memoised values must dominate their uses."""
    lanes = base.emit.lanes
    emit = Emitter(lanes, is_second=slot // lanes.width % lane_loops.SHARING == 1)
    return Instance(emit, base.memory, dict(values), index, mask, slot, dict(base.states), base.scalars)
