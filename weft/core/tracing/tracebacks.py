"""Tracebacks without weft's own frames.

``boundary`` wraps the functions that users call. An exception that leaves such a function loses the frames of weft's
files, and is otherwise the same object, with the same cause and context. The option ``traceback_filtering`` is ``off``,
``tracebackhide`` (frames are marked for debuggers and pytest), ``remove_frames`` (with a note),
``quiet_remove_frames``, or ``auto``, which picks one of these.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from weft import config
from weft.core.tracing import source_info

F = TypeVar("F", bound=Callable[..., Any])

NOTE = (
    "--------------------\nFor simplicity, weft has removed its internal frames from the traceback of the following "
    "exception. Set WEFT_TRACEBACK_FILTERING=off to include these."
)


excluded: list[str] = []  # beginnings of names of files whose frames are hidden too


def exclude(path: str) -> None:
    """Hide the frames of the files below ``path`` as weft's own are; for libraries built on weft."""
    excluded.append(path)


def is_hidden(file_name: str) -> bool:
    """Whether frames of a file are left out of tracebacks."""
    return source_info.is_internal(file_name) or file_name.startswith(tuple(excluded))


def _mode() -> str:
    """The way to filter: ``auto`` leaves frames to IPython's own hiding, and removes them elsewhere."""
    mode = config.read("traceback_filtering")
    if mode != "auto":
        return mode
    return "tracebackhide" if "IPython" in sys.modules and _in_ipython() else "remove_frames"


def _in_ipython() -> bool:
    shell = getattr(sys.modules["IPython"], "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "_showtraceback")


def without_internal_frames(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback's entries outside weft, in the same order."""
    entries = []
    while traceback is not None:
        if not is_hidden(traceback.tb_frame.f_code.co_filename):
            entries.append(traceback)
        traceback = traceback.tb_next
    kept: TracebackType | None = None
    for entry in reversed(entries):
        kept = TracebackType(kept, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return kept


def _mark_hidden(traceback: TracebackType | None) -> None:
    """Set ``__tracebackhide__`` in weft's frames."""
    while traceback is not None:
        if is_hidden(traceback.tb_frame.f_code.co_filename):
            traceback.tb_frame.f_locals["__tracebackhide__"] = True
        traceback = traceback.tb_next


def filter_exception(error: BaseException) -> None:
    """Hide weft's frames from the traceback of ``error`` and of what caused it."""
    mode = _mode()
    if mode == "off":
        return
    seen: set[int] = set()
    pending: BaseException | None = error
    while pending is not None and id(pending) not in seen:
        seen.add(id(pending))
        if mode == "tracebackhide":
            _mark_hidden(pending.__traceback__)
        else:
            shorter = without_internal_frames(pending.__traceback__)
            pending.__traceback__ = shorter
        pending = pending.__cause__ or (None if pending.__suppress_context__ else pending.__context__)
    if mode == "remove_frames" and NOTE not in getattr(error, "__notes__", ()):
        error.add_note(NOTE)


def boundary(fun: F) -> F:
    """``fun`` as an entry into weft: exceptions leave it without weft's frames."""

    @functools.wraps(fun)
    def entered(*args: Any, **kwargs: Any) -> Any:
        try:
            return fun(*args, **kwargs)
        except Exception as error:
            filter_exception(error)
            raise

    return entered  # type: ignore[return-value]
