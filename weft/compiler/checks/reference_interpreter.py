"""The reference interpreter: evaluates a jaxpr in NumPy by the references of its operations.

Reductions use the order of ``loops.reduction_tree``, so that their bits are those of machine code; a contraction that
the compiler rewrites is evaluated in rewritten form, so that a program has the same bits before and after. It verifies
the stages of the compiler and is an oracle in tests; it never runs user programs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.compiler.matrix_products import contraction
from weft.core import kinds
from weft.core.programs.jaxpr import ClosedJaxpr, DropVar, JaxprEqn, Literal
from weft.core.tracing.trace import trace_to_jaxpr
from weft.loops import reduction_tree


def interpret(closed: ClosedJaxpr, args: Sequence[Any]) -> list[np.ndarray]:
    """The results of a program on NumPy arrays."""
    jaxpr = closed.jaxpr
    env: dict[Any, np.ndarray] = {}
    for variable, value in zip((*jaxpr.constvars, *jaxpr.invars), (*closed.consts, *args), strict=True):
        env[variable] = np.asarray(value).astype(variable.aval.dtype, copy=False)

    def read(atom: Any) -> np.ndarray:
        return np.asarray(atom.val).astype(atom.aval.dtype) if isinstance(atom, Literal) else env[atom]

    for equation in jaxpr.eqns:
        results = run_equation(equation, [read(atom) for atom in equation.invars])
        for variable, result in zip(equation.outvars, results, strict=True):
            if not isinstance(variable, DropVar):
                result, aval = np.asarray(result), variable.aval
                if result.dtype == np.int8 and "int" in str(aval.dtype):  # NumPy widens integers of 2 and 4 bits
                    result = result.astype(aval.dtype)
                assert result.shape == aval.shape and result.dtype == aval.dtype, (
                    f"{equation.primitive.name} gave {result.dtype}{result.shape} for {aval.str_short()}"
                )
                env[variable] = result
    return [read(atom) for atom in jaxpr.outvars]


def run_equation(equation: JaxprEqn, arrays: Sequence[np.ndarray]) -> Sequence[Any]:
    """The results of one equation."""
    kind, params = equation.primitive.kind, equation.params
    if isinstance(kind, kinds.Higher):
        inner = kind.inline(params)
        if inner is None:
            raise NotImplementedError(f"[interpret] {equation.primitive.name}")
        return interpret(inner, arrays)
    expanded = _expanded(equation)
    if expanded is not None:
        return interpret(expanded, arrays)
    if isinstance(kind, kinds.Loop):
        return _run_loop(kind.parts(params), arrays)
    if isinstance(kind, kinds.Routine):
        given = iter(arrays)
        return _run_loop(params["parts"], [next(given) if x is None else x for x in params["literals"]])
    if isinstance(kind, kinds.Branch):
        branches = kind.branches(params)
        return interpret(branches[min(max(int(arrays[0]), 0), len(branches) - 1)], arrays[1:])
    if isinstance(kind, kinds.Identity):
        return arrays
    if isinstance(kind, (kinds.External, kinds.Effect)):
        return _listed(kind.call(*arrays, **params))
    if isinstance(kind, kinds.Generate):
        return [kind.reference(**params)]
    with np.errstate(all="ignore"):
        if isinstance(kind, kinds.Reduction):
            return _reduce(equation, kind, arrays)
        if isinstance(kind, kinds.Cumulative):
            return _running(equation, kind, arrays)
        return _listed(kind.reference(*arrays, **params))


@functools.lru_cache(maxsize=64)  # the equations of a loop are computed again and again
def _expanded(equation: JaxprEqn) -> ClosedJaxpr | None:
    """An equation as a program of other operations, None if it is evaluated directly."""
    function = _expansion(equation)
    if function is None:
        return None
    return trace_to_jaxpr(lambda *a: _listed(function(*a)), [atom.aval for atom in equation.invars])[0]


def _expansion(equation: JaxprEqn) -> Callable[..., Any] | None:
    """The function that computes an equation by other operations, None if it is evaluated directly."""
    kind = equation.primitive.kind
    if isinstance(kind, kinds.Resolve):
        return functools.partial(kind.expand, **equation.params)
    contractions = kinds.Contraction | kinds.StridedContraction
    return contraction.rewrite(equation) if isinstance(kind, contractions) else None


def _run_loop(parts: kinds.LoopParts, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Run a loop, step by step."""
    first, n_carry = parts.n_cond_consts + parts.n_consts, parts.n_carry
    tested, captured = arrays[: parts.n_cond_consts], arrays[parts.n_cond_consts : first]
    state, inputs = list(arrays[first : first + n_carry]), arrays[first + n_carry :]
    if parts.cond is not None:
        while interpret(parts.cond, [*tested, *state])[0]:
            state = interpret(parts.body, [*captured, *state])
        return state
    trips = parts.trips or 0
    avals = parts.body.out_avals[n_carry:]
    outs = [np.zeros((trips, *aval.shape), aval.dtype) for aval in avals]
    for i in reversed(range(trips)) if parts.reverse else range(trips):
        results = interpret(parts.body, [*captured, *state, *(x[i] for x in inputs)])
        state = results[:n_carry]
        for out, row in zip(outs, results[n_carry:], strict=True):
            out[i] = row
    return [*state, *outs]


def _reduce(equation: JaxprEqn, kind: kinds.Reduction, arrays: Sequence[np.ndarray]) -> Sequence[Any]:
    avals = [atom.aval for atom in equation.invars]
    count = kind.operands(avals) if kind.operands else len(arrays)
    if not kind.axes(equation.params):
        arrays = [array[..., None] for array in arrays[:count]]
        rows, accumulators = [a[..., None, :] for a in arrays], kind.accumulators(avals, equation.params)
        outs = reduction_tree.reduce_rows(kind, rows, equation.params, accumulators, "column")
    else:
        outs = reduction_tree.reduce(kind, arrays[:count], equation.params, avals)
    return [np.asarray(out).astype(v.aval.dtype) for out, v in zip(outs, equation.outvars, strict=True)]


def _running(equation: JaxprEqn, kind: kinds.Cumulative, arrays: Sequence[np.ndarray]) -> Sequence[Any]:
    axis, order = kind.axis(equation.params), slice(None, None, -1 if kind.reverse(equation.params) else 1)
    rows = [np.moveaxis(array, axis, -1)[..., order] for array in arrays]
    accumulators = kind.accumulators([atom.aval for atom in equation.invars], equation.params)
    outs = reduction_tree.running(kind, rows, equation.params, accumulators)
    avals = [v.aval for v in equation.outvars]
    return [np.moveaxis(out[..., order].astype(a.dtype), -1, axis) for out, a in zip(outs, avals, strict=True)]


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]
