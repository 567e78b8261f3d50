"""Removes dead code: equations without an effect whose results are unused.

b = sin a; c = exp a in (c,)   ->   c = exp a in (c,)
"""

from __future__ import annotations

from weft.core import rewrite
from weft.core.jaxpr import ClosedJaxpr


def dead_code(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program without dead code."""
    jaxpr = closed.jaxpr
    kept = rewrite.live(jaxpr.eqns, jaxpr.outvars)
    return closed if len(kept) == len(jaxpr.eqns) else closed.replace(jaxpr=jaxpr.replace(eqns=kept))
