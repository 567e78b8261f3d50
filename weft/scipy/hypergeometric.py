"""Hypergeometric functions 1F1 and 2F1 of real operands: their power series after a transformation of the argument.

The series run, in one loop for all elements, until no term counts. Arguments far from 0 come near it by Kummer's and
Pfaff's transformations, by the expansion at infinity (1F1), or by that around 1 (2F1): Abramowitz and Stegun, 13.1.27,
13.5.1, 15.3.4 and 15.3.6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import numpy as wnp
from weft import operations as lax
from weft._base.array import Array
from weft.autodiff import custom_jvp as custom
from weft.autodiff import derivatives, symbolic_zeros
from weft.control import while_loop
from weft.numpy import promotion
from weft.scipy import series, special

_MOST_TERMS = 100_000


def _power_series(ratio: Callable[[Any], Any], like: Any, most: int = _MOST_TERMS) -> Any:
    """``1 + t1 + t2 + ...`` where ``t[k+1] = t[k] * ratio(k)``."""
    least = 1e-20 if series.is_double(like) else 1e-11  # derivatives of terms die out a little later than they do

    def goes_on(state: Any) -> Any:
        k, term, total = state
        counts = (wnp.abs(term) > least * wnp.abs(total)) & wnp.isfinite(total)
        return (k < most) & wnp.any(counts)

    def step(state: Any) -> Any:
        k, term, total = state
        term = term * ratio(promotion.convert(k, promotion.dtype_of(like)))
        return k + 1, term, total + term

    one = wnp.ones_like(like)
    return while_loop.while_loop(goes_on, step, (np.int32(0), one, one))[2]


def _is_pole(x: Any) -> Any:
    """Where x is 0 or a negative integer."""
    return (x <= 0) & (x == wnp.round(x))


def _gamma_sign(x: Any) -> Any:
    return special.gammasgn(wnp.where(_is_pole(x), 1, x))


def _reciprocal_gamma(x: Any) -> tuple[Any, Any]:
    """Sign and logarithm of ``1 / gamma(x)``: 0 at the poles."""
    pole = _is_pole(x)
    return wnp.where(pole, 0, _gamma_sign(x)), -lax.lgamma(wnp.where(pole, 1, x))


# ---- 1F1


def _kummer_series(a: Any, b: Any, x: Any) -> Any:
    return _power_series(lambda k: (a + k) / (b + k) * x / (k + 1), x)


def _at_infinity(a: Any, b: Any, x: Any) -> Any:
    """For large positive x, without the factor exp(x)."""
    total, term = wnp.ones_like(x), wnp.ones_like(x)
    for k in range(30):
        term = term * (b - a + k) * (1 - a + k) / ((k + 1) * x)
        total = total + term
    sign, logarithm = _reciprocal_gamma(a)
    size = _gamma_sign(b) * sign * wnp.exp(lax.lgamma(b) + logarithm + (a - b) * wnp.log(x))
    return size * total


def _hyp1f1(a: Any, b: Any, x: Any) -> Any:
    negative = x < 0
    first, size = wnp.where(negative, b - a, a), wnp.abs(x)
    polynomial = _is_pole(a)  # ends by itself, and has no use for the transformations
    far = (size > 60 + wnp.square(first) + wnp.square(b - first)) & ~polynomial & ~_is_pole(first)
    bad = _is_pole(b) & ~(polynomial & (a > b))
    safe_b = wnp.where(bad, 1, b)
    near = wnp.where(far | bad, 1, wnp.where(polynomial, x, size))
    low = _kummer_series(wnp.where(polynomial, a, first), safe_b, near)
    low = wnp.where(polynomial | ~negative, low, low * wnp.exp(-near))
    high = _at_infinity(first, safe_b, wnp.where(far, size, 100))
    high = wnp.where(negative, high, high * wnp.exp(wnp.where(far & ~negative, size, 0)))
    value = wnp.where(bad, np.inf, wnp.where(far, high, low))
    value = wnp.where((a == 0) | (x == 0), 1, value)
    return wnp.where(wnp.isnan(a) | wnp.isnan(b) | wnp.isnan(x), np.nan, value)


def _slope(function: Callable[[Any], Any], at: Any) -> Any:
    """The derivative of an elementwise function, by forward differentiation."""
    return derivatives.jvp(function, (at,), (wnp.ones_like(at),))[1]


def _is_zero(tangent: Any) -> bool:
    return isinstance(tangent, symbolic_zeros.SymbolicZero)


@custom.custom_jvp
def _hyp1f1_alone(a: Any, b: Any, x: Any) -> Any:
    return _hyp1f1(a, b, x)


def _hyp1f1_rule(primals: Any, tangents: Any) -> Any:
    (a, b, x), (da, db, dx) = primals, tangents
    out = _hyp1f1_alone(a, b, x)
    tangent: Any = wnp.zeros_like(out)
    if not _is_zero(dx):
        tangent = tangent + dx * (a / b) * _hyp1f1_alone(a + 1, b + 1, x)
    if not _is_zero(da):
        tangent = tangent + da * _slope(lambda a: _hyp1f1(a, b, x), a)
    if not _is_zero(db):
        tangent = tangent + db * _slope(lambda b: _hyp1f1(a, b, x), b)
    return out, tangent


_hyp1f1_alone.defjvp(_hyp1f1_rule, symbolic_zeros=True)


@series.inline
def hyp1f1(a: Any, b: Any, x: Any) -> Array:
    """Kummer's confluent hypergeometric function, the sum of ``(a)_k x**k / ((b)_k k!)``.

    Operands are real and broadcast; the result is floating point. inf where ``b`` is a pole. Meant for parameters of
    moderate size: with ``|a|`` and ``|b|`` up to about 20 few digits are lost. ValueError for complex operands.

    >>> round(hyp1f1(1.0, 2.0, 1.0).item(), 5)
    1.71828
    """
    operands = series.real_operands("hyp1f1", a, b, x)
    dtype, weak = promotion.dtype_of(operands[0]), promotion.is_weak(operands[0])
    operands = wnp.broadcast_arrays(*series.at_least_single(*operands))
    return promotion.convert(_hyp1f1_alone(*operands), dtype, weak)


# ---- 2F1


def _gauss_series(a: Any, b: Any, c: Any, x: Any) -> Any:
    return _power_series(lambda k: (a + k) * (b + k) / ((c + k) * (k + 1)) * x, x)


def _gammas(above: tuple[Any, Any], below: tuple[Any, Any]) -> Any:
    """``gamma(p) gamma(q) / (gamma(r) gamma(s))``."""
    sign, logarithm = _gamma_sign(above[0]) * _gamma_sign(above[1]), lax.lgamma(above[0]) + lax.lgamma(above[1])
    for x in below:
        other, size = _reciprocal_gamma(x)
        sign, logarithm = sign * other, logarithm + size
    return sign * wnp.exp(logarithm)


def _around_one(a: Any, b: Any, c: Any, x: Any) -> Any:
    """For x between 1/2 and 1 and c - a - b no integer."""
    excess, rest = c - a - b, 1 - x
    first = _gammas((c, excess), (c - a, c - b)) * _gauss_series(a, b, 1 - excess, rest)
    second = _gammas((c, -excess), (a, b)) * _gauss_series(c - a, c - b, 1 + excess, rest)
    return first + rest**excess * second


def _hyp2f1(a: Any, b: Any, c: Any, x: Any) -> Any:
    polynomial = _is_pole(a) | _is_pole(b)
    turned = (x < 0) & ~polynomial
    second, z = wnp.where(turned, c - b, b), wnp.where(turned, x / (x - 1), x)
    shorter = _is_pole(a) & (a > c) | _is_pole(b) & (b > c)
    bad = _is_pole(c) & ~shorter
    outside = (z > 1) & ~polynomial
    excess = c - a - second
    at_one = (z == 1) & ~polynomial
    close = (z > 0.8) & ~polynomial & ~outside & ~at_one & (wnp.abs(excess - wnp.round(excess)) > 0.02)
    plain = ~(close | outside | at_one | bad)
    low = _gauss_series(a, second, wnp.where(bad, 1, c), wnp.where(plain, z, 0))
    fraction = wnp.where(close, excess, 0.5)  # whatever converges where the value is not used
    high = _around_one(
        wnp.where(close, a, 0.25), wnp.where(close, second, 0.25), wnp.where(close, c, 0.5 + fraction),
        wnp.where(close, z, 0.9),
    )  # fmt: skip
    finite = at_one & (excess > 0)
    end = _gammas(
        (wnp.where(finite, c, 1), wnp.where(finite, excess, 1)),
        (wnp.where(finite, c - a, 1), wnp.where(finite, c - second, 1)),
    )
    value = wnp.where(close, high, wnp.where(at_one, wnp.where(excess > 0, end, np.inf), low))
    value = wnp.where(turned, value * (1 - wnp.where(turned, x, 0)) ** -a, value)
    value = wnp.where(outside | bad, np.inf, value)
    value = wnp.where((x == 0) | (a == 0) | (b == 0), 1, value)
    broken = wnp.isnan(a) | wnp.isnan(b) | wnp.isnan(c) | wnp.isnan(x)
    return wnp.where(broken, np.nan, value)


@custom.custom_jvp
def _hyp2f1_alone(a: Any, b: Any, c: Any, x: Any) -> Any:
    return _hyp2f1(a, b, c, x)


def _hyp2f1_rule(primals: Any, tangents: Any) -> Any:
    (a, b, c, x), (da, db, dc, dx) = primals, tangents
    out = _hyp2f1_alone(a, b, c, x)
    tangent: Any = wnp.zeros_like(out)
    if not _is_zero(dx):
        tangent = tangent + dx * (a * b / c) * _hyp2f1_alone(a + 1, b + 1, c + 1, x)
    if not _is_zero(da):
        tangent = tangent + da * _slope(lambda a: _hyp2f1(a, b, c, x), a)
    if not _is_zero(db):
        tangent = tangent + db * _slope(lambda b: _hyp2f1(a, b, c, x), b)
    if not _is_zero(dc):
        tangent = tangent + dc * _slope(lambda c: _hyp2f1(a, b, c, x), c)
    return out, tangent


_hyp2f1_alone.defjvp(_hyp2f1_rule, symbolic_zeros=True)


@series.inline
def hyp2f1(a: Any, b: Any, c: Any, x: Any) -> Array:
    """Gauss' hypergeometric function, the sum of ``(a)_k (b)_k x**k / ((c)_k k!)``, continued to all ``x`` below 1.

    Operands are real and broadcast; the result is floating point. inf at its pole ``x = 1`` and beyond, unless the
    series ends (``a`` or ``b`` 0 or a negative integer), and where ``c`` is a pole. ValueError for complex operands.

    >>> round(hyp2f1(1.0, 1.0, 2.0, 0.5).item(), 5)
    1.38629
    """
    operands = series.real_operands("hyp2f1", a, b, c, x)
    dtype, weak = promotion.dtype_of(operands[0]), promotion.is_weak(operands[0])
    operands = wnp.broadcast_arrays(*series.at_least_single(*operands))
    return promotion.convert(_hyp2f1_alone(*operands), dtype, weak)
