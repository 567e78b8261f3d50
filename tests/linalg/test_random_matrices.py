"""Random orthogonal matrices, correlated normal values and the initializers made of them, beside JAX's values."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import weft
from weft.nn import initializers


@pytest.mark.parametrize(("n", "m"), [(3, None), (4, 2), (2, 4), (1, 1)])
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_orthogonal(dtype: str, n: int, m: int | None) -> None:
    found = np.asarray(weft.random.orthogonal(weft.random.key(3), n, (2,), dtype, m))
    expected = np.asarray(jax.random.orthogonal(jax.random.key(3), n, (2,), dtype, m))
    assert found.dtype == dtype and found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.parametrize("method", ["cholesky", "eigh", "svd"])
def test_multivariate_normal(method: str) -> None:
    mean, cov = np.float32([1, -2]), np.float32([[2, 0.6], [0.6, 1]])
    found = np.asarray(weft.random.multivariate_normal(weft.random.key(1), mean, cov, (20000,), method=method))
    np.testing.assert_allclose(found.mean(0), mean, atol=0.05)
    np.testing.assert_allclose(np.cov(found.T), cov, atol=0.08)
    if method == "cholesky":
        expected = jax.random.multivariate_normal(jax.random.key(1), mean, cov, (20000,))
        np.testing.assert_allclose(found, expected, atol=2e-5)
    stack = weft.random.multivariate_normal(weft.random.key(1), np.zeros((3, 1, 2)), np.stack([cov] * 4), method=method)
    assert stack.shape == (3, 4, 2)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda key: weft.random.multivariate_normal(key, np.zeros(2), np.eye(3)), "cov.shape"),
        (lambda key: weft.random.multivariate_normal(key, np.zeros(2), np.eye(2), method="x"), "method"),
        (lambda key: weft.random.multivariate_normal(key, 0.0, np.eye(2)), "mean.ndim"),
        (lambda key: initializers.orthogonal()(key, (3,)), "at least a 2D"),
        (lambda key: initializers.delta_orthogonal()(key, (3, 3)), "3D, 4D or 5D"),
        (lambda key: initializers.delta_orthogonal()(key, (3, 3, 2)), "fan_in"),
    ],
)
def test_errors(call: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        call(weft.random.key(0))


def test_initializers() -> None:
    for name, shape in (
        ("orthogonal", (3, 4, 5)),
        ("orthogonal", (6, 2)),
        ("delta_orthogonal", (3, 2, 4)),
        ("delta_orthogonal", (3, 2, 2, 3)),
    ):
        for axis in (-1, 0) if name == "orthogonal" else (-1,):
            found = getattr(initializers, name)(2.0, axis)(weft.random.key(5), shape)
            expected = getattr(jax.nn.initializers, name)(2.0, axis)(jax.random.key(5), shape)
            np.testing.assert_allclose(found, expected, atol=2e-5)
    assert initializers.orthogonal()(weft.random.key(0), (3, 0)).shape == (3, 0)
