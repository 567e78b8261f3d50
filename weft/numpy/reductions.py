"""Reductions with ``axis``, ``keepdims``, ``initial`` and ``where``, the positions of extremes, running sums.

Small dtypes are widened as NumPy and JAX do: sums of bool and narrow integers accumulate in the default integer,
sums of 16-bit floats in float32. ``where`` replaces what it masks by the identity::

    sum(bf16[3,4], axis=1)   ->  convert_element_type[float32], reduce_sum[axes=(1,)], convert_element_type[bfloat16]
    sum(f32[3,4], where=m)   ->  jit[name=_where] m a 0.0, reduce_sum
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import dtypes, errors
from weft import operations as lax
from weft._base.array import Array
from weft._base.record import Record
from weft.dispatch.calls import jit as jit_module
from weft.numpy import axes, promotion
from weft.numpy.pointwise import selection

inline = functools.partial(jit_module.jit, inline=True)
jit = jit_module.jit

_builtin_all, _builtin_any = all, any


def refuse_out(name: str, out: Any) -> None:
    """``out=`` is NumPy's; arrays here are immutable."""
    if out is not None:
        raise NotImplementedError(f"The 'out' argument to jnp.{name} is not supported.")


class Reducer(Record):
    """What tells one reduction from another; hashable by identity, for it is a static argument."""

    name: str
    reduce: Callable[..., Any]
    combine: Callable[[Any, Any], Any]
    identity: Callable[[Any], Any]  # dtype -> the value that changes nothing
    has_identity: bool = True
    as_bool: bool = False
    upcast_half: bool = False

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


def _lowest(dtype: Any) -> Any:
    if dtype == np.bool_:
        return np.False_
    if dtypes.issubdtype(dtype, np.complexfloating):
        return np.asarray(complex(-np.inf, -np.inf), dtype)
    return np.asarray(-np.inf if dtypes.issubdtype(dtype, np.floating) else dtypes.iinfo(dtype).min, dtype)


def _highest(dtype: Any) -> Any:
    if dtype == np.bool_:
        return np.True_
    if dtypes.issubdtype(dtype, np.complexfloating):
        return np.asarray(complex(np.inf, np.inf), dtype)
    return np.asarray(np.inf if dtypes.issubdtype(dtype, np.floating) else dtypes.iinfo(dtype).max, dtype)


_SUM = Reducer("sum", lax.reduce_sum, lax.add, lambda dtype: np.asarray(0, dtype), upcast_half=True)
_PROD = Reducer("prod", lax.reduce_prod, lax.mul, lambda dtype: np.asarray(1, dtype), upcast_half=True)
MAX = Reducer("max", lax.reduce_max, lax.max, _lowest, has_identity=False)
MIN = Reducer("min", lax.reduce_min, lax.min, _highest, has_identity=False)
_ALL = Reducer("all", lax.reduce_and, lax.bitwise_and, lambda dtype: np.True_, as_bool=True)
_TRUTH = {"sum": (lax.reduce_or, lax.bitwise_or), "prod": (lax.reduce_and, lax.bitwise_and)}  # with dtype=bool
_ANY = Reducer("any", lax.reduce_or, lax.bitwise_or, lambda dtype: np.False_, as_bool=True)


def sum_dtype(dtype: Any) -> Any:
    """The dtype that bool and narrow integers are summed in."""
    if dtype == np.bool_:
        return dtypes.canonicalize_dtype(np.int64)
    if dtypes.issubdtype(dtype, np.unsignedinteger):
        return np.promote_types(dtype, dtypes.canonicalize_dtype(np.uint64))
    if dtypes.issubdtype(dtype, np.integer):
        return np.promote_types(dtype, dtypes.canonicalize_dtype(np.int64))
    return dtype


def expand_reduced(result: Any, shape: tuple[int, ...], reduced: tuple[int, ...]) -> Array:
    """The reduced axes put back with extent 1."""
    kept = tuple([d for d in range(len(shape)) if d not in reduced])
    return lax.broadcast_in_dim(result, tuple([1 if d in reduced else n for d, n in enumerate(shape)]), kept)


def check_where(name: str, where: Any) -> None:
    """ValueError for a mask of numbers: it would be unclear whether they count or choose."""
    if where is not None and promotion.dtype_of(where) != np.bool_:
        raise ValueError(
            f"jnp.{name}: where must be None or a boolean array; got where.dtype={promotion.dtype_of(where)!r}. "
            "Compare first, as in where=mask != 0."
        )


@functools.partial(inline, static_argnames=("reducer", "axis", "dtype", "keepdims", "widen"))
def reduce_by(
    a: Any, initial: Any, where: Any, *, reducer: Reducer, axis: Any, dtype: Any, keepdims: bool, widen: bool
) -> Array:
    promotion.check_arraylike(reducer.name, a)
    check_where(reducer.name, where)
    if where is not None and not reducer.has_identity and initial is None:
        raise ValueError(
            f"reduction operation {reducer.name} does not have an identity, so to use a where mask one has to "
            "specify 'initial'"
        )
    shape, own = promotion.shape_of(a), promotion.dtype_of(a)
    reduced = axes.canonical_axes(axis, len(shape))
    if not reducer.has_identity and initial is None and _builtin_any(shape[d] == 0 for d in reduced):
        raise ValueError(f"zero-size array to reduction operation {reducer.name} which has no identity")
    if reducer.as_bool:
        result_dtype = np.dtype(np.bool_)
        if dtypes.issubdtype(own, np.complexfloating):  # a conversion would look at the real part alone
            a = lax.ne(a, np.asarray(0, own))
    else:
        result_dtype = dtype if dtype is not None else (sum_dtype(own) if widen else own)
    half = reducer.upcast_half and dtype is None and dtypes.issubdtype(result_dtype, np.floating)
    compute = np.dtype(np.float32) if half and dtypes.finfo(result_dtype).bits == 16 else result_dtype
    if own == np.bool_ and reducer.upcast_half:  # a sum or product of truth values counts
        a = promotion.convert(a, np.dtype(np.int32))
        result_dtype = compute = dtype if dtype is not None else sum_dtype(own) if widen else np.dtype(np.int32)
    a = promotion.convert(a, compute)
    if where is not None:
        a = selection.where(where, a, reducer.identity(compute))
    reduce, combine = reducer.reduce, reducer.combine
    if compute == np.bool_:
        reduce, combine = _TRUTH.get(reducer.name, (reduce, combine))
    result = reduce(a, reduced)
    if initial is not None:
        if promotion.shape_of(initial) != ():
            raise ValueError("initial value must be a scalar. Got array of shape " + str(promotion.shape_of(initial)))
        result = combine(promotion.convert(initial, promotion.dtype_of(result)), result)
    if keepdims:
        result = expand_reduced(result, shape, reduced)
    return promotion.convert(result, result_dtype)


def user_dtype(dtype: Any, name: str) -> Any:
    """A dtype that the user asked for, canonical; None stays None."""
    return None if dtype is None else dtypes.check_user_dtype(dtype, name)


def sum(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
    promote_integers: bool = True,
) -> Array:
    """Sum over ``axis`` (None: all axes) of the elements where ``where`` holds, plus ``initial``.

    bool and narrow integers are summed in the default integer unless ``promote_integers`` is False.

    >>> sum(True).item()
    1
    """
    refuse_out("sum", out)
    return reduce_by(
        a,
        initial,
        where,
        reducer=_SUM,
        axis=axes.reduced_axes(axis, "sum"),
        dtype=user_dtype(dtype, "sum"),
        keepdims=bool(keepdims),
        widen=promote_integers,
    )


def prod(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
    promote_integers: bool = True,
) -> Array:
    """Product over ``axis`` (None: all axes) of the elements where ``where`` holds, times ``initial``.

    >>> prod(3.0).item()
    3.0
    """
    refuse_out("prod", out)
    return reduce_by(
        a,
        initial,
        where,
        reducer=_PROD,
        axis=axes.reduced_axes(axis, "prod"),
        dtype=user_dtype(dtype, "prod"),
        keepdims=bool(keepdims),
        widen=promote_integers,
    )


def _plain(reducer: Reducer, a: Any, axis: Any, out: Any, keepdims: bool, initial: Any, where: Any) -> Any:
    refuse_out(reducer.name, out)
    return reduce_by(
        a,
        initial,
        where,
        reducer=reducer,
        axis=axes.reduced_axes(axis, reducer.name),
        dtype=None,
        keepdims=bool(keepdims),
        widen=False,
    )


def max(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Array:
    """Largest element over ``axis``; NaN if there is one. ValueError over an empty axis without ``initial``.

    >>> max(3).item()
    3
    """
    return _plain(MAX, a, axis, out, keepdims, initial, where)


def min(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Array:
    """Smallest element over ``axis``; NaN if there is one. ValueError over an empty axis without ``initial``.

    >>> min(3).item()
    3
    """
    return _plain(MIN, a, axis, out, keepdims, initial, where)


def amax(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Array:
    """Largest element over ``axis``, the same as ``max``.

    >>> amax(3).item()
    3
    """
    return max(a, axis, out, keepdims, initial, where)


def amin(
    a: Any, axis: Any = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Array:
    """Smallest element over ``axis``, the same as ``min``.

    >>> amin(3).item()
    3
    """
    return min(a, axis, out, keepdims, initial, where)


def all(a: Any, axis: Any = None, out: None = None, keepdims: bool = False, *, where: Any = None) -> Array:
    """Whether every element over ``axis`` is nonzero.

    >>> all(1).item()
    True
    """
    return _plain(_ALL, a, axis, out, keepdims, None, where)


def any(a: Any, axis: Any = None, out: None = None, keepdims: bool = False, *, where: Any = None) -> Array:
    """Whether some element over ``axis`` is nonzero.

    >>> any(0).item()
    False
    """
    return _plain(_ANY, a, axis, out, keepdims, None, where)


@jit(static_argnames=("axis", "keepdims"))
def count_nonzero(a: Any, axis: Any = None, keepdims: bool = False) -> Array:
    """How many elements over ``axis`` are nonzero, as the default integer.

    >>> count_nonzero(5).item()
    1
    """
    promotion.check_arraylike("count_nonzero", a)
    nonzero = lax.ne(a, np.asarray(0, promotion.dtype_of(a)))
    return sum(nonzero, axis=axis, dtype=dtypes.canonicalize_dtype(np.int64), keepdims=keepdims)


def ptp(a: Any, axis: Any = None, out: None = None, keepdims: bool = False) -> Array:
    """Largest minus smallest element over ``axis``.

    >>> ptp(3).item()
    0
    """
    refuse_out("ptp", out)
    return _ptp(a, axis=axes.reduced_axes(axis, "ptp"), keepdims=bool(keepdims))


@jit(static_argnames=("axis", "keepdims"))
def _ptp(a: Any, *, axis: Any, keepdims: bool) -> Any:
    promotion.check_arraylike("ptp", a)
    largest = max(a, axis=axis, keepdims=keepdims)
    return lax.sub(largest, min(a, axis=axis, keepdims=keepdims))


def _one_axis(axis: Any) -> int | None:
    return None if axis is None else operator.index(axis)


@functools.partial(inline, static_argnames=("largest", "axis", "keepdims"))
def _arg_extreme(a: Any, *, largest: bool, axis: int | None, keepdims: bool) -> Any:
    name = "argmax" if largest else "argmin"
    promotion.check_arraylike(name, a)
    shape = promotion.shape_of(a)
    if axis is None:
        a, position = promotion.as_array(a), 0
        a = lax.reshape(a, (math.prod(shape),)) if len(shape) != 1 else a
    elif -len(shape) <= axis < len(shape):
        position = axis % len(shape)
    else:
        raise errors.AxisError(f"[{name}] axis {axis} is out of bounds for array of dimension {len(shape)}")
    extents = promotion.shape_of(a)
    if extents[position] == 0:
        raise ValueError(f"attempt to get {name} of an empty sequence")
    index_dtype = dtypes.canonicalize_dtype(np.int64)
    result = (lax.argmax if largest else lax.argmin)(a, position, index_dtype)
    if keepdims:
        reduced = tuple(range(len(shape))) if axis is None else (position,)
        result = expand_reduced(result, shape, reduced)
    return result


def argmax(a: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Array:
    """Position of the largest element along ``axis``, or in the flattened array; the first of equals, NaN before all.

    >>> argmax(3.0).item()
    0
    """
    refuse_out("argmax", out)
    return _arg_extreme(a, largest=True, axis=_one_axis(axis), keepdims=bool(keepdims))


def argmin(a: Any, axis: int | None = None, out: None = None, keepdims: bool | None = None) -> Array:
    """Position of the smallest element along ``axis``, or in the flattened array; the first of equals, NaN before all.

    >>> argmin(3.0).item()
    0
    """
    refuse_out("argmin", out)
    return _arg_extreme(a, largest=False, axis=_one_axis(axis), keepdims=bool(keepdims))


def _running(
    name: str, scan: Callable[..., Any], fill: float | None, a: Any, axis: Any, dtype: Any, widen: bool = False
) -> Any:
    """A running sum or product along one axis (None: of the flattened array); NaN counts as ``fill`` if given."""
    promotion.check_arraylike(name, a)
    shape = promotion.shape_of(a)
    if axis is None:
        if len(shape) != 1:
            a = lax.reshape(promotion.as_array(a), (math.prod(shape),))
        axis = 0
    axis = axes.canonical_axis(axis, len(promotion.shape_of(a)))
    own = promotion.dtype_of(a)
    if fill is not None and dtypes.issubdtype(own, np.inexact):
        a = selection.where(lax.ne(a, a), np.asarray(fill, own), a)
    if dtype is None:
        dtype = sum_dtype(own) if widen or own == np.bool_ else own
    a = promotion.convert(a, dtype)
    if dtype == np.bool_:  # truth values are counted, then made truth values again
        return promotion.convert(scan(promotion.convert(a, np.dtype(np.int32)), axis=axis), dtype)
    return scan(a, axis=axis)


def _running_function(name: str, scan: Callable[..., Any], fill: float | None, widen: bool = False) -> Any:
    def function(a: Any, *, axis: Any, dtype: Any) -> Any:
        return _running(name, scan, fill, a, axis, dtype, widen)

    function.__name__ = name
    return functools.partial(jit_module.jit, static_argnames=("axis", "dtype"))(function)


_cumsum = _running_function("cumsum", lax.cumsum, None)
_cumprod = _running_function("cumprod", lax.cumprod, None)
_nancumsum = _running_function("nancumsum", lax.cumsum, 0.0)
_nancumprod = _running_function("nancumprod", lax.cumprod, 1.0)
_cumsum_with_promotion = _running_function("_cumsum_with_promotion", lax.cumsum, None, widen=True)


def cumsum(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Array:
    """Running sum along ``axis``, or of the flattened array; bool is summed in the default integer.

    >>> cumsum(2).tolist()
    [2]
    """
    refuse_out("cumsum", out)
    return _cumsum(a, axis=axes.static_axes(axis), dtype=user_dtype(dtype, "cumsum"))


def cumprod(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Array:
    """Running product along ``axis``, or of the flattened array.

    >>> cumprod(2).tolist()
    [2]
    """
    refuse_out("cumprod", out)
    return _cumprod(a, axis=axes.static_axes(axis), dtype=user_dtype(dtype, "cumprod"))


def nancumsum(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Array:
    """Running sum that takes NaN as 0.

    >>> nancumsum(float("nan")).tolist()
    [0.0]
    """
    refuse_out("nancumsum", out)
    return _nancumsum(a, axis=axes.static_axes(axis), dtype=user_dtype(dtype, "nancumsum"))


def nancumprod(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Array:
    """Running product that takes NaN as 1.

    >>> nancumprod(float("nan")).tolist()
    [1.0]
    """
    refuse_out("nancumprod", out)
    return _nancumprod(a, axis=axes.static_axes(axis), dtype=user_dtype(dtype, "nancumprod"))


def _cumulative(name: str, x: Any, axis: Any, include_initial: bool, run: Callable[..., Any], start: int) -> Any:
    promotion.check_arraylike(name, x)
    shape = promotion.shape_of(x)
    if not shape:
        raise ValueError(
            f"The input must be non-scalar to take a {name.replace('_', ' ')}, however a scalar value was given."
        )
    if axis is None:
        if len(shape) > 1:
            raise ValueError(
                f"The input array has rank {len(shape)}, however axis was not set to an explicit value. The axis "
                "argument is only optional for one-dimensional arrays."
            )
        axis = 0
    axis = axes.canonical_axis(axis, len(shape))
    result = run(x, axis=axis)
    if include_initial:
        extents = tuple(1 if d == axis else n for d, n in enumerate(shape))
        first = lax.full(extents, start, promotion.dtype_of(result))
        result = lax.concatenate([first, result], axis)
    return result


def cumulative_sum(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Array:
    """Running sum along ``axis`` (needed unless ``x`` has rank 1); with ``include_initial`` a leading 0.

    >>> cumulative_sum(weft.numpy.ones(2)).tolist()
    [1.0, 2.0]
    """
    asked = user_dtype(dtype, "cumulative_sum")
    run = functools.partial(_cumsum_with_promotion, dtype=asked)
    return _cumulative("cumulative_sum", x, axis, include_initial, run, 0)


def cumulative_prod(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Array:
    """Running product along ``axis`` (needed unless ``x`` has rank 1); with ``include_initial`` a leading 1.

    >>> cumulative_prod(weft.numpy.ones(2)).tolist()
    [1.0, 1.0]
    """
    asked = user_dtype(dtype, "cumulative_prod")
    run = functools.partial(_running, "cumulative_prod", lax.cumprod, None, dtype=asked)
    return _cumulative("cumulative_prod", x, axis, include_initial, run, 1)
