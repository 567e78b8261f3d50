"""Wrong use of grad, jvp and vjp: JAX's class of error and sentence, followed by the names of the user's arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.lax
import jax.numpy
import pytest

import weft
import weft.lax
import weft.numpy
import weft.numpy as jnp


def product(a: Any, b: Any) -> Any:
    return a * b


def ruled(decorator: Any, *rules: Any) -> Any:
    """A function with rules of its own; those of the identity, or of a dict's entry, if none are given."""
    function = decorator(lambda d: d["a"] if rules else d)
    if hasattr(function, "defjvp"):
        function.defjvp(*rules or (lambda primals, tangents: (primals[0], tangents[0]),))
    else:
        function.defvjp(*rules or (lambda x: (x, None), lambda r, ct: (ct,)))
    return function


def with_jvp(m: Any, rule: Any) -> Any:
    """The gradient of a jitted call of a function with this rule."""
    function = m.custom_jvp(lambda x: x * 2.0)
    function.defjvp(rule)
    return m.grad(m.jit(function))(1.0)


def with_vjp(m: Any, fwd: Any, bwd: Any) -> Any:
    function = m.custom_vjp(lambda x: x * 2.0)
    function.defvjp(fwd, bwd)
    return m.grad(m.jit(function))(1.0)


ERRORS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "not scalar": (lambda m, x: m.grad(product)(x, x), "Gradient only defined for scalar-output functions"),
    "tuple": (lambda m, x: m.grad(lambda y: (y, y))(1.0), "Gradient only defined for scalar-output functions"),
    "integer": (lambda m, x: m.grad(product)(1, x), "real- or complex-valued inputs"),
    "bool": (lambda m, x: m.grad(product)(True, x), "real- or complex-valued inputs"),
    "integer result": (lambda m, x: m.grad(lambda y: m.numpy.int32(y))(1.0), "real-valued outputs"),
    "complex result": (lambda m, x: m.grad(lambda y: y * 1j)(1.0), "real-valued outputs"),
    "holomorphic": (lambda m, x: m.grad(lambda y: y, holomorphic=True)(1.0), "inputs with complex dtype"),
    "argnums": (lambda m, x: m.grad(product, argnums=2)(x, x), "requires at least 3 positional arguments"),
    "no aux": (lambda m, x: m.grad(lambda y: y * 2, has_aux=True)(1.0), "two-element tuple"),
    "no array": (lambda m, x: m.grad(lambda y: y)("a"), "is not a valid JAX type"),
    "jvp tuple": (lambda m, x: m.jvp(product, 1.0, 1.0), "must be tuples or lists; found float and float"),
    "jvp tree": (lambda m, x: m.jvp(product, (x, x), (x,)), "must have the same tree structure"),
    "jvp dtype": (lambda m, x: m.jvp(product, (x, x), (x, m.numpy.arange(3))), "dtypes must be equal"),
    "jvp shape": (lambda m, x: m.jvp(product, (x, x), (x, x[:2])), "different primal and tangent shapes"),
    "vjp tree": (lambda m, x: m.vjp(product, x, x)[1]((x,)), "unexpected tree structure"),
    "vjp shape": (lambda m, x: m.vjp(product, x, x)[1](x[:2]), "unexpected JAX type"),
    "vjp two": (lambda m, x: m.vjp(product, x, x)[1](x, x), "called with 2 arguments"),
    "linear tree": (lambda m, x: m.linearize(product, x, x)[1](x), "expected PyTreeDef"),
    "linear shape": (lambda m, x: m.linearize(product, x, x)[1](x, x[:2]), "inconsistent with the original primal"),
    "argnums twice": (lambda m, x: m.grad(product, argnums=(0, -2))(1.0, 2.0), ""),
    "transpose to float": (lambda m, x: m.linear_transpose(lambda y: y * 2.0, 1)(1.0), "only supports"),
    "transpose to int": (lambda m, x: m.linear_transpose(lambda y: y.astype(int), x)(x), "only supports"),
    "jacrev of complex": (lambda m, x: m.jacrev(lambda y: y * 1j)(x), "real-valued outputs"),
    "linear two": (lambda m, x: m.linearize(m.numpy.sin, x)[1](x, x), "expected PyTreeDef"),
    "vjp no aux": (lambda m, x: m.vjp(lambda y: y * 2, 1.0, has_aux=True), "two-element tuple"),
    "hessian of int": (lambda m, x: m.hessian(lambda y: y * 1.0)(1), "valued inputs"),
    "vjp tree names the leaf": (
        lambda m, x: m.vjp(lambda y: {"a": (y, y)}, x)[1]({"a": x}),
        r"out\['a'\] was a <class 'tuple'> in the original output, but a pytree leaf here",
    ),
    "jacfwd argnums": (lambda m, x: m.jacfwd(product, argnums=2)(x, x), ""),
    "jacrev argnums": (lambda m, x: m.jacrev(product, argnums=(0, 2))(x, x), ""),
    "hessian argnums": (lambda m, x: m.hessian(product, argnums=3)(x, x), ""),
    "jvp rule, tree": (lambda m, x: with_jvp(m, lambda p, t: ((p[0],), (t[0],))), r"structure:\n    \(float32\[\],\)"),
    "jvp rule, shape": (
        lambda m, x: with_jvp(m, lambda p, t: (m.numpy.stack([p[0]]), m.numpy.stack([t[0]]))),
        r"shapes/dtypes of:\n    float32\[1\]\nwhile the custom_jvp-decorated function <lambda> had output "
        r"shapes/dtypes of:\n    float32\[\]",
    ),
    "jvp rule, no pair": (lambda m, x: with_jvp(m, lambda p, t: p[0]), "representing primal and tangent outputs"),
    "jvp keywords": (
        lambda m, x: ruled(m.custom_jvp)(z=2.0),
        "custom_jvp-decorated function <lambda> could not be resolved to positional-only arguments",
    ),
    "vjp keywords": (
        lambda m, x: ruled(m.custom_vjp)(z=2.0),
        "custom_vjp-decorated function <lambda> could not be resolved to positional-only arguments",
    ),
    "fwd, tree": (
        lambda m, x: with_vjp(m, lambda x: ((x,), None), lambda r, ct: ct),
        r"fwd rule output's first element had container/pytree structure:\n    \(float32\[\],\)\nwhile",
    ),
    "fwd, shape": (
        lambda m, x: with_vjp(m, lambda x: (m.numpy.stack([x]), None), lambda r, ct: (ct[0],)),
        r"first element had shapes/dtypes of:\n    float32\[1\]\nwhile",
    ),
    "fwd, no pair": (lambda m, x: with_vjp(m, lambda x: x, lambda r, ct: (ct,)), "instead of a pair the fwd rule"),
    "bwd, a leaf's shape": (
        lambda m, x: m.grad(
            lambda y: ruled(m.custom_vjp, lambda d: (d["a"], None), lambda r, ct: ({"a": m.numpy.ones(2)},))({"a": y})
        )(1.0),
        r"at output\[0\]\['a'\] the bwd rule",
    ),
    "transpose tree": (lambda m, x: m.linear_transpose(lambda y: y, x)((x,)), "cotangent tree does not match"),
}


@pytest.mark.oracle
@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_jax_s(name: str) -> None:
    run, sentence = ERRORS[name]
    raised = []
    for module in (jax, weft):
        with pytest.raises((TypeError, ValueError), match=sentence or None) as caught:
            run(module, module.numpy.ones(3))
        raised.append(caught.type)
    assert raised[0] is raised[1]


def test_errors_name_the_argument() -> None:
    with pytest.raises(TypeError, match=r"The argument is b\['scale'\]"):
        weft.grad(product, argnums=1)(1.0, {"scale": 2})
    with pytest.raises(TypeError, match="The argument is b"):
        weft.jvp(product, (1.0, 1.0), (1.0, 1))


def test_a_function_that_is_not_linear_has_no_transpose() -> None:
    with pytest.raises(TypeError, match="the function is not linear"):
        weft.linear_transpose(lambda x: x * x, 1.0)(3.0)


def test_python_numbers_are_differentiated_at() -> None:
    assert complex(weft.grad(lambda z: jnp.abs(z) ** 2)(1 + 2j)) == 2 - 4j
    assert float(weft.grad(lambda a: jnp.real(1j * a * (1j + a)))(2.0)) == -1
    assert complex(weft.grad(lambda z: z, holomorphic=True)(1j)) == 1
    for x in (1j, 1.0):
        assert type(weft.vjp(lambda z: z, x)[1](2 * x)[0]).__name__ in ("Array", type(x).__name__)


def leaking(m: Any, box: list[Any]) -> dict[str, Callable[[], Any]]:
    """Calls of transformations whose function keeps its argument in ``box``."""

    def f(x: Any) -> Any:
        box.append(x)
        return x * 2.0

    def in_rule() -> Any:
        g = m.custom_jvp(lambda x: x)
        g.defjvp(lambda primals, tangents: (primals[0], f(tangents[0])))
        return m.grad(g)(1.0)

    def in_fwd() -> Any:
        g = m.custom_vjp(lambda x: x)
        g.defvjp(lambda x: (f(x), None), lambda res, ct: (ct,))
        return m.jit(m.grad(g))(1.0)

    lax, x = m.lax, m.numpy.ones(3)
    return {
        "jit": lambda: m.jit(f)(1.0), "grad": lambda: m.grad(f)(1.0), "jvp": lambda: m.jvp(f, (1.0,), (1.0,)),
        "vjp": lambda: m.vjp(f, 1.0)[1](1.0), "linearize": lambda: m.linearize(f, 1.0)[1](1.0),
        "vmap": lambda: m.vmap(f)(x), "scan": lambda: lax.scan(lambda c, a: (f(c), a), 1.0, x),
        "while_loop": lambda: lax.while_loop(lambda c: c < 5, f, 1.0), "cond": lambda: lax.cond(True, f, f, 1.0),
        "fori_loop": lambda: lax.fori_loop(0, 3, lambda i, c: f(c), 1.0), "checkpoint": lambda: m.checkpoint(f)(1.0),
        "jacfwd": lambda: m.jacfwd(f)(1.0), "jacrev": lambda: m.jacrev(f)(1.0), "hessian": lambda: m.hessian(f)(1.0),
        "make_jaxpr": lambda: m.make_jaxpr(f)(1.0), "eval_shape": lambda: m.eval_shape(f, 1.0),
        "linear_transpose": lambda: m.linear_transpose(f, 1.0)(1.0), "map": lambda: lax.map(f, x),
        "closure_convert": lambda: m.closure_convert(f, 1.0), "jit of grad": lambda: m.jit(m.grad(f))(1.0),
        "grad of jit": lambda: m.grad(m.jit(f))(1.0), "custom_jvp": in_rule, "custom_vjp": in_fwd,
    }  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize("name", leaking(weft, []))
def test_leaked_tracers_are_jax_s_error(name: str) -> None:
    for module in (jax, weft):
        box: list[Any] = []
        leaking(module, box)[name]()
        with pytest.raises(module.errors.UnexpectedTracerError, match="transformed"):
            box[0] + 1.0


def test_jacfwd_of_complex_results_of_real_arguments() -> None:
    assert complex(weft.jacfwd(lambda x: x * 2j)(1.0)) == 2j
