"""A network that reads handwritten digits: `grad`, `vmap` and one jitted update whose buffers are donated.

    python examples/digits_mlp.py                    # 97 % of the held-out digits, a few seconds
    python examples/digits_mlp.py --plot loss.png

Data: the UCI handwritten digits that scikit-learn bundles, 1797 images of 8 x 8 grey values; every fifth is held out.
Method: two hidden layers, cross-entropy, Adam (Kingma and Ba, arXiv:1412.6980).
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

import weft
import weft.numpy as jnp
from weft import nn, random, tree

SIZES = (64, 256, 128, 10)
BATCH = 128


class State(NamedTuple):
    """Parameters, the two moments of their gradients, and how many updates there were."""

    parameters: Any
    mean: Any
    square: Any
    count: Any


class Result(NamedTuple):
    accuracy: float
    losses: list[float]
    seconds: float
    images_per_second: float


def data() -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Images f32[n,64] in 0..1 and labels i32[n], to train on and held out."""
    from sklearn.datasets import load_digits  # noqa: PLC0415 - slow to import, needed once

    images, labels = load_digits(return_X_y=True)
    images, labels = (images / 16).astype(np.float32), labels.astype(np.int32)
    held_out = np.arange(len(labels)) % 5 == 0
    return (images[~held_out], labels[~held_out]), (images[held_out], labels[held_out])


def initial_parameters(key: Any) -> list[dict[str, Any]]:
    """He's initialisation: a layer's weights have variance 2 / inputs."""
    layers = []
    for inputs, outputs, layer_key in zip(SIZES, SIZES[1:], random.split(key, len(SIZES) - 1)):
        weights = random.normal(layer_key, (inputs, outputs)) * np.sqrt(2 / inputs)
        layers.append({"weights": weights, "bias": jnp.zeros(outputs)})
    return layers


def logits(parameters: list[dict[str, Any]], image: Any) -> Any:
    """Of ONE image f32[64]: f32[10]. Batches are `vmap`'s business."""
    *hidden, last = parameters
    for layer in hidden:
        image = nn.relu(image @ layer["weights"] + layer["bias"])
    return image @ last["weights"] + last["bias"]


def loss_of_one(parameters: Any, image: Any, label: Any) -> Any:
    return -nn.log_softmax(logits(parameters, image))[label]


def loss(parameters: Any, images: Any, labels: Any) -> Any:
    return jnp.mean(weft.vmap(loss_of_one, in_axes=(None, 0, 0))(parameters, images, labels))


@functools.partial(weft.jit, donate_argnums=0)
def update(state: State, images: Any, labels: Any, rate: float = 2e-3) -> tuple[State, Any]:
    """One step of Adam; the old state's buffers become the new one's."""
    value, gradient = weft.value_and_grad(loss)(state.parameters, images, labels)
    count = state.count + 1
    mean = tree.map(lambda m, g: 0.9 * m + 0.1 * g, state.mean, gradient)
    square = tree.map(lambda s, g: 0.999 * s + 0.001 * g**2, state.square, gradient)
    scale = rate * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
    parameters = tree.map(lambda p, m, s: p - scale * m / (jnp.sqrt(s) + 1e-8), state.parameters, mean, square)
    return State(parameters, mean, square, count), value


@weft.jit
def predict(parameters: Any, images: Any) -> Any:
    return jnp.argmax(weft.vmap(logits, in_axes=(None, 0))(parameters, images), axis=1)


def train(epochs: int, console: rich.console.Console, seed: int = 0) -> Result:
    """Train, show a bar, and measure the held-out accuracy."""
    (images, labels), (test_images, test_labels) = data()
    parameters = initial_parameters(random.key(seed))
    state = State(parameters, tree.map(jnp.zeros_like, parameters), tree.map(jnp.zeros_like, parameters), 0.0)
    order, losses, batches = np.random.default_rng(seed), [], len(labels) // BATCH
    begin = time.perf_counter()
    for _ in rich.progress.track(range(epochs), "training", console=console):
        shuffled = order.permutation(len(labels))[: batches * BATCH].reshape(batches, BATCH)
        values = []
        for batch in shuffled:
            state, value = update(state, images[batch], labels[batch])
            values.append(value)
        losses.append(float(np.mean([float(value) for value in values])))
    seconds = time.perf_counter() - begin
    accuracy = float(np.mean(np.asarray(predict(state.parameters, test_images)) == test_labels))
    return Result(accuracy, losses, seconds, epochs * batches * BATCH / seconds)


def plot(losses: list[float], path: Path) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415 - slow to import, and wanted only for a plot

    figure = Figure(figsize=(6, 3.6))
    axes = figure.add_subplot()
    axes.semilogy(range(1, len(losses) + 1), losses)
    axes.set_xlabel("epoch")
    axes.set_ylabel("cross-entropy of the training images, nats")
    figure.savefig(path, bbox_inches="tight")


def main(arguments: list[str] | None = None) -> Result:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--plot", type=Path, default=Path("digits_mlp.png"), help="where the loss curve goes")
    parser.add_argument("--platform", help="where it trains: a platform that `weft devices` lists (default: the CPU)")
    options = parser.parse_args(arguments)
    if options.platform is not None:
        weft.config.update("platforms", options.platform)
    console = rich.console.Console()
    result = train(options.epochs, console)
    plot(result.losses, options.plot)
    console.print(
        f"held-out accuracy {result.accuracy:.4f} after {options.epochs} epochs in {result.seconds:.1f} s"
        f" ({result.images_per_second:,.0f} images a second, compilation included); loss curve: {options.plot}"
    )
    return result


if __name__ == "__main__":
    main()
