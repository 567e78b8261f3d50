"""The iteration space of a product of strided views: loops, and how far each moves in the operands and the result.

A convolution of f32[8,58,58,64], padded before, by f32[3,3,64,32]; element e of an operand is its e-th in memory:

    rows      (8, 215296) (56, 3712) (56, 64)            extent, elements in the left operand
    columns   (32, 1)                                    extent, elements in the right operand
    summed    (3, 3712, 6144) (3, 64, 2048) (64, 1, 32)  extent, elements in both: in the order of the sum

A row here is a window, and windows overlap: nothing but bounds limits strides. Phases of a transposed convolution are
batch loops that move both operands, with an ``order`` that interleaves them in the result.
"""

from __future__ import annotations

import math

from weft._base.record import NamedTuple

Loop = tuple[int, int]  # extent, and elements that a step moves on in the one operand that has this loop
Both = tuple[int, int, int]  # extent, and elements that a step moves on in the left and in the right operand


class ProductSpace(NamedTuple):
    """result[batch, rows, columns] = sum over ``summed`` of left[...] * right[...]; strides are not negative.

    ``starts``: the first element of each operand. ``order``: which of the loops (batch, rows, columns) is each axis of
    the result, None if they are in this order.

    >>> space = ProductSpace((), ((3, 1),), ((1, 0),), ((2, 1, 1),))  # windows of 2 of 4 elements
    >>> space.shape, space.reach
    ((3, 1), (4, 2))
    """

    batch: tuple[Both, ...]
    rows: tuple[Loop, ...]
    columns: tuple[Loop, ...]
    summed: tuple[Both, ...]
    starts: tuple[int, int] = (0, 0)
    order: tuple[int, ...] | None = None

    @property
    def axes(self) -> tuple[Both, ...]:
        """The loops over elements of the result."""
        rows, columns = [(n, step, 0) for n, step in self.rows], [(n, 0, step) for n, step in self.columns]
        return (*self.batch, *rows, *columns)

    @property
    def shape(self) -> tuple[int, ...]:
        """The result's."""
        extents = [extent for extent, _, _ in self.axes]
        return tuple([extents[axis] for axis in self.order] if self.order is not None else extents)

    @property
    def terms(self) -> int:
        """How many products an element is the sum of."""
        return math.prod([extent for extent, _, _ in self.summed])

    @property
    def sizes(self) -> tuple[int, int]:
        """Rows and columns, without the batch."""
        return math.prod([extent for extent, _ in self.rows]), math.prod([extent for extent, _ in self.columns])

    @property
    def reach(self) -> tuple[int, int]:
        """How many elements of each operand there have to be."""
        loops = (*self.axes, *self.summed)
        if any(extent == 0 for extent, _, _ in loops):
            return 0, 0
        left, right = (
            start + sum([(loop[0] - 1) * loop[side] for loop in loops]) + 1
            for side, start in enumerate(self.starts, start=1)
        )
        return left, right

    @property
    def exchanged(self) -> ProductSpace:
        """The same sums with the operands exchanged: rows are columns."""
        n_batch, n_rows, n_columns = len(self.batch), len(self.rows), len(self.columns)
        first = n_batch + n_rows
        axes = [*range(n_batch), *range(n_batch + n_columns, first + n_columns), *range(n_batch, n_batch + n_columns)]
        order, (left, right) = range(len(axes)) if self.order is None else self.order, self.starts
        batch, summed = ([(n, right, left) for n, left, right in loops] for loops in (self.batch, self.summed))
        return ProductSpace(
            tuple(batch), self.columns, self.rows, tuple(summed), (right, left), tuple([axes[i] for i in order])
        )

    @property
    def error(self) -> str | None:
        """What is wrong with it, if anything."""
        loops = (*self.axes, *self.summed)
        if any(value < 0 for loop in (*loops, self.starts) for value in loop):
            return f"extents, strides and starts must not be negative, got {self}"
        axes = len(self.axes)
        if self.order is not None and sorted(self.order) != list(range(axes)):
            return f"order must name each of the {axes} loops of the result once, got {self.order}"
        return None
