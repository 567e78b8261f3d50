"""Windows of an array by the names of its dimensions: where they lie, and slices of them.

    Space(extent=5, taps=3, outputs=5, stride=1, dilation=1, low=1)    windows of 3 around each of 5 elements

Dimension number d of space is ``space(d)`` in the array, ``output(d)`` where it counts windows and ``tap(d)`` where it
counts elements of one. Functions here take arrays that are padded to exactly what windows reach.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft._base.record import NamedTuple
from weft.operations.named_axes import Name, NamedAxes


class Space(NamedTuple):
    """One spatial dimension: its extents and how windows lie in it. Element ``at(p, t)`` is read; outside are zeros."""

    extent: int
    taps: int
    outputs: int
    stride: int
    dilation: int
    low: int
    holes: int = 1

    @property
    def reach(self) -> int:
        """How many elements windows reach over."""
        return (self.outputs - 1) * self.stride + (self.taps - 1) * self.dilation + 1


class Spatial(NamedTuple):
    """The name of a dimension that belongs to spatial dimension number ``dim``."""

    role: str
    dim: int


def output(dim: int) -> Spatial:
    return Spatial("output", dim)


def tap(dim: int) -> Spatial:
    return Spatial("tap", dim)


def space(dim: int) -> Spatial:
    return Spatial("space", dim)


def phase(dim: int) -> Spatial:
    return Spatial("phase", dim)


def has_role(name: Name, role: str) -> bool:
    return isinstance(name, Spatial) and name.role == role


def spaces_as(names: Sequence[Name], role: str) -> list[Name]:
    """Names in which spatial dimensions of the array count outputs, or taps."""
    return [Spatial(role, name.dim) if isinstance(name, Spatial) and name.role == "space" else name for name in names]


def at_taps(x: NamedAxes, at: Sequence[int], spaces: Sequence[Space], chosen: Mapping[Name, int]) -> NamedAxes:
    """What the taps of one position read, at all outputs, and at one position along other dimensions."""
    bounds: dict[Name, tuple[int, int, int]] = {name: (i, i + 1, 1) for name, i in chosen.items()}
    for dim, (t, s) in enumerate(zip(at, spaces, strict=True)):
        bounds[space(dim)] = (t * s.dilation, t * s.dilation + (s.outputs - 1) * s.stride + 1, s.stride)
    cut = x.cut(bounds).at(dict.fromkeys(chosen, 0))
    return NamedAxes(cut.value, tuple(spaces_as(cut.names, "output")))


def at_outputs(x: NamedAxes, at: Sequence[int], spaces: Sequence[Space]) -> NamedAxes:
    """What the window of one output reads, at all taps."""
    bounds = {
        space(dim): (p * s.stride, p * s.stride + (s.taps - 1) * s.dilation + 1, s.dilation)
        for dim, (p, s) in enumerate(zip(at, spaces, strict=True))
    }
    cut = x.cut(bounds)
    return NamedAxes(cut.value, tuple(spaces_as(cut.names, "tap")))


def single_windows(x: NamedAxes, spaces: Sequence[Space]) -> NamedAxes:
    """A padded array as its windows, where along each dimension windows have one element or there is one window."""
    for dim, along in enumerate(spaces):
        count, step = (along.outputs, along.stride) if along.taps == 1 else (along.taps, along.dilation)
        found, missing = (output(dim), tap(dim)) if along.taps == 1 else (tap(dim), output(dim))
        x = x.cut({space(dim): (0, (count - 1) * step + 1, step)}).renamed(space(dim), found)
        x = x.with_one(missing, x.axis(found) + 1)
    return x
