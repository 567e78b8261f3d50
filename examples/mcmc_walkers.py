"""A hundred Markov chains at once: Hamiltonian Monte Carlo, written for one walker and vmapped over all.

    python examples/mcmc_walkers.py
    python examples/mcmc_walkers.py --samples 2000

The posterior is that of a logistic regression: does a tumour's look say that it is malignant? Data: the Wisconsin
breast cancer set that scikit-learn bundles, 569 cases, ten of its features, standardised. Method: Neal, "MCMC using
Hamiltonian dynamics" (2011); R-hat by Gelman and Rubin (1992).
"""

from __future__ import annotations

import argparse
import functools
import time
from typing import Any, NamedTuple

import numpy as np
import rich.console
import rich.table

import weft
import weft.numpy as jnp
from weft import lax, nn, random

WALKERS, LEAPS, STEP = 100, 16, 0.08


class Result(NamedTuple):
    names: list[str]
    samples: np.ndarray  # f32[walkers, samples, features + 1]
    accepted: float
    r_hat: np.ndarray
    accuracy: float
    seconds: float


def data() -> tuple[np.ndarray, np.ndarray, list[str]]:
    from sklearn.datasets import load_breast_cancer  # noqa: PLC0415 - slow to import

    bunch = load_breast_cancer()
    x = bunch.data[:, :10]
    x = (x - x.mean(0)) / x.std(0)
    x = np.concatenate([np.ones((len(x), 1)), x], axis=1).astype(np.float32)
    names = [str(name).removeprefix("mean ") for name in bunch.feature_names[:10]]
    return x, (bunch.target == 0).astype(np.float32), ["(constant)", *names]


def log_posterior(weights: Any, x: Any, y: Any) -> Any:
    """The log of the posterior of weights f32[11], up to a constant; the prior of each is normal with deviation 2."""
    score = x @ weights
    return jnp.sum(y * score - nn.softplus(score)) - jnp.sum(weights**2) / 8


def leapfrog(weights: Any, momentum: Any, force: Any) -> tuple[Any, Any]:
    def leap(_: Any, state: Any) -> Any:
        w, p = state
        p = p + STEP / 2 * force(w)
        w = w + STEP * p
        return w, p + STEP / 2 * force(w)

    return lax.fori_loop(0, LEAPS, leap, (weights, momentum))


def walk(key: Any, weights: Any, x: Any, y: Any, samples: int) -> tuple[Any, Any]:
    """One chain: samples f32[samples, 11] and whether each proposal was taken."""

    def step(state: Any, key: Any) -> tuple[Any, Any]:
        toss, kick = random.split(key)
        momentum = random.normal(kick, state.shape)
        proposal, last = leapfrog(state, momentum, lambda w: weft.grad(log_posterior)(w, x, y))
        energy = log_posterior(state, x, y) - jnp.sum(momentum**2) / 2
        proposed = log_posterior(proposal, x, y) - jnp.sum(last**2) / 2
        accept = jnp.log(random.uniform(toss)) < proposed - energy
        state = jnp.where(accept, proposal, state)
        return state, (state, accept)

    return lax.scan(step, weights, random.split(key, samples))[1]


@functools.partial(weft.jit, static_argnames="samples")
def walk_all(key: Any, x: Any, y: Any, samples: int) -> tuple[Any, Any]:
    starts, keys = random.split(key)
    weights = random.normal(starts, (WALKERS, x.shape[1]))
    return weft.vmap(walk, in_axes=(0, 0, None, None, None))(random.split(keys, WALKERS), weights, x, y, samples)


def gelman_rubin(samples: np.ndarray) -> np.ndarray:
    """How much wider all chains together are than one of them; near 1 when they agree."""
    n = samples.shape[1]
    within = samples.var(axis=1, ddof=1).mean(axis=0)
    between = n * samples.mean(axis=1).var(axis=0, ddof=1)
    return np.sqrt(((n - 1) / n * within + between / n) / within)


def sample(samples: int, burn_in: int) -> Result:
    x, y, names = data()
    begin = time.perf_counter()
    states, accepted = weft.block_until_ready(walk_all(random.key(0), x, y, samples + burn_in))
    seconds = time.perf_counter() - begin
    kept = np.asarray(states)[:, burn_in:]
    guess = (x @ kept.mean(axis=(0, 1)) > 0) == (y > 0.5)
    return Result(names, kept, float(np.mean(accepted)), gelman_rubin(kept), float(guess.mean()), seconds)


def main(arguments: list[str] | None = None) -> Result:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=300, help="of each walker, after half as many to settle")
    options = parser.parse_args(arguments)
    result = sample(options.samples, options.samples // 2)
    table = rich.table.Table("feature", "mean", "deviation", "R-hat")
    for i, name in enumerate(result.names):
        weights = result.samples[..., i]
        table.add_row(name, f"{weights.mean():+.2f}", f"{weights.std():.2f}", f"{result.r_hat[i]:.3f}")
    console = rich.console.Console()
    console.print(table)
    gradients = WALKERS * (options.samples + options.samples // 2) * LEAPS * 2
    console.print(
        f"{WALKERS} walkers, {result.samples.shape[1]} samples each, {result.accepted:.0%} of the proposals taken;"
        f" {gradients:,} gradients in {result.seconds:.2f} s; the mean weights classify {result.accuracy:.1%} rightly"
    )
    return result


if __name__ == "__main__":
    main()
