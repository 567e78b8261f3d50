"""Which results of a program are copied to memory of their own, although they could lie in an input or in another
result.

A result that is an input, a view of one, or another result needs no work. weft's own functions give such results out as
they are. A user's function gives out separate arrays: each can be deleted, donated, or written to through its pointer::

    lambda x: (x, x.reshape(2, 3), x)   ->   three copies; as a function of weft's own: three times the memory of x
"""

from __future__ import annotations

from weft.core import kinds
from weft.core.programs.jaxpr import Jaxpr, Literal


def copied_results(jaxpr: Jaxpr, shares: bool) -> frozenset[int]:
    """The results that are a ``copy`` of an input; all, unless the program ``shares`` memory with its caller.

    Which results are an input or another result is known only when the program has been simplified (``x * 1``).
    """
    if not shares:
        return frozenset(range(len(jaxpr.outvars)))
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
