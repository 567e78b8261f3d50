"""Operations that move elements: views, reshapes, assemblies, slices at run time, gathers and scatters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.compiler import expansions
from weft.core.index_maps import CONSTANT, IndexMap
from weft.core.programs.jaxpr import ClosedJaxpr, JaxprEqn
from weft.stablehlo import types
from weft.stablehlo.text import Tensor, Text
from weft.stablehlo.unknown_sizes import open_equations
from weft.stablehlo.unknown_sizes.symbolic_dims import extremum

if TYPE_CHECKING:
    from weft.stablehlo.function_writer import FunctionWriter


def view(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    """Any view: elements are sliced, reversed, then spread over the dimensions of the result."""
    (x,), (out,) = operands, eqn.outvars
    index_map = open_equations.said(
        eqn, lambda e: e.primitive.kind.index_map(e.invars[0].aval, e.outvars[0].aval, e.params)
    )
    return [viewed(writer.text, x, index_map, out.aval.shape)]


def viewed(text: Text, x: Tensor, index_map: IndexMap, shape: types.Shape) -> Tensor:
    """``result[i] = x[index_map(i)]``."""
    rows: list[tuple[Any, Any, int]] = []  # start, limit and step of the slice
    backward = []
    for dim, (axis, start, step) in enumerate(index_map):
        extent = 1 if axis == CONSTANT or step == 0 else shape[axis]
        if start == 0 and step == 1 and extent == x.shape[dim]:
            rows.append((0, extent, 1))
            continue
        last = start + (step if axis != CONSTANT else 0) * (extent - 1)
        low, high = (last, start + 1) if step < 0 else (start, last + 1)
        low, high = (low, high) if extent else (0, 0)
        if types.is_open(extent):  # it may be 0
            low, high = (extremum("min", last, high), high) if step < 0 else (low, extremum("max", low, high))
        rows.append((low, high, -step if step < 0 else step if step != 0 else 1))
        if step < 0 and (types.is_open(extent) or extent > 1):
            backward.append(dim)
    x = text.slice(x, *([row[column] for row in rows] for column in range(3)))
    if backward:
        x = text.op("reverse", [x], x.shape, x.dtype, f"dimensions = {types.array(backward)}")
    kept = [dim for dim, (axis, _, step) in enumerate(index_map) if axis != CONSTANT and step != 0]
    axes = [index_map[dim].axis for dim in kept]
    x = text.reshape(x, tuple([x.shape[dim] for dim in kept]))
    if len(axes) == len(shape) and tuple([x.shape[axes.index(d)] for d in range(len(shape))]) == shape:
        return text.transpose(x, [axes.index(d) for d in range(len(shape))])
    return text.broadcast(x, shape, axes)


def reshape(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    kind, (out,) = eqn.primitive.kind, eqn.outvars

    def rewritten(eqn: JaxprEqn) -> ClosedJaxpr | None:
        function = kind.rewrite(**eqn.params) if kind.rewrite is not None else None
        return expansions.of_equation(eqn, function) if function is not None else None

    program = open_equations.program(eqn, rewritten)
    if program is not None:
        return writer.program(program, operands)
    (x,) = operands
    if x.dtype != out.aval.dtype:
        return [writer.text.op("bitcast_convert", [x], out.aval.shape, out.aval.dtype)]
    return [writer.text.reshape(x, out.aval.shape)]


def assemble(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    """Regions filled by views of the operands: each is padded to the whole, and chosen where it lies."""
    text, (out,) = writer.text, eqn.outvars
    shape = out.aval.shape
    if "padding_config" in eqn.params:
        return [text.pad(operands[0], operands[1], eqn.params["padding_config"])]
    if "dimension" in eqn.params:
        return [text.concatenate(operands, eqn.params["dimension"])]
    pieces = open_equations.said(
        eqn, lambda e: list(e.primitive.kind.pieces([v.aval for v in e.invars], e.outvars[0].aval, e.params))
    )
    pieces = sorted(pieces, key=lambda piece: not piece.fill)
    result = text.constant(np.zeros((), out.aval.dtype), shape, out.aval.dtype)
    for piece in pieces:
        region = piece.region
        if types.is_empty(region.extent):
            continue
        part = viewed(text, operands[piece.operand], piece.index_map, region.extent)
        if region.start == (0,) * len(shape) and region.extent == shape:
            result = part
            continue
        if region.is_dense:
            starts = [text.extent(n) for n in region.start]
            result = text.op("dynamic_update_slice", [result, part, *starts], shape, result.dtype)
            continue
        result = _strided(text, result, part, region, shape)
    return [result]


def _strided(text: Text, result: Tensor, part: Tensor, region: Any, shape: types.Shape) -> Tensor:
    """Elements at strides: padded to the whole beside a mask that says where they lie."""
    bounds = zip(region.start, region.stop, region.step, shape, strict=True)
    config = [(start, extent - stop, step - 1) for start, stop, step, extent in bounds]
    zero = text.constant(np.zeros((), part.dtype), (), part.dtype)
    spread = text.pad(part, zero, config)
    here = text.constant(True, part.shape, types.BOOL)
    mask = text.pad(here, text.constant(False, (), types.BOOL), config)
    return text.select(mask, spread, result)


def generate(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    (out,) = eqn.outvars
    dimension = eqn.primitive.kind.dimension(eqn.params)
    dtype = out.aval.dtype
    if dtype.kind in "b":
        return [writer.text.convert(writer.text.iota(out.aval.shape, types.INT32, dimension), dtype)]
    return [writer.text.iota(out.aval.shape, dtype, dimension)]


def dynamic_slice(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    (out,) = eqn.outvars
    sizes = open_equations.said(
        eqn, lambda e: e.primitive.kind.sizes([v.aval for v in e.invars], e.outvars[0].aval, e.params)
    )
    starts = _starts(writer.text, operands[1:])
    x = writer.text.dynamic_slice(operands[0], starts, tuple(sizes))
    return [writer.text.reshape(x, out.aval.shape)]


def dynamic_update_slice(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    x, update, *starts = operands
    return [writer.text.op("dynamic_update_slice", [x, update, *_starts(writer.text, starts)], x.shape, x.dtype)]


def _starts(text: Text, starts: Sequence[Tensor]) -> list[Tensor]:
    """Starts of one dtype, in which the extents can be counted."""
    if not starts:
        return []
    dtypes_ = {x.dtype for x in starts}
    if len(dtypes_) == 1 and starts[0].dtype.itemsize >= 4:
        return list(starts)
    wide = any(x.dtype.itemsize > 4 or x.dtype == np.uint32 for x in starts)
    return [text.convert(x, types.INT64 if wide else types.INT32) for x in starts]


def split(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    (x,), axis, start, found = operands, eqn.params["axis"], 0, []
    for size in eqn.params["sizes"]:
        found.append(writer.text.cut(x, axis, start, start + size))
        start += size
    return found


# -- gather and scatter ------------------------------------------------------------------------------------------------


def _indices(text: Text, indices: Tensor) -> Tensor:
    """Index vectors of at least 32 bits, signed."""
    if indices.dtype in (types.INT32, types.INT64):
        return indices
    if indices.dtype == np.uint64:
        most = text.constant(np.iinfo(np.int64).max, indices.shape, indices.dtype)
        indices = text.op("minimum", [indices, most], indices.shape, indices.dtype)
    wide = indices.dtype in (np.uint32, np.uint64)
    return text.convert(indices, types.INT64 if wide else types.INT32)


def _most(text: Text, windows: Any, indices: Tensor) -> Tensor:
    """The largest start of each component, at the shape of the indices."""
    if any(map(types.is_open, windows.most)):
        row = text.convert(text.vector(windows.most), indices.dtype)
    else:
        most = np.asarray(windows.most, indices.dtype)
        row = text.constant(most, most.shape, indices.dtype)
    return text.broadcast(row, indices.shape, [indices.ndim - 1])


def _windows(eqn: JaxprEqn) -> Any:
    return open_equations.said(
        eqn, lambda e: e.primitive.kind.windows([v.aval for v in e.invars], e.outvars[0].aval, e.params)
    )


def _flags(params: dict[str, Any]) -> str:
    return f"indices_are_sorted = {str(bool(params['indices_are_sorted'])).lower()}"


def gather(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    text, (x, indices), (out,) = writer.text, operands, eqn.outvars
    kind, params = eqn.primitive.kind, eqn.params
    numbers, aval = params["dimension_numbers"], out.aval
    indices = _indices(text, indices)
    if types.is_empty(aval.shape) or not indices.shape[-1]:
        return [_empty_gather(text, x, indices, eqn)]
    parts = [
        f"offset_dims = {types.listed(numbers.offset_dims)}",
        f"collapsed_slice_dims = {types.listed(numbers.collapsed_slice_dims)}",
        f"operand_batching_dims = {types.listed(numbers.operand_batching_dims)}",
        f"start_indices_batching_dims = {types.listed(numbers.start_indices_batching_dims)}",
        f"start_index_map = {types.listed(numbers.start_index_map)}",
        f"index_vector_dim = {indices.ndim - 1}",
    ]
    given = f"dimension_numbers = #stablehlo.gather<{', '.join([p for p in parts if not p.endswith('[]')])}>"
    given += f", {_flags(params)}"
    sizes = params["slice_sizes"]
    if any(map(types.is_open, sizes)):
        found = text.op("dynamic_gather", [x, indices, text.vector(sizes)], aval.shape, aval.dtype, given)
    else:
        given += f", slice_sizes = {types.array(sizes)}"
        found = text.op("gather", [x, indices], aval.shape, aval.dtype, given)
    fill = kind.fill(aval, params)
    if fill is None:
        return [found]
    windows = _windows(eqn)
    inside = _inside(text, windows, indices)
    inside = text.broadcast(inside, aval.shape, windows.batch)
    return [text.select(inside, found, text.constant(fill, aval.shape, aval.dtype))]


def _inside(text: Text, windows: Any, indices: Tensor) -> Tensor:
    """Whether each window is inside of the array."""
    least = text.compare("ge", indices, text.constant(0, indices.shape, indices.dtype))
    most = text.compare("le", indices, _most(text, windows, indices))
    both = text.op("and", [least, most], indices.shape, types.BOOL)
    every = text.region([((), types.BOOL)] * 2, lambda a, b: [text.op("and", [a, b], (), types.BOOL)])
    dims = f"dimensions = {types.array([indices.ndim - 1])}"
    true = text.constant(True, (), types.BOOL)
    return text.op("reduce", [both, true], indices.shape[:-1], types.BOOL, dims, [every])


def _empty_gather(text: Text, x: Tensor, indices: Tensor, eqn: JaxprEqn) -> Tensor:
    """No elements; or no index vectors, where every window is the same one at the start."""
    aval, params = eqn.outvars[0].aval, eqn.params
    if types.is_empty(aval.shape):
        return text.constant(np.zeros((), aval.dtype), aval.shape, aval.dtype)
    windows = _windows(eqn)
    part = text.slice(x, [0] * x.ndim, params["slice_sizes"], [1] * x.ndim)
    kept = [dim for dim, to in enumerate(windows.moved) if to is not None]
    part = text.reshape(part, tuple([part.shape[dim] for dim in kept]))
    return text.broadcast(part, aval.shape, [windows.moved[dim] for dim in kept])


def scatter(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    text, (x, indices, updates) = writer.text, operands
    kind, params = eqn.primitive.kind, eqn.params
    numbers = params["dimension_numbers"]
    if types.is_empty(updates.shape) or types.is_empty(x.shape):
        return [x]
    indices = _indices(text, indices)
    if kind.clips(params) and indices.shape[-1]:
        windows = _windows(eqn)
        least = text.constant(0, indices.shape, indices.dtype)
        indices = text.op("clamp", [least, indices, _most(text, windows, indices)], indices.shape, indices.dtype)
    parts = [
        f"update_window_dims = {types.listed(numbers.update_window_dims)}",
        f"inserted_window_dims = {types.listed(numbers.inserted_window_dims)}",
        f"input_batching_dims = {types.listed(numbers.operand_batching_dims)}",
        f"scatter_indices_batching_dims = {types.listed(numbers.scatter_indices_batching_dims)}",
        f"scatter_dims_to_operand_dims = {types.listed(numbers.scatter_dims_to_operand_dims)}",
        f"index_vector_dim = {indices.ndim - 1}",
    ]
    given = f"{_flags(params)}, scatter_dimension_numbers = #stablehlo.scatter<"
    given += ", ".join([p for p in parts if not p.endswith("[]")])
    given += f">, unique_indices = {str(bool(kind.unique(params))).lower()}"
    update = kind.update(params)

    def combined(old: Tensor, new: Tensor) -> Sequence[Tensor]:
        return [new] if update is None else writer.inner(update, params.get("update_consts", ()), [old, new])

    one = ((), x.dtype)
    region = text.region([one, one], combined)
    return [text.op("scatter", [x, indices, updates], x.shape, x.dtype, given, [region])]
