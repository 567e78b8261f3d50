"""Extrema of bfloat16 and float16 and their positions, which are found by the bits: every value, zeros, NaN, blocks."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as jnp

HALVES = {"bfloat16": np.dtype(ml_dtypes.bfloat16), "float16": np.dtype(np.float16)}
NAMES = ("max", "min", "argmax", "argmin")


def _check(x: np.ndarray, axis: int | None) -> None:
    """Against float32 in NumPy; of zeros the positive one is the larger."""
    wide = x.astype(np.float32)
    flat = wide.reshape(-1) if axis is None else wide
    for name in NAMES:
        got = np.asarray(weft.jit(getattr(jnp, name), static_argnames="axis")(x, axis=axis))
        want = getattr(np, name)(flat, axis=axis)
        np.testing.assert_array_equal(got.astype(want.dtype), want, f"{name} {x.shape} {axis}")
        if not name.startswith("arg"):
            signs = np.copysign(flat == 0, flat)
            sign = np.where((signs > 0).any(axis), 1, -1) if name == "max" else np.where((signs < 0).any(axis), -1, 1)
            np.testing.assert_array_equal(np.copysign(1, got.astype("f4"))[want == 0], sign[want == 0])


@pytest.mark.parametrize("dtype", HALVES)
def test_every_value_alone_and_beside_its_neighbours(dtype: str) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(HALVES[dtype])
    _check(every[:, None], 1)
    for shift in (1, -1, 1 << 15):
        pairs = np.stack([every, np.roll(every, shift)])
        _check(pairs, 0)
        _check(np.ascontiguousarray(pairs.T), 1)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("special", [(), (np.nan,), (-np.nan, np.nan), (np.inf, -np.inf), (0.0, -0.0)], ids=str)
def test_rows_columns_and_all_over_blocks_and_threads(dtype: str, special: tuple[float, ...]) -> None:
    random = np.random.default_rng(len(special))
    values = random.standard_normal(40_000).astype(HALVES[dtype])
    if special == (0.0, -0.0):
        values = np.zeros_like(values)
    for size, (low, high) in itertools.product((1, 31, 33, 300, 8193, 20_000), ((0, 2), (0, 1), (1, 2))):
        x = random.permutation(values)[:size]
        for value in special[low:high]:
            x[random.integers(size)] = value
        rows = np.stack([x, x[::-1], -x])
        for array, axis in ((x, None), (rows, 1), (np.ascontiguousarray(rows.T), 0), (rows[:, ::2], 1)):
            _check(array, axis)
            with weft.threads(1):
                _check(array, axis)


@pytest.mark.parametrize("dtype", HALVES)
def test_what_is_also_used_otherwise_is_reduced_as_before(dtype: str) -> None:
    x = np.random.default_rng(0).standard_normal((5, 700)).astype(HALVES[dtype])
    largest, positions, total, doubled = weft.jit(lambda x: (jnp.max(x, 1), jnp.argmin(x, 1), jnp.sum(x, 1), x + x))(x)
    np.testing.assert_array_equal(np.asarray(largest).astype("f4"), x.astype("f4").max(1))
    np.testing.assert_array_equal(positions, x.astype("f4").argmin(1))
    np.testing.assert_array_equal(np.asarray(doubled).astype("f4"), 2 * x.astype("f4"))
    np.testing.assert_allclose(np.asarray(total).astype("f4"), x.astype("f4").sum(1), 0.01, 0.5)
