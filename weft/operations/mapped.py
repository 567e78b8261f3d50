"""Moving the mapped dimension of a value, or adding one, for batching rules.

A rule gets whole values, and for each the dimension that ``vmap`` maps over, or None if it is the same for all
elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from weft.core import avals
from weft.operations.later import ops

Dim = int | None


def at(value: Any, source: int, target: int) -> Any:
    """The value with dimension ``source`` moved to ``target``."""
    if source == target:
        return value
    order = [d for d in range(avals.get_aval(value).ndim) if d != source]
    order.insert(target, source)
    return ops.transpose(value, order)


def in_front(size: int, value: Any, dim: Dim) -> Any:
    """The value with its mapped dimension first; broadcast if it has none."""
    if dim is not None:
        return at(value, dim, 0)
    return repeated(size, value, 0)


def repeated(size: int, value: Any, target: int) -> Any:
    """A value without a mapped dimension, broadcast along a new one."""
    old = avals.get_aval(value).shape
    new = (*old[:target], size, *old[target:])
    return ops.broadcast_in_dim(value, new, [d if d < target else d + 1 for d in range(len(old))])


def all_in_front(size: int, values: Sequence[Any], dims: Sequence[Dim]) -> list[Any]:
    return [in_front(size, value, dim) for value, dim in zip(values, dims, strict=True)]


def shifted(dims: Iterable[int]) -> tuple[int, ...]:
    """The numbers of dimensions after a new first dimension was added."""
    return tuple([d + 1 for d in dims])
