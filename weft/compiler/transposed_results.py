"""Products whose result is only read by a transpose of its free dimensions exchange their operands instead.

    c = dot_general[([1], [0])] a b; d = transpose[permutation=(1, 0)] c   ->   d = dot_general[([0], [1])] b a

The gradient of a weight is such a product.
"""

from __future__ import annotations

from weft.compiler.contraction import exchanged, free_dims, is_summed_alike, permutation
from weft.core import kinds, rewrite
from weft.core.jaxpr import ClosedJaxpr, JaxprEqn, Var


def transposed_results(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program with such products."""
    known = rewrite.index(closed.jaxpr)
    found: dict[Var, Var] = {}  # product -> its transpose
    for eqn in known.eqns:
        maker = known.makers.of(eqn.invars[0]) if len(eqn.invars) == 1 else None
        if maker is None or not isinstance(maker.primitive.kind, kinds.Contraction):
            continue
        if known.uses[maker.outvars[0]] == 1 and _exchanges(maker, eqn):
            found[maker.outvars[0]] = eqn.outvars[0]
    if not found:
        return closed
    dropped = set(found.values())
    kept = [e for e in known.eqns if not e.outvars or e.outvars[0] not in dropped]
    eqns = [exchanged(e, found[e.outvars[0]]) if e.outvars and e.outvars[0] in found else e for e in kept]
    return rewrite.with_equations(closed, eqns)


def _exchanges(product: JaxprEqn, eqn: JaxprEqn) -> bool:
    """Whether an equation transposes (batch, left, right) to (batch, right, left)."""
    order = permutation(eqn)
    if order is None or not is_summed_alike(product):
        return False
    (left_sum, _), (left_batch, _) = product.params["dimension_numbers"]
    n_batch, rank = len(left_batch), len(order)
    middle = n_batch + len(free_dims(product.invars[0].aval.ndim, left_sum, left_batch))
    return order == [*range(n_batch), *range(middle, rank), *range(n_batch, middle)]
