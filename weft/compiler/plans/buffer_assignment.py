"""Assignment of buffers: where every value of a program lives, and which values share memory.

Outputs are written where they are returned; temporaries share one arena by their live ranges. A kernel overwrites an
operand that it reads last, if it visits both element for element. A donated input is reused in the same way, or if it
is dead before the output is first written.

    kernel exp a -> b; sort b -> c, f32[64]   ->   b is temporary 0, 256 bytes at 0; c is result 0
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Sequence
from typing import Any

from weft._base.record import Record
from weft.compiler.fusion.kernels import Kernels, Step
from weft.compiler.matrix_products.epilogues import epilogues
from weft.compiler.plans.arena import Arena
from weft.compiler.plans.in_place import in_place
from weft.compiler.plans.instructions import Copy, DonatedOutput, InputOutput, Location, NewOutput, Output, SameOutput
from weft.core import kinds
from weft.core.programs.jaxpr import JaxprEqn, Literal
from weft.loops import ir
from weft.loops.nests import Lowered

ALIGNMENT = 64


class Buffer(Record, frozen=False):
    """The memory of a computed value, and its live range."""

    nbytes: int
    first: int
    last: int
    output: int = -1
    joined: Any = None  # the buffer whose memory this one uses
    slot: int = -1

    def root(self) -> Buffer:
        buffer = self
        while buffer.joined is not None:
            buffer = buffer.joined
        return buffer


class Assignment:
    """Computes live ranges, then which values share memory, then slots."""

    def __init__(
        self,
        kernels: Kernels,
        lowered: Sequence[Lowered | None],
        donated: Sequence[bool],
        out_avals: Sequence[Any],
        copied: Container[int] = (),
    ) -> None:
        jaxpr, self.copied = kernels.jaxpr, copied
        self.kernels, self.lowered, self.out_avals, self.jaxpr = kernels, lowered, out_avals, jaxpr
        self.inputs = {v: i for i, v in enumerate((*jaxpr.constvars, *jaxpr.invars))}
        shift = len(jaxpr.constvars)
        self.donated = {i + shift for i, given in enumerate(donated) if given}
        self.first_donated = min(self.donated, default=0)
        self.buffers: dict[Any, Buffer] = {}
        self.input_last = [-1] * len(self.inputs)
        self.first_copies: list[Copy] = []  # of inputs that are results, before anything else
        self.last_copies: list[Copy] = []  # of results that are results a second time
        self.epilogues = epilogues(kernels.steps, lowered, jaxpr.outvars, self.base)
        self.products = {kernel: (product, form) for product, (kernel, form) in self.epilogues.items()}
        self.stored: set[Any] = set()  # what is computed into memory, aliases left out
        self.outputs: list[Output] = []
        self.temps: list[tuple[int, int]] = []  # (offset, bytes)
        self.arena_bytes = 0

    def run(self, searched: Callable[[int], Sequence[Any]]) -> None:
        """``searched`` gives the values that the guard of a step reads in addition to the operands of the step."""
        self._lifetimes(searched)
        self._assign_outputs()
        for number, step in enumerate(self.kernels.steps):
            self._reuse(number, step)
        if self.donated:
            self._donate()
        self._pack()

    def base(self, variable: Any) -> Any:
        aliases = self.kernels.aliases
        while variable in aliases:
            variable = aliases[variable]
        return variable

    def slot(self, variable: Any) -> int:
        base = self.base(variable)
        return self.inputs[base] if base in self.inputs else self.buffers[base].root().slot

    def buffer_of(self, variable: Any) -> Buffer:
        """The buffer whose memory a computed value uses."""
        return self.buffers[self.base(variable)].root()

    def location(self, variable: Any, offset: int = 0, dyn: int = -1) -> Location:
        return (self.slot(variable), offset, dyn)

    # lifetimes

    def reads_and_writes(self, number: int, step: Step) -> tuple[list[Any], list[Any]]:
        if step.kernel is None:
            moved = [starts_of(view.starts) for view in step.views if view is not None and view.starts is not None]
            reads = [v for v in itertools.chain(step.equation.invars, *moved) if type(v) is not Literal]
            return reads, list(step.equation.outvars)
        reads = [source for source, _ in step.copies]
        writes = [target for _, target in step.copies]
        low = self.lowered[number]
        assert low is not None
        for binding in low.operands:
            (writes if binding.role == "out" else reads).append(binding.variable)
            if binding.starts is not None:
                reads += [v for v in starts_of(binding.starts) if type(v) is not Literal]
        return reads, writes

    def _lifetimes(self, searched: Callable[[int], Sequence[Any]]) -> None:
        accesses = [self.reads_and_writes(number, step) for number, step in enumerate(self.kernels.steps)]
        self.stored.update([self.base(v) for _, writes in accesses for v in writes])
        if self.kernels.guards is not None:
            words = self.kernels.guards.variable
            self.buffers[words] = Buffer(words.aval.nbytes, 0, len(accesses))
            for number, (reads, _) in enumerate(accesses):
                reads += searched(number)
        for number, (reads, writes) in enumerate(accesses):
            if number in self.epilogues:  # the epilogue runs with the product
                number = self.epilogues[number][0]
            for variable in writes:
                base = self.base(variable)
                if base not in self.buffers:
                    self.buffers[base] = Buffer(base.aval.nbytes, number, number)
                self.buffers[base].last = max(self.buffers[base].last, number)
            for variable in reads:
                base = self.base(variable)
                if base in self.buffers:
                    self.buffers[base].last = max(self.buffers[base].last, number)
                elif base in self.inputs:
                    self.input_last[self.inputs[base]] = max(self.input_last[self.inputs[base]], number)
                else:  # nothing writes it: it has no elements
                    self.buffers[base] = Buffer(0, number, number)

    def _assign_outputs(self) -> None:
        outputs = self.outputs
        end = len(self.kernels.steps)
        for position, (variable, aval) in enumerate(zip(self.jaxpr.outvars, self.out_avals, strict=True)):
            base = self.base(variable)
            if base in self.inputs:
                index = self.inputs[base]
                if position in self.copied and index not in self.donated:
                    outputs.append(NewOutput(aval.nbytes, aval))
                    if aval.nbytes:
                        location = (len(self.inputs) + position, 0, -1)
                        self.first_copies.append(Copy(location, (index, 0, -1), aval.nbytes))
                    continue
                outputs.append(InputOutput(index, aval))
                self.donated.discard(index)
                continue
            buffer = self.buffers.get(base)
            if buffer is None:  # nothing writes it: it has no elements
                outputs.append(NewOutput(aval.nbytes, aval))
            elif buffer.output >= 0:
                if position in self.copied and aval.nbytes:
                    outputs.append(NewOutput(aval.nbytes, aval))
                    first = len(self.inputs)
                    self.last_copies.append(
                        Copy((first + position, 0, -1), (first + buffer.output, 0, -1), aval.nbytes)
                    )
                else:
                    outputs.append(SameOutput(buffer.output, aval))
            else:
                buffer.output, buffer.last = position, end
                outputs.append(NewOutput(aval.nbytes, aval))

    # sharing

    def _reuse(self, number: int, step: Step) -> None:
        """Let results of a kernel overwrite operands that are dead after it."""
        if step.kernel is None:
            self._reuse_state(number, step)
            return
        low = self.lowered[number]
        assert low is not None
        for source, target in step.copies:
            base = self.base(source)
            if base in self.buffers and self._reads_first(low, base):
                self._join(base, self.base(target), number)
        if step.copies or self.kernels.guards is not None:  # a search reads the operands after the kernel
            return
        for index, binding in enumerate(low.operands):
            if binding.role != "out":
                continue
            target = self.base(binding.variable)
            made, multiplied = self._product_of(number)
            if self._is_given(number, index, multiplied):
                continue
            sources = [(i, self.base(b.variable)) for i, b in enumerate(low.operands) if b.role == "in"]
            fits = [(i, base) for i, base in sources if base in self.buffers and base not in multiplied]
            for other, base in sorted(fits, key=lambda source: source[1] is not made):
                if in_place(low, index, other, self.base) and self._join(base, target, number):
                    break

    def _is_given(self, number: int, index: int, multiplied: Sequence[Any]) -> bool:
        """Whether an epilogue may write a result over a donated input: where threads have the product in registers."""
        low = self.lowered[number]
        if low is None or self.products.get(number, (0, ""))[1] != "points":
            return False
        target = self.buffers[self.base(low.operands[index].variable)]
        if target.output < 0:
            return False
        return any(
            binding.role == "in"
            and self.inputs.get(base := self.base(binding.variable)) in self.donated
            and base.aval.nbytes == target.nbytes
            and base not in multiplied
            and self.input_last[self.inputs[base]] == number
            and in_place(low, index, other, self.base)
            for other, binding in enumerate(low.operands)
        )

    def _product_of(self, number: int) -> tuple[Any, list[Any]]:
        """The result and the operands of the product whose epilogue a kernel is."""
        if number not in self.products:
            return None, []
        equation = self.kernels.steps[self.products[number][0]].equation
        return self.base(equation.outvars[0]), [self.base(v) for v in equation.invars]

    def _reuse_state(self, number: int, step: Step) -> None:
        """Let a loop update its initial state in place, if nothing else reads it."""
        for source, target in step.copies:
            base = self.base(source)
            readers = sum(1 for v in step.equation.invars if type(v) is not Literal and self.base(v) is base)
            if base in self.buffers and readers == 1:
                self._join(base, self.base(target), number)

    def _join(self, source: Any, target: Any, number: int) -> bool:
        """Put ``target`` into the memory of ``source``, whose last use is step ``number``."""
        old, new = self.buffers[source].root(), self.buffers[target]
        if old is new.root() or new.joined is not None or new.first != number or old.last != number:
            return False
        if old.output >= 0 or old.nbytes != new.nbytes:
            return False
        new.joined = old
        old.last, old.output = new.last, new.output
        return True

    def _donate(self) -> None:
        """Find outputs that may use a donated input's memory."""
        outputs = self.outputs
        for base, buffer in self.buffers.items():
            root = buffer.root()
            position = root.output
            if root is not buffer or position < 0 or not isinstance(outputs[position], NewOutput):
                continue
            unchanged = self.first_donated + position  # state that is passed on unchanged stays in place
            for index in sorted(self.donated, key=lambda i: (i != unchanged, i)):
                variable = (*self.jaxpr.constvars, *self.jaxpr.invars)[index]
                if variable.aval.nbytes != root.nbytes:
                    continue
                last = self.input_last[index]
                if last < root.first or (last == root.first and self._overwrites(last, base, variable)):
                    outputs[position] = DonatedOutput(index, root.nbytes, self.out_avals[position])
                    self.donated.discard(index)
                    break

    def _overwrites(self, number: int, target: Any, source: Any) -> bool:
        """Whether step ``number`` may write ``target`` over ``source``."""
        step, low = self.kernels.steps[number], self.lowered[number]
        made, multiplied = self._product_of(number)
        if source in multiplied or (made is not None and self.buffers[made].root() is self.buffers[target].root()):
            return False  # the product writes there before the kernel reads
        if low is None:  # a loop's state: the runtime skips a copy onto itself
            readers = sum(1 for v in step.equation.invars if type(v) is not Literal and self.base(v) is source)
            return readers == 1 and (source, target) in [(self.base(a), self.base(b)) for a, b in step.copies]
        reads = [i for i, b in enumerate(low.operands) if b.role == "in" and self.base(b.variable) is source]
        writes = [i for i, b in enumerate(low.operands) if b.role == "out" and self.base(b.variable) is target]
        if step.copies:  # the runtime skips a copy onto itself
            is_target = [(self.base(a), self.base(b)) for a, b in step.copies] == [(source, target)]
            return is_target and self._reads_first(low, source)
        if self.kernels.guards is not None:
            return False
        return len(writes) == 1 and all(in_place(low, writes[0], read, self.base) for read in reads)

    def _reads_first(self, low: Lowered, array: Any) -> bool:
        """Whether a kernel reads nothing of an array that it updates, or all of that before it writes anything."""
        read = [i for i, b in enumerate(low.operands) if b.role == "in" and self.base(b.variable) is array]
        if not read:
            return True
        statements = low.nest.statements()
        writes = [n for n, s in enumerate(statements) if isinstance(s, (ir.Store, ir.Update))]
        loads = [n for n, s in enumerate(statements) if isinstance(s, (ir.Load, ir.LoadAt)) and s.operand in read]
        return low.points == 1 and max(loads, default=-1) < min(writes, default=len(statements))

    def _pack(self) -> None:
        """Slots for all buffers; temporaries at offsets of one arena, by lifetime."""
        n_inputs, n_outputs = len(self.inputs), len(self.out_avals)
        arena = Arena()
        roots = [buffer for buffer in self.buffers.values() if buffer.joined is None]
        for buffer in sorted(roots, key=lambda buffer: buffer.first):
            if buffer.output >= 0:
                buffer.slot = n_inputs + buffer.output
                continue
            size = -(-max(buffer.nbytes, 1) // ALIGNMENT) * ALIGNMENT
            offset = arena.take(size, buffer.first, buffer.last)
            buffer.slot = n_inputs + n_outputs + len(self.temps)
            self.temps.append((offset, buffer.nbytes))
        self.arena_bytes = arena.nbytes


def starts_of(equation: JaxprEqn) -> Sequence[Any]:
    """The start operands of a dynamic slice or update."""
    updates = isinstance(equation.primitive.kind, kinds.DynamicUpdateSlice)
    return equation.invars[2:] if updates else equation.invars[1:]
