"""How accesses to references are printed: ``c:f32[] <- b[0]``, ``b[1] <- c``, ``b[2] += c``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.core import avals as avals_module
from weft.core.programs.document import Document, concat
from weft.core.programs.jaxpr import DropVar
from weft.core.programs.printer import atom_text
from weft.effects import ref_indexing


def _shown_part(eqn: Any, context: Any, operands: Sequence[Any]) -> Document:
    ref = eqn.invars[0]
    return ref_indexing.document(context.name(ref), ref.aval.shape, eqn.params["indices"], operands, context)


def get(eqn: Any, context: Any, settings: Any) -> Document:
    part = _shown_part(eqn, context, eqn.invars[1:])
    return concat(_binder(eqn, context, settings), " <- ", part)


def _binder(eqn: Any, context: Any, settings: Any) -> Document:
    (v,) = eqn.outvars
    name = context.name(v)
    return f"{name}:{avals_module.short_text(v.aval)}" if settings.print_shapes else name


def swap(eqn: Any, context: Any, settings: Any) -> Document:
    if type(eqn.outvars[0]) is DropVar:
        part = _shown_part(eqn, context, eqn.invars[2:])
        return concat(part, " <- ", atom_text(eqn.invars[1], context))
    binder = _binder(eqn, context, settings)
    part = _shown_part(eqn, context, eqn.invars[2:])
    return concat(binder, ", ", part, " <- ", part, ", ", atom_text(eqn.invars[1], context))


def addupdate(eqn: Any, context: Any, settings: Any) -> Document:
    return concat(_shown_part(eqn, context, eqn.invars[2:]), " += ", atom_text(eqn.invars[1], context))
