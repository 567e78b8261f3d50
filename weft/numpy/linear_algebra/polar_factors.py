"""Polar factors by the dynamically weighted Halley iteration: a = u h, u with orthonormal columns, h semidefinite.

Nakatsukasa, Bai and Gygi, "Optimizing Halley's iteration for computing the matrix polar decomposition" (2010). A step
moves every singular value s of x towards 1::

    s (a + b s^2) / (1 + c s^2)      a, b, c for the smallest s that there may be, which is known beforehand
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from weft import operations as lax
from weft.control import branches, while_loop
from weft.core.tracing import tracebacks
from weft.numpy import linalg, promotion
from weft.numpy.array_creation import creation
from weft.numpy.pointwise import logic
from weft.operations.linalg import matrices, triangular
from weft.operations.linalg.cholesky import cholesky
from weft.operations.linalg.qr import qr

MOST_STEPS = 10
BY_QR = 100.0  # c from which the step by Cholesky factors would lose accuracy


def _weights(dtype: Any, count: int) -> tuple[np.ndarray, int]:
    """((a, b, c) of each step, how many bring the smallest singular value that is told from zero to 1)."""
    eps = float(np.finfo(dtype).eps)
    least, found, needed = eps, [], count
    for step in range(count):
        needed = min(needed, step) if 1 - least < 2.5 * eps else needed
        square = least * least
        d = (4 * max(1 - square, 0.0) / (square * square)) ** (1 / 3)
        root = math.sqrt(1 + d)
        a = root + 0.5 * math.sqrt(max(8 - 4 * d + 8 * (2 - square) / (square * root), 0.0))
        b = (a - 1) ** 2 / 4
        c = a + b - 1
        found.append((a, b, c))
        least = min(least * (a + b * square) / (1 + c * square), 1.0)
    return np.array(found, np.float64).reshape(count, 3), needed


def _by_qr(x: Any, a: Any, b: Any, c: Any) -> Any:
    m, n = promotion.shape_of(x)
    root = lax.sqrt(c)
    stacked = lax.concatenate([x * root, matrices.identity(x.dtype, n)], 0)
    q, _ = qr(stacked, full_matrices=False)
    return x * (b / c) + matrices.product(q[:m], matrices.adjoint(q[m:])) * ((a - b / c) / root)


def _by_cholesky(x: Any, a: Any, b: Any, c: Any) -> Any:
    n = promotion.shape_of(x)[1]
    whole = matrices.product(matrices.adjoint(x), x) * c + matrices.identity(x.dtype, n)
    factor = cholesky(whole)
    solved = triangular.triangular_solve(factor, x, lower=True, transpose_a=True, conjugate_a=True)
    solved = triangular.triangular_solve(factor, solved, lower=True)
    return x * (b / c) + solved * (a - b / c)


@tracebacks.boundary
def qdwh(
    x: Any,
    *,
    is_hermitian: bool = False,
    max_iterations: int | None = None,
    eps: float | None = None,
    dynamic_shape: tuple[int, int] | None = None,
) -> tuple[Any, Any, Any, Any]:
    """(u, h, num_iters, is_converged) with u h = x, [m, n] of full rank with m >= n, u' u = 1, h semidefinite.

    Ends when a step changes u by less than the cube root of 4 ``eps`` (of the dtype) of its size, or after
    ``max_iterations``. ``dynamic_shape`` says which part of x counts, the rest as zero. ``is_hermitian`` is not used.
    ValueError for m < n.

    >>> u, h, steps, converged = weft.lax.linalg.qdwh(np.float32([[0, 2], [3, 0]]))
    >>> np.abs(np.round(h, 3)).tolist(), bool(converged)
    ([[3.0, 0.0], [0.0, 2.0]], True)
    """
    promotion.check_arraylike("qdwh", x)
    (x,) = promotion.promote_dtypes_inexact(x)
    if len(promotion.shape_of(x)) != 2:
        raise ValueError(f"[qdwh] one matrix is needed, got shape {promotion.shape_of(x)}")
    m, n = promotion.shape_of(x)
    if m < n:
        raise ValueError(f"The input matrix of shape M x N must have M >= N, got {m} x {n}.")
    most = MOST_STEPS if max_iterations is None else operator.index(max_iterations)
    if dynamic_shape is not None:
        rows, columns = dynamic_shape
        inside = (creation.arange(m)[:, None] < rows) & (creation.arange(n)[None, :] < columns)
        x = lax.select(inside, x, lax.full_like(x, 0))
    real = matrices.real_dtype(x.dtype)
    tolerance = (4 * float(np.finfo(real).eps if eps is None else eps)) ** (1 / 3)
    steps_of, needed = _weights(real, most)
    weights = creation.asarray(steps_of, real)
    bound = lax.sqrt(linalg.norm(x, 1)) * lax.sqrt(linalg.norm(x, np.inf))  # of the largest singular value
    first = x / lax.select(bound == 0, lax.full_like(bound, 1), bound).astype(x.dtype)

    def unfinished(state: Any) -> Any:
        _, step, moved = state
        return logic.isfinite(moved) & ((moved > tolerance) | (step < needed)) & (step < most)

    def step_of(state: Any) -> Any:
        u, step, _ = state
        a, b, c = [w.astype(x.dtype) for w in weights[step]]
        new = branches.cond(weights[step, 2] > BY_QR, _by_qr, _by_cholesky, u, a, b, c)
        return new, step + 1, linalg.norm(new - u) / linalg.norm(new)

    start = (first, creation.asarray(0, np.int32), creation.asarray(1.0, real))
    u, steps, moved = while_loop.while_loop(unfinished, step_of, start)
    h = matrices.symmetrized(matrices.product(matrices.adjoint(u), x))
    return u, h, steps, (moved <= tolerance) & (steps >= needed)
