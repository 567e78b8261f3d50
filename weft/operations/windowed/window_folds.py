"""Reductions of windows in other operations: slices of the array, one for each tap, combined elementwise.

    reduce_window_sum x f32[7], window 3, stride 2   ->   x[0:5:2] + x[1:6:2] + x[2:7:2]: one loop, nothing stored

Outputs at the edges, whose windows have fewer taps, are regions of their own, put together by ``mosaic``. So are the
phases of a spread array (a base dilation), for which other taps exist: no zero is multiplied or added. Windows of many
taps are combined dimension by dimension, along each by doubling: windows of 1, 2, 4, ... taps.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import core, runtime
from weft.core import kinds
from weft.core.index_maps import Piece, Region, identity
from weft.core.primitive import ALL
from weft.core.tangents import is_undefined
from weft.core.window_maps import TRIVIAL, Along, Tap, WindowMap
from weft.operations import mapped
from weft.operations.later import ops
from weft.operations.pointwise.elementwise import check_same_dtype
from weft.runtime import Array

Combine = Callable[[list[Array], list[Array]], list[Array]]
Taps = Sequence[tuple[tuple[Tap, ...], list[Array]]]  # the taps of a region, in order, and what they read of each array
Box = tuple[tuple[int, ...], tuple[int, ...]]  # start and step of a region

MOST_TAPS = 64  # taps of a window that are written out
MOST_REGIONS = 36
MOST_PADDED = 9  # regions, where an array can be padded instead

# ---- mosaic


def _regions(avals: Sequence[Any], boxes: Sequence[Box]) -> list[Region]:
    return [Region(start, step, aval.shape) for aval, (start, step) in zip(avals, boxes, strict=True)]


def _mosaic_typing(*avals: Any, shape: tuple[int, ...], boxes: tuple[Box, ...]) -> Any:
    check_same_dtype("mosaic", avals)
    if sum(aval.size for aval in avals) != math.prod(shape):
        raise ValueError(f"[mosaic] the regions {boxes} do not cover an array of shape {shape}")
    return runtime.ShapedArray(shape, avals[0].dtype, all(aval.weak_type for aval in avals))


def _mosaic_reference(*arrays: Any, shape: tuple[int, ...], boxes: tuple[Box, ...]) -> Any:
    out = np.empty(shape, arrays[0].dtype)
    for array, region in zip(arrays, _regions(arrays, boxes), strict=True):
        out[region.slices] = array
    return out


def _mosaic_pieces(avals: Any, out: Any, params: dict[str, Any]) -> tuple[Piece, ...]:
    regions = _regions(avals, params["boxes"])
    return tuple([Piece(i, region, identity(out.ndim)) for i, region in enumerate(regions)])


mosaic_p = core.Primitive("mosaic", kind=kinds.Assemble(pieces=_mosaic_pieces, reference=_mosaic_reference))
mosaic_p.def_abstract_eval(_mosaic_typing)


def _mosaic_transpose(ct: Any, *operands: Any, shape: tuple[int, ...], boxes: tuple[Box, ...]) -> list[Any]:
    avals = [x.aval if is_undefined(x) else core.get_aval(x) for x in operands]
    return [
        ops.slice(ct, region.start, region.stop, region.step) if is_undefined(x) else None
        for x, region in zip(operands, _regions(avals, boxes), strict=True)
    ]


def _mosaic_batch(size: int, values: list[Any], dims: list[mapped.Dim], *, shape: Any, boxes: Any) -> Any:
    boxes = tuple([((0, *start), (1, *step)) for start, step in boxes])
    return mosaic_p.bind(*mapped.all_in_front(size, values, dims), shape=(size, *shape), boxes=boxes), 0


mosaic_p.linear, mosaic_p.transpose, mosaic_p.batch = ALL, _mosaic_transpose, _mosaic_batch


def mosaic(parts: Sequence[tuple[Box, Array]], shape: tuple[int, ...]) -> Array:
    """An array of this shape put together from values on disjoint regions that cover it."""
    parts = [(box, part) for box, part in parts if part.size]
    if len(parts) == 1 and parts[0][1].shape == shape:
        return parts[0][1]
    return mosaic_p.bind(*[part for _, part in parts], shape=shape, boxes=tuple([box for box, _ in parts]))


# ---- region by region


def region_count(windows: WindowMap, shape: Sequence[int]) -> int:
    """How many regions of outputs have different taps."""
    return math.prod([len(along.runs(extent)) for along, extent in zip(windows.along, shape, strict=True)])


def by_regions(
    windows: WindowMap, arrays: Sequence[Any], body: Callable[[Taps, tuple[int, ...]], list[Array]]
) -> list[Array]:
    """The results of ``body(taps, shape)`` for every region, put together."""
    runs = [along.runs(extent) for along, extent in zip(windows.along, arrays[0].shape, strict=True)]
    found = []
    for region in itertools.product(*runs):
        box = tuple([run.start for run in region]), tuple([run.step for run in region])
        counts = tuple([run.extent for run in region])
        taps = [
            (tap, [_read(array, tap, counts) for array in arrays])
            for tap in itertools.product(*[run.taps for run in region])
        ]
        found.append((box, body(taps, counts)))
    shape = windows.shape(arrays[0].shape)
    return [mosaic([(box, parts[i]) for box, parts in found], shape) for i in range(len(found[0][1]))]


def _read(array: Any, taps: Sequence[Tap], counts: Sequence[int]) -> Array:
    """The elements that a tap reads for all outputs of a region."""
    start = [tap.start for tap in taps]
    stop = [tap.start + (count - 1) * tap.step + 1 for tap, count in zip(taps, counts, strict=True)]
    step = [tap.step if count > 1 else 1 for tap, count in zip(taps, counts, strict=True)]
    if all(at == 0 and by == 1 for at, by in zip(start, step, strict=True)) and tuple(stop) == array.shape:
        return array
    return ops.slice(array, start, stop, step)


# ---- folds


class Fold:
    """How windows are combined.

    ``combine`` takes and gives lists of arrays of one shape; ``empty`` are the scalars that windows without taps give.
    With ``starts`` the first tap is combined with these scalars too. ``neutral``: they change nothing that they are
    combined with, so that arrays may be padded with them. ``reduce(array, axes)``: the reduction of a single array.
    """

    def __init__(
        self,
        combine: Combine,
        empty: Sequence[Any],
        *,
        starts: bool,
        neutral: bool,
        reduce: Callable[[Any, Sequence[int]], Array] | None = None,
    ) -> None:
        self.combine, self.empty, self.starts, self.neutral, self.reduce = combine, empty, starts, neutral, reduce

    def start(self, shape: tuple[int, ...]) -> list[Array]:
        return [ops.broadcast_in_dim(core.wide(value), shape, ()) for value in self.empty]


def fold(windows: WindowMap, arrays: Sequence[Any], how: Fold) -> list[Array]:
    """The combination of each window, in row-major order of its taps."""
    shape = windows.shape(arrays[0].shape)
    if not math.prod(shape) or not arrays[0].size:
        return how.start(shape)
    if how.neutral and in_blocks(windows) and (_fits(windows, arrays[0].shape) or _phases(windows) > MOST_PADDED):
        return _spread(windows, arrays, how)
    if windows.taps > MOST_TAPS:
        return _of_many_taps(windows, arrays, how)
    if how.neutral:
        windows, arrays = _padded(windows, arrays, how.empty, MOST_PADDED)
    if region_count(windows, arrays[0].shape) > MOST_REGIONS:
        return _flagged(windows, arrays, how)

    def body(taps: Taps, counts: tuple[int, ...]) -> list[Array]:
        found = how.start(counts) if how.starts or not taps else None
        for _, values in taps:
            found = values if found is None else how.combine(found, values)
        return found or []

    return by_regions(windows, arrays, body)


def _phases(windows: WindowMap) -> int:
    return math.prod([along.spacing for along in windows.along])


def _pad(array: Any, value: Any, config: Sequence[tuple[int, int, int]]) -> Array:
    return array if all(entry == (0, 0, 0) for entry in config) else ops.pad(array, value, config)


def _padded(
    windows: WindowMap, arrays: Sequence[Any], values: Sequence[Any], most: int
) -> tuple[WindowMap, Sequence[Array]]:
    """Arrays padded along the dimensions of most regions, until there are no more than ``most``."""
    along, config, shape = list(windows.along), [(0, 0, 0)] * len(windows.along), arrays[0].shape
    counts = [len(one.runs(extent)) for one, extent in zip(along, shape, strict=True)]
    while math.prod(counts) > most:
        dim = max(range(len(counts)), key=counts.__getitem__)
        one = along[dim]
        config[dim] = one.low, one.high, one.spacing - 1
        along[dim], counts[dim] = one._replace(low=0, high=0, spacing=1), 1
    return WindowMap(tuple(along)), [_pad(x, value, config) for x, value in zip(arrays, values, strict=True)]


def _flagged(windows: WindowMap, arrays: Sequence[Any], how: Fold) -> list[Array]:
    """A fold whose values know whether they are of any tap, so that arrays can be padded with anything."""
    true = ops.full(arrays[0].shape, True)

    def combine(left: list[Any], right: list[Any]) -> list[Array]:
        (has_left, *mine), (has_right, *others) = left, right
        both = how.combine(mine, others)
        chosen = [
            ops.select(has_left, ops.select(has_right, c, a), b) for a, b, c in zip(mine, others, both, strict=True)
        ]
        return [ops.bitwise_or(has_left, has_right), *chosen]

    known = Fold(combine, [np.False_, *how.empty], starts=False, neutral=True)
    has, *values = fold(windows, [true, *arrays], known)
    start = how.start(values[0].shape)
    out = how.combine(start, values) if how.starts else values
    return [ops.select(has, value, empty) for value, empty in zip(out, start, strict=True)]


# ---- spread arrays whose windows have one tap at most: every element fills a block


def in_blocks(windows: WindowMap) -> bool:
    """Whether each output sees one element of a spread array at most, so that the outputs of an element are a block."""
    spread = [along for along in windows.along if not along.is_trivial]
    return bool(spread) and all(
        along.stride == along.dilation == 1 and along.window <= along.spacing > 1 for along in spread
    )


def _margins(along: Along, extent: int) -> tuple[int, int]:
    """How many outputs lie before and after the blocks."""
    before = along.low - along.window + 1
    return before, along.outputs(extent) - extent * along.spacing - before


def _fits(windows: WindowMap, shape: Sequence[int]) -> bool:
    """Whether the blocks are the result, with nothing before or after them."""
    return all(
        along.is_trivial or _margins(along, extent) == (0, 0)
        for along, extent in zip(windows.along, shape, strict=True)
    )


def blocks(
    windows: WindowMap, arrays: Sequence[Any], fill: Any, body: Callable[[list[Array], list[Array]], Array]
) -> Array:
    """``body(values, positions)`` where a block has outputs, otherwise ``fill``.

    Values and positions are arrays over elements and their blocks. The position along a dimension is that of the
    element in the window of the array whose gradient this is, which begins with the block.
    """
    shape: list[int] = []
    kept, cells = [], []
    for along, extent in zip(windows.along, arrays[0].shape, strict=True):
        kept.append(len(shape))
        shape.append(extent)
        if not along.is_trivial:
            cells.append((len(shape), along))
            shape.append(along.spacing)
    values = [ops.broadcast_in_dim(x, shape, kept) for x in arrays]
    positions = [ops.broadcasted_iota(np.int32, shape, dim) for dim, _ in cells]
    out = body(values, positions)
    for position, (_, along) in zip(positions, cells, strict=True):
        if along.window < along.spacing:
            inside = ops.lt(position, np.int32(along.window))
            out = ops.select(inside, out, ops.broadcast_in_dim(core.wide(fill), tuple(shape), ()))
    extents = [n * along.spacing for along, n in zip(windows.along, arrays[0].shape, strict=True)]
    out = ops.reshape(out, tuple(extents))
    margins = [
        (0, 0) if along.is_trivial else _margins(along, extent)
        for along, extent in zip(windows.along, arrays[0].shape, strict=True)
    ]
    return _pad(out, fill, [(*margin, 0) for margin in margins])


def _spread(windows: WindowMap, arrays: Sequence[Any], how: Fold) -> list[Array]:
    def body(values: list[Any], positions: list[Any]) -> Array:
        return values[0] if not how.starts else how.combine(how.start(values[0].shape), values)[0]

    if len(arrays) > 1:
        return _of_many_taps(windows, arrays, how)
    return [blocks(windows, arrays, how.empty[0], body)]


# ---- windows of many taps


def _of_many_taps(windows: WindowMap, arrays: Sequence[Any], how: Fold) -> list[Array]:
    """One dimension after the other, from the last."""
    if not how.neutral:
        return _flagged(windows, arrays, how)
    config = [(along.low, along.high, along.spacing - 1) for along in windows.along]
    found = [_pad(x, value, config) for x, value in zip(arrays, how.empty, strict=True)]
    alike = [along._replace(low=0, high=0, spacing=1) for along in windows.along]
    if how.reduce is not None and all(
        along == TRIVIAL or (along.dilation == 1 and (along.window == along.stride or along.outputs(n) == 1))
        for along, n in zip(alike, found[0].shape, strict=True)
    ):
        return [_of_parts(alike, found[0], how.reduce)]
    for dim in reversed(range(len(alike))):
        if not alike[dim].is_trivial:
            found = _doubled(alike[dim], found, how.combine, dim)
    return how.combine(how.start(found[0].shape), found) if how.starts else found


def _of_parts(windows: Sequence[Along], array: Any, reduce: Callable[..., Array]) -> Array:
    """Windows that lie side by side are rows of a reshaped array."""
    counts = [along.outputs(n) for along, n in zip(windows, array.shape, strict=True)]
    array = ops.slice(
        array, [0] * array.ndim, [count * along.window for count, along in zip(counts, windows, strict=True)]
    )
    shape = [n for count, along in zip(counts, windows, strict=True) for n in (count, along.window)]
    return reduce(ops.reshape(array, tuple(shape)), tuple(range(1, len(shape), 2)))


def _doubled(along: Along, arrays: Sequence[Any], combine: Combine, dim: int) -> list[Array]:
    """Windows along one dimension, of 1, 2, 4, ... taps; those of the binary digits of the window, in order."""
    outputs = along.outputs(arrays[0].shape[dim])
    found: list[Any] | None = None
    current, taps, done = list(arrays), 1, 0
    while True:
        if along.window & taps:
            start = done * along.dilation
            stop = start + (outputs - 1) * along.stride + 1
            part = [ops.slice_in_dim(x, start, stop, along.stride, dim) for x in current]
            found = part if found is None else combine(found, part)
            done += taps
        if done == along.window:
            return found or []
        shift = taps * along.dilation
        current = combine(
            [ops.slice_in_dim(x, 0, -shift, 1, dim) for x in current],
            [ops.slice_in_dim(x, shift, None, 1, dim) for x in current],
        )
        taps *= 2
