"""The stores of the cache levels of this process: one each for traces, programs and kernels.

A store finds a value by any of its keys (``core.caches.cache_keys``). Each value counts in ``core.caches.budget``,
which may drop it from the store. The dispatch tables above these levels are native; ``levels`` counts them too.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

from weft import runtime
from weft._base.record import NamedTuple
from weft.core.caches.budget import BUDGET

_DISPATCH_BYTES = 350  # measured, for one signature in a function's native table
_MOST_UNUSED = 64  # values without users that stay: a loop that makes functions anew finds its programs again


class Entry:
    """A value of a store: weakly referable, with a record of its keys and the bytes that it takes in the process."""

    __slots__ = ("__weakref__", "keys")
    keys: dict[Any, None]  # under which it is found; empty after it was dropped
    weight: Any  # bytes

    def uses(self) -> int:
        """How often it was used so far."""
        return 0

    def retire(self) -> None:
        """Called when it was dropped: it will not be found again. Whoever uses it now keeps what it holds."""


class Level(NamedTuple):
    """The size and the counts of one level of the cache."""

    entries: int
    nbytes: int
    found: int
    made: int
    dropped: int  # to stay within ``cache_bytes``


class Store:
    """Key -> value. There is no lock: each step is a single dict operation, and other threads may run in between.

    If another thread replaces a value meanwhile, it is lost and has to be made again.
    """

    def __init__(self) -> None:
        self.entries: dict[Any, Any] = {}
        self._unused: OrderedDict[int, weakref.ref[Any]] = OrderedDict()  # by id, those released last at the end
        self.found = 0
        self.made = 0
        self.dropped = 0

    def __len__(self) -> int:
        """The number of values; a value with several keys counts once."""
        return len(set(map(id, list(self.entries.values()))))

    def find(self, key: Hashable) -> Any:
        """The value of a key, or None."""
        value = self.entries.get(key)
        if value is not None:
            self.found += 1
        return value

    def add(self, key: Hashable, value: Entry) -> None:
        """Let ``value`` be found under ``key`` too. The first time it enters the budget, which may drop it at once."""
        before = self.entries.get(key)
        is_new = not value.keys
        value.keys[key] = None
        self.entries[key] = value
        if before is not None and before is not value:
            self._forget_key(key, before)
        if is_new:
            self.made += 1
            BUDGET.keep(value, value.weight, self.drop, _uses)

    def remove(self, key: Hashable) -> None:
        """Remove a key; a value without other keys is dropped."""
        value = self.entries.pop(key, None)
        if value is not None:
            self._forget_key(key, value)

    def _forget_key(self, key: Hashable, value: Entry) -> None:
        value.keys.pop(key, None)
        if not value.keys:
            value.retire()

    def drop(self, value: Entry) -> None:
        """Remove a value and all its keys, to stay within the budget."""
        self.dropped += self._remove(value)

    def _remove(self, value: Entry) -> bool:
        """Remove a value and all its keys; whether it was there, and is not just in use somewhere."""
        keys, value.keys = value.keys, {}
        for key in list(keys):
            if self.entries.get(key) is value:
                self.entries.pop(key, None)
        if keys:
            value.retire()
        return bool(keys)

    def release(self, value: Any, reference: Any = weakref.ref, most: int = _MOST_UNUSED) -> None:
        """The last user of a value is gone. The newest of such values stay; those with users again stay anyway.

        Finalizers call this, also at exit, when names of this module may be gone: hence the defaults.
        """
        number, unused = id(value), self._unused
        unused.pop(number, None)
        unused[number] = reference(value)
        if len(unused) > most:
            try:
                oldest = unused.popitem(last=False)[1]()
            except KeyError:  # another thread has taken the last one
                return
            if oldest is not None and not oldest.users:
                self._remove(oldest)

    def clear(self, which: Callable[[Any], bool] | None = None) -> None:
        """Remove all values, or the keys for which ``which`` holds."""
        self._unused.clear()
        for key in [key for key in list(self.entries) if which is None or which(key)]:
            self.remove(key)

    @property
    def nbytes(self) -> int:
        """Bytes of all values."""
        return sum({id(value): value.weight for value in list(self.entries.values())}.values())

    def level(self) -> Level:
        return Level(len(self), self.nbytes, self.found, self.made, self.dropped)


def _uses(value: Entry) -> int:
    return value.uses()


TRACES, PROGRAMS, KERNELS = Store(), Store(), Store()
BUDGET.enlist(runtime.dispatch_count, _DISPATCH_BYTES, runtime.clear_dispatch)


def levels() -> dict[str, Level]:
    """One line for each level of the cache in this process."""
    entries, found, made, dropped = runtime.dispatch_counts()
    dispatch = Level(entries, entries * _DISPATCH_BYTES, found, made, dropped)
    return {"dispatch": dispatch, "trace": TRACES.level(), "program": PROGRAMS.level(), "kernel": KERNELS.level()}
