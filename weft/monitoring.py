"""weft.monitoring: events and durations that programs record, and listeners that are told of them.

weft itself records none; libraries do, and read their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = [
    "clear_event_listeners",
    "record_event",
    "record_event_duration_secs",
    "record_event_time_span",
    "record_scalar",
    "register_event_duration_secs_listener",
    "register_event_listener",
    "register_event_time_span_listener",
    "register_scalar_listener",
    "unregister_event_duration_listener",
    "unregister_event_listener",
    "unregister_event_time_span_listener",
    "unregister_scalar_listener",
]

Listener = Callable[..., None]
_events: list[Listener] = []
_durations: list[Listener] = []
_spans: list[Listener] = []
_scalars: list[Listener] = []


def record_event(event: str, **details: Any) -> None:
    """Tell the listeners of events that ``event`` has happened."""
    for listener in list(_events):
        listener(event, **details)


def record_event_duration_secs(event: str, duration: float, **details: Any) -> None:
    """Tell the listeners of durations how many seconds ``event`` took."""
    for listener in list(_durations):
        listener(event, duration, **details)


def record_event_time_span(event: str, start_time: float, end_time: float, **details: Any) -> None:
    """Tell the listeners of time spans when ``event`` began and ended."""
    for listener in list(_spans):
        listener(event, start_time, end_time, **details)


def record_scalar(event: str, value: float, **details: Any) -> None:
    """Tell the listeners of scalars a value."""
    for listener in list(_scalars):
        listener(event, value, **details)


def register_event_listener(callback: Listener) -> None:
    """Call ``callback(event, **details)`` for every event."""
    _events.append(callback)


def register_event_duration_secs_listener(callback: Listener) -> None:
    """Call ``callback(event, seconds, **details)`` for every duration."""
    _durations.append(callback)


def register_event_time_span_listener(callback: Listener) -> None:
    """Call ``callback(event, start, end, **details)`` for every time span."""
    _spans.append(callback)


def register_scalar_listener(callback: Listener) -> None:
    """Call ``callback(event, value, **details)`` for every scalar."""
    _scalars.append(callback)


def unregister_event_listener(callback: Listener) -> None:
    """Forget a listener; ValueError if it is not registered."""
    _events.remove(callback)


def unregister_event_duration_listener(callback: Listener) -> None:
    """Forget a listener; ValueError if it is not registered."""
    _durations.remove(callback)


def unregister_event_time_span_listener(callback: Listener) -> None:
    """Forget a listener; ValueError if it is not registered."""
    _spans.remove(callback)


def unregister_scalar_listener(callback: Listener) -> None:
    """Forget a listener; ValueError if it is not registered."""
    _scalars.remove(callback)


def clear_event_listeners() -> None:
    """Forget all listeners."""
    for listeners in (_events, _durations, _spans, _scalars):
        listeners.clear()
