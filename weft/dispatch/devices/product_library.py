"""NVIDIA's library of matrix products (cuBLASLt): found where its package is installed, opened when a program has one.

``pip install weft[cuda12]`` (or ``cuda13``) brings the package, and no other of NVIDIA's. The option
``product_library`` says whether it is used, ``WEFT_CUBLASLT_LIBRARY=path`` names another library. Python only finds and
asks it; the products are steps of plans (``runtime/src/cuda_library*``).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from weft import errors, runtime
from weft._base import forks, lazy
from weft._base.record import NamedTuple

VARIABLE = "WEFT_CUBLASLT_LIBRARY"
_CURE = "pip install weft[cuda13] for drivers of CUDA 13, weft[cuda12] for those of CUDA 12"
_lock = forks.held("product library")
_paths: dict[tuple[str, bool], str] = {}  # by the variable and the driver where it lies; "" if nowhere
_versions: dict[str, int] = {}  # of what was opened; 0: it cannot be used


class ProductLibrary(NamedTuple):
    """The library as the compiler of one GPU asks it: for large products, or for ``everything`` that it has."""

    device: int  # its number
    path: str
    everything: bool

    def has(self, product: Any) -> bool:
        """Whether it multiplies so (``instructions.LibraryProduct``). The first question takes about 0.1 s."""
        if not self.path:
            raise RuntimeError(f"[product_library] the option is 'on', and there is no cuBLASLt here: {_CURE}")
        try:
            return _version(self.path) > 0 and runtime.product_library_has(self.device, product)
        except errors.JaxRuntimeError as error:
            if self.everything:
                raise
            _refuse(self.path, error)
            return False


def _version(path: str) -> int:
    with _lock:
        found = _versions.get(path)
        if found is None:
            found = _versions[path] = runtime.open_product_library(path)
    return found


def _refuse(path: str, error: Exception) -> None:
    """Do without the library from now on, and say so once."""
    with _lock:
        known, _versions[path] = _versions.get(path), 0
    if known != 0:
        lazy.logging.getLogger("weft").warning("large matrix products are weft's own on GPUs: %s", error)


def of_device(number: int, driver: int, asked: str) -> ProductLibrary | None:
    """The library for programs of a GPU, as the option ``product_library`` asks; ``driver``: 12040 is CUDA 12.4."""
    if asked == "off":
        return None
    path = find(driver)
    return ProductLibrary(number, path, asked == "on") if path or asked == "on" else None


def find(driver: int) -> str:
    """Where the library for a driver lies: the newest that it can run, of the packages on Python's path; or ""."""
    named = os.environ.get(VARIABLE, "")
    key = named, driver >= 13000
    if key not in _paths:
        majors = (13, 12) if driver >= 13000 else (12,)
        places = (
            str(path)
            for major in majors
            for folder in sys.path
            for path in Path(folder or ".").glob(f"nvidia/*/lib/libcublasLt.so.{major}")
        )
        _paths[key] = named or next(places, "")
    return _paths[key]


def report(driver: int) -> str:
    """A line for the command line."""
    path = find(driver)
    if not path:
        return f"     large matrix products are weft's own: there is no cuBLASLt here ({_CURE})"
    try:
        version = runtime.open_product_library(path)
    except RuntimeError as error:
        return f"     large matrix products are weft's own: {error}"
    return f"     large matrix products by cuBLASLt {version // 10000}.{version // 100 % 100}.{version % 100}, {path}"
