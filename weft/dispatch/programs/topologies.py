"""Topologies: machines that need not be there, described by a plugin, and programs compiled ahead of time for them.

In: the name of a machine in its maker's terms, such as "v5e:2x2". Out: a ``TopologyDescription`` with its devices, and,
of a lowered function, a ``TopologyCompiled``: it reports and is saved, and runs where such a device is.
"""

from __future__ import annotations

import contextlib
import glob
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from weft._base import lazy
from weft.core.programs.jaxpr import ClosedJaxpr
from weft.dispatch import devices
from weft.dispatch.devices import placement, shardings
from weft.dispatch.programs import ahead_of_time, device_programs, executables, lowered_shardings
from weft.dispatch.programs.lowered_shardings import LoweredShardings

_LOADED_BY_PLUGIN = (
    "weft runs programs on one device of a plugin; serialize() gives what the plugin loads where the devices are"
)
_DEFAULT_PLATFORM = "tpu"  # whose machines have names; JAX takes it too


class TopologyDevice(devices.Device):
    """A device of a machine that is described: a target of compilers, on which nothing can be put."""

    def __init__(self, topology: Any, platform: str, facts: tuple[int, int, str, str]) -> None:
        self.id, self.process_index, self.device_kind, self._text = facts
        self.host_id = self.task_id = self.process_index
        self.local_hardware_id = -1
        self.platform = {"cuda": "gpu", "rocm": "gpu"}.get(platform, platform)
        self.raw_platform = platform
        self.topology = topology

    @property
    def number(self) -> NoReturn:  # pyright: ignore[reportIncompatibleVariableOverride] - of devices that are here
        raise RuntimeError(
            f"[topologies] {self} is the description of a device, which is not here: nothing runs or lies on it. "
            "Compile for it, with jit(f).lower(...).compile(topology=...)"
        )

    def __repr__(self) -> str:
        return self._text

    def __reduce__(self) -> Any:
        raise TypeError(f"[topologies] {self} belongs to this process and cannot be pickled")


class TopologyDescription:
    """A machine: its ``devices``, ``platform`` and, where it is described by a plugin, ``attributes``."""

    def __init__(self, devices: Sequence[devices.Device], name: str = "", native: Any = None) -> None:
        self.devices: list[Any] = list(devices)
        self.name = name
        self.native = native

    @property
    def platform(self) -> str:
        return self.devices[0].platform

    @property
    def platform_version(self) -> str:
        return self.native.platform_version if self.native is not None else ""

    @property
    def attributes(self) -> dict[str, Any]:
        return self.native.attributes if self.native is not None else {}

    def __repr__(self) -> str:
        return f"TopologyDescription({self.name!r}, {self.platform}, {len(self.devices)} devices)"


def get_attached_topology(platform: str | None = None) -> TopologyDescription:
    """The machine that this process runs on: the devices of a platform.

    >>> from weft.experimental import topologies
    >>> topologies.get_attached_topology("cpu").devices
    [CpuDevice(id=0)]
    """
    return TopologyDescription(devices.devices(platform))


def get_topology_desc(topology_name: str = "", platform: str | None = None, **kwargs: Any) -> TopologyDescription:
    """The machine of a name, such as "v5e:2x2" (the default platform is "tpu"), which need not be here.

    ``kwargs`` are options of the plugin. RuntimeError if no plugin of the platform is installed, or if it knows no such
    machine; NotImplementedError if it describes none.
    """
    if not isinstance(topology_name, str):
        raise TypeError(f"[get_topology_desc] the name of a topology is a str, got {topology_name!r}")
    wanted = _DEFAULT_PLATFORM if platform is None else platform
    if wanted == "cpu":
        raise NotImplementedError("[get_topology_desc] weft compiles for this CPU, and describes no others")
    try:
        with _nobody_asked():
            native, entry = lazy.plugins.topology(wanted, topology_name, kwargs)
    except RuntimeError as error:
        if wanted != _DEFAULT_PLATFORM or "Unknown backend" not in str(error):
            raise
        raise RuntimeError(
            f"[get_topology_desc] programs for {topology_name or 'TPUs'} are compiled by the plugin of TPUs, which is "
            "not installed: pip install libtpu (no TPU is needed)"
        ) from error
    made = TopologyDescription([], topology_name, native)
    made.devices = [TopologyDevice(made, entry.name, facts) for facts in native.devices()]
    return made


@contextlib.contextmanager
def _nobody_asked() -> Iterator[None]:
    """Keeps libtpu, on a machine without a TPU, from asking Google's servers about it for a minute."""
    variable = "TPU_SKIP_MDS_QUERY"
    if variable in os.environ or glob.glob("/dev/accel*") or glob.glob("/dev/vfio/*"):
        yield
        return
    os.environ[variable] = "1"
    try:
        yield
    finally:
        os.environ.pop(variable, None)


def make_mesh(
    topo: TopologyDescription, mesh_shape: Sequence[int], axis_names: Any, *, contiguous_submeshes: bool = False
) -> Any:
    """A mesh of the given shape over the devices of a machine."""
    return shardings.make_mesh(mesh_shape, axis_names, devices=topo.devices)


# -- programs ---------------------------------------------------------------------------------------------------------


def targets_of(topology: Any) -> list[devices.Device]:
    """The devices that ``compile(topology=...)`` means: those of a name or a description, or a device itself."""
    if isinstance(topology, str):
        topology = get_topology_desc(topology)
    if isinstance(topology, TopologyDescription):
        return topology.devices
    if isinstance(topology, devices.Device):
        return [topology]
    raise TypeError(
        "[compile] a topology is a name such as 'v5e:2x2', what weft.experimental.topologies.get_topology_desc gives, "
        f"or a device of that, got {topology!r}"
    )


class TopologyProgram(device_programs.DeviceProgram):
    """A program compiled for devices that are elsewhere; ``device`` is the first of them."""

    device: TopologyDevice
    count = 1

    @property
    def platform_version(self) -> str:
        return self.device.topology.platform_version

    def uses(self) -> int:
        return 0


class TopologyCompiled(ahead_of_time.Compiled):
    """A program compiled for a machine that is elsewhere: ``as_text``, the analyses, ``serialize``, no call."""

    def as_text(self, form: str | None = None) -> str:
        """The program as "stablehlo" (default), "jaxpr", or "hlo": what the plugin's compiler made."""
        return self._compiled.program.text(form or "stablehlo")

    def serialize(self) -> bytes:
        """The program in the form of the plugin, which loads it where such a device is."""
        return self._compiled.program.native.serialize()

    def runtime_executable(self) -> Any:
        return self._compiled.program.native

    def save(self, path: Any) -> None:
        """Write the program to a file, as others. NotImplementedError for one that runs on several devices."""
        program = self._compiled.program
        if program.count > 1:
            raise NotImplementedError(
                f"[save] {self.fun_name} was compiled for {program.count} devices: {_LOADED_BY_PLUGIN}"
            )
        super().save(path)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """RuntimeError: the device is not here."""
        program = self._compiled.program
        where = f"{program.device}" if program.count == 1 else f"{program.count} devices of {program.device.topology}"
        way = "write it to a file with save(path), and load that where such a device is, with weft.load(path)"
        raise RuntimeError(
            f"[compile] {self.fun_name} was compiled for {where}, which {'is' if program.count == 1 else 'are'} not "
            f"here, and cannot be called: {way if program.count == 1 else _LOADED_BY_PLUGIN}"
        )

    __call__ = call


def compile_for(
    arguments: ahead_of_time.Arguments, targets: Sequence[TopologyDevice], lies: LoweredShardings
) -> TopologyCompiled:
    """The traced function, compiled for the first of these devices, or, if it names a mesh, for as many as that has.

    ValueError if there are fewer.
    """
    trace, donated = arguments.trace, arguments.donated
    parts = executables.parameters(trace, donated, arguments.state.options.keep_unused)
    if not lies.n_devices:
        placement.check_target(parts.closed.jaxpr, targets[0], trace.name)
    closed, consts = device_programs.with_constants_as_arguments(parts.closed)
    hidden = len(closed.jaxpr.invars) - len(parts.kept)
    donations = (False,) * len(consts) + parts.flags
    start, device = time.perf_counter(), targets[0]
    if not lies.n_devices:
        lies = _over_described(closed, targets, trace, donations, lies)
    made = lowered_shardings.of_parameters(lies, trace, arguments.place, parts.kept, hidden)
    text, count = device_programs.written_for(closed, device, trace.name, donations, made)
    _check_count(trace.name, targets, count)
    written = time.perf_counter()
    program = TopologyProgram(trace.name, closed, text, device)
    program.count, program.consts = count, device_programs.arrays_of(consts)
    program.native = device.topology.native.compile(text.encode(), device_programs.compile_options(*targets[:count]))
    program.milliseconds = {"stablehlo": (written - start) * 1e3, "plugin": (time.perf_counter() - written) * 1e3}
    places: Any = 0
    if lies.mesh is not None:
        places = lowered_shardings.lying(made.outs, lies.mesh).places
        arguments = arguments._replace(place=lowered_shardings.lying(lies.ins, lies.mesh))
    values = (*program.consts, *parts.hidden)
    return TopologyCompiled(arguments, executables.Compiled(program, parts.kept, parts.donated, values, None, places))


def _check_count(name: str, targets: Sequence[TopologyDevice], count: int) -> None:
    if count > len(targets):
        raise ValueError(
            f"[compile] {name} is for {count} devices, and {targets[0].topology} has {len(targets)}: choose a larger "
            "one"
        )


def _over_described(
    closed: ClosedJaxpr,
    targets: Sequence[TopologyDevice],
    trace: Any,
    donations: tuple[bool, ...],
    lies: LoweredShardings,
) -> LoweredShardings:
    """The shardings of a program that names abstract meshes alone: arguments and results are whole on each device."""
    _, count = device_programs.written_for(
        closed, targets[0], trace.name, donations, LoweredShardings((), (), is_for_host=False)
    )
    _check_count(trace.name, targets, count)
    if count == 1:
        return lies
    array = np.empty(count, object)
    array[:] = targets[:count]
    mesh = shardings.Mesh(array, ("devices",))
    whole = shardings.NamedSharding(mesh, shardings.PartitionSpec())
    return LoweredShardings((whole,) * len(lies.ins), (whole,) * len(lies.outs), mesh)
