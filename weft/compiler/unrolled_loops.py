"""Unrolls loops: those without steps, and short elementwise ones with ``unroll`` above 1.

    scan[unroll=16] over f32[5], the state f32[1000000]   ->   five times slice, mul, add
    scan[length=0]   ->   the state as it begins, and arrays without elements

``unroll`` only has an effect for short loops on arrays too large for registers: a loop with a small state is one native
function anyway, and a long sequence of steps would cost more to compile than it saves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import operations as lax
from weft.compiler import expansions
from weft.core import check_scopes, kinds
from weft.core.eval import jaxpr_as_fun
from weft.core.jaxpr import Atom, ClosedJaxpr, JaxprEqn
from weft.core.rewrite import Splicer
from weft.loops import promoted_values

MOST_EQUATIONS = 256  # equations of all steps together
_ELEMENTWISE = (kinds.Elementwise, kinds.View, kinds.Generate, kinds.Assemble, kinds.Identity)


def without_steps(parts: kinds.LoopParts) -> Callable[..., list[Any]]:
    """A function that computes the results of a loop without steps."""
    first, empty = parts.n_cond_consts + parts.n_consts, parts.body.out_avals[parts.n_carry :]

    def results(*operands: Any) -> list[Any]:
        outputs = [lax.full((0, *aval.shape), 0, aval.dtype) for aval in empty]
        return [*operands[first : first + parts.n_carry], *outputs]

    return results


def unrolled_loops(closed: ClosedJaxpr, simplified: Callable[[ClosedJaxpr], ClosedJaxpr]) -> ClosedJaxpr:
    """The program with such loops unrolled; ``simplified`` gives the body of a loop after all passes."""

    def rule(eqn: JaxprEqn, splicer: Splicer) -> Sequence[Atom] | None:
        function = _steps(eqn.primitive.kind.parts(eqn.params), simplified)
        if function is None:
            return None
        return splicer.splice(
            expansions.traced(function, [v.aval for v in eqn.invars]), eqn.invars, check_scopes.of_steps(eqn.source)
        )

    return Splicer(closed, rule, (kinds.Loop,)).run()


def _steps(parts: kinds.LoopParts, simplified: Callable[[ClosedJaxpr], ClosedJaxpr]) -> Callable[..., Any] | None:
    """A function that replaces the loop; None if it stays a loop."""
    trips, outs = parts.trips, parts.body.out_avals
    if trips is None or parts.unroll <= 1 or parts.body.effects:
        return None
    if max(aval.size for aval in outs) <= promoted_values.LARGEST:
        return None
    body = simplified(parts.body)
    eqns = body.jaxpr.eqns
    if len(eqns) * trips > MOST_EQUATIONS or not all(isinstance(eqn.primitive.kind, _ELEMENTWISE) for eqn in eqns):
        return None
    step = jaxpr_as_fun(body)
    moving = parts.n_consts + parts.n_carry

    def steps(*operands: Any) -> list[Any]:
        captured, state, inputs = operands[: parts.n_consts], operands[parts.n_consts : moving], operands[moving:]
        rows: list[Any] = [None] * trips
        for i in reversed(range(trips)) if parts.reverse else range(trips):
            results = step(*captured, *state, *(lax.index_in_dim(x, i, 0, keepdims=False) for x in inputs))
            state, rows[i] = results[: parts.n_carry], results[parts.n_carry :]
        columns = [[lax.expand_dims(y, (0,)) for y in column] for column in zip(*rows, strict=True)]
        return [*state, *(lax.concatenate(column, 0) for column in columns)]

    return steps
