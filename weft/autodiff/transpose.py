"""Transposition: runs a linear program backwards, from cotangents of its results to cotangents of its inputs.

Equations are visited from the last to the first. Each gives, from the cotangents of its results, those of the operands
it is linear in. Cotangents of the same variable are added by ``add_any``::

    b = mul a 2.0; c = mul a 3.0; d = add b c   ->   with ct: e = mul ct 3.0; f = mul ct 2.0; g = add_any e f

Equations that do not depend on a linear input are computed first, in program order, and so are the results of loops,
branches and calls that do not (``known_values``). A result without a cotangent counts as a symbolic zero, and an
equation all of whose results have none is skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft._base import lazy
from weft.core import avals, kinds
from weft.core.primitive import MISSING, PROGRAMS, missing_rule
from weft.core.programs.jaxpr import Atom, ClosedJaxpr, DropVar, Jaxpr, JaxprEqn, Literal, Var
from weft.core.tangents import Undefined, Zero, plain, tangent_aval, with_attributes
from weft.core.tracing import source_info
from weft.core.tracing import trace as tracing
from weft.operations import linear as linear_operations


def backward_pass(jaxpr: Jaxpr, consts: Sequence[Any], operands: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
    """The cotangents of the inputs that are ``Undefined`` among ``operands``; None for the other inputs.

    ``cts`` are the cotangents of the results. Symbolic zeros are allowed among them, and in the result.
    """
    values: dict[Var, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    linear: set[Var] = set()
    for v, operand in zip(jaxpr.invars, operands, strict=True):
        if type(operand) is Undefined:
            linear.add(v)
        else:
            values[v] = operand
    equations = _forward(jaxpr, values, linear)
    found: dict[Var, Any] = {}
    for atom, ct in zip(jaxpr.outvars, cts, strict=True):
        _accumulate(found, linear, atom, ct)
    with source_info.name_scope(source_info.BACKWARD):
        for eqn in reversed(equations):
            _transpose(eqn, values, linear, found)
    return [found.get(v, Zero(tangent_aval(v.aval))) if v in linear else None for v in jaxpr.invars]


def _forward(jaxpr: Jaxpr, values: dict[Var, Any], linear: set[Var]) -> list[JaxprEqn]:
    """Compute what depends on no linear input, and return the equations of the rest."""
    kept: list[JaxprEqn] = []
    for eqn in jaxpr.eqns:
        moving = tuple([type(atom) is not Literal and atom in linear for atom in eqn.invars])
        if any(moving):
            rest = eqn if eqn.primitive.separate is None or all(moving) else _separated(eqn, moving, values)
            kept.append(rest)
            linear.update(rest.outvars)
            continue
        with source_info.replayed(eqn.source):
            operands = [
                tracing.literal_value(atom) if isinstance(atom, Literal) else values[atom] for atom in eqn.invars
            ]
            out = eqn.primitive.bind(*operands, **eqn.params)
        values.update(zip(eqn.outvars, out if eqn.primitive.multiple_results else (out,), strict=True))
    return kept


def _separated(eqn: JaxprEqn, moving: tuple[bool, ...], values: dict[Var, Any]) -> JaxprEqn:
    """The equation of the results that depend on linear operands; the others are computed."""
    operands = [
        atom if has else tracing.literal_value(atom) if isinstance(atom, Literal) else values[atom]
        for atom, has in zip(eqn.invars, moving, strict=True)
    ]
    with source_info.replayed(eqn.source):
        rest = eqn.primitive.separate(operands, moving, eqn.params)
    if rest is None:
        return eqn
    values.update((eqn.outvars[index], value) for index, value in rest.known.items())
    invars: list[Atom] = []
    for operand in rest.operands:
        if type(operand) is not Var:
            v = Var(avals.get_aval(operand))
            values[v] = operand
            operand = v
        invars.append(operand)
    outvars = [
        DropVar(eqn.outvars[n].aval) if index is None else eqn.outvars[index] for n, index in enumerate(rest.indices)
    ]
    return eqn.replace(invars=invars, outvars=outvars, params=rest.params)


def _accumulate(found: dict[Var, Any], linear: set[Var], atom: Atom, ct: Any) -> None:
    """Add to the cotangent of a variable."""
    if ct is None or type(ct) is Zero or type(atom) is Literal or atom not in linear:
        return
    ct = plain(ct)
    before = found.get(atom)
    found[atom] = ct if before is None else linear_operations.add_any(before, ct)


def _transpose(eqn: JaxprEqn, values: dict[Var, Any], linear: set[Var], found: dict[Var, Any]) -> None:
    primitive = eqn.primitive
    cts = [found.pop(v, None) for v in eqn.outvars]
    if all(ct is None for ct in cts):
        return
    rule = primitive.transpose
    if rule is MISSING or rule is None:
        raise missing_rule(
            primitive,
            f"Transpose rule (for reverse-mode differentiation) for '{primitive}' not implemented",
            "ad.primitive_transposes[{name}] = rule, where rule(cotangent, *operands, **params) gives a cotangent for "
            "each operand that ad.is_undefined_primal, and None for the others",
        )
    operands = [
        with_attributes(tracing.literal_value(atom) if isinstance(atom, Literal) else values[atom])
        if isinstance(atom, Literal) or atom not in linear
        else Undefined(atom.aval)
        for atom in eqn.invars
    ]
    if primitive.partials is not None and sum(type(x) is Undefined for x in operands) > 1:
        raise TypeError(
            f"[linear_transpose] the function is not linear: {primitive} combines two values that both depend on the "
            f"arguments{_source_line(eqn)}"
        )
    given: Any = with_attributes(cts[0])
    if primitive.multiple_results:
        given = [Zero(tangent_aval(v.aval)) if ct is None else ct for ct, v in zip(cts, eqn.outvars, strict=True)]
    with source_info.replayed(eqn.source):
        back = []
        made = _applied(rule, given, operands, eqn)
        if made is Zero:  # the class: no operand has a cotangent
            return
        for atom, ct in zip(eqn.invars, made, strict=True):
            if ct is None or type(ct) is Zero or type(atom) is Literal or atom not in linear:
                continue
            if type(primitive.kind) is kinds.Elementwise:
                ct = linear_operations.unbroadcast(ct, atom.aval)
            back.append((atom, ct))
        for atom, ct in back:
            _accumulate(found, linear, atom, ct)


def _applied(rule: Any, given: Any, operands: Sequence[Any], eqn: JaxprEqn) -> Any:
    """What a transposition rule gives; where types say how values lie, cotangents lie as their operands do."""
    if not tracing.explicit_types or type(eqn.primitive.kind) in PROGRAMS:
        return rule(given, *operands, **eqn.params)
    lies = [getattr(atom.aval, "explicit_sharding", None) for atom in eqn.invars]
    if not any(lies) and not any(getattr(v.aval, "explicit_sharding", None) for v in eqn.outvars):
        return rule(given, *operands, **eqn.params)
    with lazy.explicit.relaxed():
        made = rule(given, *operands, **eqn.params)
    if made is Zero:
        return made
    move = lazy.submodule("weft.dispatch.devices.resharding").moved
    return [
        ct if ct is None or type(ct) is Zero or sharding is None else move(ct, sharding, eqn.primitive.name)
        for ct, sharding in zip(made, lies, strict=True)
    ]


def _source_line(eqn: JaxprEqn) -> str:
    line = str(eqn.source_info)
    return f" ({line})" if line else ""


# -- programs ---------------------------------------------------------------------------------------------------------


def transpose_jaxpr(
    closed: ClosedJaxpr, linear: tuple[bool, ...], live: tuple[bool, ...]
) -> tuple[ClosedJaxpr, tuple[bool, ...]]:
    """The transposed program, and for which linear inputs it gives a cotangent; memoised on the program.

    It takes the non-linear inputs and the ``live`` cotangents of the results.
    """
    key: Any = ("transpose", linear, live, tuple([id(const) for const in closed.consts]))
    return closed.jaxpr.memoize(key, lambda jaxpr: (*_transpose_jaxpr(closed, linear, live), closed.consts))[:2]


def _transpose_jaxpr(
    closed: ClosedJaxpr, linear: tuple[bool, ...], live: tuple[bool, ...]
) -> tuple[ClosedJaxpr, tuple[bool, ...]]:
    jaxpr, in_live = closed.jaxpr, []
    known = [v for v, is_linear in zip(jaxpr.invars, linear, strict=True) if not is_linear]
    results = [atom for atom, has in zip(jaxpr.outvars, live, strict=True) if has]

    def flat(*given: Any) -> list[Any]:
        residuals, cts = iter(given[: len(known)]), iter(given[len(known) :])
        operands = [Undefined(v.aval) if is_linear else next(residuals) for v, is_linear in zip(jaxpr.invars, linear)]
        out_cts = [next(cts) if has else Zero(tangent_aval(v.aval)) for v, has in zip(jaxpr.outvars, live)]
        back = [ct for ct in backward_pass(jaxpr, closed.consts, operands, out_cts) if ct is not None]
        in_live[:] = [type(ct) is not Zero for ct in back]
        return [ct for ct in back if type(ct) is not Zero]

    in_avals = [v.aval for v in known] + [tangent_aval(atom.aval) for atom in results]
    made, _ = tracing.trace_to_jaxpr(flat, in_avals, jaxpr.debug_info, of_program=True)
    return made, tuple(in_live)
