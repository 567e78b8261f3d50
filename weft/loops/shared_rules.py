"""The statements of equations that nests and routines share: one rule for each kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.core.jaxpr import JaxprEqn
from weft.loops import ir

_NEUTRAL = {"weak_type": False, "sharding": None, "out_sharding": None, "axes": (0,), "axis": 0, "dimensions": (0,)}


def params_of(equation: JaxprEqn) -> tuple[tuple[str, Any], ...]:
    """The parameters on which machine code depends, in the form in which statements hold them."""
    return tuple([(name, _NEUTRAL.get(name, value)) for name, value in equation.params.items()])


def applied(equation: JaxprEqn, out: int, args: Sequence[int]) -> ir.Apply:
    primitive, dtype = equation.primitive, np.dtype(equation.outvars[0].aval.dtype)
    return ir.Apply(out, primitive.name, primitive.kind, params_of(equation), tuple(args), dtype)


def _accumulated(equation: JaxprEqn) -> tuple[tuple[tuple[np.dtype, Any], ...], tuple[np.dtype, ...]]:
    """The accumulators of a reduction or a running combination, and the dtypes of its results."""
    found = equation.primitive.kind.accumulators([atom.aval for atom in equation.invars], equation.params)
    return (
        tuple([(np.dtype(dtype), one) for dtype, one in found]),
        tuple([np.dtype(v.aval.dtype) for v in equation.outvars]),
    )


def reduced(
    equation: JaxprEqn, outs: Sequence[int], args: Sequence[int], index: int | None, tree: Any,
    make: Callable[..., ir.Reduce] = ir.Reduce, *more: Any,
) -> Any:  # fmt: skip
    """``make``: the class of the statement, ``more`` its own fields."""
    name, kind, params = equation.primitive.name, equation.primitive.kind, params_of(equation)
    return make(tuple(outs), name, kind, params, tuple(args), index, *_accumulated(equation), tree, *more)


def scanned(
    equation: JaxprEqn, outs: Sequence[int], args: Sequence[int], make: Callable[..., ir.Scan] = ir.Scan, *more: Any
) -> Any:
    """The direction is no part of the statement: whoever runs it gives the elements in order."""
    params = tuple([(key, value) for key, value in params_of(equation) if key != "reverse"])
    name, kind = equation.primitive.name, equation.primitive.kind
    return make(tuple(outs), name, kind, params, tuple(args), *_accumulated(equation), *more)
