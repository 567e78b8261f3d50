"""Vectors of narrow rows side by side, of operands whose rows lie at known distances: shuffles of whole vectors.

    y = x[:, ::-1], rows of 3, lanes along all elements:   x0 x1 x2 x3   x2 x3 x4 x5   ->   x2 x1 x0 x5

A vector of results takes its elements from one or two vectors that begin where the first of them lies; none reaches
outside of the rows of a block.

What these lines gain with AVX2: three of four bytes, backwards, take a twentieth of the time, pooling of three features
a sixth, three columns of seven half.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.codegen import instances, shuffles
from weft.codegen.emitter import Value
from weft.codegen.frame import Frame
from weft.codegen.instances import Instance, Position
from weft.codegen.lanes import Lanes
from weft.codegen.memory import whole
from weft.loops import elements, ir

QUARTER = 16  # bytes within which most of x86's shuffles move elements


def lanes(nest: ir.Nest, width: int) -> int:
    """Lanes of a vector of results, and rows of a block: those of the nest, or more if elements are small."""
    return max(width, QUARTER // max(elements.of(o.dtype).size for o in nest.operands)) if width > 1 else width


def has_rows(nest: ir.Nest) -> bool:
    """Whether the rows of an operand lie side by side."""
    return any(operand.role == "in" and operand.apart is not None for operand in nest.operands)


class Block:
    """As many rows as a vector has lanes: that many vectors as a row has elements."""

    def __init__(self, parent: Frame, tile: Sequence[Instance], place: Position) -> None:
        assert parent.nest.interleaved is not None
        self.parent, self.nest, self.place, self.count = parent, parent.nest, place, parent.nest.interleaved
        self.first, self.writer, scalars = tile[0].index, parent.writer, tile[0].scalars
        self.width = len(tile) * parent.width
        base = parent.copy(Lanes(parent.writer, self.width), {})
        known = {n: base.memory.splat(scalars[n]) for n in tile[0].values}
        self.copies = [instances.fresh(base, known, None, None, k * self.width) for k in range(self.count)]
        self.memory, self.lanes = base.memory, base.memory.lanes

    def write(self) -> None:
        """Every load, every value, every store."""
        statements = [s for phase in self.nest.phases for s in (*phase.before, *phase.body)]
        for s in statements:
            if isinstance(s, ir.Load) and s.out not in self.copies[0].values:
                self._load(s)
        computed = [s for s in statements if not isinstance(s, ir.Load | ir.Store)]
        self.parent.run(computed, self.copies, self.place)
        for s in statements:
            if isinstance(s, ir.Store):
                self._store(s)

    def _at(self, operand: int, count: int) -> str:
        """The address of the first row of the block, if rows are ``count`` elements apart."""
        assert self.first is not None
        distance = self.writer.index("mul", self.first, str(count))
        return self.writer.element(whole(self.nest.operands[operand].dtype), self.place.pointers[operand], distance)

    def _store(self, s: ir.Store) -> None:
        dtype, pointer = self.nest.operands[s.operand].dtype, self._at(s.operand, self.count)
        for copy in self.copies:
            copy.memory.store(copy.values[s.value], self.writer.element(whole(dtype), pointer, str(copy.slot)))

    def _load(self, s: ir.Load) -> None:
        operand, count, width = self.nest.operands[s.operand], self.count, self.width
        places = [[divmod(k * width + lane, count) for lane in range(width)] for k in range(count)]
        if operand.apart is not None:
            apart, step = operand.apart
            self._load_apart(s, apart, [[row * apart + step * turn for row, turn in some] for some in places])
            return
        dtype, moves = operand.dtype, bool(operand.strides[-1])
        pointer = self._at(s.operand, operand.strides[-2])
        turns = []
        for turn in range(count if moves else 1):
            distance = self.parent.distance(s.operand, len(self.nest.dims) - 1, str(turn)) if moves else "0"
            p = self.writer.element(whole(dtype), pointer, distance)
            turns.append(self.memory.load(dtype, p) if operand.strides[-2] else self.memory.load_scalar(dtype, p))
        for copy, some in zip(self.copies, places, strict=True):
            picks = [(turn if moves else 0, row if operand.strides[-2] else 0) for row, turn in some]
            copy.values[s.out] = shuffles.picked_value(turns, picks, self.lanes)

    def _load_apart(self, s: ir.Load, apart: int, offsets: Sequence[Sequence[int]]) -> None:
        """Values of rows at known distances, from vectors where they are needed."""
        dtype, width, pointer = self.nest.operands[s.operand].dtype, self.width, self._at(s.operand, apart)
        last, loaded = max(map(max, offsets)) - width + 1, dict[int, Value]()
        for copy, wanted in zip(self.copies, offsets, strict=True):
            starts: list[int] = []
            for offset in sorted(wanted):
                if not starts or offset >= starts[-1] + width:
                    starts.append(min(offset, last))
            for start in starts:
                if start not in loaded:
                    loaded[start] = self.memory.load(dtype, self.writer.element(whole(dtype), pointer, str(start)))
            vectors = [loaded[start] for start in starts]
            copy.values[s.out] = shuffles.picked_value(vectors, shuffles.picks(starts, wanted), self.lanes)
