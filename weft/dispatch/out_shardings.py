"""The arguments ``device`` and ``out_sharding`` of functions that make arrays: the result is made, then placed.

What a function with ``out_sharding`` does inside is typed without shardings, so that a result which could lie in
several ways raises no error: the argument says which is meant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import runtime
from weft.core import explicit
from weft.core.meshes import AxisType, get_abstract_mesh
from weft.core.partition_specs import PartitionSpec
from weft.core.shardings import NamedSharding, Sharding
from weft.core.tracer import Tracer
from weft.dispatch import devices, placement, resharding


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
    abstract(value, name, what)
    if isinstance(value, PartitionSpec):
        return NamedSharding(get_abstract_mesh(), value)
    return None if value is None or value.mesh.empty else value


def abstract(value: Any, name: str, what: str = "out_sharding") -> NamedSharding | None:
    """The sharding that a user gave, without devices, once its axes have been checked; None where it says nothing."""
    if value is None or (isinstance(value, NamedSharding) and value.mesh.empty):
        return None
    if not isinstance(value, NamedSharding | PartitionSpec):
        raise TypeError(
            f"`{what}` argument of {name} only supports instances of `NamedSharding` or `PartitionSpec`. Got {value!r} "
            f"of type: {type(value)}"
        )
    mesh = get_abstract_mesh()
    if isinstance(value, PartitionSpec):
        if mesh.empty:
            raise ValueError(
                "Using PartitionSpec when you are not under a mesh context is not allowed. Please pass a NamedSharding "
                f"instance or enter into a mesh context via `weft.set_mesh`. Got {value}"
            )
        value = NamedSharding(mesh, value)
    if name != "reshard":
        _check_mesh(value, mesh, name)
    _check_axes(value, name)
    return NamedSharding(value.mesh.abstract_mesh, value.spec)


def _check_mesh(value: NamedSharding, mesh: Any, name: str) -> None:
    own = value.mesh.abstract_mesh
    if mesh.empty or own == mesh or (own.are_all_axes_auto and mesh.are_all_axes_auto):
        return
    raise ValueError(f"Context mesh {mesh} should match the mesh of sharding {own} passed to {name}.")


def _check_axes(value: NamedSharding, name: str) -> None:
    for axis in (*value.spec.axes(), *value.spec.unreduced, *value.spec.reduced):
        kind = value.mesh.type_of(axis)
        if kind is not AxisType.Explicit:
            raise ValueError(
                f"PartitionSpec passed to {name} cannot contain axis names that are of type Auto or Manual. Got "
                f"PartitionSpec: {value.spec} with axis name: {axis} of type: {kind}. Make the mesh with axis_types="
                "(AxisType.Explicit,), or use weft.lax.with_sharding_constraint"
            )


def as_array_lies(made: Any, like: Any) -> Any:
    """A new array of the shape of another, with its sharding."""
    return placement.device_put(made, devices.sharding_at(like.place))
