"""Activation functions and softmax against formulas in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from scipy import special

import weft
from weft import nn
from weft.scipy import special as wspecial

X = np.random.default_rng(0).uniform(-4, 4, (5, 6)).astype(np.float32)
P = np.random.default_rng(1).uniform(0.05, 6, (40,)).astype(np.float32)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


FORMULAS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "sigmoid": _sigmoid,
    "softplus": lambda x: np.log1p(np.exp(x)),
    "soft_sign": lambda x: x / (1 + np.abs(x)),
    "silu": lambda x: x * _sigmoid(x),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "log_sigmoid": lambda x: np.log(_sigmoid(x)),
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "leaky_relu": lambda x: np.where(x >= 0, x, 0.01 * x),
    "hard_tanh": lambda x: np.clip(x, -1, 1),
    "celu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
    "hard_sigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "hard_silu": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "squareplus": lambda x: (x + np.sqrt(x * x + 4)) / 2,
    "softmax": lambda x: special.softmax(x, axis=-1),
    "log_softmax": lambda x: special.log_softmax(x, axis=-1),
    "logsumexp": special.logsumexp,
}


@pytest.mark.parametrize("name", FORMULAS)
def test_formula(name: str) -> None:
    expected = FORMULAS[name](X.astype(np.float64))
    found = getattr(nn, name)(X)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=2e-5, atol=2e-6)
    jitted = weft.jit(getattr(nn, name))(X)
    assert np.asarray(jitted).tobytes() == np.asarray(found).tobytes()


def test_gelu() -> None:
    x = X.astype(np.float64)
    exact = x * special.ndtr(x)
    np.testing.assert_allclose(np.asarray(nn.gelu(X, approximate=False)), exact, rtol=1e-4, atol=1e-6)
    assert np.abs(np.asarray(nn.gelu(X)) - exact).max() < 2e-3


def test_one_hot() -> None:
    np.testing.assert_array_equal(
        np.asarray(nn.one_hot(np.array([0, 2, 5]), 3)), np.array([[1, 0, 0], [0, 0, 1], [0, 0, 0]])
    )
    assert nn.one_hot(np.array([0, 2]), 3, axis=0).shape == (3, 2)


def test_masks_and_infinities() -> None:
    mask = X > -1
    rows = np.asarray(nn.softmax(X, where=mask))
    np.testing.assert_allclose(rows.sum(-1), 1, rtol=1e-5)
    assert (rows[~mask] == 0).all()
    assert nn.logsumexp(np.array([-np.inf, -np.inf], np.float32)).item() == -np.inf
    assert nn.logsumexp(np.array([1000.0, 1000.0], np.float32)).item() == pytest.approx(1000.6931)
    value, sign = nn.logsumexp(np.zeros(2, np.float32), b=np.array([1.0, -3.0], np.float32), return_sign=True)
    assert sign.item() == -1 and value.item() == pytest.approx(np.log(2))


def test_standardize() -> None:
    for algorithm in ("fast", "stable"):
        found = np.asarray(nn.standardize(X, algorithm=algorithm))
        np.testing.assert_allclose(found.mean(-1), 0, atol=1e-5)
        np.testing.assert_allclose(found.std(-1), 1, rtol=1e-3)


SPECIAL: list[tuple[str, tuple[Any, ...]]] = [
    ("erf", (X,)),
    ("erfc", (X,)),
    ("expit", (X,)),
    ("gammaln", (P,)),
    ("digamma", (P,)),
    ("gamma", (P,)),
    ("betaln", (P, P[::-1])),
    ("betaln", (P + 8, P[::-1] + 20)),
    ("beta", (P, P[::-1])),
    ("xlogy", (P, P)),
    ("ndtr", (X,)),
    ("xlog1py", (P, P)),
    ("entr", (P,)),
    ("rel_entr", (P, P[::-1])),
    ("kl_div", (P, P[::-1])),
    ("factorial", (P,)),
    ("logit", (P / 7,)),
    ("erfinv", (X / 4.1,)),
    ("boxcox", (P, P[::-1])),
    ("multigammaln", (P + 2, 2)),
    ("comb", (P + 6, P)),
]


@pytest.mark.parametrize(("name", "args"), SPECIAL, ids=[name for name, _ in SPECIAL])
def test_special(name: str, args: tuple[Any, ...]) -> None:
    wide = [a.astype(np.float64) if isinstance(a, np.ndarray) else a for a in args]
    expected = getattr(special, name)(*wide)
    found = np.asarray(getattr(wspecial, name)(*args))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=3e-5)


@pytest.mark.oracle
@pytest.mark.parametrize("distribution", ["normal", "uniform", "truncated_normal"])
@pytest.mark.parametrize("mode", ["fan_in", "fan_avg"])
def test_complex_weights_beside_jax(distribution: str, mode: str) -> None:
    found = weft.nn.initializers.variance_scaling(2.0, mode, distribution)(weft.random.key(1), (40, 30), np.complex64)
    made = jax.nn.initializers.variance_scaling(2.0, mode, distribution)(jax.random.key(1), (40, 30), np.complex64)
    np.testing.assert_allclose(found, made, atol=1e-5)
    assert found.dtype == np.complex64
    assert np.mean(np.abs(found) ** 2) == pytest.approx(2 / (40 if mode == "fan_in" else 35), rel=0.1)
