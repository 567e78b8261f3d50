"""Tangents of integers are NumPy arrays of float0, with and without ``jit``; NumPy's functions work on them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp

N = jnp.arange(3)
ZEROS = np.zeros(3, weft.float0)


def of_square(x: Any) -> Any:
    return x.astype("float32").sum() ** 2


MADE: dict[str, Any] = {
    "grad": lambda: weft.grad(of_square, allow_int=True)(N),
    "jvp": lambda: weft.jvp(lambda x: x * 2, (N,), (ZEROS,))[1],
    "vjp": lambda: weft.vjp(lambda x, y: x * y, N, jnp.ones(3))[1](jnp.ones(3))[0],
    "linearize": lambda: weft.linearize(lambda x: x * 2, N)[1](ZEROS),
    "jit": lambda: weft.jit(weft.grad(of_square, allow_int=True))(N),
    "jit twice": lambda: [weft.jit(lambda x: weft.jvp(lambda x: x * 2, (x,), (ZEROS,))[1])(N) for _ in "ab"][1],
    "vmap": lambda: weft.vmap(weft.grad(lambda x: x.astype("float32") ** 2, allow_int=True))(N),
}


@pytest.mark.parametrize("name", MADE)
def test_float0_results_are_numpy_arrays(name: str) -> None:
    made = MADE[name]()
    assert isinstance(made, np.ndarray) and made.dtype == weft.float0 and made.shape == (3,)
    assert (made == made).tolist() == [True] * 3 and np.array_equal(made, ZEROS)
    assert made.reshape(3, 1).shape == np.stack([made])[0, :, None].shape == (3, 1)
    assert bool(jnp.array_equal(made, ZEROS)) and not jnp.array_equal(made, ZEROS[:2])
    with pytest.raises(TypeError, match="float0"):
        jnp.add(made, 1.0)
