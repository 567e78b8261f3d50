"""Random bits, keys, uniform values and integers are JAX's; distributions have the right moments."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import weft
from weft import random


def same(found: Any, expected: Any) -> None:
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()


SEEDS = [0, 1, -1, 42, 2**31 - 1, 2**40 + 5]


@pytest.mark.parametrize("seed", SEEDS)
def test_keys(seed: int) -> None:
    ours, theirs = random.key(seed), jax.random.key(seed)
    same(random.key_data(ours), jax.random.key_data(theirs))
    same(random.PRNGKey(seed), jax.random.PRNGKey(seed))
    for num in (2, 5, (2, 3), ()):
        same(random.key_data(random.split(ours, num)), jax.random.key_data(jax.random.split(theirs, num)))
    same(random.key_data(random.fold_in(ours, 7)), jax.random.key_data(jax.random.fold_in(theirs, 7)))
    same(random.split(random.PRNGKey(seed)), jax.random.split(jax.random.PRNGKey(seed)))


@pytest.mark.parametrize("shape", [(1,), (5,), (3, 4), (0,)], ids=str)
def test_bits_of_other_shapes(shape: tuple[int, ...]) -> None:
    ours, theirs = random.key(3), jax.random.key(3)
    same(random.bits(ours, shape, "uint8"), jax.random.bits(theirs, shape, "uint8"))
    same(random.uniform(ours, shape), jax.random.uniform(theirs, shape))


@pytest.mark.parametrize("shape", [(), (1001,), (2, 3, 5)], ids=str)
def test_bits_and_uniform(shape: tuple[int, ...]) -> None:
    ours, theirs = random.key(3), jax.random.key(3)
    for dtype in ("uint8", "uint16", "uint32"):
        same(random.bits(ours, shape, dtype), jax.random.bits(theirs, shape, dtype))
    for dtype in ("float32", "float16", "bfloat16"):
        same(random.uniform(ours, shape, dtype), jax.random.uniform(theirs, shape, dtype))
    same(random.randint(ours, shape, -5, 1000), jax.random.randint(theirs, shape, -5, 1000))
    same(random.randint(ours, shape, 0, 256, "uint8"), jax.random.randint(theirs, shape, 0, 256, "uint8"))
    same(random.bernoulli(ours, 0.3, shape), jax.random.bernoulli(theirs, 0.3, shape))
    for dtype in ("float32", "float16", "bfloat16"):
        same(random.normal(ours, shape, dtype), jax.random.normal(theirs, shape, dtype))


def test_a_million_normal_values() -> None:
    same(random.normal(random.key(8), (1_000_000,)), jax.random.normal(jax.random.key(8), (1_000_000,)))


@pytest.mark.parametrize("dtype", ["float64", "complex64", "complex128"])
def test_double_and_complex_normal_values(dtype: str) -> None:
    with weft.enable_x64(True), jax.enable_x64(True):
        for shape in ((), (300_000,)):
            ours, theirs = random.key(8), jax.random.key(8)
            same(random.normal(ours, shape, dtype), jax.random.normal(theirs, shape, dtype))


def test_truncated_normal_values_agree_to_the_rounding_of_the_draw() -> None:
    ours, theirs = random.key(8), jax.random.key(8)
    for lower, upper in ((-2.0, 2.0), (0.5, 1.5)):
        found = random.truncated_normal(ours, lower, upper, (10_000,))
        expected = jax.random.truncated_normal(theirs, lower, upper, (10_000,))
        np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=2e-6, atol=2e-7)


def test_sixty_four_bits() -> None:
    with weft.enable_x64(True), jax.enable_x64(True):
        ours, theirs = random.key(3), jax.random.key(3)
        same(random.bits(ours, (7,), "uint64"), jax.random.bits(theirs, (7,), "uint64"))
        same(random.uniform(ours, (7,)), jax.random.uniform(theirs, (7,)))
        same(random.randint(ours, (7,), 0, 2**40), jax.random.randint(theirs, (7,), 0, 2**40))


def test_keys_in_jit() -> None:
    @weft.jit
    def draw(key: Any) -> Any:
        first, second = random.split(key)
        return random.bits(first, (3,)), second

    values, second = draw(random.key(1))
    same(values, jax.random.bits(jax.random.split(jax.random.key(1))[0], (3,)))
    same(random.key_data(second), jax.random.key_data(jax.random.split(jax.random.key(1))[1]))
    assert str(second.dtype) == "key<fry>" and second.shape == ()
    keys = random.split(random.key(1), 4)
    same(random.key_data(keys[2]), np.asarray(random.key_data(keys))[2])
    assert len(list(keys)) == 4


@pytest.mark.parametrize(
    ("name", "mean", "deviation"),
    [
        ("normal", 0, 1),
        ("exponential", 1, 1),
        ("gumbel", 0.5772, 1.2825),
        ("laplace", 0, 1.4142),
        ("logistic", 0, 1.8138),
        ("rademacher", 0, 1),
        ("uniform", 0.5, 0.2887),
    ],
)
def test_moments(name: str, mean: float, deviation: float) -> None:
    values = np.asarray(getattr(random, name)(random.key(0), (100_000,)), np.float64)
    assert values.mean() == pytest.approx(mean, abs=0.02)
    assert values.std() == pytest.approx(deviation, rel=0.02)


def test_errors() -> None:
    with pytest.raises(TypeError, match="invalid PRNG key data"):
        random.normal(3)
    with pytest.raises(TypeError, match="dtype = uint32"):
        random.normal(np.zeros(2, np.float32))
    with pytest.raises(ValueError, match="single key"):
        random.uniform(random.split(random.key(0)))
    with pytest.raises(ValueError, match="float dtype"):
        random.uniform(random.key(0), (3,), "int32")
    with pytest.raises(TypeError, match="integer dtypes"):
        random.randint(random.key(0), (3,), 0, 1, "float32")
    with pytest.raises(TypeError, match="scalar seed"):
        random.key(np.arange(3))
    with pytest.raises(ValueError, match="unrecognized PRNG"):
        random.key(0, impl="foo")
    with pytest.raises(TypeError):
        random.key(0) + 1


def test_choice_honours_axis_and_mode() -> None:
    same(random.choice(random.key(0), 4, (3,), axis=-1), jax.random.choice(jax.random.key(0), 4, (3,), axis=-1))
    with pytest.raises(ValueError, match="axis 1 is out of bounds"):
        random.choice(random.key(0), 4, (3,), axis=1)
    weights = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
    found, expected = (m.choice(m.key(0), 4, (3,), False, weights, mode="high") for m in (random, jax.random))
    same(found, expected)
