"""Making arrays: from Python and NumPy values, filled, counted, and identity-like.

``array`` and ``asarray`` take anything NumPy does, and nested lists that hold arrays or tracers, which are stacked.
Python scalars stay weakly typed; lists do not::

    array([x, 1.0])  ->  broadcast_in_dim x, broadcast_in_dim 1.0, concatenate    # x: f32[]
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import core, dtypes, errors, runtime
from weft import operations as lax
from weft._base import lazy
from weft._base.array import Array
from weft.core.symbolic import open_sizes, sizes
from weft.dispatch import devices
from weft.dispatch.calls import jit as jit_module
from weft.dispatch.devices import placement, transfers
from weft.effects import number_checks
from weft.numpy import axes, promotion, small_copies

inline = functools.partial(jit_module.jit, inline=True)
jit = jit_module.jit


def _leaves(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        return [value]
    if not any(issubclass(kind, list | tuple) for kind in set(map(type, value))):
        return list(value)
    return [leaf for item in value for leaf in _leaves(item)]


def array(
    object: Any,
    dtype: Any = None,
    copy: bool = True,
    order: str | None = "K",
    ndmin: int = 0,
    *,
    device: Any = None,
    out_sharding: Any = None,
) -> Array:
    """A new array from ``object``: scalars, sequences, NumPy arrays, arrays, or anything with ``__array__``.

    TypeError for what is not numeric, ValueError for ragged sequences and None, OverflowError for integers out of
    range, FloatingPointError for a NaN or infinity that ``debug_nans`` or ``debug_infs`` forbids. ``ndmin`` adds
    leading axes.

    >>> array([1, 2.5]).tolist()
    [1.0, 2.5]
    """
    if device is not None or out_sharding is not None:
        return devices.placed(
            lambda: array(object, dtype, copy, order, ndmin), device=device, out_sharding=out_sharding
        )
    if order not in (None, "K", "C") or (order == "C" and isinstance(object, runtime.Array | core.Tracer)):
        raise NotImplementedError("Only implemented for order='K'")
    asked = None if dtype is None else dtypes.check_user_dtype(dtype, "array")
    guard = transfers.level()
    if guard is not None and not core.is_tracing():
        transfers.check(guard, object)
    result = _convert_object(object, asked, copy)
    if not isinstance(object, runtime.Array) and not core.is_tracing():
        result = devices.at_default(result)
    if number_checks.enabled() and not core.is_tracing() and not isinstance(object, runtime.Array):
        number_checks.check_results("array", (), (result,))
    rank = len(promotion.shape_of(result))
    if ndmin > rank:
        shape = (1,) * (ndmin - rank) + promotion.shape_of(result)
        result = lax.broadcast_in_dim(result, shape, tuple(range(ndmin - rank, ndmin)))
    return result


def asarray(
    a: Any,
    dtype: Any = None,
    order: str | None = None,
    *,
    copy: bool | None = None,
    device: Any = None,
    out_sharding: Any = None,
) -> Array:
    """``a`` as an array: itself if it is one of that dtype, otherwise as ``array`` makes it.

    With ``copy=False`` the result lies in the memory of ``a``, which the caller may not write to afterwards; ValueError
    if that needs a copy: another dtype, memory that is not dense or not aligned to its elements. Lists and scalars have
    no such memory, and what 32-bit mode narrows cannot stay in it: these are converted, as in JAX.

    >>> asarray(2).dtype.name
    'int32'
    """
    if device is not None or out_sharding is not None:
        return devices.placed(lambda: asarray(a, dtype, order, copy=copy), device=device, out_sharding=out_sharding)
    if type(a) is runtime.Array and dtype is None and not copy and order in (None, "K"):
        return a
    if dtype is not None:
        dtype = dtypes.check_user_dtype(dtype, "asarray")
    if core.is_masked(a):
        core.get_aval(a)  # raises: the mask would be lost
    shares = copy is not None and not copy
    return array(_shared(a, dtype) if shares else a, dtype=dtype, copy=bool(copy), order=order)


def _shared(value: Any, dtype: Any) -> Any:
    """``value`` as an array on the memory it has already."""
    if not isinstance(value, runtime.Array | core.Tracer) and hasattr(value, "__jax_array__"):
        value = value.__jax_array__()
    held = value
    if not isinstance(value, runtime.Array | core.Tracer):
        try:
            held = np.asarray(value, copy=False)
        except ValueError:  # a list or a number has no memory to share
            return value
    target = dtypes.canonicalize_dtype(held.dtype, allow_extended_dtype=True) if dtype is None else dtype
    if held.dtype != target:
        if dtype is None and held.dtype.itemsize != target.itemsize:  # narrowed by 32-bit mode, as in JAX
            return held
        raise ValueError(_NEEDS_COPY.format(f"an array of {held.dtype}", f"one of {target}"))
    if isinstance(held, np.ndarray):
        return runtime.array_from_numpy(held, runtime.ShapedArray(held.shape, target), copy=held.size == 0)
    return held


_NEEDS_COPY = "[asarray] copy=False, but {} becomes {} only by a copy; leave copy out to allow one"


def _convert_object(value: Any, dtype: Any, copy: bool) -> Any:
    if not isinstance(value, runtime.Array | core.Tracer) and hasattr(value, "__jax_array__"):
        value = value.__jax_array__()
    if isinstance(value, runtime.Array | core.Tracer):
        result = lax.copy_p.bind(value) if copy else value
        return result if dtype is None else promotion.convert(result, dtype)
    if isinstance(value, promotion.PYTHON_SCALARS):
        return _convert_scalar(value, dtype)
    if isinstance(value, np.ndarray | np.generic):
        return _convert_host(value, dtype, value)
    if value is None:
        raise ValueError("None is not a valid value for jnp.array")
    if isinstance(value, list | tuple | range):
        return _convert_sequence(value, dtype)
    if isinstance(value, str | bytes):
        return _convert_host(np.asarray(value), dtype, value)
    if hasattr(value, "__cuda_array_interface__"):
        return _convert_object(lazy.cuda_devices.taken(value, copy or None), dtype, False)
    return _convert_host(np.asarray(value), dtype, value)


def _convert_scalar(value: Any, dtype: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        target = dtypes.canonicalize_dtype(np.int64) if dtype is None else dtype
        if np.dtype(target).kind in "iu" and not _fits(value, target):
            words = (
                "integer {} out of bounds for" if np.dtype(target).itemsize < 4 else "int {} too large to convert to"
            )
            raise OverflowError(f"Python {words.format(value)} {np.dtype(target).name}")
    if dtype is None or type(value) is sizes.Size:
        return promotion.as_array(value) if dtype is None else core.scalar(value, dtype)
    exact = isinstance(value, int) or dtypes.narrows(dtype)
    own = np.asarray(value) if exact else np.asarray(value, dtypes.result_type(value))
    converted = np.asarray(own.astype(dtype))
    if core.is_tracing():
        return lax.convert_element_type(core.wide(converted), dtype)
    return promotion.constant(converted, dtype=dtype)


def _fits(value: int, dtype: Any) -> bool:
    info = dtypes.iinfo(dtype)
    return int(info.min) <= value <= int(info.max)


def _convert_host(value: Any, dtype: Any, original: Any) -> Any:
    own = value.dtype
    if own.kind in "OSUMmV" and own != dtypes.float0 and not dtypes.issubdtype(own, np.number):
        text = original if not isinstance(original, np.generic | np.ndarray) else str(original)
        raise TypeError(
            f"Value '{text}' with dtype {own} is not a valid JAX array type. "
            "Only arrays of numeric types are supported by JAX."
        )
    native = own if own.isnative else own.newbyteorder("=")
    target = dtypes.canonicalize_dtype(native) if dtype is None else dtype
    value = np.asarray(value)
    if value.dtype != target:
        value = runtime.convert_numpy(value, target)
    if value.ndim or not core.is_tracing():
        return promotion.constant(value, dtype=target)
    return lax.convert_element_type(core.wide(value), target)


_FLOATS = {float}


def _convert_sequence(value: Any, dtype: Any) -> Any:
    if dtype is None and set(map(type, value)) == _FLOATS:  # a flat list of floats
        return promotion.constant(np.asarray(value))
    leaves = _leaves(value)
    kinds = dict(zip(map(type, leaves), leaves, strict=True))  # one leaf of each: there may be millions
    if type(None) in kinds:
        raise ValueError("None is not a valid value for jnp.array")
    if any(isinstance(leaf, runtime.Array | core.Tracer) or hasattr(leaf, "__jax_array__") for leaf in kinds.values()):
        target = dtypes.result_type(*map(promotion.unwrapped, leaves)) if dtype is None else dtype
        return promotion.convert(_stack_nested(value, target), target)
    if dtype is None and leaves and all(isinstance(leaf, promotion.PYTHON_SCALARS) for leaf in kinds.values()):
        dtype = dtypes.result_type(*kinds.values())
    if not leaves:
        dtype = dtypes.canonicalize_dtype(np.float64) if dtype is None else dtype
    if dtype is not None and np.dtype(dtype).kind in "iu":
        return _convert_host(
            np.asarray(value, dtype if all(issubclass(kind, int) for kind in kinds) else None), dtype, value
        )
    return _convert_host(np.asarray(value), dtype, value)


def _stack_nested(value: Any, dtype: Any) -> Any:
    """Nested sequences of arrays as one array: each item gets a leading axis, then they are concatenated."""
    if not isinstance(value, list | tuple):
        return promotion.convert(promotion.unwrapped(value), dtype)
    expanded, shapes = [], set()
    for item in value:
        item = _stack_nested(item, dtype)
        shape = promotion.shape_of(item)
        shapes.add(shape)
        expanded.append(lax.broadcast_in_dim(item, (1, *shape), tuple(range(1, len(shape) + 1))))
    if len(shapes) > 1:
        raise ValueError(f"All input arrays must have the same shape. Got {', '.join(map(str, sorted(shapes)))}.")
    return lax.concatenate(expanded, 0) if len(expanded) > 1 else expanded[0]


def copy(a: Any, order: str | None = None) -> Array:
    """A copy of ``a``.

    >>> copy(3).item()
    3
    """
    promotion.check_arraylike("copy", a)
    return array(a, copy=True, order=order)


def astype(x: Any, dtype: Any, /, *, copy: bool = False, device: Any = None) -> Array:
    """``x`` converted to ``dtype`` (None: the default float); floats are truncated to integers, NaN gives 0.

    >>> astype(2.7, int).item()
    2
    """
    if device is not None:
        return devices.placed(lambda: astype(x, dtype, copy=copy), device=device)
    promotion.check_arraylike("astype", x)
    target = dtypes.canonicalize_dtype(np.float64) if dtype is None else dtypes.check_user_dtype(dtype, "astype")
    own = promotion.dtype_of(x)
    if own.kind == "c" and target.kind == "b":
        return lax.ne(x, np.asarray(0, own))
    if own.kind == "c" and target.kind != "c":
        errors.warn(
            "Casting from complex to real dtypes drops the imaginary part, and JAX will refuse it: take the part that "
            "is meant first, by jnp.real or jnp.imag.",
            DeprecationWarning,
        )
        real = promotion.as_array(x)
        return lax.convert_element_type_p.bind(real, new_dtype=target, weak_type=False, sharding=None)
    result = _converted(x, dtype=target) if getattr(x, "aval", None) is not None else array(x, dtype=target)
    unchanged = copy and own == promotion.dtype_of(result) and isinstance(x, runtime.Array | core.Tracer)
    return lax.copy_p.bind(result) if unchanged else result


@functools.partial(jit_module.jit, inline=True, static_argnames=("dtype",))
def _converted(x: Any, *, dtype: Any) -> Any:
    return promotion.convert(x, dtype)


def full(shape: Any, fill_value: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Array:
    """An array of ``shape`` filled with ``fill_value`` (broadcast if it is an array).

    >>> full((2,), 7).tolist()
    [7, 7]
    """
    if device is not None or out_sharding is not None:
        return devices.placed(lambda: full(shape, fill_value, dtype), device=device, out_sharding=out_sharding)
    if dtype is None and type(shape) in (int, tuple):  # the commonest call
        found = small_copies.full((shape,) if type(shape) is int else shape, fill_value, None)
        if found is not None:
            return found
    promotion.check_arraylike("full", fill_value) if not isinstance(fill_value, str) else None
    if isinstance(fill_value, str):
        _convert_host(np.asarray(fill_value), None, fill_value)
    shape = axes.canonical_shape(shape)
    asked = None if dtype is None else dtypes.check_user_dtype(dtype, "full")
    if promotion.shape_of(fill_value) == ():
        found = small_copies.full(shape, fill_value, asked)
        return found if found is not None else lax.full(shape, fill_value, asked)
    return promotion.broadcast_to(asarray(fill_value, dtype=asked), shape)


def zeros(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Array:
    """An array of zeros, float32 (float64 with x64) unless ``dtype`` says otherwise.

    >>> zeros(2).tolist()
    [0.0, 0.0]
    """
    if device is not None or out_sharding is not None:
        return devices.placed(lambda: zeros(shape, dtype), device=device, out_sharding=out_sharding)
    return _filled("zeros", shape, 0, dtype)


def ones(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Array:
    """An array of ones, float32 (float64 with x64) unless ``dtype`` says otherwise.

    >>> ones(2).tolist()
    [1.0, 1.0]
    """
    if device is not None or out_sharding is not None:
        return devices.placed(lambda: ones(shape, dtype), device=device, out_sharding=out_sharding)
    return _filled("ones", shape, 1, dtype)


def empty(shape: Any, dtype: Any = None, *, device: Any = None, out_sharding: Any = None) -> Array:
    """An array of unspecified content; here zeros.

    >>> empty((2, 3)).shape
    (2, 3)
    """
    if device is not None or out_sharding is not None:
        return devices.placed(lambda: empty(shape, dtype), device=device, out_sharding=out_sharding)
    return _filled("empty", shape, 0, dtype)


def _filled(name: str, shape: Any, value: int, dtype: Any) -> Any:
    if dtype is None and type(shape) in (int, tuple):  # the commonest call; None for what is checked below
        found = small_copies.filled((shape,) if type(shape) is int else shape, value, small_copies.default_float())
        if found is not None:
            return found
    if isinstance(shape, str):
        raise TypeError(f"expected sequence object with len >= 0 or a single integer, got {shape!r}")
    if isinstance(dtype, int) and axes.is_one(shape):
        raise TypeError(
            f"Cannot interpret '{dtype}' as a data type. Did you accidentally write "
            f"`jax.numpy.{name}({shape}, {dtype})` when you meant `jax.numpy.{name}(({shape}, {dtype}))`, with one "
            "tuple for the shape?"
        )
    target = dtypes.canonicalize_dtype(np.float64) if dtype is None else dtypes.check_user_dtype(dtype, name)
    extents = axes.canonical_shape(shape)
    found = small_copies.filled(extents, value, target)
    return found if found is not None else _full(shape=extents, value=value, dtype=target)


@functools.partial(jit_module.jit, inline=True, static_argnames=("shape", "value", "dtype"))
def _full(*, shape: tuple[int, ...], value: int, dtype: Any) -> Any:
    return lax.full(shape, value, dtype)


def zeros_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None) -> Array:
    """Zeros of the shape and dtype of ``a``.

    >>> zeros_like(3).item()
    0
    """
    if device is not None or out_sharding is not None:
        return devices.placed(lambda: zeros_like(a, dtype, shape), device=device, out_sharding=out_sharding)
    return _filled_like("zeros_like", a, 0, dtype, shape)


def ones_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None) -> Array:
    """Ones of the shape and dtype of ``a``.

    >>> ones_like(3).item()
    1
    """
    if device is not None or out_sharding is not None:
        return devices.placed(lambda: ones_like(a, dtype, shape), device=device, out_sharding=out_sharding)
    return _filled_like("ones_like", a, 1, dtype, shape)


def empty_like(prototype: Any, dtype: Any = None, shape: Any = None, *, device: Any = None) -> Array:
    """An array of unspecified content with the shape and dtype of ``prototype``; here zeros.

    >>> empty_like(3).shape
    ()
    """
    if device is not None:
        return devices.placed(lambda: empty_like(prototype, dtype, shape), device=device)
    return _filled_like("empty_like", prototype, 0, dtype, shape)


def _filled_like(name: str, a: Any, value: int, dtype: Any, shape: Any) -> Any:
    found = small_copies.filled_like(a, value) if dtype is None is shape else None
    if found is not None:
        return found
    if not (hasattr(a, "dtype") and hasattr(a, "shape")):
        promotion.check_arraylike(name, a)
        a = promotion.unwrapped(a)
    target = None if dtype is None else dtypes.check_user_dtype(dtype, name)
    extents = None if shape is None else axes.canonical_shape(shape)
    return lax.full_like(a, value, target, extents)


def full_like(
    a: Any, fill_value: Any, dtype: Any = None, shape: Any = None, *, device: Any = None, out_sharding: Any = None
) -> Array:
    """An array of the shape and dtype of ``a`` filled with ``fill_value`` (broadcast if it is an array).

    >>> full_like(3, 5).item()
    5
    """
    if device is not None or out_sharding is not None:
        return devices.placed(lambda: full_like(a, fill_value, dtype, shape), device=device, out_sharding=out_sharding)
    if not (hasattr(a, "dtype") and hasattr(a, "shape")):
        promotion.check_arraylike("full_like", a)
        a = promotion.unwrapped(a)
    promotion.check_arraylike("full_like", 0, fill_value)
    fill_value = promotion.unwrapped(fill_value)
    target = None if dtype is None else dtypes.check_user_dtype(dtype, "full_like")
    extents = promotion.shape_of(a) if shape is None else axes.canonical_shape(shape)
    if promotion.shape_of(fill_value) == ():
        return lax.full_like(a, fill_value, target, extents)
    return promotion.broadcast_to(asarray(fill_value, dtype=target or promotion.dtype_of(a)), extents)


def arange(
    start: Any, stop: Any = None, step: Any = None, dtype: Any = None, *, device: Any = None, out_sharding: Any = None
) -> Array:
    """``start, start + step, ...`` up to but without ``stop``; with one argument it is the stop, from 0.

    All must be concrete: the length is part of the type. ValueError for complex or non-scalar arguments.

    >>> arange(3).tolist()
    [0, 1, 2]
    """
    if device is not None or out_sharding is not None:
        return devices.placed(lambda: arange(start, stop, step, dtype), device=device, out_sharding=out_sharding)
    start, stop, step = open_sizes.plain(start), open_sizes.plain(stop), open_sizes.plain(step)
    if type(start) is int and dtype is None is step and (stop is None or type(stop) is int):  # the commonest call
        first, last = (0, start) if stop is None else (start, stop)
        found = small_copies.counted_from(first, last - first)
        if found is not None:
            return found
    asked = None if dtype is None else dtypes.check_user_dtype(dtype, "arange")
    given = {"start": start, "stop": stop, "step": step}
    if stop is None and step is None:
        given = {"stop": start}
    for name, value in given.items():
        _check_arange_argument(name, value)
    values = [_concrete_scalar(value, name) for name, value in given.items() if value is not None]
    target = dtypes.result_type(*[v for v in given.values() if v is not None]) if asked is None else asked
    target = target if asked is not None else dtypes.canonicalize_dtype(target)
    if len(values) == 1:
        return small_copies.counted(_arange, size=max(0, math.ceil(values[0])), first=None, step=None, dtype=target)
    first = _concrete_scalar(start, "start")
    pace = 1 if step is None else _concrete_scalar(step, "step")
    last = first if stop is None else _concrete_scalar(stop, "stop")
    if stop is None:
        first = 0
    size = max(0, math.ceil((last - first) / pace))
    pace = None if step is None else pace
    return small_copies.counted(_arange, size=size, first=None if stop is None else first, step=pace, dtype=target)


@functools.partial(jit_module.jit, inline=True, static_argnames=("size", "first", "step", "dtype"))
def _arange(*, size: int, first: Any, step: Any, dtype: Any) -> Any:
    result = lax.iota(dtype, size)
    if step is not None:
        result = lax.mul(np.asarray(step).astype(dtype), result)
    return result if first is None else lax.add(np.asarray(first).astype(dtype), result)


def _check_arange_argument(name: str, value: Any) -> None:
    if value is None or type(value) is int or type(value) is float:
        return
    if isinstance(value, str):
        _convert_host(np.asarray(value), None, value)
    if promotion.shape_of(value) != ():
        raise ValueError(f"jax.numpy.arange: arguments must be scalars; got {name}={value}")
    if isinstance(value, complex) or dtypes.issubdtype(promotion.dtype_of(value), np.complexfloating):
        raise ValueError("Passing complex start/stop/step to jnp.arange is no longer supported.")


def _concrete_scalar(value: Any, name: str) -> Any:
    if type(value) is int or type(value) is float:
        return value
    if isinstance(value, core.Tracer):
        raise errors.ConcretizationTypeError(value, f"It arose in the jnp.arange argument '{name}'")
    return value.item() if hasattr(value, "item") else value


def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> list[Any]:
    """Coordinate matrices from coordinate vectors; with ``sparse`` extents of 1 are not broadcast.

    ValueError unless every argument has rank 0 or 1, ``copy`` is true and ``indexing`` is ``xy`` or ``ij``.

    >>> [m.shape for m in meshgrid(arange(2), arange(3))]
    [(3, 2), (3, 2)]
    """
    promotion.check_arraylike("meshgrid", *xi)
    if indexing not in ("ij", "xy"):
        raise ValueError(f"Valid values for indexing are 'xy' and 'ij', got {indexing}")
    if not copy:
        raise ValueError("jax.numpy.meshgrid only supports copy=True")
    vectors = [promotion.as_array(x) for x in xi]
    if any(len(promotion.shape_of(v)) != 1 for v in vectors):
        raise ValueError(
            f"Arguments to jax.numpy.meshgrid must be 1D, got shapes {[promotion.shape_of(v) for v in vectors]}"
        )
    if indexing == "xy" and len(vectors) >= 2:
        vectors[0], vectors[1] = vectors[1], vectors[0]
    extents = [promotion.shape_of(v)[0] for v in vectors]
    result = []
    for position, vector in enumerate(vectors):
        shape = [n if d == position or not sparse else 1 for d, n in enumerate(extents)]
        result.append(promotion.another(lax.broadcast_in_dim(vector, tuple(shape), (position,)), vector))
    if indexing == "xy" and len(result) >= 2:
        result[0], result[1] = result[1], result[0]
    return result


def indices(dimensions: Sequence[int], dtype: Any = None, sparse: bool = False) -> Any:
    """The indices of a grid: one array per dimension, stacked (or a tuple of sparse ones).

    >>> indices((2, 2)).shape
    (2, 2, 2)
    """
    for extent in dimensions if isinstance(dimensions, tuple | list) else ():
        if isinstance(extent, core.Tracer):
            raise errors.ConcretizationTypeError(extent, "dimensions argument of jnp.indices")
    shape = axes.canonical_shape(dimensions)
    target = np.dtype(np.int32) if dtype is None else dtypes.check_user_dtype(dtype, "indices")
    target = dtypes.canonicalize_dtype(np.int64) if dtype is None else target
    result = []
    for position, extent in enumerate(shape):
        extents = tuple(extent if d == position or not sparse else 1 for d, extent in enumerate(shape))
        result.append(lax.broadcast_in_dim(lax.iota(target, extent), extents, (position,)))
    if sparse:
        return tuple(result)
    return lax.stack(result, 0) if result else full((0,), 0, target)


def frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0) -> Array:
    """The bytes of ``buffer`` as a rank-1 array; they are copied.

    >>> frombuffer(b"abc", dtype="uint8").tolist()
    [97, 98, 99]
    """
    return asarray(np.frombuffer(buffer=buffer, dtype=dtype, count=count, offset=offset))


def fromiter(*args: Any, **kwargs: Any) -> Array:
    """The items of an iterable as a rank-1 array; arguments as NumPy's.

    >>> fromiter(range(2), dtype="int32").tolist()
    [0, 1]
    """
    return asarray(np.fromiter(*args, **kwargs))


def fromstring(string: str, dtype: Any = float, count: int = -1, *, sep: str) -> Array:
    """Numbers written in a string, separated by ``sep``, as a rank-1 array.

    >>> fromstring("1 2", sep=" ").tolist()
    [1.0, 2.0]
    """
    return asarray(np.fromstring(string=string, dtype=dtype, count=count, sep=sep))


def fromfile(*args: Any, **kwargs: Any) -> Any:
    """Not offered: ``fromfile`` reads a file each time it runs, which a compiled program cannot repeat."""
    raise NotImplementedError(
        "jnp.fromfile() is not implemented because it may be non-pure and thus unsafe for use with JIT and other "
        "transformations. Consider using jnp.asarray(np.fromfile(...)) instead."
    )


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """An array on the memory of another library's array; do not write to it afterwards unless ``copy`` is true.

    ``device``: where it shall be. What must be copied to get there raises ValueError with ``copy=False``.

    >>> from_dlpack(np.ones(2, np.float32)).tolist()
    [1.0, 1.0]
    """
    if hasattr(x, "__cuda_array_interface__"):
        lazy.cuda_devices.find()
    made = runtime.from_dlpack(x, copy=copy)
    return made if device is None else placement.moved_or_lent(made, device, copy)
