"""weft.extend.backend: the one backend there is, the CPU, under JAX's names."""

from __future__ import annotations

from typing import Any

from weft._base import unbuilt
from weft.dispatch import devices as placing
from weft.dispatch import jit

__all__ = ["Client", "backends", "clear_backends", "get_backend", "get_default_device"]
__getattr__ = unbuilt.fallback(__name__)


class Client:
    """The CPU and its devices."""

    platform = "cpu"
    platform_version = "cpu"
    runtime_type = "weft"

    def devices(self) -> list[placing.Device]:
        return placing.devices()

    def local_devices(self) -> list[placing.Device]:
        return placing.devices()

    def device_count(self) -> int:
        return placing.device_count()

    def local_device_count(self) -> int:
        return placing.device_count()

    def process_index(self) -> int:
        return 0


_CPU = Client()


def backends() -> dict[str, Client]:
    """All backends by their platforms.

    >>> sorted(weft.extend.backend.backends())
    ['cpu']
    """
    return {"cpu": _CPU}


def get_backend(platform: Any = None) -> Client:
    """The backend of a platform; RuntimeError for one that is not there."""
    if not isinstance(platform, Client):
        placing.check_backend(platform)
    return _CPU


def get_default_device() -> placing.Device:
    """The device that computations run on unless told otherwise."""
    return placing.CPU


def clear_backends() -> None:
    """Forget what was traced and compiled; the device stays."""
    jit.clear_caches()
