"""Specs: for every dimension of an array the axes of the mesh along which it is cut, outermost first.

    f32[8,6] on a mesh of x=2, y=2      (("x", "y"), ())   shards f32[2,6];   ((), ("y",))   shards f32[8,3]

A spec is plain data. Axes that it does not name have a copy of every shard each.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from weft import runtime
from weft.core.sharding.factors import Dim, Dims

Axes = tuple[Hashable, ...]
Spec = tuple[Axes, ...]
Sizes = Mapping[Hashable, int]  # of the axes of a mesh


def replicated(rank: int) -> Spec:
    """The spec of an array that every device has all of."""
    return ((),) * rank


def parts(axes: Axes, sizes: Sizes) -> int:
    """Into how many parts these axes cut a dimension."""
    return math.prod([sizes[axis] for axis in axes]) if axes else 1


def checked(spec: Any, shape: Sequence[int], sizes: Sizes, what: str) -> Spec:
    """A user's spec in full: a missing dimension, or None, is not cut. ValueError for one that does not fit."""
    given = tuple(spec)
    if len(given) > len(shape):
        raise ValueError(
            f"[partition] the spec {given} of {what} has {len(given)} entries, its shape {tuple(shape)} {len(shape)}"
        )
    found = []
    for entry in given:
        found.append(() if entry is None else tuple(entry) if isinstance(entry, (tuple, list)) else (entry,))
    found += [()] * (len(shape) - len(found))
    named = [axis for axes in found for axis in axes]
    for axis in named:
        if axis not in sizes:
            raise ValueError(f"[partition] the spec {given} of {what} names {axis!r}; the mesh has {tuple(sizes)}")
        if named.count(axis) > 1:
            raise ValueError(f"[partition] the spec {given} of {what} names the axis {axis!r} twice")
    for dim, (axes, extent) in enumerate(zip(found, shape, strict=True)):
        if extent % parts(axes, sizes):
            raise ValueError(
                f"[partition] dimension {dim} of {what}, of extent {extent}, cannot be cut into {parts(axes, sizes)} "
                f"equal parts along {axes}: choose an extent that is a multiple, or another axis"
            )
    return tuple(found)


def local_shape(shape: Sequence[int], spec: Spec, sizes: Sizes) -> tuple[int, ...]:
    """The shape of a shard."""
    return tuple([n // parts(axes, sizes) if axes else n for n, axes in zip(shape, spec, strict=True)])


def local_aval(aval: Any, spec: Spec, sizes: Sizes) -> Any:
    """The type of a shard."""
    if not any(spec):
        return aval
    return runtime.ShapedArray(local_shape(aval.shape, spec, sizes), aval.dtype, aval.weak_type)


def shard_bytes(aval: Any, spec: Spec, sizes: Sizes) -> int:
    """The bytes of a shard."""
    cut = parts(tuple([axis for axes in spec for axis in axes]), sizes)
    return aval.size * aval.dtype.itemsize // cut


def text(spec: Spec) -> str:
    """A spec as the user writes it: P('x', None)."""
    entries = [None if not axes else axes[0] if len(axes) == 1 else axes for axes in spec]
    return f"P({', '.join(map(repr, entries))})"


# -- axes of dimensions, and of factors --------------------------------------------------------------------------------

Assigned = dict[int, Axes]  # the axes along which a factor is cut


def of_factors(dim: Dim, axes: Axes, extents: Sequence[int], sizes: Sizes) -> list[tuple[int, Axes]]:
    """The axes of a dimension as those of its factors; an axis that fits no factor ends the search."""
    if type(dim) is int:
        return [(dim, axes)] if dim >= 0 and axes else []
    found: list[tuple[int, Axes]] = []
    rest = list(axes)
    for factor in dim:  # type: ignore[union-attr] - a dimension is an int or a tuple
        if factor < 0 or not rest:
            break
        left, mine = extents[factor], []
        while rest and left % sizes[rest[0]] == 0 and left >= sizes[rest[0]]:
            left //= sizes[rest[0]]
            mine.append(rest.pop(0))
        if mine:
            found.append((factor, tuple(mine)))
        if left > 1:
            break  # the next factor is not outermost in any part
    return found


def of_dimension(dim: Dim, assigned: Assigned, extents: Sequence[int], sizes: Sizes) -> Axes:
    """The axes of a dimension whose factors are cut so; those of inner factors only where the outer one is used up."""
    if type(dim) is int:
        return assigned.get(dim, ())
    found: Axes = ()
    for factor in dim:  # type: ignore[union-attr] - a dimension is an int or a tuple
        axes = assigned.get(factor, ())
        found += axes
        if factor < 0 or parts(axes, sizes) != extents[factor]:
            break
    return found


def of_dims(dims: Dims, assigned: Assigned, extents: Sequence[int], sizes: Sizes) -> Spec:
    """The spec of an operand or result whose factors are cut so."""
    return tuple(
        [assigned.get(dim, ()) if type(dim) is int else of_dimension(dim, assigned, extents, sizes) for dim in dims]
    )


def assigned_by(dims: Dims, spec: Spec, extents: Sequence[int], sizes: Sizes) -> list[tuple[int, Axes]]:
    """What a spec says of factors."""
    found: list[tuple[int, Axes]] = []
    for dim, axes in zip(dims, spec, strict=True):
        if axes:
            found += of_factors(dim, axes, extents, sizes)
    return found
