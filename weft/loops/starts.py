"""Where a walk along a dimension begins: an integer that knows which sizes it was made of.

    x: f32[24]; x[::-1] begins at 23 = n - 1, x[-3:] at 21 = n - 3, x[2:] at 2, whatever n is

A program at other sizes begins elsewhere; what was decided for one says so for all (``compiler.recall``). Equal are
starts that are equal at every size, not those that happen to be at one.
"""

from __future__ import annotations

NEAR = 8  # from an end: farther ones are sizes of their own

Terms = tuple[tuple[int, int], ...]  # (size, how often); a negative size is a symbol's number (``index_math``)


class Start(int):
    """An integer, as it is now, and ``rest + sum(often * size)`` at every size."""

    rest: int
    terms: Terms

    def __new__(cls, value: int, rest: int, terms: Terms) -> Start:
        self = super().__new__(cls, value)
        self.rest, self.terms = rest, terms
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Start) and (self.rest, self.terms) == (other.rest, other.terms)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self.rest, self.terms))

    def __add__(self, other: int) -> int:
        return _sum(self, other, 1)

    __radd__ = __add__

    def __sub__(self, other: int) -> int:
        return _sum(self, other, -1)

    def __rsub__(self, other: int) -> int:
        return self * -1 + other

    def __mul__(self, other: int) -> int:
        if isinstance(other, Start):
            raise TypeError("a product of starts")
        terms = tuple([(size, often * other) for size, often in self.terms])
        return Start(int(self) * other, self.rest * other, terms) if other else 0

    __rmul__ = __mul__


def _sum(left: Start, right: int, sign: int) -> int:
    rest, terms = (right.rest, right.terms) if isinstance(right, Start) else (right, ())
    found = dict(left.terms)
    for size, often in terms:
        found[size] = found.get(size, 0) + sign * often
    value = int(left) + sign * int(right)
    kept = tuple(sorted([(size, often) for size, often in found.items() if often]))
    return Start(value, left.rest + sign * rest, kept) if kept else value


def of_view(start: int, step: int, extent: int) -> int:
    """Where a view begins in a dimension: counted from whichever end is near, else a size of its own."""
    behind = extent - start
    if step > 0 and start <= min(NEAR, behind):
        return start
    if behind <= NEAR:
        return Start(start, -behind, ((extent, 1),))
    return Start(start, 0, ((start, 1),)) if start else 0


def last_of(extent: int, symbol: int) -> int:
    """The last place along a dimension of a symbol."""
    return Start(extent - 1, -1, ((-symbol, 1),)) if symbol else extent - 1
