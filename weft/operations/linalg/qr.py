"""QR factors, with or without pivoting of columns, and products with their reflectors.

    a = q r           q with orthonormal columns, r upper triangular
    a[:, p] = q r     with pivoting: the diagonal of r does not grow

Derivatives: Walter and Lehmann, "Algorithmic differentiation of linear algebra functions" (2012), section 3. In the
full q, the columns added to the thin q are free up to a rotation, chosen as in arXiv:2409.13374.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft._base import lazy
from weft.core import tangents as tangent_types
from weft.operations.data_movement.shape import shape_of
from weft.operations.later import ops
from weft.operations.linalg import lu as lu_module
from weft.operations.linalg import matrices
from weft.operations.linalg.matrices import INT32, matrix_primitive
from weft.operations.linalg.triangular import triangular_solve
from weft.runtime import Array

ArrayLike = Any
Shape = tuple[int, ...]


# ---- qr


def _qr_shapes(a: Shape, *, pivoting: bool, full_matrices: bool, use_magma: Any) -> tuple[Shape, ...]:
    m, n = a
    k = m if full_matrices else min(m, n)
    return ((m, k), (k, n), (n,)) if pivoting else ((m, k), (k, n))


def _qr_dtypes(dtype: np.dtype, *, pivoting: bool, **_: Any) -> tuple[np.dtype, ...]:
    return (dtype, dtype, INT32) if pivoting else (dtype, dtype)


def _qr_reference(a: np.ndarray, *, pivoting: bool, full_matrices: bool, use_magma: Any) -> list[np.ndarray]:
    m, n = a.shape
    if min(m, n) == 0:
        k = m if full_matrices else 0
        parts = [np.eye(m, k, dtype=a.dtype), np.zeros((k, n), a.dtype)]
        return [*parts, np.zeros(n, INT32)] if pivoting else parts
    mode = "full" if full_matrices else "economic"
    found = lazy.scipy_linalg.qr(a, mode=mode, pivoting=pivoting, check_finite=False)
    return [*found[:2], *[x.astype(INT32) for x in found[2:]]]


qr_p = matrix_primitive(
    "qr", (2,), _qr_shapes, _qr_reference,
    lambda a, pivoting, full_matrices, use_magma: ("geqrf+orgqr", (*a, full_matrices, pivoting)),
    dtypes=_qr_dtypes, multiple_results=True,
)  # fmt: skip


def _thin_jvp(q: Any, r: Any, da: Any) -> tuple[Array, Array]:
    """(dq, dr) of m x n matrices with m >= n, from w = q' da r^-1: dq = q (skew - w) + da r^-1, dr = (w - skew) r."""
    scaled = triangular_solve(r, da)
    w = matrices.product(matrices.adjoint(q), scaled)
    below = matrices.lower(w, -1)
    skew = ops.sub(below, matrices.adjoint(below))
    if matrices.is_complex(w):  # the diagonal of w may be imaginary, since that of r is real
        zero = ops.full_like(ops.real(w), 0)
        turned = ops.complex(zero, ops.imag(w))
        skew = ops.add(skew, ops.mul(matrices.identity_like(w), turned))
    dq = ops.add(matrices.product(q, ops.sub(skew, w)), scaled)
    return dq, matrices.product(ops.sub(w, skew), r)


def _wide_jvp(q: Any, r: Any, a: Any, da: Any) -> tuple[Array, Array]:
    """With fewer rows than columns: the leading square part determines q; r's other columns are q' times those of a."""
    m = shape_of(q)[-1]
    front, back = (slice(None), slice(m)), (slice(None), slice(m, None))
    dq, dr = _thin_jvp(q, matrices.part(r, *front), matrices.part(da, *front))
    moved = ops.add(
        matrices.product(matrices.adjoint(dq), matrices.part(a, *back)),
        matrices.product(matrices.adjoint(q), matrices.part(da, *back)),
    )
    return dq, ops.concatenate([dr, moved], len(shape_of(dr)) - 1)


def _completed_jvp(q: Any, dq: Any, n: int) -> Array:
    """The tangent of the whole of q from that of its first n columns."""
    thin, rest = matrices.part(q, slice(None), slice(n)), matrices.part(q, slice(None), slice(n, None))
    top, bottom = matrices.part(thin, slice(n), slice(None)), matrices.part(thin, slice(n, None), slice(None))
    moved_top, moved_bottom = matrices.part(dq, slice(n), slice(None)), matrices.part(dq, slice(n, None), slice(None))
    shifted = ops.sub(top, matrices.identity_like(top))
    factors, _, permutation = lu_module.lu_p.bind(shifted)
    turned = lu_module.solve_factored(factors, permutation, matrices.adjoint(bottom), trans=2)
    z = matrices.adjoint(turned)
    left = ops.sub(moved_bottom, matrices.product(z, moved_top))
    other = matrices.product(ops.add(thin, matrices.product(rest, z)), matrices.adjoint(left))
    return ops.concatenate([dq, ops.sub(matrices.product(dq, turned), other)], len(shape_of(q)) - 1)


def _qr_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, pivoting: bool, full_matrices: bool, use_magma: Any
) -> tuple[Any, Any]:
    (a,), (da,) = primals, tangents
    q, r, *order = qr_p.bind(a, pivoting=pivoting, full_matrices=full_matrices, use_magma=use_magma)
    if order:
        a, da = matrices.take_columns(a, order[0]), matrices.take_columns(da, order[0])
    m, n = shape_of(a)[-2:]
    if m < n:
        dq, dr = _wide_jvp(q, r, a, da)
    elif not full_matrices or m == n:
        dq, dr = _thin_jvp(q, r, da)
    else:
        dq, dr = _thin_jvp(matrices.part(q, slice(None), slice(n)), matrices.part(r, slice(n), slice(None)), da)
        dq = _completed_jvp(q, dq, n)
        rank = len(shape_of(dr))
        pads = [(0, 0, 0)] * (rank - 2) + [(0, m - n, 0), (0, 0, 0)]
        dr = ops.pad(dr, matrices.constant(dr, 0), pads)
    still = [tangent_types.Zero.from_primal_value(x) for x in order]
    return [q, r, *order], [dq, dr, *still]


qr_p.jvp = _qr_jvp


def qr(
    x: ArrayLike, *, pivoting: bool = False, full_matrices: bool = True, use_magma: bool | None = None
) -> tuple[Array, ...]:
    """(q, r) with q r = x, [..., m, n]; with ``pivoting`` (q, r, p), where q r = x[:, p] and r's diagonal descends.

    q is [..., m, m] and r [..., m, n] with ``full_matrices``, otherwise [..., m, k] and [..., k, n] with k = min(m, n).
    ``use_magma`` is for other devices and is ignored.

    >>> q, r = lax.linalg.qr(np.float32([[3, 1], [4, 2]]))
    >>> np.round(np.abs(r), 3).tolist()
    [[5.0, 2.200000047683716], [0.0, 0.4000000059604645]]
    """
    return tuple(qr_p.bind(x, pivoting=bool(pivoting), full_matrices=bool(full_matrices), use_magma=use_magma))


# ---- reflectors


def _factor_shapes(a: Shape, *, pivoting: bool) -> tuple[Shape, ...]:
    return (a, (min(a),), (a[1],)) if pivoting else (a, (min(a),))


def _factor_reference(a: np.ndarray, *, pivoting: bool) -> list[np.ndarray]:
    m, n = a.shape
    if min(m, n) == 0:
        parts = [a, np.zeros(0, a.dtype)]
        return [*parts, np.zeros(n, INT32)] if pivoting else parts
    lapack = lazy.scipy_linalg.lapack
    if pivoting:
        made, order, taus, _, _ = getattr(lapack, matrices.lapack_name(a, "geqp3"))(a)
        return [made, taus, (order - 1).astype(INT32)]
    made, taus, _, _ = getattr(lapack, matrices.lapack_name(a, "geqrf"))(a)
    return [made, taus]


geqrf_p = matrix_primitive(
    "geqrf", (2,), _factor_shapes, _factor_reference, lambda a, pivoting: ("geqrf", (*a, pivoting)),
    dtypes=_qr_dtypes, multiple_results=True,
)  # fmt: skip


def factored(x: ArrayLike, pivoting: bool = False) -> tuple[Array, ...]:
    """(a, taus): r in the upper triangle of a, the reflectors of q below; with pivoting also the permutation."""
    return tuple(geqrf_p.bind(x, pivoting=pivoting))


def _product_shape(a: Shape, taus: Shape) -> Shape:
    m, n = a
    if m < n:
        raise ValueError(
            f"The first argument to householder_product must have at least as many rows as columns, got shape {a}"
        )
    if taus[0] > n:
        raise ValueError(
            "The second argument to householder_product must not have more rows than the minimum of the first "
            f"argument's rows and columns, got {taus[0]} for shape {a}."
        )
    return a


def _product_reference(a: np.ndarray, taus: np.ndarray) -> np.ndarray:
    q = np.eye(*a.shape, dtype=a.dtype)
    for i in range(len(taus) - 1, -1, -1):
        v = np.concatenate([np.zeros(i, a.dtype), np.ones(1, a.dtype), a[i + 1 :, i]])
        q = q - taus[i] * np.outer(v, v.conj() @ q)
    return q.astype(a.dtype)


householder_product_p = matrix_primitive(
    "householder_product", (2, 1), _product_shape, _product_reference,
    lambda a, taus: ("orgqr", (*a, taus[0])),
)  # fmt: skip


def householder_product(a: ArrayLike, taus: ArrayLike) -> Array:
    """The first n columns of the product of the reflectors in the lower triangle of a, [..., m, n], with their taus.

    taus are [..., k] with k <= n <= m; reflector i is 1 - taus[i] v v', with v 1 at i and a[i+1:, i] below. ValueError
    for other shapes.

    >>> a, taus = np.float32([[-5, -2.2], [0.5, 0.4]]), np.float32([1.6, 0.0])
    >>> np.round(np.float32(lax.linalg.householder_product(a, taus)), 3).tolist()
    [[-0.6000000238418579, -0.800000011920929], [-0.800000011920929, 0.6000000238418579]]
    """
    return householder_product_p.bind(a, taus)


def _ormqr_shape(a: Shape, taus: Shape, c: Shape, *, left: bool, transpose: bool) -> Shape:
    if left and c[0] != a[0]:
        raise ValueError(
            "ormqr with left=True expects c to have the same number of rows as the Householder matrix a. Got a shape "
            f"{a} and c shape {c}."
        )
    if not left and c[1] != a[0]:
        raise ValueError(
            "ormqr with left=False expects c to have the same number of columns as the Householder matrix a has rows. "
            f"Got a shape {a} and c shape {c}."
        )
    if taus[0] > min(a):
        raise ValueError(f"[ormqr] {taus[0]} reflectors are more than a matrix of shape {a} has")
    return c


def _ormqr_reference(a: np.ndarray, taus: np.ndarray, c: np.ndarray, *, left: bool, transpose: bool) -> np.ndarray:
    square = np.zeros((len(a), len(a)), a.dtype)
    square[:, : a.shape[1]] = a[:, : len(a)]
    q = _product_reference(square, taus)
    q = q.conj().T if transpose else q
    return (q @ c if left else c @ q).astype(c.dtype)


ormqr_p = matrix_primitive(
    "ormqr", (2, 1, 2), _ormqr_shape, _ormqr_reference,
    lambda a, taus, c, left, transpose: ("ormqr", (*a, taus[0], *c, left, transpose)),
)  # fmt: skip


def ormqr(a: ArrayLike, taus: ArrayLike, c: ArrayLike, *, left: bool = True, transpose: bool = False) -> Array:
    """q c, or c q where not ``left``, for the q whose reflectors are in a, [..., m, n], with taus, [..., k].

    With ``transpose`` the conjugated transpose of q. q is m x m and is not formed. ValueError for shapes that do not
    fit.

    >>> a, taus = np.float32([[-5, -2.2], [0.5, 0.4]]), np.float32([1.6, 0.0])
    >>> np.round(np.float32(lax.linalg.ormqr(a, taus, np.float32([[3], [4]]), transpose=True)), 3).tolist()
    [[-5.0], [0.0]]
    """
    return ormqr_p.bind(a, taus, c, left=bool(left), transpose=bool(transpose))
