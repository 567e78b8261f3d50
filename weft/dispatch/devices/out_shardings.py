"""The arguments ``device`` and ``out_sharding`` of functions that make arrays: the result is made, then placed.

The inside of a function with ``out_sharding`` is typed without shardings: a result that could lie in several ways
raises no error, since the argument says which one is meant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import runtime
from weft.core.sharding import explicit
from weft.core.sharding.meshes import get_abstract_mesh
from weft.core.sharding.partition_specs import PartitionSpec
from weft.core.sharding.shardings import NamedSharding, Sharding
from weft.core.tracing.tracer import Tracer
from weft.dispatch import devices
from weft.dispatch.devices import placement, resharding


def on_device(make: Callable[[], Any], device: Any) -> Any:
    """What ``make()`` gives on ``device``: a device, or a sharding of devices."""
    if not isinstance(device, devices.Device | Sharding):
        raise ValueError(
            f"[placement] device is None, a device such as weft.devices()[0] or a SingleDeviceSharding, got {device!r}"
        )
    return placement.device_put(make(), device)


def placed(make: Callable[[], Any], out_sharding: Any, name: str, what: str) -> Any:
    """What ``make()`` gives, lying as ``out_sharding`` says; ``name`` is the function that got it, as ``what``."""
    target = canonical(out_sharding, name, what)
    with explicit.relaxed():
        made = make()
    return made if target is None else runtime.tree_map(lambda leaf: _placed(leaf, target, name), made)


def _placed(leaf: Any, target: Sharding, name: str) -> Any:
    if not isinstance(leaf, runtime.Array | Tracer):
        return leaf
    if not isinstance(target, NamedSharding):
        return placement.device_put(leaf, target)
    return resharding.moved(leaf, target, name)


def canonical(value: Any, name: str, what: str = "out_sharding") -> Sharding | None:
    """The sharding that a user gave as ``out_sharding``, which may be a spec; None where it says nothing."""
    if isinstance(value, Sharding) and not isinstance(value, NamedSharding):
        return value
    resharding.abstract(value, name, what)
    if isinstance(value, PartitionSpec):
        return NamedSharding(get_abstract_mesh(), value)
    return None if value is None or value.mesh.empty else value


def as_array_lies(made: Any, like: Any) -> Any:
    """A new array of the shape of another, with its sharding."""
    return placement.device_put(made, devices.sharding_at(like.place))
