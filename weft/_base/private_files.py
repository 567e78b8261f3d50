"""Files that weft keeps for one user in folders that other users can guess: caches and crash files.

Whoever may write to a folder can put a link instead of a file, and have somebody else's file written to; or a pipe,
and have the process wait for ever. So a folder serves only if nobody else can write to it, and a file is written to
only if it is a plain file of the user's own with no other name.
"""

from __future__ import annotations

import contextlib
import os
import stat
import warnings

_warned: set[str] = set()


def danger(folder: str) -> str | None:
    """Why files of a folder are not safe from other users; None if they are, or if there is no such folder."""
    if not hasattr(os, "geteuid"):
        return None
    try:
        status = os.stat(folder)
    except OSError:
        return None
    if status.st_uid not in (0, os.geteuid()):
        return f"it belongs to the user with number {status.st_uid}"
    if stat.S_ISDIR(status.st_mode) and status.st_mode & 0o022:
        return f"other users may write to it (mode {stat.S_IMODE(status.st_mode):04o})"
    return None


def warn_of(folder: str, why: str, what: str, option: str) -> None:
    """Warn, once for each folder, that it is not used for ``what``."""
    if folder in _warned:
        return
    _warned.add(folder)
    warnings.warn(
        f"[weft] {what} are not kept in {folder}, because {why}: they could be exchanged or redirected. "
        f"Make the folder private (chmod 700 {folder}) or choose another ({option}).",
        RuntimeWarning,
        stacklevel=2,
    )


def open_own(path: str, flags: int) -> int:
    """A descriptor of a plain file of this user, made with mode 0600 if it is not there. It never waits.

    PermissionError if the path is a link, a pipe or another thing, if the file has a second name, or if others own it
    or may write to it. Nothing is changed then.
    """
    safely = os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    handle = os.open(path, flags | safely, 0o600)
    try:
        status = os.fstat(handle)
        own = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
        if not (own and stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and not status.st_mode & 0o022):
            raise PermissionError(f"{path} is not a plain file of this user alone")
    except BaseException:
        os.close(handle)
        raise
    return handle


def open_own_anew(path: str, flags: int) -> int:
    """As ``open_own``; a file of another kind that stands there is removed from its folder first."""
    with contextlib.suppress(OSError):
        return open_own(path, flags)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # a link itself, not what it leads to
    return open_own(path, flags)
