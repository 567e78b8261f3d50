"""What this process has traced, compiled and loaded: when, at which line, why, and at what price.

The newest ``MOST`` events are kept. A cause is worked out when somebody reads it: an event holds the keys of the call
and of the calls before it, and no argument.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from types import CodeType
from typing import TYPE_CHECKING, Any

from weft._base import lazy
from weft.core.caches.budget import BUDGET
from weft.core.caches.cache_keys import TraceKey
from weft.core.tracing import source_info

if TYPE_CHECKING:
    from weft.dispatch.calls.miss_causes import Cause

MOST = 500
_LATEST = 8  # earlier calls of the function that a new one is compared with
_EVENT_BYTES = 1100  # measured: an event with its keys


class Event:
    """One trace, compilation or load of a program."""

    __slots__ = (
        "_causes",
        "_position",
        "begin",
        "kernels",
        "kind",
        "milliseconds",
        "name",
        "stages",
        "thread",
        "types",
    )

    def __init__(
        self,
        kind: str,
        name: str,
        types: tuple[Any, ...],
        milliseconds: float,
        causes: Callable[[], list[Cause]] | None,
    ) -> None:
        self.kind = kind  # trace, compile, load
        self.name = name
        self.types = types
        self.milliseconds = milliseconds
        self.begin = time.perf_counter_ns() - int(milliseconds * 1e6)
        self.thread = threading.get_native_id()
        self.stages: dict[str, float] = {}
        self.kernels: tuple[int, int, int] = (0, 0, 0)  # built, loaded, reused
        self._causes = causes
        self._position = source_info.capture(2)

    @property
    def line(self) -> tuple[str, int]:
        """File and number of the user's line that made the call."""
        if self._position is None:
            return "", 0
        frame = source_info.resolve(self._position[0], self._position[1])
        return frame.file_name, frame.line

    @property
    def causes(self) -> list[Cause]:
        """Why it was necessary; empty for compilations, whose cause is their trace."""
        return [] if self._causes is None else self._causes()

    def __repr__(self) -> str:
        why = "; ".join([cause.text for cause in self.causes])
        return f"<{self.kind} {self.name} {self.milliseconds:.2f} ms{': ' if why else ''}{why}>"


_events: deque[Event] = deque(maxlen=MOST)


def events() -> list[Event]:
    """All that are kept, oldest first."""
    return list(_events)


def clear() -> None:
    """Forget them."""
    _events.clear()


BUDGET.enlist(_events.__len__, _EVENT_BYTES, clear)


def add(
    kind: str,
    name: str,
    types: tuple[Any, ...],
    milliseconds: float,
    causes: Callable[[], list[Cause]] | None = None,
    stages: dict[str, float] | None = None,
    kernels: tuple[int, int, int] = (0, 0, 0),
) -> None:
    """Record what has just ended."""
    event = Event(kind, name, types, milliseconds, causes)
    event.stages, event.kernels = stages or {}, kernels
    _events.append(event)


class LateCauses:
    """The causes of a trace, worked out when they are read; holds keys, and the function weakly."""

    __slots__ = ("call", "code", "count", "earlier", "function", "latest")

    def __init__(self, function: Any, record: Any, key: Any, count: int) -> None:
        self.function = weakref.ref(function) if record() is function else _nobody
        self.code: CodeType | None = lazy.misses.code_of(function)
        self.call, self.count = key[1:], count
        self.latest = [known[1:] for known in record.newest(_LATEST) if type(known) is TraceKey]
        self.earlier = lazy.misses.count_traced(self.code) if not self.latest else 0

    def __call__(self) -> list[Cause]:
        return lazy.misses.late_causes(self)


def causes_of(function: Any, record: Any, key: Any, count: int) -> Callable[[], list[Cause]]:
    """The causes of a trace that is about to be made; worked out at once where they name the user's static values."""
    late = LateCauses(function, record, key, count)
    if not key.statics:
        return late
    found = late()
    return lambda: found


def _nobody() -> None:
    return None
