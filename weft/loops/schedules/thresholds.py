"""Decisions about a nest that depend on extents: whether its last dimensions are too narrow or too short for lanes.

Everything else about a nest follows from symbols and stride classes: two sizes of one kernel with the same answers have
the same nest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from weft._base.record import NamedTuple
from weft.core.symbolic.sizes import number
from weft.loops import ir
from weft.loops.reduction_tree import GROUP_BLOCKS
from weft.loops.schedules import blocks

# Lanes run along the last dimension but one if the last has at most NARROW elements, that one at least FILLING, and all
# dimensions but the last together more than FEW: small arrays share one nest, whatever their sizes.
NARROW = 4
FILLING = 16
APART = 64  # elements between narrow rows, up to which the distance is compiled in where that pays
LONG = 4096
FEW = 256
MANY = 16384  # elements of all short rows from which on their length is compiled in
TABLED = 1024  # minimum elements of a collapsed dimension for tables of its digits
PERMUTED = 8  # lanes of registers whose words are permuted by a vector of numbers
SHORT = 16  # rows up to this length are reduced or scanned with lanes across rows, if there are more than FEW
SHORT_OF_WORDS = 31  # as SHORT, if lanes across rows cost little to read; rows of 32 fill vectors themselves


class Thresholds(NamedTuple):
    """The answers."""

    # if the last is short: the parallel dimension from which on all may become one, with tables of digits
    first: int | None
    narrow: int  # if lanes lie across the last dimension but one: the extent of the last, to be compiled in; or 0
    fills: tuple[bool, bool]  # where ``first`` is known: whether the last dimension fills whole vectors, or half of one
    near: tuple[bool, ...]  # where ``first`` is known: the operands whose elements along it are a few apart
    windows: tuple[bool, ...]  # there too: whether each operand's elements of a vector lie within two vectors
    short: int | None  # the extent of rows that are reduced with lanes across them
    # if rows are narrow: for each operand the strides along rows and in them, or None where they are large
    apart: tuple[tuple[int, int] | None, ...]
    row: int | None  # the extent of rows with lanes along them, if they are short and many
    many: bool  # whether last axes of one element are left out, because there are many points
    long: bool  # whether a reduction has so many blocks that they go by groups


NOTHING_ASKED = Thresholds(None, 0, (False, False), (), (), None, (), None, False, False)  # one loop over everything


def thresholds(
    outer: Sequence[int],
    parallel: Sequence[int],
    rows: Sequence[int],
    reduced: Sequence[int],
    along: Callable[[], Sequence[tuple[int, int]]],
    lanes: int,
    units: bool,
    longest: int,
    block: int,
) -> Thresholds:
    """The answers for extents of dimensions around the nest, of parallel ones, of rows that lanes reduce, of all these.

    ``along`` gives the strides of the operands along the last two parallel dimensions. ``units``: whether there are
    last axes of one element. ``longest``: SHORT, or SHORT_OF_WORDS. ``block``: indices of the last reduced dimension in
    a block of the tree, or 0.
    """
    first = _first(parallel)
    fills, near, windows = (False, False), (), ()
    if first is not None:
        fills = (parallel[-1] % lanes == 0, 2 * parallel[-1] >= lanes)
        strides = along()
        near = tuple([abs(stride) <= NARROW for _, stride in strides])
        windows = tuple([_in_window(pair, parallel[-1], lanes) for pair in strides if first == len(parallel) - 2])
    many = units and are_many(outer, parallel)
    extent = _row(outer, parallel, lanes)
    narrow = parallel[-1] if is_narrow(parallel) else 0
    apart = tuple(map(_apart, along())) if narrow else ()
    short = _short(outer, parallel, rows, longest)
    long = bool(block) and math.prod(reduced[:-1]) * -(-reduced[-1] // block) > GROUP_BLOCKS
    return Thresholds(first, narrow, fills, near, windows, short, apart, extent, many, long)


def _apart(strides: tuple[int, int]) -> tuple[int, int] | None:
    """Strides of narrow rows, if they may be compiled in."""
    row, step = strides
    return (number(row), number(step)) if 1 < abs(row) <= APART and abs(step) <= NARROW else None


def _in_window(strides: tuple[int, int], extent: int, lanes: int) -> bool:
    """Whether the elements of ``lanes`` points, of rows of ``extent`` points, lie within twice as many elements."""
    row, step = strides
    gap = row - step * extent  # between the end of a row and the next one
    if lanes < PERMUTED or step < 0 or row < 0 or (gap < 0 and step):
        return False
    rows = (lanes - 2) // extent + 1  # ends of rows among them, at most
    return rows * max(gap, 0) + (lanes - 1) * step < 2 * lanes


def _first(parallel: Sequence[int]) -> int | None:
    if len(parallel) < 2 or not 1 < parallel[-1] <= ir.COLLAPSED:
        return None
    first = len(parallel) - 2
    while first and math.prod(parallel[first:]) <= ir.COLLAPSED:
        first -= 1
    return None if math.prod(parallel[first:]) < TABLED or math.prod(parallel) < LONG else first


def is_narrow(parallel: Sequence[int]) -> bool:
    """Whether the last dimension is too narrow for lanes. An extent of 1 is none: a batch of one has the same nest."""
    if len(parallel) < 2 or not 1 < parallel[-1] <= NARROW:
        return False
    return parallel[-2] >= FILLING and math.prod(parallel[:-1]) > FEW


def are_many(outer: Sequence[int], parallel: Sequence[int]) -> bool:
    """Whether there are so many points that a nest may be made for them."""
    return math.prod(outer) * math.prod(parallel) > FEW


def _row(outer: Sequence[int], parallel: Sequence[int], lanes: int) -> int | None:
    """The extent of the last dimension if a few vectors hold it, and there are enough of them."""
    if len(parallel) < 2 or not 1 < parallel[-1] <= blocks.longest(lanes):
        return None
    return parallel[-1] if math.prod(outer) * math.prod(parallel) >= MANY else None


def _short(outer: Sequence[int], parallel: Sequence[int], rows: Sequence[int], longest: int) -> int | None:
    """The extent of the rows if they are too short to fill the lanes, and enough rows can fill them instead."""
    if len(rows) != 1 or not parallel or parallel[-1] <= NARROW or not are_many(outer, parallel):
        return None
    return rows[0] if 1 < rows[0] <= longest else None
