"""FlatBuffers: tables, vectors and strings as bytes, as the format's documentation lays them out (flatbuffers.dev).

A table is written as ``Table({slot: value})``; a value is a ``Scalar``, a string, bytes, a vector of ``Numbers``, a
list of tables or strings, or a table. ``View`` reads: ``view.number(slot, "H")``, ``view.tables(slot)``.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from weft._base.record import NamedTuple


class Scalar(NamedTuple):
    """A number in a table; ``code`` is that of ``struct``."""

    value: int
    code: str


class Numbers(NamedTuple):
    """A vector of numbers."""

    values: Sequence[int]
    code: str


class Table:
    """Slots and their values; None is left out."""

    def __init__(self, slots: Mapping[int, Any]) -> None:
        self.slots = {slot: value for slot, value in slots.items() if value is not None}


def written(root: Table) -> bytes:
    """The bytes of a buffer with this root table. Every object stands behind those that refer to it."""
    out = bytearray(4)
    waiting: list[tuple[int, Any]] = [(0, root)]  # where to write the distance to the object, and the object
    while waiting:
        offset, value = waiting.pop(0)
        found = _append(out, value, waiting)
        struct.pack_into("<I", out, offset, found - offset)
    return bytes(out)


def _align(out: bytearray, size: int) -> None:
    out.extend(bytes(-len(out) % size))


def _append(out: bytearray, value: Any, waiting: list[tuple[int, Any]]) -> int:
    """Append an object, note what it refers to, and give its position."""
    if isinstance(value, Table):
        return _append_table(out, value, waiting)
    _align(out, 4)
    start = len(out)
    if isinstance(value, str):
        value = value.encode()
        out += struct.pack("<I", len(value)) + value + b"\0"
    elif isinstance(value, (bytes, bytearray)):
        out += struct.pack("<I", len(value)) + value
    elif isinstance(value, Numbers):
        out += struct.pack(f"<I{len(value.values)}{value.code}", len(value.values), *value.values)
    else:
        out += struct.pack("<I", len(value)) + bytes(4 * len(value))
        waiting += [(start + 4 + 4 * offset, item) for offset, item in enumerate(value)]
    return start


def _append_table(out: bytearray, table: Table, waiting: list[tuple[int, Any]]) -> int:
    count = max(table.slots, default=-1) + 1
    _align(out, 8)
    vtable = len(out)
    out += bytes(4 + 2 * count)
    _align(out, 8)
    start = len(out)
    out += struct.pack("<i", start - vtable)
    for slot, value in table.slots.items():
        code = value.code if isinstance(value, Scalar) else "I"
        _align(out, struct.calcsize(code))
        struct.pack_into("<H", out, vtable + 4 + 2 * slot, len(out) - start)
        if isinstance(value, Scalar):
            out += struct.pack(f"<{code}", value.value)
        else:
            waiting.append((len(out), value))
            out += bytes(4)
    struct.pack_into("<HH", out, vtable, 4 + 2 * count, len(out) - start)
    return start


class View:
    """A table in a buffer. Raises ValueError where offsets lead out of the buffer."""

    __slots__ = ("data", "start")

    def __init__(self, data: bytes, start: int) -> None:
        self.data = data
        self.start = start

    @classmethod
    def root(cls, data: bytes) -> View:
        return cls(data, _read(data, 0, "I"))

    def _field(self, slot: int) -> int:
        """The position of a slot's value; 0 where it is absent."""
        vtable = self.start - _read(self.data, self.start, "i")
        if 4 + 2 * slot >= _read(self.data, vtable, "H"):
            return 0
        offset = _read(self.data, vtable + 4 + 2 * slot, "H")
        return self.start + offset if offset else 0

    def _object(self, slot: int) -> int:
        field = self._field(slot)
        return field + _read(self.data, field, "I") if field else 0

    def number(self, slot: int, code: str, default: int = 0) -> int:
        field = self._field(slot)
        return _read(self.data, field, code) if field else default

    def has(self, slot: int) -> bool:
        return bool(self._field(slot))

    def table(self, slot: int) -> View | None:
        offset = self._object(slot)
        return View(self.data, offset) if offset else None

    def blob(self, slot: int) -> bytes:
        offset = self._object(slot)
        return _blob(self.data, offset) if offset else b""

    def string(self, slot: int) -> str:
        return self.blob(slot).decode()

    def numbers(self, slot: int, code: str) -> tuple[int, ...]:
        offset = self._object(slot)
        if not offset:
            return ()
        count, size = _read(self.data, offset, "I"), struct.calcsize(code)
        return tuple([_read(self.data, offset + 4 + size * k, code) for k in range(count)])

    def _items(self, slot: int) -> list[int]:
        offset = self._object(slot)
        offsets = range(offset + 4, offset + 4 + 4 * _read(self.data, offset, "I"), 4) if offset else ()
        return [where + _read(self.data, where, "I") for where in offsets]

    def tables(self, slot: int) -> list[View]:
        return [View(self.data, offset) for offset in self._items(slot)]

    def strings(self, slot: int) -> list[str]:
        return [_blob(self.data, offset).decode() for offset in self._items(slot)]


def _read(data: bytes, offset: int, code: str) -> int:
    try:
        return struct.unpack_from(f"<{code}", data, offset)[0]
    except struct.error:
        raise ValueError(f"[deserialize] the bytes are damaged: there is nothing at {offset}") from None


def _blob(data: bytes, offset: int) -> bytes:
    count = _read(data, offset, "I")
    if offset < 0 or offset + 4 + count > len(data):
        raise ValueError(f"[deserialize] the bytes are damaged: {count} bytes at {offset} are not there")
    return bytes(data[offset + 4 : offset + 4 + count])
