"""Loops whose iterations do not depend on each other, on a GPU: all iterations are one program of larger arrays.

    cells over f32[n] rows: softmax of a block   ->   softmax of n blocks, each read where it begins

A processor's threads take iterations, each with blocks in its cache (``kinds.LoopParts.independent``). Those of a GPU
would be launches, one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.batching.vmap import vmap
from weft.compiler import expansions
from weft.core import check_scopes, kinds
from weft.core.eval import jaxpr_as_fun
from weft.core.jaxpr import Atom, ClosedJaxpr, JaxprEqn
from weft.core.rewrite import Splicer


def cells_at_once(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program without such loops."""
    return Splicer(closed, _mapped, (kinds.Loop,)).run()


def _mapped(eqn: JaxprEqn, splicer: Splicer) -> Sequence[Atom] | None:
    parts = eqn.primitive.kind.parts(eqn.params)
    if not parts.independent or parts.body.effects:
        return None
    rows = len(eqn.invars) - parts.n_consts
    run = vmap(jaxpr_as_fun(parts.body), (*[None] * parts.n_consts, *[0] * rows), axis_size=parts.trips)
    program = expansions.traced(run, [v.aval for v in eqn.invars])
    return splicer.splice(program, eqn.invars, check_scopes.of_steps(eqn.source))
