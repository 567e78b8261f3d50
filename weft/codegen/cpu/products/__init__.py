"""The kernels of matrix products, as LLVM IR, which a build compiles, and weft where a file of the build is missing.

A file of the build is a unit (``tables``): an object file behind a checksum, under a name that says what it was made
from. weft uses no other: one made from older sources has another name, and of a damaged one the checksum is wrong.
"""

from __future__ import annotations

import hashlib
import os
import zlib

CHECKSUM = 4  # bytes
ENTRY = "k"  # what a unit's function is called that others find it by


def unit_key(unit: str, more: str = "") -> bytes:
    """What tells a unit from all others, and from what it was with other sources of this package."""
    folder = os.path.dirname(os.path.abspath(__file__))
    digest = hashlib.blake2b(f"{unit} {more}\n".encode(), digest_size=32)
    for name in sorted(os.listdir(folder)):
        if name.endswith(".py"):
            with open(os.path.join(folder, name), "rb") as file:
                digest.update(file.read())
    return digest.digest()


def file_name(unit: str, key: bytes) -> str:
    """The file of a unit."""
    return f"{unit}_{key.hex()[:16]}.kernels"


def sealed(key: bytes, code: bytes) -> bytes:
    """The content of a unit's file."""
    return key + _checksum(code) + code


def opened(key: bytes, content: bytes) -> memoryview | None:
    """The object file in the content of a unit's file; None if it is damaged, or another one's."""
    begin = len(key) + CHECKSUM
    code = memoryview(content)[begin:]
    return code if content[:begin] == key + _checksum(code) else None


def _checksum(code: bytes | memoryview) -> bytes:
    """A quick one: it is computed for half a megabyte when a process multiplies for the first time."""
    return zlib.crc32(code).to_bytes(CHECKSUM, "little")
