"""Blocks of short rows: points at known distances from the first of them, and the vectors they make.

    a row of 10, 8 lanes:     elements 0 to 7, and 2 to 9
    rows of 3, 4 lanes:       of 4 rows the elements 0, the elements 1, the elements 2
        side by side:         x0 x1 x2 y0 | y1 y2 z0 z1 | z2 w0 w1 w2

Vectors along one row end with it, so that none has a mask: a masked store costs as much as ten others on some
processors, and a loop over two vectors as much as the vectors. Rows too narrow for that are a block together: vectors
hold the same element of each row, or all elements side by side where rows of an operand lie at known distances, since
those are loaded as whole vectors.
"""

from __future__ import annotations

from weft._base.record import Record
from weft._base.target_model import QUARTER
from weft.loops import elements, ir

VECTORS, LONGEST = 4, 32  # along a row, and elements

Point = tuple[int, int]  # the number of a row, and of an element in it


class RowBlock(Record):
    """``rows`` rows, and the points of the lanes of each of its ``vectors``."""

    rows: int
    vectors: tuple[tuple[Point, ...], ...]

    @property
    def width(self) -> int:
        """Lanes of a vector."""
        return len(self.vectors[0])

    @property
    def by_elements(self) -> bool:
        """Whether a vector has the same element of each row."""
        return all(element == lanes[0][1] for lanes in self.vectors for _, element in lanes)


def block(nest: ir.Nest, lanes: int) -> RowBlock:
    """The blocks of a nest whose rows have a known length."""
    extent, apart = nest.row, [o for o in nest.operands if o.role == "in" and o.apart is not None]
    assert extent is not None
    if nest.vector == nest.last:
        width, starts = along(extent, lanes)
        return RowBlock(1, tuple([tuple([(0, start + lane) for lane in range(width)]) for start in starts]))
    if not apart or lanes == 1:
        return RowBlock(lanes, tuple([tuple([(row, element) for row in range(lanes)]) for element in range(extent)]))
    rows = max(lanes, QUARTER // max([elements.of(operand.dtype).size for operand in nest.operands]))
    points = [divmod(number, extent) for number in range(rows * extent)]
    return RowBlock(rows, tuple([tuple(points[k : k + rows]) for k in range(0, len(points), rows)]))


def longest(lanes: int) -> int:
    """Elements of the longest row that vectors lie along."""
    return min(VECTORS * lanes, LONGEST)


def along(extent: int, lanes: int) -> tuple[int, list[int]]:
    """Along a row: lanes of a vector, and where the vectors begin."""
    width = lanes
    while width > extent:
        width //= 2
    whole = range(0, extent - width + 1, width)
    return width, [*whole, *([extent - width] if extent % width else [])]
