"""A transformer trained on a 2 x 2 mesh: texts shared out over one axis, matrices over the other.

    python examples/tensor_parallel.py                     # four virtual devices in this process
    weft launch -n 2 examples/tensor_parallel.py           # two processes with two of the devices each
    python examples/tensor_parallel.py --data 1 --model 4

Method: attention heads and the inner width of the feed-forward part are cut along "model", so that each block sums
once after attention and once after the feed-forward part (Shoeybi et al., arXiv:1909.08053); the batch is cut along
"data". The program says only how its parameters and texts lie; what else is cut, and what has to be sent, follows.
The same steps on one device must give the same losses.
"""

from __future__ import annotations

import argparse
import collections
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import rich.console
import rich.progress
import rich.table

import weft
import weft.numpy as jnp
from weft import lax, nn, random, tree
from weft.sharding import AxisType, Mesh, NamedSharding
from weft.sharding import PartitionSpec as P

CONTEXT, WIDTH, HEADS, BLOCKS, BATCH = 32, 64, 4, 2, 8
HERE = Path(__file__).resolve().parent

# How the parameters lie: columns of the first matrix of a pair are cut, and rows of the second.
BLOCK_SPECS = {
    "gain 1": P(),
    "query key value": P(None, None, "model"),  # [3, width, heads * size]: each device has whole heads
    "out": P("model"),
    "gain 2": P(),
    "up": P(None, "model"),
    "down": P("model"),
}
SPECS = {"embedding": P(), "position": P(), "blocks": [BLOCK_SPECS] * BLOCKS, "gain": P(), "last": P(None, "model")}


class Result(NamedTuple):
    losses: list[float]  # on the mesh
    alone: list[float]  # on one device


def initial_parameters(key: Any, characters: int) -> dict[str, Any]:
    def matrix(key: Any, *shape: int) -> Any:
        return random.normal(key, shape) / np.sqrt(shape[-2])

    def block(key: Any) -> dict[str, Any]:
        query_key_value, out, up, down = random.split(key, 4)
        return {
            "gain 1": jnp.ones(WIDTH),
            "query key value": matrix(query_key_value, 3, WIDTH, WIDTH),
            "out": matrix(out, WIDTH, WIDTH) * 0.3,
            "gain 2": jnp.ones(WIDTH),
            "up": matrix(up, WIDTH, 4 * WIDTH),
            "down": matrix(down, 4 * WIDTH, WIDTH) * 0.3,
        }

    embedding, position, last, *blocks = random.split(key, 3 + BLOCKS)
    return {
        "embedding": random.normal(embedding, (characters, WIDTH)) * 0.5,
        "position": random.normal(position, (CONTEXT, WIDTH)) * 0.1,
        "blocks": [block(k) for k in blocks],
        "gain": jnp.ones(WIDTH),
        "last": matrix(last, WIDTH, characters),
    }


def normalise(x: Any, gain: Any) -> Any:
    return x * lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * gain


def attention(x: Any, block: dict[str, Any]) -> Any:
    """Causal attention over x f32[batch, time, width]."""
    batch, time, width = x.shape
    query, key, value = (
        (x @ matrix).reshape(batch, time, HEADS, width // HEADS) for matrix in block["query key value"]
    )
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / np.sqrt(width // HEADS)
    seen = jnp.tril(jnp.ones((time, time), bool))
    weights = nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, value).reshape(batch, time, width) @ block["out"]


def loss(parameters: dict[str, Any], texts: Any) -> Any:
    """Mean cross-entropy, in nats a character, of texts i32[batch, time + 1]."""
    x = parameters["embedding"][texts[:, :-1]] + parameters["position"]
    for block in parameters["blocks"]:
        x = x + attention(normalise(x, block["gain 1"]), block)
        x = x + nn.gelu(normalise(x, block["gain 2"]) @ block["up"]) @ block["down"]
    log_p = nn.log_softmax(normalise(x, parameters["gain"]) @ parameters["last"])
    return -jnp.mean(jnp.take_along_axis(log_p, texts[:, 1:, None], axis=-1))


def update(state: tuple[Any, Any], texts: Any, rate: float = 0.1) -> tuple[Any, Any]:
    """A step of gradient descent with momentum."""
    parameters, momentum = state
    value, gradient = weft.value_and_grad(loss)(parameters, texts)
    momentum = tree.map(lambda m, g: 0.9 * m + g, momentum, gradient)
    return (tree.map(lambda p, m: p - rate * m, parameters, momentum), momentum), value


def make_mesh(data: int, model: int) -> Mesh:
    return weft.make_mesh((data, model), ("data", "model"), (AxisType.Auto, AxisType.Auto))


def shared_out(mesh: Mesh, parameters: Any) -> Any:
    """The parameters on the devices of the mesh: each process keeps what its devices need of them."""

    def put(value: Any, spec: P) -> Any:
        values = np.asarray(value)
        return weft.make_array_from_callback(values.shape, NamedSharding(mesh, spec), lambda index: values[index])

    return tree.map(put, parameters, SPECS)


def batches(text: str, steps: int) -> np.ndarray:
    """Texts drawn from a text: i32[steps, batch, time + 1]."""
    alphabet = sorted(set(text))
    codes = np.array([alphabet.index(c) for c in text], np.int32)
    starts = np.random.default_rng(0).integers(0, len(codes) - CONTEXT, (steps, BATCH))
    return codes[starts[..., None] + np.arange(CONTEXT + 1)]


def train(parameters: Any, texts: np.ndarray, sharding: Any, console: rich.console.Console) -> list[float]:
    """The losses of one step a batch; the batch lies as ``sharding`` says, None for one device."""
    step = weft.jit(update, donate_argnums=0)
    state, losses = (parameters, tree.map(jnp.zeros_like, parameters)), []
    words = "on one device" if sharding is None else f"on {sharding.mesh.size} devices"
    for batch in rich.progress.track(texts, words, console=console):
        given = batch
        if sharding is not None:
            given = weft.make_array_from_callback(batch.shape, sharding, lambda index, batch=batch: batch[index])
        state, value = step(state, given)
        losses.append(value)
    return [float(value) for value in losses]


def show_parameters(parameters: Any, console: rich.console.Console) -> None:
    table = rich.table.Table("parameter", "shape", "how it lies", "on each device")
    one_block = {**parameters, "blocks": parameters["blocks"][0]}
    for path, value in tree.leaves_with_path(one_block):
        part = value.sharding.shard_shape(value.shape)
        name = weft.tree_util.keystr(path, simple=True, separator=": ")
        table.add_row(name, str(value.shape), str(value.sharding.spec), str(part))
    console.print(table)


def show_messages(mesh: Mesh, parameters: Any, texts: np.ndarray, console: rich.console.Console) -> None:
    """What devices send each other in a step, from the program that is made for each of them."""
    state = (parameters, tree.map(jnp.zeros_like, parameters))
    batch = weft.ShapeDtypeStruct(texts[0].shape, texts.dtype, sharding=NamedSharding(mesh, P("data")))
    text = weft.jit(update).lower(state, batch).as_text("sharding")
    times, size = collections.Counter[str](), collections.Counter[str]()
    for what, bytes_ in re.findall(r"^  (\w+ along .*?) of .*?, (\d+) bytes: ", text, re.M):
        times[what] += 1
        size[what] += int(bytes_)
    table = rich.table.Table("collective", "times a step", "bytes that a device receives")
    for what in sorted(times):
        table.add_row(what, str(times[what]), f"{size[what]:,}")
    console.print(table)


def main(arguments: list[str] | None = None) -> Result:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=int, default=2, help="extent of the axis over which texts are shared out")
    parser.add_argument("--model", type=int, default=2, help="extent of the axis along which matrices are cut: 1, 2, 4")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--text", type=Path, default=HERE.parent / "LICENSE")
    options = parser.parse_args(arguments)
    launch = weft.distributed.environment.find()  # None unless weft launch, mpirun or srun started this process
    processes = 1 if launch is None else launch.size
    weft.config.update("num_cpu_devices", options.data * options.model // processes)
    if launch is not None:
        weft.distributed.initialize()
    console = rich.console.Console(quiet=weft.process_index() > 0)  # one process prints
    mesh = make_mesh(options.data, options.model)
    texts = batches(options.text.read_text(encoding="utf-8"), options.steps)
    characters = len(set(options.text.read_text(encoding="utf-8")))
    parameters = initial_parameters(random.key(0), characters + -characters % options.model)
    cut = shared_out(mesh, parameters)
    show_parameters(cut, console)
    show_messages(mesh, cut, texts, console)
    alone = train(tree.map(jnp.copy, parameters), texts, None, console)
    losses = train(cut, texts, NamedSharding(mesh, P("data")), console)
    difference = float(np.max(np.abs(np.array(losses) - alone)))
    np.testing.assert_allclose(losses, alone, rtol=2e-3)
    console.print(
        f"{losses[0]:.3f} nats a character before, {losses[-1]:.3f} after {options.steps} steps on {mesh.size} devices"
        f" of {processes} process{'es' * (processes > 1)}; the largest difference to one device is {difference:.1e}"
    )
    return Result(losses, alone)


if __name__ == "__main__":
    main()
