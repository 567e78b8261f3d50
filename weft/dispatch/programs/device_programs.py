"""Programs on devices of plugins: a jaxpr is written as StableHLO, and the plugin compiles it.

In: a program, the donated arguments and a device. Out: a ``DeviceProgram``, whose ``executable`` takes the captured
arrays and then the arguments, and runs like one of the CPU's. It is an entry of the program level of the cache; its key
has the device.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from typing import Any

from weft import config, errors, runtime
from weft._base import lazy
from weft.core import avals
from weft.core.caches.cache_keys import disk_key, program_key
from weft.core.caches.fingerprint import fingerprint
from weft.core.caches.store import PROGRAMS
from weft.core.programs.jaxpr import ClosedJaxpr
from weft.dispatch.calls import signature
from weft.dispatch.programs import constants
from weft.dispatch.programs.executables import Runnable

_PROGRAM_BYTES, _EQUATION_BYTES = 20_000, 1_000  # a guess: the plugin does not say


class DeviceProgram(Runnable):
    """A program that a plugin has compiled for one device."""

    def __init__(self, name: str, source: ClosedJaxpr, text: str, device: Any) -> None:
        super().__init__()
        self.name = name
        self.source = source
        self.stablehlo = text
        self.device = device
        self.in_avals = tuple([v.aval for v in source.jaxpr.invars])
        self.out_avals = tuple([v.aval for v in source.jaxpr.outvars])
        self.native: Any = None

    @property
    def platform_version(self) -> str:
        """The plugin's text about its version: only the same version reads the programs that it compiled."""
        return self.device.client.native.platform_version

    def whole(self) -> DeviceProgram:
        return self

    def family(self) -> None:
        """It says nothing of other sizes."""

    @property
    def weight(self) -> int:
        return _PROGRAM_BYTES + _EQUATION_BYTES * len(self.source.jaxpr.eqns) + len(self.stablehlo)

    def text(self, form: str) -> str:
        """The program as ``jaxpr``, ``stablehlo``, or ``hlo``: what the plugin's compiler made, if it shows that."""
        if form == "hlo":
            return plugin_text(*self.native.text())
        if form in ("jaxpr", "stablehlo"):
            return str(self.source.jaxpr) if form == "jaxpr" else self.stablehlo
        raise ValueError(f"[as_text] a program on {self.device} has the forms jaxpr, stablehlo and hlo, not {form!r}")

    def cost_analysis(self) -> dict[str, float]:
        """The plugin's estimates; NotImplementedError if it makes none."""
        return self.native.cost()

    def memory_analysis(self) -> dict[str, int]:
        """Sizes in bytes; NotImplementedError if the plugin does not tell them."""
        return self.native.memory()


def plugin_text(form: str, content: bytes) -> str:
    """What a plugin's compiler made, as text; HLO in binary form is read by jaxlib, if installed."""
    if not form.startswith("hlo"):
        return content.decode(errors="replace")
    try:
        reader = lazy.submodule("jaxlib._hlo").HloModule.from_serialized_hlo_module_proto
    except (ImportError, AttributeError):
        raise NotImplementedError(
            "[as_text] the plugin gives its program in the binary form of HLO, which jaxlib turns into text, and no "
            "jaxlib that does is installed: pip install 'jaxlib>=0.10'"
        ) from None
    return reader(_first_message(content) if form == "hlo_with_config" else content).to_string()


def _first_message(content: bytes) -> bytes:
    """Field 1 of a protocol buffer, a message that comes first: of HLO with its configuration, the module."""
    size, shift, position = 0, 0, 1
    while True:
        byte = content[position]
        size |= (byte & 0x7F) << shift
        shift, position = shift + 7, position + 1
        if byte < 0x80:
            return content[position : position + size]


def compile_on(closed: ClosedJaxpr, device: Any, *, name: str, donated: tuple[bool, ...] = ()) -> DeviceProgram:
    """The program compiled for a device; equal programs are compiled once for it."""
    closed, consts = with_constants_as_arguments(closed)
    donated = (False,) * len(consts) + donated
    key = program_key((*device.backend.key, fingerprint(closed)), donated, config.token())
    found = PROGRAMS.find(key)
    if found is None:
        host_steps = lazy.submodule("weft.stablehlo.host_steps")
        if host_steps.is_needed(closed.jaxpr):
            found = host_steps.HostedProgram(name, closed, device)
        else:
            found = _compile(closed, device, name, donated)
        PROGRAMS.add(key, found)
    return found.with_consts([device.backend.place(array) for array in arrays_of(consts)])


def arrays_of(values: Sequence[Any]) -> tuple[Any, ...]:
    """Captured values as Arrays."""
    return tuple([signature.to_array(value, avals.get_aval(value)) for value in values])


def with_constants_as_arguments(closed: ClosedJaxpr) -> tuple[ClosedJaxpr, tuple[Any, ...]]:
    """(a program without captured values, which are its first arguments; the values)."""
    lifted = constants.lifted(closed.jaxpr)
    consts = (*closed.consts, *lifted.values)
    return (ClosedJaxpr(constants.as_arguments(lifted.jaxpr)), consts) if consts else (closed, ())


def _compile(closed: ClosedJaxpr, device: Any, name: str, donated: tuple[bool, ...]) -> DeviceProgram:
    start = time.perf_counter()
    text, _ = written_for(closed, device, name, donated)
    written = time.perf_counter()
    program = DeviceProgram(name, closed, text, device)
    program.native = compiled_by_plugin(text.encode(), device)
    program.executable = runtime.device_executable(program.native, program.in_avals, program.out_avals, name)
    program.milliseconds = {"stablehlo": (written - start) * 1e3, "plugin": (time.perf_counter() - written) * 1e3}
    return program


def written_for(
    closed: ClosedJaxpr, device: Any, name: str, donated: tuple[bool, ...], shardings: Any = None
) -> tuple[str, int]:
    """The program as StableHLO, and for how many devices; NotImplementedError, which names the device, without a form.

    ``shardings``: how arguments and results lie (``lowered_shardings``), for a program that may be for several devices.
    """
    attributes = ["jax.buffer_donor = true" if given else "" for given in donated]
    try:
        writer = lazy.submodule("weft.stablehlo")
        return writer.text_and_count(
            closed, module_name=f"jit_{name}", argument_attributes=attributes, shardings=shardings,
            platforms=(lowering_platform(device),),
        )  # fmt: skip
    except NotImplementedError as error:
        raise NotImplementedError(
            f"[jit] {name} cannot run on {device}: {error}. Move that operation out of jit, or run the function on the "
            'CPU, with weft.jit(function, device=weft.devices("cpu")[0])'
        ) from error


def lowering_platform(device: Any) -> str:
    """The platform that programs for a device are written for: "cuda" or "rocm", not "gpu"."""
    native = getattr(device.client, "native", None)
    return device.raw_platform if native is None else native.platform


def compiled_by_plugin(text: bytes, device: Any) -> Any:
    """What the plugin makes of a module: from the cache on disk, or compiled now and kept there."""
    backend, options = device.client, compile_options(device)
    disk = lazy.submodule("weft.compiler.storage.disk")
    store = disk.current()
    if store is None:
        return backend.native.compile(text, options, device.number)
    # the plugin's text alone may be the same for two builds of it
    status = os.stat(backend.path)
    library = f"{backend.path} {status.st_size} {status.st_mtime_ns} {backend.api_version} {backend.platform_version}"
    key = disk_key("plugin", f"{library} {device.device_kind}", options + text, store.version)
    found = store.load(key, disk.PROGRAM)
    if found is not None:
        try:
            return backend.native.deserialize(found.bytes, options, device.number)
        except errors.JaxRuntimeError as error:
            store.remove(key, str(error), disk.PROGRAM)
    made = backend.native.compile(text, options, device.number)
    with contextlib.suppress(errors.JaxRuntimeError, NotImplementedError):  # not every plugin can write its programs
        store.store(key, "plugin", made.serialize(), disk.PROGRAM)
    return made


def compile_options(*listed: Any) -> bytes:
    """A serialized ``CompileOptionsProto`` of OpenXLA for devices that each have a part of every value.

    Field 3 has the options of the build: 4 and 5 are the numbers of replicas and partitions, 9 the devices (1 replica,
    n computations, the list of ids of each). For several devices 6 and 19 ask for the program of one to be made of the
    whole one, by Shardy. Field 7 maps names of other options to values.
    """
    device, count = listed[0], len(listed)
    ids = b"".join([_bytes_field(3, _bytes_field(1, _varint(each.id))) for each in listed])
    assignment = _number_field(1, 1) + _number_field(2, count) + ids
    parts = _number_field(4, 1) + _number_field(5, count) + (_number_field(6, 1) if count > 1 else b"")
    shardy = _number_field(19, 1) if count > 1 else b""
    build = _bytes_field(3, parts + _bytes_field(9, assignment) + shardy)
    if lowering_platform(device) != "cpu":
        return build
    # XLA's CPU backends of 2025 and before otherwise let max and min lose a NaN in their second operand
    is_false = _bytes_field(2, _number_field(2, 0))
    return build + _bytes_field(7, _bytes_field(1, b"xla_cpu_enable_fast_min_max") + is_false)


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the high bit says that more follow (protocol buffers)."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _number_field(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes_field(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value
