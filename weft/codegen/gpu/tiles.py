"""Writes maps that read operands across their rows for the threads of a GPU: by tiles that a block turns in its memory.

out[i, j] = f(x[j, i]):  64 x 64 elements of x are read along i, kept 65 slots apart, and used along j
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from weft._base.target import Target
from weft._base.target_model import GPU_AT_ONCE, GPU_THREADS
from weft.codegen.gpu import threads
from weft.codegen.gpu.points import PointWriter
from weft.codegen.memory_access.memory import Memory
from weft.codegen.memory_access.memory_words import whole
from weft.codegen.nests import instances
from weft.codegen.nests.instances import Instance, Position
from weft.codegen.writer import Writer
from weft.loops import ir
from weft.loops.gpu import grid

SIDE = grid.TILE  # elements of a side of a tile
STEP = GPU_THREADS // SIDE  # rows of a tile that threads take at once


class TileWriter(PointWriter):
    """Writes the entry ``tiles``."""

    def __init__(self, nest: ir.Nest, target: Target) -> None:
        super().__init__(nest, target, 1)
        self.across, self.last = grid.across(nest), len(nest.dims) - 1
        self.dim = self.form.turned
        self.memory = Memory(self.scalar, target)
        self.tile: dict[int, str] = {}  # operands that are turned: the addresses of their tiles
        self.mine = ""  # the slot of this thread's element in a tile

    def write(self) -> Writer:
        writer, position = self.writer, self.begin()
        thread = threads.number(writer, "tid.x")
        column = writer.index("and", thread, str(SIDE - 1))
        row = writer.index("lshr", thread, str(SIDE.bit_length() - 1))
        corner = self._corner(threads.number(writer, "ctaid.x"))
        offset = 0
        for k in self.across:
            self.tile[k] = threads.shared(writer, str(offset))
            offset += grid.tile_bytes(self.nest, k)
        inside = []
        for d in (self.last, self.dim):
            end = writer.index("add", corner[d], str(SIDE))
            inside.append(writer.compare_index("sle", end, self.extents[d]))
        is_whole = writer.op(f"and i1 {inside[0]}, {inside[1]}")
        for of in (self._turn, self._element):
            whole_tile, part, done = (writer.fresh_label() for _ in range(3))
            writer.branch_if(is_whole, whole_tile, part)
            for label, tested in ((whole_tile, False), (part, True)):
                writer.label(label)
                self._rows(row, functools.partial(of, corner, position, column, tested=tested))
                writer.branch(done)
            writer.label(done)
            if of == self._turn:
                threads.barrier(writer)
        return writer

    def _rows(self, row: str, of: Callable[..., None]) -> None:
        """The elements of a thread: every ``STEP``-th row of the tile from its own on, a few in each turn of a loop."""

        def some(base: str, _: list[str]) -> list[str]:
            mine = self.writer.index("add", row, base)
            for first in range(0, GPU_AT_ONCE * STEP, STEP):
                of(row=mine, first=first)
            return []

        self.writer.loop("0", str(SIDE), GPU_AT_ONCE * STEP, [], some)

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

    def _moved(self, corner: Sequence[str], down: int, row: str, first: int, column: str) -> tuple[list[str], str]:
        """The indices of a point of the tile, whose rows lie along dimension ``down``, and whether there is one."""
        writer, indices = self.writer, list(corner)
        along = self.last if down == self.dim else self.dim
        indices[along] = writer.index("add", indices[along], column)
        # in this order, so that LLVM finds points whose addresses differ by a multiple of the stride
        indices[down] = writer.index("add", writer.index("add", indices[down], row), str(first))
        inside = [writer.compare_index("slt", indices[d], self.extents[d]) for d in (self.last, self.dim)]
        return indices, writer.op(f"and i1 {inside[0]}, {inside[1]}")

    def _turn(
        self, corner: Sequence[str], position: Position, column: str, *, row: str, first: int, tested: bool
    ) -> None:
        writer = self.writer
        indices, inside = self._moved(corner, self.last, row, first, column)

        def copy() -> None:
            at = self.at_point(position, indices)
            to = writer.index("add", writer.index("mul", row, str(SIDE + 1)), column)
            to = writer.index("add", to, str(first * (SIDE + 1)))
            for k in self.across:
                dtype = self.nest.operands[k].dtype
                value = self.memory.load_scalar(dtype, at.pointers[k])
                self.memory.store_scalar(value, writer.element(whole(dtype), self.tile[k], to))

        self._where(inside, tested, copy)

    def _element(
        self, corner: Sequence[str], position: Position, column: str, *, row: str, first: int, tested: bool
    ) -> None:
        writer = self.writer
        indices, inside = self._moved(corner, self.dim, row, first, column)

        def compute() -> None:
            mine = writer.index("add", writer.index("mul", column, str(SIDE + 1)), row)
            self.mine = writer.index("add", mine, str(first))
            alone = instances.fresh(self.scalars, self.scalars.values)
            alone.scalars = dict(self.scalars.values)
            at = self.at_point(position, indices)
            for phase in self.nest.phases:
                self.run([*phase.before, *phase.body], [alone], at)

        self._where(inside, tested, compute)

    def _where(self, inside: str, tested: bool, body: Callable[[], None]) -> None:
        """Points of a whole tile are not tested: nothing is between their accesses."""
        if tested:
            threads.when(self.writer, inside, body)
        else:
            body()

    def load(self, s: ir.Load, copies: list[Instance], position: Position) -> None:
        if s.operand not in self.tile:
            super().load(s, copies, position)
            return
        dtype = self.nest.operands[s.operand].dtype
        for copy in copies:
            at = self.writer.element(whole(dtype), self.tile[s.operand], self.mine)
            copy.values[s.out] = copy.memory.load_scalar(dtype, at)
