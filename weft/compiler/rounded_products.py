"""Products of half precisions whose sums are only rounded give what these become: for GPUs, whose kernels round.

    c:f32[] = dot_general a:bf16[] b:bf16[]; d:bf16[] = c as bf16   ->   d:bf16[] = dot_general a b

The same bits; half of the bytes are written and read again.
"""

from __future__ import annotations

import numpy as np

from weft.compiler.algebra import CONVERSIONS
from weft.compiler.contraction import kernels_of
from weft.core import kinds, rewrite
from weft.core.jaxpr import ClosedJaxpr, JaxprEqn, Var


def rounded_products(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program with such products."""
    known = rewrite.index(closed.jaxpr)
    found: dict[Var, Var] = {}  # product -> what it is rounded to
    for eqn in known.eqns:
        maker = known.makers.of(eqn.invars[0]) if len(eqn.invars) == 1 else None
        if maker is None or not isinstance(maker.primitive.kind, kinds.Contraction | kinds.StridedContraction):
            continue
        if known.uses[maker.outvars[0]] == 1 and _rounds(maker, eqn):
            found[maker.outvars[0]] = eqn.outvars[0]
    if not found:
        return closed
    dropped = set(found.values())
    kept = [e for e in known.eqns if not e.outvars or e.outvars[0] not in dropped]
    eqns = [_giving(e, found[e.outvars[0]]) if e.outvars and e.outvars[0] in found else e for e in kept]
    return rewrite.with_equations(closed, eqns)


def _rounds(product: JaxprEqn, eqn: JaxprEqn) -> bool:
    """Whether an equation converts a product's sums to the dtype of its operands, of 16 bits."""
    dtype = eqn.outvars[0].aval.dtype
    if eqn.primitive not in CONVERSIONS or dtype.itemsize != 2 or kernels_of(product) is None:
        return False
    return product.outvars[0].aval.dtype == np.float32 and product.invars[0].aval.dtype == dtype


def _giving(product: JaxprEqn, out: Var) -> JaxprEqn:
    return product.replace(outvars=[out], params={**product.params, "preferred_element_type": out.aval.dtype})
