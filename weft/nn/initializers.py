"""First values of weights: constants, random values, and random values scaled by the size of a layer.

An initializer is called with a key, a shape and a dtype. ``variance_scaling`` divides the wanted variance by the
number of inputs, outputs or both; the named ones (glorot, he, lecun) are its usual choices::

    he_normal()(key, (3, 4))  ->  jit[name=_truncated_normal] key -2 2, mul sqrt(2 / 3) / 0.8796
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from weft import dtypes, random
from weft import numpy as wnp
from weft import operations as lax
from weft._base import unbuilt as _unbuilt
from weft._base.array import Array
from weft.dispatch import devices

_TRUNCATED_DEVIATION = 0.87962566103423978  # standard deviation of a normal variable cut off at -2 and 2
_TRUNCATED_SIZE = 0.95311164380491208  # standard deviation of a complex one cut off at the absolute value 2


class Initializer(Protocol):
    """Anything that makes an array from a key, a shape and a dtype."""

    def __call__(self, key: Any, shape: Any, dtype: Any = None, out_sharding: Any = None) -> Any: ...


def _float_dtype(dtype: Any, default: Any) -> Any:
    chosen = default if dtype is None else dtype
    return dtypes.canonicalize_dtype(np.float64) if chosen is None else dtypes.check_user_dtype(chosen, "initializers")


def _initializer(make: Callable[[Any, Any, Any], Any]) -> Initializer:
    """An initializer from a function of a key, a shape and a dtype (or None)."""

    def init(key: Any, shape: Any, dtype: Any = None, out_sharding: Any = None) -> Any:
        if out_sharding is not None:
            return devices.placed(lambda: make(key, shape, dtype), out_sharding=out_sharding)
        return make(key, shape, dtype)

    return init


def zeros(key: Any, shape: Any, dtype: Any = None, out_sharding: Any = None) -> Array:
    """An array of zeros; the key is not used.

    >>> zeros(None, (2,)).tolist()
    [0.0, 0.0]
    """
    if out_sharding is not None:
        return devices.placed(lambda: zeros(key, shape, dtype), out_sharding=out_sharding)
    return wnp.zeros(shape, _float_dtype(dtype, None))


def ones(key: Any, shape: Any, dtype: Any = None, out_sharding: Any = None) -> Array:
    """An array of ones; the key is not used.

    >>> ones(None, (2,)).tolist()
    [1.0, 1.0]
    """
    if out_sharding is not None:
        return devices.placed(lambda: ones(key, shape, dtype), out_sharding=out_sharding)
    return wnp.ones(shape, _float_dtype(dtype, None))


def constant(value: Any, dtype: Any = None) -> Initializer:
    """An initializer that fills with ``value``.

    >>> constant(2.0)(None, (2,)).tolist()
    [2.0, 2.0]
    """
    default = dtype

    def init(key: Any, shape: Any, dtype: Any) -> Any:
        return wnp.full(shape, value, _float_dtype(dtype, default))

    return _initializer(init)


def uniform(scale: Any = 1e-2, dtype: Any = None) -> Initializer:
    """An initializer of values drawn evenly from 0 to ``scale``."""
    default = dtype

    def init(key: Any, shape: Any, dtype: Any) -> Any:
        target = _float_dtype(dtype, default)
        return random.uniform(key, shape, target) * wnp.array(scale, target)

    return _initializer(init)


def normal(stddev: Any = 1e-2, dtype: Any = None) -> Initializer:
    """An initializer of normal values with standard deviation ``stddev``."""
    default = dtype

    def init(key: Any, shape: Any, dtype: Any) -> Any:
        target = _float_dtype(dtype, default)
        return random.normal(key, shape, target) * wnp.array(stddev, target)

    return _initializer(init)


def truncated_normal(stddev: Any = 1e-2, dtype: Any = None, lower: Any = -2.0, upper: Any = 2.0) -> Initializer:
    """An initializer of normal values between ``lower`` and ``upper`` standard deviations."""
    default = dtype

    def init(key: Any, shape: Any, dtype: Any) -> Any:
        target = _float_dtype(dtype, default)
        return random.truncated_normal(key, lower, upper, shape, target) * wnp.array(stddev, target)

    return _initializer(init)


def _axes(axis: int | Sequence[int]) -> tuple[int, ...]:
    return (axis,) if isinstance(axis, int) else tuple(axis)


def _fans(shape: tuple[int, ...], in_axis: Any, out_axis: Any, batch_axis: Any) -> tuple[float, float]:
    """The number of inputs and outputs of a layer, each times the extent of the axes that are neither."""
    if len(shape) <= 1:
        raise ValueError(
            f"Can't compute input and output sizes of a {len(shape)}-dimensional weights tensor. Must be at least 2D."
        )
    inputs = math.prod(shape[d] for d in _axes(in_axis))
    outputs = math.prod(shape[d] for d in _axes(out_axis))
    batch = math.prod(shape[d] for d in _axes(batch_axis))
    receptive = math.prod(shape) / inputs / outputs / batch
    return inputs * receptive, outputs * receptive


def _in_disk(key: Any, shape: Any, dtype: Any, most: float | None) -> Any:
    """Complex values of any direction: evenly from the unit disk, or normal ones of absolute value at most ``most``."""
    real = dtypes.finfo(dtype).dtype
    size_key, angle_key = random.split(key)
    share = random.uniform(size_key, shape, real).astype(dtype)
    if most is not None:
        share = -wnp.log(1 - (1 - wnp.exp(wnp.array(-(most**2), dtype))) * share)
    angle = (2 * np.pi * random.uniform(angle_key, shape, real)).astype(dtype)
    return wnp.sqrt(share) * wnp.exp(1j * angle)


def variance_scaling(
    scale: Any,
    mode: str,
    distribution: str,
    in_axis: int | Sequence[int] = -2,
    out_axis: int | Sequence[int] = -1,
    batch_axis: int | Sequence[int] = (),
    dtype: Any = None,
) -> Initializer:
    """An initializer of values with variance ``scale`` over the number that ``mode`` names.

    ``mode`` is fan_in, fan_out, fan_avg or fan_geo_avg; ``distribution`` is normal, uniform or truncated_normal.
    ValueError for others, and for shapes of rank below 2.
    """
    default = dtype

    def init(key: Any, shape: Any, dtype: Any) -> Any:
        target = _float_dtype(dtype, default)
        fan_in, fan_out = _fans(tuple(shape), in_axis, out_axis, batch_axis)
        sizes = {
            "fan_in": fan_in,
            "fan_out": fan_out,
            "fan_avg": (fan_in + fan_out) / 2,
            "fan_geo_avg": (fan_in * fan_out) ** 0.5,
        }
        if mode not in sizes:
            raise ValueError(f"invalid mode for variance scaling initializer: {mode}")
        variance = wnp.array(scale / sizes[mode], target)
        if distribution == "normal":
            return random.normal(key, shape, target) * wnp.sqrt(variance)
        is_complex = dtypes.issubdtype(target, np.complexfloating)
        if distribution == "uniform" and is_complex:
            return _in_disk(key, shape, target, None) * wnp.sqrt(2 * variance)
        if distribution == "truncated_normal" and is_complex:
            return _in_disk(key, shape, target, 2) * (wnp.sqrt(variance) / wnp.array(_TRUNCATED_SIZE, target))
        if distribution == "uniform":
            return random.uniform(key, shape, target, -1) * wnp.sqrt(3 * variance)
        if distribution == "truncated_normal":
            deviation = lax.div(lax.sqrt(variance), np.asarray(_TRUNCATED_DEVIATION).astype(target))
            return random.truncated_normal(key, -2, 2, shape, target) * deviation
        raise ValueError(f"invalid distribution for variance scaling initializer: {distribution}")

    return _initializer(init)


def orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """An initializer of orthogonal matrices times ``scale``: as rows or columns, whichever are fewer, orthonormal.

    The columns lie along ``column_axis``, the rows along all other axes. ValueError for shapes of rank below 2.

    >>> w = orthogonal()(random.key(0), (2, 3))
    >>> np.abs(np.round(w @ w.T, 3)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    default = dtype

    def init(key: Any, shape: Any, dtype: Any) -> Any:
        target = _float_dtype(dtype, default)
        if len(shape) < 2:
            raise ValueError("orthogonal initializer requires at least a 2D shape")
        if 0 in shape:
            return wnp.zeros(shape, target)
        columns = shape[column_axis]
        rest = list(shape)
        del rest[column_axis]
        q = random.orthogonal(key, math.prod(rest), (), target, columns)
        return wnp.array(scale, target) * wnp.moveaxis(wnp.reshape(q, (*rest, columns)), -1, column_axis)

    return _initializer(init)


def delta_orthogonal(scale: Any = 1.0, column_axis: int = -1, dtype: Any = None) -> Initializer:
    """An initializer of convolution kernels that are ``orthogonal`` in the middle and zero elsewhere.

    The last two extents are inputs and outputs, no more inputs than outputs; those before, one to three, are of the
    window (Xiao and others, "Dynamical isometry and a mean field theory of CNNs", 2018). ValueError for other shapes.

    >>> delta_orthogonal()(random.key(0), (3, 1, 1))[1].item() ** 2
    1.0
    """
    default = dtype

    def init(key: Any, shape: Any, dtype: Any) -> Any:
        target = _float_dtype(dtype, default)
        if len(shape) not in (3, 4, 5):
            raise ValueError("Delta orthogonal initializer requires a 3D, 4D or 5D shape.")
        if shape[-1] < shape[-2]:
            raise ValueError("`fan_in` must be less or equal than `fan_out`. ")
        middle = tuple([(extent - 1) // 2 for extent in shape[:-2]])
        values = orthogonal(scale, column_axis, target)(key, shape[-2:])
        return wnp.zeros(shape, target).at[middle].set(values)

    return _initializer(init)


def _scaled(name: str, scale: float, mode: str, distribution: str) -> Callable[..., Initializer]:
    def make(
        in_axis: int | Sequence[int] = -2,
        out_axis: int | Sequence[int] = -1,
        batch_axis: int | Sequence[int] = (),
        dtype: Any = None,
    ) -> Initializer:
        return variance_scaling(scale, mode, distribution, in_axis, out_axis, batch_axis, dtype)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"``variance_scaling({scale}, {mode!r}, {distribution!r})``."
    return make


glorot_uniform = xavier_uniform = _scaled("glorot_uniform", 1.0, "fan_avg", "uniform")
glorot_normal = xavier_normal = _scaled("glorot_normal", 1.0, "fan_avg", "truncated_normal")
lecun_uniform = _scaled("lecun_uniform", 1.0, "fan_in", "uniform")
lecun_normal = _scaled("lecun_normal", 1.0, "fan_in", "truncated_normal")
he_uniform = kaiming_uniform = _scaled("he_uniform", 2.0, "fan_in", "uniform")
he_normal = kaiming_normal = _scaled("he_normal", 2.0, "fan_in", "truncated_normal")

__getattr__ = _unbuilt.fallback("weft.nn.initializers")
