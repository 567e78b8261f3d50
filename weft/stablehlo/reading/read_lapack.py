"""LAPACK's routines as JAX's files for the CPU call them: each as an operation of ``lax.linalg``.

A reader takes the letters that the routine is called with (``uplo`` is "L" or "U"), the types of the results, and the
operands. The last result, ``info``, is 0; results of a failed routine are NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import lax
from weft.core import avals
from weft.operations.linalg.qr import factored as geqrf

Letters = dict[str, str]


def _adjoint(a: Any) -> Any:
    rank = len(avals.get_aval(a).shape)
    turned = lax.transpose(a, [*range(rank - 2), rank - 1, rank - 2])
    return lax.conj(turned) if avals.get_aval(a).dtype.kind == "c" else turned


def _info(types: Sequence[Any]) -> Any:
    shape, dtype = types[-1]
    return lax.full(shape, 0, dtype)


def cholesky(letters: Letters, types: Sequence[Any], a: Any) -> list[Any]:
    """potrf; ``info`` is 1 for matrices that are not positive definite."""
    lower = letters["uplo"] == "L"
    factor = lax.linalg.cholesky(a if lower else _adjoint(a), symmetrize_input=False)
    corner = lax.squeeze(lax.slice_in_dim(lax.slice_in_dim(factor, 0, 1, 1, -1), 0, 1, 1, -2), (-1, -2))
    shape, dtype = types[-1]
    failed = lax.reshape(lax.convert_element_type(lax.ne(corner, corner), dtype), shape)
    return [factor if lower else _adjoint(factor), failed]


def triangular_solve(letters: Letters, types: Sequence[Any], a: Any, b: Any) -> Any:
    return lax.linalg.triangular_solve(
        a,
        b,
        left_side=letters["side"] == "L",
        lower=letters["uplo"] == "L",
        transpose_a=letters["trans_x"] in "TC",
        conjugate_a=letters["trans_x"] == "C",
        unit_diagonal=letters["diag"] == "U",
    )


def lu(letters: Letters, types: Sequence[Any], a: Any) -> list[Any]:
    """getrf, whose pivots count from 1."""
    factors, pivots, _ = lax.linalg.lu(a)
    return [factors, lax.add(pivots, np.int32(1)), _info(types)]


def qr_factors(letters: Letters, types: Sequence[Any], a: Any) -> list[Any]:
    return list(geqrf(a))


def householder_product(letters: Letters, types: Sequence[Any], a: Any, taus: Any) -> Any:
    return lax.linalg.householder_product(a, taus)


def eigh(letters: Letters, types: Sequence[Any], a: Any) -> list[Any]:
    vectors, values = lax.linalg.eigh(a, lower=letters["uplo"] == "L", symmetrize_input=False)
    return [vectors, values, _info(types)]


def svd(letters: Letters, types: Sequence[Any], a: Any) -> list[Any]:
    """gesdd: all vectors (A), as many as there are values (S), or none (N)."""
    mode = letters["mode"]
    if mode == "N":
        values = lax.linalg.svd(a, compute_uv=False)
        return [a, values, *[lax.full(shape, 0, dtype) for shape, dtype in types[2:]]]
    u, values, vt = lax.linalg.svd(a, full_matrices=mode == "A")
    return [a, values, u, vt, _info(types)]


def eig(letters: Letters, types: Sequence[Any], a: Any) -> list[Any]:
    """geev, which has the parts of eigenvalues of real matrices apart."""
    left, right = [letters[f"compute_{side}"] == "V" for side in ("left", "right")]
    w, *sides = lax.linalg.eig(a, compute_left_eigenvectors=left, compute_right_eigenvectors=right)
    found = iter(sides)
    vectors = [
        next(found) if is_there else lax.full(shape, 0, dtype)
        for is_there, (shape, dtype) in zip((left, right), types[-3:-1], strict=True)
    ]
    values = [w] if avals.get_aval(a).dtype.kind == "c" else [lax.real(w), lax.imag(w)]
    return [*values, *vectors, _info(types)]


def schur(letters: Letters, types: Sequence[Any], a: Any) -> list[Any]:
    """gees without a choice of eigenvalues, which are NaN here: they are on the diagonal."""
    if letters["sort"] != "N":
        raise NotImplementedError("[stablehlo] the Schur form with chosen eigenvalues first is not read")
    vectors = letters["mode"] == "V"
    found = lax.linalg.schur(a, compute_schur_vectors=vectors)
    values = [lax.full(shape, np.nan, dtype) for shape, dtype in types[2:-2]]
    return [found[0], found[1] if vectors else a, *values, _info(types[:-1]), _info(types)]


def tridiagonal(letters: Letters, types: Sequence[Any], a: Any) -> list[Any]:
    return [*lax.linalg.tridiagonal(a, lower=letters["uplo"] == "L"), _info(types)]


ROUTINES: dict[str, Callable[..., Any]] = {
    "potrf": cholesky,
    "trsm": triangular_solve,
    "getrf": lu,
    "geqrf": qr_factors,
    "orgqr": householder_product,
    "ungqr": householder_product,
    "syevd": eigh,
    "heevd": eigh,
    "gesdd": svd,
    "geev": eig,
    "gees": schur,
    "sytrd": tridiagonal,
    "hetrd": tridiagonal,
}
