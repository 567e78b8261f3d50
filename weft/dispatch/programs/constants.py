"""Captured arrays become arguments: a program with constants, also in inner calls, becomes one without.

    before   { lambda a:f32[3]; b:f32[3]. let c = jit[jaxpr={ lambda d:f32[3]; e. let ... }] b in (c,) }
    after    { lambda ; a:f32[3] d:f32[3] b:f32[3]. let c = jit[jaxpr={ lambda ; d e. let ... }] d b in (c,) }

Afterwards programs that captured different arrays are equal and share machine code, and no cache keeps an array alive.
What is derived from a jaxpr is memoised on the jaxpr and freed with it.
"""

from __future__ import annotations

from typing import Any

from weft._base.record import NamedTuple
from weft.core import avals
from weft.core.programs.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Var
from weft.dispatch.calls import call_primitive


class Lifted(NamedTuple):
    """A program whose inner calls have no constants; they are its last constvars, and have these values."""

    jaxpr: Jaxpr
    values: tuple[Any, ...]


def lifted(jaxpr: Jaxpr) -> Lifted:
    """Move the constants of inner calls up to ``jaxpr``."""
    return jaxpr.memoize("lifted", _lift) or Lifted(jaxpr, ())


def as_arguments(jaxpr: Jaxpr) -> Jaxpr:
    """``jaxpr`` with its constvars as leading arguments."""
    return jaxpr.memoize("as_arguments", _constvars_first)


def _constvars_first(jaxpr: Jaxpr) -> Jaxpr:
    return jaxpr.replace(constvars=[], invars=[*jaxpr.constvars, *jaxpr.invars])


def _lift(jaxpr: Jaxpr) -> Lifted | None:
    """The lifted program, or None if nothing changes: a program memoised on itself would be a reference cycle."""
    for eqn in jaxpr.eqns:
        if eqn.primitive is call_primitive.jit_p and (
            eqn.params["jaxpr"].consts or lifted(eqn.params["jaxpr"].jaxpr).values
        ):
            break
    else:
        return None
    variables: dict[int, Var] = {}
    values: list[Any] = []
    eqns = [_lift_equation(eqn, variables, values) for eqn in jaxpr.eqns]
    if not values:
        return None
    constvars = [*jaxpr.constvars, *variables.values()]
    return Lifted(jaxpr.replace(constvars=constvars, eqns=eqns), tuple(values))


def _lift_equation(eqn: JaxprEqn, variables: dict[int, Var], values: list[Any]) -> JaxprEqn:
    if eqn.primitive is not call_primitive.jit_p:
        return eqn
    inner: ClosedJaxpr = eqn.params["jaxpr"]
    below = lifted(inner.jaxpr)
    constants = (*inner.consts, *below.values)
    if not constants:
        return eqn
    operands = []
    for value in constants:
        variable = variables.get(id(value))
        if variable is None:
            variable = variables[id(value)] = Var(avals.get_aval(value))
            values.append(value)
        operands.append(variable)
    params = dict(eqn.params, jaxpr=ClosedJaxpr(as_arguments(below.jaxpr)))
    params["donated_invars"] = (False,) * len(constants) + tuple(params.get("donated_invars", ()))
    return eqn.replace(invars=[*operands, *eqn.invars], params=params)
