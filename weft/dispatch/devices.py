"""The devices of this process, described in JAX's terms: the CPU, and those of plugins (``dispatch.plugins``).

``devices()`` lists them; an Array answers ``.device``, ``.devices()`` and ``.sharding`` with the objects made here.
Every device has a number, 0 for the CPU. A ``place`` is twice that number, plus 1 for what is committed to the device:
Arrays have one, and so have the programs that run on a device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from weft import config, runtime
from weft._base import lazy


class Device:
    """One device. There is a single CPU device, however many threads run on it."""

    number = 0  # among all devices of the process, as the runtime knows them
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

    def memory_stats(self) -> dict[str, int] | None:
        """Bytes in use and other counts of the device's memory; None if it has no pool of its own, as the CPU."""
        return None

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
BY_NUMBER: list[Device] = [CPU]
_SHARDINGS: dict[int, SingleDeviceSharding] = {0: DEFAULT_SHARDING}
_default_places: dict[int, int] = {}


def check_backend(backend: Any) -> None:
    """Accept None, 'cpu' and the platforms of plugins; RuntimeError, which names what exists, for others."""
    if backend is not None and backend != "cpu":
        lazy.plugins.find(backend)


def sharding_of(device: Device) -> SingleDeviceSharding:
    """The sharding of arrays that lie on a device."""
    found = _SHARDINGS.get(device.number)
    if found is None:
        found = _SHARDINGS[device.number] = SingleDeviceSharding(device)
    return found


def default_place() -> int:
    """The place of computations that no committed Array ties to a device: 0, the CPU, unless an option says otherwise.

    ``default_device`` goes before ``platforms``, of which the first counts.
    """
    token = runtime.get_config_token()
    found = _default_places.get(token)
    if found is None:
        device = config.read("default_device")
        if device is None or isinstance(device, str):
            device = devices(device)[0]
        found = _default_places[token] = device.number << 1
    return found


def at_default(array: Any) -> Any:
    """A new Array of host values, moved to where the options want new arrays, and not committed."""
    place = default_place()
    return array if place == 0 or type(array) is not runtime.Array else runtime.array_to_place(array, place)


def place_of_call(leaves: Sequence[Any]) -> int:
    """Where an operation on these values runs; -1 if they are committed to several devices."""
    return runtime.committed_place(leaves) or default_place()


def check_same_device(name: str, leaves: Sequence[Any], words: Sequence[str]) -> None:
    """Raise ValueError, as JAX does, if committed Arrays lie on several devices; ``words`` name the leaves."""
    committed = [(x, word) for x, word in zip(leaves, words, strict=True) if type(x) is runtime.Array and x.place & 1]
    other = next((pair for pair in committed if pair[0].place != committed[0][0].place), None)
    if other is None:
        return
    texts = []
    for x, word in (committed[0], other):
        device = BY_NUMBER[x.place >> 1]
        texts.append(
            f"argument {word} of {name} with shape {x.aval.strip_weak_type().str_short(short_dtypes=False)} and with "
            f"device ids [{device.id}] on platform {device.platform.upper()}"
        )
    raise ValueError(
        f"Received incompatible devices for jitted computation. Got {texts[0]} and {texts[1]}. Both arrays were put on "
        "their device explicitly (they are committed to it): move one of them with weft.device_put(x, device)"
    )


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
        named = {value} if isinstance(value, Device) else value.device_set if isinstance(value, Sharding) else {CPU}
        if named != {CPU}:
            raise NotImplementedError(
                f"[placement] {name} names other devices, and this function makes arrays on one device, the CPU: "
                f"{value!r}. Make the array with weft.device_put(x, device), or inside "
                "`with weft.default_device(device)`"
            )
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
    platform = default_backend() if backend is None else backend
    return [CPU] if platform == "cpu" else lazy.plugins.find(platform).devices()


def local_devices(
    process_index: int | None = None, backend: str | None = None, host_id: int | None = None
) -> list[Device]:
    """The devices of this process."""
    found = devices(backend)
    if (process_index or host_id or 0) != 0:
        raise ValueError(f"Unknown process_index {process_index or host_id}")
    return [device for device in found if device is CPU or device.number]


def default_backend() -> str:
    """The platform that computations run on unless told otherwise: the first of the option ``platforms``, or the CPU.

    A plugin that is installed is not used unless it is named, by ``platforms``, a device or a backend.

    >>> weft.default_backend()
    'cpu'
    """
    return (config.read("platforms") or "cpu").split(",")[0].strip()


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
