"""Draws outside of programs at many shapes: the values of a program for one shape, without compiling for each."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import compiler, config, random
from weft.compiler import pipeline
from weft.core.caches.store import PROGRAMS

SHAPES = [(40,), (2,), (1,), (), (0,), (3, 2), (2, 2), (2, 0), (1, 1), (5, 1), (300,), (7, 40), (2, 3, 4), (1100,)]
DRAWS = {
    "bits": random.bits,
    "narrow bits": lambda key, shape: random.bits(key, shape, np.uint8),
    "uniform": random.uniform,
    "uniform between": lambda key, shape: random.uniform(key, shape, minval=-2.0, maxval=np.float32(3)),
    "normal": random.normal,
    "bfloat16": lambda key, shape: random.normal(key, shape, weft.numpy.bfloat16),
    "complex": lambda key, shape: random.normal(key, shape, np.complex64),
    "randint": lambda key, shape: random.randint(key, shape, 0, 10),
    "bernoulli": lambda key, shape: random.bernoulli(key, 0.3, shape),
    "exponential": random.exponential,
    "gumbel": random.gumbel,
    "finer gumbel": lambda key, shape: random.gumbel(key, shape, mode="high"),
    "laplace": random.laplace,
    "logistic": random.logistic,
    "cauchy": random.cauchy,
    "rademacher": random.rademacher,
}
KEYS = {
    "typed": lambda: random.key(3),
    "raw": lambda: random.PRNGKey(3),
    "other generator": lambda: random.key(3, impl="rbg"),
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("name", DRAWS)
def test_same_values_as_in_a_program(name, kind):
    draw, key = DRAWS[name], KEYS[kind]()
    with config.context("check", False):
        for shape in SHAPES:
            got, expected = draw(key, shape), weft.jit(lambda k, shape=shape: draw(k, shape))(key)
            assert (got.shape, got.dtype) == (shape, expected.dtype)
            np.testing.assert_array_equal(np.asarray(got), np.asarray(expected))


@pytest.mark.parametrize("name", ["bits", "uniform", "normal", "bernoulli", "gumbel"])
def test_equals_the_compiler(name):
    """With the option ``check`` every shape is compiled, and compared with what the program at other sizes gives."""
    with config.context("check", True):
        for shape in SHAPES:
            assert DRAWS[name](random.key(5), shape).shape == shape


def test_bounds_of_many_elements():
    low = weft.numpy.arange(3.0)
    for rows in (2, 5, 9):
        got = random.uniform(random.key(0), (rows, 3), minval=low, maxval=low + 1)
        assert ((got >= low) & (got < low + 1)).all()


def _compiled():
    return compiler.stats()["kernels_built"], sum(type(v) is pipeline.Program for v in PROGRAMS.entries.values())


def test_no_program_for_a_new_shape():
    with config.context("check", False):
        draws = ("bits", "uniform", "normal", "bernoulli", "exponential", "rademacher")
        for name in draws:
            DRAWS[name](random.key(0), (50,)), DRAWS[name](random.key(0), (8, 70))
        before = _compiled()
        for name in draws:
            for n in (61, 62, 63):
                DRAWS[name](random.key(0), (n,)), DRAWS[name](random.key(0), (n, 3)), DRAWS[name](random.key(0), (2, n))
        assert _compiled() == before
