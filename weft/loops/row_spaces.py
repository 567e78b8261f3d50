"""Short rows on a CPU: when a row is compiled in, joined with others, interleaved, or walked by digits.

Lanes along a short last axis would be empty for the most part. Which of these answers a body gets follows from its
strides and from ``thresholds``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence

from weft.loops import ir, known_rows
from weft.loops.body import Body, reads_inside
from weft.loops.collapse import Loop, collapses, stride_class
from weft.loops.index_math import ZERO
from weft.loops.thresholds import PERMUTED, Thresholds, is_narrow

WORDS = "fiI"  # of four bytes


def whole_rows(body: Body, parallel: Sequence[Loop], lanes: int) -> list[Loop]:
    """The last dimensions, as digits, if they are one row of a length that is compiled in, of repeated elements.

    An operand that repeats elements, so that they are no row of it, has its own side by side along one of them.
    """
    if body.tree is not None or len(parallel) < 3 or not 1 < parallel[-1].extent <= known_rows.REPEATED[-1]:
        return []
    first, extent = len(parallel) - 1, parallel[-1].extent
    while first > 1 and extent * parallel[first - 1].extent <= known_rows.longest(lanes):
        first -= 1
        extent *= parallel[first].extent
    loops = parallel[first:]
    if len(loops) < 2 or is_narrow([loop.extent for loop in parallel]):
        return []
    if extent < known_rows.REPEATED[0] or math.prod([loop.extent for loop in parallel]) < known_rows.MANY:
        return []
    axes = joined(loops).axes
    keys = {axis.key for axis in axes}
    if any(isinstance(s, ir.LoadAt) for s in body.statements):
        return []  # places by an index have no digits
    if not keys.isdisjoint(body.indexed) or not known_rows.fits(body, keys, extent, lanes, more=known_rows.LIGHT):
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


def of_rows(
    body: Body, parallel: list[Loop], found: Thresholds, lanes: int
) -> tuple[list[Loop], list[Loop], list[Loop]]:
    """The loops of elements, the digits of the last one, and the loops whose extents are compiled in."""
    row = _known_row(body, parallel, found, lanes)
    if not row or lanes > PERMUTED:
        merged, digits = _collapse_short(body, parallel, found, only_windows=row)
        if digits:
            return merged, digits, []
        row = row or (lanes <= PERMUTED and _known_row(body, parallel, found, lanes, more=known_rows.MASKED))
    return parallel, [], parallel[-1:] if row else []


def _known_row(body: Body, parallel: Sequence[Loop], found: Thresholds, lanes: int, more: float = 0.0) -> bool:
    """Whether the extent of the rows is compiled in: short ones whose elements lie side by side in the results.

    ``more``: instructions that its vectors may take beyond those of vectors of which the last has a mask.
    """
    if found.row is None:
        return False
    keys = {axis.key for axis in parallel[-1].axes}
    if not known_rows.fits(body, keys, found.row, lanes, more):
        return False
    for operand in body.operands:
        along = stride_class(parallel[-1].stride(operand))
        if along != 1 and operand.role == "out":
            return False
        transposed = along == ir.RUNTIME and any(stride_class(loop.stride(operand)) == 1 for loop in parallel[:-1])
        if transposed and not known_rows.of_single_elements(found.row, lanes):
            return False  # it is transposed in registers
    return True


def is_interleaved(body: Body, parallel: Sequence[Loop], found: Thresholds, lanes: int) -> bool:
    """Whether results are interleaved vectors of elements, of operands whose own are side by side.

    Or rows of an operand lie at distances that are compiled in (``codegen.flat_rows``). If all lie as the results do,
    wide vectors are rather permuted by tables.
    """
    if not found.narrow or not body.is_plain:
        return False
    statements = body.statements
    if any(map(reads_inside, statements)):
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
