"""The search for a fault inside of a loop that ran in registers, or a branch: step by step, with the state of each.

A loop in registers is one function of its operands, as a kernel is. It is evaluated in NumPy from these operands, up to
the first step in which something goes wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.compiler.passes import inline
from weft.core import kinds
from weft.core.programs.jaxpr import ClosedJaxpr, JaxprEqn, Var

MOST_STEPS = 1_000_000  # steps of one loop after which the search is given up


class Loops:
    """Searches the programs that an equation carries; ``find`` looks at the equations of one."""

    def __init__(self, find: Callable[..., Any], path: tuple[str, ...], option: str) -> None:
        self.find_in, self.path, self.option = find, path, option

    def find(self, equation: JaxprEqn, values: Sequence[np.ndarray]) -> Any:
        """The first fault inside of an equation on these operands, or None."""
        kind = equation.primitive.kind
        if isinstance(kind, kinds.Branch):
            branches = kind.branches(equation.params)
            which = min(max(int(values[0]), 0), len(branches) - 1)
            return self._program(branches[which], values[1:], (*self.path, f"branch {which}"))[0]
        if isinstance(kind, kinds.Routine):
            given = iter(values)
            literals = equation.params["literals"]
            return self._loop(equation.params["parts"], [next(given) if x is None else x for x in literals])
        return self._loop(kind.parts(equation.params), values)

    def _program(self, closed: ClosedJaxpr, values: Sequence[Any], path: tuple[str, ...]) -> tuple[Any, list[Any]]:
        """(fault, results) of a program."""
        flat = inline.inline(closed)
        jaxpr = flat.jaxpr
        env: dict[Any, Any] = {v: np.asarray(c) for v, c in zip(jaxpr.constvars, flat.consts, strict=True)}
        for variable, value in zip(jaxpr.invars, values, strict=True):
            env[variable] = np.asarray(value).astype(variable.aval.dtype, copy=False)
        fault = self.find_in(jaxpr.eqns, env, [v for v in jaxpr.outvars if isinstance(v, Var)], path, self.option)
        if fault is not None:
            return fault, []
        return None, [env[v] if isinstance(v, Var) else np.asarray(v.val).astype(v.aval.dtype) for v in jaxpr.outvars]

    def _loop(self, parts: kinds.LoopParts, values: Sequence[Any]) -> Any:
        first, n_carry = parts.n_cond_consts + parts.n_consts, parts.n_carry
        tested, captured = values[: parts.n_cond_consts], values[parts.n_cond_consts : first]
        state, rows = list(values[first : first + n_carry]), values[first + n_carry :]
        step = 0
        while step < MOST_STEPS:
            path = (*self.path, f"iteration {step} of a loop")
            if parts.cond is not None:
                fault, going = self._program(parts.cond, [*tested, *state], path)
                if fault is not None:
                    return fault
                if not going[0]:
                    return None
            elif step == parts.trips:
                return None
            at = (parts.trips or 0) - 1 - step if parts.reverse else step
            fault, outs = self._program(parts.body, [*captured, *state, *[row[at] for row in rows]], path)
            if fault is not None:
                return fault
            state = outs[:n_carry]
            step += 1
        return None
