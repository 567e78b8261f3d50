"""Functions with rules of their own under vmap: custom_vjp beside a Python loop, custom_vmap beside JAX's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.custom_batching
import jax.numpy
import numpy as np
import pytest

import weft
import weft.custom_batching
import weft.numpy as jnp
from weft import lax
from weft.errors import UnexpectedTracerError

X = np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4)
W = np.float32([1.5, -2, 0.5])


def assert_close(found: Any, expected: Any) -> None:
    ours, theirs = weft.tree.leaves(found), jax.tree.leaves(expected)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-4)


# -- custom_vjp -------------------------------------------------------------------------------------------------------


@weft.custom_vjp
def scaled(x: Any, p: Any) -> Any:
    """Its rule is not its derivative, so that it shows which of the two was used."""
    return jnp.sin(x) * p["w"], x.sum()


def scaled_fwd(x: Any, p: Any) -> Any:
    return scaled(x, p), (x, p["w"])


def scaled_bwd(residuals: Any, ct: Any) -> Any:
    x, w = residuals
    return 10 * ct[0] * w + ct[1], {"w": (ct[0] * x).sum() * 100.0}


scaled.defvjp(scaled_fwd, scaled_bwd)


def loss(x: Any, w: Any) -> Any:
    out, total = scaled(x, {"w": w})
    return (out**2).sum() + total


def looped(axes: Any, x: Any, w: Any) -> Any:
    """The gradient of the sum over all elements, one element after the other."""
    size = next(np.shape(v)[a] for v, a in zip((x, w), axes, strict=True) if a is not None)
    total = [np.zeros(np.shape(x)), np.zeros(np.shape(w))]
    for k in range(size):
        parts = [v if a is None else np.take(v, k, a) for v, a in zip((x, w), axes, strict=True)]
        back = weft.grad(loss, argnums=(0, 1))(*map(jnp.asarray, parts))
        for index, axis in enumerate(axes):
            if axis is None:
                total[index] += np.asarray(back[index])
            else:
                np.moveaxis(total[index], axis, 0)[k] += np.asarray(back[index])
    return tuple(total)


@pytest.mark.parametrize("inner", [loss, weft.jit(loss), weft.checkpoint(loss)], ids=["eager", "jit", "checkpoint"])
@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0), (-1, None)])
def test_gradient_of_a_mapped_custom_vjp(axes: Any, inner: Callable[..., Any]) -> None:
    w = W if axes[1] == 0 else W[0]
    x = X if axes[0] is not None else X[0]
    expected = looped(axes, x, w)

    def total(x: Any, w: Any) -> Any:
        return weft.vmap(inner, in_axes=axes)(x, w).sum()

    for transformed in (weft.grad(total, argnums=(0, 1)), weft.jit(weft.grad(total, argnums=(0, 1)))):
        assert_close(transformed(jnp.asarray(x), jnp.asarray(w)), expected)


@pytest.mark.parametrize("inner", [loss, weft.jit(loss), weft.checkpoint(loss)], ids=["eager", "jit", "checkpoint"])
def test_mapped_gradient_of_a_custom_vjp(inner: Callable[..., Any]) -> None:
    expected = [weft.grad(loss, argnums=(0, 1))(jnp.asarray(x), w) for x, w in zip(X, W, strict=True)]
    stacked = tuple(np.stack([np.asarray(pair[k]) for pair in expected]) for k in range(2))
    given = jnp.asarray(X), jnp.asarray(W)
    assert_close(weft.vmap(weft.grad(inner, argnums=(0, 1)))(*given), stacked)
    assert_close(weft.jit(weft.vmap(weft.jit(weft.grad(inner, argnums=(0, 1)))))(*given), stacked)
    twice = weft.vmap(weft.vmap(weft.grad(inner, argnums=(0, 1))))(*(jnp.stack([v, v]) for v in given))
    assert_close(twice, tuple(np.stack([v, v]) for v in stacked))


@pytest.mark.oracle
def test_custom_vjp_in_loops_and_nests() -> None:
    def programs(root: Any) -> list[Callable[..., Any]]:
        f = root.custom_vjp(lambda x, w: root.numpy.sin(x) * w)
        f.defvjp(lambda x, w: (f(x, w), (x, w)), lambda r, ct: (10 * ct * r[1], root.numpy.sum(ct * r[0])))

        def chain(x: Any) -> Any:
            return root.lax.scan(lambda c, a: (f(c, a), c), x[0], x)[0]

        def nested(x: Any) -> Any:
            return root.vmap(root.vmap(f, in_axes=(0, None)), in_axes=(0, 0))(root.numpy.stack([x, x]), x[:2, 0]).sum()

        return [
            root.grad(lambda x: root.vmap(chain)(x).sum()),
            root.vmap(root.grad(chain)),
            root.grad(nested),
            root.vmap(lambda x: root.jacrev(lambda y: f(y, 2.0))(x)),
            root.vmap(root.grad(lambda x: root.grad(lambda y: f(y, y * y))(x[0]))),
        ]

    for ours, theirs in zip(programs(weft), programs(jax), strict=True):
        assert_close(ours(jnp.asarray(X)), theirs(jax.numpy.asarray(X)))


def test_cotangents_that_do_not_depend_on_the_element() -> None:
    f = weft.custom_vjp(lambda x, y: x * 2)
    f.defvjp(lambda x, y: (x * 2, None), lambda r, ct: (ct, jnp.ones(())))
    back = weft.grad(lambda x, y: weft.vmap(f, in_axes=(0, None))(x, y).sum(), argnums=(0, 1))(jnp.asarray(W), 3.0)
    assert_close(back, (np.ones(3), 3.0))  # each of the three elements gives 1
    f.defvjp(lambda x, y: (x * 2, None), lambda r, ct: (ct, None))
    back = weft.grad(lambda x, y: weft.vmap(f)(x, y).sum(), argnums=(0, 1))(jnp.asarray(W), jnp.asarray(W))
    assert_close(back, (np.ones(3), np.zeros(3)))


def test_symbolic_zeros_and_fixed_arguments() -> None:
    f = weft.custom_vjp(lambda x, y: x * y)
    f.defvjp(
        lambda x, y: (x.value * y.value, (x.perturbed, y.perturbed)),
        lambda live, ct: (ct * 5.0 if live[0] else None, ct * 7.0 if live[1] else None),
        symbolic_zeros=True,
    )
    assert weft.grad(lambda x: weft.vmap(f, in_axes=(0, None))(x, 2.0).sum())(jnp.asarray(W)).tolist() == [5, 5, 5]
    assert weft.vmap(weft.grad(f, argnums=1), in_axes=(0, None))(jnp.asarray(W), 2.0).tolist() == [7, 7, 7]

    @functools.partial(weft.custom_vjp, nondiff_argnums=(0,))
    def apply(fn: Any, x: Any) -> Any:
        return fn(x)

    apply.defvjp(lambda fn, x: (fn(x), x), lambda fn, x, ct: (ct * fn(x),))
    found = weft.grad(lambda x: weft.vmap(lambda t: apply(jnp.sin, t))(x).sum())(jnp.asarray(W))
    assert_close(found, np.sin(W))


def test_rules_of_custom_vjp_may_use_the_name_of_the_axis() -> None:
    f = weft.custom_vjp(lambda x: lax.psum(x, "i"))
    f.defvjp(lambda x: (lax.psum(x, "i"), None), lambda r, ct: (lax.psum(ct, "i") * 100.0,))
    x = jnp.asarray(W)
    assert weft.grad(lambda x: (weft.vmap(f, axis_name="i")(x) * jnp.arange(3.0)).sum())(x).tolist() == [300] * 3
    assert weft.vmap(weft.grad(f), axis_name="i")(x).tolist() == [300] * 3


def closing_vjp(z: Any) -> Any:
    f = weft.custom_vjp(lambda x: x * z)
    f.defvjp(lambda x: (x * z, None), lambda r, ct: (ct * z,))
    return f


def closing_jvp(z: Any) -> Any:
    f = weft.custom_jvp(lambda x: x * z)
    f.defjvp(lambda primals, tangents: (primals[0] * z, tangents[0] * z))
    return f


@pytest.mark.parametrize("closing", [closing_vjp, closing_jvp])
def test_rules_that_close_over_traced_values(closing: Any) -> None:
    w = jnp.asarray(W)
    assert_close(weft.vmap(lambda z: closing(z)(2.0))(w), 2 * W)
    assert_close(weft.vmap(lambda z: closing(z)(z))(w), W * W)
    assert_close(weft.vmap(lambda z: weft.grad(closing(z))(2.0))(w), W)
    assert_close(weft.vmap(lambda z: weft.grad(weft.jit(closing(z)))(2.0))(w), W)
    assert_close(weft.vmap(lambda z: weft.vmap(weft.grad(closing(z)))(w))(w), np.broadcast_to(W[:, None], (3, 3)))
    assert_close(weft.grad(lambda z: weft.grad(closing(z))(2.0))(3.0), 1.0)
    for wrong in (
        weft.grad(lambda z: closing(z)(2.0)), weft.grad(lambda z: closing(z)(z)),
        weft.jit(weft.grad(lambda z: closing(z)(2.0))), lambda z: weft.jvp(lambda z: closing(z)(2.0), (z,), (z,)),
    ):  # fmt: skip
        with pytest.raises(UnexpectedTracerError):
            wrong(3.0)
    for wrong in (
        weft.vmap(weft.grad(lambda z: closing(z)(2.0))),
        weft.grad(lambda z: weft.vmap(lambda z: closing(z)(2.0))(z).sum()),
    ):
        with pytest.raises(UnexpectedTracerError):
            wrong(w)


# -- custom_vmap ------------------------------------------------------------------------------------------------------


def with_rule(root: Any, seen: list[Any]) -> Any:
    """A function and a rule that differ, on trees."""
    module = jax.custom_batching if root is jax else weft.custom_batching

    @module.custom_vmap
    def f(x: Any, y: Any) -> Any:
        return {"s": root.numpy.sin(x) + y["p"], "c": x * y["p"]}

    @f.def_vmap
    def rule(axis_size: int, in_batched: Any, x: Any, y: Any) -> Any:
        seen.append((axis_size, in_batched, np.shape(x), np.shape(y["p"])))
        return {"s": root.numpy.cos(x) + y["p"], "c": x * 2}, {"s": True, "c": in_batched[0]}

    return f


MAPPED = [
    ("vmap(f)", (X, X)), ("vmap(f, in_axes=(0, None))", (X, X[0])), ("vmap(f, in_axes=(1, None))", (X, X[:, 0])),
    ("vmap(f, in_axes=(0, 1), out_axes=1)", (X, X.T)), ("jit(vmap(f))", (X, X)), ("vmap(jit(f))", (X, X)),
    ("vmap(vmap(f))", (X, X)), ("f", (X, X)), ("jit(f)", (X, X)), ("vmap(lambda x, y: f(1.0, {'p': 2.0}))", (X, X)),
    ("lambda x, y: jvp(f, (x, y), (y, x))", (X, X)), ("lambda x, y: jvp(vmap(f), (x, y), (y, x))", (X, X)),
    ("vmap(lambda x, y: jvp(f, (x, y), (y, x)))", (X, X)), ("jit(vmap(lambda x, y: jvp(f, (x, y), (y, x))))", (X, X)),
    ("lambda x, y: jvp(lambda t: f(t, y), (x,), (x,))", (X, X)),
    ("lambda x, y: grad(lambda t: vmap(f)(t, y)['s'].sum())(x)", (X, X)),
]  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize(("text", "given"), MAPPED, ids=[text for text, _ in MAPPED])
def test_custom_vmap(text: str, given: Any) -> None:
    results, calls = [], []
    for root in (weft, jax):
        seen: list[Any] = []
        f = with_rule(root, seen)
        wrapped = {name: getattr(root, name) for name in ("vmap", "jit", "jvp", "grad")}
        fun = eval(text, {**wrapped, "f": lambda x, y, f=f: f(x, y if isinstance(y, dict) else {"p": y})})
        results.append(fun(*map(root.numpy.asarray, given)))
        calls.append(seen)
    assert_close(*results)
    assert [call[0] for call in calls[0]] == [call[0] for call in calls[1]]
    if "jvp" not in text:
        assert calls[0] == calls[1]


def test_custom_vmap_of_a_derivative_of_one_side() -> None:
    """Tangents are mapped and values are not, as in jacfwd: the rule says nothing of that, the function does."""
    f = weft.custom_batching.custom_vmap(lambda x, y: x * x * y)
    f.def_vmap(lambda size, batched, x, y: (x * x * y, True))
    expected = weft.jacfwd(lambda x: x * x * 3.0)(jnp.asarray(W))
    assert_close(weft.jacfwd(lambda x: f(x, 3.0))(jnp.asarray(W)), np.asarray(expected))
    assert_close(weft.jit(weft.jacfwd(lambda x: f(x, 3.0)))(jnp.asarray(W)), np.asarray(expected))
    mixed = weft.vmap(lambda x, t: weft.jvp(f, (x, x[0]), (t, 1.0)), in_axes=(0, None))(jnp.asarray(X), jnp.ones(4))
    assert_close(mixed[0], X * X * X[:, :1])
    assert_close(mixed[1], 2 * X * X[:, :1] + X * X)


def test_reverse_differentiation_goes_through_the_function() -> None:
    seen: list[Any] = []
    f = with_rule(weft, seen)
    assert_close(weft.grad(lambda x: f(x, {"p": 2.0})["s"])(0.5), np.cos(0.5))
    assert_close(weft.vmap(weft.grad(lambda x: f(x, {"p": 2.0})["s"]))(jnp.asarray(W)), np.cos(W))
    assert_close(weft.grad(weft.checkpoint(lambda x: f(x, {"p": 2.0})["s"]))(0.5), np.cos(0.5))
    assert seen == []


@pytest.mark.oracle
@pytest.mark.parametrize(
    "rule",
    ["lambda n, b, x: ((x, x), (True, True))", "lambda n, b, x: (x, (True, True))", "lambda n, b, x: x", None],
)
def test_wrong_rules_of_custom_vmap(rule: str | None) -> None:
    for root, module in ((weft, weft.custom_batching), (jax, jax.custom_batching)):
        f = module.custom_vmap(lambda x: x)
        if rule is not None:
            f.def_vmap(eval(rule))
        error, match = (AttributeError, "No batching rule defined") if rule is None else (ValueError, "rule|unpack")
        with pytest.raises(error, match=match):
            root.vmap(f)(root.numpy.asarray(W))


def test_custom_vmap_that_closes_over_a_mapped_value() -> None:
    def run(z: Any) -> Any:
        f = weft.custom_batching.custom_vmap(lambda x: x * z)
        f.def_vmap(lambda size, batched, x: (x * z, True))
        return f(2.0)

    assert weft.jit(run)(3.0) == 6.0
    assert weft.jvp(run, (3.0,), (1.0,)) == (6.0, 2.0)
    with pytest.raises(UnexpectedTracerError, match="closed over a value that is mapped"):
        weft.vmap(run)(jnp.asarray(W))


def _composed(root: Any, module: Any) -> dict[str, Callable[[], Any]]:
    """Functions with two kinds of rules, whose rules are not their derivatives, nor their mapping."""

    def mapped(size: Any, batched: Any, x: Any) -> Any:
        return x * 10.0, batched[0]

    def by_jvp(f: Any, rule_of: Any = None) -> Any:
        (rule_of or f).defjvp(lambda primals, tangents: (f(primals[0]), tangents[0] * 7.0))
        return f

    def by_vjp(f: Any) -> Any:
        f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * 7.0,))
        return f

    def by_vmap(f: Any) -> Any:
        f.def_vmap(mapped)
        return f

    def double(x: Any) -> Any:
        return x * 2.0

    def in_rules() -> Any:
        fwd, bwd = module.custom_vmap(lambda x: (x * 2.0, x)), module.custom_vmap(lambda x, ct: (ct * x,))
        fwd.def_vmap(lambda size, batched, x: ((x * 20.0, x), (True, True)))
        bwd.def_vmap(lambda size, batched, x, ct: ((ct * x * 100.0,), (True,)))
        f = root.custom_vjp(double)
        f.defvjp(fwd, bwd)
        return f

    return {
        "jvp of vmap": lambda: by_jvp(root.custom_jvp(by_vmap(module.custom_vmap(double)))),
        "jvp of vmap, forwarded": lambda: by_vmap(by_jvp(root.custom_jvp(module.custom_vmap(double)))),
        "vjp of vmap, forwarded": lambda: by_vmap(by_vjp(root.custom_vjp(module.custom_vmap(double)))),
        "vmap of jvp": lambda: by_vmap(module.custom_vmap(by_jvp(root.custom_jvp(double)))),
        "vmap of jvp, forwarded": lambda: by_vmap(by_jvp(module.custom_vmap(root.custom_jvp(double)))),
        "sequential, of vjp": lambda: module.sequential_vmap(by_vjp(root.custom_vjp(double))),
        "in fwd and bwd": in_rules,
    }


def _used(root: Any, f: Any, name: str) -> list[Any]:
    """A composed function called, mapped, and differentiated where JAX can."""
    x = root.numpy.asarray(W)
    made = [f(2.0), root.vmap(f)(x), root.vmap(root.vmap(f))(root.numpy.asarray(X)), root.jit(root.vmap(f))(x)]
    if name.startswith(("jvp", "vjp", "in")):
        made += [root.grad(f)(2.0), root.vmap(root.grad(f))(x), root.jit(root.vmap(root.grad(f)))(x)]
        made += [root.grad(lambda x: root.vmap(f)(x).sum())(x)]
    elif name.startswith("vmap"):  # by forward mode: where tangents alone are mapped, and where both are
        made += [root.jvp(root.vmap(f), (x,), (x,)), root.jacfwd(f)(2.0), root.jvp(f, (2.0,), (1.0,))]
        made += [root.vmap(lambda x: root.jvp(f, (x,), (1.0,)))(x)]
    return made


@pytest.mark.oracle
@pytest.mark.parametrize("name", _composed(weft, weft.custom_batching))
def test_custom_vmap_beside_custom_derivatives(name: str) -> None:
    roots = ((weft, weft.custom_batching), (jax, jax.custom_batching))
    assert_close(*[_used(root, _composed(root, module)[name](), name) for root, module in roots])


def test_methods_are_forwarded_to_decorated_functions_alone() -> None:
    for decorator in (weft.custom_jvp, weft.custom_vjp, weft.custom_batching.custom_vmap):
        with pytest.raises(AttributeError, match="has no attribute 'def_nothing'"):
            decorator(lambda x: x).def_nothing(None)
    with pytest.raises(AttributeError, match="no attribute 'def_vmap'"):
        weft.custom_jvp(lambda x: x).def_vmap(None)


COLLECTIVES: dict[str, Callable[[Any, Any], Any]] = {
    "psum": lambda lax, x: lax.psum(x, "i"),
    "pmean": lambda lax, x: lax.pmean(x, "i"),
    "axis_index": lambda lax, x: x * (lax.axis_index("i") + 1),
    "ppermute": lambda lax, x: lax.ppermute(x, "i", [(0, 1), (1, 2), (2, 0)]),
    "none": lambda lax, x: x * 2.0,
}


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("forward", "backward"),
    [("psum", "psum"), ("psum", "axis_index"), ("pmean", "ppermute"), ("axis_index", "pmean"), ("none", "axis_index"),
     ("none", "ppermute")],
)  # fmt: skip
def test_collectives_in_rules(forward: str, backward: str) -> None:
    """Inside and outside of the mapping, and where the argument is not mapped and the rule reads the axis."""
    assert_close(_mapped_rules(weft, forward, backward), _mapped_rules(jax, forward, backward))


def _mapped_rules(root: Any, forward: str, backward: str) -> list[Any]:
    of_value, of_ct = (functools.partial(COLLECTIVES[word], root.lax) for word in (forward, backward))
    g = root.custom_vjp(of_value)
    g.defvjp(lambda x: (of_value(x), x), lambda x, ct: (of_ct(ct) * x,))
    x = root.numpy.asarray(W)
    mapped = functools.partial(root.vmap, axis_name="i")
    made = [
        mapped(root.grad(lambda x: g(x) * 2.0))(x),
        mapped(root.grad(root.checkpoint(lambda x: g(x) * x)))(x),
        mapped(root.grad(root.jit(g)))(x),
        mapped(root.grad(lambda x, y: (g(x) * y).sum()), in_axes=(None, 0))(2.0, x),
    ]
    if forward not in ("psum", "pmean") and backward != "pmean":  # where JAX finds the axis, and counts a sum once
        made.append(root.jit(root.grad(lambda x: mapped(g)(x).sum()))(x))
        made.append(root.grad(lambda x: mapped(lambda x: g(x) * x)(x).sum())(x))
    if forward == "none":
        made.append(root.grad(lambda x: mapped(lambda x, y: g(x) * y, in_axes=(None, 0))(x, W).sum())(2.0))
    return made


@pytest.mark.oracle
def test_sequential_vmap() -> None:
    for root, module in ((weft, weft.custom_batching), (jax, jax.custom_batching)):
        f = module.sequential_vmap(lambda d, y: (d["a"] + d["b"] * y, {"q": y}))
        given = {"a": root.numpy.asarray(X), "b": root.numpy.float32(2)}
        run = root.vmap(f, in_axes=({"a": 0, "b": None}, 0))
        assert_close(run(given, root.numpy.asarray(W)), (X + 2 * W[:, None], {"q": W}))
        assert "scan" in str(root.make_jaxpr(run)(given, root.numpy.asarray(W)))
    g = weft.custom_batching.sequential_vmap(lambda x: jnp.sin(x) * x)
    assert_close(weft.grad(lambda x: weft.vmap(g)(x).sum())(jnp.asarray(W)), np.cos(W) * W + np.sin(W))
    assert_close(weft.vmap(weft.vmap(g))(jnp.asarray(X)), np.sin(X) * X)
