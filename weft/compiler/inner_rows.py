"""Loops over rows, inside loops that may become routines, as loops that take and put their rows by position.

    c ys = scan[body] c xs   ->   for i < n:  c y = body c (dynamic_slice xs i);  ys = dynamic_update_slice ys y i

A routine has no memory of its own for rows; it reads and updates small arrays in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import operations as lax
from weft.compiler import expansions
from weft.control import while_loop
from weft.core import kinds
from weft.core.eval import eval_jaxpr
from weft.core.jaxpr import ClosedJaxpr, JaxprEqn
from weft.core.rewrite import Makers
from weft.loops import small


def inner_rows(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program with such loops as loops on a state."""
    return expansions.expand(closed, (kinds.Loop, kinds.Routine), _rewritten)


def _rewritten(equation: JaxprEqn, _: Makers) -> tuple[Any, Callable[..., Any]] | None:
    kind, params = equation.primitive.kind, equation.params
    parts = params["parts"] if isinstance(kind, kinds.Routine) else kind.parts(params)
    first = parts.n_consts + parts.n_carry
    rows, made = parts.body.in_avals[first:], parts.body.out_avals[parts.n_carry :]
    if parts.cond is not None or not (rows or made) or not parts.trips or equation.effects:
        return None
    if any(not 0 < aval.size * parts.trips <= small.LARGEST_IN_PLACE for aval in [*rows, *made]):
        return None
    literals = params["literals"] if isinstance(kind, kinds.Routine) else (None,) * len(equation.invars)
    return parts, _by_position(parts, literals)


def _by_position(parts: kinds.LoopParts, literals: tuple[Any, ...]) -> Callable[..., Any]:
    trips, first, last = parts.trips, parts.n_consts, parts.n_consts + parts.n_carry
    assert trips is not None

    def function(*operands: Any) -> list[Any]:
        given = iter(operands)
        values = [next(given) if literal is None else literal for literal in literals]
        captured, inputs = values[:first], values[last:]
        outs = parts.body.out_avals[parts.n_carry :]

        def step(i: Any, carried: tuple[Any, ...]) -> tuple[Any, ...]:
            at = lax.sub(np.int32(trips - 1), i) if parts.reverse else i
            state, made = carried[: parts.n_carry], carried[parts.n_carry :]
            rows = [lax.reshape(lax.dynamic_slice(x, _start(x, at), (1, *x.shape[1:])), x.shape[1:]) for x in inputs]
            results = eval_jaxpr(parts.body.jaxpr, parts.body.consts, *captured, *state, *rows)
            pairs = zip(made, results[parts.n_carry :], strict=True)
            new = [lax.dynamic_update_slice(x, lax.reshape(row, (1, *row.shape)), _start(x, at)) for x, row in pairs]
            return (*results[: parts.n_carry], *new)

        empty = [lax.full((trips, *aval.shape), 0, aval.dtype) for aval in outs]
        return list(while_loop.fori_loop(np.int32(0), np.int32(trips), step, (*values[first:last], *empty)))

    return function


def _start(array: Any, at: Any) -> list[Any]:
    return [at, *[np.int32(0)] * (array.ndim - 1)]
