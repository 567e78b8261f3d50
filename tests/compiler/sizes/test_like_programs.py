"""User's functions at other sizes than before: traced, and made from a like program, with its results and its plan."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
import weft.numpy as jnp
from weft import config
from weft.compiler import pipeline
from weft.core.caches.store import PROGRAMS

EXTENTS = st.sampled_from([0, 1, 2, 3, 4, 7, 16, 17, 33, 64, 100, 300, 1100])


def _norm(x, y):
    mean = jnp.mean(x, -1, keepdims=True)
    return (x - mean) * weft.lax.rsqrt(jnp.mean((x - mean) ** 2, -1, keepdims=True) + 1) + y[:1]


FUNCTIONS = {
    "line": lambda x, y: x * 2 + 1,
    "added": lambda x, y: x + y[0],
    "two": lambda x, y: (jnp.exp(-x), y.astype(jnp.int32)),
    "itself": lambda x, y: (x, x + 1, x * 1),
    "softmax": lambda x, y: weft.nn.softmax(x, axis=-1) if x.size else x,
    "norm": lambda x, y: _norm(x, y) if x.size else x,
    "size": lambda x, y: x * x.shape[0] + x.shape[-1],
    "sum": lambda x, y: jnp.sum(x, axis=0) - jnp.max(y) if x.size and y.size else x,
    "product": lambda x, y: x @ y.T,
    "transposed": lambda x, y: (x + 1).T,
    "spread": lambda x, y: jnp.broadcast_to(x, (3, *x.shape)) + 1,
}
JITTED = {name: weft.jit(function) for name, function in FUNCTIONS.items()}


def array(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@settings(max_examples=200, deadline=None)
@given(EXTENTS, EXTENTS, EXTENTS, st.sampled_from(sorted(FUNCTIONS)), st.booleans())
def test_results(n, m, k, name, checked):
    """Those of operations done one by one; with the option ``check`` the plan is compared with a compilation's too."""
    x, y = array((n, m)), array((k or 1, m), 1)
    with config.context("check", checked):
        got = JITTED[name](x, y)
    with weft.disable_jit():
        expected = FUNCTIONS[name](jnp.asarray(x), jnp.asarray(y))
    for ours, theirs in zip(weft.tree.leaves(got), weft.tree.leaves(expected), strict=True):
        assert (ours.shape, ours.dtype, ours.weak_type) == (theirs.shape, theirs.dtype, theirs.weak_type)
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-4)


def made():
    return sum(getattr(v, "compile_new", None) is not None for v in PROGRAMS.entries.values())


def compiled():
    return sum(type(v) is pipeline.Program for v in PROGRAMS.entries.values())


def test_compiled_once():
    weft.clear_caches()
    jitted = weft.jit(lambda x, g: weft.nn.softmax(x * g + 1))
    counts = []
    with config.context("check", False):
        for n in (100, 101, 4000, 3):
            jitted(array((n, 20)), array(20, 1))
            counts.append((compiled(), made()))
    assert counts[1][0] == counts[0][0] and counts[1][1] == 1
    assert [kernels for _, kernels in counts] == [0, 1, 2, 3] or counts[-1][0] > counts[0][0]  # rows of other nests


def test_what_is_asked_of_it_is_there():
    """Its text, its costs and its plan, in a file too."""
    weft.clear_caches()
    jitted = weft.jit(lambda x: jnp.exp(x) + 1)
    with config.context("check", False):
        jitted(array(300))
        lowered = jitted.lower(array(301)).compile()
        assert made() == 1
        assert "f32[301]" in lowered.as_text("plan") and lowered.as_text("loops").startswith("nest")
        assert lowered.cost_analysis()["bytes accessed"] == 2408
        assert lowered.memory_analysis().output_size_in_bytes == 1204
        np.testing.assert_allclose(lowered(array(301)), np.exp(array(301)) + 1, rtol=1e-6)


@pytest.mark.parametrize("donated", [False, True])
def test_donation_and_new_memory(donated):
    """A result that is an argument is a copy of it, as at the first size; donated calls are compiled."""
    jitted = weft.jit(lambda x: x + 1, donate_argnums=(0,) if donated else ())
    with config.context("check", False):
        for n in (500, 501):
            x = jnp.asarray(array(n))
            before = np.array(x)
            np.testing.assert_allclose(jitted(x), before + 1)
            assert x.is_deleted() == donated


def test_uses_of_one_literal_are_no_uses_of_two():
    """Repeated comparisons of one type are replayed, and then share their 0: their kernel has a scalar less."""
    jitted = weft.jit(lambda x, y: jnp.sum((x > 0)[:, None] & (y > 0)[None, :]))
    for n, m in ((300, 40), (301, 41), (5, 7), (7, 5), (7, 7), (8, 8), (33, 33)):
        x, y = array(n), array(m, 1)
        assert jitted(x, y) == np.sum((x > 0)[:, None] & (y > 0)[None, :])


def test_reduction_of_as_many_points_as_are_fused_apart():
    """From 1 << 18 points on reductions are fused in other ways: the option ``check`` compares with that."""
    jitted = weft.jit(lambda x: weft.nn.softmax(jnp.tanh(x), axis=0))
    for n in (4096, 4100, 8192):
        x = array((n, 32)).astype(np.float32)
        np.testing.assert_allclose(np.sum(jitted(x), 0), 1, rtol=1e-4)
