"""Bits, uniform floats, integers, normal values: what every distribution is made of.

A float in [1, 2) is made by putting random bits in the mantissa of 1.0; integers combine two draws of bits so that the
remainder is nearly unbiased; normal values are the inverse error function of uniform ones. Bits are JAX's.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from weft import dtypes, errors, runtime
from weft import operations as lax
from weft._base.array import Array
from weft.dispatch import devices
from weft.dispatch.calls import jit as jit_module
from weft.numpy import axes, promotion, small_copies
from weft.numpy.pointwise import selection
from weft.numpy.subscripts import indexing
from weft.operations.pointwise import functions
from weft.random import keys, prng

jit = jit_module.jit
_STATIC = ("shape", "dtype")


def bits(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Random bits as unsigned integers, uint32 unless ``dtype`` says otherwise.

    >>> bits(keys.key(0)).item()
    4070199207
    """
    if out_sharding is not None:
        return devices.placed(lambda: bits(key, shape, dtype), out_sharding=out_sharding)
    typed = keys.single("bits", key)
    target = dtypes.canonicalize_dtype(np.uint64) if dtype is None else dtypes.check_user_dtype(dtype, "bits")
    if dtype is None:
        target = np.dtype(np.uint32) if target.itemsize == 4 else target
    if not dtypes.issubdtype(target, np.unsignedinteger):
        raise ValueError(f"dtype argument to `bits` must be an unsigned int dtype, got {target}")
    shape = checked_shape("random_bits", axes.canonical_shape(shape))
    if not small_copies.may_copy():  # under a trace the equation of bits alone is recorded, as in JAX
        return raw_bits(typed, 8 * target.itemsize, shape)
    return in_a_row(_bits, typed, shape=shape, bit_width=8 * target.itemsize)


@functools.partial(jit, static_argnames=("shape", "bit_width"))
def _bits(key: Any, *, shape: tuple[int, ...], bit_width: int) -> Any:
    return raw_bits(key, bit_width, shape)


def raw_bits(key: Any, bit_width: int, shape: tuple[int, ...]) -> Array:
    """Random unsigned integers of a width."""
    return prng.random_bits_p.bind(key, bit_width=bit_width, shape=checked_shape("random_bits", shape))


def checked_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """``shape`` if no extent is negative."""
    if any(extent < 0 for extent in shape):
        raise ValueError(f"[{name}] a shape must not have negative extents, got {shape}")
    return shape


def in_a_row(draw: Any, key: Any, *parameters: Any, shape: tuple[int, ...], **options: Any) -> Array:
    """``draw(key, *parameters, shape=)``, outside of programs drawn as one dimension and then reshaped.

    The values are the same: each is made of its row-major number. The number of an element in a single dimension needs
    no extents, so that no program is compiled for a new shape.
    """
    if len(shape) < 2 or type(key) is not runtime.Array or key.dtype is not prng.THREEFRY.key_dtype:
        return draw(key, *parameters, shape=shape, **options)
    if min(shape) < 1 or any(map(promotion.shape_of, parameters)) or not small_copies.may_copy():
        return draw(key, *parameters, shape=shape, **options)
    return draw(key, *parameters, shape=(math.prod(shape),), **options).reshape(shape)


def float_dtype(name: str, dtype: Any) -> Any:
    """The float dtype a sampler was asked for, or the default one; ValueError if it is no float."""
    target = dtypes.canonicalize_dtype(np.float64) if dtype is None else dtypes.check_user_dtype(dtype, name)
    if not dtypes.issubdtype(target, np.floating):
        raise ValueError(f"dtype argument to `{name}` must be a float dtype, got {target}")
    return target


def uniform(
    key: Any, shape: Any = (), dtype: Any = None, minval: Any = 0.0, maxval: Any = 1.0, *, out_sharding: Any = None
) -> Array:
    """Floats drawn evenly from ``minval`` (included) to ``maxval`` (excluded).

    >>> uniform(keys.key(0), (2, 2)).shape
    (2, 2)
    """
    if out_sharding is not None:
        return devices.placed(lambda: uniform(key, shape, dtype, minval, maxval), out_sharding=out_sharding)
    typed = keys.single("uniform", key)
    target = float_dtype("uniform", dtype)
    shape = axes.canonical_shape(shape)
    _check_bounds("uniform", shape, minval, maxval)
    return in_a_row(_uniform, typed, minval, maxval, shape=shape, dtype=target)


def _check_bounds(name: str, shape: tuple[int, ...], *bounds: Any) -> None:
    """ShapeError for bounds that do not broadcast to ``shape``."""
    found = [promotion.shape_of(bound) for bound in bounds]
    try:
        fits = np.broadcast_shapes(shape, *found) == shape
    except ValueError:
        fits = False
    if not fits:
        raise errors.ShapeError(
            f"{name}: minval and maxval, of shapes {found[0]} and {found[1]}, must broadcast to the shape argument "
            f"{shape}"
        )


def _to_rank(value: Any, rank: int) -> Any:
    """Leading axes of extent 1, so that a bound meets an array of ``rank``."""
    own = promotion.shape_of(value)
    if len(own) == rank:
        return value
    return lax.broadcast_in_dim(value, (1,) * (rank - len(own)) + own, tuple(range(rank - len(own), rank)))


@functools.partial(jit, static_argnames=_STATIC)
def _uniform(key: Any, minval: Any, maxval: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    minval, maxval = promotion.convert(minval, dtype), promotion.convert(maxval, dtype)
    minval, maxval = _to_rank(minval, len(shape)), _to_rank(maxval, len(shape))
    info = dtypes.finfo(dtype)
    drawn = max(8, info.bits if info.nmant >= 8 else 8)
    integer = np.dtype(f"uint{info.bits}")
    mantissa = raw_bits(key, drawn, shape)
    if drawn != info.bits:
        mantissa = lax.convert_element_type(mantissa, integer)
    mantissa = lax.shift_right_logical(mantissa, np.asarray(drawn - info.nmant, integer))
    one = np.asarray(1.0).astype(dtype).view(integer)
    above_one = lax.bitcast_convert_type(lax.bitwise_or(mantissa, one), dtype)
    fraction = lax.sub(above_one, np.asarray(1.0).astype(dtype))
    scaled = lax.add(lax.mul(fraction, lax.sub(maxval, minval)), minval)
    return lax.max(minval, as_shape(scaled, shape))


def as_shape(x: Any, shape: tuple[int, ...]) -> Array:
    """``x`` reshaped; an equation also for rank 0, as JAX records it."""
    if shape:
        return lax.reshape(x, shape)
    return lax.reshape_p.bind(x, new_sizes=(), dimensions=None, sharding=None)


def normal(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Values of the standard normal distribution, float or complex.

    >>> normal(keys.key(0), (3,)).shape
    (3,)
    """
    if out_sharding is not None:
        return devices.placed(lambda: normal(key, shape, dtype), out_sharding=out_sharding)
    typed = keys.single("normal", key)
    target = dtypes.canonicalize_dtype(np.float64) if dtype is None else dtypes.check_user_dtype(dtype, "normal")
    if not dtypes.issubdtype(target, np.inexact):
        raise ValueError(f"dtype argument to `normal` must be a float or complex dtype, got {target}")
    return in_a_row(_normal, typed, shape=axes.canonical_shape(shape), dtype=target)


@functools.partial(jit, static_argnames=_STATIC)
def _normal(key: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    if not dtypes.issubdtype(dtype, np.complexfloating):
        return _normal_real(key, shape=shape, dtype=dtype)
    # by the inverse, as XLA's code multiplies where the program divides
    root = (1 / np.asarray(np.sqrt(2)).astype(dtypes.finfo(dtype).dtype)).astype(dtype)
    part = dtypes.finfo(dtype).dtype
    first, second = indexing.rows(keys.split(key))
    re = promotion.convert(_normal_real(first, shape=shape, dtype=part), dtype)
    im = promotion.convert(_normal_real(second, shape=shape, dtype=part), dtype)
    return lax.mul(lax.add(re, lax.mul(np.asarray(1j).astype(dtype), im)), root)


@functools.partial(jit, static_argnames=_STATIC)
def _normal_real(key: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    low = np.nextafter(np.asarray(-1.0).astype(dtype), np.asarray(0.0).astype(dtype), dtype=dtype)
    drawn = _uniform(key, np.asarray(low), np.asarray(1.0).astype(dtype), shape=shape, dtype=dtype)
    return lax.mul(np.asarray(np.sqrt(2)).astype(dtype), functions.erf_inv_drawn(drawn))


def randint(key: Any, shape: Any, minval: Any, maxval: Any, dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Integers drawn evenly from ``minval`` (included) to ``maxval`` (excluded).

    TypeError if ``dtype`` is no integer.

    >>> randint(keys.key(0), (4,), 0, 10).shape
    (4,)
    """
    if out_sharding is not None:
        return devices.placed(lambda: randint(key, shape, minval, maxval, dtype), out_sharding=out_sharding)
    typed = keys.single("randint", key)
    target = dtypes.canonicalize_dtype(np.int64) if dtype is None else dtypes.check_user_dtype(dtype, "randint")
    if not dtypes.issubdtype(target, np.integer):
        raise TypeError(f"randint only accepts integer dtypes, got {target}")
    minval, maxval = (_integer_bound(bound, target) for bound in (minval, maxval))
    shape = axes.canonical_shape(shape)
    _check_bounds("randint", shape, minval, maxval)
    minval, maxval = [_to_rank(x, len(shape)) if promotion.shape_of(x) else x for x in (minval, maxval)]
    if target.itemsize < 4:
        info, wide = dtypes.iinfo(target), np.dtype(np.int32)
        minval = selection.clip(promotion.convert(minval, wide), min=int(info.min), max=int(info.max))
        maxval = selection.clip(promotion.convert(maxval, wide), min=int(info.min), max=int(info.max) + 1)
        return promotion.convert(in_a_row(_randint, typed, minval, maxval, shape=shape, dtype=wide), target)
    return in_a_row(_randint, typed, minval, maxval, shape=shape, dtype=target)


def _integer_bound(bound: Any, dtype: Any) -> Any:
    """A bound as an integer, floats truncated; TypeError for complex ones."""
    own = promotion.dtype_of(bound)
    if dtypes.issubdtype(own, np.integer):
        return bound
    if dtypes.issubdtype(own, np.complexfloating):
        raise TypeError(f"randint only accepts real minval and maxval arguments, got {own}")
    return promotion.convert(bound, dtype if dtype.itemsize >= 4 else np.dtype(np.int32))


def _clipped(value: Any, dtype: Any) -> Any:
    """``value`` limited to what ``dtype`` holds, as that dtype."""
    own, target = dtypes.iinfo(promotion.dtype_of(value)), dtypes.iinfo(dtype)
    low, high = max(int(own.min), int(target.min)), min(int(own.max), int(target.max))
    limits = (
        (low, high)
        if promotion.is_weak(value)
        else tuple(np.asarray(v, promotion.dtype_of(value)) for v in (low, high))
    )
    return promotion.convert(selection.clip(value, *limits), dtype)


@functools.partial(jit, static_argnames=_STATIC)
def _randint(key: Any, minval: Any, maxval: Any, *, shape: tuple[int, ...], dtype: Any) -> Any:
    unsigned = np.dtype(f"uint{8 * dtype.itemsize}")
    largest = np.asarray(dtypes.iinfo(dtype).max, dtype)
    beyond = lax.gt(maxval, _clipped(largest, promotion.dtype_of(maxval)))
    minval, maxval = _clipped(minval, dtype), _clipped(maxval, dtype)
    minval, maxval = _to_rank(minval, len(shape)), _to_rank(maxval, len(shape))
    first, second = indexing.rows(keys.split(key))
    width = 8 * dtype.itemsize
    high, low = raw_bits(first, width, shape), raw_bits(second, width, shape)
    span = lax.convert_element_type(lax.sub(maxval, minval), unsigned)
    span = lax.select(lax.le(maxval, minval), lax.full_like(span, 1), span)
    whole = lax.bitwise_and(beyond, lax.gt(maxval, minval))
    span = lax.select(whole, lax.add(span, np.asarray(1, unsigned)), span)
    factor = lax.rem(np.asarray(2 ** (width // 2), unsigned), span)
    factor = lax.rem(lax.mul(factor, factor), span)
    offset = lax.add(lax.mul(lax.rem(high, span), factor), lax.rem(low, span))
    offset = lax.rem(offset, span)
    return lax.add(minval, lax.convert_element_type(offset, dtype))
