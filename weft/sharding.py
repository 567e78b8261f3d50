"""How arrays lie on devices: meshes, specs and shardings under JAX's names."""

from __future__ import annotations

from weft._base import unbuilt
from weft.core.avals import ManualAxisType
from weft.core.sharding.meshes import (
    AbstractDevice,
    AbstractMesh,
    AxisType,
    Mesh,
    get_abstract_mesh,
    use_abstract_mesh,
)
from weft.core.sharding.partition_specs import PartitionSpec
from weft.core.sharding.shardings import NamedSharding, Sharding, SingleDeviceSharding
from weft.dispatch.devices.resharding import auto_axes, explicit_axes, reshard
from weft.dispatch.devices.shardings import get_mesh, make_single_device_sharding, set_mesh

__all__ = [
    "AbstractDevice",
    "AbstractMesh",
    "AxisType",
    "ManualAxisType",
    "Mesh",
    "NamedSharding",
    "PartitionSpec",
    "Sharding",
    "SingleDeviceSharding",
    "auto_axes",
    "explicit_axes",
    "get_abstract_mesh",
    "get_mesh",
    "make_single_device_sharding",
    "reshard",
    "set_mesh",
    "use_abstract_mesh",
]
__getattr__ = unbuilt.fallback(__name__)
