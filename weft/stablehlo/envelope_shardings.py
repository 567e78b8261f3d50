"""Shardings in the files of exported functions: tables of abstract meshes and of the shardings over them.

A file lists each mesh and each sharding once; arguments and results have the number of theirs, 0 for none. The numbers
of fields are those of JAX 0.10's ``serialization.fbs``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.core.sharding.meshes import AbstractDevice, AbstractMesh, AxisType
from weft.core.sharding.partition_specs import UNCONSTRAINED, PartitionSpec, names_of
from weft.core.sharding.shardings import NamedSharding
from weft.stablehlo.flat_tables import Numbers, Scalar, Table, View

Shardings = Sequence[NamedSharding | None]
_AXIS_TYPES = {AxisType.Auto: 1, AxisType.Explicit: 2, AxisType.Manual: 3}
_OF_NUMBER = {number: kind for kind, number in _AXIS_TYPES.items()}


# -- writing ----------------------------------------------------------------------------------------------------------


def slots(ins: Shardings, outs: Shardings) -> dict[int, Any]:
    """The slots of an exported function that say how its arguments and results lie."""
    unique = list(dict.fromkeys([s for s in (*ins, *outs) if s is not None]))
    meshes = list(dict.fromkeys([s.mesh.abstract_mesh for s in unique]))
    tables = {None: Table({0: Scalar(0, "b")})}
    tables |= {s: Table({0: Scalar(0, "b"), 2: _sharding(s, meshes)}) for s in unique}
    numbers = {s: number for number, s in enumerate([None, *unique])}
    return {
        7: [tables[s] for s in ins],
        8: [tables[s] for s in outs],
        20: list(map(_mesh, meshes)),
        21: [_sharding(s, meshes) for s in unique],
        24: Numbers([numbers[s] for s in ins], "I"),
        25: Numbers([numbers[s] for s in outs], "I"),
    }


def _mesh(mesh: AbstractMesh) -> Table:
    device = mesh.abstract_device
    described = None
    if device is not None:
        cores = None if device.num_cores is None else Scalar(device.num_cores, "I")
        described = Table({0: device.device_kind, 1: cores, 2: device.platform})
    types = Numbers([_AXIS_TYPES[kind] for kind in mesh.axis_types], "b")
    return Table({0: Numbers(mesh.axis_sizes, "I"), 1: list(map(str, mesh.axis_names)), 2: types, 3: described})


def _sharding(sharding: NamedSharding, meshes: list[AbstractMesh]) -> Table:
    spec = sharding.spec
    if UNCONSTRAINED in spec.partitions:
        raise NotImplementedError(f"[serialize] a file has no form for {spec}, which leaves a dimension open")
    entries = [Table({0: list(map(str, names_of(entry)))}) for entry in spec.partitions]
    partial = [sorted(map(str, axes)) for axes in (spec.reduced, spec.unreduced)]
    mesh = sharding.mesh.abstract_mesh
    number = Scalar(meshes.index(mesh), "I")
    return Table(
        {0: _mesh(mesh), 1: Table({0: entries, 1: partial[0], 2: partial[1]}), 2: sharding.memory_kind, 3: number}
    )


# -- reading ----------------------------------------------------------------------------------------------------------


def read(view: View) -> tuple[Shardings, Shardings]:
    """The shardings of arguments and of results; None for those that files from before 2026 state in HLO."""
    meshes = [_read_mesh(table) for table in view.tables(20)]
    unique = [None, *[_read_sharding(table, meshes) for table in view.tables(21)]]
    found = []
    for plain, numbered in ((7, 24), (8, 25)):
        numbers = view.numbers(numbered, "I")
        if numbers:
            found.append([unique[number] for number in numbers])
        else:
            found.append([_read_plain(table.table(2), meshes) for table in view.tables(plain)])
    return found[0], found[1]


def _read_plain(view: View | None, meshes: list[AbstractMesh]) -> NamedSharding | None:
    return None if view is None else _read_sharding(view, meshes)


def _read_mesh(view: View) -> AbstractMesh:
    device = view.table(3)
    described = None
    if device is not None:
        cores = device.number(1, "I") if device.has(1) else None
        described = AbstractDevice(device.string(0), cores, device.string(2) or "cpu")
    types = tuple([_OF_NUMBER[number] for number in view.numbers(2, "b")])
    return AbstractMesh(view.numbers(0, "I"), tuple(view.strings(1)), types, abstract_device=described)


def _read_sharding(view: View, meshes: list[AbstractMesh]) -> NamedSharding:
    own, spec = view.table(0), view.table(1)
    mesh = meshes[view.number(3, "I")] if meshes or own is None else _read_mesh(own)
    if spec is None:
        raise LookupError("a sharding without a spec")
    entries = [tuple(entry.strings(0)) for entry in spec.tables(0)]
    partial = {name: frozenset(spec.strings(slot)) for name, slot in (("reduced", 1), ("unreduced", 2))}
    return NamedSharding(mesh, PartitionSpec(*entries, **partial), memory_kind=view.string(2) or None)
