"""Slices of computed values at starts read at run time: only what is read is computed, with the same bits."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax

N, M = 12, 20


def operand(*shape):
    return jnp.asarray(np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32))


def softmax_row(x, w, i):
    return weft.nn.softmax(x * 2, axis=-1)[i]


FUNCTIONS = {
    "row": lambda x, w, i: jnp.exp(x)[i],
    "window": lambda x, w, i: lax.dynamic_slice(jnp.tanh(x) * 2 + 1, (i, i), (5, 7)),
    "broadcast": lambda x, w, i: lax.dynamic_slice(jnp.exp(x) + w[:, None], (i, 0), (3, M)),
    "column": lambda x, w, i: lax.dynamic_slice(jnp.exp(x) * w[:, None], (0, i), (N, 2)),
    "transposed": lambda x, w, i: jnp.exp(x).T[i],
    "reshaped": lambda x, w, i: lax.dynamic_index_in_dim(jnp.exp(x)[:, None], i, 0, keepdims=False),
    "summed": lambda x, w, i: jnp.sum(jnp.exp(x)[i] * x[i]),
    "reduced": softmax_row,
    "two": lambda x, w, i: jnp.exp(x)[i] + jnp.exp(x)[i + 1],
    "read whole too": lambda x, w, i: (jnp.sum(jnp.exp(x)), jnp.exp(x)[i]),
    "stored too": lambda x, w, i: (jnp.exp(x), jnp.exp(x)[i]),
    "slice of a slice": lambda x, w, i: lax.dynamic_slice(
        jnp.exp(lax.dynamic_slice(x, (i, 0), (8, M)) + 1), (i, 2), (2, 3)
    ),
    "halved": lambda x, w, i: lax.dynamic_slice(jnp.exp(x)[::2], (i, 0), (2, M)),
    "counted": lambda x, w, i: (jnp.arange(N) * w)[i],
    "gradient": lambda x, w, i: weft.grad(lambda x: jnp.sum(jnp.tanh(x)[i] ** 2))(x),
    "mapped": lambda x, w, i: weft.vmap(lambda row: jnp.exp(row)[i])(x),
}


@pytest.mark.parametrize("start", [-40, -1, 0, 3, N - 1, 40])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_jitted_slices_are_those_of_the_whole_value(name, start):
    x, w, i = operand(N, M), operand(N), jnp.int32(start)
    with weft.disable_jit():
        want = FUNCTIONS[name](x, w, i)
    got = weft.jit(FUNCTIONS[name])(x, w, i)
    for a, b in zip(weft.tree.leaves(got), weft.tree.leaves(want), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def temporaries(function, *args):
    """Bytes of the largest value that is stored on the way."""
    return weft.jit(function).lower(*args).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("name", ["row", "window", "broadcast", "column", "transposed", "reshaped", "summed", "two"])
def test_the_whole_value_is_not_stored(name):
    assert temporaries(FUNCTIONS[name], operand(N, M), operand(N), jnp.int32(1)) < N * M * 4


def test_a_value_of_which_more_is_read_than_there_is_stays_stored():
    def function(x, i):
        y = jnp.exp(x)
        return sum(lax.dynamic_slice(y, (i + k, 0), (8, M)) for k in range(4))

    assert temporaries(function, operand(N, M), jnp.int32(1)) >= N * M * 4


def test_in_a_loop():
    x = operand(N, M)

    def total(x):
        return lax.scan(lambda c, i: (c + jnp.exp(x)[i], None), jnp.zeros(M), jnp.arange(N))[0]

    want = jnp.zeros(M)
    for i in range(N):
        want = want + jnp.exp(x)[i]
    np.testing.assert_array_equal(np.asarray(weft.jit(total)(x)), np.asarray(want))
