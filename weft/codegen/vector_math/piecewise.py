"""Piecewise polynomials whose coefficients are looked up in registers: tables of 128 bytes, or of 8 float32.

|x| picks one of 32 intervals by its exponent and two bits of its mantissa; the polynomial in r = |x| - x0 needs neither
a division nor an exponential. The first interval is evaluated as |x| + r q(r), which keeps small results exact.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from weft.codegen.arithmetic.lanes import V

BIAS = 127


def _coefficients(a: V, tables: Sequence[Sequence[float]], exponent: int) -> tuple[V, list[V]]:
    """The interval of a >= 0, and x0 and the coefficients there."""
    index = ((a.bits() - ((BIAS + exponent) << 23)) >> 21).intrinsic("smax", 0)
    return index, a.lanes.native.lookups(tables, index)


def parts(a: V, tables: Sequence[Sequence[float]], exponent: int) -> tuple[V, V]:
    """The two summands of f(a), a constant and the rest, for a >= 0 within the tables."""
    _, (x0, constant, *rest) = _coefficients(a, tables, exponent)
    r = a - x0
    return constant, r * r.polynomial(rest[::-1])


def odd(x: V, tables: Sequence[Sequence[float]], exponent: int, top: float) -> V | None:
    """f(x) for an odd f with limit 1. The tables go from 2**exponent to ``top``; None if registers cannot hold them."""
    lanes = x.lanes
    if not lanes.native.holds(tables[0], x.element):
        return None
    a = x.abs()
    a = lanes.select(a > top, top, a)
    index, (x0, constant, *rest) = _coefficients(a, tables, exponent)
    r = a - x0
    base = lanes.select(index.eq(0), a, constant)
    return r.fma(r.polynomial(rest[::-1]), base).copysign(x)


def odd_steps(x: V, tables: Sequence[Sequence[float]], step: float, top: float, near: float) -> V | None:
    """As ``odd``, for 32 intervals around the multiples of ``step``, a power of 2. Below ``near`` they are evaluated as
    |x| + |x| q(|x|): their constant is 0, and every other constant exceeds ``near``."""
    if not x.lanes.native.holds(tables[0], x.element):
        return None
    a = x.abs()
    a = x.lanes.select(a > top, top, a)
    index = (a + step * 2.0**23).bits()  # the sum is rounded to whole steps, its last bits count them
    x0, constant, *rest = x.lanes.native.lookups(tables, index)
    r = a - x0
    below = a.bits().intrinsic("smin", struct.unpack("<i", struct.pack("<f", near))[0])
    base = constant.bits().intrinsic("smax", below).as_float()
    return r.fma(r.polynomial(rest[::-1]), base).copysign(x)


def odd_short(x: V, tables: Sequence[Sequence[float]], step: float, top: float) -> V | None:
    """As ``odd``, for 8 intervals around the multiples of ``step``, in tables of 8 float32.

    The first point and its constant are 0; there f(x) - x is in the tables. All other constants exceed ``step`` / 2.
    """
    if not x.lanes.native.holds(tables[0], x.element):
        return None
    a = x.abs()
    a = x.lanes.select(a > top, top, a)
    index = a.fma(1.0 / step, 1.5 * 2.0**23).bits()  # rounded to whole steps, the last bits count them
    x0, constant, *rest = x.lanes.native.lookups(tables, index)
    r = a - x0
    return r.fma(r.polynomial(rest[::-1]), x.lanes.select(r > constant, r, constant)).with_sign_of(x)


def by_halves(a: V, tables: Sequence[Sequence[float]], shift: float) -> tuple[V, V, V]:
    """r, q(r) and the constant c of f(a) = c + r q(r) for a >= 0. Of 8 intervals two lie between each power of two of
    a + ``shift`` and the next."""
    index = (a + shift).bits().lshr(22)
    x0, constant, *rest = a.lanes.native.lookups(tables, index)
    r = a - x0
    return r, r.polynomial(rest[::-1]), constant


# float32: 32 intervals, float64: 16


def _lookup(a: V, tables: Sequence[Sequence[float]], index: V) -> tuple[V, V, V]:
    """r, q(r) and the constant c of f(a) = c + r q(r); coefficients are looked up late, to need few registers."""
    x0, constant, *rest = tables
    lookup = a.lanes.native.lookup
    r = a - lookup(x0, index)
    square = r * r

    def horner(rows: Sequence[Sequence[float]]) -> V:
        result = lookup(rows[-1], index)
        for row in rows[-2::-1]:
            result = result.fma(square, lookup(row, index))
        return result

    return r, horner(rest[1::2]).fma(r, horner(rest[::2])), lookup(constant, index)


def by_quarters(a: V, tables: Sequence[Sequence[float]], shift: float) -> tuple[V, V, V]:
    """As ``by_halves``, with four intervals between each power of two of a + ``shift`` and the next."""
    return _lookup(a, tables, (a + shift).bits().lshr(21 if a.element == "float" else 50))


def by_steps(a: V, tables: Sequence[Sequence[float]], step: float) -> tuple[V, V, V]:
    """r, q(r) and c for a float64 from 0 to 15.99 steps, by intervals between the multiples of ``step``.

    The tables of the first interval are those of f(x) - x: there the constant is a itself.
    """
    index = (a.fma(1.0 / step, -0.5) + 1.5 * 2.0**52).bits()  # rounded to whole steps, the last bits count them
    r, rest, constant = _lookup(a, tables, index)
    first = struct.unpack("<q", struct.pack("<d", step))[0]
    return r, rest, constant.bits().intrinsic("smax", a.bits().intrinsic("smin", first)).as_float()
