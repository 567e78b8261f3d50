"""``weft.profile()``: how long calls, kernels and source lines take while a block or a function runs.

The runtime counts (``runtime/src/profile.cpp``); here a block begins and ends, and what was counted gets names: of
programs, kernels and the user's lines. Other spans are added by ``weft.profiler.TraceAnnotation``.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from weft import runtime
from weft._base import forks, lazy
from weft._base.record import NamedTuple
from weft.dispatch.programs import history

F = TypeVar("F", bound=Callable[..., Any])
MOST_SPANS = 200_000  # spans that each thread keeps for the timeline; counts have no limit
_lock = forks.held("profile")
_current: profile | None = None


class Span(NamedTuple):
    """What a thread did from ``begin`` to ``end``, in nanoseconds of ``time.perf_counter_ns``."""

    name: str
    kind: str  # call, step, share, annotation, trace, compile
    begin: int
    end: int
    thread: int
    facts: dict[str, Any]


class Times(NamedTuple):
    """Seconds that runs took: in all, on average and at best. ``timed``: how many were measured."""

    runs: int
    timed: int
    total: float
    mean: float
    least: float


class KernelTimes(NamedTuple):
    """One step of a program: a kernel, product, copy, loop or call."""

    name: str
    what: str
    times: Times
    nbytes: float
    operations: float
    estimate: float  # seconds on one thread, by the compiler
    lines: dict[tuple[str, int], float]
    first: int  # its first instruction in the plan


class ProgramTimes(NamedTuple):
    """One compiled program: a jitted function for one set of types, or one that a loop or a branch runs."""

    name: str
    times: Times
    steps: tuple[KernelTimes, ...]
    inside: str  # the program that runs it, if it is not called
    key: int  # id of its Executable
    is_eager: bool  # an operation outside of jit


class Wait(NamedTuple):
    """A line of the user's at which Python waited for results."""

    line: tuple[str, int]
    times: int
    seconds: float


class Profile:
    """What a profile found: ``programs``, ``spans``, ``lines``; prints as tables and saves as a trace."""

    def __init__(
        self, seconds: float, programs: list[ProgramTimes], spans: list[Span], waits: list[Wait], dropped: int
    ) -> None:
        self.seconds = seconds
        self.programs = programs
        self.spans = spans
        self.waits = waits
        self.dropped = dropped  # spans for which a thread had no room

    @property
    def findings(self) -> list[Any]:
        """What the calls of a profile could do otherwise: waits in loops, operations outside of ``jit``."""
        return lazy.submodule("weft.inspect.call_findings").of_profile(self)

    @property
    def calls(self) -> list[ProgramTimes]:
        """The programs that were called, the longest first."""
        return sorted([p for p in self.programs if not p.inside], key=lambda p: -p.times.total)

    @property
    def kernels(self) -> list[tuple[ProgramTimes, KernelTimes]]:
        """All steps of all programs, the longest first."""
        found = [(program, step) for program in self.programs for step in program.steps]
        return sorted(found, key=lambda pair: -pair[1].times.total)

    @property
    def lines(self) -> dict[tuple[str, int], float]:
        """Seconds of each source line (file, number), the longest first; the time of a loop counts for its body."""
        found: dict[tuple[str, int], float] = {}
        inside: dict[str, float] = {}
        for program in self.programs:
            if program.inside:
                inside[program.inside] = inside.get(program.inside, 0.0) + program.times.total
        for program in self.programs:
            bodies = inside.get(program.name, 0.0)
            for step in program.steps:
                own = step.times.total
                if step.what in ("loop", "branch"):
                    own, bodies = max(own - bodies, 0.0), max(bodies - own, 0.0)
                for line, share in step.lines.items():
                    found[line] = found.get(line, 0.0) + share * own
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))

    def table(self, rows: int = 12) -> str:
        """The tables as text: calls, steps and lines, each with its longest ``rows``."""
        return lazy.submodule("weft.inspect.profile_tables").text(self, rows)

    def save(self, path: Any) -> None:
        """Write the timeline in the format of Chrome's traces, which https://ui.perfetto.dev opens."""
        text = lazy.submodule("weft.inspect.chrome_trace").text(self)
        Path(path).write_text(text, encoding="utf-8")

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        return f"<Profile of {self.seconds:.3g} s: {len(self.calls)} programs, {len(self.kernels)} steps>"

    def __rich__(self) -> Any:
        return lazy.submodule("weft.inspect.profile_tables").tables(self, 12)

    def _repr_html_(self) -> str:
        return lazy.submodule("weft.inspect.profile_tables").html(self, 30)


class profile:
    """Measure calls, kernels and source lines in a ``with`` block, or in each call of a decorated function.

    ``every_call``: time each call of each program; otherwise short programs are timed at some of their calls only, so
    that measuring takes about a hundredth of the time. ``show``: print the tables at the end (a decorated function
    does). RuntimeError if a profile is being taken already.

    >>> f = weft.jit(lambda x: jnp.sum(jnp.sin(x)))
    >>> with weft.profile() as p:
    ...     y = f(jnp.ones(1000))
    >>> [program.times.runs for program in p.result.calls if program.name == "<lambda>"]
    [1]
    """

    def __init__(self, *, every_call: bool = False, show: bool = False, most_spans: int = MOST_SPANS) -> None:
        self.every_call, self.show, self.most_spans = every_call, show, most_spans
        self._result: Profile | None = None
        self._notes: list[Span] = []

    @property
    def result(self) -> Profile:
        """What was found, after the block."""
        if self._result is None:
            raise RuntimeError("[profile] the result is there when the block has ended")
        return self._result

    def __enter__(self) -> profile:
        global _current
        runtime.stream_drain()
        runtime.profile_start(self.most_spans, self.every_call)
        with _lock:
            _current = self
        # programs from disk have no kernels with names and lines
        lazy.submodule("weft.compiler.storage.stored").pause(True)
        self._notes, self._result = [], None
        self._begin = time.perf_counter_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        global _current
        runtime.stream_drain()
        end = time.perf_counter_ns()
        with _lock:
            _current = None
        lazy.submodule("weft.compiler.storage.stored").pause(False)
        found, threads, waits = runtime.profile_stop()
        notes = [*self._notes, *_compilations(self._begin, end)]
        read = lazy.submodule("weft.inspect.read_profile")
        self._result = read.result((end - self._begin) * 1e-9, found, threads, waits, notes)
        if self.show:
            lazy.rich_console.Console().print(self._result)

    def __call__(self, function: F) -> F:
        """A function that is profiled at each call, and prints what was found; ``function.profiles`` keeps the last."""

        @functools.wraps(function)
        def profiled(*args: Any, **kwargs: Any) -> Any:
            block = profile(every_call=self.every_call, show=True, most_spans=self.most_spans)
            with block:
                out = function(*args, **kwargs)
            attributes["profile"] = block.result
            return out

        attributes = vars(profiled)
        return profiled  # type: ignore[return-value] - the same signature


def note(name: str, begin: int, facts: dict[str, Any]) -> None:
    """Add a span that ends now to the profile that is taken, if there is one."""
    current = _current
    if current is not None:
        end = time.perf_counter_ns()
        current._notes.append(Span(name, "annotation", begin, end, threading.get_native_id(), facts))


def is_on() -> bool:
    """Whether a profile is being taken."""
    return _current is not None


def _compilations(begin: int, end: int) -> list[Span]:
    """What was traced and compiled meanwhile."""
    return [
        Span(
            f"{event.kind} {event.name}", event.kind, event.begin, event.begin + int(event.milliseconds * 1e6),
            event.thread, {"stages": event.stages} if event.stages else {},
        )
        for event in history.events()
        if begin <= event.begin <= end
    ]  # fmt: skip
