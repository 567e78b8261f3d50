"""Plugins: compilers and runtimes for other hardware, found, checked and loaded; their devices.

A plugin is a shared library with a function ``GetPjrtApi`` (the PJRT C API). It is found where JAX finds them: in the
environment variable ``PJRT_NAMES_AND_LIBRARY_PATHS`` (``name:path,name:path``), in packages of the namespace
``jax_plugins`` (and ``xla_plugins``), in entry points of the group ``jax_plugins``, and as the package ``libtpu``. The
packages are not imported, since they would import JAX: their libraries are looked for in their folders. None is loaded
before it is asked for. Before the first load in a process, a child process tries it, since a library may crash.
"""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import importlib.util
import mmap
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from weft import dtypes, errors, runtime
from weft._base import forks, lazy
from weft._base.record import NamedTuple
from weft.dispatch import devices
from weft.dispatch.devices import cuda_devices, fake_devices
from weft.dispatch.devices.native_devices import Platform

ENVIRONMENT = "PJRT_NAMES_AND_LIBRARY_PATHS"
_NAMESPACES = ("jax_plugins", "xla_plugins")
_ALIASES = {"gpu": ("cuda", "xla_cuda", "rocm"), "cuda": ("cuda", "xla_cuda"), "metal": ("METAL",)}
_GPUS = ("cuda", "rocm")  # what plugins call themselves
_KNOWN = frozenset({"gpu", "cuda", "xla_cuda", "rocm", "tpu", "metal", "METAL", "xpu", "pjrt"})
_SUFFIXES = (".so", ".dylib", ".dll")
_PROBE_S = 300.0
_lock = forks.held("plugins")
_loaded: dict[str, Client] = {}
_opened: dict[str, Any] = {}  # libraries by path
_refused: dict[str, str] = {}  # why a plugin could not be loaded
# Element types beyond NumPy's own, with their numbers in the C API.
_TYPES = {
    "bfloat16": 13, "float8_e5m2": 16, "float8_e4m3fn": 17, "float8_e4m3b11fnuz": 18, "float8_e5m2fnuz": 19,
    "float8_e4m3fnuz": 20, "int4": 21, "uint4": 22, "int2": 24, "uint2": 25, "float8_e4m3": 26, "float8_e3m4": 27,
    "float8_e8m0fnu": 28, "float4_e2m1fn": 29,
}  # fmt: skip


class Found(NamedTuple):
    """A plugin that could be loaded: its name, the library, and where that was found."""

    name: str
    path: str
    source: str


class PluginDevice(devices.Device):
    """A device of a plugin."""

    def __init__(self, client: Client, number: int, facts: tuple[int, int, int, str, str]) -> None:
        self.number = number  # 0 for one of another process
        self.is_local = number != 0
        self.id, self.process_index, self.local_hardware_id, self.device_kind, self._text = facts
        self.host_id = self.task_id = self.process_index
        self.platform = client.platform
        self._client = client
        self.backend = Plugin(self)

    @property
    def client(self) -> Client:
        return self._client

    def memory_stats(self) -> dict[str, int] | None:
        return self._client.native.memory_stats(self.number)

    def __repr__(self) -> str:
        return f"PluginDevice({self})" if self._text.startswith("CpuDevice") else self._text

    def __str__(self) -> str:
        return f"{self._client.raw_platform}:{self.id}"

    def __reduce__(self) -> Any:
        return _device, (self._client.name, self.id)


class Plugin:
    """A device's own compiler and its memory: the backend (``devices.Backend``) of one device of a plugin."""

    step_kinds: frozenset[type] = frozenset()
    shards = False

    def __init__(self, device: PluginDevice) -> None:
        self.key: tuple[Any, ...] = ("device", device.number)
        self._device = device

    def compile(self, closed: Any, *, name: str, donated: tuple[bool, ...] = (), **_: Any) -> Any:
        return lazy.device_programs.compile_on(closed, self._device, name=name, donated=donated)

    def place(self, array: Any) -> Any:
        return runtime.array_to_place(array, self._device.number << 1)

    def fetch(self, array: Any) -> Any:
        return runtime.array_to_place(array, 0)

    def lend(self, array: Any, place: int) -> Any:
        return runtime.array_lent(array, place)


def _device(platform: str, number: int) -> Any:
    """The device that was pickled."""
    return next(device for device in find(platform).devices() if device.id == number)


class Client:
    """A loaded plugin, its client and its devices.

    ``platform`` is JAX's word, "gpu" for CUDA and ROCm, which ``raw_platform`` tells apart; ``name`` finds the plugin.
    """

    runtime_type = "pjrt_c_api"

    def __init__(self, name: str, plugin: Any, client: Any) -> None:
        self.name = name
        self.plugin = plugin
        self.native = client
        # a plugin for the host's processor is not weft's own CPU, and goes by its own name
        self.raw_platform = name if client.platform == "cpu" else client.platform
        self.platform = "gpu" if client.platform in _GPUS else self.raw_platform  # as JAX names them
        self._devices = [PluginDevice(self, number, tuple(facts)) for number, *facts in client.devices]

    @property
    def platform_version(self) -> str:
        return f"PJRT C API\n{self.native.platform_version}"

    @property
    def path(self) -> str:
        return self.plugin.path

    @property
    def api_version(self) -> tuple[int, int]:
        return self.plugin.version

    def devices(self) -> list[PluginDevice]:
        return list(self._devices)

    def local_devices(self) -> list[PluginDevice]:
        return [device for device in self._devices if device.number]

    def device_count(self) -> int:
        return len(self._devices)

    def local_device_count(self) -> int:
        return len(self.local_devices())

    def process_index(self) -> int:
        return self.native.process_index

    def __repr__(self) -> str:
        return f"<plugin {self.name} {self.path}>"


# -- discovery --------------------------------------------------------------------------------------------------------


def discover() -> list[Found]:
    """The plugins of this environment, each name once, in the order in which they are looked for."""
    found: dict[str, Found] = {}
    for entry in (*_of_environment(), *_of_namespaces(), *_of_entry_points(), *_of_libtpu()):
        found.setdefault(entry.name, entry)
    return list(found.values())


def _of_environment() -> Iterator[Found]:
    for entry in os.environ.get(ENVIRONMENT, "").split(","):
        name, separator, path = entry.strip().partition(":")
        if entry.strip() and not (separator and name and path):
            raise RuntimeError(f"[pjrt] {ENVIRONMENT} is name:path,name:path and so on, got {entry!r}")
        if name:
            yield Found(name, path, ENVIRONMENT)


def _folders(package: str) -> list[str]:
    """The folders of a top-level package, which is not imported."""
    spec = importlib.machinery.PathFinder.find_spec(package)
    return list(spec.submodule_search_locations or ()) if spec is not None else []


def _of_namespaces() -> Iterator[Found]:
    for namespace in _NAMESPACES:
        for folder in _folders(namespace):
            for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
                path = _library(os.path.join(folder, name))
                if path is not None:
                    yield Found(_platform_name(name), path, f"{namespace}.{name}")


def _of_entry_points() -> Iterator[Found]:
    for point in importlib.metadata.entry_points(group="jax_plugins"):
        top, *below = point.value.partition(":")[0].split(".")
        for folder in _folders(top):
            path = _library(os.path.join(folder, *below))
            if path is not None:
                yield Found(_platform_name(point.name), path, f"entry point {point.name}")


def _of_libtpu() -> Iterator[Found]:
    for folder in _folders("libtpu"):
        path = os.path.join(folder, "libtpu.so")
        if os.path.exists(path):
            yield Found("tpu", path, "libtpu")


def _platform_name(package: str) -> str:
    """The platform that JAX registers for a package, ``xla_rocm7`` rocm; ``xla_cuda12`` is xla_cuda, not weft's own."""
    match = re.fullmatch(r"(?:xla_(rocm)|(xla_cuda))\d*", package)
    return (
        match[1] or match[2]
        if match
        else {"intel_extension_for_openxla": "xpu", "metal_plugin": "METAL"}.get(package, package)
    )


def _library(folder: str) -> str | None:
    """The library in a package's folder that has the entry of a plugin."""
    if not os.path.isdir(folder):
        return None
    names = [name for name in os.listdir(folder) if name.endswith(_SUFFIXES)]
    for name in sorted(names, key=lambda name: ("pjrt" not in name, "plugin" not in name, name)):
        path = os.path.join(folder, name)
        if _has_entry(path):
            return path
    return None


def _has_entry(path: str) -> bool:
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(b"GetPjrtApi") >= 0
    except (OSError, ValueError):
        return False


# -- loading ----------------------------------------------------------------------------------------------------------


def find(platform: Any) -> Any:
    """The backend of a platform, loaded if it is not yet; RuntimeError for one that is not there."""
    if isinstance(platform, Client | Platform):
        return platform
    found = _loaded.get(platform) or (cuda_devices.find() if platform in cuda_devices.NAMES else None)
    if found is not None:
        return found
    with _lock:
        fakes = fake_devices.find(platform)
        if fakes is not None:
            return fakes
        names = _ALIASES.get(platform, (platform,))
        for name, backend in _loaded.items():
            if name in names or backend.raw_platform in names or platform == "pjrt":
                return backend
        candidates = [entry for entry in discover() if entry.name in names or platform == "pjrt"]
        if not candidates:
            raise _unknown(platform)
        return load(candidates[0].path, candidates[0].name)


def _all_found() -> list[Found]:
    """Plugins that were loaded by their paths first, then those that are found."""
    own = [Found(name, backend.path, "weft.pjrt.load") for name, backend in _loaded.items()]
    return own + [entry for entry in discover() if entry.name not in _loaded]


def _unknown(platform: Any) -> RuntimeError:
    present = ["cpu", *[entry.name for entry in _all_found()]]
    why = f". weft's own programs find no GPU: {cuda_devices.why_not()}" if platform in cuda_devices.NAMES else ""
    if platform in _KNOWN:
        return RuntimeError(
            f"Unknown backend: '{platform}' requested, but no platforms that are instances of {platform} are present. "
            f"Platforms present are: {', '.join(present)}{why}"
        )
    return RuntimeError(f"Unknown backend {platform}. Available backends are {present}")


def load(path: Any, name: str | None = None, *, options: dict[str, Any] | None = None, probe: bool = True) -> Client:
    """Load the plugin at ``path`` under a name (by default the file's), with options for its client.

    ``probe``: a child process tries it first, so that a library that crashes does not end this process.
    RuntimeError says why a library cannot be used, which is remembered.
    """
    path = os.path.abspath(os.fspath(path))
    name = str(name or os.path.basename(path).split(".")[0])
    with _lock:
        known = _loaded.get(name)
        if known is not None and (known.path == path and not options):
            return known
        if known is not None or name == "cpu":
            raise ValueError(f"[pjrt] the name {name!r} is taken by {known or 'weft itself'}; give another one")
        try:
            backend = _load(path, name, dict(options or {}), probe)
        except Exception as error:
            _refused[name] = str(error)
            raise
        _refused.pop(name, None)
        _loaded[name] = backend
        return backend


def topology(platform: str, name: str, options: dict[str, Any]) -> tuple[Any, Found]:
    """A machine that the plugin of a platform describes, and the plugin; no client is made, since no device is needed.

    RuntimeError if there is no such plugin, NotImplementedError if it describes no machines.
    """
    with _lock:
        candidates = [entry for entry in _all_found() if entry.name in _ALIASES.get(platform, (platform,))]
        if not candidates:
            raise _unknown(platform)
        entry = candidates[0]
        _check_file(entry.path, options)
        if entry.path not in _opened:
            _probe(entry.path, "topology", name, options)
        return _open(entry.path).topology(name, options), entry


def _open(path: str) -> Any:
    """The library at ``path``, opened once in this process."""
    found = _opened.get(path)
    if found is None:
        runtime.set_pjrt_error_types(errors.JaxRuntimeError, errors.OutOfMemoryError)
        runtime.set_pjrt_types(tuple([(dtypes.as_dtype(t), number) for t, number in _TYPES.items() if _has_dtype(t)]))
        found = _opened[path] = runtime.pjrt_open(path)
    return found


def _check_file(path: str, options: dict[str, Any]) -> None:
    if not os.path.isfile(path):
        raise RuntimeError(f"[pjrt] {path} is no usable plugin: there is no such file")
    for key, value in options.items():
        if not isinstance(key, str) or not isinstance(value, str | int | float):
            raise TypeError(f"[pjrt] options of a plugin are strings, numbers and bools, got {key!r}: {value!r}")


def _load(path: str, name: str, options: dict[str, Any], probe: bool) -> Client:
    _check_file(path, options)
    if probe:
        _probe(path, "create", "probe", options)
    plugin = _open(path)
    backend = Client(name, plugin, plugin.create(name, options))
    for device in backend.local_devices():
        devices.register(device)
    return backend


def _has_dtype(name: str) -> bool:
    try:
        return dtypes.is_supported(dtypes.as_dtype(name))
    except TypeError:
        return False


_CHILD = """
import importlib.machinery, importlib.util, json, sys
import numpy
loader = importlib.machinery.ExtensionFileLoader("weft.runtime._native", sys.argv[1])
native = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
loader.exec_module(native)
getattr(native.pjrt_open(sys.argv[2]), sys.argv[3])(sys.argv[4], json.loads(sys.argv[5]))
"""


def _probe(path: str, method: str, name: str, options: dict[str, Any]) -> None:
    """Open the plugin and call a method of it in a child process; RuntimeError if that crashes or does not end.

    The method is ``create``, which makes its client, or ``topology``.
    """
    json = importlib.import_module("json")
    native = sys.modules["weft.runtime._native"].__file__
    command = [sys.executable, "-c", _CHILD, str(native), path, method, name, json.dumps(options)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PROBE_S, check=False)
    except subprocess.TimeoutExpired:
        raise RuntimeError(
            f"[pjrt] {path} is no usable plugin: a child process that tried it did not end in {_PROBE_S:.0f} s"
        ) from None
    if done.returncode < 0:
        tail = done.stderr.decode(errors="replace").strip()[-400:]
        raise RuntimeError(
            f"[pjrt] {path} is no usable plugin: it crashes with signal {-done.returncode} when it is loaded (a child "
            f"process tried it first){': ' + tail if tail else ''}"
        )


def loaded() -> dict[str, Client]:
    """The plugins that this process has loaded, by name."""
    return dict(_loaded)


# -- the command line -------------------------------------------------------------------------------------------------


def report() -> list[str]:
    """A line for each plugin found: name, path, version and devices, or why it is refused. Loads all of them."""
    lines: list[str] = []
    for entry in _all_found():
        where = f"{entry.name}  {entry.path}  (from {entry.source})"
        try:
            backend = find(entry.name)
        except Exception as error:
            lines.append(f"{where}  refused: {error}")
            continue
        major, minor = backend.api_version
        version = " ".join(backend.native.platform_version.split())
        lines.append(f"{where}  PJRT C API {major}.{minor}, {version}, {backend.device_count()} devices")
    return lines


def refused() -> dict[str, str]:
    """Why plugins could not be loaded, by name."""
    return dict(_refused)
