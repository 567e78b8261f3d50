"""weft.extend.backend: the CPU and the plugins that were loaded, under JAX's names."""

from __future__ import annotations

from typing import Any

from weft._base import lazy, unbuilt
from weft.dispatch import devices as dispatch_devices
from weft.dispatch.calls import jit

__all__ = ["Client", "backends", "clear_backends", "get_backend", "get_default_device"]
__getattr__ = unbuilt.fallback(__name__)


class Client:
    """The CPU and its devices."""

    platform = "cpu"
    platform_version = "cpu"
    runtime_type = "weft"

    def devices(self) -> list[dispatch_devices.Device]:
        return dispatch_devices.devices("cpu")

    def local_devices(self) -> list[dispatch_devices.Device]:
        return dispatch_devices.devices("cpu")

    def device_count(self) -> int:
        return dispatch_devices.device_count("cpu")

    def local_device_count(self) -> int:
        return dispatch_devices.device_count("cpu")

    def process_index(self) -> int:
        return 0


_CPU = Client()


def backends() -> dict[str, Any]:
    """All backends by their platforms.

    >>> "cpu" in weft.extend.backend.backends()
    True
    """
    return {"cpu": _CPU, **lazy.plugins.loaded()}


def get_backend(platform: Any = None) -> Any:
    """The backend of a platform, by default the default one; RuntimeError for one that is not there."""
    if isinstance(platform, Client):
        return _CPU
    if platform is None:
        return dispatch_devices.devices()[0].client or _CPU
    return _CPU if platform == "cpu" else lazy.plugins.find(platform)


def get_default_device() -> dispatch_devices.Device:
    """The device that computations run on unless told otherwise."""
    return dispatch_devices.BY_NUMBER[dispatch_devices.default_place() >> 1]


def clear_backends() -> None:
    """Forget what was traced and compiled; the device stays."""
    jit.clear_caches()
