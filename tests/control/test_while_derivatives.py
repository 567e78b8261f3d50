"""Derivatives around while_loop: reverse mode passes where nothing flows back through the loop; linearize works."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax

X = np.float32([1, 2, 3])


def grown(x: Any) -> Any:
    return lax.while_loop(lambda c: c.sum() < 20, lambda c: c * x, x + 1)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (lax.stop_gradient(grown(x)) * x).sum(),
        lambda x: (jnp.round(grown(x)) * x).sum(),
        weft.jit(lambda x: (lax.stop_gradient(grown(x)) * x).sum()),
        lambda x: lax.cond(x[0] > 0, lambda v: (lax.stop_gradient(grown(v)) * v).sum(), jnp.sum, x),
        lambda x: lax.scan(lambda c, v: (c + (v * lax.stop_gradient(grown(x))).sum(), None), 0.0, x[None])[0],
        weft.checkpoint(lambda x: (lax.stop_gradient(grown(x)) * x).sum()),
    ],
    ids=["stopped", "rounded", "jit", "cond", "scan", "checkpoint"],
)
def test_a_loop_that_nothing_flows_back_through_is_a_constant(f: Callable[[Any], Any]) -> None:
    expected = np.asarray(grown(X))
    np.testing.assert_allclose(weft.grad(f)(X), expected, rtol=1e-6)
    np.testing.assert_allclose(weft.jit(weft.vmap(weft.grad(f)))(np.stack([X, X])), [expected, expected], rtol=1e-6)


def test_linearize_of_a_loop_is_its_forward_derivative() -> None:
    value, push = weft.linearize(weft.jit(grown), X)
    np.testing.assert_array_equal(value, grown(X))
    np.testing.assert_allclose(weft.vmap(push)(np.eye(3, dtype=np.float32)).T, weft.jacfwd(grown)(X), rtol=1e-6)


@pytest.mark.parametrize("wrap", [lambda f: f, weft.jit], ids=["eager", "jit"])
def test_what_flows_back_through_a_loop_is_an_error(wrap: Callable[[Any], Any]) -> None:
    with pytest.raises(ValueError, match="Reverse-mode differentiation does not work"):
        weft.grad(wrap(lambda x: grown(x).sum()))(X)
