"""Bounds of symbolic sizes: the least and the greatest value that constraints allow.

Every unknown size is at least 1. A bound is found term by term; where terms depend on each other (``b - floordiv(b,
2)``), a multiple of an inequality that is known to hold is taken away first, so that a term cancels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

DEPTH = 3  # inequalities that are taken away one after the other
Range = tuple[float, float]


def bounds(x: Any) -> Range:
    """The least and the greatest value; infinite where none is known."""
    if isinstance(x, int):
        return x, x
    known = x.scope.bounds
    if x not in known:
        known[x] = (least(x, DEPTH), -least(-x, DEPTH))
    return known[x]


def decided(x: Any) -> bool | None:
    """Whether a size is at least zero; None if that depends on the values."""
    low, high = bounds(x)
    return True if low >= 0 else False if high < 0 else None


def is_zero(x: Any) -> bool:
    """Whether a size is known to be zero."""
    return bounds(x) == (0, 0)


def least(x: Any, depth: int) -> float:
    """A lower bound."""
    if isinstance(x, int):
        return x
    found = _term_by_term(x)[0]
    if depth:
        for inequality in (*x.scope.inequalities, *_facts(x)):
            for rest, divisor in _without(x, inequality):
                low = least(rest, depth - 1)
                found = max(found, low if math.isinf(low) else -(-low // divisor))
                if not math.isinf(found) and found >= 0:
                    return found
    return found


def _without(x: Any, inequality: Any) -> Iterator[tuple[Any, int]]:
    """``divisor * x`` less a multiple of what is at least zero, for each term that cancels."""
    if isinstance(inequality, int):
        return
    for term, count in inequality.terms.items():
        own = x.terms.get(term, 0)
        if term and own * count > 0:
            divisor = abs(count)
            yield divisor * x - abs(own) * inequality, divisor


def _term_by_term(x: Any) -> Range:
    low, high = 0.0, 0.0
    for term, count in x.terms.items():
        value: Range = (1, 1)
        for factor, power in term:
            own = _factor(factor, x.scope)
            for _ in range(power):
                value = _product(value, own)
            if power % 2 == 0:
                value = (max(value[0], 0), value[1]) if len(term) == 1 else value
        first, second = _product((count, count), value)
        low, high = low + first, high + second
    return _whole(low), _whole(high)


def _whole(x: float) -> float:
    return x if math.isinf(x) else int(x)


def _product(x: Range, y: Range) -> Range:
    ends = [0 if 0 in (a, b) else a * b for a in x for b in y]
    return min(ends), max(ends)


def _factor(factor: Any, scope: Any) -> Range:
    if isinstance(factor, str):
        return scope.ranges.get(factor, (1, math.inf))
    (a, b), (c, d) = bounds(factor.left), bounds(factor.right)
    if factor.name == "max":
        return max(a, c), max(b, d)
    if factor.name == "min":
        return min(a, c), min(b, d)
    if factor.name == "mod":
        return (0, d - 1) if c > 0 else (c + 1, 0) if d < 0 else (-math.inf, math.inf)
    if c <= 0 <= d:
        return -math.inf, math.inf
    ends = [_quotient(x, y) for x in (a, b) for y in (c, d)]
    return min(ends), max(ends)


def _quotient(x: float, y: float) -> float:
    if math.isinf(y):
        return 0 if not math.isinf(x) and (x >= 0) == (y > 0) else -1 if not math.isinf(x) else math.copysign(x, x * y)
    return math.copysign(math.inf, x * y) if math.isinf(x) else x // y


def _facts(x: Any) -> Iterator[Any]:
    """What is at least zero by the meaning of the operations in a size."""
    for term in list(x.terms):
        for factor, _ in term:
            if not isinstance(factor, str):
                yield from _of_operation(factor, x.scope)


def _of_operation(operation: Any, scope: Any) -> Iterator[Any]:
    own, left, right = scope.factor(operation), operation.left, operation.right
    if operation.name in ("max", "min"):
        sign = 1 if operation.name == "max" else -1
        yield sign * (own - left)
        yield sign * (own - right)
    elif bounds(right)[0] > 0:  # 0 <= left - right * quotient < right
        rest = left - right * (own if operation.name == "floordiv" else left // right)
        if operation.name == "floordiv":
            yield rest
            yield right - 1 - rest
        else:
            yield own - rest
            yield rest - own
