"""Planning: assigns a buffer to every value and makes the list of instructions for the runtime.

In: kernels and nests. Out: a ``Plan``. Outputs are written where they are returned; temporaries share one arena by
their live ranges. A kernel overwrites an operand that it reads last, if it visits both element for element. A donated
input is reused in the same way, or if it is dead before the output is first written. Work without elements has no
instruction.

    kernel exp a -> b; sort b -> c, f32[64]   ->   b is temporary 0, 256 bytes at 0; kernel exp; sort into result 0
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from typing import Any

import numpy as np

from weft._base.record import Record
from weft.compiler import contraction, exchanges, libraries, sort_lowering
from weft.compiler.arena import Arena
from weft.compiler.epilogues import epilogues
from weft.compiler.guards import PlannedGuards
from weft.compiler.in_place import in_place
from weft.compiler.instructions import (
    Callback,
    Copy,
    CopyRows,
    DonatedOutput,
    Fill,
    Gemm,
    InputOutput,
    NewOutput,
    Offset,
    Output,
    Place,
    SameOutput,
)
from weft.compiler.kernels import Kernels, Step
from weft.compiler.product_loops import Loops, StridedOperand, is_in_pieces
from weft.compiler.steps import Control, FusedEpilogue, Native, Plan, Run
from weft.core import kinds
from weft.core.jaxpr import JaxprEqn, Literal
from weft.loops import ir
from weft.loops.nests import Binding, Lowered

ALIGNMENT = 64


class _Buffer(Record, frozen=False):
    """The memory of a computed value, and its live range."""

    nbytes: int
    first: int
    last: int
    output: int = -1
    joined: Any = None  # the buffer whose memory this one uses
    slot: int = -1

    def root(self) -> _Buffer:
        buffer = self
        while buffer.joined is not None:
            buffer = buffer.joined
        return buffer


def plan(
    kernels: Kernels,
    lowered: Sequence[Lowered | None],
    donated: Sequence[bool],
    out_avals: Sequence[Any],
    copied: Container[int] = (),
) -> Plan:
    """The plan of a fused program; ``lowered`` has the nest of every kernel step.

    ``copied``: the results that have memory of their own even where they are an input, unless that is donated, or
    another result, whole or in another shape.
    """
    found = None if any(donated) else _of_results_alone(kernels, lowered, out_avals)
    return Planner(kernels, lowered, donated, out_avals, copied).run() if found is None else found


def _of_results_alone(kernels: Kernels, lowered: Sequence[Lowered | None], out_avals: Sequence[Any]) -> Plan | None:
    """The plan of kernels that only read inputs and write results, so that no memory is shared.

    The same plan as by ``Planner``, in a tenth of the time, which every new shape of a small program takes.
    """
    if kernels.aliases or any(step.copies for step in kernels.steps):
        return None
    jaxpr = kernels.jaxpr
    slots = {v: slot for slot, v in enumerate((*jaxpr.constvars, *jaxpr.invars, *jaxpr.outvars))}
    n_inputs = len(jaxpr.constvars) + len(jaxpr.invars)
    runs: list[Any] = []
    written = set()
    for low in lowered:
        if low is None or 0 in low.extents or 0 in low.outer:
            return None
        places = []
        for binding in low.operands:
            slot, is_result = slots.get(binding.variable, -1), binding.role == "out"
            if slot < 0 or is_result != (slot >= n_inputs) or binding.starts is not None:
                return None
            if is_result:
                written.add(slot)
            places.append((slot, binding.offset * binding.dtype.itemsize, -1))
        runs.append(tuple.__new__(Run, (low, tuple(places), _outer(low))))
    if not len(written) == len(jaxpr.outvars) == len(slots) - n_inputs:
        return None
    outputs: list[Output] = [NewOutput(aval.nbytes, aval) for aval in out_avals]
    return Plan(n_inputs, outputs, [], 0, runs)


def _outer(low: Lowered) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Extents of the loops around a nest, and the strides in bytes of each operand."""
    if not low.outer:
        return ()
    return tuple(
        [
            (extent, tuple([b.outer[dim] * b.dtype.itemsize for b in low.operands]))
            for dim, extent in enumerate(low.outer)
        ]
    )


class Planner:
    """Computes live ranges, then slots, then instructions."""

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
        self.buffers: dict[Any, _Buffer] = {}
        self.input_last = [-1] * len(self.inputs)
        self.instructions: list[Any] = []
        self.origins: list[int] = []  # the step of each instruction, for reports
        self.repeated: list[Any] = []  # copies of results that are results a second time
        self.dynamic: dict[Any, tuple[int, int]] = {}
        self.exchanges: dict[Any, int] = {}  # their numbers
        self.epilogues = epilogues(kernels.steps, lowered, jaxpr.outvars, self.base)
        self.products = {kernel: (product, form) for product, (kernel, form) in self.epilogues.items()}
        self.stored: set[Any] = set()  # what is computed into memory, aliases left out
        self.guards = None if kernels.guards is None else PlannedGuards(self)
        self.outputs: list[Output] = []
        self.number = 0  # the step whose instructions are made

    def base(self, variable: Any) -> Any:
        aliases = self.kernels.aliases
        while variable in aliases:
            variable = aliases[variable]
        return variable

    def run(self) -> Plan:
        self._lifetimes()
        outputs = self.outputs = self._assign_outputs()
        for number, step in enumerate(self.kernels.steps):
            self._reuse(number, step)
        if self.donated:
            self._donate(outputs)
        temps, arena = self._pack()
        if self.guards is not None:
            self.instructions.append(self.guards.clear())
            self.origins += [0] * (len(self.instructions) - len(self.origins))
        for number, step in enumerate(self.kernels.steps):
            self.number = number
            self._instruct(number, step)
            if self.guards is not None:
                self.instructions += self.guards.after(number)
            self.origins += [number] * (len(self.instructions) - len(self.origins))
        return Plan(len(self.inputs), outputs, temps, arena, [*self.instructions, *self.repeated])

    # lifetimes

    def _reads_and_writes(self, number: int, step: Step) -> tuple[list[Any], list[Any]]:
        if step.kernel is None:
            reads = [v for v in step.equation.invars if type(v) is not Literal]
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

    def _lifetimes(self) -> None:
        accesses = [self._reads_and_writes(number, step) for number, step in enumerate(self.kernels.steps)]
        self.stored.update([self.base(v) for _, writes in accesses for v in writes])
        if self.guards is not None:
            words = self.guards.words.variable
            self.buffers[words] = _Buffer(words.aval.nbytes, 0, len(accesses))
            for number, (reads, _) in enumerate(accesses):
                reads += self.guards.reads(number)
        for number, (reads, writes) in enumerate(accesses):
            if number in self.epilogues:  # the epilogue runs with the product
                number = self.epilogues[number][0]
            for variable in writes:
                base = self.base(variable)
                if base not in self.buffers:
                    self.buffers[base] = _Buffer(base.aval.nbytes, number, number)
                self.buffers[base].last = max(self.buffers[base].last, number)
            for variable in reads:
                base = self.base(variable)
                if base in self.buffers:
                    self.buffers[base].last = max(self.buffers[base].last, number)
                elif base in self.inputs:
                    self.input_last[self.inputs[base]] = max(self.input_last[self.inputs[base]], number)
                else:  # nothing writes it: it has no elements
                    self.buffers[base] = _Buffer(0, number, number)

    def _assign_outputs(self) -> list[Output]:
        outputs: list[Output] = []
        end = len(self.kernels.steps)
        for position, (variable, aval) in enumerate(zip(self.jaxpr.outvars, self.out_avals, strict=True)):
            base = self.base(variable)
            if base in self.inputs:
                index = self.inputs[base]
                if position in self.copied and index not in self.donated:
                    outputs.append(NewOutput(aval.nbytes, aval))
                    if aval.nbytes:
                        place = (len(self.inputs) + position, 0, -1)
                        self.instructions.append(Copy(place, (index, 0, -1), aval.nbytes))
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
                    self.repeated.append(Copy((first + position, 0, -1), (first + buffer.output, 0, -1), aval.nbytes))
                else:
                    outputs.append(SameOutput(buffer.output, aval))
            else:
                buffer.output, buffer.last = position, end
                outputs.append(NewOutput(aval.nbytes, aval))
        return outputs

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
        if step.copies or self.guards is not None:  # a search reads the operands after the kernel
            return
        for index, binding in enumerate(low.operands):
            if binding.role != "out":
                continue
            target = self.base(binding.variable)
            made, multiplied = self._product_of(number)
            sources = [(i, self.base(b.variable)) for i, b in enumerate(low.operands) if b.role == "in"]
            fits = [(i, base) for i, base in sources if base in self.buffers and base not in multiplied]
            for other, base in sorted(fits, key=lambda source: source[1] is not made):
                if in_place(low, index, other, self.base) and self._join(base, target, number):
                    break

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

    def _donate(self, outputs: list[Output]) -> None:
        """Find outputs that may use a donated input's memory."""
        for base, buffer in self.buffers.items():
            root = buffer.root()
            position = root.output
            if root is not buffer or position < 0 or not isinstance(outputs[position], NewOutput):
                continue
            same_place = self.first_donated + position  # state that is passed on unchanged stays in place
            for index in sorted(self.donated, key=lambda i: (i != same_place, i)):
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
        if self.guards is not None:
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

    def _pack(self) -> tuple[list[tuple[int, int]], int]:
        """Slots for all buffers; temporaries at offsets of one arena, by lifetime."""
        n_inputs, n_outputs = len(self.inputs), len(self.out_avals)
        temps: list[tuple[int, int]] = []
        arena = Arena()
        roots = [buffer for buffer in self.buffers.values() if buffer.joined is None]
        for buffer in sorted(roots, key=lambda buffer: buffer.first):
            if buffer.output >= 0:
                buffer.slot = n_inputs + buffer.output
                continue
            size = -(-max(buffer.nbytes, 1) // ALIGNMENT) * ALIGNMENT
            offset = arena.take(size, buffer.first, buffer.last)
            buffer.slot = n_inputs + n_outputs + len(temps)
            temps.append((offset, buffer.nbytes))
        return temps, arena.nbytes

    # instructions

    def slot(self, variable: Any) -> int:
        base = self.base(variable)
        return self.inputs[base] if base in self.inputs else self.buffers[base].root().slot

    def place(self, variable: Any, offset: int = 0, dyn: int = -1) -> Place:
        return (self.slot(variable), offset, dyn)

    def _instruct(self, number: int, step: Step) -> None:
        for source, target in step.copies:
            if self.slot(source) != self.slot(target) and target.aval.nbytes:
                self._copy(source, target, self.lowered[number])
        if step.kernel is None:
            if number not in self.epilogues:
                self._call(step)
            return
        low = self.lowered[number]
        assert low is not None
        if not _has_points(low):
            return
        empty = 0 in low.extents  # nothing is read; a reversed view would start before its buffer
        places = tuple([self.place(b.variable) if empty and b.role == "in" else self._operand(b) for b in low.operands])
        run = Run(low, places, _outer(low))
        if number in self.products:
            product, form = self.products[number]
            gemm = self._product(self.kernels.steps[product])
            assert isinstance(gemm, Gemm), "an epilogue reads a product of something"
            self.instructions.append(FusedEpilogue(gemm, form, run))
        else:
            self.instructions.append(run)

    def _copy(self, source: Any, target: Any, low: Lowered | None) -> None:
        """Copy an array, without the region that the step then writes, if its position is known."""
        found = [b.starts for b in low.operands if b.role == "out" and b.variable is target] if low is not None else []
        if len(found) != 1 or found[0] is None or not all(type(start) is Literal for start in starts_of(found[0])):
            self.instructions.append(Copy(self.place(target), self.place(source), target.aval.nbytes))
            return
        shape, region = target.aval.shape, found[0].invars[1].aval.shape
        if 0 in region or len(shape) > len(region):
            self.instructions.append(Copy(self.place(target), self.place(source), target.aval.nbytes))
            return
        item = target.aval.dtype.itemsize
        starts = [min(max(int(s.val), 0), n - m) for s, n, m in zip(starts_of(found[0]), shape, region, strict=True)]
        for offset, nbytes, walk in around(shape, starts, region):
            steps = tuple([(count, stride * item) for count, stride in walk])
            places = self.place(target, offset * item), self.place(source, offset * item)
            self.instructions.append(CopyRows(*places, nbytes * item, steps))

    def _operand(self, binding: Binding) -> Place:
        itemsize = binding.dtype.itemsize
        if binding.starts is None:
            return self.place(binding.variable, binding.offset * itemsize)
        dyn, constant = self._offset(binding.starts)
        return self.place(binding.variable, binding.offset * itemsize + constant, dyn)

    def _offset(self, equation: JaxprEqn) -> tuple[int, int]:
        """(run-time offset number or -1, constant bytes) of the clamped starts of a dynamic slice or update."""
        if equation in self.dynamic:
            return self.dynamic[equation]
        array, sizes = equation.invars[0].aval, moved_region(equation)
        constant, entries = 0, []
        stride = array.dtype.itemsize
        strides = []
        for extent in reversed(array.shape):
            strides.append(stride)
            stride *= extent
        for start, step, extent, size in zip(starts_of(equation), reversed(strides), array.shape, sizes, strict=True):
            most = extent - size
            if type(start) is Literal and self.guards is not None and not 0 <= int(start.val) <= most:
                self.instructions.append(Fill(self.guards.word(self.number), 1, 1))
            if type(start) is Literal:
                constant += min(max(int(start.val), 0), most) * step
            elif most:
                slot, offset, _ = self.place(start)
                entries.append((slot, offset, np.dtype(start.aval.dtype).char, most, step))
        dyn = -1
        if entries:
            dyn = sum(1 for found, _ in self.dynamic.values() if found >= 0)
            word = None if self.guards is None else self.guards.word(self.number)
            self.instructions.append(Offset(dyn, tuple(entries), word))
        self.dynamic[equation] = (dyn, constant)
        return dyn, constant

    def _call(self, step: Step) -> None:
        equation = step.equation
        kind = equation.primitive.kind
        if isinstance(kind, kinds.Contraction | kinds.StridedContraction):
            if equation.outvars[0].aval.size:
                self.instructions.append(self._product(step))
            return
        if isinstance(kind, kinds.Routine):
            places = tuple([(self.place(v), v.aval.nbytes) for v in (*equation.invars, *equation.outvars)])
            if equation.params["lowered"].routine.guarded and self.guards is not None:
                places += ((self.guards.word(self.number), 1),)
            self.instructions.append(Native(equation.params["lowered"], places))
            return
        if isinstance(kind, (kinds.Loop, kinds.Branch)):
            self.instructions.append(self._control(equation, kind))
            return
        if isinstance(kind, (kinds.Exchange, kinds.ExchangeDone)):
            self.instructions += exchanges.instruction(equation, self.place, self.exchanges, self.kernels.process)
            return
        if not isinstance(kind, (kinds.External, kinds.Effect)):
            raise NotImplementedError(f"[compile] {equation.primitive.name} cannot be compiled yet.")
        if isinstance(kind, kinds.External) and kind.library is not None:
            buffers = [self.buffers[self.base(v)].root() for v in equation.outvars]
            read = [buffer.output >= 0 or buffer.last > buffer.first for buffer in buffers]
            if (calls := libraries.instructions(equation, self.place, read)) is not None:
                self.instructions += calls
                return
        if isinstance(kind, kinds.External) and (sort := sort_lowering.instruction(equation, self.place)) is not None:
            self.instructions.append(sort)
            return
        ins = tuple([(*self.place(v)[:2], v.aval) for v in equation.invars])
        outs = tuple([(*self.place(v)[:2], v.aval) for v in equation.outvars])
        self.instructions.append(Callback(_callable(kind.call, equation.params), ins, outs))

    def _control(self, equation: JaxprEqn, kind: Any) -> Control:
        def bound(variables: Sequence[Any]) -> tuple[Any, ...]:
            return tuple([(self.place(v), v.aval.nbytes) for v in variables])

        def rows(variables: Sequence[Any]) -> tuple[Any, ...]:
            return tuple([(self.place(v), math.prod(v.aval.shape[1:]) * v.aval.dtype.itemsize) for v in variables])

        operands, results = equation.invars, equation.outvars
        if isinstance(kind, kinds.Branch):
            places = {"which": self.place(operands[0]), "operands": bound(operands[1:]), "results": bound(results)}
            return Control(equation, places)
        parts = kind.parts(equation.params)
        first = parts.n_cond_consts + parts.n_consts
        return Control(
            equation,
            {
                "tested": bound(operands[: parts.n_cond_consts]),
                "captured": bound(operands[parts.n_cond_consts : first]),
                "carry": bound(results[: parts.n_carry]),
                "inputs": rows(operands[first + parts.n_carry :]),
                "outputs": rows(results[parts.n_carry :]),
            },
        )

    def _product(self, step: Step) -> Gemm | Fill:
        """A matrix product; with nothing to sum, zeros."""
        equation = step.equation
        lhs, rhs, out = *equation.invars, equation.outvars[0]
        if 0 in lhs.aval.shape or 0 in rhs.aval.shape:
            return Fill(self.place(out), out.aval.nbytes, 0)
        loops = contraction.loops_of(equation, step.views, step.order)
        assert loops is not None, "the pass contraction left one that is not a matrix product"
        is_space = isinstance(equation.primitive.kind, kinds.StridedContraction)
        left, right = equation.params["space"].starts if is_space else (0, 0)
        places = self._viewed(lhs, step.views[0], left), self._viewed(rhs, step.views[1], right), self.place(out)
        return product(equation, loops, places)

    def _viewed(self, variable: Any, view: StridedOperand | None, start: int) -> Place:
        """The place where an operand begins; for a view in the array from which it is read."""
        offset = 0 if view is None or view.view is None else view.view.offset
        return self.place(variable, (offset + start) * variable.aval.dtype.itemsize)


def product(equation: JaxprEqn, loops: Loops, places: tuple[Place, Place, Place]) -> Gemm:
    """The instruction of a matrix product of arrays at these places."""
    lhs, rhs, out = (v.aval for v in (*equation.invars, equation.outvars[0]))
    sizes = [aval.dtype.itemsize for aval in (lhs, rhs, out)]
    batch = [(extent, *[s * n for s, n in zip(steps, sizes, strict=True)]) for extent, *steps in loops.batch]
    chars = contraction.source_and_result(lhs.dtype, rhs.dtype, out.dtype)
    assert chars is not None, "the pass contraction left one of dtypes without kernels"
    in_chains = isinstance(equation.primitive.kind, kinds.Contraction)
    whole = (*contraction.free_sizes(equation), "exchanged" in equation.params)
    unit = in_chains or lhs.dtype.itemsize < 4 or not is_in_pieces(loops)
    return Gemm(*chars, *places, *dims(loops), tuple(batch), in_chains, whole, unit)


def dims(loops: Loops) -> tuple[Any, Any, Any]:
    """Rows, columns and sum of a product as its instruction has them."""
    width = math.prod([loop.extent for loop in loops.columns])
    rows = [(loop.extent, loop.left, loop.result if loop.extent != 1 else width) for loop in loops.rows]
    columns = [(loop.extent, loop.right) for loop in loops.columns]
    summed = [(loop.extent, loop.left, loop.right) for loop in loops.summed]
    if len(rows) == len(columns) == 1:  # matrices: strides of extents of 1 are free
        ((m, row, to),), ((n, column),), (*outer, (k, left, right)) = rows, columns, summed
        row, left = _matrix_strides(m, row, k, left)
        right, column = _matrix_strides(k, right, n, column)
        return ((m, row, to),), ((n, column),), (*outer, (k, left, right))
    return tuple(rows), tuple(columns), tuple(summed)


def _matrix_strides(rows: int, row: int, columns: int, column: int) -> tuple[int, int]:
    """The strides of a matrix, one of which is 1: strides of extents of 1 are free."""
    if column == 1 or columns == 1:
        return (row if rows != 1 else columns), 1
    return (row if rows != 1 else 1), column


def around(
    shape: Sequence[int], starts: Sequence[int], region: Sequence[int]
) -> list[tuple[int, int, list[tuple[int, int]]]]:
    """The part of a dense array outside a region: (offset, run length, (count, stride) of the runs), in elements."""
    strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    found = []
    for d, (extent, start, size) in enumerate(zip(shape, starts, region, strict=True)):
        corner = sum(s * stride for s, stride in zip(starts[:d], strides[:d], strict=True))
        walk = [(n, stride) for n, stride in zip(region[:d], strides[:d], strict=True) if n > 1]
        for low, high in ((0, start), (start + size, extent)):
            if high > low:
                found.append((corner + low * strides[d], (high - low) * strides[d], walk))
    return found


def starts_of(equation: JaxprEqn) -> Sequence[Any]:
    """The start operands of a dynamic slice or update."""
    updates = isinstance(equation.primitive.kind, kinds.DynamicUpdateSlice)
    return equation.invars[2:] if updates else equation.invars[1:]


def moved_region(equation: JaxprEqn) -> tuple[int, ...]:
    """The shape of what a dynamic slice reads, or an update writes."""
    updates = isinstance(equation.primitive.kind, kinds.DynamicUpdateSlice)
    return (equation.invars[1] if updates else equation.outvars[0]).aval.shape


def _callable(function: Callable[..., Any], params: dict[str, Any]) -> Callable[..., Any]:
    def call(*arrays: Any) -> Any:
        return function(*arrays, **params)

    return call


def _has_points(low: Lowered) -> bool:
    """Whether a kernel writes anything (a reduction of no elements still writes its identity)."""
    reduces = any(phase.reductions for phase in low.nest.phases)
    extents = [n for dim, n in zip(low.nest.dims, low.extents, strict=True) if dim.role == "parallel" or not reduces]
    return 0 not in extents and 0 not in low.outer
