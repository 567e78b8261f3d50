"""How arrays lie on devices: with one device, all of an array on it. The rest of JAX's names raise when used."""

from __future__ import annotations

from weft._base import unbuilt
from weft.dispatch.devices import Sharding, SingleDeviceSharding

__all__ = ["Sharding", "SingleDeviceSharding"]
__getattr__ = unbuilt.fallback(__name__)
