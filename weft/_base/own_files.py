"""Which files are weft's own: messages to users name the innermost line outside of them."""

from __future__ import annotations

import os
import sys

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_TOUR = os.path.join(_PACKAGE, "tour") + os.sep  # a program of a user that is shipped with weft
_STDLIB_GLUE = {os.path.join(os.path.dirname(os.__file__), name): True for name in ("contextlib.py", "functools.py")}
_excluded: list[str] = []
known: dict[str, bool] = {}


def is_internal(filename: str) -> bool:
    """Whether a file belongs to weft itself (or is registered as such)."""
    found = known.get(filename)
    if found is None:
        own = filename.startswith((_PACKAGE, "<frozen")) and not filename.startswith(_TOUR)
        found = own or _STDLIB_GLUE.get(filename, False) or filename.startswith(tuple(_excluded))
        known[filename] = found
    return found


def is_own(filename: str) -> bool:
    """Whether a file is one of weft's modules, whatever is registered beside them."""
    return filename.startswith(_PACKAGE) and not filename.startswith(_TOUR)


def exclude(path: str) -> None:
    """Take files whose names begin with ``path`` for a library's, so that positions are those of its callers."""
    _excluded.append(path)
    known.clear()


def depth_of_user() -> int:
    """The ``stacklevel`` of a warning, for the caller, that names the innermost line outside weft."""
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and is_internal(frame.f_code.co_filename):
        frame, depth = frame.f_back, depth + 1
    return depth
