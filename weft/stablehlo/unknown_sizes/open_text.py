"""Extents without a value as operations on 0-d integers of a module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.stablehlo import types

if TYPE_CHECKING:
    from weft.stablehlo.text import Tensor, Text

INT32 = types.INT32
_KIND = ((), INT32)


def extent(text: Text, n: Any) -> Tensor:
    """The value of a size: its terms, computed once in a function and summed."""
    if not types.is_open(n):
        return text.constant(int(n), *_KIND)
    known = text.extents.get(n)
    if known is None:
        known = text.extents[n] = _sum(text, n)
    return known


def _sum(text: Text, n: Any) -> Tensor:
    total = None
    for term, count in n.terms.items():
        value = None
        for factor, power in term:
            own = text.sizes[factor] if isinstance(factor, str) else _operation(text, factor)
            for _ in range(power):
                value = own if value is None else text.op("multiply", [value, own], *_KIND)
        if value is None:
            value = text.constant(count, *_KIND)
        elif count != 1:
            value = text.op("multiply", [value, text.constant(count, *_KIND)], *_KIND)
        total = value if total is None else text.op("add", [total, value], *_KIND)
    assert total is not None
    return total


def _operation(text: Text, operation: Any) -> Tensor:
    left, right = extent(text, operation.left), extent(text, operation.right)
    if operation.name in ("max", "min"):
        return text.op("maximum" if operation.name == "max" else "minimum", [left, right], *_KIND)
    rest = text.op("remainder", [left, right], *_KIND)  # of the sign of what is divided
    zero = text.constant(0, *_KIND)
    sign, other = (text.compare("lt", x, zero) for x in (rest, right))
    off = text.op("and", [text.compare("ne", rest, zero), text.compare("ne", sign, other)], (), types.BOOL)
    if operation.name == "mod":
        return text.select(off, text.op("add", [rest, right], *_KIND), rest)
    quotient = text.op("divide", [left, right], *_KIND)
    return text.select(off, text.op("subtract", [quotient, text.constant(1, *_KIND)], *_KIND), quotient)
