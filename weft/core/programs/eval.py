"""Evaluates a jaxpr equation by equation through ``bind``: on concrete values it computes, under a trace it inlines."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from weft.core.programs.jaxpr import Atom, ClosedJaxpr, Jaxpr, Literal, Var
from weft.core.tracing import source_info
from weft.core.tracing.trace import literal_value


def last_uses(jaxpr: Jaxpr) -> list[tuple[Var, ...]]:
    """For each equation the variables that it reads last; results of the jaxpr are left out."""
    return jaxpr.memoize("last_uses", _last_uses)


def _last_uses(jaxpr: Jaxpr) -> list[tuple[Var, ...]]:
    seen = {v for v in jaxpr.outvars if isinstance(v, Var)}
    released: list[tuple[Var, ...]] = []
    for eqn in reversed(jaxpr.eqns):
        candidates = (*(v for v in eqn.invars if isinstance(v, Var)), *eqn.outvars)
        fresh = tuple(dict.fromkeys(v for v in candidates if v not in seen))
        seen.update(fresh)
        released.append(fresh)
    return released[::-1]


def eval_jaxpr(jaxpr: Jaxpr, consts: Sequence[Any], *args: Any, propagate_source_info: bool = True) -> list[Any]:
    """The results of a jaxpr on concrete or traced values. Values are dropped after their last use."""
    if len(args) != len(jaxpr.invars):
        raise TypeError(f"[eval_jaxpr] the jaxpr takes {len(jaxpr.invars)} values, got {len(args)}")
    env: dict[Var, Any] = dict(zip(jaxpr.constvars, consts))
    env.update(zip(jaxpr.invars, args))

    def read(atom: Atom) -> Any:
        return literal_value(atom) if isinstance(atom, Literal) else env[atom]

    for eqn, released in zip(jaxpr.eqns, last_uses(jaxpr)):
        values = [read(atom) for atom in eqn.invars]
        with source_info.replayed(eqn.source if propagate_source_info else None):
            out = eqn.primitive.bind(*values, **eqn.params)
        env.update(zip(eqn.outvars, out if eqn.primitive.multiple_results else (out,)))
        for v in released:
            del env[v]
    return [read(atom) for atom in jaxpr.outvars]


def jaxpr_as_fun(closed: ClosedJaxpr, *args: Any) -> Callable[..., list[Any]]:
    """The Python function of a closed jaxpr, on flat values; ``args`` are its first operands."""
    return functools.partial(_run, closed, *args)


def _run(closed: ClosedJaxpr, *args: Any) -> list[Any]:
    return eval_jaxpr(closed.jaxpr, closed.consts, *args)
