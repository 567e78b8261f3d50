"""Control flow that need not be: branches with a known index, short loops on large arrays, cells of a GPU.

    b = cond[branches=(f, g)] 1 a   ->   b = g a, inlined
    scan[unroll=16] over f32[5], the state f32[1000000]   ->   five times slice, mul, add
    cells over f32[n] rows: softmax of a block   ->   softmax of n blocks, each read where it begins, on a GPU

Cells with a loop of their own stay there, if they may be blocks of one launch.

``unroll`` only has an effect for short loops on arrays too large for registers: a loop with a small state is one native
function anyway, and a long sequence of steps would cost more to compile than it saves. A processor's threads take
independent iterations, each with blocks in its cache; those of a GPU would be launches, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import operations as lax
from weft.batching.vmap import vmap
from weft.compiler import expansions
from weft.compiler.passes import inline
from weft.core import kinds
from weft.core.programs import check_scopes
from weft.core.programs.eval import jaxpr_as_fun
from weft.core.programs.jaxpr import Atom, ClosedJaxpr, JaxprEqn, Literal
from weft.core.programs.rewrite import Splicer
from weft.loops.routines import promoted_values

MOST_EQUATIONS = 256  # equations of all steps together
_ELEMENTWISE = (kinds.Elementwise, kinds.View, kinds.Generate, kinds.Assemble, kinds.Identity)

Simplified = Callable[[ClosedJaxpr], ClosedJaxpr]  # the body of a loop after all passes


def straight_code(closed: ClosedJaxpr, simplified: Simplified, threads: int = 0) -> ClosedJaxpr:
    """The program without such control flow; ``threads``: ``Context.threads``."""

    def rule(eqn: JaxprEqn, splicer: Splicer) -> Sequence[Atom] | None:
        kind = eqn.primitive.kind
        if isinstance(kind, kinds.Branch):
            return _chosen(eqn, splicer)
        parts = kind.parts(eqn.params)
        if threads > 1 and parts.independent and _has_loop(parts.body):
            return None
        function = (_cells(parts, len(eqn.invars)) if threads else None) or _steps(parts, simplified)
        if function is None:
            return None
        program = inline.inline(expansions.traced(function, [v.aval for v in eqn.invars]))
        return splicer.splice(program, eqn.invars, check_scopes.of_steps(eqn.source))

    return Splicer(closed, rule, (kinds.Branch, kinds.Loop)).run()


def _chosen(eqn: JaxprEqn, splicer: Splicer) -> Sequence[Atom] | None:
    """The results of the branch that runs, if it is known."""
    which = eqn.invars[0]
    if not isinstance(which, Literal):
        return None
    programs = eqn.primitive.kind.branches(eqn.params)
    return splicer.splice(inline.inline(programs[min(max(int(which.val), 0), len(programs) - 1)]), eqn.invars[1:])


def _cells(parts: kinds.LoopParts, n_operands: int) -> Callable[..., Any] | None:
    """A function of larger arrays that replaces iterations which do not depend on each other."""
    if not parts.independent or parts.body.effects:
        return None
    axes = (*[None] * parts.n_consts, *[0] * (n_operands - parts.n_consts))
    return vmap(jaxpr_as_fun(parts.body), axes, axis_size=parts.trips)


def _has_loop(program: ClosedJaxpr) -> bool:
    return any(isinstance(eqn.primitive.kind, kinds.Loop) for eqn in program.jaxpr.eqns)


def _steps(parts: kinds.LoopParts, simplified: Simplified) -> Callable[..., Any] | None:
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
