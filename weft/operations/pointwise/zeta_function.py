"""The Hurwitz zeta function as an expression over float64 terms.

zeta(s, q): terms of the series up to an argument of 10 + s / 2, the rest by the Euler-Maclaurin formula (as in Cephes).
polygamma(m, x) = (-1)**(m + 1) m! zeta(m + 1, x).
"""

from __future__ import annotations

import math
from typing import Any

from weft.operations.pointwise.algebra import Condition, Term, only_where, repeat, where

DIRECT_TO = 10.0
DIRECT_TO_SINGLE = 4.0
ROUNDS = 2000
NEGATIVE_TO = -1900.0  # lowest q: so many terms before q is positive; NaN below
# B(2k) / (2k)!, k = 1 ...
BERNOULLI = (
    1.0 / 12, -1.0 / 720, 1.0 / 30240, -1.0 / 1209600, 1.0 / 47900160, -691.0 / 1307674368000, 1.0 / 74724249600,
    -3617.0 / 10670622842880000, 43867.0 / 5109094217170944000, -174611.0 / 802857662698291200000,
)  # fmt: skip


def _power(q: Term, s: Term, single: bool) -> Term:
    """q ** -s; q may be negative where s is whole, and is never zero.

    Where float64 terms give a float32 result (``single``), the logarithm needs no tail: the power is then off by |s log
    q| ulp.
    """
    if not single:
        return q.call("pow", -s)
    size = (abs(q).call("log") * -s).call("exp")
    return where((q < 0.0) & ~is_even(s), -size, size)


def _rest(q: Term, s: Term, last: Term, terms: int) -> Term:
    """The sum of (q + k) ** -s over k >= 1, where last = q ** -s."""
    inverse = 1.0 / q
    total = last * (q / (s - 1.0) - 0.5)
    square, factor, at = inverse * inverse, s * inverse * last, s
    for coefficient in BERNOULLI[:terms]:
        total = total + factor * coefficient
        factor = factor * ((at + 1.0) * (at + 2.0)) * square
        at = at + 2.0
    return total


def is_whole(x: Term) -> Condition:
    return Term(x.emit, x.emit.floor(x.value)).equals(x)


def is_even(x: Term) -> Condition:
    return is_whole(x) & is_whole(x * 0.5)


def positive_order(s: Term, q: Term, valid: Condition, single: bool) -> Term:
    """zeta(s, q) where ``valid``: s > 1, q not a pole, q positive or s whole."""
    s, q = where(valid, s, 2.0), where(valid, q, 1.0)
    direct = s * 0.5 + (DIRECT_TO_SINGLE if single else DIRECT_TO)
    q = where(q > NEGATIVE_TO, q, math.nan)
    first = _power(q, s, single)

    def body(at: Term, last: Term, total: Term) -> Any:
        at = at + 1.0
        last = _power(at, s, single)
        total = total + last
        return (at < direct) & ((abs(last) > abs(total) * 2.0**-56) | (at < 1.0)), (at, last, total)

    at, last, total = repeat(valid & (q < direct), (q, first, first), body, ROUNDS)
    rest = _rest(at, s, last, 6 if single else len(BERNOULLI))
    small = (abs(last) <= abs(total) * 2.0**-56) & (at < direct)
    return where(small | total.is_infinite(), total, total + rest)


def zeta(s: Term, q: Term, single: bool) -> Term:
    """The whole domain: infinite at s = 1 and at the poles of even order, NaN where it is not defined."""
    pole = (q <= 0.0) & is_whole(q)
    domain = (s > 1.0) & ((q > 0.0) | is_whole(s)) & ~pole
    valid = domain & s.is_finite() & q.is_finite()
    value = positive_order(s, q, valid, single)
    limit = where(q > 1.0, 0.0, where(q.equals(1.0), 1.0, where(q > 0.0, q.constant(math.inf), math.nan)))
    value = where(valid, value, where(domain, where(q.is_infinite(), 0.0, limit), math.nan))
    value = where(pole & is_even(s) & s.is_finite(), math.inf, value)
    value = where(s.is_nan() | q.is_nan(), math.nan, value)
    return where(s.equals(1.0), math.inf, value)


def polygamma(m: Term, x: Term, single: bool) -> Term:
    """The derivative of digamma of order m, a whole number; NaN for any other order."""
    (digamma,) = only_where(m.equals(0.0), lambda: [x.call("digamma")], x.constant(math.nan))
    order = (m >= 1.0) & is_whole(m) & m.is_finite()
    s = m + 1.0
    sign = where(is_even(m), m.constant(-1.0), 1.0)
    log_factorial = where(order, s, 1.0).call("lgamma")
    series = zeta(where(order, s, 2.0), x, single)
    value = sign * log_factorial.call("exp") * series
    (value,) = only_where(  # where the factorial overflows
        (m > 168.0) & order, lambda: [sign * (log_factorial + series.call("log")).call("exp")], value
    )
    pole = where(m.equals(0.0) & (x <= 0.0) & is_whole(x), math.nan, digamma)
    return where(m.equals(0.0), pole, where(order & ~x.is_nan(), value, math.nan))
