"""Report of residuals: the values of the forward pass that a program stores for its backward pass, in bytes.

    residuals: 1 value, 524288 bytes; not kept: 1 value, 131072 bytes
      kept r f32[128,1024] 524288 bytes by step 1 (add_max)
      not kept s bool[128,1024] 131072 bytes (gt)

Other values are recomputed, or stay in the registers of a kernel that does both passes. An equation belongs to the
backward pass if it was recorded while a linear program was transposed (``source_info.BACKWARD``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.core import kinds
from weft.core.programs.jaxpr import Jaxpr, JaxprEqn, Literal
from weft.core.tracing import source_info

MOVES = (kinds.View, kinds.Reshape, kinds.Generate, kinds.Identity)  # never residuals


def describe(jaxpr: Jaxpr, stored: dict[Any, str], base: Callable[[Any], Any], name: Callable[[Any], str]) -> list[str]:
    """Lines for a plan's text; none for a program without a backward pass.

    ``stored`` maps each value in memory to the step that makes it, ``base`` a value to the one whose memory it uses.
    """
    backward = {equation for equation in jaxpr.eqns if is_backward(equation)}
    if not backward:
        return []
    wanted: set[Any] = set()  # values that the backward pass reads, directly or to recompute others
    kept: dict[Any, Any] = {}
    again: dict[Any, Any] = {}  # value -> its equation
    for equation in reversed(jaxpr.eqns):
        if equation in backward:
            wanted.update(v for v in equation.invars if not isinstance(v, Literal))
            continue
        for v in equation.outvars:
            if v not in wanted:
                continue
            if base(v) in stored:
                kept[base(v)] = equation
            elif not isinstance(equation.primitive.kind, MOVES):
                again[v] = equation
            if base(v) not in stored or base(v) is not v:
                wanted.update(u for u in equation.invars if not isinstance(u, Literal))
    total, spared = sum(v.aval.nbytes for v in kept), sum(v.aval.nbytes for v in again)
    head = f"residuals: {_count(kept)}, {total} bytes; not kept: {_count(again)}, {spared} bytes"
    rows = [f"  kept {_text(v, name)} by {stored[v]}" for v in reversed(kept)]
    rows += [f"  not kept {_text(v, name)} ({again[v].primitive.name})" for v in reversed(again)]
    return [head, *rows]


def is_backward(equation: JaxprEqn) -> bool:
    """Whether an equation belongs to the backward pass."""
    return equation.source is not None and source_info.BACKWARD in equation.source[2]


def _count(values: dict[Any, Any]) -> str:
    return f"{len(values)} value{'' if len(values) == 1 else 's'}"


def _text(variable: Any, name: Callable[[Any], str]) -> str:
    return f"{name(variable)} {variable.aval.str_short()} {variable.aval.nbytes} bytes"
