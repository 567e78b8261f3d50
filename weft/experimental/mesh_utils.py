"""weft.experimental.mesh_utils: the device as an array, to make a mesh of."""

from __future__ import annotations

from weft._base import unbuilt
from weft.dispatch.shardings import create_device_mesh

__all__ = ["create_device_mesh"]
__getattr__ = unbuilt.fallback(__name__)
