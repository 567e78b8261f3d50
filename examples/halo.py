"""Heat in a plate that is cut in two: in every step each half sends its neighbour the row along the cut.

    python examples/halo.py                                # two virtual devices in this process
    weft launch -n 2 examples/halo.py                      # two processes
    python examples/halo.py --devices 8 --size 400 --steps 2000

Method: explicit finite differences for dT/dt = div grad T, five points, zero at the edges. A strip of the plate needs
the last row of the strip above it and the first of the one below (its halo), which `ppermute` brings; whoever has no
neighbour receives zeros, which is the cold edge. The plate on one device must have the same temperatures.
"""

from __future__ import annotations

import argparse
import functools
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import rich.console
import rich.progress
import rich.table

import weft
import weft.numpy as jnp
from weft import lax
from weft.experimental import multihost_utils
from weft.sharding import AxisType, Mesh, NamedSharding
from weft.sharding import PartitionSpec as P

RATE = 0.2  # time step over the square of the distance of points; stable below 0.25
PICTURES = 4


class Result(NamedTuple):
    times: list[int]  # steps after which the plate was looked at
    plates: list[np.ndarray]
    difference: float  # the largest between the plate in strips and the whole one


def first_temperatures(size: int) -> np.ndarray:
    """A hot ring and a hot square, off the middle."""
    y, x = np.mgrid[:size, :size] / size
    ring = np.abs(np.hypot(x - 0.4, y - 0.45) - 0.2) < 0.04
    square = (np.abs(x - 0.75) < 0.08) & (np.abs(y - 0.7) < 0.08)
    return np.where(ring | square, 100, 0).astype(np.float32)


def cooled(plate: Any, above: Any, below: Any) -> Any:
    """The plate after a step; ``above`` and ``below`` are the rows beyond it, f32[1, width]."""
    tall = jnp.concatenate([above, plate, below])
    wide = jnp.pad(plate, ((0, 0), (1, 1)))
    neighbours = tall[:-2] + tall[2:] + wide[:, :-2] + wide[:, 2:]
    return plate + RATE * (neighbours - 4 * plate)


@functools.partial(weft.jit, static_argnames="steps")
def whole(plate: Any, steps: int) -> Any:
    edge = jnp.zeros((1, plate.shape[1]), plate.dtype)
    return lax.fori_loop(0, steps, lambda _, plate: cooled(plate, edge, edge), plate)


def in_strips(mesh: Mesh, steps: int) -> Any:
    """What takes ``steps`` steps of a plate whose rows are cut along the mesh."""
    count = mesh.size
    down = [(i, i + 1) for i in range(count - 1)]  # strip i sends to strip i + 1
    up = [(i + 1, i) for i in range(count - 1)]

    def step(_: Any, strip: Any) -> Any:
        above = lax.ppermute(strip[-1:], "rows", down)
        below = lax.ppermute(strip[:1], "rows", up)
        return cooled(strip, above, below)

    def run(strip: Any) -> Any:
        return lax.fori_loop(0, steps, step, strip)

    return weft.jit(weft.shard_map(run, mesh=mesh, in_specs=P("rows"), out_specs=P("rows")))


def gathered(plate: Any) -> np.ndarray:
    """The whole plate on the host, on every process."""
    if plate.is_fully_addressable:
        return np.asarray(plate)
    return np.asarray(multihost_utils.process_allgather(plate, tiled=True))


def simulate(mesh: Mesh, size: int, steps: int, console: rich.console.Console) -> Result:
    start, each = first_temperatures(size), steps // (PICTURES - 1)
    sharding = NamedSharding(mesh, P("rows"))
    plate, alone = weft.make_array_from_callback(start.shape, sharding, lambda index: start[index]), start
    run = in_strips(mesh, each)
    times, plates, seconds, difference = [0], [start], [0.0, 0.0], 0.0
    for _ in rich.progress.track(range(PICTURES - 1), "cooling", console=console):
        begin = time.perf_counter()
        plate = weft.block_until_ready(run(plate))
        middle = time.perf_counter()
        alone = weft.block_until_ready(whole(alone, each))
        seconds = [seconds[0] + middle - begin, seconds[1] + time.perf_counter() - middle]
        times.append(times[-1] + each)
        plates.append(gathered(plate))
        difference = max(difference, float(np.abs(plates[-1] - np.asarray(alone)).max()))
    words = f"{seconds[0]:.2f} s in {mesh.size} strips, {seconds[1]:.2f} s whole, compilation included"
    console.print(f"{times[-1]} steps of {size} x {size} points: {words}")
    return Result(times, plates, difference)


def plot(result: Result, strips: int, path: Path) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415 - slow to import, and wanted only for a plot

    figure = Figure(figsize=(10, 2.9))
    for i, (steps, plate) in enumerate(zip(result.times, result.plates)):
        axes = figure.add_subplot(1, PICTURES, i + 1)
        axes.imshow(plate, cmap="inferno", vmin=0, vmax=60)
        for cut in range(1, strips):
            axes.axhline(cut * len(plate) / strips - 0.5, color="white", linewidth=0.6)
        axes.set_title(f"after {steps} steps")
        axes.set_axis_off()
    figure.savefig(path, bbox_inches="tight")


def main(arguments: list[str] | None = None) -> Result:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=2, help="into how many strips the plate is cut")
    parser.add_argument("--size", type=int, default=200, help="points along a side; a multiple of the strips")
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--plot", type=Path, default=Path("halo.png"), help="where the plates are drawn")
    options = parser.parse_args(arguments)
    if options.size % options.devices:
        raise SystemExit(f"{options.size} rows cannot be cut into {options.devices} equal strips")
    launch = weft.distributed.environment.find()  # None unless weft launch, mpirun or srun started this process
    processes = 1 if launch is None else launch.size
    weft.config.update("num_cpu_devices", options.devices // processes)
    if launch is not None:
        weft.distributed.initialize()
    console = rich.console.Console(quiet=weft.process_index() > 0)  # one process prints
    mesh = weft.make_mesh((options.devices,), ("rows",), (AxisType.Auto,))
    result = simulate(mesh, options.size, options.steps, console)
    table = rich.table.Table("steps", "warmest point", "heat in the plate")
    for steps, plate in zip(result.times, result.plates):
        table.add_row(str(steps), f"{plate.max():.2f}", f"{plate.mean():.3f}")
    console.print(table)
    if weft.process_index() == 0:
        plot(result, options.devices, options.plot)
    console.print(
        f"{options.devices} strips on {processes} process{'es' * (processes > 1)}: the largest difference to the plate"
        f" on one device is {result.difference:.1e}; picture: {options.plot}"
    )
    if result.difference > 1e-3:
        raise SystemExit("the plate in strips is another one than the whole plate")
    return result


if __name__ == "__main__":
    main()
