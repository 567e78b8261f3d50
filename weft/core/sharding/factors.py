"""Factors: which dimensions of an equation's operands and results are one and the same, and how each may be cut.

    dot_general  f32[8,16] f32[16,4] -> f32[8,4]      operands (0, 2), (2, 1); results (0, 1); factor 2 is summed
    reshape      f32[6,4] -> f32[2,3,4]               operand ((0, 1), 2); result (0, 1, 2)

A dimension is one factor, or several, the outermost first (a reshape splits or joins dimensions). A
factor that several devices may share is *parallel*: each computes its part of the results. It is *reduced* if each
device has a result of its own part, and these are combined. ``WHOLE`` marks a dimension that a device must have all of.
Nothing here knows of devices: ``weft.partitioning`` assigns axes of a mesh to factors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft._base.record import Record

WHOLE = -1
Dim = int | tuple[int, ...]
Dims = tuple[Dim, ...]


class Factors(Record):
    """The factors of every dimension of the operands and of the results; ``extents`` are theirs.

    ``reduced`` names for each reduced factor how the results of the parts are combined: "sum", "max", "min", or "again"
    for the operation itself, on the results side by side. ``passes``: operands and results have the same elements, or
    elements at the same indices, so that a sharding is passed on without a thought.
    """

    operands: tuple[Dims, ...]
    results: tuple[Dims, ...]
    extents: tuple[int, ...]
    reduced: Mapping[int, str] = {}
    passes: bool = True


class Draft:
    """Factors in the making: each call of ``new`` gives a factor of this extent."""

    def __init__(self) -> None:
        self.extents: list[int] = []
        self.reduced: dict[int, str] = {}

    def new(self, extent: int) -> int:
        self.extents.append(extent)
        return len(self.extents) - 1

    def of(self, shape: Sequence[int]) -> list[int]:
        """A new factor for each dimension."""
        return [self.new(extent) for extent in shape]

    def done(self, operands: Sequence[Sequence[Dim]], results: Sequence[Sequence[Dim]], passes: bool = True) -> Factors:
        return Factors(
            tuple(map(tuple, operands)), tuple(map(tuple, results)), tuple(self.extents), self.reduced, passes
        )


def whole(shape: Sequence[int]) -> Dims:
    """Dimensions that may not be cut."""
    return (WHOLE,) * len(shape)
