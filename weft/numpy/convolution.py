"""Convolution and correlation of vectors, as sums of shifted products.

    convolve(f32[100], f32[5])  ->  five slices of the padded longer vector, each times an element of the other, summed

A long second vector is read in a loop, 32 elements at a time.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from weft import dtypes
from weft import operations as lax
from weft._base.array import Array
from weft.control import scan as scan_module
from weft.dispatch.calls import jit as jit_module
from weft.numpy import promotion
from weft.operations import contract

_AT_ONCE = 32
_MODES = ("full", "same", "valid")


def _few(x: Any, v: Any, count: int) -> Any:
    """``sum(x[j : j + count] * v[j])`` over the elements of v."""
    total: Any = None
    for j in range(promotion.shape_of(v)[0]):
        weight = lax.squeeze(lax.slice_in_dim(v, j, j + 1), (0,))
        term = lax.mul(lax.slice_in_dim(x, j, j + count), weight)
        total = term if total is None else lax.add(total, term)
    return total


def sliding_products(x: Any, v: Any) -> Array:
    """The sums of products of v with every window of x that is as long, one for each offset."""
    length, count = promotion.shape_of(v)[0], promotion.shape_of(x)[0] - promotion.shape_of(v)[0] + 1
    whole = length // _AT_ONCE if length > 2 * _AT_ONCE else 0
    if not whole:
        return _few(x, v, count)

    def body(total: Any, start: Any) -> Any:
        part = lax.dynamic_slice_in_dim(x, start, count + _AT_ONCE - 1)
        return lax.add(total, _few(part, lax.dynamic_slice_in_dim(v, start, _AT_ONCE), count)), None

    starts = np.arange(0, whole * _AT_ONCE, _AT_ONCE, dtype=np.int32)
    total, _ = scan_module.scan(body, lax.full((count,), 0, promotion.dtype_of(x)), starts)
    done = whole * _AT_ONCE
    if done < length:
        rest = lax.slice_in_dim(x, done, promotion.shape_of(x)[0])
        total = lax.add(total, _few(rest, lax.slice_in_dim(v, done, length), count))
    return total


def _checked(name: str, a: Any, v: Any, mode: str, precision: Any, preferred: Any) -> tuple[Any, Any]:
    promotion.check_arraylike(name, a, v)
    contract.canonical_precision(precision)
    if mode not in _MODES:
        raise ValueError(f"mode must be one of ['full', 'same', 'valid']. [{name}] got {mode!r}")
    shapes = promotion.shape_of(a), promotion.shape_of(v)
    if any(len(shape) != 1 for shape in shapes):
        raise ValueError(f"{name}() only support 1-dimensional inputs. Got shapes {shapes[0]} and {shapes[1]}")
    if 0 in (shapes[0] + shapes[1]):
        raise ValueError(f"{name}: inputs cannot be empty, got shapes {shapes[0]} and {shapes[1]}.")
    a, v = promotion.promote_dtypes_inexact(a, v)
    if preferred is not None:
        dtype = dtypes.check_user_dtype(preferred, name)
        a, v = promotion.convert(a, dtype), promotion.convert(v, dtype)
    return promotion.as_array(a), promotion.as_array(v)


def _moded(a: Any, v: Any, mode: str, middle: int) -> Any:
    """The correlation of a with v, no longer than a; ``middle`` is where "same" begins in "full"."""
    few = promotion.shape_of(v)[0]
    low, high = {"full": (few - 1, few - 1), "same": (few - 1 - middle, middle), "valid": (0, 0)}[mode]
    return sliding_products(lax.pad(a, np.zeros((), promotion.dtype_of(a)), [(low, high, 0)]), v)


def convolve(a: Any, v: Any, mode: str = "full", *, precision: Any = None, preferred_element_type: Any = None) -> Array:
    """The convolution of two vectors, in floating point (NumPy keeps integers).

    ``mode`` is "full", of length ``n + m - 1``; "same", the middle of it as long as the longer; or "valid", where the
    shorter lies inside the longer. ``precision`` changes nothing; ``preferred_element_type`` is the dtype computed in.
    ValueError for other ranks, empty vectors, other modes and an unknown precision.

    >>> convolve(np.float32([1, 2, 3]), np.float32([1, 1])).tolist()
    [1.0, 3.0, 5.0, 3.0]
    """
    a, v = _checked("convolve", a, v, mode, precision, preferred_element_type)
    return _convolve(a, v, mode=mode)


def _as_convolve(a: Any, v: Any, *, mode: str) -> Any:
    if promotion.shape_of(a)[0] < promotion.shape_of(v)[0]:
        a, v = v, a
    out = _moded(a, lax.rev(v, (0,)), mode, (promotion.shape_of(v)[0] - 1) // 2)
    return promotion.weak_as(out, a, v)


_as_convolve.__name__ = "convolve"
_convolve = functools.partial(jit_module.jit, static_argnames=("mode",))(_as_convolve)


def correlate(
    a: Any, v: Any, mode: str = "valid", *, precision: Any = None, preferred_element_type: Any = None
) -> Array:
    """The correlation of two vectors, ``sum(a[k + j] * conj(v[j]))``, in floating point (NumPy keeps integers).

    Modes and errors are those of ``convolve``.

    >>> correlate(np.float32([1, 2, 3]), np.float32([1, 1])).tolist()
    [3.0, 5.0]
    """
    a, v = _checked("correlate", a, v, mode, precision, preferred_element_type)
    return _correlate(a, v, mode=mode)


def _as_correlate(a: Any, v: Any, *, mode: str) -> Any:
    if dtypes.issubdtype(promotion.dtype_of(v), np.complexfloating):
        v = lax.conj(v)
    count, few = promotion.shape_of(a)[0], promotion.shape_of(v)[0]
    if count < few:
        out = lax.rev(_moded(v, a, mode, count - 1 - count // 2), (0,))
    else:
        out = _moded(a, v, mode, (few - 1) // 2)
    return promotion.weak_as(out, a, v)


_as_correlate.__name__ = "correlate"
_correlate = functools.partial(jit_module.jit, static_argnames=("mode",))(_as_correlate)
