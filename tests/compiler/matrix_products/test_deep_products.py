"""Products whose sum is much longer than rows and columns, and those of rows and the same rows: the stated bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.compiler.matrix_products.exact_products import exact_product

Rule = Callable[..., Any]


def drawn(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> np.ndarray:
    """Numbers of several magnitudes, so that sums round often and another order shows."""
    x = rng.standard_normal(shape) * 4.0 ** rng.integers(-2, 3, shape)
    if kind.startswith("complex"):
        x = x + 1j * rng.standard_normal(shape)
    return (100 * x).astype(kind) if kind.startswith("int") else x.astype(kind)


def check(rule: Rule, operands: tuple[np.ndarray, ...], expected: np.ndarray) -> None:
    arrays, compiled = [jnp.asarray(x) for x in operands], weft.jit(rule)
    for threads in (1, 2, 3):
        with weft.threads(threads):
            np.testing.assert_array_equal(np.asarray(compiled(*arrays)), expected, err_msg=f"{threads} threads")


@pytest.mark.parametrize("kind", ["float32", "float64", "complex64", "int32"])
def test_terms_cut_into_blocks_are_added_in_order(kind: str) -> None:
    rng = np.random.default_rng(len(kind))
    with weft.enable_x64(True):
        for m, n, k in ((49, 35, 2100), (6, 33, 3100)):
            a, b = drawn(rng, (k, m), kind), drawn(rng, (k, n), kind)
            left, right = np.ascontiguousarray(a.T), np.ascontiguousarray(b.T)
            wide = np.pad(a, ((0, 0), (3, 700)))  # rows that are far apart
            expected = exact_product(left, b)
            check(lambda a, b: a.T @ b, (a, b), expected)
            check(lambda a, b: a @ b.T, (left, right), expected)
            check(lambda a, b: a.T @ b.T, (a, right), expected)
            check(lambda a, b, m=m: a[:, 3 : 3 + m].T @ b, (wide, b), expected)
            check(lambda a, b: (b.T @ a).T, (a, b), expected)


@pytest.mark.parametrize("kind", ["float32", "complex64"])
def test_rows_times_the_same_rows_are_the_full_product(kind: str) -> None:
    rng = np.random.default_rng(7)
    with weft.enable_x64(True):
        for n, k in ((35, 2100), (70, 520), (300, 20)):
            x = drawn(rng, (k, n), kind)
            across = np.ascontiguousarray(x.T)
            expected = exact_product(across, x)
            check(lambda x: x.T @ x, (x,), expected)
            check(lambda x: x @ x.T, (across,), expected)
            check(lambda x, y: x.T @ y, (x, x.copy()), expected)  # the same numbers elsewhere
            check(lambda x: x.T @ x + 1, (x,), expected + 1)  # what follows waits for the other half
            check(lambda x: (x.T @ x).sum(0), (x,), np.asarray(jnp.asarray(expected).sum(0)))


def test_one_array_as_two_arguments_and_batches_of_symmetric_products() -> None:
    rng = np.random.default_rng(3)
    x, batch = drawn(rng, (2600, 40), "float32"), drawn(rng, (3, 2100, 33), "float32")
    one = jnp.asarray(x)
    np.testing.assert_array_equal(np.asarray(weft.jit(lambda x, y: x.T @ y)(one, one)), exact_product(x.T, x))
    gram = weft.vmap(lambda x: x.T @ x)
    check(gram, (batch,), np.stack([exact_product(x.T, x) for x in batch]))
    reversed_batch = weft.jit(lambda x: jnp.matmul(jnp.swapaxes(x, 1, 2), x[::-1]))(batch)
    expected = np.stack([exact_product(x.T, y) for x, y in zip(batch, batch[::-1], strict=True)])
    np.testing.assert_array_equal(np.asarray(reversed_batch), expected)


def test_nan_and_infinity_reach_their_row_and_column() -> None:
    x = drawn(np.random.default_rng(5), (2500, 20), "float32")
    finite = np.asarray(weft.jit(lambda x: x.T @ x)(x))
    x[700, 3], x[2400, 7] = np.nan, np.inf
    found = np.asarray(weft.jit(lambda x: x.T @ x)(x))
    others = np.delete(np.arange(20), [3, 7])
    np.testing.assert_array_equal(found[np.ix_(others, others)], finite[np.ix_(others, others)])
    assert np.isnan(found[3]).all() and np.isnan(found[:, 3]).all()
    np.testing.assert_array_equal(found[7, others], np.sign(x[2400, others]) * np.inf)
    np.testing.assert_array_equal(found[others, 7], found[7, others])
