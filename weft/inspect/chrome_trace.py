"""A profile as JSON in the trace event format of Chrome, which Perfetto (https://ui.perfetto.dev) opens."""

from __future__ import annotations

import json
import os
from typing import Any

from weft.inspect.profiling import Profile, Span


def text(found: Profile) -> str:
    """The whole trace: one complete event for each span, and the names of the threads."""
    return json.dumps({"traceEvents": events(found), "displayTimeUnit": "ns"}, separators=(",", ":"), default=str)


def events(found: Profile) -> list[dict[str, Any]]:
    """The events, their times in microseconds from the first."""
    process = os.getpid()
    origin = min([span.begin for span in found.spans], default=0)
    threads: dict[int, str] = {}
    for span in found.spans:
        threads[span.thread] = span.facts.get("on") or threads.get(span.thread, "python")
    made: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": "weft"}},
        *[
            {"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": f"{name} {thread}"}}
            for thread, name in threads.items()
        ],
    ]
    return made + [_event(span, process, origin) for span in found.spans]


def _event(span: Span, process: int, origin: int) -> dict[str, Any]:
    return {
        "ph": "X", "name": span.name, "cat": span.kind, "pid": process, "tid": span.thread,
        "ts": (span.begin - origin) / 1e3, "dur": (span.end - span.begin) / 1e3,
        "args": {name: value for name, value in span.facts.items() if name not in ("on", "key")},
    }  # fmt: skip
