"""Draws from distributions, as functions of a namespace and a key, and JAX's values for them.

JAX takes seconds to compile one, so its values are kept in ``jax_values.json``; after a change of the cases

    python -m tests.random.distribution_cases

asks jax==0.10.2 for them anew.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

VALUES = pathlib.Path(__file__).with_name("jax_values.json")
A = np.linspace(0.1, 5, 7).astype(np.float32)
P = A / A.sum()
Draw = Callable[[Any, Any], Any]  # of a namespace and a key

FLOATS: dict[str, Draw] = {
    "gamma": lambda m, k: m.random.gamma(k, A, (3, 7)),
    "loggamma": lambda m, k: m.random.loggamma(k, A / 100),
    "gamma in bfloat16": lambda m, k: m.random.gamma(k, A, dtype="bfloat16").astype("float32"),
    "gamma of many": lambda m, k: m.random.gamma(k, np.full(2000, 0.7, np.float32)),
    "gamma of none": lambda m, k: m.random.gamma(k, 2.0, (0, 3)),
    "gamma of an integer": lambda m, k: m.random.gamma(k, 2, (3,)),
    "beta": lambda m, k: m.random.beta(k, A, 2.0, (2, 7)),
    "dirichlet": lambda m, k: m.random.dirichlet(k, A, (3,)),
    "dirichlet of a batch": lambda m, k: m.random.dirichlet(k, np.ones((2, 3), np.float32)),
    "chisquare": lambda m, k: m.random.chisquare(k, A),
    "f": lambda m, k: m.random.f(k, A, 3.0),
    "t": lambda m, k: m.random.t(k, A),
    "generalized_normal": lambda m, k: m.random.generalized_normal(k, 1.5, (4,)),
    "ball": lambda m, k: m.random.ball(k, 3, 2.0, (4,)),
    "maxwell": lambda m, k: m.random.maxwell(k, (4,)),
    "double_sided_maxwell": lambda m, k: m.random.double_sided_maxwell(k, A, 2.0, (4,)),
    "triangular": lambda m, k: m.random.triangular(k, -1.0, A, 6.0),
    "wald": lambda m, k: m.random.wald(k, A, (3, 7)),
}
EXACT: dict[str, Draw] = {
    "permutation of a number": lambda m, k: m.random.permutation(k, 2000),
    "permutation of rows": lambda m, k: m.random.permutation(k, np.arange(12).reshape(3, 4), axis=1),
    "permutation of each row": lambda m, k: m.random.permutation(
        k, np.arange(12).reshape(3, 4), axis=-1, independent=True
    ),
    "permutation of nothing": lambda m, k: m.random.permutation(k, 0),
    "choice of rows": lambda m, k: m.random.choice(k, np.arange(10.0).reshape(5, 2), (2, 3)),
    "choice without replacement": lambda m, k: m.random.choice(k, np.arange(10.0).reshape(2, 5), (3,), False, axis=1),
    "choice by probability": lambda m, k: m.random.choice(k, np.arange(7.0), (2, 2), p=P),
    "choice by probability without replacement": lambda m, k: m.random.choice(k, 7, (3,), False, P),
    "choice of one": lambda m, k: m.random.choice(k, np.arange(6).reshape(2, 3), (), axis=1),
    "choice of nothing": lambda m, k: m.random.choice(k, 4, (0,)),
    "categorical": lambda m, k: m.random.categorical(k, np.log(P), shape=(4,)),
    "categorical without replacement": lambda m, k: m.random.categorical(
        k, np.zeros((6, 2), np.float32), axis=0, shape=(2, 2, 2), replace=False
    ),
    "bernoulli in high mode": lambda m, k: m.random.bernoulli(k, np.float32(0.3), (40,), mode="high"),
    "geometric": lambda m, k: m.random.geometric(k, A / 6, (3, 7)),
    "poisson": lambda m, k: m.random.poisson(k, A * 20, (3, 7)),
    "poisson of nothing and of NaN": lambda m, k: m.random.poisson(k, np.array([0, np.nan], np.float32)),
    "binomial": lambda m, k: m.random.binomial(k, A * 20, 0.3),
    "binomial of many": lambda m, k: m.random.binomial(k, 1e4, P),
    "binomial outside its domain": lambda m, k: m.random.binomial(
        k, np.array([-1, np.nan, np.inf, 5, 5], np.float32), np.array([0.2, 0.2, 0.2, -0.1, np.nan], np.float32)
    ),
    "multinomial": lambda m, k: m.random.multinomial(k, np.array([10.0, 50.0]), P, shape=(2, 7)),
}
DIFFERENTIABLE = ["gamma", "loggamma", "chisquare", "t"]
WIDE = ["gamma", "wald", "poisson", "permutation of a number"]


def gradient(m: Any, name: str) -> np.ndarray:
    """The gradient of the sum of the values by the parameter."""
    return np.asarray(m.grad(lambda a: getattr(m.random, name)(m.random.key(0), a).sum())(A))


def drawn(m: Any, name: str) -> np.ndarray:
    return np.asarray((FLOATS | EXACT)[name](m, m.random.key(3)))


def _entry(values: np.ndarray) -> dict[str, Any]:
    """As text, so that NaN, infinities and every digit survive."""
    return {"dtype": str(values.dtype), "shape": values.shape, "values": [repr(v) for v in values.ravel().tolist()]}


def expected(kind: str, name: str) -> np.ndarray:
    """JAX's values for a case: ``kind`` is drawn, gradient or wide (with 64 bits)."""
    entry = json.loads(VALUES.read_text())[f"{kind} {name}"]
    values = [v == "True" if entry["dtype"] == "bool" else float(v) for v in entry["values"]]
    return np.asarray(values, entry["dtype"]).reshape(entry["shape"])


def main() -> None:
    """Write JAX's values of all cases."""
    entries = {f"drawn {name}": _entry(drawn(jax, name)) for name in FLOATS | EXACT}
    entries |= {f"gradient {name}": _entry(gradient(jax, name)) for name in DIFFERENTIABLE}
    with jax.enable_x64(True):
        entries |= {f"wide {name}": _entry(drawn(jax, name)) for name in WIDE}
    VALUES.write_text(json.dumps(entries))


if __name__ == "__main__":
    main()
