"""Double-double arithmetic: a value as an unevaluated sum of a head and a tail (Dekker, Knuth; with fma)."""

from __future__ import annotations

from weft.codegen.arithmetic.lanes import V

Pair = tuple[V, V]


def two_sum(a: V, b: V) -> Pair:
    """a + b exactly."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def fast_two_sum(a: V, b: V) -> Pair:
    """a + b exactly where |a| >= |b| or a = 0."""
    s = a + b
    return s, b - (s - a)


def two_product(a: V, b: V) -> Pair:
    """a * b exactly."""
    p = a * b
    return p, a.fma(b, -p)


def add(a: Pair, b: Pair) -> Pair:
    """Sum where |a| >= |b|."""
    s, e = fast_two_sum(a[0], b[0])
    return fast_two_sum(s, e + (a[1] + b[1]))


def multiply(a: Pair, b: Pair) -> Pair:
    p, e = two_product(a[0], b[0])
    return fast_two_sum(p, a[0].fma(b[1], a[1].fma(b[0], e)))


def square(a: Pair) -> Pair:
    p, e = two_product(a[0], a[0])
    return fast_two_sum(p, (a[0] * 2.0).fma(a[1], e))


def scale(a: Pair, c: tuple[float, float]) -> Pair:
    """Product with a constant given as head and tail."""
    return multiply(a, (a[0].like(c[0]), a[0].like(c[1])))
