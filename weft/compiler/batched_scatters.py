"""Scatters whose index vectors count the rows of the array: the rows become a batch of the scatter.

    x.at[arange(n), y].add(u), x: f32[n,m]   ->   a scatter along axis 1, for which axis 0 of x, y and u is a batch

The rows are then independent: threads share them, and producers and consumers of the array can work row by row too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import operations as lax
from weft.compiler import expansions
from weft.compiler.affine_indices import components
from weft.core import kinds
from weft.core.index_maps import Affine
from weft.core.jaxpr import ClosedJaxpr, JaxprEqn
from weft.core.rewrite import Makers

Counted = tuple[int, int, int]  # component of the index vectors, dimension of the indices, axis of the array


def batched_scatters(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program with such scatters batched."""
    return expansions.expand(closed, (kinds.Scatter,), _rewritten)


def _rewritten(equation: JaxprEqn, makers: Makers) -> tuple[tuple[Counted, ...], Callable[..., Any]] | None:
    """The components that count rows, and a function that replaces the scatter; None if there are none."""
    array, indices, _ = equation.invars
    numbers = equation.params["dimension_numbers"]
    found: list[Counted] = []
    taken = set(numbers.scatter_indices_batching_dims)
    for component, index in enumerate(components(indices, makers)):
        axis = numbers.scatter_dims_to_operand_dims[component]
        if index is None or index != Affine(index.axis) or axis not in numbers.inserted_window_dims:
            continue
        if index.axis not in taken and indices.aval.shape[index.axis] == array.aval.shape[axis]:
            found.append((component, index.axis, axis))
            taken.add(index.axis)
    if not found or len(found) == indices.aval.shape[-1]:
        return None
    return tuple(found), _batched(equation, found)


def _batched(equation: JaxprEqn, found: Sequence[Counted]) -> Callable[..., Any]:
    """The scatter without the counting components, whose axes become batching dimensions."""
    numbers = equation.params["dimension_numbers"]
    known = zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True)
    pairs = sorted([*known, *[(axis, dim) for _, dim, axis in found]])
    starts = numbers.scatter_dims_to_operand_dims
    kept = [k for k in range(len(starts)) if all(k != component for component, _, _ in found)]
    axes = {axis for _, _, axis in found}
    changed = lax.ScatterDimensionNumbers(
        numbers.update_window_dims,
        tuple([d for d in numbers.inserted_window_dims if d not in axes]),
        tuple([starts[k] for k in kept]),
        tuple([d for d, _ in pairs]),
        tuple([d for _, d in pairs]),
    )

    def scatter(array: Any, indices: Any, updates: Any) -> Any:
        last = indices.ndim - 1
        columns = [lax.slice_in_dim(indices, k, k + 1, axis=last) for k in kept]
        starts = lax.concatenate(columns, last) if len(columns) > 1 else columns[0]
        return equation.primitive.bind(array, starts, updates, **{**equation.params, "dimension_numbers": changed})

    return scatter
