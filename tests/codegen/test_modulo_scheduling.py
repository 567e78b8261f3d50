"""Long elementwise bodies, whose halves are computed for two vectors at once: the bits of one operation at a time."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft.scipy.special import erf

RANGES = ((50, 150), (50, 150), (0.1, 2), (0.1, 0.5))


def price(s, k, t, v):
    q = v * jnp.sqrt(t)
    d = (jnp.log(s / k) + (0.03 + 0.5 * v * v) * t) / q

    def below(z):
        return 0.5 * (1.0 + erf(z * 0.7071067811865476))

    return s * below(d) - k * jnp.exp(-0.03 * t) * below(d - q)


def several(s, k, t, v):
    """More results than one, other dtypes, and a result that is made early."""
    a = jnp.tanh(jnp.log(s) * jnp.exp(-t))
    b = jnp.sin(a * k) + jnp.cos(a * k)
    return t * 2, (erf(b) * v).astype(jnp.bfloat16), b > 0.5


def operands(*shape):
    r = np.random.default_rng(len(shape) + sum(shape))
    return [jnp.asarray((low + (high - low) * r.random(shape)).astype(np.float32)) for low, high in RANGES]


def same(got, want):
    for a, b in zip(weft.tree.leaves(got), weft.tree.leaves(want), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("program", [price, several])
@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 31, 32, 33, 1000, 70001])
def test_sizes(program, size):
    values = operands(size)
    same(weft.jit(program)(*values), program(*values))


@pytest.mark.parametrize("program", [price, several])
def test_layouts(program):
    s, k, t, v = operands(37, 53)
    jitted = weft.jit(program)
    same(jitted(s.T, k.T, t.T, v.T), program(s.T, k.T, t.T, v.T))
    inside = weft.jit(lambda s, k, t, v: program(s.T, k[:1].T, t[::-1].T, v[:, ::-1].T))
    same(inside(s, k, t, v), program(s.T, k[:1].T, t[::-1].T, v[:, ::-1].T))
    same(jitted(s, k[:1], t[:, :1], v[0, 0]), program(s, k[:1], t[:, :1], v[0, 0]))


def test_in_place():
    values = operands(1003)
    want = price(*values)
    same(weft.jit(price, donate_argnums=(0,))(jnp.array(values[0], copy=True), *values[1:]), want)


def test_threads():
    values = operands(100_003)
    with weft.threads(1):
        want = np.asarray(weft.jit(price)(*values))
    with weft.threads(2):
        same(weft.jit(price)(*values), want)
