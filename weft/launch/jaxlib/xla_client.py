"""``jaxlib.xla_client`` and ``jaxlib.xla_extension``: the classes that programs name in ``except`` clauses."""

from __future__ import annotations

from weft.dispatch.devices import Device
from weft.errors import JaxRuntimeError
from weft.runtime import Array as ArrayImpl

XlaRuntimeError = JaxRuntimeError

__all__ = ["ArrayImpl", "Device", "JaxRuntimeError", "XlaRuntimeError"]
