"""Collectives over named axes under vmap, beside JAX's and beside what they say of the whole array."""

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

X = np.linspace(-1, 2, 72, dtype=np.float32).reshape(3, 2, 12) ** 3
pytestmark = pytest.mark.oracle


def program(text: str, root: Any, arguments: str = "x") -> Callable[..., Any]:
    names = {"jnp": root.numpy, "lax": root.lax, "jax": root, "np": np}
    return eval(f"lambda {arguments}: {text}", names)


def assert_same(found: Any, expected: Any) -> None:
    ours, theirs = jax.tree.leaves(jax.tree.map(np.asarray, found)), jax.tree.leaves(expected)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == np.asarray(b).dtype
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=2e-5, atol=1e-5)


# On x: f32[12], an element along 'i' (of 3) and 'j' (of 2).
ONE_AXIS = [
    "lax.psum(x, 'i')", "lax.psum(x, ('i',))", "lax.psum({'a': x, 'b': (x[0], None)}, 'i')", "lax.psum(1, 'i')",
    "lax.psum(2.5, 'i') * x", "lax.psum(np.float32(2), 'i') * x", "lax.psum(jnp.ones(3), 'i')", "lax.psum(x > 0, 'i')",
    "lax.psum(x, ('i', 0))", "lax.psum(x, 'j')", "lax.pmean(x, 'i')", "lax.pmean({'a': x}, ('i', 'j'))",
    "lax.pmean(jnp.int32(3), 'i')", "lax.pmax(x, 'i')", "lax.pmin(x, 'j')", "lax.pmax(jnp.ones(3), 'i')",
    "lax.all_gather(x, 'i')", "lax.all_gather(x, 'i', axis=1)", "lax.all_gather(x, 'i', axis=-1)",
    "lax.all_gather(x, 'i', tiled=True)", "lax.all_gather(x.reshape(3, 4), 'j', axis=1, tiled=True)",
    "lax.all_gather(jnp.arange(3), 'i')", "lax.all_gather(x.reshape(3, 4), 'j', axis=1)",
    "lax.ppermute(x, 'i', [(0, 1), (1, 2), (2, 0)])", "lax.ppermute(x, 'i', ((2, 2), (1, 0), (0, 1)))",
    "lax.ppermute(x, 'j', [(0, 1), (1, 0)])", "lax.ppermute(jnp.arange(3), 'j', [(0, 1), (1, 0)])",
    "lax.pshuffle(x, 'i', [2, 0, 1])", "lax.pshuffle({'a': x}, 'j', [1, 0])",
    "lax.pswapaxes(x[:3], 'i', 0)", "lax.pswapaxes(x.reshape(4, 3), 'i', 1)", "lax.pswapaxes(x.reshape(6, 2), 'j', 1)",
    "lax.psum_scatter(x[:3], 'i')", "lax.psum_scatter(x.reshape(4, 3), 'i', scatter_dimension=1)",
    "lax.psum_scatter(x, 'i', tiled=True)", "lax.psum_scatter(x.reshape(2, 6), 'j', scatter_dimension=1, tiled=True)",
    "lax.psum_scatter(jnp.arange(3.0), 'i')",
    "lax.all_to_all(x.reshape(3, 4), 'i', 0, 0)", "lax.all_to_all(x.reshape(3, 4), 'i', 0, 1)",
    "lax.all_to_all(x.reshape(4, 3), 'i', 1, 0)", "lax.all_to_all(x.reshape(2, 3, 2), 'i', 1, 2)",
    "lax.all_to_all(x.reshape(6, 2), 'i', 0, 1, tiled=True)", "lax.all_to_all(x.reshape(2, 6), 'i', 1, 0, tiled=True)",
    "lax.all_to_all(x, 'j', 0, 0, tiled=True)", "lax.all_to_all(x.reshape(3, 4), 'i', 0, 1).sum()",
    "lax.axis_index('i')", "lax.axis_index(('i', 'j'))", "lax.axis_index(('j', 'i'))", "lax.axis_index('j') * x",
    "lax.axis_size('i') + lax.axis_size(('i', 'j')) * x",
]  # fmt: skip
COMPOSED = [
    "jax.jit(lambda t: lax.psum(t, 'i') + lax.axis_index('j'))(x)", "jax.jit(lambda: lax.axis_index('i'))()",
    "jax.nn.softmax(x) - lax.pmean(x, 'i')", "lax.psum(jnp.sin(lax.pmax(x, 'i')), ('j', 'i'))",
    "lax.psum(x, ('i', 'j'))", "lax.psum(x[:2], ('j', 0, 'i'))", "lax.pmax(x, ('i', 'j'))",
    "lax.cond(x[0] > 0, lambda t: lax.psum(t, 'i'), lambda t: -t, x)",
    "lax.cond(lax.psum(x[0], ('i', 'j')) > 0, lambda t: lax.psum(t, 'i'), lambda t: -t, x)",
    "lax.scan(lambda c, t: (c + lax.psum(t, 'i'), lax.axis_index('i') * c), 0.0, x)",
    "lax.fori_loop(0, 3, lambda k, c: c * 0.5 + lax.pmean(c, 'i'), x)",
    "lax.while_loop(lambda c: lax.pmax(c[0], ('i', 'j')) < 100, lambda c: c * 2 + lax.pmax(c, 'i') + 1, x)",
    "lax.while_loop(lambda c: c[0] < 100, lambda c: c * 2 + lax.axis_index('i') + 1, abs(x))",
    "lax.map(lambda t: lax.psum(t, 'i') + t, x)", "jax.checkpoint(lambda t: lax.psum(jnp.sin(t), 'i'))(x)",
]  # fmt: skip


def together(texts: list[str], count: int) -> list[str]:
    """Several expressions as one program, so that JAX compiles once for them."""
    return ["(" + ", ".join(texts[k : k + count]) + ",)" for k in range(0, len(texts), count)]


@pytest.mark.parametrize("text", together(ONE_AXIS, 8) + together(COMPOSED, 3))
def test_values(text: str) -> None:
    def mapped(root: Any) -> Any:
        return root.vmap(root.vmap(program(text, root), axis_name="j"), axis_name="i")

    expected = jax.jit(mapped(jax))(jax.numpy.asarray(X))
    assert_same(mapped(weft)(jnp.asarray(X)), expected)
    assert_same(weft.jit(mapped(weft))(jnp.asarray(X)), expected)


@pytest.mark.parametrize("text", together(ONE_AXIS, 8))
def test_names_resolved_from_the_other_side(text: str) -> None:
    """The map of 'i' inside that of 'j', mapped axes that are not the first."""

    def mapped(root: Any) -> Any:
        inner = root.vmap(program(text, root), in_axes=1, axis_name="i")
        return root.vmap(inner, in_axes=0, out_axes=-1, axis_name="j")

    given = np.transpose(X, (1, 2, 0))
    assert_same(mapped(weft)(jnp.asarray(given)), jax.jit(mapped(jax))(jax.numpy.asarray(given)))


SEVERAL = [
    ("lax.all_gather(x, {names})", lambda whole: np.broadcast_to(whole, (6, 6, 12))),
    ("lax.all_gather(x, {names}, axis=1)", lambda whole: np.broadcast_to(whole.T, (6, 12, 6))),
    ("lax.all_gather(x, {names}, tiled=True)", lambda whole: np.broadcast_to(whole.ravel(), (6, 72))),
    ("lax.psum_scatter(x[:6], {names})", lambda whole: whole[:, :6].sum(0)),
    ("lax.psum_scatter(x, {names}, tiled=True)", lambda whole: whole.sum(0).reshape(6, 2)),
    ("lax.all_to_all(x[:6], {names}, 0, 0)", lambda whole: whole[:, :6].T),
    ("lax.all_to_all(x.reshape(6, 2), {names}, 0, 1)", lambda whole: whole.reshape(6, 6, 2).transpose(1, 2, 0)),
    ("lax.all_to_all(x, {names}, 0, 0, tiled=True)",
     lambda whole: whole.reshape(6, 6, 2).transpose(1, 0, 2).reshape(6, 12)),
    ("lax.all_to_all(x.reshape(2, 6), {names}, 1, 0, tiled=True)",
     lambda whole: whole.reshape(6, 2, 6).transpose(2, 0, 1).reshape(6, 12, 1)),
    ("lax.ppermute(x, {names}, [(0, 4), (5, 1), (2, 2)])",
     lambda whole: np.stack([0 * whole[0], whole[5], whole[2], 0 * whole[0], whole[0], 0 * whole[0]])),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), SEVERAL, ids=[text for text, _ in SEVERAL])
@pytest.mark.parametrize("names", ["('i', 'j')", "('j', 'i')"])
def test_several_names_are_one_axis(text: str, expected: Any, names: str) -> None:
    given = X if names == "('i', 'j')" else X.transpose(1, 0, 2)
    outer, inner = eval(names)
    run = program(text.format(names=names), weft)
    reference = expected(X.reshape(6, 12))
    found = weft.vmap(weft.vmap(run, axis_name=inner), axis_name=outer)(jnp.asarray(X))
    np.testing.assert_allclose(np.asarray(found).reshape(reference.shape), reference, rtol=1e-6)
    turned = weft.vmap(weft.vmap(run, axis_name=outer), axis_name=inner, out_axes=1)(jnp.asarray(X.transpose(1, 0, 2)))
    np.testing.assert_allclose(np.asarray(turned).reshape(reference.shape), reference, rtol=1e-6)
    assert given.shape[2] == 12


DIFFERENTIABLE = [
    "lax.psum(jnp.sin(x), 'i') @ x", "lax.pmean(x * x, 'i').sum() * x[0]", "lax.psum(x, ('i', 0)) ** 2",
    "(lax.all_gather(x, 'i')[1] * x ** 2).sum()", "(lax.all_gather(x, 'i', tiled=True) ** 2).sum() * x[1]",
    "(lax.ppermute(x, 'i', [(0, 1), (1, 2), (2, 0)]) * jnp.sin(x)).sum()",
    "(lax.pshuffle(x, 'i', [2, 0, 1]) ** 2 * x).sum()", "lax.psum_scatter(x[:3] ** 2, 'i') * x[0]",
    "(lax.psum_scatter(x ** 2, 'i', tiled=True)).sum() * x[0]",
    "(lax.pswapaxes(x[:3], 'i', 0) ** 3).sum()",
    "(lax.all_to_all(x ** 2, 'i', 0, 0, tiled=True) ** 2 * x).sum()", "(lax.axis_index('i') + 1) * (x ** 2).sum()",
    "lax.psum(x, 'i').sum() * lax.axis_size('i')",
    "lax.scan(lambda c, t: (c * lax.psum(t, 'i'), c), 1.0, x[:3])[0]",
    "jax.checkpoint(lambda t: lax.psum(jnp.sin(t), 'i') @ t)(x)",
    "jax.jit(lambda t: lax.psum(jnp.sin(t), 'i') @ t)(x)",
]  # fmt: skip


@pytest.mark.parametrize("text", DIFFERENTIABLE)
def test_gradients(text: str) -> None:
    """Of each element by itself (cotangents are exchanged), and of the mapped function."""

    def each(root: Any) -> Any:
        return root.vmap(root.grad(program(text, root)), axis_name="i")

    def whole(root: Any) -> Any:
        return root.grad(lambda x: root.vmap(program(text, root), axis_name="i")(x).sum())

    given = X[:, 0]
    for make in (each, whole):
        expected = jax.jit(make(jax))(jax.numpy.asarray(given))
        assert_same(make(weft)(jnp.asarray(given)), expected)
        assert_same(weft.jit(make(weft))(jnp.asarray(given)), expected)


def test_broadcast_from_one_element() -> None:
    found = weft.vmap(lambda x: lax.pbroadcast({"a": x}, "i", 1), axis_name="i")(jnp.asarray(X))
    assert np.array_equal(found["a"], np.broadcast_to(X[1], X.shape))
    weights = np.float32([1, 2, 4])

    def run(x: Any, w: Any) -> Any:
        return lax.pbroadcast(x, "i", 1) * w

    each = weft.vmap(weft.grad(run), axis_name="i")(jnp.ones(3), jnp.asarray(weights))
    assert np.array_equal(each, [0, 7, 0])
    with pytest.raises(ValueError, match=r"\[pbroadcast\] source 5 is not an index of the axis 'i', of size 3"):
        weft.vmap(lambda x: lax.pbroadcast(x, "i", 5), axis_name="i")(jnp.ones(3))


def test_targets_without_a_source_get_zeros() -> None:
    x = jnp.asarray(X[:, 0])
    found = weft.vmap(lambda t: lax.ppermute(t, "i", [(0, 2)]), axis_name="i")(x)
    assert np.array_equal(found, np.stack([0 * X[0, 0], 0 * X[0, 0], X[0, 0]]))
    many = np.arange(40, dtype=np.int32)
    order = np.random.default_rng(0).permutation(40)
    shuffled = weft.vmap(lambda t: lax.pshuffle(t, "i", order.tolist()), axis_name="i")(jnp.asarray(many))
    assert np.array_equal(shuffled, many[order])
    for perm in ([(0, 1), (1, 1)], [(0, 1), (0, 2)], [(0, 3)]):
        with pytest.raises(ValueError, match="ppermute"):
            weft.vmap(lambda t, perm=perm: lax.ppermute(t, "i", perm), axis_name="i")(x)


UNBOUND = [
    "psum(x, 'q')", "pmean(x, 'q')", "pmax(x, 'q')", "pmin(x, 'q')", "all_gather(x, 'q')", "psum_scatter(x, 'q')",
    "ppermute(x, 'q', [(0, 1)])", "pswapaxes(x, 'q', 0)", "all_to_all(x, 'q', 0, 0)", "axis_index('q')",
    "axis_size('q')", "pbroadcast(x, 'q', 0)", "psum(1, 'q')", "psum(x, ('i', 'q'))",
]  # fmt: skip


@pytest.mark.parametrize("text", UNBOUND)
def test_unbound_names(text: str) -> None:
    run = eval(f"lambda x: lax.{text}", {"lax": lax})
    for transformed in (run, weft.jit(run), weft.vmap(run, axis_name="i"), weft.vmap(run), weft.grad(run)):
        with pytest.raises(NameError, match=r"unbound axis name: (q|i)"):
            transformed(jnp.ones((3, 3)))
    mapped = weft.vmap(weft.jit(run), axis_name="q")  # bound, and not confused with the trace that failed
    given = jnp.ones((2, 2, 3)) if text != "psum(x, ('i', 'q'))" else None
    if given is not None:
        mapped(given)


def test_one_jitted_function_under_several_names() -> None:
    size = weft.jit(lambda x: x * lax.axis_size("i") + lax.axis_index("i"))
    for n in (2, 3, 2, 5):
        assert weft.vmap(size, axis_name="i")(jnp.ones(n)).tolist() == [n + k for k in range(n)]
        assert weft.vmap(lambda _: size(1.0), axis_name="i")(jnp.ones(n)).tolist() == [n + k for k in range(n)]
    with pytest.raises(NameError):
        size(1.0)


def test_the_inner_of_two_equal_names_holds() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = weft.vmap(weft.vmap(lambda t: lax.psum(t, "k"), axis_name="k"), axis_name="k")(jnp.asarray(x))
    assert np.array_equal(found, np.broadcast_to(x.sum(1, keepdims=True), (2, 3)))


def test_groups() -> None:
    """A collective within groups is that over the elements of each group (tests/sharding has them beside JAX)."""
    groups = [[0, 1], [3, 2]]
    x = jnp.sin(jnp.arange(8.0)).reshape(4, 2)
    for text in ("psum(x, 'i', ", "pmax(x, 'i', ", "all_gather(x, 'i', ", "psum_scatter(x, 'i', ",
                 "all_to_all(x, 'i', 0, 0, "):  # fmt: skip
        run = eval(f"lambda x: lax.{text} axis_index_groups={groups})", {"lax": lax})
        alone = eval(f"lambda x: lax.{text[:-2]})", {"lax": lax})
        found = weft.vmap(run, axis_name="i")(x)
        for group in groups:
            wanted = weft.vmap(alone, axis_name="i")(x[jnp.array(group)])
            assert np.array_equal(found[jnp.array(group)], wanted), text
    with pytest.raises(NotImplementedError, match="axis_index_groups of different sizes"):
        weft.vmap(lambda x: lax.psum(x, "i", axis_index_groups=[[0], [1, 2, 3]]), axis_name="i")(x)
    with pytest.raises(ValueError, match="axis_index_groups must cover all indices exactly once"):
        weft.vmap(lambda x: lax.psum(x, "i", axis_index_groups=[[0, 1], [1]]), axis_name="i")(jnp.ones(3))
    with pytest.raises(ValueError, match="of size 4"):  # groups that leave elements out
        weft.vmap(lambda x: lax.psum(x, "i", axis_index_groups=[[0, 1]]), axis_name="i")(jnp.ones(4))
    with pytest.raises(ValueError, match="axis_index_groups only supported for sums over just named axes"):
        weft.vmap(lambda x: lax.psum(x, ("i", 0), axis_index_groups=groups), axis_name="i")(jnp.ones((4, 2)))
    assert (
        weft.vmap(lambda x: lax.psum(1, "i", axis_index_groups=groups), axis_name="i")(jnp.ones(4)).tolist() == [2] * 4
    )


@pytest.mark.parametrize(
    "text",
    ["pswapaxes(x, 'i', 0)", "all_to_all(x, 'i', 0, 0)",
     "all_to_all(x, 'i', 0, 0, tiled=True)", "pshuffle(x, 'i', [0, 0, 1])", "all_gather(x, 'i', axis=4)",
     "all_gather(x, 'i', to='nowhere')", "psum('a', 'i')", "psum(x, ('i', 3))"],
)  # fmt: skip
def test_wrong_operands(text: str) -> None:
    with pytest.raises((ValueError, TypeError)) as theirs:
        jax.vmap(eval(f"lambda x: lax.{text}", {"lax": jax.lax}), axis_name="i")(jax.numpy.ones((3, 5)))
    with pytest.raises(type(theirs.value)):
        weft.vmap(eval(f"lambda x: lax.{text}", {"lax": lax}), axis_name="i")(jnp.ones((3, 5)))


def test_what_cannot_be_scattered() -> None:
    with pytest.raises(ValueError, match="scatter dimension size 5 must match shard count 3"):
        weft.vmap(lambda x: lax.psum_scatter(x, "i"), axis_name="i")(jnp.ones((3, 5)))
    with pytest.raises(ValueError, match="scatter dimension size 5 must be divisible by shard_count 3"):
        weft.vmap(lambda x: lax.psum_scatter(x, "i", tiled=True), axis_name="i")(jnp.ones((3, 5)))


@pytest.mark.parametrize(
    "text",
    ["lax.all_to_all(x.reshape(3, 4) ** 2, 'i', 0, 1)", "lax.all_to_all(x.reshape(4, 3) ** 2, 'i', 1, 0)",
     "lax.ppermute(x ** 2, ('i', 'j'), [(0, 4), (5, 1), (2, 2)])", "lax.all_gather(x ** 2, ('j', 'i'))",
     "lax.psum_scatter(x[:6] ** 2, ('i', 'j'))", "lax.all_to_all(x ** 2, ('i', 'j'), 0, 0, tiled=True)"],
)  # fmt: skip
def test_exchanges_and_their_transposes(text: str) -> None:
    """Cotangents exchanged between elements are those of the mapped function, which finite differences check."""

    def mapped(x: Any) -> Any:
        return weft.vmap(weft.vmap(program(text, weft), axis_name="j"), axis_name="i")(x)

    def weighted(x: Any) -> Any:  # each element's own objective; together they are the objective of all
        out = program(text, weft)(x)
        return (out * (jnp.arange(out.size).reshape(out.shape) + lax.axis_index(("i", "j")))).sum()

    x = jnp.asarray(X)
    weft.test_util.check_grads(mapped, (x,), order=1, modes=["fwd", "rev"], atol=1e-1, rtol=1e-1, eps=1e-2)
    each = weft.vmap(weft.vmap(weft.grad(weighted), axis_name="j"), axis_name="i")(x)
    whole = weft.grad(lambda x: weft.vmap(weft.vmap(weighted, axis_name="j"), axis_name="i")(x).sum())(x)
    assert_same(each, np.asarray(whole))


PRINTED = [
    "lax.psum(x, 'i')", "lax.psum({'a': x, 'b': 2}, ('i', 'j'))", "lax.psum(x, ('i', 0))", "lax.psum(x > 0, 'i')",
    "lax.pmean(x, 'i')", "lax.pmax(x, ('i', 'j'))", "lax.all_gather(x, 'i')", "lax.all_gather(x, ('i', 'j'), axis=-1, "
    "tiled=True)", "lax.ppermute(x, 'i', [(0, 1), (1, 2), (2, 0)])", "lax.pshuffle(x, 'i', [2, 1, 0])",
    "lax.pswapaxes(x, 'i', 0)", "lax.psum_scatter(x, 'i')", "lax.all_to_all(x.reshape(3, 1), 'i', 0, 1)",
    "lax.axis_index(('i', 'j'))", "lax.axis_size('i')", "lax.pbroadcast(x, 'i', 1)",
    "lax.psum(x, 'i', axis_index_groups=[[0, 1], [2]])", "jax.jit(lambda t: lax.psum(t, 'i'))(x)",
]  # fmt: skip


@pytest.mark.parametrize("text", PRINTED)
def test_printed_programs(text: str) -> None:
    env = [("i", 3), ("j", 2)]
    x = np.ones(3, np.float32)
    expected = str(jax.make_jaxpr(program(text, jax), axis_env=env)(x))
    assert str(weft.make_jaxpr(program(text, weft), axis_env=env)(x)) == expected


def test_a_sum_over_the_mapped_axis_is_one_reduction() -> None:
    run = weft.vmap(lambda x: lax.psum(x, "i"), axis_name="i")
    assert str(weft.make_jaxpr(run)(np.ones(3, np.float32))) == str(
        jax.make_jaxpr(jax.vmap(lambda x: jax.lax.psum(x, "i"), axis_name="i"))(np.ones(3, np.float32))
    )


def test_custom_rules_may_use_the_name() -> None:
    @weft.custom_jvp
    def f(x: Any) -> Any:
        return lax.psum(x, "i")

    @f.defjvp
    def f_jvp(primals: Any, tangents: Any) -> Any:
        return f(*primals), 10 * lax.psum(tangents[0], "i")

    x = jnp.float32([1, 2, 3])
    for g in (f, weft.jit(f)):
        assert weft.vmap(g, axis_name="i")(x).tolist() == [6, 6, 6]
        assert weft.grad(lambda x, g=g: weft.vmap(g, axis_name="i")(x)[0])(x).tolist() == [10, 10, 10]
        assert weft.vmap(weft.grad(g), axis_name="i")(x).tolist() == [30, 30, 30]


def test_axis_size_without_mapped_arguments() -> None:
    assert weft.vmap(lambda: lax.axis_index("i"), axis_size=3, axis_name="i")().tolist() == [0, 1, 2]
    assert weft.vmap(lambda: 1.0, axis_size=3)().tolist() == [1, 1, 1]
    assert weft.vmap(lambda x: x, spmd_axis_name="mesh", axis_name="i")(jnp.ones(2)).tolist() == [1, 1]
    for wrong in (-3, "a", 1.5, True):
        with pytest.raises(TypeError, match="axis_size"):
            weft.vmap(lambda: 1.0, axis_size=wrong)()  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unhashable"):
        weft.vmap(lambda x: x, axis_name=["i"])(jnp.ones(2))  # type: ignore[arg-type]


def test_any_hashable_is_a_name() -> None:
    key = object()
    assert weft.vmap(lambda x: lax.psum(x, key), axis_name=key)(jnp.ones(3)).tolist() == [3, 3, 3]
    assert weft.vmap(lambda x: lax.axis_index(0), axis_name=0)(jnp.ones(3)).tolist() == [0, 1, 2]
    assert weft.vmap(lambda x: lax.all_gather(x, 0), axis_name=0)(jnp.ones(2)).tolist() == [[1, 1], [1, 1]]


EDGES = [
    "lax.psum(x.astype(jnp.bfloat16), 'i')", "lax.pmean(x.astype(jnp.bfloat16), 'i')",
    "lax.psum(x.astype(jnp.int8) * 100, 'i')", "lax.psum(x * 1j, 'i').real", "lax.pmax(x > 1, 'i')",
    "lax.pmax(x.at[0].set(jnp.nan), 'i')", "lax.psum(x[:0], 'i')", "lax.all_gather(x[:0], 'i', tiled=True)",
    "jax.jacrev(lambda t: lax.psum(t**2, 'i'))(x)", "jax.jacfwd(lambda t: lax.psum(t**2, 'i'))(x)",
    "jax.hessian(lambda t: (lax.all_gather(t, 'i') ** 3).sum())(x)",
    "jax.linearize(lambda t: lax.psum(t**2, 'i'), x)[1](x)",
    "jax.vjp(lambda t: lax.pmean(t**2, 'i'), x)[1](x)[0]", "jax.linear_transpose(lambda t: lax.psum(t, 'i'), x)(x)[0]",
]  # fmt: skip


@pytest.mark.parametrize("text", together(EDGES, 7))
@pytest.mark.parametrize("size", [3, 1])
def test_edges(text: str, size: int) -> None:
    given = X[:size, 0, :4]
    expected = jax.jit(jax.vmap(program(text, jax), axis_name="i"))(jax.numpy.asarray(given))
    found = weft.vmap(program(text, weft), axis_name="i")(jnp.asarray(given))
    assert_same(weft.tree.map(lambda v: v.astype(jnp.float32), found), weft.tree.map(lambda v: np.float32(v), expected))


def test_an_axis_of_no_elements() -> None:
    run = weft.vmap(lambda x: (lax.psum(x, "i"), lax.all_gather(x, "i"), lax.axis_index("i")), axis_name="i")
    assert [np.shape(v) for v in run(jnp.ones((0, 2)))] == [(0, 2), (0, 0, 2), (0,)]
