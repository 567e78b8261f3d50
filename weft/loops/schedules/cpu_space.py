"""The space of a body on a CPU: the loops over its axes, and the loop that the lanes run along.

A rule answers for each way in which a kernel combines what it reduces, and ``row_spaces`` for short rows. Answers
follow from symbols and stride classes, so that every shape of a program gives the same space; what extents decide is in
``thresholds``. Parallel loops come first, in logical order. At most three (four where nothing is reduced) are in the
nest; the runtime iterates the outer ones.

    exp over axes (64, 128), operands dense   ->   one parallel loop of 8192 points, in lanes
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft._base.record import Record
from weft.loops import ir
from weft.loops.body import Body
from weft.loops.collapse import Loop, collapse, reduced_loops, split_outer, stride_class, unit_axes, without_units
from weft.loops.reduction_tree import BLOCK_LANES, BLOCK_ROWS, LANES
from weft.loops.schedules import costs, row_spaces
from weft.loops.schedules.thresholds import NOTHING_ASKED, SHORT, SHORT_OF_WORDS, Thresholds, are_many, thresholds

MAX_PARALLEL = 3  # parallel loops of a nest
MAX_OF_ELEMENTS = 4  # parallel loops of a nest that neither reduces nor updates
MANY_OPERATIONS = 8.0  # cost above which vectors compute the values of updates in order, by way of memory
UPDATE_COST = 3.0  # cheaper functions gain nothing from vectors in a loop that stores element by element
IN_REGISTERS = "fdilqIL"  # dtypes whose numbers need no rounding on their way to memory
FILLING = 8  # elements of a row from which on lanes lie along it, if rows are folded together
FILLING_WORDS = 16  # as FILLING, of words of four bytes in an extremum, whose combination tests for NaN
FOLDED = 4.0  # cost of a body up to which they are: its code is repeated for every row
STEPS = (2, 3, 4)  # strides along the lanes that may be compiled in


class Space(Record):
    """The loops of a body, outermost first.

    ``outer`` are iterated by the runtime. ``digits`` are no loops: they give the index along each axis of the last
    loop. ``extents``: those that are compiled in, of the nest's loops and the digits. ``vector``: the number of
    the loop whose index runs across the lanes. ``split``: whether the reduction may be cut at borders of blocks,
    ``long``: whether blocks go by groups.
    ``step``: the small stride along the lanes that is compiled in. ``runs``: whether the first loop is over the updates
    of a sorted scatter. ``apart``: each operand's strides along the last two loops, where they are compiled in.
    """

    outer: Sequence[Loop]
    parallel: Sequence[Loop]
    reduced: Sequence[Loop]
    digits: Sequence[Loop]
    extents: Sequence[int | None]
    vector: int | None
    apart: Sequence[tuple[int, int] | None]
    split: bool = False
    step: int | None = None
    runs: bool = False
    long: bool = False

    @property
    def loops(self) -> list[Loop]:
        """The loops of the nest, and the digits."""
        return [*self.parallel, *self.reduced, *self.digits]


class _Loops(Record):
    """The loops of a body before anything is decided by extents; ``rows``: the loop over rows that may be short."""

    outer: list[Loop]
    parallel: list[Loop]
    reduced: list[Loop]
    digits: list[Loop]
    rows: Sequence[Loop]
    longest: int  # elements of a row that is short
    block: int  # indices of the last reduced loop in a block, if the order of the combinations of blocks matters


def cpu_space(body: Body, lanes: int) -> tuple[Body, Space]:
    """A body, perhaps without its last axes of one element, and its space."""
    units = unit_axes(body)
    if units and are_many((), [axis.extent for axis in body.free]):
        body = without_units(body, units)
    parallel = collapse(body.free, body, ones=bool(body.tree))
    whole = row_spaces.whole_rows(body, parallel, lanes) if body.tree is None and len(parallel) > 2 else ()
    if whole:
        return body, _of_whole_rows(body, parallel, whole)
    loops = _loops(body, parallel)
    found = _thresholds(body, loops, lanes)
    if body.tree is None:
        return body, _of_elements(body, loops, found, lanes)
    if not loops.digits and _has_runs(body, loops.parallel, loops.reduced):
        return body, _of_runs(body, loops)
    return body, _of_reduction(body, loops, found)


def _loops(body: Body, parallel: list[Loop]) -> _Loops:
    reduced, digits = reduced_loops(body)
    if body.tree == "column" and not parallel:
        parallel = [Loop("parallel")]
    outer, parallel = split_outer(parallel, body, MAX_PARALLEL if body.tree else MAX_OF_ELEMENTS)
    rows = reduced if body.along_rows and not digits and _may_lie_across(body) else []
    longest = SHORT
    if rows:
        longest = LANES if _filling(body, rows) else _longest_short(body, parallel, rows)
    return _Loops(outer, parallel, reduced, digits, rows, longest, ordered_block(body))


# ---- the rules


def _of_whole_rows(body: Body, parallel: list[Loop], whole: Sequence[Loop]) -> Space:
    """Several short loops are one row of a length that is compiled in."""
    row = row_spaces.joined(whole)
    outer, inner = split_outer([*parallel[: len(parallel) - len(whole)], row], body, MAX_OF_ELEMENTS)
    extents = [*[None for _ in inner[:-1]], row.extent, *[loop.extent for loop in whole]]
    return Space(outer, inner, (), whole, extents, len(inner) - 1, _nowhere(body))


def _of_elements(body: Body, loops: _Loops, found: Thresholds, lanes: int) -> Space:
    """Nothing is reduced: lanes along the last loop, or along the one before where the last is narrow."""
    merged, digits, known, across = row_spaces.of_rows(body, loops.parallel, found, lanes)
    extents: list[int | None] = [None for _ in (*merged, *digits)]
    if known:
        extents[-1] = merged[-1].extent
    vector = len(merged) - (2 if across else 1) if merged else None
    apart = found.apart if known and across else _nowhere(body)
    step = None if digits or known else _step(body, merged)
    return Space(loops.outer, merged, (), digits, extents, vector, apart, step=step)


def _of_runs(body: Body, loops: _Loops) -> Space:
    """The updates of a sorted scatter, which threads share: the loop over them comes first."""
    parallel = [Loop("parallel", loops.reduced[0].axes), *loops.parallel]
    extents = [None for _ in parallel]
    return Space(loops.outer, parallel, (), (), extents, _vector(body, parallel, ()), _nowhere(body), runs=True)


def _of_reduction(body: Body, loops: _Loops, found: Thresholds) -> Space:
    """Lanes along what is reduced, or across it: over columns, and over rows that are short."""
    parallel, reduced, digits = loops.parallel, loops.reduced, loops.digits
    extents = [*[None for _ in parallel], *[found.short for _ in reduced], *[None for _ in digits]]
    along = not found.short or (bool(filling := _filling(body, reduced)) and found.short >= filling)
    vector = _vector(body, parallel, reduced) if along else len(parallel) - 1
    split = _may_split(body, [*parallel, *reduced], loops.outer)
    return Space(loops.outer, parallel, reduced, digits, extents, vector, _nowhere(body), split, long=found.long)


def _nowhere(body: Body) -> Sequence[None]:
    return [None for _ in body.operands]


# ---- what extents decide


def _thresholds(body: Body, loops: _Loops, lanes: int) -> Thresholds:
    """What ``thresholds`` says."""
    parallel = loops.parallel
    if len(parallel) <= 1 and not loops.rows and not loops.block:
        return NOTHING_ASKED
    around, lying, short, summed = [
        [loop.extent for loop in some] for some in (loops.outer, parallel, loops.rows, loops.reduced)
    ]

    def along() -> list[tuple[int, int]]:
        return [(parallel[-2].stride(o).elems, parallel[-1].stride(o).elems) for o in body.operands]

    return thresholds(around, lying, short, summed, along, lanes, False, loops.longest, loops.block)


# ---- what the statements decide


def _step(body: Body, parallel: Sequence[Loop]) -> int | None:
    """The small stride that operands have in common along the lanes, if it is the same at any size of this nest."""
    strides = [parallel[-1].stride(operand) for operand in body.operands] if parallel else []
    spread = {stride.elems for stride in strides if stride_class(stride) == ir.RUNTIME}
    if len(spread) != 1 or not spread <= set(STEPS):
        return None
    of_one_size = any(not operand.fixed or operand.starts is not None for operand in body.operands)  # see ``_call``
    return spread.pop() if of_one_size or all(stride.product == () for stride in strides) else None


def ordered_block(body: Body) -> int:
    """Indices in a block of a reduction whose bits depend on the order in which blocks are combined, otherwise 0."""
    if all(ir.is_exact(reduction) for *_, reductions in body.phases for reduction in reductions):
        return 0
    return BLOCK_LANES if body.tree == "row" else BLOCK_ROWS


def _may_lie_across(body: Body) -> bool:
    """Whether lanes may lie across short rows."""
    return not any(isinstance(s, ir.LoadAt | ir.Update) for s in body.statements)


def _filling(body: Body, rows: Sequence[Loop]) -> int:
    """Elements of a short row from which on lanes lie along it, if several are folded together; 0: at no length.

    Their bodies are cheap, and elements lie side by side. Words of four bytes are read across rows at little cost.
    Identities are left out, which would change the signs of complex zeros.
    """
    (_, first, reductions), *others = body.phases
    if body.tree != "row" or not reductions or any(inside or more for _, inside, more in others):
        return 0
    plain = all(isinstance(s, ir.Load | ir.Param | ir.Apply) for s in first)
    beside = all(stride_class(rows[0].stride(o)) in (0, 1) for o in body.operands)
    special = any(r.index is not None or np.dtype(r.accumulators[0][0]).kind == "c" for r in reductions)
    if not plain or not beside or special or costs.instructions(first) > FOLDED:
        return 0
    if all(o.dtype.itemsize == 4 for o in body.operands if rows[0].stride(o).elems):
        dear = any(reduction.kind.nan_wins for reduction in reductions)
        return 0 if sum([len(r.accumulators) for r in reductions]) > 1 else FILLING_WORDS if dear else FILLING
    return FILLING


def _longest_short(body: Body, parallel: Sequence[Loop], rows: Sequence[Loop]) -> int:
    """The longest rows that lanes may lie across.

    They may be longer where words of four bytes are read, which are transposed in registers, or where a row costs more
    than its loads: narrow elements are widened one vector after another, and positions are followed in every lane.
    """
    if not parallel:
        return SHORT
    read = [o for o in body.operands if o.role != "out" and rows[0].stride(o).elems and parallel[-1].stride(o).elems]
    largest = max([o.dtype.itemsize for o in read], default=4)
    if all(o.dtype.itemsize == 4 for o in read):
        return SHORT_OF_WORDS
    scans = any(isinstance(s, ir.Scan) for _, body, _ in body.phases for s in body)
    positions = any(reduction.index is not None for *_, reductions in body.phases for reduction in reductions)
    return SHORT_OF_WORDS if positions or (largest < 4 and not scans) else SHORT


def _vector(body: Body, parallel: Sequence[Loop], reduced: Sequence[Loop]) -> int | None:
    """The dimension whose index runs across the lanes."""
    if body.tree == "order" and not (parallel and _updates_by_lanes(body, parallel[-1])):
        return len(parallel) + len(reduced) - 1 if reduced and _calls_functions(body) else None
    if body.tree == "row":
        return len(parallel) + len(reduced) - 1
    if body.tree == "scan" and body.along_rows:
        return None
    return len(parallel) - 1 if parallel else None


def _calls_functions(body: Body) -> bool:
    """Whether updates, which are stored one by one, use functions or operations enough for vectors."""
    costs = [s.kind.cost for phase in body.phases for s in phase[1] if isinstance(s, ir.Apply)]
    return max(costs, default=0.0) > UPDATE_COST or sum(costs) >= MANY_OPERATIONS


def _updates_by_lanes(body: Body, loop: Loop) -> bool:
    """Whether a scatter's lanes write adjacent elements: the starts do not depend on the lane."""
    keys = {axis.key for axis in loop.axes}
    if any(result is not None and not keys.isdisjoint(result.axes) for result in body.results):
        return False
    return all(stride_class(loop.stride(o)) == 1 for o in body.operands if o.role == "out")


def _has_runs(body: Body, parallel: Sequence[Loop], reduced: Sequence[Loop]) -> bool:
    """Whether the updates of a scatter can be cut among threads: sorted, so that those of one target follow each other.

    The updates of a single element in a register are not cut if vectors compute them (``codegen/nests/ordered.py``).
    """
    if len(parallel) >= MAX_PARALLEL or not has_sorted_targets(body, parallel, reduced):
        return False
    if parallel:
        return _updates_by_lanes(body, parallel[-1])
    return _fits_register(body) and not _calls_functions(body)


def has_sorted_targets(body: Body, parallel: Sequence[Loop], reduced: Sequence[Loop]) -> bool:
    """Whether the updates of a target follow each other: those of a sorted scatter, at every point of other loops."""
    if body.tree != "order" or len(reduced) != 1 or len(body.results) != 1:
        return False
    (scatter,) = body.results
    if scatter is None or not scatter.is_sorted:
        return False
    keys = {axis.key for loop in parallel for axis in loop.axes}
    if not keys.isdisjoint(scatter.axes):
        return False
    # along a window targets differ, though they start at one offset
    return all(stride_class(reduced[0].stride(o)) == 0 for o in body.operands if o.role == "out")


def _fits_register(body: Body) -> bool:
    """Whether the element that is updated is one number that needs no rounding on its way to memory."""
    return all(o.dtype.char in IN_REGISTERS for o in body.operands if o.role == "out")


def _may_split(body: Body, loops: Sequence[Loop], outer: Sequence[Loop]) -> bool:
    """Whether a reduction may be cut at block borders: one reducing phase, over everything or for each column."""
    reducing = [phase for phase in body.phases if phase[2]]
    if len(reducing) != 1 or body.rows:
        return False
    if body.tree == "row":
        return len(loops) == 1
    bodies = [phase for phase in body.phases[1:] if phase[1]]
    return body.tree == "column" and len(loops) == 2 and not outer and bool(body.phases[0][2]) and not bodies
