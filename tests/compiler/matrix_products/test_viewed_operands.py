"""Products of views: operands are read where they lie, results written as they are read; the bits are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
import weft.numpy as jnp
from weft import config, lax
from weft.compiler import pipeline

B, T, H, KV, D = 2, 20, 4, 2, 8


def operand(*shape: int) -> Any:
    return jnp.asarray(np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32))


def softmax(x: Any) -> Any:
    return weft.nn.softmax(x, -1)


def attention(q: Any, k: Any, v: Any) -> Any:
    return jnp.einsum("bhts,bshd->bthd", softmax(jnp.einsum("bthd,bshd->bhts", q, k)), v)


def split_by_columns(x: Any, w: Any) -> Any:
    b, t, c = x.shape
    h = c // D
    q, k, v = [y.reshape(b, t, h, D).transpose(0, 2, 1, 3) for y in jnp.split(x @ w, 3, -1)]
    return (softmax(q @ k.transpose(0, 1, 3, 2)) @ v).transpose(0, 2, 1, 3).reshape(b, t, c)


def split_by_axis(x: Any, w: Any) -> Any:
    b, t, c = x.shape
    qkv = (x @ w).reshape(b, t, 3, c // D, D)
    return attention(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2])


def grouped(q: Any, k: Any, v: Any) -> Any:
    b, t, h, d = q.shape
    q = q.reshape(b, t, k.shape[2], h // k.shape[2], d)
    return jnp.einsum("bkgts,bskd->btkgd", softmax(jnp.einsum("btkgd,bskd->bkgts", q, k)), v).reshape(b, t, h * d)


def repeated(q: Any, k: Any, v: Any) -> Any:
    return attention(q, *[jnp.repeat(y, q.shape[2] // k.shape[2], axis=2) for y in (k, v)])


def projected(x: Any, q: Any, k: Any, v: Any, o: Any) -> Any:
    return jnp.einsum("bthd,hdc->btc", attention(*[jnp.einsum("btc,chd->bthd", x, w) for w in (q, k, v)]), o)


def weights_to_heads(x: Any, w: Any) -> Any:
    return jnp.einsum("btc,chd->bhtd", x, w)


def arguments(function: Any, b: int = B, t: int = T, h: int = H, kv: int = KV) -> tuple[Any, ...]:
    c = h * D
    if function in (split_by_columns, split_by_axis):
        return operand(b, t, c), operand(c, 3 * c) * 0.2
    if function in (grouped, repeated):
        return operand(b, t, h, D), operand(b, t, kv, D), operand(b, t, kv, D) + 1
    if function is projected:
        return operand(b, t, c), *[operand(c, h, D) * 0.2 + i for i in range(3)], operand(h, D, c)
    if function is weights_to_heads:
        return operand(b, t, c), operand(c, h, D)
    return operand(b, t, h, D), operand(b, t, h, D) + 1, operand(b, t, h, D) * 2


PROGRAMS = (attention, split_by_columns, split_by_axis, grouped, repeated, projected, weights_to_heads)


def copies(function: Any, *args: Any) -> int:
    """How many kernels do nothing but move elements."""
    text = weft.jit(function).lower(*args).compile().as_text("plan")
    return sum(line.startswith(("  kernel copy", "  copy")) for line in text.splitlines())


def loss(function: Any) -> Any:
    return lambda *args: (function(*args) ** 2).sum()


@pytest.mark.parametrize("function", PROGRAMS)
def test_attention_copies_nothing(function: Any) -> None:
    args = arguments(function)
    assert copies(function, *args) == 0
    with weft.disable_jit():
        want = np.asarray(function(*args))
    np.testing.assert_array_equal(np.asarray(weft.jit(function)(*args)), want)


# what is left moves whole pieces, as they are: dq, dk and dv into one array
GRADIENT_COPIES = {f: 3 if f is split_by_columns else 0 for f in PROGRAMS}


@pytest.mark.parametrize("function", GRADIENT_COPIES)
def test_gradients(function: Any) -> None:
    args = arguments(function)
    gradient = weft.grad(loss(function), argnums=tuple(range(len(args))))
    assert copies(gradient, *args) == GRADIENT_COPIES[function]
    with weft.disable_jit():
        want = gradient(*args)
    for a, b in zip(weft.jit(gradient)(*args), want, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("function", PROGRAMS)
@pytest.mark.parametrize(
    "size", [(3, 7, 6, 2), (1, 20, 4, 2), (2, 1, 4, 2), (1, 1, 2, 1), (2, 9, 4, 1), (2, 9, 2, 2), (5, 16, 8, 4)]
)
def test_further_sizes(function: Any, size: tuple[int, ...]) -> None:
    """Recalled, or made anew where an extent of 1 leaves no matrix: compared with the compilation, and with eager."""
    with config.context("check", True):
        jitted = weft.jit(function)
        jitted(*arguments(function))
        args = arguments(function, *size)
        got = np.asarray(jitted(*args))
    with weft.disable_jit():
        np.testing.assert_array_equal(got, np.asarray(function(*args)))


def test_a_second_size_builds_no_kernel() -> None:
    jitted = weft.jit(lambda x, w: split_by_columns(x, w) * 1.25)
    jitted(*arguments(split_by_columns))
    before = pipeline.stats()
    jitted(*arguments(split_by_columns, 3, 37))  # not 31: many rows that short have a kernel of their own
    after = pipeline.stats()
    assert after["kernels_built"] == before["kernels_built"]


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "bfloat16", "float16", "complex64", "complex128", "int32", "int8", "bool"]
)
@pytest.mark.parametrize(
    ("left", "right"),
    [
        (lambda x: x[2:7, 1:], lambda y: y[1:, :]),
        (lambda x: x[:5, :8].T.reshape(8, 5).T, lambda y: y[3:11, 2:5]),
        (lambda x: jnp.broadcast_to(x[0, :9], (6, 9)), lambda y: y[:9, :7]),
        (lambda x: x[:4, :9], lambda y: jnp.broadcast_to(y[1], (9, 20))),
        (lambda x: jnp.broadcast_to(x[1:4, 2:3], (3, 9)), lambda y: y[:9, 3:]),
        (lambda x: x[3, 2:9], lambda y: y[2:9]),
        (lambda x: x[1:6, ::2], lambda y: y[1:6]),
        (lambda x: x[1:6, ::-1][:, 3:], lambda y: y[1:8]),
        (lambda x: jnp.broadcast_to(x[0, 0], (6, 9)), lambda y: y[:9, :7]),
    ],
    ids=["sliced", "twice", "equal rows", "equal sums", "equal terms", "vector", "steps", "reversed", "scalar"],
)
def test_views(left: Any, right: Any, dtype: str) -> None:
    with weft.enable_x64(dtype in ("float64", "complex128")):
        x, y = (jnp.asarray(np.asarray(operand(*shape)) * 3).astype(dtype) for shape in ((10, 10), (12, 20)))

        def function(x: Any, y: Any) -> Any:
            a, b = left(x), right(y)
            return a @ b[: a.shape[-1]]

        with weft.disable_jit():
            want = np.asarray(function(x, y))
        np.testing.assert_array_equal(np.asarray(weft.jit(function)(x, y)), want)
        wide = np.complex128 if "complex" in dtype else np.float64
        a, b = (np.asarray(v(z)).astype(wide) for v, z in ((left, x), (right, y)))
        exact = a @ b[: a.shape[-1]]
        if dtype == "bool":
            exact = exact != 0
        if dtype == "int8":  # it wraps
            exact = exact.astype(np.int64).astype(np.int8)
        tolerance = {"bfloat16": 2e-2, "float16": 2e-3}.get(dtype, 1e-5)
        np.testing.assert_allclose(want.astype(wide), exact, rtol=tolerance, atol=tolerance * 10)


def test_extents_of_1_do_not_change_the_sum() -> None:
    """A product is one of vectors where a side has no other extent, however its dimensions are walked."""
    x, y = operand(6, 6, 2, 1), operand(6, 4, 6, 1)

    def function(x: Any, y: Any) -> Any:
        return lax.dot_general(x, y, (((0,), (0,)), ((1,), (2,))))

    got = np.asarray(weft.jit(lambda x, y: function(x * 2, y + 1))(x, y))
    np.testing.assert_array_equal(got, np.asarray(function(x * 2, y + 1)))


def test_results_that_are_read_too() -> None:
    """A view that is also a result, or read by a kernel, is made; the product is right either way."""
    x, w = operand(6, 10), operand(5, 7)

    def both(x: Any, w: Any) -> Any:
        a = x[:, 2:7]
        return a @ w, a, jnp.sin(a)

    got = weft.jit(both)(x, w)
    a = np.asarray(x)[:, 2:7]
    np.testing.assert_array_equal(np.asarray(got[1]), a)
    np.testing.assert_allclose(np.asarray(got[0]), a @ np.asarray(w), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(np.asarray(got[2]), np.sin(a), rtol=1e-5, atol=1e-6)


def test_the_array_outlives_an_update() -> None:
    """What is read in place keeps its values though the array is written over afterwards."""
    x, w = operand(6, 10), operand(5, 7)

    def update(x: Any, w: Any) -> Any:
        a = x[:, 2:7]
        changed = x.at[:, 2:7].set(0.0)
        return a @ w, changed

    want = np.asarray(x)[:, 2:7] @ np.asarray(w)
    got = weft.jit(update, donate_argnums=0)(x, w)
    np.testing.assert_allclose(np.asarray(got[0]), want, rtol=1e-5, atol=1e-5)
    assert not np.asarray(got[1])[:, 2:7].any()


@pytest.mark.parametrize("threads", [1, 2])
def test_threads(threads: int) -> None:
    args = arguments(grouped, 3, 130, 8, 2)
    with weft.disable_jit():
        want = np.asarray(grouped(*args))
    with weft.threads(threads):
        np.testing.assert_array_equal(np.asarray(weft.jit(grouped)(*args)), want)


@pytest.mark.parametrize("extent", [1, 2, 8, 0])
def test_a_broadcast_that_only_a_product_reads_leaves_no_loop(extent: int) -> None:
    matrix = np.arange(extent * 5, dtype=np.float32).reshape(extent, 5)

    def of_scalar(scalar: Any, matrix: Any) -> Any:
        return jnp.broadcast_to(scalar / 4, (extent,)) @ matrix

    def of_rows(row: Any, matrix: Any) -> Any:
        return jnp.broadcast_to((row / 4)[:, None], (3, extent)) @ matrix

    scalar, row = np.float32(6), np.arange(3, dtype=np.float32)
    np.testing.assert_allclose(weft.jit(of_scalar)(scalar, matrix), 1.5 * matrix.sum(0), rtol=1e-6)
    expected = np.outer(row / 4, matrix.sum(0))
    np.testing.assert_allclose(weft.jit(of_rows)(row, matrix), expected, rtol=1e-6)


SIZES = st.integers(1, 70)


@given(st.data())
@settings(max_examples=15, deadline=None)
def test_products_read_dynamic_slices_in_place(data: st.DataObject) -> None:
    m, k, n = (data.draw(SIZES) for _ in range(3))
    extra = [data.draw(st.integers(0, 9)) for _ in range(4)]
    a, b = np.asarray(operand(m + extra[0], k + extra[1])), np.asarray(operand(k + extra[2], n + extra[3]))
    starts = np.array([data.draw(st.integers(0, 12)) for _ in range(4)], np.int32)

    def program(a: Any, b: Any, starts: Any) -> Any:
        left = lax.dynamic_slice(a, (starts[0], starts[1]), (m, k), allow_negative_indices=False)
        right = lax.dynamic_slice(b, (starts[2], starts[3]), (k, n), allow_negative_indices=False)
        return left @ right

    i, j, p, q = (min(int(s), e) for s, e in zip(starts, extra, strict=True))
    wanted = a[i : i + m, j : j + k].astype(np.float64) @ b[p : p + k, q : q + n]
    np.testing.assert_allclose(weft.jit(program)(a, b, starts), wanted, rtol=1e-4, atol=1e-4)


def test_a_slice_of_whole_pages_is_copied() -> None:
    """Rows that are a page apart compete for the same sets of a cache."""

    def program(a: Any, i: Any) -> Any:
        return lax.dynamic_slice(a, (i, i), (64, 64), allow_negative_indices=False) @ np.ones((64, 64), np.float32)

    plans = [
        weft.jit(program).lower(np.ones((n, n), np.float32), np.int32(1)).compile().as_text("plan")
        for n in (1024, 1000)
    ]
    assert "a view, read in" not in plans[0] and "a view, read in" in plans[1]


def test_slices_of_an_array_that_is_updated() -> None:
    """The array that a loop updates in place is not what a product behind the update reads."""
    start = np.asarray(operand(96, 64))

    def step(state: Any, i: Any) -> Any:
        old = lax.dynamic_slice(state, (i, 0), (32, 64), allow_negative_indices=False)
        state = lax.dynamic_update_slice(state, old * np.float32(2), (i, 0), allow_negative_indices=False)
        return state, old @ start[:64] + lax.dynamic_slice(state, (i, 0), (32, 64)) @ start[:64]

    firsts = np.array([0, 16, 60, 200], np.int32)
    state, found = weft.jit(lambda s, p: lax.scan(step, s, p))(start, firsts)
    wanted = start.copy()
    for first, row in zip(np.minimum(firsts, 64), found, strict=True):
        old = wanted[first : first + 32].copy()
        np.testing.assert_allclose(row, 3 * (old.astype(np.float64) @ start[:64]), rtol=1e-4, atol=1e-3)
        wanted[first : first + 32] *= 2
    np.testing.assert_array_equal(state, wanted)
