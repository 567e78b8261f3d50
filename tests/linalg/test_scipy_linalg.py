"""weft.scipy.linalg against SciPy, batched against a loop, with the errors of bad arguments."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import weft
import weft.numpy as jnp
from tests.linalg.cases import DTYPES, adjoint, close, definite, matrix
from weft.scipy import linalg


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    with weft.enable_x64(True):
        yield


@pytest.mark.parametrize("dtype", DTYPES)
def test_solvers(dtype: str) -> None:
    a, h, b = matrix(dtype, 5, 5), definite(dtype, 5, 5), matrix(dtype, 5, 3)
    for right, assume in itertools.product((b, b[:, 0]), ("gen", "her", "pos")):
        for lower in (False, True):
            close(linalg.solve(h, right, assume_a=assume, lower=lower), scipy.linalg.solve(h, right), 10)
    for trans, lower, unit in itertools.product((0, 1, 2, "N", "T", "C"), (False, True), (False, True)):
        expected = scipy.linalg.solve_triangular(h, b, trans=trans, lower=lower, unit_diagonal=unit)
        close(linalg.solve_triangular(h, b, trans=trans, lower=lower, unit_diagonal=unit), expected, 10)
    for lower in (False, True):
        factor = linalg.cho_factor(h, lower=lower)
        close(linalg.cholesky(h, lower=lower), scipy.linalg.cholesky(h, lower=lower))
        close(linalg.cho_solve(factor, b), scipy.linalg.solve(h, b), 10)
        close(linalg.cho_solve(factor, b[:, 0]), scipy.linalg.solve(h, b[:, 0]), 10)
    factors = linalg.lu_factor(a)
    expected = scipy.linalg.lu_factor(a)
    close(factors[0], expected[0])
    np.testing.assert_array_equal(factors[1], expected[1])
    for trans in (0, 1, 2):
        close(linalg.lu_solve(factors, b, trans), scipy.linalg.lu_solve(expected, b, trans), 10)
    close(linalg.inv(a), scipy.linalg.inv(a), 10)
    close(linalg.det(a), np.asarray(scipy.linalg.det(a), dtype))


def test_batches_of_solvers() -> None:
    a, h, b = matrix("float64", 3, 4, 4), definite("float64", 3, 4, 4), matrix("float64", 3, 4, 2)
    each = [scipy.linalg.solve(x, y) for x, y in zip(h, b, strict=True)]
    close(linalg.solve(h, b, assume_a="pos"), np.stack(each))
    close(linalg.cho_solve(linalg.cho_factor(h), b), np.stack(each))
    close(linalg.lu_solve(linalg.lu_factor(h), b), np.stack(each))
    close(linalg.solve_triangular(a, b[0]), np.stack([scipy.linalg.solve_triangular(x, b[0]) for x in a]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        close(
            linalg.solve_triangular(a, b[..., 0]),
            np.stack([scipy.linalg.solve_triangular(x, y[:, 0]) for x, y in zip(a, b, strict=True)]),
        )
    assert [w.category for w in caught] == [FutureWarning]
    p, left, upper = linalg.lu(matrix("float64", 3, 5, 4))
    close(np.asarray(p) @ np.asarray(left) @ np.asarray(upper), matrix("float64", 3, 5, 4))


@pytest.mark.parametrize("shape", [(4, 4), (6, 3), (3, 6)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_factorizations(dtype: str, shape: tuple[int, int]) -> None:
    a = matrix(dtype, *shape)
    for found, expected in zip(linalg.lu(a), scipy.linalg.lu(a), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    for found, expected in zip(linalg.lu(a, permute_l=True), scipy.linalg.lu(a, permute_l=True), strict=True):
        close(found, expected)
    for mode, pivoting in itertools.product(("full", "economic", "r"), (False, True)):
        for found, expected in zip(
            linalg.qr(a, mode=mode, pivoting=pivoting), scipy.linalg.qr(a, mode=mode, pivoting=pivoting), strict=True
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    k, (m, _) = min(shape), shape
    for mode, conjugate, pivoting in itertools.product(("left", "right"), (False, True), (False, True)):
        c = matrix(dtype, k, 2) if mode == "left" else matrix(dtype, 2, m)
        q, r, *order = scipy.linalg.qr(a, mode="economic", pivoting=pivoting)
        q = q.conj() if conjugate else q
        found = linalg.qr_multiply(a, c, mode=mode, conjugate=conjugate, pivoting=pivoting)
        close(found[0], q @ c if mode == "left" else c @ q)
        close(found[1], r)
        one = c[:, 0] if mode == "left" else c[0]
        close(
            linalg.qr_multiply(a, one, mode=mode, conjugate=conjugate)[0].shape[0] * np.ones(1),
            [float(m if mode == "left" else k)],
        )
        assert len(found) == 2 + len(order)
    close(linalg.svd(a, compute_uv=False), scipy.linalg.svd(a, compute_uv=False))


@pytest.mark.parametrize("dtype", DTYPES)
def test_spectra(dtype: str) -> None:
    a, h = matrix(dtype, 6, 6), definite(dtype, 6, 6)
    close(linalg.eigh(h, eigvals_only=True), scipy.linalg.eigh(h, eigvals_only=True))
    w, v = linalg.eigh(h)
    close((h @ np.asarray(v)).astype(dtype), np.asarray(v) * np.asarray(w).astype(dtype))
    for output in ("real", "complex"):
        t, z = (np.asarray(x) for x in linalg.schur(a, output=output))
        close((z @ t @ adjoint(z)).real, a.real)
    t, z = (np.asarray(x) for x in linalg.rsf2csf(*linalg.schur(a)))
    close((z @ t @ adjoint(z)).astype(t.dtype), a.astype(t.dtype), 10)
    assert (np.tril(t, -1) == 0).all()
    close(adjoint(z) @ z, np.eye(6, dtype=t.dtype), 10)
    h6, q = (np.asarray(x) for x in linalg.hessenberg(a, calc_q=True))
    close(q @ h6 @ adjoint(q), a)
    assert (np.tril(h6, -2) == 0).all()
    d, e = matrix(dtype, 7), matrix(dtype, 6)
    whole = np.diag(d.real).astype(dtype) + np.diag(e, -1) + np.diag(e.conj(), 1)
    w, v = (np.asarray(x) for x in linalg.eigh_tridiagonal(d, e))
    close(w, np.linalg.eigvalsh(whole))
    close(whole @ v, v * w.astype(dtype))
    close(linalg.eigh_tridiagonal(d, e, eigvals_only=True, select="i", select_range=(1, 3)), w[1:4])


@pytest.mark.parametrize("dtype", DTYPES)
def test_polar(dtype: str) -> None:
    for shape, side in (((5, 3), "right"), ((3, 5), "left"), ((4, 4), "right")):
        a = matrix(dtype, *shape)
        for method in ("qdwh", "svd"):
            u, p = linalg.polar(a, side, method=method)
            expected = scipy.linalg.polar(a, side)
            close(u, expected[0], 10)
            close(p, expected[1], 10)
    stack = matrix(dtype, 2, 4, 3)
    close(linalg.polar(stack)[1], np.stack([scipy.linalg.polar(x)[1] for x in stack]), 10)


@pytest.mark.parametrize("scale", [0.0, 1e-3, 0.3, 3.0, 40.0])
@pytest.mark.parametrize("dtype", DTYPES)
def test_expm(dtype: str, scale: float) -> None:
    a = (scale * matrix(dtype, 5, 5)).astype(dtype)
    wide_ = a.astype(np.result_type(dtype, "float64"))
    expected = scipy.linalg.expm(wide_).astype(dtype)
    close(linalg.expm(a), expected, 100)
    upper = np.triu(a)
    close(linalg.expm(upper, upper_triangular=True), scipy.linalg.expm(np.triu(wide_)).astype(dtype), 100)
    stack = np.stack([a, 2 * a])
    close(linalg.expm(stack)[0], np.asarray(linalg.expm(a)), 10)


def test_expm_overflows_to_nan_and_has_a_derivative() -> None:
    assert np.isnan(np.asarray(linalg.expm(np.eye(2) * 1e9))).all()
    a, e = matrix("float64", 4, 4), matrix("float64", 4, 4, seed=1)
    for found, expected in zip(linalg.expm_frechet(a, e), scipy.linalg.expm_frechet(a, e), strict=True):
        close(found, expected, 10)
    with pytest.raises(ValueError, match="same shape"):
        linalg.expm_frechet(a, e[:3, :3])


@pytest.mark.parametrize("dtype", DTYPES)
def test_roots_and_functions(dtype: str) -> None:
    a = matrix(dtype, 5, 5) + 4 * np.eye(5, dtype=dtype)
    root = np.asarray(linalg.sqrtm(a))
    close(root @ root, a.astype(root.dtype), 10)
    assert np.asarray(linalg.sqrtm(np.zeros((3, 3), dtype))).any() == False  # noqa: E712 - an array's bool
    close(linalg.sqrtm(np.stack([a, a]))[1], root)
    found = np.asarray(linalg.funm(a, jnp.exp))
    expected = scipy.linalg.expm(a.astype(np.complex128))
    np.testing.assert_allclose(
        found, expected, atol=(1e-3 if dtype in ("float32", "complex64") else 1e-9) * abs(expected).max()
    )
    value, error = linalg.funm(a, jnp.exp, disp=False)
    assert float(error) < 0.1 and value.shape == (5, 5)


@pytest.mark.parametrize("method", ["schur", "eigen"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_sylvester(dtype: str, method: str) -> None:
    a, b, c = matrix(dtype, 4, 4), matrix(dtype, 3, 3), matrix(dtype, 4, 3)
    a = a + 5 * np.eye(4, dtype=dtype)
    close(linalg.solve_sylvester(a, b, c, method=method), scipy.linalg.solve_sylvester(a, b, c), 10)
    assert np.isnan(np.asarray(linalg.solve_sylvester(np.eye(2), -np.eye(2), np.ones((2, 2)), method=method))).all()


SPECIAL = [
    ("toeplitz", ([1.0, 2, 3],)), ("toeplitz", ([1.0, 2, 3], [1.0, 7])), ("toeplitz", ([1 + 2j, 3j],)),
    ("hankel", ([1.0, 2, 3],)), ("hankel", ([1.0, 2, 3], [3.0, 7, 8, 9])), ("circulant", ([1.0, 2, 3, 4],)),
    ("leslie", ([0.1, 2.0, 1.0], [0.2, 0.8])), ("companion", ([1.0, -10, 31, -30],)), ("fiedler", ([1.0, 4, 12, 45],)),
    *[("fiedler_companion", (list(np.arange(1.0, n)),)) for n in (3, 4, 5, 8)],
    *[("convolution_matrix", ([-1.0, 4, -2], n, mode)) for n in (1, 2, 5) for mode in ("full", "same", "valid")],
    *[(name, (n,)) for name in ("hilbert", "invhilbert", "pascal", "invpascal", "helmert", "dft") for n in (1, 2, 5)],
    *[(name, (4, kind)) for name in ("pascal", "invpascal") for kind in ("lower", "upper", "symmetric")],
    ("helmert", (4, True)), ("hadamard", (8,)), ("hadamard", (1,)), ("dft", (5, "n")), ("dft", (5, "sqrtn")),
    ("block_diag", ([[1.0, 2]], [[3.0]], [4.0, 5])), ("block_diag", ()),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args"), SPECIAL, ids=str)
def test_special_matrices(name: str, args: tuple[Any, ...]) -> None:
    given = [np.array(x) if isinstance(x, list) else x for x in args]
    found = np.asarray(getattr(linalg, name)(*given))
    expected = getattr(scipy.linalg, name)(*given)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected.astype(found.dtype), rtol=1e-6, atol=1e-12)


def test_special_matrices_of_batches() -> None:
    c, r = matrix("float32", 2, 3), matrix("float32", 2, 4)
    close(linalg.toeplitz(c, r), np.stack([scipy.linalg.toeplitz(x, y) for x, y in zip(c, r, strict=True)]))
    close(linalg.hankel(c, r), np.stack([scipy.linalg.hankel(x, y) for x, y in zip(c, r, strict=True)]))
    for name in ("circulant", "companion", "fiedler", "fiedler_companion"):
        close(getattr(linalg, name)(c), np.stack([getattr(scipy.linalg, name)(x) for x in c]))
    close(linalg.convolution_matrix(c, 3), np.stack([scipy.linalg.convolution_matrix(x, 3) for x in c]))


BAD = [
    (lambda: linalg.solve(np.eye(2), np.ones(2), assume_a="x"), "assume_a"),
    (lambda: linalg.solve(np.ones((2, 3)), np.ones(2), assume_a="pos"), "m, m"),
    (lambda: linalg.solve_triangular(np.eye(2), np.ones(2), trans=3), "'trans'"),
    (lambda: linalg.qr(np.eye(2), mode="x"), "mode 'x'"),
    (lambda: linalg.qr_multiply(np.eye(2), np.ones((2, 2)), mode="x"), "mode must be"),
    (lambda: linalg.qr_multiply(np.eye(2), np.ones((2, 3))), "not compatible"),
    (lambda: linalg.schur(np.eye(2), output="x"), "output"),
    (lambda: linalg.polar(np.eye(2), "x"), "side"),
    (lambda: linalg.polar(np.eye(2), method="x"), "method x"),
    (lambda: linalg.eigh_tridiagonal(np.ones(2), np.ones(1), select="x"), "select"),
    (lambda: linalg.eigh_tridiagonal(np.ones(2), np.ones(1), select="i"), "select_range"),
    (lambda: linalg.solve_sylvester(np.eye(2), np.eye(2), np.eye(3)), "Incompatible shapes"),
    (lambda: linalg.solve_sylvester(np.eye(2), np.eye(2), np.eye(2), method="x"), "Unrecognized method"),
    (lambda: linalg.expm(np.ones((2, 3))), "square"),
    (lambda: linalg.sqrtm(np.ones((2, 3))), "square"),
    (lambda: linalg.rsf2csf(np.ones((2, 3)), np.eye(2)), "'T' must be square"),
    (lambda: linalg.hadamard(3), "power of 2"),
    (lambda: linalg.dft(3, "x"), "scale"),
    (lambda: linalg.dft(3, dtype="float32"), "complex"),
    (lambda: linalg.helmert(0), "positive"),
    (lambda: linalg.pascal(3, "x"), "kind"),
    (lambda: linalg.companion(np.ones(1)), "at least 2"),
    (lambda: linalg.leslie(np.ones(2), np.ones(2)), "lengths"),
    (lambda: linalg.convolution_matrix(np.ones(2), 0), "positive"),
    (lambda: linalg.convolution_matrix(np.ones(2), 2, "x"), "mode"),
    (lambda: linalg.block_diag(np.ones((1, 1, 1))), "at most 2 dimensions"),
    (lambda: linalg.hankel(1.0), "1-dimensional"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "text"), BAD)
def test_errors(call: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        call()


def test_what_is_not_implemented_says_so() -> None:
    for call in (
        lambda: linalg.eigh(np.eye(2), np.eye(2)), lambda: linalg.eigh(np.eye(2), type=2),
        lambda: linalg.sqrtm(np.eye(2), blocksize=2), lambda: linalg.polar(np.ones((2, 3))),
        lambda: linalg.eigh_tridiagonal(np.ones(2), np.ones(1), select="v"),
    ):  # fmt: skip
        with pytest.raises(NotImplementedError):
            call()


TURN = np.array([[0.0, -1], [1, 0]])
CHAIN = np.kron(np.eye(3), TURN) + np.eye(6, k=2)  # one block of Jordan for each of i and -i
ROTATION = scipy.linalg.qr(matrix("float64", 6, 6))[0]
FORMS = {
    "random": matrix("float64", 7, 7), "one": matrix("float64", 1, 1), "two": TURN, "defective": CHAIN,
    "defective, turned": ROTATION @ CHAIN @ ROTATION.T, "of Jordan": 2 * np.eye(4) + np.eye(4, k=1),
    "equal blocks": scipy.linalg.block_diag(TURN, TURN) + np.triu(np.ones((4, 4)), 2),
    "mixed blocks": scipy.linalg.block_diag(3.0, TURN, 2 * TURN, -1.0), "zeros": np.zeros((3, 3)),
    "large": 1e200 * matrix("float64", 4, 4), "small": 1e-200 * matrix("float64", 4, 4),
    "far apart": np.array([[1, 1e8], [-1e-8, 1]]), "nearly real": np.array([[1, 1e-12], [-1e-12, 1]]),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_complex_schur_forms_are_factorizations(name: str) -> None:
    a = FORMS[name]
    form, vectors = scipy.linalg.schur(a)
    t, z = [np.asarray(x) for x in linalg.rsf2csf(form, vectors)]
    scale = np.abs(a).max(initial=1e-300)
    np.testing.assert_array_equal(np.tril(t, -1), 0)
    np.testing.assert_allclose(z @ (t / scale) @ adjoint(z), a / scale, atol=1e-13)
    np.testing.assert_allclose(z @ adjoint(z), np.eye(len(a)), atol=1e-13)


@pytest.mark.parametrize("name", ["random", "two", "mixed blocks"])
def test_functions_of_real_schur_forms(name: str) -> None:
    form = scipy.linalg.schur(FORMS[name])[0]
    np.testing.assert_allclose(linalg.funm(form, jnp.exp), scipy.linalg.expm(form), atol=1e-10)
    np.testing.assert_allclose(linalg.funm(form, lambda x: x * x), form @ form, atol=1e-10)
