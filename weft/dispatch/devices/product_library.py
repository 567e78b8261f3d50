"""NVIDIA's library of matrix products (cuBLASLt): found where its package is installed, opened when a program has one.

``pip install weft[cuda12]`` (or ``cuda13``) brings the package, and no other of NVIDIA's. The option
``product_library`` says whether it is used, ``WEFT_CUBLASLT_LIBRARY=path`` names another library. Python only finds and
asks it; the products are steps of plans (``runtime/src/cuda/cuda_library*``).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from weft import config, errors, runtime
from weft._base import forks, lazy
from weft._base.record import NamedTuple

VARIABLE = "WEFT_CUBLASLT_LIBRARY"
_CURE = "pip install weft[cuda13] for drivers of CUDA 13, weft[cuda12] for those of CUDA 12"
_lock = forks.held("product library")
_paths: dict[tuple[str, int], str] = {}  # by the variable and the driver where it lies; "" if nowhere
_refused = set[str]()  # paths of what failed, as was said: only the option "on" asks them again


class ProductLibrary(NamedTuple):
    """The library as the compiler of one GPU asks it: for large products, or for ``everything`` that it has."""

    device: int  # its number
    path: str
    everything: bool

    def has(self, product: Any) -> bool:
        """Whether it multiplies so (``instructions.LibraryProduct``). The first question takes about 0.1 s."""
        if not self.path:
            raise RuntimeError(f"[product_library] the option is 'on', and there is no cuBLASLt here: {_CURE}")
        if self.path in _refused and not self.everything:
            return False
        try:
            with _lock:
                runtime.open_product_library(self.path)
            return runtime.product_library_has(self.device, product)
        except errors.JaxRuntimeError as error:
            if self.everything:
                raise
            _refuse(self.path, error)
            return False


def _refuse(path: str, error: Exception) -> None:
    """Do without the library from now on, and say so once."""
    with _lock:
        is_new = path not in _refused
        _refused.add(path)
    if is_new:
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
    key = named, driver
    if key not in _paths:
        paths = (
            str(path)
            for major in (13, 12)
            if driver >= 1000 * major
            for folder in sys.path
            for path in Path(folder or ".").glob(f"nvidia/*/lib/libcublasLt.so.{major}")
        )
        _paths[key] = named or next(paths, "")
    return _paths[key]


def report(driver: int) -> str:
    """A line for the command line."""
    if config.read("product_library") == "off":
        return "     large matrix products are weft's own: the option product_library is 'off'"
    path = find(driver)
    if not path:
        return f"     large matrix products are weft's own: there is no cuBLASLt here ({_CURE})"
    try:
        version = runtime.open_product_library(path)
    except RuntimeError as error:
        return f"     large matrix products are weft's own: {error}"
    return f"     large matrix products by cuBLASLt {version // 10000}.{version // 100 % 100}.{version % 100}, {path}"
