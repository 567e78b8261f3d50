"""Sorted scatters are cut among threads where the target changes: the bits of the scatter with unsorted indices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax, ops

RNG = np.random.default_rng(3)
SHAPES = [
    (100_003, 997, ()),
    (100_003, 3, ()),
    (20_000, 1, ()),
    (40_000, 5_000, (5,)),
    (9_000, 50, (64,)),
    (5, 3, ()),
    (0, 4, ()),
]


def both(function: Any, *operands: Any) -> tuple[np.ndarray, np.ndarray]:
    found, expected = [np.asarray(weft.jit(lambda *xs, s=s: function(*xs, s))(*operands)) for s in (True, False)]
    return found, expected


@pytest.mark.parametrize(("count", "targets", "shape"), SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.int64, jnp.bfloat16, np.complex64])
def test_segment_sums_have_the_same_bits(count: int, targets: int, shape: tuple[int, ...], dtype: Any) -> None:
    with weft.enable_x64(True):
        values = (100 * RNG.normal(size=(count, *shape))).astype(dtype)
        ids = np.sort(RNG.integers(-1, targets + 2, count)).astype(np.int32)  # some of them outside
        found, expected = both(lambda v, i, s: ops.segment_sum(v, i, targets, indices_are_sorted=s), values, ids)
        np.testing.assert_array_equal(found, expected)
        exact = np.zeros((targets, *shape), np.complex128)
        inside = (ids >= 0) & (ids < targets)
        np.add.at(exact, ids[inside], values[inside].astype(np.complex128))
        if dtype is not jnp.bfloat16:
            np.testing.assert_allclose(found, exact, rtol=2e-4, atol=2)


@pytest.mark.parametrize("mode", ["drop", "clip"])
def test_replaced_multiplied_and_moved_inside(mode: str) -> None:
    values = RNG.uniform(0.9, 1.1, 50_000).astype(np.float32)
    ids = np.sort(RNG.integers(0, 700, 50_000))
    start = RNG.normal(size=500).astype(np.float32)
    for name in ("set", "add", "multiply", "max"):

        def update(x: Any, i: Any, v: Any, is_sorted: bool, name: str = name) -> Any:
            return getattr(x.at[i], name)(v, mode=mode, indices_are_sorted=is_sorted)

        found, expected = both(update, start, ids, values)
        np.testing.assert_array_equal(found, expected)


def test_two_components_batches_and_derivatives() -> None:
    rows = np.sort(RNG.integers(0, 40, 30_000)).astype(np.int32)
    columns = RNG.integers(0, 3, 30_000).astype(np.int32)
    order = np.lexsort((columns, rows))
    pairs = np.stack([rows[order], columns[order]], 1)
    values = RNG.normal(size=30_000).astype(np.float32)
    numbers = lax.ScatterDimensionNumbers((), (0, 1), (0, 1))

    def scattered(v: Any, i: Any, is_sorted: bool) -> Any:
        zeros = jnp.zeros((40, 3), np.float32)
        return lax.scatter_add(zeros, i, v, numbers, indices_are_sorted=is_sorted)

    np.testing.assert_array_equal(*both(scattered, values, pairs))
    ids = np.sort(RNG.integers(0, 9, (4, 6_000)), axis=1)
    batch = RNG.normal(size=(4, 6_000)).astype(np.float32)

    def sums(v: Any, i: Any, is_sorted: bool) -> Any:
        return weft.vmap(lambda v, i: ops.segment_sum(v, i, 9, indices_are_sorted=is_sorted))(v, i)

    np.testing.assert_array_equal(*both(sums, batch, ids))
    squared = lambda v, i, s: weft.grad(lambda v: (ops.segment_sum(v, i, 9, indices_are_sorted=s) ** 2).sum())(v)
    np.testing.assert_array_equal(*both(squared, batch[0], ids[0]))


def test_computed_updates_and_the_same_bits_on_one_thread() -> None:
    values = RNG.normal(size=(200_000, 3)).astype(np.float32)
    ids = np.sort(RNG.integers(0, 300, 200_000)).astype(np.int32)
    for body in (lambda v: v[:, 0] * v[:, 1] + v[:, 2], lambda v: jnp.exp(v[:, 0]), lambda v: v * v[:, ::-1]):
        function = weft.jit(lambda v, i, b=body: ops.segment_sum(b(v), i, 300, indices_are_sorted=True))
        found = np.asarray(function(values, ids))
        threads = weft.runtime.Pool.get_threads()
        try:
            weft.runtime.Pool.set_threads(1)
            np.testing.assert_array_equal(found, np.asarray(function(values, ids)))
        finally:
            weft.runtime.Pool.set_threads(threads)


@pytest.mark.parametrize("shape", [(10, 1), (10,), (1, 10, 1), (10, 3)])
@pytest.mark.parametrize("name", ["set", "add"])
def test_a_window_whose_rows_are_single_elements_is_written_whole(shape: tuple[int, ...], name: str) -> None:
    """The loop over a window's rows is no list of updates: the targets differ, though all start at one offset."""
    where = (slice(None),) * shape.index(10) + (slice(2, 6),)
    expected = np.zeros(shape, np.float32)
    expected[where] = 3
    found = weft.jit(lambda x: getattr(x.at[where], name)(3))(jnp.zeros(shape))
    np.testing.assert_array_equal(found, expected)
