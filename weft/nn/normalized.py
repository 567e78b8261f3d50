"""Functions of whole rows: softmax and logarithms of sums of exponentials, standardize, one_hot.

The largest element is subtracted before exponentials are taken, and does not take part in derivatives::

    softmax(f32[3,4])  ->  reduce_max, max -inf, broadcast_in_dim, stop_gradient, sub, exp, reduce_sum, ..., div
"""

from __future__ import annotations

import functools
import math
from typing import Any, Literal, overload

import numpy as np

from weft import core, dtypes
from weft import numpy as wnp
from weft import operations as lax
from weft._base.array import Array
from weft.dispatch.calls import jit as jit_module
from weft.numpy import axes, promotion, reductions

jit = jit_module.jit
inline = functools.partial(jit, inline=True)


def softmax(x: Any, axis: Any = -1, where: Any = None) -> Array:
    """``exp(x)`` divided by its sum over ``axis``; elements where ``where`` is false count as -inf.

    >>> softmax(wnp.zeros(2)).tolist()
    [0.5, 0.5]
    """
    return _softmax(x, where, axis=axes.static_axes(axis))


@functools.partial(inline, static_argnames=("axis",))
def _softmax(x: Any, where: Any, *, axis: Any) -> Any:
    largest = wnp.max(x, axis, where=where, initial=-np.inf, keepdims=True)
    safe = x if where is None else wnp.where(where, x, -np.inf)
    powers = wnp.exp(safe - lax.stop_gradient(largest))
    result = powers / wnp.sum(powers, axis, where=where, keepdims=True)
    return result if where is None else wnp.where(where, result, 0)


def log_softmax(x: Any, axis: Any = -1, where: Any = None) -> Array:
    """``log(softmax(x))`` without underflow.

    >>> log_softmax(wnp.zeros(1)).tolist()
    [0.0]
    """
    return _log_softmax(x, where, axis=axes.static_axes(axis))


def _as_log_softmax(x: Any, where: Any, *, axis: Any) -> Any:
    promotion.check_arraylike("log_softmax", x)
    largest = wnp.max(x, axis, where=where, initial=-np.inf, keepdims=True)
    safe = x if where is None else wnp.where(where, x, -np.inf)
    shifted = safe - lax.stop_gradient(largest)
    total = wnp.sum(wnp.exp(shifted), axis, where=where, keepdims=True)
    result = shifted - wnp.log(total)
    return result if where is None else wnp.where(where, result, -np.inf)


_as_log_softmax.__name__ = "log_softmax"
_log_softmax = functools.partial(jit, static_argnames=("axis",))(_as_log_softmax)


@overload
def logsumexp(
    a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: Literal[False] = False,
    where: Any = None,
) -> Array: ...  # fmt: skip


@overload
def logsumexp(
    a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, *, return_sign: Literal[True], where: Any = None
) -> tuple[Array, Array]: ...


def logsumexp(
    a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False, where: Any = None
) -> Any:
    """``log(sum(b * exp(a)))`` over ``axis`` without overflow; with ``return_sign`` also the sign of the sum.

    Without ``return_sign`` a negative sum gives NaN.

    >>> round(logsumexp(wnp.zeros(2)).item(), 4)
    0.6931
    """
    return _logsumexp(a, b, where, axis=axes.static_axes(axis), keepdims=bool(keepdims), return_sign=bool(return_sign))


@functools.partial(inline, static_argnames=("axis", "keepdims", "return_sign"))
def _logsumexp(a: Any, b: Any, where: Any, *, axis: Any, keepdims: bool, return_sign: bool) -> Any:
    if b is None:
        (a,) = promotion.promote_args_inexact("logsumexp", a)
    else:
        a, b = promotion.promote_args_inexact("logsumexp", a, b)
    if where is not None:
        a = wnp.where(where, a, 0)
    if b is not None:
        a = wnp.where(wnp.not_equal(b, 0), a, -np.inf)
    shape = promotion.shape_of(a)
    reduced = axes.canonical_axes(axis, len(shape))
    largest = wnp.max(wnp.real(a), reduced, keepdims=keepdims, where=where, initial=-np.inf)
    finite = lax.is_finite(largest)
    shift = lax.stop_gradient(lax.select(finite, largest, lax.full_like(largest, 0)))
    spread = shift if keepdims else lax.expand_dims(shift, reduced)
    powers = lax.exp(lax.sub(a, promotion.convert(spread, promotion.dtype_of(a))))
    if b is not None:
        powers = lax.mul(*promotion.promote_args("logsumexp", powers, b))
    total = wnp.sum(powers, reduced, keepdims=keepdims, where=where)
    sign = lax.sign(total)
    if return_sign or not dtypes.issubdtype(promotion.dtype_of(a), np.complexfloating):
        total = lax.abs(total)
    logarithm = lax.log(total)
    result = lax.add(logarithm, promotion.convert(shift, promotion.dtype_of(logarithm)))
    if return_sign:
        return result, sign
    if b is None or dtypes.issubdtype(promotion.dtype_of(result), np.complexfloating):
        return result
    negative = lax.lt(sign, np.asarray(0).astype(promotion.dtype_of(sign)))
    return wnp.where(negative, np.asarray(np.nan).astype(promotion.dtype_of(result)), result)


def logmeanexp(x: Any, axis: Any = None, where: Any = None, keepdims: bool = False) -> Array:
    """``log(mean(exp(x)))`` over ``axis`` without overflow.

    >>> logmeanexp(wnp.zeros(2)).item()
    0.0
    """
    return _logmeanexp(x, where=where, axis=axes.static_axes(axis), keepdims=bool(keepdims))


def _as_logmeanexp(x: Any, *, where: Any, axis: Any, keepdims: bool) -> Any:
    total = logsumexp(x, axis=axis, where=where, keepdims=keepdims)
    if where is None:
        shape = promotion.shape_of(x)
        count: Any = math.prod(shape[d] for d in axes.canonical_axes(axis, len(shape)))
        count = core.scalar(count, promotion.dtype_of(total))
    else:
        where = promotion.broadcast_to(where, promotion.shape_of(x))
        count = wnp.sum(where, axis=axis, keepdims=keepdims, dtype=promotion.dtype_of(total))
    return total - wnp.log(count)


_as_logmeanexp.__name__ = "logmeanexp"
_logmeanexp = functools.partial(jit, static_argnames=("axis", "keepdims"))(_as_logmeanexp)


def standardize(
    x: Any, axis: Any = -1, mean: Any = None, variance: Any = None, epsilon: Any = 1e-5, where: Any = None, *,
    algorithm: str = "fast",
) -> Array:  # fmt: skip
    """``(x - mean) / sqrt(variance + epsilon)`` over ``axis``, both computed unless given.

    ``algorithm`` is ``fast`` (mean of squares minus squared mean) or ``stable`` (mean of squared distances).

    >>> standardize(wnp.array([1.0, 3.0]), epsilon=0.0).tolist()
    [-1.0, 1.0]
    """
    optional = {"mean": mean, "variance": variance, "where": where}
    if not (isinstance(epsilon, float) and epsilon == 1e-5):
        optional["epsilon"] = epsilon
    given = {name: value for name, value in optional.items() if value is not None}
    return _standardize(x, **given, axis=axes.static_axes(axis), algorithm=algorithm)


def _as_standardize(
    x: Any, mean: Any = None, variance: Any = None, epsilon: Any = 1e-5, where: Any = None, *, axis: Any, algorithm: str
) -> Any:
    promotion.check_arraylike("standardize", x)
    if algorithm not in ("fast", "stable"):
        raise ValueError(f"Unknown algorithm {algorithm!r}. Expected 'fast' or 'stable'.")
    if mean is None:
        mean = wnp.mean(x, axis, keepdims=True, where=where)
    if variance is None:
        if algorithm == "fast":
            difference = wnp.mean(wnp.square(x), axis, keepdims=True, where=where) - wnp.square(mean)
            variance = wnp.clip(difference, 0)
        else:
            variance = wnp.mean(wnp.square(x - mean), axis, keepdims=True, where=where)
    return wnp.subtract(x, mean) * lax.rsqrt(variance + epsilon)


_as_standardize.__name__ = "standardize"
_standardize = functools.partial(jit, static_argnames=("axis", "algorithm"))(_as_standardize)


def one_hot(x: Any, num_classes: Any, *, dtype: Any = None, axis: int = -1) -> Array:
    """Rows of zeros with a one at the index that ``x`` gives; all zeros for indices out of range.

    ``axis`` is where the new axis of extent ``num_classes`` goes.

    >>> one_hot(wnp.array([0, 1]), 2).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    count = axes.concrete_int(num_classes, "The error arose in jax.nn.one_hot argument `num_classes`.")
    asked = dtypes.canonicalize_dtype(np.float64) if dtype is None else reductions.user_dtype(dtype, "one_hot")
    x = wnp.asarray(x) if isinstance(x, list | tuple) else x
    promotion.check_arraylike("one_hot", x)
    return _one_hot(x, num_classes=count, dtype=asked, axis=axis)


@functools.partial(jit_module.jit, static_argnames=("num_classes", "dtype", "axis"))
def _one_hot(x: Any, *, num_classes: int, dtype: Any, axis: int) -> Any:
    shape = promotion.shape_of(x)
    position = axes.canonical_axis(axis, len(shape) + 1)
    expanded = lax.expand_dims(x, (position,))
    extents = tuple(num_classes if d == position else 1 for d in range(len(shape) + 1))
    own = promotion.dtype_of(x)
    classes = lax.broadcasted_iota(own if own != np.bool_ else np.int32, extents, position)
    return promotion.convert(wnp.equal(expanded, classes), dtype)
