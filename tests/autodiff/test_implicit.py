"""custom_linear_solve, custom_root, fwd_and_bwd: values, derivatives and errors beside JAX's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.lax
import jax.numpy
import numpy as np
import pytest

import weft
import weft.lax
import weft.numpy

pytestmark = pytest.mark.oracle

A = np.float32([[3.0, 1.0], [0.5, 2.0]])
B = np.float32([1.0, 2.0])
TWO, MANY = np.stack([A, A.T]), np.stack([B, -B])

Run = Callable[[Any], Any]


def iterated(m: Any) -> Any:
    """A solver whose own derivative would be that of sixty steps."""
    return lambda matvec, b: m.lax.fori_loop(0, 60, lambda i, x: x + 0.25 * (b - matvec(x)), m.numpy.zeros_like(b))


def solve(m: Any, **options: Any) -> Any:
    s = iterated(m)
    options = options or {"transpose_solve": s}
    return lambda a, b: m.lax.custom_linear_solve(lambda x: a @ x, b, s, **options)


def symmetric(m: Any) -> Any:
    return lambda a, b: m.lax.custom_linear_solve(lambda x: (a + a.T) @ x, b, iterated(m), symmetric=True)


def with_aux(m: Any) -> Any:
    s = iterated(m)
    both = lambda matvec, b: (s(matvec, b), {"steps": 60})
    return lambda a, b: m.lax.custom_linear_solve(lambda x: a @ x, b, both, transpose_solve=both, has_aux=True)


def total(f: Any) -> Any:
    return lambda a, b: (f(a, b) ** 2).sum()


def newton(m: Any) -> Any:
    return lambda f, x: m.lax.while_loop(lambda x: abs(f(x)) > 1e-6, lambda x: x - f(x) / m.grad(f)(x), x)


def root(m: Any) -> Any:
    return lambda a: m.lax.custom_root(lambda x: x**3 - a, 1.0, newton(m), lambda g, y: y / g(1.0))


def tree_root(m: Any) -> Any:
    return lambda a: m.lax.custom_root(
        lambda t: {"x": t["x"] * 2 - a}, {"x": 1.0}, lambda f, t: {"x": a / 2}, lambda g, y: {"x": y["x"] / 2}
    )["x"]


def apart(m: Any, **options: Any) -> Any:
    fwd, bwd = m.fwd_and_bwd(lambda x, y: x * m.numpy.sin(y), **options)
    y, residuals = fwd(2.0, 3.0)
    return y, bwd(residuals, 1.5)


RUNS: dict[str, Run] = {
    "value": lambda m: solve(m)(A, B),
    "tree": lambda m: m.lax.custom_linear_solve(
        lambda t: {"a": 2 * t["a"], "b": 4 * t["b"]},
        {"a": B, "b": 1.0},
        lambda _, t: {"a": t["a"] / 2, "b": t["b"] / 4},
    ),
    "aux": lambda m: with_aux(m)(A, B),
    "jvp": lambda m: m.jvp(solve(m), (A, B), (A[::-1], B * 2)),
    "jvp of b": lambda m: m.jvp(lambda b: solve(m)(A, b), (B,), (B * 2,)),
    "jvp without transpose": lambda m: m.jvp(solve(m, symmetric=False), (A, B), (A, B))[1],
    "grad": lambda m: m.grad(total(solve(m)), (0, 1))(A, B),
    "grad symmetric": lambda m: m.grad(total(symmetric(m)), (0, 1))(A, B),
    "grad aux": lambda m: m.grad(lambda a, b: with_aux(m)(a, b)[0].sum(), (0, 1))(A, B),
    "jit grad": lambda m: m.jit(m.grad(total(solve(m)), (0, 1)))(A, B),
    "hessian": lambda m: m.hessian(lambda s: total(solve(m))(A * s, B * s**3))(1.2),
    "vmap a": lambda m: m.vmap(solve(m), (0, None))(TWO, B),
    "vmap b": lambda m: m.vmap(solve(m), (None, 0))(A, MANY),
    "vmap grad": lambda m: m.vmap(m.grad(total(solve(m)), (0, 1)))(TWO, MANY),
    "grad vmap": lambda m: m.grad(lambda a, b: (m.vmap(solve(m))(a, b) ** 2).sum(), (0, 1))(TWO, MANY),
    "checkpoint": lambda m: m.grad(m.checkpoint(total(solve(m))))(A, B),
    "root": lambda m: root(m)(8.0),
    "root grad": lambda m: m.grad(root(m))(8.0),
    "root second": lambda m: m.grad(m.grad(root(m)))(8.0),
    "root jvp": lambda m: m.jvp(root(m), (8.0,), (1.0,)),
    "root vmap": lambda m: m.vmap(m.grad(root(m)))(m.numpy.asarray(np.float32([8, 27]))),
    "root jit": lambda m: m.jit(m.grad(root(m)))(8.0),
    "root tree": lambda m: m.grad(tree_root(m))(1.0),
    "fwd_and_bwd": lambda m: apart(m, argnums=(0, 1)),
    "fwd_and_bwd one": lambda m: apart(m, argnums=1),
    "fwd_and_bwd eager": lambda m: apart(m, argnums=-1, jitted=False),
}


@pytest.mark.parametrize("name", RUNS)
def test_values_are_jax_s(name: str) -> None:
    found, wanted = RUNS[name](weft), jax.jit(lambda: RUNS[name](jax))()
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-5)


def test_aux_of_a_root_beside_its_gradient() -> None:
    """JAX fails on integers beside the root."""
    numbered = lambda f, x: (newton(weft)(f, x), {"calls": 7})
    f = lambda a: weft.lax.custom_root(lambda x: x**3 - a, 1.0, numbered, lambda g, y: y / g(1.0), has_aux=True)
    slope, aux = weft.grad(f, has_aux=True)(8.0)
    assert float(slope) == pytest.approx(1 / 12, rel=1e-6) and int(aux["calls"]) == 7


def test_fwd_and_bwd_compile_once() -> None:
    fwd, bwd = weft.fwd_and_bwd(lambda x, y: (x @ y, x), argnums=(0, 1), has_aux=True)
    for scale in (1.0, 2.0):
        y, residuals, aux = fwd(A * scale, B)
        assert aux.shape == A.shape
        np.testing.assert_allclose(np.asarray(bwd(residuals, y)[1]), A.T @ (A @ B) * scale**2, rtol=1e-5)
    assert fwd.cache_info().traces == bwd.cache_info().traces == 1


WRONG: dict[str, Run] = {
    "matvec tree": lambda m: m.lax.custom_linear_solve(lambda x: (x, x), B, iterated(m)),
    "matvec shape": lambda m: m.lax.custom_linear_solve(lambda x: x[:1], B, iterated(m)),
    "solve tree": lambda m: m.lax.custom_linear_solve(lambda x: x, B, lambda _, b: (b, b)),
    "solve shape": lambda m: m.lax.custom_linear_solve(lambda x: x, B, lambda _, b: b[:1]),
    "no transpose": lambda m: m.grad(total(solve(m, symmetric=False)))(A, B),
    "no aux": lambda m: m.lax.custom_linear_solve(lambda x: x, m.numpy.asarray(B), lambda _, b: b, has_aux=True),
    "f tree": lambda m: m.lax.custom_root(lambda x: (x, x), 1.0, newton(m), lambda g, y: y),
    "root tree": lambda m: m.lax.custom_root(lambda x: x, 1.0, lambda f, x: (x, x), lambda g, y: y),
    "tangent tree": lambda m: m.grad(
        lambda a: m.lax.custom_root(lambda x: x - a, 1.0, lambda f, x: x, lambda g, y: (y, y))
    )(1.0),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_are_jax_s(name: str) -> None:
    kinds = []
    for module in (weft, jax):
        with pytest.raises((ValueError, TypeError), match=r"(must match|transpose_solve required|pair)") as caught:
            WRONG[name](module)
        kinds.append(caught.type)
    assert kinds[0] is kinds[1]
