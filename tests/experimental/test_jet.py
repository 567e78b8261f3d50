"""Taylor mode: coefficients beside mpmath's, JAX's, and derivatives of derivatives."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from jax.experimental.jet import jet as jax_jet

import weft
import weft.numpy as wnp
from weft import lax
from weft.experimental.jet import jet

ORDER = 4
ONE = [1.0, *[0.0] * (ORDER - 1)]

# name -> (ours, mpmath's, a point inside the domain)
FUNCTIONS = {
    "exp": (lax.exp, mpmath.exp, 0.7),
    "expm1": (lax.expm1, mpmath.expm1, 0.3),
    "exp2": (lax.exp2, lambda x: mpmath.power(2, x), 0.3),
    "log": (lax.log, mpmath.log, 1.7),
    "log1p": (lax.log1p, mpmath.log1p, 0.4),
    "sqrt": (lax.sqrt, mpmath.sqrt, 1.3),
    "rsqrt": (lax.rsqrt, lambda x: 1 / mpmath.sqrt(x), 1.3),
    "cbrt": (lax.cbrt, mpmath.cbrt, 1.3),
    "sin": (lax.sin, mpmath.sin, 0.8),
    "cos": (lax.cos, mpmath.cos, 0.8),
    "tan": (lax.tan, mpmath.tan, 0.4),
    "sinh": (lax.sinh, mpmath.sinh, 0.8),
    "cosh": (lax.cosh, mpmath.cosh, 0.8),
    "tanh": (lax.tanh, mpmath.tanh, 0.5),
    "logistic": (lax.logistic, lambda x: 1 / (1 + mpmath.exp(-x)), 0.5),
    "asin": (lax.asin, mpmath.asin, 0.3),
    "acos": (lax.acos, mpmath.acos, 0.3),
    "atan": (lax.atan, mpmath.atan, 0.6),
    "asinh": (lax.asinh, mpmath.asinh, 0.6),
    "acosh": (lax.acosh, mpmath.acosh, 2.1),
    "atanh": (lax.atanh, mpmath.atanh, 0.3),
    "erf": (lax.erf, mpmath.erf, 0.5),
    "erf_inv": (lax.erf_inv, mpmath.erfinv, 0.3),
    "lgamma": (lax.lgamma, mpmath.loggamma, 2.5),
    "reciprocal": (lambda x: 1.0 / x, lambda x: 1 / x, 1.4),
    "quotient": (lambda x: wnp.sin(x) / (1 + x**2), lambda x: mpmath.sin(x) / (1 + x**2), 0.6),
    "powers": (lambda x: x**5 + x**2.5 + x**-2, lambda x: x**5 + x**2.5 + x**-2, 1.2),
    "power of two series": (lambda x: x**x, lambda x: x**x, 1.2),
    "square": (lax.square, lambda x: x * x, 1.2),
    "chain": (lambda x: wnp.tanh(wnp.exp(-x) * wnp.sin(x)), lambda x: mpmath.tanh(mpmath.exp(-x) * mpmath.sin(x)), 0.4),
}


def test_coefficients_are_mpmaths() -> None:
    """All functions in one program."""
    names = list(FUNCTIONS)

    def everything(*xs: Any) -> Any:
        return [
            jet(FUNCTIONS[name][0], (x,), (ONE,), factorial_scaled=False) for name, x in zip(names, xs, strict=True)
        ]

    with weft.enable_x64(True):
        points = [FUNCTIONS[name][2] for name in names]
        results = weft.jit(everything)(*points)
    for name, point, (value, terms) in zip(names, points, results, strict=True):
        expected = [float(c) for c in mpmath.taylor(FUNCTIONS[name][1], point, ORDER)]
        np.testing.assert_allclose([value, *terms], expected, rtol=1e-9, atol=1e-12, err_msg=name)


def network(J: Any, x: Any, w: Any) -> Any:
    """Linear and structural operations, on arrays."""
    y = J.tanh(x @ w)
    y = J.concatenate([y, y[::-1] * x.T[:1, :2]], 0)
    y = J.where(y > 0, y, y * y).reshape(2, -1)
    y = J.cumsum(J.pad(y, ((0, 0), (1, 0))), axis=1) + J.max(y) + J.abs(y).sum()
    return {"max": J.max(y, 0), "product": (y.T @ y)[0], "first": y[0, 1], "constant": 2.0}


def test_series_of_arrays_are_jaxs() -> None:
    rng = np.random.default_rng(0)
    x, w, *terms = [
        rng.normal(size=shape).astype(np.float32) for shape in [(2, 3), (3, 2)] + [(2, 3)] * 3 + [(3, 2)] * 3
    ]
    series = (terms[:3], terms[3:])
    ours = weft.jit(lambda x, w, s: jet(lambda x, w: network(wnp, x, w), (x, w), s))(x, w, series)
    theirs = jax.jit(lambda x, w, s: jax_jet(lambda x, w: network(jnp, x, w), (x, w), s))(x, w, series)
    for name in ("max", "product", "first", "constant"):
        np.testing.assert_allclose(ours[0][name], theirs[0][name], rtol=2e-5)
        for one, other in zip(ours[1][name], theirs[1][name], strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-3)


def test_control_flow_and_calls_agree_with_nested_derivatives() -> None:
    @weft.custom_jvp
    def twice(x: Any) -> Any:
        return 2.0 * x

    twice.defjvp(
        lambda primals, tangents: (twice(primals[0]), 3.0 * tangents[0])
    )  # not the true derivative: it is used

    def function(x: Any) -> Any:
        y = lax.fori_loop(0, 2, lambda i, y: wnp.sin(y) * x, x)
        y = lax.cond(y > 0, lambda y: y * y, wnp.cos, y)
        y = lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, s[1] * x), (0, y))[1]
        y = wnp.sort(wnp.array([y, x, x * x]))[::2].sum() * y
        return twice(weft.jit(wnp.exp)(y)) + weft.checkpoint(wnp.cos)(x)

    def all_derivatives(x: Any) -> Any:
        derivatives = [function]
        for _ in range(3):
            derivatives.append(weft.jacfwd(derivatives[-1]))
        return [d(x) for d in derivatives], jet(function, (x,), ([1.0, 0.0, 0.0],))

    expected, (value, terms) = weft.jit(all_derivatives)(0.9)
    np.testing.assert_allclose([value, *terms], expected, rtol=1e-4)


def test_jet_composes_with_other_transformations() -> None:
    def second(x: Any) -> Any:
        return jet(wnp.sin, (x,), ([1.0, 0.0],))[1][1]

    xs = np.linspace(0.1, 1, 3, dtype=np.float32)
    np.testing.assert_allclose(weft.vmap(weft.grad(second))(xs), -np.cos(xs), rtol=1e-5)
    np.testing.assert_allclose(weft.vmap(second)(xs), -np.sin(xs), rtol=1e-5)


def test_what_jet_gives() -> None:
    value, (first, second) = jet(wnp.exp, (0.0,), ([1.0, 0.0],), factorial_scaled=False)
    assert (float(value), float(first), float(second)) == (1.0, 1.0, 1 / math.factorial(2))
    assert jet(wnp.sin, (0.5,), ((),))[1] == []
    value, terms = jet(lambda x: {"a": x, "b": x > 0, "c": 3}, (np.float32(1),), ([2.0, 3.0],))
    assert [float(t) for t in terms["a"]] == [2.0, 3.0]
    assert [float(t) for t in (*terms["b"], *terms["c"])] == [0.0] * 4
    assert value["b"] and value["c"] == 3


@pytest.mark.parametrize("args", [
    (wnp.multiply, (0.5, 1.0), ((1.0, 2.0), (1.0,))),
    (lambda d: d["a"], ({"a": 1.0},), (([1.0]),)),
    (wnp.sin, (np.ones(2, np.float32),), ((np.ones(3, np.float32),),)),
    (wnp.sin, (0.5, 0.2), ((1.0,),)),
])  # fmt: skip
def test_bad_series(args: Any) -> None:
    with pytest.raises(ValueError, match=r"jet|primal value"):
        jet(*args)


def test_operations_without_derivative_are_named() -> None:
    with pytest.raises(NotImplementedError, match="igamma_grad_a"):
        jet(lambda x: lax.igamma_grad_a(1.5, x), (0.5,), ((1.0,),))
