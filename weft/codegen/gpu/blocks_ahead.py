"""Writes what brings blocks to the block's memory a step before they are read (``resident.Ahead``).

    blocks of step 0 come; for k: blocks of k + 1 begin to come; the step; wait for those of k + 1

The threads go on while the copies are on their way (cp.async); each waits for its own, and a barrier for all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from weft._base.record import NamedTuple
from weft.codegen.gpu import threads
from weft.codegen.gpu.block_memory import BlockMemory
from weft.loops.gpu.grid import ALIGNED
from weft.loops.gpu.resident import Ahead, Repeat


class BlocksAhead:
    """The blocks of a loop while it is written; ``index``: the number of the row of a step; ``run`` writes steps."""

    def __init__(
        self, memory: BlockMemory, step: Repeat, index: Callable[[str], str], run: Callable[[Sequence[Any]], None]
    ) -> None:
        self.memory, self.writer, self.step, self.index, self.run = memory, memory.writer, step, index, run
        self.firsts = {row.base: memory.address(row.first) for row in step.rows}
        self.pairs = [(memory.address(one.buffers[0]), memory.address(one.buffers[1])) for one in step.ahead]
        self.now, self.later = list[str](), list[str]()
        self._bring("0", [first for first, _ in self.pairs])
        self.wait()
        threads.barrier(self.writer)

    def begin(self) -> None:
        """At the head of the loop."""
        self.now, self.later = ([self.writer.name() for _ in self.pairs] for _ in range(2))
        for one, now in zip(self.step.ahead, self.now, strict=True):
            self.memory.bases[one.base] = now

    def turn(self, trip: str) -> None:
        """At the beginning of a step: those of the next one begin to come."""
        self._bring(self.writer.index("add", trip, "1"), self.later)

    def wait(self) -> None:
        """At the end of a step: until the copies of this thread have come."""
        self.writer.call("llvm.nvvm.cp.async.wait.all", "void", [])

    def phis(self, before: str, latch: str) -> list[str]:
        found = list[str]()
        for (first, second), now, later in zip(self.pairs, self.now, self.later, strict=True):
            found.append(f"{now} = phi ptr [ {first}, %{before} ], [ {later}, %{latch} ]")
            found.append(f"{later} = phi ptr [ {second}, %{before} ], [ {now}, %{latch} ]")
        return found

    def _bring(self, trip: str, to: Sequence[str]) -> None:
        """Begins to copy the blocks of a step, if there is one."""
        writer, memory, step = self.writer, self.memory, self.step

        def all_() -> None:
            bases = dict(memory.bases)
            for row in step.rows:
                at = writer.index("mul", self.index(trip), f"%w{row.stride}")
                memory.bases[row.base] = writer.element("i8", self.firsts[row.base], at)
            self.run(step.early)
            for one, target in zip(step.ahead, to, strict=True):
                self._copy(target, memory.address(one.block), one)
            memory.bases.update(bases)

        threads.when(writer, writer.compare_index("slt", trip, f"%w{step.trips}"), all_)

    def _copy(self, to: str, source: str, one: Ahead) -> None:
        """Begins to copy a block, by as many bytes at a time as its address is a multiple of."""
        writer = self.writer
        sides = (_Side(to, f"%w{one.run}", 3), _Side(source, f"%w{one.stride}", 1))
        address = writer.op(f"ptrtoint ptr {source} to i64")

        def fits(size: int) -> str:
            return writer.compare_index("eq", writer.index("and", address, str(size - 1)), "0")

        def narrow() -> None:
            writer.either(fits(4), lambda: self._rows(sides, one, 4), lambda: self._rows(sides, one, 1))

        writer.either(fits(ALIGNED), lambda: self._wide(sides, one), narrow)

    def _begins(self, sides: Sequence[_Side], one: Ahead, size: int) -> tuple[str, str, list[str]]:
        """The first byte of this thread's rows, its first row, and where both are."""
        writer, thread = self.writer, self.memory.thread
        first = writer.index("mul", writer.index("and", thread, str(one.lanes - 1)), str(size))
        row = writer.index("lshr", thread, str(one.lanes.bit_length() - 1))
        at = [
            writer.element("i8", side.pointer, writer.index("add", writer.index("mul", row, side.far), first))
            for side in sides
        ]
        return first, row, at

    def _wide(self, sides: Sequence[_Side], one: Ahead) -> None:
        writer, down = self.writer, self.memory.program.threads // one.lanes
        first, row, at = self._begins(sides, one, ALIGNED)

        def begin(pointers: Sequence[str], along: int) -> None:
            self._begin([writer.element("i8", pointer, str(along)) for pointer in pointers], sides, ALIGNED)

        for number in range(one.rounds):
            for k in range(one.passes):
                along = k * one.lanes * ALIGNED
                if one.exact:
                    begin(at, along)
                    continue
                there = writer.compare_index("slt", writer.index("add", first, str(along)), f"%w{one.run}")
                below = writer.compare_index("slt", writer.index("add", row, str(number * down)), f"%w{one.rows}")
                threads.when(writer, writer.op(f"and i1 {there}, {below}"), partial(begin, at, along))
            steps = [writer.index("mul", side.far, str(down)) for side in sides]
            at = [writer.element("i8", pointer, step) for pointer, step in zip(at, steps, strict=True)]

    def _rows(self, sides: Sequence[_Side], one: Ahead, size: int) -> None:
        writer, down = self.writer, self.memory.program.threads // one.lanes
        first, row, at = self._begins(sides, one, size)
        steps = [writer.index("mul", side.far, str(down)) for side in sides]

        def part(_: str, now: list[str]) -> list[str]:
            self._begin(now, sides, size)
            return [writer.element("i8", pointer, str(one.lanes * size)) for pointer in now]

        def some(_: str, given: list[str]) -> list[str]:
            writer.loop(first, f"%w{one.run}", one.lanes * size, [("ptr", text) for text in given], part)
            return [writer.element("i8", pointer, step) for pointer, step in zip(given, steps, strict=True)]

        writer.loop(row, f"%w{one.rows}", down, [("ptr", text) for text in at], some)

    def _begin(self, pointers: Sequence[str], sides: Sequence[_Side], size: int) -> None:
        """So many bytes of this thread."""
        writer, (to, source) = self.writer, pointers
        if size == 1:
            writer.line(f"store i8 {writer.load('i8', source)}, ptr {to}")
            return
        types = [f"ptr addrspace({side.space})" for side in sides]
        given = [
            (type_, writer.op(f"addrspacecast ptr {pointer} to {type_}"))
            for type_, pointer in zip(types, pointers, strict=True)
        ]
        through = "cg" if size == ALIGNED else "ca"  # the second-level cache alone, or all
        writer.call(f"llvm.nvvm.cp.async.{through}.shared.global.{size}", "void", given)


class _Side(NamedTuple):
    """Where a copy goes to or comes from: a block, bytes from one row to the next, and which memory that is."""

    pointer: str
    far: str
    space: int
