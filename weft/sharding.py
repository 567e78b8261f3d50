"""How arrays lie on devices: meshes, specs and shardings under JAX's names, for the one device there is."""

from __future__ import annotations

from weft._base import unbuilt
from weft.dispatch.devices import PartitionSpec, Sharding, SingleDeviceSharding
from weft.dispatch.shardings import (
    AbstractMesh,
    AxisType,
    Mesh,
    NamedSharding,
    get_abstract_mesh,
    get_mesh,
    reshard,
    set_mesh,
    use_abstract_mesh,
)

__all__ = [
    "AbstractMesh",
    "AxisType",
    "Mesh",
    "NamedSharding",
    "PartitionSpec",
    "Sharding",
    "SingleDeviceSharding",
    "get_abstract_mesh",
    "get_mesh",
    "reshard",
    "set_mesh",
    "use_abstract_mesh",
]
__getattr__ = unbuilt.fallback(__name__)
