"""weft.lax.linalg against NumPy and SciPy: every operation over dtypes, batches, sizes and triangles."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
import scipy.linalg

import weft
import weft.numpy as jnp
from tests.linalg.cases import BATCHES, DTYPES, adjoint, close, definite, matrix, scattered
from weft.lax import linalg

SIZES = [1, 2, 3, 5, 8, 9, 33]
SHAPES = [(1, 1), (3, 3), (5, 3), (3, 5), (40, 40), (33, 7), (7, 33)]


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    with weft.enable_x64(True):
        yield


def eager_and_jitted(function: Any, *args: Any) -> list[np.ndarray]:
    """The results, which are the same bits from jit."""
    eager = [np.asarray(x) for x in weft.tree.leaves(function(*args))]
    jitted = [np.asarray(x) for x in weft.tree.leaves(weft.jit(function)(*args))]
    for one, other in zip(eager, jitted, strict=True):
        np.testing.assert_array_equal(one, other)
    return eager


@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_cholesky(dtype: str, batch: tuple[int, ...]) -> None:
    for n in SIZES:
        a = definite(dtype, *batch, n, n)
        (found,) = eager_and_jitted(linalg.cholesky, a)
        close(found, np.linalg.cholesky(a) if a.size else a)
        close(linalg.cholesky(scattered(a)), found)
        lower = np.tril(a) + 7 * np.triu(np.ones_like(a), 1)
        close(linalg.cholesky(lower, symmetrize_input=False), found)


@pytest.mark.parametrize("count", [1, 100])
def test_cholesky_of_indefinite_matrices_is_nan(count: int) -> None:
    a = np.stack([np.eye(3), -np.eye(3)] * count).astype("float32")
    found = np.asarray(linalg.cholesky(a))
    np.testing.assert_array_equal(found[0], np.eye(3))
    assert np.isnan(found[1][np.tril_indices(3)]).all() and (found[1][np.triu_indices(3, 1)] == 0).all()


@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_triangular_solve(dtype: str, batch: tuple[int, ...]) -> None:
    for n, k in itertools.product((1, 3, 12), (1, 4)):
        a = definite(dtype, *batch, n, n)
        for left, lower, turned, conjugated, unit in itertools.product((False, True), repeat=5):
            b = matrix(dtype, *batch, *((n, k) if left else (k, n)))
            t = np.tril(a) if lower else np.triu(a)
            if unit:
                t = t / (2 * n) * (1 - np.eye(n)) + np.eye(n)
            given = np.where(np.eye(n) == 1, a, a / (2 * n)).astype(dtype) if unit else a
            op = np.swapaxes(t, -1, -2) if turned else t
            op = op.conj() if conjugated else op
            found = linalg.triangular_solve(
                given, b, left_side=left, lower=lower, transpose_a=turned, conjugate_a=conjugated, unit_diagonal=unit
            )
            close((op @ np.asarray(found) if left else np.asarray(found) @ op).astype(dtype), b)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_triangular_solve_of_halves(dtype: str) -> None:
    """As in float32, rounded once."""
    a = np.tril(np.random.default_rng(0).uniform(1, 2, (2, 4, 4)))
    a, b = jnp.asarray(a, dtype), jnp.asarray(np.arange(8.0).reshape(2, 4, 1), dtype)
    found = weft.jit(lambda a, b: linalg.triangular_solve(a, b, left_side=True, lower=True))(a, b)
    wide = [np.asarray(x.astype("float32")).astype(np.float64) for x in (a, b)]
    assert found.dtype == a.dtype
    exact, error = np.linalg.solve(*wide), 2.0 ** (-10 if dtype == "float16" else -8)
    np.testing.assert_allclose(np.asarray(found.astype("float32")), exact, rtol=error, atol=1e-12)


def test_triangular_solve_of_a_vector_and_of_many_right_hand_sides() -> None:
    a, b = definite("float64", 5, 5), matrix("float64", 5)
    close(linalg.triangular_solve(a, b, left_side=True, lower=True), scipy.linalg.solve_triangular(a, b, lower=True))
    close(linalg.triangular_solve(a, b, lower=True), scipy.linalg.solve_triangular(a.T, b, lower=False))
    many = matrix("float64", 7, 5, 2)
    mapped = weft.vmap(lambda y: linalg.triangular_solve(a, y, left_side=True))(many)
    close(mapped, np.stack([scipy.linalg.solve_triangular(a, y) for y in many]))
    turned = np.swapaxes(many, 1, 2)
    mapped = weft.vmap(lambda y: linalg.triangular_solve(a, y))(turned)
    close(mapped, np.stack([scipy.linalg.solve_triangular(a.T, y.T, lower=True).T for y in turned]))


def test_a_zero_on_the_diagonal_divides() -> None:
    a = np.array([[0.0, 1], [0, 2]])
    found = np.asarray(linalg.triangular_solve(a, np.ones((2, 1)), left_side=True))
    assert np.isinf(found[0, 0]) and found[1, 0] == 0.5


@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_lu(dtype: str, batch: tuple[int, ...]) -> None:
    for m, n in [*SHAPES, (4, 8), (8, 4)]:
        a = matrix(dtype, *batch, m, n)
        lu, pivots, order = eager_and_jitted(linalg.lu, a)
        assert pivots.dtype == order.dtype == np.int32 and pivots.shape == (*batch, min(m, n))
        k = min(m, n)
        left = np.tril(lu, -1)[..., :k] + np.eye(m, k)
        close((left @ np.triu(lu)[..., :k, :]).astype(dtype), np.take_along_axis(a, order[..., None], -2))
        np.testing.assert_array_equal(linalg.lu_pivots_to_permutation(pivots, m), order)
        assert (np.abs(np.tril(lu, -1)) <= (1.0 if lu.dtype.kind == "f" else 1.42) + 1e-6).all()


def test_lu_chooses_pivots_as_lapack_does() -> None:
    a = matrix("float32", 200, 4, 4)
    a[:50, :, 0] = 0
    a[50:100] = np.sign(a[50:100])  # many equal sizes
    lu, pivots, _ = linalg.lu(a)
    for i in range(200):
        expected = scipy.linalg.lapack.sgetrf(a[i])
        np.testing.assert_array_equal(pivots[i], expected[1])
        np.testing.assert_allclose(lu[i], expected[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch", BATCHES[:4], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_qr(dtype: str, batch: tuple[int, ...]) -> None:
    for (m, n), full, pivoting in itertools.product(SHAPES, (False, True), (False, True)):
        a = matrix(dtype, *batch, m, n)
        q, r, *order = eager_and_jitted(lambda x, f=full, p=pivoting: linalg.qr(x, full_matrices=f, pivoting=p), a)
        k = m if full else min(m, n)
        assert q.shape == (*batch, m, k) and r.shape == (*batch, k, n)
        close((q @ r).astype(dtype), np.take_along_axis(a, order[0][..., None, :], -1) if order else a)
        close((adjoint(q) @ q).astype(dtype), np.broadcast_to(np.eye(k, dtype=dtype), (*batch, k, k)))
        assert (np.tril(r, -1) == 0).all()
        if order:
            sizes = np.abs(np.diagonal(r, axis1=-2, axis2=-1))
            assert (sizes[..., 1:] <= sizes[..., :-1] * 1.001).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_reflectors(dtype: str) -> None:
    a = matrix(dtype, 2, 6, 4)
    raw, taus = weft.numpy.linalg.qr(a, mode="raw")
    reflectors = np.swapaxes(np.asarray(raw), -1, -2)
    q = np.asarray(linalg.qr(a)[0])
    close(linalg.householder_product(reflectors, taus), q[..., :4])
    wide = np.concatenate([reflectors, np.zeros((2, 6, 2), dtype)], -1)
    close(linalg.householder_product(wide, taus), q)
    for left, turned in itertools.product((False, True), repeat=2):
        c = matrix(dtype, 2, 6, 3) if left else matrix(dtype, 2, 3, 6)
        op = adjoint(q) if turned else q
        close(
            linalg.ormqr(reflectors, taus, c, left=left, transpose=turned), (op @ c if left else c @ op).astype(dtype)
        )


@pytest.mark.parametrize("batch", BATCHES[:4], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_eigh(dtype: str, batch: tuple[int, ...]) -> None:
    for n in SIZES:
        a = definite(dtype, *batch, n, n)
        v, w = eager_and_jitted(linalg.eigh, a)
        close(w, np.linalg.eigvalsh(a) if a.size else w)
        close((a @ v).astype(dtype), v * w[..., None, :].astype(dtype))
        close((adjoint(v) @ v).astype(dtype), np.broadcast_to(np.eye(n, dtype=dtype), a.shape))
        for lower in (False, True):
            other = (np.tril if lower else np.triu)(a) + 3 * (np.triu if lower else np.tril)(
                np.ones_like(a), 1 if lower else -1
            )
            close(linalg.eigh(other, lower=lower, symmetrize_input=False)[1], w)


def test_eigh_of_a_range() -> None:
    a = definite("float64", 3, 6, 6)
    v, w = linalg.eigh(a)
    some_v, some_w = linalg.eigh(a, subset_by_index=(1, 4))
    close(some_w, w[:, 1:4])
    close(some_v, v[:, :, 1:4])
    assert linalg.eigh(a, subset_by_index=(2, 2))[1].shape == (3, 0)
    with pytest.raises(ValueError, match=r"\(1, 9\) is no range"):
        linalg.eigh(a, subset_by_index=(1, 9))


@pytest.mark.parametrize("algorithm", [None, linalg.SvdAlgorithm.QR], ids=str)
@pytest.mark.parametrize("batch", BATCHES[:4], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_svd(dtype: str, batch: tuple[int, ...], algorithm: Any) -> None:
    for (m, n), full in itertools.product(SHAPES, (False, True)):
        a = matrix(dtype, *batch, m, n)
        u, s, vt = eager_and_jitted(lambda x, f=full: linalg.svd(x, full_matrices=f, algorithm=algorithm), a)
        k = min(m, n)
        close((u[..., :k] * s[..., None, :].astype(dtype)) @ vt[..., :k, :], a)
        close(
            (adjoint(u) @ u).astype(dtype),
            np.broadcast_to(np.eye(u.shape[-1], dtype=dtype), (*batch, *u.shape[-1:] * 2)),
        )
        close(
            (vt @ adjoint(vt)).astype(dtype),
            np.broadcast_to(np.eye(vt.shape[-2], dtype=dtype), (*batch, *vt.shape[-2:-1] * 2)),
        )
        close(s, np.linalg.svd(a, compute_uv=False) if a.size else s)
        close(linalg.svd(a, compute_uv=False, algorithm=algorithm), s)


@pytest.mark.parametrize("batch", BATCHES[:4], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_eig(dtype: str, batch: tuple[int, ...]) -> None:
    for n in (1, 2, 5, 20):
        a = matrix(dtype, *batch, n, n)
        w, left, right = eager_and_jitted(linalg.eig, a)
        complex_ = np.result_type(dtype, "complex64")
        assert w.dtype == left.dtype == right.dtype == complex_
        close((a @ right).astype(complex_), right * w[..., None, :], 10)
        close((adjoint(left) @ a).astype(complex_), w[..., :, None] * adjoint(left), 10)
        np.testing.assert_allclose(np.linalg.norm(right, axis=-2), 1, rtol=1e-5)
        values = np.asarray(linalg.eig(a, compute_left_eigenvectors=False, compute_right_eigenvectors=False)[0])
        close(np.sort_complex(values), np.sort_complex(w), 10)


@pytest.mark.parametrize("dtype", DTYPES)
def test_schur_hessenberg_and_tridiagonal(dtype: str) -> None:
    for n in (1, 2, 6):
        a, h = matrix(dtype, 2, n, n), definite(dtype, 2, n, n)
        t, z = eager_and_jitted(linalg.schur, a)
        close((z @ t @ adjoint(z)).astype(dtype), a)
        assert (np.tril(t, -1 if np.dtype(dtype).kind == "c" else -2) == 0).all()
        alone = np.asarray(linalg.schur(a, compute_schur_vectors=False)[0])
        close(np.trace(alone, axis1=1, axis2=2), np.trace(t, axis1=1, axis2=2), 10)
        made, taus = eager_and_jitted(linalg.hessenberg, a)
        h0, q = np.triu(made, -1), np.broadcast_to(np.eye(n, dtype=dtype), a.shape).copy()
        if n > 1:
            q[:, 1:, 1:] = linalg.householder_product(made[:, 1:, :-1], taus)
        close(q @ h0 @ adjoint(q), a)
        for lower in (False, True):
            _, d, e, _ = eager_and_jitted(lambda x, low=lower: linalg.tridiagonal(x, lower=low), h)
            for i in range(2):
                whole = np.diag(d[i]) + np.diag(e[i], 1) + np.diag(e[i], -1)
                close(np.linalg.eigvalsh(whole), np.linalg.eigvalsh(h[i]).astype(whole.dtype))


@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_tridiagonal_solve(dtype: str, batch: tuple[int, ...]) -> None:
    for n in (1, 2, 9):
        dl, d, du = matrix(dtype, *batch, n), matrix(dtype, *batch, n) + 5, matrix(dtype, *batch, n, seed=1)
        b = matrix(dtype, *batch, n, 3)
        x = np.asarray(linalg.tridiagonal_solve(dl, d.astype(dtype), du, b))
        made = d[..., None] * x
        made[..., 1:, :] += dl[..., 1:, None] * x[..., :-1, :]
        made[..., :-1, :] += du[..., :-1, None] * x[..., 1:, :]
        close(made.astype(dtype), b)
    assert np.isnan(np.asarray(linalg.tridiagonal_solve(*np.zeros((3, 2)), np.ones((2, 1))))).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_perturbed_tridiagonal_solve(dtype: str) -> None:
    """Singular and regular systems, as JAX's; the reference that other backends run gives the same."""
    rng = np.random.default_rng(3)
    tiny = 2.0**-120 if "32" in dtype or dtype == "complex64" else 2.0**-1000
    turn = np.exp(0.7j) if "complex" in dtype else 1.0
    systems = [
        (np.ones(2), np.ones(2), np.ones(2)),
        (np.zeros(3), np.zeros(3), np.zeros(3)),
        (np.ones(3), np.array([1.0, 2.0, 1.0]) * turn, np.ones(3)),
        (np.ones(3), np.array([1.0, 0.0, 1.0]), np.zeros(3)),
        (tiny * np.ones(2), tiny * np.ones(2) * turn, tiny * np.ones(2)),
        (np.zeros(1), np.array([-1e-30]), np.zeros(1)),
        (np.ones(2), np.array([np.nan, 1.0]), np.ones(2)),
        (-np.ones(6), np.array([1, 2, 2, 2, 2, 1.0]), -np.ones(6)),
        *[tuple(rng.standard_normal((3, n)) * turn) for n in (1, 2, 7, 20)],
    ]
    with weft.enable_x64(True), jax.enable_x64(True), np.errstate(all="ignore"):
        for diagonals in systems:
            b = rng.standard_normal((len(diagonals[0]), 3))
            args = [np.asarray(x).astype(dtype) for x in (*diagonals, b)]
            found = np.asarray(linalg.tridiagonal_solve(*args, perturb_singular=True))
            expected = np.asarray(jax.lax.linalg.tridiagonal_solve(*args, perturb_singular=True))
            reference = linalg.tridiagonal_solve_p.kind.call(*args, perturb_singular=True)
            for one in (found, reference):
                scale = np.abs(expected).max() or 1.0
                bound = 2e-5 if found.dtype in (np.float32, np.complex64) else 1e-12
                np.testing.assert_allclose(one / scale, expected / scale, rtol=bound, atol=bound)


def test_perturbed_tridiagonal_solve_is_batched_and_differentiated() -> None:
    rng = np.random.default_rng(4)
    diagonals = rng.standard_normal((3, 2, 5)).astype(np.float32)
    b = rng.standard_normal((2, 5, 3)).astype(np.float32)
    diagonals[1] += 4

    def solve(J: Any, perturb: bool) -> Any:
        def loss(dl: Any, d: Any, du: Any, b: Any) -> Any:
            return (J.lax.linalg.tridiagonal_solve(dl, d, du, b, perturb_singular=perturb) ** 2).sum()

        return J.jit(J.vmap(J.grad(loss, argnums=(0, 1, 2, 3))))(*diagonals, b)

    for one, other, plain in zip(solve(weft, True), solve(jax, True), solve(weft, False), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(one, plain, rtol=1e-4, atol=1e-6)
    empty = linalg.tridiagonal_solve(
        *np.zeros((3, 2, 0), np.float32), np.zeros((2, 0, 3), np.float32), perturb_singular=True
    )
    assert empty.shape == (2, 0, 3)


@pytest.mark.parametrize("dtype", DTYPES[:2])
def test_updates(dtype: str) -> None:
    a, w = definite(dtype, 3, 5, 5), matrix(dtype, 3, 5)
    r = np.swapaxes(np.linalg.cholesky(a), -1, -2)
    (made,) = eager_and_jitted(linalg.cholesky_update, r, w)
    close(np.swapaxes(made, -1, -2) @ made, a + w[:, :, None] * w[:, None, :])
    assert (np.tril(made, -1) == 0).all()
    b = matrix(dtype, 3, 5, 2)
    close(linalg.symmetric_product(b, a, alpha=2.0, beta=0.5), 2 * b @ np.swapaxes(b, 1, 2) + a / 2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_polar_factors(dtype: str) -> None:
    a = matrix(dtype, 6, 4)
    u, h, steps, converged = linalg.qdwh(a)
    expected = scipy.linalg.polar(a)
    close(u, expected[0])
    close(h, expected[1])
    assert bool(converged) and 2 < int(steps) <= 10


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_nothing_crashes_on_nan_and_infinities(dtype: str, value: float) -> None:
    a = definite(dtype, 2, 6, 6)
    a[0, 2, 1] = a[0, 1, 2] = value
    for function in (linalg.eigh, linalg.eig, linalg.svd, linalg.schur):
        for x in function(a):
            assert np.isnan(np.asarray(x)[0]).all() and np.isfinite(np.asarray(x)[1]).all()
    for function in (linalg.lu, linalg.qr, linalg.hessenberg, linalg.tridiagonal, linalg.cholesky):
        for x in weft.tree.leaves(function(a)):
            assert np.isfinite(np.asarray(x)[1]).all()


@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0), (0, 3, 3), (0, 3), (3, 0), (2, 3, 0)], ids=str)
def test_empty_matrices(shape: tuple[int, ...]) -> None:
    a = np.zeros(shape, "float32")
    *batch, m, n = shape
    q, r = linalg.qr(a)
    close(q, np.broadcast_to(np.eye(m, dtype="float32"), (*batch, m, m)))
    assert r.shape == shape
    u, s, vt = linalg.svd(a)
    assert (u.shape, s.shape, vt.shape) == ((*batch, m, m), (*batch, min(m, n)), (*batch, n, n))
    lu, pivots, order = linalg.lu(a)
    assert lu.shape == shape and pivots.shape == (*batch, min(m, n))
    np.testing.assert_array_equal(order, np.broadcast_to(np.arange(m), (*batch, m)))
    if m == n:
        for function in (linalg.cholesky, linalg.eigh, linalg.eig, linalg.schur):
            for x in weft.tree.leaves(function(a)):
                assert x.size == 0


MAPPED = [
    (linalg.cholesky, 1), (linalg.lu, 1), (linalg.qr, 1), (linalg.eigh, 1), (linalg.svd, 1), (linalg.eig, 1),
    (linalg.schur, 1), (linalg.hessenberg, 1), (linalg.tridiagonal, 1), (linalg.triangular_solve, 2),
    (linalg.cholesky_update, 3), (linalg.symmetric_product, 2),
]  # fmt: skip


@pytest.mark.parametrize(("function", "operands"), MAPPED, ids=lambda x: getattr(x, "__name__", ""))
def test_vmap_is_a_loop(function: Any, operands: int) -> None:
    a, b = definite("float64", 3, 4, 4), definite("float64", 3, 4, 4)[:, ::-1]
    args = {1: (a,), 2: (a, b), 3: (a, b[:, 0])}[operands]
    for axes in [(0,) * len(args), *([(0, None), (None, 0)] if len(args) == 2 else [])]:
        given = [x if axis == 0 else x[0] for x, axis in zip(args, axes, strict=True)]
        found = weft.tree.leaves(weft.vmap(function, axes)(*given))
        each = [
            weft.tree.leaves(function(*[x[i] if axis == 0 else x for x, axis in zip(given, axes, strict=True)]))
            for i in range(3)
        ]
        for one, column in zip(found, zip(*each, strict=True), strict=True):
            np.testing.assert_allclose(one, np.stack([np.asarray(x) for x in column]), rtol=1e-12, atol=1e-12)


BAD = [
    (lambda: linalg.cholesky(np.ones((2, 3), "f"), symmetrize_input=False), ValueError, "square matrix"),
    (lambda: linalg.cholesky(np.ones((2, 3), "f")), ValueError, "square matrix"),
    (lambda: linalg.eigh(np.ones((2, 3), "f")), ValueError, "square matrix"),
    (lambda: linalg.cholesky(np.ones((2, 2), "i"), symmetrize_input=False), TypeError, "does not accept dtype int32"),
    (lambda: linalg.lu(np.ones(3, "f")), TypeError, "rank at least 2"),
    (lambda: linalg.lu(np.ones((3, 3), np.float16)), NotImplementedError, "float32, float64, complex64"),
    (lambda: linalg.eig(np.ones((2, 3), "f")), ValueError, "square matrix"),
    (lambda: linalg.schur(np.ones((2, 3), "f")), ValueError, "square matrix"),
    (lambda: linalg.schur(np.ones((2, 2), "f"), sort_eig_vals=True), NotImplementedError, "sort"),
    (lambda: linalg.tridiagonal(np.ones((0, 0), "f")), ValueError, "square matrix"),
    (lambda: linalg.hessenberg(np.ones((2, 3), "f")), ValueError, "n, n"),
    (lambda: linalg.triangular_solve(np.ones((2, 2), "f"), np.ones((3, 2), "f"), left_side=True), ValueError, "shapes"),
    (lambda: linalg.triangular_solve(np.ones((2, 2), "f"), np.ones((2, 2), "d")), TypeError, "dtypes"),
    (lambda: linalg.householder_product(np.ones((2, 3), "f"), np.ones(2, "f")), ValueError, "rows as columns"),
    (lambda: linalg.ormqr(np.ones((3, 2), "f"), np.ones(2, "f"), np.ones((2, 2), "f")), ValueError, "ormqr"),
    (lambda: linalg.lu_pivots_to_permutation(np.zeros(3, "i"), 2), ValueError, "permutation size 2"),
    (lambda: linalg.cholesky_update(np.eye(3, dtype="f"), np.ones(2, "f")), ValueError, "Rank-1"),
    (lambda: linalg.tridiagonal_solve(np.ones(3), np.ones(2), np.ones(3), np.ones((3, 1))), TypeError, "same shape"),
    (lambda: linalg.svd(np.ones((3, 3), "f"), algorithm=linalg.SvdAlgorithm.JACOBI), NotImplementedError, "CPU"),
    (lambda: linalg.eigh(np.eye(3), implementation=linalg.EighImplementation.QDWH), NotImplementedError, "CPU"),
    (lambda: linalg.qdwh(np.ones((2, 3), "f")), ValueError, "M >= N"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "text"), BAD)
def test_errors(call: Any, error: Any, text: str | None) -> None:
    with pytest.raises(error, match=text):
        call()
