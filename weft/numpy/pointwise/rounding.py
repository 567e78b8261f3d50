"""Rounding, the parts of complex numbers, and the structure of floats.

Integers are already rounded and are handed back (``rint`` makes them float, as NumPy does)::

    round(f32[3], 2)  ->  mul a 100.0, round[rounding_method=1], div 100.0
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np

from weft import dtypes
from weft import operations as lax
from weft._base.array import Array
from weft.autodiff import custom_jvp as custom
from weft.dispatch.calls import jit as jit_module
from weft.numpy import promotion
from weft.numpy.pointwise import logic, selection

jit = jit_module.jit
inline = jit(inline=True)


def _is_integral(x: Any) -> bool:
    dtype = promotion.dtype_of(x)
    return dtype == np.bool_ or dtypes.issubdtype(dtype, np.integer)


@inline
def floor(x: Any, /) -> Array:
    """Largest integer not above ``x``, in the dtype of ``x``.

    >>> floor(-1.5).item()
    -2.0
    """
    promotion.check_arraylike("floor", x)
    return promotion.as_array(x) if _is_integral(x) else lax.floor(x)


@inline
def ceil(x: Any, /) -> Array:
    """Smallest integer not below ``x``, in the dtype of ``x``.

    >>> ceil(-1.5).item()
    -1.0
    """
    promotion.check_arraylike("ceil", x)
    return promotion.as_array(x) if _is_integral(x) else lax.ceil(x)


@jit
def trunc(x: Any) -> Array:
    """``x`` rounded towards zero, in the dtype of ``x``.

    >>> trunc(-1.5).item()
    -1.0
    """
    promotion.check_arraylike("trunc", x)
    if _is_integral(x):
        return promotion.as_array(x)
    below = lax.lt(x, np.asarray(0, promotion.dtype_of(x)))
    return selection.where(below, lax.ceil(x), lax.floor(x))


@jit
def rint(x: Any, /) -> Array:
    """``x`` rounded to the nearest integer, ties to even, in floating point; complex numbers by component.

    >>> rint(2.5).item()
    2.0
    """
    promotion.check_arraylike("rint", x)
    dtype = promotion.dtype_of(x)
    if _is_integral(x):
        return lax.convert_element_type(x, dtypes.canonicalize_dtype(np.float64))
    if dtypes.issubdtype(dtype, np.complexfloating):
        return lax.complex(rint(lax.real(x)), rint(lax.imag(x)))
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


def round(a: Any, decimals: int = 0, out: None = None) -> Array:
    """``a`` rounded to ``decimals`` digits after the point, ties to even; complex numbers by component.

    NotImplementedError for ``out``, and for negative ``decimals`` of integers.

    >>> round(2.5).item()
    2.0
    """
    promotion.check_arraylike("round", a)
    if out is not None:
        raise NotImplementedError("The 'out' argument to jnp.round is not supported.")
    return _round(a, operator.index(decimals))


def _as_round(a: Any, decimals: int) -> Any:
    dtype = promotion.dtype_of(a)
    if _is_integral(a):
        if decimals < 0:
            raise NotImplementedError("integer np.round not implemented for decimals < 0")
        return promotion.as_array(a)
    if dtypes.issubdtype(dtype, np.complexfloating):
        return lax.complex(_round_float(lax.real(a), decimals), _round_float(lax.imag(a), decimals))
    return _round_float(a, decimals)


def _round_float(x: Any, decimals: int) -> Any:
    if decimals == 0:
        return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)
    dtype = promotion.dtype_of(x)
    wide = lax.convert_element_type(x, np.float32) if dtypes.finfo(dtype).bits == 16 else x
    factor = np.asarray(10.0**decimals, promotion.dtype_of(wide))
    rounded = lax.div(lax.round(lax.mul(wide, factor), lax.RoundingMethod.TO_NEAREST_EVEN), factor)
    return promotion.convert(rounded, dtype, promotion.is_weak(x))


_as_round.__name__ = "round"
_round = functools.partial(jit, static_argnums=(1,))(_as_round)


@functools.partial(jit, static_argnames=("decimals",))
def around(a: Any, decimals: int = 0, out: None = None) -> Array:
    """``a`` rounded to ``decimals`` digits after the point, the same as ``round``.

    >>> around(1.5).item()
    2.0
    """
    return round(a, decimals, out)


@inline
def conjugate(x: Any, /) -> Array:
    """Complex conjugate; real operands are handed back.

    >>> conjugate(1 + 2j).item()
    (1-2j)
    """
    promotion.check_arraylike("conjugate", x)
    return lax.conj(x) if _is_complex(x) else promotion.as_array(x)


@inline
def conj(x: Any, /) -> Array:
    """Complex conjugate, the same as ``conjugate``.

    >>> conj(1 + 2j).item()
    (1-2j)
    """
    return conjugate(x)


def _is_complex(x: Any) -> bool:
    return bool(dtypes.issubdtype(promotion.dtype_of(x), np.complexfloating))


@inline
def real(val: Any, /) -> Array:
    """Real part; real operands are handed back.

    >>> real(1 + 2j).item()
    1.0
    """
    promotion.check_arraylike("real", val)
    return lax.real(val) if _is_complex(val) else promotion.as_array(val)


@inline
def imag(val: Any, /) -> Array:
    """Imaginary part; zeros for real operands.

    >>> imag(1 + 2j).item()
    2.0
    """
    promotion.check_arraylike("imag", val)
    return lax.imag(val) if _is_complex(val) else lax.full_like(val, 0)


def angle(z: Any, deg: bool = False) -> Array:
    """Argument of a complex number in -pi..pi, or in degrees; 0 or pi for real operands.

    Integers, and real scalars of any dtype, give the default float dtype.

    >>> angle(1.0).item()
    0.0
    """
    promotion.check_arraylike("angle", z)
    return _angle(z, deg)


def _as_angle(z: Any, deg: bool) -> Any:
    re, im = real(z), imag(z)
    dtype, rank = promotion.dtype_of(z), len(promotion.shape_of(z))
    if not dtypes.issubdtype(dtype, np.inexact) or (dtypes.issubdtype(dtype, np.floating) and rank == 0):
        default = dtypes.canonicalize_dtype(np.float64)
        re, im = promotion.convert(re, default), promotion.convert(im, default)
    result = lax.atan2(im, re)
    return lax.mul(result, np.asarray(180 / np.pi, promotion.dtype_of(result))) if deg else result


_as_angle.__name__ = "angle"
_angle = functools.partial(jit, static_argnums=(1,))(_as_angle)


@jit
def iscomplex(x: Any) -> Array:
    """Whether the imaginary part is nonzero, element by element.

    >>> iscomplex(1 + 0j).item()
    False
    """
    part = imag(x)
    return lax.ne(part, promotion.constant_like(0, part))


@jit
def isreal(x: Any) -> Array:
    """Whether the imaginary part is zero, element by element.

    >>> isreal(1 + 0j).item()
    True
    """
    part = imag(x)
    return lax.eq(part, promotion.constant_like(0, part))


@jit
def copysign(x1: Any, x2: Any, /) -> Array:
    """``abs(x1)`` with the sign of ``x2``, in floating point; TypeError for complex operands.

    >>> copysign(3.0, -0.0).item()
    -3.0
    """
    x1, x2 = promotion.promote_args_inexact("copysign", x1, x2)
    if _is_complex(x1):
        raise TypeError("copysign does not support complex-valued inputs")
    return selection.where(logic.signbit(x2), lax.neg(lax.abs(x1)), lax.abs(x1))


@inline
def nextafter(x: Any, y: Any, /) -> Array:
    """The next representable number after ``x`` in the direction of ``y``.

    >>> nextafter(1.0, 2.0).item() > 1.0
    True
    """
    return lax.nextafter(*promotion.promote_args_inexact("nextafter", x, y))


@inline
def spacing(x: Any, /) -> Array:
    """Distance from ``x`` to the next number away from zero, with the sign of ``x``; float operands only.

    For float16 it is, as in NumPy, the distance to the next greater number, which is positive.

    >>> spacing(1.0).item() == 2.0**-23
    True
    """
    (x,) = promotion.promote_args_inexact("spacing", x)
    dtype = promotion.dtype_of(x)
    if not dtypes.issubdtype(dtype, np.floating):
        raise ValueError("jnp.spacing is only defined for floating-point inputs.")
    if dtype == np.float16:
        return lax.sub(lax.nextafter(x, np.asarray(np.inf, dtype)), x)
    step = lax.sub(lax.nextafter(x, copysign(np.asarray(np.inf, dtype), x)), x)
    vanished = lax.eq(step, np.asarray(0, dtype))
    smallest = copysign(np.asarray(dtypes.finfo(dtype).smallest_subnormal, dtype), x)
    return selection.where(vanished, smallest, step)


def modf(x: Any, /, out: None = None) -> tuple[Any, Any]:
    """Fractional and integral part of ``x``, both with the sign of ``x``; NotImplementedError for ``out``.

    >>> [part.item() for part in modf(-1.5)]
    [-0.5, -1.0]
    """
    promotion.check_arraylike("modf", x)
    if out is not None:
        raise NotImplementedError("The 'out' argument to jnp.modf is not supported.")
    return _modf(x)


def _as_modf(x: Any) -> tuple[Any, Any]:
    (x,) = promotion.promote_dtypes_inexact(x)
    above = lax.ge(x, np.asarray(0, promotion.dtype_of(x)))
    whole = selection.where(above, lax.floor(x), lax.ceil(x))
    return lax.sub(x, whole), whole


_as_modf.__name__ = "modf"
_modf = jit(_as_modf)


@jit
def frexp(x: Any, /) -> tuple[Any, Any]:
    """Mantissa in 0.5..1 (with the sign of ``x``) and int32 exponent: ``x == mantissa * 2**exponent``.

    Infinities, NaN and 0 come back with exponent 0. TypeError for complex operands.

    >>> [part.item() for part in frexp(8.0)]
    [0.5, 4]
    """
    promotion.check_arraylike("frexp", x)
    (x,) = promotion.promote_dtypes_inexact(x)
    if not dtypes.issubdtype(promotion.dtype_of(x), np.floating):
        raise TypeError("frexp does not support complex-valued inputs")
    return _frexp(x)


def _as_frexp(x: Any) -> tuple[Any, Any]:
    dtype = promotion.dtype_of(x)
    info = dtypes.finfo(dtype)
    integer = np.dtype(f"int{info.bits}")
    bias = 2 ** (info.nexp - 1) - 1
    subnormal = lax.lt(lax.abs(x), np.asarray(info.tiny, dtype))
    scaled = selection.where(subnormal, lax.mul(x, np.asarray(2.0**info.nmant, dtype)), x)
    shift = selection.where(subnormal, np.asarray(-info.nmant, integer), np.asarray(0, integer))
    bits = lax.bitcast_convert_type(scaled, integer)
    if shift.dtype != integer:  # float64 in the mode of 32 bits, which narrows numbers
        shift = selection.where(subnormal, lax.full_like(bits, -info.nmant), lax.full_like(bits, 0))
    raw = lax.shift_right_arithmetic(bits, np.asarray(info.nmant, integer))
    field = lax.bitwise_and(raw, np.asarray(2**info.nexp - 1, integer))
    exponent = lax.add(lax.sub(field, np.asarray(bias, integer)), np.asarray(1, integer))
    exponent = lax.add(shift, exponent)
    keep = ~np.asarray((2**info.nexp - 1) << info.nmant, integer)
    half = np.asarray((bias - 1) << info.nmant, integer)
    mantissa = lax.bitcast_convert_type(lax.bitwise_or(lax.bitwise_and(bits, np.asarray(keep, integer)), half), dtype)
    special = lax.bitwise_or(lax.bitwise_or(logic.isinf(x), lax.ne(x, x)), lax.eq(x, np.asarray(0, dtype)))
    exponent = selection.where(special, lax.full_like(exponent, 0), exponent)
    return selection.where(special, x, mantissa), promotion.convert(exponent, np.dtype(np.int32))


_as_frexp.__name__ = "_frexp"
_frexp = custom.custom_jvp(_as_frexp)


@_frexp.defjvp
def _frexp_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    mantissa, exponent = frexp(x)
    scale = lax.exp2(lax.neg(lax.convert_element_type(exponent, promotion.dtype_of(x))))
    return (mantissa, exponent), (lax.mul(t, scale), np.zeros(promotion.shape_of(exponent), dtypes.float0))


@jit
def ldexp(x1: Any, x2: Any, /) -> Array:
    """``x1 * 2**x2`` for an integer (or bool) ``x2``, exact where the result is; ValueError for float exponents.

    >>> ldexp(0.5, 4).item()
    8.0
    """
    promotion.check_arraylike("ldexp", x1, x2)
    exponents = promotion.dtype_of(x2)
    if exponents != np.bool_ and not dtypes.issubdtype(exponents, np.integer):
        raise ValueError(f"ldexp not supported for input types {(promotion.dtype_of(x1), exponents)}")
    (x1,) = promotion.promote_args_inexact("ldexp", x1)
    dtype = promotion.dtype_of(x1)
    if dtypes.issubdtype(dtype, np.complexfloating):
        raise ValueError(f"ldexp not supported for input types {(dtype, exponents)}")
    x2 = promotion.convert(x2, dtype)
    zero, one, two = (np.asarray(v, dtype) for v in (0, 1, 2))
    mantissa, exponent = frexp(x1)
    exponent = lax.add(*promotion.promote_shapes(promotion.convert(exponent, dtype), x2, name="ldexp"))
    mantissa = selection.where(lax.gt(exponent, zero), lax.mul(mantissa, two), mantissa)
    exponent = selection.where(lax.gt(exponent, zero), lax.sub(exponent, one), exponent)
    result = lax.mul(mantissa, lax.pow(two, exponent))
    special = lax.bitwise_or(logic.isinf(x1), lax.eq(x1, zero))
    return selection.where(special, x1, result)
