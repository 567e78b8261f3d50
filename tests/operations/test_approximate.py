"""lax.approx_max_k and approx_min_k: exact, as NumPy sorts; derivatives and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft import lax

X = np.random.default_rng(0).normal(size=(3, 50)).astype(np.float32)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("k", [1, 3])
def test_all_are_found(axis: int, k: int) -> None:
    for name, order in (("approx_max_k", np.argsort(-X, axis=axis)), ("approx_min_k", np.argsort(X, axis=axis))):
        indices = np.take(order, np.arange(k), axis=axis)
        values, found = getattr(lax, name)(X, k, axis)
        np.testing.assert_array_equal(np.asarray(found), indices)
        np.testing.assert_array_equal(np.asarray(values), np.take_along_axis(X, indices, axis))
        assert found.dtype == np.int32
        jitted = weft.jit(lambda x, name=name: getattr(lax, name)(x, k, axis))(X)
        np.testing.assert_array_equal(np.asarray(jitted[0]), np.asarray(values))
    mapped = weft.vmap(lambda x: lax.approx_min_k(x, k)[0])(X)
    np.testing.assert_array_equal(np.asarray(mapped), np.sort(X, axis=1)[:, :k])
    slope = np.asarray(weft.grad(lambda x: lax.approx_min_k(x, k)[0].sum())(X))
    assert slope.sum() == 3 * k and set(np.unique(slope)) == {0.0, 1.0}


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: lax.approx_max_k(X.astype(int), 2), ValueError, "floating type"),
        (lambda: lax.approx_max_k(X, 51), ValueError, "k must be smaller"),
        (lambda: lax.approx_min_k(X, -1), ValueError, "k must be positive"),
        (lambda: lax.approx_min_k(X, 1, 5), ValueError, "out of bounds"),
        (lambda: lax.approx_min_k(X, 1, recall_target=2.0), ValueError, "recall_target"),
        (lambda: lax.approx_min_k(X, 1, aggregate_to_topk=False), NotImplementedError, "aggregate_to_topk"),
    ],
)
def test_bad_input(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()
