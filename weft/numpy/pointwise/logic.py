"""Comparisons, truth values, bits and shifts.

Comparisons promote like arithmetic and give bool; complex numbers are ordered by real part, then imaginary part.
Logical functions take any dtype (nonzero is true); bit functions take bool and integers::

    less(f32[3], 1)        ->  lt a 1.0:f32[]
    logical_not(f32[3])    ->  ne a 0.0:f32[], not
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import dtypes, errors
from weft import operations as lax
from weft._base.array import Array
from weft.dispatch.calls import jit as jit_module
from weft.numpy import promotion, reductions
from weft.numpy.array_creation import creation

jit = jit_module.jit
inline = jit(inline=True)


def _promoted(name: str, x: Any, y: Any) -> tuple[Any, ...]:
    """``promotion.promote_args``, and keys of one kind, which can be equal."""
    if not _are_keys(x, y):
        return promotion.promote_args(name, x, y)
    shape = promotion.broadcast_shapes(promotion.shape_of(x), promotion.shape_of(y))
    return tuple([value if not promotion.shape_of(value) else promotion.broadcast_to(value, shape) for value in (x, y)])


def _are_keys(x: Any, y: Any) -> bool:
    own = getattr(x, "dtype", None)
    return dtypes.is_extended(own) and getattr(y, "dtype", None) == own


@inline
def equal(x: Any, y: Any, /) -> Array:
    """Whether ``x == y``, element by element; NaN equals nothing.

    >>> equal(1, 1.0).item()
    True
    """
    return lax.eq(*_promoted("equal", x, y))


@inline
def not_equal(x: Any, y: Any, /) -> Array:
    """Whether ``x != y``, element by element.

    >>> not_equal(1, 2).item()
    True
    """
    return lax.ne(*_promoted("not_equal", x, y))


def _ordered(name: str, compare: Callable[[Any, Any], Any], x: Any, y: Any) -> Any:
    """An ordering comparison; complex operands compare by real part, equal real parts by imaginary part."""
    x, y = promotion.promote_args(name, x, y)
    if not dtypes.issubdtype(promotion.dtype_of(x), np.complexfloating):
        return compare(x, y)
    same_real = lax.eq(lax.real(x), lax.real(y))
    by_imaginary = compare(lax.imag(x), lax.imag(y))
    return lax.select(same_real, by_imaginary, compare(lax.real(x), lax.real(y)))


@inline
def less(x: Any, y: Any, /) -> Array:
    """Whether ``x < y``, element by element; false where either is NaN.

    >>> less(1, 2).item()
    True
    """
    return _ordered("less", lax.lt, x, y)


@inline
def less_equal(x: Any, y: Any, /) -> Array:
    """Whether ``x <= y``, element by element; false where either is NaN.

    >>> less_equal(2, 2).item()
    True
    """
    return _ordered("less_equal", lax.le, x, y)


@inline
def greater(x: Any, y: Any, /) -> Array:
    """Whether ``x > y``, element by element; false where either is NaN.

    >>> greater(1, 2).item()
    False
    """
    return _ordered("greater", lax.gt, x, y)


@inline
def greater_equal(x: Any, y: Any, /) -> Array:
    """Whether ``x >= y``, element by element; false where either is NaN.

    >>> greater_equal(2, 2).item()
    True
    """
    return _ordered("greater_equal", lax.ge, x, y)


def _truth(name: str, *args: Any) -> tuple[Any, ...]:
    """Promoted operands as bool: an equation ``ne x 0`` unless they are bool."""
    args = promotion.promote_args(name, *args)
    return tuple(x if promotion.dtype_of(x) == np.bool_ else lax.ne(x, promotion.constant_like(0, x)) for x in args)


@inline
def logical_and(x: Any, y: Any, /, *, out: None = None, where: None = None) -> Array:
    """Whether both ``x`` and ``y`` are nonzero.

    >>> logical_and(1, 0).item()
    False
    """
    promotion.check_options("logical_and", out, where)
    return lax.bitwise_and(*_truth("logical_and", x, y))


@inline
def logical_or(x: Any, y: Any, /, *, out: None = None, where: None = None) -> Array:
    """Whether ``x`` or ``y`` is nonzero.

    >>> logical_or(1, 0).item()
    True
    """
    promotion.check_options("logical_or", out, where)
    return lax.bitwise_or(*_truth("logical_or", x, y))


@inline
def logical_xor(x: Any, y: Any, /, *, out: None = None, where: None = None) -> Array:
    """Whether exactly one of ``x`` and ``y`` is nonzero.

    >>> logical_xor(1, 2).item()
    False
    """
    promotion.check_options("logical_xor", out, where)
    return lax.bitwise_xor(*_truth("logical_xor", x, y))


@inline
def logical_not(x: Any, /) -> Array:
    """Whether ``x`` is zero.

    >>> logical_not(0.0).item()
    True
    """
    return lax.bitwise_not(*_truth("logical_not", x))


@inline
def bitwise_and(x: Any, y: Any, /, *, out: None = None, where: None = None) -> Array:
    """Bits set in both integers (or logical and of bool); TypeError for floats.

    >>> bitwise_and(6, 3).item()
    2
    """
    promotion.check_options("bitwise_and", out, where)
    return lax.bitwise_and(*promotion.promote_args("bitwise_and", x, y))


@inline
def bitwise_or(x: Any, y: Any, /, *, out: None = None, where: None = None) -> Array:
    """Bits set in either integer (or logical or of bool); TypeError for floats.

    >>> bitwise_or(6, 3).item()
    7
    """
    promotion.check_options("bitwise_or", out, where)
    return lax.bitwise_or(*promotion.promote_args("bitwise_or", x, y))


@inline
def bitwise_xor(x: Any, y: Any, /, *, out: None = None, where: None = None) -> Array:
    """Bits set in exactly one integer; TypeError for floats.

    >>> bitwise_xor(6, 3).item()
    5
    """
    promotion.check_options("bitwise_xor", out, where)
    return lax.bitwise_xor(*promotion.promote_args("bitwise_xor", x, y))


@inline
def bitwise_not(x: Any, /) -> Array:
    """All bits flipped (logical not of bool); TypeError for floats.

    >>> bitwise_not(0).item()
    -1
    """
    return lax.bitwise_not(*promotion.promote_args("bitwise_not", x))


@inline
def invert(x: Any, /) -> Array:
    """All bits flipped, the same as ``bitwise_not``.

    >>> invert(5).item()
    -6
    """
    return lax.bitwise_not(*promotion.promote_args("invert", x))


@inline
def bitwise_invert(x: Any, /) -> Array:
    """All bits flipped, the same as ``bitwise_not``.

    >>> bitwise_invert(5).item()
    -6
    """
    return lax.bitwise_not(*promotion.promote_args("bitwise_invert", x))


@jit
def bitwise_count(x: Any, /) -> Array:
    """Number of bits set in the absolute value of an integer, as uint8.

    >>> bitwise_count(-7).item()
    3
    """
    (x,) = promotion.promote_args_numeric("bitwise_count", x)
    return lax.convert_element_type(lax.population_count(_magnitude(x)), np.uint8)


def _magnitude(x: Any) -> Any:
    return x if dtypes.issubdtype(promotion.dtype_of(x), np.unsignedinteger) else lax.abs(x)


@inline
def left_shift(x: Any, y: Any, /) -> Array:
    """``x`` shifted left by ``y`` bits; shifts by the width or more give 0.

    >>> left_shift(1, 3).item()
    8
    """
    return lax.shift_left(*promotion.promote_args_numeric("left_shift", x, y))


@inline
def bitwise_left_shift(x: Any, y: Any, /) -> Array:
    """``x`` shifted left by ``y`` bits, the same as ``left_shift``.

    >>> bitwise_left_shift(1, 3).item()
    8
    """
    return lax.shift_left(*promotion.promote_args_numeric("bitwise_left_shift", x, y))


def _shift_right(name: str, x1: Any, x2: Any) -> Any:
    x1, x2 = promotion.promote_args_numeric(name, x1, x2)
    unsigned = dtypes.issubdtype(promotion.dtype_of(x1), np.unsignedinteger)
    return (lax.shift_right_logical if unsigned else lax.shift_right_arithmetic)(x1, x2)


@inline
def right_shift(x1: Any, x2: Any, /) -> Array:
    """``x1`` shifted right by ``x2`` bits; signed integers keep their sign.

    >>> right_shift(-8, 1).item()
    -4
    """
    return _shift_right("right_shift", x1, x2)


@inline
def bitwise_right_shift(x1: Any, x2: Any, /) -> Array:
    """``x1`` shifted right by ``x2`` bits, the same as ``right_shift``.

    >>> bitwise_right_shift(8, 1).item()
    4
    """
    return _shift_right("bitwise_right_shift", x1, x2)


@inline
def isfinite(x: Any, /) -> Array:
    """Whether ``x`` is neither infinite nor NaN (both parts of a complex number).

    >>> isfinite(float("inf")).item()
    False
    """
    promotion.check_arraylike("isfinite", x)
    dtype = promotion.dtype_of(x)
    if dtypes.issubdtype(dtype, np.floating):
        return lax.is_finite(x)
    if dtypes.issubdtype(dtype, np.complexfloating):
        return lax.bitwise_and(lax.is_finite(lax.real(x)), lax.is_finite(lax.imag(x)))
    return lax.full_like(x, True, dtype=np.bool_)


@jit
def isinf(x: Any, /) -> Array:
    """Whether ``x`` is infinite (either part of a complex number).

    >>> isinf(float("-inf")).item()
    True
    """
    promotion.check_arraylike("isinf", x)
    dtype = promotion.dtype_of(x)
    if dtypes.issubdtype(dtype, np.floating):
        return lax.eq(lax.abs(x), np.asarray(np.inf, dtype))
    if dtypes.issubdtype(dtype, np.complexfloating):
        re, im = lax.real(x), lax.imag(x)
        infinity = np.asarray(np.inf, promotion.dtype_of(re))
        return lax.bitwise_or(lax.eq(lax.abs(re), infinity), lax.eq(lax.abs(im), infinity))
    return lax.full_like(x, False, dtype=np.bool_)


@inline
def isnan(x: Any, /) -> Array:
    """Whether ``x`` is NaN.

    >>> isnan(float("nan")).item()
    True
    """
    promotion.check_arraylike("isnan", x)
    return lax.ne(x, x)


def _is_infinity(name: str, infinity: float, x: Any) -> Any:
    promotion.check_arraylike(name, x)
    dtype = promotion.dtype_of(x)
    if dtypes.issubdtype(dtype, np.floating):
        return lax.eq(x, np.asarray(infinity, dtype))
    if dtypes.issubdtype(dtype, np.complexfloating):
        raise ValueError(f"{name} is not well defined for complex types")
    return lax.full_like(x, False, dtype=np.bool_)


def isposinf(x: Any, /, out: None = None) -> Array:
    """Whether ``x`` is positive infinity; ValueError for complex operands.

    >>> isposinf(float("inf")).item()
    True
    """
    if out is not None:
        raise NotImplementedError("The 'out' argument to jnp.isposinf is not supported.")
    return _isposinf(x)


def isneginf(x: Any, /, out: None = None) -> Array:
    """Whether ``x`` is negative infinity; ValueError for complex operands.

    >>> isneginf(float("inf")).item()
    False
    """
    if out is not None:
        raise NotImplementedError("The 'out' argument to jnp.isneginf is not supported.")
    return _isneginf(x)


@inline
def _isposinf(x: Any) -> Any:
    return _is_infinity("isposinf", np.inf, x)


@inline
def _isneginf(x: Any) -> Any:
    return _is_infinity("isneginf", -np.inf, x)


@jit
def signbit(x: Any, /) -> Array:
    """Whether the sign bit is set: true for negative numbers and -0.0.

    >>> signbit(-0.0).item()
    True
    """
    (x,) = promotion.promote_args("signbit", x)
    dtype = promotion.dtype_of(x)
    if dtypes.issubdtype(dtype, np.integer):
        return lax.lt(x, np.asarray(0, dtype))
    if dtype == np.bool_:
        return lax.full_like(x, False, dtype=np.bool_)
    if not dtypes.issubdtype(dtype, np.floating):
        raise ValueError(f"jax.numpy.signbit is not well defined for {dtype}")
    bits = dtypes.finfo(dtype).bits
    integer = np.dtype(f"int{bits}")
    x = lax.bitcast_convert_type(x, integer)
    return lax.convert_element_type(lax.shift_right_arithmetic(x, np.asarray(bits - 1, integer)), np.bool_)


@functools.partial(jit, static_argnames=("equal_nan",))
def isclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Array:
    """Whether ``abs(a - b) <= atol + rtol * abs(b)``, element by element; infinities must be equal.

    >>> isclose(1.0, 1.0 + 1e-7).item()
    True
    """
    if _are_keys(a, b):
        return equal(a, b)
    a, b = promotion.promote_args("isclose", a, b)
    if dtypes.issubdtype(promotion.dtype_of(a), np.inexact):
        tolerances = dtypes.finfo(promotion.dtype_of(a)).dtype
    else:
        a, b = promotion.promote_dtypes_inexact(a, b)
        tolerances = promotion.dtype_of(a)
    rtol, atol = (promotion.convert(t, tolerances) for t in (rtol, atol))
    both_nan = lax.bitwise_and(lax.ne(a, a), lax.ne(b, b))
    finite = isfinite(b)
    distance = lax.abs(lax.sub(a, b))
    tolerance = lax.add(*promotion.promote_shapes(atol, lax.mul(*promotion.promote_shapes(rtol, lax.abs(b)))))
    near = lax.le(distance, tolerance)
    result = lax.bitwise_or(lax.eq(a, b), lax.bitwise_and(finite, near))
    return lax.bitwise_or(result, both_nan) if equal_nan else result


@functools.partial(jit, static_argnames=("equal_nan",))
def allclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Array:
    """Whether all elements are close (``isclose``), as one bool.

    >>> allclose(1.0, 1.0).item()
    True
    """
    promotion.check_arraylike("allclose", a, b)
    close = isclose(a, b, rtol, atol, equal_nan)
    return lax.reduce_and(close, tuple(range(len(promotion.shape_of(close)))))


def _listed(x: Any) -> Any:
    """A list as an array; TypeError or ValueError for what is none."""
    return x if promotion.is_arraylike(x) else creation.asarray(x)


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Array:
    """Whether two arrays (or lists of numbers) have one shape and equal elements.

    >>> bool(array_equal(1.0, 1.0))
    True
    """
    a1, a2 = _listed(a1), _listed(a2)
    if promotion.shape_of(a1) != promotion.shape_of(a2):
        return creation.asarray(False)
    if promotion.dtype_of(a1) == promotion.dtype_of(a2) == dtypes.float0:  # which have no values that could differ
        return creation.asarray(True)
    same = equal(a1, a2)
    if equal_nan:
        same = logical_or(same, logical_and(isnan(a1), isnan(a2)))
    return reductions.all(same)


def array_equiv(a1: Any, a2: Any) -> Array:
    """Whether two arrays broadcast to one shape and are then equal.

    TypeError for two of one rank that do not broadcast. Those of different ranks are unequal then, and so are
    arrays of types that must not be mixed (under strict promotion).

    >>> bool(array_equiv(1.0, 1.0))
    True
    """
    a1, a2 = _listed(a1), _listed(a2)
    try:
        promotion.promote_dtypes(a1, a2)
    except errors.TypePromotionError:  # as in JAX: arrays that may not be compared are not equivalent
        return creation.asarray(False)
    shapes = promotion.shape_of(a1), promotion.shape_of(a2)
    try:
        promotion.broadcast_shapes(*shapes)
    except ValueError:
        if len(shapes[0]) != len(shapes[1]):
            return creation.asarray(False)
    else:  # whatever numpy_rank_promotion says
        a1, a2 = promotion.promote_shapes(a1, a2)
    return reductions.all(equal(a1, a2))
