"""Weak types through derivatives, and Python values that go beside: as in JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp

X = np.float32(2)


@pytest.mark.parametrize(
    "transformed",
    [
        lambda f: weft.grad(f, has_aux=True)(X)[1],
        lambda f: weft.value_and_grad(f, has_aux=True)(X)[0][1],
        lambda f: weft.jacrev(f, has_aux=True)(X)[1],
        lambda f: weft.vjp(f, X, has_aux=True)[2],
        lambda f: weft.jvp(f, (X,), (X,), has_aux=True)[2],
        lambda f: weft.linearize(f, X, has_aux=True)[2],
    ],
    ids=["grad", "value_and_grad", "jacrev", "vjp", "jvp", "linearize"],
)
def test_python_values_beside_a_result_stay_as_they_are(transformed: Callable[[Any], Any]) -> None:
    beside = {"count": 3, "rate": 0.5, "on": True, "name": "adam", "table": np.ones(2)}
    got = transformed(lambda x: (x * x, beside))
    assert all(got[key] is value for key, value in beside.items())


def test_a_python_number_is_no_operand_of_stop_gradient() -> None:
    assert weft.lax.stop_gradient((2, 1.5, True)) == (2, 1.5, True)
    assert weft.jit(lambda x: jnp.zeros(weft.lax.stop_gradient(3)) + x)(X).shape == (3,)


_FUNCTIONS = {
    "sqrt": lambda jnp, x: x**0.5,
    "cube": lambda jnp, x: x**3.0,
    "clip": lambda jnp, x: jnp.clip(x, 0.0, 5.0),
    "where": lambda jnp, x: jnp.where(x > 0, x, 0.0),
    "mod": lambda jnp, x: x % 1.5,
    "maximum": lambda jnp, x: jnp.maximum(x, 0),
    "exponent": lambda jnp, x: 2**x,
    "exponent alone": lambda jnp, x: 0.0**x,
    "array exponent": lambda jnp, x: x ** jnp.int32(3),
}


@pytest.mark.oracle
@pytest.mark.parametrize("name", _FUNCTIONS)
@pytest.mark.parametrize("transform", ["grad", "jacfwd", "jacrev", "hessian", "jvp"])
@pytest.mark.parametrize("x", [2.0, X], ids=["weak", "strong"])
def test_derivatives_are_as_weakly_typed_as_those_of_jax(name: str, transform: str, x: Any) -> None:
    jax = pytest.importorskip("jax")

    def derivative(module: Any) -> Any:
        function = lambda v: _FUNCTIONS[name](module.numpy, v)
        if transform == "jvp":
            return module.jvp(function, (x,), (x,))[1]
        return getattr(module, transform)(function)(x)

    got, expected = derivative(weft), derivative(jax)
    assert (got.dtype, got.weak_type) == (expected.dtype, expected.weak_type)
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_a_folded_literal_keeps_its_weak_type() -> None:
    jaxpr = weft.make_jaxpr(lambda x: weft.lax.full_like(x, 1) * x)(1.0).jaxpr
    assert type(jaxpr.eqns[0].invars[0].val) is float


def test_a_python_number_among_residuals_is_weak_whatever_was_traced_before() -> None:
    def program(y: object) -> str:
        f = weft.custom_vjp(lambda x, y: x)
        f.defvjp(lambda x, y: (x, y), lambda y, g: (g * y, g))
        return str(weft.make_jaxpr(lambda x: weft.vjp(f, x, y)[1](x))(1.0))

    program(np.float32(2.0))
    assert "convert_element_type" not in program(2.0)
