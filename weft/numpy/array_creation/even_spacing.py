"""Evenly spaced values: linspace, logspace, geomspace.

linspace(0, 1, 3)  ->  iota, and weights of both ends; the last element is exact
"""

from __future__ import annotations

import functools
from typing import Any, Literal, overload

import numpy as np

from weft import core, dtypes
from weft import operations as lax
from weft._base.array import Array
from weft.core.symbolic import open_sizes
from weft.dispatch import devices
from weft.dispatch.calls import jit as jit_module
from weft.numpy import axes, promotion, small_copies

inline = functools.partial(jit_module.jit, inline=True)
jit = jit_module.jit


@overload
def linspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: Literal[False] = False, dtype: Any = None,
    axis: int = 0, *, device: Any = None,
) -> Array: ...  # fmt: skip


@overload
def linspace(
    start: Any, stop: Any, num: int, endpoint: bool, retstep: Literal[True], dtype: Any = None,
    axis: int = 0, *, device: Any = None,
) -> tuple[Array, Array]: ...  # fmt: skip


@overload
def linspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, *, retstep: Literal[True], dtype: Any = None,
    axis: int = 0, device: Any = None,
) -> tuple[Array, Array]: ...  # fmt: skip


def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Any:
    """``num`` evenly spaced values from ``start`` to ``stop`` (included if ``endpoint``), along a new ``axis``.

    With ``retstep`` the spacing is returned as well. ValueError for a negative ``num``.

    >>> linspace(0, 1, 3).tolist()
    [0.0, 0.5, 1.0]
    """
    if device is not None:
        return devices.placed(lambda: linspace(start, stop, num, endpoint, retstep, dtype, axis), device=device)
    if type(num) is int and dtype is None and axis in (0, -1) and not retstep:
        found = small_copies.spaced(num, start, stop, bool(endpoint))
        if found is not None:
            return found
    open_sizes.check_more_than_one(num)
    num = axes.concrete_int(num, "'num' argument of jnp.linspace")
    asked = None if dtype is None else dtypes.check_user_dtype(dtype, "linspace")
    return _linspace(start, stop, num=num, endpoint=bool(endpoint), retstep=bool(retstep), dtype=asked, axis=axis)


@jit(static_argnames=("num", "endpoint", "retstep", "dtype", "axis"))
def _linspace(start: Any, stop: Any, *, num: int, endpoint: bool, retstep: bool, dtype: Any, axis: int) -> Any:
    if num < 0:
        raise ValueError(f"Number of samples, {num}, must be non-negative.")
    promotion.check_arraylike("linspace", start, stop)
    result_dtype = promotion.inexact_dtype(dtypes.result_type(start, stop)) if dtype is None else dtype
    compute = promotion.inexact_dtype(result_dtype)
    start, stop = promotion.convert(start, compute), promotion.convert(stop, compute)
    shape = promotion.broadcast_shapes(promotion.shape_of(start), promotion.shape_of(stop))
    ends = promotion.broadcast_to(start, shape), promotion.broadcast_to(stop, shape)
    divisor = num - 1 if endpoint else num
    step: Any = np.asarray(np.nan, compute)
    axis = axes.canonical_axis(axis, len(shape) + 1)
    if num > 1 or (num == 1 and not endpoint):
        step = lax.sub(*promotion.promote_args("linspace", stop, start))
    if num > 1:
        step = lax.div(step, core.scalar(divisor, compute))
        result = _spaced(*ends, divisor, endpoint, axis)
    else:
        one = (*shape[:axis], 1, *shape[axis:])
        result = lax.reshape(ends[0], one) if num else lax.full((*shape[:axis], 0, *shape[axis:]), 0, compute)
    if dtypes.issubdtype(result_dtype, np.integer) and not dtypes.issubdtype(compute, np.integer):
        result = lax.floor(result)
    result = promotion.convert(result, result_dtype)
    return (result, step) if retstep else result


def _spaced(start: Any, stop: Any, divisor: int, endpoint: bool, axis: int) -> Any:
    """Weighted means of the ends, so that both are met exactly; the last value is ``stop`` itself."""
    shape, dtype = promotion.shape_of(start), promotion.dtype_of(start)
    bounded = functools.partial(lax.reshape, new_sizes=(*shape[:axis], 1, *shape[axis:]))
    part = dtypes.finfo(dtype).dtype
    steps = lax.iota(part, divisor)
    if shape:
        steps = lax.reshape(steps, [divisor if dim == axis else 1 for dim in range(len(shape) + 1)])
    weight = lax.div(steps, core.scalar(divisor, part))
    weight = promotion.convert(weight, dtype)
    low = lax.mul(bounded(start), lax.sub(np.asarray(1).astype(dtype), weight))
    result = lax.add(low, lax.mul(bounded(stop), weight))
    if not endpoint:
        return result
    return lax.concatenate([result, lax.expand_dims(stop, (axis,))], axis)


def logspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0, dtype: Any = None, axis: int = 0
) -> Array:
    """``base`` to the powers ``linspace(start, stop, num)``.

    >>> logspace(0, 1, 2, base=2.0).tolist()
    [1.0, 2.0]
    """
    num = axes.concrete_int(num, "'num' argument of jnp.logspace")
    asked = None if dtype is None else dtypes.check_user_dtype(dtype, "logspace")
    return _logspace(start, stop, base, num=num, endpoint=bool(endpoint), dtype=asked, axis=axis)


@jit(static_argnames=("num", "endpoint", "dtype", "axis"))
def _logspace(start: Any, stop: Any, base: Any, *, num: int, endpoint: bool, dtype: Any, axis: int) -> Any:
    promotion.check_arraylike("logspace", start, stop, base)
    result_dtype = promotion.inexact_dtype(dtypes.result_type(start, stop)) if dtype is None else dtype
    compute = promotion.inexact_dtype(result_dtype)
    start, stop = promotion.convert(start, compute), promotion.convert(stop, compute)
    exponents = linspace(start, stop, num=num, endpoint=endpoint, axis=axis)
    return promotion.convert(lax.pow(promotion.convert(base, compute), exponents), result_dtype)


def geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0) -> Array:
    """``num`` values from ``start`` to ``stop`` with a constant ratio; both ends must have the same sign.

    >>> [round(v, 3) for v in geomspace(1, 4, 3).tolist()]
    [1.0, 2.0, 4.0]
    """
    num = axes.concrete_int(num, "'num' argument of jnp.geomspace")
    asked = None if dtype is None else dtypes.check_user_dtype(dtype, "geomspace")
    return _geomspace(start, stop, num=num, endpoint=bool(endpoint), dtype=asked, axis=axis)


@jit(static_argnames=("num", "endpoint", "dtype", "axis"))
def _geomspace(start: Any, stop: Any, *, num: int, endpoint: bool, dtype: Any, axis: int) -> Any:
    promotion.check_arraylike("geomspace", start, stop)
    result_dtype = promotion.inexact_dtype(dtypes.result_type(start, stop)) if dtype is None else dtype
    compute = promotion.inexact_dtype(result_dtype)
    start, stop = promotion.convert(start, compute), promotion.convert(stop, compute)
    sign = lax.sign(start)
    factor = np.asarray(np.log10(np.e)).astype(compute)
    low, high = (lax.mul(lax.log(lax.div(x, sign)), factor) for x in (start, stop))
    result = logspace(low, high, num, endpoint=endpoint, base=10.0, axis=0)
    result = lax.mul(*promotion.promote_shapes(sign, result))
    if axis != 0:
        rank = len(promotion.shape_of(result))
        axis = axes.canonical_axis(axis, rank)
        result = lax.transpose(result, [*range(1, axis + 1), 0, *range(axis + 1, rank)])
    return promotion.convert(result, result_dtype)
