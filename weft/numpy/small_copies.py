"""Small arrays that are filled, joined and reversed directly, outside of programs, whatever their shapes.

Below some kilobytes a copy takes less time than starting a program, and no program has to be made for a new shape.
The functions give None where a program has to do it: under a trace, for large arrays, if somebody watches operations.

    concatenate([f32[30], f32[31]])    ->    61 floats, copied
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import config, dtypes, runtime
from weft._base import lazy
from weft.core.sharding import explicit
from weft.core.tracing import trace as tracing
from weft.dispatch import devices

_COPIED = 256 << 10  # bytes up to which a view is a copy: memory that is shared cannot be donated
_LARGE = 3e38  # below, a float is a finite float32
_FAR = 1 << 62  # integers below fit in 64 bits

_OWN: dict[type, Any] = {int: np.dtype(np.int64), float: np.dtype(np.float64)}  # dtypes of Python's numbers

_CODES = {(False, False): "=i", (False, True): "=f", (True, False): "=q", (True, True): "=d"}

_unwatched = -1  # the latest configuration under which nothing watched operations
_floats: dict[int, Any] = {}  # that configuration -> its default float dtype


def is_unwatched() -> bool:
    """Whether nothing looks at the results of operations, and those of the CPU's arrays are on the CPU."""
    if config.keys_watched and config.read("debug_key_reuse"):
        return False
    if config.execution_watched and config.read("no_execution"):
        return False
    if config.read("checks"):
        return False
    return not lazy.submodule("weft.effects.number_checks").enabled() and devices.default_place() == 0


def may_copy() -> bool:
    """Whether arrays may be copied outside of programs: no trace is open, and nobody watches operations."""
    global _unwatched
    if tracing.state.trace is not tracing.EVAL:
        return False
    token = runtime.get_config_token()
    if token == _unwatched:
        return True
    if not is_unwatched():
        return False
    _unwatched = token
    return True


def rolled(array: Any, shift: int, axis: int) -> Any:
    """An array rolled along one axis."""
    if type(array) is not runtime.Array or array.weak_type or abs(shift) >= _FAR or not may_copy():
        return None
    return runtime.rolled_copy(array, shift, axis)


def reshaped(array: Any, shape: tuple[int, ...]) -> Any:
    """An array with another shape of as many elements: one too large to be copied shares the memory."""
    if type(array) is not runtime.Array or array.place or not may_copy():
        return None
    aval = array.aval
    if not isinstance(aval.dtype, np.dtype) or explicit.is_used():
        return None
    if aval.nbytes <= _COPIED:
        return runtime.reshaped_copy(array, shape)
    return runtime.array_alias(array, runtime.ShapedArray(shape, aval.dtype, aval.weak_type))


def padded(array: Any, value: Any, widths: Sequence[Sequence[int]]) -> Any:
    """An array with numbers before and after along every axis, that its dtype holds."""
    if type(array) is not runtime.Array or not array.ndim or array.weak_type or not may_copy():
        return None
    dtype = array.dtype
    if not isinstance(dtype, np.dtype) or type(value) not in _PADS.get(dtype.kind, ()):
        return None
    if abs(value) > 100:  # every dtype holds less
        return None
    given = widths if type(widths[0][0]) is int else [(int(low), int(high)) for low, high in widths]
    lows = tuple([low for low, _ in given])
    shape = tuple([low + extent + high for extent, (low, high) in zip(array.shape, given, strict=True)])
    element = _element(value, dtype) if type(value) is int else np.asarray(value, dtype).tobytes()
    return None if element is None else runtime.padded_copy(array, lows, shape, element)


_PADS: dict[str, Any] = {"i": (int,), "f": (int, float)}  # by kind of dtype


def spaced(num: int, start: Any, stop: Any, endpoint: bool) -> Any:
    """``num`` evenly spaced numbers of the default float dtype."""
    for end in (start, stop):
        if not (type(end) is float or (type(end) is int and abs(end) < 1 << 24)) or not -_LARGE < end < _LARGE:
            return None
    if num < 0 or explicit.is_used() or not may_copy():
        return None
    return runtime.spaced_small((num,), default_float(), start, stop, endpoint)


def joined(arrays: Sequence[Any], axis: int, stacked: bool = False) -> Any:
    """Arrays of one dtype one behind the other along ``axis``, a new one if ``stacked``."""
    return runtime.joined_copy(tuple(arrays), axis, stacked) if may_copy() else None


def in_reverse(array: Any, dims: tuple[int, ...]) -> Any:
    """An array with dimensions in reverse order."""
    return runtime.reversed_copy(array, dims) if may_copy() else None


@functools.lru_cache(maxsize=256)
def _element(value: int, dtype: np.dtype) -> bytes | None:
    """The bytes of an element; None for dtypes whose elements are not bytes."""
    return np.asarray(value).astype(dtype).tobytes() if dtype.kind in "biufc" or dtype == dtypes.bfloat16 else None


def default_float() -> Any:
    """float32, or float64 with x64."""
    token = runtime.get_config_token()
    found = _floats.get(token)
    if found is None:
        found = dtypes.canonicalize_dtype(np.float64)
        _floats.clear()
        _floats[token] = found
    return found


def filled(shape: tuple[int, ...], value: int, dtype: np.dtype) -> Any:
    """An array of equal elements."""
    element = _element(value, dtype)
    if element is None or explicit.is_used() or not may_copy():
        return None
    return runtime.filled_small(shape, dtype, element, False)


def filled_like(array: Any, value: int) -> Any:
    """An array of equal elements, of the type of ``array``."""
    if type(array) is not runtime.Array or array.place or array.weak_type:
        return None
    aval = array.aval
    return filled(aval.shape, value, aval.dtype) if isinstance(aval.dtype, np.dtype) else None


def full(shape: tuple[int, ...], value: Any, dtype: np.dtype | None) -> Any:
    """An array of a Python number: a weak one of its own dtype, or of ``dtype`` if that holds such numbers."""
    own = _OWN.get(type(value))
    if own is None or (type(value) is int and abs(value) >= 1 << 31) or explicit.is_used() or not may_copy():
        return None
    wide = default_float().itemsize == 8
    target = own if wide else dtypes.float32 if own is _OWN[float] else dtypes.int32
    if dtype is not None and dtype != target:
        return None
    if target is dtypes.float32 and not -_LARGE < value < _LARGE:
        element = np.asarray(value, target).tobytes()
    else:
        element = struct.pack(_CODES[wide, own is _OWN[float]], value)
    return runtime.filled_small(shape, target, element, dtype is None)


def counted_from(first: int, size: int) -> Any:
    """``size`` (none below 0) integers of the default dtype from ``first``."""
    if not (0 <= first < 1 << 31 and first + size < 1 << 31) or explicit.is_used() or not may_copy():
        return None
    dtype = dtypes.int64 if default_float().itemsize == 8 else dtypes.int32
    return runtime.counted_small((max(size, 0),), dtype, first, 1)


def counted(otherwise: Callable[..., Any], *, size: int, first: Any, step: Any, dtype: np.dtype) -> Any:
    """``first + step * i`` for i below ``size``, in integers, or what ``otherwise`` makes of the same arguments."""
    start, pace = 0 if first is None else first, 1 if step is None else step
    simple = type(start) is int and type(pace) is int and abs(start) < _FAR and abs(pace) < _FAR
    found = None
    if simple and dtype.kind in "iu" and not explicit.is_used() and may_copy():
        found = runtime.counted_small((size,), dtype, start, pace)
    return found if found is not None else otherwise(size=size, first=first, step=step, dtype=dtype)
