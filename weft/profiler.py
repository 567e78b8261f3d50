"""weft.profiler: profiles under JAX's names: spans of a program, traces written to a folder, memory that arrays take.

``trace`` and ``start_trace`` write what ``weft.profile`` finds as a trace that Perfetto opens; spans named by
``TraceAnnotation`` appear in it. What would serve a profile over a network raises NotImplementedError.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, ParamSpec, TypeVar

from weft._base import lazy

__all__ = [
    "ProfileData",
    "ProfileOptions",
    "StepTraceAnnotation",
    "TraceAnnotation",
    "annotate_function",
    "device_memory_profile",
    "register_subprocess",
    "save_device_memory_profile",
    "start_server",
    "start_trace",
    "stop_server",
    "stop_trace",
    "trace",
]

P = ParamSpec("P")
T = TypeVar("T")
_running: tuple[Any, Path, bool] | None = None  # the profile that is taken, where its trace goes, whether to link it


class ProfileOptions:
    """How a trace is taken. Attributes of JAX's are kept; ``every_call`` is weft's own (see ``weft.profile``)."""

    def __init__(self) -> None:
        self.host_tracer_level = 2
        self.python_tracer_level = 1
        self.device_tracer_level = 1
        self.enable_hlo_proto = True
        self.include_dataset_ops = False
        self.advanced_configuration: dict[str, Any] = {}
        self.every_call = False


class TraceAnnotation:
    """A span of the ``with`` statement, under a name and with values that describe it.

    >>> with weft.profiler.TraceAnnotation("loss", epoch=3):
    ...     loss = 2.0
    """

    def __init__(self, name: str, **metadata: Any) -> None:
        if not isinstance(name, str):
            raise TypeError(f"[profiler] a span is named by a string, got {name!r} of {type(name)}")
        self.name, self.metadata = name, metadata
        self._begin = 0

    def __enter__(self) -> TraceAnnotation:
        self._begin = time.perf_counter_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        profiling = lazy.loaded("weft.inspect.profiling")
        if profiling is not None:
            profiling.note(self.name, self._begin, self.metadata)


class StepTraceAnnotation(TraceAnnotation):
    """A span that is one step of a training loop; its number is ``step_num``.

    >>> with weft.profiler.StepTraceAnnotation("train", step_num=7):
    ...     loss = 2.0
    """


def annotate_function(func: Callable[P, T], name: str | None = None, **decorator_kwargs: Any) -> Callable[P, T]:
    """The function, whose every call is a span under ``name``, its own name unless given.

    >>> weft.profiler.annotate_function(abs, name="size")(-2)
    2
    """
    span = name or getattr(func, "__qualname__", None) or getattr(func, "__name__", repr(func))

    @functools.wraps(func)
    def annotated(*args: P.args, **kwargs: P.kwargs) -> T:
        with TraceAnnotation(span, **decorator_kwargs):
            return func(*args, **kwargs)

    return annotated


def start_trace(
    log_dir: str | os.PathLike[str],
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    profiler_options: ProfileOptions | None = None,
) -> None:
    """Begin a trace; ``stop_trace`` writes it below ``log_dir``, in ``plugins/profile/<time>``.

    ``create_perfetto_trace`` writes ``perfetto_trace.json.gz`` beside ``<host>.trace.json.gz``; the two are equal.
    RuntimeError if one is being taken; NotImplementedError for a link, which would have to be served.
    """
    global _running
    if _running is not None:
        raise RuntimeError(
            "[profiler] a trace is being taken already: only one can be at a time; call stop_trace first"
        )
    if create_perfetto_link:
        raise NotImplementedError(
            "[profiler] create_perfetto_link: weft serves nothing; open the file that create_perfetto_trace=True writes"
            " at https://ui.perfetto.dev"
        )
    folder = Path(log_dir)
    folder.mkdir(parents=True, exist_ok=True)
    every_call = bool(getattr(profiler_options, "every_call", False))
    block = lazy.submodule("weft.inspect.profiling").profile(every_call=every_call)
    block.__enter__()
    _running = block, folder, create_perfetto_trace


def stop_trace() -> None:
    """End the trace and write it. RuntimeError if none is being taken."""
    global _running
    if _running is None:
        raise RuntimeError("[profiler] no trace is being taken: call start_trace first")
    (block, folder, perfetto), _running = _running, None
    block.__exit__(None, None, None)
    target = folder / "plugins" / "profile" / time.strftime("%Y_%m_%d_%H_%M_%S")
    target.mkdir(parents=True, exist_ok=True)
    data = lazy.submodule("weft.inspect.chrome_trace").text(block.result).encode()
    names = [f"{socket.gethostname()}.trace.json.gz", *(["perfetto_trace.json.gz"] if perfetto else [])]
    for name in names:
        (target / name).write_bytes(gzip.compress(data))


@contextlib.contextmanager
def trace(
    log_dir: str | os.PathLike[str],
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    profiler_options: ProfileOptions | None = None,
) -> Iterator[None]:
    """A trace of the ``with`` block, written as by ``start_trace`` and ``stop_trace``."""
    start_trace(log_dir, create_perfetto_link, create_perfetto_trace, profiler_options)
    try:
        yield
    finally:
        stop_trace()


def device_memory_profile(backend: str | None = None) -> bytes:
    """What arrays take of the devices' memory, in the gzipped format of pprof: ``pprof -top memory.prof`` shows it.

    A sample is all arrays of one type on one device, with their number and bytes. RuntimeError for a backend that is
    not there. The format is JAX's; JAX's stacks say where arrays were made, which weft does not note.

    >>> weft.profiler.device_memory_profile()[:2]
    b'\\x1f\\x8b'
    """
    return lazy.submodule("weft.inspect.memory_profile").of_live_arrays(backend)


def save_device_memory_profile(filename: str | os.PathLike[str], backend: str | None = None) -> None:
    """Write ``device_memory_profile`` to a file."""
    Path(filename).write_bytes(device_memory_profile(backend))


def start_server(port: int) -> NoReturn:
    """Not built: weft serves no profiles over a network."""
    raise NotImplementedError(f"weft.profiler.start_server({port}): weft serves no profiles; use weft.profile or trace")


def stop_server() -> NoReturn:
    """Not built: there is no server to stop."""
    raise NotImplementedError("weft.profiler.stop_server: weft serves no profiles, so that there is no server to stop")


def register_subprocess(pid: int, port: int | None = None) -> NoReturn:
    """Not built: a profile is of one process."""
    raise NotImplementedError(f"weft.profiler.register_subprocess({pid}): a profile of weft's is of one process")


class ProfileData:
    """A trace read back from a file: planes (processes), lines (threads) and events.

    >>> list(weft.profiler.ProfileData.from_events([]).planes)
    []
    """

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self._events = events

    @classmethod
    def from_events(cls, events: list[dict[str, Any]]) -> ProfileData:
        """The data of these trace events."""
        return cls(events)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> ProfileData:
        """Read a trace that ``stop_trace`` or ``Profile.save`` wrote."""
        data = Path(path).read_bytes()
        text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        return cls(json.loads(text)["traceEvents"])

    @property
    def planes(self) -> Iterator[ProfilePlane]:
        """One for each process."""
        names = {e["pid"]: e["args"]["name"] for e in self._events if e["ph"] == "M" and e["name"] == "process_name"}
        for process, name in names.items():
            yield ProfilePlane(name, [e for e in self._events if e["pid"] == process])

    def find_plane_with_name(self, name: str) -> ProfilePlane | None:
        """The plane of this name, or None."""
        return next((plane for plane in self.planes if plane.name == name), None)


class ProfilePlane:
    """One process of a trace."""

    def __init__(self, name: str, events: list[dict[str, Any]]) -> None:
        self.name, self._events = name, events

    @property
    def lines(self) -> Iterator[ProfileLine]:
        """One for each thread."""
        names = {e["tid"]: e["args"]["name"] for e in self._events if e["ph"] == "M" and e["name"] == "thread_name"}
        for thread, name in names.items():
            yield ProfileLine(name, [e for e in self._events if e["tid"] == thread and e["ph"] == "X"])


class ProfileLine:
    """One thread of a trace."""

    def __init__(self, name: str, events: list[dict[str, Any]]) -> None:
        self.name, self._events = name, events

    @property
    def events(self) -> Iterator[ProfileEvent]:
        """The spans, in the order in which they began."""
        for event in self._events:
            yield ProfileEvent(event)


class ProfileEvent:
    """One span of a trace."""

    def __init__(self, event: dict[str, Any]) -> None:
        self.name: str = event["name"]
        self.start_ns, self.duration_ns = event["ts"] * 1e3, event["dur"] * 1e3
        self.stats = list(event.get("args", {}).items())

    @property
    def end_ns(self) -> float:
        return self.start_ns + self.duration_ns
