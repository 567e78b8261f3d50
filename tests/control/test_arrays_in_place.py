"""Loops that slice, gather and update arrays at run-time indices: bit for bit what the reference interpreter gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.compiler import ladder
from weft import lax
from weft.compiler.checks import reference_interpreter, verify

DTYPES = ["float32", "int32", "int8", "bool", "float16", "uint16", "complex64", "bfloat16"]


def assert_routine(run: Callable[..., Any], *args: Any) -> None:
    """One routine, with the bits of the reference, and of the routine interpreted."""
    closed = weft.make_jaxpr(run)(*args)
    compiled = weft.jit(run).lower(*args).compile()
    assert "routine" in compiled.as_text("plan")
    operands = [np.asarray(a) for a in args]
    expected, by_loops = reference_interpreter.interpret(closed, operands), ladder.interpreted(closed, operands)
    for a, b, c in zip(weft.tree_util.tree_leaves(compiled(*args)), expected, by_loops, strict=True):
        assert verify.same_bits(np.asarray(a), b), (np.asarray(a), b)
        assert verify.same_bits(c, b), (c, b)


def drawn(n: int, dtype: str, *shape: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(n)
    kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    indices = rng.integers(-2 * n, 2 * n, size=7).astype(np.int32)
    return (
        jnp.asarray(rng.integers(-9, 9, size=shape or n).astype(kind)),
        jnp.asarray(indices),
        jnp.asarray(rng.integers(-9, 9, size=7).astype(kind)),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 3, 8, 17, 60])
def test_updates_in_place(n: int, dtype: str) -> None:
    """Values from before an update, states that are exchanged, branches and inner loops that update."""

    def step(state: Any, given: Any) -> tuple[Any, Any]:
        (x, y), (i, v) = state, given
        old = x
        x = x.at[i].set(v)
        x = lax.dynamic_update_slice(x, lax.dynamic_slice(old, (i,), (1,)), (i // 2,))
        y = jnp.where(v == x[i], y, x)
        y = lax.cond(i > 0, lambda y: y.at[i].set(v), lambda y: y, y)
        z = lax.fori_loop(0, i % 5, lambda k, z: z.at[k + i].set(x[k]), y)
        pair = lax.cond(i % 3 == 0, lambda x, y: (y, x), lambda x, y: (x.at[0].set(v), y.at[-1].set(old[0])), x, z)
        return pair, (old[i], y)

    assert_routine(lambda x, i, v: lax.scan(step, (x, x), (i, v)), *drawn(n, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 5, 6])
def test_gathers(n: int, dtype: str) -> None:
    """Elements and windows of states and of captured arrays, at indices inside and outside."""
    x, indices, _ = drawn(n, dtype)
    table = drawn(n, dtype, 5, 3)[0]

    def run(x: Any, indices: Any, table: Any) -> Any:
        def step(c: Any, i: Any) -> tuple[Any, Any]:
            p = jnp.arange(n) * i
            filled = c.at[p].get(mode="fill", fill_value=1)
            chosen = jnp.where(p % 2 == 0, c[p], table[i, p % 3])
            return chosen, (filled, table[p], table[:, p], jnp.take(c, p[:2], mode="clip"))

        return lax.scan(step, x, indices)

    assert_routine(run, x, indices, table)


@pytest.mark.parametrize("n", [257, 300, 1024])
def test_arrays_of_hundreds_of_elements_are_updated_in_place(n: int) -> None:
    def run(x: Any, count: Any) -> Any:
        def step(state: Any) -> Any:
            k, x = state
            return k + 1, x.at[k * k % n].set(x[k % n] + 1).at[-k].add(2)

        return lax.while_loop(lambda s: s[0] < count, step, (0, x))[1]

    assert_routine(run, jnp.arange(n, dtype=jnp.float32), np.int32(40))


def test_an_inner_loop_until_a_condition() -> None:
    """Disjoint sets: each step walks up two chains of parents."""
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 50, (2, 40)).astype(np.int32)

    def run(a: Any, b: Any) -> Any:
        def root(parent: Any, i: Any) -> Any:
            return lax.while_loop(lambda i: parent[i] != i, lambda i: parent[i], i)

        def step(parent: Any, ab: Any) -> tuple[Any, None]:
            return parent.at[root(parent, ab[0])].set(root(parent, ab[1])), None

        return lax.scan(step, jnp.arange(50, dtype=jnp.int32), (a, b))[0]

    assert_routine(run, *map(jnp.asarray, pairs))


def escape(a: Any, b: Any) -> Any:
    return lax.while_loop(lambda s: (s[0] < b) & (s[1] < 50), lambda s: (s[0] * 1.5 + 0.25, s[1] + 1), (a, 0))


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (20, 20), (2, 130)])
def test_loops_mapped_twice_are_one_routine_in_lanes(shape: tuple[int, int]) -> None:
    """Each element ends by itself, along both dimensions; the result is that of a loop for each."""
    rng = np.random.default_rng(shape[1])
    a, b = rng.uniform(0.1, 2, shape[1]).astype(np.float32), rng.uniform(1, 1e4, shape[0]).astype(np.float32)
    mapped = weft.jit(lambda a, b: weft.vmap(lambda b: weft.vmap(lambda a: escape(a, b))(a))(b))
    one = weft.jit(escape)
    found = mapped(a, b)
    for index in np.ndindex(shape):
        for all_of, alone in zip(found, one(a[index[1]], b[index[0]]), strict=True):
            assert verify.same_bits(np.asarray(all_of)[index], np.asarray(alone))
    apart = weft.vmap(weft.vmap(lambda a: escape(a, 100.0)))
    assert "in any lane" in weft.jit(apart).lower(np.ones(shape, np.float32)).compile().as_text("loops")


def test_loops_mapped_twice_over_operands_of_one_map() -> None:
    """The condition may depend on the inner dimension alone."""
    a, b = np.linspace(0.1, 2, 5, dtype=np.float32), np.linspace(1, 100, 5, dtype=np.float32)
    inner = weft.vmap(escape)
    twice = weft.jit(weft.vmap(inner, (None, None), axis_size=3))
    for found, wanted in zip(twice(a, b), inner(a, b), strict=True):
        np.testing.assert_array_equal(found, np.broadcast_to(np.asarray(wanted), (3, 5)))
    derivative = weft.vmap(lambda s: weft.jvp(lambda a: inner(a * s, b)[0], (a,), (a,))[1])(b)
    for k, s in enumerate(b):
        alone = [weft.jvp(lambda v, s=s, y=y: escape(v * s, y)[0], (x,), (x,))[1] for x, y in zip(a, b, strict=True)]
        np.testing.assert_allclose(derivative[k], np.array(alone), rtol=1e-5)
