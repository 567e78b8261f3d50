"""Reductions over nothing but structural unit dimensions are no reductions: one element and the identity.

The transpose of a broadcast sums over every dimension that was added, those of extent 1 too. As a loop of one step such
a sum keeps its kernel apart from that of the row it belongs to. The bits stay: -0.0 and the identity are +0.0.

    b:f32[n] = reduce_sum[axes=(1,)] a:f32[n,1]      ->      c:f32[n] = squeeze a; b = add c 0.0
"""

from __future__ import annotations

from typing import Any

from weft import operations as lax
from weft.compiler.dimensions import Dimensions
from weft.core import kinds
from weft.core.jaxpr import JaxprEqn, Literal, Var
from weft.loops.index_math import UNIT

# of one element and the identity these give the element itself
TRIVIAL = (lax.reduce_max_p, lax.reduce_min_p, lax.reduce_prod_p, lax.reduce_and_p, lax.reduce_or_p, lax.reduce_xor_p)


def without_unit_reductions(jaxpr: Any, dims: Dimensions) -> Any:
    """The program without them; the same object where there are none."""
    equations: list[Any] = []
    for equation in jaxpr.eqns:
        equations += _replaced(equation) if _is_over_units(equation, dims) else [equation]
    return jaxpr if len(equations) == len(jaxpr.eqns) else jaxpr.replace(eqns=equations)


def _is_over_units(equation: Any, dims: Dimensions) -> bool:
    kind = equation.primitive.kind
    if not isinstance(kind, kinds.Reduction) or len(equation.invars) != 1 or isinstance(equation.invars[0], Literal):
        return False
    if equation.primitive is not lax.reduce_sum_p and equation.primitive not in TRIVIAL:
        return False
    axes, symbols = kind.axes(equation.params), dims.symbols(equation.invars[0])
    return bool(axes) and all(symbols[axis] == UNIT for axis in axes)


def _replaced(equation: Any) -> list[Any]:
    """Two equations for one, so that the caller sees that something changed."""
    operand, out = equation.invars[0], equation.outvars[0]
    axes = tuple(sorted(equation.primitive.kind.axes(equation.params)))
    one = Var(out.aval)
    squeezed = JaxprEqn([operand], [one], lax.squeeze_p, {"dimensions": axes}, source=equation.source)
    if equation.primitive is not lax.reduce_sum_p or out.aval.dtype.kind not in "fcV":
        last = JaxprEqn([one], [out], lax.copy_p, {}, source=equation.source)
    else:
        zero = Literal(out.aval.dtype.type(0), one.aval.update(shape=()))
        last = JaxprEqn([one, zero], [out], lax.add_p, {}, source=equation.source)
    return [squeezed, last]
