"""Sides of a choice that no lane takes are not computed, and the lanes that are chosen have the bits they had."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax

SIZES = [0, 1, 15, 16, 17, 100, 1000]
PATTERNS = {
    "none": lambda i: i < 0,
    "all": lambda i: i >= 0,
    "mixed": lambda i: i % 3 == 0,
    "runs": lambda i: i // 40 % 2 == 0,
    "last": lambda i: i == i.size - 1,
    "first": lambda i: i == 0,
}


def apart(function, which, x):
    """The same with every operation by itself, without a kernel in which one could be skipped."""
    with weft.disable_jit():
        return np.asarray(function(which, x))


PROGRAMS = {
    "false side": lambda p, x: jnp.where(p, x, jnp.exp(x) * 2 - 1),
    "true side": lambda p, x: jnp.where(p, jnp.tanh(x) + 1, x),
    "both sides": lambda p, x: jnp.where(p, jnp.log1p(jnp.abs(x)), jnp.sin(x) * 2),
    "shared": lambda p, x: jnp.where(p, jnp.exp(x) + 1, jnp.exp(x) - jnp.tanh(x)),
    "used elsewhere": lambda p, x: jnp.where(p, x, jnp.exp(x)) + jnp.exp(x),
    "nested": lambda p, x: jnp.where(p, jnp.where(x > 0, jnp.exp(x), jnp.sin(x)) + jnp.cos(x), x),
    "chosen by a side": lambda p, x: jnp.where(jnp.where(p, jnp.exp(x), x) > 1, jnp.tanh(x), x),
    "same twice": lambda p, x: lax.select(p, jnp.exp(x), jnp.exp(x)),
    "sum": lambda p, x: jnp.sum(jnp.where(p, jnp.exp(x), x)),
    "rows": lambda p, x: jnp.cumsum(jnp.where(p, jnp.exp(x), x)) - jnp.max(jnp.where(p, x, jnp.sin(x)), initial=0),
    "columns": lambda p, x: jnp.sum(jnp.where(p, jnp.exp(x), x)[:, None] * jnp.arange(3.0)[None], axis=0),
    "long": lambda p, x: jnp.where(p, jnp.log(jnp.exp(jnp.sin(x)) + 1) * jnp.tanh(x), jnp.arctan2(x, 2.0)),
    "reversed": lambda p, x: jnp.where(p, jnp.exp(x), x)[::-1],
    "truth": lambda p, x: jnp.where(p, jnp.exp(jnp.sin(x)) > 1.0, x > 0),
}


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_bits_of_the_chosen_lanes(name, pattern):
    function = PROGRAMS[name]
    compiled = weft.jit(function)
    for size in SIZES:
        x = np.random.default_rng(size).normal(size=size).astype(np.float32)
        x[::7] = np.nan
        which = PATTERNS[pattern](np.arange(size))
        got, want = np.asarray(compiled(which, x)), apart(function, which, x)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "complex64", "int32"])
def test_other_types(dtype):
    with weft.enable_x64(dtype == "float64"):
        x = jnp.asarray(np.random.default_rng(1).normal(size=333) * 3).astype(dtype)
        compiled = weft.jit(lambda p, x: jnp.where(p, x, (jnp.exp(x) * jnp.sin(x)).astype(x.dtype)))
        for pattern in PATTERNS.values():
            which = pattern(np.arange(333))
            np.testing.assert_array_equal(compiled(which, x), apart(compiled.__wrapped__, which, x))


def test_a_case_of_several_is_computed_everywhere():
    number = np.arange(100, dtype=np.int32) % 3
    x = np.linspace(-1, 1, 100, dtype=np.float32)
    compiled = weft.jit(lambda n, x: lax.select_n(n, jnp.exp(x), jnp.sin(x), jnp.tanh(x)))
    np.testing.assert_array_equal(compiled(number, x), apart(compiled.__wrapped__, number, x))


def test_derivatives_and_maps_of_skipped_sides():
    function = PROGRAMS["both sides"]
    x = np.random.default_rng(2).normal(size=(5, 40)).astype(np.float32)
    which = np.arange(200).reshape(5, 40) % 50 < 25
    slope = weft.grad(lambda x: jnp.sum(function(which, x)))(x)
    expected = np.where(which, np.sign(x) / (1 + np.abs(x)), 2 * np.cos(x))
    np.testing.assert_allclose(slope, expected, rtol=1e-5, atol=1e-6)
    rows = weft.vmap(function)(which, x)
    np.testing.assert_array_equal(rows, np.stack([function(p, row) for p, row in zip(which, x, strict=True)]))


def count_of_sides(function, *args) -> int:
    """How many sides of the program's kernel need not be computed: what they hold then, in all vectors, is nothing."""
    lines = weft.jit(function).lower(*args).compile().as_text("llvm").splitlines()
    return sum("[ poison, " in line and "[ poison, " not in before for before, line in itertools.pairwise(lines))


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (lambda x: jnp.where(x > 0, x, 1.67 * jnp.exp(x) - 1.67), 1),
        (lambda x: jnp.where(x > 0, jnp.log(x), jnp.exp(x)), 2),
        (lambda x: jnp.where(x > 0, x * 2 + 1, x - 1), 0),  # short sides are not worth it
        (lambda x: jnp.where(x != x, 1.0, jnp.sin(x)), 0),  # all numbers need it
        (lambda x: jnp.where(x == x, 1.0, jnp.sin(x)), 1),  # no number needs it
        (lambda x: jnp.where(x > 0, x, jnp.exp(x)) + jnp.exp(x), 0),  # both sides are needed anyway
    ],
)
def test_which_sides_are_behind_a_test(function, count):
    assert count_of_sides(function, np.ones(100, np.float32)) == count
