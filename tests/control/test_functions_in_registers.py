"""Functions and folds in loops whose state is in registers give the bits that the same operations give one by one."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax

ANGLES = np.array(
    [
        0.0,
        -0.0,
        1e-40,
        -1e-40,
        0.3,
        -0.7853981,
        0.7853982,
        2.0,
        -3.0,
        71476.0,
        71477.0,
        -1e6,
        1e20,
        3e38,
        np.inf,
        np.nan,
    ],
    np.float32,
)


def turns(step, x):
    """Three turns of a loop, and the same operation by operation."""
    found = np.asarray(weft.jit(lambda x: lax.fori_loop(0, 3, lambda _, s: step(s), x))(x))
    with weft.disable_jit():
        for _ in range(3):
            x = step(x)
    return found, np.asarray(x)


def bits(x) -> np.ndarray:
    """Its bits, with one NaN for all."""
    return np.where(np.isnan(x), np.float32(np.nan), x).view(np.int32)


@pytest.mark.parametrize("size", [1, 3, 12])
def test_sines_of_any_angle(size):
    """With and without a remainder, in and beyond what float32 reduces; as scalars and in vectors."""
    for angle in ANGLES:
        x = np.resize(np.array([angle, 0.5], np.float32), size) if size > 1 else angle
        found, expected = turns(lambda s: jnp.sin(s) + 0.5 * jnp.cos(s), jnp.asarray(x))
        np.testing.assert_array_equal(bits(found), bits(expected), err_msg=str(angle))
        found, expected = turns(jnp.sin, jnp.asarray(x))
        np.testing.assert_array_equal(bits(found), bits(expected), err_msg=str(angle))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("fold", [jnp.max, jnp.sum, jnp.argmin], ids=["max", "sum", "argmin"])
def test_folds_along_every_axis(fold, axis):
    """What a fold reads may have been moved before it, by a transpose or by a broadcast."""
    x = jnp.asarray(np.random.default_rng(axis).normal(size=(3, 4, 5)).astype(np.float32))

    def step(s):
        once = fold(s, axis=axis, keepdims=True).astype(s.dtype)
        turned = fold(s.transpose(2, 0, 1), axis=(axis + 1) % 3, keepdims=True).astype(s.dtype).transpose(1, 2, 0)
        return 0.5 * s + 0.25 * once - 0.125 * turned + s[::-1]

    found, expected = turns(step, x)
    np.testing.assert_array_equal(found, expected)


def test_best_paths():
    rng = np.random.default_rng(0)
    x, a = rng.normal(size=(9, 6)).astype(np.float32), rng.normal(size=(6, 6)).astype(np.float32)

    def step(v, x):
        s = v[:, None] + a
        return s.max(0) + x, s.argmax(0)

    last, chosen = weft.jit(lambda x: lax.scan(step, x[0], x[1:]))(x)
    v = x[0]
    for k in range(1, 9):
        s = v[:, None] + a
        v = s.max(0) + x[k]
        np.testing.assert_array_equal(chosen[k - 1], s.argmax(0))
    np.testing.assert_array_equal(last, v)
