"""Reductions, running reductions and reductions of windows, by the combiners of their kinds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.compiler import expansions
from weft.core.programs.jaxpr import JaxprEqn
from weft.operations.pointwise.elementwise import widened
from weft.operations.windowed.window_selection import identity_of
from weft.runtime import ShapedArray
from weft.stablehlo import types
from weft.stablehlo.emitter import TensorEmit
from weft.stablehlo.text import Tensor, Text, Type

if TYPE_CHECKING:
    from weft.stablehlo.function_writer import FunctionWriter


def reduction(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    """Elements are prepared, folded by ``reduce`` into accumulators, and finished."""
    text, kind, params = writer.text, eqn.primitive.kind, eqn.params
    avals = [v.aval for v in eqn.invars]
    axes = kind.axes(params)
    count = len(operands) if kind.operands is None else kind.operands(avals)
    full = operands[0].shape
    emit = TensorEmit(text, full)
    index = text.iota(full, types.INT64, axes[0]) if kind.needs_index else None
    values = list(kind.prepare(emit, operands[:count], index, **params))
    accumulators = kind.accumulators(avals, params)
    values = [emit.convert(value, dtype) for value, (dtype, _) in zip(values, accumulators, strict=True)]
    if axes:
        values = _reduced(text, values, accumulators, axes, lambda e, a, b: kind.combine(e, a, b, **params))
    emit = TensorEmit(text, values[0].shape)
    found = kind.finish(emit, values, **params)
    return [emit.convert(x, v.aval.dtype) for x, v in zip(found, eqn.outvars, strict=True)]


Combine = Callable[[TensorEmit, Sequence[Tensor], Sequence[Tensor]], Sequence[Tensor]]


def _reduced(
    text: Text, values: Sequence[Tensor], accumulators: Any, axes: Sequence[int], combine: Combine
) -> list[Tensor]:
    shape = tuple([n for dim, n in enumerate(values[0].shape) if dim not in axes])
    starts = [text.constant(np.asarray(value).astype(dtype), (), dtype) for dtype, value in accumulators]
    region = _combiner(text, [x.dtype for x in values], combine)
    results: list[Type] = [(shape, x.dtype) for x in values]
    return text.ops("reduce", [*values, *starts], results, f"dimensions = {types.array(axes)}", [region])


def _combiner(text: Text, dtypes: Sequence[np.dtype], combine: Combine) -> str:
    """The region that combines two accumulators."""
    half = len(dtypes)

    def body(*args: Tensor) -> Sequence[Tensor]:
        emit = TensorEmit(text)
        found = combine(emit, args[:half], args[half:])
        return [emit.convert(x, dtype) for x, dtype in zip(found, dtypes, strict=True)]

    return text.region([((), dtype) for dtype in (*dtypes, *dtypes)], body)


# -- running reductions ------------------------------------------------------------------------------------------------


def cumulative(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    """A window that grows to the whole dimension, which compilers for accelerators know as a scan.

    For the CPU, where XLA needs up to ten times as long for that, by halving (Blelloch 1990): pairs are combined,
    scanned, and combined with the elements between them. Where the extent has no value, by doubling, in a loop.
    """
    text, kind, params = writer.text, eqn.primitive.kind, eqn.params
    axis, avals = kind.axis(params), [v.aval for v in eqn.invars]
    shape = operands[0].shape
    if types.is_empty(shape):
        return operands
    emit = TensorEmit(text, shape)
    accumulators = kind.accumulators(avals, params)
    values = [emit.convert(x, dtype) for x, (dtype, _) in zip(operands, accumulators, strict=True)]

    if len(values) == 1 and "cpu" not in writer.module.platforms and not any(map(types.is_open, shape)):
        found = _growing(text, values, accumulators, axis, kind, params)
    else:
        found = _by_steps(text, values, axis, kind, params)
    found = kind.finish(emit, found, **params)
    return [emit.convert(x, v.aval.dtype) for x, v in zip(found, eqn.outvars, strict=True)]


def _by_steps(text: Text, values: list[Tensor], axis: int, kind: Any, params: dict[str, Any]) -> list[Tensor]:
    """By halving, or by doubling."""

    def turned(xs: list[Tensor]) -> list[Tensor]:
        if not kind.reverse(params):
            return xs
        return [text.op("reverse", [x], x.shape, x.dtype, f"dimensions = {types.array([axis])}") for x in xs]

    def combine(left: list[Tensor], right: list[Tensor]) -> list[Tensor]:
        return list(kind.combine(TensorEmit(text, left[0].shape), left, right, **params))

    scanned = _doubled if types.is_open(values[0].shape[axis]) else _scanned
    return turned(scanned(text, turned(values), axis, combine))


def _growing(
    text: Text, xs: Sequence[Tensor], accumulators: Any, axis: int, kind: Any, params: dict[str, Any]
) -> list[Tensor]:
    """A window as long as the dimension, which ends at the element itself (or begins there, if reversed)."""
    shape = xs[0].shape
    region = _combiner(text, [x.dtype for x in xs], lambda e, a, b: kind.combine(e, a, b, **params))
    starts = [text.constant(np.asarray(value).astype(dtype), (), dtype) for dtype, value in accumulators]
    rest = (0, shape[axis] - 1) if kind.reverse(params) else (shape[axis] - 1, 0)
    rows = [rest if dim == axis else (0, 0) for dim in range(len(shape))]
    extents = [n if dim == axis else 1 for dim, n in enumerate(shape)]
    given = f"padding = {types.padding(rows)}, window_dimensions = {types.array(extents)}"
    return text.ops("reduce_window", [*xs, *starts], [(x.shape, x.dtype) for x in xs], given, [region])


def _scanned(text: Text, xs: list[Tensor], axis: int, combine: Any) -> list[Tensor]:
    count = xs[0].shape[axis]
    if count < 2:
        return xs
    pairs = count // 2
    first = [text.cut(x, axis, 0, 2 * pairs, 2) for x in xs]
    second = [text.cut(x, axis, 1, count, 2) for x in xs]
    odd = _scanned(text, combine(first, second), axis, combine)
    before = [text.cut(x, axis, 0, (count - 1) // 2) for x in odd]
    even = [text.cut(x, axis, 0, 1) for x in xs]
    if count > 2:
        later = combine(before, [text.cut(x, axis, 2, count, 2) for x in xs])
        even = [text.concatenate([a, b], axis) for a, b in zip(even, later, strict=True)]
    return [_interleaved(text, a, b, axis) for a, b in zip(even, odd, strict=True)]


def _doubled(text: Text, xs: list[Tensor], axis: int, combine: Any) -> list[Tensor]:
    """Every element is combined with the one before it, then with the one two positions before it, four, and so on."""
    shape = xs[0].shape
    carried: list[Type] = [((), types.INT32), *[(x.shape, x.dtype) for x in xs]]

    def going(shift: Tensor, *_: Tensor) -> list[Tensor]:
        return [text.compare("lt", shift, text.extent(shape[axis]))]

    def turn(shift: Tensor, *values: Tensor) -> list[Tensor]:
        positions = text.iota((shape[axis],), types.INT32, 0)
        before = text.op(
            "subtract", [positions, text.broadcast(shift, positions.shape, ())], positions.shape, types.INT32
        )
        made = combine([_rows(text, x, axis, before) for x in values], list(values))
        has = text.compare("ge", before, text.constant(0, before.shape, types.INT32))
        which = text.broadcast(has, shape, (axis,))
        chosen = [text.select(which, new, old) for new, old in zip(made, values, strict=True)]
        # shift + shift would do, but XLA of 2026 aborts where the counter of a loop is added to itself
        return [text.op("multiply", [shift, text.constant(2, (), types.INT32)], (), types.INT32), *chosen]

    regions = [text.region(carried, going), text.region(carried, turn)]
    return text.ops("while", [text.constant(1, (), types.INT32), *xs], carried, "", regions)[1:]


def _rows(text: Text, x: Tensor, axis: int, rows: Tensor) -> Tensor:
    """``x[..., rows, ...]``, rows before the first taken as the first."""
    others = [d for d in range(x.ndim) if d != axis]
    numbers = f"offset_dims = {types.listed(others)}, " if others else ""
    numbers += f"collapsed_slice_dims = [{axis}], start_index_map = [{axis}], index_vector_dim = 1"
    given = f"dimension_numbers = #stablehlo.gather<{numbers}>, indices_are_sorted = false"
    indices = text.reshape(rows, (*rows.shape, 1))
    sizes = [1 if d == axis else n for d, n in enumerate(x.shape)]
    if any(map(types.is_open, sizes)):
        return text.op("dynamic_gather", [x, indices, text.vector(sizes)], x.shape, x.dtype, given)
    return text.op("gather", [x, indices], x.shape, x.dtype, f"{given}, slice_sizes = {types.array(sizes)}")


def _interleaved(text: Text, even: Tensor, odd: Tensor, axis: int) -> Tensor:
    """Elements by turns: stacked along a new dimension behind ``axis``, which is then joined with it."""
    more = even.shape[axis] - odd.shape[axis]
    if more:
        zero = text.constant(np.zeros((), odd.dtype), (), odd.dtype)
        odd = text.pad(odd, zero, [(0, more if dim == axis else 0, 0) for dim in range(odd.ndim)])
    lone = (*even.shape[: axis + 1], 1, *even.shape[axis + 1 :])
    both = text.concatenate([text.reshape(even, lone), text.reshape(odd, lone)], axis + 1)
    joined = text.reshape(both, (*even.shape[:axis], 2 * even.shape[axis], *even.shape[axis + 1 :]))
    return text.cut(joined, axis, 0, joined.shape[axis] - more)


# -- windows -----------------------------------------------------------------------------------------------------------


def window(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    text, kind, params = writer.text, eqn.primitive.kind, eqn.params
    avals = [v.aval for v in eqn.invars]
    accumulators = kind.accumulators(avals, params)
    if accumulators is None:
        half = len(operands) // 2
        arrays, starts = operands[:half], operands[half:]
    else:
        arrays = [text.convert(x, dtype) for x, (dtype, _) in zip(operands, accumulators, strict=True)]
        starts = [text.constant(np.asarray(value).astype(dtype), (), dtype) for dtype, value in accumulators]
    maps = kind.windows(params).along
    scalars = [ShapedArray((), x.dtype) for x in arrays]
    program = expansions.traced(
        lambda *xs: kind.combine(list(xs[: len(arrays)]), list(xs[len(arrays) :]), **params), [*scalars, *scalars]
    )
    region = text.region([((), x.dtype) for x in (*arrays, *arrays)], lambda *args: writer.program(program, list(args)))
    given = ", ".join(
        [
            f"window_dimensions = {types.array([m.window for m in maps])}",
            f"window_strides = {types.array([m.stride for m in maps])}",
            f"base_dilations = {types.array([m.spacing for m in maps])}",
            f"window_dilations = {types.array([m.dilation for m in maps])}",
            f"padding = {types.padding([(m.low, m.high) for m in maps])}",
        ]
    )
    shape = eqn.outvars[0].aval.shape
    if not maps:
        found: Sequence[Tensor] = writer.program(program, [*starts, *arrays])
    elif types.is_empty(shape):
        found = [text.constant(np.zeros((), x.dtype), shape, x.dtype) for x in arrays]
    else:
        found = text.ops("reduce_window", [*arrays, *starts], [(shape, x.dtype) for x in arrays], given, [region])
    return [text.convert(x, v.aval.dtype) for x, v in zip(found, eqn.outvars, strict=True)]


def select_and_scatter_add(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    """The derivative of the largest or smallest elements of windows.

    The operand is padded first, by what no window selects, as compilers expect no padding of the operation's own; half
    precisions are added in float32.
    """
    text, params, (source, x) = writer.text, eqn.params, operands
    dtype, padding = widened(x.dtype), params["padding"]
    source, x = text.convert(source, dtype), text.convert(x, dtype)
    absent = text.constant(identity_of(params["select_prim"], x), (), dtype)
    padded = text.pad(x, absent, [(low, high, 0) for low, high in padding])
    given = f"window_dimensions = {types.array(params['window_dimensions'])}, "
    given += f"window_strides = {types.array(params['window_strides'])}"
    direction = params["select_prim"].name
    one: Type = ((), dtype)
    regions = [
        text.region([one, one], lambda a, b: [text.compare(direction, a, b)]),
        text.region([one, one], lambda a, b: [text.op("add", [a, b], (), dtype)]),
    ]
    zero = text.constant(0, (), dtype)
    found = text.op("select_and_scatter", [padded, source, zero], padded.shape, dtype, given, regions)
    back = text.pad(found, zero, [(-low, -high, 0) for low, high in padding])
    return [text.convert(back, eqn.outvars[0].aval.dtype)]
