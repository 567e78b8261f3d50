"""A small transformer that learns to write like a text file, character by character.

    python examples/transformer.py                          # trains on this repository's LICENSE
    python examples/transformer.py --text FILE --steps 600

Method: a decoder of two blocks, normalisation before attention and before the feed-forward part (Xiong et al.,
arXiv:2002.04745), Adam; text is then drawn with `scan`, one character a step.
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
from weft import lax, nn, random, tree

CONTEXT, WIDTH, HEADS, BLOCKS, BATCH = 64, 64, 4, 2, 16
HERE = Path(__file__).resolve().parent


class Result(NamedTuple):
    losses: list[float]
    text: str
    characters_per_second: float


def initial_parameters(key: Any, characters: int) -> dict[str, Any]:
    def matrix(key: Any, inputs: int, outputs: int) -> Any:
        return random.normal(key, (inputs, outputs)) / np.sqrt(inputs)

    def block(key: Any) -> dict[str, Any]:
        query_key_value, out, up, down = random.split(key, 4)
        return {
            "gain 1": jnp.ones(WIDTH),
            "query key value": matrix(query_key_value, WIDTH, 3 * WIDTH),
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
    """Causal attention over x f32[time, width]."""
    time_, width = x.shape
    query, key, value = jnp.split(x @ block["query key value"], 3, axis=-1)
    query, key, value = (a.reshape(time_, HEADS, width // HEADS) for a in (query, key, value))
    scores = jnp.einsum("qhd,khd->hqk", query, key) / np.sqrt(width // HEADS)
    seen = jnp.tril(jnp.ones((time_, time_), bool))
    weights = nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1)
    return jnp.einsum("hqk,khd->qhd", weights, value).reshape(time_, width) @ block["out"]


def logits(parameters: dict[str, Any], text: Any) -> Any:
    """f32[time, characters]: what may come after each character of one text i32[time]."""
    x = parameters["embedding"][text] + parameters["position"][: text.shape[0]]
    for block in parameters["blocks"]:
        x = x + attention(normalise(x, block["gain 1"]), block)
        x = x + nn.gelu(normalise(x, block["gain 2"]) @ block["up"]) @ block["down"]
    return normalise(x, parameters["gain"]) @ parameters["last"]


def loss(parameters: Any, texts: Any) -> Any:
    """Mean cross-entropy, in nats a character, of texts i32[batch, time + 1]."""
    log_p = nn.log_softmax(weft.vmap(logits, in_axes=(None, 0))(parameters, texts[:, :-1]))
    return -jnp.mean(jnp.take_along_axis(log_p, texts[:, 1:, None], axis=-1))


@functools.partial(weft.jit, donate_argnums=0)
def update(state: tuple[Any, Any, Any, Any], texts: Any, rate: float = 3e-3) -> tuple[Any, Any]:
    parameters, mean, square, count = state
    value, gradient = weft.value_and_grad(loss)(parameters, texts)
    count = count + 1
    mean = tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradient)
    square = tree.map(lambda s, g: 0.99 * s + 0.01 * g**2, square, gradient)
    scale = rate * jnp.minimum(1, count / 50) * jnp.sqrt(1 - 0.99**count) / (1 - 0.9**count)
    parameters = tree.map(lambda p, m, s: p - scale * m / (jnp.sqrt(s) + 1e-8), parameters, mean, square)
    return (parameters, mean, square, count), value


@functools.partial(weft.jit, static_argnames="length")
def write(parameters: Any, start: Any, key: Any, length: int, temperature: float = 0.7) -> Any:
    """``length`` characters after ``start`` i32[CONTEXT]; each is drawn from what the network expects."""

    def step(window: Any, key: Any) -> tuple[Any, Any]:
        character = random.categorical(key, logits(parameters, window)[-1] / temperature)
        return jnp.concatenate([window[1:], character[None].astype(window.dtype)]), character

    return lax.scan(step, start, random.split(key, length))[1]


def train(text: str, steps: int, console: rich.console.Console, length: int = 200) -> Result:
    alphabet = sorted(set(text))
    codes = np.array([alphabet.index(c) for c in text], np.int32)
    if len(codes) <= CONTEXT + 1:
        raise SystemExit(f"the text has {len(codes)} characters; training needs more than {CONTEXT + 1}")
    parameters = initial_parameters(random.key(0), len(alphabet))
    state: Any = (parameters, tree.map(jnp.zeros_like, parameters), tree.map(jnp.zeros_like, parameters), 0.0)
    draw, losses = np.random.default_rng(0), []
    begin = time.perf_counter()
    for _ in rich.progress.track(range(steps), "training", console=console):
        starts = draw.integers(0, len(codes) - CONTEXT, BATCH)
        state, value = update(state, codes[starts[:, None] + np.arange(CONTEXT + 1)])
        losses.append(value)
    losses = [float(value) for value in losses]
    seconds = time.perf_counter() - begin
    written = np.asarray(write(state[0], codes[:CONTEXT], random.key(1), length=length))
    return Result(losses, "".join(alphabet[i] for i in written), steps * BATCH * CONTEXT / seconds)


def main(arguments: list[str] | None = None) -> Result:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, default=HERE.parent / "LICENSE")
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args(arguments)
    console = rich.console.Console()
    result = train(options.text.read_text(encoding="utf-8"), options.steps, console)
    first, last = result.losses[0], float(np.mean(result.losses[-20:]))
    console.print(
        f"{options.text.name}: {first:.2f} nats a character before, {last:.2f} after {options.steps} steps"
        f" ({result.characters_per_second:,.0f} characters a second). It now writes:"
    )
    console.print(result.text, style="italic", markup=False, highlight=False)
    return result


if __name__ == "__main__":
    main()
