"""Report of the memory of a plan: as_text("plan") lists each value as input, alias, reused, new or copied, and why.

    b f32[8,4] 128 bytes: alias of a (input 0)
    c f32[8,4] 128 bytes: temporary 0, at 0 of the arena; reused from d by step 2
    copy of a to e before step 3 (128 bytes): a is an input that is not donated

Names are those of as_text("jaxpr"); steps are numbered in the order in which kernels and calls run.
"""

from __future__ import annotations

from typing import Any

from weft._base.record import NamedTuple
from weft.compiler.plans import residuals
from weft.compiler.plans.buffer_assignment import Assignment
from weft.compiler.plans.instructions import DonatedOutput, InputOutput, NewOutput, Output, SameOutput
from weft.compiler.plans.plan import Planner
from weft.core.programs.printer import Context


class Entry(NamedTuple):
    """One line of the report: about a value, or a copy that the plan makes of it."""

    variable: Any  # None for lines about results
    kind: str  # input, new, reused, result, alias, view, copy
    text: str
    nbytes: int
    step: int = -1  # of a copy


class MemoryReport:
    """Makes the plan once more and records its decisions."""

    def __init__(self, memory: Assignment) -> None:
        self.kernels, self.memory = memory.kernels, memory
        self.given = set(self.memory.donated)
        self.planned = Planner(memory).run()
        self.taken = {
            entry.source: i for i, entry in enumerate(self.planned.outputs) if isinstance(entry, DonatedOutput)
        }
        self.names = Context()
        jaxpr = self.kernels.jaxpr
        for variable in (*jaxpr.constvars, *jaxpr.invars, *[v for e in jaxpr.eqns for v in e.outvars]):
            self.names.name(variable)

    def name(self, variable: Any) -> str:
        return self.names.name(variable)

    def lines(self) -> list[str]:
        return [*[entry.text for entry in self.entries()], *self.residuals()]

    def entries(self) -> list[Entry]:
        """Every value in memory, every result that shares memory, every copy."""
        inputs = [Entry(v, "input", self._input(v, i), v.aval.nbytes) for v, i in self.memory.inputs.items()]
        buffers = [Entry(v, _kind(b), self._buffer(v, b), b.nbytes) for v, b in self.memory.buffers.items()]
        views = {view.variable for step in self.kernels.steps for view in step.views if view is not None}
        aliases = [
            Entry(
                v,
                "view" if v in views else "alias",
                f"{self._head(v)}: {'a view, read in' if v in views else 'alias of'} {self._located(source)}",
                v.aval.nbytes,
            )
            for v, source in self.kernels.aliases.items()
        ]
        copies = [copy for number, step in enumerate(self.kernels.steps) for copy in self._copies(number, step)]
        outputs = [
            Entry(None, "alias", line, entry.aval.nbytes)
            for i, entry in enumerate(self.planned.outputs)
            for line in self._shared_output(i, entry)
        ]
        return [*inputs, *buffers, *aliases, *outputs, *copies]

    def residuals(self) -> list[str]:
        """What is stored for the backward pass."""
        stored = {v: self._step(buffer.first) for v, buffer in self.memory.buffers.items()}
        return residuals.describe(self.kernels.jaxpr, stored, self._base, self.name)

    def _base(self, variable: Any) -> Any:
        """The value whose memory this one uses; itself if it is never stored."""
        return self.memory.base(variable)

    def _head(self, variable: Any) -> str:
        return f"{self.name(variable)} {variable.aval.str_short()} {variable.aval.nbytes} bytes"

    def _located(self, variable: Any) -> str:
        """A value and the memory it is in."""
        base = self.memory.base(variable)
        where = f"input {self.memory.inputs[base]}" if base in self.memory.inputs else self._slot(base)
        return f"{self.name(variable)} ({where})"

    def _slot(self, base: Any) -> str:
        root = self.memory.buffers[base].root()
        if root.output >= 0:
            return f"result {root.output}"
        return f"temporary {root.slot - len(self.memory.inputs) - len(self.memory.out_avals)}"

    def _step(self, number: int) -> str:
        step = self.kernels.steps[number]
        what = step.kernel.name if step.kernel is not None else step.equation.primitive.name
        return f"step {number} ({what})"

    def _input(self, variable: Any, index: int) -> str:
        head = f"{self._head(variable)}: input {index}"
        if index not in self.given:
            return head
        if index in self.taken:
            return f"{head}, donated; result {self.taken[index]} is written over it unless others hold it"
        return f"{head}, donated, not reused: {self._why_not_donated(variable, index)}"

    def _why_not_donated(self, variable: Any, index: int) -> str:
        if any(isinstance(entry, InputOutput) and entry.source == index for entry in self.planned.outputs):
            return "it is returned as it is"
        roots = [b for b in self.memory.buffers.values() if b.joined is None and b.output >= 0]
        fitting = [b for b in roots if b.nbytes == variable.aval.nbytes]
        if not fitting:
            return f"no result of {variable.aval.nbytes} bytes is made"
        free = [b for b in fitting if isinstance(self.planned.outputs[b.output], NewOutput)]
        if not free:
            return "another donated argument serves the results of its size"
        last, first = self.memory.input_last[index], max(b.first for b in free)
        if last > first:
            return f"{self._step(last)} reads it after the result is written"
        if self.kernels.steps[last].kernel is None:
            return f"{self._step(last)} reads its operands until it ends"
        return f"{self._step(last)} reads other elements of it than it writes at the same time"

    def _buffer(self, variable: Any, buffer: Any) -> str:
        root, head = buffer.root(), self._head(variable)
        if buffer.joined is not None:
            source = next(v for v, b in self.memory.buffers.items() if b is buffer.joined)
            where = f"{self._slot(variable)}; reused from {self.name(source)}, which dies in"
            return f"{head}: {where} {self._step(buffer.first)}"
        if root.output >= 0:
            entry = self.planned.outputs[root.output]
            reused = f", reused from donated input {entry.source}" if isinstance(entry, DonatedOutput) else ", new"
            return f"{head}: result {root.output}{reused}"
        offset = self.planned.temps[root.slot - len(self.memory.inputs) - len(self.memory.out_avals)][0]
        lifetime = f"from {self._step(root.first)} to {self._step(min(root.last, len(self.kernels.steps) - 1))}"
        return f"{head}: {self._slot(variable)}, at {offset} of the arena, {lifetime}"

    def _shared_output(self, position: int, entry: Output) -> list[str]:
        if isinstance(entry, InputOutput):
            return [f"result {position}: alias of input {entry.source}"]
        if isinstance(entry, SameOutput):
            return [f"result {position}: alias of result {entry.source}"]
        return []

    def _copies(self, number: int, step: Any) -> list[Entry]:
        found = []
        for source, target in step.copies:
            if self.memory.slot(source) != self.memory.slot(target) and target.aval.nbytes:
                what = f"copy of {self._located(source)} to {self._located(target)} before {self._step(number)}"
                text = f"{what}, {target.aval.nbytes} bytes: {self._why_copied(number, source, target)}"
                found.append(Entry(source, "copy", text, target.aval.nbytes, number))
        return found

    def _why_copied(self, number: int, source: Any, target: Any) -> str:
        """Why a step cannot write into the memory of ``source``."""
        memory, base = self.memory, self.memory.base(source)
        name = self.name(source)
        if base in memory.inputs:
            index = memory.inputs[base]
            if index not in self.given:
                return f"{name} is an input that is not donated"
            if self.taken.get(index, -1) == memory.buffers[memory.base(target)].root().output:
                return f"only if others hold donated input {index}, which is written over otherwise"
            if index in self.taken:
                return f"donated input {index} serves result {self.taken[index]}"
            return f"{name} is donated, but {self._why_not_donated(base, index)}"
        root = memory.buffers[base].root()
        if root.output >= 0:
            return f"{name} stands in result {root.output}, which must stay"
        if root.last > number:
            return f"{self._step(root.last)} still reads {name}"
        return f"{self._step(number)} also reads {name}"


def _kind(buffer: Any) -> str:
    if buffer.joined is not None:
        return "reused"
    return "result" if buffer.root().output >= 0 else "new"
