"""Prefix combinations along an axis by halving: log2(n) levels of whole-array operations.

    scan(combine, [x], 0)      x[0], x[0]*x[1], x[0]*x[1]*x[2], ...   for combine = [product]
    halves(combine, [x], 0)    the last of them, for a reduction

``combine`` takes and returns lists of arrays (value and tangent, say), so that the derivative of a running product is a
scan of pairs. Even positions are combined with odd ones; a scan of these, half as long, gives the results at odd
positions; one more combination gives those at even positions (Blelloch 1990).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.operations.later import ops
from weft.operations.pointwise.elementwise import constant
from weft.runtime import Array

Combine = Callable[[list[Any], list[Any]], list[Any]]


def scan(combine: Combine, elements: Sequence[Any], axis: int, reverse: bool = False) -> list[Array]:
    """The running combinations of every array along ``axis``, from the end with ``reverse``."""
    if reverse:
        elements = [ops.rev(x, (axis,)) for x in elements]
    found = _scan(combine, list(elements), axis)
    return [ops.rev(x, (axis,)) for x in found] if reverse else found


def _cut(elements: Sequence[Any], start: int, limit: int | None, step: int, axis: int) -> list[Array]:
    return [ops.slice_in_dim(x, start, limit, step, axis) for x in elements]


def _scan(combine: Combine, elements: list[Any], axis: int) -> list[Array]:
    count = elements[0].shape[axis]
    if count < 2:
        return elements
    pairs = combine(_cut(elements, 0, -1, 2, axis), _cut(elements, 1, None, 2, axis))
    odd = _scan(combine, pairs, axis)
    before = _cut(odd, 0, -1, 1, axis) if count % 2 == 0 else odd
    even = combine(before, _cut(elements, 2, None, 2, axis)) if count > 2 else []
    first = _cut(elements, 0, 1, 1, axis)
    even = [ops.concatenate([a, b], axis) for a, b in zip(first, even, strict=True)] if even else first
    return _interleave(even, odd, axis)


def _interleave(even: list[Any], odd: list[Any], axis: int) -> list[Array]:
    """Interleave two scans: each is spread over every second position, and both are added."""
    more = even[0].shape[axis] - odd[0].shape[axis]
    out = []
    spread_even = [_spread(x, axis, (0, 1 - more, 1)) for x in even]
    spread_odd = [_spread(x, axis, (1, more, 1)) for x in odd]
    for a, b in zip(spread_even, spread_odd, strict=True):
        out.append(ops.add(a, b))
    return out


def _spread(x: Any, axis: int, config: tuple[int, int, int]) -> Array:
    return ops.pad(x, constant(x, 0), [config if d == axis else (0, 0, 0) for d in range(x.ndim)])


def halves(combine: Combine, elements: Sequence[Any], axis: int, identities: Sequence[float] | None) -> list[Array]:
    """All positions of ``axis`` (at least one) combined into one, which is dropped, in order.

    With identities the first half is combined with the second (padded if it is shorter), for commutative functions.
    Without them neighbours are combined, and an odd last position is added at the end.
    """
    found = list(elements)
    rest: list[Any] | None = None
    while (count := found[0].shape[axis]) > 1:
        if count % 2 and identities is None:
            last = _cut(found, count - 1, count, 1, axis)
            rest = last if rest is None else combine(last, rest)
            found = _cut(found, 0, count - 1, 1, axis)
            count -= 1
        if identities is None:
            found = combine(_cut(found, 0, None, 2, axis), _cut(found, 1, None, 2, axis))
            continue
        middle = (count + 1) // 2
        left, right = _cut(found, 0, middle, 1, axis), _cut(found, middle, None, 1, axis)
        if count % 2:
            right = [
                ops.pad(x, constant(x, value), [(0, int(d == axis), 0) for d in range(x.ndim)])
                for x, value in zip(right, identities, strict=True)
            ]
        found = combine(left, right)
    found = found if rest is None else combine(found, rest)
    return [ops.squeeze(x, (axis,)) for x in found]
