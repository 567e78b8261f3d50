"""The library of matrix products for tests (tests/gpu/products): built, its path, and what was asked of it."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from pathlib import Path

from tests.gpu import driver
from tests.gpu.native_build import HERE, Part, build


@lru_cache(maxsize=1)
def path() -> Path:
    """The library, built if need be; it works in the memory of the driver for tests."""
    folder = HERE / "products"
    headers = [*sorted(folder.glob("*.h")), *sorted((HERE / "driver").glob("*.h"))]
    return build("libcublasLt.so.12", [Part(sorted(folder.glob("*.cpp")), headers)], [str(driver.path())])


def calls() -> list[str]:
    """What this process has asked of it since this was last called: a line each."""
    room = ctypes.create_string_buffer(1 << 16)
    ctypes.CDLL(str(path())).weft_test_products(room, ctypes.c_size_t(len(room)))
    return room.value.decode().splitlines()
