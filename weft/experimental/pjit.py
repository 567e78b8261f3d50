"""weft.experimental.pjit: ``pjit`` is ``jit``, which takes shardings."""

from __future__ import annotations

from weft.dispatch.calls.jit import jit as pjit
from weft.dispatch.devices.shardings import with_sharding_constraint

__all__ = ["pjit", "with_sharding_constraint"]
