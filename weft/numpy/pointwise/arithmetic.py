"""Arithmetic ufuncs: sums, products, quotients, remainders, powers, extremes and signs.

Operands are promoted (``promotion``) and broadcast as NumPy does; each function is then one equation, or a short
inner ``jit`` under its own name where JAX prints one::

    add(f32[3,4], i32[4])  ->  convert_element_type, broadcast_in_dim, add
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np

from weft import core, dtypes
from weft import operations as lax
from weft._base.array import Array
from weft.dispatch.calls import jit as jit_module
from weft.numpy import promotion
from weft.numpy.pointwise import logic, selection

jit = jit_module.jit
inline = jit(inline=True)


@inline
def add(x: Any, y: Any, /, *, out: None = None, where: None = None) -> Array:
    """Sum of ``x`` and ``y``, element by element; logical or for two bool operands.

    >>> add(1, 2).item()
    3
    """
    promotion.check_options("add", out, where)
    x, y = promotion.promote_args("add", x, y)
    return lax.add(x, y) if promotion.dtype_of(x) != np.bool_ else lax.bitwise_or(x, y)


@inline
def subtract(x: Any, y: Any, /, *, out: None = None, where: None = None) -> Array:
    """Difference ``x - y``, element by element; TypeError for two bool operands.

    >>> subtract(5, 2).item()
    3
    """
    promotion.check_options("subtract", out, where)
    return lax.sub(*promotion.promote_args("subtract", x, y))


@inline
def multiply(x: Any, y: Any, /, *, out: None = None, where: None = None) -> Array:
    """Product of ``x`` and ``y``, element by element; logical and for two bool operands.

    >>> multiply(3, 4).item()
    12
    """
    promotion.check_options("multiply", out, where)
    x, y = promotion.promote_args("multiply", x, y)
    return lax.mul(x, y) if promotion.dtype_of(x) != np.bool_ else lax.bitwise_and(x, y)


@inline
def true_divide(x1: Any, x2: Any, /) -> Array:
    """Quotient ``x1 / x2`` in floating point (integers are converted first).

    >>> true_divide(1, 4).item()
    0.25
    """
    return lax.div(*promotion.promote_args_inexact("true_divide", x1, x2))


@inline
def divide(x1: Any, x2: Any, /) -> Array:
    """Quotient ``x1 / x2`` in floating point, the same as ``true_divide``.

    >>> divide(3, 2).item()
    1.5
    """
    return true_divide(x1, x2)


@jit
def floor_divide(x1: Any, x2: Any, /) -> Array:
    """Largest integer not above ``x1 / x2``, in the operands' common dtype; TypeError for complex operands.

    Integer division by zero gives -1 where truncating division does, minus one more if the signs differ.

    >>> floor_divide(-7, 2).item()
    -4
    """
    x1, x2 = promotion.promote_args_numeric("floor_divide", x1, x2)
    dtype = promotion.dtype_of(x1)
    if dtypes.issubdtype(dtype, np.unsignedinteger):
        return lax.div(x1, x2)
    if dtypes.issubdtype(dtype, np.integer):
        quotient = lax.div(x1, x2)
        mixed_signs = lax.ne(lax.sign(x1), lax.sign(x2))
        inexact = lax.ne(lax.rem(x1, x2), promotion.constant_like(0, x1))
        too_large = lax.bitwise_and(*promotion.promote_args("logical_and", mixed_signs, inexact))
        return selection.where(too_large, lax.sub(quotient, promotion.constant_like(1, x1, any_rank=True)), quotient)
    if dtypes.issubdtype(dtype, np.complexfloating):
        raise TypeError("floor_divide does not support complex-valued inputs")
    return _float_divmod(x1, x2)[0]


@jit
def divmod(x1: Any, x2: Any, /) -> tuple[Any, Any]:
    """The pair ``(floor_divide(x1, x2), remainder(x1, x2))``.

    >>> [part.item() for part in divmod(-7, 2)]
    [-4, 1]
    """
    x1, x2 = promotion.promote_args_numeric("divmod", x1, x2)
    if dtypes.issubdtype(promotion.dtype_of(x1), np.integer):
        return floor_divide(x1, x2), remainder(x1, x2)
    return _float_divmod(x1, x2)


def _float_divmod(x1: Any, x2: Any) -> tuple[Any, Any]:
    """Floored quotient and the remainder with the divisor's sign; the quotient is exact before it is rounded."""
    zero, one = promotion.constant_like(0, x1), promotion.constant_like(1, x1, any_rank=True)
    rest = lax.rem(x1, x2)
    dividend = selection.where(lax.eq(x2, zero), x1, lax.sub(x1, rest))
    quotient = lax.div(dividend, x2)
    nonzero = lax.ne(rest, zero)
    wrong_side = lax.bitwise_and(nonzero, lax.ne(lax.sign(x2), lax.sign(rest)))
    rest = lax.select(wrong_side, lax.add(rest, x2), rest)
    quotient = lax.select(wrong_side, lax.sub(quotient, one), quotient)
    return lax.round(quotient), rest


@jit
def remainder(x1: Any, x2: Any, /) -> Array:
    """Remainder of floored division: it has the sign of ``x2``. Integer remainder by zero gives zero.

    >>> remainder(-7, 3).item()
    2
    """
    x1, x2 = promotion.promote_args_numeric("remainder", x1, x2)
    dtype = promotion.dtype_of(x1)
    zero = np.asarray(0, dtype)
    if dtypes.issubdtype(dtype, np.integer):
        x2 = selection.where(lax.eq(x2, zero), lax.full_like(x2, 1), x2)
    rest = lax.rem(x1, x2)
    nonzero = lax.ne(rest, zero)
    wrong_sign = lax.ne(lax.lt(rest, zero), lax.lt(x2, zero))
    return lax.select(lax.bitwise_and(wrong_sign, nonzero), lax.add(rest, x2), rest)


def mod(x1: Any, x2: Any, /) -> Array:
    """Remainder of floored division, the same as ``remainder``.

    >>> mod(7, -3).item()
    -2
    """
    return remainder(x1, x2)


@jit
def fmod(x1: Any, x2: Any, /) -> Array:
    """Remainder of truncated division: it has the sign of ``x1``.

    >>> fmod(-7, 3).item()
    -1
    """
    promotion.check_arraylike("fmod", x1, x2)
    if dtypes.issubdtype(dtypes.result_type(x1, x2), np.integer):
        x2 = selection.where(_equal_zero(x2), lax.full_like(x2, 1), x2)
    return lax.rem(*promotion.promote_args_numeric("fmod", x1, x2))


def _equal_zero(x: Any) -> Any:
    return lax.eq(x, np.asarray(0, promotion.dtype_of(x)))


def power(x1: Any, x2: Any, /) -> Array:
    """``x1`` raised to ``x2``. An integer exponent of known value is compiled in as repeated multiplication.

    Integers raised to an integer array wrap on overflow; a negative integer exponent of an integer raises TypeError.

    >>> power(2.0, 3).item()
    8.0
    """
    promotion.check_arraylike("power", x1, x2)
    if isinstance(x2, core.Tracer):
        return _power(x1, x2)
    try:
        exponent = operator.index(x2)
    except TypeError:
        return _power(x1, x2)
    return _integer_power(x1, x2=exponent)


def pow(x1: Any, x2: Any, /) -> Array:
    """``x1`` raised to ``x2``, the same as ``power``.

    >>> pow(3, 2).item()
    9
    """
    return power(x1, x2)


@functools.partial(jit, inline=True, static_argnames=("x2",))
def _integer_power(x1: Any, *, x2: int) -> Any:
    (x1,) = promotion.promote_dtypes_numeric(x1)
    return lax.integer_pow(x1, x2)


@inline
def _power(x1: Any, x2: Any, /) -> Any:
    common, weak_type = dtypes.result_type(x1, x2, return_weak_type_flag=True)
    if not dtypes.issubdtype(common, np.inexact):
        return _integer_array_power(*promotion.promote_args_numeric("power", x1, x2))
    (x1,) = (promotion.convert(x1, common, weak_type),)
    exponent_dtype = dtypes.result_type(x2)
    converted = promotion.convert(x2, common, weak_type)
    keeps_integer = dtypes.issubdtype(exponent_dtype, np.integer)
    x1, x2 = promotion.promote_shapes(x1, x2 if keeps_integer else converted, name="power")
    return lax.pow(x1, x2)


def _integer_array_power(x1: Any, x2: Any) -> Any:
    """Binary powering by the low six bits of the exponents, then by the others: the product modulo 2**bits."""
    dtype = promotion.dtype_of(x1)
    zero, one = np.asarray(0, dtype), np.asarray(1, dtype)
    both = lax.bitwise_and(lax.eq(x1, zero), lax.ne(x2, zero))
    accumulated = selection.where(both, zero, one)
    base, exponent = x1, x2
    for _ in range(_LOW_BITS):
        odd = lax.bitwise_and(exponent, one)
        accumulated = selection.where(odd, lax.mul(accumulated, base), accumulated)
        base = lax.mul(base, base)
        exponent = lax.shift_right_logical(exponent, one)
    if dtypes.iinfo(dtype).bits <= _LOW_BITS:
        return accumulated
    if dtypes.issubdtype(dtype, np.signedinteger):  # of a negative exponent only six bits count, as in JAX
        exponent = selection.where(lax.lt(x2, zero), zero, exponent)
    rest = selection.where(lax.bitwise_and(x1, one), _power_of_unit(base, exponent), zero)
    return lax.mul(accumulated, selection.where(lax.eq(exponent, zero), one, rest))


_LOW_BITS = 6  # the 64th power of an even number is 0 modulo 2**64, that of an odd one is 1 modulo 2**8


def _power_of_unit(base: Any, exponent: Any) -> Any:
    """``base ** exponent`` modulo 2**bits for a base that is 1 modulo 2**8: few terms of the binomial series remain.

    With ``u = base - 1`` the term ``C(exponent, k) * u**k`` is the one before it times ``(exponent - k + 1) * u / k``.
    The powers of 2 in k divide u; division by what is left of k is multiplication by its inverse.
    """
    dtype = promotion.dtype_of(base)
    bits, one = dtypes.iinfo(dtype).bits, np.asarray(1, dtype)
    u = lax.sub(base, one)
    total = term = lax.full_like(base, 1)
    for k in range(1, bits // 8):
        twos = (k & -k).bit_length() - 1
        step = lax.shift_right_logical(u, np.asarray(twos, dtype)) if twos else u
        step = lax.mul(step, lax.sub(exponent, np.asarray(k - 1, dtype)))
        if k >> twos > 1:
            inverse = np.asarray(int.__pow__(k >> twos, -1, 2**bits), np.uint64).astype(dtype)
            step = lax.mul(step, inverse)
        term = lax.mul(term, step)
        total = lax.add(total, term)
    return total


@inline
def float_power(x: Any, y: Any, /) -> Array:
    """``x`` raised to ``y``, computed in floating point whatever the operands.

    >>> float_power(2, 3).item()
    8.0
    """
    return lax.pow(*promotion.promote_args_inexact("float_power", x, y))


@inline
def maximum(x: Any, y: Any, /, *, out: None = None, where: None = None) -> Array:
    """The larger of ``x`` and ``y``, element by element; NaN if either is NaN.

    >>> maximum(1, 2).item()
    2
    """
    promotion.check_options("maximum", out, where)
    return lax.max(*promotion.promote_args("maximum", x, y))


@inline
def minimum(x: Any, y: Any, /, *, out: None = None, where: None = None) -> Array:
    """The smaller of ``x`` and ``y``, element by element; NaN if either is NaN.

    >>> minimum(1, 2).item()
    1
    """
    promotion.check_options("minimum", out, where)
    return lax.min(*promotion.promote_args("minimum", x, y))


@jit
def fmax(x1: Any, x2: Any) -> Array:
    """The larger of ``x1`` and ``x2``; a NaN loses against a number.

    >>> fmax(1.0, float("nan")).item()
    1.0
    """
    return _pick(x1, x2, logic.greater, "fmax")


@jit
def fmin(x1: Any, x2: Any) -> Array:
    """The smaller of ``x1`` and ``x2``; a NaN loses against a number.

    >>> fmin(2.0, float("nan")).item()
    2.0
    """
    return _pick(x1, x2, logic.less, "fmin")


def _pick(x1: Any, x2: Any, better: Any, name: str) -> Any:
    wins = better(x1, x2)
    missing = lax.ne(x2, x2)
    return selection.where(lax.bitwise_or(*promotion.promote_args(name, wins, missing)), x1, x2)


@inline
def negative(x: Any, /, *, out: None = None, where: None = None) -> Array:
    """``-x``; TypeError for bool.

    >>> negative(3).item()
    -3
    """
    promotion.check_options("negative", out, where)
    return lax.neg(*promotion.promote_args("negative", x))


@inline
def positive(x: Any, /) -> Array:
    """``x`` itself.

    >>> positive(3).item()
    3
    """
    (x,) = promotion.promote_args("positive", x)
    return promotion.as_array(x)


@inline
def absolute(x: Any, /) -> Array:
    """Absolute value; the modulus (a real number) of a complex operand.

    >>> absolute(-3).item()
    3
    """
    promotion.check_arraylike("absolute", x)
    dtype = promotion.dtype_of(x)
    if dtype == np.bool_ or dtypes.issubdtype(dtype, np.unsignedinteger):
        return promotion.as_array(x)
    return lax.abs(x)


@inline
def abs(x: Any, /) -> Array:
    """Absolute value, the same as ``absolute``.

    >>> abs(-2.5).item()
    2.5
    """
    return absolute(x)


@inline
def fabs(x: Any, /) -> Array:
    """Absolute value in floating point; TypeError for complex operands.

    >>> fabs(-3).item()
    3.0
    """
    promotion.check_arraylike("fabs", x)
    if dtypes.issubdtype(promotion.dtype_of(x), np.complexfloating):
        raise TypeError("ufunc 'fabs' does not support complex dtypes")
    return lax.abs(*promotion.promote_args_inexact("fabs", x))


@inline
def sign(x: Any, /) -> Array:
    """-1, 0 or 1 by the sign of ``x``; ``x / abs(x)`` for a complex operand; NaN stays NaN.

    >>> sign(-2.0).item()
    -1.0
    """
    return lax.sign(*promotion.promote_args("sign", x))


@inline
def square(x: Any, /) -> Array:
    """``x * x``.

    >>> square(3).item()
    9
    """
    promotion.check_arraylike("square", x)
    (x,) = promotion.promote_dtypes_numeric(x)
    return lax.square(x)


@inline
def reciprocal(x: Any, /) -> Array:
    """``1 / x`` in floating point.

    >>> reciprocal(4).item()
    0.25
    """
    (x,) = promotion.promote_args_inexact("reciprocal", x)
    return lax.integer_pow(x, -1)


@jit
def hypot(x1: Any, x2: Any, /) -> Array:
    """``sqrt(x1**2 + x2**2)`` without overflow on the way; inf if either is infinite.

    >>> hypot(3.0, 4.0).item()
    5.0
    """
    x1, x2 = promotion.promote_args_inexact("hypot", x1, x2)
    if dtypes.issubdtype(promotion.dtype_of(x1), np.complexfloating):
        raise ValueError("jnp.hypot is not well defined for complex-valued inputs; take abs(x) of each first.")
    zero, one, infinity = (promotion.constant_like(value, x1) for value in (0, 1, np.inf))
    x1, x2 = lax.abs(x1), lax.abs(x2)
    infinite = lax.bitwise_or(*promotion.promote_shapes(lax.eq(x1, infinity), lax.eq(x2, infinity)))
    larger, smaller = lax.max(x1, x2), lax.min(x1, x2)
    empty = lax.eq(larger, zero)
    divisor = selection.where(lax.eq(larger, zero), lax.full_like(larger, 1), larger)
    scaled = lax.mul(larger, lax.sqrt(lax.add(one, lax.square(lax.div(smaller, divisor)))))
    return selection.where(infinite, infinity, selection.where(empty, larger, scaled))


@jit
def heaviside(x1: Any, x2: Any, /) -> Array:
    """0 where ``x1`` is negative, 1 where positive, ``x2`` where zero; NaN where NaN.

    >>> heaviside(0.0, 0.5).item()
    0.5
    """
    promotion.check_arraylike("heaviside", x1, x2)
    x1, x2 = promotion.promote_dtypes_inexact(x1, x2)
    zero, one = promotion.constant_like(0, x1), promotion.constant_like(1, x1)
    negative_part, positive_part = lax.lt(x1, zero), lax.gt(x1, zero)
    middle = selection.where(lax.ne(x1, x1), x1, x2)
    upper = selection.where(positive_part, one, middle)
    return selection.where(negative_part, zero, upper)
