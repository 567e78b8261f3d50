"""Compiles the programs of the tour and of the examples for a TPU that is not here: ``make tpu``.

A line for each program: milliseconds to write and compile it, and the compiler's estimates. Needs the package libtpu.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import weft
import weft.numpy as wnp
from weft import lax
from weft.experimental import topologies
from weft.sharding import AxisType, NamedSharding
from weft.sharding import PartitionSpec as P
from weft.tour import programs

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TOPOLOGY = "v5e:2x2"


def float32(*shape: int) -> Any:
    return weft.ShapeDtypeStruct(shape, "float32")


def of_the_tour() -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    vector = float32(programs.ONE_MILLION)
    yield "sum_of_squares_and_sines", programs.sum_of_squares_and_sines, (vector,)
    yield "selu", programs.selu, (vector,)
    yield "grad of selu", weft.grad(lambda x: programs.selu(x).sum()), (vector,)
    for n in programs.MATRIX_SIZES:
        yield f"matmul {n}", lambda x, y: x @ y, (float32(n, n), float32(n, n))


def of_the_examples() -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    key = weft.random.key(0)
    digits = runpy.run_path(str(EXAMPLES / "digits_mlp.py"))
    parameters = digits["initial_parameters"](key)
    images, labels = float32(64, 64), weft.ShapeDtypeStruct((64,), "int32")
    yield "digits_mlp: loss and gradient", weft.value_and_grad(digits["loss"]), (parameters, images, labels)
    yield "digits_mlp: predict", digits["predict"], (parameters, images)
    walkers = runpy.run_path(str(EXAMPLES / "mcmc_walkers.py"))
    x, y, _ = walkers["data"]()
    yield "mcmc_walkers: walk_all", lambda key: walkers["walk_all"](key, x, y, 100), (key,)
    ode = runpy.run_path(str(EXAMPLES / "ode_fit.py"))
    states = float32(ode["STEPS"] // ode["EVERY"] + 1, 2)
    yield "ode_fit: descend", lambda logs, seen: ode["descend"](logs, seen, 100), (float32(4), states)
    text = runpy.run_path(str(EXAMPLES / "transformer.py"))
    parameters = text["initial_parameters"](key, 64)
    characters = weft.ShapeDtypeStruct((8, 65), "int32")
    yield "transformer: loss and gradient", weft.value_and_grad(text["loss"]), (parameters, characters)


def over_meshes(machine: Any) -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """Programs for all devices of the machine: the batch along x, the weights along y; and one of messages."""
    sizes = (len(machine.devices) // 2, 2)
    mesh = topologies.make_mesh(machine, sizes, ("x", "y")).update(axis_types=(AxisType.Auto,) * 2)

    def lying(shape: tuple[int, ...], *spec: Any) -> Any:
        return weft.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(mesh, P(*spec)))

    def loss(w: Any, v: Any, x: Any) -> Any:
        return (wnp.tanh(wnp.tanh(x @ w) @ v) ** 2).mean()

    operands = lying((256, 512), None, "y"), lying((512, 128), "y"), lying((64, 256), "x")
    yield "mesh: loss and gradient", weft.value_and_grad(loss, (0, 1)), operands

    def messages(x: Any) -> Any:
        x = lax.ppermute(lax.all_to_all(x, "y", 1, 0, tiled=True), "x", [(0, 1), (1, 0)])
        return lax.psum(x, "x") + lax.axis_index("y"), lax.psum_scatter(x, "y", tiled=True), lax.all_gather(x, "x")

    specs = P(None, "y"), P(("x", "y")), P(None, ("x", "y"))
    mapped = weft.shard_map(messages, mesh=mesh, in_specs=P("x", "y"), out_specs=specs, check_vma=False)
    yield "mesh: messages", mapped, (lying((64, 256), "x", "y"),)


def compile_all(topology: str) -> int:
    """Compile every program; the number of those that the compiler refused."""
    machine = topologies.get_topology_desc(topology)
    version = " ".join(machine.platform_version.split())
    print(f"{topology}: {len(machine.devices)} x {machine.devices[0].device_kind}, {version}")
    refused = 0
    for name, function, arguments in (*of_the_tour(), *of_the_examples(), *over_meshes(machine)):
        try:
            compiled = weft.jit(function).lower(*arguments).compile(topology=machine)
        except (weft.errors.JaxRuntimeError, NotImplementedError) as error:
            refused += 1
            print(f"{name:32} refused: {error}")
            continue
        stages = compiled.parts()[1].program.milliseconds
        cost, memory = compiled.cost_analysis(), compiled.memory_analysis()
        print(
            f"{name:32} stablehlo {stages['stablehlo']:6.1f} ms  compiled {stages['plugin']:7.1f} ms  "
            f"{cost['flops']:.3g} flops  {cost['bytes accessed']:.3g} bytes  {memory['temp_size_in_bytes']} temporary  "
            f"{len(compiled.serialize())} bytes as a file"
        )
    return refused


def main(arguments: list[str]) -> int:
    if not any(entry.name == "tpu" for entry in weft.pjrt.discover()):
        print("compiling for TPUs needs the package libtpu (no TPU; see its licence): pip install libtpu")
        return 1
    assert wnp.zeros(1).device.platform == "cpu"
    return compile_all(arguments[0] if arguments else TOPOLOGY)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
