"""The rules every jaxpr obeys: scoping, single assignment, types, effects.

``check_jaxpr`` derives the types of every equation again from its operands and compares; inner jaxprs are checked too.
A violation raises ``JaxprTypeError`` with the equation and the user's line.
"""

from __future__ import annotations

from typing import Any

from weft import runtime
from weft.core import avals, effects
from weft.core.programs import printer
from weft.core.programs.jaxpr import Atom, ClosedJaxpr, DropVar, Jaxpr, JaxprEqn, Literal, Var, jaxprs_in_params
from weft.core.symbolic import sizes
from weft.errors import JaxprTypeError


def _fail(message: str, eqn: JaxprEqn | None = None) -> JaxprTypeError:
    if eqn is None:
        return JaxprTypeError(f"[check_jaxpr] {message}")
    line = str(eqn.source_info)
    location = f" ({line})" if line else ""
    return JaxprTypeError(f"[check_jaxpr] {message}\nin equation:\n  {printer.print_eqn(eqn)}{location}")


def equal_types(left: Any, right: Any) -> bool:
    """Whether two avals are the same type up to weakness."""
    if left is right:
        return True
    if type(left) is sizes.SizedAval or type(right) is sizes.SizedAval:
        same = equal_types(sizes.plain_aval(left), sizes.plain_aval(right))
        return same and all(a == b for a, b in zip(left.shape, right.shape, strict=True))
    if isinstance(left, runtime.ShapedArray) and isinstance(right, runtime.ShapedArray):
        return left.strip_weak_type() is right.strip_weak_type()
    return type(left) is type(right) and left == right


def check_jaxpr(program: Jaxpr | ClosedJaxpr) -> None:
    """Raise JaxprTypeError unless the program is well formed."""
    if isinstance(program, ClosedJaxpr):
        _check_consts(program)
        program = program.jaxpr
    program.memoize("checked", _check)


def _check_consts(closed: ClosedJaxpr) -> None:
    for index, (v, const) in enumerate(zip(closed.jaxpr.constvars, closed.consts)):
        found = avals.typeof(const)
        if not equal_types(found, v.aval):
            raise _fail(f"constant {index} is {avals.long_text(found)}, its variable {v!r}")


def _check(jaxpr: Jaxpr) -> bool:
    bound: set[Var] = set()
    for v in (*jaxpr.constvars, *jaxpr.invars):
        _bind(v, bound, None)
    for eqn in jaxpr.eqns:
        for atom in eqn.invars:
            _check_atom(atom, bound, eqn)
        _check_eqn(eqn)
        for v in eqn.outvars:
            _bind(v, bound, eqn)
    for atom in jaxpr.outvars:
        _check_atom(atom, bound, None)
    joined = effects.join(*(eqn.effects for eqn in jaxpr.eqns))
    if not joined <= jaxpr.effects:
        raise _fail(f"equations have effects {set(joined)}, the jaxpr declares {set(jaxpr.effects)}")
    return True


def _bind(v: Var, bound: set[Var], eqn: JaxprEqn | None) -> None:
    if type(v) is DropVar:
        return
    if not isinstance(v, Var):
        raise _fail(f"binder {v!r} is not a variable", eqn)
    if v in bound:
        raise _fail(f"variable {v!r} is bound twice", eqn)
    bound.add(v)


def _check_atom(atom: Atom, bound: set[Var], eqn: JaxprEqn | None) -> None:
    if isinstance(atom, Literal):
        if getattr(atom.aval, "shape", ()) != ():
            raise _fail(f"literal {atom!r} is not a scalar", eqn)
    elif isinstance(atom, DropVar) or atom not in bound:
        raise _fail(f"variable {atom!r} is read before it is bound", eqn)


def _check_eqn(eqn: JaxprEqn) -> None:
    """Compare an equation's results with the types and effects that the primitive's own rule gives."""
    with eqn.primitive.inside(eqn.params):
        for inner in jaxprs_in_params(eqn.params):
            check_jaxpr(inner)
    try:
        out, made = eqn.primitive.typed(tuple(atom.aval for atom in eqn.invars), eqn.params)
    except (TypeError, ValueError, AssertionError, NotImplementedError) as error:
        raise _fail(f"operands do not fit {eqn.primitive}: {error}", eqn) from error
    out_avals = out if eqn.primitive.multiple_results else (out,)
    if len(out_avals) != len(eqn.outvars):
        raise _fail(f"{eqn.primitive} gives {len(out_avals)} results, {len(eqn.outvars)} are bound", eqn)
    for v, aval in zip(eqn.outvars, out_avals):
        if not equal_types(v.aval, aval):
            raise _fail(f"result is {avals.long_text(aval)}, its variable {avals.long_text(v.aval)}", eqn)
    if not made <= eqn.effects:
        raise _fail(f"effects are {set(made)}, the equation declares {set(eqn.effects)}", eqn)
