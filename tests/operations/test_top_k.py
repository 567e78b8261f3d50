"""top_k against a stable order of everything: ties, NaN, zeros of both signs, any number of rows."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
from weft import lax


def by_sorting(x: np.ndarray, k: int) -> np.ndarray:
    """Positions of the k largest: NaN first, then descending, 0.0 before -0.0, of equal ones the first."""
    wide = x.astype(np.float64) if x.dtype.kind not in "iu" else x
    rows = []
    for row in wide.reshape(-1, x.shape[-1]).tolist():
        keys = [
            (-int(v != v), -v if v == v else 0.0, int(v == 0 and math.copysign(1, v) < 0), i) for i, v in enumerate(row)
        ]
        rows.append([key[-1] for key in sorted(keys)][:k])
    return np.asarray(rows, np.int32).reshape(*x.shape[:-1], k)


def values(dtype: Any, shape: tuple[int, ...], which: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape) * 100
    if which == "ties":
        x = np.round(x / 40)
    if which == "zeros":
        x = np.where(x < 150, np.where(rng.random(shape) < 0.5, 0.0, -0.0), x)
    x = (abs(x) if np.dtype(dtype).kind == "u" else x).astype(dtype)
    if which == "nan" and x.dtype.kind not in "iu":
        x[..., 7], x[..., -1] = np.nan, np.nan
    return x


@pytest.mark.parametrize("which", ["plain", "ties", "zeros", "nan"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8", "int64", ml_dtypes.bfloat16, "float16"])
def test_the_largest_are_the_first_of_a_stable_order(dtype: Any, which: str) -> None:
    with weft.enable_x64():
        for shape, k in (((2, 333), 3), ((1000,), 10), ((3, 2, 100), 1), ((5, 40), 40), ((2, 300), 0)):
            x = values(dtype, shape, which)
            found, positions = lax.top_k(x, k)
            expected = by_sorting(x, k)
            np.testing.assert_array_equal(np.asarray(positions), expected)
            assert np.asarray(found).tobytes() == np.take_along_axis(x, expected, -1).tobytes()


def test_the_largest_of_no_rows() -> None:
    assert [out.shape for out in lax.top_k(np.zeros((0, 500), np.float32), 3)] == [(0, 3), (0, 3)]
