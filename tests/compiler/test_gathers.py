"""Gathers of computed values: what is computed at the gathered places, as counts, with the bits of every mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.compiler import ladder
from tests.compiler.test_indexing import run
from weft import lax, nn
from weft.compiler import verify

RNG = np.random.default_rng(0)
X = RNG.standard_normal((20, 12)).astype(np.float32)
ROWS = RNG.integers(-20, 20, 15).astype(np.int32)
LABELS = RNG.integers(0, 12, 20).astype(np.int32)

ONE_KERNEL: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "rows": (lambda x, i: (x * 2 + 1)[i], (X, ROWS)),
    "rows of a function": (lambda x, i: jnp.take(jnp.exp(x), i, axis=0), (X, ROWS)),
    "elements of each row": (lambda x, i: jnp.take_along_axis(jnp.sin(x), i, 1), (X, LABELS[:, None])),
    "of two arrays": (lambda x, y, i: (x * y)[i], (X, X + 1, ROWS)),
    "of another type": (lambda x, i: x.astype(jnp.bfloat16)[i], (X, ROWS)),
    "transposed": (lambda x, i: jnp.exp(x).T[i % 12], (X, ROWS)),
    "transposed windows": (lambda x, i: jnp.exp(x.reshape(4, 5, 12)).transpose(2, 1, 0)[:, i % 5], (X, ROWS)),
    "sliced": (lambda x, i: (x * 2)[3:9][i % 6], (X, ROWS)),
    "in steps": (lambda x, i: (x * 2)[1::3][i % 6], (X, ROWS)),
    "backwards": (lambda x, i: (x * 2)[::-1][i], (X, ROWS)),
    "broadcast": (lambda x, b, i: (x * (b + 1))[i], (X, X[0], ROWS)),
    "broadcast along the rows": (lambda x, b, i: (x * jnp.exp(b))[i], (X, X[:, :1], ROWS)),
    "only broadcast": (lambda b, i: jnp.broadcast_to(jnp.exp(b), (20, 12))[i], (X[0], ROWS)),
    "with unit dimensions": (lambda x, i: (x * 2)[:, None, :][i], (X, ROWS)),
    "flattened": (lambda x, i: (x * 2).reshape(-1)[i], (X, ROWS)),
    "points": (lambda x, i, j: jnp.exp(x)[i, j % 12], (X, ROWS, ROWS[::-1].copy())),
    "one for each row": (lambda x, j: jnp.exp(x)[jnp.arange(20), j], (X, LABELS)),
    "one": (lambda x, i: jnp.exp(x).at[i].get(mode="fill"), (X, np.int32(-3))),
    "selected": (lambda x, i: jnp.where(x > 0, x, jnp.zeros_like(x))[i], (X, ROWS)),
    "then computed with": (lambda x, i: nn.softmax(jnp.tanh(x)[i]), (X, ROWS)),
}


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_one_kernel_computes_at_the_gathered_places(name: str) -> None:
    function, args = ONE_KERNEL[name]
    program = run(function, args)
    assert ladder.n_kernels(program) == 1, program.text("kernel")
    assert program.plan.arena_bytes == 0, program.text("plan")


LOSSES: dict[str, Callable[..., Any]] = {
    "take_along_axis": lambda x, j: -jnp.take_along_axis(nn.log_softmax(x), j[:, None], 1)[:, 0],
    "indices": lambda x, j: -nn.log_softmax(x)[jnp.arange(x.shape[0]), j],
    "vmap": weft.vmap(lambda x, j: -nn.log_softmax(x)[j]),
    "logsumexp": lambda x, j: nn.logsumexp(x, axis=-1) - jnp.take_along_axis(x, j[:, None], -1)[:, 0],
    "one hot": lambda x, j: -(nn.log_softmax(x) * nn.one_hot(j, x.shape[1])).sum(-1),
    "probabilities": lambda x, j: -jnp.log(jnp.take_along_axis(nn.softmax(x), j[:, None], 1))[:, 0],
}


def expected_loss(x: np.ndarray, labels: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    return np.log(np.exp(x).sum(1)) - x[np.arange(len(x)), labels]


@pytest.mark.parametrize("name", LOSSES)
def test_cross_entropy_of_each_row_is_one_kernel(name: str) -> None:
    program = run(LOSSES[name], (X, LABELS))
    assert ladder.n_kernels(program) == 1, program.text("kernel")
    assert program.plan.arena_bytes == 0
    np.testing.assert_allclose(weft.jit(LOSSES[name])(X, LABELS), expected_loss(X, LABELS), 1e-5, 1e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_the_mean_reads_one_number_of_each_row(name: str) -> None:
    program = run(lambda x, j: LOSSES[name](x, j).mean(), (X, LABELS))
    assert program.plan.arena_bytes <= 128, program.text("plan")


@pytest.mark.parametrize("mode", ["clip", "fill", "promise_in_bounds"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32])
def test_every_mode_has_the_bits_of_the_gather(mode: str, dtype: Any) -> None:
    extremes = [0, 1, 11, 12, 19, 20, 100, int(np.iinfo(dtype).max), int(np.iinfo(dtype).min)]
    ids = np.array(extremes, np.int64).astype(dtype)
    for x in (X, X.astype(jnp.bfloat16), (X * 9).astype(np.int32), X > 0, X.astype(np.complex64)):

        def function(x: Any, i: Any) -> Any:
            return jnp.where(x == x, x, x[::-1])[::-1, 1:].at[i, i].get(mode=mode, fill_value=1)

        eager = function(jnp.asarray(x), jnp.asarray(ids))
        assert verify.same_bits(np.asarray(eager), np.asarray(weft.jit(function)(x, ids)))


def test_an_index_dtype_too_small_for_the_array() -> None:
    x = np.arange(300, dtype=np.float32)
    ids = np.array([0, 127, 128, 255], np.uint8)
    np.testing.assert_array_equal(weft.jit(lambda x, i: (x * 2).at[i].get(mode="fill"))(x, ids), x[ids] * 2)


def test_an_expensive_value_gathered_often_is_stored() -> None:
    often = RNG.integers(0, 20, 5000).astype(np.int32)
    program = run(lambda x, i: jnp.exp(x)[i], (X[:, 0], often))
    assert ladder.n_kernels(program) == 2
    cheap = run(lambda x, i: (x * 2)[i], (X[:, 0], often))
    assert ladder.n_kernels(cheap) == 1


def test_what_is_in_memory_is_read_there() -> None:
    program = run(lambda x, i: jnp.exp(x)[i] + 0 * lax.stop_gradient(jnp.exp(x)).sum(), (X, ROWS))
    assert program.plan.arena_bytes <= 64, program.text("plan")
    closed = ladder.traced(lambda x, i: [(y := jnp.exp(x)), y[i]], (X, ROWS))
    stored = ladder.compiled(closed)
    assert stored.text("jaxpr").count(" exp ") == 1


def test_empty_gathers_and_duplicates() -> None:
    for ids in (np.zeros(0, np.int32), np.full(40, 7, np.int32)):
        np.testing.assert_array_equal(weft.jit(lambda x, i: (x * 2)[i])(X, ids), (X * 2)[ids])


def test_derivatives_and_vmap() -> None:
    def loss(x: Any, i: Any) -> Any:
        return jnp.sum(jnp.sin(x)[i] ** 2)

    gradient = weft.jit(weft.grad(loss))(X, ROWS)
    expected = np.zeros_like(X)
    np.add.at(expected, ROWS, 2 * np.sin(X[ROWS]) * np.cos(X[ROWS]))
    np.testing.assert_allclose(gradient, expected, 1e-5, 1e-5)
    stacked = np.stack([ROWS, ROWS[::-1]])
    mapped = weft.jit(weft.vmap(loss, (None, 0)))(X, stacked)
    np.testing.assert_allclose(mapped, [loss(jnp.asarray(X), jnp.asarray(i)) for i in stacked], 1e-6)
