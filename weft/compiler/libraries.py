"""Library calls on their way to the plan: an instruction for all matrices of a batch, or other operations.

a:f32[8,300,300]   cholesky   ->   ("library", "potrf", "f", 8, (300,), (place of a,), (place of the result,))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import lazy, runtime
from weft.core import kinds

runtime.set_lapack_finder(lazy.lapack_file)


def instructions(equation: Any, place: Callable[..., Any]) -> list[tuple[Any, ...]]:
    """What the executor does for an External with a native routine; nothing where no result has an element."""
    if not any(v.aval.size for v in equation.outvars):
        return []
    found = equation.primitive.kind.library([v.aval for v in equation.invars], equation.params)
    ins, outs = tuple([place(v) for v in equation.invars]), tuple([place(v) for v in equation.outvars])
    return [("library", found.routine, found.letter, found.batch, found.sizes, ins, outs)]


def rewrite(equation: Any) -> Callable[..., Any] | None:
    """The function of its operands that an External is unrolled into, None where it is called."""
    kind = equation.primitive.kind
    if not isinstance(kind, kinds.External) or kind.unrolled is None:
        return None
    return kind.unrolled([v.aval for v in equation.invars], equation.params)
