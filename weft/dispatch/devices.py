"""The devices of this process: one CPU, described in JAX's terms.

``devices()`` lists them; an Array answers ``.device``, ``.devices()`` and ``.sharding`` with the objects made here.
A device other than the CPU is refused with the platforms that exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any


class Device:
    """One device. There is a single CPU device, however many threads run on it."""

    id = 0
    process_index = 0
    host_id = 0
    task_id = 0
    local_hardware_id = 0
    platform = "cpu"
    device_kind = "cpu"

    @property
    def client(self) -> Any:
        return None

    def memory_stats(self) -> None:
        """None: the host's memory is not a pool of the device."""

    def __repr__(self) -> str:
        return f"CpuDevice(id={self.id})"

    def __str__(self) -> str:
        return f"{self.platform}:{self.id}"

    def __reduce__(self) -> str:
        return "CPU"


class Sharding:
    """How an array is distributed over devices; the base of ``SingleDeviceSharding``."""

    memory_kind: str | None = None

    @property
    def device_set(self) -> set[Device]:
        raise NotImplementedError("[Sharding] device_set is defined by the concrete sharding")

    @property
    def num_devices(self) -> int:
        return len(self.device_set)

    @property
    def addressable_devices(self) -> set[Device]:
        return self.device_set

    @property
    def is_fully_addressable(self) -> bool:
        return True

    @property
    def is_fully_replicated(self) -> bool:
        return True


class SingleDeviceSharding(Sharding):
    """All of the array on one device."""

    def __init__(self, device: Device, *, memory_kind: str | None = None) -> None:
        self._device = device
        self.memory_kind = memory_kind or "device"

    @property
    def device_set(self) -> set[Device]:
        return {self._device}

    def devices_indices_map(self, global_shape: Sequence[int]) -> dict[Device, tuple[slice, ...]]:
        return {self._device: (slice(None),) * len(global_shape)}

    addressable_devices_indices_map = devices_indices_map

    def shard_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        return tuple(global_shape)

    def is_equivalent_to(self, other: Sharding, ndim: int) -> bool:
        return isinstance(other, Sharding) and self.device_set == other.device_set

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


class _Unconstrained:
    """``PartitionSpec.UNCONSTRAINED``: the dimension may lie anyhow."""

    def __repr__(self) -> str:
        return "UNCONSTRAINED"

    def __reduce__(self) -> str:
        return "UNCONSTRAINED"


UNCONSTRAINED = _Unconstrained()


class PartitionSpec:
    """For each dimension of an array the mesh axis (or axes) along which it is cut; None where it is not.

    ``unreduced`` and ``reduced`` name axes along which values are partial sums, which one device does not have.

    >>> from weft.sharding import PartitionSpec as P
    >>> P("batch", None, ("x", "y"))
    P('batch', None, ('x', 'y'))
    """

    UNCONSTRAINED = UNCONSTRAINED

    def __init__(self, *partitions: Any, unreduced: Any = frozenset(), reduced: Any = frozenset()) -> None:
        self._partitions = tuple(
            entry[0] if isinstance(entry, tuple) and len(entry) == 1 else entry for entry in partitions
        )
        self.unreduced, self.reduced = frozenset(unreduced), frozenset(reduced)

    @property
    def partitions(self) -> tuple[Any, ...]:
        return self._partitions

    def update(self, **changed: Any) -> PartitionSpec:
        """The same with other ``partitions``, ``unreduced`` or ``reduced``."""
        partitions = changed.pop("partitions", self._partitions)
        return PartitionSpec(*partitions, **{"unreduced": self.unreduced, "reduced": self.reduced, **changed})

    def index(self, value: Any) -> int:
        return self._partitions.index(value)

    def count(self, value: Any) -> int:
        return self._partitions.count(value)

    def _key(self) -> tuple[Any, ...]:
        return self._partitions, self.unreduced, self.reduced

    def __getitem__(self, index: Any) -> Any:
        return self._partitions[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._partitions)

    def __len__(self) -> int:
        return len(self._partitions)

    def __add__(self, other: Any) -> PartitionSpec:
        if not isinstance(other, PartitionSpec | tuple):
            return NotImplemented
        return self.update(partitions=(*self, *other))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionSpec) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        words = [repr(entry) for entry in self._partitions]
        words += [
            f"{name}={set(value)}"
            for name, value in (("unreduced", self.unreduced), ("reduced", self.reduced))
            if value
        ]
        return f"P({words[0]},)" if len(words) == 1 and self._partitions else f"P({', '.join(words)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _spec, (self._partitions, self.unreduced, self.reduced)


def _spec(partitions: tuple[Any, ...], unreduced: Any, reduced: Any) -> PartitionSpec:
    return PartitionSpec(*partitions, unreduced=unreduced, reduced=reduced)


class Shard:
    """The part of an array that one device holds: here, all of it."""

    def __init__(self, device: Device, sharding: Sharding, global_shape: Sequence[int], data: Any = None) -> None:
        self.device, self.sharding, self._global_shape, self.data = device, sharding, tuple(global_shape), data

    @property
    def index(self) -> tuple[slice, ...]:
        return (slice(None),) * len(self._global_shape)

    @property
    def replica_id(self) -> int:
        return 0

    def __repr__(self) -> str:
        return f"Shard(device={self.device!r}, index={self.index}, replica_id={self.replica_id}, data={self.data})"


CPU = Device()
DEFAULT_SHARDING = SingleDeviceSharding(CPU)

_OTHER_PLATFORMS = frozenset({"gpu", "cuda", "rocm", "tpu", "metal"})


def check_backend(backend: Any) -> None:
    """Accept None and 'cpu'; name what exists otherwise."""
    if backend is None or backend == "cpu":
        return
    if backend in _OTHER_PLATFORMS:
        raise RuntimeError(
            f"Unknown backend: '{backend}' requested, but no platforms that are instances of {backend} are present. "
            "Platforms present are: cpu"
        )
    raise RuntimeError(f"Unknown backend {backend}. Available backends are ['cpu']")


def as_device(target: Any) -> Device | None:
    """The device that a ``device=`` argument stands for: None, a device or a sharding."""
    if target is None or isinstance(target, Device):
        return target
    if isinstance(target, Sharding):
        return next(iter(target.device_set))
    raise ValueError(
        f"[device_put] a device is None, a weft.Device or a Sharding (or a pytree of these), got {target!r}"
    )


def check_placement(device: Any = None, out_sharding: Any = None) -> None:
    """Accept what stands for the one CPU device: None, a device, a sharding or a PartitionSpec; no strings."""
    for name, value in (("device", device), ("out_sharding", out_sharding)):
        if isinstance(value, Sharding) and value.device_set != {CPU}:
            raise NotImplementedError(f"[placement] {name} names other devices, and weft has one device: {value!r}")
        if value is None or isinstance(value, Device | Sharding | PartitionSpec):
            continue
        raise ValueError(
            f"[placement] {name} is None, a device such as weft.devices()[0] or a SingleDeviceSharding, got {value!r}"
        )


def devices(backend: str | None = None) -> list[Device]:
    """All devices of ``backend`` (default: the default backend).

    >>> weft.devices()
    [CpuDevice(id=0)]
    """
    check_backend(backend)
    return [CPU]


def local_devices(
    process_index: int | None = None, backend: str | None = None, host_id: int | None = None
) -> list[Device]:
    """The devices of this process."""
    check_backend(backend)
    if (process_index or host_id or 0) != 0:
        raise ValueError(f"Unknown process_index {process_index or host_id}")
    return [CPU]


def default_backend() -> str:
    """The platform that computations run on unless told otherwise."""
    return "cpu"


def device_count(backend: str | None = None) -> int:
    """How many devices there are."""
    return len(devices(backend))


def local_device_count(backend: str | None = None) -> int:
    """How many devices this process can address."""
    return len(local_devices(backend=backend))


def process_index(backend: str | None = None) -> int:
    """The number of this process among those that run the program together."""
    check_backend(backend)
    return 0


def process_count(backend: str | None = None) -> int:
    """How many processes run the program together."""
    check_backend(backend)
    return 1


def process_indices(backend: str | None = None) -> list[int]:
    """The numbers of all processes."""
    check_backend(backend)
    return [0]
