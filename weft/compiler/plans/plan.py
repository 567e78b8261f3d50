"""Planning: makes the list of instructions for the runtime, over the buffers of ``buffer_assignment``.

In: kernels and nests. Out: a ``Plan``. Work without elements has no instruction.

    kernel exp a -> b; sort b -> c, f32[64]   ->   kernel exp into temporary 0; sort into result 0
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from typing import Any

import numpy as np

from weft._base.record import NamedTuple
from weft.compiler.checks.guards import PlannedGuards
from weft.compiler.fusion.kernels import Kernels, Step
from weft.compiler.matrix_products import contraction
from weft.compiler.matrix_products.product_loops import Loops, StridedOperand, is_in_pieces
from weft.compiler.passes import sort_lowering
from weft.compiler.plans import exchanges, foreign, libraries
from weft.compiler.plans.buffer_assignment import Assignment, starts_of
from weft.compiler.plans.instructions import (
    Callback,
    Copy,
    CopyRows,
    Fill,
    Gemm,
    Location,
    NewOutput,
    Offset,
    Output,
)
from weft.compiler.plans.steps import Control, FusedEpilogue, Native, Plan, Run
from weft.core import kinds
from weft.core.programs.jaxpr import JaxprEqn, Literal
from weft.core.symbolic.sizes import whole
from weft.loops.nests import Binding, Lowered


def plan(
    kernels: Kernels,
    lowered: Sequence[Lowered | None],
    donated: Sequence[bool],
    out_avals: Sequence[Any],
    copied: Container[int] = (),
    on_gpu: bool = False,
) -> Plan:
    """The plan of a fused program; ``lowered`` has the nest of every kernel step.

    ``copied``: the results that have memory of their own even where they are another result or an input that is not
    donated, whole or in another shape.
    """
    found = None if any(donated) else _of_results_alone(kernels, lowered, out_avals)
    return Planner(Assignment(kernels, lowered, donated, out_avals, copied), on_gpu).run() if found is None else found


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
        locations = []
        for binding in low.operands:
            slot, is_result = slots.get(binding.variable, -1), binding.role == "out"
            if slot < 0 or is_result != (slot >= n_inputs) or binding.starts is not None:
                return None
            if is_result:
                written.add(slot)
            locations.append((slot, binding.offset * binding.dtype.itemsize, -1))
        runs.append(tuple.__new__(Run, (low, tuple(locations), _outer(low))))
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
    """Writes the instructions of a program over its buffers."""

    def __init__(self, memory: Assignment, on_gpu: bool = False) -> None:
        self.kernels, self.lowered, self.memory, self.on_gpu = memory.kernels, memory.lowered, memory, on_gpu
        self.location = self.memory.location
        self.guards = None if self.kernels.guards is None else PlannedGuards(self.kernels.guards, memory)
        self.instructions: list[Any] = []
        self.origins: list[int] = []  # the step of each instruction, for reports
        self.dynamic: dict[Any, tuple[int, int]] = {}
        self.exchanges: dict[Any, int] = {}  # their numbers
        self.number = 0  # the step whose instructions are made

    def run(self) -> Plan:
        memory, guards = self.memory, self.guards
        memory.run(guards.reads if guards is not None else lambda number: ())
        self.instructions += memory.first_copies
        if guards is not None:
            self.instructions.append(guards.clear())
            self.origins += [0] * (len(self.instructions) - len(self.origins))
        for number, step in enumerate(self.kernels.steps):
            self.number = number
            self._instruct(number, step)
            if guards is not None:
                self.instructions += guards.after(number)
            self.origins += [number] * (len(self.instructions) - len(self.origins))
        instructions = [*self.instructions, *memory.last_copies]
        return Plan(len(memory.inputs), memory.outputs, memory.temps, memory.arena_bytes, instructions)

    def _instruct(self, number: int, step: Step) -> None:
        for source, target in step.copies:
            if self.memory.slot(source) != self.memory.slot(target) and target.aval.nbytes:
                self._copy(source, target, self.lowered[number])
        if step.kernel is None:
            if number not in self.memory.epilogues:
                self._call(step)
            return
        low = self.lowered[number]
        assert low is not None
        if not _has_points(low):
            return
        empty = 0 in low.extents  # nothing is read; a reversed view would start before its buffer
        locations = tuple(
            [self.location(b.variable) if empty and b.role == "in" else self._operand(b) for b in low.operands]
        )
        run = Run(low, locations, _outer(low))
        if number in self.memory.products:
            product, form = self.memory.products[number]
            gemm = self._product(self.kernels.steps[product])
            assert isinstance(gemm, Gemm), "an epilogue reads a product of something"
            self.instructions.append(FusedEpilogue(gemm, form, run))
        else:
            self.instructions.append(run)

    def _copy(self, source: Any, target: Any, low: Lowered | None) -> None:
        """Copy an array, without the region that the step then writes, if its position is known."""
        found = [b.starts for b in low.operands if b.role == "out" and b.variable is target] if low is not None else []
        if len(found) != 1 or found[0] is None or not all(type(start) is Literal for start in starts_of(found[0])):
            self.instructions.append(Copy(self.location(target), self.location(source), target.aval.nbytes))
            return
        shape, region = target.aval.shape, found[0].invars[1].aval.shape
        if 0 in region or len(shape) > len(region):
            self.instructions.append(Copy(self.location(target), self.location(source), target.aval.nbytes))
            return
        item = target.aval.dtype.itemsize
        starts = [min(max(whole(s.val), 0), n - m) for s, n, m in zip(starts_of(found[0]), shape, region, strict=True)]
        for offset, nbytes, walk in around(shape, starts, region):
            steps = tuple([(count, stride * item) for count, stride in walk])
            locations = self.location(target, offset * item), self.location(source, offset * item)
            self.instructions.append(CopyRows(*locations, nbytes * item, steps))

    def _operand(self, binding: Binding) -> Location:
        itemsize = binding.dtype.itemsize
        if binding.starts is None:
            return self.location(binding.variable, binding.offset * itemsize)
        dyn, constant = self._offset(binding.starts)
        return self.location(binding.variable, binding.offset * itemsize + constant, dyn)

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
            if type(start) is Literal and self.guards is not None and not 0 <= whole(start.val) <= most:
                self.instructions.append(Fill(self.guards.word(self.number), 1, 1))
            if type(start) is Literal:
                constant += min(max(whole(start.val), 0), most) * step
            elif most:
                slot, offset, _ = self.location(start)
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
            locations = tuple([(self.location(v), v.aval.nbytes) for v in (*equation.invars, *equation.outvars)])
            if equation.params["lowered"].routine.guarded and self.guards is not None:
                locations += ((self.guards.word(self.number), 1),)
            self.instructions.append(Native(equation.params["lowered"], locations))
            return
        if isinstance(kind, (kinds.Loop, kinds.Branch)):
            self.instructions.append(self._control(equation, kind))
            return
        if isinstance(kind, (kinds.Exchange, kinds.ExchangeDone)):
            self.instructions += exchanges.instruction(equation, self.location, self.exchanges, self.kernels.process)
            return
        if not isinstance(kind, (kinds.External, kinds.Effect)):
            raise NotImplementedError(f"[compile] {equation.primitive.name} cannot be compiled yet.")
        if foreign.handler_of(equation) is not None:
            self.instructions.append(foreign.instruction(equation, self.location))
            return
        if isinstance(kind, kinds.External) and kind.library is not None:
            buffers = [self.memory.buffer_of(v) for v in equation.outvars]
            read = [buffer.output >= 0 or buffer.last > buffer.first for buffer in buffers]
            if (calls := libraries.instructions(equation, self.location, read)) is not None:
                self.instructions += calls
                return
        sort = (
            sort_lowering.instruction(equation, self.location, self.on_gpu)
            if isinstance(kind, kinds.External)
            else None
        )
        if sort is not None:
            self.instructions.append(sort)
            return
        ins = tuple([(*self.location(v)[:2], v.aval) for v in equation.invars])
        outs = tuple([(*self.location(v)[:2], v.aval) for v in equation.outvars])
        self.instructions.append(Callback(HostCall(kind.call, equation.params), ins, outs))

    def _control(self, equation: JaxprEqn, kind: Any) -> Control:
        def bound(variables: Sequence[Any]) -> tuple[Any, ...]:
            return tuple([(self.location(v), v.aval.nbytes) for v in variables])

        def rows(variables: Sequence[Any]) -> tuple[Any, ...]:
            return tuple([(self.location(v), math.prod(v.aval.shape[1:]) * v.aval.dtype.itemsize) for v in variables])

        operands, results = equation.invars, equation.outvars
        if isinstance(kind, kinds.Branch):
            locations = {
                "which": self.location(operands[0]),
                "operands": bound(operands[1:]),
                "results": bound(results),
            }
            return Control(equation, locations)
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
            return Fill(self.location(out), out.aval.nbytes, 0)
        loops = contraction.loops_of(equation, step.views, step.order)
        assert loops is not None, "the pass contraction left one that is not a matrix product"
        is_space = isinstance(equation.primitive.kind, kinds.StridedContraction)
        left, right = equation.params["space"].starts if is_space else (0, 0)
        locations = self._viewed(lhs, step.views[0], left), self._viewed(rhs, step.views[1], right), self.location(out)
        return product(equation, loops, locations)

    def _viewed(self, variable: Any, view: StridedOperand | None, start: int) -> Location:
        """The location where an operand begins; for a view in the array from which it is read."""
        offset = 0 if view is None or view.view is None else view.view.offset
        dyn, constant = (-1, 0) if view is None or view.starts is None else self._offset(view.starts)
        return self.location(variable, (offset + start) * variable.aval.dtype.itemsize + constant, dyn)


def product(equation: JaxprEqn, loops: Loops, locations: tuple[Location, Location, Location]) -> Gemm:
    """The instruction of a matrix product of arrays at these locations."""
    lhs, rhs, out = (v.aval for v in (*equation.invars, equation.outvars[0]))
    sizes = [aval.dtype.itemsize for aval in (lhs, rhs, out)]
    batch = [(extent, *[s * n for s, n in zip(steps, sizes, strict=True)]) for extent, *steps in loops.batch]
    chars = contraction.source_and_result(lhs.dtype, rhs.dtype, out.dtype)
    assert chars is not None, "the pass contraction left one of dtypes without kernels"
    in_chains = isinstance(equation.primitive.kind, kinds.Contraction)
    whole = (*contraction.free_sizes(equation), "exchanged" in equation.params)
    unit = in_chains or lhs.dtype.itemsize < 4 or not is_in_pieces(loops)
    precision = contraction.precision_of(equation.params.get("precision"))
    return Gemm(*chars, *locations, *dims(loops), tuple(batch), in_chains, whole, unit, precision=precision)


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
    """The strides of a matrix. One of the two is 1: an extent of 1 may have any stride."""
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


def moved_region(equation: JaxprEqn) -> tuple[int, ...]:
    """The shape of what a dynamic slice reads, or an update writes."""
    updates = isinstance(equation.primitive.kind, kinds.DynamicUpdateSlice)
    return (equation.invars[1] if updates else equation.outvars[0]).aval.shape


class HostCall(NamedTuple):
    """A function of arrays, with the parameters of its operation."""

    function: Callable[..., Any]
    params: dict[str, Any]

    def __call__(self, *arrays: Any) -> Any:
        return self.function(*arrays, **self.params)


def _has_points(low: Lowered) -> bool:
    """Whether a kernel writes anything (a reduction of no elements still writes its identity)."""
    reduces = any(phase.reductions for phase in low.nest.phases)
    extents = [n for dim, n in zip(low.nest.dims, low.extents, strict=True) if dim.role == "parallel" or not reduces]
    return 0 not in extents and 0 not in low.outer
