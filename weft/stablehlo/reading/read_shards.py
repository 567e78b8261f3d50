"""How shardings, programs of shards and collectives are read: as constraints, ``shard_map`` and weft's collectives.

Meshes are read without devices. Groups of devices become axes of the mesh by name::

    all_reduce, replica_groups = [[0, 1], [2, 3], [4, 5], [6, 7]]     on a mesh of x=4, y=2     psum[axes=('y',)]
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from weft import lax, runtime
from weft._base.record import NamedTuple
from weft.batching import shard_derivatives, shards
from weft.core import avals
from weft.core.sharding.meshes import AbstractMesh, AxisType
from weft.core.sharding.partition_specs import UNCONSTRAINED, PartitionSpec, names_of
from weft.core.sharding.shardings import NamedSharding
from weft.core.tracing.trace import trace_to_jaxpr
from weft.dispatch.devices import shardings
from weft.stablehlo.collectives import groups_of
from weft.stablehlo.reading import parser

_LOADED = shard_derivatives  # imported for the rules that it defines
_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_MESH = re.compile(rf"#sdy\.mesh<\[(?:{_STRING}=\d+(?:, )?)*\]>")
_SHARDING = re.compile(rf"<@({_STRING}|[\w.$-]+), \[((?:[^\[\]\"]|{_STRING})*)\]")
_ENTRY = re.compile(rf"\{{((?:[^{{}}\"]|{_STRING})*)\}}")


class ByHand(NamedTuple):
    """Inside of the program of a shard: its mesh, and the axes that are mapped."""

    mesh: AbstractMesh
    axes: frozenset[str]


# -- shardings --------------------------------------------------------------------------------------------------------


def mesh_of(text: str) -> AbstractMesh | None:
    """The mesh of ``#sdy.mesh<["x"=4, "y"=2]>``; None for one whose devices are in another order."""
    if _MESH.fullmatch(text) is None:
        return None
    found = re.findall(rf"({_STRING})=(\d+)", text)
    return AbstractMesh([int(size) for _, size in found], [_word(name) for name, _ in found])


def _word(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1])


def shardings_of(text: str, meshes: dict[str, AbstractMesh | None]) -> list[NamedSharding | None]:
    """The shardings in a text; None for one that names parts of axes, or no axes."""
    return [_sharding(symbol, entries, meshes) for symbol, entries in _SHARDING.findall(text)]


def _sharding(symbol: str, entries: str, meshes: dict[str, AbstractMesh | None]) -> NamedSharding | None:
    mesh = meshes.get(symbol.strip('"'))
    if mesh is None or mesh.empty or ":(" in re.sub(_STRING, "", entries):
        return None
    found: list[Any] = []
    for inner in _ENTRY.findall(entries):
        axes = tuple(map(_word, re.findall(_STRING, inner)))
        found.append(axes or (UNCONSTRAINED if "?" in inner else None))
    return NamedSharding(mesh, PartitionSpec(*found))


def constrained(x: Any, sharding: NamedSharding | None) -> Any:
    """A value that lies as a sharding says, if that says something and fits."""
    if sharding is None or all(entry is UNCONSTRAINED for entry in sharding.spec.partitions):
        return x
    shape = avals.get_aval(x).shape
    parts = sharding.tiling(len(shape)) if len(sharding.spec.partitions) <= len(shape) else ()
    if len(parts) != len(shape) or any(n % part for n, part in zip(shape, parts, strict=True)):
        return x
    return shardings.constrained(x, sharding)


def constraint(site: Any, x: Any) -> Any:
    """``sdy.sharding_constraint``; in a program that is run by hand along all axes it says nothing."""
    here = site.reading.by_hand
    if here is not None and here.axes.issuperset(here.mesh.axis_names):
        return x
    found = shardings_of(site.attribute("sharding") or "", site.reading.meshes)
    return constrained(x, found[0] if found else None)


# -- the program of a shard -------------------------------------------------------------------------------------------


def manual_computation(site: Any, *operands: Any) -> list[Any]:
    """``sdy.manual_computation`` as ``shard_map``."""
    reading = site.reading
    ins, outs = [shardings_of(site.attribute(name) or "", reading.meshes) for name in ("in_shardings", "out_shardings")]
    axes = frozenset(map(_word, re.findall(_STRING, site.attribute("manual_axes") or "")))
    outer = reading.by_hand
    mesh = _mesh_of(axes, [*ins, *outs], reading, outer)
    if mesh is None or len(ins) != len(operands) or len(outs) != len(site.types):
        raise NotImplementedError("[stablehlo] a program of shards over parts of axes, or devices in another order")
    if outer is not None:
        mesh = mesh.update_axis_types(dict.fromkeys(outer.axes, AxisType.Manual))
    in_specs, out_specs = [[_along(sharding, axes) for sharding in each] for each in (ins, outs)]
    params = {"mesh": mesh, "check_vma": False, "newly_manual_axes": axes}
    types = [avals.get_aval(x) for x in operands]
    local = [shards.shard_type(_plain(aval), spec, params) for aval, spec in zip(types, in_specs, strict=True)]
    region = site.region()
    reading.by_hand = ByHand(mesh, axes if outer is None else axes | outer.axes)
    try:
        with shards.inside(params):
            closed, _ = trace_to_jaxpr(lambda *values: region(*values), local)
    finally:
        reading.by_hand = outer
    return shards.bind(closed, operands, {**params, "in_specs": in_specs, "out_specs": out_specs})


def _mesh_of(axes: frozenset[str], given: Sequence[Any], reading: Any, outer: ByHand | None) -> AbstractMesh | None:
    """The mesh of a program of shards: that of its shardings."""
    if None in given:
        return None
    named = [sharding.mesh for sharding in given] or ([outer.mesh] if outer is not None else reading.meshes.values())
    return next((mesh for mesh in named if mesh is not None and axes <= set(mesh.axis_names)), None)


def _plain(aval: Any) -> Any:
    return runtime.ShapedArray(aval.shape, aval.dtype)


def _along(sharding: NamedSharding | None, axes: frozenset[str]) -> PartitionSpec:
    """What a sharding says of the axes that are mapped; the others are left to the outside."""
    assert sharding is not None  # else it has no mesh
    return PartitionSpec(*[
        tuple([name for name in names_of(entry) if name in axes]) or None for entry in sharding.spec.partitions
    ])  # fmt: skip


# -- who takes part ---------------------------------------------------------------------------------------------------


class Group(NamedTuple):
    """The axes of a collective, none if each device is alone; and groups of indices along the only one."""

    names: tuple[str, ...]
    within: list[list[int]] | None = None


def _here(site: Any) -> ByHand:
    found = site.reading.by_hand
    if found is None:
        raise NotImplementedError(
            f"[stablehlo] {site.operation.name} outside of sdy.manual_computation: weft reads messages between devices "
            "in the programs of shards, which JAX writes since 2025"
        )
    return found


def _table(site: Any, name: str) -> np.ndarray:
    text = site.attribute(name) or ""
    if not text.startswith("dense"):
        raise NotImplementedError(f"[stablehlo] {site.operation.name} with {name} = {text or 'nothing'}")
    return parser.constant(text)


def _group(site: Any) -> Group:
    """Who takes part, from ``replica_groups``."""
    rows = _table(site, "replica_groups")
    if rows.size and rows.shape[1] == 1:
        return Group(())
    mesh, axes = _here(site)
    rows = rows if rows.size else np.arange(mesh.size)[None]  # none are listed: all take part
    names = _varying(mesh, rows)
    for order in itertools.permutations(names):
        if _same_rows(groups_of(mesh, order), rows):
            return Group(_mapped(site, order, axes))
    if len(names) == 1:
        digits = _digits(mesh, rows)[mesh.axis_names.index(names[0])]
        within = [list(each) for each in dict.fromkeys(map(tuple, digits.tolist()))]
        if _same_rows(groups_of(mesh, names, within), rows):
            return Group(_mapped(site, names, axes), within)
    raise NotImplementedError(
        f"[stablehlo] {site.operation.name} among the devices {rows.tolist()}, which are along no axes of {mesh}"
    )


def _mapped(site: Any, names: tuple[str, ...], axes: frozenset[str]) -> tuple[str, ...]:
    if not axes.issuperset(names):
        raise ValueError(f"[stablehlo] {site.operation.name} along {names}, but only {sorted(axes)} are by hand")
    return names


def _digits(mesh: AbstractMesh, devices: np.ndarray) -> tuple[np.ndarray, ...]:
    """The indices of devices along each axis."""
    return np.unravel_index(devices, mesh.axis_sizes)


def _varying(mesh: AbstractMesh, rows: np.ndarray) -> tuple[str, ...]:
    """The axes along which the devices of a group differ."""
    digits = _digits(mesh, rows[0])
    return tuple([name for name, each in zip(mesh.axis_names, digits, strict=True) if len(set(each.tolist())) > 1])


def _same_rows(one: np.ndarray, other: np.ndarray) -> bool:
    return sorted(one.tolist()) == sorted(other.tolist())


# -- collectives ------------------------------------------------------------------------------------------------------

_REDUCERS = {"stablehlo.add": lax.psum, "stablehlo.maximum": lax.pmax, "stablehlo.minimum": lax.pmin}
_ON_BITS = {
    "stablehlo.multiply": lax.reduce_prod, "stablehlo.and": lax.reduce_and, "stablehlo.or": lax.reduce_or,
    "stablehlo.xor": lax.reduce_xor,
}  # fmt: skip


def all_reduce(site: Any, *xs: Any) -> list[Any]:
    names, within = _group(site)
    return [_all_reduced(site, x, names, within) for x in xs] if names else list(xs)


def _all_reduced(site: Any, x: Any, names: tuple[str, ...], within: Any) -> Any:
    name = site.single()
    if name == "stablehlo.add" and avals.get_aval(x).dtype.kind == "b":
        name = "stablehlo.maximum"
    if name in _REDUCERS:
        return _REDUCERS[name](x, names, axis_index_groups=within)
    if name not in _ON_BITS:
        raise NotImplementedError(f"[stablehlo] {site.operation.name} by a function that is no single known operation")
    return _ON_BITS[name](lax.all_gather(x, names, axis_index_groups=within), (0,))


def all_gather(site: Any, *xs: Any) -> list[Any]:
    names, within = _group(site)
    axis = parser.integer(site.attribute("all_gather_dim"))
    if not names:
        return list(xs)
    return [lax.all_gather(x, names, axis=axis, tiled=True, axis_index_groups=within) for x in xs]


def reduce_scatter(site: Any, x: Any) -> Any:
    names, within = _group(site)
    if site.single() != "stablehlo.add":
        raise NotImplementedError("[stablehlo] reduce_scatter by another function than a sum")
    axis = parser.integer(site.attribute("scatter_dimension"))
    if not names:
        return x
    return lax.psum_scatter(x, names, scatter_dimension=axis, tiled=True, axis_index_groups=within)


def all_to_all(site: Any, *xs: Any) -> list[Any]:
    names, within = _group(site)
    split, joined = [parser.integer(site.attribute(f"{word}_dimension")) for word in ("split", "concat")]
    if not names:
        return list(xs)
    return [lax.all_to_all(x, names, split, joined, tiled=True, axis_index_groups=within) for x in xs]


def collective_permute(site: Any, x: Any) -> Any:
    pairs = _table(site, "source_target_pairs").reshape(-1, 2)
    mesh, axes = _here(site)
    for names in _subsets([name for name in mesh.axis_names if name in axes]):
        rows = groups_of(mesh, names)
        positions = {
            int(device): (row, position) for row, each in enumerate(rows) for position, device in enumerate(each)
        }
        found = [(positions[source], positions[target]) for source, target in pairs.tolist()]
        perm = list(dict.fromkeys([(source[1], target[1]) for source, target in found]))
        made = {(int(row[source]), int(row[target])) for row in rows for source, target in perm}
        if made == set(map(tuple, pairs.tolist())):
            return lax.ppermute(x, names, perm)
    raise NotImplementedError(f"[stablehlo] collective_permute by {pairs.tolist()}, which is along no axes of {mesh}")


def _subsets(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for count in range(1, len(names) + 1):
        yield from itertools.combinations(names, count)


def collective_broadcast(site: Any, x: Any) -> Any:
    """The first device of each group sends."""
    names, within = _group(site)
    if not names:
        return x
    return lax.index_in_dim(lax.all_gather(x, names, axis_index_groups=within), 0, 0, keepdims=False)


def partition_id(site: Any) -> Any:
    """The number of the device: its position in the mesh."""
    if site.reading.by_hand is None and site.reading.n_devices == 1:
        return np.uint32(0)
    mesh, axes = _here(site)
    if not axes.issuperset(mesh.axis_names):
        raise NotImplementedError(f"[stablehlo] partition_id where only {sorted(axes)} of {mesh} are by hand")
    return lax.convert_element_type(lax.axis_index(mesh.axis_names), np.uint32)


READERS = {
    "sdy.sharding_constraint": constraint, "sdy.reshard": constraint, "sdy.manual_computation": manual_computation,
    "stablehlo.all_reduce": all_reduce, "stablehlo.all_gather": all_gather,
    "stablehlo.reduce_scatter": reduce_scatter, "stablehlo.all_to_all": all_to_all,
    "stablehlo.collective_permute": collective_permute, "stablehlo.collective_broadcast": collective_broadcast,
    "stablehlo.partition_id": partition_id,
}  # fmt: skip
