"""Programs of shards where a process has several devices: the program of the block of one process.

A mesh axis of 4 over two processes with two devices each becomes two axes, one between the processes, which keeps the
name, and one inside of each, mapped as in one process (``batching.shards``)::

    psum[axes=('x',)] a        on each of 4 devices
    psum[axes=('x', x within a process)] a      under vmap over 2 devices, on each of 2 processes
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from weft import runtime
from weft._base.record import NamedTuple, Record
from weft.batching import shards
from weft.core import axis_names, kinds
from weft.core.axis_names import Axis, NamedAxis
from weft.core.programs.eval import eval_jaxpr
from weft.core.programs.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, joined_effects
from weft.core.programs.rewrite import Builder
from weft.core.sharding import varying
from weft.core.sharding.partition_specs import PartitionSpec
from weft.core.tracing import trace as tracing
from weft.operations import collectives


class Within(Record):
    """The name of the part of a mesh axis that lies within each process."""

    name: Any

    def __repr__(self) -> str:
        return f"{self.name} within a process"


class _Inner(NamedTuple):
    """The devices of one process, as ``shards`` looks at a mesh."""

    shape: dict[Any, int]


def of_process(params: dict[str, Any], sizes: Mapping[Any, int]) -> kinds.Shards:
    """The program of the block of a process; ``sizes`` says how many blocks there are along each axis of the mesh."""
    mesh, jaxpr = params["mesh"], shards.plain_program(params["jaxpr"])
    inner = {name: mesh.shape[name] // sizes[name] for name in mesh.axis_names}
    split = {name: _parts(name, sizes[name], inner[name]) for name in mesh.axis_names}
    cuts = [[_cut_of(spec, v.aval.ndim, sizes, inner) for spec, v in zip(specs, atoms, strict=True)]
            for specs, atoms in ((params["in_specs"], jaxpr.invars), (params["out_specs"], jaxpr.outvars))]  # fmt: skip
    devices = _Inner({Within(name): size for name, size in inner.items() if size > 1})
    axes = [Axis(size, name) for name, size in devices.shape.items()]
    bound = [(name, size) for name, size in (*sizes.items(), *devices.shape.items())]
    with axis_names.bound(bound):
        program = _with_split_axes(jaxpr, split)

    def flat(*blocks: Any) -> list[Any]:
        stacks = [shards._cut(block, within, devices) for block, (_, within) in zip(blocks, cuts[0], strict=True)]
        made = shards._mapped(axes, lambda *values: eval_jaxpr(program, (), *values), stacks)
        return [shards._joined(stack, within, devices) for stack, (_, within) in zip(made, cuts[1], strict=True)]

    avals = [_block_type(v.aval, within, devices) for v, (_, within) in zip(jaxpr.invars, cuts[0], strict=True)]
    with axis_names.bound(tuple(sizes.items())), varying.checked(None):
        closed = tracing.trace_to_jaxpr(flat, avals, jaxpr.debug_info, of_program=True)[0]
    ins, outs = (tuple([between for between, _ in each]) for each in cuts)
    return kinds.Shards(closed.jaxpr, params["newly_manual_axes"], ins, outs, tuple(closed.consts))


def _parts(name: Any, count: int, within: int) -> tuple[Any, ...]:
    """The axes that replace one: none of extent 1, but at least one."""
    return (*((name,) if count > 1 or within == 1 else ()), *((Within(name),) if within > 1 else ()))


def _cut_of(
    spec: PartitionSpec, ndim: int, sizes: Mapping[Any, int], inner: Mapping[Any, int]
) -> tuple[tuple[Any, ...], PartitionSpec]:
    """Along which axes a value is cut between processes, and along which within one; for each dimension."""
    between, within = [], []
    for dimension in range(ndim):
        names = shards.axes_of_dimension(spec, dimension)
        last = max([at for at, name in enumerate(names) if sizes[name] > 1], default=-1)
        if any(inner[name] > 1 for name in names[: max(last, 0)]):
            raise NotImplementedError(
                f"[shard_map] the spec {spec} cuts dimension {dimension} along {names}: the parts that one process has "
                "are not next to each other, since it has several devices along an axis that is named before one along "
                "which processes differ. Name the axes in another order"
            )
        between.append(tuple([name for name in names if sizes[name] > 1]))
        within.append(tuple([Within(name) for name in names if inner[name] > 1]) or None)
    return tuple(between), PartitionSpec(*within)


def _block_type(aval: Any, within: PartitionSpec, devices: _Inner) -> Any:
    counts = [
        math.prod([devices.shape[name] for name in shards.axes_of_dimension(within, d)]) for d in range(aval.ndim)
    ]
    shape = tuple([extent * count for extent, count in zip(aval.shape, counts, strict=True)])
    return runtime.ShapedArray(shape, aval.dtype, aval.weak_type)


# -- names of axes in programs ----------------------------------------------------------------------------------------


def _with_split_axes(jaxpr: Jaxpr, split: Mapping[Any, tuple[Any, ...]]) -> Jaxpr:
    """The program with several names instead of one, in all its collectives."""
    if all(names == (name,) for name, names in split.items()):
        return jaxpr
    builder = Builder()
    constvars, invars = builder.new_invars(jaxpr.constvars), builder.new_invars(jaxpr.invars)
    for eqn in jaxpr.eqns:
        builder.source = eqn.source
        operands = [builder.read(atom) for atom in eqn.invars]
        builder.write(eqn.outvars, _split_equation(builder, eqn, operands, split))
    outvars = [builder.read(atom) for atom in jaxpr.outvars]
    return Jaxpr(constvars, invars, outvars, builder.eqns, joined_effects(builder.eqns), jaxpr.debug_info)


def _split_equation(
    builder: Builder, eqn: JaxprEqn, operands: Sequence[Any], split: Mapping[Any, tuple[Any, ...]]
) -> Sequence[Any]:
    if eqn.primitive.axis_names is None:
        inner: list[Any] = []
        params = {name: _split_value(value, split, inner) for name, value in eqn.params.items()}
        if not inner:
            return builder.keep(eqn, operands)
        named = frozenset([effect for effect in eqn.effects if isinstance(effect, NamedAxis)])
        effects = (eqn.effects - named).union(*[program.effects for program in inner])
        return builder.keep(eqn.replace(params=params, effects=effects), operands)
    names = eqn.primitive.axis_names(eqn.params)
    if all(split.get(name, (name,)) == (name,) for name in names):
        return builder.keep(eqn, operands)
    if eqn.params.get("axis_index_groups") is not None:
        raise NotImplementedError(
            f"[{eqn.primitive.name}] axis_index_groups along {names}, where a process has several devices: give the "
            "mesh an axis for the groups, or each process one device"
        )

    def run(*values: Any) -> list[Any]:
        if not values:  # the index along an axis
            return [collectives.axis_index([part for name in names for part in split.get(name, (name,))])]
        made = eqn.primitive.bind(*values, **_renamed(eqn.params, split))
        return list(made) if eqn.primitive.multiple_results else [made]

    with varying.checked(None):
        program = tracing.trace_to_jaxpr(run, [v.aval for v in operands])[0]
    source = builder.source
    made = builder.inline(program.jaxpr, operands)
    builder.source = source
    return made


def _renamed(params: dict[str, Any], split: Mapping[Any, tuple[Any, ...]]) -> dict[str, Any]:
    key = "axes" if "axes" in params else "axis_name"
    given = axis_names.as_tuple(params[key])
    return {**params, key: tuple([part for name in given for part in _of_name(name, split)])}


def _of_name(name: Any, split: Mapping[Any, tuple[Any, ...]]) -> tuple[Any, ...]:
    return (name,) if isinstance(name, int) else split.get(name, (name,))


def _split_value(value: Any, split: Mapping[Any, tuple[Any, ...]], inner: list[Any]) -> Any:
    if isinstance(value, Jaxpr):
        inner.append(_with_split_axes(value, split))
        return inner[-1]
    if isinstance(value, ClosedJaxpr):
        inner.append(_with_split_axes(value.jaxpr, split))
        return ClosedJaxpr(inner[-1], value.consts)
    if type(value) in (tuple, list) and any(isinstance(item, (Jaxpr, ClosedJaxpr)) for item in value):
        return type(value)([_split_value(item, split, inner) for item in value])
    return value
