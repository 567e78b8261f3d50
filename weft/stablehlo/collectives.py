"""Programs of shards (``shard_map``) and collectives: a region that each device runs, and messages between devices.

    psum[axes=('y',)]     all_reduce, replica_groups = [[0, 1], [2, 3], [4, 5], [6, 7]]     on a mesh of x=4, y=2

Devices are numbered by their coordinates in the mesh, in row-major order. A collective lists the devices that take
part, group by group, in the order of the named axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft import runtime
from weft._base.record import NamedTuple
from weft.compiler import expansions
from weft.core import axis_names, kinds
from weft.core.programs.jaxpr import ClosedJaxpr, JaxprEqn
from weft.core.sharding.partition_specs import PartitionSpec
from weft.errors import InconclusiveDimensionOperation
from weft.stablehlo import types
from weft.stablehlo.shardy import quoted
from weft.stablehlo.text import Tensor

if TYPE_CHECKING:
    from weft.stablehlo.function_writer import FunctionWriter

CHANNEL = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"
UNSIGNED = np.dtype(np.uint32)


EquationWriter = Callable[["FunctionWriter", JaxprEqn, list[Tensor]], Sequence[Tensor]]


class ByHand(NamedTuple):
    """Where a program of shards is written: its mesh, and the axes along which it is run by hand."""

    mesh: Any
    axes: frozenset[Any]


# -- the program of a shard -------------------------------------------------------------------------------------------


def manual(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor], shards: kinds.Shards) -> Sequence[Tensor]:
    """A program of shards, as a region that is run by hand along its axes of the mesh."""
    if writer.text.sizes:
        raise InconclusiveDimensionOperation("shards of extents without a value")
    results = [(v.aval.shape, types.stored(v.aval.dtype)) for v in eqn.outvars]
    inner = [(v.aval.shape, types.stored(v.aval.dtype)) for v in shards.program.invars]

    def body(*values: Tensor) -> Sequence[Tensor]:
        return writer.program(ClosedJaxpr(shards.program, ()), values)

    return _region(writer, eqn.params["mesh"], shards, operands, results, inner, body)


def _region(
    writer: FunctionWriter, mesh: Any, shards: kinds.Shards, operands: Sequence[Tensor], results: Sequence[Any],
    inner: Sequence[Any], body: Callable[..., Sequence[Tensor]],
) -> list[Tensor]:  # fmt: skip
    """``sdy.manual_computation``; the axes of one around it stay."""
    module, meshes = writer.module, writer.module.meshes
    assert meshes is not None
    outer = module.by_hand
    axes = shards.axes if outer is None else shards.axes | outer.axes
    listed = []
    for specs, ranks in (
        (shards.in_specs, [x.ndim for x in operands]),
        (shards.out_specs, [len(r[0]) for r in results]),
    ):
        each = [meshes.short(mesh, PartitionSpec(*s), rank, axes) for s, rank in zip(specs, ranks, strict=True)]
        listed.append(f"#sdy.sharding_per_value<[{', '.join(each)}]>")
    names = ", ".join([quoted(name) for name in mesh.axis_names if name in shards.axes])
    given = f"in_shardings = {listed[0]}, manual_axes = #sdy<manual_axes{{{names}}}>, out_shardings = {listed[1]}"
    module.by_hand = ByHand(mesh, axes)
    try:
        region = writer.text.region(inner, body, "sdy")
    finally:
        module.by_hand = outer
    return writer.text.ops("manual_computation", operands, results, given, [region], dialect="sdy")


def _here(writer: FunctionWriter, eqn: JaxprEqn) -> ByHand:
    if writer.module.by_hand is None:
        names = ", ".join(map(repr, eqn.primitive.axis_names(eqn.params)))
        raise NameError(f"[{eqn.primitive.name}] the axis {names} is not mapped where this is written")
    return writer.module.by_hand


# -- who takes part ---------------------------------------------------------------------------------------------------


def groups_of(mesh: Any, names: Sequence[Any], within: Sequence[Sequence[int]] | None = None) -> np.ndarray:
    """The devices of each group along these axes, one group a row; ``within``: groups of indices along them."""
    sizes = mesh.axis_sizes
    along = [mesh.axis_names.index(name) for name in names]
    order = [*[d for d in range(len(sizes)) if d not in along], *along]
    rows = np.arange(mesh.size).reshape(sizes).transpose(order).reshape(-1, int(np.prod([sizes[d] for d in along])))
    return rows if within is None else rows[:, np.array(within)].reshape(-1, len(within[0]))


def _table(rows: np.ndarray) -> str:
    text = ", ".join([types.listed(row) for row in rows])
    return f"dense<[{text}]> : tensor<{rows.shape[0]}x{rows.shape[1]}xi64>"


def _groups(writer: FunctionWriter, eqn: JaxprEqn, names: Sequence[Any]) -> tuple[str, int]:
    """The attributes that say who takes part, and how many are in a group."""
    within = eqn.params.get("axis_index_groups")
    if within is not None and len({len(group) for group in within}) > 1:
        raise NotImplementedError(f"axis_index_groups of different sizes, {within}: give all groups the same size")
    rows = groups_of(_here(writer, eqn).mesh, names, within)
    return f"{CHANNEL}, replica_groups = {_table(rows)}", rows.shape[1]


# -- collectives ------------------------------------------------------------------------------------------------------


def _combination(writer: FunctionWriter, name: str, dtype: np.dtype) -> str:
    scalar = ((), dtype)
    return writer.text.region([scalar, scalar], lambda x, y: [writer.text.op(name, [x, y], (), dtype)])


def reduced(name: str) -> EquationWriter:
    """A reduction over devices (and over dimensions, if there are numbers among its axes)."""

    def along(writer: FunctionWriter, eqn: JaxprEqn, x: Tensor, aval: Any, positions: tuple[int, ...]) -> Tensor:
        params = {"axes": positions, "axis_index_groups": None}
        (made,) = writer.program(expansions.traced(lambda x: eqn.primitive.kind.expand(x, **params), [aval]), [x])
        return made

    def write(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
        axes = eqn.params["axes"]
        names = [axis for axis in axes if not isinstance(axis, int)]
        positions = tuple([axis for axis in axes if isinstance(axis, int)])
        (x,) = operands
        if positions:
            x = along(writer, eqn, x, eqn.invars[0].aval, positions)
        if not names:
            return [x]
        if name != "add" and x.dtype.kind == "c":  # XLA has no order of complex numbers
            every = _gathered(writer, eqn, x, 0, False, names)
            return [along(writer, eqn, every, runtime.ShapedArray(every.shape, every.dtype), (0,))]
        given, _ = _groups(writer, eqn, names)
        region = _combination(writer, name, x.dtype)
        return [writer.text.op("all_reduce", [x], x.shape, x.dtype, f"{given}, use_global_device_ids", [region])]

    return write


def all_gather(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    (x,), params = operands, eqn.params
    axis = params["all_gather_dimension"]
    return [_gathered(writer, eqn, x, axis, params["tiled"], axis_names.as_tuple(params["axis_name"]))]


def _gathered(writer: FunctionWriter, eqn: JaxprEqn, x: Tensor, axis: int, tiled: bool, names: Sequence[Any]) -> Tensor:
    text = writer.text
    given, count = _groups(writer, eqn, names)
    if not tiled:
        x = text.reshape(x, (*x.shape[:axis], 1, *x.shape[axis:]))
    sizes = (*x.shape[:axis], x.shape[axis] * count, *x.shape[axis + 1 :])
    given = f"all_gather_dim = {axis} : i64, {given}, use_global_device_ids"
    return text.op("all_gather", [x], sizes, x.dtype, given)


def reduce_scatter(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    (x,), (out,), axis = operands, eqn.outvars, eqn.params["scatter_dimension"]
    given, count = _groups(writer, eqn, axis_names.as_tuple(eqn.params["axis_name"]))
    sizes = (*x.shape[:axis], x.shape[axis] // count, *x.shape[axis + 1 :])
    given = f"{given}, scatter_dimension = {axis} : i64, use_global_device_ids"
    made = writer.text.op("reduce_scatter", [x], sizes, x.dtype, given, [_combination(writer, "add", x.dtype)])
    return [writer.text.reshape(made, out.aval.shape)]


def all_to_all(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    (x,), (out,) = operands, eqn.outvars
    given, count = _groups(writer, eqn, axis_names.as_tuple(eqn.params["axis_name"]))
    split, joined = eqn.params["split_axis"], eqn.params["concat_axis"]
    given += f", concat_dimension = {joined} : i64, split_count = {count} : i64, split_dimension = {split} : i64"
    return [writer.text.op("all_to_all", [x], out.aval.shape, x.dtype, given)]


def ppermute(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    (x,) = operands
    rows = groups_of(_here(writer, eqn).mesh, axis_names.as_tuple(eqn.params["axis_name"]))
    pairs = np.array([(row[source], row[target]) for row in rows for source, target in eqn.params["perm"]])
    given = f"{CHANNEL}, source_target_pairs = {_table(pairs.reshape(-1, 2))}"
    return [writer.text.op("collective_permute", [x], x.shape, x.dtype, given)]


def pbroadcast(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    """All values are gathered, and one is taken: not every device has a message for it."""
    (x,), source = operands, eqn.params["source"]
    every = _gathered(writer, eqn, x, 0, False, axis_names.as_tuple(eqn.params["axis_name"]))
    return [writer.text.reshape(writer.text.cut(every, 0, source, source + 1), x.shape)]


def axis_index(writer: FunctionWriter, eqn: JaxprEqn, operands: list[Tensor]) -> Sequence[Tensor]:
    """The device's index along a named axis: a digit of its number, where the program runs by hand along all axes."""
    mesh, axes = _here(writer, eqn)
    axis = mesh.axis_names.index(eqn.params["axis_name"])
    text = writer.text

    def digit() -> list[Tensor]:
        number = text.op("partition_id", (), (), UNSIGNED)
        inner = int(np.prod(mesh.axis_sizes[axis + 1 :]))
        for operation, amount in (("divide", inner), ("remainder", mesh.axis_sizes[axis])):
            number = text.op(operation, [number, text.constant(amount, (), UNSIGNED)], (), UNSIGNED)
        return [text.convert(number, types.INT32)]

    rest = frozenset(mesh.axis_names) - axes
    if not rest:
        return digit()
    shards = kinds.Shards(None, rest, (), ((),))
    return _region(writer, mesh, shards, [], [((), types.INT32)], [], digit)


COLLECTIVES: dict[str, EquationWriter] = {
    "psum": reduced("add"), "pmax": reduced("maximum"), "pmin": reduced("minimum"), "all_gather": all_gather,
    "reduce_scatter": reduce_scatter, "all_to_all": all_to_all, "ppermute": ppermute, "pbroadcast": pbroadcast,
    "axis_index": axis_index,
}  # fmt: skip
