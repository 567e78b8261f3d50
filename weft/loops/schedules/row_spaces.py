"""Short rows on a CPU: when they are blocks of points at known distances, joined with others, or walked by digits.

Lanes along a short last axis would be empty for the most part. Which of these answers a body gets follows from its
strides and from ``thresholds``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from typing import Any

from weft._base.record import NamedTuple
from weft.loops import ir
from weft.loops.body import Body, reads_inside
from weft.loops.collapse import Loop, collapses, stride_class
from weft.loops.index_math import ZERO
from weft.loops.schedules import blocks, costs, uniform
from weft.loops.schedules.thresholds import MANY, NARROW, PERMUTED, Thresholds, is_narrow

WORDS = "fiI"  # of four bytes
LIGHT = 40.0  # cost of the bodies of all vectors of a row
SIMPLE = 2.0  # cost of an operation that takes as long for two lanes as for eight, and is done as soon
COMPUTED = 1.25  # elements that are computed for each of a row, if operations take longer
OF_ELEMENTS = range(6, 32)  # elements of rows of transposed operands that are put together from single elements
MASKED = 8.0  # cost of what a vector with a mask takes longer
SINGLE = 2.0  # cost of an access to one element, of narrow rows with lanes across them
REPEATED = 4, 16  # least elements of a row of short rows, and most of each: a loop over few rows takes longer
ROW_STATEMENTS = (ir.Load, ir.Store, ir.Param, ir.Apply, ir.IndexOf, ir.LoadAt)


def whole_rows(body: Body, parallel: Sequence[Loop], lanes: int) -> list[Loop]:
    """The last dimensions, as digits, if they are one row of a length that is compiled in, of repeated elements.

    An operand that repeats elements, so that they are no row of it, has its own side by side along one of them.
    """
    if not 1 < parallel[-1].extent <= REPEATED[-1]:
        return []
    first, extent = len(parallel) - 1, parallel[-1].extent
    while first > 1 and extent * parallel[first - 1].extent <= blocks.longest(lanes):
        first -= 1
        extent *= parallel[first].extent
    loops = parallel[first:]
    if len(loops) < 2 or is_narrow([loop.extent for loop in parallel]):
        return []
    if extent < REPEATED[0] or math.prod([loop.extent for loop in parallel]) < MANY:
        return []
    axes = joined(loops).axes
    keys = {axis.key for axis in axes}
    if any(isinstance(s, ir.LoadAt) for s in body.statements):
        return []  # accesses by an index have no digits
    if not keys.isdisjoint(body.indexed) or not _fits(body, keys, extent, lanes, more=LIGHT):
        return []
    for operand in body.operands:
        row = all(collapses(operand, *pair) for pair in itertools.pairwise(axes))
        row = row and stride_class(loops[-1].stride(operand)) == 1
        if not row and (
            operand.role == "out" or any(stride_class(loop.stride(operand)) not in (0, 1) for loop in loops)
        ):
            return []
    return [Loop("digit", loop.axes) for loop in loops]


def joined(loops: Sequence[Loop]) -> Loop:
    """Several loops as one."""
    return Loop("parallel", [axis for loop in loops for axis in loop.axes])


class Rows(NamedTuple):
    """Loops over elements: ``digits`` of the last one, whether its extent is ``known``, and lanes lie ``across`` it."""

    loops: list[Loop]
    digits: Sequence[Loop] = ()
    known: bool = False
    across: bool = False


def of_rows(body: Body, parallel: list[Loop], found: Thresholds, lanes: int) -> Rows:
    """What becomes of short rows: blocks of points at known distances, one loop with digits, or none of these."""
    if _is_narrow_block(body, parallel, found, lanes):
        return Rows(parallel, known=True, across=True)
    row = _is_known_row(body, parallel, found, lanes)
    if not row or lanes > PERMUTED:
        merged, digits = _collapse_short(body, parallel, found, only_windows=row)
        if digits:
            return Rows(merged, digits)
        row = row or (lanes <= PERMUTED and _is_known_row(body, parallel, found, lanes, more=MASKED))
    return Rows(parallel, known=row, across=bool(found.narrow) and not row)


def _is_known_row(body: Body, parallel: Sequence[Loop], found: Thresholds, lanes: int, more: float = 0.0) -> bool:
    """Whether lanes lie along short rows of a known extent, whose elements lie side by side in the results.

    ``more``: instructions that its vectors may take beyond those of whole vectors with a last one under a mask.
    """
    if found.row is None or not _fits(body, {axis.key for axis in parallel[-1].axes}, found.row, lanes, more):
        return False
    for operand in body.operands:
        along = stride_class(parallel[-1].stride(operand))
        if along != 1 and operand.role == "out":
            return False
        # longer rows of transposed operands are blocks transposed in registers; with few lanes those are seldom whole
        transposed = along == ir.RUNTIME and any(stride_class(loop.stride(operand)) == 1 for loop in parallel[:-1])
        if transposed and not (lanes <= PERMUTED and found.row in OF_ELEMENTS):
            return False
    return True


def _fits(body: Body, row: Collection[int], extent: int, lanes: int, more: float = 0.0) -> bool:
    """Whether the statements may be written for the vectors of a row, along the axes ``row``.

    ``more``: instructions that they may take beyond those of the fewest vectors with as many elements.
    """
    statements: list[Any] = body.statements
    if not all(isinstance(s, ROW_STATEMENTS) and not reads_inside(s) for s in statements):
        return False

    def moves(s: ir.Load | ir.LoadAt | ir.IndexOf) -> bool:
        if isinstance(s, ir.IndexOf):
            return s.dim in row
        strides = body.operands[s.operand].strides
        return any(key in strides and strides[key].factor for key in row)

    differ, count = uniform.differing(statements, moves), len(blocks.along(extent, lanes)[1])
    computed = [s for s in statements if isinstance(s, ir.Apply) and s.out in differ]
    if costs.instructions(statements) * count > LIGHT:
        return False
    simple = all(s.kind.cost <= SIMPLE and not s.kind.waits for s in computed)
    if simple or lanes * count <= COMPUTED * extent:
        return True
    if more and costs.instructions(computed) * (count + extent // -lanes) <= more:
        return True
    moved = sum(isinstance(s, ir.Load | ir.LoadAt | ir.Store) for s in statements)
    return extent <= NARROW and costs.instructions(computed) * (count - extent / lanes) <= SINGLE * extent * moved


def _is_narrow_block(body: Body, parallel: Sequence[Loop], found: Thresholds, lanes: int) -> bool:
    """Whether narrow rows are stored as whole vectors: rows or columns of the operands lie side by side.

    Or rows of an operand lie at distances that are compiled in. If all lie as the results do, wide vectors are rather
    permuted by tables.
    """
    statements = body.statements
    if not found.narrow or not body.is_plain or any(map(reads_inside, statements)):
        return False
    beside, otherwise = False, lanes <= PERMUTED
    for operand, apart in zip(body.operands, found.apart, strict=True):
        if operand.role == "out" and apart != (found.narrow, 1):
            return False
        if operand.role != "out" and stride_class(parallel[-2].stride(operand)) not in (0, 1):
            if apart is None:
                return False
            beside, otherwise = True, otherwise or apart != (found.narrow, 1)
    keys = {axis.key for loop in parallel[-2:] for axis in loop.axes}
    return not beside or (otherwise and all(_is_known_there(s, keys) for s in statements))


def _is_known_there(s: ir.Statement, keys: Collection[int]) -> bool:
    return not isinstance(s, ir.LoadAt | ir.Guard) and not (isinstance(s, ir.IndexOf) and s.dim in keys)


def _collapse_short(
    body: Body, parallel: list[Loop], found: Thresholds, only_windows: bool
) -> tuple[list[Loop], list[Loop]]:
    """Collapse the short last dimensions with the one before them; gives the dimensions, and the digits (none if not).

    Rows that are not a whole number of vectors leave lanes empty. Stores must be contiguous along all these dimensions.
    """
    first = found.first
    if first is None or not body.is_plain:
        return parallel, []
    merged = Loop("parallel", [axis for loop in parallel[first:] for axis in loop.axes])
    pairs = list(itertools.pairwise(merged.axes))
    apart = [o for o in body.operands if not all(collapses(o, *pair) for pair in pairs)]
    if any(o.role == "out" and (o in apart or stride_class(merged.stride(o)) != 1) for o in body.operands):
        return parallel, []
    if any(body.operands[s.operand] in apart for phase in body.phases for s in phase[1] if reads_inside(s)):
        return parallel, []
    gathered = [n for n, o in enumerate(body.operands) if o in apart and parallel[first].stride(o) != ZERO]
    if (found.narrow or only_windows) and not all(_is_window(body, found, number) for number in gathered):
        return parallel, []  # they would be gathered element by element
    if gathered and not found.narrow and _fills(found, gathered):
        return parallel, []
    return [*parallel[:first], merged], [Loop("digit", loop.axes) for loop in parallel[first:]]


def _is_window(body: Body, found: Thresholds, number: int) -> bool:
    """Whether the lanes of an operand are picked from two vectors side by side."""
    return bool(found.windows) and found.windows[number] and body.operands[number].dtype.char in WORDS


def _fills(found: Thresholds, gathered: Sequence[int]) -> bool:
    """Whether rows fill the lanes: completely, or half of them if no operand is gathered from distant addresses."""
    whole, half = found.fills
    return whole or (half and all(found.near[number] for number in gathered))
