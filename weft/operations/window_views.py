"""Windows of an array by the names of its dimensions: where they lie, slices of them, and the array of all of them.

    Space(extent=5, taps=3, places=5, stride=1, dilation=1, low=1)    windows of 3 around each of 5 elements

Dimension number d of space is ``space(d)`` in the array, ``place(d)`` where it counts windows and ``tap(d)`` where it
counts elements of one. Functions here take arrays that are padded to exactly what windows reach.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft import core
from weft._base.record import NamedTuple
from weft.operations.later import ops
from weft.operations.named_axes import Name, NamedAxes

FEW_TAPS = 64  # slices that windows are made of at once; more are gathered


class Space(NamedTuple):
    """One spatial dimension: its extents and how windows lie in it. Element ``at(p, t)`` is read; outside are zeros."""

    extent: int
    taps: int
    places: int
    stride: int
    dilation: int
    low: int
    holes: int = 1

    @property
    def reach(self) -> int:
        """How many elements windows reach over."""
        return (self.places - 1) * self.stride + (self.taps - 1) * self.dilation + 1


class Spatial(NamedTuple):
    """The name of a dimension that belongs to spatial dimension number ``dim``."""

    role: str
    dim: int


def place(dim: int) -> Spatial:
    return Spatial("place", dim)


def tap(dim: int) -> Spatial:
    return Spatial("tap", dim)


def space(dim: int) -> Spatial:
    return Spatial("space", dim)


def phase(dim: int) -> Spatial:
    return Spatial("phase", dim)


def has_role(name: Name, role: str) -> bool:
    return isinstance(name, Spatial) and name.role == role


def spaces_as(names: Sequence[Name], role: str) -> list[Name]:
    """Names in which spatial dimensions of the array are places, or taps."""
    return [Spatial(role, name.dim) if isinstance(name, Spatial) and name.role == "space" else name for name in names]


def at_taps(x: NamedAxes, at: Sequence[int], spaces: Sequence[Space], chosen: Mapping[Name, int]) -> NamedAxes:
    """What the taps of one position read, at all places, and at one position along other dimensions."""
    bounds: dict[Name, tuple[int, int, int]] = {name: (i, i + 1, 1) for name, i in chosen.items()}
    for dim, (t, s) in enumerate(zip(at, spaces, strict=True)):
        bounds[space(dim)] = (t * s.dilation, t * s.dilation + (s.places - 1) * s.stride + 1, s.stride)
    cut = x.cut(bounds).at(dict.fromkeys(chosen, 0))
    return NamedAxes(cut.value, tuple(spaces_as(cut.names, "place")))


def at_places(x: NamedAxes, at: Sequence[int], spaces: Sequence[Space]) -> NamedAxes:
    """What the window at one place reads, at all taps."""
    bounds = {
        space(dim): (p * s.stride, p * s.stride + (s.taps - 1) * s.dilation + 1, s.dilation)
        for dim, (p, s) in enumerate(zip(at, spaces, strict=True))
    }
    cut = x.cut(bounds)
    return NamedAxes(cut.value, tuple(spaces_as(cut.names, "tap")))


def windows(x: NamedAxes, spaces: Sequence[Space]) -> NamedAxes:
    """The windows of a padded array: each spatial dimension as places and taps.

    Where windows do not overlap they are the array itself; else they are copied, once for each tap or once for each
    place, whichever are fewer. What is copied stands together, before the spatial dimensions if the last dimension is
    one of these, else after them, so that the innermost dimension stays the one that is contiguous.
    """
    x = _without_overlap(x, spaces)
    left = [dim for dim in range(len(spaces)) if space(dim) in x.names]
    if not left:
        return x
    taps, places = (math.prod([getattr(spaces[dim], word) for dim in left]) for word in ("taps", "places"))
    by_tap = taps <= places
    axes = [x.axis(space(dim)) for dim in left]
    if max(axes) - min(axes) + 1 == len(axes) and min(taps, places) <= FEW_TAPS:
        return _copied_together(x, sorted(left, key=lambda dim: x.axis(space(dim))), spaces, by_tap)
    for dim in left:
        x = _copied_apart(x, dim, spaces[dim], by_tap)
    return x


def _copied_together(x: NamedAxes, dims: Sequence[int], spaces: Sequence[Space], by_tap: bool) -> NamedAxes:
    """The windows over neighbouring dimensions, as one array of slices."""
    first = x.axis(space(dims[0]))
    last = first + len(dims)
    at = first if last == len(x.names) else last
    copied = tap if by_tap else place
    along = [_steps(spaces[dim], by_tap) for dim in dims]
    slices = []
    for positions in itertools.product(*[range(count) for count, _, _, _ in along]):
        bounds = {
            space(dim): (i * step, i * step + (length - 1) * inner + 1, inner)
            for dim, i, (_, step, length, inner) in zip(dims, positions, along, strict=True)
        }
        slices.append(ops.expand_dims(x.cut(bounds).value, (at,)))
    joined = ops.concatenate(slices, at)
    shape = core.get_aval(joined).shape
    sizes = (*shape[:at], *[count for count, _, _, _ in along], *shape[at + 1 :])
    names = spaces_as(x.names, "place" if by_tap else "tap")
    return NamedAxes(ops.reshape(joined, sizes), (*names[:at], *map(copied, dims), *names[at:]))


def _steps(along: Space, by_tap: bool) -> tuple[int, int, int, int]:
    """How many slices there are, how far apart, and how many elements each has at which distance."""
    if by_tap:
        return along.taps, along.dilation, along.places, along.stride
    return along.places, along.stride, along.taps, along.dilation


def _without_overlap(x: NamedAxes, spaces: Sequence[Space]) -> NamedAxes:
    """The dimensions along which no element is in two windows, as views."""
    for dim, along in enumerate(spaces):
        name = space(dim)
        if along.taps == 1:
            x = x.cut({name: (0, (along.places - 1) * along.stride + 1, along.stride)}).renamed(name, place(dim))
        elif along.places == 1:
            x = x.cut({name: (0, (along.taps - 1) * along.dilation + 1, along.dilation)}).renamed(name, tap(dim))
        elif along.dilation == 1 and along.stride == along.taps:
            x = x.split(name, (place(dim), tap(dim)), along.places)
            continue
        elif along.stride == 1 and along.dilation == along.places:
            x = x.split(name, (tap(dim), place(dim)), along.taps)
            continue
        else:
            continue
        missing = tap(dim) if along.taps == 1 else place(dim)
        x = x.with_one(missing, x.axis(place(dim) if along.taps == 1 else tap(dim)) + 1)
    return x


def _copied_apart(x: NamedAxes, dim: int, along: Space, by_tap: bool) -> NamedAxes:
    """One dimension as the one that is copied and the one that is read, in this order."""
    name, at = space(dim), x.axis(space(dim))
    count, step, length, inner = _steps(along, by_tap)
    named = (*x.names[:at], *((tap(dim), place(dim)) if by_tap else (place(dim), tap(dim))), *x.names[at + 1 :])
    if count > FEW_TAPS:
        rows = np.arange(count)[:, None] * step + np.arange(length) * inner
        return NamedAxes(_taken(x, rows.astype(np.int32), at), named)
    slices = [x.cut({name: (i * step, i * step + (length - 1) * inner + 1, inner)}).value for i in range(count)]
    return NamedAxes(ops.concatenate([ops.expand_dims(part, (at,)) for part in slices], at), named)


def _taken(x: NamedAxes, rows: np.ndarray, axis: int) -> Any:
    """The elements at these indices along an axis."""
    kept = [dim for dim in range(len(x.shape) + 1) if dim not in (axis, axis + 1)]
    numbers = ops.GatherDimensionNumbers(tuple(kept), (axis,), (axis,))
    sizes = [1 if dim == axis else extent for dim, extent in enumerate(x.shape)]
    return ops.gather(x.value, rows[..., None], numbers, sizes, mode="promise_in_bounds")
