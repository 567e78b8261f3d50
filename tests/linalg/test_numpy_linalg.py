"""weft.numpy.linalg against NumPy over dtypes, batches and arguments; printed programs against JAX's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

import weft
import weft.numpy as jnp
from tests.linalg.cases import BATCHES, DTYPES, close, definite, matrix, scattered
from weft.numpy import linalg


@pytest.fixture
def wide() -> Iterator[None]:
    with weft.enable_x64(True):
        yield


FUNCTIONS = ["inv", "det", "slogdet", "eigvalsh", "pinv", "cond", "matrix_rank", "svdvals"]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.usefixtures("wide")
def test_values(dtype: str, name: str, n: int) -> None:
    for batch in BATCHES:
        a = definite(dtype, *batch, n, n)
        if a.size == 0 and name in ("cond", "matrix_rank"):
            continue  # NumPy reduces over nothing
        expected = getattr(np.linalg, name)(a)
        for given in (a, scattered(a)):
            found = weft.jit(getattr(linalg, name))(given)
            eager = getattr(linalg, name)(given)
            parts = zip(weft.tree.leaves(found), weft.tree.leaves(eager), weft.tree.leaves(expected), strict=True)
            for one, same, other in parts:
                np.testing.assert_array_equal(one, same)
                close(
                    np.asarray(one).astype(other.dtype) if name == "matrix_rank" else one, other, 10
                ) if other.dtype.kind != "i" else np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.usefixtures("wide")
def test_solve(dtype: str) -> None:
    for n in (1, 3, 10):
        for batch in BATCHES:
            a, b = definite(dtype, *batch, n, n), matrix(dtype, *batch, n, 2)
            close(linalg.solve(a, b), np.linalg.solve(a, b), 10)
            close(linalg.solve(a, b[..., :1]), np.linalg.solve(a, b[..., :1]), 10)
        a = definite(dtype, 3, n, n)
        close(linalg.solve(a, matrix(dtype, n)), np.linalg.solve(a, matrix(dtype, n)), 10)
        close(linalg.solve(a[0], matrix(dtype, 3, n, 2)), np.linalg.solve(a[0], matrix(dtype, 3, n, 2)), 10)
        close(linalg.solve(a[:, None], matrix(dtype, 2, n, 2)), np.linalg.solve(a[:, None], matrix(dtype, 2, n, 2)), 10)


def test_integers_and_halves() -> None:
    a = np.array([[2, 1], [1, 3]])
    assert linalg.inv(a).dtype == np.float32
    np.testing.assert_allclose(linalg.inv(a), np.linalg.inv(a), rtol=1e-6)
    np.testing.assert_allclose(linalg.det(a), 5, rtol=1e-6)
    with pytest.raises(NotImplementedError, match="float32, float64"):
        linalg.cholesky(a.astype(np.float16))


@pytest.mark.usefixtures("wide")
def test_least_squares() -> None:
    for m, n in ((5, 3), (3, 5), (4, 4)):
        for dtype in ("float64", "complex128"):
            a, b = matrix(dtype, m, n), matrix(dtype, m, 2)
            found, expected = linalg.lstsq(a, b), np.linalg.lstsq(a, b)
            close(found[0], expected[0], 10)
            close(found[3], expected[3])
            assert int(found[2]) == expected[2]
            if m > n:
                close(found[1], expected[1], 10)
            exact = linalg.lstsq(a, b[:, 0], numpy_resid=True)
            assert exact[0].shape == (n,) and exact[1].size == np.linalg.lstsq(a, b[:, 0])[1].size
    low = np.outer(np.arange(1.0, 5), np.arange(1.0, 4))
    close(linalg.lstsq(low, np.ones(4))[0], np.linalg.lstsq(low, np.ones(4))[0])
    assert int(linalg.lstsq(low, np.ones(4), rcond=1e-3)[2]) == 1
    assert linalg.lstsq(np.zeros((0, 3)), np.zeros(0))[0].shape == (3,)


@pytest.mark.usefixtures("wide")
def test_the_rest() -> None:
    a = matrix("float64", 4, 3)
    for rtol in (None, 0.4):
        close(linalg.pinv(a, rtol), np.linalg.pinv(a, rtol))
        assert int(linalg.matrix_rank(a, rtol)) == np.linalg.matrix_rank(a, rtol)
    h = definite("float64", 3, 4, 4) - 1.1 * np.eye(4)
    u, s, vh = (np.asarray(x) for x in linalg.svd(h, hermitian=True))
    close((u * s[:, None]) @ vh, h)
    close(s, np.linalg.svd(h, compute_uv=False))
    close(linalg.svd(h, compute_uv=False, hermitian=True), s)
    close(linalg.pinv(h, hermitian=True), np.linalg.pinv(h), 10)
    for p in (None, 2, -2, 1, -1, np.inf, -np.inf, "fro", "nuc"):
        close(linalg.cond(h, p), np.linalg.cond(h, p), 10)
    assert np.isinf(np.asarray(linalg.cond(np.zeros((2, 2)), 1))) or np.isnan(
        np.asarray(linalg.cond(np.zeros((2, 2)), 1))
    )
    t = matrix("float64", 6, 2, 3)
    close(linalg.tensorinv(t, 1), np.linalg.tensorinv(t, 1), 10)
    close(
        linalg.tensorsolve(t.reshape(2, 3, 6), np.ones((2, 3))),
        np.linalg.tensorsolve(t.reshape(2, 3, 6), np.ones((2, 3))),
        10,
    )
    moved = np.moveaxis(t.reshape(2, 3, 6), 2, 0)
    close(linalg.tensorsolve(moved, np.ones((2, 3)), (0,)), np.linalg.tensorsolve(moved, np.ones((2, 3)), (0,)), 10)
    for n in (-3, -1, 0, 1, 5):
        close(linalg.matrix_power(h, n), np.linalg.matrix_power(h, n), 10)
    assert linalg.eig(h).eigenvalues.dtype == np.complex128
    assert linalg.qr(a, mode="r").shape == (3, 3) and linalg.qr(a, mode="raw").Q.shape == (3, 4)
    close(linalg.eigh(h, "U", symmetrize_input=False)[0], np.linalg.eigvalsh(h, "U"))


BAD = [
    (lambda: linalg.solve(np.ones((2, 3)), np.ones(2)), "m, m"),
    (lambda: linalg.solve(np.ones(3), np.ones(3)), "two dimensional"),
    (lambda: linalg.solve(np.ones((5, 3, 3)), np.ones((5, 3))), "Invalid shapes"),
    (lambda: linalg.inv(np.ones((2, 3))), "n, n"),
    (lambda: linalg.det(np.ones((2, 3))), "n, n"),
    (lambda: linalg.slogdet(np.eye(3), method="x"), "Unknown slogdet method"),
    (lambda: linalg.qr(np.eye(2), mode="x"), "mode 'x'"),
    (lambda: linalg.eigh(np.eye(2), "x"), "UPLO"),
    (lambda: linalg.cond(np.ones((0, 2))), "empty"),
    (lambda: linalg.cond(np.ones((3, 2)), 1), "square"),
    (lambda: linalg.pinv(np.eye(2), 1e-3, rcond=1e-3), "only one"),
    (lambda: linalg.matrix_rank(np.eye(2), 1e-3, tol=1e-3), "only one"),
    (lambda: linalg.tensorinv(np.ones((2, 3)), 1), "product of the first"),
    (lambda: linalg.tensorinv(np.ones((2, 3)), 0), "positive"),
    (lambda: linalg.tensorsolve(np.ones((2, 3)), np.ones(3)), "leading shape"),
    (lambda: linalg.lstsq(np.ones((3, 2)), np.ones(2)), "Leading dimensions"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "text"), BAD)
def test_errors(call: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        call()


PRINTED = [
    "lax.linalg.cholesky(a)", "lax.linalg.cholesky(a, symmetrize_input=False)", "lax.linalg.eigh(a)",
    "lax.linalg.eigh(c)", "lax.linalg.eigh(a, lower=False, symmetrize_input=False)", "lax.linalg.svd(a)",
    "lax.linalg.svd(a, full_matrices=False)", "lax.linalg.svd(a, compute_uv=False)", "lax.linalg.qr(a)",
    "lax.linalg.qr(a, pivoting=True, full_matrices=False)", "lax.linalg.lu(a)", "lax.linalg.schur(a)",
    "lax.linalg.eig(a)", "lax.linalg.eig(c, compute_left_eigenvectors=False)", "lax.linalg.hessenberg(a)",
    "lax.linalg.tridiagonal(a)", "lax.linalg.householder_product(a, v)", "lax.linalg.ormqr(a, v, a)",
    "lax.linalg.triangular_solve(a, a)", "lax.linalg.triangular_solve(a, v, left_side=True, lower=True)",
    "lax.linalg.triangular_solve(c, c, transpose_a=True, conjugate_a=True)",
    "lax.linalg.tridiagonal_solve(v, v, v, a)", "lax.linalg.cholesky_update(a, v)",
    "lax.linalg.symmetric_product(a, a)", "lax.linalg.lu_pivots_to_permutation(i, 5)",
    "jnp.linalg.cholesky(a)", "jnp.linalg.qr(a)", "jnp.linalg.qr(a, mode='r')", "jnp.linalg.svd(a)",
    "jnp.linalg.svd(a, compute_uv=False)", "jnp.linalg.eigh(a)", "jnp.linalg.eigvalsh(a)", "jnp.linalg.eigvals(a)",
    "jnp.linalg.eig(a)", "jnp.linalg.svdvals(a)",
]  # fmt: skip


def _printed(np_: Any, lax: Any, make_jaxpr: Any, text: str) -> str:
    a = np.eye(3, dtype=np.float32)
    given = {"a": a, "c": a.astype(np.complex64), "v": np.ones(3, np.float32), "i": np.zeros(3, np.int32)}
    words = [name for name in given if re.search(rf"\b{name}\b", text.split("(", 1)[1])]
    function = eval(f"lambda {', '.join(words)}: {text}", {"lax": lax, "jnp": np_})
    return re.sub(r" +\n", "\n", str(make_jaxpr(function)(*[given[name] for name in words])))


@pytest.mark.parametrize("text", PRINTED)
def test_printed_programs_are_jaxs(text: str) -> None:
    found = _printed(jnp, weft.lax, weft.make_jaxpr, text)
    assert found == _printed(jax.numpy, jax.lax, jax.make_jaxpr, text)
