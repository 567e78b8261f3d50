"""Basic indexing: integers (static or traced), slices, None and Ellipsis, in views and one dynamic slice.

An index is split into a plan, which is static, and the integers that are only known at run time. While tracing, a
static integer within bounds becomes a slice; outside a trace all integers are run-time values, so that a loop over
``x[i]`` is one compiled program. An out-of-bounds integer is clamped, as a traced one is::

    x[1:, ::2]   ->  slice[start_indices=(1, 0) strides=(1, 2)]
    x[i]         ->  i normalised, dynamic_slice[slice_sizes=(1, 4)], squeeze
    x[None, 0]   ->  slice, squeeze, broadcast_in_dim
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from weft import core, dtypes, errors, runtime
from weft import operations as lax
from weft.higher import jit as jit_module
from weft.numpy import promotion

inline = functools.partial(jit_module.jit, inline=True)


class Cut(NamedTuple):
    """A static slice of one axis: ascending positions, then perhaps reversed."""

    start: int
    stop: int
    step: int
    reverse: bool


class Plan(NamedTuple):
    """What a basic index does to an array, but for the run-time integers, which are numbered in ``dynamic``."""

    cuts: tuple[Cut | None, ...]  # per axis; None keeps it whole (or leaves it to ``dynamic``)
    static: tuple[tuple[int, int], ...]  # (axis, position) of integers known while tracing
    dynamic: tuple[int, ...]  # axes taken at run-time integers
    new_axes: tuple[int, ...]  # positions of None in the result


def index(x: Any, idx: Any) -> Any:
    """``x[idx]`` for a basic index; NotImplementedError for arrays of integers or booleans.

    IndexError for too many indices, TypeError for what is no index.
    """
    if isinstance(x, runtime.Array) and type(idx) is int and x.ndim:  # the commonest eager index
        if x.shape[0] == 0:
            raise IndexError("index is out of bounds for axis 0 with size 0")
        return _apply(x, idx, plan=_first_axis(x.ndim))
    if not isinstance(x, core.Tracer):
        plan, integers = plan_of(idx, tuple(x.shape), keep_static=False)
        return _apply(x, *integers, plan=plan)
    key = (x.shape, *[_written(item) for item in (idx if type(idx) is tuple else (idx,))])
    known = None if False in key else _static_plans.get(key)
    if known is not None:
        return _apply(x, plan=known)
    plan, integers = plan_of(idx, tuple(x.shape), keep_static=True)
    if not integers and False not in key:
        if len(_static_plans) >= _PLANS_BOUND:
            _static_plans.clear()
        _static_plans[key] = plan
    return _apply(x, *integers, plan=plan)


_static_plans: dict[tuple[Any, ...], Plan] = {}  # (shape, the items of an index as written) -> its plan
_PLANS_BOUND = 4096


def _written(item: Any) -> Any:
    """An index item as part of a key: an integer, None, Ellipsis, or the numbers of a slice; False for another."""
    kind = type(item)
    if kind is slice:
        entries = (item.start, item.stop, item.step)
        return entries if all(entry is None or type(entry) is int for entry in entries) else False
    return (item,) if kind is int or item is None or item is Ellipsis else False


@functools.lru_cache(maxsize=64)
def _first_axis(rank: int) -> Plan:
    return Plan((None,) * rank, (), (0,), ())


def plan_of(idx: Any, shape: tuple[int, ...], keep_static: bool) -> tuple[Plan, list[Any]]:
    """The plan of an index into an array of ``shape``, and its run-time integers."""
    items = idx if isinstance(idx, tuple) else (idx,)
    items = _without_ellipsis(items, shape)
    traced = any(isinstance(item, core.Tracer | runtime.Array) for item in items)
    cuts: list[Cut | None] = []
    static: list[tuple[int, int]] = []
    dynamic: list[int] = []
    integers: list[Any] = []
    new_axes: list[int] = []
    kept = 0
    for item in items:
        if item is None:
            new_axes.append(kept)
            kept += 1
            continue
        axis = len(cuts)
        extent = shape[axis]
        if isinstance(item, slice):
            cuts.append(_cut(item, extent, axis))
            kept += 1
            continue
        cuts.append(None)
        if extent == 0:
            raise IndexError(f"index is out of bounds for axis {axis} with size 0")
        position = _static_integer(item) if keep_static else None
        if position is not None and -extent <= position < extent and not traced:
            static.append((axis, position % extent))
        else:
            dynamic.append(axis)
            integers.append(
                item if position is None else position % extent if -extent <= position < extent else position
            )
    return Plan(tuple(cuts), tuple(static), tuple(dynamic), tuple(new_axes)), integers


def _static_integer(item: Any) -> int | None:
    return int(item) if isinstance(item, int | np.integer) else None


def _without_ellipsis(items: tuple[Any, ...], shape: tuple[int, ...]) -> list[Any]:
    """Checked items with the Ellipsis, or the missing end, written out as full slices."""
    for item in items:
        _check_item(item)
    count = sum(item is Ellipsis for item in items)
    if count > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    used = sum(item is not None and item is not Ellipsis for item in items)
    if used > len(shape):
        raise IndexError(f"Too many indices: array is {len(shape)}-dimensional, but {used} were indexed")
    missing = [slice(None)] * (len(shape) - used)
    if count == 0:
        return [*items, *missing]
    position = next(i for i, item in enumerate(items) if item is Ellipsis)
    return [*items[:position], *missing, *items[position + 1 :]]


def _check_item(item: Any) -> None:
    """Raise for anything but an integer scalar, a slice, None and Ellipsis."""
    if item is None or item is Ellipsis or isinstance(item, slice) or type(item) is int:
        return
    if isinstance(item, str):
        raise TypeError(f"JAX does not support string indexing; got idx={item!r}")
    if isinstance(item, list | tuple):
        raise TypeError(
            "Using a non-tuple sequence for multidimensional indexing is not allowed; use `arr[array(seq)]` instead of "
            "`arr[seq]`. See https://github.com/jax-ml/jax/issues/4564 for more information."
        )
    if isinstance(item, bool | np.bool_):
        raise NotImplementedError("weft.numpy: indexing with a boolean is not implemented yet (it needs gather)")
    dtype = getattr(item, "dtype", None)
    if dtype is None:
        if isinstance(item, int) or hasattr(item, "__index__"):
            return
        dtype = np.asarray(item).dtype
    if dtype == np.bool_:
        if isinstance(item, core.Tracer):
            raise errors.NonConcreteBooleanIndexError(item)
        raise NotImplementedError("weft.numpy: indexing with a boolean array is not implemented yet (it needs gather)")
    if not dtypes.issubdtype(dtype, np.integer):
        raise TypeError(f"Indexer must have integer or boolean type, got indexer with type {dtype}")
    if promotion.shape_of(item) != ():
        raise NotImplementedError("weft.numpy: indexing with an integer array is not implemented yet (it needs gather)")


def _cut(item: slice, extent: int, axis: int) -> Cut | None:
    """A slice with its negative entries resolved; None if it is the whole axis."""
    entries = []
    for entry in (item.start, item.stop, item.step):
        if entry is not None and (isinstance(entry, core.Tracer) or not hasattr(entry, "__index__")):
            raise IndexError(f"Slice entries must be static integers. Got {item} at position {axis}")
        entries.append(None if entry is None else operator.index(entry))
    start, stop, step = slice(*entries).indices(extent)
    count = len(range(start, stop, step))
    if step > 0:
        if count == 0:
            return Cut(start, start, 1, False)
        return None if (start, step) == (0, 1) and stop == extent else Cut(start, stop, step, False)
    if count == 0:
        return Cut(0, 0, 1, False)
    return Cut(start + (count - 1) * step, start + 1, -step, True)


@functools.partial(inline, static_argnames=("plan",))
def _apply(x: Any, *integers: Any, plan: Plan) -> Any:
    """Cuts and reversals, then the integers, then the new axes."""
    shape = promotion.shape_of(x)
    only_whole = all(c is None or (c.step == 1 and not c.reverse) for c in plan.cuts)
    if plan.dynamic and only_whole:
        x = _at_integers(x, integers, plan, shape)
    else:
        x = _static_cuts(x, plan, shape)
        if plan.dynamic:
            left = tuple(None for _ in plan.cuts)
            x = _at_integers(x, integers, plan._replace(cuts=left), promotion.shape_of(x))
        elif plan.static:
            x = lax.squeeze(x, tuple(axis for axis, _ in plan.static))
    return lax.expand_dims(x, plan.new_axes) if plan.new_axes else promotion.as_array(x)


def _static_cuts(x: Any, plan: Plan, shape: tuple[int, ...]) -> Any:
    starts, stops, steps = [0] * len(shape), list(shape), [1] * len(shape)
    for axis, cut in enumerate(plan.cuts):
        if cut is not None:
            starts[axis], stops[axis], steps[axis] = cut.start, cut.stop, cut.step
    if not plan.dynamic:
        for axis, position in plan.static:
            starts[axis], stops[axis] = position, position + 1
    whole = (0,) * len(shape), shape, (1,) * len(shape)
    if (tuple(starts), tuple(stops), tuple(steps)) != whole:
        x = lax.slice(x, starts, stops, None if set(steps) <= {1} else steps)
    reversed_axes = tuple(axis for axis, cut in enumerate(plan.cuts) if cut is not None and cut.reverse)
    return lax.rev(x, reversed_axes) if reversed_axes else x


def _at_integers(x: Any, integers: tuple[Any, ...], plan: Plan, shape: tuple[int, ...]) -> Any:
    """One dynamic slice with extent 1 at the integers, which are then squeezed."""
    host = len(shape) == 1 and all(isinstance(i, int) for i in integers)
    wide = host or max(shape, default=0) >= 2**31
    dtype = dtypes.canonicalize_dtype(np.int64) if wide else np.dtype(np.int32)
    starts: list[Any] = [np.asarray(0, dtype)] * len(shape)
    sizes = list(shape)
    for axis, cut in enumerate(plan.cuts):
        if cut is not None:
            starts[axis], sizes[axis] = np.asarray(cut.start, dtype), cut.stop - cut.start
    for axis, position in plan.static:
        starts[axis], sizes[axis] = np.asarray(position, dtype), 1
    for axis, position in zip(plan.dynamic, integers, strict=True):
        starts[axis], sizes[axis] = promotion.convert(position, dtype), 1
    taken = lax.dynamic_slice(x, [promotion.as_array(start) for start in starts], sizes)
    squeezed = {*plan.dynamic, *(axis for axis, _ in plan.static)}
    return lax.squeeze(taken, tuple(sorted(squeezed)))


def rows(x: Any) -> Iterator[Any]:
    """The slices of a traced array along its first axis, each recorded when iteration comes to it."""
    return (lax.squeeze(lax.slice_in_dim(x, i, i + 1), (0,)) for i in range(promotion.shape_of(x)[0]))
