"""Moves: how an array goes from one spec to another, in the fewest bytes that simple steps allow.

((x), ()) -> ((), ())      all_gather along dimension 0
((x), ()) -> ((), (x))     all_to_all
((), ()) -> ((x), ())      each device takes its slice: no bytes
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._base.record import Record
from weft.core import axis_names
from weft.core.programs.jaxpr import ClosedJaxpr
from weft.core.tracing.trace import trace_to_jaxpr
from weft.operations import collectives, exchanges
from weft.operations.data_movement import index
from weft.operations.pointwise import arithmetic
from weft.partitioning.specs import Axes, Sizes, Spec, parts


class Cut(Record):
    """Each device had all of a dimension, and takes its part along these axes."""

    dim: int
    axes: Axes


class Gather(Record):
    """Each device gets the parts that the others have along the innermost axes of a dimension."""

    dim: int
    axes: Axes


class Exchange(Record):
    """The innermost axis of one dimension becomes that of another."""

    source: int
    target: int
    axis: Any


class Sum(Record):
    """The results of the parts of a sum, or of an extremum (``combiner``), are combined."""

    axes: Axes
    combiner: str


class SumPart(Record):
    """The results of the parts of a sum are added, and each device gets its part of a dimension."""

    dim: int
    axes: Axes


Move = Cut | Gather | Exchange | Sum | SumPart
NAMES = {Gather: "all_gather", Exchange: "all_to_all", SumPart: "psum_scatter"}


@functools.lru_cache(maxsize=4096)
def moves(old: Spec, new: Spec) -> tuple[Move, ...]:
    """The steps from one spec to another."""
    current = list(old)
    found: list[Move] = []
    while True:
        _cut_what_is_free(current, new, found)
        if _exchange(current, new, found):
            continue
        if tuple(current) == new:
            return tuple(found)
        dim = next(d for d, (have, want) in enumerate(zip(current, new, strict=True)) if want[: len(have)] != have)
        kept = _in_common(current[dim], new[dim])
        found.append(Gather(dim, current[dim][kept:]))
        current[dim] = current[dim][:kept]


def _in_common(left: Axes, right: Axes) -> int:
    count = 0
    while count < min(len(left), len(right)) and left[count] == right[count]:
        count += 1
    return count


def _cut_what_is_free(current: list[Axes], new: Spec, found: list[Move]) -> None:
    for dim, want in enumerate(new):
        have = current[dim]
        if len(want) <= len(have) or want[: len(have)] != have:
            continue
        used = {axis for axes in current for axis in axes}
        free = 0
        for axis in want[len(have) :]:
            if axis in used:
                break
            free += 1
        if free:
            current[dim] = want[: len(have) + free]
            found.append(Cut(dim, current[dim][len(have) :]))


def _exchange(current: list[Axes], new: Spec, found: list[Move]) -> bool:
    for source, have in enumerate(current):
        if not have or new[source][: len(have)] == have or new[source][: len(have) - 1] != have[:-1]:
            continue
        axis = have[-1]
        for target, other in enumerate(current):
            if target != source and new[target][: len(other) + 1] == (*other, axis):
                current[source], current[target] = have[:-1], (*other, axis)
                found.append(Exchange(source, target, axis))
                return True
    return False


def combined(axes: Axes, combiner: str, spec: Spec, wanted: Spec) -> tuple[Move, ...]:
    """The steps from results of parts, which lie as ``spec``, to their combination as ``wanted``.

    If each device wants only its part of a sum, along the same axes, the sum is made in parts at once.
    """
    if combiner == "sum":
        for dim, (have, want) in enumerate(zip(spec, wanted, strict=True)):
            mine = want[len(have) :]
            if mine and want[: len(have)] == have and set(mine) <= set(axes):
                rest = tuple([axis for axis in axes if axis not in mine])
                after = (*spec[:dim], want, *spec[dim + 1 :])
                first = (SumPart(dim, mine),)
                return (*first, *(combined(rest, combiner, after, wanted) if rest else moves(after, wanted)))
    return (Sum(axes, combiner), *moves(spec, wanted))


def cost(steps: Sequence[Move], size: float, sizes: Sizes) -> float:
    """The bytes that a device receives, if its shard has ``size`` bytes before the first step."""
    total = 0.0
    for step in steps:
        received, size = received_and_size(step, size, sizes)
        total += received
    return total


def received_and_size(step: Move, size: float, sizes: Sizes) -> tuple[float, float]:
    """The bytes that a device receives in a step, and the size of its shard afterwards."""
    kind = type(step)
    if kind is Exchange:
        return size * (1 - 1 / sizes[step.axis]), size  # type: ignore[union-attr] - the kind is known
    count = parts(step.axes, sizes)  # type: ignore[union-attr] - the kind is known
    if kind is Cut:
        return 0.0, size / count
    if kind is Gather:
        return size * (count - 1), size * count
    if kind is SumPart:
        return size * (1 - 1 / count), size / count
    if step.combiner == "again":  # type: ignore[union-attr] - the kind is known
        return size * (count - 1), size
    return 2 * size * (1 - 1 / count), size


# -- steps as programs -------------------------------------------------------------------------------------------------


def program(steps: tuple[Move, ...], aval: Any, sizes: Sizes, again: Callable[[Any], Any] | None = None) -> ClosedJaxpr:
    """The steps as a program of a shard of type ``aval``; ``again`` reduces the first dimension of stacked results."""

    def run(x: Any) -> tuple[Any]:
        for step in steps:
            x = _step(step, x, sizes, again)
        return (x,)

    with axis_names.bound(tuple(sizes.items())):
        return trace_to_jaxpr(run, [aval])[0]


def _step(step: Move, x: Any, sizes: Sizes, again: Callable[[Any], Any] | None) -> Any:
    if isinstance(step, Cut):
        extent = x.shape[step.dim] // parts(step.axes, sizes)
        starts: list[Any] = [np.int32(0)] * x.ndim
        starts[step.dim] = first_index(step.axes, extent)
        sizes_ = (*x.shape[: step.dim], extent, *x.shape[step.dim + 1 :])
        return index.dynamic_slice_p.bind(x, *starts, slice_sizes=sizes_)
    if isinstance(step, Gather):
        return exchanges.all_gather(x, step.axes, axis=step.dim, tiled=True)
    if isinstance(step, Exchange):
        return exchanges.all_to_all(x, step.axis, step.target, step.source, tiled=True)
    if isinstance(step, SumPart):
        return exchanges.psum_scatter(x, step.axes, scatter_dimension=step.dim, tiled=True)
    if step.combiner == "again":
        assert again is not None
        return again(exchanges.all_gather(x, step.axes))
    return {"sum": collectives.psum, "max": collectives.pmax, "min": collectives.pmin}[step.combiner](x, step.axes)


def first_index(axes: Axes, extent: int) -> Any:
    """Where the part of this device begins, in a dimension that is cut along these axes into parts of this extent."""
    return arithmetic.mul(index_along(axes), np.int32(extent))


def index_along(axes: Axes) -> Any:
    """The number of this device along these axes together."""
    names = list(axes)
    return collectives.axis_index(names if len(names) > 1 else names[0])
