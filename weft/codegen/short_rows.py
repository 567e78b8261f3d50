"""Writes nests that reduce rows of a few elements: lanes run along the last parallel dimension.

    for blocks of rows: for tiles of lanes: load what all rows of the block share
        for rows of the block: for phase: before; element 0, 1, ... of the body; their tree

The tree is "lanes" of docs/NUMERICS.md, in which each of up to 32 elements has its own accumulator. A long body is
written once, in a loop that stores the accumulators in stack buffers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.codegen import columns, instances, reduce_tree
from weft.codegen.emitter import Value
from weft.codegen.instances import Instance, Position
from weft.codegen.memory import whole
from weft.codegen.reduce_tree import Accumulators
from weft.loops import ir

if TYPE_CHECKING:
    from weft.codegen.nest import NestWriter


class ShortRowWriter(columns.ColumnWriter):
    """Writes the loops of one nest."""

    def __init__(self, parent: NestWriter) -> None:
        super().__init__(parent)
        nest = self.nest
        assert nest.short is not None and nest.vector is not None and self.schedule.short is not None
        self.extent, self.vector = nest.short, nest.vector
        self.dim = parent.reduced[0]
        self.chosen = chosen = self.schedule.short
        self.looped = [phase for phase, looped in zip(nest.phases, chosen.looped, strict=True) if looped]
        self.shared = chosen.shared
        self.rows = "", ""  # first row of the block, and its end
        self.held: dict[tuple[int, int], list[Value]] = {}  # (value, element) -> the vectors of the tile
        if self.shared:
            self.hoistable = []  # hoisting is done before the rows are entered

    def write(self, place: Position, scalars: Instance) -> None:
        parent = self.parent
        base = self._base(parent.lanes, scalars)
        outer = list(range(self.vector))
        if self.shared:
            parent.parallel(place, outer[:-1], lambda inner: self._blocks(inner, scalars, base))
        else:
            parent.parallel(place, outer, lambda inner: self._vectors(inner, scalars, base))

    def _blocks(self, place: Position, scalars: Instance, base: Instance) -> None:
        parent, writer, row = self.parent, self.writer, self.vector - 1
        low, high = (parent.range(0), parent.range(1)) if row == 0 else ("0", parent.extents[row])

        def block(start: str, _: list[str]) -> list[str]:
            self.rows = start, writer.minimum_index(writer.index("add", start, str(self.chosen.rows)), high)
            self._vectors(place, scalars, base)
            return []

        writer.loop(low, high, self.chosen.rows, [], block)

    def _inside(self, tile: list[Instance], place: Position) -> None:
        if not self.shared:
            self.point(tile, place)
            return
        parent = self.parent
        self.held = {}
        for s in self.shared:
            for k in range(self.extent):
                vectors = [instances.fresh(c, {}, c.index, c.mask, c.slot) for c in tile]
                parent.load(s, vectors, parent.enter(place, self.dim, str(k), [s.operand]))
                self.held[s.out, k] = [c.values[s.out] for c in vectors]

        def row(index: str, _: list[str]) -> list[str]:
            inner = parent.enter(place, self.vector - 1, index, range(len(self.nest.operands)))
            self.point([instances.fresh(c, c.values, c.index, c.mask, c.slot) for c in tile], inner)
            return []

        self.writer.loop(*self.rows, 1, [], row)

    def _reduce(self, phase: ir.Phase, tile: list[Instance], place: Position) -> None:
        """Run a phase element after element, and combine its reductions, if it has any."""
        if any(phase is looped for looped in self.looped):
            found = self._in_loop(phase, tile, place)
        else:
            found = [self._element(phase, tile, place, str(k), self._held(k)) for k in range(self.extent)]
        for number, copy in enumerate(tile):
            for which, reduction in enumerate(phase.reductions):
                total = reduce_tree.fold_few(reduction, copy.emit, [element[number][which] for element in found])
                copy.values.update(zip(reduction.outs, reduce_tree.finish(reduction, copy.emit, total), strict=True))

    def _held(self, k: int) -> list[tuple[int, list[Value]]]:
        return [(out, vectors) for (out, at), vectors in self.held.items() if at == k]

    def _element(
        self,
        phase: ir.Phase,
        tile: list[Instance],
        place: Position,
        index: str,
        held: list[tuple[int, list[Value]]],
    ) -> list[list[Accumulators]]:
        """The body at one element: for each vector the accumulators of every reduction."""
        vectors = [instances.fresh(c, c.values, c.index, c.mask, c.slot) for c in tile]
        for number, copy in enumerate(vectors):
            copy.values.update({out: known[number] for out, known in held})
        self.parent.run(phase.body, vectors, self.parent.enter(place, self.dim, index, ir.operands(phase.body)))
        return [[reduce_tree.only(r, c.emit, c.values) for r in phase.reductions] for c in vectors]

    def _in_loop(self, phase: ir.Phase, tile: list[Instance], place: Position) -> list[list[list[Accumulators]]]:
        """The accumulators of all elements, stored in memory by a loop."""
        writer, memory = self.writer, tile[0].memory
        kept = [[reduce_tree.identities(r, c.emit) for r in phase.reductions] for c in tile]
        dtypes = [value.dtype for groups in kept for value in reduce_tree.flat_accs(groups)]
        words = [whole(dtype) for dtype in dtypes]
        buffers = [writer.alloca(f"[{self.extent * self.parent.width} x {word}]") for word in words]

        def slot(number: int, index: str) -> str:
            return writer.element(words[number], buffers[number], writer.index("mul", index, str(self.parent.width)))

        def body(index: str, _: list[str]) -> list[str]:
            values = [
                v for groups in self._element(phase, tile, place, index, []) for v in reduce_tree.flat_accs(groups)
            ]
            for number, value in enumerate(values):
                memory.store(value, slot(number, index))
            return []

        writer.loop("0", str(self.extent), 1, [], body)
        found = []
        for k in range(self.extent):
            values = [memory.load(dtype, slot(number, str(k))) for number, dtype in enumerate(dtypes)]
            size = len(values) // len(tile)
            parts = [values[at * size : (at + 1) * size] for at in range(len(tile))]
            found.append([reduce_tree.group_accs(phase.reductions, part) for part in parts])
        return found
