"""weft.scipy.sparse.linalg: solutions, trees, preconditioners, starts, derivatives, bad arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.linalg.cases import DTYPES, definite, matrix
from weft.scipy.sparse import linalg
from weft.test_util import check_grads

SOLVERS = [linalg.cg, linalg.bicgstab, linalg.gmres]


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    with weft.enable_x64(True):
        yield


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_solutions(dtype: str, solver: Any) -> None:
    a = definite(dtype, 30, 30)
    if solver is not linalg.cg:
        a = (a + matrix(dtype, 30, 30) / 20).astype(dtype)
    b = matrix(dtype, 30)
    expected = np.linalg.solve(a, b)
    for given in (a, lambda x: a @ x):
        for jitted in (False, True):
            function = lambda b, given=given: solver(given, b, tol=1e-6)[0]
            found = np.asarray((weft.jit(function) if jitted else function)(b))
            assert found.dtype == dtype
            np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())
    diagonal = 1 / np.diag(a)
    found, info = solver(a, b, x0=np.ones_like(b), tol=1e-6, M=lambda x: diagonal * x)
    assert info is None
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("solver", SOLVERS)
def test_trees_and_zero(solver: Any) -> None:
    a = definite("float64", 5, 5)

    def times(x: dict[str, Any]) -> dict[str, Any]:
        whole = jnp.asarray(a) @ jnp.concatenate([x["p"], x["q"].ravel()])
        return {"p": whole[:1], "q": whole[1:].reshape(2, 2)}

    b = matrix("float64", 5)
    found = solver(times, {"p": b[:1], "q": b[1:].reshape(2, 2)}, tol=1e-10)[0]
    expected = np.linalg.solve(a, b)
    np.testing.assert_allclose(found["p"], expected[:1], rtol=1e-6)
    np.testing.assert_allclose(found["q"].ravel(), expected[1:], rtol=1e-6)
    np.testing.assert_array_equal(solver(a, np.zeros(5))[0], np.zeros(5))
    np.testing.assert_array_equal(solver(a, b, x0=expected)[0], expected)
    assert solver(a, b, maxiter=1)[0].shape == (5,)


@pytest.mark.parametrize("solver", SOLVERS)
def test_derivatives_are_those_of_the_equation(solver: Any) -> None:
    a, b = definite("float64", 4, 4), matrix("float64", 4)

    def solved(a: Any, b: Any) -> Any:
        a = (a + a.T) / 2
        return solver(a, b, tol=1e-12)[0]

    check_grads(solved, (a, b), 2, ("fwd", "rev"), atol=1e-4, rtol=1e-4)
    found = weft.vmap(lambda b: solver(a, b, tol=1e-12)[0])(np.stack([b, 2 * b]))
    np.testing.assert_allclose(found[1], 2 * np.linalg.solve(a, b), rtol=1e-6)


@pytest.mark.parametrize("solver", SOLVERS)
def test_errors(solver: Any) -> None:
    a, b = np.eye(3), np.ones(3)
    with pytest.raises(ValueError, match="square matrix"):
        solver(np.ones((3, 2)), b)
    with pytest.raises(TypeError, match="function or ndarray"):
        solver("no", b)
    with pytest.raises(ValueError, match="matching tree structure"):
        solver(a, b, x0=(b,))
    with pytest.raises(ValueError, match="matching shapes"):
        solver(a, b, x0=np.ones(2))


def test_gmres_knows_its_methods() -> None:
    with pytest.raises(ValueError, match="solve_method"):
        linalg.gmres(np.eye(2), np.ones(2), solve_method="x")
    np.testing.assert_allclose(linalg.gmres(np.eye(2), np.ones(2), solve_method="incremental")[0], 1)
    a = matrix("float64", 40, 40) / 10 + np.eye(40)
    found = linalg.gmres(a, np.ones(40), restart=15, tol=1e-8)[0]
    np.testing.assert_allclose(a @ np.asarray(found), 1, atol=1e-5)


class Operator:
    """A matrix known by its products alone."""

    def __matmul__(self, x: Any) -> Any:
        return x @ np.array([[4, 1], [1, 3]], np.float32).T


@pytest.mark.parametrize("name", ["cg", "bicgstab", "gmres"])
def test_operators_and_trees_of_numbers(name: str) -> None:
    solve = getattr(linalg, name)
    with weft.enable_x64(False):
        np.testing.assert_allclose(solve(Operator(), np.float32([5, 4]))[0], [1, 1], rtol=1e-4)
        slopes = weft.grad(lambda b: solve(Operator(), b)[0].sum())(np.float32([5, 4]))
        np.testing.assert_allclose(slopes, np.linalg.solve([[4, 1], [1, 3]], [1, 1]), rtol=1e-4)
        found, _ = solve(lambda t: {"a": 4 * t["a"] + t["b"], "b": t["a"] + 3 * t["b"]}, {"a": 5.0, "b": 4.0})
        np.testing.assert_allclose([found["a"], found["b"]], [1, 1], rtol=1e-4)
    with pytest.raises(TypeError, match="either a function or ndarray"):
        solve("matrix", np.ones(2, np.float32))
