"""Rules of Taylor mode: from the coefficients of operands to those of results.

A series holds u_0, u_1, ..., u_K of u(t) = sum of u_k t^k; a coefficient of None is zero. Recurrences are those of
Griewank and Walther, Evaluating Derivatives, 2nd edition, section 13.2, table 13.2:

    w = u v        w_k = sum over j of u_j v_(k-j)
    w = exp(u)     k w_k = sum over j >= 1 of j u_j w_(k-j)

Every other operation has the rule of its derivative: w'(t) = D(u(t)) u'(t), where D is the operation's own derivative,
evaluated in Taylor mode of one order less, and w_k = (w')_(k-1) / k. If D reads the result, order by order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import dtypes
from weft.autodiff import jvp as jvp_module
from weft.core import avals as avals_module
from weft.core.programs import rewrite
from weft.core.programs.jaxpr import ClosedJaxpr, Jaxpr
from weft.core.tangents import Zero, tangent_aval
from weft.core.tracing.trace import trace_to_jaxpr
from weft.operations import linear
from weft.operations.pointwise import arithmetic, convert, functions

Series = list[Any]  # the value, then the coefficients; None for zero
Rule = Callable[[Any, list[Series], dict[str, Any], int], "list[Series]"]
Run = Callable[[Jaxpr, Sequence[Any], list[Series], int], "list[Series]"]


def is_constant(series: Series) -> bool:
    return all(term is None for term in series[1:])


# -- arithmetic of coefficients ---------------------------------------------------------------------------------------


def _plus(left: Any, right: Any) -> Any:
    if left is None or right is None:
        return right if left is None else left
    return linear.add_any(left, right)


def _minus(left: Any, right: Any) -> Any:
    if right is None:
        return left
    return arithmetic.neg(right) if left is None else arithmetic.sub(left, right)


def _times(left: Any, right: Any) -> Any:
    return None if left is None or right is None else arithmetic.mul(left, right)


def scaled(term: Any, factor: float) -> Any:
    """A coefficient times a number, in its own dtype."""
    if term is None or factor == 1:
        return term
    dtype = avals_module.get_aval(term).dtype
    return arithmetic.mul(term, np.asarray(factor).astype(dtype)[()])


def _sum(terms: Sequence[Any]) -> Any:
    total = None
    for term in terms:
        total = _plus(total, term)
    return total


def _weighted(u: Series, w: Series, k: int) -> Any:
    """The sum over j from 1 to k of j u_j w_(k-j), divided by k."""
    return scaled(_sum([scaled(_times(u[j], w[k - j]), j) for j in range(1, k + 1)]), 1 / k)


def _spread(terms: Series, shape: tuple[int, ...]) -> Series:
    """Coefficients of an operand that elementwise operations repeat."""
    aval = avals_module.get_aval(terms[0])
    if aval.shape == shape:
        return terms
    return [terms[0], *[x if x is None else linear.broadcast_tangent(x, aval.update(shape=shape)) for x in terms[1:]]]


# -- operations -------------------------------------------------------------------------------------------------------


def _linear(primitive: Any, operands: list[Series], params: dict[str, Any], order: int) -> list[Series]:
    """Each coefficient of the operands gives that of the results."""
    out = primitive.bind(*[u[0] for u in operands], **params)
    outs = list(out) if primitive.multiple_results else [out]
    indices = range(len(operands))[_LINEAR_IN.get(primitive.name) or primitive.linear]
    results: list[Series] = [[x] for x in outs]
    for k in range(1, order + 1):
        if all(operands[index][k] is None for index in indices):
            terms: list[Any] = [None] * len(outs)
        else:
            given = [u[0] for u in operands]
            for index in indices:
                given[index] = _instantiated(operands[index][k], given[index])
            term = primitive.bind(*given, **params)
            terms = list(term) if primitive.multiple_results else [term]
        for series, term in zip(results, terms, strict=True):
            series.append(term)
    return results


def _instantiated(term: Any, value: Any) -> Any:
    return linear.instantiate(Zero.from_primal_value(value)) if term is None else term


_LINEAR_IN: dict[str, slice] = {
    "dynamic_slice": slice(0, 1),
    "gather": slice(0, 1),
    "scatter": slice(0, 3, 2),
    "scatter-add": slice(0, 3, 2),
    "scatter-sub": slice(0, 3, 2),
    "select_n": slice(1, None),
    "optimization_barrier": slice(None),
    "name": slice(None),
}


def _add(primitive: Any, operands: list[Series], params: dict[str, Any], order: int) -> list[Series]:
    out = primitive.bind(*[u[0] for u in operands], **params)
    shape = avals_module.get_aval(out).shape
    u, v = [_spread(terms, shape) for terms in operands]
    join = _plus if primitive.name != "sub" else _minus
    return [[out, *[join(u[k], v[k]) for k in range(1, order + 1)]]]


def _convert(primitive: Any, operands: list[Series], params: dict[str, Any], order: int) -> list[Series]:
    (u,) = operands
    out = primitive.bind(u[0], **params)
    dtype = avals_module.get_aval(out).dtype
    if not dtypes.issubdtype(dtype, np.inexact):
        return [[out, *[None] * order]]
    return [[out, *[x if x is None else convert.convert(x, dtype, False) for x in u[1:]]]]


def _bilinear(primitive: Any, operands: list[Series], params: dict[str, Any], order: int) -> list[Series]:
    """Products: mul, dot_general, convolutions."""
    u, v = operands
    out = primitive.bind(u[0], v[0], **params)
    if primitive.name == "mul":
        shape = avals_module.get_aval(out).shape
        u, v = _spread(u, shape), _spread(v, shape)

    def product(left: Any, right: Any) -> Any:
        return None if left is None or right is None else primitive.bind(left, right, **params)

    return [[out, *[_sum([product(u[j], v[k - j]) for j in range(k + 1)]) for k in range(1, order + 1)]]]


def _square(primitive: Any, operands: list[Series], params: dict[str, Any], order: int) -> list[Series]:
    (u,) = operands
    out = primitive.bind(u[0], **params)
    return [[out, *[_sum([_times(u[j], u[k - j]) for j in range(k + 1)]) for k in range(1, order + 1)]]]


def _div(primitive: Any, operands: list[Series], params: dict[str, Any], order: int) -> list[Series]:
    out = primitive.bind(*[u[0] for u in operands], **params)
    shape = avals_module.get_aval(out).shape
    u, v = [_spread(terms, shape) for terms in operands]
    w = [out]
    for k in range(1, order + 1):
        rest = _minus(u[k], _sum([_times(v[j], w[k - j]) for j in range(1, k + 1)]))
        w.append(None if rest is None else arithmetic.div(rest, v[0]))
    return [w]


def _exp(primitive: Any, operands: list[Series], params: dict[str, Any], order: int) -> list[Series]:
    (u,) = operands
    e = [functions.exp_p.bind(u[0], **params)]
    for k in range(1, order + 1):
        e.append(_weighted(u, e, k))
    return [e]


def _log(primitive: Any, operands: list[Series], params: dict[str, Any], order: int) -> list[Series]:
    """log and log1p: k u_0 w_k = k u_k - sum over j < k of j w_j u_(k-j)."""
    (u,) = operands
    w = [primitive.bind(u[0], **params)]
    base = arithmetic.add(u[0], np.ones((), avals_module.get_aval(u[0]).dtype)) if primitive.name == "log1p" else u[0]
    for k in range(1, order + 1):
        known = scaled(_sum([scaled(_times(w[j], u[k - j]), j) for j in range(1, k)]), 1 / k)
        rest = _minus(u[k], known)
        w.append(None if rest is None else arithmetic.div(rest, base))
    return [w]


def _root(power: float) -> Rule:
    """u to a constant power: k u_0 w_k = sum over j of (power j - k + j) u_j w_(k-j)."""

    def rule(primitive: Any, operands: list[Series], params: dict[str, Any], order: int) -> list[Series]:
        (u,) = operands
        w = [primitive.bind(u[0], **params)]
        for k in range(1, order + 1):
            terms = [scaled(_times(u[j], w[k - j]), (power * j - k + j) / k) for j in range(1, k + 1)]
            total = _sum(terms)
            w.append(None if total is None else arithmetic.div(total, u[0]))
        return [w]

    return rule


def _pair(first: str, sign: int) -> Rule:
    """sin with cos (``sign`` -1) and sinh with cosh: each is the derivative of the other, up to the sign."""

    def rule(primitive: Any, operands: list[Series], params: dict[str, Any], order: int) -> list[Series]:
        (u,) = operands
        odd, even = (functions.sin_p, functions.cos_p) if sign < 0 else (functions.sinh_p, functions.cosh_p)
        other = {} if "accuracy" not in params else {"accuracy": params["accuracy"]}
        s, c = [odd.bind(u[0], **other)], [even.bind(u[0], **other)]
        for k in range(1, order + 1):
            next_s, next_c = _weighted(u, c, k), _weighted(u, s, k)
            s.append(next_s)
            c.append(scaled(next_c, sign))
        return [s if primitive.name == first else c]

    return rule


RULES: dict[str, Rule] = {
    "add": _add,
    "sub": _add,
    "add_any": _add,
    "convert_element_type": _convert,
    "mul": _bilinear,
    "dot_general": _bilinear,
    "conv_general_dilated": _bilinear,
    "square": _square,
    "div": _div,
    "exp": _exp,
    "log": _log,
    "log1p": _log,
    "sqrt": _root(0.5),
    "rsqrt": _root(-0.5),
    "cbrt": _root(1 / 3),
    "sin": _pair("sin", -1),
    "cos": _pair("sin", -1),
    "sinh": _pair("sinh", 1),
    "cosh": _pair("sinh", 1),
    **dict.fromkeys(_LINEAR_IN, _linear),
}


# -- any other operation ----------------------------------------------------------------------------------------------


def propagate(primitive: Any, operands: list[Series], params: dict[str, Any], order: int, run: Run) -> list[Series]:
    """The series of the results; ``run`` evaluates a program on series of some order."""
    rule = RULES.get(primitive.name)
    if rule is None and primitive.linear is not None:
        rule = _linear
    if rule is not None:
        return rule(primitive, operands, params, order)
    out = primitive.bind(*[u[0] for u in operands], **params)
    outs = list(out) if primitive.multiple_results else [out]
    if order == 0:
        return [[x] for x in outs]
    moving = tuple([not is_constant(u) for u in operands])
    derivative, live, reads_results = _derivative(primitive, [u[0] for u in operands], outs, params, moving)
    results: list[Series] = [[x] for x in outs]
    for degree in range(order) if reads_results else [order - 1]:
        given = [u[: degree + 1] for u in operands]
        given += [[_instantiated(u[1], u[0]), *[scaled(u[j], j) for j in range(2, degree + 2)]]
                  for u, moves in zip(operands, moving, strict=True) if moves]  # fmt: skip
        given += [(w + [None] * order)[: degree + 1] for w in results]
        slopes = iter(run(derivative.jaxpr, derivative.consts, given, degree))
        for w, has in zip(results, live, strict=True):
            slope = next(slopes) if has else [None] * (degree + 1)
            for k in range(len(w), degree + 2):
                w.append(scaled(slope[k - 1], 1 / k))
    return results


def _derivative(
    primitive: Any, values: list[Any], outs: list[Any], params: dict[str, Any], moving: tuple[bool, ...]
) -> tuple[ClosedJaxpr, list[bool], bool]:
    """(the program of the tangents of (operands, tangents of the moving ones, results), which results have one,
    whether it reads the results)."""
    avals = [avals_module.get_aval(x) for x in values]
    tangents = [tangent_aval(aval) for aval, moves in zip(avals, moving, strict=True) if moves]
    out_avals = [avals_module.get_aval(x) for x in outs]
    live: list[bool] = []

    def program(*args: Any) -> list[Any]:
        given = iter(args[len(avals) :])
        own = [next(given) if moves else Zero(tangent_aval(a)) for a, moves in zip(avals, moving, strict=True)]
        try:
            _, made = jvp_module.push(primitive, args[: len(avals)], own, params)
        except NotImplementedError as error:
            raise NotImplementedError(f"[jet] no rule of Taylor mode for the primitive {primitive.name}") from error
        made = list(made) if primitive.multiple_results else [made]
        live[:] = [type(t) is not Zero for t in made]
        return [t for t in made if type(t) is not Zero]

    closed, _ = trace_to_jaxpr(program, [*avals, *tangents, *out_avals])
    jaxpr = closed.jaxpr
    operands = jaxpr.invars[: len(avals)]
    results = jaxpr.invars[len(avals) + len(tangents) :]

    def known(builder: rewrite.Builder, eqn: Any, atoms: list[Any]) -> Any:
        """The operation itself, on its own operands, is what has been computed."""
        same = eqn.primitive is primitive and eqn.params == params and list(eqn.invars) == list(operands)
        return [builder.read(v) for v in results] if same else None

    shorter, used = rewrite.dce(rewrite.rewrite(jaxpr, known))
    return ClosedJaxpr(shorter, closed.consts), live, any(used[len(avals) + len(tangents) :])
