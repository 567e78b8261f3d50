"""What a program is told of sizes that have no value while it is traced for ``export`` or ``eval_shape``.

weft traces with integers. While a function is traced for unknown sizes, its own lines see symbolic sizes in their place
(``x.shape``), so that a branch on one is decided for all values or raises; weft's lines see the integers. Which lines
they are is a matter of the file that asks.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from weft._base import own_files

_NUMPY = os.sep + "numpy" + os.sep  # its Python functions ask for sizes on behalf of their callers


class _Thread(threading.local):
    """The trace for unknown sizes that a thread is in: ``seen(shape)`` is what a user's line reads."""

    def __init__(self) -> None:
        self.session: Any = None


thread = _Thread()


def asked_by_weft(depth: int) -> bool:
    """Whether the line ``depth`` calls above the caller of this function is one of weft's."""
    frame: Any = sys._getframe(depth + 1)
    while _NUMPY in frame.f_code.co_filename and not own_files.is_own(frame.f_code.co_filename):
        frame = frame.f_back
        if frame is None:
            return False
    return own_files.is_own(frame.f_code.co_filename)


def shape_for(shape: tuple[int, ...], depth: int = 1) -> tuple[Any, ...]:
    """A shape, as the line sees it that is ``depth`` calls above the caller: with symbolic sizes if it is a user's."""
    session = thread.session
    if session is None or not shape or asked_by_weft(depth + 1):
        return shape
    return session.seen(shape)


def check_known(extent: int) -> None:
    """Raise InconclusiveDimensionOperation if a user's line, two calls above, asks for what an unknown size decides."""
    (seen,) = shape_for((extent,), 2)
    if not isinstance(seen, int):
        raise seen.not_constant()
