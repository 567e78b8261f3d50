"""The devices of this process, described in JAX's terms: the CPU, and those of plugins (``dispatch.devices.plugins``).

``devices()`` lists them; an Array answers ``.device``, ``.devices()`` and ``.sharding`` with the objects made here.
The option ``num_cpu_devices`` makes several virtual devices of the CPU: names for parts of arrays, which lie in one
buffer whatever their sharding.

Every sharding has a number: 0 for all of an array on the first device of the CPU, small numbers for devices of plugins,
and those from ``HOST`` on, given here, for shardings over virtual devices. A sharding over several GPUs has the number
of the first of them, which has all of the array, and above it one of its own (``SPREAD``). A ``place`` is twice that
number, plus 1 for what is committed: Arrays have one, and so have the programs that run on a device.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from weft import config, errors, runtime
from weft._base import forks, lazy
from weft._base import target as targets
from weft._base.record import Record
from weft.core import kinds
from weft.core.sharding.partition_specs import UNCONSTRAINED, PartitionSpec
from weft.core.sharding.shardings import MEMORY_KINDS, Sharding, SingleDeviceSharding, check_memory
from weft.core.tracing import source_info
from weft.distributed import processes

__all__ = ["UNCONSTRAINED", "PartitionSpec", "Sharding", "SingleDeviceSharding"]

SPREAD = 1 << 12  # the first number of a sharding over several GPUs: the runtime's kDeviceNumbers
HOST = 1 << 29  # the number of the first sharding over virtual devices: the runtime's kHostPlaces, halved
_MOST_DEVICES = 65_536


class Backend(Protocol):
    """Who compiles for devices that share a memory, and moves arrays there and back."""

    key: tuple[Any, ...]  # its part of the keys of programs
    step_kinds: frozenset[type]  # kinds of operations that are steps of weft's own; none if another compiler has all
    shards: bool  # whether one array may lie over several of its devices

    def compile(self, closed: Any, *, name: str, donated: tuple[bool, ...] = (), **wishes: Any) -> Any:
        """The program of a jaxpr. ``wishes``: see ``compiler.pipeline.compile_jaxpr``; another compiler has none."""
        ...

    def place(self, array: Any) -> Any:
        """An Array, in this memory."""
        ...

    def fetch(self, array: Any) -> Any:
        """An Array of this memory, in that of the CPU."""
        ...

    def lend(self, array: Any, place: int) -> Any:
        """An Array of the CPU at a place of this memory, without a copy; None where that cannot be."""
        ...


class Own:
    """The CPU: weft's own compiler (``compiler``, set by ``weft/__init__.py``), and the memory of this process."""

    key: tuple[Any, ...] = ()
    step_kinds: frozenset[type] = frozenset((kinds.Effect, kinds.Exchange, kinds.External, kinds.Opaque))
    shards = True
    compiler: Callable[..., Any]

    def compile(
        self, closed: Any, *, name: str, donated: tuple[bool, ...] = (), anew: bool = False, **wishes: Any
    ) -> Any:
        marks = source_info.in_place_required
        asked = marks and lazy.submodule("weft.dispatch.programs.in_place").asked(closed.jaxpr)
        program = self.compiler(closed, name=name, donated=donated, anew=anew or asked, **wishes)
        if asked:
            lazy.submodule("weft.compiler.plans.requirements").check_updates(program)
        return program

    def place(self, array: Any) -> Any:
        return backend_at(array.place).fetch(array)

    def fetch(self, array: Any) -> Any:
        return array

    def lend(self, array: Any, place: int) -> None:
        return None


OWN = Own()


class Device:
    """One device: the CPU, however many threads run on it, or one of its virtual devices."""

    number = 0  # of the sharding that has all of an array on it
    is_local = True  # whether it belongs to this process
    id = 0
    process_index = 0
    host_id = 0
    task_id = 0
    local_hardware_id = 0
    platform = "cpu"
    device_kind = "cpu"
    backend: Backend = OWN
    grid: targets.Target | None = None  # the target of a GPU's kernels, beside the steps of the host

    @property
    def client(self) -> Any:
        return None

    @property
    def target(self) -> targets.Target:
        """The target of code that runs here. A compilation asks the device once, and hands it down."""
        return targets.host()

    def product_library(self, asked: str) -> Any:
        """Who has large matrix products of a GPU, by the option ``product_library``; None: they are weft's own."""
        return None

    def memory_stats(self) -> dict[str, int] | None:
        """Bytes in use and other counts of the device's memory; None if it has no pool of its own, as the CPU."""
        return None

    def addressable_memories(self) -> list[Memory]:
        """The memories that arrays on this device can be said to lie in."""
        names = MEMORY_KINDS if self.platform == "cpu" else MEMORY_KINDS[:1]
        return [Memory(self, kind, number) for number, kind in enumerate(names)]

    def default_memory(self) -> Memory:
        """The memory in which arrays lie that name none."""
        return self.addressable_memories()[0]

    def memory(self, kind: str) -> Memory:
        """The memory of this kind; ValueError if there is none."""
        check_memory(kind, self)
        found = [memory for memory in self.addressable_memories() if memory.kind == kind]
        if not found:
            raise ValueError(f"Could not find memory addressable by device {self.device_kind}. Got memory kind: {kind}")
        return found[0]

    def __repr__(self) -> str:
        return f"CpuDevice(id={self.id})"

    def __str__(self) -> str:
        return f"{self.platform}:{self.id}"

    def __reduce__(self) -> Any:
        return _cpu_device, (self.id,)


class Memory(Record):
    """One of a device's memories."""

    device: Any
    kind: str
    number: int

    @property
    def platform(self) -> str:
        return self.device.platform

    @property
    def process_index(self) -> int:
        return self.device.process_index

    def addressable_by_devices(self) -> list[Any]:
        return [self.device]

    def __repr__(self) -> str:
        return f"{self.platform.upper()}_{self.kind.upper()}_{self.number}"


class CpuDevice(Device):
    """A virtual device of the CPU other than the first of this process."""

    def __init__(self, index: int, local: int, process: int, is_local: bool) -> None:
        self.id, self.local_hardware_id, self.is_local = index, local, is_local
        self.process_index = self.host_id = self.task_id = process
        self.number = _new_number(SingleDeviceSharding(self))


def _cpu_device(index: int) -> Device:
    """The device that was pickled."""
    found = cpu_devices()
    if index >= len(found):
        raise ValueError(f"[devices] the CPU's device {index} was pickled, and this process has {len(found)}")
    return found[index]


# -- numbers of shardings ---------------------------------------------------------------------------------------------

_lock = forks.held("devices")
_numbers: dict[Sharding, int] = {}
_by_number: list[Sharding] = []  # from HOST on
_spread: list[Sharding] = []  # over GPUs, from SPREAD on


def _new_number(sharding: Sharding) -> int:
    with _lock:
        found = _numbers.get(sharding)
        if found is None:
            found = _numbers[sharding] = HOST + len(_by_number)
            _by_number.append(sharding)
        return found


def _new_spread(sharding: Sharding) -> int:
    with _lock:
        found = _numbers.get(sharding)
        if found is None:
            _spread.append(sharding)
            found = _numbers[sharding] = len(_spread) * SPREAD + sharding.device_list[0].number
            assert found < HOST
        told = len(_spread) > 1
    if not told:
        errors.warn(
            f"programs over several GPUs ({', '.join(map(str, sharding.device_list))}) run on the first of them, which "
            "has the whole arrays: results are right, and neither time nor memory is shared (this is said once)",
            UserWarning,
        )
    return found


def number_of(sharding: Sharding, described: bool = False) -> int:
    """The number of a sharding; ``described``: also of one over devices that are not here, on which nothing will lie.

    RuntimeError, NotImplementedError or ValueError where no array can lie so.
    """
    found = _numbers.get(sharding)
    if found is not None and (described or not is_described(sharding)):
        return found
    if isinstance(sharding, SingleDeviceSharding) and sharding.memory_kind == "device":
        return sharding.device_list[0].number
    devices = sharding.device_list
    if not all(device.platform == "cpu" for device in devices):
        if described and is_described(sharding):
            return _new_number(sharding)
        if len(devices) == 1 or is_described(sharding):
            return devices[0].number
        if sharding.memory_kind in (None, "device") and all(
            device.grid is not None and device.is_local for device in devices
        ):
            return _new_spread(sharding)
        raise NotImplementedError(
            f"[sharding] arrays lie over several devices of the CPU, or GPUs, only so far; {sharding} names "
            f"{', '.join(map(str, devices))}: put whole arrays on one of them (weft.device_put(x, "
            "weft.devices()[0])) and run a program on each; or make the mesh of weft.devices('cpu'), whose number is "
            "the option num_cpu_devices"
        )
    if sharding.memory_kind is not None:
        check_memory(sharding.memory_kind, devices[0])
    return _new_number(sharding)


def is_described(sharding: Sharding) -> bool:
    """Whether a sharding names devices that are described and not here (``topologies``)."""
    return any(hasattr(device, "topology") for device in sharding.device_list)


def check_here(places: Sequence[int]) -> None:
    """RuntimeError if something would lie on devices that are only described."""
    for place in places:
        if is_described(sharding_at(place)):
            sharding_at(place).device_list[0].number  # noqa: B018 - which raises


def mesh_like(mesh: Any) -> Any:
    """The latest mesh of devices with the axes of an abstract one, on which an array lies; None if there is none."""
    for sharding in (*reversed(_spread), *reversed(_by_number)):
        own = getattr(sharding, "mesh", None)
        if own is not None and own.abstract_mesh == mesh:
            return own
    return None


def sharding_at(place: int) -> Sharding:
    """The sharding that a place stands for."""
    number = place >> 1
    if HOST > number >= SPREAD:
        return _spread[number // SPREAD - 1]
    return _by_number[number - HOST] if number >= HOST else sharding_of(BY_NUMBER[number])


def device_at(place: int) -> Device:
    """The (first) device of a place."""
    number = place >> 1
    return _by_number[number - HOST].device_list[0] if number >= HOST else BY_NUMBER[number % SPREAD]


def backend_at(place: Any) -> Backend:
    """The backend of a place. Several results have several places: the backend of their GPUs, or the CPU's."""
    place = next(filter(is_spread, place), 0) if type(place) is tuple else place
    return BY_NUMBER[(place >> 1) % SPREAD].backend if 1 < place < HOST << 1 else OWN


def compiles_own(place: int) -> bool:
    """Whether a place is one device whose programs are weft's own; -1 is none."""
    return 0 <= place <= 1 or (1 < place < SPREAD << 1 and bool(BY_NUMBER[place >> 1].backend.step_kinds))


def is_spread(place: int) -> bool:
    """Whether a place is a sharding over several GPUs."""
    return SPREAD << 1 <= place < HOST << 1


def check_local(device: Device) -> None:
    """ValueError for a device of another process."""
    if not device.is_local:
        raise ValueError(
            f"{device} belongs to process {device.process_index}, and this is process {processes.rank()}: what is on "
            "one device is on one of weft.local_devices(). On devices of several processes arrays lie by NamedSharding"
        )


def place_on(target: Device | Sharding, described: bool = False) -> int:
    """The place of what is committed to a device or a sharding; ``described`` as in ``number_of``.

    ValueError for a device of another process.
    """
    if not isinstance(target, Sharding):
        check_local(target)
    return (target.number if isinstance(target, Device) else number_of(target, described)) << 1 | 1


CPU = Device()
DEFAULT_SHARDING = SingleDeviceSharding(CPU)
BY_NUMBER: list[Device] = [CPU]
_SHARDINGS: dict[int, SingleDeviceSharding] = {0: DEFAULT_SHARDING}
_default_places: dict[int, int] = {}


def register(device: Device) -> None:
    """Let a device be found by the number that the runtime gave it."""
    with _lock:
        while len(BY_NUMBER) <= device.number:
            BY_NUMBER.append(device)
        BY_NUMBER[device.number] = device


def check_backend(backend: Any) -> None:
    """Accept None, 'cpu' and the platforms of plugins; RuntimeError, which names what exists, for others."""
    if backend is not None and backend != "cpu":
        lazy.plugins.find(backend)


# -- the CPU's devices ------------------------------------------------------------------------------------------------

_cpus: list[Device] = []


def check_unused() -> None:
    """RuntimeError if devices were asked for by this process alone: others come before that."""
    if _cpus and all(device.is_local for device in _cpus):
        raise RuntimeError(
            "[distributed] weft.distributed.initialize() has to be called before anything asks for devices, such as "
            "weft.devices() or a computation with shardings: call it right after `import weft`"
        )


def join() -> None:
    """Make this process's devices some of those of all processes of the job."""
    job = processes.job()
    CPU.id = sum(job.local_device_counts[: job.rank])
    CPU.process_index = CPU.host_id = CPU.task_id = job.rank


def many_processes() -> bool:
    """Whether there are others."""
    return processes.size() > 1


def spans_processes(place: int) -> bool:
    """Whether a place is a sharding over devices of several processes."""
    return place > HOST << 1 and processes.size() > 1 and not sharding_at(place).is_fully_addressable


def cpu_devices() -> list[Device]:
    """The devices of the CPU, made when first asked for; from then on their number is fixed."""
    if not _cpus:
        made = _made()
        with _lock:
            if not _cpus:
                _cpus.extend(made)
    return _cpus


def _made() -> list[Device]:
    job = processes.job()
    rank, found = job.rank, list[Device]()
    for process, count in enumerate(job.local_device_counts or (cpu_count(),)):
        for local in range(count):
            mine = process == rank
            found.append(CPU if mine and not local else CpuDevice(len(found), local, process, mine))
    return found


def cpu_count() -> int:
    """How many this process has: by the option; if that is unset, by JAX's environment variable; then by XLA_FLAGS."""
    if _cpus:  # made: asked for by every compilation
        return sum([device.is_local for device in _cpus])
    count = config.read("num_cpu_devices")
    if count < 0:
        text = os.environ.get("JAX_NUM_CPU_DEVICES", "-1")
        if not re.fullmatch(r"-?\d+", text.strip()):
            raise ValueError(f"JAX_NUM_CPU_DEVICES takes an integer, got {text!r}")
        count = int(text)
    if count < 0:
        found = re.findall(r"--xla_force_host_platform_device_count=(\d+)", os.environ.get("XLA_FLAGS", ""))
        count = int(found[-1]) if found else 1
    if not 1 <= count <= _MOST_DEVICES:
        raise ValueError(f"[devices] num_cpu_devices is between 1 and {_MOST_DEVICES}, got {count}")
    return count


def check_count(count: Any) -> None:
    """Accept a number of devices as long as no device was asked for."""
    if count != -1 and not 1 <= count <= _MOST_DEVICES:
        raise ValueError(f"[config] num_cpu_devices is between 1 and {_MOST_DEVICES} (or -1), got {count}")
    if _cpus and count != len([device for device in _cpus if device.is_local]):
        raise RuntimeError(
            "jax_num_cpu_devices config should be updated before backends are initialized i.e. before any JAX "
            f"operation is executed. This process has {len(_cpus)} already: set it immediately after `import weft`"
        )


def sharding_of(device: Device) -> SingleDeviceSharding:
    """The sharding of arrays that lie on a device."""
    if device.number >= HOST:
        return _by_number[device.number - HOST]  # type: ignore[return-value] - the number of a device is of this class
    found = _SHARDINGS.get(device.number)
    if found is None:
        found = _SHARDINGS[device.number] = SingleDeviceSharding(device)
    return found


def default_place() -> int:
    """The place of computations that no committed Array ties to a device: 0, the CPU, unless an option says otherwise.

    ``default_device`` goes before ``platforms``; the first of several platforms counts.
    """
    token = runtime.get_config_token()
    found = _default_places.get(token)
    if found is None:
        device = config.read("default_device")
        if device is None or isinstance(device, str):
            device = local_devices(backend=device)[0]
        check_local(device)
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
    lists = [sharding_at(x.place).device_list for x, _ in committed]
    other = next((index for index, each in enumerate(lists) if each != lists[0]), None)
    if other is None:
        return
    texts = [
        f"argument {word} of {name} with shape {x.aval.strip_weak_type().str_short(short_dtypes=False)} and with "
        f"{on_devices(lists[index])}"
        for index, (x, word) in ((0, committed[0]), (other, committed[other]))
    ]
    raise ValueError(
        f"Received incompatible devices for jitted computation. Got {texts[0]} and {texts[1]}. Both arrays were put on "
        "their device explicitly (they are committed to it): move one of them with weft.device_put(x, device)"
    )


def on_devices(devices: Sequence[Device]) -> str:
    """Devices in the text of an error."""
    return f"device ids {[device.id for device in devices]} on platform {devices[0].platform.upper()}"


def as_target(target: Any) -> Device | Sharding | None:
    """What a ``device=`` argument stands for: None, a device or a sharding (of a mesh with devices)."""
    if target is None or isinstance(target, Device | Sharding):
        return target
    raise ValueError(
        f"[device_put] a device is None, a weft.Device or a Sharding (or a pytree of these), got {target!r}"
    )


def as_device(target: Any) -> Device | None:
    """The (first) device that a ``device=`` argument stands for."""
    found = as_target(target)
    return found.device_list[0] if isinstance(found, Sharding) else found


def placed(make: Callable[[], Any], device: Any = None, out_sharding: Any = None) -> Any:
    """What ``make()`` gives, on the device or with the sharding that an argument of this name asks for."""
    if device is not None and out_sharding is not None:
        raise ValueError(f"Only one of `device` or `out_sharding` can be set. Got {device=} and {out_sharding=}")
    if device is not None:
        return lazy.out_shardings.on_device(make, device)
    return lazy.out_shardings.placed(make, out_sharding, "the function", "out_sharding")


def devices(backend: str | None = None) -> list[Device]:
    """All devices of ``backend`` (default: the default backend).

    >>> weft.devices()
    [CpuDevice(id=0)]
    """
    platform = _default_platform() if backend is None else backend
    return list(cpu_devices()) if platform == "cpu" else lazy.plugins.find(platform).devices()


def local_devices(
    process_index: int | None = None, backend: str | None = None, host_id: int | None = None
) -> list[Device]:
    """The devices of this process."""
    asked = host_id if process_index is None else process_index
    if asked is not None and asked not in process_indices(backend):
        raise ValueError(f"Unknown process_index {asked}")
    found = devices(backend)
    return [device for device in found if (device.is_local if asked is None else device.process_index == asked)]


def _default_platform() -> str:
    """The name by which the default platform is asked for: the first of the option, or a GPU where one is usable.

    ``JAX_PLATFORMS`` alone may say that no GPU is wanted: it asks for nothing that is not there.
    """
    asked = config.read("platforms")
    if asked:
        return asked.split(",")[0].strip()
    wanted = os.environ.get("JAX_PLATFORMS", "").split(",")[0].strip() in ("", "cuda", "gpu")
    return "cuda" if wanted and runtime.has_cuda() and lazy.cuda_devices.is_default() else "cpu"


def default_backend() -> str:
    """The platform that computations run on unless told otherwise: the first of the option ``platforms``.

    Without it that is "gpu" where NVIDIA's driver has a GPU for weft's own programs, otherwise "cpu". A plugin that is
    installed is not used unless it is named, by ``platforms``, a device or a backend; those of CUDA and ROCm are "gpu".

    >>> weft.default_backend()
    'cpu'
    """
    platform = _default_platform()
    return platform if platform == "cpu" else lazy.plugins.find(platform).platform


def device_count(backend: str | None = None) -> int:
    """How many devices there are."""
    return len(devices(backend))


def local_device_count(backend: str | None = None) -> int:
    """How many devices this process can address."""
    return len(local_devices(backend=backend))


def process_index(backend: str | None = None) -> int:
    """The number of this process among those that run the program together."""
    check_backend(backend)
    return processes.rank()


def process_count(backend: str | None = None) -> int:
    """How many processes run the program together."""
    check_backend(backend)
    return processes.size()


def process_indices(backend: str | None = None) -> list[int]:
    """The numbers of all processes."""
    check_backend(backend)
    return list(range(processes.size()))
