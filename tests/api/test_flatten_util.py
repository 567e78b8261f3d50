"""ravel_pytree: vectors of pytrees and back, beside JAX's."""

from __future__ import annotations

from typing import Any

import jax
import jax.flatten_util
import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft.flatten_util import ravel_pytree

TREES = [
    {"a": np.arange(3), "b": np.float32(2), "c": None},
    {},
    [1, 2.0, True, 1j],
    [1, 2],
    (np.int8(1), [np.float16(2), {"k": np.ones((2, 0, 3), np.float16)}]),
    np.ones((2, 3), np.float32),
    [np.ones((2, 3), np.int8), np.float32(1)],
]


@pytest.mark.oracle
@pytest.mark.parametrize("tree", TREES, ids=str)
def test_as_jax(tree: Any) -> None:
    ours, unravel = ravel_pytree(tree)
    theirs, unravel_theirs = jax.flatten_util.ravel_pytree(tree)
    assert repr(ours) == repr(theirs)
    back, expected = unravel(ours), unravel_theirs(theirs)
    assert str(weft.tree.structure(back)) == str(jax.tree.structure(expected))
    for a, b in zip(weft.tree.leaves(back), jax.tree.leaves(expected), strict=True):
        assert (a.dtype, a.shape, a.weak_type) == (b.dtype, b.shape, b.weak_type)
        assert np.array_equal(a, b)


@pytest.mark.oracle
@pytest.mark.parametrize("tree", [{"a": np.ones((2, 3), np.float32), "b": np.float32(1)}, TREES[-1]], ids=str)
def test_the_program_is_jax_s(tree: Any) -> None:
    def there_and_back(J: Any, tree: Any) -> Any:
        flat, unravel = J.flatten_util.ravel_pytree(tree)
        return unravel(flat)

    ours = weft.make_jaxpr(lambda t: there_and_back(weft, t))(tree)
    assert str(ours) == str(jax.make_jaxpr(lambda t: there_and_back(jax, t))(tree))


def test_wrong_vectors() -> None:
    flat, unravel = ravel_pytree({"w": jnp.ones((2, 3)), "n": jnp.arange(2)})
    with pytest.raises(ValueError, match=r"shape \(8,\).*\(7,\)"):
        unravel(flat[1:])
    with pytest.raises(TypeError, match=r"float32.*int32.*astype"):
        unravel(flat.astype(int))
    with pytest.raises(TypeError):
        ravel_pytree({"name": "w"})


def test_derivatives_of_a_flat_loss() -> None:
    tree = {"w": jnp.ones((2, 3)), "b": jnp.zeros(3)}
    flat, unravel = ravel_pytree(tree)

    def loss(vector: Any) -> Any:
        p = unravel(vector)
        return jnp.sum((jnp.ones(2) @ p["w"] + p["b"]) ** 2)

    gradient = weft.jit(weft.grad(loss))(flat)
    assert np.array_equal(gradient, [4] * 3 + [4] * 6)
    assert weft.hessian(loss)(flat).shape == (9, 9)


@pytest.mark.oracle
def test_what_takes_a_vector_apart_may_be_a_static_argument() -> None:
    """Trees of one structure and types give equal functions: the second call is not traced."""
    for module, ravel in ((weft, ravel_pytree), (jax, jax.flatten_util.ravel_pytree)):
        traces: list[int] = []

        def doubled(vector: Any, unravel: Any, traces: list[int] = traces) -> Any:
            traces.append(1)
            return unravel(2 * vector)

        f = module.jit(doubled, static_argnums=1)
        for tree in ({"a": np.ones(2), "n": 1}, {"a": np.zeros(2), "n": 5}, {"a": np.zeros(3), "n": 5}):
            back = f(*ravel(tree))
            np.testing.assert_array_equal(back["a"], 2 * tree["a"])
        assert len(traces) == 2
