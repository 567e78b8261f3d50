"""Programs at other sizes: kernels that were compiled for one shape are right, and are used, at another.

Here are the edges: sizes that meet, vanish, are 1, are narrow, are large, and literals that become equal.
"""

from __future__ import annotations

import gc
import itertools
import sys

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import config, lax, nn, ops, random
from weft.compiler import pipeline

SHAPES = [(6, 10), (8, 12), (12, 8), (7, 7), (1, 5), (5, 1), (3, 6000), (6000, 3), (9, 0), (0, 4), (520, 600)]


def layernorm(x):
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def rows_of(x):
    """Indices in the rows of an array, from its values."""
    return (x.sum(1) * 5).astype(int)


def index_of(x):
    """An index in an array, from its values."""
    return (x.sum() * 5).astype(int)


def halves_of(x):
    """Two slices of a computed value: where they are most of it, it is stored."""
    rows, y = max(x.shape[0] // 3, 5), jnp.exp(x)
    parts = [lax.dynamic_slice_in_dim(y, index_of(x) + k, rows, 0) for k in (0, 1)]
    return parts[0] - parts[1]


PROGRAMS = {
    "layernorm": layernorm,
    "softmax": nn.softmax,
    "sums": lambda x: (x.sum(0), x.sum(1), x.mean()),
    "slice": lambda x: x[:, ::2] * 2 + x[:, :1],
    "reverse": lambda x: x[::-1] + 1,
    "both ends": lambda x: x[::-1, ::-1] * x[-1:] + x[:1],
    "rolled": lambda x: jnp.roll(x, 1, 0) + jnp.roll(x, -2, 1),
    "pad of the last": lambda x: jnp.pad(x, 2, mode="edge") * 2 if x.size else x,
    "halves of rows": lambda x: x[:, : x.shape[1] // 2] + x[:, (x.shape[1] + 1) // 2 :],
    "counted from an end": lambda x: x * jnp.arange(x.shape[1])[::-1],
    "turned twice": lambda x: x[::-1][-2:][::-1] * 2,
    "sums from the end": lambda x: lax.cumsum(x * 2, 0, reverse=True) + lax.cummax(x, 1, reverse=True),
    "transpose": lambda x: x.T * 2 + x.T.sum(0),
    "reshape": lambda x: (x.reshape(-1) * 2).reshape(x.shape[1], x.shape[0]),
    "iota": lambda x: x + jnp.arange(x.shape[1], dtype=x.dtype),
    "literals": lambda x: x * 0.3 + 0.3 + x.shape[0] * 0.1 + x.shape[1] * 0.1,
    "counts": lambda x: x / x.shape[0] + x.shape[1] * 1.0,
    "argmax": lambda x: jnp.argmax(x + 1, axis=-1) if x.shape[1] else x,
    "outer": lambda x: x[:, None, :] - x[None, :1, :],
    "concatenate": lambda x: jnp.concatenate([x, x * 2], axis=1),
    "three pieces": lambda x: jnp.concatenate([x[:1], x * 2, x[:, ::-1]], axis=0),
    "pieces of pieces": lambda x: jnp.concatenate([jnp.concatenate([x, x + 1]), jnp.concatenate([x, x])]) * 2,
    "pieces read one by one": lambda x: jnp.stack([x, x * 2, x + 1])[1] * 3,
    "pad": lambda x: jnp.pad(x, 3) + 1,
    "pad one side": lambda x: jnp.pad(x * 2, ((0, 2), (1, 0)), constant_values=7),
    "pad and cut": lambda x: lax.pad(x, np.float32(2), ((-1, 3, 0), (2, -2, 0))),
    "pad between": lambda x: lax.pad(x, np.float32(0), ((1, 0, 2), (0, 0, 1))).sum(1),
    "sum of pads": lambda x: jnp.pad(x, ((0, 5), (0, 0))) + jnp.pad(x, ((5, 0), (0, 0))),
    "pad of a mean": lambda x: jnp.pad(x - x.mean(0, keepdims=True), 1).sum(0),
    "indices within": lambda x: x.sum() * (jnp.arange(-50, 50) * 7 % x.shape[0] + jnp.arange(100) // (x.shape[1] - 9)),
    "equal divisors and masks": lambda x: (x * 99).astype(int) % x.shape[0] + (x.shape[0] - 1) * x.shape[1],
    "quotients": lambda x: (x * 9).astype(int) // 7 % 4,
    "powers": lambda x: x**2 + abs(x) ** 0.5,
    "gradient": weft.grad(lambda x: (nn.softmax(x) ** 2).sum()),
    "product": lambda x: nn.relu(x @ jnp.cos(x[:1]).T + 1),
    "gradient of products": weft.grad(lambda x: jnp.tanh(x @ jnp.tanh(x.T @ x)).sum()),
    "product of halves": lambda x: x.astype(jnp.bfloat16) @ x.T.astype(jnp.bfloat16),
    "products of a batch": lambda x: jnp.einsum("ij,ik->ijk", x, x[:, ::2]) + 1,
    "sums so far": lambda x: jnp.cumsum(x * 2, axis=0),
    "sorted": lambda x: jnp.sort(x * x, axis=0) + 1,
    "sorted columns": lambda x: jnp.sort(x, axis=0),
    "counts between borders": lambda x: jnp.histogram(x, bins=10)[0],
    "between points": lambda x: jnp.interp(x[:, 0], jnp.linspace(-1, 1, 9), jnp.arange(9.0)) if x.size else x,
    "last of pieces": lambda x: jnp.concatenate([x[:, 0], x[:1, 0] * 2, x[:, 0]])[len(x)] + x if x.size else x,
    "index in pieces": lambda x: jnp.concatenate([x[:, 0] * 2, x[:, 0] + 1])[9] + x if x.size and len(x) > 4 else x,
    "columns in turn": lambda x: jnp.stack([x, x + 1], axis=-1) * 2,
    "halves": lambda x: jnp.split(x, [1], axis=1)[1] * 2,
    "rows taken": lambda x: x[rows_of(x)] * 2,
    "columns taken, or filled": lambda x: jnp.take(x, jnp.arange(-9, 9) * 3, axis=1, mode="fill") if x.size else x,
    "elements of rows' logarithms": lambda x: (
        -jnp.take_along_axis(nn.log_softmax(x), rows_of(x)[:, None], 1).mean() if x.size else x
    ),
    "elements of rows' squares": lambda x: jnp.take(x * x, rows_of(x) * 2, axis=1, mode="clip") + 1 if x.size else x,
    "gradient of elements of rows": weft.grad(
        lambda x: (nn.log_softmax(x)[jnp.arange(x.shape[0]), rows_of(x)] if x.size else x).sum()
    ),
    "computed tables": lambda x: jnp.exp(x[::-1][: x.shape[0] // 2 + 1])[rows_of(x)] if x.size else x,
    "elements taken": lambda x: jnp.take_along_axis(x, rows_of(x)[:, None], 1) if x.size else x,
    "rows added up": lambda x: jnp.ones_like(x).at[rows_of(x)].add(x),
    "rows added up or dropped": lambda x: x.at[rows_of(x) * 3].add(x * 2, mode="drop"),
    "columns set": lambda x: x.at[:, jnp.arange(3) * 2].set(7.0, mode="clip"),
    "gradient of rows taken": weft.grad(lambda x: jnp.tanh(x[rows_of(x)] * x).sum()),
    "row at an index": lambda x: jnp.exp(x)[index_of(x)] * x[index_of(x) + 1] if x.size else x,
    "element at an index": lambda x: x[index_of(x), -1] * x[-2:, index_of(x)].sum() if x.size else x,
    "window at an index": lambda x: (
        lax.dynamic_slice(jnp.tanh(x - x.sum(1, keepdims=True)) * 2, (index_of(x), 1), (2, x.shape[1] // 2)).T
        if x.shape[0] > 1
        else x
    ),
    "slices at indices": lambda x: halves_of(x) if x.shape[0] > 5 else x,
    "row of a product": lambda x: (x @ x.T)[index_of(x)] + 1 if x.size else x,
    "row written at an index": lambda x: (
        lax.dynamic_update_index_in_dim(x * 2, jnp.cos(x[0]), index_of(x), 0) + 1 if x.size else x
    ),
    "corner written": lambda x: lax.dynamic_update_slice(x, x[:1, :1] + 1, (x.shape[0] - 1, 0)) if x.size else x,
    "inside added to": lambda x: x.at[1:-1, 1:-1].add(x[2:, 1:-1] * 2 - x[1:-1, :-2]) if min(x.shape) > 2 else x,
    "all rows but some": lambda x: x.at[2:].set(x[:-2] * 2) if len(x) > 2 else x,
    "between zeros": lambda x: jnp.zeros((x.shape[0] + 3, x.shape[1] + 1), x.dtype).at[2:-1, :-1].set(jnp.exp(x)),
    "row set": lambda x: x.at[index_of(x)].set(x[0] * 2) if x.size else x,
    "last row added to": lambda x: (x * 2).at[-1].add(1.0).at[0].set(3.0) if len(x) else x,
    "column of zeros set": lambda x: jnp.zeros_like(x).at[:, -1].set(x[:, 0]) if x.size else x,
    "element of each row added to": lambda x: x.at[jnp.arange(len(x)), rows_of(x)].add(1.0, mode="clip"),
    "element of each row of zeros": lambda x: (
        jnp.zeros_like(x).at[jnp.arange(len(x)), rows_of(x)].add(x[:, 0]) + 1 if x.size else x
    ),
    "steps on an array": lambda x: lax.fori_loop(0, 5, lambda i, y: jnp.sin(y) * 2 + i, x * 2) - 1,
    "steps of a stencil": lambda x: lax.fori_loop(
        0, 4, lambda i, y: y.at[1:-1].add(y[2:] - y[:-2]) if len(x) > 2 else y + 1, jnp.cos(x)
    ),
    "steps while": lambda x: (
        lax.while_loop(lambda s: s[1] < 6, lambda s: (s[0] * 0.5 + x, s[1] + 1), (x + 1, 0))[0] * 2
    ),
    "steps over rows": lambda x: lax.scan(lambda c, row: (c * 0.5 + row, c.sum()), x.sum(0), x * 2),
    "as many steps as rows": lambda x: lax.fori_loop(0, x.shape[0], lambda i, c: c * 0.5 + i, x.sum()) + x,
    "steps at indices": lambda x: (
        lax.fori_loop(0, x.shape[0], lambda i, c: c + (x * 2)[i] * i, x[-1] * 0) if len(x) else x
    ),
    "steps by products": lambda x: (
        lax.fori_loop(0, 3, lambda i, w: w - x.T @ (x @ w), x.T * 0.01) if x.size < 5000 else x
    ),
    "one of two": lambda x: lax.cond(x.sum() > 0, lambda y: y * 2, lambda y: jnp.cos(y) - 1, x * 3) + 1,
    "noise": lambda x: x + random.normal(random.key(3), x.shape) * random.bernoulli(random.key(4), 0.5, x.shape),
    "keys": lambda x: weft.vmap(lambda key: random.uniform(key, (3,)))(random.split(random.key(1), x.shape[1])),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_of_one_shape_give_the_bits_of_those_compiled_anew(name):
    function = PROGRAMS[name]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape, dtype=np.float32) for shape in SHAPES]
    with config.context("check", False):
        jitted = weft.jit(lambda x: function(x))
        got = [jitted(x) for x in arrays]
    for x, mine in zip(arrays, got, strict=True):
        pipeline.clear()  # compiled anew
        expected = weft.jit(lambda x: (function(x), 0)[0])(x)
        for a, b in zip(weft.tree.leaves(mine), weft.tree.leaves(expected), strict=True):
            assert np.array_equal(np.asarray(a), np.asarray(b), equal_nan=True), (x.shape, a.dtype)


RANKS = {
    0: [(), ()],
    1: [(7,), (1,), (0,), (9,), (4100,)],
    2: [(5, 7), (1, 7), (7, 1), (1, 1), (0, 6), (6, 9)],
    3: [(2, 3, 4), (1, 5, 6), (5, 1, 6), (5, 6, 1), (1, 1, 1), (0, 2, 3), (3, 4, 5)],
    4: [(2, 3, 4, 5), (1, 3, 4, 5), (2, 1, 1, 5), (2, 3, 0, 5), (3, 4, 5, 6)],
    5: [(2, 3, 4, 5, 6), (1, 3, 4, 5, 1), (2, 0, 4, 5, 6), (2, 1, 3, 1, 5), (3, 2, 4, 6, 5)],
}
OF_ANY_RANK = {
    "elementwise": lambda x: x * 2 + 1,
    "row": lambda x: x - x.sum(-1, keepdims=True) if x.ndim else x,
    "column": lambda x: (x / (1 + abs(x).sum(0))).sum() if x.ndim else x,
    "turned": lambda x: x.T + x.T[:1] if x.ndim else -x,
    "flat": lambda x: x.ravel() * 3,
    "padded": lambda x: jnp.pad(x, [(1, 2)] * x.ndim) * 2 if x.ndim else x * x,
    "joined": lambda x: jnp.concatenate([x, x * 2, x[::-1]], axis=x.ndim // 2) if x.ndim else x + x,
    "stacked": lambda x: jnp.stack([x, x + 1], axis=-1),
}


@pytest.mark.parametrize("name", OF_ANY_RANK)
@pytest.mark.parametrize("rank", RANKS)
def test_programs_of_every_rank_are_right_at_sizes_of_0_and_1(rank, name):
    function = OF_ANY_RANK[name]
    jitted = weft.jit(lambda x: function(x))
    with config.context("check", True):
        for shape in RANKS[rank]:
            x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
            with weft.disable_jit():
                expected = function(jnp.asarray(x))
            np.testing.assert_array_equal(np.asarray(jitted(x)), np.asarray(expected), err_msg=str(shape))


REWRITTEN_OR_STEPS = (
    "quotients", "powers", "gradient", "product", "gradient of products", "product of halves", "sums so far", "sorted",
    "columns in turn", "halves", "rows taken", "both ends", "rolled", "counted from an end",
    "sums from the end", "elements of rows' squares", "rows added up",
    "gradient of rows taken", "noise", "row at an index", "element at an index", "window at an index",
    "row of a product", "row written at an index", "corner written", "inside added to", "all rows but some",
    "between zeros", "row set",
    "as many steps as rows",
    "last row added to", "column of zeros set", "element of each row added to", "element of each row of zeros",
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "first", "later"),
    [
        ("layernorm", (6, 10), [(1, 12), (0, 9), (8, 12)]),
        ("softmax", (6, 10), [(1, 12), (0, 9), (8, 12)]),
        ("concatenate", (6, 10), [(1, 12), (8, 12)]),
        ("pad", (6, 10), [(8, 12), (1, 12)]),
        ("pad one side", (6, 11), [(8, 13), (1, 12)]),
        ("slice", (6, 10), [(1, 12), (0, 12)]),
        ("elements of rows' logarithms", (20, 18), [(28, 21), (70, 50)]),
        ("sorted columns", (6, 10), [(8, 12), (70, 50)]),
        ("counts between borders", (60, 50), [(58, 60), (70, 55)]),  # of fewer a loop computes them again
        ("between points", (60, 7), [(58, 13), (70, 50)]),  # a loop over few points is another one
        ("index in pieces", (16, 10), [(18, 12), (70, 50)]),
        *[(name, (6, 18), [(8, 21), (70, 50)]) for name in REWRITTEN_OR_STEPS],
        *[(name, (30, 280), [(28, 290), (70, 500)]) for name in PROGRAMS if name.startswith(("steps", "one of"))],
    ],
)
def test_other_sizes_and_those_of_0_and_1_need_no_kernel_of_their_own(name, first, later):
    jitted = weft.jit(lambda x: PROGRAMS[name](x))
    with config.context("check", False):
        jitted(np.ones(first, np.float32))
        before = pipeline.stats()
        for shape in later:
            jitted(np.ones(shape, np.float32))
        after = pipeline.stats()
    assert after["kernels_built"] == before["kernels_built"]


def check_at(function, *sizes):
    """One jitted function at arrays of each of these shapes; every result must be right."""
    jitted = weft.jit(lambda *args: function(*args))
    with config.context("check", False):
        for shapes in sizes:
            args = [np.linspace(0, 2, int(np.prod(shape)), dtype=np.float32).reshape(shape) for shape in shapes]
            got = jitted(*args)
            with weft.disable_jit():
                expected = function(*args)
            for a, b in zip(weft.tree.leaves(got), weft.tree.leaves(expected), strict=True):
                np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5)


def test_a_gather_is_right_at_sizes_for_which_something_else_pays():
    jitted = weft.jit(lambda x, i: jnp.exp(jnp.sin(x))[i])
    with config.context("check", False):
        for rows, taken in [(4000, 10), (5000, 20), (40, 90_000), (50, 100_000), (6000, 30), (60, 110_000)]:
            x, i = np.linspace(0, 3, rows, dtype=np.float32), np.arange(taken, dtype=np.int32) % rows
            assert np.allclose(jitted(x, i), np.exp(np.sin(x))[i], rtol=1e-5)


def test_slices_are_right_at_sizes_at_which_they_are_most_of_a_value():
    check_at(halves_of, *[[(rows, 17)] for rows in (40, 9, 50, 8, 60)])


def test_lanes_may_run_along_other_dimensions_at_other_sizes():
    outer = lambda x, y, z: (x[:, None] * y + 1, z * 2)
    sizes = [(5000, 10, 3), (6000, 4, 3), (7000, 12, 4), (8000, 2, 3), (9000, 11, 2)]
    check_at(outer, *[[(n,), (m,), (k,)] for n, m, k in sizes])
    sums = lambda x, z: ((x * x).sum(-1), z * 2)
    sizes = [((90, 70, 8), 3), ((100, 60, 8), 2), ((3000, 3, 8), 4), ((4000, 2, 8), 3)]
    check_at(sums, *[[shape, (k,)] for shape, k in sizes])


def test_elements_of_short_rows_and_of_long_ones():
    picked = lambda x: jnp.take_along_axis(nn.log_softmax(x), rows_of(x)[:, None], 1).mean()
    shapes = [(20, 18), (3, 40), (30, 5), (5000, 5), (40, 6), (6000, 5), (50, 60)]
    check_at(picked, *[[shape] for shape in shapes])


@pytest.mark.parametrize("name", ["segment", "bincount", "noise"])
def test_a_batch_of_one_needs_little_other_code(name):
    """Rows added up in a table, and random numbers: what is one update, or one column, is one kernel of its own."""
    function = {
        "segment": lambda x: ops.segment_sum(x, (x[:, 0] * 3).astype(int) % 7, 7),
        "bincount": lambda x: jnp.bincount((x[:, 0] * 3).astype(int) % 7, length=7),
        "noise": lambda x: x.T + random.normal(random.key(3), (x.shape[1], x.shape[0])),
    }[name]
    weft.clear_caches()
    jitted = weft.jit(lambda x: function(x))
    with config.context("check", False):
        jitted(np.ones((24, 36), np.float32))
        before = pipeline.stats()
        x = np.linspace(0, 2, 36, dtype=np.float32).reshape(1, 36)
        found = np.asarray(jitted(x))
        after = pipeline.stats()
        with weft.disable_jit():
            np.testing.assert_allclose(found, np.asarray(function(x)), rtol=1e-6)
    assert after["kernels_built"] - before["kernels_built"] <= (name != "segment")


def test_sizes_may_become_equal():
    check_at(lambda x, y: x.sum() + y.sum(), *SIZES_THAT_MEET)


SIZES_THAT_MEET = [[(3, 4), (5, 6)], [(1, 1), (5, 0)], [(3000, 40), (5, 3000)], [(8, 4), (5, 8)]]


def test_a_second_shape_builds_nothing_and_prints_like_any_program():
    jitted = weft.jit(lambda x: layernorm(x) * 3)
    with config.context("check", False):
        jitted(np.ones((6, 10), np.float32))
        x = np.ones((8, 13), np.float32)
        jitted(x)
        assert jitted.cache_info().kernels_built + jitted.cache_info().kernels_loaded <= 1
        texts = {form: jitted.lower(x).as_text(form) for form in ("kernel", "loops", "plan")}
    assert "8" in texts["kernel"] and "13" in texts["kernel"]
    assert "kernel" in texts["plan"] and texts["loops"]


def count_at(x, k):
    """Numbers made of a size: a divisor, a count of positions, one that is added."""
    return x[(jnp.arange(9) * 7 + k) % x.shape[0]] + jnp.arange(x.shape[1]) * x.shape[1]


@pytest.mark.parametrize("shape", [(16, 24), (14, 2), (32, 64), (21, 7), (3, 7), (24, 1)])
def test_literals_that_become_equal_need_no_compilation_and_powers_of_two_one(shape):
    weft.clear_caches()
    jitted = weft.jit(lambda x, k: count_at(x, k) / x.shape[1])
    with config.context("check", False):
        jitted(np.ones((12, 20), np.float32), np.int32(3))
        before = pipeline.stats()
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        found = jitted(x, np.int32(3))
        after = pipeline.stats()
    n, m = shape
    expected = (x[(np.arange(9) * 7 + 3) % n] + np.arange(m) * m * 1.0) / np.float32(m)
    np.testing.assert_array_max_ulp(np.asarray(found), expected.astype(np.float32), 2)
    is_masked = n & (n - 1) == 0 or m == 1  # the remainder is a mask then; nothing is added times 1
    assert after["kernels_built"] - before["kernels_built"] <= is_masked


def test_literals_that_were_equal_are_told_apart():
    """A kernel takes equal numbers once: its code is that of no program in which they differ."""

    def f(np, x):
        rows, columns = x.shape
        return x * 5 + np.arange(columns) * columns + (np.arange(columns) % 8) * (rows + 2) + 5

    jitted = weft.jit(lambda x: f(jnp, x))
    for shape in [(5, 5), (5, 6), (8, 5), (7, 7), (6, 9), (8, 8), (16, 16), (16, 8), (3, 11), (12, 13)]:
        x = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
        assert np.array_equal(jitted(x), f(np, x))


def test_other_steps_are_other_programs():
    """What a loop or a branch runs is no part of the description, but of what programs are known by."""
    with config.context("check", False):
        for scale in (2.0, 3.0):
            x = np.ones((700, 3), np.float32)
            steps = weft.jit(lambda x, scale=scale: lax.fori_loop(0, 3, lambda i, y: y * scale, x + 1))
            assert np.array_equal(steps(x), (x + 1) * scale**3)
            either = weft.jit(lambda x, scale=scale: lax.cond(x.sum() > 0, lambda y: y * scale, lambda y: -y, x + 1))
            assert np.array_equal(either(x), (x + 1) * scale) and np.array_equal(either(-x - 1), x)
        for count in (2, 3):
            steps = weft.jit(lambda x, count=count: lax.fori_loop(0, count, lambda i, y: y * 2, x + 1))
            assert np.array_equal(steps(x), (x + 1) * 2.0**count)


def test_a_loop_may_fit_into_registers_at_some_sizes_alone():
    with config.context("check", False):
        jitted = weft.jit(lambda x, w: lax.fori_loop(0, 4, lambda i, w: w - 0.1 * (x.T @ (x @ w)), x[0] * 0) + w)
        for rows in (4, 500, 6, 600, 700):
            x, w = np.ones((rows, 5), np.float32), np.arange(5, dtype=np.float32)
            assert np.array_equal(jitted(x, w), w)


@pytest.mark.parametrize(
    ("program", "most"),
    [
        (lambda x: jnp.sum(x**2 + jnp.sin(x)), 620),
        (layernorm, 2100),
        (lambda x: nn.softmax(x), 930),
        (lambda x: jnp.mean(x, axis=1), 620),
        (lambda x: jnp.pad(x, 3), 1400),
        (lambda x: x[2:, ::2] * 2, 1800),
    ],
    ids=["sum", "layernorm", "softmax", "mean", "pad", "slice"],
)
def test_a_second_shape_takes_few_calls_of_python_functions(program, most, monkeypatch):
    """About half a microsecond for each call of a function.

    All but the last are computed from the program at the first size. Of the last a guard fails: it has many points now.
    """
    monkeypatch.setattr(config, "checks_watched", False)  # of tests before: marks are looked for from then on
    with config.context("check", False):
        assert min(calls_of_a_second_shape(program) for _ in range(3)) <= most


def calls_of_a_second_shape(program):
    """Python functions called. The collector's callbacks are none of the program's: it rests meanwhile."""
    weft.clear_caches()
    counts = itertools.count()
    jitted = weft.jit(lambda x: program(x))
    jitted(np.ones((64, 100), np.float32))
    other = np.ones((80, 120), np.float32)
    built = jitted.cache_info().kernels_built
    gc.collect()
    gc.disable()
    sys.setprofile(lambda frame, event, _: event == "call" and next(counts))
    try:
        jitted(other)
    finally:
        sys.setprofile(None)
        gc.enable()
    assert jitted.cache_info().kernels_built == built
    return next(counts)
