"""Handwritten digits learned on several devices: each has a part of every batch, and gradients are summed.

    weft launch -n 2 examples/data_parallel.py             # two processes
    python examples/data_parallel.py --devices 4           # virtual devices in one process

Every process draws the same batches and hands over its part; the program says only that images are cut along "data"
and parameters are whole. The sum of gradients over the devices follows from that. The state is saved in the
background while training goes on, and `--resume` goes on from it, on any number of devices (needs weft[checkpoint]).
Training on one device must give the same losses.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import rich.console
import rich.progress
import rich.table
import sklearn.datasets

import weft
import weft.numpy as jnp
from weft import nn, random, tree
from weft.sharding import AxisType, Mesh, NamedSharding
from weft.sharding import PartitionSpec as P

WIDTHS = (64, 128, 64, 10)
BATCH, TEST_IMAGES = 64, 360


class Result(NamedTuple):
    losses: list[float]  # mean of each epoch
    alone: list[float]  # on one device
    accuracy: float  # on images that were held out


class Images(NamedTuple):
    training: tuple[np.ndarray, np.ndarray]
    held_out: tuple[np.ndarray, np.ndarray]


def load() -> Images:
    digits = sklearn.datasets.load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images, labels = (digits.data / 16).astype(np.float32)[order], digits.target.astype(np.int32)[order]
    return Images((images[TEST_IMAGES:], labels[TEST_IMAGES:]), (images[:TEST_IMAGES], labels[:TEST_IMAGES]))


def initial_state(key: Any) -> dict[str, Any]:
    layers = [
        {"weights": random.normal(k, (n, m)) * np.sqrt(2 / n), "bias": jnp.zeros(m)}
        for k, n, m in zip(random.split(key, len(WIDTHS) - 1), WIDTHS, WIDTHS[1:])
    ]
    return {"layers": layers, "momentum": tree.map(jnp.zeros_like, layers)}


def predict(layers: Any, images: Any) -> Any:
    x = images
    for layer in layers[:-1]:
        x = nn.relu(x @ layer["weights"] + layer["bias"])
    return x @ layers[-1]["weights"] + layers[-1]["bias"]


def loss(layers: Any, images: Any, labels: Any) -> Any:
    return -jnp.mean(jnp.sum(nn.log_softmax(predict(layers, images)) * nn.one_hot(labels, 10), axis=1))


def update(state: dict[str, Any], images: Any, labels: Any, rate: float = 0.03) -> tuple[Any, Any]:
    value, gradient = weft.value_and_grad(loss)(state["layers"], images, labels)
    momentum = tree.map(lambda m, g: 0.9 * m + g, state["momentum"], gradient)
    return {"layers": tree.map(lambda p, m: p - rate * m, state["layers"], momentum), "momentum": momentum}, value


def on_devices(values: np.ndarray, mesh: Mesh | None, spec: P) -> Any:
    """An array on the devices of a mesh; each process hands over what its own devices have."""
    if mesh is None:
        return values
    return weft.make_array_from_callback(values.shape, NamedSharding(mesh, spec), lambda index: values[index])


class Saving(NamedTuple):
    folder: Path | None
    resume: bool


def train(
    mesh: Mesh | None, images: Images, epochs: int, saving: Saving, console: rich.console.Console
) -> tuple[Any, list[float]]:
    """The state and the mean loss of each epoch, on the devices of a mesh, or on one (None)."""
    step = weft.jit(update, donate_argnums=0)
    state = tree.map(lambda x: on_devices(np.asarray(x), mesh, P()), initial_state(random.key(0)))
    first, losses = 0, []
    if saving.resume and saving.folder is not None:
        first = (weft.checkpoint.latest_step(saving.folder) or 0) if weft.checkpoint.steps(saving.folder) else 0
        if first:
            saved = weft.checkpoint.restore(saving.folder, {"state": state, "losses": [0.0] * first})
            state, losses = saved["state"], saved["losses"]
            console.print(f"going on after epoch {first}, saved in {saving.folder}")
    count = len(images.training[1]) // BATCH
    words = "on one device" if mesh is None else f"on {mesh.size} devices"
    for epoch in rich.progress.track(range(first, epochs), words, console=console):
        order = np.random.default_rng(epoch).permutation(len(images.training[1]))  # the same on all processes
        values = []
        for batch in order[: count * BATCH].reshape(count, BATCH):
            given = [on_devices(part[batch], mesh, P("data")) for part in images.training]
            state, value = step(state, *given)
            values.append(value)
        losses.append(float(np.mean([float(value) for value in values])))
        if saving.folder is not None:
            tree_ = {"state": state, "losses": losses}
            weft.checkpoint.save(saving.folder, tree_, step=epoch + 1, keep=2, overwrite=True, background=True)
    return state, losses


def main(arguments: list[str] | None = None) -> Result:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=2, help="devices of all processes together")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="where the state is saved after every epoch")
    parser.add_argument("--resume", action="store_true", help="go on from the last state in FOLDER")
    options = parser.parse_args(arguments)
    launch = weft.distributed.environment.find()  # None unless weft launch, mpirun or srun started this process
    processes = 1 if launch is None else launch.size
    weft.config.update("num_cpu_devices", max(options.devices // processes, 1))
    if launch is not None:
        weft.distributed.initialize()
    console = rich.console.Console(quiet=weft.process_index() > 0)  # one process prints
    mesh = weft.make_mesh((weft.device_count(),), ("data",), (AxisType.Auto,))
    images = load()
    _, alone = train(None, images, options.epochs, Saving(None, False), console)
    begin = time.perf_counter()
    state, losses = train(mesh, images, options.epochs, Saving(options.save, options.resume), console)
    seconds = time.perf_counter() - begin
    layers = tree.map(lambda x: np.asarray(x.addressable_data(0)), state["layers"])  # whole on every device
    accuracy = float(np.mean(np.argmax(predict(layers, images.held_out[0]), axis=1) == images.held_out[1]))
    table = rich.table.Table("epoch", f"loss on {mesh.size} devices", "loss on one")
    for epoch in sorted({*range(0, options.epochs, 5), options.epochs - 1}):
        table.add_row(str(epoch + 1), f"{losses[epoch]:.6f}", f"{alone[epoch]:.6f}")
    console.print(table)
    np.testing.assert_allclose(losses, alone, rtol=1e-3, atol=1e-5)
    console.print(
        f"{mesh.size} devices of {processes} process{'es' * (processes > 1)}: held-out accuracy {accuracy:.4f} after"
        f" {options.epochs} epochs in {seconds:.1f} s; the largest difference to the losses of one device is"
        f" {float(np.max(np.abs(np.array(losses) - alone))):.1e}"
    )
    return Result(losses, alone, accuracy)


if __name__ == "__main__":
    main()
