"""Distributions built from bits give JAX's values, to the rounding of their formulas; counts and orders exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import weft
from tests.random import distribution_cases as cases
from tests.random.distribution_cases import EXACT, FLOATS, A
from weft.random import gamma_family

Draw = Callable[[Any, Any], Any]
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
    found, expected = cases.drawn(weft, name), cases.expected("drawn", name)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=3e-5, atol=1e-6)


@pytest.mark.parametrize("name", EXACT)
def test_counts_and_choices_are_those_of_jax(name: str) -> None:
    found, expected = cases.drawn(weft, name), cases.expected("drawn", name)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", RAISES)
def test_errors_name_what_is_wrong(name: str) -> None:
    error, draw = RAISES[name]
    with pytest.raises(error):
        draw(weft, weft.random.key(0))


@pytest.mark.parametrize("name", cases.DIFFERENTIABLE)
def test_gradients_by_the_parameter_are_those_of_jax(name: str) -> None:
    np.testing.assert_allclose(cases.gradient(weft, name), cases.expected("gradient", name), rtol=1e-4, atol=1e-7)


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
        weft.lax.map(lambda k: gamma_family._one(k, np.float32(0.5), False), weft.random.split(key, 2000))
    )
    np.testing.assert_array_equal(many, one_by_one)


@pytest.mark.parametrize("name", cases.WIDE)
def test_with_64_bits_values_are_those_of_jax(name: str) -> None:
    with weft.enable_x64(True):
        found = cases.drawn(weft, name)
    expected = cases.expected("wide", name)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-12)


CATEGORIES = [
    ((4, 1, 3), -1, (4, 3)), ((1, 3), -1, (4,)), ((3, 1), 0, (4,)), ((4, 1, 3), -1, (2, 4, 2)),
    ((2, 3, 1), 1, (5, 2, 4)), ((3,), -1, (2, 2)), ((4, 3), -1, None),
]  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize(("logits", "axis", "shape"), CATEGORIES)
def test_logits_of_categorical_broadcast(logits: tuple[int, ...], axis: int, shape: Any) -> None:
    values = np.random.default_rng(0).normal(size=logits).astype(np.float32)
    expected = jax.random.categorical(jax.random.key(3), values, axis, shape)
    np.testing.assert_array_equal(weft.random.categorical(weft.random.key(3), values, axis, shape), expected)
    draws = 0 if shape is None else np.prod(shape[: len(shape) + 1 - len(logits)])
    if draws > logits[axis]:
        for L in (weft, jax):
            with pytest.raises(ValueError, match="cannot exceed number of categories"):
                L.random.categorical(L.random.key(3), values, axis, shape, replace=False)
    elif draws:  # of a batch that is broadcast
        alone = weft.random.categorical(weft.random.key(3), values, axis, shape, replace=False)
        assert alone.shape == shape


def test_binomial_without_elements() -> None:
    assert weft.random.binomial(weft.random.key(0), np.ones(3, np.float32), 0.5, (0, 3)).shape == (0, 3)
