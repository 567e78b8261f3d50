"""Exponential integrals, sine and cosine integral: power series near 0, Chebyshev series of what remains far from it.

    exp1(x)  ->  x <= 1: -log(x) - gamma + x (1 - x/4 + ...);  x > 1: exp(-x) / x * series(1 / x)

Orders above 1 have a continued fraction (Abramowitz and Stegun, 5.1.22) instead.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import numpy as wnp
from weft import operations as lax
from weft._base.array import Array
from weft.autodiff import custom_jvp as custom
from weft.numpy import promotion
from weft.scipy import chebyshev_tables as tables
from weft.scipy import series

_GAMMA = float(np.euler_gamma)


def _powers(count: int, sign: int) -> list[float]:
    """1 / (k k!) of ``sum(sign**(k-1) x**(k-1) / (k k!))`` for k from 1."""
    return [sign ** (k - 1) / (k * math.factorial(k)) for k in range(1, count + 1)]


def _exp1(x: Any) -> Any:
    small = x <= 1
    near = wnp.where(small & (x >= 0), x, 1)
    sums = series.horner(_powers(18 if series.is_double(x) else 10, -1), near)
    low = near * sums - wnp.log(near) - _GAMMA
    far = wnp.where(small, 1, x)
    inverse = 1 / far
    scaled = series.chebyshev([(far <= 4, tables.E1_NEAR, 1 / 4, 1.0), (True, tables.E1_FAR, 0.0, 1 / 4)], inverse)
    high = wnp.exp(-far) * inverse * scaled
    return wnp.where(x < 0, np.nan, wnp.where(small, low, high))


exp1 = series.real_function(
    "exp1", _exp1, lambda out, x: -wnp.exp(-x) / x,
    """The exponential integral ``E1``: of ``exp(-t) / t`` from ``x`` to infinity. inf at 0, NaN below.

    ``x`` is real, of any shape; the result is floating point. ValueError for complex ``x``.""",
    ">>> round(exp1(1.0).item(), 6)\n    0.219384",
)  # fmt: skip


def _expi(x: Any) -> Any:
    near = wnp.where((x > 0) & (x <= 6), x, 1)
    low = near * series.horner(_powers(38 if series.is_double(x) else 24, 1), near) + wnp.log(near) + _GAMMA
    far = wnp.where(x > 6, x, 6)
    inverse = 1 / far
    scaled = series.chebyshev(
        [
            (far <= 12, tables.EI_NEAR, 1 / 12, 1 / 6),
            (far <= 24, tables.EI_MID, 1 / 24, 1 / 12),
            (True, tables.EI_FAR, 0.0, 1 / 24),
        ],
        inverse,
    )
    half = wnp.exp(far / 2)  # exp(x) may overflow although exp(x) / x is finite
    high = wnp.where(far == np.inf, np.inf, half * inverse * scaled * half)
    below = -_exp1(wnp.where(x < 0, -x, 1))
    at_zero = wnp.where(x == 0, -np.inf, wnp.where(x > 6, high, low))
    return wnp.where(wnp.isnan(x), x, wnp.where(x < 0, below, at_zero))


expi = series.real_function(
    "expi", _expi, lambda out, x: wnp.exp(x) / x,
    """The exponential integral ``Ei``: of ``exp(t) / t`` from minus infinity to ``x``, -inf at 0.

    ``x`` is real, of any shape; the result is floating point. ValueError for complex ``x``.""",
    ">>> round(expi(1.0).item(), 5)\n    1.89512",
)  # fmt: skip


# ---- order n


def _expn_series(n: Any, x: Any) -> Any:
    """For x up to 1.5: Abramowitz and Stegun, 5.1.12."""
    count = 24 if series.is_double(x) else 14
    last = n - 1  # the power that goes with the logarithm
    total = wnp.zeros_like(x)
    for m in range(count - 1, -1, -1):
        alone = last == m
        term = wnp.where(alone, 0, 1 / wnp.where(alone, 1, last - m))
        total = total + term * (-x) ** m / float(math.factorial(m))
    power = wnp.exp(last * wnp.log(x) - lax.lgamma(n))
    sign = 1 - 2 * wnp.mod(last, 2)
    return total + sign * power * (lax.digamma(n) - wnp.log(x))


def _expn_fraction(n: Any, x: Any) -> Any:
    """For x above 1.5, from the inside out."""
    count = 62 if series.is_double(x) else 16
    bottom = x + n + 2 * count
    for k in range(count, 0, -1):
        bottom = x + n + 2 * (k - 1) - k * (n + k - 1) / bottom
    return wnp.exp(-x) / bottom


@custom.custom_jvp
def _expn(n: Any, x: Any) -> Any:
    small = x <= 1.5
    order = wnp.where(n >= 1, n, 1)
    low = _expn_series(order, wnp.where(small & (x > 0), x, 1))
    high = _expn_fraction(order, wnp.where(small, 2, wnp.where(x == np.inf, 2, x)))
    value = wnp.where(small, low, wnp.where(x == np.inf, 0, high))
    at_zero = wnp.where(n > 1, 1 / wnp.where(n > 1, n - 1, 1), np.inf)
    value = wnp.where(x == 0, at_zero, wnp.where(n == 0, wnp.exp(-x) / wnp.where(x == 0, 1, x), value))
    valid = (n >= 0) & (n == wnp.floor(n)) & (x >= 0)
    return wnp.where(valid, value, np.nan)


@_expn.defjvp
def _expn_jvp(primals: Any, tangents: Any) -> Any:
    (n, x), (_, t) = primals, tangents
    at_zero = wnp.exp(-x) * (1 + 1 / x) / x  # minus the derivative of E0
    slope = wnp.where(n == 0, at_zero, _expn(wnp.where(n == 0, 0, n - 1), x))
    return _expn(n, x), -t * slope


@series.inline
def expn(n: Any, x: Any) -> Array:
    """The exponential integral of order ``n``: of ``exp(-x t) / t**n`` from 1 to infinity.

    ``n`` is a whole number not below 0 and ``x`` not below 0, otherwise the result is NaN; both are broadcast. Only the
    derivative in ``x`` exists, that in ``n`` counts as 0. ValueError for complex operands.

    >>> round(expn(2, 1.0).item(), 6)
    0.148496
    """
    n, x = series.real_operands("expn", n, x)
    dtype, weak = promotion.dtype_of(x), promotion.is_weak(x)
    n, x = wnp.broadcast_arrays(*series.at_least_single(n, x))
    return promotion.convert(_expn(n, x), dtype, weak)


# ---- sine and cosine


def _taylor(count: int, first: int) -> list[float]:
    """(-1)**k / (j j!) for j = first, first + 2, ..."""
    return [(-1) ** k / (j * math.factorial(j)) for k, j in enumerate(range(first, first + 2 * count, 2))]


def _sici(x: Any) -> tuple[Any, Any]:
    size = wnp.abs(x)
    small = size <= 6
    near = wnp.where(small, size, 1)
    square = near * near
    count = 17 if series.is_double(x) else 11
    low_si = near * series.horner(_taylor(count, 1), square)
    positive = wnp.where(near == 0, 1, near)
    low_ci = wnp.log(positive) + _GAMMA + square * -wnp.asarray(series.horner(_taylor(count, 2), square))
    far = wnp.where(small | (size == np.inf), 6, size)
    inverse = 1 / far
    u = inverse * inverse
    f = inverse * series.chebyshev([(True, tables.SINE_COSINE_F, 0.0, 1 / 36)], u)
    g = u * series.chebyshev([(True, tables.SINE_COSINE_G, 0.0, 1 / 36)], u)
    sine, cosine = wnp.sin(far), wnp.cos(far)
    high_si = np.pi / 2 - f * cosine - g * sine
    high_ci = f * sine - g * cosine
    si = wnp.where(small, low_si, wnp.where(size == np.inf, np.pi / 2, high_si))
    ci = wnp.where(small, wnp.where(x == 0, -np.inf, low_ci), wnp.where(size == np.inf, 0, high_ci))
    below_is_nan = wnp.isnan(x) | (x == -np.inf)
    return wnp.where(wnp.isnan(x), np.nan, wnp.copysign(si, x)), wnp.where(below_is_nan, np.nan, ci)


@custom.custom_jvp
def _sine_cosine(x: Any) -> tuple[Any, Any]:
    return _sici(x)


@_sine_cosine.defjvp
def _sine_cosine_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    safe = wnp.where(x == 0, 1, x)
    slope = wnp.where(x == 0, 1, wnp.sin(safe) / safe)
    return _sine_cosine(x), (t * slope, t * wnp.cos(x) / x)


@series.inline
def sici(x: Any) -> tuple[Any, Any]:
    """Sine and cosine integral: ``Si``, of ``sin(t) / t`` from 0, and ``Ci``, of ``-cos(t) / t`` to infinity.

    ``x`` is real, of any shape; two arrays of that shape in floating point. ``Si`` is odd, and ``Ci`` of a negative
    ``x`` is that of its absolute value. ValueError for complex ``x``.

    >>> [round(value.item(), 6) for value in sici(1.0)]
    [0.946083, 0.337404]
    """
    (x,) = promotion.promote_args_inexact("sici", x)
    dtype = promotion.dtype_of(x)
    if np.dtype(dtype).kind == "c":
        raise ValueError(f"Argument `x` to sici must be real-valued. Got dtype {dtype}.")
    found = _sine_cosine(*series.at_least_single(x))
    weak = promotion.is_weak(x)
    return promotion.convert(found[0], dtype, weak), promotion.convert(found[1], dtype, weak)
