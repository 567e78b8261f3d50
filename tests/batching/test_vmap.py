"""vmap beside JAX's and beside a Python loop; Jacobians beside JAX's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy
import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax

X = np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4)
Y = np.linspace(0.5, 1.5, 4, dtype=np.float32)
Z = np.array([2.0, -1.0, 0.5], np.float32)
M = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)
N = np.array([3, 0, 2], np.int32)

# expression in a: f32[4], z: f32[], n: i32[] (mapped), y: f32[4], m: f32[4,4] (not mapped)
BODIES = [
    "a * 2 + 1", "a * y", "a * z", "y * z", "a + n", "a.sum()", "a @ m", "m @ a", "a @ a", "jnp.outer(a, y)",
    "a[::-1]", "a[1]", "a[n]", "y[n]", "a[1:3]", "a[jnp.array([0, 2])]", "m[n]", "m[:, n]", "a.at[n].set(5.0)",
    "y.at[n].add(z)", "a.at[1].multiply(z)", "jnp.concatenate([a, y])", "jnp.stack([a, y])", "jnp.pad(a, 1)",
    "jnp.pad(a, 1, constant_values=z)", "jnp.where(a > 0, a, y)", "jnp.where(z > 0, a, y)", "jnp.cumsum(a)",
    "jnp.argmax(a)", "a.reshape(2, 2)", "a.reshape(2, 2).T", "jnp.arange(4) * a", "jnp.float32(1.0)", "jnp.sort(a)",
    "jnp.argsort(a)", "lax.top_k(a, 2)", "lax.clamp(0.0, a, 1.0)", "lax.clamp(z, a, 1.5)", "jnp.clip(a, z, 1.5)",
    "lax.dynamic_slice(a, (n,), (2,))", "lax.dynamic_slice(y, (n,), (2,))", "lax.dynamic_update_slice(a, y[:2], (n,))",
    "lax.dynamic_update_slice(a, y[:2], (1,))", "jnp.tile(a, 2)", "jnp.repeat(a, 2)", "jnp.split(a, 2)",
    "jnp.unstack(a)", "jnp.max(a) - jnp.min(a)", "jnp.mean(a) + jnp.var(a)", "jnp.einsum('i,ij,j->', a, m, y)",
    "jnp.dot(m, a) @ y",  "nn.softmax(a)", "nn.relu(a)", "nn.gelu(a)", "jnp.squeeze(a[None])",
    "jnp.expand_dims(a, 0)", "jnp.broadcast_to(a, (2, 4))", "jnp.broadcast_to(z, (2, 4))", "jnp.any(a > 1)",
    "jnp.isnan(a)", "a.astype(jnp.int32)", "a.astype(jnp.bfloat16)", "jnp.prod(a)", "jnp.sin(a) ** 2", "jnp.take(y, n)",
    "lax.cond(z > 0, lambda: a, lambda: -a)", "lax.cond(y[0] > 0, lambda t: t, lambda t: -t, a)",
    "lax.switch(n, [jnp.sin, jnp.cos, jnp.tan], a)", "lax.fori_loop(0, 3, lambda i, s: s * z + i, a)",
    "lax.fori_loop(0, n, lambda i, s: s * z + i, a)", "lax.scan(lambda c, t: (c + t * z, c), 0.0, a)",
    "lax.scan(lambda c, t: (c + t, c * z), 0.0, y)",
    "lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * z), (0, a))",
    "lax.while_loop(lambda s: s.sum() < 20, lambda s: s * 2 + 1, a)", "lax.map(lambda t: t * z, a)",
    "lax.associative_scan(jnp.add, a)", "lax.reduce_precision(a, 5, 2)", "lax.rev(a, (0,))", "{'p': a, 'q': (z, n)}",
    "jax.jit(lambda t: t * 2)(a)", "jnp.take_along_axis(a, jnp.argsort(a), 0)", "lax.select(a > 0, a, y)",
]  # fmt: skip


def body(text: str, root: Any, numpy: Any, lax_module: Any) -> Callable[..., Any]:
    names = {"jnp": numpy, "lax": lax_module, "nn": root.nn, "jax": root}
    return eval(f"lambda y, m: lambda a, z, n: {text}", names)(numpy.asarray(Y), numpy.asarray(M))


def leaves(tree: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(jax.tree.map(np.asarray, tree))]


def assert_same(found: Any, expected: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(leaves(found), leaves(expected), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        wide = np.float64 if a.dtype.kind in "fV" else a.dtype
        np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=3e-6, atol=3e-6)


@pytest.mark.oracle
@pytest.mark.parametrize("text", BODIES)
def test_vmap_is_the_python_loop_and_jax_s(text: str) -> None:
    run = body(text, weft, jnp, lax)
    args = [jnp.asarray(v) for v in (X, Z, N)]
    rows = [run(*(v[i] for v in args)) for i in range(3)]
    looped = jax.tree.map(lambda *parts: np.stack([np.asarray(p) for p in parts]), *rows)
    assert_same(weft.vmap(run)(*args), looped)
    assert_same(weft.jit(weft.vmap(run))(*args), looped)
    reference = jax.jit(jax.vmap(body(text, jax, jax.numpy, jax.lax)))
    assert_same(weft.vmap(run)(*args), reference(*(jax.numpy.asarray(v) for v in (X, Z, N))))


@pytest.mark.parametrize("text", BODIES)
def test_axes_other_than_the_first(text: str) -> None:
    run = body(text, weft, jnp, lax)
    expected = weft.vmap(run)(jnp.asarray(X), jnp.asarray(Z), jnp.asarray(N))
    found = weft.vmap(run, in_axes=(1, 0, -1), out_axes=-1)(jnp.asarray(X.T), jnp.asarray(Z), jnp.asarray(N))
    assert_same(jax.tree.map(lambda x: np.moveaxis(np.asarray(x), -1, 0), found), jax.tree.map(np.asarray, expected))


@pytest.mark.parametrize("text", [t for t in BODIES if "bfloat16" not in t])
def test_nested(text: str) -> None:
    run = body(text, weft, jnp, lax)
    twice = [jnp.asarray(np.stack([v, v[::-1]])) for v in (X, Z, N)]
    expected = [weft.vmap(run)(*(v[i] for v in twice)) for i in range(2)]
    stacked = jax.tree.map(lambda *parts: np.stack([np.asarray(p) for p in parts]), *expected)
    assert_same(weft.vmap(weft.vmap(run))(*twice), stacked)


GRADS = [
    "(a * y).sum()", "jnp.sin(a * z).sum()", "(a @ m @ a)", "nn.softmax(a)[1]", "jnp.where(a > 0, a, y).prod()",
    "nn.gelu(a).sum() * z", "a[n] * z", "nn.relu(a).sum()",
]  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize("text", GRADS)
def test_with_grad(text: str) -> None:
    ours, theirs = body(text, weft, jnp, lax), body(text, jax, jax.numpy, jax.lax)
    given = (X, Z, N)
    arrays, references = [jnp.asarray(v) for v in given], [jax.numpy.asarray(v) for v in given]
    expected = jax.jit(jax.vmap(jax.grad(theirs)))(*references)
    assert_same(weft.vmap(weft.grad(ours))(*arrays), expected)
    assert_same(weft.jit(weft.vmap(weft.grad(ours)))(*arrays), expected)
    summed = weft.grad(lambda a, z, n: weft.vmap(ours)(a, z, n).sum())(*arrays)
    assert_same(summed, expected)


@pytest.mark.oracle
@pytest.mark.parametrize("text", ["jnp.sin(x) * x[0]", "x @ m", "(x ** 3).sum()", "{'p': x[:2] * 2, 'q': x.sum()}"])
def test_jacobians(text: str) -> None:
    def function(numpy: Any) -> Callable[[Any], Any]:
        return eval(f"lambda x: {text}", {"jnp": numpy, "m": numpy.asarray(M)})

    for name in ("jacfwd", "jacrev", "hessian"):
        found = getattr(weft, name)(function(jnp))(jnp.asarray(Y))
        expected = jax.jit(getattr(jax, name)(function(jax.numpy)))(jax.numpy.asarray(Y))
        assert_same(found, expected)
        assert_same(weft.jit(getattr(weft, name)(function(jnp)))(jnp.asarray(Y)), expected)


@pytest.mark.oracle
def test_jacobian_of_trees_with_aux() -> None:
    def run(numpy: Any) -> Callable[..., Any]:
        return lambda a, b: ((numpy.sin(a["u"]) * b, a["v"].sum()), b.sum())

    def given(numpy: Any) -> Any:
        return {"u": numpy.asarray(Y), "v": numpy.asarray(M)}, numpy.asarray(Y)

    for name in ("jacfwd", "jacrev"):
        found = getattr(weft, name)(run(jnp), argnums=(0, 1), has_aux=True)(*given(jnp))
        expected = getattr(jax, name)(run(jax.numpy), argnums=(0, 1), has_aux=True)(*given(jax.numpy))
        assert_same(found, expected)


def test_custom_rules_are_mapped() -> None:
    @weft.custom_jvp
    def f(x: Any) -> Any:
        return x * 2

    @f.defjvp
    def f_jvp(primals: Any, tangents: Any) -> Any:
        return f(*primals), tangents[0] * 10

    x = jnp.asarray(Z)
    assert weft.vmap(f)(x).tolist() == (2 * Z).tolist()
    assert weft.vmap(weft.grad(f))(x).tolist() == [10, 10, 10]
    assert weft.grad(lambda x: weft.vmap(f)(x).sum())(x).tolist() == [10, 10, 10]


def test_a_batched_product_stays_one_contraction() -> None:
    text = str(weft.make_jaxpr(weft.vmap(lambda a, b: a @ b))(jnp.ones((5, 2, 3)), jnp.ones((5, 3, 4))))
    assert text.count("dot_general") == 1 and "([0], [0])" in text


def test_keys_are_mapped() -> None:
    keys = weft.random.split(weft.random.key(0), 3)
    found = weft.vmap(lambda k: weft.random.normal(k, (2,)))(keys)
    expected = np.stack([np.asarray(weft.random.normal(keys[i], (2,))) for i in range(3)])
    assert np.array_equal(found, expected)


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("in_axes", "out_axes", "args"),
    [
        ((0, 0), 0, (X, Y)), (2, 0, (X,)), (None, 0, (X,)), ((0, 0), 0, (X,)), (0, 1, (Z,)), (0, None, (X,)),
        (({"y": 0},), 0, ({"x": X},)), ("a", 0, (X,)), (0.5, 0, (X,)), (0, "b", (X,)), ((0, "c"), 0, (X, X)),
        (0, 0, (1.0,)),
    ],
)  # fmt: skip
def test_wrong_axes(in_axes: Any, out_axes: Any, args: tuple[Any, ...]) -> None:
    def first(*given: Any) -> Any:
        return given[0]

    with pytest.raises(Exception) as theirs:
        jax.vmap(first, in_axes=in_axes, out_axes=out_axes)(*args)
    with pytest.raises(type(theirs.value)):
        weft.vmap(first, in_axes=in_axes, out_axes=out_axes)(*args)


def test_none_among_arguments_and_results_is_no_leaf() -> None:
    assert weft.vmap(lambda x: None)(X) is None
    found = weft.vmap(lambda x: {"s": x, "n": None})(X)
    assert found["n"] is None
    assert np.array_equal(found["s"], X)
    found = weft.vmap(lambda x, y: (x, y), in_axes=(0, None))(X, None)
    assert found[1] is None
    found = weft.vmap(lambda d, x: d, in_axes=({"x": 0, "y": None}, 0))({"x": X, "y": None}, X)
    assert found["y"] is None
    assert np.array_equal(found["x"], X)
