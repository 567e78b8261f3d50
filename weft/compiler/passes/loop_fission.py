"""Loop fission: the part of a scan that depends only on its inputs is computed for all steps before the scan.

    scan over f32[n,m]: sum of a row, times the state      ->      reduce_sum to f32[n], scan over that
    scan without a state: softmax of a row                 ->      softmax of f32[n,m]

So the scan reads smaller rows, or disappears. Sums keep their order and so their bits; products do not, and stay. What
is computed early is no larger than the inputs and outputs of the scan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft._base.record import Record
from weft.batching.vmap import vmap
from weft.compiler import expansions
from weft.control import scan
from weft.core import kinds
from weft.core.programs import check_scopes
from weft.core.programs.eval import eval_jaxpr
from weft.core.programs.jaxpr import Atom, ClosedJaxpr, DropVar, Jaxpr, JaxprEqn, Literal
from weft.core.programs.rewrite import Splicer

_EARLY = (kinds.Elementwise, kinds.View, kinds.Reshape, kinds.Assemble, kinds.Generate, kinds.Reduction, kinds.Identity)


class _Split(Record):
    """A split body: ``fixed`` equations depend on no input, ``early`` ones on no state; ``late`` are the others."""

    fixed: list[JaxprEqn]
    early: list[JaxprEqn]
    late: list[JaxprEqn]


def loop_fission(closed: ClosedJaxpr, simplified: Callable[[ClosedJaxpr], ClosedJaxpr]) -> ClosedJaxpr:
    """The program with such scans; ``simplified`` gives the body of a loop after all passes."""

    def rule(eqn: JaxprEqn, splicer: Splicer) -> Sequence[Atom] | None:
        function = _divided(eqn.primitive.kind.parts(eqn.params), simplified)
        if function is None:
            return None
        return splicer.splice(
            expansions.traced(function, [v.aval for v in eqn.invars]), eqn.invars, check_scopes.of_steps(eqn.source)
        )

    return Splicer(closed, rule, (kinds.Loop,)).run()


def _divided(parts: kinds.LoopParts, simplified: Callable[[ClosedJaxpr], ClosedJaxpr]) -> Callable[..., Any] | None:
    """A function that replaces the scan; None if it is not changed."""
    first = parts.n_consts + parts.n_carry
    if parts.trips is None or parts.body.effects or len(parts.body.in_avals) == first:
        return None
    body = simplified(parts.body)
    jaxpr = body.jaxpr
    carried, rows = jaxpr.invars[parts.n_consts : first], jaxpr.invars[first:]
    split = _split(jaxpr, carried, rows)
    made = {v for equation in split.early for v in equation.outvars}
    ys = jaxpr.outvars[parts.n_carry :]
    needed = {v for equation in split.late for v in equation.invars if not isinstance(v, Literal)}
    needed.update(v for v in jaxpr.outvars[: parts.n_carry] if not isinstance(v, Literal))
    crossing = [v for equation in split.early for v in equation.outvars if v in needed]
    if not made.intersection([*crossing, *_variables(ys)]):
        return None
    summed = any(isinstance(equation.primitive.kind, kinds.Reduction) for equation in split.early)
    if (split.late or parts.n_carry) and not summed:
        return None
    if sum(v.aval.size for v in crossing) > sum(v.aval.size for v in rows):
        return None
    return _Steps(parts, body, split, crossing, needed)


def _variables(atoms: Sequence[Any]) -> list[Any]:
    return [v for v in atoms if not isinstance(v, Literal)]


def _split(jaxpr: Jaxpr, carried: Sequence[Any], rows: Sequence[Any]) -> _Split:
    """Classify the equations; an early result is no larger than what the scan reads or writes in a step."""
    largest = max(v.aval.size for v in (*rows, *jaxpr.outvars))
    bound, moving = set(carried), set(rows)
    split = _Split([], [], [])
    for equation in jaxpr.eqns:
        reads = _variables(equation.invars)
        simple = isinstance(equation.primitive.kind, _EARLY) and not equation.effects
        if not simple or not bound.isdisjoint(reads) or any(v.aval.size > largest for v in equation.outvars):
            split.late.append(equation)
            bound.update(equation.outvars)
        elif moving.isdisjoint(reads):
            split.fixed.append(equation)
        else:
            split.early.append(equation)
            moving.update(equation.outvars)
    return split


class _Steps:
    """The scan in two parts, as a function of its operands."""

    def __init__(
        self, parts: kinds.LoopParts, body: ClosedJaxpr, split: _Split, crossing: list[Any], needed: set[Any]
    ) -> None:
        self.parts, self.body, self.split, self.crossing, self.needed = parts, body, split, crossing, needed

    def __call__(self, *operands: Any) -> list[Any]:
        parts, jaxpr = self.parts, self.body.jaxpr
        first = parts.n_consts + parts.n_carry
        fixed = dict(zip(jaxpr.constvars, self.body.consts, strict=True))
        fixed.update(zip(jaxpr.invars[: parts.n_consts], operands[: parts.n_consts], strict=True))
        rows = dict(zip(jaxpr.invars[first:], operands[first:], strict=True))
        self.run(self.split.fixed, fixed)
        self.run_early(fixed, rows)
        ys = jaxpr.outvars[parts.n_carry :]
        later = [y for y in ys if isinstance(y, Literal) or y not in rows]
        outs = self.run_late(fixed, operands[parts.n_consts : first], rows, later)
        made: dict[int, Any] = dict(zip(map(id, later), outs[parts.n_carry :], strict=True))
        made.update((id(v), row) for v, row in rows.items())
        return [*outs[: parts.n_carry], *[made[id(y)] for y in ys]]

    def run(self, equations: Sequence[JaxprEqn], known: dict[Any, Any]) -> None:
        if equations:
            outs = [v for equation in equations for v in equation.outvars if not isinstance(v, DropVar)]
            program = Jaxpr([], list(known), outs, list(equations), frozenset(), None)
            known.update(zip(outs, eval_jaxpr(program, (), *known.values()), strict=True))

    def run_early(self, fixed: dict[Any, Any], rows: dict[Any, Any]) -> None:
        """Compute the early equations for all steps at once, and add their results to ``rows``."""
        read = self.needed.union(_variables(self.body.jaxpr.outvars[self.parts.n_carry :]))
        outs = [v for equation in self.split.early for v in equation.outvars if v in read]
        program = Jaxpr([], [*fixed, *rows], outs, self.split.early, frozenset(), None)
        axes = (*[None for _ in fixed], *[0 for _ in rows])
        results = vmap(lambda *args: eval_jaxpr(program, (), *args), in_axes=axes)(*fixed.values(), *rows.values())
        rows.update(zip(outs, results, strict=True))

    def run_late(
        self, fixed: dict[Any, Any], state: Sequence[Any], rows: dict[Any, Any], ys: Sequence[Any]
    ) -> list[Any]:
        """The results of the remaining scan."""
        parts, jaxpr = self.parts, self.body.jaxpr
        if not parts.n_carry and not ys:
            return []
        read = self.needed.union(_variables(ys))
        captured = [v for v in fixed if v in read]
        inputs = [v for v in rows if v in read]
        carried = jaxpr.invars[parts.n_consts : parts.n_consts + parts.n_carry]
        outvars = [*jaxpr.outvars[: parts.n_carry], *ys]
        program = Jaxpr([], [*captured, *carried, *inputs], outvars, self.split.late, frozenset(), None)
        return scan.scan_p.bind(
            *[fixed[v] for v in captured], *state, *[rows[v] for v in inputs], jaxpr=ClosedJaxpr(program, ()),
            length=parts.trips, num_consts=len(captured), num_carry=parts.n_carry, reverse=parts.reverse,
            unroll=parts.unroll,
        )  # fmt: skip
