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
from weft.dispatch.devices.native_devices import NativeDevice, Platform

ENVIRONMENT = "WEFT_FAKE_DEVICES"
_made: list[FakeDevice] = []


class FakeDevice(NativeDevice):
    """One of them."""

    platform = device_kind = "fake"

    def __repr__(self) -> str:
        return f"FakeDevice(id={self.id})"

    def __reduce__(self) -> Any:
        return _device, (self.id,)


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
    return Platform("fake", "fake", "weft", _made)


def _device(index: int) -> FakeDevice:
    """The device that was pickled."""
    devices.devices("fake")  # makes them
    return _made[index]
