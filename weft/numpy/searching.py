"""Positions of what is not zero, and counting: nonzero and its kin, where, bincount.

The number of elements that are not zero is data. Outside a trace the result has that size. In a trace ``size`` gives
the size of the result, which is filled up. The k-th position is then the number of positions at which the running count
is at most k, which is a running count of a histogram of the running count: nothing is sorted::

    nonzero([0, 7, 0, 8], size=2):  mask 0 1 0 1, cumsum 0 1 1 2, counted 1 2, cumsum 1 3
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np

from weft import core, dtypes
from weft import operations as lax
from weft._base.array import Array
from weft.core.interruptible import interruptible
from weft.dispatch import devices
from weft.dispatch.calls import jit as jit_module
from weft.numpy import joining, promotion, rearrange, reductions
from weft.numpy.array_creation import creation
from weft.numpy.pointwise import arithmetic, selection
from weft.numpy.subscripts import index_updates

inline = functools.partial(jit_module.jit, inline=True)


def nonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> tuple[Array, ...]:
    """The positions of the elements that are not zero, one array of indices for each axis.

    In a trace ``size``, the length of the result, must be given; what is missing is ``fill_value`` (0, or one number
    for each axis in a tuple).

    >>> [part.tolist() for part in nonzero(weft.numpy.array([[0, 7], [8, 0]]))]
    [[0, 1], [1, 0]]
    """
    promotion.check_arraylike("nonzero", a)
    a = promotion.unwrapped(a)
    shape = promotion.shape_of(a)
    if not shape:
        raise ValueError("Calling nonzero on 0d arrays is not allowed. Use jnp.atleast_1d(scalar).nonzero() instead.")
    if isinstance(fill_value, list) or (isinstance(fill_value, tuple) and len(fill_value) != len(shape)):
        raise ValueError(f"fill_value must be a scalar or a tuple of length {len(shape)}; got {fill_value}")
    if size is None:
        core.concrete_or_error(
            None,
            a,
            "The size argument of jnp.nonzero must be statically specified to use jnp.nonzero within JAX "
            "transformations.",
        )
        if not core.is_tracing():
            values = np.asarray(a)
            return tuple([promotion.constant(part) for part in interruptible(values.size, np.nonzero, values)])
        values = np.asarray(a)
        size = int(interruptible(values.size, np.count_nonzero, values))
    count: int = core.concrete_or_error(
        operator.index,
        size,
        "The size argument of jnp.nonzero must be statically specified to use jnp.nonzero within JAX transformations.",
    )
    fills = fill_value if isinstance(fill_value, tuple) else None if fill_value is None else (fill_value,) * len(shape)
    if count < 0:
        raise TypeError(f"[nonzero] size must not be negative, got {count}")
    return tuple(_positions(a, *(fills or ()), size=max(count, 0)))


@functools.partial(inline, static_argnames=("size",))
def _positions(a: Any, *fills: Any, size: int) -> list[Any]:
    shape = promotion.shape_of(a)
    dtype = promotion.dtype_of(a)
    mask = promotion.as_array(a) if dtype == np.bool_ else lax.ne(a, np.asarray(0, dtype))
    if 0 in shape or not size:
        return [creation.zeros(size, dtypes.canonicalize_dtype(np.int64)) for _ in shape]
    flat = reductions.cumsum(_counts(reductions.cumsum(mask), None, size))
    result = []
    for axis, extent in enumerate(shape):
        stride = np.asarray(math.prod(shape[axis + 1 :]), dtypes.canonicalize_dtype(np.int64))
        result.append(arithmetic.remainder(arithmetic.floor_divide(flat, stride), extent))
    if not fills:
        return result
    missing = lax.ge(creation.arange(size), reductions.sum(mask))
    return [selection.where(missing, fill, part) for fill, part in zip(fills, result, strict=True)]


def flatnonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> Array:
    """The positions of the elements of the flattened array that are not zero; ``size`` as in ``nonzero``.

    >>> flatnonzero(weft.numpy.array([[0, 7], [8, 0]])).tolist()
    [1, 2]
    """
    promotion.check_arraylike("flatnonzero", a)
    return nonzero(rearrange.ravel(a), size=size, fill_value=fill_value)[0]


def argwhere(a: Any, *, size: int | None = None, fill_value: Any = None) -> Array:
    """The positions of the elements that are not zero, one row of indices for each; ``size`` as in ``nonzero``.

    >>> argwhere(weft.numpy.array([[0, 7], [8, 0]])).tolist()
    [[0, 1], [1, 0]]
    """
    promotion.check_arraylike("argwhere", a)
    positions = nonzero(rearrange.atleast_1d(a), size=size, fill_value=fill_value)
    rows = rearrange.transpose(joining.vstack(positions))
    return rows if promotion.shape_of(a) else lax.slice_in_dim(rows, 0, 0, axis=1)


@overload
def where(
    condition: Any, x: None = None, y: None = None, /, *, size: int | None = None, fill_value: Any = None
) -> tuple[Array, ...]: ...


@overload
def where(condition: Any, x: Any, y: Any, /, *, size: int | None = None, fill_value: Any = None) -> Array: ...


def where(condition: Any, x: Any = None, y: Any = None, /, *, size: int | None = None, fill_value: Any = None) -> Any:
    """``x`` where ``condition`` is true (nonzero), otherwise ``y``; all three are broadcast, ``x`` and ``y`` promoted.

    Both sides are computed everywhere. With the condition alone it is ``nonzero``.

    >>> where(weft.numpy.array([True, False]), 1, 2).tolist()
    [1, 2]
    >>> where(weft.numpy.array([True, False, True]))[0].tolist()
    [0, 2]
    """
    if x is None and y is None:
        promotion.check_arraylike("where", condition)
        return nonzero(condition, size=size, fill_value=fill_value)
    return selection.where(condition, x, y, size=size, fill_value=fill_value)


def bincount(
    x: Any, weights: Any = None, minlength: int = 0, *, length: int | None = None, out_sharding: Any = None
) -> Array:
    """How often each integer from 0 occurs in ``x``, or the sum of its ``weights``; negative ones count as 0.

    The result has ``length`` elements, what is beyond is left out; without it, which needs values, as many as the
    largest integer asks for, at least ``minlength``.

    >>> bincount(weft.numpy.array([1, 3, 1])).tolist()
    [0, 2, 0, 1]
    """
    if out_sharding is not None:
        return devices.placed(lambda: bincount(x, weights, minlength, length=length), out_sharding=out_sharding)
    promotion.check_arraylike("bincount", x)
    x = promotion.unwrapped(x)
    dtype = promotion.dtype_of(x)
    if not (dtype == np.bool_ or dtypes.issubdtype(dtype, np.integer)):
        raise TypeError(f"x argument to bincount must have an integer type; got {dtype}")
    if len(promotion.shape_of(x)) != 1:
        raise ValueError("only 1-dimensional input supported.")
    least = core.concrete_or_error(
        int, minlength, "The error occurred because of argument 'minlength' of jnp.bincount."
    )
    if length is None:
        core.concrete_or_error(
            None,
            x,
            "The error occurred because of argument 'x' of jnp.bincount. To avoid this error, pass a static `length` "
            "argument.",
        )
        values = np.asarray(x)
        count = max(least, max(int(values.max()), 0) + 1 if values.size else 0)
    else:
        count = core.concrete_or_error(int, length, "The error occurred because of argument 'length' of jnp.bincount.")
    if weights is None:
        return _counts(x, None, count)
    promotion.check_arraylike("bincount", weights)
    if promotion.shape_of(weights) != promotion.shape_of(x):
        raise ValueError("shape of weights must match shape of x.")
    return _counts(x, weights, count)


def _counts(x: Any, weights: Any, length: int) -> Any:
    """The counts or sums of weights of the integers 0 to ``length``."""
    if promotion.dtype_of(x) == np.bool_:
        x = promotion.convert(x, np.dtype(np.int32))
    default = dtypes.canonicalize_dtype(np.int64)
    totals = creation.zeros(length, default if weights is None else promotion.dtype_of(weights))
    targets = selection.clip(x, 0)
    return index_updates.IndexUpdate(totals, targets).add(1 if weights is None else weights, mode="drop")


def mask_indices(n: int, mask_func: Callable[..., Any], k: int = 0, *, size: int | None = None) -> tuple[Any, ...]:
    """The indices of the elements of an ``n`` by ``n`` matrix that ``mask_func(matrix, k)`` leaves.

    >>> [part.tolist() for part in mask_indices(2, weft.numpy.triu)]
    [[0, 0, 1], [0, 1, 1]]
    """
    if not isinstance(n, int) or n < 0:
        raise ValueError(f"n must be a non-negative integer; got {n}")
    return nonzero(mask_func(creation.ones((n, n)), k), size=size)


def ravel_multi_index(
    multi_index: Sequence[Any], dims: Sequence[int], mode: Any = "raise", order: str = "C", *, dtype: Any = None
) -> Array:
    """Index arrays, one per axis, as indices of the flattened array of shape ``dims``.

    ``mode``: "raise" (outside a trace only) refuses what is out of bounds, "clip" takes
    the nearest, "wrap" counts around. ``order``: "C" or "F".

    >>> ravel_multi_index((np.array([1]), np.array([2])), (2, 3), mode="clip").tolist()
    [5]
    """
    if len(multi_index) != len(dims):
        raise ValueError(f"len(multi_index)={len(multi_index)} != len(dims)={len(dims)}")
    promotion.check_arraylike("ravel_multi_index", *multi_index)
    extents = [core.concrete_or_error(int, d, "in `dims` argument of ravel_multi_index().") for d in dims]
    for part in multi_index:
        if not dtypes.issubdtype(promotion.dtype_of(part), np.integer):
            raise ValueError(f"dtype={promotion.dtype_of(part)!r} is not an integer type.")
    parts = [_in_bounds(part, n, mode) for part, n in zip(multi_index, extents, strict=True)]
    if order not in ("C", "F"):
        raise ValueError(f"invalid order={order!r}. Expected 'C' or 'F'")
    steps = [math.prod(extents[d + 1 :]) if order == "C" else math.prod(extents[:d]) for d in range(len(extents))]
    result: Any = 0
    if dtype is not None:
        target = dtypes.check_user_dtype(dtype, "ravel_multi_index")
        result, parts = np.asarray(0, target), [promotion.convert(part, target) for part in parts]
    for part, step in zip(parts, steps, strict=True):
        result = arithmetic.add(result, arithmetic.multiply(part, step))
    return result


def _in_bounds(part: Any, extent: int, mode: str) -> Any:
    if mode == "clip":
        return selection.clip(part, 0, extent - 1)
    if mode == "wrap":
        return arithmetic.remainder(part, extent)
    if mode == "ignore":  # as it is in JAX: no question is asked, and none can be within jit
        return part
    if mode != "raise":
        raise ValueError(f"invalid mode={mode!r}. Expected 'raise', 'wrap', 'clip' or 'ignore'")
    core.concrete_or_error(
        None,
        part,
        "The error occurred because ravel_multi_index was jit-compiled with mode='raise'. Use mode='wrap' or "
        "mode='clip' instead.",
    )
    values = np.asarray(part)
    if ((values < 0) | (values >= extent)).any():
        raise ValueError("invalid entry in coordinates array")
    return part
