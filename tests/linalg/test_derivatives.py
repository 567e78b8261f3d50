"""Derivatives of linear algebra: both modes to second order against differences, and conventions against JAX."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.linalg.cases import definite, matrix
from weft import lax
from weft.scipy import linalg as scipy_linalg
from weft.test_util import check_grads

wnl, wll = jnp.linalg, lax.linalg
TYPES = ["float64", "complex128"]


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    with weft.enable_x64(True), jax.enable_x64(True):
        yield


def _rebuilt(f: Any, x: Any) -> Any:
    """A function of eigenvalues, put together again: free of what eigenvectors leave open."""
    w, v = wnl.eigh(x)
    return (v * f(w)[..., None, :]) @ jnp.conj(jnp.matrix_transpose(v))


def _rebuilt_svd(x: Any) -> Any:
    u, s, vh = wnl.svd(x, full_matrices=False)
    return (u * jnp.sin(s)[..., None, :]) @ vh


SQUARE = {
    "eigvalsh": (wnl.eigvalsh, True), "eigh": (functools.partial(_rebuilt, jnp.sin), True),
    "cholesky": (wnl.cholesky, True), "cholesky_upper": (functools.partial(wnl.cholesky, upper=True), True),
    "inv": (wnl.inv, False), "det": (wnl.det, False), "logdet": (lambda x: wnl.slogdet(x)[1], False),
    "logdet_qr": (lambda x: wnl.slogdet(x, method="qr")[1], "real"), "lu": (lambda x: wll.lu(x)[0], False),
    "eigvals": (wnl.eigvals, False), "power": (lambda x: wnl.matrix_power(x, -2), False),
    "condition": (wnl.cond, False), "expm": (lambda x: scipy_linalg.expm(x / 3), False),
    "solve_pos": (lambda x: scipy_linalg.solve((x + jnp.conj(x.mT)) / 2, x, assume_a="pos"), True),
}  # fmt: skip


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("name", SQUARE)
@pytest.mark.parametrize("dtype", TYPES)
def test_functions_of_square_matrices(dtype: str, name: str, n: int) -> None:
    function, wants = SQUARE[name]
    if wants == "real" and dtype != "float64":
        pytest.skip("defined for real matrices")  # slogdet raises NotImplementedError
    a = definite(dtype, 2, n, n) if wants is True else matrix(dtype, 2, n, n)
    check_grads(function, (a,), 2, ("fwd", "rev"), atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4)], ids=str)
@pytest.mark.parametrize("dtype", TYPES)
def test_functions_of_any_matrices(dtype: str, shape: tuple[int, int]) -> None:
    a = matrix(dtype, 2, *shape)
    thin = [
        _rebuilt_svd, wnl.svdvals, wnl.pinv, wnl.qr, lambda x: wnl.qr(x, mode="complete"), lambda x: wll.lu(x)[0],
        lambda x: wll.qr(x, pivoting=True, full_matrices=False)[:2], lambda x: wnl.norm(x, 2, axis=(1, 2)),
    ]  # fmt: skip
    for function in thin:
        check_grads(function, (a,), 2, ("fwd", "rev"), atol=2e-4, rtol=2e-4)
    check_grads(lambda x, y: wnl.lstsq(x, y)[0], (a[0], matrix(dtype, shape[0], 2)), 2, ("fwd", "rev"), rtol=2e-4)


@pytest.mark.parametrize("dtype", TYPES)
def test_systems(dtype: str) -> None:
    a, h, b = matrix(dtype, 2, 3, 3), definite(dtype, 2, 3, 3), matrix(dtype, 2, 3, 2)
    check = functools.partial(check_grads, modes=("fwd", "rev"), atol=2e-4, rtol=2e-4)
    check(wnl.solve, (a, b), 2)
    check(wnl.solve, (a[0], b[0, :, 0]), 2)
    check(lambda x, y: scipy_linalg.lu_solve(scipy_linalg.lu_factor(x), y), (a, b), 2)
    check(lambda x, y: scipy_linalg.cho_solve(scipy_linalg.cho_factor((x + jnp.conj(x.mT)) / 2), y), (h, b), 2)
    diagonals = [matrix(dtype, 2, 3), matrix(dtype, 2, 3) + 5, matrix(dtype, 2, 3, seed=1)]
    check(wll.tridiagonal_solve, (*diagonals, b), 2)
    for left, lower, turned, unit in itertools.product((False, True), repeat=4):
        solve = functools.partial(
            wll.triangular_solve, left_side=left, lower=lower, transpose_a=turned, unit_diagonal=unit
        )
        check(solve, (h, b if left else np.swapaxes(b, 1, 2)), 2)
        check(functools.partial(solve, conjugate_a=True), (h, b if left else np.swapaxes(b, 1, 2)), 1)


def test_updates() -> None:
    r, w = np.linalg.cholesky(definite("float64", 4, 4)).T.copy(), matrix("float64", 4)
    check_grads(lambda r, w: wll.cholesky_update(jnp.triu(r), w), (r, w), 2, ("fwd", "rev"))
    check_grads(lambda a, c: wll.symmetric_product(a, c, alpha=2.0, beta=0.5), (matrix("float64", 4, 3), r), 2)


def test_vectors_where_they_are_asked_for() -> None:
    a = matrix("float64", 4, 4)
    check_grads(lambda x: wll.eig(x, enable_eigvec_derivs=True), (a,), 1, ("fwd",), rtol=1e-4)
    with pytest.raises(NotImplementedError, match="enable_eigvec_derivs"):
        weft.jvp(wll.eig, (a,), (a,))
    with pytest.raises(NotImplementedError, match="full matrices"):
        weft.jvp(wnl.svd, (matrix("float64", 4, 3),), (matrix("float64", 4, 3),))
    with pytest.raises(NotImplementedError, match="partial"):
        weft.jvp(lambda x: wll.eigh(x, subset_by_index=(0, 2)), (a,), (a,))


SAME = [
    ("cholesky", lambda np_, x: np_.linalg.cholesky(x)), ("eigh", lambda np_, x: np_.linalg.eigh(x)),
    ("det", lambda np_, x: np_.linalg.det(x)), ("slogdet", lambda np_, x: np_.linalg.slogdet(x)),
    ("qr", lambda np_, x: np_.linalg.qr(x)), ("complete", lambda np_, x: np_.linalg.qr(x, mode="complete")),
    ("svd", lambda np_, x: np_.linalg.svd(x, full_matrices=False)), ("pinv", lambda np_, x: np_.linalg.pinv(x)),
    ("inv", lambda np_, x: np_.linalg.inv(x)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "function"), SAME, ids=[name for name, _ in SAME])
@pytest.mark.parametrize("dtype", TYPES)
def test_tangents_are_jaxs(dtype: str, name: str, function: Any) -> None:
    """With its conventions: symmetrized input, the phase of vectors, ties at equal eigenvalues and zero pivots."""
    a, t = definite(dtype, 4, 4), matrix(dtype, 4, 4, seed=7)
    points = [a]
    if name in ("eigh", "svd"):
        points.append(np.diag([1.0, 1.0, 2.0, 3.0]).astype(dtype))
    if name in ("det", "svd"):
        points.append(np.diag([1.0, 3.0, 2.0, 0.0]).astype(dtype))
    for point in points:
        found = weft.jvp(functools.partial(function, jnp), (point,), (t,))
        expected = jax.jvp(functools.partial(function, jax.numpy), (point,), (t,))
        for one, other in zip(weft.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-8)
