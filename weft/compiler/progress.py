"""Progress of a long compilation on the terminal: the stage, and the kernels done of all.

    weft: compiling train_step: codegen, 12 of 80 kernels, 4.1 s

Nothing is shown in the first two seconds, nor if standard error is not a terminal (pipes, notebooks), unless the option
``progress`` is ``on``: then a line is written every two seconds. One watching thread is shared by the process; it is
started by the first compilation that might be shown, and sleeps while nothing is compiled.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

from weft import config
from weft._base import forks, lazy

PATIENCE_S = 2.0  # time of a compilation before it is shown
REFRESH_S = 0.2


class Compilation:
    """The state of one compilation."""

    __slots__ = ("done", "hidden", "name", "over", "shown", "stage", "start", "total")

    def __init__(self, name: str) -> None:
        self.name = name
        self.start = time.monotonic()
        self.stage = ""
        self.done = self.total = 0  # kernels
        self.over = threading.Event()
        self.shown = False  # on the terminal; ``hidden`` is set when its line is removed
        self.hidden = threading.Event()

    def text(self) -> str:
        kernels = f", {self.done} of {self.total} kernels" if self.stage == "codegen" and self.total else ""
        return f"weft: compiling {self.name}: {self.stage}{kernels}, {time.monotonic() - self.start:.1f} s"


class _Thread(threading.local):
    """The compilation on this thread."""

    compilation: Compilation | None = None


_thread = _Thread()
_compiling: dict[int, Compilation] = {}  # thread -> what it compiles, oldest first
_lock = threading.RLock()  # guards which compilation is shown
_wake = threading.Event()
_watcher: tuple[int, threading.Thread] | None = None  # process, thread: a forked child has none


def begin(name: str) -> Compilation | None:
    """Record that this thread compiles; None inside another compilation, or if nothing is to be shown."""
    if _thread.compilation is not None or not _is_shown():
        return None
    compilation = _thread.compilation = Compilation(name)
    _compiling[threading.get_ident()] = compilation
    _start_watching()
    _wake.set()
    return compilation


def end(compilation: Compilation | None) -> None:
    """Record that a compilation has ended; its line is removed from the terminal before this returns."""
    if compilation is None:
        return
    _thread.compilation = None
    with _lock:
        _compiling.pop(threading.get_ident(), None)
    compilation.over.set()
    if compilation.shown:
        compilation.hidden.wait(1.0)


def current() -> Compilation | None:
    """The compilation of this thread, if it is to be shown."""
    return _thread.compilation


def kernels(done: int, total: int) -> None:
    """Record how many kernels the compilation of this thread has."""
    if _thread.compilation is not None:
        _thread.compilation.done, _thread.compilation.total = done, total


def _is_shown() -> bool:
    wanted = config.read("progress")
    return wanted == "on" or (wanted == "auto" and _is_terminal())


def _is_terminal() -> bool:
    stream = sys.stderr
    return stream is not None and not stream.closed and stream.isatty()


def _start_watching() -> None:
    global _watcher
    if _watcher is None or _watcher[0] != os.getpid():
        thread = threading.Thread(target=_watch, name="weft-progress", daemon=True)
        _watcher = os.getpid(), thread
        thread.start()


def _watch() -> None:
    while True:
        _wake.wait()
        _wake.clear()
        time.sleep(PATIENCE_S)  # most compilations are over by then
        while (compilation := next(iter(list(_compiling.values())), None)) is not None:
            left = compilation.start + PATIENCE_S - time.monotonic()
            if left > 0:
                compilation.over.wait(left)
            elif _is_terminal():
                _show_status(compilation)
            else:
                print(compilation.text(), file=sys.stderr, flush=True)
                compilation.over.wait(PATIENCE_S)


def _show_status(compilation: Compilation) -> None:
    """One line that is rewritten until the compilation ends, and then removed."""
    console: Any = lazy.rich_console.Console(stderr=True)
    with _lock:
        compilation.shown = compilation in _compiling.values()
    if not compilation.shown:
        return
    try:
        with console.status(compilation.text()) as status:
            while not compilation.over.wait(REFRESH_S):
                status.update(compilation.text())
    finally:
        compilation.hidden.set()


def _forget() -> None:
    """In a forked child: reset everything, since other threads do not exist and may have held locks."""
    global _lock, _wake, _watcher
    _lock, _wake, _watcher = threading.RLock(), threading.Event(), None
    _compiling.clear()


forks.in_child(_forget)
