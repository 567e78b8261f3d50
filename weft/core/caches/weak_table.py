"""A table from objects, by identity, to values; an entry goes with its object.

Unlike ``weakref.WeakKeyDictionary`` it neither hashes nor compares its keys, and loses no Ctrl-C that comes while an
object dies (``runtime.finalizer``).
"""

from __future__ import annotations

import weakref
from typing import Any, Generic, TypeVar

from weft import runtime

Value = TypeVar("Value")


class WeakTable(Generic[Value]):
    """Object -> value. There is no lock: each step is a single dict operation."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[Any], Value]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, owner: Any) -> Value | None:
        """The value of an object, or None."""
        found = self._entries.get(id(owner))
        return found[1] if found is not None and found[0]() is owner else None

    def set(self, owner: Any, value: Value) -> None:
        """Give an object a value; TypeError if there are no weak references to it."""
        number, entries = id(owner), self._entries

        def forget(dead: weakref.ref[Any]) -> None:
            found = entries.get(number)  # by now it may be of another object at the same address
            if found is not None and found[0] is dead:
                entries.pop(number, None)

        entries[number] = (weakref.ref(owner, runtime.finalizer(forget)), value)

    def pop(self, owner: Any) -> Value | None:
        """Take an object out, and give its value."""
        value = self.get(owner)
        if value is not None:
            self._entries.pop(id(owner), None)
        return value

    def values(self) -> list[Value]:
        return [value for _, value in list(self._entries.values())]

    def clear(self) -> None:
        self._entries.clear()
