"""Expansions: functions that compute an operation by other operations, traced once for each types of operands.

pow x 0.5   ->   sqrt (add x 0.0), +inf for -inf: traced for x: f32[1000], spliced instead of the equation
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any

from weft import config
from weft.core.caches.cache_keys import trace_key
from weft.core.caches.store import TRACES
from weft.core.programs.jaxpr import Atom, ClosedJaxpr, JaxprEqn, jaxprs_in_params
from weft.core.programs.rewrite import Makers, Splicer
from weft.core.symbolic import sizes
from weft.core.tracing.trace import trace_to_jaxpr
from weft.dispatch.programs.trace_cache import Trace

Function = Callable[..., Any]
# (a key that distinguishes functions for one equation, a function of the operands)
Rewrite = Callable[[JaxprEqn, Makers], tuple[Any, Function] | None]


def expand(closed: ClosedJaxpr, kinds: Collection[type], rewrite: Rewrite) -> ClosedJaxpr:
    """The program with equations of these kinds replaced by the programs that ``rewrite`` gives."""

    def rule(eqn: JaxprEqn, splicer: Splicer) -> Sequence[Atom] | None:
        found = rewrite(eqn, splicer.makers)
        if found is None:
            return None
        key, function = found
        return splicer.splice(of_equation(eqn, function, (rewrite, key)), eqn.invars, eqn.source)

    return Splicer(closed, rule, kinds).run()


def of_equation(eqn: JaxprEqn, function: Function, key: Any = None) -> ClosedJaxpr:
    """The traced function of an equation's operands; ``key`` distinguishes functions for one primitive."""
    avals = tuple([v.aval for v in eqn.invars])
    return expansion(eqn.primitive if key is None else (eqn.primitive, key), function, avals, eqn.params)


def resolved(eqn: JaxprEqn) -> ClosedJaxpr:
    """A compound operation as simple ones; not cached for programs that are new in every call."""
    function = functools.partial(eqn.primitive.kind.expand, **eqn.params)
    if jaxprs_in_params(eqn.params):
        return traced(function, [v.aval for v in eqn.invars])
    return of_equation(eqn, function)


def expansion(
    who: Any, function: Function, avals: tuple[Any, ...], params: dict[str, Any] | None = None
) -> ClosedJaxpr:
    """The traced form of a function that ``who`` expands into: an entry of the trace level of the cache."""
    key = trace_key(who, None, avals, tuple((params or {}).items()), config.token())
    guards = sizes.keeper(key)
    if guards is not None:  # types and numbers of one compilation
        return guards.once(key, functools.partial(traced, function, avals))
    try:
        found = TRACES.find(key)
    except TypeError:  # an unhashable parameter
        return traced(function, avals)
    if found is None:
        found = Trace(traced(function, avals), None, (), "expansion")
        TRACES.add(key, found)
    return found.closed


def traced(function: Function, avals: Sequence[Any]) -> ClosedJaxpr:
    """The traced form of a function whose result is a value or a sequence of them."""

    def flat(*args: Any) -> Sequence[Any]:
        out = function(*args)
        return list(out) if isinstance(out, (tuple, list)) else [out]

    return trace_to_jaxpr(flat, avals)[0]
