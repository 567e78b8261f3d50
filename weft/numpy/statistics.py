"""Means, variances, covariances, and the reductions that skip NaN.

Means of 16-bit floats are computed in float32 and rounded once; integers are averaged in floating point::

    mean(f32[3,4], axis=1)  ->  reduce_sum[axes=(1,)], div 4.0
    nanmax(f32[3,4])        ->  jit[name=nanmax]: NaN replaced by -inf, reduce_max, NaN again where all are NaN
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Literal, overload

import numpy as np

from weft import core, dtypes
from weft import operations as lax
from weft._base.array import Array
from weft.dispatch.calls import jit as jit_module
from weft.numpy import axes, promotion, reductions
from weft.numpy.pointwise import selection

inline = functools.partial(jit_module.jit, inline=True)
jit = jit_module.jit


def _compute_dtype(dtype: Any) -> Any:
    """float32 for 16-bit floats, otherwise ``dtype``."""
    if dtypes.issubdtype(dtype, np.floating) and dtypes.finfo(dtype).bits == 16:
        return np.dtype(np.float32)
    return dtype


def _count(shape: tuple[int, ...], axis: Any) -> int:
    return math.prod([shape[d] for d in axes.canonical_axes(axis, len(shape))])


def _divisor(a: Any, where: Any, axis: Any, dtype: Any, keepdims: bool) -> Any:
    """How many elements a mean is over, in its dtype: known from the shape, or those of the mask."""
    if where is not None:
        mask = promotion.broadcast_to(where, promotion.shape_of(a))
        return reductions.sum(mask, axis=axis, dtype=dtype, keepdims=keepdims)
    return core.scalar(_count(promotion.shape_of(a), axis), dtype)


@functools.partial(inline, static_argnames=("axis", "dtype", "keepdims", "name"))
def _mean(a: Any, where: Any, *, axis: Any, dtype: Any, keepdims: bool, name: str = "mean") -> Any:
    promotion.check_arraylike(name, a)
    reductions.check_where(name, where)
    result = promotion.inexact_dtype(promotion.dtype_of(a)) if dtype is None else dtype
    compute = _compute_dtype(result) if dtype is None else result
    divisor = _divisor(a, where, axis, compute, keepdims)
    total = reductions.sum(a, axis=axis, dtype=compute, keepdims=keepdims, where=where)
    return promotion.convert(lax.div(total, divisor), result)


def mean(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, *, where: Any = None
) -> Array:
    """Arithmetic mean over ``axis`` of the elements where ``where`` holds; NaN over an empty axis.

    >>> mean(3).item()
    3.0
    """
    reductions.refuse_out("mean", out)
    asked = reductions.user_dtype(dtype, "mean")
    axis = axes.reduced_axes(axis, "mean")
    return _mean(a, where, axis=axis, dtype=asked, keepdims=bool(keepdims))


@overload
def average(
    a: Any, axis: Any = None, weights: Any = None, returned: Literal[False] = False, keepdims: bool = False
) -> Array: ...


@overload
def average(
    a: Any, axis: Any = None, weights: Any = None, *, returned: Literal[True], keepdims: bool = False
) -> tuple[Array, Array]: ...


def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, keepdims: bool = False) -> Any:
    """Mean over ``axis`` with ``weights`` of the shape of ``a``, or of ``axis``; ``returned`` adds their sum.

    ValueError for weights of another shape.

    >>> average(3.0).item()
    3.0
    """
    return _average(a, weights, axis=axes.static_axes(axis), returned=bool(returned), keepdims=bool(keepdims))


@functools.partial(inline, static_argnames=("axis", "returned", "keepdims"))
def _average(a: Any, weights: Any, *, axis: Any, returned: bool, keepdims: bool) -> Any:
    if weights is None:
        promotion.check_arraylike("average", a)
        result = mean(a, axis=axis, keepdims=keepdims)
        total = core.scalar(_count(promotion.shape_of(a), axis), promotion.dtype_of(result))
    else:
        a, weights = _average_operands(a, weights, axis)
        total = reductions.sum(weights, axis=axis, keepdims=keepdims)
        result = lax.div(reductions.sum(lax.mul(a, weights), axis=axis, keepdims=keepdims), total)
    if not returned:
        return result
    if promotion.shape_of(total) != promotion.shape_of(result):
        total = promotion.broadcast_to(total, promotion.shape_of(result))
    return result, promotion.as_array(total)


def _average_operands(a: Any, weights: Any, axis: Any) -> tuple[Any, Any]:
    promotion.check_arraylike("average", a, weights)
    a, weights = promotion.promote_dtypes_inexact(a, weights)
    shape, extents = promotion.shape_of(a), promotion.shape_of(weights)
    if shape == extents:
        return a, weights
    if axis is None:
        raise ValueError("Axis must be specified when shapes of a and weights differ.")
    reduced = axes.canonical_axes(axis, len(shape))
    if extents != tuple(shape[d] for d in reduced):
        raise ValueError(
            "Shape of weights must be consistent with shape of a along specified axis: weights have shape "
            f"{extents}, a has {shape}, axis={axis}."
        )
    order = sorted(range(len(reduced)), key=lambda number: reduced[number])  # the axes of the weights as ``a`` has them
    if order != list(range(len(order))):
        weights = lax.transpose(weights, order)
    return a, lax.reshape(weights, tuple(shape[d] if d in reduced else 1 for d in range(len(shape))))


def _wanted_dtype(name: str, a: Any, dtype: Any) -> Any:
    """The dtype of a variance; ValueError for a real one of complex numbers."""
    own = promotion.dtype_of(a)
    wanted = promotion.inexact_dtype(own) if dtype is None else dtype
    if dtypes.issubdtype(own, np.complexfloating) and not dtypes.issubdtype(wanted, np.complexfloating):
        raise ValueError(
            f"jax.numpy.{name} does not yet support real dtype parameters when computing the {name} of an array of "
            f"complex values, got {wanted} for {own}: without dtype the result is real."
        )
    return wanted


def _corrections(ddof: Any, correction: Any) -> Any:
    if correction is None:
        return ddof
    if ddof != 0:
        raise ValueError("ddof and correction can't be provided simultaneously.")
    return correction


_VAR_STATIC = ("axis", "dtype", "keepdims")


@functools.partial(jit, static_argnames=_VAR_STATIC)
def _var(a: Any, mean: Any, correction: Any, where: Any, *, axis: Any, dtype: Any, keepdims: bool) -> Any:
    promotion.check_arraylike("var", a)
    reductions.check_where("var", where)
    result = _wanted_dtype("var", a, dtype)
    compute = _compute_dtype(result)
    a = promotion.convert(a, compute)
    center = _mean(a, where, axis=axis, dtype=compute, keepdims=True) if mean is None else mean
    centered = lax.sub(*promotion.promote_args("var", a, center))
    if dtypes.issubdtype(compute, np.complexfloating):
        centered = lax.real(lax.mul(centered, lax.conj(centered)))
        compute = promotion.dtype_of(centered)
        result = compute if dtype is None else result
    else:
        centered = lax.square(centered)
    divisor = _divisor(a, where, axis, compute, keepdims)
    freedom = lax.sub(divisor, promotion.convert(correction, compute))
    total = reductions.sum(centered, axis=axis, keepdims=keepdims, where=where)
    variance = promotion.convert(lax.div(total, freedom), result)
    return selection.where(lax.gt(freedom, np.asarray(0, compute)), variance, np.nan)


@functools.partial(jit, static_argnames=_VAR_STATIC)
def _std(a: Any, correction: Any, mean: Any, where: Any, *, axis: Any, dtype: Any, keepdims: bool) -> Any:
    return lax.sqrt(_var(a, mean, correction, where, axis=axis, dtype=dtype, keepdims=keepdims))


def var(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    *,
    where: Any = None,
    mean: Any = None,
    correction: int | float | None = None,
) -> Array:
    """Mean squared distance from the mean over ``axis``, divided by the count less ``ddof`` (or ``correction``).

    NaN where that divisor is not positive; real for complex operands.

    >>> var(3.0).item()
    0.0
    """
    reductions.refuse_out("var", out)
    asked = reductions.user_dtype(dtype, "var")
    if asked is not None and not dtypes.issubdtype(asked, np.inexact):
        raise ValueError(f"dtype argument to jnp.var must be inexact; got {asked}")
    correction, axis = _corrections(ddof, correction), axes.reduced_axes(axis, "var")
    return _var(a, mean, correction, where, axis=axis, dtype=asked, keepdims=bool(keepdims))


def std(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    *,
    where: Any = None,
    mean: Any = None,
    correction: int | float | None = None,
) -> Array:
    """Square root of ``var``, with the same arguments.

    >>> std(3.0).item()
    0.0
    """
    reductions.refuse_out("std", out)
    asked = reductions.user_dtype(dtype, "std")
    if asked is not None and not dtypes.issubdtype(asked, np.inexact):
        raise ValueError(f"dtype argument to jnp.std must be inexact; got {asked}")
    correction, axis = _corrections(ddof, correction), axes.reduced_axes(axis, "std")
    return _std(a, correction, mean, where, axis=axis, dtype=asked, keepdims=bool(keepdims))


def _is_nan(a: Any) -> Any:
    return lax.ne(a, a)


def _nan_reduction(
    name: str, reduce: Callable[..., Any], fill: float, refill: bool, a: Any, initial: Any, where: Any, **static: Any
) -> Any:
    """Reduce with NaN replaced by ``fill``; where nothing but NaN was there, NaN again if ``refill``."""
    promotion.check_arraylike(name, a)
    dtype = promotion.dtype_of(a)
    if not dtypes.issubdtype(dtype, np.inexact):
        return reduce(a, initial=initial, where=where, **static)
    result = reduce(selection.where(_is_nan(a), np.asarray(fill, dtype), a), initial=initial, where=where, **static)
    if not refill or initial is not None:
        return result
    empty = reductions.all(_is_nan(a), axis=static["axis"], keepdims=static["keepdims"])
    return selection.where(empty, np.asarray(np.nan, dtype), result)


def _nan_function(name: str, reduce: Callable[..., Any], fill: float, refill: bool, with_dtype: bool) -> Any:
    def function(a: Any, *, initial: Any, where: Any, **static: Any) -> Any:
        return _nan_reduction(name, reduce, fill, refill, a, initial, where, **static)

    function.__name__ = name
    static = ("axis", "keepdims", "dtype") if with_dtype else ("axis", "keepdims")
    return functools.partial(jit, static_argnames=static)(function)


_nanmax = _nan_function("nanmax", reductions.max, -np.inf, True, False)
_nanmin = _nan_function("nanmin", reductions.min, np.inf, True, False)
_nansum = _nan_function("nansum", reductions.sum, 0, False, True)
_nanprod = _nan_function("nanprod", reductions.prod, 1, False, True)


def nanmax(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Array:
    """Largest element over ``axis`` that is not NaN; NaN if all are.

    >>> nanmax(3.0).item()
    3.0
    """
    reductions.refuse_out("nanmax", out)
    return _nanmax(a, axis=axes.reduced_axes(axis, "max"), keepdims=bool(keepdims), initial=initial, where=where)


def nanmin(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Array:
    """Smallest element over ``axis`` that is not NaN; NaN if all are.

    >>> nanmin(3.0).item()
    3.0
    """
    reductions.refuse_out("nanmin", out)
    return _nanmin(a, axis=axes.reduced_axes(axis, "min"), keepdims=bool(keepdims), initial=initial, where=where)


def nansum(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """Sum over ``axis`` of the elements that are not NaN.

    >>> nansum(float("nan")).item()
    0.0
    """
    reductions.refuse_out("nansum", out)
    asked = reductions.user_dtype(dtype, "nansum")
    return _nansum(
        a, axis=axes.reduced_axes(axis, "sum"), dtype=asked, keepdims=bool(keepdims), initial=initial, where=where
    )


def nanprod(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Array:
    """Product over ``axis`` of the elements that are not NaN.

    >>> nanprod(float("nan")).item()
    1.0
    """
    reductions.refuse_out("nanprod", out)
    asked = reductions.user_dtype(dtype, "nanprod")
    return _nanprod(
        a, axis=axes.reduced_axes(axis, "prod"), dtype=asked, keepdims=bool(keepdims), initial=initial, where=where
    )


def _as_nanmean(a: Any, *, where: Any, axis: Any, dtype: Any, keepdims: bool) -> Any:
    promotion.check_arraylike("nanmean", a)
    own = promotion.dtype_of(a)
    if not dtypes.issubdtype(own, np.inexact):
        return mean(a, axis=axis, dtype=dtype, keepdims=keepdims, where=where)
    dtype = own if dtype is None else dtype
    present = lax.bitwise_not(_is_nan(a))
    count = reductions.sum(present, axis=axis, dtype=dtype, keepdims=keepdims, where=where)
    total = nansum(a, axis=axis, dtype=dtype, keepdims=keepdims, where=where)
    return lax.div(total, count)


_as_nanmean.__name__ = "nanmean"
_nanmean = functools.partial(jit, static_argnames=("axis", "dtype", "keepdims"))(_as_nanmean)


def nanmean(
    a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False, where: Any = None
) -> Array:
    """Mean over ``axis`` of the elements that are not NaN; NaN if all are.

    >>> nanmean(3.0).item()
    3.0
    """
    reductions.refuse_out("nanmean", out)
    asked = reductions.user_dtype(dtype, "nanmean")
    return _nanmean(a, where=where, axis=axes.reduced_axes(axis, "nanmean"), dtype=asked, keepdims=bool(keepdims))


def _as_nanvar(a: Any, ddof: Any = 0, *, mean: Any, where: Any, axis: Any, dtype: Any, keepdims: bool) -> Any:
    promotion.check_arraylike("nanvar", a)
    reductions.check_where("nanvar", where)
    result = _wanted_dtype("nanvar", a, dtype)
    compute = _compute_dtype(result)
    a = promotion.convert(a, compute)
    center = nanmean(a, axis=axis, dtype=compute, keepdims=True, where=where) if mean is None else mean
    centered = selection.where(_is_nan(a), 0, lax.sub(*promotion.promote_args("nanvar", a, center)))
    if dtypes.issubdtype(compute, np.complexfloating):
        centered = lax.real(lax.mul(centered, lax.conj(centered)))
        result = promotion.dtype_of(centered) if dtype is None else result
    else:
        centered = lax.square(centered)
    count = reductions.sum(lax.bitwise_not(_is_nan(a)), axis=axis, keepdims=keepdims, where=where)
    freedom = lax.sub(count, promotion.convert(ddof, promotion.dtype_of(count)))
    too_few = lax.le(freedom, np.asarray(0, promotion.dtype_of(freedom)))
    total = reductions.sum(centered, axis=axis, keepdims=keepdims, where=where)
    total = selection.where(too_few, np.nan, total)
    divisor = selection.where(too_few, 1, freedom)
    divisor = promotion.convert(divisor, promotion.dtype_of(total))
    variance = lax.div(*promotion.promote_shapes(total, divisor))
    return promotion.convert(variance, result)


_as_nanvar.__name__ = "nanvar"
_nanvar = functools.partial(jit, static_argnames=("axis", "dtype", "keepdims"))(_as_nanvar)


def _as_nanstd(a: Any, ddof: Any = 0, *, mean: Any, where: Any, axis: Any, dtype: Any, keepdims: bool) -> Any:
    return lax.sqrt(_nanvar(a, ddof, mean=mean, where=where, axis=axis, dtype=dtype, keepdims=keepdims))


_as_nanstd.__name__ = "nanstd"
_nanstd = functools.partial(jit, static_argnames=("axis", "dtype", "keepdims"))(_as_nanstd)


def nanvar(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    where: Any = None,
    mean: Any = None,
) -> Array:
    """Variance over ``axis`` of the elements that are not NaN; NaN where no more than ``ddof`` of them are left.

    >>> nanvar(3.0).item()
    0.0
    """
    reductions.refuse_out("nanvar", out)
    asked = reductions.user_dtype(dtype, "nanvar")
    args = (a,) if type(ddof) is int and ddof == 0 else (a, ddof)
    return _nanvar(
        *args, mean=mean, where=where, axis=axes.reduced_axes(axis, "nanvar"), dtype=asked, keepdims=bool(keepdims)
    )


def nanstd(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    where: Any = None,
    mean: Any = None,
) -> Array:
    """Square root of ``nanvar``, with the same arguments.

    >>> nanstd(3.0).item()
    0.0
    """
    reductions.refuse_out("nanstd", out)
    asked = reductions.user_dtype(dtype, "nanstd")
    args = (a,) if type(ddof) is int and ddof == 0 else (a, ddof)
    return _nanstd(
        *args, mean=mean, where=where, axis=axes.reduced_axes(axis, "nanstd"), dtype=asked, keepdims=bool(keepdims)
    )


@jit(static_argnames=("largest", "axis", "keepdims"))
def _nanargmax(a: Any, *, largest: bool, axis: Any, keepdims: bool) -> Any:
    name, choose = ("nanargmax", reductions.argmax) if largest else ("nanargmin", reductions.argmin)
    promotion.check_arraylike(name, a)
    if not dtypes.issubdtype(promotion.dtype_of(a), np.inexact):
        return choose(a, axis=axis, keepdims=keepdims)
    missing = _is_nan(a)
    filled = selection.where(missing, -np.inf if largest else np.inf, a)
    result = choose(filled, axis=axis, keepdims=keepdims)
    return selection.where(reductions.all(missing, axis=axis, keepdims=keepdims), -1, result)


def _as_nanargmin(a: Any, *, largest: bool, axis: Any, keepdims: bool) -> Any:
    return _nanargmax.__wrapped__(a, largest=largest, axis=axis, keepdims=keepdims)


_as_nanargmin.__name__ = "_nanargmin"
_nanargmin = functools.partial(jit, static_argnames=("largest", "axis", "keepdims"))(_as_nanargmin)


def nanargmax(a: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Array:
    """Position of the largest element that is not NaN along ``axis``; -1 if all are NaN.

    >>> nanargmax(3.0).item()
    0
    """
    reductions.refuse_out("nanargmax", out)
    return _nanargmax(a, largest=True, axis=axes.static_axes(axis), keepdims=bool(keepdims))


def nanargmin(a: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Array:
    """Position of the smallest element that is not NaN along ``axis``; -1 if all are NaN.

    >>> nanargmin(3.0).item()
    0
    """
    reductions.refuse_out("nanargmin", out)
    return _nanargmin(a, largest=False, axis=axes.static_axes(axis), keepdims=bool(keepdims))
