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

from weft._base.record import NamedTuple
from weft.operations import window_views
from weft.operations.elementwise import widened
from weft.operations.later import ops
from weft.operations.named_axes import Name, NamedAxes
from weft.operations.window_views import Space, at_places, at_taps, has_role, place, space, spaces_as, tap

FEW_TERMS = 64  # products that are added up one after the other
FEW_COLUMNS = 4  # results of a group that are worth it


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
    taps, places = math.prod([s.taps for s in spaces]), math.prod([s.places for s in spaces])
    columns, overlap = kernel.extent("column"), any(s.taps > 1 and s.places > 1 for s in spaces)
    grouped = product.groups > 1 or x.extent("feature") == 1
    is_number = product.dtype != np.bool_
    term_by_term = overlap and grouped and columns <= FEW_COLUMNS and taps * x.extent("feature") <= FEW_TERMS
    turned = term_by_term and is_number and x.extent("feature") * columns > 1 and not has_role(x.names[-1], "space")
    if turned:
        x = _with_space_last(x)
    widths = {space(dim): (s.low, s.reach - s.low - s.extent) for dim, s in enumerate(spaces)}
    padded = x.padded(widths)
    if overlap and (turned or padded is not x):
        padded = padded.in_memory()  # made once, and read by every tap
    if term_by_term and is_number:
        found = _term_by_term(padded, kernel, spaces, product)
        return found.in_memory() if turned else found  # whoever wants another order copies it
    if overlap and x.extent("batch") * columns <= FEW_COLUMNS and places <= FEW_TERMS and is_number:
        return _place_by_place(padded, kernel, spaces, product)
    return _multiplied(window_views.windows(padded, spaces), kernel, product)


def _with_space_last(x: NamedAxes) -> NamedAxes:
    """The array with its spatial dimensions innermost, so that vectors go along them."""
    last = [name for name in x.names if has_role(name, "space")]
    return x.ordered([*[name for name in x.names if name not in last], *last])


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


def _term_by_term(x: NamedAxes, kernel: NamedAxes, spaces: Sequence[Space], product: Product) -> NamedAxes:
    """The sum of a slice of the array for every tap and feature, times the kernel's element there."""
    wide = widened(product.dtype)
    names = spaces_as([name for name in x.names if name != "feature"], "place")
    kept = [name for name in ("group", "column") if name in kernel.names and kernel.extent(name) > 1]
    if "column" in kept:
        names.insert(names.index("group") + 1 if "group" in names else 0, "column")
    extents = _result_extents(x, kernel, spaces)
    taps = [tap(dim) for dim in range(len(spaces))]
    order = [name for name in spaces_as(x.names, "tap") if name == "feature" or has_role(name, "tap")]
    weights = kernel.ordered([*order, *[name for name in kernel.names if name not in order]]).in_memory()
    single = {name: 0 for name in ("group", "column") if name in kernel.names and name not in kept}
    total: Any = None
    for at in itertools.product(*[range(weights.extent(name)) for name in order]):
        chosen = dict(zip(order, at, strict=True))
        window = at_taps(x, [chosen[name] for name in taps], spaces, {"feature": chosen["feature"]})
        weight = weights.at(chosen | single)
        left, right = (ops.convert_element_type(part.spread(names, extents).value, wide) for part in (window, weight))
        term = ops.mul(left, right)
        total = term if total is None else ops.add(total, term)
    found = NamedAxes(ops.convert_element_type(total, product.dtype), tuple(names))
    return found if "column" in names else found.with_one("column", len(names))


def _place_by_place(x: NamedAxes, kernel: NamedAxes, spaces: Sequence[Space], product: Product) -> NamedAxes:
    """A sum over the whole kernel for every place: where results are few and sums are long."""
    wide = widened(product.dtype)
    names = (*spaces_as(x.names, "tap"), "column")
    extents = {**dict(zip(kernel.names, kernel.shape, strict=True)), "batch": x.extent("batch")}
    weight = kernel.spread(names, extents).value
    weight = ops.convert_element_type(weight, wide)
    summed = tuple([at for at, name in enumerate(names) if name == "feature" or has_role(name, "tap")])
    sums = []
    for at in itertools.product(*[range(s.places) for s in spaces]):
        window = at_places(x, at, spaces).spread(names, extents)
        terms = ops.mul(ops.convert_element_type(window.value, wide), weight)
        sums.append(ops.convert_element_type(ops.reduce_sum(terms, summed), product.dtype))
    out = ops.concatenate([ops.expand_dims(part, (0,)) for part in sums], 0)
    kept = [name for at, name in enumerate(names) if at not in summed]
    sizes = [*[s.places for s in spaces], *[extents[name] for name in kept]]
    return NamedAxes(ops.reshape(out, sizes), (*map(place, range(len(spaces))), *kept))
