"""Tracebacks as the user sees them: without weft's own frames.

In: an exception leaving a jitted function. Out: the same exception, its traceback reduced to the frames of the
user's files. The config option ``traceback_filtering`` (``WEFT_TRACEBACK_FILTERING=off``) turns it off.
"""

from __future__ import annotations

from types import TracebackType

from weft import config, errors, runtime
from weft.core import source_info


def filtered(traceback: TracebackType | None) -> TracebackType | None:
    """``traceback`` without the frames of weft."""
    kept: list[TracebackType] = []
    while traceback is not None:
        if not source_info.is_internal(traceback.tb_frame.f_code.co_filename):
            kept.append(traceback)
        traceback = traceback.tb_next
    result: TracebackType | None = None
    for part in reversed(kept):
        result = TracebackType(result, part.tb_frame, part.tb_lasti, part.tb_lineno)
    return result


def hide_frames(error: BaseException) -> None:
    """Filter the traceback of ``error`` and of the errors that led to it. Our own bugs keep all frames."""
    if config.read("traceback_filtering") == "off" or isinstance(error, errors.InternalError):
        return
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        kept = filtered(current.__traceback__)
        if kept is not None:
            current.__traceback__ = kept
        current = current.__cause__ or current.__context__


def install() -> None:
    """Have the native side filter what leaves a jitted function."""
    hook = getattr(runtime, "set_traceback_hook", None)
    if hook is not None:
        hook(hide_frames)
