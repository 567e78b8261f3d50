"""Fake devices: weft's own programs, on memory that the host cannot touch. Tests find by them who forgets that.

``WEFT_FAKE_DEVICES=2`` gives ``weft.devices("fake")`` two of them. Each has memory that the host has no access to, and
a thread that works on it in the order it was asked, after random delays, by the CPU's kernels (``fake_device.cpp``). So
a program gives the bits of the CPU, or ends the process where it reads memory as if it were the host's.
"""

from __future__ import annotations

import atexit
import os
from typing import Any

from weft import runtime
from weft.dispatch import devices

ENVIRONMENT = "WEFT_FAKE_DEVICES"
_made: list[FakeDevice] = []


class FakeDevice(devices.Device):
    """One of them."""

    platform = device_kind = "fake"
    raw_platform = "cpu"  # that its programs are written for as StableHLO

    def __init__(self, index: int, number: int) -> None:
        self.id = self.local_hardware_id = index
        self.number = number
        self.backend = Fake(self)

    def __repr__(self) -> str:
        return f"FakeDevice(id={self.id})"

    def __reduce__(self) -> Any:
        return _device, (self.id,)


class Fake:
    """weft's own compiler and one fake device's memory (``devices.Backend``)."""

    step_kinds = devices.OWN.step_kinds
    shards = False

    def __init__(self, device: FakeDevice) -> None:
        self.key: tuple[Any, ...] = ("device", device.number)
        self._device = device

    def compile(self, closed: Any, *, name: str, donated: tuple[bool, ...] = (), **wishes: bool) -> Any:
        return devices.OWN.compile(closed, name=name, donated=donated, device=self._device, **wishes)

    def place(self, array: Any) -> Any:
        return runtime.array_to_place(array, self._device.number << 1)

    def fetch(self, array: Any) -> Any:
        return runtime.array_to_place(array, 0)

    def lend(self, array: Any, place: int) -> None:
        return None


class Platform:
    """What ``weft.devices("fake")`` asks."""

    name = platform = "fake"

    def devices(self) -> list[FakeDevice]:
        return list(_made)

    local_devices = devices


def find(platform: Any) -> Platform | None:
    """The platform of this name, if it is that of fake devices and the environment asks for some.

    The caller holds the lock of plugins.
    """
    if platform != "fake":
        return None
    if not _made:
        asked = os.environ.get(ENVIRONMENT)
        if not asked:
            return None
        if not asked.isdigit() or not 1 <= int(asked) <= 64:
            raise ValueError(f"{ENVIRONMENT} is a number of devices from 1 to 64, got {asked!r}")
        for index, number in enumerate(runtime.make_fake_devices(int(asked))):
            _made.append(FakeDevice(index, number))
            devices.register(_made[-1])
        atexit.register(runtime.drain_devices)
    return Platform()


def _device(index: int) -> FakeDevice:
    """The device that was pickled."""
    devices.devices("fake")  # makes them
    return _made[index]
