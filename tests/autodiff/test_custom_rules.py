"""custom_jvp, custom_vjp, custom_gradient: programs, values and errors beside JAX's."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
import pytest

import weft

pytestmark = pytest.mark.oracle


def product(module: Any, **options: Any) -> Any:
    np = module.numpy

    def fwd(x: Any, y: Any) -> Any:
        return f(x, y), (np.cos(x), np.sin(x), y)

    def bwd(res: Any, g: Any) -> Any:
        return res[0] * g * res[2], res[1] * g

    f = module.custom_vjp(lambda x, y: np.sin(x) * y)
    f.defvjp(options.get("fwd", fwd), options.get("bwd", bwd))
    return f


def pushed(module: Any) -> Any:
    np = module.numpy
    f = module.custom_jvp(lambda x, y: np.sin(x) * y)
    f.defjvp(lambda p, t: (f(*p), np.cos(p[0]) * t[0] * p[1] + np.sin(p[0]) * t[1]))
    return f


def text(module: Any, function: Any, *args: Any) -> str:
    return str(module.make_jaxpr(function)(*args))


@pytest.mark.parametrize("make", [product, pushed])
@pytest.mark.parametrize("jitted", [False, True])
def test_programs_are_jax_s(make: Any, jitted: bool) -> None:
    def programs(module: Any) -> list[str]:
        f = module.jit(make(module)) if jitted else make(module)
        return [
            text(module, f, 1.0, 2.0),
            text(module, module.grad(f, (0, 1)), 1.0, 2.0),
            text(module, lambda x: module.vjp(f, x, 2.0)[1](x), 1.0),
        ]

    assert programs(weft) == programs(jax)


def test_second_derivatives() -> None:
    def values(module: Any) -> list[float]:
        return [float(module.grad(module.grad(make(module)))(1.0, 2.0)) for make in (product, pushed)]

    assert values(weft) == pytest.approx(values(jax), rel=1e-6)


@pytest.mark.parametrize(
    "bwd", [lambda res, g: g, lambda res, g: (g,), lambda res, g: ({"a": g}, g)], ids=["no tuple", "short", "tree"]
)
def test_a_backward_rule_of_the_wrong_structure(bwd: Any) -> None:
    for module in (weft, jax):
        with pytest.raises(TypeError, match="must produce an output with the same container"):
            module.grad(product(module, bwd=bwd))(1.0, 2.0)


def test_forward_mode_of_a_backward_rule_raises() -> None:
    for module in (weft, jax):
        with pytest.raises(TypeError, match=r"can't apply forward-mode autodiff \(jvp\) to a custom_vjp function"):
            module.jvp(product(module), (1.0, 2.0), (1.0, 1.0))


def test_a_missing_rule() -> None:
    for module in (weft, jax):
        with pytest.raises(AttributeError, match="No VJP defined for custom_vjp function f using defvjp"):
            module.custom_vjp(named)(1.0)


def named(x: Any) -> Any:
    return x


named.__name__ = "f"


def test_custom_gradient() -> None:
    for module in (weft, jax):
        f = module.custom_gradient(lambda x: (x**2, lambda g: (g * x * 7.0,)))
        assert float(module.grad(f)(3.0)) == 21.0
        assert float(module.grad(module.jit(f))(3.0)) == 21.0


def test_closure_convert_hoists_what_is_differentiated() -> None:
    def through(module: Any) -> Any:
        def outer(a: Any) -> Any:
            f, captured = module.closure_convert(lambda x: module.numpy.sin(x) * a, 1.0)
            assert len(captured) == 1
            return f(2.0, *captured)

        return float(module.grad(outer)(3.0))

    assert through(weft) == pytest.approx(through(jax), rel=1e-6)


def test_none_in_a_tree_of_cotangents_is_zero() -> None:
    @weft.custom_vjp
    def f(tree: Any) -> Any:
        return tree["a"] * tree["b"][0] * tree["b"][1]

    f.defvjp(lambda tree: (f(tree), None), lambda _, ct: ({"a": 5 * ct, "b": None},))
    got = weft.grad(f)({"a": 2.0, "b": (3.0, 4.0)})
    assert (got["a"].item(), got["b"][0].item(), got["b"][1].item()) == (5.0, 0.0, 0.0)
    f.defvjp(lambda tree: (f(tree), None), lambda _, ct: ({"a": 5 * ct, "b": (None, ct)},))
    got = weft.grad(f)({"a": 2.0, "b": (3.0, 4.0)})
    assert (got["b"][0].item(), got["b"][1].item()) == (0.0, 1.0)
    f.defvjp(lambda tree: (f(tree), None), lambda _, ct: ({"a": 5 * ct, "b": ct},))
    with pytest.raises(TypeError, match="same container"):
        weft.grad(f)({"a": 2.0, "b": (3.0, 4.0)})


@pytest.mark.parametrize(("number", "error"), [(3, IndexError), (-4, ValueError)])
def test_nondiff_argnums_that_name_no_argument(number: int, error: type[Exception]) -> None:
    f = weft.custom_jvp(lambda x: x, nondiff_argnums=(number,))
    f.defjvp(lambda fixed, primals, tangents: (primals[0], tangents[0]))
    g = weft.custom_vjp(lambda x: x, nondiff_argnums=(number,))
    g.defvjp(lambda x: (x, None), lambda fixed, _, ct: (ct,))
    for function in (f, g):
        with pytest.raises(error, match=f"argument {number}, but the function was called with 1"):
            weft.grad(function)(1.0)


@pytest.mark.parametrize("jitted", [False, True])
def test_forward_mode_passes_a_loop_of_no_steps_with_a_rule_for_reverse_mode(jitted: bool) -> None:
    def tangents(module: Any) -> Any:
        f = module.custom_vjp(lambda x: x * 2)
        f.defvjp(lambda x: (x * 2, None), lambda _, ct: (ct * 2,))

        def loops(x: Any) -> Any:
            state, rows = module.lax.scan(lambda c, y: (f(c) * y, f(c)), x, module.numpy.zeros((0,)))
            return state, rows, module.lax.fori_loop(0, 0, lambda i, c: f(c), x), module.lax.map(f, rows)

        push = lambda x: module.jvp(loops, (x,), (3.0,))
        return jax.tree.map(lambda leaf: leaf.tolist(), (module.jit(push) if jitted else push)(1.0))

    assert tangents(weft) == tangents(jax) == ((1.0, [], 1.0, []), (3.0, [], 3.0, []))


@pytest.mark.parametrize("jitted", [False, True])
def test_keyword_only_arguments_are_refused_eagerly_too(jitted: bool) -> None:
    def push(x: Any, *, k: float = 2.0) -> Any:
        return x * k

    for module in (weft, jax):
        f, g = module.custom_jvp(push), module.custom_vjp(push)
        f.defjvp(lambda primals, tangents: (primals[0], tangents[0]))
        g.defvjp(lambda x, k: (x, None), lambda _, ct: (ct, None))
        for function in (f, g):
            with pytest.raises(TypeError, match="could not be resolved to positions: k"):
                (module.jit(function) if jitted else function)(1.0, k=3.0)


@pytest.mark.parametrize("outer", [lambda m, f: f, lambda m, f: pushed_along(m, f), lambda m, f: m.jit(f)])
def test_forward_mode_of_a_rule_for_reverse_mode_is_refused_at_every_depth(outer: Any) -> None:
    for module, error in ((weft, TypeError), (jax, (TypeError, NotImplementedError))):
        f = module.custom_vjp(lambda x: x * 2)
        f.defvjp(lambda x: (x * 2, None), lambda _, ct: (ct * 2,))
        with pytest.raises(error, match=r"can't apply forward-mode|'custom_lin' not implemented"):
            outer(module, pushed_along(module, f))(1.0)


def pushed_along(module: Any, f: Any) -> Any:
    return lambda x: module.jvp(f, (x,), (x,))[1]


def test_what_bwd_gives_for_an_argument_that_is_none_is_left_out() -> None:
    def of(module: Any) -> Any:
        f = module.custom_vjp(lambda x, y, z: x * 2 if y is None else x * y)
        f.defvjp(lambda x, y, z: (f(x, y, z), z), lambda z, ct: (ct * z, ct, None))
        return module.grad(lambda x: f(x, None, 3.0))(1.0)

    assert float(of(weft)) == float(of(jax)) == 3.0


def _map_of_rules(module: Any, decorator: str, inner: str) -> Any:
    """A mapped function with rules that close over its mapped argument; ``inner`` is what the rules are inside of."""

    def element(x: Any, z: Any) -> Any:
        if decorator == "custom_jvp":
            g = module.custom_jvp(lambda y: x * y)
            g.defjvp(lambda primals, tangents: (x * primals[0], 10 * x * tangents[0]))
        else:
            g = module.custom_vjp(lambda y: x * y)
            g.defvjp(lambda y: (x * y, 2 * x), lambda res, ct: (res * ct,))
        return module.jit(g)(z) if inner == "jit" else g(z)

    return lambda z: module.vmap(element, (0, 0 if inner == "mapped" else None))(module.numpy.arange(3.0), z)


@pytest.mark.parametrize("decorator", ["custom_jvp", "custom_vjp"])
@pytest.mark.parametrize("inner", ["mapped", "shared"])
def test_rules_close_over_values_of_the_map_that_they_are_in(decorator: str, inner: str) -> None:
    """What is differentiated is mapped inside, so that rules run when the trace of the map has recorded their call."""
    found = []
    for module in (weft, jax):
        z = module.numpy.ones(3) if inner == "mapped" else module.numpy.float32(1)
        f = _map_of_rules(module, decorator, inner)
        found.append(module.jit(module.grad(lambda z, f=f: f(z).sum()))(z))
        found.append(module.grad(lambda z, f=f: f(z).sum())(z))
    slopes = np.arange(3.0) * 10 if decorator == "custom_jvp" else 2 * np.arange(3.0)
    for slope in found:
        np.testing.assert_allclose(slope, slopes if inner == "mapped" else slopes.sum())


@pytest.mark.parametrize("inner", ["jit", "mapped"])
def test_jvp_of_a_map_whose_rule_closes_over_its_values(inner: str) -> None:
    """JAX refuses the one under jit."""
    z = weft.numpy.ones(3) if inner == "mapped" else weft.numpy.float32(1)
    out, slope = weft.jvp(_map_of_rules(weft, "custom_jvp", inner), (z,), (z,))
    np.testing.assert_allclose(out, np.arange(3.0))
    np.testing.assert_allclose(slope, 10 * np.arange(3.0))


def test_a_mapped_argument_that_is_part_of_the_function_is_no_tracer_afterwards() -> None:
    for module in (weft, jax):
        f = module.custom_jvp(lambda x, y: x * y, nondiff_argnums=(0,))
        f.defjvp(lambda x, primals, tangents, f=f: (f(x, primals[0]), 5 * tangents[0]))
        two, three, one = (module.numpy.float32([n]) for n in (2, 3, 1))
        out, slope = module.jvp(lambda y, m=module, f=f, two=two: m.vmap(f)(two, y), (three,), (one,))
        assert isinstance(out, module.Array) and not isinstance(out, module.core.Tracer)
        assert (float(out[0]), float(slope[0])) == (6, 5)


@pytest.mark.parametrize("decorator", ["custom_jvp", "custom_vjp"])
def test_what_a_partial_binds_is_no_argument(decorator: str) -> None:
    found = []
    for module in (weft, jax):
        f = getattr(module, decorator)(functools.partial(lambda x, y, a: x + y * a, a=0.1))
        if decorator == "custom_jvp":
            f.defjvp(lambda primals, tangents, f=f: (f.fun(*primals), tangents[0] + 7 * tangents[1]))
        else:
            f.defvjp(lambda x, y, f=f: (f.fun(x, y), None), lambda _, ct: (ct, 7 * ct))
        found.append([float(f(1.0, 2.0)), *map(float, module.grad(f, (0, 1))(1.0, 2.0))])
    np.testing.assert_allclose(found[0], found[1])


@pytest.mark.parametrize("decorator", ["custom_jvp", "custom_vjp"])
def test_a_missing_argument_is_named(decorator: str) -> None:
    for module in (weft, jax):
        f = getattr(module, decorator)(lambda x, y: x)
        if decorator == "custom_jvp":
            f.defjvp(lambda primals, tangents: (primals[0], tangents[0]))
        else:
            f.defvjp(lambda x, y: (x, None), lambda _, ct: (ct, ct))
        with pytest.raises(TypeError, match=rf"{decorator}-decorated function .lambda.[^$]*a required argument: 'y'"):
            f(1.0)
