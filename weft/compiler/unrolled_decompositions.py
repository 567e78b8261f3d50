"""Decompositions of many small matrices are unrolled: elementwise operations along the batch replace library calls.

In: Externals whose operation states how it is unrolled at its sizes. Out: elementwise operations, which are one kernel.

    b:f32[100000,3,3] = cholesky a   ->   c = sqrt a[:,0,0]; d = a[:,1,0] / c; ...; b = stack of these
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.compiler import expansions, sort_lowering
from weft.core import kinds
from weft.core.jaxpr import Atom, ClosedJaxpr, JaxprEqn
from weft.core.rewrite import Splicer


def unrolled_decompositions(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program with its small decompositions, and sorts of short rows, unrolled."""
    # a small sort that is all of a program stays native, and serves all sizes
    alone = sum(not isinstance(eqn.primitive.kind, kinds.Generate) for eqn in closed.jaxpr.eqns) == 1

    def rule(eqn: JaxprEqn, splicer: Splicer) -> Sequence[Atom] | None:
        return None if alone and sort_lowering.is_small_sort(eqn) else _unrolled(eqn, splicer)

    return Splicer(closed, rule, (kinds.External,)).run()


def _unrolled(eqn: JaxprEqn, splicer: Splicer) -> Sequence[Atom] | None:
    kind = eqn.primitive.kind
    if not isinstance(kind, kinds.External) or kind.unrolled is None:
        return None
    function = kind.unrolled([v.aval for v in eqn.invars], eqn.params)
    return None if function is None else splicer.splice(expansions.of_equation(eqn, function), eqn.invars, eqn.source)
