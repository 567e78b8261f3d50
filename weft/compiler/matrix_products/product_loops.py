"""A product as loops: which dimensions are the rows, columns and sum of one matrix product, and which iterate products.

    dot_general q f32[2,64,4,32] k f32[2,64,4,32] -> [2,4,64,64]     batch 2 and 4, 64 rows and columns, sum 32

Operands and result are accessed in place: a dimension may have any stride, and be a mixed-radix index of several digits
(``core.index_maps``). One dimension of each side has to be contiguous, and so have the columns of the result. Sums are
over one dimension, or two for the packed kernels, in the order of the left operand. Which dimensions become rows and
columns is free, since every element is the same sum. Only if a side has no free extent but 1 is the product one of
vectors, which sum in another order: so this too depends only on the shapes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from weft._base.record import NamedTuple
from weft.core.index_maps import Digits, StridedView, dense, strides_in, strides_of
from weft.core.product_spaces import ProductSpace
from weft.core.symbolic import sizes

ENOUGH = 64  # rows or columns from which more make a product no faster
LONG_TERMS = 64  # terms side by side: windows with fewer lie in short pieces
LONG_ROWS, FEW_FACTORS = 256, 8192  # rows of a matrix that is worth reading in place; elements of the other


class StridedOperand(NamedTuple):
    """A variable that is not stored: it is read in ``source``; ``view`` None: it cannot be iterated there.

    ``starts``: the dynamic slice whose clamped starts shift the view, or None.
    """

    variable: Any
    source: Any
    view: StridedView | None
    starts: Any = None


class Loop(NamedTuple):
    """One dimension of the iteration: its extent, and strides in the left and right operand and the result."""

    extent: int
    left: int
    right: int
    result: int


class Loops(NamedTuple):
    """One product, and the loops over products, in the order of the result in memory.

    Rows, columns and sum are loops, outermost first. A product of matrices has one of each, or two for its sum.
    """

    rows: tuple[Loop, ...]
    columns: tuple[Loop, ...]
    summed: tuple[Loop, ...]
    batch: tuple[Loop, ...]

    @property
    def is_dense(self) -> bool:
        """Whether the result is contiguous: its rows, and the products."""
        follows = 1
        for loop in (*reversed(self.columns), *reversed(self.rows), *reversed(self.batch)):
            if loop.extent != 1 and loop.result != follows:
                return False
            follows *= loop.extent
        return True


_ONE = Loop(1, 0, 0, 0)


@sizes.cached(4096)
def loops(
    numbers: tuple[tuple[tuple[int, ...], tuple[int, ...]], tuple[tuple[int, ...], tuple[int, ...]]],
    left: tuple[Digits, ...],
    right: tuple[Digits, ...],
    order: tuple[int, ...] | None,
    sums: int = 1,
) -> Loops | None:
    """The loops of a product of operands with these views, or None if there are none.

    ``order`` has the axis (batch, left, right) of the product at each axis of the dense result, None if these are the
    same; ``sums`` is how many loops its kernels can sum over.
    """
    (left_sum, right_sum), (left_batch, right_batch) = numbers
    left_free = [dim for dim in range(len(left)) if dim not in left_sum and dim not in left_batch]
    right_free = [dim for dim in range(len(right)) if dim not in right_sum and dim not in right_batch]
    result = _result([left[dim] for dim in (*left_batch, *left_free)], [right[dim] for dim in right_free], order)
    n_batch, n_left = len(left_batch), len(left_free)
    terms = sorted(zip(left_sum, right_sum, strict=True))
    none: Sequence[None] = (None,) * max(len(left), len(right))
    batch = _walked([left[d] for d in left_batch], [right[d] for d in right_batch], result[:n_batch])
    rows = _walked([left[d] for d in left_free], none, result[n_batch : n_batch + n_left])
    columns = _walked(none, [right[d] for d in right_free], result[n_batch + n_left :])
    summed = _walked([left[d] for d, _ in terms], [right[d] for _, d in terms], none)
    if batch is None or rows is None or columns is None or summed is None:
        return None
    if len(summed) > (sums if rows and columns else 1):
        return None
    return _chosen(batch, rows, columns, *reversed([_ONE, _ONE, *summed][-2:]))


def _result(left: Sequence[Digits], right: Sequence[Digits], order: Sequence[int] | None) -> tuple[Digits, ...]:
    """The axes (batch, left, right) of a result that is dense as ``order`` has them."""
    extents = [math.prod([extent for extent, _ in digits]) for digits in (*left, *right)]
    if order is None:
        return dense(extents).dims
    strides = strides_of([extents[axis] for axis in order])
    return tuple([((extent, strides[order.index(axis)]),) for axis, extent in enumerate(extents)])


def _walked(
    left: Sequence[Digits | None],
    right: Sequence[Digits | None],
    result: Sequence[Digits | None],
) -> list[Loop] | None:
    """The loops over corresponding dimensions of up to three arrays, collapsed where all of them allow it.

    None if the dimensions of two arrays have different digits.
    """
    found: list[Loop] = []
    for trio in zip(left, right, result):
        given = [parts for parts in trio if parts is not None]
        longest = max(given, key=len)
        extents = [extent for extent, _ in longest]
        strides = [(0,) * len(extents) if parts is None else strides_in(parts, extents) for parts in trio]
        if None in strides:
            return None
        for extent, *steps in zip(extents, *strides):
            if extent == 1:
                continue
            last = found[-1] if found else None
            if last is not None and all(a == b * extent for a, b in zip(last[1:], steps, strict=True)):
                found[-1] = Loop(last.extent * extent, *steps)
            else:
                found.append(Loop(extent, *steps))
    return found


def _chosen(batch: list[Loop], rows: list[Loop], columns: list[Loop], summed: Loop, outer: Loop) -> Loops | None:
    """Choose the rows and columns of one product: the innermost ones, or longer ones if these are short."""
    best: tuple[int, int, int] | None = None
    for r in reversed(range(max(len(rows), 1))):
        row = rows[r] if rows else _ONE
        if summed.left != 1 != row.left and summed.extent != 1 != row.extent:
            continue
        for c in reversed(range(max(len(columns), 1))):
            column = columns[c] if columns else _ONE
            if column.result != 1 != column.extent:
                continue
            if summed.right != 1 != column.right and summed.extent != 1 != column.extent:
                continue
            size = min(row.extent, ENOUGH) * min(column.extent, ENOUGH)
            if best is None or size > best[0]:
                best = size, r, c
    if best is None:
        return None
    _, r, c = best
    others = sorted((*batch, *rows[:r], *rows[r + 1 :], *columns[:c], *columns[c + 1 :]), key=lambda loop: -loop.result)
    sums = (outer, summed) if outer.extent != 1 else (summed,)
    return Loops((rows[r] if rows else _ONE,), (columns[c] if columns else _ONE,), sums, tuple(others))


# products of strided views


def is_in_pieces(loops: Loops) -> bool:
    """Whether terms or results of windows lie in short pieces, so that a matrix unit gains less than packing takes."""
    term = loops.summed[-1]
    follow = all(outer.result == inner.extent * inner.result for outer, inner in itertools.pairwise(loops.rows))
    return term.left != 1 or term.extent < LONG_TERMS or not follow


@sizes.cached(4096)
def loops_of_space(space: ProductSpace) -> Loops | None:
    """The loops of a strided product; None if its columns are not side by side in the result."""
    order = range(len(space.axes)) if space.order is None else space.order
    strides = strides_of(space.shape)
    axes = [Loop(*axis, strides[order.index(i)]) for i, axis in enumerate(space.axes)]
    n_batch, n_rows = len(space.batch), len(space.rows)
    batch = tuple(sorted(_joined(axes[:n_batch]), key=lambda loop: -loop.result))
    rows, columns = _joined(axes[n_batch : n_batch + n_rows]), _joined(axes[n_batch + n_rows :])
    follows = 1
    for loop in reversed(columns):
        if loop.result != follows:
            return None
        follows *= loop.extent
    summed = _joined([Loop(*term, 0) for term in space.summed])
    few = len(columns) == len(summed) == 1 and columns[0].extent * summed[0].extent <= FEW_FACTORS
    if few and len(rows) == 2 and rows[1].extent >= LONG_ROWS:  # matrices that are read as they lie, one after another
        batch, rows = tuple(sorted((*batch, rows[0]), key=lambda loop: -loop.result)), rows[1:]
    return Loops(rows or (_ONE,), columns or (_ONE,), summed or (_ONE,), batch)


def _joined(loops: Sequence[Loop]) -> tuple[Loop, ...]:
    """Loops that walk on past each other's end as one, without those of one step."""
    found: list[Loop] = []
    for loop in loops:
        if loop.extent == 1:
            continue
        steps = [stride * loop.extent for stride in loop[1:]]
        if found and [*found[-1][1:]] == steps:
            found[-1] = Loop(found[-1].extent * loop.extent, *loop[1:])
        else:
            found.append(loop)
    return tuple(found)
