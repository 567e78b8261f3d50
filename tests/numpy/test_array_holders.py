"""Objects with a method ``__jax_array__`` where arrays are taken; arrays of types that must not mix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax


class Holder:
    """An array that is not an Array."""

    def __init__(self, values: Any) -> None:
        self.values = jnp.asarray(values)

    def __jax_array__(self) -> Any:
        return self.values


VALUES = [0, 3, 1, 3, 0]
TAKEN: list[Callable[[Any], Any]] = [
    jnp.unique, jnp.unique_values, jnp.unique_counts, lambda x: jnp.setdiff1d(x, np.array([1])), jnp.trim_zeros,
    jnp.nonzero, jnp.where, jnp.bincount, lambda x: lax.convert_element_type(x, float), jnp.ones_like,
    lambda x: jnp.full_like(np.ones(5), x), lambda x: jnp.add(x, 1), jnp.sum, weft.nn.relu,
    lambda x: jnp.stack([x, np.ones(5, int)]),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(TAKEN)))
def test_holders_are_taken_for_their_arrays(number: int) -> None:
    found, expected = (weft.tree.leaves(TAKEN[number](x)) for x in (Holder(VALUES), jnp.asarray(VALUES)))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype


def test_matrices_of_holders() -> None:
    matrix = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(jnp.matrix_transpose(Holder(matrix)), matrix.T)
    np.testing.assert_array_equal(jnp.linalg.matrix_transpose(Holder(matrix)), matrix.T)


def test_strict_promotion_inside_of_functions() -> None:
    rows = np.array([[1 + 2j, 2, 3], [3, 1j, 2]], np.complex64)
    with weft.numpy_dtype_promotion("strict"):
        np.testing.assert_allclose(jnp.corrcoef(rows), np.corrcoef(rows), rtol=1e-5)
        assert not jnp.array_equiv(jnp.ones(3), jnp.ones(3, int))  # as in JAX: types that must not mix differ
        assert jnp.array_equiv(jnp.ones(3), 1.0)
        with pytest.raises(weft.errors.TypePromotionError):
            jnp.array_equal(jnp.ones(3), jnp.ones(3, int))


def test_diagonal_along_one_axis_is_a_type_error() -> None:
    for axes in ((1, 1), (1, -1)):
        with pytest.raises(TypeError, match="are the same axis"):
            jnp.diagonal(np.eye(3), 0, *axes)
        with pytest.raises(TypeError, match="are the same axis"):
            jnp.eye(3).diagonal(0, *axes)
