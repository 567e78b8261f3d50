"""Products of transposed operands read the original operands: the transpose becomes dimension numbers.

    b = transpose[permutation=(1, 0)] a; c = dot_general[([1], [0])] b d   ->   c = dot_general[([0], [0])] a d

This is done if the order of the free dimensions, and of the contracting ones, allows it.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.compiler.contraction import permutation
from weft.core import kinds
from weft.core.jaxpr import Atom, ClosedJaxpr, JaxprEqn
from weft.core.rewrite import Splicer


def transposed_operands(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program with such products."""
    return Splicer(closed, _folded, (kinds.Contraction,)).run()


def _folded(eqn: JaxprEqn, splicer: Splicer) -> Sequence[Atom] | None:
    invars = list(eqn.invars)
    sums, batches = (list(pair) for pair in eqn.params["dimension_numbers"])
    for side in (0, 1):
        while (maker := splicer.makers.of(invars[side])) is not None:
            order = permutation(maker)
            if order is None:
                break
            free = [order[d] for d in range(len(order)) if d not in (*sums[side], *batches[side])]
            walked = [order[d] for d in sorted(sums[side])]
            if free != sorted(free) or (side == 0 and walked != sorted(walked)):  # sums keep their order
                break
            sums[side] = tuple(order[d] for d in sums[side])
            batches[side] = tuple(order[d] for d in batches[side])
            invars[side] = maker.invars[0]
    if all(new is old for new, old in zip(invars, eqn.invars, strict=True)):
        return None
    numbers = ((tuple(sums[0]), tuple(sums[1])), (tuple(batches[0]), tuple(batches[1])))
    return splicer.emit(eqn.replace(invars=invars, params={**eqn.params, "dimension_numbers": numbers}))
