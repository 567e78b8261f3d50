"""Makes a nest of a draft: collapses axes, chooses the vector dimension, collects the parameters.

Decisions follow from symbols and stride classes, so that every shape of a program gives the same nest. What extents
decide is in ``thresholds``. Parallel dimensions come first, in logical order. At most three (four where
nothing is reduced) stay in the nest; the runtime iterates the outer ones.

    exp over axes (64, 128), operands dense   ->   nest "parallel i0 lanes x16", called with i0 = 8192
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

import numpy as np

from weft._base.record import NamedTuple, Record, field
from weft.loops import ir, known_rows, neighbours, printer, unit_axes
from weft.loops.index_math import ZERO, Product, Stride, follows
from weft.loops.resize import Asked, OfThisSize, Sizing, term, words_of
from weft.loops.thresholds import (
    NOTHING_ASKED,
    PERMUTED,
    SHORT,
    SHORT_OF_WORDS,
    Thresholds,
    are_many,
    is_narrow,
    thresholds,
)

if TYPE_CHECKING:
    from weft.loops.kernel import Axis, Kernel
    from weft.loops.lower import Draft, OperandDraft

MAX_PARALLEL = 3
MANY_OPERATIONS = 8.0  # cost from which values of updates in order are computed by vectors, stored and loaded again
MAX_OF_ELEMENTS = 4  # the same of nests that neither reduce nor update
BLOCK_ROWS = 256  # rows in a block of a split column reduction, as in docs/NUMERICS.md
BLOCK = 8192  # elements in a block of a split row
UPDATE_COST = 3.0  # cheaper functions gain nothing from vectors in a loop that stores element by element
STEPS = (2, 3, 4)  # strides along the lanes that may be compiled in
WORDS = "fiI"  # of four bytes
ONE = Stride(1, 1, ())

Scalars = Sequence[tuple[np.dtype, Any]]


class Binding(NamedTuple):
    """An operand of a nest at the present sizes: a buffer, an offset, and strides in elements."""

    variable: Any
    role: str
    offset: int
    strides: tuple[int, ...]
    outer: tuple[int, ...]  # strides, in elements, of the dimensions around the nest
    starts: Any
    dtype: np.dtype


class Lowered(Record):
    """A nest and the arguments of one call of it."""

    name: str
    nest: ir.Nest
    operands: tuple[Binding, ...]
    extents: tuple[int, ...]
    outer: tuple[int, ...]  # extents
    params: bytes
    sizing: Sizing | None = None  # how the numbers follow from extents of the axes, if they may be known at other sizes

    def describe(self) -> str:
        sizes = "x".join(str(extent) for extent in (*self.outer, *self.extents))
        return f"{printer.text(self.nest)}\n  at {sizes or 'one point'}"

    @property
    def points(self) -> int:
        """The number of points of the kernel's whole space."""
        return math.prod(self.space)

    @property
    def space(self) -> tuple[int, ...]:
        """Extents of all loops, around the nest and inside it."""
        return (*self.outer, *self.extents[: len(self.extents) - len(self.nest.digits)])


class _Loop(Record, frozen=False):
    """A dimension being built: the axes collapsed into it, outer to inner."""

    role: Literal["parallel", "reduced", "digit"]
    axes: list[Axis] = field(default_factory=list)

    @property
    def extent(self) -> int:
        extent = 1
        for axis in self.axes:
            extent *= axis.extent
        return extent

    @property
    def symbols(self) -> Product:
        """The symbols whose product the extent is."""
        return tuple([axis.symbol for axis in self.axes])

    def stride(self, operand: OperandDraft) -> Stride:
        """The stride of an operand along this loop: that of its innermost axis."""
        if not self.axes:  # a single point counts as contiguous, as stores need it
            return ONE if operand.role == "out" else ZERO
        return operand.strides.get(self.axes[-1].key, ZERO)


def scalar_words(scalars: Scalars) -> bytes:
    """The scalars at the end of a parameter block."""
    words = b""
    for dtype, value in scalars:
        data = np.asarray(value, dtype).tobytes()
        words += data + bytes(-len(data) % 8)
    return words


def schedule(source: Kernel, draft: Draft, lanes: int, sized: bool = False) -> Lowered:
    """The nest of a draft, and the arguments of its call; ``sized``: with what gives them at other sizes."""
    free: Sequence[Axis] = [axis for axis in source.axes if axis.key not in source.reduced]
    units = unit_axes.last(source, draft, free)
    if units and are_many((), [axis.extent for axis in free]):
        draft, free = unit_axes.without(draft, units), free[: -len(units)]
    parallel = _collapse(free, draft, ones=bool(source.tree))
    reduced, digits = _reduced_loops(source, draft)
    if source.tree == "rows" and not parallel:
        parallel = [_Loop("parallel")]
    whole = _whole_rows(source, draft, parallel, lanes)
    parallel = [*parallel[: len(parallel) - len(whole)], *_joined(whole)]
    outer, parallel = _split_outer(parallel, draft, MAX_PARALLEL if source.tree else MAX_OF_ELEMENTS)
    rows = reduced if _along_rows(source) and not digits and _may_lie_across(draft) else []
    longest = _longest_short(draft, parallel, rows) if rows else SHORT
    asked = _asked(draft, outer, parallel, rows, lanes, bool(units), longest) if sized and not whole else None
    found = _thresholds(draft, outer, parallel, rows, lanes, longest) if len(parallel) > 1 or rows else NOTHING_ASKED
    known: Sequence[_Loop] = ()
    if whole:
        digits, known = whole, [parallel[-1], *whole]
    elif source.tree is None:
        parallel, digits, known = _with_rows(draft, parallel, found, lanes)
    interleaved = bool(known) and not digits and _is_interleaved(draft, parallel, found, lanes)
    narrow = bool(found.narrow) and not digits and (not known or interleaved)
    known_apart = found.apart if interleaved else [None] * len(draft.operands)
    runs = not digits and _has_runs(source, draft, parallel, reduced)
    if runs:
        parallel, reduced = [_Loop("parallel", reduced[0].axes), *parallel], []
    loops = parallel + reduced
    strides = [_strides(operand, loops, digits) for operand in draft.operands]
    nest = ir.Nest(
        dims=tuple(
            [
                ir.Dim(loop.role, _known_extent(loop, known, reduced, found), runs and d == 0)
                for d, loop in enumerate((*loops, *digits))
            ]
        ),
        operands=tuple(
            [
                ir.Operand(operand.dtype, "out" if operand.role == "out" else "in", _classes(row), None, apart)
                for operand, row, apart in zip(draft.operands, strides, known_apart, strict=True)
            ]
        ),
        scalars=tuple([dtype for dtype, _ in draft.scalars]),
        rows=tuple(draft.rows),
        vector=len(parallel) - 1 if found.short else _vector(source, draft, parallel, reduced, narrow),
        width=lanes,
        split=_may_split(source, draft, loops, outer),
        setup=tuple(draft.setup),
        phases=_phases(draft, [*loops, *digits]),
        name=source.name,
        step=_step(draft, parallel) if source.tree is None and not digits and not known else None,
    )
    return _call(nest, draft, [*loops, *digits], strides, outer, None if runs else asked)


def _asked(
    draft: Draft,
    outer: Sequence[_Loop],
    parallel: Sequence[_Loop],
    rows: Sequence[_Loop],
    lanes: int,
    units: bool,
    longest: int,
) -> Asked:
    """What ``thresholds`` is asked, for any sizes."""
    moving = draft.operands if len(parallel) > 1 else []
    along, above = (tuple([term(parallel[k].stride(operand)) for operand in moving]) for k in (-1, -2))
    around, lying, summed = [tuple([loop.symbols for loop in loops]) for loops in (outer, parallel, rows)]
    return Asked(around, lying, summed, along, above, lanes, units, longest)


def _thresholds(
    draft: Draft, outer: Sequence[_Loop], parallel: Sequence[_Loop], rows: Sequence[_Loop], lanes: int, longest: int
) -> Thresholds:
    """What ``thresholds`` says at the present sizes."""
    around, lying = [loop.extent for loop in outer], [loop.extent for loop in parallel]
    summed = [loop.extent for loop in rows]

    def along() -> list[tuple[int, int]]:
        return [(parallel[-2].stride(o).elems, parallel[-1].stride(o).elems) for o in draft.operands]

    return thresholds(around, lying, summed, along, lanes, False, longest)


def _call(
    nest: ir.Nest,
    draft: Draft,
    loops: Sequence[_Loop],
    strides: Sequence[tuple[Stride, ...]],
    outer: Sequence[_Loop],
    asked: Asked | None,
) -> Lowered:
    """The call of a nest at the present sizes: its buffers, and the block of its parameters."""
    extents = tuple([loop.extent for loop in loops])
    words = list(extents)
    bindings = []
    at_run_time = []
    for operand, kind, row in zip(draft.operands, nest.operands, strides, strict=True):
        elements = tuple([stride.elems for stride in row])
        given = [stride for stride, known in zip(row, kind.strides, strict=True) if known == ir.RUNTIME]
        words += [stride.elems for stride in given]
        at_run_time += given
        around = tuple([loop.stride(operand).elems for loop in outer])
        bindings.append(
            Binding(operand.variable, operand.role, operand.offset, elements, around, operand.starts, operand.dtype)
        )
    scalars = scalar_words(draft.scalars)
    params = struct.pack(f"<{len(words)}q", *words) + scalars
    nest = neighbours.marked(nest, bindings)
    sizing = None
    of_this_size = any(type(value) is OfThisSize for _, value in draft.scalars)
    if asked is not None and not of_this_size and all(op.fixed and op.starts is None for op in draft.operands):
        around = [[term(loop.stride(operand), operand.dtype.itemsize) for operand in draft.operands] for loop in outer]
        sizing = Sizing(
            tuple([loop.symbols for loop in loops]), tuple([loop.symbols for loop in outer]),
            tuple([term(stride) for stride in at_run_time]), tuple(map(tuple, around)), scalars,
            words_of(draft.scalars), asked, tuple([tuple(map(term, row)) for row in strides]),
        )  # fmt: skip
    return Lowered(nest.name, nest, tuple(bindings), extents, tuple([loop.extent for loop in outer]), params, sizing)


def _strides(operand: OperandDraft, loops: Sequence[_Loop], digits: Sequence[_Loop]) -> tuple[Stride, ...]:
    """Strides along the loops and digits: the last loop's stands for all digits, or each digit has its own."""
    if not digits:
        return tuple([loop.stride(operand) for loop in loops])
    if all(_collapses(operand, left, right) for left, right in itertools.pairwise(loops[-1].axes)):
        return (*[loop.stride(operand) for loop in loops], *[ZERO for _ in digits])
    return (*[loop.stride(operand) for loop in loops[:-1]], ZERO, *[loop.stride(operand) for loop in digits])


def _collapse(
    axes: Sequence[Axis], draft: Draft, role: Literal["parallel", "reduced", "digit"] = "parallel", ones: bool = False
) -> list[_Loop]:
    """Collapse adjacent axes where every operand allows it.

    ``ones``: a batch of one joins an axis whose index is read, so that the rows can be cut among threads.
    """
    loops: list[_Loop] = []
    for axis in axes:
        if loops and _joins(loops[-1], axis, draft, ones):
            loops[-1].axes.append(axis)
        else:
            loops.append(_Loop(role, [axis]))
    return loops


def _joins(loop: _Loop, inner: Axis, draft: Draft, ones: bool) -> bool:
    indexed = any(axis.key in draft.indexed for axis in loop.axes)
    if ones and not indexed and inner.key in draft.indexed and loop.extent == 1:
        return True
    if indexed or inner.key in draft.indexed:
        return False
    return all(_collapses(operand, loop.axes[-1], inner) for operand in draft.operands)


def _collapses(operand: OperandDraft, outer: Axis, inner: Axis) -> bool:
    """Whether two axes can be collapsed for an operand."""
    return follows(operand.strides.get(outer.key, ZERO), operand.strides.get(inner.key, ZERO), inner.symbol)


def _reduced_loops(source: Kernel, draft: Draft) -> tuple[list[_Loop], list[_Loop]]:
    """Outer reduced dimensions in order, then the flattened run; and its digits if an operand needs them."""
    by_key = {axis.key: axis for axis in source.axes}
    axes = [by_key[key] for key in source.reduced]
    if not axes:
        return [], []
    outer, run = axes[: len(axes) - source.run], axes[len(axes) - source.run :]
    digits = _collapse(run, draft, "digit")
    loops = [*[_Loop("reduced", [axis]) for axis in outer], _Loop("reduced", run)]
    return loops, digits if len(digits) > 1 else []


def _split_outer(parallel: list[_Loop], draft: Draft, most: int) -> tuple[list[_Loop], list[_Loop]]:
    """(outer dimensions for the runtime, at most ``most`` others); a dimension whose index is read is never outer."""
    outer: list[_Loop] = []
    inner = list(parallel)
    for loop in parallel[:-1]:
        if len(inner) <= most:
            break
        if not any(axis.key in draft.indexed for axis in loop.axes):
            outer.append(loop)
            inner.remove(loop)
    return outer, inner


def _collapse_short(
    draft: Draft, parallel: list[_Loop], found: Thresholds, only_windows: bool
) -> tuple[list[_Loop], list[_Loop]]:
    """Collapse the short last dimensions with the one before them; gives the dimensions, and the digits (none if not).

    Rows that are not a whole number of vectors leave lanes empty. Stores must be contiguous along all these dimensions.
    """
    first = found.first
    if first is None or not all(map(_is_plain, draft.phases)):
        return parallel, []
    merged = _Loop("parallel", [axis for loop in parallel[first:] for axis in loop.axes])
    pairs = list(itertools.pairwise(merged.axes))
    apart = [o for o in draft.operands if not all(_collapses(o, *pair) for pair in pairs)]
    if any(o.role == "out" and (o in apart or _class(merged.stride(o)) != 1) for o in draft.operands):
        return parallel, []
    if any(draft.operands[s.operand] in apart for phase in draft.phases for s in phase[1] if _reads_inside(s)):
        return parallel, []
    gathered = [n for n, o in enumerate(draft.operands) if o in apart and parallel[first].stride(o) != ZERO]
    if (found.narrow or only_windows) and not all(_is_window(draft, found, number) for number in gathered):
        return parallel, []  # they would be gathered element by element
    if gathered and not found.narrow and _fills(found, gathered):
        return parallel, []
    return [*parallel[:first], merged], [_Loop("digit", loop.axes) for loop in parallel[first:]]


def _known_row(draft: Draft, parallel: Sequence[_Loop], found: Thresholds, lanes: int, more: float = 0.0) -> bool:
    """Whether the extent of the rows is compiled in: short ones whose elements lie side by side in the results.

    ``more``: instructions that its vectors may take beyond those of vectors of which the last has a mask.
    """
    if found.row is None:
        return False
    keys = {axis.key for axis in parallel[-1].axes}
    if not known_rows.fits(draft, keys, found.row, lanes, more):
        return False
    for operand in draft.operands:
        along = _class(parallel[-1].stride(operand))
        if along != 1 and operand.role == "out":
            return False
        transposed = along == ir.RUNTIME and any(_class(loop.stride(operand)) == 1 for loop in parallel[:-1])
        if transposed and not known_rows.of_single_elements(found.row, lanes):
            return False  # it is transposed in registers
    return True


def _with_rows(
    draft: Draft, parallel: list[_Loop], found: Thresholds, lanes: int
) -> tuple[list[_Loop], list[_Loop], list[_Loop]]:
    """The dimensions of elements, the digits of the last one, and the dimensions whose extents are compiled in."""
    if _is_interleaved(draft, parallel, found, lanes):
        return parallel, [], parallel[-1:]
    row = _known_row(draft, parallel, found, lanes)
    if not row or lanes > PERMUTED:
        merged, digits = _collapse_short(draft, parallel, found, only_windows=row)
        if digits:
            return merged, digits, []
        row = row or (lanes <= PERMUTED and _known_row(draft, parallel, found, lanes, more=known_rows.MASKED))
    return parallel, [], parallel[-1:] if row else []


def _known_extent(loop: _Loop, known: Sequence[_Loop], reduced: Sequence[_Loop], found: Thresholds) -> int | None:
    if any(loop is one for one in known):
        return loop.extent
    return found.short if loop in reduced else None


def _joined(loops: Sequence[_Loop]) -> list[_Loop]:
    return [_Loop("parallel", [axis for loop in loops for axis in loop.axes])] if loops else []


def _whole_rows(source: Kernel, draft: Draft, parallel: Sequence[_Loop], lanes: int) -> list[_Loop]:
    """The last dimensions, as digits, if they are one row of a length that is compiled in, of repeated elements.

    Of an operand of which they are no row the elements lie side by side along one of them.
    """
    if source.tree is not None or len(parallel) < 3 or not 1 < parallel[-1].extent <= known_rows.REPEATED[-1]:
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
    axes = _joined(loops)[0].axes
    keys = {axis.key for axis in axes}
    if any(isinstance(s, ir.LoadAt) for phase in draft.phases for s in (*phase[0], *phase[1])):
        return []  # places by an index have no digits
    if not keys.isdisjoint(draft.indexed) or not known_rows.fits(draft, keys, extent, lanes, more=known_rows.LIGHT):
        return []
    for operand in draft.operands:
        row = all(_collapses(operand, *pair) for pair in itertools.pairwise(axes))
        row = row and _class(loops[-1].stride(operand)) == 1
        if not row and (operand.role == "out" or any(_class(loop.stride(operand)) not in (0, 1) for loop in loops)):
            return []
    return [_Loop("digit", loop.axes) for loop in loops]


def _is_interleaved(draft: Draft, parallel: Sequence[_Loop], found: Thresholds, lanes: int) -> bool:
    """Whether results are interleaved vectors of elements, of operands whose own are side by side.

    Or rows of an operand lie at distances that are compiled in (``codegen.flat_rows``). If all lie as the results do,
    wide vectors are rather permuted by tables.
    """
    if not found.narrow or not all(map(_is_plain, draft.phases)):
        return False
    statements = [s for phase in draft.phases for s in (*phase[0], *phase[1])]
    if any(map(_reads_inside, statements)):
        return False
    beside, otherwise = False, lanes <= PERMUTED
    for operand, apart in zip(draft.operands, found.apart, strict=True):
        if operand.role == "out" and apart != (found.narrow, 1):
            return False
        if operand.role != "out" and _class(parallel[-2].stride(operand)) not in (0, 1):
            if apart is None:
                return False
            beside, otherwise = True, otherwise or apart != (found.narrow, 1)
    keys = {axis.key for loop in parallel[-2:] for axis in loop.axes}
    return not beside or (otherwise and all(_is_known_there(s, keys) for s in statements))


def _step(draft: Draft, parallel: Sequence[_Loop]) -> int | None:
    """The small stride that operands have in common along the lanes, if it is the same at any size of this nest."""
    strides = [parallel[-1].stride(operand) for operand in draft.operands] if parallel else []
    spread = {stride.elems for stride in strides if _class(stride) == ir.RUNTIME}
    if len(spread) != 1 or not spread <= set(STEPS):
        return None
    of_one_size = any(not operand.fixed or operand.starts is not None for operand in draft.operands)  # see ``_call``
    return spread.pop() if of_one_size or all(stride.product == () for stride in strides) else None


def _is_known_there(s: ir.Statement, keys: Collection[int]) -> bool:
    return not isinstance(s, ir.LoadAt | ir.Guard) and not (isinstance(s, ir.IndexOf) and s.dim in keys)


def _is_window(draft: Draft, found: Thresholds, number: int) -> bool:
    """Whether the lanes of an operand are picked from two vectors side by side."""
    return bool(found.windows) and found.windows[number] and draft.operands[number].dtype.char in WORDS


def _fills(found: Thresholds, gathered: Sequence[int]) -> bool:
    """Whether rows fill the lanes: completely, or half of them if no operand is gathered from distant addresses."""
    whole, half = found.fills
    return whole or (half and all(found.near[number] for number in gathered))


def _is_plain(phase: Any) -> bool:
    simple = (ir.Load, ir.Store, ir.Param, ir.Apply, ir.IndexOf, ir.Guard)
    return all(isinstance(s, simple) or _reads_inside(s) for s in (*phase[0], *phase[1]))


def _reads_inside(s: ir.Statement) -> TypeGuard[ir.LoadAt]:
    """Whether a load reads only the lanes that are inside its array."""
    return isinstance(s, ir.LoadAt) and s.inside is not None


def _along_rows(source: Kernel) -> bool:
    """Whether what is reduced or scanned are rows: the last dimension."""
    return source.tree == "lanes" or (source.tree == "scan" and source.axes[-1].key in source.reduced)


def _may_lie_across(draft: Draft) -> bool:
    """Whether lanes may lie across short rows."""
    statements = [s for phase in draft.phases for s in (*phase[0], *phase[1])]
    return not any(isinstance(s, ir.LoadAt | ir.Update) for s in statements)


def _longest_short(draft: Draft, parallel: Sequence[_Loop], rows: Sequence[_Loop]) -> int:
    """The longest rows that lanes may lie across.

    Longer ones are if words of four bytes, which are transposed in registers, are read, or if a row costs more than to
    read it: narrow elements are widened one vector after another, and positions are followed in every lane.
    """
    if not parallel:
        return SHORT
    read = [o for o in draft.operands if o.role != "out" and rows[0].stride(o).elems and parallel[-1].stride(o).elems]
    largest = max([o.dtype.itemsize for o in read], default=4)
    if all(o.dtype.itemsize == 4 for o in read):
        return SHORT_OF_WORDS
    scans = any(isinstance(s, ir.Scan) for _, body, _ in draft.phases for s in body)
    positions = any(reduction.index is not None for *_, reductions in draft.phases for reduction in reductions)
    return SHORT_OF_WORDS if positions or (largest < 4 and not scans) else SHORT


def _vector(source: Kernel, draft: Draft, parallel: list[_Loop], reduced: list[_Loop], narrow: bool) -> int | None:
    """The dimension whose index runs across the lanes."""
    if source.tree == "order" and not (parallel and _updates_by_lanes(source, draft, parallel[-1])):
        return len(parallel) + len(reduced) - 1 if reduced and _calls_functions(draft) else None
    if source.tree == "lanes":
        return len(parallel) + len(reduced) - 1
    if source.tree == "scan" and _along_rows(source):
        return None
    if source.tree is None and narrow:
        return len(parallel) - 2
    return len(parallel) - 1 if parallel else None


def _calls_functions(draft: Draft) -> bool:
    """Whether updates, which are stored one by one, use functions or operations enough for vectors."""
    costs = [s.kind.cost for phase in draft.phases for s in phase[1] if isinstance(s, ir.Apply)]
    return max(costs, default=0.0) > UPDATE_COST or sum(costs) >= MANY_OPERATIONS


def _updates_by_lanes(source: Kernel, draft: Draft, loop: _Loop) -> bool:
    """Whether a scatter's lanes write adjacent elements: the starts do not depend on the lane."""
    keys = {axis.key for axis in loop.axes}
    for output in source.outputs:
        components = output.places.components if output.places else ()
        if any(use.axis in keys for node in components for use in node.access):
            return False
    return all(_class(loop.stride(o)) == 1 for o in draft.operands if o.role == "out")


def _has_runs(source: Kernel, draft: Draft, parallel: Sequence[_Loop], reduced: Sequence[_Loop]) -> bool:
    """Whether the updates of a scatter can be cut among threads: sorted, so that those of one place follow each other.

    Single elements that are updated in a register are not, if vectors compute the updates (``codegen/ordered.py``).
    """
    if source.tree != "order" or len(reduced) != 1 or len(source.outputs) != 1 or len(parallel) >= MAX_PARALLEL:
        return False
    places = source.outputs[0].places
    if places is None or not places.equation.primitive.kind.ordered(places.equation.params):
        return False
    keys = {axis.key for loop in parallel for axis in loop.axes}
    if any(use.axis in keys for node in places.components for use in node.access):
        return False
    if any(_class(reduced[0].stride(o)) != 0 for o in draft.operands if o.role == "out"):
        return False  # the loop is along a window: its places differ, though they start at one offset
    if parallel:
        return _updates_by_lanes(source, draft, parallel[-1])
    return _fits_register(draft) and not _calls_functions(draft)


def _fits_register(draft: Draft) -> bool:
    """Whether the element that is updated is one number that needs no rounding on its way to memory."""
    return all(o.dtype.char in "fdilqIL" for o in draft.operands if o.role == "out")


def _may_split(source: Kernel, draft: Draft, loops: list[_Loop], outer: list[_Loop]) -> bool:
    """Whether a reduction may be cut at block borders: one reducing phase, over everything or for each column."""
    reducing = [phase for phase in draft.phases if phase[2]]
    if len(reducing) != 1 or draft.rows:
        return False
    if source.tree == "lanes":
        return len(loops) == 1
    bodies = [phase for phase in draft.phases[1:] if phase[1]]
    return source.tree == "rows" and len(loops) == 2 and not outer and bool(draft.phases[0][2]) and not bodies


def _classes(strides: tuple[Stride, ...]) -> tuple[int, ...]:
    return tuple([_class(stride) for stride in strides])


def _class(stride: Stride) -> int:
    return stride.factor if stride.factor in (0, 1, ir.REVERSED) and stride.product == () else ir.RUNTIME


def _phases(draft: Draft, loops: list[_Loop]) -> tuple[ir.Phase, ...]:
    dims = {axis.key: dim for dim, loop in enumerate(loops) for axis in loop.axes} if draft.indexed else {}

    def placed(statements: list[ir.Statement]) -> tuple[ir.Statement, ...]:
        if not dims:
            return tuple(statements)
        return tuple([ir.IndexOf(s.out, dims[s.dim], s.dtype) if isinstance(s, ir.IndexOf) else s for s in statements])

    return tuple([ir.Phase(placed(before), placed(body), tuple(ends)) for before, body, ends in draft.phases])
