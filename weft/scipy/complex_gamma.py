"""The logarithm of the gamma function of complex numbers, on the branch that is continuous off the negative real axis.

Left of Re z = 1/2 by reflection; within 0.2 of 1 by Taylor's series; otherwise Stirling's series after a shift by 8.
(The method is that of Hare, "Computing the principal branch of log-Gamma", J. Algorithms 25 (1997).)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import operations as lax
from weft.numpy import promotion
from weft.numpy.pointwise import logic

_SHIFT = 8
# B(2k) / (2k (2k - 1)), k = 1 .. 10
_STIRLING = (
    1.0 / 12, -1.0 / 360, 1.0 / 1260, -1.0 / 1680, 1.0 / 1188, -691.0 / 360360, 1.0 / 156, -3617.0 / 122400,
    43867.0 / 244188, -174611.0 / 125400,
)  # fmt: skip
_EULER = 0.57721566490153286061


def _zeta(k: float) -> float:
    """Riemann's zeta function, by 40 terms and the Euler-Maclaurin formula (NIST Handbook, 25.2.9)."""
    n, last = 40.0, 40.0**-k
    rest = n * last / (k - 1) - last / 2 + k * last / (12 * n) - k * (k + 1) * (k + 2) * last / (720 * n**3)
    return sum(m**-k for m in range(1, 41)) + rest + k * (k + 1) * (k + 2) * (k + 3) * (k + 4) * last / (30240 * n**5)


# log(gamma(1 + w)) = w (-euler + zeta(2)/2 w - zeta(3)/3 w**2 ...)
_TAYLOR = (-_EULER, *(_zeta(k) * (-1.0) ** k / k for k in range(2, 25)))


def _polynomial(coefficients: Sequence[float], z: Any) -> Any:
    """The polynomial with the lowest coefficient first, by Horner's rule."""
    dtype = promotion.dtype_of(z)
    total = lax.full_like(z, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total = lax.add(lax.mul(total, z), np.asarray(coefficient, dtype))
    return total


def _right(z: Any) -> Any:
    """For Re z >= 1/2."""
    dtype = promotion.dtype_of(z)
    one, two = np.asarray(1, dtype), np.asarray(2, dtype)
    from_one, from_two = lax.sub(z, one), lax.sub(z, two)
    radius = np.asarray(0.2, lax.real(z).dtype)
    near_two = lax.lt(lax.abs(from_two), radius)
    near = lax.bitwise_or(lax.lt(lax.abs(from_one), radius), near_two)
    w = lax.select(near, lax.select(near_two, from_two, from_one), lax.full_like(z, 0))
    taylor = lax.mul(w, _polynomial(_TAYLOR, w))
    taylor = lax.select(near_two, lax.add(taylor, lax.log1p(w)), taylor)
    below = lax.log(z)
    for k in range(1, _SHIFT):
        below = lax.add(below, lax.log(lax.add(z, np.asarray(k, dtype))))
    far = lax.add(z, np.asarray(_SHIFT, dtype))
    inverse = lax.div(one, far)
    series = lax.mul(inverse, _polynomial(_STIRLING, lax.mul(inverse, inverse)))
    half = np.asarray(0.5, dtype)
    start = lax.sub(lax.mul(lax.sub(far, half), lax.log(far)), far)
    start = lax.add(start, np.asarray(0.5 * math.log(2 * math.pi), dtype))
    return lax.select(near, taylor, lax.sub(lax.add(start, series), below))


def log_gamma(z: Any) -> Any:
    """Elementwise, for complex ``z``; NaN at the poles 0, -1, -2 .. and for infinite parts."""
    dtype, re, im = promotion.dtype_of(z), lax.real(z), lax.imag(z)
    own = promotion.dtype_of(re)
    left = lax.lt(re, np.asarray(0.5, own))
    right = _right(lax.select(left, lax.sub(np.asarray(1, dtype), z), z))
    # log(gamma(z)) = log(2 pi) - i pi/2 + i pi z - log(1 - exp(2 pi i z)) - log(gamma(1 - z)) above the real axis; the
    # lower half is the mirror image
    upper = lax.abs(im)
    far_right = lax.bitwise_not(left)
    re_left = lax.select(far_right, lax.full_like(re, -0.5), re)
    upper = lax.select(far_right, lax.full_like(upper, 1), upper)
    turns = lax.sub(re_left, lax.round(re_left))
    tau, pi = np.asarray(2 * math.pi, own), np.asarray(math.pi, own)
    exponent = lax.complex(lax.neg(lax.mul(tau, upper)), lax.mul(tau, turns))
    fading = lax.log(lax.neg(lax.expm1(exponent)))
    start_re = lax.sub(np.asarray(math.log(2 * math.pi), own), lax.mul(pi, upper))
    start_im = lax.mul(pi, lax.sub(re_left, np.asarray(0.5, own)))
    negative = logic.signbit(im)
    reflected = lax.sub(lax.complex(start_re, start_im), fading)
    reflected = lax.sub(lax.select(negative, lax.conj(reflected), reflected), right)
    value = lax.select(left, reflected, right)
    zero = np.asarray(0, own)
    pole = lax.bitwise_and(lax.le(re, zero), lax.bitwise_and(lax.eq(re, lax.floor(re)), lax.eq(im, zero)))
    return lax.select(pole, lax.full_like(value, complex(np.nan, np.nan)), value)
