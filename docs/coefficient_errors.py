"""Measures how far tables and searched coefficients of vector math are from their functions, in 60 digits (mpmath).

    python docs/coefficient_errors.py     # each table: its error, and the most that it may have

docs/coefficients.py computes the other sets anew. These came from searches (points are chosen so that the function is
nearly a number of the format there, coefficients under a condition), so that what can be computed anew is their error:
that of the polynomials alone, without rounding of operations. A test in tests/codegen fails where one is larger.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mpmath as mp
import numpy as np

from weft.codegen.vector_math import coefficients, piecewise_tables, piecewise_tables_f64, short_piecewise_tables

DIGITS, POINTS = 60, 6  # digits of the arithmetic; points in each interval where an error is measured
Function = Callable[[Any], Any]
Table = Sequence[Sequence[float]]
Measured = tuple[Any, Any]  # what the numbers give, what the function is


def erfcx(x: Any) -> Any:
    return mp.exp(x**2) * mp.erfc(x)


def erf_inv_ratio(w: Any) -> Any:
    """erf_inv(x) / x as a function of w = -log(1 - x**2): by Newton's steps on log(1 - erf(y)**2) = -w."""
    if not w:
        return mp.sqrt(mp.pi) / 2
    y = mp.sqrt(w)
    for _ in range(60):
        rest = mp.erfc(y)
        inside = rest * (2 - rest)  # 1 - erf(y)**2
        step = (mp.log(inside) + w) * inside / (4 * (1 - rest) * mp.exp(-(y**2)) / mp.sqrt(mp.pi))
        y += step
        if abs(step) < abs(y) * mp.mpf(10) ** (-DIGITS + 10):
            break
    return y / mp.sqrt(-mp.expm1(-w))


def in_float32(table: Any) -> Table:
    """The numbers of a table whose text is the shortest one for float32."""
    return np.array(table, np.float32).tolist()


def value(powers: Sequence[Any], x: Any) -> Any:
    """A polynomial, highest power first."""
    total = mp.mpf(0)
    for power in powers:
        total = total * x + mp.mpf(power)
    return total


def spread(low: Any, high: Any, points: int = POINTS) -> Iterator[Any]:
    for k in range(points):
        yield mp.mpf(low) + (mp.mpf(high) - mp.mpf(low)) * (2 * k + 1) / (2 * points)


# -- tables of piecewise polynomials: intervals are told by an index -------------------------------------------------


def around_steps(step: float, count: int) -> Iterator[tuple[int, Any, Any]]:
    """(index, from, to) of intervals around the multiples of a step."""
    for k in range(count):
        yield k, step * max(k - mp.mpf(1) / 2, 0), step * (k + mp.mpf(1) / 2)


def between_steps(step: float, count: int) -> Iterator[tuple[int, Any, Any]]:
    """Intervals between the multiples of a step."""
    for k in range(count):
        yield k, mp.mpf(step) * k, mp.mpf(step) * (k + 1)


def by_quarters(exponent: int, top: float) -> Iterator[tuple[int, Any, Any]]:
    """Intervals, four to a power of two from ``exponent`` on; the first begins at 0."""
    edges = [mp.mpf(2) ** (exponent + k // 4) * (1 + mp.mpf(k % 4) / 4) for k in range(33)]
    for k, (low, high) in enumerate(itertools.pairwise(edges)):
        if low < top:
            yield k, low if k else mp.mpf(0), min(high, mp.mpf(top))


def around_squares(top: float) -> Iterator[tuple[int, Any, Any]]:
    """Intervals around equal steps of x (x + 2), as ``error_functions`` picks them for ``ERFC``."""
    edge = lambda k: mp.sqrt(1 + (mp.mpf(k) - mp.mpf(1) / 2) / mp.mpf("1.35")) - 1  # noqa: E731 - one line, used twice
    for k in range(32):
        yield k, edge(k) if k else mp.mpf(0), min(edge(k + 1), mp.mpf(top))


def by_octaves(each: int, shift: float, top: float, count: int) -> Iterator[tuple[int, Any, Any]]:
    """Intervals, ``each`` to a power of two of x + ``shift``: the last bits of their number are the index."""
    exponent = mp.floor(mp.log(shift, 2))
    number = 0
    while True:
        octave, part = divmod(number, each)
        low, high = ((1 + mp.mpf(k) / each) * 2 ** (exponent + octave) - shift for k in (part, part + 1))
        if low >= top:
            return
        if high > 0:
            yield int((exponent + 127 + octave) * each + part) % count, max(low, 0), min(high, top)
        number += 1


def of_table(
    table: Table, function: Function, intervals: Iterator[tuple[int, Any, Any]], first_is_rest: bool
) -> Iterator[Measured]:
    """With ``first_is_rest`` the table has f(x) - x where its constant is 0."""
    for index, low, high in intervals:
        x0, *powers = [mp.mpf(row[index]) for row in table]
        for x in spread(low, high):
            found = value(powers[::-1], x - x0)
            yield found + (x if first_is_rest and not powers[0] else 0), function(x)


def of_cbrt(table: Table) -> Iterator[Measured]:
    """Cube roots of 2**k m: a block of eight intervals of m for k = 1, 2, and one at the end for 0."""
    for block, k in ((0, 1), (1, 2), (3, 0)):
        for part in range(8):
            x0, *powers = [mp.mpf(row[8 * block + part]) for row in table]
            for m in spread(1 + mp.mpf(part) / 8, 1 + mp.mpf(part + 1) / 8):
                yield value(powers[::-1], m - x0), mp.cbrt(2**k * m)


def of_set(low: Any, high: Any, found: Function, function: Function) -> Iterator[Measured]:
    """What a polynomial makes beside a function, on an interval."""
    for x in spread(low, high, 40):
        yield found(x), function(x)


def of_pairs(found: Iterator[Any], wanted: Iterator[Any]) -> Iterator[Measured]:
    """Numbers beside what they should be, both plus 1 where that may be 0."""
    for own, other in zip(found, wanted, strict=True):
        yield 1 + own, 1 + other


def pow_logs() -> Iterator[Any]:
    """The logarithms of the reciprocals in the table of ``pow``."""
    return (-mp.log(c) for c in coefficients.POW_INVERSE)


def measured() -> Iterator[tuple[str, float, Iterator[Measured]]]:
    """(name, the binary logarithm of the relative error that it may have, numbers beside the function)."""
    wide, sets = piecewise_tables_f64, coefficients
    narrow, short = (
        {name: in_float32(table) for name, table in vars(of).items() if name.isupper()}
        for of in (piecewise_tables, short_piecewise_tables)
    )
    yield "erf, float64", -56, of_table(wide.ERF, mp.erf, between_steps(0.371, 16), True)
    yield "atan, float64", -58, of_table(wide.ATAN, mp.atan, between_steps(0.0626, 16), True)
    yield "erfcx, float64", -56, of_table(wide.ERFCX, erfcx, by_octaves(4, 2.0, 28, 16), False)
    yield "erf_inv, float64", -56, of_table(wide.ERF_INV, erf_inv_ratio, by_octaves(4, 2.5, 36.7, 16), False)
    points = [mp.mpf(x) for x in wide.TANH_POINTS]
    yield "tanh, float64", -67, zip(map(mp.mpf, wide.TANH_AT_POINTS[1:]), map(mp.tanh, points[1:]), strict=True)
    slopes = (mp.sech(x) ** 2 for x in points)
    yield "its slopes", -56, of_pairs(map(mp.mpf, wide.TANH_SLOPES), slopes)
    yield "tanh, float32", -25.5, of_table(narrow["TANH"], mp.tanh, by_quarters(-4, 9.5), True)
    yield "erf, float32", -28, of_table(narrow["ERF"], mp.erf, around_steps(0.125, 32), True)
    yield "erfc, float32", -25, of_table(narrow["ERFC"], mp.erfc, around_squares(3.92), False)
    yield "erfcx, float32", -27, of_table(narrow["ERFCX"], erfcx, by_quarters(-4, 10.2), False)
    yield "erf_inv, float32", -27.5, of_table(narrow["ERF_INV"], erf_inv_ratio, by_octaves(4, 0.5, 15.9, 32), False)
    yield "cbrt, float32", -28.9, of_cbrt(narrow["CBRT"])
    yield "erf, short", -25, of_table(short["ERF"], mp.erf, around_steps(0.53, 8), True)
    yield "erfcx, short", -25, of_table(short["ERFCX"], erfcx, by_octaves(2, 0.75, 10.2, 8), False)
    yield "erf_inv, short", -26, of_table(short["ERF_INV"], erf_inv_ratio, by_octaves(2, 1.5, 15.9, 8), False)
    yield "ERF_F64", -56, of_set(0, 0.5, lambda x: x + x * value(sets.ERF_F64, x**2), mp.erf)
    yield "ERFC_LITE", -30.5, of_set(0.5, 10.2, lambda a: value(sets.ERFC_LITE, (a - 1) / (a + 1)) / a, erfcx)
    yield "ERF_EXPONENT", -56, of_set(0, 5.93, lambda x: -mp.expm1(-x * value(sets.ERF_EXPONENT, x)), mp.erf)
    yield (
        "ERFC_EXPONENT",
        -55,
        of_set(0, 27.3, lambda x: 2 * mp.exp(value(sets.ERFC_EXPONENT, (x - 2) / (x + 2))) / (x + 2), erfcx),
    )
    yield "ERF_INV_CENTRE", -33.5, of_set(0, 5, lambda w: value(sets.ERF_INV_CENTRE, w), erf_inv_ratio)
    yield "ERF_INV_TAIL", -35.5, of_set(5, 15.9, lambda w: value(sets.ERF_INV_TAIL, mp.sqrt(w)), erf_inv_ratio)
    centre, tail = sets.ERF_INV_CENTRE_F64, sets.ERF_INV_TAIL_F64
    yield "ERF_INV_CENTRE_F64", -55, of_set(0, 6.25, lambda w: value(centre, w - mp.mpf(3.125)), erf_inv_ratio)
    yield "ERF_INV_TAIL_F64", -53.5, of_set(6.25, 37, lambda w: value(tail, mp.sqrt(w) - mp.mpf(4.25)), erf_inv_ratio)
    yield "EXPM1_F64", -55, of_set(-0.3466, 0.3466, lambda r: r + r**2 * value(sets.EXPM1_F64, r), mp.expm1)
    rs = list(spread(-0.042, 0.042, 40))
    series = (r * value(sets.POW_LOG2_SERIES, r) for r in rs)
    yield "POW_LOG2_SERIES", -37, of_pairs(series, (mp.log1p(r) / mp.log(2) for r in rs))
    series = (r - r**2 / 2 + r**3 / 3 + r**4 * value(sets.POW_SERIES, r) for r in rs)
    yield "POW_SERIES", -71, of_pairs(series, map(mp.log1p, rs))
    heads = (mp.mpf(high) + mp.mpf(low) for high, low in zip(sets.POW_LOG_HIGH, sets.POW_LOG_LOW, strict=True))
    yield "POW_LOG", -97, of_pairs(heads, pow_logs())
    yield "POW_LOG2", -54, of_pairs(map(mp.mpf, sets.POW_LOG2), (log / mp.log(2) for log in pow_logs()))


def errors() -> dict[str, tuple[float, float]]:
    """For each name the binary logarithm of its relative error, and of the most that it may be."""
    found = {}
    with mp.workdps(DIGITS):
        for name, most, pairs in measured():
            worst = max(abs(own - wanted) / abs(wanted) for own, wanted in pairs)
            found[name] = float(mp.log(worst, 2)), most
    return found


def main() -> None:
    for name, (error, most) in errors().items():
        print(f"{name:20} 2**{error:.1f}, at most 2**{most}")


if __name__ == "__main__":
    main()
