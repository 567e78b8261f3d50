"""How numbers follow from sizes: sums and products in one form, other operations as they are.

n * 4 + m    ->    {(n,): 4, (m,): 1}, so that 4 * n + m is the same value
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

Number = int | float
Terms = dict[tuple[int, ...], int]  # a polynomial: products of values, by their slots, and their factors; () is 1


class Values:
    """The values of one compilation at some sizes, computed when they are asked for, by their slots."""

    def __init__(self, made: Sequence[Any], numbers: Sequence[Number]) -> None:
        self._made = made
        self._known: dict[int, Any] = dict(enumerate(numbers))

    def __getitem__(self, slot: int) -> Any:
        found = self._known.get(slot)
        if found is None:
            made = self._made[slot]
            if type(made) is dict:
                found = 0
                for product, factor in made.items():
                    for part in product:
                        factor *= self[part]
                    found += factor
            else:
                found = made[1] if made[0] == "constant" else made[0](self[made[1]], self[made[2]])
            self._known[slot] = found
        return found


def _sum(one: Terms, two: Terms) -> Terms:
    found = dict(one)
    for product, factor in two.items():
        found[product] = found.get(product, 0) + factor
    return found


def _difference(one: Terms, two: Terms) -> Terms:
    return _sum(one, {product: -factor for product, factor in two.items()})


def _product(one: Terms, two: Terms) -> Terms:
    found: Terms = {}
    for left, factor in one.items():
        for right, other in two.items():
            product = tuple(sorted(left + right))
            found[product] = found.get(product, 0) + factor * other
    return found


POLYNOMIALS: dict[Any, Callable[[Terms, Terms], Terms]] = {
    operator.add: _sum, operator.sub: _difference, operator.mul: _product,
}  # fmt: skip


def round_up(value: float, _: int) -> int:
    return math.ceil(value)


def round_down(value: float, _: int) -> int:
    return math.floor(value)


REFLECTED: dict[Any, Any] = {
    operator.eq: operator.eq, operator.ne: operator.ne, operator.lt: operator.gt, operator.gt: operator.lt,
    operator.le: operator.ge, operator.ge: operator.le,
}  # fmt: skip
WORDS: dict[Any, str] = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.floordiv: "//", operator.truediv: "/",
    operator.mod: "%", operator.pow: "**", round_up: "rounded up to", round_down: "rounded down to", operator.eq: "==",
    operator.ne: "!=", operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=",
}  # fmt: skip
