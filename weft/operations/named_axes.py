"""Arrays with named dimensions, for code that does not depend on a layout.

x = NamedAxes(array, ("n", "h", "w", "c"));  x.ordered(("n", "c", "h", "w"));  x.split("c", ("g", "f"), 4)
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from weft._base.record import NamedTuple
from weft.core.index_maps import strides_of
from weft.operations.data_movement.shape import shape_of
from weft.operations.later import ops

Name = Hashable


class NamedAxes(NamedTuple):
    """An array, and the name of each of its dimensions."""

    value: Any
    names: tuple[Name, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return shape_of(self.value)

    @property
    def strides(self) -> dict[Name, int]:
        """How many elements apart neighbours along a dimension are, in memory."""
        return dict(zip(self.names, strides_of(self.shape), strict=True))

    def axis(self, name: Name) -> int:
        return self.names.index(name)

    def extent(self, name: Name) -> int:
        return self.shape[self.names.index(name)]

    def ordered(self, names: Sequence[Name]) -> NamedAxes:
        """The array with its dimensions in this order."""
        if tuple(names) == self.names:
            return self
        return NamedAxes(ops.transpose(self.value, [self.names.index(name) for name in names]), tuple(names))

    def split(self, name: Name, parts: tuple[Name, Name], outer: int) -> NamedAxes:
        """Split a dimension in two, the first with ``outer`` elements."""
        at, shape = self.names.index(name), self.shape
        sizes = (*shape[:at], outer, shape[at] // outer, *shape[at + 1 :])
        return NamedAxes(ops.reshape(self.value, sizes), (*self.names[:at], *parts, *self.names[at + 1 :]))

    def merged(self, parts: Sequence[Name], name: Name) -> NamedAxes:
        """Merge adjacent dimensions."""
        at, count, shape = self.names.index(parts[0]), len(parts), self.shape
        sizes = (*shape[:at], math.prod(shape[at : at + count]), *shape[at + count :])
        return NamedAxes(ops.reshape(self.value, sizes), (*self.names[:at], name, *self.names[at + count :]))

    def renamed(self, old: Name, new: Name) -> NamedAxes:
        return NamedAxes(self.value, tuple([new if name == old else name for name in self.names]))

    def cut(self, bounds: Mapping[Any, tuple[int, int, int]]) -> NamedAxes:
        """The elements from start to before limit, every step-th, along some dimensions."""
        shape = self.shape
        found = [bounds.get(name, (0, extent, 1)) for name, extent in zip(self.names, shape, strict=True)]
        if found == [(0, extent, 1) for extent in shape]:
            return self
        starts, limits, steps = (list(part) for part in zip(*found, strict=True))
        return NamedAxes(ops.slice(self.value, starts, limits, steps), self.names)

    def at(self, positions: Mapping[Any, int]) -> NamedAxes:
        """The elements at one position along some dimensions, without these."""
        if not positions:
            return self
        chosen = self.cut({name: (at, at + 1, 1) for name, at in positions.items()})
        kept = tuple([name for name in self.names if name not in positions])
        return NamedAxes(ops.squeeze(chosen.value, [self.names.index(name) for name in positions]), kept)

    def with_one(self, name: Name, axis: int) -> NamedAxes:
        """The array with a dimension of one element more."""
        return NamedAxes(ops.expand_dims(self.value, (axis,)), (*self.names[:axis], name, *self.names[axis:]))

    def without_ones(self, names: Sequence[Name]) -> NamedAxes:
        """The array without those of these dimensions that have one element."""
        return self.at({name: 0 for name in names if name in self.names and self.extent(name) == 1})

    def in_memory(self) -> NamedAxes:
        """The array made before it is read, instead of by everything that reads it."""
        return NamedAxes(ops.optimization_barrier(self.value), self.names)

    def padded(self, widths: Mapping[Any, tuple[int, int]]) -> NamedAxes:
        """Zeros before and after along some dimensions; negative widths cut off."""
        if not any(any(pair) for pair in widths.values()):
            return self
        zero = ops.full((), 0, ops.dtype(self.value))
        config = [(*widths.get(name, (0, 0)), 0) for name in self.names]
        return NamedAxes(ops.pad(self.value, zero, config), self.names)

    def spread(self, names: Sequence[Name], extents: Mapping[Any, int]) -> NamedAxes:
        """The array broadcast along the dimensions that it lacks; its own are in the order of ``names``."""
        mine = self.ordered([name for name in names if name in self.names])
        sizes = [extents[name] for name in names]
        dims = [dim for dim, name in enumerate(names) if name in self.names]
        return NamedAxes(ops.broadcast_in_dim(mine.value, sizes, dims), tuple(names))
