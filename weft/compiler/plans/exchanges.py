"""Exchanges between processes in a plan: what starts them goes up, what waits for them goes down.

In: the steps of a fused program, where an exchange is one step. Out: the same with two steps for each. Between them
stand all steps that need nothing of what is on its way, so that messages travel while the program computes::

    a = exchange x; b = exp a; c = sin y        ->        a = exchange x; c = sin y; wait for a; b = exp a
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.compiler.fusion.kernels import Kernels, Step
from weft.compiler.plans.instructions import Exchange, ExchangeDone, Instruction, Location
from weft.core import kinds
from weft.core.primitive import Primitive
from weft.core.programs.jaxpr import JaxprEqn, Literal
from weft.core.tracing import source_info
from weft.loops.nests import Lowered

done_p = Primitive("exchange_done", kinds.ExchangeDone(), multiple_results=True, memoize=False)
done_p.def_abstract_eval(lambda *avals, **params: [])
done_p.jvp, done_p.transpose, done_p.batch = None, None, None

Entry = tuple[Step, Lowered | None]


def apart(kernels: Kernels, lowered: Sequence[Lowered | None], process: int) -> tuple[Kernels, list[Lowered | None]]:
    """The steps with the halves of exchanges as far apart as operands and readers allow; ``process``: this one."""
    order = _Order(kernels)
    waiting = order.without_waiting(list(zip(kernels.steps, lowered, strict=True)))
    while order.under_way or waiting:
        if order.under_way:
            order.finish(next(iter(order.under_way)))
        waiting = order.without_waiting(waiting)
    steps = tuple([step for step, _ in order.made])
    words = kernels.guards
    if words is not None:  # kernels tell in the byte that they had before
        numbers = {id(step): number for number, step in enumerate(kernels.steps)}
        words = words._replace(numbers=tuple([numbers.get(id(step), -1) for step in steps]))
    return kernels.replace(steps=steps, guards=words, process=process), [low for _, low in order.made]


class _Order:
    """The steps in their new order: ``made``; and the exchanges under way, in the order in which they were started."""

    def __init__(self, kernels: Kernels) -> None:
        self.aliases = kernels.aliases
        self.made: list[Entry] = []
        self.under_way: dict[Any, None] = {}  # equations

    def without_waiting(self, entries: Sequence[Entry]) -> list[Entry]:
        """Put down the steps that need nothing that is on its way; gives the others, and what needs their results."""
        arriving = {self._base(v) for eqn in self.under_way for v in eqn.outvars}
        left: list[Entry] = []
        left_effect = False  # whether a step with an effect (no exchange) waits: all later ones then wait too
        for entry in entries:
            step, low = entry
            reads, writes = self._reads_and_writes(step, low)
            has_effect = step.equation is not None and bool(step.equation.effects) and not _is_exchange(step.equation)
            if not arriving.isdisjoint((*reads, *writes)) or (has_effect and left_effect):
                arriving.update(writes)
                left.append(entry)
                left_effect = left_effect or has_effect
                continue
            self.made.append(entry)
            if step.equation is not None and _is_waited_for(step.equation):
                self.under_way[step.equation] = None
                arriving.update(writes)
        return left

    def finish(self, equation: JaxprEqn) -> None:
        """Wait for an exchange."""
        del self.under_way[equation]
        operands = [v for v in (*equation.invars, *equation.outvars) if type(v) is not Literal]
        params = {"start": equation}
        self.made.append((Step(None, JaxprEqn(operands, [], done_p, params, frozenset(), equation.source)), None))

    def _base(self, variable: Any) -> Any:
        while variable in self.aliases:
            variable = self.aliases[variable]
        return variable

    def _reads_and_writes(self, step: Step, low: Lowered | None) -> tuple[list[Any], list[Any]]:
        if step.kernel is None:
            reads, writes = list(step.equation.invars), list(step.equation.outvars)
        else:
            reads, writes = [source for source, _ in step.copies], [target for _, target in step.copies]
            for binding in low.operands if low is not None else ():
                (writes if binding.role == "out" else reads).append(binding.variable)
                if binding.starts is not None:
                    reads += binding.starts.invars
        bases = [[self._base(v) for v in each if type(v) is not Literal] for each in (reads, writes)]
        return bases[0], bases[1]


def _is_exchange(equation: JaxprEqn | None) -> bool:
    return equation is not None and isinstance(equation.primitive.kind, kinds.Exchange)


def _is_waited_for(equation: JaxprEqn) -> bool:
    """Whether it is an exchange, other than of what this process knows."""
    return _is_exchange(equation) and equation.params["way"] != "rank"


def with_overlap(instructions: Sequence[Any]) -> list[Any]:
    """The instructions of a plan, in which each exchange says whether anything is computed meanwhile."""
    made = list(instructions)
    begun: dict[int, int] = {}
    for at, entry in enumerate(made):
        if isinstance(entry, Exchange):
            begun[entry.number] = at
        elif isinstance(entry, ExchangeDone):
            first = begun[entry.number]
            between = made[first + 1 : at]
            if not all(isinstance(each, (Exchange, ExchangeDone)) for each in between):
                made[first] = made[first]._replace(meanwhile=True)
    return made


def instruction(
    equation: JaxprEqn, location: Callable[[Any], Location], numbers: dict[Any, int], process: int
) -> list[Instruction]:
    """The instruction of one half; ``numbers`` are those of the exchanges of the plan; ``process``: this one's."""
    kind = equation.primitive.kind
    if isinstance(kind, kinds.ExchangeDone):
        start = equation.params["start"]
        return [ExchangeDone(numbers[start], _words(start))]
    operands, results = (
        tuple([(location(v), v.aval.nbytes) for v in each]) for each in (equation.invars, equation.outvars)
    )
    dtype = equation.invars[0].aval.dtype.name if equation.invars else ""
    number = numbers.setdefault(equation, len(numbers))
    message = kind.message(process, **equation.params)
    return [Exchange(number=number, operand=operands, result=results, dtype=dtype, **message)]


def _words(equation: JaxprEqn) -> str:
    """What is waited for: the collective, its operand and the user's line."""
    if equation.params["way"] == "agree":
        return f"the start of {equation.params['words']}"
    types = " ".join([v.aval.str_short() for v in equation.invars])
    where = source_info.summarize(equation.source)
    return " ".join(filter(None, [equation.params["name"], types and f"of {types}", where and f"at {where}"]))
