"""Copies and signals from one device to another, inside of ``shard_map``.

The kernels of all devices run in step: each gathers the values and targets of all, and takes the value sent to it.

    device 0 sends to 1, 1 to 2, 2 to 0:    targets [1, 2, 0], values [a, b, c]   ->   device 0 takes c, 1 a, 2 b
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from weft import config
from weft import operations as lax
from weft.core import axis_names
from weft.core.axis_names import ManualExtent
from weft.effects import refs
from weft.effects.refs import Part
from weft.operations import collectives, mapped
from weft.operations.pointwise.convert import convert

INT32 = np.dtype(np.int32)


def axes() -> dict[Any, int]:
    """The axes of devices around a kernel, with their extents."""
    return {name: int(extent) for name, extent in config.bound_axes() if type(extent) is ManualExtent}


def number_of(device_id: Any, is_on_mesh: bool) -> Any:
    """The number of a device among those along the axes of the mesh, an int32.

    ``device_id``: that number, a coordinate for each axis, or a dictionary of some (others are this device's own).
    ValueError for coordinates that do not fit the axes.
    """
    known = axes()
    if not known:
        _check_alone(device_id)
        return np.int32(0)
    if isinstance(device_id, Mapping):
        strange = [name for name in device_id if name not in known]
        if strange:
            raise ValueError(f"[device_id] {strange[0]!r} is no axis of devices around the kernel: {list(known)}")
        device_id = tuple([device_id.get(name, collectives.axis_index(name)) for name in known])
    elif isinstance(device_id, (tuple, list)) or (is_on_mesh and len(known) == 1):
        device_id = tuple(device_id) if isinstance(device_id, (tuple, list)) else (device_id,)
    else:
        return convert(device_id, INT32, False)
    if len(device_id) != len(known):
        raise ValueError(f"[device_id] {len(device_id)} coordinates for the {len(known)} axes of devices {list(known)}")
    number: Any = np.int32(0)
    for coordinate, extent in zip(device_id, known.values(), strict=True):
        number = lax.add(lax.mul(number, np.int32(extent)), convert(coordinate, INT32, False))
    return number


def _check_alone(device_id: Any) -> None:
    given = device_id if isinstance(device_id, (tuple, list)) else [device_id]
    if isinstance(device_id, Mapping) or any(not isinstance(n, (int, np.integer)) or n != 0 for n in given):
        raise ValueError(f"[device_id] {device_id!r}: outside of shard_map there is one device, of number 0")


def _own(names: tuple[Any, ...]) -> Any:
    return convert(collectives.axis_index(names), INT32, False)


def _exchange_batch(axis: Any, values: list[Any], dims: list[Any], *, axis_name: Any, axis_size: int) -> Any:
    (x,), (dim,) = values, dims
    if axis.name != axis_name:
        return exchange_p.bind(x, axis_name=axis_name, axis_size=axis_size), None if dim is None else dim + 1
    return mapped.in_front(axis_size, x, dim), None


def _exchange_type(x: Any, *, axis_name: Any, axis_size: int) -> Any:
    axis_names.check((axis_name,), "exchange")
    effects = axis_names.effects((axis_name,)) | {axis_names.EXCHANGE}
    return x.update(shape=(axis_size, *x.shape)), effects


exchange_p = collectives.collective("exchange", _exchange_type, _exchange_batch)  # the values of all devices, in front
exchange_p.def_effectful_abstract_eval(_exchange_type)


def _gathered(value: Any, names: tuple[Any, ...]) -> Any:
    """The values of all devices, in front."""
    shape, known = np.shape(value), axes()
    for name in reversed(names):
        value = exchange_p.bind(value, axis_name=name, axis_size=known[name])
    return lax.reshape(value, (math.prod(known.values()), *shape))


def _sent_to_me(target: Any, names: tuple[Any, ...]) -> Any:
    """For each device whether it sends to this one."""
    targets = _gathered(target, names)
    return lax.eq(targets, lax.broadcast_in_dim(_own(names), (math.prod(axes().values()),), ()))


def copy(source: Any, target: Any, device: Any, adds: bool) -> Any:
    """Copy a reference to one on a device; the number of copies that arrive here, 0 or 1."""
    names = tuple(axes())
    value = refs.get(source)
    if not names:
        _write(target, value, adds)
        return np.int32(1)
    flags = _sent_to_me(device, names)
    arrives = lax.reduce_or(flags, (0,))
    sender = lax.argmax(flags, 0, np.int32)

    def of_sender(x: Any) -> Any:
        return lax.dynamic_index_in_dim(_gathered(x, names), sender, 0, keepdims=False)

    if type(target) is Part:  # the sender says where
        target = Part(
            target.ref, target._indices, tuple([of_sender(convert(x, INT32, False)) for x in target._operands])
        )
    taken, before = of_sender(value), refs.get(target)
    if adds:
        taken = lax.add(before, taken)
    refs.set(target, ..., lax.select_n(lax.broadcast_in_dim(arrives, taken.shape, ()), before, taken))
    return convert(arrives, INT32, False)


def _write(target: Any, value: Any, adds: bool) -> None:
    if adds:
        refs.addupdate(target, ..., value)
    else:
        refs.set(target, ..., value)


def counts(amount: Any, device: Any) -> Any:
    """How much all devices together signal to this one, each ``amount`` to a device."""
    names = tuple(axes())
    amount = convert(amount, INT32, False)
    if not names:
        return amount
    sent = _gathered(amount, names)
    return lax.reduce_sum(lax.select_n(_sent_to_me(device, names), lax.full_like(sent, 0), sent), (0,))
