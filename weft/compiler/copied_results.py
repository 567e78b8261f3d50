"""Which results of a program have memory of their own where they would lie in an input or in another result.

A result that is an input, a view of one, or another result needs no work. weft's own functions give such results out as
they are; a user's function gives arrays of which each can be deleted, donated or written to through its pointer::

    lambda x: (x, x.reshape(2, 3), x)   ->   three copies; as a function of weft's own: three times the memory of x
"""

from __future__ import annotations

from weft.core import kinds
from weft.core.jaxpr import Jaxpr, Literal

_COMPUTED = (kinds.Elementwise, kinds.Reduction, kinds.Contraction, kinds.Cumulative, kinds.Generate, kinds.Gather)
"""Operations whose results are new: never an operand, whole or in another shape."""


def copied_results(jaxpr: Jaxpr, shares: bool) -> frozenset[int]:
    """The results that are a ``copy`` of an input.

    Unless the program ``shares`` memory with its caller, all of them where one may be an input or another result.
    """
    if not shares:
        outs = [atom for atom in jaxpr.outvars if type(atom) is not Literal]
        computed = {v for eqn in jaxpr.eqns if isinstance(eqn.primitive.kind, _COMPUTED) for v in eqn.outvars}
        apart = len(set(outs)) == len(outs) and computed.issuperset(outs)
        return frozenset() if apart else frozenset(range(len(jaxpr.outvars)))
    inputs = {*jaxpr.constvars, *jaxpr.invars}
    copies = set()
    for equation in jaxpr.eqns:
        kind = equation.primitive.kind
        if not isinstance(kind, kinds.Identity) or not kind.copies or type(equation.invars[0]) is Literal:
            continue
        if equation.invars[0] in inputs:
            inputs.add(equation.outvars[0])
            copies.add(equation.outvars[0])
    found = enumerate(jaxpr.outvars)
    return frozenset([position for position, atom in found if type(atom) is not Literal and atom in copies])
