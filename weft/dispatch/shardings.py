"""Meshes, partition specs and named shardings, for the one device there is: every axis of a mesh has size 1.

A program written for many devices names axes of a mesh and says which dimension of an array lies along which axis. On
one device every such statement holds of every array, so that placing, constraining and resharding leave arrays as they
are; what is checked is that the names fit together. An array made with a named sharding answers ``.sharding`` with the
``SingleDeviceSharding`` that it is equivalent to.
"""

from __future__ import annotations

import collections
import enum
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import numpy as np

from weft import runtime
from weft.core.tracer import Tracer
from weft.dispatch import placement
from weft.dispatch.devices import CPU, UNCONSTRAINED, Device, PartitionSpec, Sharding


class AxisType(enum.Enum):
    """Who decides how arrays lie along a mesh axis: the compiler, the types of the program, or the program itself."""

    Auto = enum.auto()
    Explicit = enum.auto()
    Manual = enum.auto()

    def __repr__(self) -> str:
        return self.name


class _Axes:
    """What a mesh and an abstract mesh have in common: names, sizes and types of axes."""

    axis_names: tuple[Any, ...]
    axis_sizes: tuple[int, ...]
    axis_types: tuple[AxisType, ...]

    def _set_axes(self, sizes: Sequence[int], axis_names: Any, axis_types: Any) -> None:
        self.axis_names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        self.axis_sizes = tuple(map(int, sizes))
        given = (axis_types,) * len(self.axis_names) if isinstance(axis_types, AxisType) else axis_types
        self.axis_types = tuple(given) if given is not None else (AxisType.Auto,) * len(self.axis_names)
        if len(self.axis_sizes) != len(self.axis_names):
            raise ValueError(
                "Mesh requires the ndim of its first argument (`devices`) to equal the length of its second argument "
                f"(`axis_names`), but got devices.ndim == {len(self.axis_sizes)} and "
                f"len(axis_names) == {len(self.axis_names)}."
            )
        if len(self.axis_types) != len(self.axis_names):
            raise ValueError(
                f"[Mesh] there is one axis type for each axis name; got {self.axis_types} for {self.axis_names}"
            )

    @property
    def shape(self) -> collections.OrderedDict[Any, int]:
        return collections.OrderedDict(self.shape_tuple)

    @property
    def shape_tuple(self) -> tuple[tuple[Any, int], ...]:
        return tuple(zip(self.axis_names, self.axis_sizes, strict=True))

    @property
    def size(self) -> int:
        return math.prod(self.axis_sizes) if self.axis_names else 0

    @property
    def empty(self) -> bool:
        return not self.axis_names

    def _of_type(self, kind: AxisType) -> tuple[Any, ...]:
        return tuple(name for name, has in zip(self.axis_names, self.axis_types, strict=True) if has is kind)

    @property
    def auto_axes(self) -> tuple[Any, ...]:
        return self._of_type(AxisType.Auto)

    @property
    def explicit_axes(self) -> tuple[Any, ...]:
        return self._of_type(AxisType.Explicit)

    @property
    def manual_axes(self) -> tuple[Any, ...]:
        return self._of_type(AxisType.Manual)

    @property
    def are_all_axes_auto(self) -> bool:
        return all(kind is AxisType.Auto for kind in self.axis_types)

    @property
    def are_all_axes_explicit(self) -> bool:
        return all(kind is AxisType.Explicit for kind in self.axis_types)

    @property
    def are_all_axes_manual(self) -> bool:
        return bool(self.axis_types) and all(kind is AxisType.Manual for kind in self.axis_types)

    def _key(self) -> tuple[Any, ...]:
        return type(self), self.axis_names, self.axis_sizes, self.axis_types

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Axes) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        axes = ", ".join(f"{name!r}: {size}" for name, size in self.shape_tuple)
        return f"{type(self).__name__}({axes}, axis_types={self.axis_types})" if axes else f"{type(self).__name__}()"


class AbstractMesh(_Axes):
    """Names and sizes of mesh axes, without devices: the axes may have any size."""

    def __init__(self, axis_sizes: Sequence[int], axis_names: Any, axis_types: Any = None, **_: Any) -> None:
        self._set_axes(axis_sizes, axis_names, axis_types)

    @property
    def abstract_mesh(self) -> AbstractMesh:
        return self

    @property
    def devices(self) -> np.ndarray:
        raise ValueError("AbstractMesh does not implement devices")

    def update(self, axis_sizes: Any = None, axis_names: Any = None, axis_types: Any = None) -> AbstractMesh:
        """The same with other sizes, names or types."""
        return AbstractMesh(axis_sizes or self.axis_sizes, axis_names or self.axis_names, axis_types or self.axis_types)

    def __repr__(self) -> str:
        axes = ", ".join(f"{name!r}: {size}" for name, size in self.shape_tuple)
        return f"AbstractMesh({axes or '()'}, axis_types={self.axis_types})"


class Mesh(_Axes):
    """The device in an array whose axes have names, all of size 1; a context in which specs may be used alone.

    >>> mesh = weft.sharding.Mesh(np.array(weft.devices()), ("data",))
    >>> mesh.shape["data"], mesh.size
    (1, 1)
    """

    def __init__(self, devices: Any, axis_names: Any, axis_types: Any = None) -> None:
        self.devices = np.asarray(devices, dtype=object)
        for device in self.devices.flat:
            if not isinstance(device, Device):
                raise ValueError(f"[Mesh] a mesh consists of devices such as weft.devices()[0], got {device!r}")
        if self.devices.size > 1:
            raise ValueError(f"[Mesh] a device stands once in a mesh, and weft has one; got {self.devices.size}")
        self._set_axes(self.devices.shape, axis_names, axis_types)

    @property
    def abstract_mesh(self) -> AbstractMesh:
        return AbstractMesh(self.axis_sizes, self.axis_names, self.axis_types)

    @property
    def device_ids(self) -> np.ndarray:
        return np.zeros(self.devices.shape, int)

    @property
    def local_devices(self) -> list[Device]:
        return list(self.devices.flat)

    @property
    def local_mesh(self) -> Mesh:
        return self

    @property
    def is_multi_process(self) -> bool:
        return False

    def update(self, devices: Any = None, axis_names: Any = None, axis_types: Any = None) -> Mesh:
        """The same with other devices, names or types."""
        chosen = self.devices if devices is None else devices
        return Mesh(chosen, axis_names or self.axis_names, axis_types or self.axis_types)

    def __enter__(self) -> Mesh:
        _context.entered = (*_context.entered, self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _context.entered = _context.entered[:-1]

    def __repr__(self) -> str:
        if self.empty:
            return "Mesh(axis_sizes=(), axis_names=())"
        return f"Mesh(axis_sizes={self.axis_sizes}, axis_names={self.axis_names}, axis_types={self.axis_types})"


class _Context(threading.local):
    """The meshes of this thread: those entered by ``with mesh``, and the one that was set."""

    entered: tuple[Mesh, ...] = ()
    chosen: Mesh | None = None


_context = _Context()


def _empty_mesh() -> Mesh:
    mesh = Mesh.__new__(Mesh)
    mesh.devices = np.empty((0,), object)
    mesh.axis_names, mesh.axis_sizes, mesh.axis_types = (), (), ()
    return mesh


def get_mesh() -> Mesh:
    """The mesh that ``set_mesh`` chose; an empty one if none was chosen."""
    return _context.chosen if _context.chosen is not None else _empty_mesh()


def get_abstract_mesh() -> AbstractMesh:
    """Names and sizes of the axes of the chosen mesh."""
    return get_mesh().abstract_mesh if _context.chosen is not None else AbstractMesh((), ())


class set_mesh:
    """Choose the mesh of this thread, for good or as ``with set_mesh(mesh):``; None chooses none."""

    def __init__(self, mesh: Mesh | None) -> None:
        if mesh is not None and not isinstance(mesh, Mesh):
            raise ValueError(f"[set_mesh] takes a weft.sharding.Mesh or None, got {mesh!r}")
        self._before, self._mesh = _context.chosen, mesh
        _context.chosen = mesh

    def __enter__(self) -> Mesh | None:
        return self._mesh

    def __exit__(self, *error: object) -> None:
        _context.chosen = self._before


@contextmanager
def use_abstract_mesh(mesh: AbstractMesh) -> Iterator[AbstractMesh]:
    """A context in which ``mesh`` stands for the chosen mesh; its axes must all have size 1."""
    if any(size != 1 for size in mesh.axis_sizes):
        raise NotImplementedError(f"[use_abstract_mesh] weft has one device; got axes of sizes {mesh.axis_sizes}")
    with set_mesh(make_mesh(mesh.axis_sizes, mesh.axis_names, mesh.axis_types)):
        yield mesh


def make_mesh(
    axis_shapes: Sequence[int], axis_names: Any, axis_types: Any = None, *, devices: Sequence[Device] | None = None
) -> Mesh:
    """A mesh of the given shape over the device; ValueError for more devices than there are.

    >>> weft.make_mesh((1, 1), ("data", "model")).axis_names
    ('data', 'model')
    """
    chosen = [CPU] if devices is None else list(devices)
    wanted = math.prod(axis_shapes)
    if wanted > len(chosen):
        raise ValueError(f"Number of devices {len(chosen)} must be >= the product of mesh_shape {tuple(axis_shapes)}")
    names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
    types = (AxisType.Explicit,) * len(names) if axis_types is None else axis_types
    array = np.empty(wanted, object)
    array[:] = chosen[:wanted]
    return Mesh(array.reshape(tuple(axis_shapes)), names, types)


def _axes_of(spec: PartitionSpec) -> list[Any]:
    named = [entry for entry in spec if entry is not None and entry is not UNCONSTRAINED]
    return [axis for entry in named for axis in (entry if isinstance(entry, tuple) else (entry,))]


class NamedSharding(Sharding):
    """A mesh, and which dimension of an array lies along which of its axes."""

    def __init__(self, mesh: Any, spec: PartitionSpec, *, memory_kind: str | None = None, **_: Any) -> None:
        if not isinstance(spec, PartitionSpec):
            raise TypeError(f"[NamedSharding] spec is a weft.sharding.PartitionSpec, got {spec!r}")
        axes = _axes_of(spec)
        for axis in axes:
            if axis not in mesh.axis_names:
                raise ValueError(f"Resource axis: {axis} of {spec} is not found in mesh: {mesh.axis_names}.")
            if axes.count(axis) > 1:
                raise ValueError(
                    "A single NamedSharding spec specification can map every mesh axis to at most one positional "
                    f"dimension, but {spec} has duplicate entries for `{axis}`"
                )
        self.mesh, self.spec, self.memory_kind = mesh, spec, memory_kind or "device"

    @property
    def device_set(self) -> set[Device]:
        return set(self.mesh.devices.flat)

    def devices_indices_map(self, global_shape: Sequence[int]) -> dict[Device, tuple[slice, ...]]:
        return {device: (slice(None),) * len(global_shape) for device in self.device_set}

    addressable_devices_indices_map = devices_indices_map

    def shard_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        return tuple(global_shape)

    def is_equivalent_to(self, other: Sharding, ndim: int) -> bool:
        return isinstance(other, Sharding) and self.device_set == other.device_set

    def with_memory_kind(self, kind: str) -> NamedSharding:
        return NamedSharding(self.mesh, self.spec, memory_kind=kind)

    def update(self, **changed: Any) -> NamedSharding:
        """The same with another ``mesh``, ``spec`` or ``memory_kind``."""
        return NamedSharding(**{"mesh": self.mesh, "spec": self.spec, "memory_kind": self.memory_kind, **changed})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedSharding) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return self.mesh, self.spec, self.memory_kind

    def __repr__(self) -> str:
        return f"NamedSharding(mesh={self.mesh}, spec={self.spec}, memory_kind={self.memory_kind})"


def _check_constraint(sharding: Any) -> None:
    if isinstance(sharding, PartitionSpec):
        if _context.chosen is None and not _context.entered:
            raise RuntimeError(
                "with_sharding_constraint requires a non-empty mesh in context if you are passing `PartitionSpec`s to "
                "shardings. You can define a context mesh via `weft.set_mesh(mesh)`. Alternatively, provide "
                "`Sharding`s to shardings and then the mesh context manager is not required."
            )
        NamedSharding(_context.chosen or _context.entered[-1], sharding)
    elif sharding is not None and not isinstance(sharding, Sharding | Device):
        raise ValueError(f"[sharding] shardings are Sharding or PartitionSpec objects or None, got {sharding!r}")


def _is_spec(value: Any) -> bool:
    return value is None or isinstance(value, PartitionSpec)


def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """``x`` lying as ``shardings`` says: with one device, ``x`` itself, once the names have been checked.

    >>> mesh = weft.make_mesh((1,), ("data",))
    >>> spec = weft.sharding.NamedSharding(mesh, weft.sharding.PartitionSpec("data"))
    >>> weft.lax.with_sharding_constraint(jnp.arange(3), spec)
    Array([0, 1, 2], dtype=int32)
    """
    for sharding in runtime.tree_flatten(shardings, _is_spec)[0]:
        _check_constraint(sharding)
    leaves, treedef = runtime.tree_flatten(x)
    return runtime.tree_unflatten(treedef, [v if isinstance(v, Tracer) else placement.device_put(v) for v in leaves])


def reshard(xs: Any, out_shardings: Any) -> Any:
    """``xs`` moved to other shardings: with one device, ``xs`` itself, once the names have been checked."""
    return with_sharding_constraint(xs, out_shardings)


# -- arrays from parts ------------------------------------------------------------------------------------------------


def _whole(shape: Sequence[int], data: Any, dtype: Any) -> Any:
    values = data if isinstance(data, runtime.Array) and dtype is None else np.asarray(data, dtype)
    if tuple(values.shape) != tuple(shape):
        raise ValueError(
            f"[make_array] the one device holds the whole array, of shape {tuple(shape)}; got {values.shape}"
        )
    return placement.device_put(values)


def make_array_from_callback(
    shape: Sequence[int], sharding: Any, data_callback: Callable[[Any], Any], dtype: Any = None
) -> Any:
    """The array whose part with index ``i`` is ``data_callback(i)``: one part, the whole.

    >>> sharding = weft.sharding.SingleDeviceSharding(weft.devices()[0])
    >>> weft.make_array_from_callback((3,), sharding, lambda index: np.arange(3)[index])
    Array([0, 1, 2], dtype=int32)
    """
    _check_constraint(sharding)
    return _whole(shape, data_callback((slice(None),) * len(shape)), dtype)


def make_array_from_process_local_data(sharding: Any, local_data: Any, global_shape: Any = None) -> Any:
    """The array made of what each process has: one process, all of it."""
    _check_constraint(sharding)
    return _whole(np.shape(local_data) if global_shape is None else global_shape, local_data, None)


def make_array_from_single_device_arrays(
    shape: Sequence[int], sharding: Any, arrays: Sequence[Any], *, dtype: Any = None
) -> Any:
    """The array made of the arrays on each device: of one."""
    _check_constraint(sharding)
    if len(arrays) != 1:
        raise ValueError(f"[make_array] there is one device, hence one array; got {len(arrays)}")
    return _whole(shape, arrays[0], dtype)


def create_device_mesh(mesh_shape: Sequence[int], devices: Sequence[Device] | None = None, **_: Any) -> np.ndarray:
    """The devices as an array of ``mesh_shape``, to make a Mesh of."""
    return make_mesh(mesh_shape, [str(axis) for axis in range(len(mesh_shape))], devices=devices).devices
