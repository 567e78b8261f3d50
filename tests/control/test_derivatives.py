"""Derivatives of loops and branches beside JAX's: gradients, under jit, forward, second order, mapped."""

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

X = np.linspace(0.3, 1.2, 4).astype(np.float32)
M = np.linspace(-1, 1, 16).reshape(4, 4).astype(np.float32)

SCALARS = {
    "scan": "lax.scan(lambda c, a: (jnp.sin(c * a) + c, c * a), 1.0, x)[0]",
    "scan_outputs": "(lax.scan(lambda c, a: (jnp.sin(c * a) + c, c * a), 1.0, x)[1] ** 2).sum()",
    "scan_captures": "lax.scan(lambda c, a: (jnp.tanh(m @ c * x[0] + x), c.sum()), x, None, length=5)[1].sum()",
    "scan_reverse": "lax.scan(lambda c, a: (c * a + x.sum(), a * c), 0.5, x, reverse=True)[1].sum()",
    "scan_of_cond": "lax.scan(lambda c, a: (lax.cond(a > 0.6, lambda: c * a, lambda: jnp.sin(c)), c), 1.0, x)[0]",
    "scan_counts": "lax.scan(lambda c, a: ((c[0] + 1, c[1] * a + c[0]), a), (0, 1.0), x)[0][1]",
    "scan_tangents_spread": "lax.scan(lambda c, a: ((c[1], c[0] * a, a), c[2]), (1.0, 2.0, 3.0), x)[0][0]",
    "scan_empty": "lax.scan(lambda c, a: (c * a, c), x[0], x[:0])[0]",
    "fori": "lax.fori_loop(0, 5, lambda i, s: jnp.sin(s) * x + i * s, x).sum()",
    "nested": "lax.scan(lambda c, a: (lax.fori_loop(0, 3, lambda i, s: jnp.sin(s) * a, c), c), 1.0, x)[0]",
    "cond_true": "lax.cond(x[0] > 0, lambda y: jnp.sin(y) * x, lambda y: y * 2, x).sum()",
    "cond_false": "lax.cond(x[0] < 0, lambda y: jnp.sin(y) * x, lambda y: y**3, x).sum()",
    "switch": "lax.switch(1, [jnp.sin, lambda t: jnp.exp(t) * t, lambda t: jnp.ones_like(t)], x).sum()",
    "map": "lax.map(lambda a: jnp.sin(a) * a, x).sum()",
    "associative_scan": "lax.associative_scan(jnp.multiply, x).sum()",
}
FORWARD = {
    "while": "lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, jnp.sin(s[1]) * x), (0, x))[1].sum()",
    "while_bound": "lax.while_loop(lambda s: s[0] < x.sum() * 2, lambda s: (s[0] + 1.0, s[1] * x), (0.0, x))[1].sum()",
}


def pair(text: str) -> list[tuple[Any, Callable[[Any], Any], Any]]:
    names = [(weft, jnp, lax), (jax, jax.numpy, jax.lax)]
    return [
        (root, eval(f"lambda x: {text}", {"jnp": numpy, "lax": module, "m": numpy.asarray(M)}), numpy.asarray(X))
        for root, numpy, module in names
    ]


def assert_close(ours: Any, theirs: Any) -> None:
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=3e-5, atol=3e-6)


@pytest.mark.oracle
@pytest.mark.parametrize("name", SCALARS)
def test_derivatives_are_jax_s(name: str) -> None:
    (ours, f, x), (theirs, g, y) = pair(SCALARS[name])
    expected = theirs.grad(g)(y)
    assert_close(ours.grad(f)(x), expected)
    assert_close(ours.jit(ours.grad(f))(x), expected)
    assert_close(ours.grad(ours.jit(f))(x), expected)
    assert_close(ours.jacfwd(f)(x), expected)
    assert_close(ours.vmap(ours.grad(f))(jnp.stack([x, x / 2]))[0], expected)
    assert_close(ours.hessian(f)(x), theirs.hessian(g)(y))
    assert_close(ours.jvp(f, (x,), (x,))[1], theirs.jvp(g, (y,), (y,))[1])


@pytest.mark.oracle
@pytest.mark.parametrize("name", FORWARD)
def test_loops_without_a_length_go_forward_only(name: str) -> None:
    (ours, f, x), (theirs, g, y) = pair(FORWARD[name])
    assert_close(ours.jvp(f, (x,), (x,))[1], theirs.jvp(g, (y,), (y,))[1])
    assert_close(ours.jit(lambda x: ours.jvp(f, (x,), (x,))[1])(x), theirs.jvp(g, (y,), (y,))[1])
    with pytest.raises(ValueError, match=r"Reverse-mode differentiation does not work for lax.while_loop"):
        ours.grad(f)(x)


def test_the_gradient_of_a_long_scan_of_many_leaves() -> None:
    """60 scalars of state: the backward pass is one more loop, not one equation a step."""

    def f(x: Any) -> Any:
        state = [x * (k + 1) for k in range(60)]
        step = lambda s, _: ([0.9 * a + 0.1 * b for a, b in zip(s, [*s[1:], s[0]], strict=True)], None)
        return sum(lax.scan(step, state, None, length=50)[0])

    assert abs(float(weft.grad(f)(1.0)) - sum(range(1, 61))) < 0.1
    assert str(weft.make_jaxpr(weft.grad(f))(1.0)).count("scan[") == 2
