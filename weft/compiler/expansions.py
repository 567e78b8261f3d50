"""Programs that stand for operations: the function that says an operation in others, traced once for each types.

pow x 0.5   ->   sqrt (add x 0.0), +inf for -inf: traced for x: f32[1000], spliced in place of the equation
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from weft import config
from weft.core.budget import BUDGET
from weft.core.jaxpr import Atom, ClosedJaxpr, JaxprEqn
from weft.core.rewrite import Makers, Splicer
from weft.core.trace import trace_to_jaxpr

_BOUND = 2048
_expansions: dict[Any, ClosedJaxpr] = {}

Function = Callable[..., Any]
# what tells functions for one operation, parameters and types apart, and a function of the operands
Rewrite = Callable[[JaxprEqn, Makers], tuple[Any, Function] | None]


def expand(closed: ClosedJaxpr, kinds: Collection[type], rewrite: Rewrite) -> ClosedJaxpr:
    """The program with equations of these kinds said in other operations, as far as ``rewrite`` says how."""

    def rule(eqn: JaxprEqn, splicer: Splicer) -> Sequence[Atom] | None:
        found = rewrite(eqn, splicer.makers)
        if found is None:
            return None
        key, function = found
        return splicer.splice(of_equation(eqn, function, (rewrite, key)), eqn.invars, eqn.source)

    return Splicer(closed, rule, kinds).run()


def of_equation(eqn: JaxprEqn, function: Function, key: Any = None) -> ClosedJaxpr:
    """The program that a function makes of an equation's operands."""
    avals = tuple([v.aval for v in eqn.invars])
    return expansion((key, config.token(), eqn.primitive, avals, *eqn.params.items()), function, avals)


def expansion(key: Any, function: Function, avals: Sequence[Any]) -> ClosedJaxpr:
    """The traced form of a function, remembered by ``key`` where that is hashable."""
    try:
        found = _expansions.get(key)
    except TypeError:
        return traced(function, avals)
    if found is None:
        if len(_expansions) >= _BOUND:
            _expansions.clear()
        found = _expansions[key] = traced(function, avals)
    return found


def traced(function: Function, avals: Sequence[Any]) -> ClosedJaxpr:
    """The traced form of a function whose result is a value or a sequence of them."""

    def flat(*args: Any) -> Sequence[Any]:
        out = function(*args)
        return list(out) if isinstance(out, (tuple, list)) else [out]

    return trace_to_jaxpr(flat, avals)[0]


def clear() -> None:
    """Forget the traced functions."""
    _expansions.clear()


BUDGET.enlist(_expansions.__len__, 5000, _expansions.clear)
