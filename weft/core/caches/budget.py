"""One memory budget (``cache_bytes``) for what the caches hold: traces, programs, kernels and dispatch entries.

A cache enters a value with its bytes and a function that drops it. When the total exceeds the budget, the least
recently used values are dropped. A value counts as long as anything refers to it: a kernel, as long as a program calls
it. Small tables of derived facts (memos) are counted by their length, and cleared as a whole when they grow large.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from weft import config, runtime
from weft._base import forks

_TABLE_SHARE = 64  # a table above 1/64 of the budget is cleared before any value is dropped
_LOOK_EVERY = 64  # values entered between two checks of the tables
_TRIM_BYTES = 8 << 20  # after dropping so much at once, memory is given back to the system


def _never(_: Any) -> int:
    return 0


class Kept(weakref.ref[Any]):
    """One value that a cache keeps. If it was used more than once since the last check, it is kept once more."""

    __slots__ = ("drop", "nbytes", "seen", "uses")
    __hash__ = object.__hash__  # by identity: the value itself may compare by content
    __eq__ = object.__eq__

    nbytes: int
    drop: Callable[[Any], Any]
    uses: Callable[[Any], int]
    seen: int


class _Table:
    """A memo: its number of entries, the bytes of one, how to clear it."""

    __slots__ = ("clear", "entry_bytes", "length")

    def __init__(self, length: Callable[[], int], entry_bytes: int, clear: Callable[[], None]) -> None:
        self.length = length
        self.entry_bytes = entry_bytes
        self.clear = clear

    @property
    def nbytes(self) -> int:
        return self.length() * self.entry_bytes


class Budget:
    """The values that are kept, oldest first, and their bytes."""

    def __init__(self) -> None:
        self._lock = forks.held("budget")
        self._kept: dict[Kept, None] = {}
        self._dead: deque[Kept] = deque()  # the garbage collector appends to it at any moment
        self._tables: list[_Table] = []
        self._nbytes = 0
        self._table_bytes = 0  # at the last check
        self._looks = 0
        self._shrinking = False
        self.dropped = 0

    def __len__(self) -> int:
        self._remove_dead()
        return len(self._kept)

    @property
    def nbytes(self) -> int:
        """Bytes of everything that is kept and alive."""
        self._remove_dead()
        return self._nbytes + self._look_at_tables()

    def _look_at_tables(self) -> int:
        self._table_bytes = sum(table.nbytes for table in self._tables)
        return self._table_bytes

    def keep(self, value: Any, nbytes: int, drop: Callable[[Any], Any], uses: Callable[[Any], int] = _never) -> None:
        """Enter a value; ``drop(value)`` removes it from its cache, ``uses(value)`` is the number of its uses so far.

        Neither function may hold a reference to the value. Other values may be dropped before this returns.
        """
        kept = Kept(value, self._dead.append)
        kept.nbytes, kept.drop, kept.uses, kept.seen = nbytes, drop, uses, 0
        with self._lock:
            self._kept[kept] = None
            self._nbytes += nbytes
        if self._dead:
            self._remove_dead()
        self._looks += 1
        if self._looks % _LOOK_EVERY == 0:
            self._look_at_tables()
        bound = config.read("cache_bytes")
        if self._nbytes + self._table_bytes > bound:
            self.shrink(bound - (bound >> 4))

    def enlist(self, length: Callable[[], int], entry_bytes: int, clear: Callable[[], None]) -> None:
        """Count the entries of a memo."""
        self._tables.append(_Table(length, entry_bytes, clear))

    def shrink(self, goal: int) -> None:
        """Drop the least recently used values until at most ``goal`` bytes are left, or nothing more can go."""
        with self._lock:
            if self._shrinking:
                return
            self._shrinking = True
        before = self.nbytes
        try:
            self._shrink(goal)
        finally:
            self._shrinking = False
            if before - self.nbytes >= _TRIM_BYTES:
                runtime.trim_memory()

    def _shrink(self, goal: int) -> None:
        for table in self._tables:
            if table.nbytes > goal // _TABLE_SHARE:
                table.clear()
        goal -= self._look_at_tables()
        for spare_used in (True, False):
            with self._lock:
                candidates = list(self._kept)
            for kept in candidates:
                self._remove_dead()
                if self._nbytes <= goal:
                    return
                self._consider(kept, spare_used)

    def _consider(self, kept: Kept, spare_used: bool) -> None:
        """Drop a value, or move it to the end of the queue."""
        value = kept()
        if value is None:
            return
        uses = kept.uses(value)
        used, kept.seen = uses > kept.seen + 1, uses
        if spare_used and used:
            with self._lock:
                if self._kept.pop(kept, kept) is None:
                    self._kept[kept] = None
            return
        self.dropped += 1
        kept.drop(value)

    def _remove_dead(self) -> None:
        """Stop counting values that no longer exist."""
        while self._dead:
            try:
                kept = self._dead.popleft()
            except IndexError:  # another thread took the last one
                return
            with self._lock:
                if self._kept.pop(kept, kept) is None:
                    self._nbytes -= kept.nbytes


BUDGET = Budget()
