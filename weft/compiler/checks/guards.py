"""Guards of compiled programs: which steps get one, and what the runtime calls if it finds something.

A kernel tells in a byte of its own whether one of its tests held (``loops.guards``); results of products and library
calls, and of loops in registers, are scanned after the call. If there is something, a ``Search`` gets the operands,
which the plan keeps until then, and raises (``fault_search``).

    kernel sub_log x -> y; product y w -> z   ->   words = 0; kernel sub_log x -> y, words[0]; guard words[0] x
                                                   product y w -> z; guard scan z, of y w
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft import dtypes, errors, runtime
from weft._base.record import NamedTuple
from weft.compiler.checks import fault_search
from weft.compiler.plans.instructions import DonatedOutput, Fill, Guard, Location
from weft.core import kinds
from weft.core.programs import check_scopes
from weft.core.programs.jaxpr import DropVar, Jaxpr, JaxprEqn, Literal, Var, jaxprs_in_params
from weft.core.tracing.source_info import SourceInfo
from weft.loops.guards import Guarded

if TYPE_CHECKING:
    from weft.compiler.fusion.kernels import Kernels, Step
    from weft.compiler.plans.buffer_assignment import Assignment

_EXPONENTS = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000, "float64": 0x7FF0000000000000}
_SCANNED = (kinds.Contraction, kinds.StridedContraction, kinds.External, kinds.Routine)


class Words(NamedTuple):
    """The bytes in which the kernels of a program tell what they found, one for each step."""

    variable: Var
    name: str  # of the program
    option: str  # the value of ``checks``
    numbers: tuple[int, ...] = ()  # the byte of each step, where steps were moved after they got theirs


def attached(kernels: Kernels, name: str, option: str) -> Kernels:
    """A fused program whose steps get guards; ``option``: the value of ``checks``."""
    words = Var(runtime.ShapedArray((max(len(kernels.steps), 1),), np.dtype(np.uint8), False))
    return kernels.replace(guards=Words(words, name, option))


def guarded(kernels: Kernels, number: int) -> Guarded | None:
    """Where the kernel of a step tells what its tests found."""
    words = kernels.guards
    return None if words is None else Guarded(words.variable, number, check_scopes.wanted)


def warn_of_unseen(jaxpr: Jaxpr, name: str) -> None:
    """Name the operations of a checked program whose results no guard looks at."""
    unseen = list(_unseen(jaxpr))
    if not unseen:
        return
    listed = "; ".join([f"{equation.primitive.name} at {SourceInfo(equation.source)}" for equation in unseen[:4]])
    more = f"; and {len(unseen) - 4} more" if len(unseen) > 4 else ""
    errors.warn(
        f"[checks] {name}: no check sees whether these overflow: {listed}{more}. (Integers of running sums, of matrix "
        "products and of updates that combine, integers of four bits and floats of one byte are not checked.)"
    )


def _unseen(jaxpr: Jaxpr) -> Iterator[JaxprEqn]:
    for equation in jaxpr.eqns:
        if any(_cannot_be_seen(equation, out.aval.dtype) for out in equation.outvars):
            yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from _unseen(inner)


def _cannot_be_seen(equation: JaxprEqn, dtype: Any) -> bool:
    kind = equation.primitive.kind
    if dtypes.issubdtype(dtype, np.floating) and dtype.itemsize == 1:
        return isinstance(kind, kinds.Elementwise) and bool(check_scopes.wanted(equation) & {"nan", "overflow"})
    if not dtypes.issubdtype(dtype, np.integer) or not check_scopes.wants_integers(equation):
        return False
    if isinstance(kind, kinds.Cumulative):
        return kind.accumulators([v.aval for v in equation.invars], equation.params)[0][1] in (0, 1)
    if isinstance(kind, kinds.Scatter):
        return kind.combiner in (None, "sum") and kind.update(equation.params) is not None
    if isinstance(kind, kinds.Elementwise):
        return kind.wraps is not None and dtypes.itemsize_bits(dtype) < 8
    return isinstance(kind, (kinds.Contraction, kinds.StridedContraction))


class Region(NamedTuple):
    """The equations that a step computes, and the variables in memory that they read and write."""

    equations: tuple[JaxprEqn, ...]
    read: tuple[Var, ...]
    written: tuple[Var, ...]


class PlannedGuards:
    """The guards of one plan."""

    def __init__(self, words: Words, memory: Assignment) -> None:
        self.words, self.memory = words, memory
        self.order = {id(equation): n for n, equation in enumerate(memory.jaxpr.eqns)}
        self.makers = {out: equation for equation in memory.jaxpr.eqns for out in equation.outvars}
        self._regions: dict[int, Region | None] = {}

    def clear(self) -> Fill:
        """Nothing has been found yet."""
        variable = self.words.variable
        return Fill(self.memory.location(variable), variable.aval.nbytes, 0)

    def word(self, number: int) -> Location:
        """The byte of a step."""
        byte = self.words.numbers[number] if self.words.numbers else number
        return self.memory.location(self.words.variable, byte)

    def region(self, number: int) -> Region | None:
        """What the guard of a step looks at; None if it has none."""
        if number not in self._regions:
            self._regions[number] = self._region(number)
        return self._regions[number]

    def _region(self, number: int) -> Region | None:
        memory = self.memory
        step = memory.kernels.steps[number]
        if step.kernel is None:
            kind = step.equation.primitive.kind
            scanned = isinstance(kind, _SCANNED) and getattr(kind, "ordering", None) is None
            equations = [step.equation] if scanned and number not in memory.epilogues else []
        else:
            outputs = step.kernel.outputs
            moved = [o.targets.equation if o.targets else o.starts for o in outputs]
            equations = [*step.kernel.equations, *step.kernel.dynamic.values(), *[e for e in moved if e is not None]]
            if number in memory.products:
                equations.append(memory.kernels.steps[memory.products[number][0]].equation)
        if not any(_words(equation) for equation in equations):
            return None
        return self._closed(equations, step)

    def _closed(self, equations: Sequence[JaxprEqn], step: Step) -> Region:
        """The equations, those that compute operands which are not in memory, and the variables that all read."""
        found = {id(equation): equation for equation in equations}
        stack, read = list(equations), {}
        made = {out for equation in equations for out in equation.outvars}
        while stack:
            for atom in stack.pop().invars:
                if type(atom) is Literal or atom in made:
                    continue
                if self._is_in_memory(atom) or atom not in self.makers:
                    read[atom] = None
                    continue
                maker = self.makers[atom]
                if id(maker) not in found:
                    found[id(maker)] = maker
                    made.update(maker.outvars)
                    stack.append(maker)
        ordered = sorted(found.values(), key=lambda equation: self.order.get(id(equation), -1))
        wanted: Iterable[Any] = step.equation.outvars if step.kernel is None else self._stored(step)
        written = [v for v in wanted if type(v) is not Literal and not isinstance(v, DropVar) and v in made]
        read = {v: None for v in read if not isinstance(v, Literal)}
        return Region(tuple(ordered), tuple(read), tuple(dict.fromkeys(written)))

    def _stored(self, step: Step) -> list[Any]:
        assert step.kernel is not None
        return [o.targets.equation.outvars[0] if o.targets else o.node.atom for o in step.kernel.outputs]

    def _is_in_memory(self, variable: Any) -> bool:
        base = self.memory.base(variable)
        return base in self.memory.inputs or base in self.memory.stored

    def reads(self, number: int) -> tuple[Var, ...]:
        """The variables that the search of a step reads."""
        region = self.region(number)
        return () if region is None else region.read

    def after(self, number: int) -> list[Guard]:
        """The guard of a step, as instructions that follow it."""
        region, memory = self.region(number), self.memory
        if region is None:
            return []
        step = memory.kernels.steps[number]
        stored = [v for v in region.written if self._is_in_memory(v)]
        over = {slot for v in stored for slot in self._same_memory(self.memory.slot(v))}  # overwritten, in place
        given = [v for v in region.read if self.memory.slot(v) not in over]
        read = [v for v in dict.fromkeys([*given, *stored]) if self._can_be_shown(v)]
        operands = tuple([(*memory.location(v)[:2], v.aval) for v in read])
        search = fault_search.Search(self.words.name, self.words.option, region.equations, tuple(read), region.written)
        if step.kernel is not None:
            return [Guard(search, operands, self.word(number), ())]
        words = _words(step.equation)
        scans = [self._scan(v, words) for v in region.written]
        found = tuple([scan for scan in scans if scan is not None])
        told = (
            isinstance(step.equation.primitive.kind, kinds.Routine) and step.equation.params["lowered"].routine.guarded
        )
        word = self.word(number) if told else None
        return [Guard(search, operands, word, found)] if found or told else []

    def _same_memory(self, slot: int) -> list[int]:
        """The slots that share the memory of one: a result may lie in a donated input."""
        position = slot - len(self.memory.inputs)
        found = self.memory.outputs[position] if 0 <= position < len(self.memory.outputs) else None
        return [slot, found.source] if isinstance(found, DonatedOutput) else [slot]

    def _can_be_shown(self, variable: Var) -> bool:
        return isinstance(variable.aval.dtype, np.dtype)

    def _scan(self, variable: Var, words: frozenset[str]) -> tuple[Location, int, int, int] | None:
        """How a result is looked through; None if it cannot hold what is looked for."""
        dtype = np.dtype(variable.aval.dtype)
        part = np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype
        exponent = _EXPONENTS.get(part.name)
        if exponent is None or not words & {"nan", "overflow"} or not variable.aval.size:
            return None
        least = exponent if "overflow" in words else exponent + 1
        return self.memory.location(variable), variable.aval.nbytes // part.itemsize, part.itemsize, least


def _words(equation: JaxprEqn) -> frozenset[str]:
    """The checks of an equation, and of those inside of a loop in registers."""
    found = check_scopes.wanted(equation)
    if isinstance(equation.primitive.kind, kinds.Routine):
        parts = equation.params["parts"]
        programs = [parts.body, *([] if parts.cond is None else [parts.cond])]
        found = found.union(*[_words(inner) for closed in programs for inner in closed.jaxpr.eqns])
    return found


def in_order(entries: Sequence[Any], joined: Callable[[Sequence[Any]], list[Any]]) -> list[Any]:
    """Kernels that ``joined`` has fused, each followed by the guards that stood behind its parts."""
    behind: dict[int, list[Guard]] = {}
    runs: list[Any] = []
    for entry in entries:
        if isinstance(entry, Guard):
            behind.setdefault(id(runs[-1]), []).append(entry)
        else:
            runs.append(entry)
    made: list[Any] = []
    for entry in joined(runs):
        made.append(entry)
        for part in getattr(entry, "runs", (entry,)):
            made += behind.get(id(part), [])
    return made
