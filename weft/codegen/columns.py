"""Nests whose lanes run along a parallel dimension (or that have no lanes): tiles of vectors through all phases.

    for outer parallel dims: for tile in vector range:          # full tiles of U vectors, then a tail
        for phase: before; for reduced indices in tree order: body, reductions of every vector

The tail is one masked vector at a time where the target has masked access, else one element at a time with the
same expressions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft.codegen import copies, elements, reduce_tree, transposed
from weft.codegen.copies import Copy, Place
from weft.codegen.emitter import Value
from weft.codegen.memory import first_lanes
from weft.loops import ir

if TYPE_CHECKING:
    from weft.codegen.nest import NestWriter

SMALL_BODY = 10.0  # bodies up to this cost are unrolled
LARGE_BODY = 16.0  # bodies from this cost on are written once: masks cost less than compiling a second copy
TILE = 4  # vectors of a reducing tile: each row touches 256 contiguous bytes


class ColumnWriter:
    """Writes the loops of one nest."""

    def __init__(self, parent: NestWriter) -> None:
        self.parent = parent
        self.nest = parent.nest
        self.writer = parent.writer
        self.statements = [s for p in self.nest.phases for s in (*p.before, *p.body)]
        # loads per point of the parallel space, to be done ahead of the vector loop if they do not move along it
        self.hoistable = [s for p in self.nest.phases for s in (p.before if parent.reduced else (*p.before, *p.body))]

    def write(self, place: Place, scalars: Copy) -> None:
        parent, nest = self.parent, self.nest
        outer = [d for d, dim in enumerate(nest.dims) if dim.role == "parallel" and d != nest.vector]
        if nest.vector is None:
            parent.parallel(place, outer, lambda inner: self.point([copies.fresh(scalars, scalars.values)], inner))
            return
        base = parent.copy(parent.lanes, {})
        wanted = self._wanted()
        base.values = {n: base.memory.splat(v) for n, v in scalars.values.items() if n in wanted}
        dim, turned = transposed.across(nest, parent.width)
        if dim is not None and self.maskable():
            turner = transposed.Turner(parent, self.statements, dim, turned)
            rest = [d for d in outer if d != dim]
            parent.parallel(place, rest, lambda inner: turner.write(inner, base))
            return
        parent.parallel(place, outer, lambda inner: self._vectors(inner, scalars, base))

    def _wanted(self) -> set[int]:
        from_phases: set[int] = set()
        for phase in self.nest.phases:
            for s in phase.before:
                from_phases.update(copies.arguments(s))
            from_phases |= copies.uses(phase)
        return from_phases

    def maskable(self) -> bool:
        """Has the target masked access for every operand that moves along the lanes?"""
        nest, target = self.nest, self.parent.target
        for operand in nest.operands:
            element = elements.of(operand.dtype)
            size = min(element.bytes * element.parts, 8)
            stride = operand.strides[nest.vector] if nest.vector is not None else 0
            if stride and size not in (target.masked_bytes if stride == 1 else target.gather_bytes):
                return False
        return True

    def _unroll(self) -> int:
        total = copies.cost(self.statements)
        if self.parent.reduced:
            return TILE if total <= SMALL_BODY else 2 if total <= LARGE_BODY else 1
        return 2 if total <= SMALL_BODY else 1

    def _vectors(self, place: Place, scalars: Copy, base: Copy) -> None:
        parent, writer, width = self.parent, self.writer, self.parent.width
        low, high = parent.range(2), parent.range(3)
        hoisted = parent.hoist(self.hoistable, base, place)
        wide = {**base.values, **{n: base.memory.splat(v) for n, v in hoisted.items()}}
        maskable = self.maskable()
        if not (maskable and copies.cost(self.statements) >= LARGE_BODY):
            unroll = self._unroll()
            step = width * unroll
            main = writer.index("add", low, writer.index("and", writer.index("sub", high, low), str(-step)))

            def tile(index: str, _: list[str]) -> list[str]:
                vectors = []
                for u in range(unroll):
                    at = writer.index("add", index, str(u * width))
                    vectors.append(copies.fresh(base, wide, at, None, u * width))
                self.point(vectors, place)
                return []

            writer.loop(low, main, step, [], tile)
            low = main
        if maskable:

            def masked(index: str, _: list[str]) -> list[str]:
                mask = first_lanes(parent.lanes, writer.index("sub", high, index))
                self.point([copies.fresh(base, wide, index, mask)], place)
                return []

            writer.loop(low, high, width, [], masked)
            return

        def one(index: str, _: list[str]) -> list[str]:
            self.point([copies.fresh(scalars, {**scalars.values, **hoisted}, index, None)], place)
            return []

        writer.loop(low, high, 1, [], one)

    # one tile

    def point(self, tile: list[Copy], place: Place) -> None:
        for phase in self.nest.phases:
            self.parent.run(phase.before, tile, place)
            if not self.parent.reduced:
                self.parent.run(phase.body, tile, place)
            elif phase.body or phase.reductions:
                self._reduce(phase, tile, place)

    def _reduce(self, phase: ir.Phase, tile: list[Copy], place: Place) -> None:
        for reduction in phase.reductions:
            if reduction.tree != "rows":
                raise ValueError(f"[codegen] the tree of {reduction.name} is {reduction.tree}, its lanes are parallel")
        scans = [s for s in phase.body if isinstance(s, ir.Scan)]
        initial = [v for c in tile for s in scans for v in reduce_tree.identities(s, c.emit)]
        totals = [v for c in tile for r in phase.reductions for v in reduce_tree.identities(r, c.emit)]
        loop = _ReducedLoop(self, phase, tile, scans, len(initial))
        values = loop.level(0, place, [*initial, *totals])
        for copy, accs in zip(tile, loop.accumulators(values), strict=True):
            for reduction, group in zip(phase.reductions, accs, strict=True):
                outs = reduce_tree.finish(reduction, copy.emit, group)
                copy.values.update(zip(reduction.outs, outs, strict=True))


class _ReducedLoop:
    """The loops over the reduced dimensions for one tile, carrying scan states and accumulators of every copy."""

    def __init__(
        self, parent: ColumnWriter, phase: ir.Phase, tile: list[Copy], scans: list[ir.Scan], n_states: int
    ) -> None:
        self.parent = parent
        self.nest = parent.parent
        self.writer = parent.writer
        self.phase = phase
        self.tile = tile
        self.scans = scans
        self.n_states = n_states
        loads = [s for s in phase.body if isinstance(s, ir.Load)]
        stores = [s for s in phase.body if isinstance(s, ir.Store)]
        self.operands = sorted({s.operand for s in (*loads, *stores)})

    def accumulators(self, values: Sequence[Value]) -> list[list[reduce_tree.Accumulators]]:
        """Accumulators by copy and reduction, from the carried values."""
        accs = values[self.n_states :]
        size = len(accs) // len(self.tile)
        groups = [accs[k * size : (k + 1) * size] for k in range(len(self.tile))]
        return [reduce_tree.group_accs(self.phase.reductions, g) for g in groups]

    def _carry(self, low: str, high: str, step: int, values: Sequence[Value], body) -> list[Value]:
        def inner(index: str, texts: list[str]) -> list[str]:
            return [t for _, t in reduce_tree.flatten(body(index, reduce_tree.rebuild(values, texts)))]

        carried = reduce_tree.flatten(values)
        return reduce_tree.rebuild(values, self.writer.loop(low, high, step, carried, inner))

    def level(self, depth: int, place: Place, values: list[Value]) -> list[Value]:
        """Loops from reduced dimension number ``depth`` inwards; gives the values after them."""
        dim, writer = self.nest.reduced[depth], self.writer
        extent = self.nest.extents[dim]
        if depth + 1 < len(self.nest.reduced):

            def outer(index: str, inner: list[Value]) -> list[Value]:
                return self.level(depth + 1, self.nest.enter(place, dim, index, self.operands), inner)

            return self._carry("0", extent, 1, values, outer)
        if not self.phase.reductions:
            return self._carry("0", extent, 1, values, lambda i, v: self._body(place, dim, i, v))

        def block(start: str, inner: list[Value]) -> list[Value]:
            stop = writer.minimum_index(writer.index("add", start, str(reduce_tree.BLOCK_ROWS)), extent)
            fresh = [v for c in self.tile for r in self.phase.reductions for v in reduce_tree.identities(r, c.emit)]
            after = self._carry(
                start, stop, 1, [*inner[: self.n_states], *fresh], lambda i, v: self._body(place, dim, i, v)
            )
            return [*after[: self.n_states], *self._combine(self.accumulators(inner), self.accumulators(after))]

        return self._carry("0", extent, reduce_tree.BLOCK_ROWS, values, block)

    def _combine(
        self, left: list[list[reduce_tree.Accumulators]], right: list[list[reduce_tree.Accumulators]]
    ) -> list[Value]:
        results: list[Value] = []
        for copy, a, b in zip(self.tile, left, right, strict=True):
            emit = copies.fresh(copy, {}, None, None).emit
            for reduction, x, y in zip(self.phase.reductions, a, b, strict=True):
                results.extend(reduce_tree.combine(reduction, emit, x, y))
        return results

    def _body(self, place: Place, dim: int, index: str, values: list[Value]) -> list[Value]:
        inner = self.nest.enter(place, dim, index, self.operands)
        vectors, at = [], 0
        for copy in self.tile:
            fresh = copies.fresh(copy, copy.values, copy.index, copy.mask, copy.slot)
            for s in self.scans:
                fresh.states[s.outs[0]] = tuple(values[at : at + len(s.accumulators)])
                at += len(s.accumulators)
            vectors.append(fresh)
        self.nest.run(self.phase.body, vectors, inner)
        results = [v for c in vectors for s in self.scans for v in c.states[s.outs[0]]]
        for copy, accs in zip(vectors, self.accumulators(values), strict=True):
            for reduction, group in zip(self.phase.reductions, accs, strict=True):
                # a masked tail needs no care here: every lane has its own accumulators
                results.extend(reduce_tree.step(reduction, copy.emit, copy.values, group, None))
        return results
