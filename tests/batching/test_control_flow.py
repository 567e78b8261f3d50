"""vmap of branches and loops, with every mix of mapped and unmapped predicates, states and captured values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy
import numpy as np
import pytest

import weft
from weft.errors import AxisError

P = np.array([True, False, True])
N = np.array([3, 0, 2], np.int32)
X = np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4)
Z = np.array([1.5, -1.0, 0.5], np.float32)
GIVEN = (P, N, X, Z)
pytestmark = pytest.mark.oracle

BODIES = [
    "lax.cond(p, lambda t: t * z, lambda t: -t, x)", "lax.cond(p, lambda: (x, z), lambda: (x * 2, z + 1))",
    "lax.cond(p, lambda t: lax.cond(z > 0, jnp.sin, jnp.cos, t), lambda t: t, x)",
    "lax.cond(p, lambda: {'a': x, 'n': n}, lambda: {'a': jnp.zeros(4), 'n': n + 1})",
    "lax.switch(n, [lambda t: t, lambda t: t * z, lambda t: t + n], x)",
    "lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * z), (0, x))",
    "lax.while_loop(lambda s: s[1].sum() < 30 + z, lambda s: (s[0] + n, s[1] * 2 + 1), (0, abs(x)))",
    "lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, lax.cond(p, lambda: s[1] * z, lambda: s[1] + 1)), (0, x))",
    "lax.fori_loop(0, n, lambda i, c: c * z + i, x)",
    "lax.fori_loop(n, 5, lambda i, c: (c[0] + x, c[1] * z), (x, 1.0))",
    "lax.fori_loop(0, 4, lambda i, c: c + x[i] * z, 0.0)",
    "lax.fori_loop(0, n, lambda i, c: lax.while_loop(lambda t: t.sum() < 10, lambda t: abs(t) * 2 + 1, c) - 9, abs(x))",
    "lax.scan(lambda c, t: (c * z + t, c), 0.0, x)",
    "lax.scan(lambda c, t: (c + n, (t * z, c)), 0, x, reverse=True)",
    "lax.scan(lambda c, _: (c * z, c), x, None, length=3)",
    "lax.scan(lambda c, t: (lax.cond(p, lambda: c + t, lambda: c * z), None), 1.0, x)[0]",
    "lax.map(lambda t: t * z + n, x)", "lax.associative_scan(lambda a, b: a + b * z, x)",
    "lax.select(p, x, x * z)",
]  # fmt: skip
MASKS = ["1111", "1000", "0100", "0010", "0001", "1100", "0011"]


def body(text: str, root: Any) -> Callable[..., Any]:
    return eval(f"lambda p, n, x, z: {text}", {"jnp": root.numpy, "lax": root.lax})


def assert_close(found: Any, expected: Any) -> None:
    ours, theirs = jax.tree.leaves(jax.tree.map(np.asarray, found)), jax.tree.leaves(expected)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert (a.shape, a.dtype) == (np.shape(b), np.asarray(b).dtype)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def stacked(rows: list[Any]) -> Any:
    return jax.tree.map(lambda *parts: np.stack([np.asarray(part) for part in parts]), *rows)


@pytest.mark.parametrize("text", BODIES)
def test_mixes_of_mapped_values(text: str) -> None:
    run = body(text, weft)
    single = weft.jit(run)
    for mask in MASKS:
        mapped = [flag == "1" for flag in mask]
        args = [weft.numpy.asarray(v if flag else v[0]) for v, flag in zip(GIVEN, mapped, strict=True)]
        rows = [single(*[v[k] if flag else v for v, flag in zip(args, mapped, strict=True)]) for k in range(3)]
        in_axes = tuple([0 if flag else None for flag in mapped])
        assert_close(weft.jit(weft.vmap(run, in_axes))(*args), stacked(rows))
    whole = [jax.numpy.asarray(v) for v in GIVEN]
    expected = jax.jit(jax.vmap(body(text, jax)))(*whole)
    assert_close(weft.vmap(run)(*map(weft.numpy.asarray, GIVEN)), expected)
    twice = [weft.numpy.asarray(np.stack([v, v[::-1]])) for v in GIVEN]
    both = weft.vmap(weft.vmap(run))(*twice)
    assert_close(jax.tree.map(lambda v: np.asarray(v)[1, ::-1], both), expected)


SMOOTH = [text for text in BODIES if "while" not in text and "n, lambda i" not in text and "(n, 5" not in text]


@pytest.mark.parametrize("text", SMOOTH)
def test_gradients(text: str) -> None:
    def total(root: Any) -> Callable[..., Any]:
        def run(x: Any, z: Any, p: Any, n: Any) -> Any:
            leaves = root.tree.leaves(body(text, root)(p, n, x, z))
            return sum((leaf * leaf).sum() for leaf in leaves if leaf.dtype == np.float32)

        return run

    order = (X, Z, P, N)
    arrays = [weft.numpy.asarray(v) for v in order]
    expected = jax.jit(jax.vmap(jax.grad(total(jax), argnums=(0, 1))))(*map(jax.numpy.asarray, order))
    assert_close(weft.vmap(weft.grad(total(weft), argnums=(0, 1)))(*arrays), expected)

    def summed(x: Any, z: Any) -> Any:
        return weft.vmap(total(weft))(x, z, *arrays[2:]).sum()

    assert_close(weft.jit(weft.grad(summed, argnums=(0, 1)))(*arrays[:2]), expected)


def image(pixels: Any, kernel: Any) -> Any:
    return pixels.sum() + kernel


WRONG = [
    ({"in_axes": (0, 0)}, (np.ones((3, 2)), np.ones(4)), ("pixels", "kernel", "size 3", "size 4")),
    ({"in_axes": (0, 0)}, ({"a": np.ones((3, 2))}, np.ones(4)), ("pixels['a']", "kernel")),
    ({"in_axes": (2, None)}, (np.ones((3, 2)), 1.0), ("axis 2", "rank should be at least 3", "only 2")),
    ({"in_axes": (-3, None)}, (np.ones((3, 2)), 1.0), ("axis -3", "at least 3", "only 2")),
    ({"in_axes": (None, None)}, (np.ones(3), 1.0), ("must have at least one non-None value in in_axes",)),
    ({"in_axes": (0,)}, (np.ones(3), 1.0), ("len(in_axes)=1", "len(args)=2")),
    ({"in_axes": ({"b": 0}, None)}, ({"a": np.ones(3)}, 1.0), ("vmap in_axes",)),
    ({"in_axes": "x"}, (np.ones(3), 1.0), ("in_axes must be an int, None, or",)),
    ({"in_axes": (0, 1.5)}, (np.ones(3), 1.0), ("in_axes must be an int, None, or",)),
    ({"in_axes": (0, None), "out_axes": None}, (np.ones(3), 1.0), ("vmap",)),
    ({"in_axes": (0, None), "out_axes": 1}, (np.ones(3), 1.0), ("1",)),
    ({"in_axes": (0, None), "out_axes": (0, 0)}, (np.ones(3), 1.0), ("out_axes",)),
    ({"in_axes": (0, None), "out_axes": "x"}, (np.ones(3), 1.0), ("out_axes must be an int, None, or",)),
    ({"in_axes": (0, None), "axis_size": 4}, (np.ones(3), 1.0), ("`axis_size` argument was 4", "size 3")),
]  # fmt: skip


@pytest.mark.parametrize(("options", "args", "words"), WRONG)
def test_wrong_use(options: dict[str, Any], args: Any, words: tuple[str, ...]) -> None:
    for root in (jax, weft):
        with pytest.raises((ValueError, TypeError)) as caught:
            root.vmap(image, **options)(*args)
        if root is jax:
            kind = type(caught.value)
        else:
            assert type(caught.value) in (kind, AxisError) and isinstance(caught.value, kind)
            for word in words:
                assert word in str(caught.value)


def test_results_that_are_summed() -> None:
    for root in (jax, weft):
        found = root.vmap(lambda x: (x, x > 1, 2.0), out_axes=None, sum_match=True)(root.numpy.arange(3.0))
        assert [float(v) for v in found] == [3.0, 1.0, 2.0]
        assert found[1].dtype == np.int32


@pytest.mark.parametrize("branches", [2, 3])
def test_a_branch_that_an_element_does_not_take_gives_it_no_nan(branches: int) -> None:
    """The logarithm's derivative at 0 is infinite, and would meet a cotangent of 0."""
    functions = [lambda v: 2 * v, weft.numpy.log, weft.numpy.sqrt][:branches]

    def of_all(x: Any, indices: Any) -> Any:
        return weft.vmap(lambda i, v: weft.lax.switch(i, functions, v))(indices, x).sum()

    x, indices = np.float32([0, -1, 4]), np.int32([0, 0, branches - 1])
    expected = [2, 2, 0.25]
    np.testing.assert_allclose(weft.grad(of_all)(x, indices), expected, rtol=1e-6)
    np.testing.assert_allclose(weft.jit(weft.grad(of_all))(x, indices), expected, rtol=1e-6)
