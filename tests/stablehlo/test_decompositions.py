"""Decompositions of matrices as programs of loops, run by jaxlib: their defining equations, and NumPy's values."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.export
import numpy as np
import pytest

import weft
import weft.lax as lax
import weft.numpy as jnp
from weft import export, stablehlo
from weft.operations.linalg.qr import factored
from weft.stablehlo import factorizations

pytest.importorskip("jaxlib", reason="StableHLO is run by jaxlib")

from tests.stablehlo import running

RNG = np.random.default_rng(0)


def matrix(*shape: int, complex: bool = False) -> np.ndarray:
    x = RNG.normal(size=shape)
    return (x + 1j * RNG.normal(size=shape)).astype(np.complex64) if complex else x.astype(np.float32)


def adjoint(x: np.ndarray) -> np.ndarray:
    return np.swapaxes(x.conj(), -1, -2)


def near(x: Any, y: Any) -> None:
    np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-4)


def orthonormal(x: np.ndarray) -> None:
    near(adjoint(x) @ x, np.broadcast_to(np.eye(x.shape[-1]), (*x.shape[:-2], x.shape[-1], x.shape[-1])))


@pytest.mark.parametrize("complex", [False, True])
def test_decompositions(complex: bool) -> None:
    square, tall, wide = (matrix(*shape, complex=complex) for shape in ((2, 4, 4), (5, 3), (3, 5)))
    hermitian = square + adjoint(square)
    flat = np.outer(np.arange(1, 5), np.arange(4)).astype(square.dtype)  # of rank 1
    cases = {
        "solve": (lambda a: jnp.linalg.solve(a, a @ a), square),
        "eigh": (lambda a: tuple(jnp.linalg.eigh(a)), hermitian),
        "qr": (lambda a: tuple(jnp.linalg.qr(a, mode="complete")), tall),
        "svd": (lambda a: tuple(jnp.linalg.svd(a, full_matrices=False)), wide),
    }
    if not complex:
        cases |= {
            "det": (jnp.linalg.det, square),
            "lu": (lax.linalg.lu, wide),
            "full": (lambda a: tuple(jnp.linalg.svd(a)), tall),
            "low": (lambda a: tuple(jnp.linalg.svd(a)), flat),
        }
    results = running.together([f for f, _ in cases.values()], [[a] for _, a in cases.values()])
    found = dict(zip(cases, results, strict=True))
    near(found["solve"][0], square)
    values, vectors = found["eigh"]
    near(values, np.linalg.eigvalsh(hermitian))
    near(hermitian @ vectors, vectors * values[..., None, :])
    q, r = found["qr"]
    near(q @ r, tall)
    orthonormal(q)
    near(r, np.triu(r))
    for name in {"svd", "full", "low"} & set(found):
        (u, s, vt), a = found[name], cases[name][1]
        near((u[..., : len(s)] * s) @ vt[: len(s)], a)
        near(s, np.linalg.svd(a)[1])
        orthonormal(u)
        orthonormal(adjoint(vt))
    if not complex:
        near(found["det"][0], np.linalg.det(square))
        factors, pivots, order = found["lu"]
        near((np.tril(factors[:, :3], -1) + np.eye(3)) @ np.triu(factors), wide[order])
        assert pivots.dtype == order.dtype == np.int32


@pytest.mark.parametrize("complex", [False, True])
def test_entries_whose_squares_are_no_numbers(complex: bool) -> None:
    scales = np.array([1e-25, 1e25, 0], np.float32)[:, None, None]
    a = matrix(3, 3, complex=complex)
    stacked = scales * (a + adjoint(a))
    functions: list[Any] = [lambda a: tuple(jnp.linalg.eigh(a)), lambda a: tuple(jnp.linalg.qr(a))]
    functions.append(lambda a: tuple(jnp.linalg.svd(a)))
    (values, vectors), (q, r), (u, s, vt) = running.together(functions, [[stacked]] * 3)
    unit = np.where(scales == 0, 1, scales)
    near(values / unit[..., 0], np.linalg.eigvalsh(stacked.astype(np.complex128)) / unit[..., 0])
    near(s / unit[..., 0], np.linalg.svd(stacked.astype(np.complex128))[1] / unit[..., 0])
    near((vectors * (values / unit[..., 0])[:, None]) @ adjoint(vectors), stacked / unit)
    near(q @ (r / unit), stacked / unit)
    near((u * (s / unit[..., 0])[:, None]) @ vt, stacked / unit)
    for basis in (vectors, q, u, vt):
        orthonormal(basis)


@pytest.mark.parametrize("complex", [False, True])
def test_factorizations_by_blocks(complex: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three blocks, the last one not full; the triangle that is not read is NaN."""
    monkeypatch.setattr(factorizations, "BLOCK", 4)
    square, tall, wide = (matrix(*shape, complex=complex) for shape in ((10, 10), (11, 6), (6, 11)))
    positive = square @ adjoint(square) + 10 * np.eye(10, dtype=np.float32)
    lower = np.where(np.tri(10, dtype=bool), positive, np.nan).astype(positive.dtype)
    factor, failed = np.linalg.cholesky(positive), -positive
    qr = functools.partial(jnp.linalg.qr, mode="complete")
    cases = [
        (lax.linalg.cholesky, lower), (lax.linalg.cholesky, failed), (lax.linalg.lu, square), (lax.linalg.lu, tall),
        (lax.linalg.lu, wide), (factored, tall), (qr, square), (qr, tall), (qr, wide),
    ]  # fmt: skip
    functions: list[Any] = [
        functools.partial(f, symmetrize_input=False) if f is lax.linalg.cholesky else f for f, _ in cases
    ]
    (found,), (nans,), *rest = running.together(functions, [[a] for _, a in cases])
    near(found, factor)
    np.testing.assert_array_equal(np.isnan(nans), np.tri(10, dtype=bool))
    for (factors, pivots, order), a in zip(rest[:3], (square, tall, wide), strict=True):
        short = min(a.shape)
        near((np.tril(factors, -1)[:, :short] + np.eye(len(a), short)) @ np.triu(factors)[:short], a[order])
        near(factors, np.asarray(lax.linalg.lu(a)[0]))
        np.testing.assert_array_equal(pivots, np.asarray(lax.linalg.lu(a)[1]))
    for x, y in zip(rest[3], factored(tall), strict=True):  # LAPACK's
        near(x, np.asarray(y))
    for (q, r), a in zip(rest[4:], (square, tall, wide), strict=True):
        near(q @ r, a)
        near(r, np.triu(r))
        orthonormal(q)


def test_programs_of_large_matrices_are_as_long_as_those_of_small_ones() -> None:
    for function in (jnp.linalg.cholesky, lax.linalg.lu, jnp.linalg.qr, jnp.linalg.inv):
        lines = []
        for n in (320, 4096):
            closed = weft.make_jaxpr(function)(weft.ShapeDtypeStruct((n, n), np.float32))
            lines.append(len(stablehlo.module_text(closed, platforms=("cuda",)).splitlines()))
        assert lines[0] == lines[1] and lines[0] < 1000, function


@pytest.mark.parametrize("complex", [False, True])
def test_calls_of_lapack(complex: bool) -> None:
    """For the CPU: the same routine in weft, in JAX and in files of both; a matrix with a NaN is NaN alone."""
    stacked = matrix(2, 3, 3, complex=complex)
    stacked[1, 2, 2] = np.nan
    own = matrix(4, 4, complex=complex)

    def program(J: Any, stacked: Any, own: Any) -> list[Any]:
        linalg = J.lax.linalg
        positive = own @ own.conj().T
        return [
            linalg.eig(stacked), linalg.eig(own, compute_left_eigenvectors=False), linalg.schur(stacked),
            linalg.schur(own, compute_schur_vectors=False), linalg.tridiagonal(own + own.conj().T),
            linalg.tridiagonal(stacked, lower=False)[1:3],
            linalg.cholesky(positive), linalg.cholesky(-positive), linalg.lu(stacked[:, :, :2]), linalg.lu(own),
            [J.numpy.abs(x) for x in linalg.qr(stacked[:1, :, :2], full_matrices=False)],
            [J.numpy.abs(x) for x in linalg.qr(own[:, :2])], linalg.qr(own[:3])[1],
            [J.numpy.abs(x) for x in linalg.eigh(positive, lower=False)], linalg.eigh(stacked)[1],
            [J.numpy.abs(x) for x in linalg.svd(own[:3])], linalg.svd(own[:, :3], compute_uv=False),
            [J.numpy.abs(x) for x in linalg.svd(own[:, :3], full_matrices=False)],
            *[
                linalg.triangular_solve(own, own, left_side=left, lower=lower, transpose_a=turned, conjugate_a=conj,
                                        unit_diagonal=True)
                for left, lower, turned, conj in ((True, False, False, True), (False, True, True, True))
            ],
        ]  # fmt: skip

    exported = export.export(weft.jit(functools.partial(program, weft)))(stacked, own)
    theirs = jax.export.export(jax.jit(functools.partial(program, jax)))(stacked, own)
    calls = [exported.call, export.deserialize(exported.serialize()).call]
    calls += [export.deserialize(theirs.serialize()).call, jax.export.deserialize(exported.serialize()).call]
    expected = jax.tree.leaves(theirs.call(stacked, own))
    for call in calls:
        for x, y in zip(weft.tree.leaves(call(stacked, own)), expected, strict=True):
            assert x.dtype == y.dtype
            np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-5)


def test_what_has_no_program_says_so() -> None:
    for function in (jnp.linalg.eigvals, lax.linalg.schur, lax.linalg.tridiagonal):
        with pytest.raises(NotImplementedError, match=r"at .*test_decompositions\.py:\d+.*cannot be written as"):
            stablehlo.module_text(weft.make_jaxpr(lambda a, function=function: function(a))(matrix(3, 3)))


@pytest.mark.parametrize("complex", [False, True])
def test_as_weft_itself(complex: bool) -> None:
    """Factors and solutions that LAPACK's conventions make unique."""
    square, tall, wide = (matrix(*shape, complex=complex) for shape in ((2, 4, 4), (5, 3), (3, 5)))
    reflectors = [np.asarray(x) for x in factored(tall)]
    zeros, ones = np.zeros(3, square.dtype), np.ones(3, square.dtype)
    batch = [matrix(2, 4, complex=complex) for _ in range(3)]
    cases: list[tuple[Any, list[np.ndarray]]] = [
        (lambda a: tuple(lax.linalg.hessenberg(a)), [square]),
        (lambda a: tuple(lax.linalg.hessenberg(a)), [square[0, :1, :1]]),
        (lambda a: lax.linalg.qr(a, pivoting=True), [tall]),
        (lambda a: lax.linalg.qr(a, pivoting=True, full_matrices=False), [wide]),
    ]
    # of side, transposition and complex numbers each pair
    for left, transpose in ((True, complex), (False, not complex)):
        product = functools.partial(lax.linalg.ormqr, left=left, transpose=transpose)
        cases.append((product, [*reflectors, matrix(*((5, 2) if left else (2, 5)), complex=complex)]))
    for perturb in (False, True):
        solve = functools.partial(lax.linalg.tridiagonal_solve, perturb_singular=perturb)
        cases.append((solve, [*batch, matrix(2, 4, 3, complex=complex)]))
        cases += [(solve, [x] * 3 + [wide]) for x in (zeros, ones)]
    if not complex:
        upper = np.triu(square[0]) + 3 * np.eye(4, dtype=np.float32)
        cases += [(lax.linalg.cholesky_update, [upper, w]) for w in (square[1, 0], np.zeros(4, np.float32))]
    results = running.together([f for f, _ in cases], [args for _, args in cases])
    for (function, args), found in zip(cases, results, strict=True):
        for x, y in zip(found, weft.tree.leaves(function(*args)), strict=True):
            expected = np.asarray(y)
            scale = max(1, np.nanmax(np.abs(expected), initial=0))
            assert x.dtype == expected.dtype
            near(x / scale, expected / scale)
