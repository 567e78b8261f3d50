"""Distributions built from bits give JAX's values, to the rounding of their formulas; counts and orders exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import weft

pytestmark = pytest.mark.oracle
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
RAISES: dict[str, tuple[type[Exception], Draw]] = {
    "permutation of a fraction": (TypeError, lambda m, k: m.random.permutation(k, 1.5)),
    "permutation beyond the rank": (ValueError, lambda m, k: m.random.permutation(k, np.arange(3), axis=2)),
    "choice of too many": (ValueError, lambda m, k: m.random.choice(k, 5, (7,), replace=False)),
    "choice by other probabilities": (ValueError, lambda m, k: m.random.choice(k, 5, (2,), p=np.ones(3))),
    "choice from nothing": (ValueError, lambda m, k: m.random.choice(k, 0, (2,))),
    "choice with an integer shape": (TypeError, lambda m, k: m.random.choice(k, 5, 3)),
    "categorical of too many": (
        ValueError, lambda m, k: m.random.categorical(k, np.zeros(3, np.float32), shape=(4,), replace=False)
    ),
    "bernoulli in another mode": (ValueError, lambda m, k: m.random.bernoulli(k, 0.3, mode="x")),
    "gamma of another shape": (ValueError, lambda m, k: m.random.gamma(k, A, (3, 2))),
    "gamma in integers": (ValueError, lambda m, k: m.random.gamma(k, A, dtype="int32")),
    "dirichlet of a number": (ValueError, lambda m, k: m.random.dirichlet(k, 1.0)),
    "geometric in floats": (ValueError, lambda m, k: m.random.geometric(k, 0.5, dtype="float32")),
    "binomial in integers": (ValueError, lambda m, k: m.random.binomial(k, 5.0, 0.5, dtype="int32")),
}  # fmt: skip


@pytest.mark.parametrize("name", FLOATS)
def test_floats_are_those_of_jax(name: str) -> None:
    found, expected = (np.asarray(FLOATS[name](m, m.random.key(3))) for m in (weft, jax))
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=3e-5, atol=1e-6)


@pytest.mark.parametrize("name", EXACT)
def test_counts_and_choices_are_those_of_jax(name: str) -> None:
    found, expected = (np.asarray(EXACT[name](m, m.random.key(3))) for m in (weft, jax))
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", RAISES)
def test_errors_have_the_class_of_those_of_jax(name: str) -> None:
    error, draw = RAISES[name]
    for m in (jax, weft):
        with pytest.raises(error):
            draw(m, m.random.key(0))


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_by_the_parameter_are_those_of_jax(name: str) -> None:
    def gradient(m: Any) -> np.ndarray:
        return np.asarray(m.grad(lambda a: getattr(m.random, name)(m.random.key(0), a).sum())(A))

    np.testing.assert_allclose(gradient(weft), gradient(jax), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", ["gamma", "dirichlet", "binomial", "permutation of rows", "choice by probability"])
def test_mapped_over_keys_is_each_key_alone(name: str) -> None:
    draw = (FLOATS | EXACT)[name]
    keys = weft.random.split(weft.random.key(1), 3)
    mapped = weft.jit(weft.vmap(lambda k: draw(weft, k)))(keys)
    for row, key in zip(mapped, keys, strict=True):
        np.testing.assert_allclose(np.asarray(row), np.asarray(draw(weft, key)), rtol=1e-6)


def test_a_value_depends_on_its_own_key_alone_however_many_are_drawn() -> None:
    key = weft.random.key(5)
    many = np.asarray(weft.random.gamma(key, np.float32(0.5), (2000,)))  # all in one loop
    one_by_one = np.asarray(
        weft.lax.map(lambda k: weft.random.gamma_family._one(k, np.float32(0.5), False), weft.random.split(key, 2000))
    )
    np.testing.assert_array_equal(many, one_by_one)


def test_with_64_bits() -> None:
    for name in ("gamma", "wald", "poisson", "permutation of a number"):
        draw = (FLOATS | EXACT)[name]
        with weft.enable_x64(True), jax.enable_x64(True):
            found, expected = (np.asarray(draw(m, m.random.key(3))) for m in (weft, jax))
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-12)
