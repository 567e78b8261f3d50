"""Gathers and dynamic slices of computed values: only what is read is computed, with the bits of every mode."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.compiler import ladder
from tests.compiler.fusion.test_indexed_kernels import run
from weft import lax, nn
from weft.compiler.checks import verify

RNG = np.random.default_rng(0)
X = RNG.standard_normal((20, 24)).astype(np.float32)
ROWS = RNG.integers(-20, 20, 15).astype(np.int32)
LABELS = RNG.integers(0, 24, 20).astype(np.int32)

ONE_KERNEL: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "rows": (lambda x, i: (x * 2 + 1)[i], (X, ROWS)),
    "rows of a function": (lambda x, i: jnp.take(jnp.exp(x), i, axis=0), (X, ROWS)),
    "elements of each row": (lambda x, i: jnp.take_along_axis(jnp.sin(x), i, 1), (X, LABELS[:, None])),
    "of two arrays": (lambda x, y, i: (x * y)[i], (X, X + 1, ROWS)),
    "of another type": (lambda x, i: x.astype(jnp.bfloat16)[i], (X, ROWS)),
    "transposed": (lambda x, i: jnp.exp(x).T[i % 24], (X, ROWS)),
    "transposed windows": (lambda x, i: jnp.exp(x.reshape(4, 5, 24)).transpose(2, 1, 0)[:, i % 5], (X, ROWS)),
    "sliced": (lambda x, i: (x * 2)[3:9][i % 6], (X, ROWS)),
    "in steps": (lambda x, i: (x * 2)[1::3][i % 6], (X, ROWS)),
    "backwards": (lambda x, i: (x * 2)[::-1][i], (X, ROWS)),
    "broadcast": (lambda x, b, i: (x * (b + 1))[i], (X, X[0], ROWS)),
    "broadcast along the rows": (lambda x, b, i: (x * jnp.exp(b))[i], (X, X[:, :1], ROWS)),
    "only broadcast": (lambda b, i: jnp.broadcast_to(jnp.exp(b), (20, 24))[i], (X[0], ROWS)),
    "with unit dimensions": (lambda x, i: (x * 2)[:, None, :][i], (X, ROWS)),
    "flattened": (lambda x, i: (x * 2).reshape(-1)[i], (X, ROWS)),
    "points": (lambda x, i, j: jnp.exp(x)[i, j % 24], (X, ROWS, ROWS[::-1].copy())),
    "one for each row": (lambda x, j: jnp.exp(x)[jnp.arange(20), j], (X, LABELS)),
    "one": (lambda x, i: jnp.exp(x).at[i].get(mode="fill"), (X, np.int32(-3))),
    "selected": (lambda x, i: jnp.where(x > 0, x, jnp.zeros_like(x))[i], (X, ROWS)),
    "then computed with": (lambda x, i: nn.softmax(jnp.tanh(x)[i]), (X, ROWS)),
}


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_one_kernel_computes_at_the_gathered_indices(name: str) -> None:
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
    extremes = [0, 1, 19, 20, 22, 23, 24, 100, int(np.iinfo(dtype).max), int(np.iinfo(dtype).min)]
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


@pytest.mark.parametrize("name", LOSSES)
def test_the_gradient_of_a_cross_entropy_is_one_kernel_beside_its_mean(name: str) -> None:
    program = ladder.compiled(
        ladder.traced(lambda x, j: weft.value_and_grad(lambda x: LOSSES[name](x, j).mean())(x), (X, LABELS))
    )
    assert ladder.n_kernels(program) <= 2, program.text("kernel")
    assert program.plan.arena_bytes <= 512, program.text("plan")
    value, gradient = weft.jit(weft.value_and_grad(lambda x, j: LOSSES[name](x, j).mean()))(X, LABELS)
    exps = np.exp(X.astype(np.float64))
    expected = (exps / exps.sum(1, keepdims=True) - np.eye(24)[LABELS]) / len(X)
    np.testing.assert_allclose(value, expected_loss(X, LABELS).mean(), 1e-5)
    np.testing.assert_allclose(gradient, expected, 1e-4, 1e-7)


def drop_picked(x: np.ndarray, labels: np.ndarray, values: np.ndarray) -> np.ndarray:
    for row, (label, value) in enumerate(zip(labels, values, strict=True)):
        if 0 <= label < x.shape[1]:
            x[row, label] += value
    return x


@pytest.mark.parametrize("fill", [0.0, -0.0, 1.0])
@pytest.mark.parametrize("form", ["indices", "vmap", "columns"])
def test_one_update_for_each_row_of_a_fill_is_elementwise(form: str, fill: float) -> None:
    labels = np.array([0, 11, 12, -1, 100, 5, 5, 2**31 - 1], np.int32)
    values = np.array([1.5, -0.0, 2, 3, 4, 5, np.nan, 6], np.float32)
    numbers = lax.ScatterDimensionNumbers((), (0,), (0,))

    def put(x: Any, i: Any, v: Any) -> Any:
        return lax.scatter_add(x, i[None], v, numbers)

    def function(j: Any, v: Any) -> Any:
        x = jnp.full((8, 12), fill, jnp.float32)
        if form == "vmap":
            return weft.vmap(put)(x, j, v)
        if form == "indices":
            return x.at[jnp.arange(8), j].add(v, mode="drop", wrap_negative_indices=False)
        turned = jnp.full((12, 8), fill, jnp.float32)
        return turned.at[j, jnp.arange(8)].add(v, mode="drop", wrap_negative_indices=False).T

    program = run(function, (labels, values))
    assert ladder.n_kernels(program) == 1, program.text("kernel")
    expected = drop_picked(np.full((8, 12), fill, np.float32), labels, values)
    assert verify.same_bits(np.asarray(weft.jit(function)(labels, values)), expected)


def test_windows_that_may_meet_stay_a_scatter() -> None:
    labels = np.array([[0, 0], [3, 4]], np.int32)

    def function(j: Any) -> Any:
        return weft.vmap(lambda row, i: row.at[i].add(1.0))(jnp.zeros((2, 12), jnp.float32), j)

    expected = np.zeros((2, 12), np.float32)
    np.add.at(expected, (np.arange(2)[:, None], labels), 1)
    np.testing.assert_array_equal(weft.jit(function)(labels), expected)


# dynamic slices

N, M = 12, 20


def operand(*shape: int) -> Any:
    return jnp.asarray(np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32))


def softmax_row(x: Any, w: Any, i: Any) -> Any:
    return weft.nn.softmax(x * 2, axis=-1)[i]


FUNCTIONS: dict[str, Callable[..., Any]] = {
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
def test_jitted_slices_are_those_of_the_whole_value(name: str, start: int) -> None:
    x, w, i = operand(N, M), operand(N), jnp.int32(start)
    with weft.disable_jit():
        want = FUNCTIONS[name](x, w, i)
    got = weft.jit(FUNCTIONS[name])(x, w, i)
    for a, b in zip(weft.tree.leaves(got), weft.tree.leaves(want), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def temporaries(function: Callable[..., Any], *args: Any) -> Any:
    """Bytes of the largest value that is stored on the way."""
    return weft.jit(function).lower(*args).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("name", ["row", "window", "broadcast", "column", "transposed", "reshaped", "summed", "two"])
def test_the_whole_value_is_not_stored(name: str) -> None:
    assert temporaries(FUNCTIONS[name], operand(N, M), operand(N), jnp.int32(1)) < N * M * 4


def test_a_value_of_which_more_is_read_than_there_is_stays_stored() -> None:
    def function(x, i):
        y = jnp.exp(x)
        return sum(lax.dynamic_slice(y, (i + k, 0), (8, M)) for k in range(4))

    assert temporaries(function, operand(N, M), jnp.int32(1)) >= N * M * 4


def test_in_a_loop() -> None:
    x = operand(N, M)

    def total(x):
        return lax.scan(lambda c, i: (c + jnp.exp(x)[i], None), jnp.zeros(M), jnp.arange(N))[0]

    want = jnp.zeros(M)
    for i in range(N):
        want = want + jnp.exp(x)[i]
    np.testing.assert_array_equal(np.asarray(weft.jit(total)(x)), np.asarray(want))


def test_operations() -> None:
    operations = functools.partial(ladder.after, "moved_reads")
    x, i = operand(40, 60), np.int32(3)
    one = lambda x, i: lax.dynamic_slice(x, (i, np.int32(0)), (1, 60))
    assert operations(lambda x, i: one(lax.exp(x), i), x, i)[-2:] == ["dynamic_slice", "exp"]
    assert operations(lambda x, i: (lax.exp(x), one(lax.exp(x), i)), x, i).count("dynamic_slice") == 1
    stored = operations(lambda x, i: (lambda y: (y, one(y, i)))(lax.exp(x)), x, i)
    assert stored.index("exp") < stored.index("dynamic_slice")  # it is a result too
    rows = lax.GatherDimensionNumbers((1,), (0,), (0,))
    pick = lambda x, i: lax.gather(x, i, rows, (1, 60), mode="clip")
    assert operations(lambda x, i: pick(lax.exp(x), i), x, np.zeros((3, 1), np.int32))[-2:] == ["gather", "exp"]
    both = operations(lambda x, i, j: (lambda y: (one(y, i), pick(y, j)))(lax.exp(x)), x, i, np.zeros((3, 1), np.int32))
    assert both.count("exp") == 2 and both.index("gather") < len(both) - 1
