"""The incomplete gamma functions and their derivatives, as expressions over float64 terms.

Three ways, each taken only by vectors that need it. For a > 12 and x near a: Temme's uniform expansion, its
coefficients by the recurrence of Gil, Segura and Temme ("Efficient and accurate algorithms for the computation and
inversion of the incomplete gamma function ratios", SIAM J. Sci. Comput. 34, 2012, section 2.4). Elsewhere to the left
the power series of P, to the right the continued fraction of Q summed as a series (same paper, sections 2.2 and 2.3).
Q of small a and x is Gautschi's (1979) difference without cancellation.
"""

from __future__ import annotations

import math
from typing import Any

from weft.operations.pointwise.algebra import Condition, Term, only_where, repeat, where

TEMME_FROM = 12.0
TEMME_LOW, TEMME_HIGH = 0.3, 2.35
VANISHES_FROM = 2000.0  # a above it: outside Temme's range the smaller of P and Q is less than any float64
FAR = 1e100  # squares up to here do not overflow
ROUNDS = 500
# eta / (lambda - 1) in powers of eta, where eta**2 / 2 = lambda - 1 - log lambda
TEMME = (
    1.0,
    -0.3333333333333333,
    0.08333333333333333,
    -0.014814814814814815,
    0.0011574074074074073,
    0.0003527336860670194,
    -0.0001787551440329218,
    3.919263178522438e-05,
    -2.185448510679992e-06,
    -1.85406221071516e-06,
    8.296711340953087e-07,
    -1.7665952736826078e-07,
    6.707853543401498e-09,
    1.0261809784240309e-08,
    -4.382036018453353e-09,
    9.14769958223679e-10,
    -2.5514193994946248e-11,
    -5.830772132550426e-11,
    2.4361948020667415e-11,
    -5.0276692801141755e-12,
    1.1004392031956135e-13,
    3.371763262400985e-13,
    -1.392388722418162e-13,
    2.8534893807047445e-14,
    -5.139111834242572e-16,
    -1.9752288294349442e-15,
    8.099521156704561e-16,
    -1.6522531216398162e-16,
    2.5305430097478883e-18,
    1.1686939738559576e-17,
    -4.770037049820485e-18,
    9.699126059056237e-19,
    -1.2932565538038175e-20,
)
TEMME_SINGLE = 18  # terms used for float32 results
# log gamma(1 + a) / a on [0, 1], highest power first: error 2**-62
LGAMMA1P = (
    1.602033816023013e-05,
    -0.00019330953830390434,
    0.001109391186635856,
    -0.0040478532538533,
    0.010614836039252546,
    -0.02151139649644636,
    0.03553141646307092,
    -0.0500794188722183,
    0.06289189672781624,
    -0.07329958077533838,
    0.08209213990776108,
    -0.09060060019716402,
    0.10002073545607311,
    -0.11132056367417607,
    0.12550784721325967,
    -0.14404971700671332,
    0.16955716436760532,
    -0.20738555043216989,
    0.2705808084104326,
    -0.4006856343862627,
    0.8224670334241115,
    -0.5772156649015329,
)


def polynomial(x: Term, coefficients: tuple[float, ...]) -> Term:
    """Horner with fma, highest power first."""
    result = x.constant(coefficients[0])
    for c in coefficients[1:]:
        result = result.fma(x, c)
    return result


def log1p_minus(u: Term) -> Term:
    """u - log(1 + u) for |u| < 3 without cancellation: r u - 2 r**3 (1/3 + r**2 / 5 + ...), r = u / (2 + u)."""
    r = u / (u + 2.0)
    square = r * r
    near = r * (u - 2.0 * square * polynomial(square, tuple(1.0 / k for k in range(35, 1, -2))))
    return where(abs(u) < 0.5, near, u - u.call("log1p"))


def _stirling(a: Term) -> Term:
    """log of gamma(a) sqrt(a / 2 pi) (e / a)**a for a > 12, to float64's precision."""
    w = 1.0 / (a * a)
    series = (-1.0 / 360360 * 691, 1.0 / 1188, -1.0 / 1680, 1.0 / 1260, -1.0 / 360, 1.0 / 12)
    return polynomial(w, series) / a


def _density(a: Term, x: Term) -> Term:
    """D = x**a exp(-x) / gamma(a + 1), outside Temme's range."""
    large = a > TEMME_FROM
    log = where(large, x / a, x).call("log")
    correction = where(large, _stirling(where(large, a, TEMME_FROM)), (a + 1.0).call("lgamma"))
    half = where(large, 0.0, x * -0.5).call("exp")
    exponent = (a * log - where(large, x - a, 0.0)) - correction
    factor = where(large, 1.0 / (a * (2.0 * math.pi)).sqrt(), half)
    return exponent.call("exp") * factor * half


def _series(going: Condition, a: Term, x: Term, eps: float) -> Term:
    """P / D = 1 + x / (a + 1) + x**2 / ((a + 1) (a + 2)) + ..."""

    def body(n: Term, term: Term, total: Term) -> Any:
        n = n + 1.0
        term = term * (x / n)
        total = total + term
        return term > total * eps, (n, term, total)

    one = a.constant(1.0)
    return repeat(going, (a, one, one), body, ROUNDS)[2]


def _fraction(going: Condition, a: Term, x: Term, eps: float) -> Term:
    """Q / D by the continued fraction, converted into a series with one division a term."""
    zero, one = a.constant(0.0), a.constant(1.0)
    start = (x + 1.0) - a

    def body(p: Term, q: Term, r: Term, s: Term, rho: Term, term: Term, total: Term) -> Any:
        p, q = p + s, q + r
        tau = p * (rho + 1.0)
        rho = tau / (q - tau)
        term = rho * term
        total = total + term
        return abs(term) > abs(total) * eps, (p, q, r + 8.0, s + 2.0, rho, term, total)

    state = (zero, ((x - 1.0) - a) * start, start * 4.0, 1.0 - a, zero, one, one)
    return a / start * repeat(going, state, body, ROUNDS)[6]


def _small(a: Term, x: Term) -> Term:
    """Q for a and x at most 1: 1 - E - E s, E = x**a / gamma(a + 1), s = sum of (-x)**n a / (n! (a + n))."""
    t = a * (x.call("log") - polynomial(a, LGAMMA1P))
    power, total = a.constant(1.0), a.constant(0.0)
    for n in range(1, 19):
        power = power * (x * (-1.0 / n))
        total = total + power * (a / (a + float(n)))
    difference = t.call("expm1")
    return -difference - (difference + 1.0) * total


def _temme_parts(a: Term, x: Term) -> tuple[Term, Term, Term, Term]:
    """mu = x / a - 1, eta, a eta**2 / 2 and |eta| sqrt(a / 2)."""
    mu = (x - a) / a
    phi = log1p_minus(mu)
    exponent = a * phi
    eta = where(mu < 0.0, -(phi * 2.0).sqrt(), (phi * 2.0).sqrt())
    return mu, eta, exponent, exponent.sqrt()


def _temme(a: Term, x: Term, right: Condition, terms: int) -> Term:
    """erfc(+-eta sqrt(a / 2)) / 2 +- R: the smaller of P and Q."""
    _, eta, exponent, z = _temme_parts(a, x)
    inverse = 1.0 / a
    upper, middle = a.constant(TEMME[terms - 1]), a.constant(TEMME[terms - 2])  # beta n + 1 and beta n
    total = upper * eta + middle
    for n in range(terms - 3, 0, -1):
        upper, middle = middle, (upper * inverse).fma(float(n + 1), TEMME[n])
        total = total.fma(eta, middle)
    scaled = 1.0 + upper * inverse  # gamma(a) over Stirling's first term
    rest = (-exponent).call("exp") / (a * (2.0 * math.pi)).sqrt() * (total / scaled)
    return z.call("erfc") * 0.5 + where(right, rest, -rest)


def _precision(single: bool) -> tuple[float, int]:
    return (2.0**-32, TEMME_SINGLE) if single else (2.0**-54, len(TEMME))


def _regimes(a: Term, x: Term, valid: Condition, limit: float) -> tuple[Condition, Condition, Condition]:
    """Temme's range, to the right, to the left of it."""
    temme = valid & (a > TEMME_FROM) & (x > a * TEMME_LOW) & (x < a * TEMME_HIGH)
    beyond = where(a > 1.0, a, 1.0)
    outside = valid & ~temme & (a < limit)
    return temme, outside & (x > beyond), outside & ~(x > beyond)


def _smaller(a: Term, x: Term, valid: Condition, single: bool) -> tuple[Condition, Condition, Term]:
    """To the right, by the series, Q (on the right) or P (elsewhere)."""
    eps, terms = _precision(single)
    temme, by_fraction, by_series = _regimes(a, x, valid, VANISHES_FROM)
    right = (x > a) & ((x > 1.0) | temme)

    def outside() -> list[Term]:
        density = _density(a, x)
        quotient = where(by_fraction, _fraction(by_fraction, a, x, eps), _series(by_series, a, x, eps))
        return [density * quotient]

    (value,) = only_where(by_fraction | by_series, outside, a.constant(0.0))
    (value,) = only_where(temme, lambda: [_temme(a, x, x > a, terms)], value)
    return right, by_series, value


def _bounded(a: Term, x: Term, valid: Condition) -> tuple[Term, Term]:
    a, x = where(valid, a, 1.0), where(valid, x, 1.0)
    return a, x.min(a * 2.0 + VANISHES_FROM)  # beyond, Q is 0


def lower(a: Term, x: Term, valid: Condition, single: bool) -> Term:
    """P(a, x) where ``valid`` (both finite and positive)."""
    right, _, value = _smaller(*_bounded(a, x, valid), valid, single)
    return where(right, 1.0 - value, value)


def upper(a: Term, x: Term, valid: Condition, single: bool) -> Term:
    """Q(a, x) where ``valid``."""
    a, x = _bounded(a, x, valid)
    right, by_series, value = _smaller(a, x, valid, single)
    (value,) = only_where(by_series & (a < 1.0), lambda: [_small(a, x)], where(right, value, 1.0 - value))
    return value


# derivatives with respect to a: d P / d a = D G, and d x / d a at constant P = -(x / a) G


def _series_slope(going: Condition, a: Term, x: Term, eps: float) -> tuple[Term, Term]:
    """S = P / D and d S / d a."""

    def body(n: Term, term: Term, slope: Term, total: Term, slopes: Term) -> Any:
        n = n + 1.0
        factor = x / n
        slope = (slope - term / n) * factor
        term = term * factor
        total, slopes = total + term, slopes + slope
        return (term > total * eps) | (abs(slope) > abs(slopes) * eps), (n, term, slope, total, slopes)

    zero, one = a.constant(0.0), a.constant(1.0)
    _, _, _, total, slopes = repeat(going, (a, one, zero, one, zero), body, ROUNDS)
    return total, slopes


def _fraction_slope(going: Condition, a: Term, x: Term, eps: float) -> tuple[Term, Term]:
    """F = Q / D and d F / d a: every quantity of ``_fraction`` with its derivative."""
    zero, one = a.constant(0.0), a.constant(1.0)
    start = (x + 1.0) - a

    def body(*state: Term) -> Any:
        p, dp, q, dq, r, s, rho, drho, term, dterm, total, dtotal = state
        p, dp, q, dq = p + s, dp - 1.0, q + r, dq - 4.0
        tau, dtau = p * (rho + 1.0), dp * (rho + 1.0) + p * drho
        below = q - tau
        rho = tau / below
        drho = (dtau - rho * (dq - dtau)) / below
        term, dterm = rho * term, drho * term + rho * dterm
        total, dtotal = total + term, dtotal + dterm
        goes_on = (abs(term) > abs(total) * eps) | (abs(dterm) > abs(dtotal) * eps)
        return goes_on, (p, dp, q, dq, r + 8.0, s + 2.0, rho, drho, term, dterm, total, dtotal)

    first, slope = ((x - 1.0) - a) * start, (x - a) * -2.0
    state = (zero, zero, first, slope, start * 4.0, 1.0 - a, zero, zero, one, zero, one, zero)
    *_, total, dtotal = repeat(going, state, body, ROUNDS)
    ratio = a / start
    return ratio * total, ratio * dtotal + (x + 1.0) / (start * start) * total


def _temme_slope(a: Term, x: Term, terms: int) -> Term:
    """G by the derivatives of the expansion; the exponential is common to all parts and cancels."""
    mu, eta, _, _ = _temme_parts(a, x)
    inverse = 1.0 / a
    upper, middle = a.constant(TEMME[terms - 1]), a.constant(TEMME[terms - 2])
    dupper, dmiddle = a.constant(0.0), a.constant(0.0)
    total, by_eta, by_a = upper * eta + middle, upper, a.constant(0.0)
    quotient = polynomial(eta, TEMME[terms - 1 :: -1])  # eta / mu
    for n in range(terms - 3, 0, -1):
        next_slope = ((dupper - upper * inverse) * inverse) * float(n + 1)
        upper, middle = middle, (upper * inverse).fma(float(n + 1), TEMME[n])
        dupper, dmiddle = dmiddle, next_slope
        by_eta = by_eta.fma(eta, total)
        total, by_a = total.fma(eta, middle), by_a.fma(eta, dmiddle)
    scaled = 1.0 + upper * inverse
    dscaled = (dupper - upper * inverse) * inverse
    s = total / scaled
    slope = (by_a - by_eta * (inverse / quotient) - s * dscaled) / scaled
    log = mu - eta * eta * 0.5  # log(x / a)
    return scaled * ((eta * 0.5 - 1.0 / quotient) - (s * (log - inverse * 0.5) + slope))


def slope(a: Term, x: Term, valid: Condition, single: bool) -> tuple[Term, Term]:
    """(G, D) where ``valid``: d P / d a = D G."""
    eps, terms = _precision(single)
    a, x = where(valid, a, 1.0), where(valid, x, 1.0)
    x = x.min(a * FAR + FAR)
    temme, by_fraction, by_series = _regimes(a, x, valid, FAR)

    def outside() -> list[Term]:
        log = x.call("log") - (a + 1.0).call("digamma")
        fraction, fraction_slope = _fraction_slope(by_fraction, a, x, eps)
        total, total_slope = _series_slope(by_series, a, x, eps)
        right = -(log * fraction + fraction_slope)
        return [where(by_fraction, right, log * total + total_slope), _density(a, x)]

    def inside() -> list[Term]:
        _, _, exponent, _ = _temme_parts(a, x)
        density = (-exponent).call("exp") / ((a * (2.0 * math.pi)).sqrt() * _stirling(a).call("exp"))
        return [_temme_slope(a, x, terms), density]

    zero = a.constant(0.0)
    found = only_where(by_fraction | by_series, outside, zero, zero)
    factor, density = only_where(temme, inside, *found)
    return factor, density
