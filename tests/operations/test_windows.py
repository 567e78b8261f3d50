"""Reductions of windows: against sliding windows and the oracle, derivatives, vmap, and what they compile to."""

from __future__ import annotations

from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

import weft
import weft.lax as lax
import weft.numpy as wnp
from weft import config
from weft.test_util import check_grads

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 7, 6, 3)).astype(np.float32)
POOL, STEP = (1, 3, 3, 1), (1, 2, 2, 1)


def lowest(dtype: Any) -> Any:
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        return np.iinfo(dtype).min
    return dtype.type(-np.inf) if dtype.kind != "b" else False


@pytest.mark.parametrize("dtype", ["b1", "i1", "u2", "i4", "u8", "f2", "bf16", "f4", "f8", "c8", "c16"])
def test_every_dtype_against_sliding_windows(dtype: str) -> None:
    dtype_ = np.dtype(ml_dtypes.bfloat16 if dtype == "bf16" else dtype)
    with config.context("enable_x64", True):
        x = RNG.integers(0, 9, size=(6, 7)).astype(dtype_)
        rows = sliding_window_view(x, (2, 3))[::2].reshape(3, 5, 6)
        folds: list[tuple[Any, Any, Any]] = []
        if dtype_.kind == "b":
            folds += [(lax.bitwise_and, True, rows.all(-1)), (lax.bitwise_or, False, rows.any(-1))]
        else:
            total = rows.astype("c16" if dtype_.kind == "c" else "f8").sum(-1).astype(dtype_)
            folds += [(lax.add, dtype_.type(0), total)]
            folds += [(lax.mul, dtype_.type(1), rows[..., :].prod(-1, dtype=dtype_))] if dtype_.kind in "iu" else []
        if dtype_.kind != "c":
            folds += [(lax.max, lowest(dtype_), rows.max(-1))]
        for computation, init, expected in folds:
            init = np.asarray(init, dtype_)[()]
            out = np.asarray(lax.reduce_window(x, init, computation, (2, 3), (2, 1)))
            assert out.dtype == dtype_ and np.array_equal(out, expected), computation


def windows_of(draw: Any) -> tuple[tuple[int, ...], Any]:
    rank = draw(st.integers(1, 2))

    def sizes(least: int, most: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(least, most)) for _ in range(rank))

    padding: Any = draw(st.sampled_from(["SAME", "VALID", "SAME_LOWER", None]))
    if padding is None:
        padding = tuple(zip(sizes(-1, 3), sizes(-1, 3), strict=True))
    return sizes(1, 9), (sizes(1, 4), sizes(1, 3), padding, sizes(1, 2), sizes(1, 2))


@pytest.mark.oracle
@settings(max_examples=2, deadline=None, derandomize=True)
@given(st.data())
def test_any_windows_against_the_oracle(data: Any) -> None:
    shape, windows = windows_of(data.draw)
    x = RNG.integers(-4, 5, size=shape).astype(np.float32)
    if data.draw(st.booleans()):
        x = np.where(RNG.random(shape) < 0.15, np.float32(np.nan), x)
    for name, init in (("max", -np.inf), ("add", 1.0)):
        expected = jax.lax.reduce_window(x, init, getattr(jax.lax, name), *windows)
        out = lax.reduce_window(x, init, getattr(lax, name), *windows)
        assert np.array_equal(np.asarray(out), np.asarray(expected), equal_nan=True)
    tangent = RNG.normal(size=shape).astype(np.float32)

    def pushed(module: Any) -> Any:
        return module.jvp(lambda x: module.lax.reduce_window(x, -np.inf, module.lax.max, *windows), (x,), (tangent,))[1]

    assert np.array_equal(np.asarray(pushed(weft)), np.asarray(pushed(jax)))
    if any(n < 0 for pair in (windows[2] if not isinstance(windows[2], str) else ()) for n in pair):
        return  # the oracle's gradient fails where padding cuts elements off
    windows = (*windows[:4], None)

    def pulled(module: Any) -> Any:
        def loss(x: Any) -> Any:
            out = module.lax.reduce_window(x, -np.inf, module.lax.max, *windows)
            weights = module.numpy.arange(out.size, dtype="float32").reshape(out.shape)
            return module.numpy.sum(module.numpy.where(module.numpy.isfinite(out), out, 0) * weights)

        return module.grad(loss)(x)

    assert np.array_equal(np.asarray(pulled(weft)), np.asarray(pulled(jax)), equal_nan=True)


@pytest.mark.parametrize(
    ("computation", "init", "windows"),
    [
        (lax.max, -np.inf, (POOL, STEP, "SAME")),
        (lax.min, np.inf, ((1, 2, 2, 1), STEP, "VALID")),
        (lax.add, 0.0, (POOL, STEP, "SAME")),
        (lax.add, 0.0, ((1, 2, 2, 1), STEP, ((0, 0), (1, 0), (0, 0), (0, 0)), (1, 1, 2, 1))),
        (lax.mul, 1.0, ((1, 2, 2, 1), STEP, "VALID")),
        (lax.max, -np.inf, ((1, 7, 6, 2), (1, 1, 1, 1), "SAME")),
        (lax.min, np.inf, ((1, 3, 2, 1), STEP, "SAME", None, (1, 2, 3, 1))),
    ],
)
def test_derivatives(computation: Any, init: float, windows: Any) -> None:
    check_grads(lambda x: lax.reduce_window(x, init, computation, *windows), (X,), order=2, rtol=2e-2, atol=2e-2)


def test_the_first_of_equals_has_the_gradient() -> None:
    x = np.array([[1, 3, 3, 0], [3, 2, 3, 3]], np.float32)
    gradient = weft.grad(lambda x: lax.reduce_window(x, -np.inf, lax.max, (2, 2), (2, 2)).sum())(x)
    assert np.array_equal(np.asarray(gradient), [[0, 1, 1, 0], [0, 0, 0, 0]])
    x = np.array([1, np.nan, 2, 1, np.nan], np.float32)
    gradient = weft.grad(lambda x: lax.reduce_window(x, -np.inf, lax.max, (5,)).sum())(x)
    assert np.array_equal(np.asarray(gradient), [0, 0, 0, 0, 1])  # what comes after a NaN replaces it


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3", "float32"])
@pytest.mark.parametrize(("computation", "start"), [(lax.add, 0), (lax.mul, 1), (lax.max, -np.inf), (lax.add, 2)])
def test_bits_do_not_depend_on_whether_the_start_is_known(dtype: str, computation: Any, start: float) -> None:
    x = wnp.asarray(np.random.default_rng(3).normal(size=(5, 3, 4)).astype(np.float32) * 3).astype(dtype)
    init = wnp.asarray(start, dtype)
    window, steps = (2, 2, 2), (1, 1, 1)
    for reduce in (
        lambda x, init: lax.reduce_window(x, init, computation, window, steps, "SAME"),
        lambda x, init: lax.reduce(x, init, computation, (0, 2)),
    ):
        known, traced = reduce(x, init), weft.jit(reduce)(x, init)
        assert np.asarray(known).tobytes() == np.asarray(traced).tobytes()
        assert np.asarray(weft.vmap(reduce, (0, None))(x[None], init)[0]).tobytes() == np.asarray(known).tobytes()


POOLS: list[tuple[str, Any, Any]] = [
    ("number", -np.inf, lax.max),
    ("NumPy", np.asarray(-np.inf, np.float16), lax.max),
    ("array", wnp.asarray(-np.inf), lax.max),
    ("array of another dtype", wnp.asarray(-np.inf, "bfloat16"), lax.max),
    ("least finite number", float(np.finfo(np.float32).min), lax.max),
    ("function", -np.inf, lambda a, b: lax.max(b, a)),
    ("function of arrays", wnp.asarray(-np.inf), wnp.maximum),
    ("start below all", -5.0, lax.max),
]


@pytest.mark.parametrize(("init", "computation"), [pool[1:] for pool in POOLS], ids=[pool[0] for pool in POOLS])
@pytest.mark.parametrize("sign", [1, -1], ids=["max", "min"])
def test_every_way_of_writing_a_pool_gives_all_to_the_first(init: Any, computation: Any, sign: int) -> None:
    x = np.float32([[1, 1, 2, 0], [1, 0, 2, 2], [0, 0, 0, 0]])
    if sign < 0:
        init = -init
        computation = {lax.max: lax.min, wnp.maximum: wnp.minimum}.get(computation, lambda a, b: lax.min(b, a))
    for options in (
        {},
        {"window_strides": (2, 1), "padding": "SAME"},
        {"window_dilation": (1, 2), "base_dilation": (2, 1), "padding": ((1, 0), (0, 2))},
    ):

        def pooled(x: Any, start: Any, f: Any, o: Any = options) -> Any:
            return lax.reduce_window(x, start, f, (2, 2), **o)

        weights = RNG.normal(size=np.shape(pooled(x, 0.0, lax.add))).astype(np.float32)
        # by hand: a cotangent goes to the first element, row by row, that has the window's value
        order = np.arange(1.0, x.size + 1, dtype=np.float32).reshape(x.shape)
        ordered = x * 100 - order if sign > 0 else x * 100 + order
        found = np.asarray(pooled(sign * ordered, -np.inf, lax.max))
        expected = np.zeros_like(x)
        for at in np.ndindex(found.shape):
            if np.isfinite(found[at]):
                expected[np.unravel_index(np.argmax(sign * ordered == found[at]), x.shape)] += weights[at]

        def total(x: Any, start: Any, weights: Any = weights, pooled: Any = pooled) -> Any:
            y = pooled(x, start, computation)
            return wnp.where(wnp.abs(y) < 100, y * weights, 0).sum()

        np.testing.assert_allclose(weft.grad(total)(x, init), expected, rtol=1e-6)
        np.testing.assert_allclose(weft.jit(weft.grad(lambda x: total(x, init)))(x), expected, rtol=1e-6)
        traced = np.asarray(init, np.float32)
        np.testing.assert_allclose(weft.jit(weft.grad(total))(x, traced), expected, rtol=1e-6)
        np.testing.assert_allclose(weft.vmap(weft.grad(lambda x: total(x, init)))(x[None])[0], expected, rtol=1e-6)


def test_an_initial_value_beyond_all_has_the_gradient() -> None:
    x = np.float32([3, 1, 1, 2])
    to_x, to_init = weft.grad(lambda x, init: lax.reduce_window(x, init, lax.max, (2,)).sum(), (0, 1))(x, 1.5)
    assert (to_x.tolist(), to_init.item()) == ([1, 0, 0, 1], 1.0)
    out = lax.reduce_window(np.float32([np.nan, 1, 0]), np.float32(0.5), lax.max, (2,))
    np.testing.assert_array_equal(out, [np.nan, 1])
    assert np.isnan(lax.reduce_window(x, wnp.float32(np.nan), lax.max, (2,))).all()
    with pytest.raises(TypeError, match="inconsistent dtypes"):
        lax.reduce_window(np.int32([1, 2]), 0.5, lax.add, (2,))


@pytest.mark.parametrize("window", [(9, 9), (21, 5), (12, 20)])
def test_windows_of_many_elements(window: tuple[int, int]) -> None:
    x = RNG.normal(size=(21, 20)).astype(np.float32)
    rows = sliding_window_view(x, window)
    rows = rows.reshape(*rows.shape[:2], -1)
    jitted = weft.jit(lambda x: lax.reduce_window(x, -np.inf, lax.max, window))
    assert np.array_equal(jitted(x), rows.max(-1))
    np.testing.assert_allclose(lax.reduce_window(x, 0.0, lax.add, window), rows.sum(-1, dtype="f8"), atol=1e-4)
    ones = lax.reduce_window(np.ones_like(x), 2.0, lax.add, window, None, "VALID")
    assert np.all(np.asarray(ones) == 2 + window[0] * window[1])
    weights = RNG.normal(size=rows.shape[:2]).astype(np.float32)
    gradient = weft.grad(lambda x: (lax.reduce_window(x, -np.inf, lax.max, window) * weights).sum())(x)
    expected = np.zeros(x.shape)
    for i, j in np.ndindex(*rows.shape[:2]):
        a, b = divmod(int(rows[i, j].argmax()), window[1])
        expected[i + a, j + b] += weights[i, j]
    np.testing.assert_allclose(gradient, expected, atol=1e-5)


def test_windows_side_by_side_are_a_reduction() -> None:
    x = RNG.normal(size=(3, 32, 48)).astype(np.float32)
    out = lax.reduce_window(x, 0.0, lax.add, (1, 16, 16), (1, 16, 16))
    np.testing.assert_allclose(out, x.reshape(3, 2, 16, 3, 16).sum((2, 4)), atol=1e-4)
    gradient = weft.grad(lambda x: (lax.reduce_window(x, 0.0, lax.add, (1, 16, 16), (1, 16, 16)) ** 2).sum())(x)
    np.testing.assert_allclose(gradient, 2 * np.kron(out, np.ones((1, 16, 16))), rtol=1e-6)


def test_vmap_is_a_loop_and_jit_is_eager() -> None:
    def pool(x: Any) -> Any:
        return lax.reduce_window(x, -np.inf, lax.max, (2, 2), (1, 2), "SAME")

    def both(x: Any, t: Any) -> Any:
        pair = lax.reduce_window((x, t), (0.0, 1.0), lambda a, b: (lax.max(a[0], b[0]), lax.mul(a[1], b[1])), (2, 2))
        return *pair, weft.grad(lambda x: (pool(x) ** 2).sum())(x), weft.jvp(pool, (x,), (t,))[1]

    x, t = wnp.asarray(X[..., 0]), wnp.asarray(X[..., 1])
    rows = weft.vmap(both)(x, t)
    moved = weft.vmap(pool, in_axes=2, out_axes=1)(x[0][:, None, :])
    assert moved.shape == (7, 6, 1) and np.array_equal(moved[:, 2], pool(x[0][:, 2:3]))
    jitted = weft.jit(both)
    for i in range(2):
        for batched, alone, compiled in zip(rows, both(x[i], t[i]), jitted(x[i], t[i]), strict=True):
            assert np.array_equal(batched[i], alone) and np.array_equal(compiled, alone)


def test_no_windows_and_no_elements() -> None:
    for shape, expected in (((0, 4), (0, 6)), ((3, 0), (1, 2)), ((2, 2), (0, 4))):
        x = wnp.zeros(shape)

        def total(x: Any) -> Any:
            return lax.reduce_window(x, -np.inf, lax.max, (3, 3), (1, 1), ((0, 0), (2, 2)))

        assert total(x).shape == expected == np.shape(jax.lax.reduce_window(
            np.zeros(shape, np.float32), -np.inf, jax.lax.max, (3, 3), (1, 1), ((0, 0), (2, 2))
        ))  # fmt: skip
        assert np.all(np.asarray(total(x)) == -np.inf)
        assert weft.grad(lambda x: total(x).sum())(x).shape == shape


def select_and_scatter(module: Any, x: Any, source: Any, windows: tuple[Any, ...]) -> Any:
    def closed(function: Any) -> Any:
        return module.make_jaxpr(function)(np.float32(0), np.float32(0)).jaxpr

    return module.lax.select_and_scatter_p.bind(
        x, source, np.float32(3), select_jaxpr=closed(module.lax.ge), select_consts=(),
        scatter_jaxpr=closed(module.lax.mul), scatter_consts=(), window_dimensions=windows[0],
        window_strides=windows[1], padding=windows[2],
    )  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize("windows", [((2, 2), (2, 2), ((0, 0), (0, 0))), ((3, 2), (2, 1), ((0, 0), (0, 0)))])
def test_select_and_scatter(windows: Any) -> None:
    x = X[0, ..., 0]
    source = RNG.normal(size=lax.reduce_window_shape_tuple(x.shape, *windows)).astype(np.float32)
    out = select_and_scatter(weft, wnp.asarray(x), wnp.asarray(source), windows)
    np.testing.assert_allclose(out, select_and_scatter(jax, x, source, windows), rtol=1e-6)


def test_what_pooling_compiles_to() -> None:
    def stages(function: Any, *args: Any) -> tuple[str, str]:
        compiled = weft.jit(function).lower(*args).compile()
        return compiled.as_text("kernel"), compiled.as_text("plan")

    def total(x: Any) -> Any:
        return lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), STEP)

    x = wnp.ones((2, 8, 8, 16))
    kernels, plan = stages(lambda x: lax.exp(total(x)), x)
    assert kernels.count("kernel ") == 1 and "0 temporaries" in plan  # fused with what reads it
    kernels, plan = stages(lambda x, ct: weft.vjp(total, x)[1](ct)[0], x, wnp.ones((2, 4, 4, 16)))
    assert kernels.count("kernel ") == 1 and "0 temporaries" in plan and "pad" not in kernels

    def extreme(x: Any) -> Any:
        return lax.reduce_window(x, -np.inf, lax.max, POOL, STEP, "SAME")

    kernels, plan = stages(lambda x, ct: weft.vjp(extreme, x)[1](ct)[0], x, wnp.ones((2, 4, 4, 16)))
    assert "scatter" not in kernels + plan and "1 temporaries" in plan  # the taps that windows select


def test_a_gradient_that_does_not_exist_says_so() -> None:
    with pytest.raises(NotImplementedError, match="initial values"):
        weft.vmap(lambda init: lax.reduce_window(X[0, ..., 0], init, lax.mul, (2, 2)))(wnp.ones(2))
    with pytest.raises(ValueError, match="source"):
        lax.select_and_scatter_add_p.bind(
            X, X, select_prim=lax.ge_p, window_dimensions=POOL, window_strides=STEP, padding=((0, 0),) * 4
        )


def test_what_reads_a_pooling_is_computed_with_it() -> None:
    x, b = wnp.asarray(X), wnp.arange(3.0)

    def pool(x: Any) -> Any:
        return lax.reduce_window(x, 0.0, lax.add, POOL, STEP, "SAME")

    jitted = weft.jit(lambda x: wnp.maximum(pool(x) / 9 + b, 0.0))
    plan = jitted.lower(x).compile().as_text("plan")
    assert "0 temporaries" in plan and plan.count("kernel ") == plan.count("div_max") > 1
    assert np.array_equal(jitted(x), wnp.maximum(pool(x) / 9 + b, 0.0))
    several = weft.jit(lambda x: (pool(x) * pool(-x), pool(x) + 1))(x)
    assert np.array_equal(several[0], pool(x) * pool(-x)) and np.array_equal(several[1], pool(x) + 1)
