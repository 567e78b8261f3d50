"""The Python side of Array: text, conversion to Python scalars, iteration, pickling, devices.

The native type ``runtime.Array`` holds a dense buffer and its aval; here it gets the methods that need no
computation. Operators, indexing and the array methods are installed by ``weft.numpy``. ``weft.Array`` is the public
name for annotations and ``isinstance``, which also holds for traced values.

    repr(x)      Array([1., 2., 3.], dtype=float32)        float(x[0])    1.0
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from weft import dtypes, runtime
from weft._base import lazy
from weft.core import avals
from weft.core.tracer import Tracer
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


class Array(metaclass=_ArrayMeta):
    """An immutable n-dimensional array on a device. Made by ``weft.numpy`` functions, never by calling the class."""

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
    devices.check_backend(platform)
    return runtime.live_arrays()


# -- text -------------------------------------------------------------------------------------------------------------


def _repr(array: Any) -> str:
    """JAX's text: values, shape where they do not show it, dtype, weak type."""
    if dtypes.is_extended(array.dtype):
        return f"Array({array.shape}, dtype={array.dtype.name}) overlaying:\n{avals.key_words(array)}"
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


def _str(array: Any) -> str:
    return _repr(array) if dtypes.is_extended(array.dtype) else str(np.asarray(array))


def _format(array: Any, spec: str) -> str:
    if dtypes.is_extended(array.dtype):
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


def rebuild(values: np.ndarray, dtype: Any, weak_type: bool) -> Any:
    """The Array that was pickled as ``values`` (for an extended dtype: its words)."""
    if dtypes.is_extended(dtype):
        return avals.from_numpy(values, runtime.ShapedArray(values.shape[: -len(dtype.physical_shape)], dtype))
    narrow = dtypes.canonicalize_dtype(values.dtype)
    aval = runtime.ShapedArray(values.shape, narrow, weak_type=weak_type)
    return runtime.array_from_numpy(values.astype(narrow, copy=False), aval)


def _reduce(array: Any) -> tuple[Any, ...]:
    extended = dtypes.is_extended(array.dtype)
    values = avals.key_words(array) if extended else np.asarray(array)
    return rebuild, (values, array.dtype, array.weak_type)


# -- devices ----------------------------------------------------------------------------------------------------------


def _devices(array: Any) -> set[devices.Device]:
    """The devices that hold the array."""
    return {devices.CPU}


def _device(array: Any) -> devices.Device:
    """The device that holds the array."""
    return devices.CPU


def _sharding(array: Any) -> devices.Sharding:
    """How the array lies on its devices."""
    return devices.DEFAULT_SHARDING


def _shards(array: Any) -> list[devices.Shard]:
    """The parts of the array by device: one."""
    return [devices.Shard(devices.CPU, devices.DEFAULT_SHARDING, array.shape, array)]


def _addressable_data(array: Any, index: int) -> Any:
    """The part of the array on the ``index``-th device of this process."""
    if index != 0:
        raise IndexError(f"[addressable_data] index {index} for an array on 1 device")
    return array


def _to_device(array: Any, device: Any, *, stream: Any = None) -> Any:
    """The array on ``device``."""
    if stream is not None:
        raise NotImplementedError("[to_device] streams other than the device's own")
    devices.as_device(device)
    return array


def _platform(array: Any) -> str:
    return devices.CPU.platform


def _on_device_size_in_bytes(array: Any) -> int:
    return array.nbytes


def _copy_to_host_async(array: Any) -> None:
    """Nothing to do: the memory is the host's."""


def _yes(array: Any) -> bool:
    return True


def _no(array: Any) -> bool:
    return False


_METHODS: dict[str, Callable[..., Any]] = {
    "__repr__": _repr, "__str__": _str, "__format__": _format,
    "__bool__": _bool, "__int__": _int, "__float__": _float, "__complex__": _complex, "__index__": _index,
    "__len__": _len, "__iter__": _iter, "__setitem__": _setitem,
    "__copy__": _copy, "__deepcopy__": _deepcopy, "__reduce__": _reduce,
    "item": _item, "tolist": _tolist, "tobytes": _tobytes,
    "devices": _devices, "addressable_data": _addressable_data, "to_device": _to_device, "platform": _platform,
    "on_device_size_in_bytes": _on_device_size_in_bytes, "copy_to_host_async": _copy_to_host_async,
}  # fmt: skip

_PROPERTIES: dict[str, Callable[..., Any]] = {
    "device": _device, "sharding": _sharding, "addressable_shards": _shards, "global_shards": _shards,
    "committed": _no, "is_fully_addressable": _yes, "is_fully_replicated": _yes,
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
    """Loads ``weft.numpy``, which replaces the methods below by its own, at their first use."""

    thread: int | None = None
    done = False

    def load(self) -> bool:
        """True if it is loaded now and was not before; another thread that loads it is waited for."""
        if self.done or self.thread == threading.get_ident():
            return False
        self.thread = self.thread or threading.get_ident()
        lazy.submodule("weft.numpy")
        self.done = True
        return True


_loader = _Loader()


def _loading(name: str) -> Callable[..., Any]:
    def operate(self: Any, *args: Any) -> Any:
        return getattr(type(self), name)(self, *args) if _loader.load() else NotImplemented

    operate.__name__ = name
    return operate


def _missing(self: Any, name: str) -> Any:
    if not name.startswith("__") and _loader.load():
        return getattr(self, name)
    raise AttributeError(f"'{type(self).__name__}' object has no attribute {name!r}")


_missing_on_tracer = Tracer.__getattr__


def _missing_traced(self: Any, name: str) -> Any:
    if not name.startswith("__") and _loader.load():
        return getattr(self, name)
    return _missing_on_tracer(self, name)


def _install() -> None:
    for target in (runtime.Array, Tracer):
        for name in _DEFERRED:
            setattr(target, name, _loading(name))
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
