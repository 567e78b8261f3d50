"""Shardings: which part of an array each device holds.

A ``NamedSharding`` is a mesh and a spec. Along a dimension that is cut by several axes of the mesh, the first named is
the major one; a device's part along it has the number that the device's coordinates on these axes make::

    mesh x: 4, y: 2; P(("y", "x"))       the part of the device at (x, y) is number y * 4 + x of 8
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.core.sharding.meshes import AbstractMesh, AxisType, show_axes
from weft.core.sharding.partition_specs import UNCONSTRAINED, PartitionSpec, names_of

Index = tuple[slice, ...]
MEMORY_KINDS = ("device", "pinned_host", "unpinned_host")  # names of one memory, where the device is the CPU


class Space(enum.Enum):
    """A memory of whichever device an array lies on: the device's own, or that of its host."""

    Device = "device"
    Host = "pinned_host"
    Any = None

    def __repr__(self) -> str:
        return f"MemorySpace.{self.name}"


class IndivisibleError(ValueError):
    """A dimension is cut into parts that are not of one size."""


class DuplicateSpecError(ValueError):
    """A spec names a mesh axis twice."""

    def __init__(self, message: str, mesh: Any, pspec: PartitionSpec) -> None:
        super().__init__(message)
        self.message, self.mesh, self.pspec = message, mesh, pspec


class Sharding:
    """How an array is distributed over devices; the base of ``SingleDeviceSharding`` and ``NamedSharding``."""

    memory_kind: str | None = None

    @property
    def device_set(self) -> set[Any]:
        raise NotImplementedError("[Sharding] device_set is defined by the concrete sharding")

    @property
    def device_list(self) -> tuple[Any, ...]:
        """The devices in the order of the mesh."""
        raise NotImplementedError("[Sharding] device_list is defined by the concrete sharding")

    @property
    def num_devices(self) -> int:
        return len(self.device_set)

    @property
    def addressable_devices(self) -> set[Any]:
        """Those of this process."""
        return {device for device in self.device_list if device.is_local}

    @property
    def has_addressable_devices(self) -> bool:
        return bool(self.addressable_devices)

    @property
    def is_fully_addressable(self) -> bool:
        return all(device.is_local for device in self.device_list)

    @property
    def is_fully_replicated(self) -> bool:
        raise NotImplementedError("[Sharding] is_fully_replicated is defined by the concrete sharding")

    def tiling(self, ndim: int) -> tuple[int, ...]:
        """Into how many parts each of ``ndim`` dimensions is cut."""
        return (1,) * ndim

    def shard_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the part that one device has."""
        self.check_shape(global_shape)
        return tuple(
            [extent // parts for extent, parts in zip(global_shape, self.tiling(len(global_shape)), strict=True)]
        )

    def check_shape(self, global_shape: Sequence[int]) -> None:
        """Raise what JAX raises if an array of this shape cannot lie so."""

    def devices_indices_map(self, global_shape: Sequence[int]) -> dict[Any, Index]:
        """For each device the index of its part."""
        whole = (slice(None),) * len(global_shape)
        return dict.fromkeys(self.device_list, whole)

    def addressable_devices_indices_map(self, global_shape: Sequence[int]) -> dict[Any, Index]:
        """For each device of this process the index of its part."""
        return {d: index for d, index in self.devices_indices_map(global_shape).items() if d.is_local}

    def with_memory_kind(self, kind: str) -> Sharding:
        """The same in another memory."""
        raise NotImplementedError("[Sharding] with_memory_kind is defined by the concrete sharding")

    def layout(self, ndim: int) -> Any:
        """What equivalent shardings of arrays with ``ndim`` dimensions have in common: who has which part."""
        return self.memory_kind, tuple(map(id, self.device_list)), ()

    def is_equivalent_to(self, other: Any, ndim: int) -> bool:
        """Whether each device has the same part in both."""
        return isinstance(other, Sharding) and self.layout(ndim) == other.layout(ndim)


class SingleDeviceSharding(Sharding):
    """All of the array on one device.

    >>> weft.sharding.SingleDeviceSharding(weft.devices()[0]).shard_shape((2, 3))
    (2, 3)
    """

    def __init__(self, device: Any, *, memory_kind: str | None = None) -> None:
        self._device = device
        self.memory_kind = memory_kind or "device"
        check_memory(self.memory_kind, device)

    @property
    def device_set(self) -> set[Any]:
        return {self._device}

    @property
    def device_list(self) -> tuple[Any, ...]:
        return (self._device,)

    @property
    def is_fully_replicated(self) -> bool:
        return True

    def with_memory_kind(self, kind: str) -> SingleDeviceSharding:
        return SingleDeviceSharding(self._device, memory_kind=kind)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, SingleDeviceSharding)
            and self._device is other._device
            and self.memory_kind == other.memory_kind
        )

    def __hash__(self) -> int:
        return hash((id(self._device), self.memory_kind))

    def __repr__(self) -> str:
        return f"SingleDeviceSharding(device={self._device!r}, memory_kind={self.memory_kind})"


class NamedSharding(Sharding):
    """A mesh, and which dimension of an array lies along which of its axes.

    >>> mesh = weft.sharding.AbstractMesh((4, 2), ("x", "y"))
    >>> weft.sharding.NamedSharding(mesh, weft.sharding.PartitionSpec("x")).shard_shape((8, 3))
    (2, 3)
    """

    def __init__(self, mesh: Any, spec: PartitionSpec, *, memory_kind: str | None = None, **_: Any) -> None:
        if not isinstance(spec, PartitionSpec):
            raise AttributeError(f"[NamedSharding] spec is a weft.sharding.PartitionSpec, got {spec!r}")
        check_spec(mesh, spec)
        usual = None if isinstance(mesh, AbstractMesh) else "device"
        self.mesh, self.spec, self.memory_kind = mesh, spec, memory_kind or usual
        if memory_kind is not None and usual is not None and mesh.size:
            check_memory(memory_kind, mesh.devices.flat[0])
        self._hash = hash((mesh, spec, self.memory_kind))

    def _concrete(self, name: str) -> Any:
        if isinstance(self.mesh, AbstractMesh):
            raise ValueError(f"{name} is not implemented for `weft.sharding.AbstractMesh`.")
        return self.mesh

    @property
    def device_set(self) -> set[Any]:
        return set(self._concrete("device_set").flat_devices)

    @property
    def device_list(self) -> tuple[Any, ...]:
        return self._concrete("_device_assignment").flat_devices

    @property
    def num_devices(self) -> int:
        return self.mesh.size

    @property
    def addressable_devices(self) -> set[Any]:
        return {device for device in self._concrete("addressable_devices").flat_devices if device.is_local}

    @property
    def is_fully_addressable(self) -> bool:
        return all(device.is_local for device in self._concrete("is_fully_addressable").flat_devices)

    @property
    def is_fully_replicated(self) -> bool:
        if self.mesh.size == 1:
            return True
        sizes = self.mesh.shape
        return not self.spec.unreduced and math.prod(sizes[axis] for axis in self.spec.axes()) == 1

    @property
    def replicated_axes(self) -> frozenset[Any]:
        """The axes along which devices have the same part."""
        return frozenset(self.mesh.axis_names) - {*self.spec.axes(), *self.spec.unreduced, *self.spec.reduced}

    def tiling(self, ndim: int) -> tuple[int, ...]:
        sizes = self.mesh.shape
        return tuple([math.prod(sizes[axis] for axis in names_of(e)) for e in self.spec.padded(ndim).partitions])

    def check_shape(self, global_shape: Sequence[int]) -> None:
        self.check_compatible_aval(global_shape)
        tiling = self.tiling(len(global_shape))
        for dim, (extent, parts) in enumerate(zip(global_shape, tiling, strict=True)):
            if extent % parts != 0:
                raise IndivisibleError(
                    f"Sharding {self} implies that array axis {dim} is partitioned {parts} times, but the dimension "
                    f"size is {extent} (full shape: {tuple(global_shape)}, per-dimension tiling factors: "
                    f"{list(tiling)} should evenly divide the shape)"
                )

    def check_compatible_aval(self, aval_shape: Sequence[int]) -> None:
        """Raise ValueError if the spec has more entries than an array of this shape has dimensions."""
        if len(aval_shape) < len(self.spec):
            scalar = "" if aval_shape else " For scalars the PartitionSpec should be P()"
            raise ValueError(
                f"Sharding {self} is only valid for values of rank at least {len(self.spec)}, but was applied to a "
                f"value of rank {len(aval_shape)}.{scalar}"
            )

    def devices_indices_map(self, global_shape: Sequence[int]) -> dict[Any, Index]:
        if self.spec.unreduced:
            raise NotImplementedError(
                f"[devices_indices_map] along the unreduced axes of {self.spec} no device has a part of the array"
            )
        shard = self.shard_shape(global_shape)
        numbers = self._part_numbers(len(global_shape))
        tiling = self.tiling(len(global_shape))
        found: dict[Any, Index] = {}
        for at, device in enumerate(self._concrete("_device_assignment").flat_devices):
            found[device] = tuple(
                [
                    slice(None) if parts == 1 else slice(int(number[at]) * size, (int(number[at]) + 1) * size)
                    for number, size, parts in zip(numbers, shard, tiling, strict=True)
                ]
            )
        return found

    def _part_numbers(self, ndim: int) -> list[np.ndarray]:
        """For each dimension the number of the part that each device (in the mesh's order) has of it."""
        sizes = self.mesh.shape
        grid = np.indices(self.mesh.axis_sizes).reshape(len(self.mesh.axis_sizes), -1)
        coordinates = dict(zip(self.mesh.axis_names, grid, strict=True))
        found = []
        for entry in self.spec.padded(ndim).partitions:
            number = np.zeros(self.mesh.size, int)
            for axis in names_of(entry):
                number = number * sizes[axis] + coordinates[axis]
            found.append(number)
        return found

    def layout(self, ndim: int) -> Any:
        numbers = self._part_numbers(ndim)
        parts = tuple([tuple(number.tolist()) for number in numbers]) if self.spec.axes() else ()
        if not any(any(number) for number in parts):
            parts = ()
        abstract = isinstance(self.mesh, AbstractMesh)
        devices = self.mesh.size if abstract else tuple(map(id, self.device_list))
        partial = tuple(sorted(map(str, self.spec.unreduced)))
        return (self.memory_kind, devices, (*parts, partial) if partial else parts)

    def dimension_text(self, dim: int) -> str:
        """How a dimension is printed behind its extent: ``@x``, ``@(x,y)``, or nothing."""
        names = names_of(self.spec.partitions[dim]) if dim < len(self.spec) else ()
        return f"@{names[0]}" if len(names) == 1 else f"@({','.join(map(str, names))})" if names else ""

    def with_memory_kind(self, kind: str) -> NamedSharding:
        return self.update(memory_kind=kind)

    def with_spec(self, spec: Any) -> NamedSharding:
        """The same mesh with another spec, which may be a tuple of its entries."""
        return self.update(spec=spec)

    def update(self, **changed: Any) -> NamedSharding:
        """This sharding with another ``mesh``, ``spec`` (or a tuple of its entries) or ``memory_kind``."""
        spec = changed.pop("spec", self.spec)
        if not isinstance(spec, PartitionSpec):
            spec = PartitionSpec(*spec)
        return NamedSharding(**{"mesh": self.mesh, "spec": spec, "memory_kind": self.memory_kind, **changed})

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, NamedSharding)
            and self._hash == other._hash
            and self.spec == other.spec
            and self.memory_kind == other.memory_kind
            and self.mesh == other.mesh
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        memory = "" if self.memory_kind is None else f", memory_kind={self.memory_kind}"
        return f"NamedSharding(mesh={self.mesh}, spec={self.spec}{memory})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _named, (self.mesh, self.spec, self.memory_kind)


def _named(mesh: Any, spec: PartitionSpec, memory_kind: str | None) -> NamedSharding:
    return NamedSharding(mesh, spec, memory_kind=memory_kind)


def check_unique(spec: PartitionSpec, what: str, mesh: Any = None) -> None:
    """DuplicateSpecError if a spec names an axis twice."""
    axes = spec.axes()
    if len(set(axes)) == len(axes):
        return
    twice = {axis for axis in axes if axes.count(axis) > 1}
    raise DuplicateSpecError(
        f"A single {what} specification can map every mesh axis to at most one positional dimension, but {spec} has "
        f"duplicate entries for {show_axes(twice)}",
        mesh,
        spec,
    )


@functools.lru_cache(1024)
def check_spec(mesh: Any, spec: PartitionSpec) -> None:
    """Raise what JAX raises if a spec does not fit to a mesh."""
    check_unique(spec, "NamedSharding spec", mesh)
    for axis in spec.axes():
        if axis not in mesh.axis_names:
            raise ValueError(f"Resource axis: {axis} of {spec} is not found in mesh: {tuple(mesh.axis_names)}.")
    if UNCONSTRAINED in spec.partitions and AxisType.Auto not in mesh.axis_types:
        raise ValueError(
            f"{spec} cannot contain `P.UNCONSTRAINED` when no mesh axis_types are `Auto`. Got mesh: {mesh}"
        )
    for name, axes in (("unreduced", spec.unreduced), ("reduced", spec.reduced)):
        for axis in axes:
            if axis not in mesh.axis_names:
                raise ValueError(f"{name.title()} axes {axis} is not found in {mesh.axis_names=}. Got {spec}")
            if mesh.type_of(axis) is not AxisType.Explicit:
                raise ValueError(
                    f"{name.title()} axes can only refer to mesh axes that is of type `Explicit`. Got "
                    f"{name} axes: {axes} and mesh: {mesh}"
                )


def check_memory(kind: str, device: Any) -> None:
    """ValueError for a memory that the CPU does not have."""
    if kind not in MEMORY_KINDS and getattr(device, "platform", None) == "cpu":
        raise ValueError(
            "Could not find memory addressable by device cpu. Device cpu can address the following memory kinds: "
            f"{', '.join(MEMORY_KINDS)}. Got memory kind: {kind}"
        )
