"""Locks and forks: a child of ``fork`` finds weft's locks free, and what they guard whole.

Only the thread that forks lives on in the child: a lock that another one held would stay held for ever. So a fork waits
until each lock is free and holds it meanwhile; locks that guard waits for the user or for other threads are made anew
in the child. A fork also waits for modules that weft is loading: CPython's own locks of modules stay held in the child.
Modules of weft that are loaded so do not load ``logging``: another thread's fork could hold its lock, and wait here.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

Lock = Any  # threading.RLock is a function

# What locks guard, in the order in which a thread may take them: one that holds a lock takes later ones only.
ORDER = (
    "programs", "plugins", "kernels", "computations", "llvm", "isolated llvm", "profile", "cuda", "product library",
    "devices", "budget", "configuration",
)  # fmt: skip
_LONGEST_S = 10.0  # waiting for modules: one of them may wait for a module that the forking thread is loading

_held: list[tuple[int, Lock]] = []
_taken: list[Lock] = []  # by the fork that is under way
_renewed: list[Callable[[], None]] = []
_loading: list[int] = []  # the threads that load modules, once for each that they are in
_follows: list[bool] = []  # whether the hooks come behind those of ``logging``
_gate = threading.RLock()  # held by a fork: none begins to load meanwhile


def held(guarded: str) -> Lock:
    """A new lock, which a fork holds. A thread may take it again; if there are several for one purpose, later ones are
    inner."""
    lock = threading.RLock()
    _held.append((ORDER.index(guarded), lock))
    _held.sort(key=lambda entry: entry[0])
    return lock


def in_child(renew: Callable[[], None]) -> None:
    """Call a function in every child, before anything else of weft's runs there."""
    _renewed.append(renew)


class loading:
    """A block in which this thread loads modules."""

    def __enter__(self) -> None:
        follow_logging()
        with _gate:
            _loading.append(threading.get_ident())

    def __exit__(self, *failure: object) -> None:
        _loading.remove(threading.get_ident())


def _others_load() -> bool:
    own = threading.get_ident()
    return any(thread != own for thread in list(_loading))


def _before() -> None:
    end = time.monotonic() + _LONGEST_S
    while True:
        for _, lock in list(_held):
            lock.acquire()
            _taken.append(lock)
        _gate.acquire()
        _taken.append(_gate)
        if not _others_load() or time.monotonic() > end:
            return
        _release()  # a module may need them
        while _others_load() and time.monotonic() <= end:
            time.sleep(0.001)


def _release() -> None:
    while _taken:
        _taken.pop().release()


def _in_child() -> None:
    own = threading.get_ident()
    _loading[:] = [thread for thread in _loading if thread == own]
    _release()
    for renew in _renewed:
        renew()


def _register() -> None:
    os.register_at_fork(before=_before, after_in_parent=_release, after_in_child=_in_child)


def follow_logging() -> None:
    """Register again behind ``logging``, once the program has loaded it.

    The latest hook before a fork runs first: ours waits for all that weft is doing before that of ``logging`` takes a
    lock that this may need. To take locks twice, and to give them back twice, is the same as once.
    """
    if not _follows and hasattr(sys.modules.get("logging"), "captureWarnings"):  # its last function
        _follows.append(True)
        _register()


_register()
