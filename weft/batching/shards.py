"""The primitive ``shard_map``: one equation that holds the program of one shard, and what it is in one process.

The program is typed by the shapes of shards, and refers to mesh axes by name (collectives). ``in_specs`` and
``out_specs`` say how operands are cut and results joined. In one process, the program runs under one ``vmap`` for each
mesh axis, on views of the whole operands::

    a:f32[8], spec P('i') on a mesh of 4     ->     reshape a to f32[4,2], mapped over dimension 0, the axis named i

Where each device has a process of its own, the program runs as it is on the shards of that device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from weft import runtime
from weft._base import lazy
from weft._base.record import NamedTuple
from weft.batching.batch_trace import map_flat
from weft.core import axis_names, kinds
from weft.core.avals import get_aval
from weft.core.axis_names import Axis, ManualExtent, NamedAxis
from weft.core.programs.eval import eval_jaxpr
from weft.core.programs.jaxpr import ClosedJaxpr, DropVar, Jaxpr, JaxprEqn, Literal, Var, joined_effects
from weft.core.ref_types import ProgramPrimitive
from weft.core.sharding import explicit, varying
from weft.core.sharding.meshes import AbstractMesh, AxisType, Mesh, use_abstract_mesh
from weft.core.sharding.partition_specs import PartitionSpec
from weft.core.sharding.shardings import NamedSharding
from weft.core.tracing import trace as tracing
from weft.operations import collectives, exchanges
from weft.operations.data_movement import shape
from weft.operations.mapped import Dim, in_front

# -- specs ------------------------------------------------------------------------------------------------------------


def axes_of_dimension(spec: PartitionSpec, dimension: int) -> tuple[Any, ...]:
    """The mesh axes along which a dimension is cut, the outermost first."""
    entry = spec[dimension] if dimension < len(spec) else None
    return () if entry is None else entry if isinstance(entry, tuple) else (entry,)


def axes_of_spec(spec: PartitionSpec) -> tuple[Any, ...]:
    """All mesh axes that a spec names."""
    return tuple([name for dimension in range(len(spec)) for name in axes_of_dimension(spec, dimension)])


def in_mesh_order(mesh: Any, names: Any) -> tuple[Any, ...]:
    return tuple([name for name in mesh.axis_names if name in names])


def parts(mesh: Any, names: Sequence[Any]) -> int:
    """Into how many parts these axes cut a dimension."""
    return math.prod([mesh.shape[name] for name in names])


def shard_type(aval: Any, spec: PartitionSpec, params: dict[str, Any]) -> Any:
    """The type of a shard of a value of type ``aval``; it lies along explicit axes that are not mapped as before."""
    mesh, manual = params["mesh"], params["newly_manual_axes"]
    sizes = [n // parts(mesh, axes_of_dimension(spec, d)) for d, n in enumerate(aval.shape)]
    differs = (*aval.varying, *(axes_of_spec(spec) if params["check_vma"] else ()))
    made = aval.update(shape=tuple(sizes), varying=in_mesh_order(mesh, differs), sharding=None)
    if aval.explicit_sharding is None:
        return made
    own = aval.explicit_sharding.spec
    rest = [
        tuple([name for name in axes_of_dimension(own, dimension) if name not in manual]) or None
        for dimension in range(len(own))
    ]
    return explicit.sharded(made, NamedSharding(manual_mesh(mesh, manual), PartitionSpec(*rest)))


def whole_type(aval: Any, spec: PartitionSpec, params: dict[str, Any]) -> Any:
    """The type of the value that shards of type ``aval`` make together."""
    mesh, manual = params["mesh"], params["newly_manual_axes"]
    sizes = [n * parts(mesh, axes_of_dimension(spec, d)) for d, n in enumerate(aval.shape)]
    outer = tuple([name for name in aval.varying if name not in manual])
    made = aval.update(shape=tuple(sizes), varying=outer, sharding=None)
    if aval.explicit_sharding is None and not mesh.explicit_axes:
        return made
    own = PartitionSpec() if aval.explicit_sharding is None else aval.explicit_sharding.spec
    entries = [
        (*axes_of_dimension(spec, dimension), *axes_of_dimension(own, dimension)) or None
        for dimension in range(aval.ndim)
    ]
    return explicit.sharded(made, NamedSharding(mesh.abstract_mesh, PartitionSpec(*entries)))


# -- the primitive ----------------------------------------------------------------------------------------------------


@contextmanager
def inside(params: dict[str, Any]) -> Iterator[None]:
    """The context of the program of a shard: its mesh axes are bound; types say what varies if ``check_vma`` is set."""
    mesh, manual = params["mesh"], params["newly_manual_axes"]
    every = manual | frozenset(mesh.manual_axes)
    axes = [(name, ManualExtent(size)) for name, size in mesh.shape_tuple if name in every]
    agreement = collectives.AGREEMENT if params["check_vma"] else None
    with axis_names.bound(axes), varying.checked(agreement), use_abstract_mesh(manual_mesh(mesh, every)):
        yield


def manual_mesh(mesh: Any, manual: frozenset[Any]) -> AbstractMesh:
    """The mesh as the program of a shard sees it."""
    return mesh.abstract_mesh.update_axis_types(dict.fromkeys(manual, AxisType.Manual))


def _type_shard_map(
    *in_avals: Any,
    jaxpr: Jaxpr,
    mesh: Any,
    in_specs: Sequence[PartitionSpec],
    out_specs: Sequence[PartitionSpec],
    check_vma: bool,
    newly_manual_axes: frozenset[Any],
) -> Any:
    params = {"mesh": mesh, "check_vma": check_vma, "newly_manual_axes": newly_manual_axes}
    for number, (aval, spec, v) in enumerate(zip(in_avals, in_specs, jaxpr.invars, strict=True)):
        local = shard_type(aval, spec, params)
        if (local.shape, local.dtype, local.varying) != (v.aval.shape, v.aval.dtype, v.aval.varying):
            raise TypeError(
                f"[shard_map] operand {number} of type {aval.str_short()} with the spec {spec} has shards of type "
                f"{local.str_short()}, the program takes {v.aval.str_short()}"
            )
    outs = [whole_type(atom.aval, spec, params) for atom, spec in zip(jaxpr.outvars, out_specs, strict=True)]
    mine = frozenset([NamedAxis(name) for name in newly_manual_axes])
    return outs, jaxpr.effects - mine


def _inlined(params: dict[str, Any]) -> ClosedJaxpr:
    """The program on whole values, for one process."""
    key: Any = ("whole", *[params[name] for name in ("mesh", "in_specs", "out_specs", "newly_manual_axes")])
    return params["jaxpr"].memoize(key, lambda jaxpr: _on_whole(**params))


def _shards(params: dict[str, Any], sizes: Mapping[Any, int]) -> kinds.Shards | None:
    """The program of one device, where each has a process of its own, or of a block; None for a mesh of other axes."""
    mesh = params["mesh"]
    if params["newly_manual_axes"] != frozenset(sizes) or set(mesh.axis_names) != set(sizes):
        return None
    if any(mesh.shape[name] != sizes[name] for name in sizes):
        if any(mesh.shape[name] % sizes[name] for name in sizes):
            return None
        key: Any = ("block", mesh, tuple(sizes.items()), params["in_specs"], params["out_specs"])
        process_shards = lazy.submodule("weft.batching.process_shards")
        return params["jaxpr"].memoize(key, lambda _: process_shards.of_process(params, sizes))
    return _as_written(params)


def _as_written(params: dict[str, Any]) -> kinds.Shards:
    """The program of one device along the axes that it names."""
    jaxpr = plain_program(params["jaxpr"])
    pairs = (jaxpr.invars, params["in_specs"]), (jaxpr.outvars, params["out_specs"])
    ins, outs = (
        tuple([
            tuple([axes_of_dimension(spec, d) for d in range(atom.aval.ndim)])
            for atom, spec in zip(atoms, specs, strict=True)
        ])
        for atoms, specs in pairs
    )  # fmt: skip
    return kinds.Shards(jaxpr, params["newly_manual_axes"], ins, outs)


_KIND = kinds.Higher(inline=_inlined, shards=_shards, written_shards=_as_written)
shard_map_p = ProgramPrimitive("shard_map", _KIND, multiple_results=True, memoize=False)
shard_map_p.def_effectful_abstract_eval(_type_shard_map)
shard_map_p.inside = inside


def _result_shardings(params: dict[str, Any]) -> list[NamedSharding | None]:
    """How the results lie. None for a mesh without devices, or with axes that are left to the outside."""
    mesh = params["mesh"]
    if not isinstance(mesh, Mesh):
        return [None] * len(params["out_specs"])
    return [NamedSharding(mesh, spec) for spec in params["out_specs"]]


shard_map_p.result_shardings = _result_shardings


def bind(closed: ClosedJaxpr, operands: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """Record the program of a shard as one equation; captured values become operands that are not cut.

    Where types say what varies, results are made to vary along the axes that their specs name.
    """
    jaxpr = closed.jaxpr
    params = {**params, "in_specs": tuple(params["in_specs"]), "out_specs": tuple(params["out_specs"])}
    if jaxpr.constvars:
        info = jaxpr.debug_info.with_unknown_names() if jaxpr.debug_info is not None else None
        jaxpr = jaxpr.replace(constvars=[], invars=[*jaxpr.constvars, *jaxpr.invars], debug_info=info)
        params["in_specs"] = (PartitionSpec(),) * len(closed.consts) + params["in_specs"]
    if params["check_vma"]:
        jaxpr = _with_varying_results(jaxpr, params)
    return shard_map_p.bind(*closed.consts, *operands, jaxpr=jaxpr, **params)


def _with_varying_results(jaxpr: Jaxpr, params: dict[str, Any]) -> Jaxpr:
    pairs = list(zip(jaxpr.outvars, params["out_specs"], strict=True))
    if all(set(axes_of_spec(spec)) <= set(atom.aval.varying) for atom, spec in pairs):
        return jaxpr

    def flat(*values: Any) -> list[Any]:
        outs = eval_jaxpr(jaxpr, (), *values)
        return [varying.widened(x, axes_of_spec(spec)) for x, (_, spec) in zip(outs, pairs, strict=True)]

    with inside(params):
        closed, _ = tracing.trace_to_jaxpr(flat, jaxpr.in_avals, jaxpr.debug_info, of_program=True)
    return closed.jaxpr


# -- without types of what varies -------------------------------------------------------------------------------------

_PLAIN: dict[Any, tuple[Any, dict[str, Any]]] = {
    collectives.psum_invariant_p: (collectives.psum_p, {"axis_index_groups": None}),
    exchanges.all_gather_invariant_p: (exchanges.all_gather_p, {"axis_index_groups": None}),
}


def plain_program(jaxpr: Jaxpr) -> Jaxpr:
    """The same program, whose types do not say what varies; memoised on it. It computes the same values."""
    return jaxpr.memoize("plain", _plain_program)


def _plain_program(jaxpr: Jaxpr) -> Jaxpr:
    env: dict[Any, Any] = {}

    def binder(v: Var) -> Var:
        env[v] = v if not _says_more(v.aval) else type(v)(_plain_value(v.aval))
        return env[v]

    def read(atom: Any) -> Any:
        return atom if type(atom) is Literal else env[atom]

    constvars, invars = [binder(v) for v in jaxpr.constvars], [binder(v) for v in jaxpr.invars]
    eqns: list[JaxprEqn] = []
    for eqn in jaxpr.eqns:
        operands = [read(atom) for atom in eqn.invars]
        if eqn.primitive is collectives.pvary_p:
            env[eqn.outvars[0]] = operands[0]
            continue
        primitive, more = _PLAIN.get(eqn.primitive, (eqn.primitive, {}))
        params = {name: _plain_value(value) for name, value in eqn.params.items()} | more
        if primitive is shard_map_p:
            params["check_vma"] = False
        if params.get("vmap_method", "") is None:  # of a callback, or of a foreign function
            params["vmap_method"] = "sequential"  # each device calls it with its own values
        outvars = [v if type(v) is DropVar and not _says_more(v.aval) else binder(v) for v in eqn.outvars]
        eqns.append(eqn.replace(invars=operands, outvars=outvars, primitive=primitive, params=params))
    outvars = [read(atom) for atom in jaxpr.outvars]
    return Jaxpr(constvars, invars, outvars, eqns, joined_effects(eqns), jaxpr.debug_info)


def _plain_value(value: Any) -> Any:
    if isinstance(value, Jaxpr):
        return plain_program(value)
    if isinstance(value, ClosedJaxpr):
        return ClosedJaxpr(plain_program(value.jaxpr), value.consts)
    if type(value) in (tuple, list) and any(isinstance(item, (Jaxpr, ClosedJaxpr)) for item in value):
        return type(value)([_plain_value(item) for item in value])
    if type(value) is runtime.ShapedArray:
        return value.update(varying=(), sharding=None)
    return value


def _says_more(aval: Any) -> bool:
    """Whether a type says along which axes values vary or lie."""
    return type(aval) is runtime.ShapedArray and (bool(aval.varying) or aval.explicit_sharding is not None)


# -- in one process ---------------------------------------------------------------------------------------------------


def _on_whole(
    jaxpr: Jaxpr, mesh: Any, in_specs: Any, out_specs: Any, check_vma: bool, newly_manual_axes: frozenset[Any]
) -> ClosedJaxpr:
    jaxpr = plain_program(jaxpr)
    axes = [Axis(size, name) for name, size in mesh.shape_tuple if name in newly_manual_axes]
    params = {"mesh": mesh, "newly_manual_axes": newly_manual_axes}
    in_avals = [
        whole_type(v.aval, spec, params).update(sharding=None) for v, spec in zip(jaxpr.invars, in_specs, strict=True)
    ]

    def run(*shards: Any) -> list[Any]:
        return eval_jaxpr(jaxpr, (), *shards)

    def flat(*values: Any) -> list[Any]:
        cut = [_cut(value, spec, mesh) for value, spec in zip(values, in_specs, strict=True)]
        made = _mapped(axes, run, cut)
        return [_joined(stack, spec, mesh) for stack, spec in zip(made, out_specs, strict=True)]

    with varying.checked(None):
        return tracing.trace_to_jaxpr(flat, in_avals, jaxpr.debug_info, of_program=True)[0]


class Stack(NamedTuple):
    """Shards of a value in one array: the dimension along each mesh axis; None where all shards are the same."""

    array: Any
    positions: dict[Any, Dim]


def _cut(value: Any, spec: PartitionSpec, mesh: Any) -> Stack:
    """A view of a whole value as its shards."""
    sizes: list[int] = []
    positions: dict[Any, Dim] = {}
    extents = get_aval(value).shape
    for dimension, extent in enumerate(extents):
        names = axes_of_dimension(spec, dimension)
        for name in names:
            positions[name] = len(sizes)
            sizes.append(mesh.shape[name])
        sizes.append(extent // parts(mesh, names))
    return Stack(shape.reshape(value, sizes) if len(sizes) > len(extents) else value, positions)


def _mapped(axes: Sequence[Axis], run: Callable[..., list[Any]], values: Sequence[Stack]) -> list[Stack]:
    """``run`` of shards, mapped over each of these axes, the first outermost."""
    if not axes:
        return [Stack(out, {}) for out in run(*[value.array for value in values])]
    axis, rest = axes[0], axes[1:]
    dims = [value.positions.get(axis.name) for value in values]
    found: list[Stack] = []

    def within(*elements: Any) -> list[Any]:
        inner = [
            Stack(x, {name: _without(position, dim) for name, position in value.positions.items() if name != axis.name})
            for x, value, dim in zip(elements, values, dims, strict=True)
        ]
        found[:] = _mapped(rest, run, inner)
        return [out.array for out in found]

    outs, out_dims = map_flat(within, axis, [value.array for value in values], dims)
    made = []
    for out, dim, inner in zip(outs, out_dims, found, strict=True):
        positions = {name: _beside(position, dim) for name, position in inner.positions.items()}
        made.append(Stack(out, {**positions, axis.name: dim}))
    return made


def _without(position: Dim, dim: Dim) -> Dim:
    """A dimension's position once dimension ``dim`` is taken out."""
    return position if position is None or dim is None else position - (position > dim)


def _beside(position: Dim, dim: Dim) -> Dim:
    """A dimension's position once a dimension has been put in at ``dim``."""
    return position if position is None or dim is None else position + (position >= dim)


def _joined(stack: Stack, spec: PartitionSpec, mesh: Any) -> Any:
    """The whole value. Along axes that the spec does not name all shards are the same, and the first is taken."""
    array, positions = stack.array, dict(stack.positions)
    wanted = axes_of_spec(spec)
    for name in list(positions):
        dim = positions[name]
        if name in wanted:
            if dim is None:
                array = in_front(mesh.shape[name], array, None)
                positions = {**{other: _beside(position, 0) for other, position in positions.items()}, name: 0}
        elif dim is not None:
            array = shape.index_in_dim(array, 0, dim, keepdims=False)
            positions = {**{other: _without(position, dim) for other, position in positions.items()}, name: None}
    extents = get_aval(array).shape
    local = [d for d in range(len(extents)) if d not in [positions[name] for name in wanted]]
    order: list[int] = []
    sizes: list[int] = []
    for dimension, own in enumerate(local):
        names = axes_of_dimension(spec, dimension)
        order += [*[positions[name] for name in names], own]  # type: ignore[list-item] - all are there by now
        sizes.append(extents[own] * parts(mesh, names))
    if order != sorted(order):
        array = shape.transpose(array, order)
    return shape.reshape(array, sizes) if len(sizes) < len(extents) else array
