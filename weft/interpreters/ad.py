"""weft.interpreters.ad: derivative rules of primitives, and differentiation of functions of flat values.

    ad.primitive_jvps[p] = rule(primals, tangents, **params) -> results, tangents
    ad.primitive_transposes[p] = rule(cotangent, *operands, **params) -> a cotangent, or None, for each operand

A tangent or cotangent that is zero is a ``Zero``; operands in which an equation is linear are ``UndefinedPrimal``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.autodiff import jvp as jvp_module
from weft.autodiff import linearize as linearize_module
from weft.autodiff import transpose as transpose_module
from weft.autodiff.jvp import JVPTrace, JVPTracer, jvp_jaxpr
from weft.autodiff.linearize import LinearizeTrace, LinearizeTracer
from weft.core import avals
from weft.core.primitive import MISSING, Primitive, missing_rule
from weft.core.tangents import FLOAT0, Undefined, Zero, tangent_aval
from weft.core.tangents import is_undefined as is_undefined_primal
from weft.extend import linear_util as lu
from weft.interpreters.rule_tables import RuleTable
from weft.operations import linear
from weft.operations.linear import (
    add_any as add_tangents,
)
from weft.operations.linear import (
    add_any_p as add_jaxvals_p,
)
from weft.operations.linear import (
    instantiate as instantiate_zeros,
)
from weft.operations.linear import (
    zeros as zeros_like_aval,
)

UndefinedPrimal = Undefined
add_jaxvals = add_jaxvals_p.bind

__all__ = [
    "JVPTrace", "JVPTracer", "LinearizeTrace", "LinearizeTracer", "UndefinedPrimal", "Zero", "add_jaxvals",
    "add_jaxvals_p", "add_tangents", "backward_pass", "defbilinear", "defjvp", "defjvp2", "defjvp_zero", "deflinear",
    "deflinear2", "get_primitive_transpose", "instantiate_zeros", "is_undefined_primal", "jvp", "jvp_jaxpr",
    "linear_jvp", "linearize", "primitive_jvps", "primitive_transposes", "zeros_like_aval",
]  # fmt: skip


# -- the tables -------------------------------------------------------------------------------------------------------


def _install_jvp(primitive: Primitive, rule: Any) -> None:
    primitive.jvp = MISSING if rule is None else rule
    if rule is not None:
        primitive.linearize = None


def _own_jvp(primitive: Primitive) -> Any:
    if primitive.jvp is not MISSING:
        return primitive.jvp
    if primitive.partials is None and primitive.linear is None and primitive.expansion is None:
        return None
    return lambda primals, tangents, **params: jvp_module.push_stated(primitive, primals, tangents, params)


def _install_transpose(primitive: Primitive, rule: Any) -> None:
    primitive.transpose = MISSING if rule is None else rule


def _own_transpose(primitive: Primitive) -> Any:
    rule = primitive.transpose
    if rule is MISSING or rule is None:
        return None

    def transposed(ct: Any, *operands: Any, **params: Any) -> Any:
        return list(rule(ct, *operands, **params))

    return transposed


primitive_jvps = RuleTable("primitive_jvps", _install_jvp, _own_jvp)
primitive_transposes = RuleTable("primitive_transposes", _install_transpose, _own_transpose)


def get_primitive_transpose(p: Primitive) -> Callable[..., Any]:
    """The transposition rule; NotImplementedError if there is none."""
    rule = primitive_transposes.get(p)
    if rule is None:
        text = f"Transpose rule (for reverse-mode differentiation) for '{p}' not implemented"
        raise missing_rule(p, text, "ad.primitive_transposes[{name}] = rule")
    return rule


# -- rules for common cases -------------------------------------------------------------------------------------------


def linear_jvp(primitive: Primitive, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    """The jvp rule of a primitive that is linear in all operands: the tangent is the primitive of the tangents."""
    out = primitive.bind(*primals, **params)
    if all(type(t) is Zero for t in tangents):
        many = primitive.multiple_results
        return out, [Zero.from_primal_value(x) for x in out] if many else Zero.from_primal_value(out)
    return out, primitive.bind(*map(instantiate_zeros, tangents), **params)


def _zero_cotangents(operands: Sequence[Any]) -> list[Any]:
    return [Zero(tangent_aval(x.aval)) if is_undefined_primal(x) else None for x in operands]


def deflinear(primitive: Primitive, transpose_rule: Callable[..., Any]) -> None:
    """The primitive is linear in all operands; ``transpose_rule(cotangent, **params)`` gives their cotangents."""

    def transposed(ct: Any, *operands: Any, **params: Any) -> Any:
        return _zero_cotangents(operands) if type(ct) is Zero else transpose_rule(ct, **params)

    primitive_jvps[primitive] = functools.partial(linear_jvp, primitive)
    primitive_transposes[primitive] = transposed


def deflinear2(primitive: Primitive, transpose_rule: Callable[..., Any]) -> None:
    """As ``deflinear``, for a rule ``transpose_rule(cotangent, *operands, **params)``."""

    def transposed(ct: Any, *operands: Any, **params: Any) -> Any:
        return _zero_cotangents(operands) if type(ct) is Zero else transpose_rule(ct, *operands, **params)

    primitive_jvps[primitive] = functools.partial(linear_jvp, primitive)
    primitive_transposes[primitive] = transposed


def _check_single(primitive: Primitive, who: str) -> None:
    if not isinstance(primitive, Primitive) or primitive.multiple_results:
        raise TypeError(f"[{who}] takes a primitive with one result, got {primitive!r}; use ad.primitive_jvps")


def defjvp(primitive: Primitive, *jvprules: Callable[..., Any] | None) -> None:
    """One rule for each operand, ``rule(tangent, *primals, **params)``; None where the derivative is zero."""
    _check_single(primitive, "defjvp")

    def pushed(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        out = primitive.bind(*primals, **params)
        parts = [
            rule(t, *primals, **params)
            for rule, t in zip(jvprules, tangents, strict=True)
            if rule is not None and type(t) is not Zero
        ]
        return out, functools.reduce(add_tangents, parts, Zero.from_primal_value(out))

    primitive_jvps[primitive] = pushed


def defjvp2(primitive: Primitive, *jvprules: Callable[..., Any] | None) -> None:
    """As ``defjvp``, for rules ``rule(tangent, result, *primals, **params)``."""
    _check_single(primitive, "defjvp2")

    def pushed(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        out = primitive.bind(*primals, **params)
        parts = [
            rule(t, out, *primals, **params)
            for rule, t in zip(jvprules, tangents, strict=True)
            if rule is not None and type(t) is not Zero
        ]
        return out, functools.reduce(add_tangents, parts, Zero.from_primal_value(out))

    primitive_jvps[primitive] = pushed


def defjvp_zero(primitive: Primitive) -> None:
    """The derivative of the primitive is zero."""
    _check_single(primitive, "defjvp_zero")

    def pushed(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        out = primitive.bind(*primals, **params)
        return out, Zero.from_primal_value(out)

    primitive_jvps[primitive] = pushed


def defbilinear(prim: Primitive, lhs_rule: Callable[..., Any], rhs_rule: Callable[..., Any]) -> None:
    """A primitive of two operands that is linear in each; a rule ``(cotangent, x, y, **params)`` for either of them."""

    def transposed(ct: Any, x: Any, y: Any, **params: Any) -> Any:
        if is_undefined_primal(x) == is_undefined_primal(y):
            raise TypeError(f"[defbilinear] '{prim}' is linear in either operand, and not in both at once")
        if type(ct) is Zero:
            return _zero_cotangents((x, y))
        return (lhs_rule(ct, x, y, **params), None) if is_undefined_primal(x) else (None, rhs_rule(ct, x, y, **params))

    defjvp(
        prim,
        lambda tangent, x, y, **params: prim.bind(tangent, y, **params),
        lambda tangent, x, y, **params: prim.bind(x, tangent, **params),
    )
    primitive_transposes[prim] = transposed


# -- functions of flat values -----------------------------------------------------------------------------------------


def _zeros_of_float0(tangent: Any) -> Any:
    """Tangents of integers, which users write as arrays of float0, as symbolic zeros."""
    if isinstance(tangent, np.ndarray) and tangent.dtype == FLOAT0:
        return Zero(avals.ShapedArray(tangent.shape, FLOAT0))
    return tangent


def jvp(fun: lu.WrappedFun, has_aux: bool = False, instantiate: Any = True, transform_stack: bool = True) -> Any:
    """The function (primals, tangents) -> (results, their tangents) of a ``WrappedFun`` on flat values.

    With ``has_aux`` the second part of what ``fun`` gives is found in the second value returned, after the call.
    ``instantiate``: whether tangents that are zero become arrays, for all results or for each.
    """
    wrapped, aux = _pushed(fun, has_aux, instantiate)
    return (wrapped, aux) if has_aux else wrapped


@lu.transformation_with_aux2
def _pushed(
    f: Callable[..., Any], store: lu.Store, has_aux: bool, instantiate: Any, primals: Any, tangents: Any
) -> Any:
    def flat(*args: Any) -> Any:
        made = f(*args)
        if not has_aux:
            return made
        results, aux = made
        store.store(aux)
        return results

    outs, out_tangents = jvp_module.jvp_flat(flat, primals, [_zeros_of_float0(t) for t in tangents])
    wanted = [instantiate] * len(outs) if isinstance(instantiate, bool) else instantiate
    out_tangents = [linear.instantiate(t) if want else t for t, want in zip(out_tangents, wanted, strict=True)]
    return outs, out_tangents


def linearize(traceable: Any, *primals: Any) -> tuple[list[Any], list[bool], Any, list[Any]]:
    """(results, which of them have a zero tangent, the linear program of tangents, its constants) at flat values.

    ``traceable`` is a function, or a ``WrappedFun``, of flat values that gives a sequence.
    """
    fun = traceable.call_wrapped if isinstance(traceable, lu.WrappedFun) else traceable
    made = linearize_module.linearize_flat(fun, primals)
    return made.outs, [not live for live in made.out_live], made.jaxpr, made.residuals


def backward_pass(
    jaxpr: Any, transform_stack: bool, consts: Sequence[Any], primals_in: Sequence[Any], cotangents_in: Sequence[Any]
) -> list[Any]:
    """The cotangents of the inputs of a linear program that are ``UndefinedPrimal``; a ``Zero`` for the others."""
    found = transpose_module.backward_pass(jaxpr, consts, primals_in, cotangents_in)
    return [Zero(tangent_aval(v.aval)) if ct is None else ct for v, ct in zip(jaxpr.invars, found, strict=True)]
