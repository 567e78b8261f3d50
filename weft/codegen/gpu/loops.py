"""Writes a routine for the threads of a GPU: a loop is one kernel, of one thread, or of a thread for each lane."""

from __future__ import annotations

from typing import Any

from weft._base.target import Target
from weft.codegen.arithmetic.lanes import Lanes
from weft.codegen.gpu import threads
from weft.codegen.gpu.points import scalar_of
from weft.codegen.memory_access.memory import Memory
from weft.codegen.routines.lane_routines import LaneScope, LaneWriter
from weft.codegen.routines.pieces import Array
from weft.codegen.routines.routine_writer import RoutineWriter
from weft.codegen.writer import Writer
from weft.loops import ir
from weft.loops.routines import routine

ENTRY = "loop"


class _OnGpu(RoutineWriter):
    """Parameters are those of a GPU's kernel, and nothing interrupts a loop."""

    def load_parameters(self) -> None:
        for k in range(len(self.program.operands)):
            self.pointers.append(self.writer.op(f"addrspacecast ptr addrspace(1) %o{k} to ptr"))
        numbers = [f"%w{k}" for k in range(self.program.trips + self.program.extents)]
        self.trips, self.extents = numbers[: self.program.trips], numbers[self.program.trips :]

    def statement(self, s: Any) -> None:
        if not isinstance(s, ir.Param):
            super().statement(s)
            return
        slot = len(self.trips) + len(self.extents) + s.index
        value = scalar_of(Memory(Lanes(self.writer, 1), self.target), s.dtype, slot)
        self.values[s.out] = Array(s.dtype, 1, (value,))

    def look(self, due: str) -> None:
        """Nobody asks a kernel to stop."""

    def write(self) -> Writer:
        """The function of one thread."""
        self.load_parameters()
        self.run(self.program.block)
        return self.writer


class _LanesOnGpu(_OnGpu, LaneWriter):
    """A thread for each lane."""

    def write(self) -> Writer:
        writer = self.writer
        self.load_parameters()
        thread, block = threads.number(writer, "tid.x"), threads.number(writer, "ctaid.x")
        size = threads.number(writer, "ntid.x")
        self.first = writer.index("add", writer.index("mul", block, size), thread)
        self.scope = LaneScope(writer, self.target, 1)
        inside = writer.compare_index("slt", self.first, self.extents[0])
        threads.when(writer, inside, lambda: self.run(self.program.block))
        return writer

    def store(self, s: ir.Store) -> None:
        """What all lanes have in common is stored by the first of them."""
        if self.program.operands[s.operand].lanes:
            super().store(s)
            return
        is_first = self.writer.compare_index("eq", self.first, "0")
        threads.when(self.writer, is_first, lambda: super(_LanesOnGpu, self).store(s))

    def fetch(self, s: ir.Load | ir.Store, base: str, kind: routine.Type) -> None:
        """Other threads run while one waits for memory."""


def writer(program: routine.Routine, target: Target) -> _OnGpu:
    """A writer of the routine's only entry."""
    return (_LanesOnGpu if program.lanes else _OnGpu)(program, target)
