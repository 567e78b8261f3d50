"""Meshes: devices in an array whose axes have names; and which mesh a thread has chosen.

An ``AbstractMesh`` has names, sizes and types of axes and no devices: it is what types of programs say. The chosen mesh
of a thread (``set_mesh``, ``use_abstract_mesh``, ``with mesh:``) is part of the key of traces, as options are
(``config.mesh_state``), since what it changes is how programs are traced.
"""

from __future__ import annotations

import collections
import enum
import math
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from weft import config
from weft._base.record import NamedTuple


class AxisType(enum.Enum):
    """Who decides how arrays lie along a mesh axis: the compiler, the types of the program, or the program itself."""

    Auto = enum.auto()
    Explicit = enum.auto()
    Manual = enum.auto()

    def __repr__(self) -> str:
        return self.name


class AbstractDevice(NamedTuple):
    """What an abstract mesh knows of its devices."""

    device_kind: str
    num_cores: int | None
    platform: str

    def text(self) -> str:
        return f"device_kind={self.device_kind}, num_cores={self.num_cores}, platform={self.platform}"


def show_axes(axes: Iterable[Any]) -> str:
    """Names of axes in the text of an error."""
    return ", ".join(sorted(f"`{axis}`" for axis in axes))


def _types(names: tuple[Any, ...], given: Any, what: str) -> tuple[AxisType, ...]:
    types = (AxisType.Auto,) * len(names) if given is None else given if isinstance(given, tuple) else (given,)
    if not all(isinstance(each, AxisType) for each in types):
        raise TypeError(
            f"axis_types passed to {what} must be of type `weft.sharding.AxisType`. Got {types} of type "
            f"{tuple(type(each) for each in types)}"
        )
    if len(names) != len(types):
        raise ValueError(
            f"Number of axis names should match the number of axis_types. Got axis_names={names} and axis_types={types}"
        )
    return types


class BaseMesh:
    """What a mesh and an abstract mesh have in common: names, sizes and types of axes."""

    axis_names: tuple[Any, ...]
    axis_sizes: tuple[int, ...]
    axis_types: tuple[AxisType, ...]
    size: int
    shape_tuple: tuple[tuple[Any, int], ...]
    _key: tuple[Any, ...]
    _hash: int

    def _set_axes(self, sizes: Sequence[int], names: tuple[Any, ...], axis_types: tuple[AxisType, ...]) -> None:
        self.axis_names, self.axis_sizes, self.axis_types = names, tuple(map(int, sizes)), axis_types
        self.shape_tuple = tuple(zip(names, self.axis_sizes, strict=True))

    @property
    def shape(self) -> collections.OrderedDict[Any, int]:
        return collections.OrderedDict(self.shape_tuple)

    @property
    def empty(self) -> bool:
        return self.size == 0

    def _of_type(self, kind: AxisType) -> tuple[Any, ...]:
        return tuple([name for name, has in zip(self.axis_names, self.axis_types, strict=True) if has is kind])

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
        return bool(self.axis_types) and all(kind is AxisType.Auto for kind in self.axis_types)

    @property
    def are_all_axes_explicit(self) -> bool:
        return bool(self.axis_types) and all(kind is AxisType.Explicit for kind in self.axis_types)

    @property
    def are_all_axes_manual(self) -> bool:
        return bool(self.axis_types) and all(kind is AxisType.Manual for kind in self.axis_types)

    def type_of(self, name: Any) -> AxisType:
        """The type of an axis."""
        return self.axis_types[self.axis_names.index(name)]

    def __eq__(self, other: object) -> bool:
        return self is other or (
            type(other) is type(self) and self._hash == other._hash and self._key == other._key  # type: ignore[attr-defined] - it is of this class
        )

    def __hash__(self) -> int:
        return self._hash


class AbstractMesh(BaseMesh):
    """Names and sizes of mesh axes, without devices.

    >>> weft.sharding.AbstractMesh((4, 2), ("x", "y")).shape["x"]
    4
    """

    def __init__(
        self, axis_sizes: Sequence[int], axis_names: Any, axis_types: Any = None, *, abstract_device: Any = None
    ) -> None:
        names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        if len(axis_sizes) != len(names):
            raise ValueError(f"[AbstractMesh] an axis has a size and a name; got {axis_sizes} and {axis_names}")
        self._set_axes(axis_sizes, names, _types(names, axis_types, "AbstractMesh"))
        self.abstract_device = abstract_device
        self.size = math.prod(self.axis_sizes) if self.axis_sizes else 0
        self._key = self.axis_sizes, self.axis_names, self.axis_types, abstract_device
        self._hash = hash(self._key)

    @property
    def abstract_mesh(self) -> AbstractMesh:
        return self

    def update(
        self, axis_sizes: Any = None, axis_names: Any = None, axis_types: Any = None, **changed: Any
    ) -> AbstractMesh:
        """This mesh with other sizes, names, types or ``abstract_device``."""
        return AbstractMesh(
            self.axis_sizes if axis_sizes is None else axis_sizes,
            self.axis_names if axis_names is None else axis_names,
            self.axis_types if axis_types is None else axis_types,
            **{"abstract_device": self.abstract_device, **changed},
        )

    def update_axis_types(self, name_to_type: dict[Any, AxisType]) -> AbstractMesh:
        """This mesh with other types of some axes."""
        pairs = zip(self.axis_names, self.axis_types, strict=True)
        return self.update(axis_types=tuple([name_to_type.get(name, kind) for name, kind in pairs]))

    def _refuse(self, name: str) -> Any:
        raise ValueError(f"AbstractMesh does not implement {name}")

    devices = property(lambda self: self._refuse("devices"))
    device_ids = property(lambda self: self._refuse("device_ids"))
    is_multi_process = property(lambda self: self._refuse("is_multi_process"))
    local_devices = property(lambda self: self._refuse("local_devices"))
    local_mesh = property(lambda self: self._refuse("local_mesh"))

    def __enter__(self) -> AbstractMesh:
        return self._refuse("__enter__")

    def __exit__(self, *error: object) -> None:
        self._refuse("__exit__")

    def __repr__(self) -> str:
        axes = ", ".join(f"{name!r}: {size}" for name, size in self.shape_tuple)
        device = "" if self.abstract_device is None else f", {self.abstract_device.text()}"
        return f"AbstractMesh({axes or '()'}, axis_types={self.axis_types}{device})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _abstract, (self.axis_sizes, self.axis_names, self.axis_types, self.abstract_device)


def _abstract(sizes: Any, names: Any, types: Any, device: Any) -> AbstractMesh:
    return AbstractMesh(sizes, names, types, abstract_device=device)


class Mesh(BaseMesh):
    """Devices in an array whose axes have names; a context in which specs may be used alone.

    ``devices`` is an array of devices with one dimension for each name. ``axis_types`` says who decides how arrays lie
    along an axis (``AxisType``; all Auto without it).

    >>> mesh = weft.sharding.Mesh(np.array(weft.devices()), ("data",))
    >>> mesh.shape["data"], mesh.size
    (1, 1)
    """

    def __init__(self, devices: Any, axis_names: Any, axis_types: Any = None) -> None:
        array = np.array(devices, dtype=object) if not isinstance(devices, np.ndarray) else devices.copy()
        names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        if any(name is None for name in names):
            raise ValueError(f"Mesh axis names cannot be None. Got: {names}")
        if array.ndim != len(names):
            raise ValueError(
                "Mesh requires the ndim of its first argument (`devices`) to equal the length of its second argument "
                f"(`axis_names`), but got devices.ndim == {array.ndim} and len(axis_names) == {len(names)}."
            )
        array.flags.writeable = False
        self.devices = array
        self._set_axes(array.shape, names, _types(names, axis_types, "Mesh"))
        self.flat_devices = tuple(array.flat)
        for device in self.flat_devices if names else ():
            if not hasattr(device, "platform"):
                raise ValueError(f"[Mesh] a mesh consists of devices such as weft.devices()[0], got {device!r}")
        self.size = 0 if not names and self.flat_devices[0] is None else array.size
        self._key = tuple(map(id, self.flat_devices)), self.axis_sizes, names, self.axis_types
        self._hash = hash(self._key)
        self._abstract: AbstractMesh | None = None

    @property
    def is_scalar(self) -> bool:
        return self.size == 1 and not self.axis_names

    @property
    def abstract_mesh(self) -> AbstractMesh:
        made = self._abstract
        if made is None:
            device = None
            if self.axis_names and self.flat_devices:
                first = self.flat_devices[0]
                device = AbstractDevice(first.device_kind, None, first.platform)
            made = AbstractMesh(self.axis_sizes, self.axis_names, self.axis_types, abstract_device=device)
            self._abstract = made
        return made

    @property
    def device_ids(self) -> np.ndarray:
        ids = [device.id for device in self.flat_devices if device is not None]
        return np.array(ids, int).reshape(self.axis_sizes)

    @property
    def local_devices(self) -> list[Any]:
        """Those of this process."""
        return [device for device in self.flat_devices if device.is_local]

    @property
    def local_mesh(self) -> Mesh:
        """The part of the mesh with the devices of this process."""
        if self.empty or not self.is_multi_process:
            return self
        local = np.array([device.is_local for device in self.flat_devices]).reshape(self.axis_sizes)
        spans = []
        for axis in range(local.ndim):
            at = np.flatnonzero(local.any(tuple(other for other in range(local.ndim) if other != axis)))
            spans.append(slice(int(at.min()), int(at.max()) + 1) if at.size else slice(0, 0))
        if not local[tuple(spans)].all():
            raise ValueError(f"[Mesh] the devices of this process are no contiguous part of {self}")
        return Mesh(self.devices[tuple(spans)], self.axis_names, self.axis_types)

    @property
    def is_multi_process(self) -> bool:
        return len(self.local_devices) != self.size

    def update(self, devices: Any = None, axis_names: Any = None, axis_types: Any = None) -> Mesh:
        """This mesh with other devices, names or types."""
        return Mesh(
            self.devices if devices is None else devices,
            self.axis_names if axis_names is None else axis_names,
            self.axis_types if axis_types is None else axis_types,
        )

    def __enter__(self) -> Mesh:
        before = config.mesh_state()
        config.choose_mesh(before.replace(entered=(*before.entered, self)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        state = config.mesh_state()
        config.choose_mesh(state.replace(entered=state.entered[:-1]))

    def __str__(self) -> str:
        if self.empty:
            return "Mesh()"
        axes = ", ".join(f"{name!r}: {size}" for name, size in self.shape_tuple)
        return f"Mesh({axes}, axis_types={self.axis_types})"

    def __repr__(self) -> str:
        if self.empty:
            return "Mesh(axis_sizes=(), axis_names=())"
        return f"Mesh(axis_sizes={self.axis_sizes}, axis_names={self.axis_names!r}, axis_types={self.axis_types})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Mesh, (self.devices, self.axis_names, self.axis_types)


EMPTY_ABSTRACT_MESH = AbstractMesh((), ())
EMPTY_MESH = Mesh(np.empty((), dtype=object), ())


def chosen_mesh() -> Mesh:
    """The mesh that ``set_mesh`` chose on this thread; an empty one if none was chosen."""
    return config.mesh_state().concrete or EMPTY_MESH


def get_abstract_mesh() -> AbstractMesh:
    """Names, sizes and types of the axes of the mesh in which this thread works; empty if there is none.

    >>> weft.sharding.get_abstract_mesh().empty
    True
    """
    return config.mesh_state().abstract or EMPTY_ABSTRACT_MESH


def context_mesh() -> Mesh | AbstractMesh:
    """The mesh that a spec without a mesh belongs to: the chosen one, or the one entered, or an empty one."""
    state = config.mesh_state()
    if state.concrete is not None:
        return state.concrete
    if state.entered:
        return state.entered[-1]
    return state.abstract or EMPTY_MESH


class use_abstract_mesh:
    """A context in which this thread works in an abstract mesh."""

    def __init__(self, mesh: AbstractMesh) -> None:
        if not isinstance(mesh, AbstractMesh):
            raise ValueError(f"Expected mesh of type `weft.sharding.AbstractMesh`. Got type: {type(mesh)}")
        self._mesh = mesh

    def __enter__(self) -> None:
        self._before = config.mesh_state()
        before = self._before.abstract or EMPTY_ABSTRACT_MESH
        if not before.empty and not self._mesh.empty and before.size != self._mesh.size:
            raise ValueError(
                f"use_abstract_mesh cannot change the size of the mesh. Got new mesh: {self._mesh} with "
                f"size={self._mesh.size} and prev mesh: {before} with size={before.size}"
            )
        config.choose_mesh(self._before.replace(abstract=None if self._mesh.empty else self._mesh))

    def __exit__(self, *error: object) -> None:
        config.choose_mesh(self._before)
