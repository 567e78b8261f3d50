"""Equations of views and assemblies, for the passes that write them: ``bind`` appends one to a program.

part = views.slice(builder.bind, x, (0, 3), (8, 4));  column = views.squeeze(builder.bind, part, (1,))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import operations as lax
from weft.core.programs.jaxpr import Atom

Bind = Callable[..., Sequence[Any]]


def slice(bind: Bind, x: Atom, start: Sequence[int], stop: Sequence[int]) -> Any:
    """The elements from ``start`` to before ``stop``."""
    return bind(lax.slice_p, x, start_indices=tuple(start), limit_indices=tuple(stop), strides=None)[0]


def slice_in_dim(bind: Bind, x: Atom, start: int, stop: int, dim: int) -> Any:
    """The elements from ``start`` to before ``stop`` along one dimension."""
    rank = x.aval.ndim
    low, high = [0] * rank, list(x.aval.shape)
    low[dim], high[dim] = start, stop
    return slice(bind, x, low, high)


def squeeze(bind: Bind, x: Atom, dims: Sequence[int]) -> Any:
    """The array without these dimensions, whose extents are 1."""
    return bind(lax.squeeze_p, x, dimensions=tuple(dims))[0]


def broadcast(bind: Bind, x: Atom, shape: Sequence[int], dims: Sequence[int] = ()) -> Any:
    """The array repeated; dimension i of it is ``dims[i]`` of the result."""
    return bind(lax.broadcast_in_dim_p, x, shape=tuple(shape), broadcast_dimensions=tuple(dims), sharding=None)[0]


def transpose(bind: Bind, x: Atom, order: Sequence[int]) -> Any:
    """The array whose dimension i is dimension ``order[i]`` of this one."""
    return bind(lax.transpose_p, x, permutation=tuple(order))[0]


def reshape(bind: Bind, x: Atom, shape: Sequence[int]) -> Any:
    """The same elements in row-major order under another shape."""
    return bind(lax.reshape_p, x, new_sizes=tuple(shape), dimensions=None, sharding=None)[0]


def concatenate(bind: Bind, parts: Sequence[Atom], dim: int) -> Any:
    """The arrays put together along a dimension; the array itself, if there is only one."""
    return parts[0] if len(parts) == 1 else bind(lax.concatenate_p, *parts, dimension=dim)[0]
