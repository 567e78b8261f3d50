"""vectorize, apply_along_axis, apply_over_axes, fromfunction, piecewise and map in batches, beside JAX's."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy
import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax

A = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
V = np.linspace(-2, 2, 5, dtype=np.float32)
pytestmark = pytest.mark.oracle


def evaluate(text: str, root: Any) -> Any:
    function = root.numpy.frompyfunc(lambda x, y: x + 2 * y, 2, 1)
    names = {"jnp": root.numpy, "lax": root.lax, "jax": root, "np": np, "A": A, "V": V, "F": function}
    return eval(text, names)


def assert_same(text: str) -> None:
    found, expected = weft.tree.leaves(evaluate(text, weft)), jax.tree.leaves(evaluate(text, jax))
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert (np.shape(a), np.asarray(a).dtype) == (np.shape(b), np.asarray(b).dtype)
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-6)


VALUES = [
    "jnp.vectorize(lambda x, y: x + y)(A, np.float32([1, 2, 3, 4]))", "jnp.vectorize(lambda x, y: x + y)(1.0, 2)",
    "jnp.vectorize(lambda x, y: x + y)(np.ones((3, 1, 1)), np.ones((1, 1, 2)))",
    "jnp.vectorize(lambda x, y: x + y)(np.ones((1, 1)), np.ones((1,)))",
    "jnp.vectorize(lambda x, y: (x, {'k': y}))(A, 2.0)",
    "jnp.vectorize(lambda a, b: a @ b, signature='(n,m),(m)->(n)')(A, np.float32([1, 2, 3, 4]))",
    "jnp.vectorize(lambda a, b: (a.sum(), b * 2), signature='(m),(m)->(),(m)')(A, np.ones((2, 1, 4)))",
    "jnp.vectorize(lambda a: (a,), signature='()->()')(A)",
    "jnp.vectorize(lambda a: jnp.stack([a, a]), signature='()->(k)')(A[0])",
    "jnp.vectorize(lambda a: a * 2, signature='(n)->(n)')(np.zeros((0, 3)))",
    "jnp.vectorize(lambda a, n: a**n, excluded=(1,))(A, 2)",
    "jnp.vectorize(lambda a, n=1: a**n, excluded={'n'})(A, n=2)",
    "jnp.vectorize(lambda f, a, b: f(a, b), excluded={0})(jnp.add, A, 1.0)",
    "jnp.vectorize(lambda f, a, b: f(a, b), excluded={0}, signature='(n),(n)->()')(jnp.dot, A, A)",
    "jnp.vectorize(lambda a, b: a if b is None else a + b)(A, None)",
    "jnp.vectorize(lambda a, b: a, signature='(n),()->(n)')(A, None)",
    "jax.jit(jnp.vectorize(lambda x, y: jnp.where(x > y, x, y)))(A, 2.0)",
    "jax.grad(lambda x: jnp.vectorize(lambda x, y: x * y)(x, A[0]).sum())(A[0])",
    "[jnp.apply_along_axis(lambda v: v.sum(), k, A) for k in (0, 1, 2, -1)]",
    "[jnp.apply_along_axis(lambda v: jnp.outer(v, v)[:2], k, A) for k in (0, 1, -1)]",
    "jnp.apply_along_axis(lambda v, a, b=1: v[::-1] * a + b, 1, A, 2.0, b=3.0)",
    "jnp.apply_over_axes(jnp.sum, A, (0, -1))", "jnp.apply_over_axes(jnp.cumsum, A, (0, 1))",
    "jnp.piecewise(V, [V < -1, V >= 1], [lambda v: -v, lambda v: v * 2])",
    "jnp.piecewise(V, [V < -1, V >= 1], [lambda v: -v, 7, lambda v: v * 0.5])",
    "jnp.piecewise(V, np.stack([V < -1, V >= 1]), [1, 2, 3])",
    "jnp.piecewise(V, [V < 0], [lambda v, a, b: v * a + b, lambda v, a, b: v], 2.0, b=5.0)",
    "jnp.piecewise(np.arange(4), [np.arange(4) > 2], [lambda v: v * 1.5, 2.7])",
    "jnp.piecewise(A[0], [A[0] > 3], [lambda v: v.sum() * 2])",
    "jnp.piecewise(V, [V < 1, V < 2, V < 3], [1, 2, 3])",
    "jax.grad(lambda x: jnp.piecewise(x, [x < -1, x >= 1], [lambda v: -v * v, lambda v: v * 2]).sum())(V)",
    "jnp.fromfunction(lambda i, j, k=1: i * 10 + j * k, (2, 3), dtype=int)",
    "jnp.fromfunction(lambda i: jnp.arange(2) * i, (3,), dtype=np.float32)", "jnp.fromfunction(lambda i: i, (0,))",
    "jax.jit(lambda x: lax.map(lambda d: d * 2, x, batch_size=2))(V)",
    "jax.grad(lambda x: lax.map(lambda d: d**2, x, batch_size=2).sum())(V)",
    "jax.vmap(lambda x: lax.map(lambda d: d**2, x, batch_size=2))(A[0])",
    "lax.map(lambda d: d * 2, np.zeros((0, 3), np.float32), batch_size=2)",
    "F(A, 2)", "F(1.0, 2.0)", "jnp.frompyfunc(lambda x: (x, -x), 1, 2)(A)", "jax.jit(lambda a: F(a, 2))(A)",
    "F.reduce(A)", "F.reduce(A, axis=1)", "F.reduce(A, axis=None)", "F.reduce(A, axis=-1, keepdims=True)",
    "F.reduce(A, axis=None, keepdims=True)", "F.reduce(A, initial=2.5)", "F.reduce(A, dtype='int32')",
    "F.reduce(A, where=A > 3, initial=1)", "F.reduce(np.ones((0, 2)), initial=3.0)", "F.reduce(np.ones((1, 2)))",
    "jnp.frompyfunc(lambda x, y: x * y, 2, 1, identity=1).reduce(A, where=A > 20)", "F.reduce(V > 0)",
    "F.accumulate(A)", "F.accumulate(A, axis=-1)", "F.accumulate(V, dtype='int32')", "F.accumulate(np.ones((0, 2)))",
    "F.outer(V, A[0])", "F.outer(1.0, V)", "jax.grad(lambda v: F.reduce(v * v))(V)",
    "F.at(V, np.array([1, 1, 3]), 5.0, inplace=False)", "F.at(A, (0, np.array([0, 0])), 2.0, inplace=False)",
    "F.at(V, 2, 7.0, inplace=False)",
    "F.at(V, np.array([1, 1]), np.float32([5, 6]), inplace=False)",
    "jnp.frompyfunc(lambda x: x * 2, 1, 1).at(V, np.array([1, 1]), inplace=False)",
    "F.reduceat(np.arange(8), np.array([0, 4, 1, 5, 2, 6, 3, 7]))", "F.reduceat(A, np.array([0, 2]), axis=1)",
    "[F.nin, F.nout, F.nargs]",
]  # fmt: skip


@pytest.mark.parametrize("text", VALUES)
def test_values(text: str) -> None:
    assert_same(text)


@pytest.mark.parametrize("batch_size", [None, 0, 1, 2, 5, 7])
def test_map_in_batches(batch_size: int | None) -> None:
    assert_same(
        "lax.map(lambda d: {'s': d['a'] * 2 + d['b'].sum(), 'k': (d['b'],)}, "
        f"{{'a': V, 'b': A.reshape(-1)[:20].reshape(5, 4)}}, batch_size={batch_size})"
    )


WRONG = [
    "jnp.vectorize(lambda a: a, signature='(n) -> (n)')(A)", "jnp.vectorize(lambda a: a, signature='(n->(n)')(A)",
    "jnp.vectorize(lambda a, b: a, signature='(n),(n)->(n)')(A, np.ones(3))",
    "jnp.vectorize(lambda a: a, signature='(n,m)->(n)')(np.ones(3))",
    "jnp.vectorize(lambda a: a, signature='(n)->()')(A)", "jnp.vectorize(lambda a: a, signature='(n)->(n),(n)')(A)",
    "jnp.vectorize(lambda a: (a, a, a), signature='(n)->(n),(n)')(A)",
    "jnp.vectorize(lambda a: a[:2], signature='(n)->(n)')(A)",
    "jnp.vectorize(lambda a, b: a, signature='(n)->(n)')(A, A)", "jnp.vectorize(lambda a, b: a)(A, np.ones(3))",
    "jnp.vectorize(lambda f: f, excluded={1.5})", "jnp.vectorize(lambda f: f, excluded={-1})",
    "jnp.vectorize(lambda a, b: a, signature='(),(n)->()')(A, None)",
    "jnp.apply_along_axis(lambda v: v.sum(), 3, A)", "jnp.apply_along_axis(lambda v: v.sum(), 0, np.float32(1))",
    "jnp.apply_along_axis(lambda v: v.sum(), 0, [1.0, 2.0])", "jnp.apply_over_axes(lambda a, axis: a.sum(), A, (0,))",
    "jnp.piecewise(V, [V < 0], [1, 2, 3])", "lax.map(lambda d: d, (V, np.ones(4)), batch_size=2)",
    "lax.map(lambda d: 1, (), batch_size=2)", "F.reduce(A, where=A > 3)", "F.reduce(A, where=A, initial=0)",
    "F.reduce(np.ones((0, 2)))", "F.reduce(A, axis=5)", "jnp.frompyfunc(lambda x: x, 1, 1).reduce(A)",
    "jnp.frompyfunc(lambda x, y: (x, y), 2, 2).accumulate(A)", "F.accumulate(A, axis=None)", "F(A)",
    "F.reduceat(A, np.array([[0]]))", "F.reduceat(np.float32(1), np.array([0]))", "F('a', 1)",
]  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_wrong_use(text: str) -> None:
    with pytest.raises((ValueError, TypeError)) as theirs:
        evaluate(text, jax)
    with pytest.raises(type(theirs.value)) as ours:
        evaluate(text, weft)
    assert str(ours.value)


def test_what_jax_does_not_refuse() -> None:
    with pytest.raises(TypeError, match="keyword arguments \\['y'\\] cannot be vectorized"):
        jnp.vectorize(lambda x, y=0.0: x + y)(A, y=2.0)
    with pytest.raises(ValueError, match="batch_size must not be negative, got -2"):
        lax.map(lambda d: d, V, batch_size=-2)
    with pytest.raises(TypeError, match="batch_size must be an int or None"):
        lax.map(lambda d: d, V, batch_size=1.5)  # type: ignore[arg-type]
    with weft.numpy_rank_promotion("raise"), pytest.raises(ValueError, match="require rank promotion"):
        jnp.vectorize(lambda x, y: x + y)(A, V[:4])


def test_a_mapped_function_is_traced_once_for_the_batches_and_once_for_the_rest() -> None:
    shapes = []

    def f(x: Any) -> Any:
        shapes.append(x.shape)
        return x + 1

    assert lax.map(f, jnp.ones((10, 3)), batch_size=3).shape == (10, 3)
    assert shapes == [(3,), (3,)]


def test_ufuncs_are_values() -> None:
    def f(x: Any, y: Any) -> Any:
        """Adds."""
        return x + y

    first, second = jnp.frompyfunc(f, 2, 1), jnp.frompyfunc(f, 2, 1)
    assert first == second and hash(first) == hash(second) and first != jnp.frompyfunc(f, 2, 1, identity=0)
    assert repr(first) == repr(jax.numpy.frompyfunc(f, 2, 1)) and first.__doc__ == "Adds."
    for call in (lambda: first.at(V, 1, 2.0), lambda: first(V, V, out=V), lambda: first(V, V, where=V > 0)):
        with pytest.raises(NotImplementedError):
            call()
    expected = A.copy()
    expected[:, 0] += 4
    assert np.array_equal(first.at(A, (slice(None), np.array([0, 0])), 2.0, inplace=False), expected)
