"""The ends of rows of narrow elements where no access has a mask (AVX2): every length, nothing outside is touched."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as jnp

DTYPES = ["bool", "int8", "uint8", "int16", "float16", "bfloat16"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_every_length(dtype: str) -> None:
    rng = np.random.default_rng(0)
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    rowwise = weft.jit(lambda x, y: (jnp.where(x != 0, y, -1e9).max(-1), jnp.exp(y) * 0 + x, x[:, ::-1], y.sum(-1)))
    moved = weft.jit(lambda x, c: jnp.where(c > 0, x, x[:1]))
    for length in range(1, 36):
        x = rng.integers(0, 3, (5, length)).astype(kind)
        y = rng.integers(-9, 9, (5, length)).astype(np.float32)
        c = rng.integers(0, 2, (5, 1)).astype(np.int32)
        most, same, back, total = rowwise(x, y)
        np.testing.assert_array_equal(np.asarray(most), np.where(x != 0, y, np.float32(-1e9)).max(-1))
        np.testing.assert_array_equal(np.asarray(same), x.astype(np.float32))
        np.testing.assert_array_equal(np.asarray(total), y.sum(-1))
        assert np.asarray(back).tobytes() == np.ascontiguousarray(x[:, ::-1]).tobytes(), length
        assert np.asarray(moved(x, c)).tobytes() == np.where(c > 0, x, x[:1]).tobytes(), length


def test_scores_of_masked_elements_are_zero() -> None:
    """exp of what rounds to zero, beside elements whose results are subnormal and ordinary."""
    for dtype, low in ((np.float32, -104.0), (np.float64, -745.2)):
        x = np.array([low - 1e-3, low + 2, -1e9, -np.inf, np.nan, 0.0, 1.0, low / 2, -1e30] * 9, dtype)
        with weft.enable_x64(dtype == np.float64), np.errstate(all="ignore"):
            for f, g, by in ((jnp.exp, np.exp, 1), (jnp.exp2, np.exp2, dtype(1 / np.log(2)))):
                np.testing.assert_allclose(np.asarray(weft.jit(f)(x * by)), g(x * by), rtol=1e-6)
