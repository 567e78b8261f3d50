"""Sizes from their values: the expression in unknown sizes that has given values at given points.

    83, 89, 251 -> b      42, 45, 126 -> floordiv(b + 1, 2)      80, 86, 248 and 0 where b = 2 -> max(b - 3, 0)

What the program itself computed with (its hints) comes first, then sums, polynomials, quotients of sums by small
numbers, and one of these that is cut off by a constant or a size. Every point must agree.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from weft.errors import InconclusiveDimensionOperation
from weft.stablehlo.unknown_sizes.symbolic_dims import SymbolicDim, combined, extremum, operation, product, variable

_DIVISORS = range(2, 65)
_SMALL = 160  # sizes up to this may be special
Points = Sequence[Mapping[str, int]]


class MorePoints(InconclusiveDimensionOperation):
    """The traces do not decide among several forms of a size: more are needed, at ``point`` if it is known."""

    def __init__(self, text: str, point: Mapping[str, int] | None = None) -> None:
        super().__init__(text)
        self.point = point


def fitted(session: Any, points: Points, values: Sequence[int]) -> Any:
    """The size with these values. Raises InconclusiveDimensionOperation if no form has them."""
    if len(set(values)) == 1:
        return values[0]
    for candidate in _candidates(session, points, values):
        if _agrees(candidate, points, values):
            return candidate
    large = len(session.points)
    if len(values) > large:
        found = _cut_off(session, points, values, large)
        if found is not None:
            session.hints.setdefault(found)
            return found
    raise InconclusiveDimensionOperation(
        f"an extent or number of the program is {values[0]} where {dict(points[0])}, {values[1]} where "
        f"{dict(points[1])}, and no polynomial, quotient, minimum or maximum of the unknown sizes is so everywhere"
    )


def value_at(x: Any, sizes: Mapping[str, int]) -> int:
    return x.at(sizes) if isinstance(x, SymbolicDim) else x


def _agrees(candidate: Any, points: Points, values: Sequence[int]) -> bool:
    return all(value_at(candidate, sizes) == value for sizes, value in zip(points, values, strict=True))


def _candidates(session: Any, points: Points, values: Sequence[int]) -> Iterator[Any]:
    hints = list(session.hints)
    yield from hints
    scope, names = session.scope, session.names
    variables = [variable(name, scope) for name in names]
    for degree in (1, 2, 3):
        terms = [
            _product(scope, chosen)
            for own in range(1, degree + 1)
            for chosen in itertools.combinations_with_replacement(variables, own)
        ]
        if len(terms) + 2 <= len(points):
            found = solved(terms, points, values)
            if found is not None:
                yield combined(zip((*terms, 1), found, strict=True), scope)
    for terms in _few_terms(scope, hints, len(points)):
        found = solved(terms, points, values)
        if found is not None:
            yield combined(zip((*terms, 1), found, strict=True), scope)
    yield from _quotients(session, variables, points, values)


def _product(scope: Any, factors: Sequence[Any]) -> Any:
    found = factors[0]
    for factor in factors[1:]:
        found = product(scope, found, factor)
    return found


def _few_terms(scope: Any, hints: Sequence[Any], count: int) -> Iterator[list[Any]]:
    """Few terms of products of hints: enough points decide them."""
    some = hints[:12]
    pairs = [_product(scope, pair) for pair in itertools.combinations_with_replacement(some, 2)]
    terms = [x for x in (*some, *pairs) if isinstance(x, SymbolicDim)]
    if count >= 4:
        yield from [[x] for x in terms]
    if count >= 5:
        yield from map(list, itertools.combinations(some, 2))
    if count >= 5:
        triples = itertools.combinations_with_replacement(some[:6], 3)
        yield from [[x] for x in (_product(scope, chosen) for chosen in triples) if isinstance(x, SymbolicDim)]


def solved(terms: Sequence[Any], points: Points, values: Sequence[int]) -> list[int] | None:
    """Whole factors of terms, and a constant, with which the sum has the values: of a linear system."""
    count = len(terms) + 1
    rows = [
        [Fraction(value_at(term, sizes)) for term in terms] + [Fraction(1), Fraction(value)]
        for sizes, value in zip(points, values, strict=True)
    ]
    for column in range(count):
        pivot = next((i for i in range(column, len(rows)) if rows[i][column]), None)
        if pivot is None:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        rows[column] = [x / rows[column][column] for x in rows[column]]
        for i in range(len(rows)):
            if i != column and rows[i][column]:
                rows[i] = [x - rows[i][column] * y for x, y in zip(rows[i], rows[column], strict=True)]
    if any(row[-1] for row in rows[count:]):
        return None
    found = [row[-1] for row in rows[:count]]
    return [int(x) for x in found] if all(x.denominator == 1 for x in found) else None


def _quotients(session: Any, variables: Sequence[Any], points: Points, values: Sequence[int]) -> Iterator[Any]:
    """``floordiv`` of a sum with one unknown by a number. Points are asked for that tell rivals apart."""
    found = [(x, *parts) for x in variables for parts in _quotients_of(x, points, values)]
    rivals = [
        operation("floordiv", slope * x + offset, divisor, session.scope)
        for x, slope, divisor, low, high in found
        for offset in (low, high)
    ]
    between: list[dict[str, int]] = []
    if len(found) == 1 and found[0][1] == 1:  # sizes, not small, where the middle offset just makes a whole quotient
        x, _, divisor, low, high = found[0]
        middle = (low + high + 1) // 2
        first = (_SMALL + middle) // divisor + 1
        between = [{str(x): k * divisor - middle} for k in range(first, first + 4)]
    point = session.telling_point(rivals, between) if len(set(rivals)) > 1 else None
    if point is not None:
        raise MorePoints(f"it may be {rivals[0]} or {rivals[-1]}", point)
    yield from rivals[:1]


def _quotients_of(x: Any, points: Points, values: Sequence[int]) -> Iterator[tuple[int, int, int, int]]:
    """(slope, divisor, least offset, largest offset) of quotients with one unknown that have these values."""
    at = [value_at(x, sizes) for sizes in points]
    first, last = min(range(len(at)), key=at.__getitem__), max(range(len(at)), key=at.__getitem__)
    span, steps = at[last] - at[first], abs(values[last] - values[first])
    if not span:
        return
    wide = (
        range(max(_DIVISORS.stop, span // (steps + 1)), span // (steps - 1) + 2) if steps > 1 else ()
    )  # with a factor of 1
    for divisor in (*_DIVISORS, *wide):
        slope = round(divisor * (values[last] - values[first]) / span)
        if math.gcd(slope, divisor) > 1 or (divisor in wide and abs(slope) != 1):
            continue
        # divisor * value <= slope * size + offset < divisor * value + divisor, at each point
        low = max(divisor * value - slope * size for value, size in zip(values, at, strict=True))
        high = min(divisor * value + divisor - 1 - slope * size for value, size in zip(values, at, strict=True))
        if slope and low <= high:
            yield slope, divisor, low, high


def _cut_off(session: Any, points: Points, values: Sequence[int], large: int) -> Any:
    """The size that fits large points, cut off by one that fits the small points where it does not hold."""
    first = fitted(session, points[:large], values[:large])
    off = [index for index in range(len(points)) if value_at(first, points[index]) != values[index]]
    there, wanted = [points[index] for index in off], [values[index] for index in off]
    sums: list[Any] = [wanted[0]] if len(set(wanted)) == 1 else []
    for name in session.names:
        x = variable(name, session.scope)
        sums += [factor * x + (wanted[0] - factor * value_at(x, there[0])) for factor in (1, 2, -1)]
    for name in session.names:  # an amount taken modulo a size, as of a rotation
        x = variable(name, session.scope)
        for start in (first, combined(((first, 1), (x, -1)), session.scope)):
            if isinstance(start, int) and _agrees(found := operation("mod", start, x, session.scope), points, values):
                return found
    for second in sums:
        for name in ("max", "min"):
            if _agrees(found := extremum(name, first, second), points, values):
                return found
    return None
