"""Shards: the parts of an array that devices have, and arrays made of parts.

With one process, one buffer has the whole array; with several, each process has a block of it. A shard's ``data`` is an
Array on the shard's device: a view of that buffer where the part lies in one piece, otherwise a copy, made when it is
asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import dtypes, runtime
from weft._base import lazy
from weft.core import avals
from weft.core.sharding import explicit, process_grids
from weft.core.sharding.shardings import Index, Sharding, SingleDeviceSharding
from weft.dispatch import devices
from weft.dispatch.devices import placement


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
    across = devices.spans_processes(array.place)
    block = process_grids.block_index(sharding, array.shape) if across else None
    held = lazy.process_calls.block_of(array) if across else array
    return [
        Shard(device, sharding, array.shape, _part(held, index, block, device), replicas[device])
        for device, index in indices.items()
    ]


def global_shards_of(array: Any) -> list[Shard]:
    """The parts of an array on the devices of all processes; those of others have no data."""
    sharding = devices.sharding_at(array.place)
    if sharding.is_fully_addressable:
        return shards_of(array)
    mine = {shard.device: shard for shard in shards_of(array)}
    replicas = replica_ids(sharding, array.shape)
    return [
        mine.get(device) or Shard(device, sharding, array.shape, None, replica) for device, replica in replicas.items()
    ]


def _part(array: Any, index: Index, block: Index | None, device: Any) -> Callable[[], Any]:
    """The part ``index`` of an array; ``array`` holds the elements ``block`` (None: all) of it."""
    mine = index if block is None else process_grids.within_block(index, block)
    return lambda: part_on(array, mine, device)


def part_on(array: Any, index: Index, device: Any) -> Any:
    """Some elements of an array as an Array on a device: on the same memory if they lie in one piece."""
    place = devices.place_on(device)
    if all(part in (slice(None), slice(0, extent)) for part, extent in zip(index, array.shape, strict=True)):
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
            made = runtime.array_from_numpy(np.asarray(values, order="C"), aval)
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
    if not parts:
        raise NotImplementedError(f"an array without a part in this process, {sharding}")
    first = next(iter(parts.values()))
    across = not sharding.is_fully_addressable
    block = process_grids.block_index(sharding, shape) if across else None
    held = np.empty(
        process_grids.block_shape(sharding, shape) if across else shape, first.dtype if dtype is None else dtype
    )
    for device, index in sharding.addressable_devices_indices_map(shape).items():
        _check_part(shape, parts[device].shape, sharding, held.dtype)
        held[index if block is None else process_grids.within_block(index, block)] = parts[device]
    return placement.device_put(held, sharding) if block is None else of_block(held, shape, sharding)


def of_block(values: np.ndarray, shape: Sequence[int], sharding: Sharding) -> Any:
    """The array of ``shape`` across processes, with these values as this process's part (not copied)."""
    held = array_of(values, runtime.ShapedArray(tuple(shape), values.dtype))
    return lazy.process_calls.of_block(held, runtime.ShapedArray(tuple(shape), held.dtype), sharding)


def array_of(values: np.ndarray, like: Any) -> Any:
    """NumPy values (of keys: their words) as an Array with the dtype of ``like``."""
    shape = values.shape[: len(like.shape)]
    aval = runtime.ShapedArray(shape, like.dtype, like.weak_type)
    if dtypes.is_extended(like.dtype):
        return avals.from_numpy(np.asarray(values, order="C"), aval)
    return runtime.array_from_numpy(np.asarray(values, order="C"), aval)


def whole_values(array: Any) -> np.ndarray:
    """The elements (the words of keys) of an array that is all in this process."""
    return avals.key_words(array) if dtypes.is_extended(array.dtype) else np.asarray(array)


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
    """The array (or pytree of arrays) made of what each process has: with one process, all of it.

    ``sharding`` is a sharding, a device, or a tree of these that is a prefix of the data; ``global_shape`` a shape or a
    tree of shapes.

    >>> sharding = weft.sharding.SingleDeviceSharding(weft.devices()[0])
    >>> weft.make_array_from_process_local_data(sharding, np.arange(3))
    Array([0, 1, 2], dtype=int32)
    """
    leaves, treedef = runtime.tree_flatten(local_data)
    one = global_shape is None or all(isinstance(extent, int | np.integer) for extent in global_shape)
    shapes = [global_shape] * len(leaves) if one else treedef.flatten_up_to(global_shape)
    rows = zip(placement.spread(sharding, treedef, "sharding"), leaves, shapes, strict=True)
    return runtime.tree_unflatten(treedef, [_of_process(*row) for row in rows])


def _of_process(target: Any, local_data: Any, global_shape: Any) -> Any:
    if isinstance(target, devices.Device):
        target = SingleDeviceSharding(target)
    sharding = _check_sharding("make_array_from_process_local_data", target)
    if not sharding.is_fully_addressable:
        return _from_local_data(sharding, np.asarray(local_data), global_shape)
    shape = tuple(np.shape(local_data))
    if global_shape is not None and tuple(global_shape) != shape:
        raise ValueError(
            "When calling `make_array_from_process_local_data` on a single process, global_shape should be None or "
            f"equal to local_data.shape. Got global_shape={tuple(global_shape)} and local_data.shape={shape}."
        )
    return placement.device_put(local_data, sharding)


def _from_local_data(sharding: Sharding, data: np.ndarray, global_shape: Any) -> Any:
    """The array across processes from ``data``, this process's part: its block, or all of the array along some axes."""
    data = data.astype(dtypes.canonicalize_dtype(data.dtype), copy=False)
    if global_shape is None:
        outer = process_grids.grid_of(sharding.mesh).outer  # type: ignore[attr-defined] - one across processes has a mesh
        spec = process_grids.block_spec(sharding, data.ndim)
        counts = [math.prod([outer[name] for name in names]) for names in spec]
        global_shape = tuple([extent * count for extent, count in zip(data.shape, counts, strict=True)])
    shape = tuple(global_shape)
    sharding.check_shape(shape)
    wanted = process_grids.block_shape(sharding, shape)
    bad = len(shape) != data.ndim or any(
        have not in (block, whole) for have, block, whole in zip(data.shape, wanted, shape, strict=True)
    )
    if bad:
        raise ValueError(
            f"[make_array_from_process_local_data] this process has a part of shape {wanted} of an array of shape "
            f"{shape} that lies as {sharding}; the local data has shape {data.shape}. Each dimension has the extent of "
            "that part, or that of the whole array"
        )
    index = process_grids.block_index(sharding, shape)
    rows = zip(data.shape, wanted, index, strict=True)
    return of_block(
        data[tuple([slice(None) if have == block else part for have, block, part in rows])], shape, sharding
    )


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
        if len(arrays) > 1 or not sharding.is_fully_addressable:
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
