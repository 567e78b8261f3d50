"""Process grids: how a mesh is divided among processes, and which block of an array each process has.

Each axis of a mesh is one of processes, of devices within a process, or both::

    devices (process.device)   0.0 0.1 1.0 1.1     axis x of 4 = 2 processes (outer) times 2 devices (inner)

A process has the parts of all its devices in one block, which exists where these parts are a rectangle of the array.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft._base.record import NamedTuple
from weft.core.sharding.partition_specs import names_of
from weft.core.sharding.shardings import Index, NamedSharding, Sharding


class Grid(NamedTuple):
    """A mesh as a grid of processes, where each process has a grid of devices."""

    outer: dict[Any, int]  # how many processes there are along each axis of the mesh
    inner: dict[Any, int]  # how many devices of a process there are along each axis
    ranks: Any  # the process at each point of the grid: an array of ints
    coordinates: tuple[int, ...]  # of this process


@functools.lru_cache(256)
def grid_of(mesh: Any) -> Grid:
    """The grid of a mesh. NotImplementedError if the devices of the processes are no equal boxes of the mesh."""
    owners = np.array([device.process_index for device in mesh.flat_devices]).reshape(mesh.axis_sizes)
    if not any(device.is_local for device in mesh.flat_devices):
        raise NotImplementedError(f"[mesh] this process has none of the devices of {mesh}: {_text(owners)}")
    outer = []
    for axis in range(owners.ndim):
        lines = np.moveaxis(owners, axis, 0)
        changes = [bool((lines[i] != lines[i - 1]).any()) for i in range(1, len(lines))]
        outer.append(1 + sum(changes))
    inner = [size // count for size, count in zip(owners.shape, outer, strict=True)]
    ranks = owners[tuple([slice(None, None, max(step, 1)) for step in inner])]
    regular = all(count * step == size for count, step, size in zip(outer, inner, owners.shape, strict=True))
    whole = ranks
    for axis, step in enumerate(inner):
        whole = np.repeat(whole, step, axis) if regular else whole
    if not regular or not np.array_equal(whole, owners) or len(set(ranks.flat)) != ranks.size:
        raise NotImplementedError(
            f"[mesh] the devices of each process have to be a box of the mesh, all of one shape, and here they are not:"
            f" {_text(owners)} says which process has which device of {mesh}. weft.make_mesh and "
            "mesh_utils.create_hybrid_device_mesh make such meshes"
        )
    mine = next(device.process_index for device in mesh.flat_devices if device.is_local)
    coordinates = tuple([int(at[0]) for at in np.nonzero(ranks == mine)])
    names = mesh.axis_names
    return Grid(dict(zip(names, outer, strict=True)), dict(zip(names, inner, strict=True)), ranks, coordinates)


def _text(owners: np.ndarray) -> str:
    return np.array2string(owners, separator=" ").replace("\n", "")


def block_spec(sharding: Sharding, ndim: int) -> tuple[tuple[Any, ...], ...]:
    """For each dimension the mesh axes that cut it between processes; NotImplementedError for blocks in pieces."""
    if not isinstance(sharding, NamedSharding):
        return ((),) * ndim
    grid = grid_of(sharding.mesh)
    found = []
    for dimension, entry in enumerate(sharding.spec.padded(ndim).partitions):
        names = names_of(entry)
        last = max([at for at, name in enumerate(names) if grid.outer[name] > 1], default=-1)
        if any(grid.inner[name] > 1 for name in names[: max(last, 0)]):
            raise NotImplementedError(
                f"[sharding] along dimension {dimension} the parts that one process has are not next to each other: "
                f"{sharding.spec} names {[name for name in names if grid.inner[name] > 1]}, along which a process has "
                f"several devices, before {names[last]!r}, along which processes differ. Name the axes in another "
                "order, or use other axes"
            )
        found.append(tuple([name for name in names if grid.outer[name] > 1]))
    return tuple(found)


def block_shape(sharding: Sharding, shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of the block of each process."""
    if not isinstance(sharding, NamedSharding):
        return tuple(shape)
    outer = grid_of(sharding.mesh).outer
    spec = block_spec(sharding, len(shape))
    return tuple([n // math.prod([outer[name] for name in names]) for n, names in zip(shape, spec, strict=True)])


def block_index(sharding: Sharding, shape: Sequence[int]) -> Index:
    """Where the block of this process lies in the array."""
    if not isinstance(sharding, NamedSharding):
        return tuple([slice(0, extent) for extent in shape])
    grid = grid_of(sharding.mesh)
    at = dict(zip(grid.outer, grid.coordinates, strict=True))
    found = []
    for names, size in zip(block_spec(sharding, len(shape)), block_shape(sharding, shape), strict=True):
        number = 0
        for name in names:
            number = number * grid.outer[name] + at[name]
        found.append(slice(number * size, (number + 1) * size))
    return tuple(found)


def within_block(index: Index, block: Index) -> Index:
    """An index of the whole array as one of a block that contains it."""
    found = []
    for part, own in zip(index, block, strict=True):
        start = own.start if part.start is None else part.start
        stop = own.stop if part.stop is None else part.stop
        found.append(slice(start - own.start, stop - own.start))
    return tuple(found)


def groups_along(grid: Grid, axes: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
    """The processes that differ only along these axes, in groups; the first axis is the outermost."""
    names = list(grid.outer)
    others = [name for name in names if name not in axes]
    order = [names.index(name) for name in (*others, *axes)]
    count = math.prod([grid.outer[name] for name in axes])
    rows = np.transpose(grid.ranks, order).reshape(-1, count)
    return tuple([tuple(map(int, row)) for row in rows])


def number_along(grid: Grid, axes: Sequence[Any]) -> int:
    """The number of this process along these axes together, the first outermost."""
    at, number = dict(zip(grid.outer, grid.coordinates, strict=True)), 0
    for name in axes:
        number = number * grid.outer[name] + at[name]
    return number


def all_coordinates(grid: Grid) -> list[tuple[int, ...]]:
    """The coordinates of every process, in row-major order."""
    return list(itertools.product(*map(range, grid.outer.values())))
