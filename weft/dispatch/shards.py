"""Shards: the parts of an array that devices have, and arrays made of parts.

In one process one buffer has the whole array. A shard's ``data`` is an Array on the shard's device: a view of that
buffer where the part lies in one piece, else a copy, made when it is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import dtypes, runtime
from weft.core import avals, explicit
from weft.core.shardings import Index, Sharding
from weft.dispatch import devices, placement


class Shard:
    """The part of an array that one device has: ``index`` says which, ``data`` is an Array of its elements.

    >>> jnp.arange(4).addressable_shards[0].index
    (slice(None, None, None),)
    """

    def __init__(
        self,
        device: Any,
        sharding: Sharding,
        global_shape: Sequence[int],
        data: Any = None,
        replica_id: int | None = None,
    ) -> None:
        self.device, self._sharding, self._global_shape = device, sharding, tuple(global_shape)
        self._data, self._replica = data, replica_id

    @property
    def index(self) -> Index:
        return self._sharding.devices_indices_map(self._global_shape)[self.device]

    @property
    def replica_id(self) -> int:
        """How many devices before this one, in the order of the mesh, have the same part."""
        if self._replica is None:
            self._replica = replica_ids(self._sharding, self._global_shape)[self.device]
        return self._replica

    @property
    def data(self) -> Any:
        if callable(self._data):
            self._data = self._data()
        return self._data

    def __repr__(self) -> str:
        return f"Shard(device={self.device!r}, index={self.index}, replica_id={self.replica_id}, data={self.data})"


def _bounds(index: Index) -> tuple[Any, ...]:
    return tuple([(part.start, part.stop) for part in index])


def replica_ids(sharding: Sharding, global_shape: Sequence[int]) -> dict[Any, int]:
    """For each device how many before it have the same part."""
    seen: dict[Any, int] = {}
    found = {}
    for device, index in sharding.devices_indices_map(global_shape).items():
        key = _bounds(index)
        found[device] = seen.get(key, 0)
        seen[key] = found[device] + 1
    return found


def shards_of(array: Any) -> list[Shard]:
    """The parts of an array, one for each device of this process, in the order of the mesh."""
    sharding = devices.sharding_at(array.place)
    if len(sharding.device_list) == 1:
        return [Shard(sharding.device_list[0], sharding, array.shape, array, 0)]
    replicas = replica_ids(sharding, array.shape)
    indices = sharding.addressable_devices_indices_map(array.shape)
    return [
        Shard(device, sharding, array.shape, _part(array, index, device), replicas[device])
        for device, index in indices.items()
    ]


def _part(array: Any, index: Index, device: Any) -> Callable[[], Any]:
    return lambda: part_on(array, index, device)


def part_on(array: Any, index: Index, device: Any) -> Any:
    """Some elements of an array as an Array on a device: on the same memory if they lie in one piece."""
    place = devices.place_on(device)
    if all(part == slice(None) for part in index):
        whole = (
            array if array.aval.explicit_sharding is None else runtime.array_alias(array, explicit.plain(array.aval))
        )
        return runtime.array_to_place(whole, place)
    if dtypes.is_extended(array.dtype):
        words = avals.key_words(array)[index]
        shape = words.shape[: array.ndim]
        made = avals.from_numpy(words, runtime.ShapedArray(shape, array.dtype))
    else:
        values = np.asarray(array)[index]
        aval = runtime.ShapedArray(values.shape, array.dtype, array.weak_type)
        try:
            made = runtime.array_from_numpy(values, aval, copy=False)
        except (ValueError, BufferError):  # not in one piece, or not aligned
            made = runtime.array_from_numpy(np.ascontiguousarray(values), aval)
    return runtime.array_to_place(made, place)


def addressable_data(array: Any, index: int) -> Any:
    """The part of the array on the ``index``-th device of this process."""
    parts = shards_of(array)
    if not -len(parts) <= index < len(parts):
        raise IndexError(f"[addressable_data] index {index} for an array on {len(parts)} devices of this process")
    return parts[index].data


# -- arrays from parts ------------------------------------------------------------------------------------------------


def _check_sharding(name: str, sharding: Any) -> Sharding:
    if not isinstance(sharding, Sharding):
        raise TypeError(f"[{name}] sharding is a weft.sharding.Sharding such as a NamedSharding, got {sharding!r}")
    return sharding


def _check_part(shape: Sequence[int], part: Sequence[int], sharding: Sharding, dtype: Any) -> None:
    wanted = sharding.shard_shape(shape)
    if tuple(part) != wanted:
        text = runtime.ShapedArray(tuple(shape), dtype).str_short(short_dtypes=False)
        raise ValueError(
            f"Expected shard shape {wanted} doesn't match the single device array shape {tuple(part)}. Shape of Array "
            f"is {text} with sharding {sharding}"
        )


def _joined(shape: tuple[int, ...], sharding: Sharding, parts: dict[Any, Any], dtype: Any) -> Any:
    """The array whose part on each device is given (as NumPy arrays)."""
    first = next(iter(parts.values()))
    whole = np.empty(shape, first.dtype if dtype is None else dtype)
    for device, index in sharding.addressable_devices_indices_map(shape).items():
        _check_part(shape, parts[device].shape, sharding, whole.dtype)
        whole[index] = parts[device]
    return placement.device_put(whole, sharding)


def make_array_from_callback(
    shape: Sequence[int], sharding: Any, data_callback: Callable[[Any], Any], dtype: Any = None
) -> Any:
    """The array whose part with index ``i`` is ``data_callback(i)``; one call for each part that differs.

    >>> sharding = weft.sharding.SingleDeviceSharding(weft.devices()[0])
    >>> weft.make_array_from_callback((3,), sharding, lambda index: np.arange(3)[index])
    Array([0, 1, 2], dtype=int32)
    """
    shape = tuple(shape)
    sharding = _check_sharding("make_array_from_callback", sharding)
    made: dict[Any, Any] = {}
    parts = {}
    for device, index in sharding.addressable_devices_indices_map(shape).items():
        key = _bounds(index)
        if key not in made:
            made[key] = _as_numpy(data_callback(index), dtype)
        parts[device] = made[key]
    return _joined(shape, sharding, parts, None)


def _as_numpy(value: Any, dtype: Any) -> np.ndarray:
    values = np.asarray(value)
    values = values.astype(dtypes.canonicalize_dtype(values.dtype), copy=False)
    if dtype is not None and values.dtype != dtypes.as_dtype(dtype):
        raise ValueError(
            "If `dtype` is provided to `weft.make_array_from_callback`, it must match the dtype of the addressable "
            f"shards. Got dtype={dtypes.as_dtype(dtype)} and shard dtype={values.dtype}."
        )
    return values


def make_array_from_process_local_data(sharding: Any, local_data: Any, global_shape: Any = None) -> Any:
    """The array made of what each process has: with one process, all of it.

    >>> sharding = weft.sharding.SingleDeviceSharding(weft.devices()[0])
    >>> weft.make_array_from_process_local_data(sharding, np.arange(3))
    Array([0, 1, 2], dtype=int32)
    """
    sharding = _check_sharding("make_array_from_process_local_data", sharding)
    shape = tuple(np.shape(local_data))
    if global_shape is not None and tuple(global_shape) != shape:
        raise ValueError(
            "When calling `make_array_from_process_local_data` on a single process, global_shape should be None or "
            f"equal to local_data.shape. Got global_shape={tuple(global_shape)} and local_data.shape={shape}."
        )
    return placement.device_put(local_data, sharding)


def make_array_from_single_device_arrays(
    shape: Sequence[int], sharding: Any, arrays: Sequence[Any], *, dtype: Any = None
) -> Any:
    """The array whose parts are given as arrays, each on its device; ValueError unless there is one for each.

    >>> sharding = weft.sharding.SingleDeviceSharding(weft.devices()[0])
    >>> weft.make_array_from_single_device_arrays((3,), sharding, [jnp.arange(3)])
    Array([0, 1, 2], dtype=int32)
    """
    shape = tuple(shape)
    sharding = _check_sharding("make_array_from_single_device_arrays", sharding)
    if not isinstance(arrays, Sequence):
        raise TypeError(
            "When making an array from single-device arrays, the arrays argument must be a list or tuple of arrays, "
            f"got {type(arrays)}"
        )
    _check_devices(sharding, arrays)
    if dtypes.is_extended(arrays[0].dtype):
        if len(arrays) > 1:
            raise NotImplementedError("[make_array_from_single_device_arrays] of random keys on several devices")
        return placement.device_put(arrays[0], sharding)
    parts = {devices.device_at(x.place): np.asarray(x) for x in arrays}
    for device, part in parts.items():
        _check_part(shape, part.shape, sharding, part.dtype)
        if part.dtype != arrays[0].dtype or (dtype is not None and part.dtype != dtypes.as_dtype(dtype)):
            raise ValueError(
                f"[make_array_from_single_device_arrays] the arrays have one dtype, {dtype or arrays[0].dtype}; that "
                f"on {device} has {part.dtype}"
            )
    return _joined(shape, sharding, parts, None)


def _check_devices(sharding: Sharding, arrays: Sequence[Any]) -> None:
    wanted = [device for device in sharding.device_list if device.is_local]
    if len(arrays) != len(wanted):
        raise ValueError(
            f"Expected {len(wanted)} per-device arrays (this is how many devices are addressable by the sharding), but "
            f"got {len(arrays)}"
        )
    for x in arrays:
        if not isinstance(x, runtime.Array):
            raise TypeError(f"[make_array_from_single_device_arrays] expected arrays of weft, got {type(x)}")
    lists = [devices.sharding_at(x.place).device_list for x in arrays]
    if any(len(each) != 1 for each in lists):
        raise ValueError("When making an array from single-device arrays, the input arrays must be on a single device")
    found = [each[0] for each in lists]
    if len(set(found)) != len(found):
        raise ValueError(
            "When making an array from single-device arrays, the input arrays must be from distinct devices, but got "
            f"device IDs {[device.id for device in found]}"
        )
    if set(found) != set(wanted):
        raise ValueError(
            "Expected devices of the arrays to be those of the sharding, got device ids "
            f"{sorted(device.id for device in found)} for {sorted(device.id for device in wanted)}"
        )


def nbytes_of_part(array: Any) -> int:
    """Bytes of the array on each of its devices, all together."""
    sharding = devices.sharding_at(array.place)
    return math.prod(sharding.shard_shape(array.shape)) * array.dtype.itemsize * len(sharding.device_list)
