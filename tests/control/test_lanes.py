"""Loops whose number of elements is no part of their code: the bits of step by step, and nothing compiled again."""

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

SIZES = (24, 0, 1, 2, 3, 7, 16, 17, 36, 64, 65, 100, 1000)
DTYPES = (np.float32, np.float64, np.int32, np.bool_, np.complex64, ml_dtypes.bfloat16, np.int8)


def values(dtype: Any, *shape: int) -> Any:
    rng = np.random.default_rng(sum(shape))
    drawn = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        drawn = drawn + 1j * rng.standard_normal(shape)
    return (drawn > 0) if dtype is np.bool_ else (drawn * (20 if np.dtype(dtype).kind == "i" else 1)).astype(dtype)


def step(c: Any, a: Any) -> Any:
    if c.dtype == np.bool_:
        return jnp.logical_xor(c, ~a)
    if c.dtype.kind == "c":
        return c * (0.5 + 0.25j) - a
    return (c * 3 + a) // 2 - c % 5 if c.dtype.kind == "i" else c * c - a


def moved(y: Any) -> Any:
    """Elements of a lane are exchanged and are added up."""
    turned = lambda c: (step(c[::-1], c[:1]), c.max() if c.dtype == np.bool_ else step(c.min(), c.max()))
    return lax.scan(lambda c, _: (turned(c)[0], turned(c)[1]), y, None, length=3)


def stacked(y: Any) -> Any:
    """Elements are stacked, by which lanes get another dimension than the first, and the stack is used and reduced."""

    def body(i: Any, c: Any) -> Any:
        other = jnp.stack([c[1], step(c[0], c[2]), c[2]])
        both = jnp.stack([step(c, other), other], axis=1).reshape(2, 3)
        return step(jnp.where(i % 2 == 0, both.max(0), both.min(0)), jnp.concatenate([both.max(1), c[:1]]))

    return lax.fori_loop(0, 4, body, y)


def crossed(x: Any) -> Any:
    """Lanes are the last dimension of the loop's inner values, and are transposed back."""
    inner = weft.vmap(lambda c: jnp.stack([step(c[0], c[1]), c[0]]), in_axes=0, out_axes=1)
    return lax.fori_loop(0, 5, lambda _, c: step(c, inner(c).T), x)


LOOPS: dict[str, tuple[Callable[..., Any], Callable[[Any, int], tuple[Any, ...]]]] = {
    "scan": (
        lambda x, rows: lax.scan(lambda c, a: (step(c, a), (c, a[..., None])), x, rows),
        lambda dtype, n: (values(dtype, n), values(dtype, 5, n)),
    ),
    "backwards": (
        lambda x, rows: lax.scan(lambda c, a: (step(c, a), c), x, rows, reverse=True),
        lambda dtype, n: (values(dtype, n), values(dtype, 5, n)),
    ),
    "matrices": (
        lambda x: lax.fori_loop(0, 6, lambda i, c: jnp.where(i % 2 == 0, step(c, c), c), x),
        lambda dtype, n: (values(dtype, n, 4),),
    ),
    "mapped": (weft.vmap(moved), lambda dtype, n: (values(dtype, n, 3),)),
    "stacked": (weft.vmap(stacked), lambda dtype, n: (values(dtype, n, 3),)),
    "crossed": (crossed, lambda dtype, n: (values(dtype, n, 2),)),
    "branch": (
        lambda x: lax.fori_loop(0, 5, lambda i, c: lax.cond(i % 2 == 0, lambda c: step(c, c), lambda c: c, c), x),
        lambda dtype, n: (values(dtype, n),),
    ),
    "inner": (
        lambda x: lax.fori_loop(0, 3, lambda i, c: lax.fori_loop(0, i + 1, lambda j, d: step(d, d), c), x),
        lambda dtype, n: (values(dtype, n),),
    ),
    "table": (
        lambda x, rows: lax.fori_loop(0, 7, lambda i, c: step(c, rows[i]), x),
        lambda dtype, n: (values(dtype, n), values(dtype, 7)),
    ),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", sorted(LOOPS))
def test_any_number_of_lanes_by_one_routine(name: str, dtype: Any) -> None:
    run, operands = LOOPS[name]
    jitted = weft.jit(lambda *args: run(*args))
    with weft.enable_x64():
        for count, n in enumerate(SIZES):
            args = [jnp.asarray(x) for x in operands(dtype, n)]
            before = jitted.cache_info().kernels_built
            found = weft.tree.leaves(jitted(*args))
            closed, given = weft.make_jaxpr(run)(*args), [np.asarray(a) for a in args]
            expected = reference_interpreter.interpret(closed, given)
            if n in (3, 17):
                for a, b in zip(found, ladder.interpreted(closed, given), strict=True):
                    assert verify.same_bits(np.asarray(a), b), (n, np.asarray(a), b)
            for a, b in zip(found, expected, strict=True):
                if np.dtype(dtype).kind == "c":  # the interpreter's products are NumPy's
                    np.testing.assert_allclose(np.asarray(a), b, rtol=1e-4, atol=1e-4)
                else:
                    assert verify.same_bits(np.asarray(a), b), (n, np.asarray(a), b)
            assert count == 0 or n <= 1 or n > 256 or jitted.cache_info().kernels_built == before, n


def test_elements_of_a_mapped_loop_end_at_different_times() -> None:
    def root(a: Any) -> Any:
        return lax.while_loop(
            lambda c: abs(c[0] * c[0] - a) > 1e-4 * a, lambda c: ((c[0] + a / c[0]) * 0.5, c[1] + 1), (a, 0)
        )

    mapped = weft.jit(weft.vmap(root))
    for n in (40, 1, 3, 17, 100, 300):
        x = jnp.asarray(np.random.default_rng(n).uniform(1, 1e6, n).astype(np.float32))
        before = mapped.cache_info().kernels_built
        roots, steps = mapped(x)
        assert n in (40, 1, 300) or mapped.cache_info().kernels_built == before  # of one there is nothing to combine
        one = [weft.jit(root)(v) for v in x]
        assert verify.same_bits(np.asarray(roots), np.asarray([r for r, _ in one]))
        assert np.asarray(steps).tolist() == [int(s) for _, s in one]
        by_loops = ladder.interpreted(weft.make_jaxpr(weft.vmap(root))(x), [np.asarray(x)])
        assert verify.same_bits(np.asarray(roots), by_loops[0]) and verify.same_bits(np.asarray(steps), by_loops[1])
    assert "in lanes" in mapped.lower(x).compile().as_text("loops")


def test_gradients_of_scans_in_lanes() -> None:
    def loss(x: Any, rows: Any) -> Any:
        return lax.scan(lambda c, a: (c * c * 0.5 + a, c), x, rows)[1].sum()

    gradient = weft.jit(weft.grad(loss))
    for n in (20, 1, 33, 100):
        x, rows = (values(np.float32, *shape) for shape in ((n,), (6, n)))
        states, c = [], x
        for a in rows:
            states.append(c)
            c = c * c * np.float32(0.5) + a
        expected = np.zeros(n, np.float64)
        for s in reversed(states):
            expected = 1 + expected * s
        np.testing.assert_allclose(gradient(x, rows), expected, rtol=1e-5, atol=1e-5)


def test_a_table_in_memory_may_have_any_size() -> None:
    run = weft.jit(lambda x, m: lax.fori_loop(0, x.shape[0], lambda i, c: c + x[i] * m[i, 1] * i, jnp.float32(0)))
    for n in (24, 2, 3, 255, 257, 1000):
        x, m = np.arange(n, dtype=np.float32) % 7, np.ones((n, 3), np.float32)
        before = run.cache_info().kernels_built
        assert float(run(x, m)) == float((x * np.arange(n)).sum())
        assert n == 24 or run.cache_info().kernels_built == before


def test_sums_of_rows_are_computed_ahead_of_a_scan() -> None:
    run = weft.jit(lambda x: lax.scan(lambda c, r: (c * 0.5 + r.sum(), (c, r - r.mean())), jnp.float32(0), x))
    for n, m in ((24, 36), (1, 40), (3, 64), (100, 31), (333, 257)):
        x = jnp.asarray(values(np.float32, n, m))
        before = run.cache_info().kernels_built
        found = weft.tree.leaves(run(x))
        assert m == 36 or run.cache_info().kernels_built == before
        c = np.float32(0)
        for r, state, centred in zip(x, *found[1:], strict=True):
            assert verify.same_bits(np.asarray(state), c)
            assert verify.same_bits(np.asarray(centred), np.asarray(r - r.mean()))
            c = np.float32(c * np.float32(0.5) + np.float32(r.sum()))
        assert verify.same_bits(np.asarray(found[0]), c)


def test_a_function_in_the_loop_brings_a_constant_that_differs_between_lanes() -> None:
    differs, same = np.float32([[3, -2], [1, 4]]), np.full((2, 2), 0.5, np.float32)
    for constant in (differs, same, differs[0], differs[:, :1]):
        inner = weft.jit(lambda c, constant=constant: c * 2 - jnp.asarray(constant))
        found = lax.fori_loop(0, 3, lambda i, c, inner=inner: inner(c), jnp.ones((2, 2)))
        np.testing.assert_array_equal(found, 8 - 7 * np.broadcast_to(constant, (2, 2)))


@pytest.mark.parametrize("name", ["sum", "max", "argmin"])
def test_what_is_reduced_of_a_slice_differs_between_lanes(name: str) -> None:
    """Its shape is that of the lanes, but it is computed of an array that all of them share."""
    x, reduce = jnp.asarray(values(np.float32, 8, 4)), getattr(jnp, name)
    found = lax.fori_loop(0, 8, lambda i, c: c + reduce(lax.dynamic_slice(x, (i, 0), (2, 4)), axis=0), jnp.zeros(4))
    wanted = sum(getattr(np, name)(np.asarray(x)[start : start + 2], axis=0) for start in (*range(6), 6, 6))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_a_scan_without_a_state_is_no_loop() -> None:
    run = weft.jit(lambda x: lax.map(lambda r: (weft.nn.softmax(r), r.argmax(), jnp.arange(3)), x))
    for n, m in ((24, 36), (5, 7), (64, 128), (0, 4)):
        x = jnp.asarray(values(np.float32, n, m))
        soft, positions, counts = run(x)
        assert verify.same_bits(np.asarray(soft), np.asarray(weft.nn.softmax(x)))
        assert np.array_equal(positions, np.asarray(x).argmax(1)) if m and n else positions.shape == (n,)
        assert np.array_equal(counts, np.tile(np.arange(3), (n, 1)))
    plan = weft.jit(lambda x: lax.map(weft.nn.softmax, x)).lower(jnp.ones((24, 36))).compile().as_text("plan")
    assert "kernel" in plan and "routine" not in plan and "loop" not in plan and "scan" not in plan


@pytest.mark.parametrize("reverse", [False, True])
def test_far_rows_are_fetched_ahead(reverse: bool) -> None:
    """Tile after tile goes through all rows: the processor does not follow that, where a row fills half a page."""
    run = weft.jit(lambda c, a: lax.scan(lambda c, a: (c + a, c), c, a, reverse=reverse))
    text = run.lower(values(np.float32, 1000), values(np.float32, 9, 1000)).as_text("llvm")
    assert text.count("icmp sge i64 %") >= 2 and ", 512\n" in text  # elements of 2 KB
    assert text.count("call void @llvm.prefetch") > 2
    assert any(" mul " in line and line.endswith(", -4") for line in text.splitlines()) == reverse
