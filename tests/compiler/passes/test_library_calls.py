"""Sorts along rows, of what is needed, and many short rows sorted by networks, in the order of NumPy's stable sort."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.compiler import ladder
from weft import lax
from weft.compiler.passes import sort_lowering

DTYPES = (np.float32, np.float16, ml_dtypes.bfloat16, np.int32, np.uint8)


def rows(dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0, 5, shape).astype(dtype)
    special = rng.choice([np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf], shape)
    return np.where(rng.random(shape) < 0.4, special, np.round(rng.standard_normal(shape))).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "axis"), [((70, 2), 1), ((3, 133), 0), ((9, 5, 8), 1), ((64, 7), -1), ((65, 12), 1)])
def test_order(dtype, shape, axis):
    """With the positions, and with other operands; equal elements, signed zeros and NaN keep their order."""
    x = rows(dtype, shape)
    wide = x if np.dtype(dtype).kind in "iu" else x.astype(np.float64) + 0.0
    order = np.argsort(wide, axis=axis, kind="stable")

    @weft.jit
    def f(x):
        pair = lax.sort((x, -x), dimension=axis % x.ndim, num_keys=1)
        return jnp.sort(x, axis), jnp.argsort(x, axis), pair

    values, positions, (keys, others) = f(x)
    np.testing.assert_array_equal(positions, order)
    for found, want in ((values, x), (keys, x), (others, -x)):
        want = np.take_along_axis(want, order, axis)
        np.testing.assert_array_equal(np.asarray(found).astype(np.float64), want.astype(np.float64))
        if np.dtype(dtype).kind not in "iu":
            numbers = ~np.isnan(want.astype(np.float64))
            np.testing.assert_array_equal(np.signbit(np.asarray(found))[numbers], np.signbit(want)[numbers])


@pytest.mark.parametrize("n", [3, 4, 5])
def test_moving_median_is_one_kernel(n):
    x = np.random.default_rng(n).standard_normal(1003).astype(np.float32)
    x[17] = np.nan

    def median(x):
        return jnp.median(jnp.stack([x[k : x.size - n + 1 + k] for k in range(n)]), axis=0)

    compiled = weft.jit(median).lower(x).compile()
    assert compiled.as_text("plan").count("kernel") == 1
    np.testing.assert_allclose(median(x), np.median(np.lib.stride_tricks.sliding_window_view(x, n), -1), rtol=1e-6)


def test_program_of_one_sort():
    """Small sorts alone are native, whose program serves other sizes; large ones are networks."""
    x = rows(np.float32, (sort_lowering.SMALL // 4, 4))
    for given, native in ((x[:99], True), (x, False)):
        text = weft.jit(lax.sort).lower(given).compile().as_text("plan")
        assert ("kernel" not in text) == native
        np.testing.assert_array_equal(lax.sort(given), np.sort(given, axis=-1))


@pytest.mark.parametrize("q", [0.0, 0.3, 0.5, 1.0])
def test_known_quantile(q):
    x = np.random.default_rng(3).standard_normal((200, 6)).astype(np.float32)
    np.testing.assert_allclose(weft.jit(lambda x: jnp.quantile(x, q, axis=1))(x), np.quantile(x, q, axis=1), rtol=1e-5)


def test_operations() -> None:
    operations = functools.partial(ladder.after, "library_calls")
    x = rows(np.float32, (50, 90))
    both = lambda axis: (
        lambda x: lax.sort((x, lax.broadcasted_iota(np.int32, x.shape, axis)), dimension=axis, num_keys=1)
    )
    assert operations(lambda x: both(1)(x)[1], x) == ["sort_order"]  # positions are not read, values not written
    assert operations(lambda x: both(0)(x)[1], x) == ["transpose", "sort_order", "transpose"]
    assert operations(both(1), x) == ["sort_order"]
    assert operations(lambda x: lax.sort(x, dimension=0) + 1, x) == ["transpose", "sort", "transpose", "add"]
    assert "sort" not in operations(lambda x: lax.sort(x) + 1, rows(np.float32, (5000, 3)))
    assert "cholesky" not in operations(
        lambda x: lax.linalg.cholesky(x), np.tile(np.eye(3, dtype=np.float32), (500, 1, 1))
    )
