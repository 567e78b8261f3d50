"""Elementary and special functions on elements: roots, exp and log, trigonometric, hyperbolic, erf.

The real forms are the emitter's vector math (``emit.function``); the complex forms stand in complex_math. A block
names both, the derivative and the NumPy oracle.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import core
from weft.core.tangents import Along, along
from weft.operations.pointwise import complex_math, convert
from weft.operations.pointwise.arithmetic import add, by_parts, div, is_complex, mul, neg, sub
from weft.operations.pointwise.elementwise import COMPLEX, FLOAT, Partials, constant, elementwise
from weft.operations.pointwise.powers import integer_pow, square
from weft.operations.references import precise, special
from weft.operations.settings import AccuracyMode, Tolerance
from weft.runtime import Array

__all__ = [
    "acos",
    "acos_p",
    "acosh",
    "acosh_p",
    "asin",
    "asin_p",
    "asinh",
    "asinh_p",
    "atan",
    "atan2",
    "atan2_p",
    "atan_p",
    "atanh",
    "atanh_p",
    "cbrt",
    "cbrt_p",
    "cos",
    "cos_p",
    "cosh",
    "cosh_p",
    "erf",
    "erf_inv",
    "erf_inv_p",
    "erf_p",
    "erfc",
    "erfc_p",
    "exp",
    "exp2",
    "exp2_p",
    "exp_p",
    "expm1",
    "expm1_p",
    "log",
    "log1p",
    "log1p_p",
    "log_p",
    "logistic",
    "logistic_p",
    "rsqrt",
    "rsqrt_p",
    "sin",
    "sin_p",
    "sinh",
    "sinh_p",
    "sqrt",
    "sqrt_p",
    "tan",
    "tan_p",
    "tanh",
    "tanh_p",
]

ArrayLike = Any
Accuracy = Tolerance | AccuracyMode | None


def vector_math(name: str) -> Callable[..., Any]:
    """The scalar expression that calls one function of the vector math library."""
    return lambda emit, *values, **params: emit.function(name, *values)


def function(
    name: str,
    complex_form: Callable[..., Any] | None,
    partials: Partials,
    reference: Callable[..., Any],
    cost: float,
    accuracy: bool = False,
    waits: bool = False,
) -> core.Primitive:
    """Declare a function of one operand; ``accuracy`` says that it takes JAX's accuracy parameter (ignored)."""
    real = vector_math(name)
    scalar = real if complex_form is None else by_parts(real, lambda z, **_: complex_form(z))
    return elementwise(
        name,
        FLOAT if complex_form is None else FLOAT | COMPLEX,
        scalar=scalar,
        partials=partials,
        reference=lambda x, **_: reference(x),
        cost=cost,
        waits=waits,
        hide=("accuracy",) if accuracy else (),
    )


def checked(accuracy: Accuracy) -> Accuracy:
    """The accuracy request, checked; it has no effect, since functions always meet their bound."""
    if accuracy is None or isinstance(accuracy, (Tolerance, AccuracyMode)):
        return accuracy
    raise NotImplementedError(f"[accuracy] must be None, a lax.Tolerance or a lax.AccuracyMode, got {accuracy!r}")


def scaled(factor: float, x: Any) -> Array:
    return mul(constant(x, factor), x)


# ---- roots

sqrt_p = function(
    "sqrt",
    complex_math.sqrt,
    (lambda out, x, **_: div(constant(x, 0.5), out),),
    precise(np.sqrt),
    4.0,
    accuracy=True,
    waits=True,
)


def sqrt(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Elementwise square root; the principal one of complex numbers.

    >>> float(lax.sqrt(9.0))
    3.0
    """
    return sqrt_p.bind(x, accuracy=checked(accuracy))


rsqrt_p = function(
    "rsqrt",
    complex_math.rsqrt,
    (lambda out, x, **_: scaled(-0.5, div(out, x)),),
    precise(lambda x: 1 / np.sqrt(x)),
    6.0,
    accuracy=True,
    waits=True,
)


def rsqrt(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Elementwise 1 / sqrt(x).

    >>> float(lax.rsqrt(4.0))
    0.5
    """
    return rsqrt_p.bind(x, accuracy=checked(accuracy))


cbrt_p = function(
    "cbrt", None, (lambda out, x, **_: scaled(1 / 3, integer_pow(out, -2)),), precise(np.cbrt), 12.0, True
)


def cbrt(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Elementwise real cube root.

    >>> float(lax.cbrt(27.0))
    3.0
    """
    return cbrt_p.bind(x, accuracy=checked(accuracy))


# ---- exponential and logarithm

exp_p = function("exp", complex_math.exp, (lambda out, x, **_: out,), precise(np.exp), 10.0, True)


def exp(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Elementwise e ** x.

    >>> float(lax.exp(0.0))
    1.0
    """
    return exp_p.bind(x, accuracy=checked(accuracy))


def _exp2_reference(x: Any) -> Any:
    return np.exp2(x) if x.dtype.kind == "f" else np.exp(x * np.log(np.longdouble(2)))


exp2_p = function(
    "exp2",
    complex_math.exp2,
    (along(lambda t, out, x, **_: mul(log(constant(x, 2)), mul(t, out))),),
    precise(_exp2_reference),
    10.0,
    True,
)


def exp2(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Elementwise 2 ** x.

    >>> float(lax.exp2(3.0))
    8.0
    """
    return exp2_p.bind(x, accuracy=checked(accuracy))


log_p = function("log", complex_math.log, (along(lambda t, out, x, **_: div(t, x)),), precise(np.log), 12.0, True)


def log(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Elementwise natural logarithm; the principal branch of complex numbers.

    >>> float(lax.log(1.0))
    0.0
    """
    return log_p.bind(x, accuracy=checked(accuracy))


expm1_p = function(
    "expm1", complex_math.expm1, (lambda out, x, **_: add(out, constant(x, 1)),), precise(np.expm1), 14.0, True
)


def expm1(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Elementwise e ** x - 1, accurate near zero.

    >>> float(lax.expm1(1e-20)) > 0
    True
    """
    return expm1_p.bind(x, accuracy=checked(accuracy))


def _log1p_reference(x: Any) -> Any:
    """The oracle; NumPy's own function loses a tiny real part of complex numbers."""
    if x.dtype.kind == "f":
        return np.log1p(x)
    out: Any = np.array(np.log1p(x))
    small = np.abs(x) < 0.5
    out.real = np.where(small, np.log1p(x.real * (x.real + 2) + x.imag * x.imag) / 2, out.real)
    return out


log1p_p = function(
    "log1p",
    complex_math.log1p,
    (along(lambda t, out, x, **_: div(t, add(x, constant(x, 1)))),),
    precise(_log1p_reference),
    14.0,
    True,
)


def log1p(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Elementwise log(1 + x), accurate near zero.

    >>> float(lax.log1p(1e-20)) > 0
    True
    """
    return log1p_p.bind(x, accuracy=checked(accuracy))


logistic_p = function(
    "logistic",
    complex_math.logistic,
    (lambda out, x, **_: mul(out, sub(constant(x, 1), out)),),
    precise(lambda x: 1 / (1 + np.exp(-x))),
    14.0,
    True,
)


def logistic(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Elementwise 1 / (1 + exp(-x)), the sigmoid.

    >>> float(lax.logistic(0.0))
    0.5
    """
    return logistic_p.bind(x, accuracy=checked(accuracy))


# ---- trigonometric

sin_p = function("sin", complex_math.sin, (lambda out, x, **_: cos(x),), precise(np.sin), 14.0, True)


def sin(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Elementwise sine.

    >>> float(lax.sin(0.0))
    0.0
    """
    return sin_p.bind(x, accuracy=checked(accuracy))


cos_p = function(
    "cos", complex_math.cos, (along(lambda t, out, x, **_: neg(mul(t, sin(x)))),), precise(np.cos), 14.0, True
)


def cos(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Elementwise cosine.

    >>> float(lax.cos(0.0))
    1.0
    """
    return cos_p.bind(x, accuracy=checked(accuracy))


tan_p = function(
    "tan", complex_math.tan, (lambda out, x, **_: add(constant(x, 1), square(out)),), precise(np.tan), 22.0, True
)


def tan(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Elementwise tangent.

    >>> round(float(lax.tan(1.0)), 4)
    1.5574
    """
    return tan_p.bind(x, accuracy=checked(accuracy))


def _factors(x: Any) -> tuple[Array, Array]:
    """1 - x and 1 + x, whose product is accurate near 1 - x^2 = 0; zeros keep their signs: the sides of branch cuts."""
    return neg(sub(x, constant(x, 1))), sub(x, constant(x, -1))


def _turned(x: Any) -> Array:
    """i * x"""
    return convert.complex(neg(convert.imag(x)), convert.real(x))


def _asin_slope(x: Any) -> Array:
    """1 / sqrt(1 - x^2)"""
    if not is_complex(x):
        return rsqrt(sub(constant(x, 1), square(x)))
    less, more = _factors(x)
    return mul(rsqrt(less), rsqrt(more))


asin_p = function(
    "asin",
    complex_math.asin,
    (lambda out, x: _asin_slope(x),),
    precise(np.arcsin),
    16.0,
)


def asin(x: ArrayLike) -> Array:
    """Elementwise inverse sine.

    >>> float(lax.asin(0.0))
    0.0
    """
    return asin_p.bind(x)


acos_p = function(
    "acos",
    complex_math.acos,
    (lambda out, x: neg(_asin_slope(x)),),
    precise(np.arccos),
    16.0,
)


def acos(x: ArrayLike) -> Array:
    """Elementwise inverse cosine.

    >>> float(lax.acos(1.0))
    0.0
    """
    return acos_p.bind(x)


atan_p = function(
    "atan",
    complex_math.atan,
    (along(lambda t, out, x: div(t, mul(*_factors(_turned(x))) if is_complex(x) else add(constant(x, 1), square(x)))),),
    precise(np.arctan),
    16.0,
)


def atan(x: ArrayLike) -> Array:
    """Elementwise inverse tangent.

    >>> round(float(lax.atan(1.0)), 4)
    0.7854
    """
    return atan_p.bind(x)


def _atan2_reference(y: Any, x: Any) -> Any:
    return np.arctan2(y, x) if x.dtype.kind == "f" else -1j * np.log((x + 1j * y) / np.sqrt(x * x + y * y))


atan2_p = elementwise(
    "atan2",
    FLOAT | COMPLEX,
    FLOAT | COMPLEX,
    scalar=by_parts(vector_math("atan2"), complex_math.atan2),
    partials=(
        lambda out, y, x: div(x, add(square(y), square(x))),
        lambda out, y, x: div(neg(y), add(square(y), square(x))),
    ),
    reference=precise(_atan2_reference),
    cost=20.0,
)


def atan2(x: ArrayLike, y: ArrayLike) -> Array:
    """Elementwise angle of the point (y, x): the inverse tangent of x / y in the right quadrant.

    >>> round(float(lax.atan2(1.0, -1.0)), 4)
    2.3562
    """
    return atan2_p.bind(x, y)


# ---- hyperbolic

sinh_p = function("sinh", complex_math.sinh, (lambda out, x: cosh(x),), precise(np.sinh), 18.0)


def sinh(x: ArrayLike) -> Array:
    """Elementwise hyperbolic sine.

    >>> float(lax.sinh(0.0))
    0.0
    """
    return sinh_p.bind(x)


cosh_p = function("cosh", complex_math.cosh, (lambda out, x: sinh(x),), precise(np.cosh), 16.0)


def cosh(x: ArrayLike) -> Array:
    """Elementwise hyperbolic cosine.

    >>> float(lax.cosh(0.0))
    1.0
    """
    return cosh_p.bind(x)


tanh_p = function(
    "tanh",
    complex_math.tanh,
    (along(lambda t, out, x, **_: mul(add(t, mul(t, out)), sub(constant(x, 1), out))),),
    precise(np.tanh),
    18.0,
    True,
)


def tanh(x: ArrayLike, *, accuracy: Accuracy = None) -> Array:
    """Elementwise hyperbolic tangent.

    >>> float(lax.tanh(100.0))
    1.0
    """
    return tanh_p.bind(x, accuracy=checked(accuracy))


asinh_p = function(
    "asinh",
    complex_math.asinh,
    (lambda out, x: _asin_slope(_turned(x)) if is_complex(x) else rsqrt(add(square(x), constant(x, 1))),),
    precise(np.arcsinh),
    20.0,
)


def asinh(x: ArrayLike) -> Array:
    """Elementwise inverse hyperbolic sine.

    >>> float(lax.asinh(0.0))
    0.0
    """
    return asinh_p.bind(x)


def _acosh_slope(out: Any, x: Any) -> Array:
    """1 / sqrt(x^2 - 1); for complex numbers two factors, which stay on the principal branch."""
    one = constant(x, 1)
    return mul(rsqrt(sub(x, one)), rsqrt(_factors(x)[1])) if is_complex(x) else rsqrt(sub(square(x), one))


acosh_p = function(
    "acosh",
    complex_math.acosh,
    (_acosh_slope,),
    precise(np.arccosh),
    20.0,
)


def acosh(x: ArrayLike) -> Array:
    """Elementwise inverse hyperbolic cosine.

    >>> float(lax.acosh(1.0))
    0.0
    """
    return acosh_p.bind(x)


atanh_p = function(
    "atanh",
    complex_math.atanh,
    (along(lambda t, out, x: mul(integer_pow(add(constant(x, 1), x), -1), div(t, sub(constant(x, 1), x)))),),
    precise(np.arctanh),
    18.0,
)


def atanh(x: ArrayLike) -> Array:
    """Elementwise inverse hyperbolic tangent.

    >>> float(lax.atanh(0.0))
    0.0
    """
    return atanh_p.bind(x)


# ---- error function


def _gaussian(factor: float) -> Along:
    """The derivative factor * exp(-x^2)."""
    return along(lambda t, out, x: scaled(factor, mul(t, exp(neg(square(x))))))


erf_p = function("erf", None, (_gaussian(2 / math.sqrt(math.pi)),), special("erf"), 16.0)


def erf(x: ArrayLike) -> Array:
    """Elementwise error function.

    >>> round(float(lax.erf(1.0)), 4)
    0.8427
    """
    return erf_p.bind(x)


erfc_p = function("erfc", None, (_gaussian(-2 / math.sqrt(math.pi)),), special("erfc"), 24.0)


def erfc(x: ArrayLike) -> Array:
    """Elementwise complementary error function, 1 - erf(x).

    >>> round(float(lax.erfc(1.0)), 4)
    0.1573
    """
    return erfc_p.bind(x)


def _erf_inv_scalar(emit: Any, x: Any, *, drawn: bool = False) -> Any:
    return emit.function("erf_inv_drawn" if drawn else "erf_inv", x)


erf_inv_p = elementwise(
    "erf_inv",
    FLOAT,
    scalar=_erf_inv_scalar,
    partials=(along(lambda t, out, x, **_: scaled(math.sqrt(math.pi) / 2, mul(t, exp(square(out))))),),
    reference=lambda x, **_: special("erfinv")(x),
    cost=24.0,
)
erf_inv_p.print_params = lambda params: {}  # the kind of rounding is not printed


def erf_inv(x: ArrayLike) -> Array:
    """Elementwise inverse of the error function.

    >>> round(float(lax.erf_inv(0.5)), 4)
    0.4769
    """
    return erf_inv_p.bind(x)


def erf_inv_drawn(x: ArrayLike) -> Array:
    """``erf_inv`` of uniform draws, rounded as the promised bits of random normal values need it."""
    return erf_inv_p.bind(x, drawn=True)
