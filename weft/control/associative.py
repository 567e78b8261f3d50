"""associative_scan: all prefixes of an associative operation, in a logarithmic number of steps.

Neighbours are combined to pairs, the pairs (half as many) are scanned in the same way, and each element in between is
combined with the prefix before it (Blelloch, "Prefix Sums and Their Applications", 1990)::

    x0 x1 x2 x3   ->   pairs x01 x23   ->   prefixes x01 x0123   ->   x0 x01 (x01 x2) x0123
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from weft import runtime
from weft.control import bodies
from weft.operations.data_movement import assemble, shape
from weft.operations.pointwise import arithmetic, logic
from weft.operations.static import canonical_axis

T = TypeVar("T")

Leaves = list[Any]


def associative_scan(fn: Callable[[Any, Any], Any], elems: T, reverse: bool = False, axis: int = 0) -> T:
    """All prefixes along ``axis`` of a tree of arrays under the associative ``fn(a, b)``; the shape stays.

    ``fn`` takes two trees of arrays of elements along the axis and combines them elementwise. With ``reverse`` the
    combination starts from the end. ValueError if the leaves have different extents along the axis.

    >>> lax.associative_scan(jnp.add, jnp.arange(5)).tolist()
    [0, 1, 3, 6, 10]
    """
    if not callable(fn):
        raise TypeError("lax.associative_scan: fn argument should be callable.")
    leaves, tree = runtime.tree_flatten(elems)
    if not leaves:
        return elems
    avals = [bodies.aval_of(leaf) for leaf in leaves]
    axis = canonical_axis(axis, avals[0].ndim, "associative_scan")
    extents = [aval.shape[axis] for aval in avals]
    if any(extent != extents[0] for extent in extents):
        shapes = [aval.shape for aval in avals]
        raise ValueError(f"Array inputs to associative_scan must have the same first dimension. (saw: {shapes})")
    if reverse:
        leaves = [shape.rev(leaf, (axis,)) for leaf in leaves]

    def combine(left: Leaves, right: Leaves) -> Leaves:
        out = fn(runtime.tree_unflatten(tree, left), runtime.tree_unflatten(tree, right))
        return runtime.tree_flatten(out)[0]

    scanned = _scan(combine, leaves, axis)
    if reverse:
        scanned = [shape.rev(leaf, (axis,)) for leaf in scanned]
    return runtime.tree_unflatten(tree, scanned)


def _scan(combine: Callable[[Leaves, Leaves], Leaves], elems: Leaves, axis: int) -> Leaves:
    count = bodies.aval_of(elems[0]).shape[axis]
    if count < 2:
        return elems
    pairs = combine(
        [shape.slice_in_dim(x, 0, count - 1, 2, axis) for x in elems],
        [shape.slice_in_dim(x, 1, None, 2, axis) for x in elems],
    )
    odd = _scan(combine, pairs, axis)
    before = [shape.slice_in_dim(x, 0, -1, 1, axis) for x in odd] if count % 2 == 0 else odd
    even = combine(before, [shape.slice_in_dim(x, 2, None, 2, axis) for x in elems])
    even = [
        assemble.concatenate([shape.slice_in_dim(x, 0, 1, 1, axis), rest], axis)
        for x, rest in zip(elems, even, strict=True)
    ]
    return [_interleave(a, b, axis) for a, b in zip(even, odd, strict=True)]


def _interleave(even: Any, odd: Any, axis: int) -> Any:
    """The elements of both in turn; starting with ``even``, which may be longer by one."""
    aval, other = bodies.aval_of(even), bodies.aval_of(odd)
    longer = aval.shape[axis] > other.shape[axis]
    zero = np.zeros((), aval.dtype)[()]
    low = assemble.pad(even, zero, _spread(aval.ndim, axis, 0, 0 if longer else 1))
    high = assemble.pad(odd, zero, _spread(aval.ndim, axis, 1, 1 if longer else 0))
    return logic.bitwise_or(low, high) if aval.dtype.kind == "b" else arithmetic.add(low, high)


def _spread(ndim: int, axis: int, before: int, after: int) -> list[tuple[int, int, int]]:
    """The padding that inserts one element between neighbours along the axis."""
    return [(before, after, 1) if d == axis else (0, 0, 0) for d in range(ndim)]
