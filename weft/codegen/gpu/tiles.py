"""Writes maps that read operands across their rows for the threads of a GPU: by tiles that a block turns in its memory.

out[i, j] = f(x[j, i]):  32 x 32 elements of x are read along i, kept 33 places apart, and used along j
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft._base.target import Target
from weft._base.target_model import GPU_THREADS
from weft.codegen import instances
from weft.codegen.gpu import threads
from weft.codegen.gpu.points import PointWriter
from weft.codegen.instances import Instance, Position
from weft.codegen.memory import Memory
from weft.codegen.memory_words import whole
from weft.codegen.writer import Writer
from weft.loops import grid, ir

SIDE = grid.TILE  # elements of a side of a tile
STEP = GPU_THREADS // SIDE  # rows of a tile that threads take at once


class TileWriter(PointWriter):
    """Writes the entry ``tiles``."""

    def __init__(self, nest: ir.Nest, target: Target) -> None:
        super().__init__(nest, target, 1)
        self.across, self.last = grid.across(nest), len(nest.dims) - 1
        self.dim = self.form.turned
        self.memory = Memory(self.scalar, target)
        self.tile: dict[int, str] = {}  # of each operand that is turned: the address of its tile
        self.mine = ""  # the place of this thread's element in a tile

    def write(self) -> Writer:
        writer, place = self.writer, self.begin()
        thread = threads.number(writer, "tid.x")
        column = writer.index("and", thread, str(SIDE - 1))
        row = writer.index("lshr", thread, str(SIDE.bit_length() - 1))
        corner = self._corner(threads.number(writer, "ctaid.x"))
        offset = 0
        for k in self.across:
            self.tile[k] = threads.shared(writer, str(offset))
            offset += grid.tile_bytes(self.nest, k)
        self._each(row, lambda at: self._turn(corner, place, column, at))
        threads.barrier(writer)
        self._each(row, lambda at: self._element(corner, place, column, at))
        return writer

    def _corner(self, block: str) -> list[str]:
        """The index of a block's first point along each dimension."""
        found: list[str] = []
        for d in reversed(range(len(self.nest.dims))):
            tiled = d in (self.dim, self.last)
            count = self._tiles(d) if tiled else self.extents[d]
            if d:
                behind = 2 + 2 * self.last + 2  # the words of points
                at = behind + 2 * (d == self.last) if tiled else 2 * d
                block, rest = self.divided(block, at, count)
            else:
                rest = block
            found.append(self.writer.index("mul", rest, str(SIDE)) if tiled else rest)
        return found[::-1]

    def _tiles(self, dim: int) -> str:
        return self.writer.index(
            "lshr", self.writer.index("add", self.extents[dim], str(SIDE - 1)), str(SIDE.bit_length() - 1)
        )

    def _each(self, row: str, body: Callable[[str], None]) -> None:
        """``body`` for each row of a tile that this thread takes."""
        for first in range(0, SIDE, STEP):
            body(self.writer.index("add", row, str(first)))

    def _moved(self, corner: Sequence[str], along: str, across: str) -> tuple[list[str], str]:
        """The indices of a point of the tile, and whether there is one."""
        writer, indices = self.writer, list(corner)
        indices[self.last] = writer.index("add", indices[self.last], along)
        indices[self.dim] = writer.index("add", indices[self.dim], across)
        inside = [writer.compare_index("slt", indices[d], self.extents[d]) for d in (self.last, self.dim)]
        return indices, writer.op(f"and i1 {inside[0]}, {inside[1]}")

    def _turn(self, corner: Sequence[str], place: Position, column: str, row: str) -> None:
        indices, inside = self._moved(corner, row, column)

        def copy() -> None:
            at = self.at_point(place, indices)
            to = self.writer.index("add", self.writer.index("mul", row, str(SIDE + 1)), column)
            for k in self.across:
                dtype = self.nest.operands[k].dtype
                value = self.memory.load_scalar(dtype, at.pointers[k])
                self.memory.store_scalar(value, self.writer.element(whole(dtype), self.tile[k], to))

        threads.when(self.writer, inside, copy)

    def _element(self, corner: Sequence[str], place: Position, column: str, row: str) -> None:
        indices, inside = self._moved(corner, column, row)

        def compute() -> None:
            self.mine = self.writer.index("add", self.writer.index("mul", column, str(SIDE + 1)), row)
            alone = instances.fresh(self.scalars, self.scalars.values)
            alone.scalars = dict(self.scalars.values)
            at = self.at_point(place, indices)
            for phase in self.nest.phases:
                self.run([*phase.before, *phase.body], [alone], at)

        threads.when(self.writer, inside, compute)

    def load(self, s: ir.Load, copies: list[Instance], place: Position) -> None:
        if s.operand not in self.tile:
            super().load(s, copies, place)
            return
        dtype = self.nest.operands[s.operand].dtype
        for copy in copies:
            at = self.writer.element(whole(dtype), self.tile[s.operand], self.mine)
            copy.values[s.out] = copy.memory.load_scalar(dtype, at)
