"""Marks operands that read one buffer a few rows or elements apart, as stencils do, so that loads can be shared.

    u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 1:-1]   ->   the first reads what the others read two rows and one row above

What is loaded for one row can then be used for the rows next to it. Distances follow from the addresses at the sizes of
one call. For slices they are the same at all sizes, so that all sizes share their machine code.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.core.symbolic import sizes
from weft.loops import ir

if TYPE_CHECKING:
    from weft.loops.nests import Binding

ROWS, ELEMENTS = 2, 8  # the farthest neighbours; more rows away may be another plane


def marked(nest: ir.Nest, bindings: Sequence[Binding]) -> ir.Nest:
    """The nest with the distances between its operands, if what one row reads is also read by the next one."""
    if nest.vector is None or nest.vector == 0 or len(bindings) < 3 or not nest.is_map:  # two inputs and an output
        return nest
    groups: dict[Any, dict[int, tuple[int, int, int]]] = {}  # by buffer and strides: operand -> its neighbour
    firsts: dict[Any, list[int]] = {}
    for number, binding in enumerate(bindings):
        if binding.role != "in" or binding.starts is not None or binding.strides[-1] != 1:
            continue
        walked = id(binding.variable), binding.dtype, binding.strides, binding.outer
        for first in firsts.setdefault(walked, []):
            distance = _distance(binding.offset - bindings[first].offset, binding.strides[-2])
            if distance is not None:
                groups[walked, first][number] = (first, *distance)
                break
        else:
            firsts[walked].append(number)
            groups[walked, number] = {number: (number, 0, 0)}
    if not any(_shares(group.values()) for group in groups.values()):
        return nest
    near = {number: one for group in groups.values() for number, one in group.items() if one[0] != number}
    operands = [o.replace(near=near.get(number)) for number, o in enumerate(nest.operands)]
    return nest.replace(operands=tuple(operands))


def _distance(elements: int, row: int) -> tuple[int, int] | None:
    """A distance as (rows, elements), or None if it is more than a few of either."""
    rows = sizes.number(-((row - 2 * elements) // (2 * row))) if row else 0
    rest = elements - rows * row
    return (rows, sizes.number(rest)) if abs(rows) <= ROWS and abs(rest) <= ELEMENTS else None


def _shares(neighbours: Any) -> bool:
    """Whether two operands are one row apart."""
    at = [one[1:] for one in neighbours]
    return any(a[1] == b[1] and abs(a[0] - b[0]) == 1 for a, b in itertools.combinations(at, 2))
