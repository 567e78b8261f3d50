"""Cholesky factors of positive definite matrices, and their rank-1 update.

    a = l l'      l lower triangular, l' its conjugated transpose

Derivative: Murray, "Differentiation of the Cholesky decomposition" (2016), section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.core import tangents as tangent_types
from weft.operations.later import ops
from weft.operations.linalg import matrices, small
from weft.operations.linalg.matrices import matrix_primitive, nans
from weft.operations.linalg.triangular import triangular_solve
from weft.runtime import Array

ArrayLike = Any


def _square(shape: tuple[int, ...]) -> tuple[int, ...]:
    if shape[0] != shape[1]:
        raise ValueError(f"The input to cholesky must be a square matrix. Got shape {shape}.")
    return shape


def _reference(a: np.ndarray) -> np.ndarray:
    whole = np.tril(a) + np.conj(np.tril(a, -1).T)
    try:
        return np.linalg.cholesky(whole).astype(a.dtype)
    except np.linalg.LinAlgError:
        return nans(a.shape, a.dtype)


cholesky_p = matrix_primitive(
    "cholesky", (2,), _square, _reference, lambda shape: ("potrf", shape[:1]), unrolled=small.unrolled(small.cholesky)
)


def _cholesky_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """l phi(l^-1 da l^-H), where phi takes the lower triangle with half the diagonal."""
    factor = matrices.lower(cholesky_p.bind(*primals))
    right = triangular_solve(factor, tangents[0], left_side=False, lower=True, transpose_a=True, conjugate_a=True)
    both = matrices.lower(triangular_solve(factor, right, left_side=True, lower=True))
    halves = ops.add(matrices.identity_like(factor), matrices.constant(factor, 1))
    return factor, matrices.product(factor, ops.div(both, halves))


cholesky_p.jvp = _cholesky_jvp


def cholesky(x: ArrayLike, *, symmetrize_input: bool = True) -> Array:
    """The lower triangular l with x = l l' for positive definite x, [..., n, n], floating point or complex.

    The input is replaced by (x + x') / 2, or, with ``symmetrize_input=False``, only its lower triangle is read. A
    matrix that is not positive definite gives NaN. ValueError for a matrix that is not square.

    >>> lax.linalg.cholesky(np.float32([[4, 2], [2, 5]])).tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    if symmetrize_input:
        x = matrices.symmetrized(x)
    return matrices.lower(cholesky_p.bind(x))


# ---- update


def _update_shape(r: tuple[int, ...], w: tuple[int, ...]) -> tuple[int, ...]:
    if r[0] != r[1] or w[0] != r[1]:
        raise ValueError(
            "Rank-1 update to Cholesky decomposition takes a square matrix and a vector of the same size as input. Got "
            f"shapes {r} and {w} instead"
        )
    return r


def _update_reference(r: np.ndarray, w: np.ndarray) -> np.ndarray:
    r, w = r.copy(), w.copy()
    for k in range(len(w)):
        c, s = 1.0, 0.0
        if w[k] != 0:
            length = np.hypot(r[k, k], w[k])
            c, s = r[k, k] / length, -w[k] / length
        r[k], w = c * r[k] - s * w, c * w + s * r[k]
    return r


cholesky_update_p = matrix_primitive(
    "cholesky_update", (2, 1), _update_shape, _update_reference, lambda r, w: ("update", r[:1])
)


def _update_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """r1' r1 = r' r + w w', so dr1 = phi(r1^-H d(r1' r1) r1^-1) r1, phi the upper triangle with half the diagonal."""
    r, w = primals
    made = cholesky_update_p.bind(r, w)
    dr, dw = [
        ops.full_like(x, 0) if type(t) is tangent_types.Zero else t for x, t in zip(primals, tangents, strict=True)
    ]
    half = ops.add(matrices.product(matrices.transposed(r), dr), ops.mul(matrices.column(w), matrices.row(dw)))
    moved = ops.add(half, matrices.transposed(half))
    right = triangular_solve(made, moved, left_side=False, lower=False)
    both = matrices.upper(triangular_solve(made, right, left_side=True, lower=False, transpose_a=True))
    halves = ops.add(matrices.identity_like(made), matrices.constant(made, 1))
    return made, matrices.product(ops.div(both, halves), made)


cholesky_update_p.jvp = _update_jvp


def cholesky_update(r_matrix: ArrayLike, w_vector: ArrayLike) -> Array:
    """The upper triangular factor r1 of r' r + w w', from the factor r ([..., n, n], upper) and w ([..., n]), real.

    Takes O(n**2) time. ValueError for shapes that do not fit.

    >>> lax.linalg.cholesky_update(np.float32([[3, 0], [0, 2]]), np.float32([4, 0])).tolist()
    [[5.0, 0.0], [0.0, 2.0]]
    """
    return cholesky_update_p.bind(r_matrix, w_vector)
