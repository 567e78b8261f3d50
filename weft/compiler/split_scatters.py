"""Many updates of a small array of integers: parts of the updates go to arrays of their own, which are then combined.

    x.at[i].add(u), x: i32[256], i: i32[1000000]   ->   p: i32[16,256] zeros; row r of p gets part r of the updates;
                                                        x + sum of the rows of p

Integers give the same whatever the order. The rows are independent, so that threads share them, and updates of one
element that follow each other, which wait for each other, go to several arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import operations as lax
from weft.compiler import expansions
from weft.core import kinds
from weft.core.jaxpr import ClosedJaxpr, JaxprEqn
from weft.dispatch.programs import in_place

ROWS = 16  # parts of the updates
LEAST = 1 << 15  # updates, which take 25 us: about as long as the second kernel and its threads gain
OFTEN = 4  # updates of each element of the parts from which clearing and adding them takes little


def split_scatters(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program with such scatters split."""
    return expansions.expand(closed, (kinds.Scatter,), _rewritten)


def _rewritten(equation: JaxprEqn, _: Any) -> tuple[Any, Callable[..., Any]] | None:
    """A function that replaces the scatter; None if it stays."""
    array, indices, updates = [atom.aval for atom in equation.invars[:3]]
    kind, numbers = equation.primitive.kind, equation.params["dimension_numbers"]
    assert isinstance(kind, kinds.Scatter)
    if kind.neutral is None or kind.merged is None or array.dtype.kind not in "iu" or kind.unique(equation.params):
        return None
    windows = tuple(range(1, updates.ndim))
    if indices.ndim != 2 or numbers.operand_batching_dims or numbers.update_window_dims != windows:
        return None
    few = ROWS * OFTEN * array.size > updates.size or indices.shape[0] < LEAST
    if few or not array.size or in_place.is_marked(equation) or len(equation.invars) != 3:
        return None
    return (), _split(equation, kind.neutral(np.dtype(array.dtype)), kind.merged)


def _split(equation: JaxprEqn, neutral: Any, merged: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """The scatter of parts into rows; what does not fill the rows is scattered into the result."""
    numbers, params = equation.params["dimension_numbers"], equation.params
    rows = lax.ScatterDimensionNumbers(
        tuple([d + 1 for d in numbers.update_window_dims]),
        _later(numbers.inserted_window_dims),
        _later(numbers.scatter_dims_to_operand_dims),
        (0,),
        (0,),
    )

    def scatter(array: Any, indices: Any, updates: Any) -> Any:
        each = indices.shape[0] // ROWS
        whole = each * ROWS
        parts = lax.full((ROWS, *array.shape), np.asarray(neutral, array.dtype))
        first = [_rows(x, whole, each) for x in (indices, updates)]
        made = equation.primitive.bind(parts, *first, **{**params, "dimension_numbers": rows})
        result = merged(array, made)
        if whole == indices.shape[0]:
            return result
        rest = [lax.slice_in_dim(x, whole, x.shape[0], axis=0) for x in (indices, updates)]
        return equation.primitive.bind(result, *rest, **params)

    return scatter


def _later(dims: Sequence[int]) -> tuple[int, ...]:
    return tuple([dim + 1 for dim in dims])


def _rows(x: Any, whole: int, each: int) -> Any:
    return lax.reshape(lax.slice_in_dim(x, 0, whole, axis=0), (ROWS, each, *x.shape[1:]))
