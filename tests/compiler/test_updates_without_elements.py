"""Slices and updates of regions without elements leave the array as it is, with derivatives, under ``jit``."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (3, 1), (0, 2), (2, 3)])
def test_region_without_elements(shape: tuple[int, int]) -> None:
    x, sizes = jnp.arange(float(np.prod(shape))).reshape(shape), (0, shape[1])
    update = jnp.ones(sizes)

    def pulled(x, ct):
        return weft.vjp(lambda x: lax.dynamic_slice(x, (7, 4), sizes), x)[1](ct)[0]

    assert np.array_equal(weft.jit(pulled)(x, update), np.zeros(shape))
    written = weft.jit(lambda x, u: lax.dynamic_update_slice(x, u, (7, 4)))
    assert np.array_equal(written(x, update), x)
    of_x, of_update = weft.jit(weft.grad(lambda x, u: written(x, u).sum(), (0, 1)))(x, update)
    assert np.array_equal(of_x, np.ones(shape)) and of_update.shape == sizes
