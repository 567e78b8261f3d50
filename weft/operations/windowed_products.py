"""Convolutions as products of windows and a kernel.

In: the operands of conv_general_dilated. Out: the same in other operations, by names of dimensions. The array is
padded to what windows reach, then read as

    x[n, g, f, stride * p + dilation * t]    batch n, group g, feature f; place p of a window and tap t inside of it

which is one operand of a matrix product, whose sum goes over taps and features in the order of the left operand's
dimensions (a tap stands where its spatial dimension does). Holes in the left operand are never made: the places are
split by their remainder, and each part meets the taps that do not fall into holes::

    lhs_dilation 2, stride 1, 4 taps   ->   even places: taps 0 and 2; odd places: taps 1 and 3

With one feature to a group there is nothing to multiply in tiles: taps are slices, multiplied and added as they are
read.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft import core
from weft._base.record import NamedTuple
from weft.operations.elementwise import widened
from weft.operations.later import ops
from weft.operations.named_axes import Name, NamedAxes

FEW_TAPS = 64  # slices that windows are made of at once; more are gathered
FEW_COLUMNS = 4  # results of one element that are added up tap by tap


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


def _is(name: Name, role: str) -> bool:
    return isinstance(name, Spatial) and name.role == role


def _spaces_as(names: Sequence[Name], role: str) -> list[Name]:
    """Names in which spatial dimensions of the array are places, or taps."""
    return [Spatial(role, name.dim) if isinstance(name, Spatial) and name.role == "space" else name for name in names]


class Product(NamedTuple):
    """What all parts of one convolution share."""

    dtype: np.dtype  # of the result
    precision: Any
    groups: int


def convolution(
    lhs: Any,
    rhs: Any,
    *,
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    dimension_numbers: Any,
    feature_group_count: int,
    batch_group_count: int,
    precision: Any,
    preferred_element_type: Any,
    out_sharding: Any,
) -> Any:
    """conv_general_dilated in other operations."""
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    rank = len(window_strides)
    x = NamedAxes(lhs, _named(lhs_spec, ("batch", "feature", *map(space, range(rank)))))
    kernel = NamedAxes(rhs, _named(rhs_spec, ("column", "feature", *map(tap, range(rank)))))
    order = _named(out_spec, ("batch", "column", *map(place, range(rank))))
    groups = max(feature_group_count, batch_group_count)
    if groups > 1:
        grouped = "feature" if feature_group_count > 1 else "batch"
        x = x.split(grouped, ("group", grouped), groups)
        kernel = kernel.split("column", ("group", "column"), groups)
    spaces = [
        _space(x.extent(space(dim)), kernel.extent(tap(dim)), *given)
        for dim, given in enumerate(zip(window_strides, rhs_dilation, lhs_dilation, padding, strict=True))
    ]
    dtype = preferred_element_type or ops.dtype(lhs)
    result = _result_extents(x, kernel, spaces)
    names = [n for name in order for n in (("group", "column") if name == "column" and groups > 1 else (name,))]
    if 0 in result.values() or 0 in x.shape or 0 in kernel.shape:
        sizes = [result[name] for name in names]
        out = NamedAxes(ops.full(sizes, 0, dtype), tuple(names))
    else:
        out = _in_phases(x, kernel, spaces, Product(dtype, precision, groups)).ordered(names)
    if groups > 1:
        out = out.merged(("group", "column"), "column")
    return out.value


def _named(spec: Sequence[int], roles: Sequence[Name]) -> tuple[Name, ...]:
    """The name of each dimension, from the roles that a spec gives the dimensions of."""
    names: list[Name] = [None] * len(spec)
    for dim, role in zip(spec, roles, strict=True):
        names[dim] = role
    return tuple(names)


def _space(extent: int, taps: int, stride: int, dilation: int, holes: int, pads: tuple[int, int]) -> Space:
    low, high = pads
    filled = (extent - 1) * holes + 1 if extent else 0
    places = (filled + low + high - (taps - 1) * dilation - 1) // stride + 1
    return Space(extent, taps, max(places, 0), stride, dilation, low, holes)


def _result_extents(x: NamedAxes, kernel: NamedAxes, spaces: Sequence[Space]) -> dict[Name, int]:
    found: dict[Name, int] = {place(dim): along.places for dim, along in enumerate(spaces)}
    found["batch"], found["column"] = x.extent("batch"), kernel.extent("column")
    if "group" in x.names:
        found["group"] = x.extent("group")
    return found


# ---- holes in the left operand


class Phase(NamedTuple):
    """The places ``first``, ``first + period``, ... of a dimension, and the taps that meet elements there."""

    first_tap: int
    tap_step: int
    space: Space  # of these places and taps, without holes; no taps: the result is zero


def phases(along: Space) -> list[Phase]:
    """The places of a dimension by their remainder, as many in each (the last may reach beyond the result).

    Place p reads what is at p * stride + t * dilation - low in the array with holes: elements are the multiples of
    ``holes``, so that p and t have to solve a congruence.
    """
    holes = along.holes
    period, tap_step = holes // math.gcd(along.stride, holes), holes // math.gcd(along.dilation, holes)
    count = -(-along.places // period)
    found = []
    for first in range(period):
        offset = first * along.stride - along.low
        solved = [t for t in range(min(tap_step, along.taps)) if (offset + t * along.dilation) % holes == 0]
        start = solved[0] if solved else along.taps
        taps = len(range(start, along.taps, tap_step))
        low = -((offset + start * along.dilation) // holes) if solved else 0
        stride, dilation = period * along.stride // holes, tap_step * along.dilation // holes
        found.append(Phase(start, tap_step, Space(along.extent, taps, count, stride, dilation, low)))
    return found


def _in_phases(x: NamedAxes, kernel: NamedAxes, spaces: Sequence[Space], product: Product) -> NamedAxes:
    """The convolution, by the parts into which holes in the left operand divide it."""
    if all(along.holes == 1 for along in spaces):
        return _without_holes(x, kernel, spaces, product)
    split = [phases(along) for along in spaces]
    made = {}
    for chosen in itertools.product(*[range(len(found)) for found in split]):
        parts = [found[i] for found, i in zip(split, chosen, strict=True)]
        bounds = {tap(dim): (part.first_tap, spaces[dim].taps, part.tap_step) for dim, part in enumerate(parts)}
        made[chosen] = _phase(x, kernel, bounds, [part.space for part in parts], product)
    names = next(iter(made.values())).names
    return _interleaved({key: part.ordered(names) for key, part in made.items()}, spaces)


def _phase(
    x: NamedAxes, kernel: NamedAxes, bounds: Mapping[Any, tuple[int, int, int]], spaces: list[Space], product: Product
) -> NamedAxes:
    if all(along.taps for along in spaces):
        return _without_holes(x, kernel.cut(bounds), spaces, product)
    extents = _result_extents(x, kernel, spaces)
    names = ("batch", *[place(dim) for dim in range(len(spaces))], *(["group"] if product.groups > 1 else []), "column")
    return NamedAxes(ops.full([extents[name] for name in names], 0, product.dtype), names)


def _interleaved(parts: dict[tuple[int, ...], NamedAxes], spaces: Sequence[Space]) -> NamedAxes:
    """Parts whose places alternate, as one array."""
    for dim in reversed(range(len(spaces))):
        rows: dict[tuple[int, ...], list[NamedAxes]] = {}
        for key, part in parts.items():
            rows.setdefault(key[:dim], []).append(part)
        parts = {key: _alternating(row, place(dim)) for key, row in rows.items()}
    (whole,) = parts.values()
    return whole.cut({place(dim): (0, along.places, 1) for dim, along in enumerate(spaces)})


def _alternating(parts: Sequence[NamedAxes], name: Name) -> NamedAxes:
    if len(parts) == 1:
        return parts[0]
    at, names = parts[0].axis(name) + 1, parts[0].names
    stacked = ops.concatenate([ops.expand_dims(part.value, (at,)) for part in parts], at)
    return NamedAxes(stacked, (*names[:at], "phase", *names[at:])).merged((name, "phase"), name)


# ---- products


def _without_holes(x: NamedAxes, kernel: NamedAxes, spaces: Sequence[Space], product: Product) -> NamedAxes:
    """The convolution of an array without holes, its dimensions in any order."""
    widths = {space(dim): (s.low, s.reach - s.low - s.extent) for dim, s in enumerate(spaces)}
    overlapping = [dim for dim, s in enumerate(spaces) if s.taps > 1 and s.places > 1]
    padded = x.padded(widths)
    if overlapping and padded is not x:
        padded = NamedAxes(ops.optimization_barrier(padded.value), padded.names)  # made once, and read by every tap
    taps, places = math.prod([s.taps for s in spaces]), math.prod([s.places for s in spaces])
    if overlapping and x.extent("feature") == 1 and kernel.extent("column") <= FEW_COLUMNS and taps <= FEW_TAPS:
        return _tap_by_tap(padded, kernel, spaces, product)
    if (
        overlapping
        and x.extent("batch") * kernel.extent("column") <= FEW_COLUMNS
        and places <= FEW_TAPS
        and np.dtype(product.dtype).kind in "fc"
    ):
        return _place_by_place(padded, kernel, spaces, product)
    return _multiplied(windows(padded, spaces), kernel, product)


def _multiplied(x: NamedAxes, kernel: NamedAxes, product: Product) -> NamedAxes:
    """One matrix product for each group: the sum over all names that both have."""
    batch = [name for name in x.names if name == "group"]
    summed = [name for name in x.names if name in kernel.names and name not in batch]
    numbers = (
        (tuple(map(x.axis, summed)), tuple(map(kernel.axis, summed))),
        (tuple(map(x.axis, batch)), tuple(map(kernel.axis, batch))),
    )
    out = ops.dot_general(
        x.value, kernel.value, numbers, precision=product.precision, preferred_element_type=product.dtype
    )
    free = [name for side in (x, kernel) for name in side.names if name not in (*batch, *summed)]
    return NamedAxes(out, (*batch, *free))


def _tap_by_tap(x: NamedAxes, kernel: NamedAxes, spaces: Sequence[Space], product: Product) -> NamedAxes:
    """The sum of a slice of the array for every tap, times the kernel's element there."""
    wide = widened(product.dtype)
    names = _spaces_as([name for name in x.names if name != "feature"], "place")
    names.insert(names.index("group") + 1 if "group" in names else len(names), "column")
    extents = _result_extents(x, kernel, spaces)
    total: Any = None
    for at in itertools.product(*[range(s.taps) for s in spaces]):
        window = _at_taps(x, at, spaces)
        weight = kernel.cut({tap(dim): (t, t + 1, 1) for dim, t in enumerate(at)})
        for name in ("feature", *[tap(dim) for dim in range(len(spaces))]):
            weight = _without(weight, name)
        left, right = (
            ops.convert_element_type(part.spread(names, extents).value, wide)
            for part in (_without(window, "feature"), weight)
        )
        term = ops.mul(left, right)
        total = term if total is None else ops.add(total, term)
    return NamedAxes(ops.convert_element_type(total, product.dtype), tuple(names))


def _place_by_place(x: NamedAxes, kernel: NamedAxes, spaces: Sequence[Space], product: Product) -> NamedAxes:
    """A sum over the whole kernel for every place: where results are few and sums are long."""
    wide = widened(product.dtype)
    names = (*_spaces_as(x.names, "tap"), "column")
    extents = {**dict(zip(kernel.names, kernel.shape, strict=True)), "batch": x.extent("batch")}
    weight = kernel.spread(names, extents).value
    weight = ops.convert_element_type(weight, wide)
    summed = tuple([at for at, name in enumerate(names) if name == "feature" or _is(name, "tap")])
    sums = []
    for at in itertools.product(*[range(s.places) for s in spaces]):
        window = _at_places(x, at, spaces).spread(names, extents)
        terms = ops.mul(ops.convert_element_type(window.value, wide), weight)
        sums.append(ops.convert_element_type(ops.reduce_sum(terms, summed), product.dtype))
    out = ops.concatenate([ops.expand_dims(part, (0,)) for part in sums], 0)
    kept = [name for at, name in enumerate(names) if at not in summed]
    sizes = [*[s.places for s in spaces], *[extents[name] for name in kept]]
    return NamedAxes(ops.reshape(out, sizes), (*map(place, range(len(spaces))), *kept))


def _without(x: NamedAxes, name: Name) -> NamedAxes:
    """An array without a dimension of one element."""
    at = x.axis(name)
    return NamedAxes(ops.squeeze(x.value, (at,)), (*x.names[:at], *x.names[at + 1 :]))


# ---- windows


def _at_taps(x: NamedAxes, at: Sequence[int], spaces: Sequence[Space]) -> NamedAxes:
    """What the taps of one position read, at all places."""
    bounds = {
        space(dim): (t * s.dilation, t * s.dilation + (s.places - 1) * s.stride + 1, s.stride)
        for dim, (t, s) in enumerate(zip(at, spaces, strict=True))
    }
    cut = x.cut(bounds)
    return NamedAxes(cut.value, tuple(_spaces_as(cut.names, "place")))


def _at_places(x: NamedAxes, at: Sequence[int], spaces: Sequence[Space]) -> NamedAxes:
    """What the window at one place reads, at all taps."""
    bounds = {
        space(dim): (p * s.stride, p * s.stride + (s.taps - 1) * s.dilation + 1, s.dilation)
        for dim, (p, s) in enumerate(zip(at, spaces, strict=True))
    }
    cut = x.cut(bounds)
    return NamedAxes(cut.value, tuple(_spaces_as(cut.names, "tap")))


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
    names = _spaces_as(x.names, "place" if by_tap else "tap")
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
        x = _with(x, missing, x.axis(place(dim) if along.taps == 1 else tap(dim)) + 1)
    return x


def _with(x: NamedAxes, name: Name, at: int) -> NamedAxes:
    """An array with a dimension of one element more."""
    return NamedAxes(ops.expand_dims(x.value, (at,)), (*x.names[:at], name, *x.names[at:]))


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
