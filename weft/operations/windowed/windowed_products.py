"""Convolutions as products of windows and a kernel.

In: the operands of conv_general_dilated. Out: the same in other operations, by names of dimensions. The array is
padded to what windows reach, then read as

    x[n, g, f, stride * p + dilation * t]    batch n, group g, feature f; output p and tap t of its window

which is one operand of a product of strided views (``strided_products``): windows are read where they lie. The sum goes
over taps and features in the order of the left operand's dimensions (a tap stands where its spatial dimension does).
Holes in the left operand are never made: the outputs are split by their remainder, and each part (a phase) meets the
taps that do not fall into holes; phases that are alike are a batch of one product::

    lhs_dilation 2, stride 1, 4 taps   ->   even outputs: taps 0 and 2; odd outputs: taps 1 and 3

Groups of few features are no matrices: terms are slices, multiplied and added as they are read. Where many features
give few, taps are columns of the product too, and its parts are added up where they belong.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft._base.record import NamedTuple
from weft.core.product_spaces import ProductSpace
from weft.operations.later import ops
from weft.operations.named_axes import Name, NamedAxes
from weft.operations.pointwise.elementwise import widened
from weft.operations.windowed import strided_products, window_views
from weft.operations.windowed.window_views import (
    Space,
    Spatial,
    at_outputs,
    at_taps,
    has_role,
    output,
    phase,
    space,
    spaces_as,
    tap,
)

FEW_TERMS = 64  # products that are added up one after the other
FEW_COLUMNS = 4  # results of a group: so few are no columns of a matrix product
FEW_PAIRS = 16  # elements of batch times results of a group, up to which each output has a sum of its own
MANY_FEATURES = 16  # features, from which every element times all taps is a matrix product


class Product(NamedTuple):
    """What all parts of one convolution share."""

    dtype: np.dtype  # of the result
    precision: Any
    groups: int
    order: tuple[Name, ...]  # of the dimensions of the result


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
    order = _named(out_spec, ("batch", "column", *map(output, range(rank))))
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
        out = _in_phases(x, kernel, spaces, Product(dtype, precision, groups, tuple(names))).ordered(names)
    if groups > 1:
        out = out.merged(("group", "column"), "column")
    return out.value


def _named(spec: Sequence[int], roles: Sequence[Name]) -> tuple[Name, ...]:
    """The name of each dimension, from the roles that a spec gives the dimensions of."""
    names: list[Name] = [None] * len(spec)
    for dim, role in zip(spec, roles, strict=True):
        names[dim] = role
    return tuple(names)


def _is_product(x: NamedAxes, kernel: NamedAxes, product: Product) -> bool:
    """Whether there is enough of a group to multiply matrices."""
    return product.groups == 1 and x.extent("feature") * kernel.extent("column") > FEW_COLUMNS


def _space(extent: int, taps: int, stride: int, dilation: int, holes: int, pads: tuple[int, int]) -> Space:
    low, high = pads
    filled = (extent - 1) * holes + 1 if extent else 0
    outputs = (filled + low + high - (taps - 1) * dilation - 1) // stride + 1
    return Space(extent, taps, max(outputs, 0), stride, dilation, low, holes)


def _result_extents(x: NamedAxes, kernel: NamedAxes, spaces: Sequence[Space]) -> dict[Name, int]:
    found: dict[Name, int] = {output(dim): along.outputs for dim, along in enumerate(spaces)}
    found["batch"], found["column"] = x.extent("batch"), kernel.extent("column")
    if "group" in x.names:
        found["group"] = x.extent("group")
    return found


# ---- holes in the left operand


class Phase(NamedTuple):
    """The outputs ``first``, ``first + period``, ... of a dimension, and the taps that meet elements there."""

    first_tap: int
    tap_step: int
    space: Space  # of these outputs and taps, without holes; no taps: the result is zero


def phases(along: Space) -> list[Phase]:
    """The outputs of a dimension by their remainder, as many in each (the last may reach beyond the result).

    Output p reads what is at p * stride + t * dilation - low in the array with holes: elements are the multiples of
    ``holes``, so that p and t have to solve a congruence.
    """
    holes = along.holes
    period, tap_step = holes // math.gcd(along.stride, holes), holes // math.gcd(along.dilation, holes)
    count = -(-along.outputs // period)
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
    split = [phases(along) for along in spaces]
    if any(all(not part.space.taps for part in parts) for parts in split):  # every tap falls into holes
        return _zeros(x, kernel, spaces, product)
    if _is_summed_by_tap(x, kernel, split, product):
        return _summed_by_tap(x, kernel, split, spaces, product)
    if all(along.holes == 1 for along in spaces):
        return _without_holes(x, kernel, spaces, product)
    if _is_product(x, kernel, product):
        return _phases_in_place(x, kernel, split, spaces, product)
    made = {}
    for chosen in itertools.product(*[range(len(found)) for found in split]):
        parts = [found[i] for found, i in zip(split, chosen, strict=True)]
        bounds = {tap(dim): (part.first_tap, spaces[dim].taps, part.tap_step) for dim, part in enumerate(parts)}
        made[chosen] = _phase(x, kernel, bounds, [part.space for part in parts], product)
    names = next(iter(made.values())).names
    return _interleaved({key: part.ordered(names) for key, part in made.items()}, spaces)


def _phases_in_place(
    x: NamedAxes, kernel: NamedAxes, split: Sequence[Sequence[Phase]], spaces: Sequence[Space], product: Product
) -> NamedAxes:
    """The parts as products that read one padded array; one product with a batch of parts where they are alike."""
    padded, lows = _padded_for_all(x, split)
    if all(_are_alike(parts) for parts in split):
        out = _batch_of_phases(padded, kernel, split, lows, product)
    else:
        made = {}
        for chosen in itertools.product(*[range(len(parts)) for parts in split]):
            parts = [phases[i] for phases, i in zip(split, chosen, strict=True)]
            if all(part.space.taps for part in parts):
                offsets = [low - part.space.low for low, part in zip(lows, parts, strict=True)]
                cut = kernel.cut({tap(dim): (p.first_tap, spaces[dim].taps, p.tap_step) for dim, p in enumerate(parts)})
                made[chosen] = _in_place(padded, cut, [part.space for part in parts], offsets, product)
            else:
                made[chosen] = _zeros(x, kernel, [part.space for part in parts], product)
        return _interleaved(made, spaces)
    return out.cut({output(dim): (0, along.outputs, 1) for dim, along in enumerate(spaces)})


def _padded_for_all(x: NamedAxes, split: Sequence[Sequence[Phase]]) -> tuple[NamedAxes, list[int]]:
    """The array padded to what the windows of all parts reach, and how many elements come first."""
    found = [[part.space for part in parts if part.space.taps] for parts in split]
    lows = [max(s.low for s in parts) for parts in found]
    ends = [max(s.reach - s.low for s in parts) for parts in found]
    widths = {
        space(dim): (low, end - x.extent(space(dim))) for dim, (low, end) in enumerate(zip(lows, ends, strict=True))
    }
    return x.padded(widths).in_memory(), lows


def _are_alike(parts: Sequence[Phase]) -> bool:
    """Whether parts have as many taps, and each begins as far after the one before."""
    steps = {before.space.low - after.space.low for before, after in itertools.pairwise(parts)}
    return len({part.space.taps for part in parts}) == 1 and len(steps) <= 1 and min(steps, default=0) >= 0


def _batch_of_phases(
    x: NamedAxes, kernel: NamedAxes, split: Sequence[Sequence[Phase]], lows: Sequence[int], product: Product
) -> NamedAxes:
    """Parts as a batch of one product, whose outputs alternate in the result."""
    moved = {}
    order = list(product.order)
    for dim, parts in enumerate(split):
        cuts = [kernel.cut({tap(dim): (p.first_tap, kernel.extent(tap(dim)), p.tap_step)}) for p in parts]
        if len(parts) == 1:
            kernel = cuts[0]
            continue
        stacked = ops.concatenate([ops.expand_dims(cut.value, (0,)) for cut in cuts], 0)
        kernel = NamedAxes(stacked, (phase(dim), *kernel.names))
        moved[phase(dim)] = parts[0].space.low - parts[1].space.low
        order.insert(order.index(output(dim)) + 1, phase(dim))
    offsets = [low - parts[0].space.low for low, parts in zip(lows, split, strict=True)]
    spaces = [parts[0].space for parts in split]
    out = _in_place(x, kernel, spaces, offsets, product._replace(order=tuple(order)), moved)
    for dim, parts in enumerate(split):
        if len(parts) > 1:
            out = out.merged((output(dim), phase(dim)), output(dim))
    return out


def _phase(
    x: NamedAxes, kernel: NamedAxes, bounds: Mapping[Any, tuple[int, int, int]], spaces: list[Space], product: Product
) -> NamedAxes:
    if all(along.taps for along in spaces):
        return _without_holes(x, kernel.cut(bounds), spaces, product)
    return _zeros(x, kernel, spaces, product)


def _zeros(x: NamedAxes, kernel: NamedAxes, spaces: Sequence[Space], product: Product) -> NamedAxes:
    extents = _result_extents(x, kernel, spaces)
    return NamedAxes(ops.full([extents[name] for name in product.order], 0, product.dtype), product.order)


def _interleaved(parts: dict[tuple[int, ...], NamedAxes], spaces: Sequence[Space]) -> NamedAxes:
    """Parts whose outputs alternate, as one array."""
    for dim in reversed(range(len(spaces))):
        rows: dict[tuple[int, ...], list[NamedAxes]] = {}
        for key, part in parts.items():
            rows.setdefault(key[:dim], []).append(part)
        parts = {key: _alternating(row, output(dim)) for key, row in rows.items()}
    (whole,) = parts.values()
    return whole.cut({output(dim): (0, along.outputs, 1) for dim, along in enumerate(spaces)})


def _alternating(parts: Sequence[NamedAxes], name: Name) -> NamedAxes:
    if len(parts) == 1:
        return parts[0]
    at, names = parts[0].axis(name) + 1, parts[0].names
    stacked = ops.concatenate([ops.expand_dims(part.value, (at,)) for part in parts], at)
    return NamedAxes(stacked, (*names[:at], "phase", *names[at:])).merged((name, "phase"), name)


# ---- few results and many features


def _is_summed_by_tap(x: NamedAxes, kernel: NamedAxes, split: Sequence[Sequence[Phase]], product: Product) -> bool:
    """Whether products have too few columns unless taps are columns too: 3 channels of an image, from 64 features."""
    parts = [part.space for parts in split for part in parts]
    taps = kernel.extent("feature") and math.prod([kernel.extent(tap(dim)) for dim in range(len(split))])
    few = product.groups == 1 and kernel.extent("column") <= FEW_COLUMNS and 1 < taps <= FEW_TERMS
    return few and x.extent("feature") >= MANY_FEATURES and all(part.stride == 1 < part.outputs for part in parts)


def _summed_by_tap(
    x: NamedAxes, kernel: NamedAxes, split: Sequence[Sequence[Phase]], spaces: Sequence[Space], product: Product
) -> NamedAxes:
    """Every element times the kernel's taps, as columns of one product; then what belongs to an output is added up."""
    padded, lows = _padded_for_all(x, split)
    taps = [tap(dim) for dim in range(len(spaces))]
    weights = kernel.ordered([*taps, "column", "feature"])
    terms = _multiplied(weights, padded, product._replace(dtype=widened(product.dtype)))
    made = {}
    for chosen in itertools.product(*[range(len(parts)) for parts in split]):
        parts = [phases[i] for phases, i in zip(split, chosen, strict=True)]
        total: Any = None
        for at in itertools.product(*[range(part.space.taps) for part in parts]):
            bounds: dict[Name, tuple[int, int, int]] = {}
            for dim, (t, part, low) in enumerate(zip(at, parts, lows, strict=True)):
                number, first = part.first_tap + t * part.tap_step, low - part.space.low + t * part.space.dilation
                bounds[tap(dim)] = (number, number + 1, 1)
                bounds[space(dim)] = (first, first + part.space.outputs, 1)
            term = terms.cut(bounds).at(dict.fromkeys(taps, 0))
            total = term.value if total is None else ops.add(total, term.value)
        if total is None:
            made[chosen] = _zeros(x, kernel, [part.space for part in parts], product)
            continue
        names = spaces_as([name for name in terms.names if name not in taps], "output")
        made[chosen] = NamedAxes(ops.convert_element_type(total, product.dtype), tuple(names)).in_memory()
    order = [name for name in terms.names if name not in taps]
    names = spaces_as(order, "output")
    return _interleaved({key: part.ordered(names) for key, part in made.items()}, spaces)


# ---- products


def _without_holes(x: NamedAxes, kernel: NamedAxes, spaces: Sequence[Space], product: Product) -> NamedAxes:
    """The convolution of an array without holes, its dimensions in any order."""
    overlap = any(s.taps > 1 and s.outputs > 1 for s in spaces)
    small = _small_form(x, kernel, spaces, product) if overlap and product.dtype != np.bool_ else None
    extents = _result_extents(x, kernel, spaces)
    turned = False
    if small is not None:
        x, kernel = x.without_ones(("batch", "feature")), kernel.without_ones(("feature", "column"))
        # vectors go along the spatial dimensions, unless groups are many and have one element there
        inner = {"batch", "column"} if small is _output_by_output else {"feature", "column"}
        turned = not inner.isdisjoint({*x.names, *kernel.names}) and not has_role(x.names[-1], "space")
        x = _with_last(x, "space") if turned else x
        kernel = _with_last(kernel, "tap").in_memory() if turned and small is _output_by_output else kernel
    padded = x.padded({space(dim): (s.low, s.reach - s.low - s.extent) for dim, s in enumerate(spaces)})
    if overlap and (turned or padded is not x):
        padded = padded.in_memory()  # made once, and read by every tap
    if small is None:
        if overlap:
            return _in_place(padded, kernel, spaces, [0] * len(spaces), product)
        return _multiplied(window_views.single_windows(padded, spaces), kernel, product)
    found = small(padded, kernel, spaces, extents, product)
    for name in product.order:
        found = found if name in found.names else found.with_one(name, 0)
    return found.in_memory() if turned else found  # whoever wants another order copies it


def _in_place(
    x: NamedAxes,
    kernel: NamedAxes,
    spaces: Sequence[Space],
    offsets: Sequence[int],
    product: Product,
    moved: Mapping[Any, int] | None = None,
) -> NamedAxes:
    """One product that reads windows where they lie in the padded array, the first at ``offsets``.

    ``moved``: how far along its dimension the array is moved from one phase to the next.
    """
    left, right = x.strides, kernel.strides
    batch = {
        name: (kernel.extent(name), step * left[space(name.dim)], right[name]) for name, step in (moved or {}).items()
    }
    if "group" in x.names:
        batch["group"] = (x.extent("group"), left["group"], right["group"])
    rows: dict[Name, tuple[int, int]] = {}
    summed: list[tuple[int, int, int]] = []
    for name in x.names:
        if isinstance(name, Spatial):
            along = spaces[name.dim]
            rows[output(name.dim)] = (along.outputs, along.stride * left[name])
            summed.append((along.taps, along.dilation * left[name], right[tap(name.dim)]))
        elif name == "feature":
            summed.append((x.extent(name), left[name], right[name]))
        elif name == "batch":
            rows[name] = (x.extent(name), left[name])
    names = [*batch, *rows, "column"]
    read = ProductSpace(
        batch=tuple(batch.values()),
        rows=tuple(rows.values()),
        columns=((kernel.extent("column"), right["column"]),),
        summed=tuple(summed),
        starts=(sum([at * left[space(dim)] for dim, at in enumerate(offsets)]), 0),
        order=tuple([names.index(name) for name in product.order]),
    )
    asked = {"preferred_element_type": product.dtype, "precision": product.precision}
    out = strided_products.strided_product(x.value, kernel.value, read, **asked)
    return NamedAxes(out, product.order)


def _with_last(x: NamedAxes, role: str) -> NamedAxes:
    """The array with its spatial dimensions innermost, so that vectors go along them."""
    last = [name for name in x.names if has_role(name, role)]
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


# ---- small groups

Form = Callable[[NamedAxes, NamedAxes, Sequence[Space], Mapping[Any, int], Product], NamedAxes]


def _small_form(x: NamedAxes, kernel: NamedAxes, spaces: Sequence[Space], product: Product) -> Form | None:
    """The way to add up the terms of groups that are too small for matrices; None for larger ones."""
    taps, outputs = math.prod([s.taps for s in spaces]), math.prod([s.outputs for s in spaces])
    columns, features = kernel.extent("column"), x.extent("feature")
    if columns <= FEW_COLUMNS and (product.groups > 1 or features == 1) and taps * features <= FEW_TERMS:
        return _term_by_term
    return _output_by_output if x.extent("batch") * columns <= FEW_PAIRS and outputs <= FEW_TERMS else None


def _term_by_term(
    x: NamedAxes, kernel: NamedAxes, spaces: Sequence[Space], extents: Mapping[Any, int], product: Product
) -> NamedAxes:
    """The sum of a slice of the array for every tap and feature, times the kernel's element there."""
    wide = widened(product.dtype)
    names = spaces_as([name for name in x.names if name != "feature"], "output")
    if "column" in kernel.names:
        names.insert(names.index("group") + 1 if "group" in names else 0, "column")
    order = [name for name in spaces_as(x.names, "tap") if name == "feature" or has_role(name, "tap")]
    weights = kernel.ordered([*order, *[name for name in kernel.names if name not in order]]).in_memory()
    total: Any = None
    for at in itertools.product(*[range(weights.extent(name)) for name in order]):
        chosen = dict(zip(order, at, strict=True))
        taps = [chosen[tap(dim)] for dim in range(len(spaces))]
        window = at_taps(x, taps, spaces, {name: i for name, i in chosen.items() if name == "feature"})
        left, right = (
            ops.convert_element_type(part.spread(names, extents).value, wide) for part in (window, weights.at(chosen))
        )
        term = ops.mul(left, right)
        total = term if total is None else ops.add(total, term)
    return NamedAxes(ops.convert_element_type(total, product.dtype), tuple(names))


def _output_by_output(
    x: NamedAxes, kernel: NamedAxes, spaces: Sequence[Space], extents: Mapping[Any, int], product: Product
) -> NamedAxes:
    """A sum over the whole kernel for every output: where results are few and sums are long."""
    wide = widened(product.dtype)
    names = (*[name for name in kernel.names if name == "column"], *spaces_as(x.names, "tap"))
    sizes = {**dict(zip(kernel.names, kernel.shape, strict=True)), **extents}
    weights = ops.convert_element_type(kernel.spread(names, sizes).value, wide)
    summed = tuple([at for at, name in enumerate(names) if name == "feature" or has_role(name, "tap")])
    sums = []
    for at in itertools.product(*[range(s.outputs) for s in spaces]):
        window = ops.convert_element_type(at_outputs(x, at, spaces).spread(names, sizes).value, wide)
        total = ops.reduce_sum(ops.mul(window, weights), summed)
        sums.append(ops.expand_dims(ops.convert_element_type(total, product.dtype), (0,)))
    kept = [name for at, name in enumerate(names) if at not in summed]
    shape = [*[s.outputs for s in spaces], *[sizes[name] for name in kept]]
    return NamedAxes(ops.reshape(ops.concatenate(sums, 0), shape), (*map(output, range(len(spaces))), *kept))
