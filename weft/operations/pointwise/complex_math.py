"""Complex arithmetic and functions as expressions over real and imaginary parts.

Each function takes and returns ``Pair``s of real terms. Formulas follow W. Kahan, "Branch cuts for complex elementary
functions" (1987), and R. L. Smith's division (CACM 1962); infinities and zeros follow C99 annex G where JAX does. Error
bounds hold for each part, and are absolute near zeros of a part (docs/NUMERICS.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft._base.record import NamedTuple
from weft.operations.pointwise.algebra import Term, only_where, where

LN2 = 0.6931471805599453
LN2_TAIL = 2.3190468138462996e-17  # log 2 - LN2
PI = 3.141592653589793


class Pair(NamedTuple):
    """A complex value as its two real terms."""

    re: Term
    im: Term


def split(emit: Any, value: Any) -> Pair:
    return Pair(Term(emit, emit.real(value)), Term(emit, emit.imag(value)))


def on_pairs(function: Callable[..., Pair]) -> Callable[..., Any]:
    """A scalar expression on complex values from a function on pairs."""

    def scalar(emit: Any, *values: Any, **params: Any) -> Any:
        out = function(*(split(emit, v) for v in values), **params)
        return emit.complex(out.re.value, out.im.value)

    return scalar


def exp_limit(x: Term) -> float:
    """Above this exp(x) is computed in two factors: it may overflow although the result is finite."""
    return 88.0 if x.dtype == np.float32 else 709.0


def is_zero(z: Pair) -> Any:
    return z.re.equals(0.0) & z.im.equals(0.0)


def is_infinite(z: Pair) -> Any:
    return z.re.is_infinite() | z.im.is_infinite()


def choose(condition: Any, yes: Pair, no: Pair) -> Pair:
    return Pair(where(condition, yes.re, no.re), where(condition, yes.im, no.im))


def times_i(z: Pair) -> Pair:
    return Pair(-z.im, z.re)


def over_i(z: Pair) -> Pair:
    return Pair(z.im, -z.re)


def one(like: Pair) -> Pair:
    return Pair(like.re.constant(1.0), like.re.constant(0.0))


# ---- arithmetic


def add(x: Pair, y: Pair) -> Pair:
    return Pair(x.re + y.re, x.im + y.im)


def sub(x: Pair, y: Pair) -> Pair:
    return Pair(x.re - y.re, x.im - y.im)


def neg(x: Pair) -> Pair:
    return Pair(-x.re, -x.im)


def mul(x: Pair, y: Pair) -> Pair:
    return Pair(x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re)


def square(x: Pair) -> Pair:
    return Pair((x.re - x.im) * (x.re + x.im), 2.0 * (x.re * x.im))


def div(x: Pair, y: Pair) -> Pair:
    """Smith's division; a zero divisor gives infinities, an infinite one zeros (C99 G.5.1)."""
    swap = abs(y.re) < abs(y.im)
    big, small = where(swap, y.im, y.re), where(swap, y.re, y.im)
    ratio = small / big
    scale = big + small * ratio
    along, across = where(swap, x.im, x.re), where(swap, x.re, x.im)
    re = (along + across * ratio) / scale
    less = along * ratio
    im = where(swap, less - across, across - less) / scale  # not the negative of one of them: 1j / 1j is 1 + 0j
    out = Pair(re, im)
    return Pair(*only_where(out.re.is_nan() & out.im.is_nan(), lambda: _div_at_the_edges(x, y, out), *out))


def _div_at_the_edges(x: Pair, y: Pair, out: Pair) -> Pair:
    """x / y in the special cases, where Smith's division gives ``out`` = (NaN, NaN)."""
    divisor_zero = is_zero(y) & ~(x.re.is_nan() & x.im.is_nan())
    huge = y.re.constant(np.inf).copysign(y.re)
    out = choose(divisor_zero, Pair(huge * x.re, huge * x.im), out)
    y_finite, x_finite = y.re.is_finite() & y.im.is_finite(), x.re.is_finite() & x.im.is_finite()
    boxed = _box(x)
    grown = mul(boxed, Pair(y.re, -y.im))
    out = choose(is_infinite(x) & y_finite & ~is_zero(y), Pair(np.inf * grown.re, np.inf * grown.im), out)
    boxed = _box(y)
    shrunk = mul(x, Pair(boxed.re, -boxed.im))
    return choose(is_infinite(y) & x_finite, Pair(0.0 * shrunk.re, 0.0 * shrunk.im), out)


def _box(z: Pair) -> Pair:
    """Infinite parts become 1, finite ones 0; signs are kept."""
    unit = [where(part.is_infinite(), 1.0, part.constant(0.0)).copysign(part) for part in z]
    return Pair(unit[0], unit[1])


def absolute(z: Pair) -> Term:
    """|z| without overflow or underflow; infinite if either part is, even beside NaN."""
    a, b = abs(z.re), abs(z.im)
    big, small = a.max(b), a.min(b)
    ratio = where(big.equals(0.0), 0.0, small / big)
    out = big * (1.0 + ratio * ratio).sqrt()
    return where(is_infinite(z), np.inf, out)


def sign(z: Pair) -> Pair:
    size = absolute(z)
    safe = where(size.equals(0.0), 1.0, size)
    return Pair(z.re / safe, z.im / safe)


def power_by_squaring(x: Any, exponent: int, multiply: Callable[[Any, Any], Any]) -> Any:
    """x ** exponent for exponent >= 1, with the fewest squarings, low bits first."""
    out = None
    while exponent:
        if exponent & 1:
            out = x if out is None else multiply(out, x)
        exponent >>= 1
        if exponent:
            x = multiply(x, x)
    return out


def integer_pow(x: Pair, *, y: int) -> Pair:
    if y == 0:
        return one(x)
    out = power_by_squaring(x, abs(y), mul)
    return div(one(x), out) if y < 0 else out


# ---- exponential and logarithm


def exp(z: Pair) -> Pair:
    big = z.re > exp_limit(z.re)
    first = where(big, 0.5 * z.re, z.re).call("exp")
    second = where(big, first, 1.0)
    vanishing = z.re.equals(-np.inf) & ~z.im.is_finite()
    cos = where(vanishing, 1.0, z.im.call("cos"))
    sin = where(vanishing, 0.0, z.im.call("sin"))
    re = (first * cos) * second
    im = (first * sin) * second
    re = where(z.re.equals(np.inf) & ~z.im.is_finite(), np.inf, re)
    return Pair(re, where(z.im.equals(0.0), z.im, im))


def exp2(z: Pair) -> Pair:
    """exp of z log 2; the angle y log 2 has a head and a tail, so that its error does not grow with y."""
    high = float(z.im.dtype.type(LN2))
    low = LN2 - high if z.im.dtype == np.float32 else LN2_TAIL
    angle = z.im * high
    tail = z.im.fma(high, -angle) + z.im * low
    sin, cos = angle.call("sin"), angle.call("cos")
    sin, cos = sin + cos * tail, cos - sin * tail
    big = z.re > (127.0 if z.re.dtype == np.float32 else 1023.0)
    first = where(big, 0.5 * z.re, z.re).call("exp2")
    second = where(big, first, 1.0)
    vanishing = z.re.equals(-np.inf) & ~z.im.is_finite()
    re = (first * where(vanishing, 1.0, cos)) * second
    im = (first * where(vanishing, 0.0, sin)) * second
    re = where(z.re.equals(np.inf) & ~z.im.is_finite(), np.inf, re)
    return Pair(re, where(z.im.equals(0.0), z.im, im))


def expm1(z: Pair) -> Pair:
    """expm1(x) cos(y) - 2 sin(y/2)^2 keeps the real part accurate near zero."""
    half_sin = (0.5 * z.im).call("sin")
    near = z.re.call("expm1") * z.im.call("cos") - 2.0 * half_sin * half_sin
    full = exp(z)
    usable = near.is_finite() & (abs(z.re) < exp_limit(z.re))
    return Pair(where(usable, near, full.re - 1.0), full.im)


def log(z: Pair) -> Pair:
    """log |z|: by log1p where |z| is near 1, from the larger part elsewhere."""
    a, b = abs(z.re), abs(z.im)
    big, small = a.max(b), a.min(b)
    near_one = 0.5 * ((big - 1.0) * (big + 1.0) + small * small).call("log1p")
    ratio = where(big.equals(0.0), 0.0, small / big)
    elsewhere = big.call("log") + 0.5 * (ratio * ratio).call("log1p")
    re = where((big > 0.5) & (big < 2.0), near_one, elsewhere)
    re = where(is_infinite(z), np.inf, re)
    return Pair(re, z.im.call("atan2", z.re))


def log1p(z: Pair) -> Pair:
    """Near zero by log1p((2 + x) x + y^2) / 2; elsewhere log(1 + z)."""
    small = (abs(z.re) < 0.5) & (abs(z.im) < 0.5)
    near = 0.5 * ((2.0 + z.re) * z.re + z.im * z.im).call("log1p")
    far = log(Pair(z.re + 1.0, z.im))
    return Pair(where(small, near, far.re), far.im)


def logistic(z: Pair) -> Pair:
    return div(one(z), add(one(z), exp(neg(z))))


def power(x: Pair, y: Pair) -> Pair:
    """exp(y log x); 0 ** 0 is 1 and 0 to a power of positive real part is 0."""
    out = exp(mul(y, log(x)))
    zero = Pair(x.re.constant(0.0), x.re.constant(0.0))
    out = choose(is_zero(x) & (y.re > 0.0), zero, out)
    return choose(is_zero(y), one(x), out)


# ---- square roots


def sqrt(z: Pair) -> Pair:
    """Kahan's CSQRT, scaled by powers of 4 away from overflow and subnormals."""
    a, b = abs(z.re), abs(z.im)
    big = a.max(b)
    large, tiny = (1e38, 1e-36) if z.re.dtype == np.float32 else (1e307, 1e-290)
    up, down = (2.0**40, 2.0**-20) if z.re.dtype == np.float32 else (2.0**200, 2.0**-100)
    scale = where(big > large, 0.0625, where(big < tiny, up, z.re.constant(1.0)))
    unscale = where(big > large, 4.0, where(big < tiny, down, z.re.constant(1.0)))
    scaled = Pair(a * scale, b * scale)
    root = (0.5 * (scaled.re + absolute(scaled))).sqrt()
    other = where(root.equals(0.0), 0.0, (0.5 * scaled.im) / root)
    root, other = root * unscale, other * unscale
    right = ~(z.re < 0.0)
    re = where(right, root, other)
    im = where(right, other, root).copysign(z.im)
    re = where(z.re.equals(np.inf), np.inf, where(z.re.equals(-np.inf) & ~z.im.is_nan(), 0.0, re))
    im = where(z.re.equals(np.inf) & ~z.im.is_nan(), (0.0 * root.constant(1.0)).copysign(z.im), im)
    im = where(z.re.equals(-np.inf), root.constant(np.inf).copysign(z.im), im)
    re = where(z.re.equals(-np.inf) & z.im.is_nan(), np.nan, re)
    infinite = z.im.is_infinite()
    return Pair(where(infinite, np.inf, re), where(infinite, z.im, im))


def rsqrt(z: Pair) -> Pair:
    return div(one(z), sqrt(z))


# ---- trigonometric and hyperbolic: sinh and cosh are evaluated in two factors where they may overflow


def _sinh_cosh_times(x: Term, s: Term, c: Term) -> tuple[Term, Term]:
    """(sinh(x) * s, cosh(x) * c); exact zeros of s and c stay zeros beside infinite factors."""
    big = abs(x) > exp_limit(x)
    half = (0.5 * abs(x)).call("exp")
    far_s, far_c = ((0.5 * half) * s) * half, ((0.5 * half) * c) * half
    sinh_part = where(big, where(x < 0.0, -far_s, far_s), x.call("sinh") * s)
    cosh_part = where(big, far_c, x.call("cosh") * c)
    sinh_part = where(s.equals(0.0), where(x < 0.0, -s, s), sinh_part)
    return where(x.equals(0.0), x * where(s.is_nan(), 1.0, s), sinh_part), where(c.equals(0.0), c, cosh_part)


def _no_direction(z: Pair) -> Any:
    """Where sinh and cosh are infinite in the real part although the angle, infinite or NaN, has no cosine."""
    return z.re.is_infinite() & ~z.im.is_finite()


def sinh(z: Pair) -> Pair:
    re, im = _sinh_cosh_times(z.re, z.im.call("cos"), z.im.call("sin"))
    return Pair(where(_no_direction(z), z.re, re), im)


def cosh(z: Pair) -> Pair:
    im, re = _sinh_cosh_times(z.re, z.im.call("sin"), z.im.call("cos"))
    return Pair(where(_no_direction(z), np.inf, re), im)


def sin(z: Pair) -> Pair:
    return over_i(sinh(times_i(z)))


def cos(z: Pair) -> Pair:
    return cosh(times_i(z))


def tanh(z: Pair) -> Pair:
    """Kahan's CTANH; beyond |x| = 20 the real part is 1, the imaginary part exponentially small."""
    far = abs(z.re) > 20.0
    near_x = where(far, 1.0, z.re)
    tangent = z.im.call("tan")
    beta = 1.0 + tangent * tangent
    s = near_x.call("sinh")
    rho = (1.0 + s * s).sqrt()
    scale = 1.0 + beta * s * s
    re, im = beta * rho * s / scale, tangent / scale
    twice = (2.0 * z.im).call("sin")
    decay = (-2.0 * abs(z.re)).call("exp")
    far_im = where(_no_direction(z), 0.0, 2.0 * twice * decay)
    re, im = where(far, z.re.constant(1.0).copysign(z.re), re), where(far, far_im, im)
    return Pair(where(z.re.equals(0.0), z.re, re), where(z.im.equals(0.0), z.im, im))  # beside NaN too


def tan(z: Pair) -> Pair:
    return over_i(tanh(times_i(z)))


# ---- their inverses


def asin(z: Pair) -> Pair:
    left, right = sqrt(Pair(1.0 - z.re, -z.im)), sqrt(Pair(1.0 + z.re, z.im))
    re = z.re.call("atan2", left.re * right.re - left.im * right.im)
    re = where(z.re.equals(0.0), z.re, re)
    im = (left.re * right.im - left.im * right.re).call("asinh")
    return _far(z, Pair(re, im), lambda angle: Pair(_quarter_minus(angle, z.re), _log_twice(z).copysign(z.im)))


def acos(z: Pair) -> Pair:
    left, right = sqrt(Pair(1.0 - z.re, -z.im)), sqrt(Pair(1.0 + z.re, z.im))
    re = where(z.re.equals(0.0), PI / 2, 2.0 * left.re.call("atan2", right.re))
    im = (right.re * left.im - right.im * left.re).call("asinh")
    return _far(z, Pair(re, im), lambda angle: Pair(abs(z.im).call("atan2", z.re), -(_log_twice(z).copysign(z.im))))


def _far(z: Pair, near: Pair, far: Callable[[Term], Pair]) -> Pair:
    """Beyond 1e10 (1e100 in float64) the inverse functions are log(2 z) and an angle."""
    limit = 1e10 if z.re.dtype == np.float32 else 1e100
    angle = abs(z.im).call("atan2", abs(z.re))
    return choose((abs(z.re) > limit) | (abs(z.im) > limit), far(angle), near)


def _quarter_minus(angle: Term, sign_of: Term) -> Term:
    """The angle from the imaginary axis, pi/2 - angle, with a sign."""
    return (PI / 2 - angle).copysign(sign_of)


def _log_twice(z: Pair) -> Term:
    return log(z).re + LN2


def asinh(z: Pair) -> Pair:
    return over_i(asin(times_i(z)))


def acosh(z: Pair) -> Pair:
    left, right = sqrt(Pair(z.re - 1.0, z.im)), sqrt(Pair(z.re + 1.0, z.im))
    re = (left.re * right.re + left.im * right.im).call("asinh")
    im = 2.0 * left.im.call("atan2", right.re)
    im = where(z.re.equals(0.0) & z.im.is_nan(), PI / 2, im)
    return _far(z, Pair(re, im), lambda angle: Pair(_log_twice(z), z.im.call("atan2", z.re)))


def atanh(z: Pair) -> Pair:
    """log1p(4x / ((1-x)^2 + y^2)) / 4 and an arctangent; 1/z beyond 1e10."""
    x, y = abs(z.re), abs(z.im)
    gap = 1.0 - x
    re = 0.25 * (4.0 * x / (gap * gap + y * y)).call("log1p")
    im = 0.5 * (2.0 * y).call("atan2", gap * (1.0 + x) - y * y)
    limit = 1e8 if z.re.dtype == np.float32 else 1e80
    far = (x > limit) | (y > limit)
    big = x.max(y)
    far_re = where(is_infinite(z), 0.0, (x / big) / big / (1.0 + (x.min(y) / big) * (x.min(y) / big)))
    re, im = where(far, far_re, re), where(far & ~y.is_nan(), PI / 2, im)
    return Pair(where(x.equals(0.0), z.re, re.copysign(z.re)), im.copysign(z.im))


def atan(z: Pair) -> Pair:
    return over_i(atanh(times_i(z)))


def atan2(y: Pair, x: Pair) -> Pair:
    """-i log((x + i y) / sqrt(x^2 + y^2))."""
    size = sqrt(add(mul(x, x), mul(y, y)))
    return over_i(log(div(add(x, times_i(y)), size)))
