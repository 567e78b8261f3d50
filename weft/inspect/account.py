"""What a program consists of, for reports: each instruction of its plan with kernels, equations, lines and costs.

    Part("add_sin", "kernel", equations, bytes 8004, operations 2000, estimate 281 ns, {("a.py", 7): 1.0})

A line's share of an instruction is that of its equations, by the estimated cost of their operations. A loop or branch
costs what its programs cost, as often as they run: by the number of steps where the program says it, otherwise as often
as they ran while a profile was taken, otherwise once (the dearest of several branches).
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from weft._base.record import NamedTuple
from weft.compiler.pipeline import Program, bytes_moved, operations_per_point
from weft.compiler.plans import instructions, steps
from weft.compiler.plans.plan import Planner
from weft.core import kinds
from weft.core.caches.store import PROGRAMS, TRACES
from weft.core.programs.jaxpr import Jaxpr, JaxprEqn, Literal
from weft.core.tracing import source_info
from weft.loops.schedules.costs import nanoseconds

Line = tuple[str, int]  # file, number
Costs = tuple[float, float, float]  # bytes, operations, nanoseconds on one thread
UNKNOWN: Line = ("", 0)


class Part(NamedTuple):
    """One instruction of a plan."""

    number: int
    steps: tuple[int, ...]  # of the program after fusion
    name: str
    what: str  # kernel, chain, product, copy, loop, branch, library, callback, sort, fill, offset
    equations: tuple[JaxprEqn, ...]
    nbytes: float  # that it reads and writes, each operand once
    operations: float
    estimate_ns: float  # on one thread
    lines: dict[Line, float]  # shares, which add up to 1
    programs: tuple[Any, ...] = ()  # that a loop or branch runs


def line_of(equation: JaxprEqn) -> Line:
    """The user's line that an equation comes from."""
    if equation.source is None:
        return UNKNOWN
    frame = source_info.resolve(equation.source[0], equation.source[1])
    return frame.file_name, frame.line


def parts(program: Program, runs: Mapping[int, int] | None = None) -> list[Part]:
    """The instructions of a compiled program, in order. ``runs``: how often a profile saw each executable, by id."""
    planner = Planner(program.assignment())
    planner.run()
    origins, nested = iter(planner.origins), iter(program.nested)
    found = []
    for number, entry in enumerate(program.plan.sources):
        count = len(entry.runs) if isinstance(entry, steps.Chain) else 1
        indices = [index for _, index in zip(range(count), origins, strict=False)]
        if isinstance(entry, steps.FusedEpilogue):
            indices = [planner.memory.products[indices[0]][0], *indices]
        inner = [next(nested) for _ in entry.programs()] if isinstance(entry, steps.Control) else []
        found.append(_part(program, number, entry, tuple(indices), tuple(inner), runs))
    return found


def _part(
    program: Program, number: int, entry: Any, indices: tuple[int, ...], inner: tuple[Any, ...], runs: Any
) -> Part:
    found = [program.kernels.steps[index] for index in indices]
    equations = tuple([equation for step in found for equation in _equations(step, entry)])
    name, what = _name(found, entry)
    if isinstance(entry, steps.Control):
        nbytes, operations, estimate = _control_costs(entry.equation, program, inner, runs)
    elif isinstance(entry, steps.Native):
        nbytes, operations, estimate = _native_costs(entry, equations[0])
    else:
        nbytes, operations, estimate = _costs(entry)
    return Part(number, indices, name, what, equations, nbytes, operations, estimate, _lines(equations), inner)


def _equations(step: Any, entry: Any) -> tuple[JaxprEqn, ...]:
    if step.kernel is None:
        return (step.equation,)
    if isinstance(entry, instructions.Copy | instructions.CopyRows):
        starts = [output.starts or (output.targets and output.targets.equation) for output in step.kernel.outputs]
        return tuple([equation for equation in starts if equation])
    updates = [o.targets.equation if o.targets else o.starts for o in step.kernel.outputs if o.targets or o.starts]
    return (*step.kernel.equations, *dict.fromkeys(step.kernel.dynamic.values()), *updates)


_WHAT = {
    steps.Run: "kernel", steps.Chain: "chain", steps.FusedEpilogue: "product", steps.Native: "loop",
    instructions.Gemm: "product", instructions.Copy: "copy", instructions.CopyRows: "copy",
    instructions.Fill: "fill", instructions.Sort: "sort", instructions.Library: "library",
    instructions.Callback: "callback", instructions.Foreign: "foreign function", instructions.Offset: "offset",
    instructions.Guard: "guard",
}  # fmt: skip


def _name(found: list[Any], entry: Any) -> tuple[str, str]:
    if isinstance(entry, steps.Control):
        kind = entry.equation.primitive.kind
        return entry.equation.primitive.name, "branch" if isinstance(kind, kinds.Branch) else "loop"
    what = _WHAT[type(entry)]
    names = [s.kernel.name if s.kernel is not None else s.equation.primitive.name for s in found]
    if isinstance(entry, steps.FusedEpilogue):
        return f"{names[0]} + {entry.run.lowered.name}", what
    if isinstance(entry, steps.Chain):
        return " ".join(dict.fromkeys(names)), what
    return (names[0] if names and what != "copy" else "copy"), what


def _costs(entry: Any) -> Costs:
    """Estimated, of one instruction."""
    if isinstance(entry, steps.Run):
        low = entry.lowered
        return bytes_moved(low), low.points * operations_per_point(low), low.points * nanoseconds(low.nest)
    if isinstance(entry, steps.Chain):
        return _sum([_costs(run) for run in entry.runs])
    if isinstance(entry, steps.FusedEpilogue):
        return _sum([_costs(entry.product), _costs(entry.run)])
    if isinstance(entry, instructions.Gemm):
        return _product_costs(entry)
    if isinstance(entry, instructions.Copy | instructions.Fill):
        return (2.0 if isinstance(entry, instructions.Copy) else 1.0) * entry.nbytes, 0.0, entry.nbytes * 0.05
    if isinstance(entry, instructions.CopyRows):
        nbytes = entry.nbytes * math.prod([count for count, _ in entry.steps])
        return 2.0 * nbytes, 0.0, nbytes * 0.05
    return 0.0, 0.0, 0.0


def _sum(costs: Iterable[Costs]) -> Costs:
    total = 0.0, 0.0, 0.0
    for nbytes, operations, estimate in costs:
        total = total[0] + nbytes, total[1] + operations, total[2] + estimate
    return total


def _control_costs(equation: JaxprEqn, program: Program, inner: tuple[Any, ...], runs: Any) -> Costs:
    """The costs of the programs that a loop or branch runs, as often as it runs each."""
    each = [_sum((p.nbytes, p.operations, p.estimate_ns) for p in parts(one, runs)) for one in inner]
    own = (runs or {}).get(id(program.executable), 0)
    seen = [runs.get(id(one.executable), 0) / own for one in inner] if own else None
    kind = equation.primitive.kind
    if isinstance(kind, kinds.Branch):
        if seen is None:
            return max(each, key=lambda costs: costs[2])
        times = seen
    else:
        trips = kind.parts(equation.params).trips
        if trips is not None:
            times = [trips] * len(each)
        else:
            times = [1.0] * len(each) if seen is None else seen
    return _sum((n * nbytes, n * operations, n * ns) for n, (nbytes, operations, ns) in zip(times, each, strict=True))


def _native_costs(entry: steps.Native, equation: JaxprEqn) -> Costs:
    """The costs of a loop in registers, which reads and writes its operands once."""
    loop = equation.params["parts"]
    operations = (1 if loop.trips is None else loop.trips) * _operations(loop.body.jaxpr)
    return float(sum([nbytes for _, nbytes in entry.locations])), operations, operations * _ONE_BY_ONE_NS


_ONE_BY_ONE_NS = 0.5  # nanoseconds of an operation in registers that waits for the one before


def _operations(jaxpr: Jaxpr) -> float:
    """The operations of a program, those of loops as often as they are known to run."""
    total = 0.0
    for equation in jaxpr.eqns:
        kind = equation.primitive.kind
        if isinstance(kind, kinds.Loop | kinds.Routine):
            loop = equation.params["parts"] if isinstance(kind, kinds.Routine) else kind.parts(equation.params)
            total += (1 if loop.trips is None else loop.trips) * _operations(loop.body.jaxpr)
        elif isinstance(kind, kinds.Branch):
            total += max([_operations(branch.jaxpr) for branch in kind.branches(equation.params)])
        elif isinstance(kind, kinds.Elementwise):
            total += equation.outvars[0].aval.size
        elif isinstance(kind, kinds.Reduction):
            total += equation.invars[0].aval.size
    return total


_ITEMSIZE = {"f": 4, "d": 8, "F": 8, "D": 16, "e": 2, "E": 2}


def _product_costs(entry: instructions.Gemm) -> Costs:
    batch, rows, columns, terms = (
        math.prod([dim[0] for dim in dims]) for dims in (entry.batch, entry.rows, entry.columns, entry.summed)
    )
    source, result = _ITEMSIZE.get(entry.source, 4), _ITEMSIZE.get(entry.result, 4)
    nbytes = batch * ((rows * terms + terms * columns) * source + rows * columns * result)
    operations = 2.0 * batch * rows * columns * terms * (4 if entry.source in "FD" else 1)
    return float(nbytes), operations, operations * 0.02


def _lines(equations: tuple[JaxprEqn, ...]) -> dict[Line, float]:
    weights: dict[Line, float] = {}
    for equation in equations:
        line = line_of(equation)
        weights[line] = weights.get(line, 0.0) + weight_of(equation)
    total = sum(weights.values())
    if not total:
        return {UNKNOWN: 1.0}
    return {line: weight / total for line, weight in weights.items()}


def weight_of(equation: JaxprEqn) -> float:
    """What an equation takes of its kernel's time, relative to others: its operations, and a little per element."""
    size = max([v.aval.size for v in (*equation.invars, *equation.outvars) if type(v) is not Literal] or [1])
    return max(size, 1) * (0.25 + float(getattr(equation.primitive.kind, "cost", 1.0) or 0.0))


def programs_by_executable() -> dict[Any, Program]:
    """The compiled programs of this process that are still kept, by their Executable, with those that they run."""
    found: dict[Any, Program] = {}
    # copies, made in one step: the collector may drop entries while they are looked at
    waiting = list(PROGRAMS.entries.copy().values())
    for trace in TRACES.entries.copy().values():
        waiting += [compiled.program for compiled in list(getattr(trace, "calls", {}).values())]
    while waiting:
        program = waiting.pop()
        if hasattr(program, "kernels_built") and hasattr(program, "nested") and program.executable not in found:
            found[program.executable] = program
            waiting += program.nested
    return found


def eager_executables() -> set[Any]:
    """The executables of operations outside of ``jit``: those that only functions of weft's own were traced for."""
    own: dict[Any, bool] = {}
    for key, trace in TRACES.entries.copy().items():
        record = getattr(key, "who", None)
        function = record() if isinstance(record, weakref.ref) else None
        module = getattr(function, "__module__", None) or ""
        is_own = function is not None and module.startswith("weft.") and not module.startswith("weft.tour")
        for compiled in list(getattr(trace, "calls", {}).values()):
            own[compiled.program.executable] = is_own and own.get(compiled.program.executable, True)
    return {executable for executable, is_own in own.items() if is_own}


def walk(program: Program) -> Iterator[Program]:
    """A program, and all that its loops and branches run."""
    yield program
    for inner in program.nested:
        yield from walk(inner)
