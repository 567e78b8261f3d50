"""Reductions over structural unit dimensions only become an operation on one element and the identity.

The transpose of a broadcast sums over every dimension that was added, also those of extent 1. As a loop of one step,
such a sum would be a separate kernel from that of its row. The bits stay: -0.0 plus the identity is +0.0.

    b:f32[n] = reduce_sum[axes=(1,)] a:f32[n,1]      ->      c:f32[n] = squeeze a; b = add c 0.0
"""

from __future__ import annotations

from weft import operations as lax
from weft.compiler import algebra
from weft.compiler.dimensions import Dimensions, dimensions
from weft.core import kinds, rewrite
from weft.core.jaxpr import ClosedJaxpr, JaxprEqn, Literal, Var
from weft.loops.index_math import UNIT


def unit_reductions(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program without such reductions."""
    found = [equation for equation in closed.jaxpr.eqns if _is_over_ones(equation)]
    if not found:
        return closed
    dims = dimensions(closed.jaxpr)
    found = [equation for equation in found if _is_over_units(equation, dims)]
    if not found:
        return closed
    equations: list[JaxprEqn] = []
    for equation in closed.jaxpr.eqns:
        equations += _replaced(equation) if equation in found else [equation]
    return rewrite.with_equations(closed, equations)


def _is_over_ones(equation: JaxprEqn) -> bool:
    kind = equation.primitive.kind
    if not isinstance(kind, kinds.Reduction) or len(equation.invars) != 1:
        return False
    if equation.primitive not in algebra.COMBINED_BY:
        return False
    axes, shape = kind.axes(equation.params), equation.invars[0].aval.shape
    return bool(axes) and {shape[axis] for axis in axes} == {1}


def _is_over_units(equation: JaxprEqn, dims: Dimensions) -> bool:
    symbols = dims.symbols(equation.invars[0])
    return {symbols[axis] for axis in equation.primitive.kind.axes(equation.params)} == {UNIT}


def _replaced(equation: JaxprEqn) -> list[JaxprEqn]:
    operand, out = equation.invars[0], equation.outvars[0]
    axes = tuple(sorted(equation.primitive.kind.axes(equation.params)))
    one = Var(out.aval)
    squeezed = JaxprEqn([operand], [one], lax.squeeze_p, {"dimensions": axes}, source=equation.source)
    if algebra.COMBINED_BY[equation.primitive] not in algebra.ADDITIONS or out.aval.dtype.kind not in "fcV":
        last = JaxprEqn([one], [out], lax.copy_p, {}, source=equation.source)
    else:
        zero = Literal(out.aval.dtype.type(0), one.aval.update(shape=()))
        last = JaxprEqn([one, zero], [out], lax.add_p, {}, source=equation.source)
    return [squeezed, last]
