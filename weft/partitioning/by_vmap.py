"""Runs the program of each device under ``vmap`` over the axes of the mesh, on shards of whole arrays.

Under ``WEFT_CHECK=1`` a program's results are compared with those of the whole program on the same arguments.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.batching.vmap import vmap
from weft.core.programs.eval import eval_jaxpr
from weft.core.programs.jaxpr import ClosedJaxpr
from weft.partitioning.specs import Sizes, Spec, parts


def region(shape: Sequence[int], spec: Spec, coordinates: dict[Any, int], sizes: Sizes) -> tuple[slice, ...]:
    """The part of an array that the device at these coordinates of the mesh has."""
    found = []
    for extent, axes in zip(shape, spec, strict=True):
        number = 0
        for axis in axes:
            number = number * sizes[axis] + coordinates[axis]
        size = extent // parts(axes, sizes)
        found.append(slice(number * size, (number + 1) * size))
    return tuple(found)


def all_coordinates(sizes: Sizes) -> list[dict[Any, int]]:
    """The coordinates of every device of a mesh, in row-major order."""
    return [dict(zip(sizes, at, strict=True)) for at in itertools.product(*map(range, sizes.values()))]


def stacked(value: Any, spec: Spec, sizes: Sizes) -> np.ndarray:
    """The shards of an array along new leading dimensions, one for each axis of the mesh."""
    value = np.asarray(value)
    shards = np.stack([value[region(value.shape, spec, coordinates, sizes)] for coordinates in all_coordinates(sizes)])
    return shards.reshape(*sizes.values(), *shards.shape[1:])


def joined(shards: Any, shape: Sequence[int], spec: Spec, sizes: Sizes) -> np.ndarray:
    """The array of these shards. ValueError if devices that have the same part differ."""
    shards = np.asarray(shards)
    whole = np.zeros(tuple(shape), shards.dtype)
    seen = np.zeros(tuple(shape), bool)
    for coordinates in all_coordinates(sizes):
        mine, shard = region(shape, spec, coordinates, sizes), shards[tuple(coordinates.values())]
        if seen[mine].any() and whole[mine].tobytes() != shard.tobytes():
            raise ValueError(f"the device at {coordinates} has other elements than a device with the same part")
        whole[mine], seen[mine] = shard, True
    return whole


def run(
    local: ClosedJaxpr, args: Sequence[Any], in_specs: Sequence[Spec], out_specs: Sequence[Spec],
    out_shapes: Sequence[Sequence[int]], sizes: Sizes,
) -> list[np.ndarray]:  # fmt: skip
    """The results of the whole program, computed by the local program of every device."""
    shards = [stacked(value, spec, sizes) for value, spec in zip(args, in_specs, strict=True)]
    function: Any = functools.partial(eval_jaxpr, local.jaxpr, local.consts)
    for name, size in list(sizes.items())[::-1]:
        function = vmap(function, axis_name=name, axis_size=size)
    outs = function(*shards)
    return [joined(out, shape, spec, sizes) for out, shape, spec in zip(outs, out_shapes, out_specs, strict=True)]
