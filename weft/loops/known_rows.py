"""Short rows of a length that is compiled in: which nests have them, and the vectors of which they are made.

    a row of 10, 8 lanes:   elements 0 to 7, and 2 to 9
    a row of 3:             elements 0 and 1, and 1 and 2

The last vector ends with the row and may begin inside of the one before it, so that no vector has a mask: a masked
store costs as much as ten others on some processors, and a loop over two vectors as much as the vectors. All of a row
is read before any of it is written, since a result may lie in the memory of an operand.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from weft.loops import costs, ir
from weft.loops.body import Body

VECTORS, LONGEST = 4, 32  # in a row, and elements
MANY = 16384  # elements of all rows from which on they have a kernel of their own
LIGHT = 40.0  # cost of the bodies of all vectors of a row
SIMPLE = 2.0  # cost of an operation that takes as long for two lanes as for eight, and is done as soon
COMPUTED = 1.25  # elements that are computed for each of a row, if operations take longer
OF_ELEMENTS = range(6, 32)  # elements of a row of transposed operands: longer ones are blocks transposed in registers
FEW_LANES = 8
FEW = 4  # elements of rows that would else be accessed element by element, with lanes across rows
MASKED = 8.0  # cost of what a vector with a mask takes longer
APART = 2.0  # cost of such an access
REPEATED = 4, 16  # least elements of a row of short rows, and most of each: a loop over few rows takes longer


def fits(body: Body, row: Collection[Any], extent: int, lanes: int, more: float = 0.0) -> bool:
    """Whether the statements may be written for the vectors of a row, along the axes ``row``.

    ``more``: instructions that they may take beyond those of the fewest vectors with as many elements.
    """
    statements: list[Any] = body.statements
    plain = (ir.Load, ir.Store, ir.Param, ir.Apply, ir.IndexOf, ir.LoadAt)
    if not all(isinstance(s, plain) and not (isinstance(s, ir.LoadAt) and s.inside is not None) for s in statements):
        return False
    differ = _differing(body, row, statements)
    computed = [s for s in statements if isinstance(s, ir.Apply) and s.out in differ]
    count = len(vectors(extent, lanes)[1])
    if costs.instructions(statements) * count > LIGHT:
        return False
    simple = all(s.kind.cost <= SIMPLE and not s.kind.waits for s in computed)
    if simple or lanes * count <= COMPUTED * extent:
        return True
    if more and costs.instructions(computed) * (count + extent // -lanes) <= more:
        return True
    moved = sum(isinstance(s, ir.Load | ir.LoadAt | ir.Store) for s in statements)
    return extent <= FEW and costs.instructions(computed) * (count - extent / lanes) <= APART * extent * moved


def _differing(body: Body, row: Collection[Any], statements: Sequence[Any]) -> set[int]:
    """The values that are not the same for all elements of a row, as places by an index are."""
    found = set[int]()
    for s in statements:
        if isinstance(s, ir.Load | ir.LoadAt):
            strides = body.operands[s.operand].strides
            differs = any(key in strides and strides[key].factor for key in row)
        else:
            differs = s.dim in row if isinstance(s, ir.IndexOf) else not found.isdisjoint(ir.arguments(s))
        if differs and not isinstance(s, ir.Store):
            found.add(s.out)
    return found


def longest(lanes: int) -> int:
    """Elements of the longest row."""
    return min(VECTORS * lanes, LONGEST)


def of_single_elements(extent: int, lanes: int) -> bool:
    """Whether rows whose elements lie a row apart in an operand are put together from single elements.

    Blocks that are transposed in registers take longer if they are not whole: twice as long with few lanes.
    """
    return lanes <= FEW_LANES and extent in OF_ELEMENTS


def vectors(extent: int, lanes: int) -> tuple[int, Sequence[int]]:
    """(Lanes of a vector, where the vectors of a row begin)."""
    width = lanes
    while width > extent:
        width //= 2
    whole = range(0, extent - width + 1, width)
    return width, [*whole, *([extent - width] if extent % width else [])]
