"""Leaks: traced values that something still refers to when their trace has ended (the option ``check_tracer_leaks``).

A finished trace is watched by a weak reference, and must be gone at the next check: when the trace of a user's function
ends, and at the end of ``vmap``. A trace in which a program is evaluated is left to the check after that: when it ends,
the function that derives one program from another still holds its values.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from typing import Any

from weft.core.programs.jaxpr import DebugInfo
from weft.core.tracing import provenance, source_info
from weft.core.tracing.tracer import Tracer


class _Watched(threading.local):
    """The finished traces of each thread, with the functions that were traced."""

    def __init__(self) -> None:
        self.traces: list[tuple[weakref.ref[Any], DebugInfo | None]] = []


_watched = _Watched()


def watch(trace: Any, debug_info: DebugInfo | None = None) -> None:
    """Note that a trace has ended: the next check raises if a traced value of it is still referred to."""
    _watched.traces.append((weakref.ref(trace), debug_info))


def check() -> None:
    """Raise if anything holds a traced value of a watched trace; afterwards none is watched."""
    waiting, _watched.traces = _watched.traces, []
    if all(reference() is None for reference, _ in waiting):
        return
    gc.collect()
    for reference, debug_info in waiting:
        _check(reference, debug_info)


def _check(reference: weakref.ref[Any], debug_info: DebugInfo | None) -> None:
    trace = reference()
    if trace is None:
        return
    leaked = [holder for holder in gc.get_referrers(trace) if isinstance(holder, Tracer)]
    if not leaked:
        return
    lines = [f"Leaked trace {trace!r}. Leaked tracer(s):", ""]
    for tracer in leaked:
        lines.append(repr(tracer))
        if debug_info is not None:
            lines.append(provenance.traced_function(debug_info))
        source = getattr(tracer, "source", None)
        lines.append(f"It was created on line {source_info.summarize(source)}." if source else "It is an argument.")
        lines.extend(_holders(tracer, leaked))
        lines.append("")
    raise Exception("\n".join(lines))


def _holders(tracer: Tracer, leaked: list[Any]) -> list[str]:
    """Who refers to a leaked tracer, one line each."""
    ignored = (leaked, sys._getframe(), sys._getframe(1))
    found = []
    for holder in gc.get_referrers(tracer):
        if any(holder is known for known in ignored) or type(holder).__name__ == "frame":
            continue
        found.append(f"<{type(tracer).__name__} {id(tracer)}> is referred to by {_holder_name(holder, tracer)}")
    return found


def _holder_name(holder: Any, tracer: Tracer) -> str:
    location = ""
    if isinstance(holder, dict):
        keys = [key for key, value in holder.items() if value is tracer]
        location = f"[{keys[0]!r}]" if keys else ""
    elif isinstance(holder, (list, tuple)):
        location = next((f"[{index}]" for index, value in enumerate(holder) if value is tracer), "")
    names = [
        f"{module}.{name}"
        for module, loaded in list(sys.modules.items())
        for name, value in list(getattr(loaded, "__dict__", {}).items())
        if value is holder and not module.startswith("weft")
    ]
    named = f" ({names[0]})" if names else ""
    return f"<{type(holder).__name__} {id(holder)}>{location}{named}"
