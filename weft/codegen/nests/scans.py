"""Writes running combinations in the order of docs/NUMERICS.md: by runs of elements, blocks of runs, groups of blocks.

    for runs of 64:  for element: local = local . x;  y = base . local      # the first run has no base
                     runs = runs . local;  inside = blocks . runs;  base = groups . inside
                     end of a block: blocks, runs = inside, identity;  end of a group: groups, blocks = base, identity

Sums that wait for each other take most of the time where there are no lanes: several rows, or runs of the only row, go
side by side. Runs are then combined first, and computed again when it is known what was before each of them.
Where every order gives the same bits, a run goes on from what was before it, and there are neither groups nor blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from weft.codegen.arithmetic import cold
from weft.codegen.arithmetic.emitter import Emitter, Value
from weft.codegen.arithmetic.lanes import Lanes, V
from weft.codegen.nests import instances, reduce_tree
from weft.codegen.nests.frame import Frame
from weft.codegen.nests.instances import Instance, Position
from weft.codegen.nests.reduce_tree import Accumulators
from weft.codegen.writer import Writer
from weft.loops import ir
from weft.loops.reduction_tree import BLOCK_LANES, GROUP_BLOCKS, RUN
from weft.loops.routines import routine

Chain = tuple[list[Instance], Position]  # a tile, and where it is


def after(s: ir.Scan, emit: Emitter, state: Accumulators, args: Iterable[Value]) -> Accumulators:
    """The state of a running combination after one more element."""
    wide = tuple([emit.convert(x, np.dtype(dtype)) for x, (dtype, _) in zip(args, s.accumulators, strict=True)])
    return reduce_tree.combine(s, emit, state, wide)


def results(s: ir.Scan, emit: Emitter, state: Accumulators) -> list[Value]:
    """The results of a running combination at this state."""
    finished = s.kind.finish(emit, state, **dict(s.params))
    return [instances.typed(emit, value, dtype) for value, dtype in zip(finished, s.dtypes, strict=True)]


def step(s: ir.Scan, copies: Sequence[Instance]) -> None:
    """One element of a running combination; the state of the run is carried by the enclosing loop."""
    key, lanes = s.outs[0], copies[0].emit.lanes
    for copy in copies:
        copy.states[key] = after(s, copy.emit, copy.states[key], [copy.values[n] for n in s.args])
    local = reduce_tree.flat_accs([copy.states[key] for copy in copies])
    carried = reduce_tree.flatten(local)

    def joined() -> list[str]:
        found = []
        for copy in copies:
            assert copy.before is not None
            found += reduce_tree.combine(s, _apart(copy), copy.before[1][key], copy.states[key])
        return reduce_tree.texts(found)

    texts = reduce_tree.texts(local)
    if copies[0].before is not None and not ir.is_exact(s):
        follows = copies[0].before[0]
        types = [type_ for type_, _ in carried]
        texts = lanes.writer.when(follows, joined, types, texts, rare=False) if follows else joined()
    values, size = reduce_tree.rebuild(local, texts), len(s.accumulators)
    for k, copy in enumerate(copies):
        given = results(s, copy.emit, tuple(values[k * size : (k + 1) * size]))
        copy.values.update(zip(s.outs, given, strict=True))


def rows(parent: Frame, position: Position, dims: Sequence[int], scalars: Instance) -> None:
    """Rows without lanes: several of them side by side, then one after the other."""
    *outer, last = dims
    (phase,), operands = parent.nest.phases, range(len(parent.nest.operands))

    def some(count: int, inner: Position, index: str) -> list[str]:
        chains: list[Chain] = []
        for k in range(count):
            at = parent.enter(inner, last, parent.writer.index("add", index, str(k)), operands)
            chains.append(([instances.fresh(scalars, scalars.values)], at))
            parent.run(phase.before, *chains[-1])
        ScanLoop(parent, phase, chains).write()
        return []

    def all_rows(inner: Position) -> None:
        low, high = parent.limits(inner, last)
        whole = parent.writer.index("and", parent.writer.index("sub", high, low), str(-parent.schedule.beside))
        middle = parent.writer.index("add", low, whole)
        for count, start, stop in ((parent.schedule.beside, low, middle), (1, middle, high)):
            parent.writer.loop(start, stop, count, [], lambda index, _, count=count: some(count, inner, index))

    parent.parallel(position, outer, all_rows)


def _apart(copy: Instance) -> Emitter:
    """An emitter whose values nothing else shares."""
    return instances.fresh(copy, {}, slot=copy.slot).emit


class ScanLoop:
    """The loop over the elements of one tile, or of several side by side.

    ``texts`` are registers: a state of every vector and running combination; those whose order matters come first. The
    loops over runs carry the totals of groups, blocks and runs for these, and after them the totals of all elements.
    """

    def __init__(self, parent: Frame, phase: ir.Phase, chains: list[Chain]) -> None:
        self.parent, self.writer, self.body, self.chains = parent, parent.writer, phase.body, chains
        (self.dim,) = parent.reduced
        self.operands = ir.operands(phase.body)
        self.scans = [s for s in phase.body if isinstance(s, ir.Scan)]
        ordered, exact = ([s for s in self.scans if ir.is_exact(s) == same] for same in (False, True))
        # the identity changes no real number: combining it too is less than to ask whether there is something before
        self.cheap = all(s.kind.cost <= 1 and all(d.kind != "c" for d in s.dtypes) for s in ordered)
        copies = list(enumerate([copy for tile, _ in chains for copy in tile]))
        self.states = [(number, copy, s) for some in (ordered, exact) for number, copy in copies for s in some]
        self.identities = [reduce_tree.identities(s, copy.emit) for _, copy, s in self.states]
        registers = reduce_tree.flatten(reduce_tree.flat_accs(self.identities))
        self.types, self.none = [type_ for type_, _ in registers], [text for _, text in registers]
        # the number of states whose order matters, and of their registers
        self.n_ordered = len(copies) * len(ordered)
        self.own = len(reduce_tree.flatten(reduce_tree.flat_accs(self.identities[: self.n_ordered])))

    def write(self) -> None:
        """The loops over runs; they carry what groups, blocks, runs and all elements before combine to."""
        writer, extent = self.writer, self.parent.extents[self.dim]
        beside, low, size, own = self.parent.schedule.beside, "0", len(self.none), self.own
        types, texts = [*self.types[:own] * 3, *self.types], [*self.none[:own] * 3, *self.none]

        def several(start: str, texts: list[str]) -> list[str]:
            self.parent.poll()
            starts = [writer.index("add", start, str(k * RUN)) for k in range(beside)]
            bases = []
            for first, end in zip(starts, self._side_by_side(starts, None), strict=True):
                bases.append(texts[-size:])
                exact = self._combined(bases[-1][own:], end[own:], slice(self.n_ordered, None))
                texts = self._following(texts, [*end[:own], *exact], writer.index("add", first, str(RUN)))
            self._side_by_side(starts, bases)
            return texts

        def one(start: str, texts: list[str]) -> list[str]:
            self.parent.poll()
            stop = writer.minimum_index(writer.index("add", start, str(RUN)), extent)
            follows = "" if self.cheap else writer.compare_index("ne", start, "0")
            end = self._run(start, stop, (follows, texts[-size:]))
            more, nothing = writer.compare_index("slt", stop, extent), ["poison"] * len(texts)
            return writer.when(more, lambda: self._following(texts, end, stop), types, nothing, rare=False)

        if beside and len(self.parent.nest.dims) == 1:
            low = str(RUN)  # the first run has a loop of its own, as short arrays have no other
            texts = self._following(texts, self._run("0", writer.minimum_index(low, extent), None), low)
            main = writer.index("and", writer.index("sub", extent, low), str(-beside * RUN))
            main = writer.maximum_index(writer.index("add", main, low), low)
            texts = writer.loop(low, main, beside * RUN, list(zip(types, texts, strict=True)), several)
            low = main
        begun = list(zip(types, texts, strict=True))
        if own:
            writer.loop(low, extent, RUN, begun, one)
        else:
            self.parent.stretches(low, extent, 1, begun, lambda at, texts: self._element(self.body, at, texts, None))

    def _run(self, start: str, stop: str, base: tuple[str, list[str]] | None) -> list[str]:
        """Compute the results of a run's elements; gives the state after the last one."""

        def element(index: str, texts: list[str]) -> list[str]:
            return self._element(self.body, index, texts, base)

        return self.writer.loop(start, stop, 1, self._begun(base and base[1]), element)

    def _begun(self, base: list[str] | None) -> list[tuple[str, str]]:
        """What a run begins with: the identities, or what was before it if the order does not matter."""
        none = self.none if base is None else [*self.none[: self.own], *base[self.own :]]
        return list(zip(self.types, none, strict=True))

    def _following(self, texts: list[str], end: list[str], stop: str) -> list[str]:
        """What groups, blocks, runs and all elements combine to after the run that stops there."""
        if not self.own:
            return end
        writer, own, picked = self.writer, self.own, slice(self.n_ordered)
        none, (groups, blocks, runs) = self.none[:own], (texts[k * own : (k + 1) * own] for k in range(3))
        within = self._combined(runs, end[:own], picked)
        inside = self._combined(blocks, within, picked)
        base = self._combined(groups, inside, picked)

        def at(length: int, yes: list[str], no: list[str]) -> list[str]:
            ends = writer.compare_index("eq", writer.index("and", stop, str(length - 1)), "0")
            return [
                writer.op(f"select i1 {ends}, {t} {a}, {t} {b}")
                for t, a, b in zip(self.types[:own], yes, no, strict=True)
            ]

        group = GROUP_BLOCKS * BLOCK_LANES
        blocks = at(group, none, at(BLOCK_LANES, inside, blocks))
        levels = [*at(group, base, groups), *blocks, *at(BLOCK_LANES, none, within)]
        return [*levels, *base, *end[own:]]

    def _side_by_side(self, starts: Sequence[str], bases: Sequence[list[str]] | None) -> list[list[str]]:
        """What whole runs combine to; with ``bases`` the results too, for which the few statements run once more."""
        statements: Sequence[ir.Statement] = self.body
        if bases is None:
            wanted = {n for s in self.scans for n in (*s.args, *s.outs)}
            for s in reversed(self.body):
                wanted.update(() if wanted.isdisjoint(routine.outs(s)) else ir.arguments(s))
            statements = [s for s in self.body if not wanted.isdisjoint(routine.outs(s))]

        ahead = self.writer.index("add", starts[-1], str(RUN))

        def element(index: str, texts: list[str]) -> list[str]:
            found: list[str] = []
            if bases is None:  # no processor foresees accesses in runs side by side: they are asked for in their order
                at = self.writer.index("add", ahead, self.writer.index("mul", index, str(len(starts))))
                there = self.parent.enter(self.chains[0][1], self.dim, at, self.operands)
                for operand in self.operands:
                    self.writer.prefetch(there.pointers[operand])
            for k, start in enumerate(starts):
                at, base = self.writer.index("add", start, index), None if bases is None else ("", bases[k])
                found += self._element(statements, at, texts[k * size : (k + 1) * size], base)
            return found

        size = len(self.none)
        begun = [register for base in bases or [None] * len(starts) for register in self._begun(base)]
        texts = self.writer.loop("0", str(RUN), 1, begun, element)
        return [texts[k : k + size] for k in range(0, len(texts), size)]

    def _element(
        self, statements: Sequence[ir.Statement], index: str, texts: Sequence[str], base: tuple[str, list[str]] | None
    ) -> list[str]:
        """The states after one more element; ``base``: whether there is one, and what it is."""
        now, before = self._states(texts), self._states(texts if base is None else base[1])
        vectors: list[Instance] = []
        for tile, position in self.chains:
            inner = self.parent.enter(position, self.dim, index, self.operands)
            some = self.parent.entered(statements, tile, inner)
            for number, vector in enumerate(some, len(vectors)):
                mine = [(s.outs[0], k) for k, (owner, _, s) in enumerate(self.states) if owner == number]
                vector.states = {key: now[k] for key, k in mine}
                vector.before = None if base is None else (base[0], {key: before[k] for key, k in mine})
            self.parent.run(statements, some, inner)
            vectors += some
        return reduce_tree.texts([v for owner, _, s in self.states for v in vectors[owner].states[s.outs[0]]])

    def _states(self, texts: Sequence[str], picked: slice = slice(None)) -> list[Accumulators]:
        """The picked states, rebuilt from their registers ``texts``."""
        found = self.identities[picked]
        values = iter(reduce_tree.rebuild(reduce_tree.flat_accs(found), texts))
        return [tuple([next(values) for _ in state]) for state in found]

    def _combined(self, left: Sequence[str], right: Sequence[str], picked: slice) -> list[str]:
        """The picked states of both sides, combined; long combinations are functions of the module."""
        found: list[str] = []
        both = [self._states(texts, picked) for texts in (left, right)]
        for (_, copy, s), a, b in zip(self.states[picked], *both, strict=True):
            if s.kind.cost <= 1:
                found += reduce_tree.texts(reduce_tree.combine(s, _apart(copy), a, b))
                continue

            def write(writer: Writer, texts: list[str], s: ir.Scan = s, pair: Sequence[Value] = (*a, *b)) -> list[str]:
                lanes, rest = Lanes(writer, self.parent.width), iter(texts)
                values = [Value(v.dtype, tuple([V(lanes, p.element, next(rest)) for p in v.parts])) for v in pair]
                half = len(values) // 2
                return reduce_tree.texts(
                    reduce_tree.combine(s, Emitter(lanes), tuple(values[:half]), tuple(values[half:]))
                )

            name = f"{s.name}_{'_'.join([str(v.dtype) for v in a])}_v{self.parent.width}"
            types = [type_ for type_, _ in reduce_tree.flatten(a)]
            found += cold.call(self.writer, name, reduce_tree.flatten((*a, *b)), types, write)
        return found
