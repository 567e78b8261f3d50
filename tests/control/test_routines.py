"""Small loops in registers: the bits of the reference interpreter and of the interpreted routine, for every kind."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
import weft.numpy as jnp
from tests.compiler import ladder
from weft import lax
from weft.compiler.checks import reference_interpreter, verify

FLOATS: dict[str, Callable[[Any], Any]] = {
    "scaled": lambda s: s * 0.75 + 0.25,
    "sine": lambda s: jnp.sin(s),
    "exp": lambda s: jnp.exp(-jnp.abs(s)),
    "where": lambda s: jnp.where(s > 0.5, s, -s),
    "reversed": lambda s: s[..., ::-1],
    "rolled": lambda s: jnp.roll(s, 1, axis=-1),
    "strided": lambda s: jnp.concatenate([s[..., ::2], s[..., 1::2]], axis=-1),
    "sum": lambda s: s + s.sum(axis=-1, keepdims=True) * 0.01,
    "total": lambda s: s - s.sum() * 0.01,
    "mean_first": lambda s: s - s.mean(axis=0, keepdims=True),
    "maximum": lambda s: s / (1 + jnp.abs(s).max()),
    "argmax": lambda s: s + s.argmax(axis=-1)[..., None].astype(s.dtype),
    "softmax": lambda s: weft.nn.softmax(s, axis=-1),
    "cumsum": lambda s: jnp.cumsum(s, axis=-1) * 0.1,
    "cumulative_back": lambda s: lax.cumsum(s, axis=s.ndim - 1, reverse=True) * 0.1,
    "padded": lambda s: jnp.pad(s, [(0, 0)] * (s.ndim - 1) + [(1, 1)])[..., 1:-1] + 1,
    "iota": lambda s: s + jnp.arange(s.shape[-1], dtype=s.dtype) * 0.125,
    "inner_loop": lambda s: lax.fori_loop(0, 3, lambda i, t: t * 0.5 + i, s),
    "branch": lambda s: lax.cond(s.sum() > 0, lambda t: t * 0.5, lambda t: t + 1, s),
    "sliced": lambda s: s + lax.dynamic_slice_in_dim(s, (s.sum() * 3).astype(jnp.int32), 1, s.ndim - 1),
    "updated": lambda s: lax.dynamic_update_slice_in_dim(
        s, s.sum(axis=-1, keepdims=True) * 0.1, s.astype(jnp.int32).max(), s.ndim - 1
    ),
}
INTEGERS: dict[str, Callable[[Any], Any]] = {
    "affine": lambda s: s * 3 + 1,
    "divided": lambda s: s // 3 + (s % 5),
    "shifted": lambda s: (s << 1) ^ (s >> 2),
    "sum": lambda s: s + s.sum(axis=-1, keepdims=True, dtype=s.dtype),
    "reversed": lambda s: s[..., ::-1],
    "minimum": lambda s: jnp.minimum(s, s.min() + 7),
    "by_zero": lambda s: s // jnp.zeros_like(s) + s,
    "cumulative_maximum": lambda s: lax.cummax(s, axis=s.ndim - 1),
    "popcount": lambda s: lax.population_count(s) + s,
}
SHAPES = [(), (1,), (2,), (3,), (5,), (8,), (17,), (33,), (60,), (2, 3), (4, 4), (3, 1, 5), (1, 19)]


def assert_native_is_the_reference(run: Callable[..., Any], *args: Any, exact: bool = True) -> None:
    closed = weft.make_jaxpr(run)(*args)
    compiled = weft.jit(run).lower(*args).compile()
    assert "routine" in compiled.as_text("plan")
    found = compiled(*args)
    operands = [np.asarray(a) for a in args]
    expected, by_loops = reference_interpreter.interpret(closed, operands), ladder.interpreted(closed, operands)
    for a, b, c in zip(found if isinstance(found, tuple) else (found,), expected, by_loops, strict=True):
        assert verify.same_bits(np.asarray(a), c), (np.asarray(a), c)
        if exact:
            assert verify.same_bits(np.asarray(a), b), (np.asarray(a), b)
        else:
            np.testing.assert_allclose(np.asarray(a), b, rtol=2e-5, atol=2e-5)


def loop(names: list[str], table: dict[str, Callable[[Any], Any]], trips: int) -> Callable[[Any], Any]:
    def body(_: Any, s: Any) -> Any:
        for name in names:
            s = table[name](s).reshape(s.shape).astype(s.dtype)
        return s

    return lambda x: lax.fori_loop(0, trips, body, x)


@settings(max_examples=60, deadline=None)
@given(
    shape=st.sampled_from(SHAPES[1:]),
    dtype=st.sampled_from([np.float32, np.float32, ml_dtypes.bfloat16, np.float16]),
    names=st.lists(st.sampled_from(sorted(FLOATS)), min_size=1, max_size=4),
    seed=st.integers(0, 9),
)
def test_float_bodies(shape: tuple[int, ...], dtype: Any, names: list[str], seed: int) -> None:
    x = jnp.asarray(np.random.default_rng(seed).normal(size=shape).astype(np.float32)).astype(dtype)
    run = loop(names, FLOATS, 3)
    closed = weft.make_jaxpr(run)(x)
    expected = reference_interpreter.interpret(closed, [np.asarray(x)])[0]
    found = np.asarray(weft.jit(run)(x))
    if not any(name in ("sine", "exp", "softmax") for name in names):  # references of these are another library's
        assert verify.same_bits(found, expected)
        assert verify.same_bits(found, ladder.interpreted(closed, [np.asarray(x)])[0])
    assert verify.same_bits(found, np.asarray(_step_by_step(names, FLOATS, x, 3)))


def _step_by_step(names: list[str], table: dict[str, Callable[[Any], Any]], s: Any, trips: int) -> Any:
    """The same operations eagerly, kernel by kernel: jit gives the bits of eager evaluation."""
    for _ in range(trips):
        for name in names:
            s = table[name](s).reshape(s.shape).astype(s.dtype)
    return s


@settings(max_examples=40, deadline=None)
@given(
    shape=st.sampled_from(SHAPES[1:]),
    dtype=st.sampled_from([np.int32, np.uint8, np.int16, np.uint32]),
    names=st.lists(st.sampled_from(sorted(INTEGERS)), min_size=1, max_size=4),
)
def test_integer_bodies(shape: tuple[int, ...], dtype: Any, names: list[str]) -> None:
    x = jnp.asarray((np.arange(np.prod(shape)) * 37 % 101).reshape(shape).astype(dtype))
    assert_native_is_the_reference(loop(names, INTEGERS, 3), x)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("shape", SHAPES[1:])
def test_bytes_are_divided_in_bodies_of_every_shape(shape: tuple[int, ...], dtype: Any) -> None:
    x = jnp.asarray((np.arange(np.prod(shape)) * 37 % 101).reshape(shape).astype(dtype))
    assert_native_is_the_reference(loop(["divided"], INTEGERS, 3), x)


@pytest.mark.parametrize("shape", SHAPES)
def test_scalars_and_short_vectors_of_every_shape(shape: tuple[int, ...]) -> None:
    x = jnp.asarray(np.linspace(-1, 1, int(np.prod(shape)) or 1, dtype=np.float32).reshape(shape))
    assert_native_is_the_reference(lambda x: lax.fori_loop(0, 5, lambda i, s: s * 0.5 + i, x), x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_far_arguments_of_many_functions_share_one_cold_function_and_leave_the_rest_alone(dtype: Any) -> None:
    xs = np.array([0.3, 1e5, -7e11, 3e30, np.inf, 1e-40, -0.0], dtype)
    numbers = np.arange(1, 25, dtype=dtype) / 8

    def loop(state: Any, xs: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            following = [s * 0.5 + jnp.sin(x * numbers[k]) * jnp.cos(s) for k, s in enumerate(state)]
            return following, following

        return lax.scan(step, state, xs)

    with weft.enable_x64(dtype == np.float64):
        compiled = weft.jit(loop).lower(list(numbers), xs).compile()
        _, rows = compiled(list(numbers), xs)
    assert compiled.as_text("llvm").count("define internal") == 1
    expected, state = [], numbers.astype(np.float64)
    with np.errstate(invalid="ignore"):
        for x in xs:
            state = state * 0.5 + np.sin((x * numbers).astype(np.float64)) * np.cos(state)
            expected.append(state)
    np.testing.assert_allclose(np.stack(rows, 1), expected, rtol=0, atol=1e-5 if dtype == np.float32 else 1e-13)


@pytest.mark.parametrize("dtype", [np.complex64, np.bool_, np.float32])
def test_rows_in_and_out(dtype: Any) -> None:
    xs = jnp.asarray((np.arange(21).reshape(7, 3) % 4).astype(dtype))

    def step(c: Any, x: Any) -> tuple[Any, Any]:
        c = jnp.logical_xor(c, x) if dtype is np.bool_ else c * x + 1
        return c, (c, x)

    for reverse in (False, True):
        run = lambda xs, reverse=reverse: lax.scan(step, xs[0], xs, reverse=reverse)[1][0]
        assert_native_is_the_reference(run, xs)


def test_products() -> None:
    rng = np.random.default_rng(0)
    for shape in [(2, 2), (3, 3), (4, 4), (8, 8)]:
        a = jnp.asarray(rng.normal(size=shape).astype(np.float32) / shape[0])
        assert_native_is_the_reference(lambda a: lax.fori_loop(0, 4, lambda i, s: s @ a + a.T, a), a, exact=False)
        v = a[0]
        assert_native_is_the_reference(lambda a, v: lax.fori_loop(0, 4, lambda i, s: a @ s + v, v), a, v, exact=False)


def test_a_large_captured_array_is_read_where_it_lies() -> None:
    x = jnp.arange(1000.0)
    run = lambda x: lax.fori_loop(0, 1000, lambda i, s: s + lax.dynamic_index_in_dim(x, i, 0, False), 0.0)
    compiled = weft.jit(run).lower(x).compile()
    assert "routine" in compiled.as_text("plan")
    assert float(compiled(x)) == 499500.0


def test_sizes_and_numbers_do_not_compile_anew() -> None:
    """Another length, another literal: the same machine code."""

    def run(x: Any, factor: float) -> Any:
        return lax.scan(lambda c, a: (c * factor + a, c), 0.0, x)

    weft.jit(lambda x: run(x, 0.5))(jnp.ones(10))
    second = weft.jit(lambda x: run(x, 0.25))
    assert float(second(jnp.ones(12))[0]) > 1
    assert second.cache_info().kernels_built == 0


def test_loops_stop_for_an_interrupt() -> None:
    """Ctrl-C inside an endless native loop, on the caller's thread or on the stream's."""
    endless = weft.jit(lambda n: lax.while_loop(lambda s: s != n, lambda s: (s + 2) % 1000, 0))
    weft.block_until_ready(endless(4))
    timer = threading.Timer(0.2, signal.raise_signal, (signal.SIGINT,))
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        weft.block_until_ready(endless(-1))
    assert time.monotonic() - start < 5  # 0.2 s on an idle machine
    timer.join()
    assert int(endless(8)) == 8


def test_other_threads_run_during_a_long_loop() -> None:
    counted = 0
    done = False

    def count() -> None:
        nonlocal counted
        while not done:
            counted += 1
            time.sleep(0.001)

    other = threading.Thread(target=count)
    other.start()
    try:
        long = weft.jit(lambda n: lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * 0.999), (0, 1.0)))
        weft.block_until_ready(long(100_000_000))
    finally:
        done = True
        other.join()
    assert counted > 0
