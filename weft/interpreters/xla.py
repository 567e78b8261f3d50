"""weft.interpreters.xla: what JAX's older libraries take from here."""

from __future__ import annotations

from typing import Any

from weft._base import lazy
from weft.core import avals
from weft.core.tracing.trace import eval_context
from weft.extend.core import shaped_abstractify as abstractify

__all__ = ["abstractify", "apply_primitive", "canonicalize_dtype_handlers", "pytype_aval_mappings"]

pytype_aval_mappings = avals.pytype_avals
# type -> what makes an operand of its values: nothing more to do, since weft converts operands by their avals
canonicalize_dtype_handlers: dict[type, Any] = {kind: lambda value: value for kind in avals.pytype_avals}


def apply_primitive(prim: Any, *args: Any, **params: Any) -> Any:
    """The results of a primitive on concrete values by its compiled program: an ``impl`` for one with a lowering."""
    with eval_context():
        return lazy.compiler.evaluate_compiled(prim, args, params)
