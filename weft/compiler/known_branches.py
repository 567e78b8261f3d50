"""Branches with a known index: the branch that runs replaces the choice.

b = cond[branches=(f, g)] 1 a   ->   b = g a, inlined
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.core import kinds
from weft.core.jaxpr import Atom, ClosedJaxpr, JaxprEqn, Literal
from weft.core.rewrite import Splicer


def known_branches(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program without such branches; the replacement may contain calls."""
    return Splicer(closed, _chosen, (kinds.Branch,)).run()


def _chosen(eqn: JaxprEqn, splicer: Splicer) -> Sequence[Atom] | None:
    which, kind = eqn.invars[0], eqn.primitive.kind
    if not isinstance(which, Literal):
        return None
    programs = kind.branches(eqn.params)
    return splicer.splice(programs[min(max(int(which.val), 0), len(programs) - 1)], eqn.invars[1:])
