"""The regularised incomplete beta function as an expression over float64 terms.

The continued fraction of DiDonato and Morris ("Algorithm 708", ACM TOMS 18, 1992, section 2.4), which converges on
the side x <= a / (a + b); the other side is the complement. Its factor x**a (1 - x)**b / B(a, b) is taken from
Stirling's series and u - log(1 + u) where a and b are large, so that no large numbers are subtracted.
"""

from __future__ import annotations

import math
from typing import Any

from weft.operations.pointwise.algebra import Condition, Term, only_where, repeat, where
from weft.operations.pointwise.incomplete_gamma import log1p_minus, polynomial

ROUNDS = 2000
LARGE = 10.0
# the coefficients of 1 / a**(2k + 1) in Stirling's series, k = 8 .. 0
STIRLING = (
    -3617.0 / 122400, 1.0 / 156, -691.0 / 360360, 1.0 / 1188, -1.0 / 1680, 1.0 / 1260, -1.0 / 360, 1.0 / 12,
)[1:]  # fmt: skip


def _stirling(a: Term) -> Term:
    """log gamma(a) - (a - 1/2) log a + a - log(2 pi) / 2, for a >= 10."""
    inverse = 1.0 / a
    return polynomial(inverse * inverse, STIRLING) * inverse


def _log_beta(a: Term, b: Term) -> Term:
    """log B(a, b) for a <= b: the quotient gamma(b) / gamma(a + b) as one expression where b is large."""
    large = b >= LARGE
    c = where(large, b, LARGE)
    sum_ = a + c
    correction = _stirling(c) - _stirling(sum_)
    ratio = (correction - (c - 0.5) * (a / c).call("log1p")) - a * (sum_.call("log") - 1.0)
    direct = b.call("lgamma") - (a + b).call("lgamma")
    return a.call("lgamma") + where(large, ratio, direct)


def _density_small(a: Term, b: Term, x: Term, y: Term) -> Term:
    """x**a y**b / B(a, b) where a or b is below 10."""
    log_x, log_y = where(x < 0.5, x, 1.0).call("log"), where(y < 0.5, y, 1.0).call("log")
    log_x = where(x < 0.5, log_x, (-y).call("log1p"))
    log_y = where(y < 0.5, log_y, (-x).call("log1p"))
    return (a * log_x + b * log_y - _log_beta(a.min(b), a.max(b))).call("exp")


def _density_large(a: Term, b: Term, gap: Term) -> Term:
    """x**a y**b / B(a, b) where a and b are both large; gap = a - (a + b) x."""
    exponent = a * log1p_minus(-gap / a) + b * log1p_minus(gap / b)
    correction = _stirling(a) + _stirling(b) - _stirling(a + b)
    scale = a / (a + b) * b / (2.0 * math.pi)
    return scale.sqrt() * (-exponent - correction).call("exp")


def _fraction(going: Condition, a: Term, b: Term, x: Term, y: Term, gap: Term, eps: float) -> Term:
    """I / (x**a y**b / B(a, b)) for x <= a / (a + b): convergents with every step scaled by the last denominator."""
    one, zero = a.constant(1.0), a.constant(0.0)
    c = gap + 1.0
    c0, c1 = b / a, 1.0 + 1.0 / a
    y1 = y + 1.0

    def body(n: Term, p: Term, s: Term, top: Term, bottom: Term, next_top: Term, next_bottom: Term, value: Term) -> Any:
        n = n + 1.0
        t = n / a
        w = n * (b - n) * x
        e = a / s
        alpha = (p * (p + c0) * e * e) * (w * x)
        e = (t + 1.0) / (c1 + t + t)
        beta = n + w / s + e * (c + n * y1)
        p, s = t + 1.0, s + 2.0
        top, next_top = next_top, alpha * top + beta * next_top
        bottom, next_bottom = next_bottom, alpha * bottom + beta * next_bottom
        following = next_top / next_bottom
        goes_on = abs(following - value) > following * eps
        scale = 1.0 / next_bottom
        return goes_on, (n, p, s, top * scale, bottom * scale, following, next_bottom * scale, following)

    ratio = c / c1
    state = (zero, one, a + 1.0, zero, one, one, ratio, c1 / c)
    return repeat(going, state, body, ROUNDS)[7]


def _series(going: Condition, a: Term, b: Term, x: Term, eps: float) -> Term:
    """I / (x**a y**b / B(a, b)) = (1 + (a + b) x / (a + 1) + ...) / a, all terms positive."""
    sum_ = a + b

    def body(n: Term, term: Term, total: Term) -> Any:
        term = term * ((sum_ + n) / (a + (n + 1.0)) * x)
        total = total + term
        return term > total * eps, (n + 1.0, term, total)

    one = a.constant(1.0)
    return repeat(going, (a.constant(0.0), one, one), body, ROUNDS)[2] / a


def regularized(a: Term, b: Term, x: Term, single: bool) -> Term:
    """I(x; a, b) with its limits at the borders of the domain; NaN outside."""
    inside = (a > 0.0) & (b > 0.0) & (x > 0.0) & (x < 1.0) & a.is_finite() & b.is_finite()
    a0, b0, x0 = where(inside, a, 1.0), where(inside, b, 1.0), where(inside, x, 0.5)
    y0 = 1.0 - x0
    gap = where(a0 > b0, (a0 + b0) * y0 - b0, a0 - (a0 + b0) * x0)
    swap = gap < 0.0
    a1, b1 = where(swap, b0, a0), where(swap, a0, b0)
    x1, y1, gap = where(swap, y0, x0), where(swap, x0, y0), abs(gap)
    large = (a1 >= LARGE) & (b1 >= LARGE)
    (density,) = only_where(~large & inside, lambda: [_density_small(a1, b1, x1, y1)], x.constant(0.0))
    (density,) = only_where(large, lambda: [_density_large(a1, b1, gap)], density)
    eps = 2.0**-32 if single else 2.0**-53
    # close to its end at 1 the fraction amplifies roundings: there the series of the other side
    small = inside & (y1 < 0.1) & (swap | (b1 < 40.0)) & ((a1 + b1) * y1 < b1 * 1.2 + 1.5)
    fraction = inside & ~small
    value = density * where(fraction, _fraction(fraction, a1, b1, x1, y1, gap, eps), _series(small, b1, a1, y1, eps))
    value = where((swap & fraction) | (small & ~swap), 1.0 - value, value)
    return where(inside, value, _edges(a, b, x))


def _edges(a: Term, b: Term, x: Term) -> Term:
    """0 and 1 at the ends of x; a = 0 or b infinite put all weight at 0, b = 0 or a infinite at 1."""
    at_zero = a.equals(0.0) | b.is_infinite()
    at_one = b.equals(0.0) | a.is_infinite()
    limit = where(at_zero, x.constant(1.0), 0.0)
    limit = where(x.equals(0.0), 0.0, where(x.equals(1.0), 1.0, limit))
    domain = (a >= 0.0) & (b >= 0.0) & (x >= 0.0) & (x <= 1.0)
    both = (a.equals(0.0) & b.equals(0.0)) | (a.is_infinite() & b.is_infinite())
    return where(domain & (at_zero | at_one | x.equals(0.0) | x.equals(1.0)) & ~both, limit, math.nan)
