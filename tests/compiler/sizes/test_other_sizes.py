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
from weft.compiler import pipeline
from weft.core.caches.store import PROGRAMS
from weft.core.symbolic import sizes
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


@settings(max_examples=100, deadline=None)
@given(st.data(), st.booleans())
def test_products(data, checked):
    """Matrices, vectors and batches, among them few long columns of few terms, which are added as a reduction."""
    m, n, batch = data.draw(EXTENTS), data.draw(EXTENTS), data.draw(st.sampled_from([1, 2, 3, 17]))
    k = data.draw(st.sampled_from([1, 2, 3, 4, 5, 16, 17, 64, 300]))
    left, right = data.draw(
        st.sampled_from([((m, k), (k, n)), ((m, k), (k,)), ((k,), (k, n)), ((k,), (k,)), ((batch, m, k), (batch, k, n)),
                         ((batch, m, k), (batch, k, 1)), ((5000, k), (k,))])
    )  # fmt: skip
    dtype = data.draw(st.sampled_from([np.float32, np.int32, np.complex64]))
    x, y = (array(left) * 4).astype(dtype), (array(right, 1) * 4).astype(dtype)
    with config.context("check", checked):
        np.testing.assert_allclose(jnp.matmul(x, y), np.matmul(x, y), rtol=1e-4, atol=1e-2)
        numbers = ((((1,), (0,)), ((), ())), (((0,), (0,)), ((), ())))[len(left) == 2 and data.draw(st.booleans())]
        x = x.T if numbers[0][0] == (0,) and len(left) == 2 else x
        if len(left) == len(right) == 2:
            got = lax.dot_general(jnp.asarray(x), jnp.asarray(y), numbers)
            np.testing.assert_allclose(got, np.tensordot(x, y, numbers[0]), rtol=1e-4, atol=1e-2)


MOMENTS = {"mean": (jnp.mean, np.mean), "var": (jnp.var, np.var), "std": (jnp.std, np.std)}


@settings(max_examples=80, deadline=None)
@given(operands(), st.sampled_from(sorted(MOMENTS)), st.booleans(), st.booleans(), st.data())
def test_means(shapes, name, keepdims, checked, data):
    """Their divisors are counts of elements: the same bits as in a program for one shape."""
    x = array(shapes[0])
    axis = data.draw(st.sampled_from([None, *range(-x.ndim, x.ndim)]))
    dtype = data.draw(st.sampled_from([np.float32, np.complex64, jnp.bfloat16, jnp.float16, np.int32]))
    if x.size:
        ours, theirs = MOMENTS[name]
        x = x.astype(dtype)
        with config.context("check", checked):
            got = ours(jnp.asarray(x), axis=axis, keepdims=keepdims)
        traced = weft.jit(lambda x: ours(x, axis=axis, keepdims=keepdims))(x)
        np.testing.assert_array_equal(np.asarray(got), np.asarray(traced))
        if dtype == np.float32:
            agree(got, theirs(x.astype(np.float64), axis=axis, keepdims=keepdims))


@settings(max_examples=100, deadline=None)
@given(operands(), st.booleans(), st.sampled_from([None, "fill", "clip", "wrap"]), st.data())
def test_rows_by_indices(shapes, checked, mode, data):
    """Indices from the front and from the end, and out of bounds."""
    x = array((*shapes[0], 3))
    axis = data.draw(st.integers(0, x.ndim - 1))
    extent, shape = x.shape[axis], data.draw(st.sampled_from([(1,), (4,), (3, 2), (17,)]))
    indices = np.random.default_rng(extent).integers(-2 * extent - 2, 2 * extent + 2, shape).astype(np.int32)
    if x.size:
        inside = np.clip(np.where(indices < 0, indices + extent, indices), 0, extent - 1)
        expected = {"wrap": np.take(x, indices, axis, mode="wrap"), "clip": np.take(x, indices, axis, mode="clip")}
        missing = np.abs(indices + 0.5) > extent
        filled = np.moveaxis(np.take(x, inside, axis), tuple(range(axis, axis + len(shape))), tuple(range(len(shape))))
        filled[missing] = np.nan
        filled = np.moveaxis(filled, tuple(range(len(shape))), tuple(range(axis, axis + len(shape))))
        with config.context("check", checked):
            got = jnp.take(jnp.asarray(x), jnp.asarray(indices), axis, mode=mode)
            np.testing.assert_array_equal(got, expected.get(mode, filled))
            if axis == 0:
                np.testing.assert_array_equal(jnp.asarray(x)[jnp.asarray(indices)], np.take(x, inside, 0))


@settings(max_examples=100, deadline=None)
@given(operands(), st.sampled_from([np.float32, np.int32, np.int8, np.complex64]), st.booleans(), st.data())
def test_running_sums_and_sorts(shapes, dtype, checked, data):
    """Along short and long rows; equal elements, NaN and zeros with signs among what is sorted."""
    x = np.round(array(shapes[0]) * 3).astype(dtype)
    if not x.ndim:
        return
    axis = data.draw(st.integers(0, x.ndim - 1))
    with config.context("check", checked):
        agree(jnp.cumsum(jnp.asarray(x), axis=axis), np.cumsum(x, axis=axis, dtype=x.dtype))
        if dtype != np.complex64:
            agree(lax.cummax(jnp.asarray(x), axis=axis), np.maximum.accumulate(x, axis=axis))
            x = np.where(x == 4, np.nan, x) if dtype == np.float32 else x
            given = jnp.asarray(x.astype(dtype))
            np.testing.assert_array_equal(jnp.sort(given, axis=axis), np.sort(x, axis=axis))
            np.testing.assert_array_equal(jnp.argsort(given, axis=axis), np.argsort(x, axis=axis, kind="stable"))


@settings(max_examples=120, deadline=None)
@given(operands(), st.booleans(), st.sampled_from(["set", "add", "max"]), st.data())
def test_updates_of_rows(shapes, checked, op, data):
    """Indices from both ends, out of bounds and repeated; one number; values for all, for a row, for everything."""
    x = np.round(array((*(shapes[0][:2] or (5,)), 3)) * 3)
    if not x.size:
        return
    extent, shape = x.shape[0], data.draw(st.sampled_from([(1,), (4,), (3, 2), (40,)]))
    indices = np.random.default_rng(extent).integers(-extent - 2, extent + 2, shape).astype(np.int32)
    values = np.round(array(data.draw(st.sampled_from([(), (3,), x.shape[1:], (*shape, *x.shape[1:])])), 1) * 3)
    one = data.draw(st.integers(-extent - 1, extent))
    expected, single = x.copy(), x.copy()
    ufunc = {"set": None, "add": np.add, "max": np.maximum}[op]
    spread = np.broadcast_to(values, (*shape, *x.shape[1:]))
    for at in np.ndindex(*shape):
        index = indices[at] + extent * (indices[at] < 0)
        if 0 <= index < extent:
            expected[index] = spread[at] if ufunc is None else ufunc(expected[index], spread[at])
    if -extent <= one < extent:
        single[one] = 2 if ufunc is None else ufunc(single[one], 2)
    with config.context("check", checked):
        np.testing.assert_array_equal(getattr(jnp.asarray(x).at[jnp.asarray(indices)], op)(values), expected)
        given = jnp.asarray(values.astype(np.float32))
        np.testing.assert_array_equal(getattr(jnp.asarray(x).at[jnp.asarray(indices)], op)(given), expected)
        np.testing.assert_array_equal(getattr(jnp.asarray(x).at[one], op)(2), single)


@settings(max_examples=120, deadline=None)
@given(EXTENTS, EXTENTS, st.booleans(), st.data())
def test_extents_as_arguments(n, m, checked, data):
    """They are sizes as those of operands are: units, equal ones, narrow rows whose extent is compiled in."""
    k = data.draw(st.sampled_from([0, 1, -2]))
    numbers = np.arange(n, dtype=np.int32) % 7
    with config.context("check", checked):
        np.testing.assert_array_equal(weft.nn.one_hot(jnp.asarray(numbers), m), numbers[:, None] == np.arange(m))
        np.testing.assert_array_equal(jnp.broadcast_to(jnp.asarray(numbers), (m, n)), np.broadcast_to(numbers, (m, n)))
        np.testing.assert_array_equal(jnp.eye(n, m, k), np.eye(n, m, k))
        np.testing.assert_array_equal(jnp.tri(n, m, k), np.tri(n, m, k))
        np.testing.assert_array_equal(jnp.tril(jnp.ones((n, m)), k), np.tril(np.ones((n, m)), k))
        np.testing.assert_array_equal(jnp.zeros((n, m, 10)), np.zeros((n, m, 10), np.float32))
        np.testing.assert_array_equal(jnp.arange(70_000 + n), np.arange(70_000 + n))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([0, 1, 2, 3, 50, 9000, 70_000]), st.booleans(), st.sampled_from([0, -1.5, 3]), st.booleans())
def test_evenly_spaced(num, endpoint, start, wide):
    """The bits of the traced program."""
    with weft.enable_x64(wide):
        got = jnp.linspace(start, 2.75, num, endpoint)
        traced = weft.jit(lambda: jnp.linspace(start, 2.75, num, endpoint))()
    assert got.dtype == traced.dtype and got.weak_type == traced.weak_type
    np.testing.assert_array_equal(got, traced)


@settings(max_examples=60, deadline=None)
@given(operands(), st.sampled_from([np.float32, np.int8, jnp.bfloat16, np.complex64]), st.data())
def test_moved_copies(shapes, dtype, data):
    """Rolled, padded and reshaped, below and above the size from which programs do it."""
    x = array(shapes[0]).astype(dtype)
    if not x.ndim or np.prod([n + 6 for n in x.shape], dtype=float) > 5e6:  # an array without elements may become huge
        return
    axis, shift = data.draw(st.integers(-x.ndim, x.ndim - 1)), data.draw(st.integers(-9, 9))
    widths = [(data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))) for _ in range(x.ndim)]
    ours = jnp.asarray(x)
    np.testing.assert_array_equal(jnp.roll(ours, shift, axis), np.roll(x, shift, axis))
    for value in (0, 3, -0.0):
        expected = np.pad(x, widths, constant_values=np.asarray(value).astype(x.dtype))
        got = np.asarray(jnp.pad(ours, widths, constant_values=value))
        np.testing.assert_array_equal(got, expected)
        if dtype == np.float32:
            np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))
    np.testing.assert_array_equal(ours.reshape(x.shape[::-1]), x.reshape(x.shape[::-1]))


def test_reshaped_arrays_outlive_each_other():
    """They share memory, which nothing writes to: not even a call that one of them is donated to."""
    x = jnp.arange(400_000) * 1.0
    y = x.reshape(200, 2000)
    changed = weft.jit(lambda a: a.at[0].set(-1), donate_argnums=0)(x)
    assert changed[0] == -1 and y[0, 0] == 0 and x.is_deleted() and not y.is_deleted()
    z = y.ravel()
    y.delete()
    assert z[399_999] == 399_999


@settings(max_examples=60, deadline=None)
@given(operands(), st.sampled_from([np.float32, np.int8, jnp.bfloat16, np.complex64]), st.data())
def test_small_copies(shapes, dtype, data):
    """Joined, reversed and filled, below and above the size from which programs do it."""
    x = array(shapes[0]).astype(dtype)
    axis = data.draw(st.integers(0, max(x.ndim - 1, 0)))
    ours = jnp.asarray(x)
    if x.ndim:
        part = x[(slice(None),) * axis + (slice(0, 2),)]
        np.testing.assert_array_equal(jnp.concatenate([ours, jnp.asarray(part), ours], axis),
                                      np.concatenate([x, part, x], axis))  # fmt: skip
    np.testing.assert_array_equal(jnp.stack([ours, ours], axis), np.stack([x, x], axis))
    np.testing.assert_array_equal(jnp.flip(ours), np.flip(x))
    np.testing.assert_array_equal(jnp.ones(x.shape, dtype), np.ones(x.shape, dtype))
    assert jnp.concatenate([ours.ravel(), jnp.ones(3, jnp.float32)]).dtype == jnp.promote_types(dtype, np.float32)


def test_small_copies_are_typed():
    """Weak types, zeros with a sign, wrapped counts, and what is traced or watched."""
    for n in (3, 20_000):
        assert jnp.full(n, 2.0).weak_type and not jnp.full(n, 2.0, np.float32).weak_type
        assert np.signbit(np.asarray(jnp.full(n, -0.0))).all() and not np.signbit(np.asarray(jnp.full(n, 0.0))).any()
        np.testing.assert_array_equal(jnp.arange(n, dtype=jnp.int8), np.arange(n).astype(np.int8))
        np.testing.assert_array_equal(jnp.arange(5, 5 - n, -1), np.arange(5, 5 - n, -1))
        np.testing.assert_array_equal(jnp.arange(n, dtype=np.float32) * 0 + jnp.arange(n), np.arange(n))
    weak = jnp.full(3, 2)
    assert jnp.concatenate([weak, weak]).weak_type
    assert not jnp.concatenate([weak, jnp.ones(3, jnp.int32)]).weak_type
    jaxpr = weft.make_jaxpr(lambda x: (jnp.flip(x), jnp.concatenate([x, jnp.zeros(3)]), jnp.mean(x), x[x.astype(int)]))
    assert {"rev", "concatenate", "div", "gather"} <= set(str(jaxpr(jnp.ones(3))).replace("\n", " ").split()) | {
        word.partition("[")[0] for word in str(jaxpr(jnp.ones(3))).split()
    }


def test_no_compiler():
    """After the first size neither a trace nor a compilation: only executables."""
    weft.clear_caches()
    compiled = []
    for n in (300, 301, 302):
        x, y = jnp.asarray(array((n, 7))), jnp.asarray(array((7,)))
        before = programs()
        jnp.sin(x), x + y, jnp.sum(x, axis=0), lax.exp(x), jnp.where(x > 0, x, 0)
        jnp.mean(x, axis=0), jnp.std(x), x @ y, x @ jnp.ones((7, 3)), y @ y, x.T @ x, jnp.stack([x, x]), jnp.flip(y)
        jnp.cumsum(x, axis=0), jnp.sort(y), jnp.argsort(x, axis=1), x.at[jnp.arange(n) - 3].add(1), x.at[2].set(y)
        weft.nn.one_hot(jnp.arange(n), n + 9), jnp.eye(n), jnp.broadcast_to(y, (n, 5, 7)), jnp.ones((n, n)), jnp.tril(x)
        jnp.linspace(0, 1, n), jnp.roll(y, 2), jnp.pad(y, 2), jnp.reshape(jnp.ones((n, n)), -1), jnp.round(x)
        x[jnp.arange(n) - 3], jnp.take(x, jnp.arange(n), 0), weft.nn.softmax(x), weft.nn.log_softmax(x, axis=0)
        compiled.append(programs() != before)
    assert compiled == [True, False, False]


def test_views_are_refused():
    """A program that cuts or flips its operand depends on sizes in more ways."""
    weft.clear_caches()
    for shape in ((30, 40), (31, 40), (40, 40)):
        x = array(shape)
        agree(jnp.asarray(x)[::-1, 3:] + 1, x[::-1, 3:] + 1)


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
        monkeypatch.setattr(sizes.Guards, "at", lambda self, numbers: sizes.Values(self._made, [5]))
        with pytest.raises(InternalError, match="a family gives"):
            lax.cos(jnp.asarray(array(71)))


def test_a_number_that_equals_an_extent_by_chance():
    """At other sizes it stays what it is."""
    weft.clear_caches()
    with config.context("check", False):
        for shape in ((2, 3), (5, 3), (2, 7), (5, 7), (4, 4)):
            x = array(shape)
            agree(lax.top_k(jnp.asarray(x), 2)[0], -np.sort(-x, 1)[:, :2])
            agree(jnp.stack([x, x]), np.stack([x, x]))


def test_a_stage_that_takes_no_symbols_is_given_numbers(monkeypatch):
    """Programs are compiled for their own sizes then; where stages are verified, it is an error."""
    own = pipeline.fuse.fuse

    def refusing(jaxpr, target):
        if any(type(v.aval) is sizes.SizedAval for v in jaxpr.invars):
            raise TypeError("needs an int")
        return own(jaxpr, target)

    monkeypatch.setattr(pipeline.fuse, "fuse", refusing)
    jitted = weft.jit(lambda x: jnp.sinh(x) * 3.25)
    with config.context("check", False):
        for n in (70, 71):
            x = np.linspace(0, 1, n, dtype=np.float32)
            with pytest.warns(UserWarning, match="a bug in weft"):
                np.testing.assert_allclose(jitted(x), np.sinh(x) * 3.25, rtol=1e-6)
    with config.context("check", True), pytest.raises(TypeError, match="needs an int"):
        weft.jit(lambda x: jnp.sinh(x) * 3.75)(x)


@pytest.mark.parametrize("run", [lax.cumsum, lax.cummax, lax.cumlogsumexp])
@pytest.mark.parametrize("axis", [0, 1])
def test_what_runs_backwards(run, axis):
    """It begins at the last element, which lies elsewhere at every size."""
    with config.context("check", False):
        for shape in ((40, 7), (41, 7), (300, 7), (41, 8), (3, 50), (3, 51)):
            x = array(shape)
            got = run(jnp.asarray(x), axis=axis, reverse=True)
            expected = np.flip(
                np.asarray(weft.jit(lambda x, axis=axis: run(x, axis=axis))(np.flip(x, axis).copy())), axis
            )
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
