"""Writes nests that reduce or scan rows of a few elements: lanes run along the last parallel dimension.

    for blocks of rows: for tiles of lanes: load what all rows of the block share
        for rows of the block: for phase: before; element 0, 1, ... of the body; their tree

Operands whose elements lie side by side in rows are read once for all phases, and written after the last element.

The tree is "row" of docs/NUMERICS.md: each of up to 32 elements has its own accumulator. A long body is
written once, in a loop that stores the accumulators in stack buffers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate

from weft.codegen.arithmetic.emitter import Emitter, Value
from weft.codegen.memory_access import accesses
from weft.codegen.memory_access.memory import Memory
from weft.codegen.memory_access.memory_words import whole
from weft.codegen.nests import columns, instances, reduce_tree
from weft.codegen.nests.frame import Frame
from weft.codegen.nests.instances import Instance, Position
from weft.codegen.nests.reduce_tree import Accumulators
from weft.loops import ir
from weft.loops.schedules.decisions import ShortRows

Found = list[list[list[Accumulators]]]  # what ``fold_few`` combines: for each vector of a tile, each reduction


class ShortRowWriter(columns.ColumnWriter):
    """Writes the loops of one nest."""

    def __init__(self, parent: Frame) -> None:
        super().__init__(parent)
        nest = self.nest
        assert nest.short is not None and nest.vector is not None and isinstance(self.schedule.tile, ShortRows)
        self.extent, self.vector = nest.short, nest.vector
        self.dim = parent.reduced[0]
        self.chosen = chosen = self.schedule.tile
        self.shared = chosen.shared
        self.ends = "", ""  # first row of the block, and its end
        self.loaded: dict[int, list[list[Value]]] = {}  # operand -> its elements in the rows of each vector of the tile
        self.held: dict[tuple[int, int], list[Value]] = {}  # (value, element) -> the vectors of the tile
        if self.shared:
            self.hoistable = []  # hoisting is done before the rows are entered

    def rows(self, position: Position, outer: Sequence[int]) -> None:
        if not self.shared:
            super().rows(position, outer)
            return
        parent, writer, row = self.parent, self.writer, outer[-1]

        def blocks(inside: Position) -> None:
            low, high = (parent.range(0), parent.range(1)) if row == 0 else ("0", parent.extents[row])

            def block(start: str, _: list[str]) -> list[str]:
                self.ends = start, writer.minimum_index(writer.index("add", start, str(self.chosen.rows)), high)
                self.row(inside)
                return []

            writer.loop(low, high, self.chosen.rows, [], block)

        parent.parallel(position, outer[:-1], blocks)

    def inside(self, tile: list[Instance], position: Position) -> None:
        if not self.shared:
            self.point(tile, position)
            return
        parent = self.parent
        self.held = {}
        for s in self.shared:
            for k in range(self.extent):
                vectors = [instances.fresh(c, {}, c.index, c.mask, c.slot) for c in tile]
                parent.load(s, vectors, parent.enter(position, self.dim, str(k), [s.operand]))
                self.held[s.out, k] = [c.values[s.out] for c in vectors]

        def row(index: str, _: list[str]) -> list[str]:
            inner = parent.enter(position, self.vector - 1, index, range(len(self.nest.operands)))
            self.point([instances.fresh(c, c.values, c.index, c.mask, c.slot) for c in tile], inner)
            return []

        self.writer.loop(*self.ends, 1, [], row)

    def point(self, tile: list[Instance], position: Position) -> None:
        self.loaded = {}
        super().point(tile, position)

    def _reduce(self, phase: ir.Phase, tile: list[Instance], position: Position) -> None:
        """Run a phase element after element, and combine its reductions, if it has any."""
        rows = self._rows(phase, tile)
        given = {s.out: self._loaded(s, tile, position) for s in rows if isinstance(s, ir.Load)}
        stores = {s: [[] for _ in tile] for s in rows if isinstance(s, ir.Store)}
        number = next(n for n, one in enumerate(self.nest.phases) if one is phase)
        self._begin(phase, tile)
        if (self.chosen.looped_blocks if rows else self.chosen.looped)[number]:
            found = self._in_loop(phase, tile, position, given, stores)
        else:
            found = self._nothing(phase, tile)
            for k in range(self.extent):
                held = [(out, vectors) for (out, at), vectors in self.held.items() if at == k]
                held += [(out, [values[k] for values in vectors]) for out, vectors in given.items()]
                vectors = self._element(phase, tile, position, str(k), held, stores)
                for copy, vector in zip(tile, vectors, strict=True):
                    copy.states = vector.states
                for s, kept in stores.items():
                    for copy, values in zip(vectors, kept, strict=True):
                        values.append(copy.values[s.value])
                self._collect(phase, vectors, found, self._accumulators(phase, vectors))
        for s, kept in stores.items():
            for copy, values in zip(tile, kept, strict=True):
                accesses.store(copy.memory, values, *self._row_accesses(s.operand, copy, position))
        if any(isinstance(s, ir.Store) for s in (*phase.before, *phase.body)):
            self.loaded = {}  # a result may be in the memory of an operand
        for number, copy in enumerate(tile):
            for which, reduction in enumerate(phase.reductions):
                total = reduce_tree.fold_few(reduction, copy.emit, found[number][which])
                copy.values.update(zip(reduction.outs, reduce_tree.finish(reduction, copy.emit, total), strict=True))

    def _begin(self, phase: ir.Phase, tile: list[Instance]) -> None:
        """The states of running combinations before the first element."""
        for copy in tile:
            scans = [s for s in phase.body if isinstance(s, ir.Scan)]
            copy.states = {s.outs[0]: reduce_tree.identities(s, copy.emit) for s in scans}

    # whole vectors of rows

    def _rows(self, phase: ir.Phase, tile: list[Instance]) -> list[ir.Load | ir.Store]:
        """The loads and stores of a phase that are done for all elements together."""
        if tile[0].memory.lanes.width == 1 or tile[0].mask is not None:
            return []
        found = [s for s in phase.body if isinstance(s, ir.Load | ir.Store) and s.operand in self.chosen.blocks]
        return [s for s in found if s not in self.shared and (isinstance(s, ir.Store) or s.out not in tile[0].values)]

    def _row_accesses(
        self, operand: int, copy: Instance, position: Position
    ) -> tuple[list[list[accesses.Access]], list[str]]:
        """For each element of a row its access in the rows of a vector, and the addresses of these."""
        stride, word = self.parent.strides[operand, self.vector], whole(self.nest.operands[operand].dtype)
        first = self.writer.element(
            word, position.pointers[operand], self.writer.index("mul", copy.index or "0", stride)
        )
        rows = range(copy.memory.lanes.width)
        pointers = list(accumulate(rows[1:], lambda p, _: self.writer.element(word, p, stride), initial=first))
        return [[(row, k) for row in rows] for k in range(self.extent)], pointers

    def _loaded(self, s: ir.Load, tile: list[Instance], position: Position) -> list[list[Value]]:
        """For each vector of a tile the elements of its rows."""
        if s.operand not in self.loaded:
            dtype, found = (
                self.nest.operands[s.operand].dtype,
                [self._row_accesses(s.operand, c, position) for c in tile],
            )
            self.loaded[s.operand] = [
                accesses.load(c.memory, dtype, pointers, wanted)
                for c, (wanted, pointers) in zip(tile, found, strict=True)
            ]
        return self.loaded[s.operand]

    # elements

    def _element(
        self,
        phase: ir.Phase,
        tile: list[Instance],
        position: Position,
        index: str,
        held: Sequence[tuple[int, list[Value]]],
        apart: Collection[ir.Statement] = (),
    ) -> list[Instance]:
        """The vectors after the body at one element, without the statements ``apart``; values ``held`` are known."""
        vectors = [instances.fresh(c, c.values, c.index, c.mask, c.slot) for c in tile]
        for number, copy in enumerate(vectors):
            copy.values.update({out: known[number] for out, known in held})
        body = [s for s in phase.body if s not in apart] if apart else phase.body
        self.parent.run(body, vectors, self.parent.enter(position, self.dim, index, ir.operands(body)))
        return vectors

    def _accumulators(self, phase: ir.Phase, vectors: list[Instance]) -> list[list[Accumulators]]:
        """For each vector the accumulators of every reduction."""
        return [[reduce_tree.contribution(r, c.emit, c.values) for r in phase.reductions] for c in vectors]

    def _nothing(self, phase: ir.Phase, tile: list[Instance]) -> Found:
        return [[[] for _ in phase.reductions] for _ in tile]

    def _collect(self, phase: ir.Phase, tile: list[Instance], found: Found, element: list[list[Accumulators]]) -> None:
        """Add the accumulators of one element to those found so far."""
        for copy, groups, ones in zip(tile, found, element, strict=True):
            for which, (reduction, one) in enumerate(zip(phase.reductions, ones, strict=True)):

                def begin(copy: Instance = copy, reduction: ir.Reduce = reduction) -> Accumulators:
                    first = reduce_tree.seeds(reduction, Emitter(self.parent.scalar), "0")
                    return tuple([copy.memory.splat(v) for v in first])

                groups[which] = reduce_tree.collected(reduction, copy.emit, groups[which], one, begin)

    def _in_loop(
        self,
        phase: ir.Phase,
        tile: list[Instance],
        position: Position,
        given: dict[int, list[list[Value]]],
        stores: dict[ir.Store, list[list[Value]]],
    ) -> Found:
        """The accumulators of all elements, which a loop stores in memory, as it does the values for ``stores``."""
        rows = [(out, [_Buffer(self, values) for values in vectors]) for out, vectors in given.items()]
        kept: list[_Buffer] = []
        states = [(c, key, state) for c in tile for key, state in c.states.items()]
        begun = [value for _, _, state in states for value in state]

        def body(index: str, texts: list[str]) -> list[str]:
            given = iter(reduce_tree.rebuild(begun, texts))
            for copy, key, state in states:
                copy.states[key] = tuple([next(given) for _ in state])
            held = [(out, [buffer.at(index) for buffer in buffers]) for out, buffers in rows]
            vectors = self._element(phase, tile, position, index, held, stores)
            values = [v for groups in self._accumulators(phase, vectors) for v in reduce_tree.flat_accs(groups)]
            values += [copy.values[s.value] for s in stores for copy in vectors]
            for value in values:
                kept.append(_Buffer(self, [value]))
                kept[-1].put(value, index)
            after = [value for copy in vectors for state in copy.states.values() for value in state]
            return reduce_tree.texts(after)

        self.writer.loop("0", str(self.extent), 1, reduce_tree.flatten(begun), body)
        found = self._nothing(phase, tile)
        for k in range(self.extent):
            values = [buffer.at(str(k)) for buffer in kept]
            for vectors in reversed(stores.values()):
                for vector in reversed(vectors):
                    vector.append(values.pop())
            size = len(values) // len(tile)
            parts = [values[at * size : (at + 1) * size] for at in range(len(tile))]
            self._collect(phase, tile, found, [reduce_tree.group_accs(phase.reductions, part) for part in parts])
        return found


class _Buffer:
    """Stack memory for a vector for each element of a row; ``values`` are put there if there are all of them."""

    def __init__(self, parent: ShortRowWriter, values: Sequence[Value]) -> None:
        self.writer, self.dtype, self.lanes = parent.writer, values[0].dtype, values[0].parts[0].lanes
        self.memory = Memory(self.lanes, parent.parent.target)
        self.buffer = self.writer.alloca(f"[{parent.extent * parent.parent.width} x {whole(self.dtype)}]")
        for k, value in enumerate(values if len(values) == parent.extent else ()):
            self.put(value, str(k))

    def at(self, index: str) -> Value:
        return self.memory.load(self.dtype, self._slot(index))

    def put(self, value: Value, index: str) -> None:
        self.memory.store(value, self._slot(index))

    def _slot(self, index: str) -> str:
        at = self.writer.index("mul", index, str(self.lanes.width))
        return self.writer.element(whole(self.dtype), self.buffer, at)
