"""Cells of a grid that run apart: a loop whose iterations do not depend on each other, and which all threads share.

    for (i, j) apart: block = zeros; for k in order: block += x[i, k] @ y[k, j]; rows[(i, j)] = block

Blocks of outputs are rows of the loop's results; behind the loop they are put where they belong.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from weft import operations as lax
from weft import runtime
from weft.control import bodies, grid_blocks, known_scalars
from weft.control.grid_order import Order
from weft.control.scan import scan, stacked_aval
from weft.control.while_loop import fori_loop
from weft.core import kinds
from weft.core.programs.jaxpr import ClosedJaxpr, JaxprEqn, Literal
from weft.core.programs.rewrite import dce
from weft.core.ref_types import ProgramPrimitive
from weft.core.tracing.trace import trace_to_jaxpr


def _loop_parts(params: dict[str, Any]) -> kinds.LoopParts:
    return kinds.LoopParts(
        body=params["jaxpr"], n_consts=params["num_consts"], n_carry=0, trips=params["length"], independent=True
    )


def _mapped(params: dict[str, Any], function: Any) -> dict[str, Any]:
    return {**params, "jaxpr": function(params["jaxpr"])}


# made where a program is compiled: (captured values, rows) -> rows
cells_p = ProgramPrimitive("cells", kinds.Loop(parts=_loop_parts, mapped=_mapped), multiple_results=True, memoize=False)
cells_p.def_effectful_abstract_eval(
    lambda *avals, jaxpr, length, num_consts: (
        [stacked_aval(aval, length) for aval in jaxpr.out_avals],
        jaxpr.effects,
    )
)
cells_p.jvp, cells_p.transpose = None, None


class _Numbers:
    """Scalars that are known for every cell, as what the loops over them read: ``rows`` apart, ``inner`` in order."""

    def __init__(self) -> None:
        self.rows: list[np.ndarray] = []
        self.inner: list[np.ndarray] = []
        self._found: dict[bytes, tuple[str, int]] = {}

    def add(self, table: np.ndarray) -> tuple[str, int]:
        """Where the numbers i[cells apart, cells in order] are found.

        (known, the number), or (row, at), (inner, at), and (both, at) for a row of the numbers of its cells in order.
        """
        table = np.ascontiguousarray(table, np.int32)
        key = table.tobytes()
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._added(table)
        return found

    def _added(self, table: np.ndarray) -> tuple[str, int]:
        by_row, in_order = np.any(table != table[:1]), np.any(table != table[:, :1])
        if not by_row and not in_order:
            return "known", int(table[0, 0])
        if in_order and not by_row:
            self.inner.append(table[0])
            return "inner", len(self.inner) - 1
        self.rows.append(table if in_order else np.ascontiguousarray(table[:, 0]))
        return ("both" if in_order else "row"), len(self.rows) - 1


class Apart:
    """A grid_loop whose cells run apart, as a function of its operands."""

    def __init__(self, parts: Any, order: Order) -> None:
        self.parts, self.order = parts, order
        self.n_in = len(parts.inputs)
        grid = parts.grid
        self.apart = math.prod([grid[axis] for axis in order.apart])
        self.trips = math.prod([grid[axis] for axis in order.inner])
        self.numbers = _Numbers()
        axes = (*order.apart, *order.inner)
        positions = np.indices([grid[axis] for axis in axes]).reshape(len(axes), self.apart, self.trips)
        ids = dict(zip(axes, positions, strict=True))
        self.ids = [self.numbers.add(ids[axis]) for axis in range(len(grid))]
        multiplied = _multiplied(parts.body)
        self.laid_out = [self._is_laid_out(which, multiplied) for which in range(self.n_in)]
        self.in_rows = [which for which in range(self.n_in) if self._is_in_rows(which)]
        self.firsts = [self._starts(which, table) for which, table in enumerate(order.starts)]

    def __call__(self) -> list[Any]:
        parts = self.parts
        shapes = [tuple(x.shape) for x in parts.outputs]
        self.whole = [self._whole(which) if self._is_read(which) else None for which in range(len(parts.arrays))]
        rows = self._run()
        found = []
        for which, (made, shape) in enumerate(zip(rows, shapes, strict=True), self.n_in):
            block, table = parts.blocks[which], self.order.starts[which]
            assert table is not None
            kept = self.order.kept[which - self.n_in]
            table = table[:, 0] if kept else table.reshape(self.apart * self.trips, table.shape[2])
            made = lax.reshape(made, (len(table), *block.shape))
            whole = joined(made, table, block.padded(shape))
            if whole is None:
                whole = updated(made, table, grid_blocks.pad(parts.arrays[which], block))
            found.append(grid_blocks.cut(whole, block, shape))
        return found

    def _is_laid_out(self, which: int, multiplied: Collection[int]) -> bool:
        """Whether blocks of an input are laid out one after the other first: products read each of them repeatedly."""
        parts, table = self.parts, self.order.starts[which]
        block, first = parts.blocks[which], len(parts.captured) + len(parts.grid) + len(parts.prefetched)
        if table is None or first + which not in multiplied or np.any(table % np.asarray(block.shape, np.int64)):
            return False
        shape = block.padded(parts.arrays[which].shape)
        if grid_blocks.is_contiguous(shape, block):
            return False
        count = math.prod([n // size for n, size in zip(shape, block.shape, strict=True)])
        return self.apart * self.trips >= 2 * count

    def _is_in_rows(self, which: int) -> bool:
        """Whether the cells read all blocks of an input in the order of memory: the array is rows of the loop then."""
        table, block = self.order.starts[which], self.parts.blocks[which]
        shape = block.padded(self.parts.arrays[which].shape)
        if table is None or not grid_blocks.is_contiguous(shape, block) or np.any(table != table[:, :1]):
            return False
        counts = [n // size for n, size in zip(shape, block.shape, strict=True)]
        if math.prod(counts) != self.apart:
            return False
        starts = np.indices(counts).reshape(len(counts), -1).T * np.asarray(block.shape, np.int64)
        return bool(np.all(table[:, 0] == starts))

    def _starts(self, which: int, table: np.ndarray | None) -> list[tuple[str, int]] | None:
        """Where the numbers are found that say where the block of an array begins."""
        if table is None or which in self.in_rows:
            return None
        if which < self.n_in and self.laid_out[which]:
            table = table // np.asarray(self.parts.blocks[which].shape, np.int64)
        return [self.numbers.add(table[:, :, d]) for d in range(table.shape[2])]

    def _whole(self, which: int) -> Any:
        block = self.parts.blocks[which]
        padded = grid_blocks.pad(self.parts.arrays[which], block)
        return grid_blocks.laid_out(padded, block) if which < self.n_in and self.laid_out[which] else padded

    def _is_read(self, which: int) -> bool:
        return which < self.n_in or self.order.read[which - self.n_in] or not self._is_kept(which)

    def _is_kept(self, which: int) -> bool:
        return self.order.kept[which - self.n_in]

    def _run(self) -> list[Any]:
        """The blocks of every output as rows."""
        parts = self.parts
        rows: list[Any] = [np.asarray(row) for row in self.numbers.rows]
        rows += [lax.reshape(self.whole[which], (self.apart, *parts.blocks[which].seen)) for which in self.in_rows]
        types = [runtime.ShapedArray(row.shape[1:], row.dtype) for row in rows]
        traced, _ = trace_to_jaxpr(self._cells_of_row, types)
        program, captured = bodies.without_constants(traced)
        jaxpr, used = dce(program.jaxpr)
        jaxpr = jaxpr.replace(invars=[v for v, needed in zip(jaxpr.invars, used, strict=True) if needed])
        n = len(captured)
        captured = [x for x, needed in zip(captured, used[:n], strict=True) if needed]
        rows = [x for x, needed in zip(rows, used[n:], strict=True) if needed]
        params = {"jaxpr": ClosedJaxpr(jaxpr), "length": self.apart, "num_consts": len(captured)}
        return cells_p.bind(*captured, *rows, **params)

    def _cells_of_row(self, *rows: Any) -> list[Any]:
        """The cells that run one after the other: blocks that are kept, and blocks of each cell."""
        order = self.order
        state = self._first_state(rows)
        if self.trips == 1:
            return self._cell(rows, [], {}, state)[0]
        go: list[Any] = []
        for low, high, body in self._phases():
            state, go = self._some(rows, low, high, body, state)
        found = {True: iter(state[0]), False: iter(go)}
        return [next(found[kept]) for kept in order.kept]

    def _some(self, rows: Sequence[Any], low: int, high: int, body: ClosedJaxpr, state: Any) -> tuple[Any, list[Any]]:
        """The cells from ``low`` to ``high`` in order: (what is kept, the blocks of each)."""
        both = [at for at, row in enumerate(self.numbers.rows) if row.ndim > 1]
        inner = [row[low:high] for row in self.numbers.inner]
        if high == low + 1 and all(self.order.kept):
            given = {at: lax.index_in_dim(rows[at], low, 0, keepdims=False) for at in both}
            return self._cell(rows, [row[0] for row in inner], given, state, body), []

        kept, scratch = state
        idle = _idle(body, len(kept) + len(scratch)) if all(self.order.kept) else [False] * (len(kept) + len(scratch))
        values = [*kept, *scratch]
        moving = [x for x, rests in zip(values, idle, strict=True) if not rests]

        def step(state: Any, given: Any) -> Any:
            state = _filled(idle, state, values)
            state = state[: len(kept)], state[len(kept) :]
            made, scratch = self._cell(rows, given[0], dict(zip(both, given[1], strict=True)), state, body)
            stay = [x for x, stays in zip(made, self.order.kept, strict=True) if stays]
            go = [x for x, stays in zip(made, self.order.kept, strict=True) if not stays]
            return [x for x, rests in zip([*stay, *scratch], idle, strict=True) if not rests], go

        slices = [lax.slice_in_dim(rows[at], low, high) for at in both]
        moving, go = scan(step, moving, (inner, slices), length=high - low)
        given = iter(moving)
        whole = [x if rests else next(given) for x, rests in zip(values, idle, strict=True)]
        return (whole[: len(kept)], whole[len(kept) :]), go

    def _phases(self) -> list[tuple[int, int, ClosedJaxpr]]:
        """Cells in order, in parts: the first and the last for themselves, if it is known what the body does there."""
        trips = self.trips
        if not all(self.order.kept):
            return [(0, trips, self.parts.body)]
        ways = [sorted({0, low, high, trips}) for low, high in ((0, trips), (1, trips), (0, trips - 1), (1, trips - 1))]
        found = [[(a, b, self._specialised(a, b)) for a, b in itertools.pairwise(cuts)] for cuts in ways]
        return min(found, key=lambda phases: _undecided([body for _, _, body in phases]))

    def _specialised(self, low: int, high: int) -> ClosedJaxpr:
        """The body for the cells from ``low`` to ``high`` in order."""
        first, known = len(self.parts.captured), {}
        for axis, (where, at) in enumerate(self.ids):
            if where == "known":
                known[first + axis] = np.full(1, at, np.int32)
            elif where == "inner":
                known[first + axis] = self.numbers.inner[at][low:high]
        return known_scalars.specialised(self.parts.body, known)

    def _first_state(self, rows: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The blocks that are kept, and scratch arrays, as they begin."""
        parts, blocks = self.parts, []
        for which in range(self.n_in, len(parts.arrays)):
            if not self._is_kept(which):
                continue
            block, dtype = parts.blocks[which], parts.arrays[which].dtype
            if self.order.read[which - self.n_in]:
                first = [self._at(number, rows, (), {}) for number in self.firsts[which] or ()]
                blocks.append(self._read(which, first))
            else:
                blocks.append(lax.full(block.seen, grid_blocks.unset(dtype), dtype))
        scratch = [lax.full(aval.shape, grid_blocks.unset(aval.dtype), aval.dtype) for aval in parts.scratch]
        return blocks, scratch

    def _cell(
        self, rows: Sequence[Any], inner: Sequence[Any], both: Any, state: Any, body: ClosedJaxpr | None = None
    ) -> tuple[list[Any], list[Any]]:
        """(output blocks, scratch arrays) after one cell."""
        parts = self.parts
        kept, scratch = iter(state[0]), state[1]
        numbers = [self._at(number, rows, inner, both) for number in self.ids]
        blocks = []
        for which in range(len(parts.arrays)):
            if which >= self.n_in and self._is_kept(which):
                blocks.append(next(kept))
                continue
            starts = self.firsts[which]
            if which in self.in_rows:
                blocks.append(rows[len(self.numbers.rows) + self.in_rows.index(which)])
            elif starts is None:
                first = parts.start_of(which, numbers)
                blocks.append(grid_blocks.read(self.whole[which], parts.blocks[which], first))
            else:
                blocks.append(self._read(which, [self._at(number, rows, inner, both) for number in starts]))
        return parts.run(numbers, blocks, scratch, body)

    def _at(self, number: tuple[str, int], rows: Sequence[Any], inner: Sequence[Any], both: Any) -> Any:
        where, at = number
        if where == "known":
            return np.int32(at)
        return {"row": rows, "inner": inner, "both": both}[where][at]

    def _read(self, which: int, first: Sequence[Any]) -> Any:
        block, whole = self.parts.blocks[which], self.whole[which]
        if which < self.n_in and self.laid_out[which]:
            zeros = [np.int32(0)] * len(block.shape)
            sizes = (*[1] * len(block.shape), *block.shape)
            found = lax.dynamic_slice(whole, [*first, *zeros], sizes, allow_negative_indices=False)
            return lax.reshape(found, block.seen)
        return grid_blocks.read(whole, block, first, inside=True)


def _multiplied(body: ClosedJaxpr) -> set[int]:
    """The operands of a body, by number, that it multiplies as matrices, as they are or as views."""
    jaxpr = known_scalars.specialised(body, {}).jaxpr
    source: dict[Any, int] = {v: i for i, v in enumerate(jaxpr.invars)}
    found = set[int]()
    for eqn in jaxpr.eqns:
        kind = eqn.primitive.kind
        operands = [source[v] for v in eqn.invars if type(v) is not Literal and v in source]
        if isinstance(kind, kinds.Contraction | kinds.StridedContraction):
            found.update(operands)
        elif isinstance(kind, kinds.View | kinds.Reshape) and operands:
            source[eqn.outvars[0]] = operands[0]
    return found


def _undecided(programs: Sequence[ClosedJaxpr]) -> int:
    """How much the worst of some programs decides when it runs: branches and selections."""
    return max(sum(map(_decides, program.jaxpr.eqns)) for program in programs)


def _decides(eqn: JaxprEqn) -> bool:
    kind = eqn.primitive.kind
    return isinstance(kind, kinds.Branch) or (isinstance(kind, kinds.Elementwise) and kind.chooses)


def _idle(body: ClosedJaxpr, count: int) -> list[bool]:
    """Which of the last ``count`` operands and results of a body it only passes on, and does not read."""
    jaxpr = body.jaxpr
    pairs = zip(jaxpr.invars[-count:], jaxpr.outvars[-count:], strict=True) if count else ()
    passed = [before is after for before, after in pairs]
    others = [True] * (len(jaxpr.outvars) - count) + [not same for same in passed]
    read = dce(jaxpr, others)[1]
    return [same and not used for same, used in zip(passed, read[len(read) - count :], strict=True)]


def _filled(idle: Sequence[bool], moving: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """All parts of a state; those that are idle are not read, and may be anything."""
    given = iter(moving)
    return [lax.full_like(x, 0) if rests else next(given) for x, rests in zip(values, idle, strict=True)]


def joined(rows: Any, table: np.ndarray, shape: Sequence[int]) -> Any:
    """The array that the rows are the blocks of; None if they do not cover it."""
    block = rows.shape[1:]
    counts = [n // size for n, size in zip(shape, block, strict=True)]
    numbers = np.zeros(len(table), np.int64)
    for d, (count, size) in enumerate(zip(counts, block, strict=True)):
        numbers = numbers * count + table[:, d] // size
    total = math.prod(counts)
    if len(numbers) != total or len(np.unique(numbers)) != total:
        return None
    sources = np.argsort(numbers)
    if np.any(np.diff(sources) != 1):
        rows = lax.gather(
            rows, sources.astype(np.int32)[:, None],
            lax.GatherDimensionNumbers(tuple(range(1, rows.ndim)), (0,), (0,)), (1, *block),
            mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS,
        )  # fmt: skip
    n = len(block)
    apart = lax.reshape(rows, (*counts, *block))
    order = tuple(itertools.chain(*[(d, n + d) for d in range(n)]))
    return lax.reshape(lax.transpose(apart, order), tuple(shape))


def updated(rows: Any, table: np.ndarray, whole: Any) -> Any:
    """The array with some blocks replaced by rows."""
    starts = table.astype(np.int32)

    def step(index: Any, whole: Any) -> Any:
        row = lax.dynamic_index_in_dim(rows, index, 0, keepdims=False)
        first = lax.dynamic_index_in_dim(starts, index, 0, keepdims=False)
        return lax.dynamic_update_slice(whole, row, [first[d] for d in range(len(row.shape))])

    return fori_loop(0, len(table), step, whole)
