"""Where selections put NaN of either sign: NumPy's order where NumPy has the function, else JAX's."""

from __future__ import annotations

from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax

FLOATS = ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "float8_e5m2fnuz", "float8_e3m4"]


def values(dtype: str) -> np.ndarray:
    """Numbers, zeros and NaN of both signs, out of order."""
    own = np.dtype(getattr(ml_dtypes, dtype, dtype))
    found = np.array([2, np.nan, -1, 0, np.nan, -0.0, 1.5, -3, np.nan, -2, 0.5, 1, np.nan]).astype(own)
    found[4], found[12] = -found[1], -found[1]
    return found


def wide(x: Any) -> np.ndarray:
    return np.asarray(x).astype(np.float64)


@pytest.fixture(autouse=True)
def wide_floats() -> Any:
    with weft.enable_x64(True):
        yield


@pytest.mark.parametrize("dtype", FLOATS)
def test_partitions_and_orders(dtype: str) -> None:
    x = values(dtype)
    ordered = np.sort(wide(x))
    np.testing.assert_array_equal(wide(jnp.sort(x)), ordered)
    np.testing.assert_array_equal(wide(weft.jit(jnp.sort)(x)), ordered)
    np.testing.assert_array_equal(wide(jnp.sort(x, descending=True)), ordered[::-1])
    np.testing.assert_array_equal(np.asarray(jnp.argsort(x)), np.argsort(wide(x), kind="stable"))
    for k in (0, 5, 8, 9, len(x) - 1, -1):
        for found in (jnp.partition(x, k), weft.jit(lambda x, k=k: jnp.partition(x, k))(x), x[jnp.argpartition(x, k)]):
            parts, at = wide(found), k % len(x)
            np.testing.assert_array_equal(parts[at], ordered[at])
            np.testing.assert_array_equal(np.sort(parts[:at]), ordered[:at])
            np.testing.assert_array_equal(np.sort(parts[at:]), ordered[at:])
    rows = np.stack([x, x[::-1]])
    found = wide(jnp.partition(rows, 8, axis=-1))
    np.testing.assert_array_equal(np.sort(found[:, :9]), np.stack([ordered[:9]] * 2))
    found = np.asarray(jnp.partition(np.int32([5, np.iinfo(np.int32).min, 3]), 0))
    assert found[0] == np.iinfo(np.int32).min


@pytest.mark.parametrize("dtype", FLOATS)
def test_order_statistics(dtype: str) -> None:
    x = values(dtype)
    known = x[~np.isnan(wide(x))]
    for name, q in (("median", ()), ("quantile", (0.25,)), ("percentile", (25.0,))):
        assert np.isnan(wide(getattr(jnp, name)(x, *q)))
        found = wide(getattr(jnp, "nan" + name)(x, *q))
        np.testing.assert_array_equal(found, wide(getattr(np, name)(wide(known), *q)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_sets_and_searches(dtype: str) -> None:
    x = values(dtype)
    expected, index, inverse, counts = np.unique(wide(x), True, True, True)
    found = jnp.unique(x, True, True, True)
    np.testing.assert_array_equal(wide(found[0]), expected)
    for mine, other in zip(found[1:], (index, inverse, counts), strict=True):
        np.testing.assert_array_equal(np.asarray(mine), other)
    sized = weft.jit(lambda x: jnp.unique(x, size=len(expected)))(x)
    np.testing.assert_array_equal(wide(sized), expected)
    ordered = jnp.sort(x)
    for side in ("left", "right"):
        wanted = np.searchsorted(np.sort(wide(x)), wide(x), side)
        np.testing.assert_array_equal(np.asarray(jnp.searchsorted(ordered, x, side)), wanted)
    other = np.arange(len(x)) // 4
    np.testing.assert_array_equal(np.asarray(jnp.lexsort((x, other))), np.lexsort((wide(x), other)))
    np.testing.assert_array_equal(np.asarray(jnp.lexsort((other, x))), np.lexsort((other, wide(x))))


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_largest(dtype: str) -> None:
    """A positive NaN counts as the largest, a negative one as the least."""
    x = values(dtype)
    signs = x.view(f"i{x.dtype.itemsize}") < 0
    bad = np.isnan(wide(x))
    order = sorted(range(len(x)), key=lambda i: (-np.inf if signs[i] else np.inf) if bad[i] else float(x[i]))[::-1]
    first = sorted(order, key=order.index)
    for k in (3, len(x)):
        for found in (lax.top_k(x, k), weft.jit(lambda x, k=k: lax.top_k(x, k))(x), lax.approx_max_k(x, k)):
            taken = np.asarray(found[1])
            np.testing.assert_array_equal(wide(found[0]), wide(x[taken]))
            np.testing.assert_array_equal(wide(x[taken]), wide(x[first[:k]]))
            np.testing.assert_array_equal(signs[taken] & bad[taken], (signs & bad)[first[:k]])
        found = lax.approx_min_k(x, k)
        np.testing.assert_array_equal(wide(found[0]), np.sort(wide(x))[:k])
        np.testing.assert_array_equal(wide(x[np.asarray(found[1])]), np.sort(wide(x))[:k])
    long = np.tile(x, 400)
    found = np.asarray(lax.top_k(long, 5)[1])
    assert (bad & ~signs)[found % len(x)].all() or dtype.endswith("fnuz")
    assert (np.diff(found) > 0).all() or dtype.endswith("fnuz")


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float8_e5m2"])
def test_the_largest_beside_jax(dtype: str) -> None:
    x = values(dtype)
    for mine, other in zip(lax.top_k(x, len(x)), jax.lax.top_k(x, len(x)), strict=True):
        np.testing.assert_array_equal(wide(mine), wide(other))


def test_complex_numbers() -> None:
    nan = np.nan
    parts = [2, nan, -1, complex(0, nan), complex(nan, 1), 1.5j, complex(1, nan), -3, complex(1, -nan), 1, 1 + 1j]
    x = np.array(parts, np.complex64)
    np.testing.assert_array_equal(np.asarray(jnp.argsort(x)), np.argsort(x, kind="stable"))
    np.testing.assert_array_equal(np.asarray(jnp.sort(x)), np.sort(x))
    np.testing.assert_array_equal(np.asarray(jnp.lexsort((x,))), np.argsort(x, kind="stable"))
