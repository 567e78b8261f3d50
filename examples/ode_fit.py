"""The constants of a differential equation, found from noisy measurements by descending through its solution.

    python examples/ode_fit.py
    python examples/ode_fit.py --plot orbits.png

Hares and lynxes (Lotka 1925, Volterra 1926): h' = a h - b h l, l' = -c l + d h l. The solution is a `scan` of
Runge-Kutta steps; `grad` runs it backwards; the whole descent is one `fori_loop`, compiled.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import rich.console
import rich.table

import weft
import weft.numpy as jnp
from weft import lax

STEP, STEPS, EVERY = 0.02, 800, 20  # 16 units of time, a measurement each 0.4
NAMES = ("a", "b", "c", "d")
TRUE = np.array([1.1, 0.4, 0.9, 0.3], np.float32)
GUESS = np.array([0.8, 0.3, 1.2, 0.4], np.float32)
START = np.array([6.0, 2.0], np.float32)


class Result(NamedTuple):
    constants: np.ndarray
    losses: np.ndarray
    seconds: float
    measured: np.ndarray
    fitted: np.ndarray


def rates(state: Any, constants: Any) -> Any:
    hares, lynxes = state
    a, b, c, d = constants
    return jnp.array([a * hares - b * hares * lynxes, -c * lynxes + d * hares * lynxes])


def solve(constants: Any) -> Any:
    """States f32[STEPS + 1, 2] by the classical Runge-Kutta method of order four."""

    def step(y: Any, _: Any) -> tuple[Any, Any]:
        k1 = rates(y, constants)
        k2 = rates(y + STEP / 2 * k1, constants)
        k3 = rates(y + STEP / 2 * k2, constants)
        k4 = rates(y + STEP * k3, constants)
        y = y + STEP / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return y, y

    start = jnp.asarray(START)
    return jnp.concatenate([start[None], lax.scan(step, start, length=STEPS)[1]])


def loss(log_constants: Any, measured: Any) -> Any:
    """Mean square of the logarithms' differences: the noise is relative, and the constants are positive."""
    states = solve(jnp.exp(log_constants))[::EVERY]
    return jnp.mean((jnp.log(states) - jnp.log(measured)) ** 2)


@weft.jit
def descend(log_constants: Any, measured: Any, iterations: Any, rate: float = 0.02) -> tuple[Any, Any]:
    """Adam; returns the constants' logarithms and the loss of each of (at most) 2,000 iterations."""

    def iteration(i: Any, carried: Any) -> Any:
        x, mean, square, losses = carried
        value, gradient = weft.value_and_grad(loss)(x, measured)
        mean, square = 0.9 * mean + 0.1 * gradient, 0.99 * square + 0.01 * gradient**2
        corrected = mean / (1 - 0.9 ** (i + 1.0))
        x = x - rate * corrected / (jnp.sqrt(square / (1 - 0.99 ** (i + 1.0))) + 1e-8)
        return x, mean, square, losses.at[i].set(value)

    zeros = jnp.zeros_like(log_constants)
    x, _, _, losses = lax.fori_loop(0, iterations, iteration, (log_constants, zeros, zeros, jnp.zeros(2000)))
    return x, losses


def fit(iterations: int) -> Result:
    noise = np.random.default_rng(0).normal(0, 0.05, (STEPS // EVERY + 1, 2)).astype(np.float32)
    measured = np.asarray(weft.jit(solve)(TRUE))[::EVERY] * np.exp(noise)
    begin = time.perf_counter()
    x, losses = weft.block_until_ready(descend(jnp.log(GUESS), measured, iterations))
    seconds = time.perf_counter() - begin
    constants = np.exp(np.asarray(x))
    return Result(constants, np.asarray(losses)[:iterations], seconds, measured, np.asarray(solve(constants)))


def plot(result: Result, path: Path) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415 - slow to import

    figure = Figure(figsize=(7, 3.6))
    axes = figure.add_subplot()
    times = STEP * np.arange(STEPS + 1)
    for i, name in enumerate(("hares", "lynxes")):
        (line,) = axes.plot(times, result.fitted[:, i], label=f"{name}, fitted")
        axes.plot(times[::EVERY], result.measured[:, i], "o", color=line.get_color(), markersize=3)
    axes.set_xlabel("time")
    axes.legend()
    figure.savefig(path, bbox_inches="tight")


def main(arguments: list[str] | None = None) -> Result:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=600, choices=range(1, 2001), metavar="1..2000")
    parser.add_argument("--plot", type=Path, default=Path("ode_fit.png"), help="where the orbits are drawn")
    options = parser.parse_args(arguments)
    result = fit(options.iterations)
    plot(result, options.plot)
    table = rich.table.Table("constant", "guess", "fitted", "true")
    for name, *values in zip(NAMES, GUESS, result.constants, TRUE):
        table.add_row(name, *(f"{value:.3f}" for value in values))
    console = rich.console.Console()
    console.print(table)
    console.print(
        f"loss {result.losses[0]:.4f} -> {result.losses[-1]:.5f} (the noise alone: 0.0025);"
        f" {options.iterations} gradients through {STEPS} steps in {result.seconds:.2f} s, compilation"
        f" included; picture: {options.plot}"
    )
    return result


if __name__ == "__main__":
    main()
