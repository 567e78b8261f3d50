"""Eigenvalues of symmetric and Hermitian matrices, and their tridiagonal form.

    a v = v diag(w)      w real and ascending, v orthonormal

Derivative: perturbation of distinct eigenvalues (Giles, "An extended collection of matrix derivative results", 2008,
section 3.1); for equal eigenvalues the terms with their difference are left out.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft._base import lazy
from weft.operations.data_movement.shape import shape_of
from weft.operations.later import ops
from weft.operations.linalg import matrices, small
from weft.operations.linalg.matrices import matrix_primitive, nans, real_dtype
from weft.runtime import Array

ArrayLike = Any
Shape = tuple[int, ...]


class EighImplementation(enum.Enum):
    """How symmetric eigenvalues are computed: by LAPACK for ``QR`` and None.

    >>> lax.linalg.EighImplementation.QR.value
    'qr'
    """

    QR = "qr"
    JACOBI = "jacobi"
    QDWH = "qdwh"


def _range(n: int, subset_by_index: tuple[int, int] | None) -> tuple[int, int]:
    """(the first requested eigenvalue, the number of requested ones)."""
    first, end = (0, n) if subset_by_index is None else subset_by_index
    if not 0 <= first <= end <= n:
        raise ValueError(f"[eigh] subset_by_index={subset_by_index} is no range of the {n} eigenvalues, counted from 0")
    return first, end - first


def _eigh_shapes(a: Shape, *, subset_by_index: Any, **_: Any) -> tuple[Shape, Shape]:
    if a[0] != a[-1]:
        raise ValueError(f"Argument to symmetric eigendecomposition must have shape [..., n, n], got shape {a}")
    count = _range(a[0], subset_by_index)[1]
    return (a[0], count), (count,)


def _eigh_reference(a: np.ndarray, *, lower: bool, subset_by_index: Any, **_: Any) -> list[np.ndarray]:
    n = len(a)
    first, count = _range(n, subset_by_index)
    real = real_dtype(a.dtype)
    triangle = np.tril(a) if lower else np.triu(a)
    if n == 0 or not np.isfinite(triangle).all():
        return [nans((n, count), a.dtype), nans((count,), real)]
    w, v = np.linalg.eigh(a, "L" if lower else "U")
    kept = slice(first, first + count)
    return [v[:, kept].astype(a.dtype), w[kept].astype(real)]


def _eigh_routine(a: Shape, *, lower: bool, subset_by_index: Any, read: Sequence[bool], **_: Any) -> tuple[str, Shape]:
    return "syevd", (a[0], lower, *_range(a[0], subset_by_index), read[0])


def _eigh_written(read: Sequence[bool]) -> tuple[int, ...]:
    """The results to compute; eigenvalues alone take a quarter of the time."""
    return (0, 1) if read[0] else (1,)


eigh_p = matrix_primitive(
    "eigh", (2,), _eigh_shapes, _eigh_reference, _eigh_routine,
    dtypes=lambda dtype, **_: (dtype, real_dtype(dtype)), multiple_results=True,
    unrolled=small.unrolled_eigh, written=_eigh_written,
)  # fmt: skip


def _eigh_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, subset_by_index: Any, **params: Any
) -> tuple[Any, Any]:
    """With p = v' da v: dw is its diagonal, dv = v (f p), where f is 1 / (w_j - w_i), 0 on the diagonal."""
    (a,), (da,) = primals, tangents
    n = shape_of(a)[-1]
    if _range(n, subset_by_index) != (0, n):
        raise NotImplementedError("Derivatives not defined for partial eigen decomposition.")
    v, w = eigh_p.bind(a, subset_by_index=subset_by_index, **params)
    values = matrices.cast(w, a)
    eye = matrices.identity_like(v)
    apart = ops.sub(ops.integer_pow(ops.sub(ops.add(eye, matrices.row(values)), matrices.column(values)), -1), eye)
    moved = matrices.product(matrices.product(matrices.adjoint(v), da), v)
    dv = matrices.product(v, ops.mul(apart, moved))
    return [v, w], [dv, matrices.diagonal(matrices.real_part(moved))]


eigh_p.jvp = _eigh_jvp


def eigh(
    x: ArrayLike,
    *,
    lower: bool = True,
    symmetrize_input: bool = True,
    sort_eigenvalues: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    implementation: EighImplementation | None = None,
) -> tuple[Array, Array]:
    """(v, w): the eigenvectors, as columns, and the eigenvalues, real and ascending, of x, [..., n, n].

    The input is replaced by (x + x') / 2, or, with ``symmetrize_input=False``, only the triangle that ``lower`` names
    is read. ``subset_by_index=(first, end)`` asks for the eigenvalues first..end - 1 alone. They are ascending whatever
    ``sort_eigenvalues`` says. ValueError for a matrix that is not square, NotImplementedError for an implementation
    of another device.

    >>> v, w = lax.linalg.eigh(np.float32([[2, 1], [1, 2]]))
    >>> np.round(np.float32(w), 3).tolist()
    [1.0, 3.0]
    """
    if implementation not in (None, EighImplementation.QR):
        raise NotImplementedError(f"[eigh] {implementation} is not supported on CPU; leave it out or ask for QR")
    if symmetrize_input:
        x = matrices.symmetrized(x)
    v, w = eigh_p.bind(
        x,
        lower=bool(lower),
        sort_eigenvalues=sort_eigenvalues,
        subset_by_index=None if subset_by_index is None else tuple(map(int, subset_by_index)),
        algorithm=implementation,
    )
    return v, w


# ---- tridiagonal


def _tridiagonal_shapes(a: Shape, *, lower: bool) -> tuple[Shape, ...]:
    if a[0] != a[1] or a[1] == 0:
        raise ValueError(f"The input to tridiagonal must be a square matrix. Got shape {a}.")
    n = a[0]
    return a, (n,), (n - 1,), (n - 1,)


def _tridiagonal_reference(a: np.ndarray, *, lower: bool) -> list[np.ndarray]:
    routine = getattr(lazy.scipy_linalg.lapack, matrices.lapack_name(a, "sytrd", "hetrd"))
    made, d, e, taus, _ = routine(a, lower=lower)
    return [made, d, e, taus]


def _tridiagonal_dtypes(dtype: np.dtype, **_: Any) -> tuple[np.dtype, ...]:
    return dtype, real_dtype(dtype), real_dtype(dtype), dtype


tridiagonal_p = matrix_primitive(
    "tridiagonal", (2,), _tridiagonal_shapes, _tridiagonal_reference, lambda a, lower: ("sytrd", (a[0], lower)),
    dtypes=_tridiagonal_dtypes, multiple_results=True,
)  # fmt: skip


def tridiagonal(a: ArrayLike, *, lower: bool = True) -> list[Array]:
    """[a, d, e, taus]: the tridiagonal matrix similar to a symmetric or Hermitian a, [..., n, n] with n > 0.

    d, [..., n], and e, [..., n-1], are its real diagonal and off-diagonal. The reflectors of the transformation are in
    the triangle of a named by ``lower``, beyond e, with their factors taus. Only that triangle is read.

    >>> _, d, e, _ = lax.linalg.tridiagonal(np.float32([[2, 1], [1, 3]]))
    >>> d.tolist(), e.tolist()
    ([2.0, 3.0], [1.0])
    """
    return list(tridiagonal_p.bind(a, lower=bool(lower)))
