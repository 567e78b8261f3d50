"""Calls of foreign functions as instructions: the function's name, what it is told of its operands, and where they are.

ffi_call[target=rms_norm eps=1e-06] a   ->   Foreign("rms_norm", 4, (("eps", scalar, float32, ...),), ...)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.compiler.plans.instructions import Foreign, Location
from weft.core import kinds
from weft.core.programs.jaxpr import JaxprEqn
from weft.core.tracing import source_info


def handler_of(equation: JaxprEqn) -> kinds.Handler | None:
    """What an equation calls in machine code of the user; None if it calls nothing of the kind."""
    kind = equation.primitive.kind
    if not isinstance(kind, kinds.External) or kind.handler is None:
        return None
    return kind.handler([v.aval for v in equation.invars], equation.params)


def instruction(equation: JaxprEqn, location: Callable[[Any], Location]) -> Foreign:
    handler = handler_of(equation)
    assert handler is not None, "the planner has looked"
    shared = dict(handler.aliases)  # the operand is copied into the result, and updated there
    locations = [location(equation.outvars[shared[i]] if i in shared else v) for i, v in enumerate(equation.invars)]
    locations += [location(v) for v in equation.outvars]
    nbytes = [v.aval.nbytes for v in (*equation.invars, *equation.outvars)]
    described = tuple(zip(locations, nbytes, handler.dtypes, handler.shapes, strict=True))
    n, where = len(equation.invars), "" if equation.source is None else source_info.summarize(equation.source)
    fields = handler.target, handler.version, handler.attributes, handler.opaque
    return Foreign(*fields, described[:n], described[n:], where)
