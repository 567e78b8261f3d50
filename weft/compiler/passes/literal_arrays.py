"""Literals become arrays where an operand or result must be in memory (starts of slices stay literals).

a = dot_general 2.0 x in (a, 1.0)   ->   b = broadcast_in_dim 2.0; a = dot_general b x; c = broadcast_in_dim 1.0
"""

from __future__ import annotations

from weft import operations
from weft.core import kinds
from weft.core.programs import rewrite
from weft.core.programs.jaxpr import Atom, ClosedJaxpr, JaxprEqn, Literal, Var

_READ_MEMORY = (
    kinds.Contraction, kinds.StridedContraction, kinds.External, kinds.Exchange, kinds.Effect, kinds.Reshape,
    kinds.DynamicUpdateSlice, kinds.DynamicSlice, kinds.Reduction, kinds.Cumulative, kinds.Gather, kinds.Scatter,
    kinds.Loop, kinds.Branch, kinds.Identity,
)  # fmt: skip


def literal_arrays(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program with literals only where no memory is needed."""
    eqns: list[JaxprEqn] = []

    def array(atom: Atom) -> Var:
        if not isinstance(atom, Literal):
            return atom
        out = Var(atom.aval)
        params = {"shape": (), "broadcast_dimensions": (), "sharding": None}
        eqns.append(JaxprEqn([atom], [out], operations.broadcast_in_dim_p, params))
        return out

    for eqn in closed.jaxpr.eqns:
        if Literal in map(type, eqn.invars) and isinstance(eqn.primitive.kind, _READ_MEMORY):
            count = _arrays(eqn)
            operands = [array(v) if count is None or i < count else v for i, v in enumerate(eqn.invars)]
            eqn = eqn.replace(invars=operands)
        eqns.append(eqn)
    outvars = [array(v) for v in closed.jaxpr.outvars] if Literal in map(type, closed.jaxpr.outvars) else None
    return closed if len(eqns) == len(closed.jaxpr.eqns) else rewrite.with_equations(closed, eqns, outvars)


def _arrays(eqn: JaxprEqn) -> int | None:
    """The number of operands that must be in memory (None: all): not starts of slices, nor identities of reductions."""
    kind = eqn.primitive.kind
    if isinstance(kind, kinds.Reduction) and kind.operands is not None:
        return kind.operands([v.aval for v in eqn.invars])
    return 1 if isinstance(kind, kinds.DynamicSlice) else 2 if isinstance(kind, kinds.DynamicUpdateSlice) else None
