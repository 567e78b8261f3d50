"""What a program is told of sizes that have no value while it is traced for ``export`` or ``eval_shape``.

weft traces with integers. While a function is traced for unknown sizes, its own lines see symbolic sizes instead
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


class OpenAval:
    """The type of an array with open extents."""

    __slots__ = ("dtype", "shape", "weak_type")

    def __init__(self, shape: tuple[Any, ...], dtype: Any, weak_type: bool = False) -> None:
        self.shape = shape
        self.dtype = dtype
        self.weak_type = weak_type

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def strip_weak_type(self) -> OpenAval:
        return OpenAval(self.shape, self.dtype)

    def str_short(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    def __repr__(self) -> str:
        return f"ShapedArray({self.dtype}[{','.join(map(str, self.shape))}])"


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


def type_for(aval: Any, depth: int = 1) -> Any:
    """The type of a value, as the line sees it that is ``depth`` calls above the caller."""
    if thread.session is None or not hasattr(aval, "shape"):
        return aval
    shape = shape_for(aval.shape, depth + 1)
    return (
        aval if all(type(n) is int for n in shape) else OpenAval(shape, aval.dtype, getattr(aval, "weak_type", False))
    )


def check_known(extent: int) -> None:
    """Raise InconclusiveDimensionOperation if a user's line, two calls above, asks for what an unknown size decides."""
    (seen,) = shape_for((extent,), 2)
    if getattr(seen, "is_symbolic", False):
        raise seen.not_constant()


def plain(value: Any) -> Any:
    """The integer of the trace for a symbolic size; other values unchanged."""
    return value.value() if getattr(value, "is_symbolic", False) and thread.session is not None else value


def check_more_than_one(count: Any) -> None:
    """Raise InconclusiveDimensionOperation for a size that may be 1, where a function does something else for 1."""
    if getattr(count, "is_symbolic", False):
        count.check_above(1)
