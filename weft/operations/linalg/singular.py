"""Singular values: a = u diag(s) v', s real and descending.

Derivative: Giles, "An extended collection of matrix derivative results" (2008), section 3.2; for equal singular values
the terms with their difference are left out. With full matrices it is defined only for square ones.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft._base import lazy
from weft.operations.data_movement.shape import shape_of
from weft.operations.later import ops
from weft.operations.linalg import matrices
from weft.operations.linalg.matrices import adjoint, matrix_primitive, nans, product, real_dtype
from weft.runtime import Array

ArrayLike = Any
Shape = tuple[int, ...]


class SvdAlgorithm(enum.Enum):
    """How singular values are computed: ``DEFAULT`` and ``DIVIDE_AND_CONQUER`` by LAPACK's gesdd, ``QR`` by its gesvd.

    >>> lax.linalg.SvdAlgorithm.QR.value
    'QR'
    """

    DEFAULT = "default"
    QR = "QR"
    JACOBI = "Jacobi"
    POLAR = "polar"
    DIVIDE_AND_CONQUER = "divide_and_conquer"


def _svd_shapes(
    a: Shape, *, full_matrices: bool, compute_uv: bool, subset_by_index: Any, algorithm: Any
) -> tuple[Shape, ...]:
    m, n = a
    k = min(m, n)
    if not compute_uv:
        return ((k,),)
    return (k,), (m, m if full_matrices else k), (n if full_matrices else k, n)


def _svd_reference(
    a: np.ndarray, *, full_matrices: bool, compute_uv: bool, subset_by_index: Any, algorithm: Any
) -> list[np.ndarray]:
    m, n = a.shape
    k = min(m, n)
    rows, columns = (m, n) if full_matrices else (k, k)
    real = real_dtype(a.dtype)
    if k == 0:
        vectors = [np.eye(m, rows, dtype=a.dtype), np.eye(columns, n, dtype=a.dtype)]
        return [np.zeros(0, real), *(vectors if compute_uv else [])]
    if not np.isfinite(a).all():
        vectors = [nans((m, rows), a.dtype), nans((columns, n), a.dtype)]
        return [nans((k,), real), *(vectors if compute_uv else [])]
    driver = "gesvd" if algorithm is SvdAlgorithm.QR else "gesdd"
    found = lazy.scipy_linalg.svd(a, full_matrices=full_matrices, compute_uv=compute_uv, lapack_driver=driver)
    return [found[1], found[0], found[2]] if compute_uv else [found]


def _svd_routine(
    a: Shape, *, full_matrices: bool, compute_uv: bool, subset_by_index: Any, algorithm: Any
) -> tuple[str, Shape]:
    return "gesdd", (*a, full_matrices, compute_uv, algorithm is SvdAlgorithm.QR)


def _svd_dtypes(dtype: np.dtype, *, compute_uv: bool, **_: Any) -> tuple[np.dtype, ...]:
    return (real_dtype(dtype), dtype, dtype) if compute_uv else (real_dtype(dtype),)


svd_p = matrix_primitive(
    "svd", (2,), _svd_shapes, _svd_reference, _svd_routine, dtypes=_svd_dtypes, multiple_results=True
)


def _inverted(x: Any, zeros: Any) -> Array:
    """1 / x, and 0 where ``zeros`` is 1."""
    return ops.sub(ops.div(ops.full_like(x, 1), ops.add(x, zeros)), zeros)


def _svd_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, full_matrices: bool, compute_uv: bool, **params: Any
) -> tuple[Any, Any]:
    """With p = u' da v: ds is its real diagonal; u and v are rotated by f (p s + s p') and f (s p + p' s)."""
    (a,), (da,) = primals, tangents
    m, n = shape_of(a)[-2:]
    if compute_uv and full_matrices and m != n:
        raise NotImplementedError("Singular value decomposition JVP not implemented for full matrices")
    s, u, vt = svd_p.bind(a, full_matrices=False, compute_uv=True, **params)
    ut, v = adjoint(u), adjoint(vt)
    moved = product(product(ut, da), v)
    ds = matrices.diagonal(matrices.real_part(moved))
    if not compute_uv:
        return [s], [ds]
    across, down = matrices.row(s), matrices.column(s)
    apart = ops.mul(ops.add(across, down), ops.sub(across, down))
    f = matrices.cast(_inverted(apart, matrices.identity_like(apart)), a)
    scale, scale_down = matrices.cast(across, a), matrices.cast(down, a)
    right, left = ops.mul(scale, moved), ops.mul(scale_down, moved)
    inverse = _inverted(s, matrices.cast(ops.eq(s, ops.full_like(s, 0)), s))
    phase = ops.mul(ops.mul(ops.sub(moved, adjoint(moved)), matrices.constant(moved, 0.5)), _spread(inverse, moved))
    du = product(u, ops.add(ops.mul(f, ops.add(right, adjoint(right))), phase))
    dv = product(v, ops.mul(f, ops.add(left, adjoint(left))))
    if m > n:
        beyond = product(da, v)
        du = ops.add(du, ops.div(ops.sub(beyond, product(u, product(ut, beyond))), scale))
    if n > m:
        beyond = product(adjoint(da), u)
        dv = ops.add(dv, ops.div(ops.sub(beyond, product(v, product(vt, beyond))), scale))
    return [s, u, vt], [ds, du, adjoint(dv)]


def _spread(x: Any, like: Any) -> Array:
    """Vectors on the diagonals of matrices, in the dtype of ``like``."""
    return ops.mul(matrices.cast(matrices.column(x), like), matrices.identity_like(like))


svd_p.jvp = _svd_jvp


def svd(
    x: ArrayLike,
    *,
    full_matrices: bool = True,
    compute_uv: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    algorithm: SvdAlgorithm | None = None,
) -> Any:
    """(u, s, vt) with u diag(s) vt = x, [..., m, n], s real and descending; s alone where not ``compute_uv``.

    u is [..., m, m] and vt [..., n, n] with ``full_matrices``, otherwise [..., m, k] and [..., k, n] with k = min(m,
    n). ``subset_by_index`` may only be the whole range (NotImplementedError otherwise). NotImplementedError for an
    ``algorithm`` of another device. A matrix with NaN or infinities gives NaN.

    >>> u, s, vt = lax.linalg.svd(np.float32([[0, 2], [1, 0]]))
    >>> s.tolist()
    [2.0, 1.0]
    """
    if algorithm not in (None, SvdAlgorithm.DEFAULT, SvdAlgorithm.QR, SvdAlgorithm.DIVIDE_AND_CONQUER):
        raise NotImplementedError(f"[svd] {algorithm} is not supported on CPU; QR and DIVIDE_AND_CONQUER are")
    least = min(shape_of(x)[-2:]) if len(shape_of(x)) >= 2 else 0
    if subset_by_index is not None and tuple(subset_by_index) != (0, least):
        raise NotImplementedError(
            f"[svd] subset_by_index={subset_by_index} is not supported on CPU: take s[..., first:end] of the result"
        )
    found = svd_p.bind(
        x,
        full_matrices=bool(full_matrices),
        compute_uv=bool(compute_uv),
        subset_by_index=subset_by_index,
        algorithm=algorithm,
    )
    return (found[1], found[0], found[2]) if compute_uv else found[0]
