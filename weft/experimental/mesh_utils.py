"""weft.experimental.mesh_utils: devices as arrays, to make meshes of."""

from __future__ import annotations

from weft._base import unbuilt
from weft.dispatch.devices.shardings import create_device_mesh, create_hybrid_device_mesh

__all__ = ["create_device_mesh", "create_hybrid_device_mesh"]
__getattr__ = unbuilt.fallback(__name__)
