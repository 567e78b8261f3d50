"""Library calls as instructions of the plan: one instruction for all matrices of a batch.

a:f32[8,300,300]   cholesky   ->   Library("potrf", "f", 8, (300,), (location of a,), (location of the result,))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.compiler.plans.instructions import Library
from weft.core.programs.jaxpr import JaxprEqn


def instructions(equation: JaxprEqn, location: Callable[..., Any], read: Sequence[bool]) -> list[Library] | None:
    """The instructions for an External with a native routine: none if all results are empty; None if it has no routine.

    ``read`` says of every result whether anything reads it.
    """
    if not any(v.aval.size for v in equation.outvars):
        return []
    found = equation.primitive.kind.library([v.aval for v in equation.invars], equation.params, read)
    if found is None:
        return None
    outvars = equation.outvars if found.written is None else [equation.outvars[i] for i in found.written]
    ins, outs = tuple([location(v) for v in equation.invars]), tuple([location(v) for v in outvars])
    return [Library(found.routine, found.letter, found.batch, found.sizes, ins, outs)]
