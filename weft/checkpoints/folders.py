"""The folder of a checkpoint: names of its files, commit by renaming one file, locks, removal of what nothing names.

    run/
      step_00000100.json             the manifest of a step: whole or not there; checkpoint.json of a save without steps
      weft-arrays-3f0c.../           the arrays that a manifest names, a folder for each
      .lock                          held by a process that saves; the system frees it when the process ends

Arrays are written into a new folder first. The manifest that names it is renamed to its own name last, so that a
save that is killed changes nothing that can be read; the next save removes what it left.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ARRAYS = re.compile(r"weft-arrays-[0-9a-f]{16}")
_STEP = re.compile(r"step_(\d+)\.json")
UNNUMBERED = "checkpoint.json"


class CheckpointError(ValueError):
    """Files that are no checkpoint, or one that is damaged; the text names the file and the leaf."""

    __module__ = "weft.checkpoints"


def checked_path(path: Any, name: str) -> Path:
    """The folder that a user names; TypeError or NotImplementedError for what is no path of a file system."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"[{name}] path is the name of a folder (str or os.PathLike), got {path!r}")
    text = os.fspath(path)
    if not isinstance(text, str) or not text:
        raise TypeError(f"[{name}] path is the name of a folder, got {text!r}")
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", text):
        raise NotImplementedError(
            f"[{name}] {text}: checkpoints are kept in folders of a file system that all processes see; object stores "
            "are not supported. Save to a folder and copy it"
        )
    found = Path(os.path.abspath(text))
    if found.exists() and not found.is_dir():
        raise NotADirectoryError(f"[{name}] {found} is a file; a checkpoint is a folder")
    return found


def manifest_name(step: int | None) -> str:
    return UNNUMBERED if step is None else f"step_{step:08d}.json"


def steps_in(folder: Path) -> list[int]:
    """The numbers of the steps that are whole, in ascending order."""
    if not folder.is_dir():
        return []
    found = (_STEP.fullmatch(name) for name in os.listdir(folder))
    return sorted(int(match[1]) for match in found if match)


def new_arrays_name() -> str:
    return f"weft-arrays-{secrets.token_hex(8)}"


def sync_folder(folder: Path) -> None:
    """Have the names of a folder on disk. Some file systems refuse this for folders; they do not need it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


def write_whole(file: Path, text: str) -> None:
    """A file that is whole and on disk, or as it was before."""
    draft = file.with_name(file.name + ".part")
    with open(draft, "w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(draft, file)
    sync_folder(file.parent)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Held by the one process that saves here; CheckpointError if another does."""
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CheckpointError(
                f"[save] another process is saving to {folder}; two programs that save need a folder each"
            ) from None
        yield
        fcntl.flock(handle, fcntl.LOCK_UN)  # a child that was forked meanwhile has the descriptor too
    finally:
        os.close(handle)


def remove_old_steps(folder: Path, keep: int | None, newest: int | None) -> None:
    """Only the ``keep`` steps with the highest numbers stay, and the one that was just saved."""
    if keep is None:
        return
    others = [step for step in steps_in(folder) if step != newest]
    room = keep - (newest is not None)
    for step in others[: max(len(others) - room, 0)]:
        (folder / manifest_name(step)).unlink(missing_ok=True)
    sync_folder(folder)


def remove_unnamed(folder: Path, named: set[str]) -> None:
    """Remove folders of arrays that no manifest names: of steps that were removed, and of saves that were killed."""
    for name in os.listdir(folder):
        if ARRAYS.fullmatch(name) and name not in named:
            shutil.rmtree(folder / name, ignore_errors=True)
