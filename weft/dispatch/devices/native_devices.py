"""Devices that run weft's own programs on memory of their own: what GPUs and fake devices share."""

from __future__ import annotations

from typing import Any

from weft import runtime
from weft._base import lazy
from weft.dispatch import devices


class NativeDevice(devices.Device):
    """One of them; ``raw_platform`` is what its programs are written for where they are shown as StableHLO."""

    raw_platform = "cpu"

    def __init__(self, index: int, number: int) -> None:
        self.id = self.local_hardware_id = index
        self.number = number
        self.backend = Native(self)


class Native:
    """weft's own compiler and the memory of one device (``devices.Backend``)."""

    step_kinds = devices.OWN.step_kinds
    shards = False

    def __init__(self, device: NativeDevice) -> None:
        self.key: tuple[Any, ...] = ("device", device.number)
        self._device = device

    def compile(self, closed: Any, *, name: str, donated: tuple[bool, ...] = (), **wishes: Any) -> Any:
        if self._device.raw_platform != "cpu":
            closed = lazy.submodule("weft.control.branches").for_platform(closed, self._device.raw_platform)
        return devices.OWN.compile(closed, name=name, donated=donated, device=self._device, **wishes)

    def place(self, array: Any) -> Any:
        return runtime.array_to_place(array, self._device.number << 1)

    def fetch(self, array: Any) -> Any:
        return runtime.array_to_place(array, 0)

    def lend(self, array: Any, place: int) -> None:
        return None


class Platform:
    """The devices of one kind, as ``weft.devices`` and tools ask for them."""

    runtime_type = "weft"

    def __init__(self, name: str, platform: str, version: str, made: list[Any]) -> None:
        self.name = name  # by which it is found
        self.platform = platform  # JAX's word
        self.platform_version = version
        self._made = made

    def devices(self) -> list[Any]:
        return list(self._made)

    local_devices = devices

    def device_count(self) -> int:
        return len(self._made)

    local_device_count = device_count

    def process_index(self) -> int:
        return 0
