"""Exponentials, logarithms, trigonometric and hyperbolic ufuncs, and functions made of them.

All compute in floating point: integers and bool are converted first, complex operands stay complex::

    sin(i32[3])  ->  convert_element_type[new_dtype=float32], sin
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import core, dtypes, runtime
from weft import operations as lax
from weft._base.array import Array
from weft.autodiff import custom_jvp as custom
from weft.dispatch.calls import jit as jit_module
from weft.numpy import promotion
from weft.numpy.pointwise import selection

jit = jit_module.jit
inline = jit(inline=True)


def _unary(name: str, operation: Callable[[Any], Any], purpose: str, example: str) -> runtime.JitFunction[[Any], Array]:
    """A ufunc of one operand that is one equation in floating point."""

    def function(x: Any, /) -> Array:
        return operation(*promotion.promote_args_inexact(name, x))

    function.__name__ = function.__qualname__ = name
    argument, result = example.split(" -> ")
    function.__doc__ = (
        f"{purpose}, element by element, in floating point; complex operands give complex results.\n\n"
        f"    >>> float({name}({argument}))\n    {result}\n    "
    )
    return inline(function)


exp = _unary("exp", lax.exp, "e to the power ``x``", "0.0 -> 1.0")
exp2 = _unary("exp2", lax.exp2, "2 to the power ``x``", "3.0 -> 8.0")
expm1 = _unary("expm1", lax.expm1, "``exp(x) - 1`` without cancellation near 0", "0.0 -> 0.0")
log = _unary("log", lax.log, "Natural logarithm", "1.0 -> 0.0")
log1p = _unary("log1p", lax.log1p, "``log(1 + x)`` without cancellation near 0", "0.0 -> 0.0")
sqrt = _unary("sqrt", lax.sqrt, "Square root; NaN for negative real ``x``", "9.0 -> 3.0")
cbrt = _unary("cbrt", lax.cbrt, "Real cube root", "0.0 -> 0.0")
sin = _unary("sin", lax.sin, "Sine of an angle in radians", "0.0 -> 0.0")
cos = _unary("cos", lax.cos, "Cosine of an angle in radians", "0.0 -> 1.0")
tan = _unary("tan", lax.tan, "Tangent of an angle in radians", "0.0 -> 0.0")
arcsin = _unary("arcsin", lax.asin, "Angle in -pi/2..pi/2 whose sine is ``x``", "0.0 -> 0.0")
arccos = _unary("arccos", lax.acos, "Angle in 0..pi whose cosine is ``x``", "1.0 -> 0.0")
arctan = _unary("arctan", lax.atan, "Angle in -pi/2..pi/2 whose tangent is ``x``", "0.0 -> 0.0")
sinh = _unary("sinh", lax.sinh, "Hyperbolic sine", "0.0 -> 0.0")
cosh = _unary("cosh", lax.cosh, "Hyperbolic cosine", "0.0 -> 1.0")
tanh = _unary("tanh", lax.tanh, "Hyperbolic tangent", "0.0 -> 0.0")
arcsinh = _unary("arcsinh", lax.asinh, "Inverse hyperbolic sine", "0.0 -> 0.0")
arctanh = _unary("arctanh", lax.atanh, "Inverse hyperbolic tangent", "0.0 -> 0.0")
asin = _unary("asin", lax.asin, "Angle in -pi/2..pi/2 whose sine is ``x``", "0.0 -> 0.0")
acos = _unary("acos", lax.acos, "Angle in 0..pi whose cosine is ``x``", "1.0 -> 0.0")
atan = _unary("atan", lax.atan, "Angle in -pi/2..pi/2 whose tangent is ``x``", "0.0 -> 0.0")
asinh = _unary("asinh", lax.asinh, "Inverse hyperbolic sine", "0.0 -> 0.0")
atanh = _unary("atanh", lax.atanh, "Inverse hyperbolic tangent", "0.0 -> 0.0")


@jit
def arccosh(x: Any, /) -> Array:
    """Inverse hyperbolic cosine, 0 or above; NaN for real ``x`` below 1. Complex results have a real part >= 0.

    >>> arccosh(1.0).item()
    0.0
    """
    (x,) = promotion.promote_args_inexact("arccosh", x)
    result = lax.acosh(x)
    if not dtypes.issubdtype(promotion.dtype_of(x), np.complexfloating):
        return result
    part = lax.real(result)
    return selection.where(lax.lt(part, np.asarray(0, promotion.dtype_of(part))), lax.neg(result), result)


def acosh(x: Any, /) -> Array:
    """Inverse hyperbolic cosine, the same as ``arccosh``.

    >>> acosh(1.0).item()
    0.0
    """
    return arccosh(x)


@inline
def log2(x: Any, /) -> Array:
    """Logarithm to base 2.

    >>> log2(8.0).item()
    3.0
    """
    (x,) = promotion.promote_args_inexact("log2", x)
    dtype = promotion.dtype_of(x)
    if dtypes.issubdtype(dtype, np.complexfloating):
        logarithm = lax.log(x)
        re, im = lax.real(logarithm), lax.imag(logarithm)
        base = lax.log(core.wide(np.asarray(2, promotion.dtype_of(re))))
        return lax.complex(lax.div(re, base), lax.div(im, base))
    return lax.div(lax.log(x), lax.log(core.wide(np.asarray(2.0, dtype))))


@inline
def log10(x: Any, /) -> Array:
    """Logarithm to base 10.

    >>> log10(1.0).item()
    0.0
    """
    (x,) = promotion.promote_args_inexact("log10", x)
    dtype = promotion.dtype_of(x)
    factor = np.log10(np.e)
    if dtypes.issubdtype(dtype, np.complexfloating):
        logarithm = lax.log(x)
        re, im = lax.real(logarithm), lax.imag(logarithm)
        base = np.asarray(1 / np.log(10), promotion.dtype_of(re))
        return lax.complex(lax.mul(re, base), lax.mul(im, base))
    return lax.mul(lax.log(x), np.asarray(factor, dtype))


@inline
def arctan2(x1: Any, x2: Any, /) -> Array:
    """Angle in -pi..pi of the point with ordinate ``x1`` and abscissa ``x2``; real operands only.

    >>> arctan2(0.0, 1.0).item()
    0.0
    """
    return lax.atan2(*promotion.promote_args_inexact("arctan2", x1, x2))


@inline
def atan2(x1: Any, x2: Any, /) -> Array:
    """Angle of the point (``x2``, ``x1``), the same as ``arctan2``.

    >>> atan2(0.0, 1.0).item()
    0.0
    """
    return arctan2(x1, x2)


@inline
def deg2rad(x: Any, /) -> Array:
    """Degrees to radians.

    >>> deg2rad(0.0).item()
    0.0
    """
    (x,) = promotion.promote_args_inexact("deg2rad", x)
    return lax.mul(x, promotion.constant_like(np.pi / 180, x))


@inline
def rad2deg(x: Any, /) -> Array:
    """Radians to degrees.

    >>> rad2deg(0.0).item()
    0.0
    """
    (x,) = promotion.promote_args_inexact("rad2deg", x)
    return lax.mul(x, promotion.constant_like(180 / np.pi, x))


@inline
def degrees(x: Any, /) -> Array:
    """Radians to degrees, the same as ``rad2deg``.

    >>> degrees(0.0).item()
    0.0
    """
    return rad2deg(x)


@inline
def radians(x: Any, /) -> Array:
    """Degrees to radians, the same as ``deg2rad``.

    >>> radians(0.0).item()
    0.0
    """
    return deg2rad(x)


@inline
def logaddexp(x1: Any, x2: Any, /, *, out: None = None, where: None = None) -> Array:
    """``log(exp(x1) + exp(x2))`` without overflow; promoted to floating point.

    >>> round(logaddexp(0.0, 0.0).item(), 4)
    0.6931
    """
    promotion.check_options("logaddexp", out, where)
    return _logaddexp(*promotion.promote_args_inexact("logaddexp", x1, x2))


@inline
def logaddexp2(x1: Any, x2: Any, /, *, out: None = None, where: None = None) -> Array:
    """``log2(2**x1 + 2**x2)`` without overflow; promoted to floating point.

    >>> logaddexp2(1.0, 1.0).item()
    2.0
    """
    promotion.check_options("logaddexp2", out, where)
    return _logaddexp2(*promotion.promote_args_inexact("logaddexp2", x1, x2))


def _stable_log_of_sum(x1: Any, x2: Any, power: Callable[[Any], Any], finish: Callable[[Any], Any]) -> Any:
    """The larger operand plus a correction; where the difference is NaN (inf - inf, or NaN) the plain sum."""
    larger, difference = lax.max(x1, x2), lax.sub(x1, x2)
    undefined = lax.ne(difference, difference)
    total = lax.add(x1, x2)
    correction = finish(lax.log1p(power(lax.neg(lax.abs(difference)))))
    return lax.select(undefined, total, lax.add(larger, correction))


def _complex_logaddexp(x1: Any, x2: Any, base: float) -> Any:
    """Complex operands: the phase is brought back to -pi..pi (in units of ``log(base)``)."""
    dtype = promotion.dtype_of(x1)
    larger = lax.max(x1, x2)
    rest = lax.sub(lax.add(x1, x2), lax.mul(larger, np.asarray(2, dtype)))
    scale = np.asarray(base, dtype)
    one_sided = lax.log1p(lax.exp(rest)) if base == 1.0 else lax.div(lax.log1p(lax.exp(lax.mul(rest, scale))), scale)
    result = lax.add(larger, one_sided)
    re, im = lax.real(result), lax.imag(result)
    part = promotion.dtype_of(re)
    half, period = np.asarray(np.pi / base, part), np.asarray(2 * np.pi / base, part)
    wrapped = lax.rem(lax.add(im, half), period)
    wrapped = lax.select(lax.lt(wrapped, np.asarray(0, part)), lax.add(wrapped, period), wrapped)
    return lax.complex(re, lax.sub(wrapped, half))


def _as_logaddexp(x1: Any, x2: Any) -> Any:
    if dtypes.issubdtype(promotion.dtype_of(x1), np.complexfloating):
        return _complex_logaddexp(x1, x2, 1.0)
    return _stable_log_of_sum(x1, x2, lax.exp, lambda correction: correction)


def _as_logaddexp2(x1: Any, x2: Any) -> Any:
    dtype = promotion.dtype_of(x1)
    if dtypes.issubdtype(dtype, np.complexfloating):
        return _complex_logaddexp(x1, x2, float(np.log(2)))
    factor = promotion.constant_like(1 / np.log(2), x1)
    return _stable_log_of_sum(x1, x2, lax.exp2, lambda correction: lax.mul(factor, correction))


_as_logaddexp.__name__ = "logaddexp"
_as_logaddexp2.__name__ = "logaddexp2"
_logaddexp = custom.custom_jvp(_as_logaddexp)
_logaddexp2 = custom.custom_jvp(_as_logaddexp2)


@_logaddexp.defjvp
def _logaddexp_jvp(primals: Any, tangents: Any) -> Any:
    (x1, x2), (t1, t2) = primals, tangents
    result = logaddexp(x1, x2)
    return result, _weighted_tangents(result, x1, x2, t1, t2, lax.exp)


@_logaddexp2.defjvp
def _logaddexp2_jvp(primals: Any, tangents: Any) -> Any:
    (x1, x2), (t1, t2) = primals, tangents
    result = logaddexp2(x1, x2)
    return result, _weighted_tangents(result, x1, x2, t1, t2, lax.exp2)


def _weighted_tangents(result: Any, x1: Any, x2: Any, t1: Any, t2: Any, power: Callable[[Any], Any]) -> Any:
    """Tangents weighted by each operand's share of the sum, with 0 instead of inf, whose differences are NaN."""

    def finite(x: Any) -> Any:
        size = lax.real(x) if dtypes.issubdtype(promotion.dtype_of(x), np.complexfloating) else x
        return lax.select(lax.eq(size, promotion.constant_like(np.inf, size)), lax.full_like(x, 0), x)

    def share(x: Any) -> Any:
        return power(lax.sub(finite(x), finite(result)))

    return lax.add(lax.mul(t1, share(x1)), lax.mul(t2, share(x2)))


def _maclaurin(order: int, x: Any) -> Any:
    """sin(t)/t near 0 to the given derivative order, as a polynomial in t**2 whose even terms alternate."""
    zero = lax.mul(x, promotion.constant_like(0, x))
    if order % 2:
        return zero
    return lax.add(zero, promotion.constant_like((-1.0) ** (order // 2) / (order + 1), x))


@jit
def sinc(x: Any, /) -> Array:
    """``sin(pi x) / (pi x)``, 1 at 0.

    >>> sinc(0.0).item()
    1.0
    """
    promotion.check_arraylike("sinc", x)
    (x,) = promotion.promote_dtypes_inexact(x)
    at_zero = lax.eq(x, promotion.constant_like(0, x))
    angle = lax.mul(promotion.constant_like(np.pi, x), x)
    safe = selection.where(at_zero, promotion.constant_like(1, x), angle)
    return selection.where(at_zero, _sinc_maclaurin(0, angle), lax.div(lax.sin(safe), safe))


_as_sinc_maclaurin = _maclaurin
_as_sinc_maclaurin.__name__ = "_sinc_maclaurin"
_sinc_maclaurin = custom.custom_jvp(_as_sinc_maclaurin, nondiff_argnums=(0,))


@_sinc_maclaurin.defjvp
def _sinc_maclaurin_jvp(order: int, primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return _sinc_maclaurin(order, x), lax.mul(_sinc_maclaurin(order + 1, x), t)


def _as_i0(x: Any) -> Any:
    x = lax.abs(x)
    return lax.mul(lax.exp(x), lax.bessel_i0e(x))


_as_i0.__name__ = "_i0"
_i0 = custom.custom_jvp(_as_i0)


@_i0.defjvp
def _i0_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return _i0(x), lax.mul(t, lax.mul(lax.exp(lax.abs(x)), lax.bessel_i1e(x)))


@jit
def i0(x: Any) -> Array:
    """Modified Bessel function of order 0, element by element, in floating point.

    >>> round(i0(1.0).item(), 4)
    1.2661
    """
    (x,) = promotion.promote_args_inexact("i0", x)
    if not dtypes.issubdtype(promotion.dtype_of(x), np.floating):
        raise ValueError(f"Unsupported input type to jax.numpy.i0: {promotion.dtype_of(x)}")
    return _i0(x)
