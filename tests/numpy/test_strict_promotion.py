"""Functions that compute in other types than their operands' do not promote implicitly (``numpy_dtype_promotion``)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp

oracle: Any
try:
    import jax.numpy as oracle
except ImportError:
    oracle = None

X = np.array([[2.0, 1.0, 3.0], [1.0, 4.0, np.nan]])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_statistics_under_strict_promotion(dtype: str) -> None:
    x = jnp.asarray(X, dtype)
    with weft.numpy_dtype_promotion("strict"):
        found = [jnp.median(x[0]), jnp.nanmedian(x), jnp.nanvar(x, axis=1), jnp.nanstd(x)]
        scaled = jnp.ldexp(x[0], jnp.arange(3))
    assert {str(y.dtype) for y in (*found, scaled)} == {dtype}
    assert found[0].item() == 2.0 and found[1].item() == np.nanmedian(X)
    np.testing.assert_allclose(np.asarray(found[2], np.float64), np.nanvar(X, axis=1), rtol=0.01)
    np.testing.assert_allclose(float(found[3]), np.nanstd(X), rtol=0.01)
    assert np.asarray(scaled, np.float64).tolist() == [2.0, 2.0, 12.0]


@pytest.mark.oracle
def test_kept_dimensions_of_arrays_of_one_element() -> None:
    for shape in ((), (1,), (1, 1)):
        for axis in (None, ()):
            x, ours = np.ones(shape, np.float32), []
            for m in (jnp, oracle):
                median = m.median(x, axis=axis, keepdims=True)
                pair = m.quantile(x, np.array([0.2, 0.7], np.float32), axis=axis, keepdims=True)
                ours.append((median.shape, pair.shape, np.asarray(pair).tolist()))
            assert ours[0] == ours[1], (shape, axis)


def test_spacing_of_half_precision_is_that_of_numpy() -> None:
    x = np.array([-1.0, 1.0, -0.0, 0.0, -65504, -6e-8, -1e-5, -1.5, 2.0], np.float16)
    assert np.array_equal(jnp.spacing(x), np.spacing(x))


def test_take_along_an_axis_without_elements_and_by_comparison() -> None:
    for shape, taken, axis in (((0,), (3,), 0), ((0, 3), (2, 3), 0), ((2, 0), (2, 3), 1), ((0, 2), (0, 2), 1)):
        got = jnp.take_along_axis(jnp.ones(shape), np.full(taken, -3), axis)
        assert np.array_equal(got, np.zeros(taken))
    x, at = np.arange(12.0).reshape(4, 3), np.array([[0, 3, -1], [2, 9, 1]])
    got = jnp.take_along_axis(x, at, 0, mode="one_hot")
    assert got.tolist() == [[0.0, 10.0, 11.0], [6.0, 0.0, 5.0]]  # 0 where the position lies outside
    assert jnp.take_along_axis(x > 3, at[:1], 0, mode="one_hot").tolist() == [[False, True, True]]
