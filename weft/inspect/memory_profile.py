"""What arrays take of the memory of devices, in the format of pprof, as JAX's ``device_memory_profile`` gives it.

The message is ``Profile`` of https://github.com/google/pprof/blob/main/proto/profile.proto (Apache-2.0); the fields
named below are written. A sample is all arrays of one type on one device: how many, and their bytes. weft does not note
where arrays are made, so that its stack is the type and, below it, the device.
"""

from __future__ import annotations

import collections
import gzip
import math
import time
from typing import Any

from weft._base import array

# Numbers of fields in profile.proto.
SAMPLE_TYPE, SAMPLE, LOCATION, FUNCTION, STRING_TABLE, TIME_NANOS = 1, 2, 4, 5, 6, 9  # fields of Profile
DEFAULT_SAMPLE_TYPE = 14
TYPE, UNIT = 1, 2  # fields of ValueType
LOCATION_ID, VALUE, LABEL = 1, 2, 3  # fields of Sample
KEY, STR = 1, 2  # fields of Label
ID, LINE = 1, 4  # fields of Location
FUNCTION_ID = 1  # field of Line
NAME, SYSTEM_NAME = 2, 3  # fields of Function, whose number is ID too


def varint(value: int) -> bytes:
    """A nonnegative integer, seven bits a byte, the lowest first; all but the last byte have their top bit set."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    """A field of an integer; left out if 0, which is what a reader takes then."""
    return varint(field << 3) + varint(value) if value else b""


def block(field: int, content: bytes) -> bytes:
    """A field of a message, a string, or packed integers."""
    return varint(field << 3 | 2) + varint(len(content)) + content


def packed(field: int, values: list[int]) -> bytes:
    return block(field, b"".join(map(varint, values)))


class _Names:
    """The table of strings, in which 0 is the empty one, and a function and location for each name that is a frame."""

    def __init__(self) -> None:
        self.strings = {"": 0}
        self.frames: dict[str, int] = {}

    def string(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings))

    def frame(self, text: str) -> int:
        return self.frames.setdefault(text, len(self.frames) + 1)

    def tables(self) -> bytes:
        parts = []
        for text, location in self.frames.items():
            name = self.string(text)
            parts.append(block(LOCATION, number(ID, location) + block(LINE, number(FUNCTION_ID, location))))
            parts.append(block(FUNCTION, number(ID, location) + number(NAME, name) + number(SYSTEM_NAME, name)))
        return b"".join([*parts, *(block(STRING_TABLE, text.encode()) for text in self.strings)])


def profile(arrays: list[Any]) -> bytes:
    """The gzipped profile of these arrays."""
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    nbytes: collections.Counter[tuple[str, str]] = collections.Counter()
    for value in arrays:
        share = math.prod(value.sharding.shard_shape(value.shape)) * value.itemsize
        for device in value.devices():
            counts[value.aval.str_short(), str(device)] += 1
            nbytes[value.aval.str_short(), str(device)] += share
    names = _Names()
    parts = [
        block(SAMPLE_TYPE, number(TYPE, names.string(kind)) + number(UNIT, names.string(unit)))
        for kind, unit in (("allocations", "count"), ("space", "bytes"))
    ]
    for (kind, device), size in nbytes.most_common():
        stack = [names.frame(kind), names.frame(device)]  # the innermost first
        sample = [packed(LOCATION_ID, stack), packed(VALUE, [counts[kind, device], size])]
        for key, text in (("kind", "buffer"), ("device", device)):
            sample.append(block(LABEL, number(KEY, names.string(key)) + number(STR, names.string(text))))
        parts.append(block(SAMPLE, b"".join(sample)))
    parts.append(number(DEFAULT_SAMPLE_TYPE, names.string("space")))
    parts.append(number(TIME_NANOS, time.time_ns()))
    return gzip.compress(b"".join([*parts, names.tables()]))


def of_live_arrays(platform: str | None) -> bytes:
    """The profile of all arrays of this process, or of those on the devices of a platform."""
    return profile(array.live_arrays(platform))
