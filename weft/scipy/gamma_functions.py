"""Functions of the gamma, Bessel and normal families that are one operation of lax or a short formula over them.

gammainc(f32[3], f32[3]) -> igamma
i0(f32[3])               -> abs, exp, bessel_i0e, mul
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import config, dtypes
from weft import numpy as wnp
from weft import operations as lax
from weft._base.array import Array
from weft.autodiff import custom_jvp as custom
from weft.dispatch.calls import jit as jit_module
from weft.numpy import promotion

_inline = functools.partial(jit_module.jit, inline=True)


def _const(value: Any, like: Any) -> Any:
    return np.asarray(value).astype(promotion.dtype_of(like))


@_inline
def gammainc(a: Any, x: Any) -> Array:
    """Regularised lower incomplete gamma function; NaN for negative operands.

    >>> round(gammainc(1.0, 1.0).item(), 4)
    0.6321
    """
    return lax.igamma(*promotion.promote_args_inexact("gammainc", a, x))


@_inline
def gammaincc(a: Any, x: Any) -> Array:
    """Regularised upper incomplete gamma function, ``1 - gammainc(a, x)`` without cancellation.

    >>> round(gammaincc(1.0, 1.0).item(), 4)
    0.3679
    """
    return lax.igammac(*promotion.promote_args_inexact("gammaincc", a, x))


@_inline
def betainc(a: Any, b: Any, x: Any) -> Array:
    """Regularised incomplete beta function of ``x`` in 0..1.

    >>> betainc(1.0, 1.0, 0.25).item()
    0.25
    """
    return lax.betainc(*promotion.promote_args_inexact("betainc", a, b, x))


@_inline
def i0e(x: Any) -> Array:
    """``exp(-abs(x)) * i0(x)``.

    >>> i0e(0.0).item()
    1.0
    """
    return lax.bessel_i0e(*promotion.promote_args_inexact("i0e", x))


@_inline
def i1e(x: Any) -> Array:
    """``exp(-abs(x)) * i1(x)``.

    >>> i1e(0.0).item()
    0.0
    """
    return lax.bessel_i1e(*promotion.promote_args_inexact("i1e", x))


@_inline
def i0(x: Any) -> Array:
    """Modified Bessel function of order 0.

    >>> round(i0(1.0).item(), 4)
    1.2661
    """
    (x,) = promotion.promote_args_inexact("i0", x)
    return lax.mul(lax.exp(lax.abs(x)), lax.bessel_i0e(x))


@_inline
def i1(x: Any) -> Array:
    """Modified Bessel function of order 1.

    >>> round(i1(1.0).item(), 4)
    0.5652
    """
    (x,) = promotion.promote_args_inexact("i1", x)
    return lax.mul(lax.exp(lax.abs(x)), lax.bessel_i1e(x))


@_inline
def polygamma(n: Any, x: Any) -> Array:
    """Derivative of ``digamma`` of order ``n``, a whole number.

    >>> round(polygamma(1, 1.0).item(), 4)
    1.6449
    """
    if not dtypes.issubdtype(promotion.dtype_of(n), np.integer):
        raise ValueError(f"Argument `n` to polygamma must be of integer type. Got dtype {promotion.dtype_of(n)}.")
    if config.read("numpy_dtype_promotion") == "strict":  # whole numbers beside floats are what it is called with
        n = promotion.convert(n, promotion.inexact_dtype(promotion.dtype_of(x)))
    return lax.polygamma(*promotion.promote_args_inexact("polygamma", n, x))


def _as_zeta(x: Any, q: Any) -> Any:
    return lax.zeta(*promotion.promote_args_inexact("zeta", x, q))


_as_zeta.__name__ = "zeta"
_zeta = custom.custom_jvp(_as_zeta)


# B(2k) / (2k)!, k = 1 ..
_BERNOULLI = (
    1.0 / 12, -1.0 / 720, 1.0 / 30240, -1.0 / 1209600, 1.0 / 47900160, -691.0 / 1307674368000, 1.0 / 74724249600,
    -3617.0 / 10670622842880000,
)  # fmt: skip
_DIRECT_TERMS = 12


def _zeta_by_order(s: Any, q: Any) -> Any:
    """The derivative of zeta(s, q) by s, for s > 1 and q > 0; NaN elsewhere.

    Term by term of the Euler-Maclaurin formula (NIST Handbook, 25.11.7): 12 terms of the series, and what remains from
    a = q + 12 on. Where its asymptotic part would diverge (s far above a), the first term is all that counts.
    """
    total = lax.full_like(s, 0)
    for k in range(_DIRECT_TERMS):
        at = lax.add(q, _const(k, q))
        total = lax.sub(total, lax.mul(lax.log(at), lax.pow(at, lax.neg(s))))
    a = lax.add(q, _const(_DIRECT_TERMS, q))
    log_a, last, before = lax.log(a), lax.pow(a, lax.neg(s)), lax.sub(s, _const(1, s))
    total = lax.sub(total, lax.mul(lax.mul(a, last), lax.div(lax.add(log_a, lax.div(_const(1, s), before)), before)))
    total = lax.sub(total, lax.mul(_const(0.5, s), lax.mul(log_a, last)))
    inverse = lax.div(_const(1, a), a)
    # s (s + 1) .. (s + 2k - 2), and the sum of the inverses of its factors
    rising, inverses, power = s, lax.div(_const(1, s), s), lax.mul(last, inverse)
    for k, coefficient in enumerate(_BERNOULLI):
        term = lax.mul(lax.mul(_const(coefficient, s), rising), lax.mul(power, lax.sub(inverses, log_a)))
        total = lax.add(total, term)
        for step in (2 * k + 1, 2 * k + 2):
            factor = lax.add(s, _const(step, s))
            rising, inverses = lax.mul(rising, factor), lax.add(inverses, lax.div(_const(1, s), factor))
        power = lax.mul(power, lax.mul(inverse, inverse))
    valid = lax.bitwise_and(lax.gt(s, _const(1, s)), lax.gt(q, _const(0, q)))
    return lax.select(valid, total, lax.full_like(s, np.nan))


@_zeta.defjvp
def jvp(primals: Any, tangents: Any) -> Any:
    s, q = wnp.broadcast_arrays(*promotion.promote_args_inexact("zeta", *primals))
    s_dot, q_dot = tangents
    slope = lax.mul(lax.neg(s), lax.zeta(lax.add(s, _const(1, s)), q))
    return _zeta(*primals), lax.add(lax.mul(_zeta_by_order(s, q), s_dot), lax.mul(slope, q_dot))


def zeta(x: Any, q: Any = None) -> Array:
    """Hurwitz zeta function, the sum of ``(q + k)**-x`` over ``k >= 0``; ``q`` is required, as in JAX.

    >>> round(zeta(2.0, 1.0).item(), 4)
    1.6449
    """
    if q is None:
        raise NotImplementedError(
            "Riemann zeta function not implemented; pass q != None to compute the Hurwitz Zeta function: zeta(x, 1.0) "
            "is Riemann's function"
        )
    return _zeta(x, q)


# Wichura, "Algorithm AS 241: The percentage points of the normal distribution", Appl. Statist. 37 (1988), PPND16:
# numerator and denominator, highest power first, for the centre, the tails and the far tails.
_CENTRE = (
    (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
     1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080),
    (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
     5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0),
)  # fmt: skip
_TAIL = (
    (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258,
     3.64784832476320460504, 5.76949722146069140550, 4.63033784615654529590, 1.42343711074968357734),
    (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
     6.89767334985100004550e-1, 1.67638483018380384940, 2.05319162663775882187, 1.0),
)  # fmt: skip
_FAR_TAIL = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
     2.96560571828504891230e-1, 1.78482653991729133580, 5.46378491116411436990, 6.65790464350110377720),
    (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
     1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0),
)  # fmt: skip


def _ratio(x: Any, parts: Sequence[Sequence[float]]) -> Any:
    top, bottom = (functools.reduce(lambda s, c: lax.add(lax.mul(s, x), _const(c, x)), p[1:], _const(p[0], x))
                   for p in parts)  # fmt: skip
    return lax.div(top, bottom)


def _as_ndtri(p: Any) -> Any:
    half, one, zero = _const(0.5, p), _const(1, p), _const(0, p)
    q = lax.sub(p, half)
    inner = lax.sub(_const(0.180625, p), lax.mul(q, q))
    centre = lax.mul(q, _ratio(inner, _CENTRE))
    left = lax.lt(q, zero)
    r = lax.sqrt(lax.neg(lax.log(lax.select(left, p, lax.sub(one, p)))))
    near = _ratio(lax.sub(r, _const(1.6, p)), _TAIL)
    far = _ratio(lax.sub(r, _const(5, p)), _FAR_TAIL)
    tail = wnp.where(lax.le(r, _const(5, p)), near, far)
    tail = lax.select(left, lax.neg(tail), tail)
    value = lax.select(lax.le(lax.abs(q), _const(0.425, p)), centre, tail)
    value = wnp.where(lax.eq(p, zero), -np.inf, wnp.where(lax.eq(p, one), np.inf, value))
    outside = lax.bitwise_or(lax.lt(p, zero), lax.gt(p, one))
    return wnp.where(lax.bitwise_or(outside, lax.ne(p, p)), np.nan, value)


_as_ndtri.__name__ = "_ndtri"
_ndtri = custom.custom_jvp(_as_ndtri)
_ROOT_TWO_PI = float(np.sqrt(2 * np.pi))
_ndtri.defjvps(
    lambda t, out, p: lax.mul(t, lax.mul(_const(_ROOT_TWO_PI, p), lax.exp(lax.mul(_const(0.5, p), lax.square(out)))))
)


def _normal_dtype(name: str, x: Any) -> None:
    if promotion.dtype_of(x) not in (np.float32, np.float64):
        raise TypeError(f"[{name}] takes float32 or float64, got {promotion.dtype_of(x)}. Convert the operand first.")


@_inline
def ndtri(p: Any) -> Array:
    """The inverse of ``ndtr``: where the standard normal distribution reaches ``p``, in float32 or float64.

    Wichura's rational functions (AS 241), relative error about 1e-16 in float64.

    >>> ndtri(0.5).item()
    0.0
    """
    (p,) = promotion.promote_args_inexact("ndtri", p)
    _normal_dtype("ndtri", p)
    return _ndtri(p)


_SERIES_TERMS = {"float32": 6, "float64": 12}


def _log_tail(x: Any, terms: int) -> Any:
    """log of the distribution function far to the left: the asymptotic series in 1 / x**2."""
    square = lax.square(x)
    total = _const(1, x)
    for n in range(terms, 0, -1):  # 1 - 1/x**2 (1 - 3/x**2 (1 - 5/x**2 ...))
        total = lax.sub(_const(1, x), lax.mul(lax.div(_const(2 * n - 1, x), square), total))
    leading = lax.add(lax.mul(_const(0.5, x), square), lax.log(lax.neg(x)))
    return lax.sub(lax.log(total), lax.add(leading, _const(np.log(_ROOT_TWO_PI), x)))


def _as_log_ndtr(x: Any) -> Any:
    narrow = promotion.dtype_of(x) == np.float32
    low = _const(-10 if narrow else -20, x)
    scale = _const(-np.sqrt(0.5), x)
    left = _log_tail(lax.min(x, low), _SERIES_TERMS["float32" if narrow else "float64"])
    half = _const(0.5, x)
    middle = lax.log(lax.mul(half, lax.erfc(lax.mul(lax.max(x, low), scale))))
    right = lax.log1p(lax.neg(lax.mul(half, lax.erfc(lax.neg(lax.mul(lax.max(x, _const(0, x)), scale))))))
    return wnp.where(lax.gt(x, _const(0, x)), right, wnp.where(lax.gt(x, low), middle, left))


_as_log_ndtr.__name__ = "log_ndtr"
_log_ndtr: Any = custom.custom_jvp(_as_log_ndtr)
_log_ndtr.defjvps(
    lambda t, out, x: lax.mul(
        t,
        lax.exp(
            lax.sub(lax.neg(lax.mul(_const(0.5, x), lax.square(x))), lax.add(out, _const(np.log(_ROOT_TWO_PI), x)))
        ),
    )
)


def log_ndtr(x: Any, series_order: int = 3) -> Array:
    """Logarithm of ``ndtr``, accurate in both tails, in float32 or float64.

    ``series_order`` is checked and otherwise not needed: far out enough terms for full precision are always taken.

    >>> round(log_ndtr(-100.0).item(), 1)
    -5005.5
    """
    if not isinstance(series_order, int):
        raise TypeError(f"[log_ndtr] series_order must be a Python integer, got {series_order!r}")
    if not 0 <= series_order <= 30:
        raise ValueError(f"[log_ndtr] series_order must be in 0..30, got {series_order}")
    (x,) = promotion.promote_args_inexact("log_ndtr", x)
    _normal_dtype("log_ndtr", x)
    return _log_ndtr(x)


def make_poch(gammasgn: Callable[[Any], Any]) -> Callable[..., Any]:
    """``poch`` over the sign of gamma, which stands with the rest of the family in ``special``."""

    def gamma(x: Any) -> Any:
        return lax.mul(gammasgn(x), lax.exp(lax.lgamma(x)))

    def as_poch(z: Any, m: Any) -> Any:
        nothing = lax.eq(m, _const(0, m))
        value = lax.div(gamma(lax.add(z, m)), gamma(z))
        return wnp.where(nothing, _const(1, value), value)

    as_poch.__name__ = "poch"
    differentiable = custom.custom_jvp(as_poch)
    differentiable.defjvps(
        lambda t, out, z, m: lax.mul(t, lax.mul(lax.sub(lax.digamma(lax.add(z, m)), lax.digamma(z)), out)),
        lambda t, out, z, m: lax.mul(t, lax.mul(lax.digamma(lax.add(z, m)), out)),
    )

    def poch(z: Any, m: Any) -> Any:
        """Rising factorial, ``gamma(z + m) / gamma(z)``.

        >>> round(poch(1.0, 3.0).item(), 3)
        6.0
        """
        return differentiable(*promotion.promote_args_inexact("poch", z, m))

    return poch
