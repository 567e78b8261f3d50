"""Reductions over rows of a few elements: lanes run across the rows, and the bits are those of the tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.compiler import ladder
from weft import nn


def squared_distances(x: Any, y: Any) -> Any:
    return ((x[:, None, :] - y[None, :, :]) ** 2).sum(-1)


PROGRAMS: dict[str, Callable[..., Any]] = {
    "sum": lambda x, y: x.sum(-1),
    "sum across rows": lambda x, y: x.T.reshape(x.shape[1], -1).T.sum(-1),
    "mean": lambda x, y: x.mean(-1),
    "max": lambda x, y: x.max(-1),
    "product": lambda x, y: x.prod(-1),
    "position": lambda x, y: jnp.argmax(x, -1),
    "any": lambda x, y: (x > 0).any(-1),
    "distances": lambda x, y: squared_distances(x[:150], y),
    "nearest": lambda x, y: jnp.argmin(squared_distances(x[:150], y), 1),
    "running sum": lambda x, y: x - 2 * jnp.cumsum(x, -1),
    "running minimum from the end": lambda x, y: weft.lax.cummin(abs(x), axis=1, reverse=True),
    "running products and maxima": lambda x, y: (jnp.cumprod(x, 1), weft.lax.cummax(x, axis=1)),
    "unit rows": lambda x, y: x / jnp.sqrt((x * x).sum(-1, keepdims=True)),
    "three dimensions": lambda x, y: (x[None, :300] * y[:, None] * x[:1, None]).sum(-1),
}


def both_ways(function: Callable[..., Any], *args: np.ndarray) -> tuple[Any, list[np.ndarray], list[np.ndarray]]:
    closed = weft.make_jaxpr(function)(*args)
    program = ladder.compiled(closed)
    return program, ladder.by_machine_code(program, args), ladder.by_reference(closed, args)


def special(rows: int, columns: int, dtype: Any, seed: int) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal((rows, columns)).astype(dtype)
    values[0] = -0.0
    values[rows // 2, columns // 2] = np.nan
    values[rows - 1, 0] = np.inf
    values[rows - 2] = values[rows - 2, 0]
    return values


@pytest.mark.parametrize("columns", [3, 6, 16, 21])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, ml_dtypes.bfloat16])
def test_running_combinations_across_rows_are_those_of_one_row(columns: int, dtype: Any) -> None:
    """Few rows are done one after the other."""
    x = special(1003, columns, dtype, 2) if dtype != np.int8 else np.arange(1003 * columns).reshape(1003, -1) % 17
    x = x.astype(dtype)
    functions = [lambda x: weft.lax.cummin(x, axis=1, reverse=True)]
    if dtype != np.int8:
        functions.append(lambda x: jnp.exp(weft.lax.cumlogsumexp(x, axis=1)))
    for function in functions:
        found, part = (np.asarray(weft.jit(function)(one)).astype(np.float64) for one in (x, x[480:530]))
        np.testing.assert_array_equal(found[480:530], part)


@pytest.mark.parametrize("columns", [2, 3, 5, 8, 16, 19, 31])
@pytest.mark.parametrize("name", PROGRAMS)
def test_short_rows_have_the_bits_of_the_tree(name: str, columns: int) -> None:
    x, y = special(4200, columns, np.float32, 0), special(37, columns, np.float32, 1)
    _, found, expected = both_ways(PROGRAMS[name], x, y)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(np.signbit(a[~np.isnan(a)]), np.signbit(b[~np.isnan(b)]))


@pytest.mark.parametrize("dtype", [np.float64, np.int8, np.uint32, np.complex64, np.float16, ml_dtypes.bfloat16])
def test_short_rows_of_every_size_of_element(dtype: Any) -> None:
    x = np.random.default_rng(2).integers(0, 9, (4100, 6)).astype(dtype)
    y = np.random.default_rng(3).integers(0, 9, (37, 6)).astype(dtype)
    with weft.enable_x64():
        for function in (lambda x, y: x.sum(-1), lambda x, y: (x[:200, None] * y[None]).sum(-1)):
            _, found, expected = both_ways(function, x, y)
            np.testing.assert_array_equal(found[0], expected[0])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.exp(jnp.sin(x)).sum(-1),
        lambda x: (jnp.cos(x) * jnp.tanh(x) > 0.1).any(-1),
        lambda x: jnp.argmax(jnp.sin(x) * jnp.exp(x), -1),
        lambda x: (jnp.sin(x[:600, None] - x[None, :9]) * jnp.exp(x[:600, None])).sum(-1),
    ],
)
def test_long_bodies_over_short_rows_have_the_bits_of_single_operations(function: Callable[..., Any]) -> None:
    x = np.random.default_rng(5).standard_normal((4200, 13)).astype(np.float32)
    closed = weft.make_jaxpr(function)(x)
    found, expected = ladder.by_machine_code(ladder.compiled(closed), [x]), ladder.by_eager(closed, [x])
    np.testing.assert_array_equal(found[0], expected[0])


@pytest.mark.parametrize(
    ("shape", "n_kernels"),
    [
        (((4100, 4), (4,)), 1),
        (((3,), (3, 4100)), 1),
        (((900, 5, 4), (900, 4)), 1),
        (((300, 14, 16), (300, 16)), 1),
        (((4100, 7), (7,)), 0),  # products, which are no kernels
        (((16,), (16, 4100)), 0),
    ],
)
def test_many_short_rows_by_vectors_are_one_kernel_but_long_ones_of_one_matrix(shape: Any, n_kernels: int) -> None:
    x, y = (np.random.default_rng(6).integers(-9, 9, s).astype(np.float32) for s in shape)
    function = (lambda x, y: jnp.einsum("bij,bj->bi", x, y)) if x.ndim == 3 else (lambda x, y: x @ y)
    program, found, _ = both_ways(function, x, y)
    assert ladder.n_kernels(program) == n_kernels
    np.testing.assert_array_equal(found[0], np.einsum("bij,bj->bi", x, y) if x.ndim == 3 else x @ y)


def test_several_phases_over_short_rows_have_the_bits_of_single_operations() -> None:
    x = special(4200, 5, np.float32, 4)
    closed = weft.make_jaxpr(lambda x: nn.softmax(x, -1))(x)
    found, expected = ladder.by_machine_code(ladder.compiled(closed), [x]), ladder.by_eager(closed, [x])
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[0], ladder.by_reference(closed, [x])[0], 1e-6)


@pytest.mark.parametrize("rows", [4096, 4097, 4111, 4112])
def test_short_rows_of_any_number(rows: int) -> None:
    x = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3) % 100
    _, found, _ = both_ways(lambda x: x.sum(-1), x)
    np.testing.assert_array_equal(found[0], x.sum(-1))


def test_lanes_run_across_short_rows_only() -> None:
    def form(columns: int, rows: int = 5000, dtype: Any = np.float32, function: Any = jnp.sum) -> str:
        x = np.zeros((rows, columns), dtype)
        return both_ways(lambda x: function(x, axis=-1), x)[0].text("loops")

    def spread(x: Any, axis: int) -> Any:
        return x.max(axis) - x.min(axis)

    for text in (form(7), form(31, function=spread), form(31, dtype=np.float64, function=jnp.argmax)):
        assert "parallel i0 lanes x" in text
    assert "reduced i1 of 7" in form(7)
    for text in (form(33), form(7, 50), form(31, dtype=np.int8, function=jnp.cumsum)):
        assert "parallel i0 lanes x" not in text and "reduced i1 of" not in text
    for text in (form(8), form(31), form(32), form(16, function=jnp.max), form(31, dtype=np.int8)):
        assert "lanes i1 x" in text and "reduced i1 of" in text
    with weft.enable_x64():
        assert "parallel i0 lanes x" in form(16, dtype=np.float64, function=jnp.argmax)
        assert "parallel i0 lanes x" not in form(17, dtype=np.float64, function=lambda x, axis: jnp.cumsum(x, axis))


@pytest.mark.parametrize("columns", [2, 10, 16, 21, 31])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.complex64, np.float16])
def test_positions_in_short_rows_are_numpys(columns: int, dtype: Any) -> None:
    """NaN first, the first of equal ones, and rows in which nothing is better than the identity."""
    generator = np.random.default_rng(columns)
    x = generator.integers(-3, 4, (600, columns)).astype(dtype)
    if x.dtype.kind != "i":
        chosen = generator.random(x.shape)
        x[chosen < 0.03] = np.nan
        x[(chosen > 0.9) & (x == 0)] = -0.0
        x[0], x[1], x[2] = np.inf, -np.inf, np.nan
    with weft.enable_x64():
        for ours, numpys in ((jnp.argmax, np.argmax), (jnp.argmin, np.argmin)):
            found = weft.jit(lambda x, ours=ours: ours(x, axis=1))(x)
            np.testing.assert_array_equal(np.asarray(found), numpys(x, axis=1))


def test_another_length_of_short_rows_is_another_program() -> None:
    @weft.jit
    def total(x: Any) -> Any:
        return x.sum(-1)

    for columns in (3, 4, 5, 16, 17, 40):
        np.testing.assert_array_equal(np.asarray(total(np.ones((5000, columns), np.float32))), np.full(5000, columns))


@pytest.mark.parametrize("columns", [5, 6, 7, 8, 11, 13, 16, 23])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint32, np.float64, np.int64])
def test_rows_apart_and_in_place(columns: int, dtype: Any) -> None:
    """Rows that are parts of longer ones, results in rows of another distance, and results over operands."""
    wide = (np.random.default_rng(columns).standard_normal((1003, columns + 3)) * 50).astype(dtype)
    wide = np.where(wide == 0, dtype(3), wide)

    def function(x: Any) -> Any:
        rows = x[:, 2 : columns + 2]
        return jnp.pad(rows - rows.max(-1, keepdims=True), ((0, 0), (1, 2))), rows.min(-1)

    with weft.enable_x64(np.dtype(dtype).itemsize == 8):
        _, found, expected = both_ways(function, wide)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    with weft.enable_x64(np.dtype(dtype).itemsize == 8):
        given = jnp.asarray(wide[:, :columns].copy())
        centred = weft.jit(lambda x: x - x.min(-1, keepdims=True), donate_argnums=0)(given)
    rows = wide[:, :columns]
    assert centred.dtype == dtype
    np.testing.assert_array_equal(np.asarray(centred), rows - rows.min(-1, keepdims=True))
