"""Kernels -> plan: which buffer every value lives in, and a flat list of instructions for the executor.

Outputs are written where they are returned; temporaries share one arena by their lifetimes; a kernel writes over an
operand that dies with it where it visits both element for element; a donated input is reused likewise, or when it
is dead before the output is first written. Zero-sized work becomes no instruction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.compiler import contraction
from weft.compiler.fuse import Kernels, Step
from weft.core import kinds
from weft.loops import ir
from weft.loops.schedule import BLOCK, Binding, Lowered

ALIGNMENT = 64
VECTOR_GRAIN = 16  # vectors a chunk of a split vector dimension is a multiple of
COLUMN_GRAIN = 4  # the same where every point walks reduced dimensions
ENOUGH_CHUNKS = 16  # points of the first dimension that make it worth splitting rather than the vector dimension

Place = tuple[int, int, int]  # slot, byte offset, run-time offset or -1


@dataclass(frozen=True, slots=True)
class Run:
    """One kernel call of the plan, waiting for its machine code."""

    lowered: Lowered
    operands: tuple[Place, ...]
    outer: tuple[tuple[int, tuple[int, ...]], ...]


@dataclass(slots=True)
class Plan:
    """What the executor does. ``instructions`` holds ``Run`` objects where kernels are called."""

    n_inputs: int
    outputs: list[tuple[Any, ...]]
    temps: list[tuple[int, int]]
    arena_bytes: int
    instructions: list[Any]

    def describe(self) -> str:
        counts = f"{self.n_inputs} inputs, {len(self.outputs)} outputs, {len(self.temps)} temporaries"
        lines = [f"{counts}, arena of {self.arena_bytes} bytes"]
        lines += [f"  output {i}: {' '.join(str(part) for part in output)}" for i, output in enumerate(self.outputs)]
        lines += [f"  temporary {i}: {n} bytes at {offset}" for i, (offset, n) in enumerate(self.temps)]
        for instruction in self.instructions:
            if isinstance(instruction, Run):
                places = " ".join(f"{slot}+{offset}" for slot, offset, _ in instruction.operands)
                extents = "x".join(str(n) for n in (*instruction.lowered.outer, *instruction.lowered.extents))
                lines.append(f"  kernel {instruction.lowered.name} [{extents}] {places}")
            else:
                lines.append("  " + " ".join(str(part) for part in instruction))
        return "\n".join(lines)


@dataclass(slots=True)
class _Buffer:
    """The life of a computed value's memory."""

    nbytes: int
    first: int
    last: int
    output: int = -1
    joined: Any = None  # the buffer that this one shares
    slot: int = -1

    def root(self) -> _Buffer:
        buffer = self
        while buffer.joined is not None:
            buffer = buffer.joined
        return buffer


def plan(
    kernels: Kernels, lowered: Sequence[Lowered | None], donated: Sequence[bool], out_avals: Sequence[Any]
) -> Plan:
    """The plan of a fused program; ``lowered`` has the nest of every kernel step."""
    return _Planner(kernels, lowered, donated, out_avals).run()


class _Planner:
    """Lifetimes, then slots, then instructions."""

    def __init__(
        self, kernels: Kernels, lowered: Sequence[Lowered | None], donated: Sequence[bool], out_avals: Sequence[Any]
    ) -> None:
        jaxpr = kernels.jaxpr
        self.kernels, self.lowered, self.out_avals, self.jaxpr = kernels, lowered, out_avals, jaxpr
        self.inputs = {v: i for i, v in enumerate((*jaxpr.constvars, *jaxpr.invars))}
        shift = len(jaxpr.constvars)
        self.donated = {i + shift for i, given in enumerate(donated) if given}
        self.buffers: dict[Any, _Buffer] = {}
        self.input_last = [-1] * len(self.inputs)
        self.instructions: list[Any] = []
        self.dynamic: dict[Any, tuple[int, int]] = {}

    def base(self, variable: Any) -> Any:
        aliases = self.kernels.aliases
        while variable in aliases:
            variable = aliases[variable]
        return variable

    def run(self) -> Plan:
        self._lifetimes()
        outputs = self._assign_outputs()
        for number, step in enumerate(self.kernels.steps):
            self._reuse(number, step)
        self._donate(outputs)
        temps, arena = self._pack()
        for number, step in enumerate(self.kernels.steps):
            self._instruct(number, step)
        return Plan(len(self.inputs), outputs, temps, arena, self.instructions)

    # lifetimes

    def _reads_and_writes(self, number: int, step: Step) -> tuple[list[Any], list[Any]]:
        if step.kernel is None:
            reads = [v for v in step.equation.invars if not hasattr(v, "val")]
            return reads, list(step.equation.outvars)
        reads = [source for source, _ in step.copies]
        writes = [target for _, target in step.copies]
        low = self.lowered[number]
        assert low is not None
        for binding in low.operands:
            (writes if binding.role == "out" else reads).append(binding.variable)
            if binding.starts is not None:
                reads += [v for v in _starts(binding.starts) if not hasattr(v, "val")]
        return reads, writes

    def _lifetimes(self) -> None:
        for number, step in enumerate(self.kernels.steps):
            reads, writes = self._reads_and_writes(number, step)
            for variable in writes:
                base = self.base(variable)
                if base not in self.buffers:
                    self.buffers[base] = _Buffer(base.aval.nbytes, number, number)
                self.buffers[base].last = number
            for variable in reads:
                base = self.base(variable)
                if base in self.buffers:
                    self.buffers[base].last = number
                elif base in self.inputs:
                    self.input_last[self.inputs[base]] = number
                else:  # nothing writes it: it has no elements
                    self.buffers[base] = _Buffer(0, number, number)

    def _assign_outputs(self) -> list[tuple[Any, ...]]:
        outputs: list[tuple[Any, ...]] = []
        end = len(self.kernels.steps)
        for position, (variable, aval) in enumerate(zip(self.jaxpr.outvars, self.out_avals, strict=True)):
            base = self.base(variable)
            if base in self.inputs:
                outputs.append(("input", self.inputs[base], aval))
                self.donated.discard(self.inputs[base])
                continue
            buffer = self.buffers.get(base)
            if buffer is None:  # nothing writes it: it has no elements
                outputs.append(("new", aval.nbytes, aval))
            elif buffer.output >= 0:
                outputs.append(("output", buffer.output, aval))
            else:
                buffer.output, buffer.last = position, end
                outputs.append(("new", aval.nbytes, aval))
        return outputs

    # sharing

    def _reuse(self, number: int, step: Step) -> None:
        """Let what a kernel writes take the place of what dies in it."""
        if step.kernel is None:
            return
        low = self.lowered[number]
        assert low is not None
        for source, target in step.copies:
            base = self.base(source)
            if base in self.buffers and all(self.base(b.variable) is not base for b in low.operands):
                self._join(base, self.base(target), number)
        if step.copies:
            return
        for index, binding in enumerate(low.operands):
            if binding.role != "out":
                continue
            target = self.base(binding.variable)
            for other, source in enumerate(low.operands):
                base = self.base(source.variable)
                fits = source.role == "in" and base in self.buffers and _in_place(low, index, other, self.base)
                if fits and self._join(base, target, number):
                    break

    def _join(self, source: Any, target: Any, number: int) -> bool:
        """Put ``target`` into the memory of ``source``, which dies at step ``number``."""
        old, new = self.buffers[source].root(), self.buffers[target]
        if old is new.root() or new.joined is not None or new.first != number or old.last != number:
            return False
        if old.output >= 0 or old.nbytes != new.nbytes:
            return False
        new.joined = old
        old.last, old.output = new.last, new.output
        return True

    def _donate(self, outputs: list[tuple[Any, ...]]) -> None:
        """Outputs that may take over a donated input's memory."""
        for base, buffer in self.buffers.items():
            root = buffer.root()
            position = root.output
            if root is not buffer or position < 0 or outputs[position][0] != "new" or not self.donated:
                continue
            for index in sorted(self.donated):
                variable = (*self.jaxpr.constvars, *self.jaxpr.invars)[index]
                if variable.aval.nbytes != root.nbytes:
                    continue
                last = self.input_last[index]
                if last < root.first or (last == root.first and self._overwrites(last, base, variable)):
                    outputs[position] = ("donated", index, root.nbytes, self.out_avals[position])
                    self.donated.discard(index)
                    break

    def _overwrites(self, number: int, target: Any, source: Any) -> bool:
        """Whether step ``number`` may write ``target`` over ``source``."""
        step, low = self.kernels.steps[number], self.lowered[number]
        if low is None:
            return False
        reads = [i for i, b in enumerate(low.operands) if b.role == "in" and self.base(b.variable) is source]
        writes = [i for i, b in enumerate(low.operands) if b.role == "out" and self.base(b.variable) is target]
        if step.copies:  # the executor skips a copy onto itself
            return not reads and [(self.base(a), self.base(b)) for a, b in step.copies] == [(source, target)]
        return len(writes) == 1 and all(_in_place(low, writes[0], read, self.base) for read in reads)

    def _pack(self) -> tuple[list[tuple[int, int]], int]:
        """Slots for all buffers; temporaries at offsets of one arena, by lifetime."""
        n_inputs, n_outputs = len(self.inputs), len(self.out_avals)
        temps: list[tuple[int, int]] = []
        live: list[tuple[int, int, int]] = []  # (offset, end, last use)
        arena = 0
        roots = [buffer for buffer in self.buffers.values() if buffer.joined is None]
        for buffer in sorted(roots, key=lambda buffer: buffer.first):
            if buffer.output >= 0:
                buffer.slot = n_inputs + buffer.output
                continue
            live = [entry for entry in live if entry[2] >= buffer.first]
            size = -(-max(buffer.nbytes, 1) // ALIGNMENT) * ALIGNMENT
            offset = 0
            for start, end, _ in sorted(live):
                if offset + size <= start:
                    break
                offset = max(offset, end)
            live.append((offset, offset + size, buffer.last))
            arena = max(arena, offset + size)
            buffer.slot = n_inputs + n_outputs + len(temps)
            temps.append((offset, buffer.nbytes))
        return temps, arena

    # instructions

    def slot(self, variable: Any) -> int:
        base = self.base(variable)
        return self.inputs[base] if base in self.inputs else self.buffers[base].root().slot

    def place(self, variable: Any, offset: int = 0, dyn: int = -1) -> Place:
        return (self.slot(variable), offset, dyn)

    def _instruct(self, number: int, step: Step) -> None:
        if step.kernel is None:
            self._call(step.equation)
            return
        for source, target in step.copies:
            if self.slot(source) != self.slot(target) and target.aval.nbytes:
                self.instructions.append(("copy", self.place(target), self.place(source), target.aval.nbytes))
        low = self.lowered[number]
        assert low is not None
        if not _has_points(low):
            return
        empty = 0 in low.extents  # nothing is read; a reversed view would start before its buffer
        places = tuple([self.place(b.variable) if empty and b.role == "in" else self._operand(b) for b in low.operands])
        outer = tuple(
            [
                (extent, tuple([b.outer[dim] * b.dtype.itemsize for b in low.operands]))
                for dim, extent in enumerate(low.outer)
            ]
        )
        self.instructions.append(Run(low, places, outer))

    def _operand(self, binding: Binding) -> Place:
        itemsize = binding.dtype.itemsize
        if binding.starts is None:
            return self.place(binding.variable, binding.offset * itemsize)
        dyn, constant = self._offset(binding.starts)
        return self.place(binding.variable, binding.offset * itemsize + constant, dyn)

    def _offset(self, equation: Any) -> tuple[int, int]:
        """(run-time offset number or -1, constant bytes) of the clamped starts of a dynamic slice or update."""
        if equation in self.dynamic:
            return self.dynamic[equation]
        array = equation.invars[0].aval
        updates = isinstance(equation.primitive.kind, kinds.DynamicUpdateSlice)
        sizes = equation.invars[1].aval.shape if updates else equation.outvars[0].aval.shape
        constant, entries = 0, []
        stride = array.dtype.itemsize
        strides = []
        for extent in reversed(array.shape):
            strides.append(stride)
            stride *= extent
        for start, step, extent, size in zip(_starts(equation), reversed(strides), array.shape, sizes, strict=True):
            most = extent - size
            if hasattr(start, "val"):
                constant += min(max(int(start.val), 0), most) * step
            elif most:
                slot, offset, _ = self.place(start)
                entries.append((slot, offset, np.dtype(start.aval.dtype).char, most, step))
        dyn = -1
        if entries:
            dyn = sum(1 for found, _ in self.dynamic.values() if found >= 0)
            self.instructions.append(("offset", dyn, tuple(entries)))
        self.dynamic[equation] = (dyn, constant)
        return dyn, constant

    def _call(self, equation: Any) -> None:
        kind = equation.primitive.kind
        if isinstance(kind, kinds.Contraction):
            self._product(equation)
            return
        if not isinstance(kind, (kinds.External, kinds.Effect)):
            raise NotImplementedError(f"[compile] {equation.primitive.name} cannot be compiled yet.")
        ins = tuple([(*self.place(v)[:2], v.aval) for v in equation.invars])
        outs = tuple([(*self.place(v)[:2], v.aval) for v in equation.outvars])
        self.instructions.append(("python", _callable(kind.call, equation.params), ins, outs))

    def _product(self, equation: Any) -> None:
        """A matrix product; with nothing to sum, zeros."""
        found = contraction.layouts(equation)
        assert found is not None, "simplify left a contraction that is no matrix product"
        left, right = found
        lhs, rhs, out = *equation.invars, equation.outvars[0]
        m, k, n = left.rows, left.columns, right.columns
        if not out.aval.size:
            return
        if not k or 0 in lhs.aval.shape or 0 in rhs.aval.shape:
            self.instructions.append(("fill", self.place(out), out.aval.nbytes, 0))
            return
        item = out.aval.dtype.itemsize
        batch_shape = out.aval.shape[: len(left.batch)]
        steps = [item * m * n * math.prod(batch_shape[dim + 1 :]) for dim in range(len(batch_shape))]
        batch = tuple(
            [
                (extent, a * item, b * item, c)
                for extent, a, b, c in zip(batch_shape, left.batch, right.batch, steps, strict=True)
                if extent != 1
            ]
        )
        char = contraction.GEMM_DTYPES[np.dtype(out.aval.dtype)]
        self.instructions.append(
            (
                "gemm", char, left.transposed, right.transposed, m, n, k, self.place(lhs), left.leading,
                self.place(rhs), right.leading, self.place(out), n, batch,
            )
        )  # fmt: skip


def _starts(equation: Any) -> Sequence[Any]:
    """The start operands of a dynamic slice or update."""
    updates = isinstance(equation.primitive.kind, kinds.DynamicUpdateSlice)
    return equation.invars[2:] if updates else equation.invars[1:]


def _callable(function: Callable[..., Any], params: dict[str, Any]) -> Callable[..., Any]:
    def call(*arrays: Any) -> Any:
        return function(*arrays, **params)

    return call


def _has_points(low: Lowered) -> bool:
    """Whether a kernel writes anything (a reduction over nothing still writes its identity)."""
    reduces = any(phase.reductions for phase in low.nest.phases)
    extents = [n for dim, n in zip(low.nest.dims, low.extents, strict=True) if dim.role == "parallel" or not reduces]
    return 0 not in extents and 0 not in low.outer


def _in_place(low: Lowered, target: int, source: int, base: Callable[[Any], Any]) -> bool:
    """Whether an operand may be overwritten by an output: the same elements at the same points, read before."""
    written, read = low.operands[target], low.operands[source]
    same = (written.offset, written.strides, written.outer, written.dtype) == (
        read.offset, read.strides, read.outer, read.dtype,
    )  # fmt: skip
    if not same or written.starts is not None or read.starts is not None:
        return False
    if low.nest.split:  # both passes read what stands ahead of the loop
        return False
    variable = base(read.variable)
    if any(base(b.variable) is variable and i != source for i, b in enumerate(low.operands)):
        return False
    if any(base(b.variable) is base(written.variable) and i != target for i, b in enumerate(low.operands)):
        return False
    loads = [n for n, phase in enumerate(low.nest.phases) if _mentions(phase, "in", source)]
    stores = [n for n, phase in enumerate(low.nest.phases) if _mentions(phase, "out", target)]
    whole = math.prod((*low.extents, *low.outer)) == read.variable.aval.size
    return whole and max(loads, default=0) <= min(stores, default=0)


def _mentions(phase: ir.Phase, role: str, operand: int) -> bool:
    """Whether a phase loads (role in) or stores (out) an operand."""
    kind = ir.Load if role == "in" else ir.Store
    return any(isinstance(s, kind) and s.operand == operand for s in (*phase.before, *phase.body))


def split_of(low: Lowered) -> tuple[str, int, int]:
    """(what the executor may split, its extent, the grain of chunks)."""
    nest, extents = low.nest, low.extents
    if nest.split:
        return "blocks", -(-extents[0] // BLOCK), 1
    if not nest.dims or nest.dims[0].role == "reduced":
        return "none", 0, 1
    vector = nest.vector if nest.vector is not None and nest.dims[nest.vector].role == "parallel" else None
    if vector == 0 and len(nest.dims) > 1:  # columns that each take long
        return "vector", extents[0], nest.width * COLUMN_GRAIN
    if vector == 0 or (vector is not None and extents[0] < ENOUGH_CHUNKS < extents[vector] // nest.width):
        return "vector", extents[vector], nest.width * VECTOR_GRAIN
    return "first", extents[0], 1


def partial_bytes(nest: ir.Nest, blocks: int) -> int:
    """Bytes of the accumulators that a split nest leaves between its two passes."""
    count = sum(len(reduce.accumulators) for phase in nest.phases for reduce in phase.reductions)
    return count * blocks * 16 if nest.split else 0
