"""Special functions: the gamma family, incomplete gamma and beta, zeta, polygamma, Bessel; and gcd.

The incomplete functions, zeta and polygamma are evaluated in float64 for narrower types too, with as many terms as
these need. The expressions are in ``incomplete_gamma``, ``incomplete_beta``, ``zeta_function`` and ``bessel``; here are
domains, derivatives and oracles.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from weft import core, dtypes
from weft._base import lazy
from weft.core.primitive import MISSING
from weft.operations.later import ops
from weft.operations.pointwise import bessel, incomplete_beta, incomplete_gamma, zeta_function
from weft.operations.pointwise.algebra import Condition, Term, where
from weft.operations.pointwise.arithmetic import abs as abs_
from weft.operations.pointwise.arithmetic import add, mul, neg, sign, sub
from weft.operations.pointwise.convert import convert_element_type
from weft.operations.pointwise.elementwise import FLOAT, INTEGER, Partials, constant, elementwise
from weft.operations.pointwise.functions import exp, function, log, log1p
from weft.operations.pointwise.logic import gt, select_n
from weft.operations.pointwise.powers import integer_pow
from weft.operations.references import doubled
from weft.operations.references import special as special_reference
from weft.runtime import Array

__all__ = [
    "bessel_i0e",
    "bessel_i0e_p",
    "bessel_i1e",
    "bessel_i1e_p",
    "betainc",
    "digamma",
    "digamma_p",
    "igamma",
    "igamma_grad_a",
    "igamma_grad_a_p",
    "igamma_p",
    "igammac",
    "igammac_p",
    "lgamma",
    "lgamma_p",
    "polygamma",
    "polygamma_p",
    "random_gamma_grad",
    "random_gamma_grad_p",
    "regularized_incomplete_beta_p",
    "zeta",
    "zeta_p",
]

ArrayLike = Any


def in_double(expression: Callable[..., Term]) -> Callable[..., Any]:
    """The scalar expression that evaluates ``expression(*terms, single)`` in float64 and rounds once."""

    def scalar(emit: Any, *values: Any) -> Any:
        dtype = values[0].dtype
        terms = (Term(emit, emit.convert(v, np.dtype(np.float64))) for v in values)
        return emit.convert(expression(*terms, dtype == np.float32).value, dtype)

    return scalar


def special_function(
    name: str, operands: int, expression: Callable[..., Term], partials: Partials | None, reference: Any, cost: float
) -> core.Primitive:
    """Declare a function of float operands that is evaluated in float64."""
    return elementwise(
        name,
        *(FLOAT,) * operands,
        scalar=in_double(expression),
        partials=partials,
        jvp=MISSING if partials else None,
        reference=doubled(reference),
        cost=cost,
    )


def _no_partial(text: str) -> Callable[..., NoReturn]:
    def partial(*_: Any, **__: Any) -> NoReturn:
        raise ValueError(text)

    return partial


# ---- gamma


def _lgamma_reference(x: Any) -> Any:
    return np.where(np.isneginf(x), np.inf, special_reference("gammaln")(x))


lgamma_p = function("lgamma", None, (lambda out, x: digamma(x),), _lgamma_reference, 60.0)


def lgamma(x: ArrayLike) -> Array:
    """Elementwise log |gamma(x)|.

    >>> round(float(lax.lgamma(5.0)), 4)
    3.1781
    """
    return lgamma_p.bind(x)


def _digamma_scalar(emit: Any, x: Any) -> Any:
    """NaN at the poles, which include zero."""
    pole = emit.compare("eq", x, emit.const(0.0, x.dtype))
    return emit.select(pole, emit.function("digamma", x), emit.const(math.nan, x.dtype))


digamma_p = elementwise(
    "digamma",
    FLOAT,
    scalar=_digamma_scalar,
    partials=(lambda out, x: polygamma(constant(x, 1), x),),
    reference=lambda x: np.where(x == 0, np.array(np.nan, x.dtype), special_reference("digamma")(x)),
    cost=60.0,
)


def digamma(x: ArrayLike) -> Array:
    """Elementwise derivative of lgamma.

    >>> round(float(lax.digamma(1.0)), 4)
    -0.5772
    """
    return digamma_p.bind(x)


# ---- incomplete gamma


def _valid(a: Term, x: Term) -> Condition:
    return (a > 0.0) & (x > 0.0) & a.is_finite() & x.is_finite()


def _with_edges(a: Term, x: Term, value: Term, low: float, high: float) -> Term:
    """``low`` at x = 0 and infinite a, ``high`` at infinite x and a = 0; NaN outside the domain."""
    rising = (x.is_infinite() | a.equals(0.0)) & (x > 0.0)
    edge = where(rising, x.constant(high), low)
    domain = (a >= 0.0) & (x >= 0.0) & ~(a.equals(0.0) & x.equals(0.0))
    return where(_valid(a, x), value, where(domain, edge, math.nan))


def _igamma(a: Term, x: Term, single: bool) -> Term:
    return _with_edges(a, x, incomplete_gamma.lower(a, x, _valid(a, x), single), 0.0, 1.0)


def _igammac(a: Term, x: Term, single: bool) -> Term:
    return _with_edges(a, x, incomplete_gamma.upper(a, x, _valid(a, x), single), 1.0, 0.0)


def _igamma_grad_a(a: Term, x: Term, single: bool) -> Term:
    factor, density = incomplete_gamma.slope(a, x, _valid(a, x), single)
    domain = (a > 0.0) & (x >= 0.0)
    return where(_valid(a, x), density * factor, where(domain, a.constant(0.0), math.nan))


def _random_gamma_grad(a: Term, x: Term, single: bool) -> Term:
    factor, _ = incomplete_gamma.slope(a, x, _valid(a, x), single)
    value = where(_valid(a, x), -(x / a) * factor, math.nan)
    return where(x.equals(0.0) & (a > 0.0), 0.0, value)


def _gamma_reference(name: str, low: float, high: float) -> Callable[..., Any]:
    def reference(a: Any, x: Any) -> Any:
        value = getattr(lazy.scipy_special, name)(a, x)
        value = np.where((a == 0) & (x > 0) | (x == np.inf) & (a >= 0), high, value)
        value = np.where((a == np.inf) & (x >= 0) & (x < np.inf) | (x == 0) & (a > 0), low, value)
        return np.where((a == 0) & (x == 0) | np.isnan(a) | np.isnan(x), np.nan, value)

    return reference


def _slope_by_quadrature(a: Any, x: Any, ratio: bool) -> Any:
    """d P / d a, or -(d P / d a) / (d P / d x), by Gauss-Legendre integrals of t**(a-1) exp(-t) (log t - digamma a).

    t = x exp(u): to the left of x where x < a, otherwise to the right, so that the integrand hardly changes its sign.
    """
    nodes, weights = np.polynomial.legendre.leggauss(160)
    a, x = np.asarray(a, np.float64), np.asarray(x, np.float64)
    a0, x0 = (np.where((a > 0) & (x > 0) & np.isfinite(v), v, 1.0)[..., None] for v in (a, x))
    side = np.where(x0 < a0, -1.0, 1.0)
    reach = np.where(x0 < a0, 12 / np.sqrt(a0) + 40 / a0, np.minimum(12 / np.sqrt(a0), np.log1p(60 / x0) + 1))
    u = side * reach * (nodes + 1) / 2
    exponent = a0 * u - x0 * np.expm1(u)
    integrand = np.exp(exponent) * (np.log(x0) + u - lazy.scipy_special.digamma(a0))
    total = np.sum(integrand * weights * reach / 2, -1) * -side[..., 0]
    a1, x1 = a0[..., 0], x0[..., 0]
    density = np.exp(a1 * np.log(x1) - x1 - lazy.scipy_special.gammaln(a1))
    value = -total * x1 if ratio else total * density
    edge = np.where((a > 0) & ((x == 0) | ((x == np.inf) & (not ratio)) | ((a == np.inf) & (x >= 0))), 0.0, np.nan)
    return np.where((a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x), value, edge)


def _gamma_density(a: Any, x: Any) -> Array:
    """d P(a, x) / d x."""
    return exp(sub(add(neg(x), mul(sub(a, ops.full_like(a, 1)), log(x))), lgamma(a)))


igamma_grad_a_p = special_function(
    "igamma_grad_a",
    2,
    _igamma_grad_a,
    None,  # no second derivative, as in JAX
    lambda a, x: _slope_by_quadrature(a, x, False),
    900.0,
)
random_gamma_grad_p = special_function(
    "random_gamma_grad",
    2,
    _random_gamma_grad,
    None,  # as igamma_grad_a
    lambda a, x: _slope_by_quadrature(a, x, True),
    900.0,
)
igamma_p = special_function(
    "igamma",
    2,
    _igamma,
    (lambda out, a, x: igamma_grad_a(a, x), lambda out, a, x: _gamma_density(a, x)),
    _gamma_reference("gammainc", 0.0, 1.0),
    600.0,
)
igammac_p = special_function(
    "igammac",
    2,
    _igammac,
    (lambda out, a, x: neg(igamma_grad_a(a, x)), lambda out, a, x: neg(_gamma_density(a, x))),
    _gamma_reference("gammaincc", 1.0, 0.0),
    600.0,
)


def igamma(a: ArrayLike, x: ArrayLike) -> Array:
    """Elementwise regularised lower incomplete gamma function P(a, x); NaN for negative operands.

    Temme's expansion where x is near a large a, otherwise power series and continued fraction
    (Gil, Segura and Temme, SIAM J. Sci. Comput. 34, 2012).

    >>> round(float(lax.igamma(1.0, 1.0)), 4)
    0.6321
    """
    return igamma_p.bind(a, x)


def igammac(a: ArrayLike, x: ArrayLike) -> Array:
    """Elementwise regularised upper incomplete gamma function Q(a, x) = 1 - P(a, x), without cancellation.

    >>> round(float(lax.igammac(1.0, 1.0)), 4)
    0.3679
    """
    return igammac_p.bind(a, x)


def igamma_grad_a(a: ArrayLike, x: ArrayLike) -> Array:
    """Elementwise derivative of ``igamma`` with respect to ``a``.

    >>> round(float(lax.igamma_grad_a(1.0, 1.0)), 4)
    -0.4317
    """
    return igamma_grad_a_p.bind(a, x)


def random_gamma_grad(a: ArrayLike, x: ArrayLike) -> Array:
    """Elementwise derivative of a draw x of the gamma distribution with respect to its parameter ``a``.

    It is -(d P / d a) / (d P / d x) of P = igamma(a, x), finite in the far tails too.

    >>> round(float(lax.random_gamma_grad(1.0, 1.0)), 4)
    1.1736
    """
    return random_gamma_grad_p.bind(a, x)


# ---- incomplete beta


def _beta_reference(a: Any, b: Any, x: Any) -> Any:
    special = lazy.scipy_special
    inside = (a > 0) & (b > 0) & (x >= 0) & (x <= 1) & np.isfinite(a) & np.isfinite(b)
    value = special.betainc(np.where(inside, a, 1), np.where(inside, b, 1), np.where(inside, x, 0.5))
    at_zero, at_one = (a == 0) | (b == np.inf), (b == 0) | (a == np.inf)
    both = ((a == 0) & (b == 0)) | ((a == np.inf) & (b == np.inf))
    domain = (a >= 0) & (b >= 0) & (x >= 0) & (x <= 1) & ~both
    limit = np.where(x == 0, 0.0, np.where(x == 1, 1.0, np.where(at_zero, 1.0, 0.0)))
    return np.where(inside, value, np.where(domain & (at_zero | at_one), limit, np.nan))


def _beta_density(out: Any, a: Any, b: Any, x: Any) -> Array:
    log_beta = sub(add(lgamma(a), lgamma(b)), lgamma(add(a, b)))
    one = constant(x, 1)
    powers = add(mul(sub(b, one), log1p(neg(x))), mul(sub(a, one), log(x)))
    return exp(sub(powers, log_beta))


_BETA_TEXT = (
    "[regularized_incomplete_beta] has no derivative with respect to a or b, only to x. "
    "Hold a and b constant, e.g. by lax.stop_gradient."
)
regularized_incomplete_beta_p = special_function(
    "regularized_incomplete_beta",
    3,
    incomplete_beta.regularized,
    (_no_partial(_BETA_TEXT), _no_partial(_BETA_TEXT), _beta_density),
    _beta_reference,
    600.0,
)


def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """Elementwise regularised incomplete beta function I(x; a, b), 0 <= x <= 1; NaN outside its domain.

    The continued fraction of DiDonato and Morris (ACM TOMS 18, 1992), a series of positive terms near the end.

    >>> float(lax.betainc(1.0, 1.0, 0.25))
    0.25
    """
    return regularized_incomplete_beta_p.bind(a, b, x)


# ---- zeta and polygamma


def _zeta_reference(s: Any, q: Any) -> Any:
    """SciPy's; negative q by the recurrence, infinite operands by their limits."""
    valid = (s >= 1) & (q > 0) & np.isfinite(s) & np.isfinite(q)
    steps = np.where((q < 0) & (q > -200) & np.isfinite(s) & (s == np.floor(s)), np.ceil(-q), 0.0)
    shifted = np.where(np.isfinite(q), q + steps, q)
    value = lazy.scipy_special.zeta(np.where(valid | (steps > 0), s, 2), np.where(shifted > 0, shifted, 1))
    for k in range(int(steps.max(initial=0))):
        value = value + np.where(k < steps, (q + k) ** -s, 0.0)
    pole = (q <= 0) & (q == np.floor(q))
    value = np.where((valid | (steps > 0)) & (s > 1) & ~pole, value, np.nan)
    far = (s > 1) & ((q == np.inf) | (s == np.inf) & (q > 1))
    value = np.where(far, 0.0, np.where((s == np.inf) & (q > 0) & (q < 1), np.inf, value))
    value = np.where((s == np.inf) & (q == 1), 1.0, value)
    value = np.where(pole & (s % 2 == 0), np.inf, value)
    return np.where(s == 1, np.inf, np.where(np.isnan(s) | np.isnan(q), np.nan, value))


def _polygamma_reference(m: Any, x: Any) -> Any:
    special = lazy.scipy_special
    order = (m >= 1) & (m == np.floor(m)) & np.isfinite(m)
    n = np.where(order, m, 1)
    value = np.where(n % 2 == 0, -1.0, 1.0) * special.gamma(n + 1) * _zeta_reference(n + 1, x)
    zeroth = np.where((x <= 0) & (x == np.floor(x)), np.nan, special.digamma(x))
    return np.where(m == 0, zeroth, np.where(order & ~np.isnan(x), value, np.nan))


zeta_p = special_function("zeta", 2, zeta_function.zeta, None, _zeta_reference, 900.0)  # no derivative in JAX either
polygamma_p = special_function(
    "polygamma",
    2,
    zeta_function.polygamma,
    (
        _no_partial("[polygamma] has no derivative with respect to m, only to x."),
        lambda out, m, x: polygamma(add(m, constant(m, 1)), x),
    ),
    _polygamma_reference,
    1000.0,
)


def zeta(x: ArrayLike, q: ArrayLike) -> Array:
    """Elementwise Hurwitz zeta function, the sum of (q + k) ** -x over k >= 0; NaN for x below 1.

    Direct terms, then the Euler-Maclaurin formula.

    >>> round(float(lax.zeta(2.0, 1.0)), 4)
    1.6449
    """
    return zeta_p.bind(x, q)


def polygamma(m: ArrayLike, x: ArrayLike) -> Array:
    """Elementwise m-th derivative of digamma, for whole m >= 0; NaN for other m.

    >>> round(float(lax.polygamma(1.0, 1.0)), 4)
    1.6449
    """
    return polygamma_p.bind(m, x)


# ---- modified Bessel functions


def _i1e_slope(out: Any, x: Any) -> Array:
    """i0e(x) - i1e(x) (sign x + 1 / x), 1/2 at 0."""
    eps = float(dtypes.finfo(core.get_aval(x).dtype).eps)
    away = gt(convert_element_type(abs_(x), core.get_aval(x).dtype), constant(x, eps))
    safe = select_n(away, ops.full_like(x, eps), x)
    slope = sub(bessel_i0e(safe), mul(out, add(sign(safe), integer_pow(safe, -1))))
    return select_n(away, ops.full_like(x, 0.5), slope)


def _bessel(name: str, in_float64: Callable[[Term], Term], partial: Callable[..., Any]) -> core.Primitive:
    """float32 by the emitter's vector math, float64 by the expression."""
    double = in_double(lambda x, single: in_float64(x))

    def scalar(emit: Any, x: Any) -> Any:
        return emit.function("bessel_" + name, x) if x.dtype == np.float32 else double(emit, x)

    reference = doubled(lambda x: getattr(lazy.scipy_special, name)(x))
    return elementwise("bessel_" + name, FLOAT, scalar=scalar, partials=(partial,), reference=reference, cost=24.0)


bessel_i1e_p = _bessel("i1e", bessel.i1e, _i1e_slope)
bessel_i0e_p = _bessel("i0e", bessel.i0e, lambda out, x: sub(bessel_i1e(x), mul(sign(x), out)))


def bessel_i0e(x: ArrayLike) -> Array:
    """Elementwise exp(-|x|) I0(x), I0 the modified Bessel function of order 0.

    >>> float(lax.bessel_i0e(0.0))
    1.0
    """
    return bessel_i0e_p.bind(x)


def bessel_i1e(x: ArrayLike) -> Array:
    """Elementwise exp(-|x|) I1(x), I1 the modified Bessel function of order 1.

    >>> float(lax.bessel_i1e(0.0))
    0.0
    """
    return bessel_i1e_p.bind(x)


# ---- integers


def _gcd_scalar(emit: Any, x: Any, y: Any) -> Any:
    """Euclid's algorithm; 64-bit operands take at most 92 rounds (Lame)."""
    zero = emit.const(0, x.dtype)
    x, y = emit.abs(x), emit.abs(y)

    def body(a: Any, b: Any) -> Any:
        rest = emit.abs(emit.rem(a, b))
        return emit.compare("ne", rest, zero), (b, rest)

    return emit.loop(emit.compare("ne", y, zero), (x, y), body, 100)[0]


gcd_p = elementwise("gcd", INTEGER, INTEGER, scalar=_gcd_scalar, partials=(None, None), reference=np.gcd, cost=400.0)


def gcd(x: ArrayLike, y: ArrayLike) -> Array:
    """Elementwise greatest common divisor of integers, not negative; gcd(x, 0) is abs(x).

    >>> int(gcd(12, 18))
    6
    """
    return gcd_p.bind(x, y)
