"""The leaves of a checkpoint: what is written down of each kind, and how a value is made of it again.

Arrays of weft (also random keys, by their words) and of NumPy have a zarr array each, in which every shard is one
chunk; Python's numbers and texts stand in the manifest. A description is a dictionary of JSON:

    {"kind": "array", "shape": [8, 4], "dtype": "bfloat16", "store": {"folder": "0000.w", "shape": [8, 4], ...}}
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from weft import dtypes, runtime
from weft._base import lazy
from weft._base.record import Record
from weft.checkpoints.folders import CheckpointError
from weft.core import avals
from weft.core.ref_types import is_ref
from weft.core.sharding.shardings import Sharding
from weft.core.tracing.tracer import Tracer
from weft.dispatch.calls.struct import ShapeDtypeStruct

# Dtypes that zarr knows; elements of the others, which have one byte, are stored as these bytes.
_IN_ZARR = frozenset(
    np.dtype(name)
    for name in (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
        "float64", "complex64", "complex128", ml_dtypes.bfloat16,
    )
)  # fmt: skip
PIECE_BYTES = 8 << 20  # what is read at once of a larger chunk, so that a part of a shard can be read alone

Bounds = tuple[tuple[int, int], ...]


class Store(Record):
    """A zarr array: its folder, the shape and dtype of its elements, the chunk of one shard, the piece read at once."""

    folder: str
    shape: tuple[int, ...]
    dtype: str
    chunk: tuple[int, ...]
    piece: tuple[int, ...]

    @classmethod
    def of_json(cls, given: dict[str, Any]) -> Store:
        return cls(given["folder"], *(_as_tuple(given[name]) for name in ("shape", "dtype", "chunk", "piece")))

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("folder", "shape", "dtype", "chunk", "piece")}


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class Source(Record):
    """Elements to be written: where they belong in the whole array, and the values, on memory that stays as it is."""

    store: Store
    index: tuple[slice, ...]
    values: np.ndarray


def random_keys() -> Any:
    """What makes and describes random keys; ``weft.checkpoint`` without ``save`` does not load it."""
    return lazy.submodule("weft.random.keys")


# -- what a leaf is ---------------------------------------------------------------------------------------------------


def described(leaf: Any, where: str, number: int) -> dict[str, Any]:
    """The description of a leaf; TypeError naming ``where`` for a value that cannot be saved."""
    if isinstance(leaf, runtime.Array):
        return _of_array(leaf, where, number)
    if isinstance(leaf, np.ma.MaskedArray):
        raise TypeError(f"[save] {where} is a masked array, whose mask would be lost: save its data and its mask")
    if isinstance(leaf, np.ndarray | np.generic):
        dtype = np.dtype(leaf.dtype)
        kind = "numpy" if isinstance(leaf, np.ndarray) else "numpy scalar"
        if dtype == dtypes.float0:
            return {"kind": kind, "shape": leaf.shape, "dtype": "float0"}
        dtype = dtype.newbyteorder("=")
        if dtype not in _IN_ZARR and not _of_bytes(dtype):
            raise TypeError(f"[save] {where} is a NumPy array of {dtype}, which a checkpoint cannot hold")
        return _stored({"kind": kind, "shape": leaf.shape, "dtype": dtype.name}, leaf.shape, dtype, where, number, None)
    text = _as_text(leaf)
    if text is None:
        raise TypeError(f"[save] {where} {_why_not(leaf)}")
    return {"kind": "python", "type": type(leaf).__name__, "value": text}


def _why_not(leaf: Any) -> str:
    if isinstance(leaf, Tracer):
        return "is traced: save outside of jit, grad and vmap"
    if isinstance(leaf, ShapeDtypeStruct):
        return "is a ShapeDtypeStruct, which has no values"
    if is_ref(leaf):
        return "is a mutable reference: save what it holds, ref[...]"
    return (
        f"is a {type(leaf).__module__}.{type(leaf).__qualname__}; a checkpoint holds arrays, numbers, bool, str and "
        "bytes, in containers that are registered as pytrees (weft.tree_util.register_pytree_node)"
    )


def _of_bytes(dtype: np.dtype) -> bool:
    """Whether it is one of the small types of ml_dtypes, which have a byte for each element."""
    return dtype.itemsize == 1 and getattr(ml_dtypes, dtype.name, None) is dtype.type


def _of_array(array: Any, where: str, number: int) -> dict[str, Any]:
    if array.is_deleted():
        raise RuntimeError(f"[save] {where} has been deleted or donated: its values are gone")
    found: dict[str, Any] = {"kind": "array", "shape": array.shape, "dtype": array.dtype.name}
    if array.weak_type:
        found["weak"] = True
    if array.dtype == dtypes.float0:
        return found
    shape, dtype = array.shape, array.dtype
    if dtypes.is_extended(dtype):
        impl = random_keys().key_impl(array)
        if not isinstance(impl, str):
            raise TypeError(f"[save] {where} has random keys of a generator of your own: save random.key_data of them")
        words = avals.physical_aval(array.aval)
        found |= {"kind": "key", "dtype": impl}
        shape, dtype = words.shape, words.dtype
    return _stored(found, shape, np.dtype(dtype), where, number, array)


def _stored(
    found: dict[str, Any], shape: Sequence[int], dtype: np.dtype, where: str, number: int, array: Any
) -> dict[str, Any]:
    """The description with its zarr array; one without elements has none."""
    shape = tuple(shape)
    if math.prod(shape) == 0:
        return found
    chunk = shape if array is None else (*array.sharding.shard_shape(array.shape), *shape[array.ndim :])
    chunk, piece = pieces(shape, chunk, dtype.itemsize)
    name = f"{number:05d}{re.sub(r'[^A-Za-z0-9_]+', '.', where)[:60].rstrip('.')}"
    stored = dtype.name if dtype in _IN_ZARR else "uint8"
    return {**found, "store": Store(name, shape, stored, chunk, piece).as_json()}


def pieces(shape: Sequence[int], chunk: Sequence[int], itemsize: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The chunk of a shard, and the piece of it that is read at once: at most about 8 MB, cut from the first dimension.

    A piece divides its chunk. A dimension that is not cut among shards may be rounded up for that: what lies beyond
    the array is not stored.
    """
    outer, inner = list(chunk), list(chunk)
    count = math.ceil(math.prod(chunk) * itemsize / PIECE_BYTES)
    for dim, extent in enumerate(chunk):
        if count <= 1:
            break
        if extent == shape[dim]:
            inner[dim] = math.ceil(extent / min(count, extent))
            parts = math.ceil(extent / inner[dim])
            outer[dim] = inner[dim] * parts
        else:
            fitting = [n for n in range(count, min(2 * count, extent) + 1) if extent % n == 0]
            below = [n for n in range(min(count, extent), 0, -1) if extent % n == 0]
            parts = fitting[0] if fitting else below[0]
            inner[dim] = extent // parts
        count = math.ceil(count / parts)
    return tuple(outer), tuple(inner)


def _as_text(leaf: Any) -> Any:
    """A number or text of Python for JSON, exactly; None for another object."""
    kind = type(leaf)
    if kind in (bool, int, str):
        return leaf
    if kind is float:
        return leaf.hex()
    if kind is complex:
        return [leaf.real.hex(), leaf.imag.hex()]
    return base64.b64encode(leaf).decode() if kind is bytes else None


def python_value(description: dict[str, Any]) -> Any:
    value = description["value"]
    if description["type"] == "float":
        return float.fromhex(value)
    if description["type"] == "complex":
        return complex(*map(float.fromhex, value))
    return base64.b64decode(value) if description["type"] == "bytes" else value


# -- what is written --------------------------------------------------------------------------------------------------


def sources(leaf: Any, description: dict[str, Any], first: bool, copies: bool) -> list[Source]:
    """The elements of a leaf that this process writes: its shards of an array over several processes; all of any other
    leaf if this process is the ``first``, otherwise none.

    Waits for the values. With ``copies`` the values of NumPy arrays, which may change later, are copied.
    """
    if "store" not in description:
        return []
    store = Store.of_json(description["store"])
    if not isinstance(leaf, runtime.Array):
        values = np.array(leaf) if copies else np.asarray(leaf)
        whole = (slice(None),) * len(store.shape)
        native = values.astype(values.dtype.newbyteorder("="), copy=False)
        return [Source(store, whole, _in_zarr(native, store))] if first else []
    if not leaf.sharding.is_fully_addressable:
        own = [shard for shard in leaf.addressable_shards if shard.replica_id == 0]
        return [Source(store, _padded(shard.index, store), _in_zarr(_values(shard.data), store)) for shard in own]
    if not first:
        return []
    values = _in_zarr(_values(leaf), store)
    parts = {_bounds(index, leaf.shape): index for index in leaf.sharding.devices_indices_map(leaf.shape).values()}
    return [Source(store, _padded(index, store), values[_padded(index, store)]) for index in parts.values()]


def _values(array: Any) -> np.ndarray:
    """The elements (the words of keys) on the host, without a copy where they lie there."""
    return avals.key_words(array) if dtypes.is_extended(array.dtype) else np.asarray(array)


def _in_zarr(values: np.ndarray, store: Store) -> np.ndarray:
    return values.view(np.uint8) if store.dtype == "uint8" and values.dtype != np.uint8 else values


def _padded(index: tuple[slice, ...], store: Store) -> tuple[slice, ...]:
    return (*index, *[slice(None)] * (len(store.shape) - len(index)))


def _bounds(index: tuple[slice, ...], shape: Sequence[int]) -> Bounds:
    return tuple([part.indices(extent)[:2] for part, extent in zip(index, shape, strict=True)])


# -- what is wanted ---------------------------------------------------------------------------------------------------


class Wanted(Record):
    """A leaf to be restored: what was saved, its name in errors, what it is to be made into, and how it is to lie."""

    description: dict[str, Any]
    where: str
    like: Any  # a leaf of the user's template; None to make what was saved
    sharding: Sharding | None

    @property
    def on_devices(self) -> bool:
        """Whether it becomes an Array of weft."""
        if self.like is None:
            return self.description["kind"] in ("array", "key")
        return hasattr(self.like, "dtype") and not isinstance(self.like, np.ndarray | np.generic)

    def check(self) -> str | None:
        """What is wrong with the template's leaf; None if it fits."""
        saved, like = self.description, self.like
        if like is None:
            return _too_wide(saved)
        if saved["kind"] == "python":
            return _misfit_of_python(saved, like)
        if not hasattr(like, "shape") or not hasattr(like, "dtype"):
            kind = np.dtype(type(like)).kind if type(like) in (bool, int, float, complex) else ""
            if saved["kind"] != "key" and not saved["shape"] and np.dtype(dtype_of(saved, self.where)).kind == kind:
                return None
            return f"is {shown(saved)} in the checkpoint, and {type(like).__name__} in like"
        if (tuple(saved["shape"]), saved["dtype"]) != (tuple(like.shape), _name(like.dtype)):
            own = f"{_name(like.dtype)}[{','.join(map(str, like.shape))}]"
            return f"is {shown(saved)} in the checkpoint, and {own} in like"
        return _too_wide(saved) if self.on_devices else None


def _name(dtype: Any) -> str:
    return (
        dtype.impl.name if dtypes.is_extended(dtype) else "float0" if dtype == dtypes.float0 else np.dtype(dtype).name
    )


def shown(saved: dict[str, Any]) -> str:
    return f"{saved['dtype']}[{','.join(map(str, saved['shape']))}]"


def _too_wide(saved: dict[str, Any]) -> str | None:
    """Arrays of 64 bits would lose some of them without the option."""
    if saved["kind"] != "array" or saved["dtype"] == "float0":
        return None
    dtype = dtypes.as_dtype(saved["dtype"])
    if dtypes.canonicalize_dtype(dtype) == dtype:
        return None
    return (
        f"is {shown(saved)} in the checkpoint, and 64-bit types are off: use weft.config.update('enable_x64', True), "
        "or a NumPy array in like, which is restored as one"
    )


def _misfit_of_python(saved: dict[str, Any], like: Any) -> str | None:
    value = python_value(saved)
    if type(like) is type(value):
        return None
    shape, dtype = getattr(like, "shape", None), getattr(like, "dtype", None)
    numbers = (bool, int, float, complex)
    if shape == () and type(value) in numbers and not dtypes.is_extended(dtype):
        own = dtypes.as_dtype(type(value)).kind
        if np.dtype(dtype).kind == own or (own == "f" and dtypes.issubdtype(dtype, np.floating)):
            return None
    text = f"{_name(dtype)}[{','.join(map(str, shape))}]" if dtype is not None and shape is not None else None
    return f"is a {type(value).__name__} in the checkpoint, and {text or type(like).__name__} in like"


def dtype_of(saved: dict[str, Any], where: str) -> Any:
    """The dtype of a saved array; CheckpointError for one that this release does not know."""
    if saved["dtype"] == "float0":
        return dtypes.float0
    try:
        return random_keys().resolve_impl(saved["dtype"]) if saved["kind"] == "key" else dtypes.as_dtype(saved["dtype"])
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"[restore] {where} has dtype {saved['dtype']}, which is unknown here") from error
