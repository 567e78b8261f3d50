"""The kernels of matrix products, as LLVM IR, which a build compiles, and weft where a file of the build is missing.

A file of the build is a unit (``tables``): an object file behind a checksum, under a name that says what it was made
from. weft uses no other: one made from older sources has another name, and of a damaged one the checksum is wrong.
"""

from __future__ import annotations

import hashlib
import os


def unit_key(unit: str, more: str = "") -> bytes:
    """What tells a unit from all others, and from what it was with other sources of this package."""
    folder, digest = os.path.dirname(os.path.abspath(__file__)), _digest(f"{unit} {more}\n".encode())
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
    return _checksum(key, code) + code


def opened(key: bytes, content: bytes) -> memoryview | None:
    """The object file in the content of a unit's file; None if it is damaged, or another one's."""
    checksum, code = content[: len(key)], memoryview(content)[len(key) :]  # a checksum is as long as a key
    return code if checksum == _checksum(key, code) else None


def _checksum(key: bytes, code: bytes | memoryview) -> bytes:
    digest = _digest(key)
    digest.update(code)  # without a copy
    return digest.digest()


def _digest(first: bytes) -> hashlib.blake2b:
    return hashlib.blake2b(first, digest_size=32)
