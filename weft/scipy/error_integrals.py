"""Functions built from the error function: Faddeeva's w, Dawson's and Fresnel's integrals, erfcx, Owen's T.

All but the last two rest on a rule for w(z) in the upper half plane: the trapezoidal or the midpoint rule, whichever
has no node near z, of ``exp(-t**2) / (z - t)``, and the residue that it leaves near the real axis (M. Al Azah and
S. N. Chandler-Wilde, "Computation of the complex error function using modified trapezoidal rules", 2021)::

    w(z) = 2 exp(-z**2) / (1 -+ exp(-2 pi i z / h)) + (2 i h z / pi) sum of exp(-t**2) / (z**2 - t**2)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import dtypes
from weft import numpy as wnp
from weft import operations as lax
from weft._base.array import Array
from weft.autodiff import custom_jvp as custom
from weft.numpy import promotion
from weft.scipy import series

_ROOT_PI = math.sqrt(math.pi)


# ---- w of the upper half plane


def _nodes(x: Any) -> tuple[int, float]:
    """How many nodes the rule has on each side, and their distance."""
    count = 12 if series.is_double(x) else 7
    return count, math.sqrt(math.pi / count)


def _sums(x: Any, y: Any, whole: Any) -> tuple[Any, Any]:
    """Real and imaginary part of the rule; ``whole`` where its nodes are multiples of h, 0 counting half."""
    count, h = _nodes(x)
    across, along = wnp.zeros_like(x), wnp.zeros_like(x)
    size, turned = x * x + y * y, (x - y) * (x + y)
    twice = 2 * x * y
    for k in range(count + 1):
        at, between = (k * h) ** 2, ((k + 0.5) * h) ** 2
        square = wnp.where(whole, promotion.constant_like(at, x), between)
        weight = wnp.where(
            whole, promotion.constant_like((0.5 if k == 0 else 1.0) * math.exp(-at), x), math.exp(-between)
        )
        real = turned - square
        ratio = weight / (real * real + twice * twice)
        across = across + ratio * (size + square)
        along = along + ratio * (size - square)
    factor = 2 * h / math.pi
    return factor * y * across, factor * x * along


def _residue(x: Any, y: Any, whole: Any) -> tuple[Any, Any]:
    """``2 exp(-z**2) / (1 -+ exp(-2 pi i z / h))`` for y of at most pi / h."""
    _, h = _nodes(x)
    growth = wnp.exp(2 * math.pi / h * y)
    angle = 2 * math.pi * _fraction(x / h)
    sign = wnp.where(whole, -1.0, 1.0)
    real, imaginary = 1 + sign * growth * wnp.cos(angle), -sign * growth * wnp.sin(angle)
    norm = real * real + imaginary * imaginary
    size = 2 * wnp.exp((y - x) * (y + x)) / norm
    phase = -2 * x * y
    c, s = wnp.cos(phase), wnp.sin(phase)
    return size * (c * real + s * imaginary), size * (s * real - c * imaginary)


def _fraction(x: Any) -> Any:
    return x - wnp.floor(x)


def faddeeva(x: Any, y: Any) -> tuple[Any, Any]:
    """w(x + iy) for x and y not below 0."""
    _, h = _nodes(x)
    part = _fraction(x / h)
    near = y < math.pi / h
    whole = near & (part >= 0.25) & (part <= 0.75)
    real, imaginary = _sums(x, y, whole)
    corrected = near & (x < 27)  # beyond, exp(-x**2) is 0
    extra = _residue(wnp.where(corrected, x, 0), wnp.where(corrected, y, 0), corrected & whole)
    return real + wnp.where(corrected, extra[0], 0), imaginary + wnp.where(corrected, extra[1], 0)


def _far(x: Any, y: Any) -> tuple[Any, Any]:
    """``i / (z sqrt(pi))`` of large z, whose squares overflow."""
    scale = wnp.maximum(x, y)
    u, v = x / scale, y / scale
    norm = (u * u + v * v) * scale * _ROOT_PI
    return v / norm, u / norm


def _everywhere(x: Any, y: Any) -> tuple[Any, Any]:
    """w(x + iy) by the symmetries of the four quadrants."""
    right, up = wnp.abs(x), wnp.abs(y)
    large = wnp.maximum(right, up) > (1e8 if series.is_double(x) else 1e4)
    inside = faddeeva(wnp.where(large, 1, right), wnp.where(large, 1, up))
    outside = _far(wnp.where(large, right, 1), wnp.where(large, up, 1))
    infinite = wnp.isinf(x) | wnp.isinf(y)
    real = wnp.where(infinite, 0, wnp.where(large, outside[0], inside[0]))
    imaginary = wnp.where(infinite, 0, wnp.where(large, outside[1], inside[1]))
    imaginary = wnp.where(x < 0, -imaginary, imaginary)
    below = y < 0
    size = 2 * wnp.exp(wnp.where(below, (y - x) * (y + x), 0))
    phase = -2 * x * wnp.where(below, y, 0)
    real_below = size * wnp.cos(phase) - real
    imaginary_below = wnp.where(phase == 0, 0, size * wnp.sin(phase)) + imaginary
    return wnp.where(below, real_below, real), wnp.where(below, imaginary_below, imaginary)


@custom.custom_jvp
def _wofz(z: Any) -> Any:
    x, y = wnp.real(z), wnp.imag(z)
    real, imaginary = _everywhere(x, y)
    broken = wnp.isnan(x) | wnp.isnan(y)
    return lax.complex(wnp.where(broken, np.nan, real), wnp.where(broken, np.nan, imaginary))


@_wofz.defjvp
def _wofz_jvp(primals: Any, tangents: Any) -> Any:
    (z,), (t,) = primals, tangents
    out = _wofz(z)
    return out, t * (2j / _ROOT_PI - 2 * z * out)


@series.inline
def wofz(z: Any) -> Array:
    """Faddeeva's function ``exp(-z**2) erfc(-i z)``, complex; real operands are converted.

    >>> wofz(0.0).item()
    (1+0j)
    """
    (z,) = promotion.promote_args_inexact("wofz", z)
    return _wofz(promotion.convert(z, promotion.complex_dtype(promotion.dtype_of(z))))


# ---- erfcx and Dawson's integral


def _erfcx(x: Any) -> Any:
    wide = series.is_double(x)
    limit = 25.0 if wide else 9.0
    near = wnp.clip(x, -limit - 5, limit)
    square, error = series.square_with_error(near)
    power = wnp.exp(square)
    low = lax.erfc(near) * (power + power * error)
    far = wnp.where(x > limit, x, limit)
    inverse = 1 / far
    terms = [(-1) ** k * math.prod(range(1, 2 * k, 2)) / 2.0**k for k in range(8 if wide else 6)]
    high = inverse / _ROOT_PI * series.horner(terms, inverse * inverse)
    found = wnp.where(x > limit, high, wnp.where(x < -limit - 2, np.inf, low))
    return wnp.where(wnp.isnan(x), np.nan, found)


_erfcx_real = custom.custom_jvp(_erfcx)
_erfcx_real.defjvps(lambda t, out, x: t * (2 * x * out - 2 / _ROOT_PI))


@series.inline
def erfcx(x: Any) -> Array:
    """``exp(x**2) * erfc(x)`` without underflow, of real or complex ``x``.

    >>> round(erfcx(30.0).item(), 6)
    0.018796
    """
    (x,) = promotion.promote_args_inexact("erfcx", x)
    dtype = promotion.dtype_of(x)
    if dtypes.issubdtype(dtype, np.complexfloating):
        return _wofz(lax.complex(-wnp.imag(x), wnp.real(x)))
    return promotion.convert(_erfcx_real(*series.at_least_single(x)), dtype, promotion.is_weak(x))


def _dawsn(x: Any) -> Any:
    size = wnp.abs(x)
    large = size > (1e8 if series.is_double(x) else 1e4)
    near = wnp.where(large, 1, size)
    tiny = near < 1e-5 if series.is_double(x) else near < 1e-2
    value = 0.5 * _ROOT_PI * faddeeva(wnp.where(tiny, 1, near), wnp.zeros_like(near))[1]
    square = near * near
    value = wnp.where(tiny, near * (1 - 2 / 3 * square + 4 / 15 * square * square), value)
    value = wnp.where(large, 0.5 / wnp.where(large, size, 1), value)
    return wnp.where(wnp.isnan(x), np.nan, wnp.copysign(value, x))


dawsn = series.real_function(
    "dawsn", _dawsn, lambda out, x: 1 - 2 * x * out,
    """Dawson's integral, ``exp(-x**2)`` times the integral of ``exp(t**2)`` from 0 to ``x``.

    ``x`` is real, of any shape; the result is floating point. ValueError for complex ``x``.""",
    ">>> round(dawsn(1.0).item(), 6)\n    0.53808",
)  # fmt: skip


# ---- Fresnel's integrals


def _fresnel_series(x: Any) -> tuple[Any, Any]:
    """Powers, for x up to 1.6."""
    count = 16 if series.is_double(x) else 10
    u = x * x
    fourth = u * u
    half = math.pi / 2
    sine = [(-1) ** k * half ** (2 * k + 1) / (math.factorial(2 * k + 1) * (4 * k + 3)) for k in range(count)]
    cosine = [(-1) ** k * half ** (2 * k) / (math.factorial(2 * k) * (4 * k + 1)) for k in range(count)]
    return x * u * series.horner(sine, fourth), x * series.horner(cosine, fourth)


def _half_turns(x: Any) -> Any:
    """``pi x**2 / 2`` reduced to one turn, from the exact square."""
    square, error = series.square_with_error(x)
    reduced = square - 4 * wnp.round(square / 4)
    return math.pi / 2 * (reduced + error)


def _fresnel(x: Any) -> tuple[Any, Any]:
    size = wnp.abs(x)
    small = size <= 1.6
    low_s, low_c = _fresnel_series(wnp.where(small, size, 1))
    largest = 1e8 if series.is_double(x) else 1e4
    far = wnp.clip(wnp.where(small, 2, size), 1.6, largest)
    diagonal = _ROOT_PI / 2 * far
    real, imaginary = faddeeva(diagonal, diagonal)
    angle = _half_turns(far)
    cosine, sine = wnp.cos(angle), wnp.sin(angle)
    re, im = cosine * real - sine * imaginary, sine * real + cosine * imaginary
    high_c, high_s = 0.5 * (1 - re + im), 0.5 * (1 - re - im)
    beyond = size > largest
    s = wnp.where(small, low_s, wnp.where(beyond, 0.5, high_s))
    c = wnp.where(small, low_c, wnp.where(beyond, 0.5, high_c))
    broken = wnp.isnan(x)
    return wnp.where(broken, np.nan, wnp.copysign(s, x)), wnp.where(broken, np.nan, wnp.copysign(c, x))


@custom.custom_jvp
def _fresnel_pair(x: Any) -> tuple[Any, Any]:
    return _fresnel(x)


@_fresnel_pair.defjvp
def _fresnel_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    angle = math.pi / 2 * x * x
    return _fresnel_pair(x), (t * wnp.sin(angle), t * wnp.cos(angle))


@series.inline
def fresnel(x: Any) -> tuple[Any, Any]:
    """Fresnel's integrals S and C, of ``sin(pi t**2 / 2)`` and ``cos(pi t**2 / 2)`` from 0 to ``x``.

    ``x`` is real, of any shape; two arrays of that shape in floating point. NotImplementedError for complex ``x``.

    >>> [round(value.item(), 6) for value in fresnel(1.0)]
    [0.438259, 0.779893]
    """
    (x,) = promotion.promote_args_inexact("fresnel", x)
    dtype, weak = promotion.dtype_of(x), promotion.is_weak(x)
    if dtypes.issubdtype(dtype, np.complexfloating):
        raise NotImplementedError("Support for complex-valued inputs is not implemented yet.")
    s, c = _fresnel_pair(*series.at_least_single(x))
    return promotion.convert(s, dtype, weak), promotion.convert(c, dtype, weak)


# ---- Owen's T


def _tail(x: Any) -> Any:
    """The probability of more than x."""
    return 0.5 * lax.erfc(x * math.sqrt(0.5))


def _owens_integral(h: Any, a: Any) -> Any:
    """T(h, a) for 0 <= a <= 1 by Gauss' rule over the part where ``exp(-h**2 x**2 / 2)`` counts."""
    points, weights = np.polynomial.legendre.leggauss(31 if series.is_double(h) else 14)
    reach = wnp.minimum(a, 9.0 / wnp.maximum(h, 1e-30))
    total = wnp.zeros_like(h)
    for point, weight in zip(points.tolist(), weights.tolist(), strict=True):
        u = 1 + wnp.square(reach * (0.5 * (point + 1)))
        total = total + 0.5 * weight * wnp.exp(-0.5 * h * h * u) / u
    return reach * total / (2 * math.pi)


@custom.custom_jvp
def _owens_t(h: Any, a: Any) -> Any:
    height, slope = wnp.abs(h), wnp.abs(a)
    steep = slope > 1
    product = height * wnp.where(wnp.isinf(slope), 1, slope)
    first = wnp.where(steep, product, height)
    second = wnp.where(steep, 1 / wnp.where(steep, slope, 1), slope)
    integral = _owens_integral(wnp.minimum(first, 1e4), second)
    one, other = _tail(height), _tail(product)
    complement = 0.5 * one + 0.5 * other - one * other - integral
    value = wnp.where(steep, complement, integral)
    value = wnp.where(wnp.isinf(slope), 0.5 * one, value)
    value = wnp.where(wnp.isinf(height), 0, value)
    return wnp.where(wnp.isnan(h) | wnp.isnan(a), np.nan, wnp.copysign(value, a))


@_owens_t.defjvp
def _owens_t_jvp(primals: Any, tangents: Any) -> Any:
    (h, a), (dh, da) = primals, tangents
    gauss = wnp.exp(-0.5 * h * h)
    by_height = -gauss * lax.erf(a * h * math.sqrt(0.5)) / (2 * math.sqrt(2 * math.pi))
    by_slope = wnp.exp(-0.5 * h * h * (1 + a * a)) / (2 * math.pi * (1 + a * a))
    return _owens_t(h, a), dh * by_height + da * by_slope


@series.inline
def owens_t(h: Any, a: Any) -> Array:
    """Owen's T: the probability that ``X > h`` and ``0 < Y < a X`` of two standard normal values.

    ``h`` and ``a`` are real and broadcast; the result is floating point. ValueError for complex operands.

    >>> round(owens_t(0.0, 1.0).item(), 6)
    0.125
    """
    h, a = series.real_operands("owens_t", h, a)
    dtype, weak = promotion.dtype_of(h), promotion.is_weak(h)
    h, a = wnp.broadcast_arrays(*series.at_least_single(h, a))
    return promotion.convert(_owens_t(h, a), dtype, weak)
