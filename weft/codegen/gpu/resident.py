"""Writes a loop of kernels as one kernel of one block: the text of each kernel stands where the loop runs it.

A kernel that was written for many blocks runs them one after the other, or, where they need no barriers, as many side
by side as there are threads for. A barrier follows each step.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from weft._base.target import Target
from weft._base.target_model import WARP
from weft.codegen import module_text
from weft.codegen.gpu import threads
from weft.codegen.gpu.block_memory import BlockMemory
from weft.codegen.gpu.blocks_ahead import BlocksAhead
from weft.codegen.writer import Writer
from weft.loops.gpu.resident import Call, Carry, Cell, Choose, Copy, Fill, Offset, Repeat, Resident, Row

BARRIER = "@llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)"
SOME = "llvm.nvvm.barrier.cta.sync.aligned.count"
_NAMES = re.compile(r"%([A-Za-z][\w.]*)")
_LABELS = re.compile(r"^(\w+):", re.MULTILINE)
STACK = re.compile(r"^%\S+ = alloca .*\n", re.MULTILINE)
_CASTS = re.compile(r"addrspacecast ptr addrspace\(1\) %(o\d+|scratch) to ptr")
_REGISTERS = re.compile(r"call i32 @llvm\.nvvm\.read\.ptx\.sreg\.(tid|ctaid|ntid)\.x\(\)")

Entry = Callable[[Call, Target], Writer]


class ResidentWriter(BlockMemory):
    """Writes the only entry; ``entry`` writes that of a kernel."""

    def __init__(self, program: Resident, target: Target, entry: Entry) -> None:
        super().__init__(program, target)
        self.entry = entry
        self.tables: list[str] = []
        self._count = 0

    def write(self) -> Writer:
        writer, program = self.writer, self.program
        self.thread = threads.number(writer, "tid.x")
        writer.entry, writer.lines = writer.lines, []  # what is held in registers needs it
        for k in range(program.n_operands):
            self.bases[-1 - k] = writer.op(f"addrspacecast ptr addrspace(1) %o{k} to ptr")
        if program.near:
            self.bases[0] = threads.shared(writer, "%w0")
        else:
            self.bases[0] = writer.op("addrspacecast ptr addrspace(1) %scratch to ptr")
        self.run(program.steps)
        return writer

    def cell(self, cell: Cell) -> None:
        """The steps of this block."""
        writer, number = self.writer, threads.number(self.writer, "ctaid.x")
        scratch = writer.op("addrspacecast ptr addrspace(1) %scratch to ptr")
        self.bases[cell.far] = writer.element("i8", scratch, writer.index("mul", number, f"%w{cell.far_bytes}"))
        for row in cell.rows:
            offset = writer.index("mul", number, f"%w{row.stride}")
            self.bases[row.base] = writer.element("i8", self.address(row.first), offset)
        self.run(cell.steps, False)

    def run(self, steps: Sequence[Any], last: bool = True) -> None:
        """Some steps, each with a barrier behind it where it has written; behind the last one if ``last``."""
        for number, step in enumerate(steps):
            if isinstance(step, Call):
                self.call(step)
            elif isinstance(step, Copy):
                self.copy(self.address(step.to), self.address(step.source), f"%w{step.nbytes}")
            elif isinstance(step, Fill):
                self.fill(self.address(step.to), step.byte, f"%w{step.nbytes}")
            elif isinstance(step, Offset):
                self.offset(step)
            elif isinstance(step, Choose):
                self.choose(step)
            elif isinstance(step, Cell):
                self.cell(step)
            else:
                self.repeat(step)
            wrote = isinstance(step, Call | Copy | Fill) or (isinstance(step, Offset) and step.flag is not None)
            if wrote and (last or number < len(steps) - 1):
                threads.barrier(self.writer)

    # kernels

    def call(self, call: Call) -> None:
        """All blocks of a kernel."""
        made = self.entry(call, self.target)
        self.writer.declarations |= made.declarations
        self.writer.functions |= made.functions
        self.writer.cold_branches = self.writer.cold_branches or made.cold_branches
        self._count += 1
        mark = f"k{self._count}"
        if call.held is not None:
            self._held(call, made, mark)
            return
        table, loads, body = module_text.constants(made, mark, "br label %done")
        self.tables += table
        text = "\n".join(["entry:", *loads, body, ""])
        alone = BARRIER in text
        n, writer = call.threads, self.writer
        side_by_side = 1 if alone or n % WARP else self.program.threads // n
        first, virtual = "0", self.thread
        if side_by_side > 1:
            first = writer.index("lshr", self.thread, str(n.bit_length() - 1))
            virtual = writer.index("and", self.thread, str(n - 1))
        pointers = self._pointers(call)
        if alone and n < self.program.threads:
            text = text.replace(BARRIER, f"@{SOME}(i32 1, i32 {n})")
            writer.declarations[SOME] = f"declare void @{SOME}(i32, i32)"

        def block(number: str, _: list[str]) -> list[str]:
            self._inline(text, mark, pointers, call, virtual, number)
            if alone:  # the next one uses the same memory
                writer.line(f"call void {f'@{SOME}(i32 1, i32 {n})' if n < self.program.threads else BARRIER}")
            return []

        def blocks() -> None:
            if call.once:
                there = writer.compare_index("slt", first, f"%w{call.blocks}")
                threads.when(writer, there, lambda: block(writer.op(f"add i64 {first}, 0"), []))
            else:
                writer.loop(first, f"%w{call.blocks}", side_by_side, [], block)

        if side_by_side * n < self.program.threads:
            threads.when(writer, writer.compare_index("slt", self.thread, str(side_by_side * n)), blocks)
        else:
            blocks()

    def _pointers(self, call: Call) -> dict[str, str]:
        pointers = {f"o{k}": self.address(location) for k, location in enumerate(call.operands)}
        pointers["scratch"] = "null" if call.scratch is None else self.address(call.scratch)
        return pointers

    def _held(self, call: Call, made: Writer, mark: str) -> None:
        """A product whose matrix is read at the start of this kernel."""
        assert call.held is not None
        writer, location = self.writer, call.operands[call.held.operand]
        early = writer.once(f"addrspacecast ptr addrspace(1) %o{-1 - location.base} to ptr")
        if location.offset is not None:
            early = writer.once(f"getelementptr i8, ptr {early}, i64 %w{location.offset}")
        thread = writer.once(f"trunc i64 {self.thread} to i32")
        registers = {"tid": thread, "ctaid": "0"}
        pointers: dict[str, str] = {"o0": "null", "o1": "null", "o2": "null", f"o{call.held.operand}": early}
        before = self._renamed("\n".join(made.entry), mark, pointers, call.words, registers)
        writer.entry += before.split("\n")
        text = "\n".join(["entry:", *made.lines, "br label %done", ""])
        busy = self.writer.compare_index("slt", self.thread, f"%w{call.blocks}")
        pointers = self._pointers(call)
        threads.when(
            writer, busy, lambda: self._inserted(self._renamed(text, mark, pointers, call.words, registers), mark)
        )

    def _inline(self, text: str, mark: str, pointers: dict[str, str], call: Call, thread: str, block: str) -> None:
        """The text of a kernel for one of its blocks."""
        numbers = {"tid": thread, "ctaid": block}
        registers = {name: self.writer.op(f"trunc i64 {number} to i32") for name, number in numbers.items()}
        registers["ntid"] = str(call.threads)
        self._inserted(self._renamed(text, mark, pointers, call.words, registers), mark)

    def _inserted(self, text: str, mark: str) -> None:
        """A text from the label ``entry`` to ``done``; stack memory is that of the whole kernel."""
        writer = self.writer
        writer.entry += [line.strip() for line in STACK.findall(text)]
        writer.branch(f"{mark}.entry")
        writer.lines.append(STACK.sub("", text).rstrip("\n"))
        writer.label(f"{mark}.done")

    def _renamed(self, text: str, mark: str, pointers: dict[str, str], words: int, registers: dict[str, str]) -> str:
        """The text of a kernel with names of its own, its parameters and registers replaced."""

        def renamed(found: re.Match[str]) -> str:
            name = found[1]
            if name.startswith("ours."):
                return f"%{name[5:]}"
            if name[0] == "w" and name[1:].isdigit():
                return f"%w{words + int(name[1:])}"
            return f"%{mark}.{name}"

        text = _CASTS.sub(lambda found: f"getelementptr i8, ptr {_ours(pointers[found[1]])}, i64 0", text)
        text = _REGISTERS.sub(lambda found: f"add i32 {_ours(registers[found[1]])}, 0", text)
        return _LABELS.sub(lambda found: f"{mark}.{found[1]}:", _NAMES.sub(renamed, text))

    # control

    def choose(self, step: Choose) -> None:
        """The steps of one branch; all threads read which."""
        writer = self.writer
        index = writer.op(f"sext i32 {writer.load('i32', self.address(step.which))} to i64")
        threads.barrier(writer)  # a branch may write where that was
        for number, steps in enumerate(step.branches):
            low = "true" if number == 0 else writer.compare_index("sge", index, str(number))
            last = number == len(step.branches) - 1
            high = "true" if last else writer.compare_index("slt", index, str(number + 1))
            threads.when(writer, writer.op(f"and i1 {low}, {high}"), lambda steps=steps: self.run(steps))

    def repeat(self, step: Repeat) -> None:
        writer = self.writer
        homes = [self.address(one.home) for one in step.carry]
        starts = self._starts(step.carry, homes)
        pairs = zip(step.carry, starts, strict=True)
        spares = [now if one.spare is None else self.address(one.spare) for one, now in pairs]
        rows = self._rows(step)
        ahead = BlocksAhead(self, step, partial(self._index, step), self.run) if step.ahead else None
        before, head, done = writer.block, writer.fresh_label(), writer.fresh_label()
        writer.branch(head)
        writer.label(head)
        at, trip = len(writer.lines), writer.name()
        swapped = [k for k, one in enumerate(step.carry) if one.spare is not None]
        now, later = list(starts), list(spares)
        for k in swapped:
            now[k], later[k] = writer.name(), writer.name()
        for row in rows:
            row.begin(writer)
        if ahead is not None:
            ahead.begin()
        for one, a, b in zip(step.carry, now, later, strict=True):
            self.bases[one.now], self.bases[one.later] = a, b
        writer.open_loops.append(None)
        self._asked(step, trip, done)
        self._turn(step, trip, rows, ahead)
        following = writer.op(f"add nsw i64 {trip}, 1")
        latch = writer.block
        writer.branch(head)
        writer.open_loops.pop()
        phis = [f"{trip} = phi i64 [ 0, %{before} ], [ {following}, %{latch} ]"]
        for k in swapped:
            phis.append(f"{now[k]} = phi ptr [ {starts[k]}, %{before} ], [ {later[k]}, %{latch} ]")
            phis.append(f"{later[k]} = phi ptr [ {spares[k]}, %{before} ], [ {now[k]}, %{latch} ]")
        for row in rows:
            phis += row.phis(before, latch)
        phis += ahead.phis(before, latch) if ahead is not None else []
        writer.lines[at:at] = phis
        writer.label(done)
        self._settle(step, homes, now)

    def _starts(self, carry: Sequence[Carry], homes: Sequence[str]) -> list[str]:
        """Where the state is before the first step."""
        starts = list(homes)
        for k, one in enumerate(carry):
            if one.start is not None:
                starts[k] = self.address(one.start)
                self.copy(starts[k], homes[k], f"%w{one.nbytes}")
        if starts != list(homes):
            threads.barrier(self.writer)
        return starts

    def _asked(self, step: Repeat, trip: str, done: str) -> None:
        """Leaves the loop if it is over."""
        writer, body = self.writer, self.writer.fresh_label()
        self.run(step.cond)
        if step.answer is None:
            goes_on = writer.compare_index("slt", trip, f"%w{step.trips}")
        else:
            goes_on = writer.op(f"icmp ne i8 {writer.load('i8', self.address(step.answer))}, 0")
            threads.barrier(writer)  # the body may write where that was
        writer.branch_if(goes_on, body, done)
        writer.label(body)

    def _rows(self, step: Repeat) -> list[_Row]:
        """The rows of a loop; the first of those that are brought ahead."""
        found = [_Row(self, row, f"%w{step.trips}", partial(self._index, step)) for row in step.rows]
        for row in found:
            row.bring_first()
        if any(row.buffers for row in found):
            threads.barrier(self.writer)
        return found

    def _index(self, step: Repeat, trip: str) -> str:
        """The number of the row of a step."""
        last = self.writer.index("sub", f"%w{step.trips}", "1") if step.reverse else ""
        return self.writer.index("sub", last, trip) if step.reverse else trip

    def _turn(self, step: Repeat, trip: str, rows: Sequence[_Row], ahead: BlocksAhead | None) -> None:
        """The body once, and what has to be copied of its results."""
        writer, index = self.writer, self._index(step, trip)
        for row in rows:
            moved = writer.element("i8", row.first, writer.index("mul", index, row.stride))
            self.bases[row.row.base] = row.now if row.buffers else moved
        brought = [(row, *row.ask(trip)) for row in rows if row.buffers]
        if ahead is not None:
            ahead.turn(trip)
        copies = [(one, one.copied) for one in step.carry if one.copied is not None]
        self.run(step.body, bool(copies or step.left))
        for one, source in copies:
            self.copy(self.bases[one.later], self.address(source), f"%w{one.nbytes}")
        for one in step.left:
            self.copy(self.address(one.to), self.address(one.source), f"%w{one.nbytes}")
        for row, there, value in brought:
            to = writer.element("i8", row.later, writer.index("mul", self.thread, "4"))
            threads.when(writer, there, partial(writer.line, f"store i32 {value}, ptr {to}"))
        if ahead is not None:
            ahead.wait()
        threads.barrier(writer)

    def _settle(self, step: Repeat, homes: Sequence[str], now: Sequence[str]) -> None:
        """The state where it is wanted."""
        copied = False
        for one, home, last in zip(step.carry, homes, now, strict=True):
            if one.spare is None and one.start is None:
                continue
            elsewhere = self.writer.op(f"icmp ne ptr {last}, {home}")
            size = f"%w{one.nbytes}"
            threads.when(self.writer, elsewhere, partial(self.copy, home, last, size))
            copied = True
        if copied:
            threads.barrier(self.writer)


class _Row:
    """A row of a loop while it is written: where it is in the block's memory, and where the next one will be."""

    def __init__(self, memory: BlockMemory, row: Row, trips: str, index: Callable[[str], str]) -> None:
        self.writer, self.thread, self.row, self.trips, self.index = memory.writer, memory.thread, row, trips, index
        self.first, self.stride = memory.address(row.first), f"%w{row.stride}"
        self.buffers = [memory.address(location) for location in row.ahead] if row.ahead is not None else []
        self.now = self.later = ""

    def begin(self, writer: Writer) -> None:
        if self.buffers:
            self.now, self.later = writer.name(), writer.name()

    def phis(self, before: str, latch: str) -> list[str]:
        if not self.buffers:
            return []
        pairs = ((self.now, self.buffers[0], self.later), (self.later, self.buffers[1], self.now))
        return [f"{a} = phi ptr [ {first}, %{before} ], [ {b}, %{latch} ]" for a, first, b in pairs]

    def _inside(self, step: str) -> str:
        """Whether there is such a step, and a word of its row for this thread."""
        at, more = self.writer.index("mul", self.thread, "4"), self.writer.compare_index("slt", step, self.trips)
        return self.writer.op(f"and i1 {more}, {self.writer.compare_index('slt', at, self.stride)}")

    def bring_first(self) -> None:
        """Copies this thread's word of the first row."""
        writer = self.writer
        if not self.buffers:
            return
        source = writer.element("i8", self.first, writer.index("mul", self.index("0"), self.stride))

        def copy() -> None:
            at = writer.index("mul", self.thread, "4")
            value = writer.load("i32", writer.element("i8", source, at))
            writer.line(f"store i32 {value}, ptr {writer.element('i8', self.buffers[0], at)}")

        threads.when(writer, self._inside("0"), copy)

    def ask(self, trip: str) -> tuple[str, str]:
        """Asks for this thread's word of the next row; gives whether there is one, and its value."""
        writer = self.writer
        following = writer.index("add", trip, "1")
        there, offset = self._inside(following), writer.index("mul", self.index(following), self.stride)
        at = writer.index("add", offset, writer.index("mul", self.thread, "4"))

        def load() -> list[tuple[str, str]]:
            return [("i32", writer.load("i32", writer.element("i8", self.first, at)))]

        (value,) = writer.either(there, load, lambda: [("i32", "0")])
        return there, value


def _ours(name: str) -> str:
    """A name that stays as it is."""
    return f"%ours.{name[1:]}" if name.startswith("%") else name
