"""When a kernel may write its result over an operand: element for element, each read before it is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.loops import ir
from weft.loops.nests import Lowered


def in_place(low: Lowered, target: int, source: int, base: Callable[[Any], Any]) -> bool:
    """Whether an output may overwrite an operand: the same elements at the same points, read before written."""
    written, read = low.operands[target], low.operands[source]
    same = (written.offset, written.strides, written.outer, written.dtype) == (
        read.offset, read.strides, read.outer, read.dtype,
    )  # fmt: skip
    if not same or written.starts is not None or read.starts is not None:
        return False
    if low.nest.split:  # both passes run the statements before the loop
        return False
    if any(isinstance(s, (ir.LoadAt, ir.Update)) and s.operand in (target, source) for s in low.nest.statements()):
        return False
    variable = base(read.variable)
    if any(base(b.variable) is variable and i != source for i, b in enumerate(low.operands)):
        return False
    if any(base(b.variable) is base(written.variable) and i != target for i, b in enumerate(low.operands)):
        return False
    loads = [n for n, phase in enumerate(low.nest.phases) if _mentions(phase, "in", source)]
    stores = [n for n, phase in enumerate(low.nest.phases) if _mentions(phase, "out", target)]
    whole = low.points == read.variable.aval.size
    return whole and max(loads, default=0) <= min(stores, default=0)


def _mentions(phase: ir.Phase, role: str, operand: int) -> bool:
    """Whether a phase loads (role in) or stores (out) an operand."""
    kind = ir.Load if role == "in" else ir.Store
    return any(isinstance(s, kind) and s.operand == operand for s in (*phase.before, *phase.body))
