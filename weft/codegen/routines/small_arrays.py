"""Statements on small arrays in registers: reductions, running combinations, products."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.codegen.arithmetic.emitter import Emitter, Value
from weft.codegen.nests import instances, reduce_tree, scans
from weft.codegen.nests.reduce_tree import Accumulators
from weft.codegen.routines.pieces import Array, Scope
from weft.loops import elements, ir
from weft.loops.reduction_tree import LANES, RUN
from weft.loops.routines import routine


def applied(scope: Scope, s: ir.Apply, args: Sequence[Array], size: int) -> Array:
    """A primitive, piece by piece."""

    def function(emit: Emitter, *values: Value) -> Value:
        found = instances.applied(s, emit, values)
        emit.any_nan = True  # other statements use this emitter, whose values may have other dtypes
        return found

    return Array(s.dtype, size, tuple(scope.mapped(function, args, size)))


def product(scope: Scope, s: routine.Product, lhs: Array, rhs: Array) -> Array:
    batch, m, n, k = s.extents
    grid = [(b, i, j) for b in range(batch) for i in range(m) for j in range(n)]
    total: list[Value] = []
    for step in range(k):
        left = scope.pick(lhs.dtype, [(lhs, (b * m + i) * k + step) for b, i, _ in grid])
        right = scope.pick(lhs.dtype, [(rhs, (b * k + step) * n + j) for b, _, j in grid])
        for number, width in enumerate(scope.widths(len(grid))):
            emit, pair = scope.emit(width), (left.pieces[number], right.pieces[number])
            if step == 0:
                total.append(emit.mul(*pair))
            else:
                total[number] = emit.fma(*pair, total[number])
    return Array(lhs.dtype, len(grid), tuple(total))


def running(scope: Scope, s: routine.Running, args: Sequence[Array]) -> list[Array]:
    rest = args[0].size // s.run
    widths, exact = scope.widths(rest), ir.is_exact(s)
    none: list[Accumulators] = [reduce_tree.identities(s, scope.emit(width)) for width in widths]
    state, runs, base = [*none], [*none], [*none]  # of the run, of those before it
    rows: list[list[Array]] = []
    for i in range(s.run):
        element = [scope.pick(arg.dtype, [(arg, i * rest + k) for k in range(rest)]) for arg in args]
        pieces = []
        for number, width in enumerate(widths):
            emit, given = scope.emit(width), [array.pieces[number] for array in element]
            if i and i % RUN == 0 and not exact:
                runs[number] = reduce_tree.combine(s, emit, runs[number], state[number])
                inside = reduce_tree.combine(s, emit, none[number], runs[number])
                base[number], state[number] = reduce_tree.combine(s, emit, none[number], inside), none[number]
            state[number] = scans.after(s, emit, state[number], given)
            whole = state[number] if i < RUN or exact else reduce_tree.combine(s, emit, base[number], state[number])
            pieces.append(scans.results(s, emit, whole))
        rows.append(_arrays(s, rest, pieces))
    return [
        scope.pick(dtype, [(row[number], k) for row in rows for k in range(rest)])
        for number, dtype in enumerate(s.dtypes)
    ]


def folded(scope: Scope, s: routine.Fold, args: Sequence[Array]) -> list[Array]:
    """A reduction, in the order of docs/NUMERICS.md."""
    is_row, at, pieces = s.kept == 1 and s.outer == 1 and s.tree == "row", 0, []
    for width in scope.widths(s.kept):
        total = _row(scope, s, args) if is_row else _elements(scope, s, args, at, width)
        pieces.append(reduce_tree.finish(s, scope.emit(width), total))
        at += width
    return _arrays(s, s.kept, pieces)


def _arrays(s: ir.Reduce | ir.Scan, size: int, pieces: Sequence[Sequence[Value]]) -> list[Array]:
    """The results, given for each piece."""
    columns = zip(s.dtypes, zip(*pieces, strict=True), strict=True)
    return [Array(dtype, size, tuple(column)) for dtype, column in columns]


def _row(scope: Scope, s: routine.Fold, args: Sequence[Array]) -> Accumulators:
    """Fold a whole row by 32 lane accumulators; those without an element are left out."""
    used = min(s.run, LANES)
    width = min(1 << (used - 1).bit_length(), scope.lanes)
    emit = scope.emit(width)
    accs = [reduce_tree.identities(s, emit)] * -(-used // width)
    for at in range(0, s.run, width):
        here = min(width, s.run - at)
        positions = [s.position(0, 0, at + min(lane, here - 1)) for lane in range(width)]
        values = tuple(scope.piece(arg, positions, width) for arg in args)
        index = None
        if s.kind.needs_index:
            index = scope.constant_piece(np.arange(at, at + width, dtype=np.int64), width)
        slot = at // width % len(accs)
        new = reduce_tree.combine(s, emit, accs[slot], reduce_tree.prepared_of(s, emit, values, index))
        accs[slot] = new if here == width else reduce_tree.where(scope.mask(width, here), new, accs[slot])
    acc = reduce_tree.fold_few(s, emit, accs)
    while width > 1:
        width //= 2
        left = tuple(scope.gathered(v.dtype, [(v, lane) for lane in range(width)], width) for v in acc)
        right = tuple(scope.gathered(v.dtype, [(v, lane) for lane in range(width, 2 * width)], width) for v in acc)
        acc = reduce_tree.combine(s, scope.emit(width), left, right)
    one = scope.emit(1)
    return reduce_tree.combine(s, one, reduce_tree.identities(s, one), acc)


def _elements(scope: Scope, s: routine.Fold, args: Sequence[Array], first: int, width: int) -> Accumulators:
    """Fold rows elementwise: the kept elements of one piece."""
    emit, kept = scope.emit(width), [min(k, s.kept - 1) for k in range(first, first + width)]
    none = total = reduce_tree.identities(s, emit)
    for outer in range(s.outer):
        lanes = [none] * min(s.run, LANES if s.tree == "row" else 1)
        for i in range(s.run):
            values = tuple(scope.piece(arg, [s.position(k, outer, i) for k in kept], width) for arg in args)
            index = emit.const(i, elements.INT64) if s.kind.needs_index else None
            one = reduce_tree.prepared_of(s, emit, values, index)
            lanes[i % len(lanes)] = reduce_tree.combine(s, emit, lanes[i % len(lanes)], one)
        total = reduce_tree.combine(s, emit, total, reduce_tree.fold_few(s, emit, lanes))
    return total
