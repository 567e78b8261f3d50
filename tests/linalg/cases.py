"""Matrices for the tests of linear algebra: of every dtype, batched, empty, of one element, not contiguous."""

from __future__ import annotations

from typing import Any

import numpy as np

DTYPES = ["float32", "float64", "complex64", "complex128"]
BATCHES = [(), (3,), (2, 1), (0,), (70,)]  # the last is unrolled where matrices are small
TOLERANCE = {"float32": 2e-4, "complex64": 2e-4, "float64": 1e-10, "complex128": 1e-10}


def matrix(dtype: str, *shape: int, seed: int = 0) -> np.ndarray:
    """Normal entries."""
    rng = np.random.default_rng(seed + sum(shape))
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def adjoint(x: Any) -> np.ndarray:
    return np.swapaxes(np.asarray(x), -1, -2).conj()


def definite(dtype: str, *shape: int) -> np.ndarray:
    """Positive definite and well conditioned."""
    a = matrix(dtype, *shape)
    return (a @ adjoint(a) / max(shape[-1], 1) + np.eye(shape[-1])).astype(dtype)


def scattered(x: np.ndarray) -> np.ndarray:
    """The same values with other strides."""
    wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1] + 1), x.dtype)
    wide[..., 1::2] = x
    return wide[..., 1::2]


def close(found: Any, expected: Any, factor: float = 1.0) -> None:
    """Equal shapes, dtypes and, up to the accuracy of the dtype, values."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape and found.dtype == expected.dtype, (found.shape, found.dtype, expected.dtype)
    tolerance = TOLERANCE[found.dtype.name] * factor
    scale = max(float(np.abs(expected).max(initial=0)), 1e-30) if np.isfinite(expected).all() else 1.0
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * scale)
