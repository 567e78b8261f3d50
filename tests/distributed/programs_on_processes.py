"""A job of several processes: programs on arrays across them give what one process gives, bit for bit but for sums.

Each process runs a program twice, on the whole arguments by itself and on its parts together with the others, and
compares its part of the results. Words of the command line name programs; without them all are run, on both meshes.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import weft
from tests.partitioning import programs
from tests.partitioning.namespaces import WEFT
from weft.sharding import AxisType, NamedSharding, PartitionSpec

BOUND = 1e-5  # relative to the largest element, for sums that were split


def values(argument: Any, seed: int) -> np.ndarray:
    """An argument: small multiples of 1/8, whose short sums are exact."""
    draw = np.random.default_rng(seed)
    if argument.top:
        return draw.integers(0, argument.top, argument.shape, np.int32)
    return (draw.integers(-8, 9, argument.shape) / 8).astype(np.float32)


def on_processes(program: Any, mesh: Any) -> tuple[list[Any], list[Any]]:
    """(leaves of what this process alone gives, of what all give together)."""
    function = weft.jit(program.make(WEFT))
    whole = [values(argument, seed) for seed, argument in enumerate(program.arguments)]
    given = []
    for value, argument in zip(whole, program.arguments, strict=True):
        spec = PartitionSpec() if argument.spec is None else PartitionSpec(*argument.spec)
        given.append(weft.device_put(value, NamedSharding(mesh, spec)))
    return weft.tree.leaves(function(*whole)), weft.tree.leaves(function(*given))


def difference(want: Any, found: Any) -> float:
    """The largest difference of this process's parts, relative to the largest element; -1: they are equal in bits."""
    want, worst, same = np.asarray(want), 0.0, True
    for shard in found.addressable_shards:
        part, mine = want[shard.index], np.asarray(shard.data)
        assert part.shape == mine.shape and part.dtype == mine.dtype, (part.shape, mine.shape, part.dtype, mine.dtype)
        same = same and part.tobytes() == mine.tobytes()
        if part.size and part.dtype.kind in "fc":
            assert np.array_equal(np.isnan(part), np.isnan(mine))
            scale = max(float(np.nanmax(np.abs(want))), 1e-30)
            worst = max(worst, float(np.nanmax(np.abs(part - mine))) / scale)
        elif part.size:
            assert np.array_equal(part, mine), (part, mine)
    return -1.0 if same else worst


def check(name: str, program: Any, mesh: Any) -> bool | None:
    """Whether all bits are equal; AssertionError where more than the order of sums differs. None: it is refused."""
    try:
        want, found = on_processes(program, mesh)
    except NotImplementedError as error:
        assert "not next to each other" in str(error), error
        return None
    worst = max([difference(*pair) for pair in zip(want, found, strict=True)], default=-1.0)
    assert worst <= BOUND, f"{name} on {mesh}: results differ by {worst}"
    return worst < 0


def main(names: list[str]) -> None:
    weft.distributed.initialize()
    auto = (AxisType.Auto, AxisType.Auto)
    count = weft.device_count()
    meshes = [weft.make_mesh((2, count // 2), axes, axis_types=auto) for axes in (("x", "y"), ("y", "x"))]
    chosen = {name: program for name, program in programs.PROGRAMS.items() if not names or name in names}
    found = [
        check(name, program, mesh)
        for number, (name, program) in enumerate(chosen.items())
        for mesh in ([meshes[number % 2]] if names else meshes)
    ]
    print(f"{found.count(True)} equal, {found.count(False)} nearly, {found.count(None)} refused", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
