"""The Python side of Array: text, conversion to Python scalars, iteration, pickling, devices.

The native type ``runtime.Array`` holds a dense buffer and its aval; here it gets the methods that need no
computation. Operators, indexing and the array methods are installed by ``weft.numpy`` at their first use.
``weft.Array`` is the public name for annotations and ``isinstance``, which also holds for traced values.

    repr(x)      Array([1., 2., 3.], dtype=float32)        float(x[0])    1.0
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from weft import dtypes, runtime
from weft._base import lazy
from weft.core import avals
from weft.core.sharding.shardings import NamedSharding, Sharding
from weft.core.tracing.tracer import Tracer
from weft.dispatch import devices

_LONG_LIST = 1 << 18  # elements that become a list at once: between blocks interrupts are seen


class _ArrayMeta(type):
    """Arrays and traced values are instances of ``weft.Array``."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, (runtime.Array, Tracer))

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, (runtime.Array, Tracer))

    def __getattr__(cls, name: str) -> Any:
        """The methods and properties of arrays, looked up on the class."""
        if not hasattr(runtime.Array, name):
            _loader.load()
        return getattr(runtime.Array, name)

    def __dir__(cls) -> list[str]:
        _loader.load()
        return sorted({*dir(runtime.Array), *type.__dir__(cls)})


if TYPE_CHECKING:  # with all members of arrays
    Array = runtime.Array
else:

    class Array(metaclass=_ArrayMeta):
        """An immutable n-dimensional array on a device. Made by ``weft.numpy`` functions, not by calling the class."""

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            raise TypeError("[Array] arrays are made by functions such as weft.numpy.array and weft.numpy.zeros")


def live_arrays(platform: str | None = None) -> list[Any]:
    """Every Array of this process that is referred to and not deleted, on the devices of ``platform``.

    Arrays that weft's caches hold (captured constants, for example) are among them. RuntimeError for a platform
    that is not there.

    >>> x = jnp.zeros(3)
    >>> any(y is x for y in weft.live_arrays())
    True
    """
    arrays = runtime.live_arrays()
    if platform is None:
        return arrays
    wanted = set(devices.devices(platform))
    return [array for array in arrays if devices.device_at(array.place) in wanted]


# -- text -------------------------------------------------------------------------------------------------------------


def _repr(array: Any) -> str:
    """JAX's text: values, shape where they do not show it, dtype, weak type."""
    if dtypes.is_extended(array.dtype) and _has_values(array):
        return f"Array({array.shape}, dtype={array.dtype.name}) overlaying:\n{avals.key_words(array)}"
    if not _has_values(array):
        return f"Array(shape={array.shape}, dtype={array.dtype.name})"
    suffix = f"dtype={array.dtype.name}" + (", weak_type=True" if array.weak_type else "")
    values = np.asarray(array)
    if values.size == 0:
        text = f"[], shape={values.shape}"
    else:
        text = np.array2string(values, prefix="Array(", suffix=",", separator=", ")
    last_line = len(text) - (text.rfind("\n") + 1)
    fits = last_line + len(suffix) + 4 <= np.get_printoptions()["linewidth"]
    separator = ", " if fits else "," + " " * len("Array(")  # on the same line, as JAX has it
    return f"Array({text}{separator}{suffix})"


def _has_values(array: Any) -> bool:
    """Whether this process has all elements of an array."""
    return not devices.spans_processes(array.place) or not runtime.array_is_part(array)


def _str(array: Any) -> str:
    return _repr(array) if dtypes.is_extended(array.dtype) or not _has_values(array) else str(np.asarray(array))


def _format(array: Any, spec: str) -> str:
    if dtypes.is_extended(array.dtype) or not _has_values(array):
        return format(_repr(array), spec)
    values = np.asarray(array)
    return format(values[()] if values.ndim == 0 else values, spec)


# -- Python scalars ---------------------------------------------------------------------------------------------------


def _require_scalar(array: Any) -> Any:
    if array.ndim != 0:
        raise TypeError(f"Only scalar arrays can be converted to Python scalars; got arr.ndim={array.ndim}")
    return np.asarray(array).item()


def _bool(array: Any) -> bool:
    if array.size == 0:
        raise ValueError(
            "The truth value of an empty array is ambiguous. Use `array.size > 0` to check that an array is not empty."
        )
    if array.size > 1:
        raise ValueError("The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()")
    return bool(np.asarray(array))


def _int(array: Any) -> int:
    return int(_require_scalar(array))


def _float(array: Any) -> float:
    return float(_require_scalar(array))


def _complex(array: Any) -> complex:
    return complex(_require_scalar(array))


def _index(array: Any) -> int:
    if array.ndim != 0 or not dtypes.issubdtype(array.dtype, np.integer):
        raise TypeError("Only integer scalar arrays can be converted to a scalar index.")
    return int(np.asarray(array).item())


def _item(array: Any, *index: Any) -> Any:
    """One element as a Python scalar."""
    return np.asarray(array).item(*index)


def _tolist(array: Any) -> Any:
    """Nested lists of Python scalars."""
    values = np.asarray(array)
    if values.size < _LONG_LIST:
        return values.tolist()
    if values.ndim > 1 and len(values) < _LONG_LIST:
        return [_tolist(row) for row in values]
    step = max(1, _LONG_LIST // (values.size // len(values)))
    return [item for low in range(0, len(values), step) for item in values[low : low + step].tolist()]


def _tobytes(array: Any, order: str = "C") -> bytes:
    """The elements' bytes."""
    values = np.asarray(array)
    if order not in ("C", None):
        return values.tobytes(order)  # type: ignore[arg-type] - any object: NumPy refuses what it does not know
    return runtime.numpy_bytes(values)


def _len(array: Any) -> int:
    if array.ndim == 0:
        raise TypeError("len() of unsized object")
    return array.shape[0]


def _iter(array: Any) -> Iterator[Any]:
    if array.ndim == 0:
        raise TypeError("iteration over a 0-d array")
    aval = array.aval.update(shape=array.shape[1:])
    if dtypes.is_extended(array.dtype):
        return iter([array[index] for index in range(array.shape[0])])
    return map(_Row(aval), np.asarray(array))


class _Row:
    """Makes an Array of one row of a NumPy array."""

    __slots__ = ("aval",)

    def __init__(self, aval: Any) -> None:
        self.aval = aval

    def __call__(self, row: Any) -> Any:
        return runtime.array_from_numpy(np.asarray(row), self.aval)


def _setitem(array: Any, index: Any, value: Any) -> None:
    raise TypeError(
        "JAX arrays are immutable and do not support in-place item assignment. "
        "Instead of x[idx] = y, use x = x.at[idx].set(y) or another .at[] method: "
        "https://docs.jax.dev/en/latest/_autosummary/jax.numpy.ndarray.at.html"
    )


# -- copies and pickles -----------------------------------------------------------------------------------------------


def _copy(array: Any) -> Any:
    """A new Array with memory of its own."""
    return array.copy()


def _deepcopy(array: Any, memo: dict[int, Any]) -> Any:
    return _copy(array)


def rebuild(data: Any, shape: tuple[int, ...], dtype: Any, weak_type: bool) -> Any:
    """The Array that was pickled: ``data`` holds the bytes of its elements, for an extended dtype of its words.

    A state that says of no array what it is raises TypeError or ValueError. Nothing but plain values is read, and no
    code of theirs is run.
    """
    if type(shape) is not tuple or any(type(extent) is not int or extent < 0 for extent in shape):
        raise ValueError("[Array] a pickle whose shape is not a tuple of sizes")
    extended = issubclass(type(dtype), dtypes.ExtendedDType)
    if not (extended or type(dtype) is str) or type(weak_type) is not bool:
        raise TypeError(f"[Array] a pickle with a dtype of {type(dtype)} and a weak type of {type(weak_type)}")
    found = dtypes.as_dtype(dtype)
    if not dtypes.is_supported(found):
        raise TypeError(f"[Array] a pickle of dtype {found}, which no array has")
    aval = runtime.ShapedArray(shape, found, weak_type=weak_type)
    physical = avals.physical_aval(aval) if extended else aval
    held = memoryview(data)
    if held.format != "B":
        raise TypeError(f"[Array] a pickle with {type(data).__name__} of format {held.format!r} instead of bytes")
    if held.nbytes != physical.nbytes:
        raise ValueError(f"[Array] a pickle of {physical.str_short()} with {held.nbytes} bytes")
    values = np.frombuffer(held, np.uint8)
    if physical.dtype == np.bool_ and held.nbytes and values.max() > 1:
        raise ValueError("[Array] a pickle of bools with bytes other than 0 and 1")
    values = values.view(physical.dtype).reshape(physical.shape)
    if extended:
        return avals.from_numpy(values, aval)
    narrow = dtypes.canonicalize_dtype(found)
    return runtime.array_from_numpy(values.astype(narrow, copy=False), aval.update(dtype=narrow))


def _reduce(array: Any, protocol: int = pickle.DEFAULT_PROTOCOL) -> tuple[Any, ...]:
    """Plain values for ``rebuild``; from protocol 5 on the bytes may travel beside the pickle, without a copy."""
    extended = dtypes.is_extended(array.dtype)
    values = avals.key_words(array) if extended else np.asarray(array)
    data = pickle.PickleBuffer(values.reshape(-1).view(np.uint8)) if protocol >= 5 else runtime.numpy_bytes(values)  # type: ignore[arg-type] - an ndarray is a buffer
    return rebuild, (data, array.shape, array.dtype if extended else array.dtype.name, array.weak_type)


# -- devices ----------------------------------------------------------------------------------------------------------


def _devices(array: Any) -> set[devices.Device]:
    """The devices that hold the array."""
    return set(_sharding(array).device_list)


def _device(array: Any) -> Any:
    """The device that holds the array; the sharding if there are several."""
    sharding = _sharding(array)
    return sharding if isinstance(sharding, NamedSharding) else sharding.device_list[0]


def _sharding(array: Any) -> Sharding:
    """How the array lies on its devices."""
    return devices.sharding_at(array.place)


def _committed(array: Any) -> bool:
    """Whether the array was put on its device explicitly, so that computations with it run there."""
    return bool(array.place & 1)


def _is_fully_addressable(array: Any) -> bool:
    """Whether all devices that hold the array belong to this process."""
    return array.place <= 1 or _sharding(array).is_fully_addressable


def _is_fully_replicated(array: Any) -> bool:
    """Whether each device that holds the array has all of it."""
    return array.place <= 1 or _sharding(array).is_fully_replicated


def _shards(array: Any) -> list[Any]:
    """The parts of the array by device."""
    return lazy.shards.shards_of(array)


def _global_shards(array: Any) -> list[Any]:
    """The parts of the array by device, also those of other processes."""
    return lazy.shards.global_shards_of(array)


def _addressable_data(array: Any, index: int) -> Any:
    """The part of the array on the ``index``-th device of this process."""
    return lazy.shards.addressable_data(array, index)


def _to_device(array: Any, device: Any, *, stream: Any = None) -> Any:
    """The array on ``device``."""
    if stream is not None:
        raise NotImplementedError("[to_device] streams other than the device's own")
    return lazy.submodule("weft.dispatch.devices.placement").device_put(array, device)


def _platform(array: Any) -> str:
    return devices.device_at(array.place).platform


def _on_device_size_in_bytes(array: Any) -> int:
    return array.nbytes if array.place <= 1 else lazy.shards.nbytes_of_part(array)


def _copy_to_host_async(array: Any) -> None:
    """Start the copy to the host's memory that ``numpy.asarray`` needs; on the CPU there is nothing to do."""
    runtime.copy_to_host_async(array)


_METHODS: dict[str, Callable[..., Any]] = {
    "__repr__": _repr, "__str__": _str, "__format__": _format,
    "__bool__": _bool, "__int__": _int, "__float__": _float, "__complex__": _complex, "__index__": _index,
    "__len__": _len, "__iter__": _iter, "__setitem__": _setitem,
    "__copy__": _copy, "__deepcopy__": _deepcopy, "__reduce__": _reduce,
    "__reduce_ex__": _reduce,
    "item": _item, "tolist": _tolist, "tobytes": _tobytes,
    "devices": _devices, "addressable_data": _addressable_data, "to_device": _to_device, "platform": _platform,
    "on_device_size_in_bytes": _on_device_size_in_bytes, "copy_to_host_async": _copy_to_host_async,
}  # fmt: skip

_PROPERTIES: dict[str, Callable[..., Any]] = {
    "device": _device, "sharding": _sharding, "addressable_shards": _shards, "global_shards": _global_shards,
    "committed": _committed, "is_fully_addressable": _is_fully_addressable,
    "is_fully_replicated": _is_fully_replicated,
}  # fmt: skip


# -- operators before weft.numpy is loaded ----------------------------------------------------------------------------

_BINARY = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow", "matmul", "and", "or", "xor",
    "lshift", "rshift",
)  # fmt: skip
_OTHERS = (
    "eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "abs", "invert", "getitem", "contains", "round",
    "array_namespace",
)  # fmt: skip
_DEFERRED = [f"__{name}__" for name in (*_BINARY, *(f"r{name}" for name in _BINARY), *_OTHERS)]


class _Loader:
    """Loads ``weft.numpy.array_methods``, which replaces the methods below by its own, at their first use."""

    def __init__(self) -> None:
        self.done = False
        self.inside: set[int] = set()  # the threads that load it or wait for the one that does

    def load(self) -> None:
        """Load it; within its own import, nothing."""
        thread = threading.get_ident()
        if self.done or thread in self.inside:
            return
        self.inside.add(thread)
        try:
            lazy.submodule("weft.numpy.array_methods")
            self.done = True
        finally:
            self.inside.discard(thread)


_loader = _Loader()
_late: set[Any] = set()  # functions that stand for a method until it is loaded


def _loading(name: str) -> Callable[..., Any]:
    def operate(self: Any, *args: Any, **kwargs: Any) -> Any:
        _loader.load()
        method = getattr(type(self), name)  # also where another thread has replaced it since this one looked it up
        return NotImplemented if method in _late else method(self, *args, **kwargs)

    operate.__name__ = name
    _late.add(operate)
    return operate


def _missing(self: Any, name: str) -> Any:
    if not name.startswith("__"):
        _loader.load()
        if hasattr(type(self), name):
            return object.__getattribute__(self, name)
    raise AttributeError(f"'{type(self).__name__}' object has no attribute {name!r}")


def _dir(self: Any) -> Any:
    _loader.load()
    return object.__dir__(self)


_missing_on_tracer = Tracer.__getattr__


def _missing_traced(self: Any, name: str) -> Any:
    if not name.startswith("__"):
        _loader.load()
        if hasattr(type(self), name):
            return object.__getattribute__(self, name)
    return _missing_on_tracer(self, name)


def _install() -> None:
    for target in (runtime.Array, Tracer):
        for name in _DEFERRED:
            setattr(target, name, _loading(name))
        target.__dir__ = _dir  # type: ignore[method-assign] - made here on purpose
    Tracer.__iter__ = _loading("__iter__")  # type: ignore[method-assign] - likewise
    runtime.Array.__getattr__ = _missing  # type: ignore[attr-defined]
    Tracer.__getattr__ = _missing_traced  # type: ignore[method-assign]
    Tracer.__hash__ = None  # type: ignore[assignment]
    for name, method in _METHODS.items():
        setattr(runtime.Array, name, method)
    for name, getter in _PROPERTIES.items():
        setattr(runtime.Array, name, property(getter))
    runtime.Array.__hash__ = None  # type: ignore[assignment]
    runtime.Array.__array_priority__ = 100  # type: ignore[attr-defined]


_install()
