"""Operations at other sizes than before: as the compiler makes them, without running it, in bounded memory."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
import weft.numpy as jnp
from weft import compiler, config, lax
from weft.compiler import other_sizes, pipeline
from weft.core.store import PROGRAMS
from weft.errors import InternalError

EXTENTS = st.sampled_from([0, 1, 2, 3, 4, 5, 7, 16, 17, 33, 64, 65, 100, 300, 1100])
UNARY = {
    "exp": (jnp.exp, np.exp),
    "negative": (lambda x: -x, np.negative),
    "plus one": (lambda x: x + 1, lambda x: x + 1),
    "above": (lambda x: x > 0, lambda x: x > 0),
    "astype": (lambda x: x.astype(jnp.int32), lambda x: x.astype(np.int32)),
    "clip": (lambda x: jnp.clip(x, -1, 1), lambda x: np.clip(x, -1, 1)),
    "square of lax": (lax.square, np.square),
}
BINARY = {
    "add": (jnp.add, np.add),
    "less": (jnp.less, np.less),
    "hypot": (jnp.hypot, np.hypot),
    "where": (lambda x, y: jnp.where(x > y, x, y), np.maximum),
}
SUMS = {
    "sum": (jnp.sum, np.sum),
    "max": (jnp.max, np.max),
    "any": (lambda x, **k: jnp.any(x > 1, **k), lambda x, **k: np.any(x > 1, **k)),
}


@pytest.fixture(autouse=True, scope="module")
def unchecked():
    """Tests run with the option ``check``, under which everything is compiled, and compared with what families give."""
    with config.context("check", False):
        yield


def programs():
    """How many programs and kernels the compiler has made."""
    return compiler.stats()["kernels_built"], sum(type(v) is pipeline.Program for v in PROGRAMS.entries.values())


def array(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def agree(got, expected):
    assert got.shape == np.shape(expected)
    np.testing.assert_allclose(np.asarray(got), expected, rtol=2e-5, atol=1e-4)


@st.composite
def operands(draw):
    """Two shapes that broadcast together."""
    shape = tuple(draw(st.lists(EXTENTS, max_size=4)))
    while np.prod(shape, dtype=float) > 200_000:
        shape = shape[1:]
    one = tuple([draw(st.sampled_from([n, n, 1])) for n in shape])
    return shape, one[draw(st.integers(0, len(one))) :]


@settings(max_examples=150, deadline=None)
@given(operands(), st.sampled_from(sorted(UNARY)), st.sampled_from(sorted(BINARY)), st.booleans())
def test_elements(shapes, unary, binary, swapped):
    """Shapes that meet classes seen before in this process and new ones: empty, of 1, equal, narrow, short."""
    x, y = [array(shape, seed) for seed, shape in enumerate(shapes)]
    ours, theirs = UNARY[unary]
    agree(ours(jnp.asarray(x)), theirs(x))
    ours, theirs = BINARY[binary]
    x, y = (y, x) if swapped else (x, y)
    agree(ours(jnp.asarray(x), jnp.asarray(y)), theirs(x, y))


@settings(max_examples=60, deadline=None)
@given(operands(), st.sampled_from(sorted(SUMS)), st.data())
def test_reductions(shapes, name, data):
    x = array(shapes[0])
    axes = data.draw(st.sets(st.integers(0, x.ndim - 1)) if x.ndim else st.just(set()))
    axis = data.draw(st.sampled_from([None, tuple(axes)]))
    if x.size or name != "max":
        ours, theirs = SUMS[name]
        agree(ours(jnp.asarray(x), axis=axis), theirs(x, axis=axis))


@settings(max_examples=80, deadline=None)
@given(operands(), st.sampled_from(sorted(BINARY)), st.sampled_from(sorted(SUMS)), st.data())
def test_equals_the_compiler(shapes, binary, reduction, data):
    """With the option ``check`` every new size is compiled, and compared with what a member of the family gives."""
    x, y = [array(shape, seed) for seed, shape in enumerate(shapes)]
    axis = data.draw(st.sampled_from([None, *range(x.ndim)]))
    with config.context("check", True):
        agree(BINARY[binary][0](jnp.asarray(x), jnp.asarray(y)), BINARY[binary][1](x, y))
        if x.size:
            agree(SUMS[reduction][0](jnp.asarray(x), axis=axis), SUMS[reduction][1](x, axis=axis))


def test_no_compiler():
    """After the first size neither a trace nor a compilation: only executables."""
    weft.clear_caches()
    compiled = []
    for n in (300, 301, 302):
        x, y = jnp.asarray(array((n, 7))), jnp.asarray(array((7,)))
        before = programs()
        jnp.sin(x), x + y, jnp.sum(x, axis=0), lax.exp(x), jnp.where(x > 0, x, 0)
        compiled.append(programs() != before)
    assert compiled == [True, False, False]


def test_views_are_refused():
    """A program that cuts or flips its operand depends on sizes in more ways."""
    weft.clear_caches()
    for shape in ((30, 40), (31, 40), (40, 40)):
        x = array(shape)
        agree(jnp.asarray(x)[::-1, 3:] + 1, x[::-1, 3:] + 1)
        agree(jnp.cumsum(jnp.asarray(x), axis=0), np.cumsum(x, axis=0))


def test_types_count():
    """Weak types, scalars of other kinds and other dtypes are other classes."""
    for n in (50, 51):
        x = jnp.asarray(array(n))
        assert (x + 1).dtype == (x + True).dtype == np.float32
        assert (x.astype(jnp.int32) + 1).dtype == np.int32
        assert (x.astype(jnp.int32) + 1.0).dtype == (x.astype(jnp.bfloat16) + x).dtype == np.float32
        assert (x.astype(jnp.bfloat16) * 2).dtype == jnp.bfloat16
        assert (x + 1j).dtype == np.complex64
        with pytest.raises(OverflowError):
            x.astype(jnp.int32) + 2**40


def test_committed_results():
    for n in (60, 61):
        x = weft.device_put(array(n), weft.devices()[0])
        assert (x * 3).committed and (x * 3).sum().committed
        assert not (jnp.asarray(array(n)) * 3).committed


def test_memory_is_bounded():
    """Executables of sizes are dropped as everything else in the caches is."""
    weft.clear_caches()
    gc.collect()
    with config.context("cache_bytes", 2_000_000):
        for n in range(2000, 5000):
            x = jnp.asarray(np.ones(n, np.float32))
            x - 3, lax.neg(x)
        assert compiler.stats()["kept_bytes"] <= 2_500_000
        assert compiler.stats()["levels"]["dispatch"].entries < 2500


def test_a_difference_is_told(monkeypatch):
    """The check can fail."""
    weft.clear_caches()
    with config.context("check", True):
        lax.cos(jnp.asarray(array(70)))
        monkeypatch.setattr(other_sizes.resize, "numbers", lambda *_: other_sizes.resize.Numbers((5,), (), b""))
        with pytest.raises(InternalError, match="a family gives"):
            lax.cos(jnp.asarray(array(71)))
