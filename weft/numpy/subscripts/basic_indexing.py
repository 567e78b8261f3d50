"""Basic indices: integers (static or traced), slices and None, in views and one dynamic slice.

A list of items becomes a static plan and the integers that are known only at run time. A static integer within bounds
becomes a slice. Outside a trace, integers and the starts of contiguous slices are run-time values, so that a loop over
``x[i]`` or ``x[i : i + 4]`` is one compiled program. An integer out of bounds is clamped::

    x[1:, ::2]   ->  slice[start_indices=(1, 0) strides=(1, 2)]
    x[i]         ->  i normalised, dynamic_slice[slice_sizes=(1, 4)], squeeze
    x[None, 0]   ->  slice, squeeze, broadcast_in_dim
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np

from weft import core, dtypes
from weft import operations as lax
from weft._base.array import Array
from weft._base.record import NamedTuple
from weft.core.symbolic import open_sizes, sizes
from weft.dispatch.calls import jit as jit_module
from weft.numpy import promotion
from weft.numpy.subscripts import index_items

inline = functools.partial(jit_module.jit, inline=True)


class Cut(NamedTuple):
    """A static slice of one axis, as ``slice.indices`` gives it."""

    start: int
    stop: int
    step: int

    @property
    def size(self) -> int:
        distance, pace = (self.stop - self.start, self.step) if self.step > 0 else (self.start - self.stop, -self.step)
        return (distance + pace - 1) // pace if distance > 0 else 0


class IndexPlan(NamedTuple):
    """What a basic index does to an array, but for the run-time integers, in the order of ``dynamic``."""

    cuts: tuple[Cut | None, ...]  # per axis; None keeps it whole (or leaves it to the integers)
    static: tuple[tuple[int, int], ...]  # (axis, position) of integers known while tracing
    dynamic: tuple[tuple[int, int], ...]  # (axis, size) of windows at run-time integers; size 0 drops the axis
    new_axes: tuple[int, ...]  # positions of None in the result
    wrap: bool  # whether negative integers count from the end


@functools.lru_cache(maxsize=64)
def first_axis(rank: int) -> IndexPlan:
    """The plan of ``x[i]``."""
    return IndexPlan((None,) * rank, (), ((0, 0),), (), True)


def cut_of(item: slice, extent: int, axis: int) -> Cut:
    """A slice with its negative entries resolved; IndexError unless it is made of static integers."""
    entries: list[Any] = []
    for entry in (item.start, item.stop, item.step):
        if entry is not None and isinstance(entry, core.Tracer):
            raise IndexError(f"Slice entries must be static integers. Got {item} at position {axis}")
        entries.append(None if entry is None else sizes.whole(entry))
    return _resolved(entries[0], entries[1], entries[2], extent)


def _resolved(start: Any, stop: Any, step: Any, extent: Any) -> Cut:
    """``slice(start, stop, step).indices(extent)``; entries and extent may be sizes."""
    step = 1 if step is None else operator.index(step)
    if step == 0:
        raise ValueError("slice step cannot be zero")
    least, most = (0, extent) if step > 0 else (-1, extent - 1)

    def within(entry: Any) -> Any:
        if entry < 0:
            entry = entry + extent
            return least if entry < least else entry
        return most if entry > most else entry

    first, last = (least, most) if step > 0 else (most, least)
    return Cut(first if start is None else within(start), last if stop is None else within(stop), step)


def plan_of(
    items: list[Any], shape: tuple[int, ...], eager: bool, wrap: bool = True
) -> tuple[IndexPlan, list[Any]] | None:
    """The plan of items into an array of ``shape``, and its run-time integers; None if a gather is needed.

    If ``eager``, all integers and the starts of contiguous slices are run-time values.
    """
    if any(isinstance(item, index_items.Truth) or promotion.shape_of(item) for item in items if _is_array(item)):
        return None
    builder = _Builder(shape, eager, not eager and not any(map(_is_array, items)), wrap)
    for item in items:
        builder.add(item)
    strided = any(cut is not None and abs(cut.step) != 1 for cut in builder.cuts)
    is_long = max(shape, default=0) >= 2**31
    return None if builder.dynamic and (is_long or (strided and not eager)) else (builder.plan(), builder.integers)


def _is_array(item: Any) -> bool:
    return not (item is None or item is Ellipsis or isinstance(item, slice) or index_items.is_static(item))


class _Builder:
    """The parts of a plan, item by item."""

    def __init__(self, shape: tuple[int, ...], eager: bool, keep_static: bool, wrap: bool) -> None:
        self.shape, self.eager, self.keep_static, self.wrap = shape, eager, keep_static, wrap
        self.cuts: list[Cut | None] = []
        self.static: list[tuple[int, int]] = []
        self.dynamic: list[tuple[int, int]] = []
        self.integers: list[Any] = []
        self.new_axes: list[int] = []
        self.rank = 0

    def add(self, item: Any) -> None:
        if item is Ellipsis:
            return
        if item is None:
            self.new_axes.append(self.rank)
            self.rank += 1
        elif isinstance(item, slice):
            cut = cut_of(item, self.shape[len(self.cuts)], len(self.cuts))
            self._add_slice(cut, open_sizes.thread.session is None or item == slice(None))
            self.rank += 1
        else:
            self._add_integer(item)

    def _add_slice(self, cut: Cut, may_be_whole: bool) -> None:
        axis = len(self.cuts)
        whole = may_be_whole and cut == (
            0,
            self.shape[axis],
            1,
        )  # of an unknown size it is whole for all values or none
        moves = self.eager and cut.step == 1 and cut.size > 0 and not whole
        self.cuts.append(None if whole or moves else cut)
        if moves:
            self.dynamic.append((axis, cut.size))
            self.integers.append(cut.start)

    def _add_integer(self, item: Any) -> None:
        axis, extent = len(self.cuts), self.shape[len(self.cuts)]
        self.cuts.append(None)
        if extent == 0:
            raise IndexError(f"index is out of bounds for axis {axis} with size 0")
        known = index_items.is_static(item)
        position = int(item) if known else -1
        inside = known and (-extent if self.wrap else 0) <= position < extent
        if inside and self.keep_static:
            self.static.append((axis, position % extent))
            return
        self.dynamic.append((axis, 0))
        self.integers.append(item if self.eager or not known else position % extent if inside else position)

    def plan(self) -> IndexPlan:
        if self.dynamic:  # the static ones are starts of the same dynamic slice
            return IndexPlan(tuple(self.cuts), tuple(self.static), tuple(self.dynamic), tuple(self.new_axes), self.wrap)
        return IndexPlan(tuple(self.cuts), tuple(self.static), (), tuple(self.new_axes), True)


def take(x: Any, *integers: Any, plan: IndexPlan) -> Array:
    """Cuts and reversals, then the integers, then the new axes."""
    shape = promotion.shape_of(x)
    if plan.dynamic:
        if any(cut is not None and abs(cut.step) != 1 for cut in plan.cuts):
            x = _static_cuts(x, plan, shape)
            left = tuple([None for _ in plan.cuts])
            x = _at_integers(x, integers, plan._replace(cuts=left), promotion.shape_of(x))
        else:
            x = _at_integers(x, integers, plan, shape)
    else:
        x = _static_cuts(x, plan, shape)
        if plan.static:
            x = lax.squeeze(x, tuple(axis for axis, _ in plan.static))
    return lax.expand_dims(x, plan.new_axes) if plan.new_axes else promotion.as_array(x)


apply = inline(take, static_argnames=("plan",))


def _reversed(plan: IndexPlan) -> tuple[int, ...]:
    """The axes that are cut backwards; an empty cut has no direction."""
    return tuple([axis for axis, cut in enumerate(plan.cuts) if cut is not None and cut.step < 0 and cut.size])


def _ascending(cut: Cut) -> tuple[int, int, int]:
    """(start, stop, step) of the positions of a cut in ascending order."""
    start, stop, step = cut
    if not cut.size:
        return (start, start, 1) if step > 0 else (0, 0, 1)
    return (start, stop, step) if step > 0 else (start + (cut.size - 1) * step, start + 1, -step)


def _static_cuts(x: Any, plan: IndexPlan, shape: tuple[int, ...]) -> Any:
    starts, stops, steps = [0] * len(shape), list(shape), [1] * len(shape)
    for axis, cut in enumerate(plan.cuts):
        if cut is not None:
            starts[axis], stops[axis], steps[axis] = _ascending(cut)
    if not plan.dynamic:
        for axis, position in plan.static:
            starts[axis], stops[axis] = position, position + 1
    whole = (0,) * len(shape), shape, (1,) * len(shape)
    is_cut = open_sizes.thread.session is not None and any(cut is not None for cut in plan.cuts)
    if is_cut or (tuple(starts), tuple(stops), tuple(steps)) != whole:
        x = lax.slice(x, starts, stops, None if set(steps) <= {1} else steps)
    reversed_axes = _reversed(plan)
    return lax.rev(x, reversed_axes) if reversed_axes else x


def _at_integers(x: Any, integers: tuple[Any, ...], plan: IndexPlan, shape: tuple[int, ...]) -> Any:
    """One dynamic slice with extent 1 at the integers, which are then squeezed."""
    host = len(shape) == 1 and all(isinstance(i, int) for i in integers) and plan.wrap
    dtype = dtypes.canonicalize_dtype(np.int64) if host else np.dtype(np.int32)
    if len(shape) == 1 and plan.dynamic and not host:  # the one index keeps its type if it can count the elements
        own = promotion.dtype_of(integers[0])
        dtype = own if dtypes.iinfo(own).max >= shape[0] else dtype
    starts: list[Any] = [np.asarray(0, dtype)] * len(shape)
    sizes = list(shape)
    for axis, cut in enumerate(plan.cuts):
        if cut is not None:
            start, stop, _ = _ascending(cut)
            starts[axis], sizes[axis] = np.asarray(start, dtype), stop - start
    for axis, position in plan.static:
        starts[axis], sizes[axis] = np.asarray(position, dtype), 1
    for (axis, size), position in zip(plan.dynamic, integers, strict=True):
        starts[axis], sizes[axis] = promotion.convert(position, dtype), size or 1
    taken = lax.dynamic_slice(
        x, [promotion.as_array(start) for start in starts], sizes, allow_negative_indices=plan.wrap
    )
    reversed_axes = _reversed(plan)
    if reversed_axes:
        taken = lax.rev(taken, reversed_axes)
    dropped = {*(axis for axis, size in plan.dynamic if not size), *(axis for axis, _ in plan.static)}
    return lax.squeeze(taken, tuple(sorted(dropped))) if dropped else taken
