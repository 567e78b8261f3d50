"""Loops that set elements of small arrays by an index are routines, with the meaning that the mode has outside."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax

INDICES = np.array([0, 1, 2, 3, -1, -5, 100, -100, 2, 2**31 - 1, -(2**31)], np.int32)


def updated(x: np.ndarray, op: str, index: int, value: np.float32, mode: str) -> np.ndarray:
    """One update by NumPy."""
    n, x = x.size, x.copy()
    index = index + n if index < 0 else index
    if mode == "clip":
        index = min(max(index, 0), n - 1)
    if 0 <= index < n:
        old = x[index]
        x[index] = {"set": value, "add": old + value, "multiply": old * value, "max": max(old, value)}[op]
    return x


@pytest.mark.parametrize("op", ["set", "add", "multiply", "max"])
@pytest.mark.parametrize("mode", ["drop", "clip"])
@pytest.mark.parametrize("n", [1, 3, 16, 40])
def test_updates(op, mode, n):
    x, value = np.random.default_rng(n).standard_normal(n).astype(np.float32), np.float32(1.5)

    @weft.jit
    def f(x):
        def step(x, index):
            x = getattr(x.at[index], op)(value, mode=mode)
            return x, x

        return lax.scan(step, x, INDICES)[1]

    assert "routine" in f.lower(x).compile().as_text("plan")
    want = []
    for index in INDICES:
        x = updated(x, op, int(index), value, mode)
        want.append(x)
    np.testing.assert_allclose(f(np.random.default_rng(n).standard_normal(n).astype(np.float32)), want, rtol=1e-6)


def test_search_with_a_stack():
    """Permutations of five, counted by a search that keeps its stack in an array."""

    def count(n):
        def step(state):
            depth, used, left, found = state
            free = left[depth]
            bit = free & -free

            def put(_):
                now = used[depth] | bit
                done = now == 31
                rest = left.at[depth].set(free ^ bit)
                deeper = jnp.where(done, depth, depth + 1)
                return (deeper, used.at[depth + 1].set(now), rest.at[depth + 1].set(jnp.where(done, 0, 31 & ~now)),
                        found + done.astype(jnp.int32))  # fmt: skip

            return lax.cond(free == 0, lambda _: (depth - 1, used, left, found), put, None)

        start = (jnp.int32(0), jnp.zeros(8, jnp.int32), jnp.zeros(8, jnp.int32).at[0].set(n), jnp.int32(0))
        return lax.while_loop(lambda state: state[0] >= 0, step, start)[3]

    assert int(weft.jit(count)(np.int32(31))) == 120
