"""Eigenvalues of general matrices, Schur and Hessenberg forms.

    a v = v diag(w)      w and v complex
    a = z t z'           t upper triangular (of real matrices with blocks of two), z orthonormal

Derivative of eigenvalues: Giles, "An extended collection of matrix derivative results" (2008), section 3.1. LAPACK
scales every eigenvector to length 1 and a real largest component, which the derivative of vectors preserves.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import core, errors
from weft._base import lazy
from weft.operations.data_movement.shape import shape_of
from weft.operations.later import ops
from weft.operations.linalg import matrices
from weft.operations.linalg.lu import solved
from weft.operations.linalg.matrices import adjoint, complex_dtype, matrix_primitive, nans, product
from weft.runtime import Array

ArrayLike = Any
Shape = tuple[int, ...]


class EigImplementation(enum.Enum):
    """How eigenvalues are computed; here always by LAPACK.

    >>> lax.linalg.EigImplementation.LAPACK.value
    'lapack'
    """

    CUSOLVER = "cusolver"
    MAGMA = "magma"
    LAPACK = "lapack"


# ---- eig


def _square(name: str, a: Shape) -> None:
    if a[0] != a[1]:
        raise ValueError(f"The input to {name} must be a square matrix. Got shape {a}.")


def _eig_shapes(
    a: Shape, *, compute_left_eigenvectors: bool, compute_right_eigenvectors: bool, **_: Any
) -> tuple[Shape, ...]:
    _square("eig", a)
    return (a[:1], *[a] * (compute_left_eigenvectors + compute_right_eigenvectors))


def _eig_dtypes(
    dtype: np.dtype, *, compute_left_eigenvectors: bool, compute_right_eigenvectors: bool, **_: Any
) -> tuple[np.dtype, ...]:
    return (complex_dtype(dtype),) * (1 + compute_left_eigenvectors + compute_right_eigenvectors)


def _eig_reference(
    a: np.ndarray, *, compute_left_eigenvectors: bool, compute_right_eigenvectors: bool, **_: Any
) -> list[np.ndarray]:
    dtype = complex_dtype(a.dtype)
    count = compute_left_eigenvectors + compute_right_eigenvectors
    if not np.isfinite(a).all() or not len(a):
        return [nans(a.shape[:1], dtype), *[nans(a.shape, dtype) for _ in range(count)]]
    found = lazy.scipy_linalg.eig(a, left=compute_left_eigenvectors, right=compute_right_eigenvectors)
    return [np.asarray(x).astype(dtype) for x in (found if count else (found,))]


def _eig_routine(
    a: Shape, *, compute_left_eigenvectors: bool, compute_right_eigenvectors: bool, **_: Any
) -> tuple[str, Shape]:
    return "geev", (a[0], compute_left_eigenvectors, compute_right_eigenvectors)


eig_p = matrix_primitive(
    "eig", (2,), _eig_shapes, _eig_reference, _eig_routine, dtypes=_eig_dtypes, multiple_results=True
)


def _vectors_jvp(w: Any, v: Any, da: Any) -> tuple[Array, Array]:
    """(dw, dv) of eigenvectors of length 1 whose largest component is real.

    With p = v^-1 da v and f = 1 / (w_j - w_i): u = v (f p); then a multiple of each eigenvector is added to its column
    to keep both properties.
    """
    p = product(solved(v, da), v)
    eye = matrices.identity_like(v)
    apart = ops.sub(ops.reciprocal(ops.sub(ops.add(eye, matrices.row(w)), matrices.column(w))), eye)
    u = product(v, ops.mul(apart, p))
    rank = len(shape_of(v))
    largest = ops.argmax(ops.abs(v), rank - 2, matrices.INT32)
    counted = ops.broadcasted_iota(matrices.INT32, shape_of(v), rank - 2)
    chosen = ops.eq(counted, ops.broadcast_in_dim(largest, shape_of(v), [*range(rank - 2), rank - 1]))
    mask = matrices.cast(chosen, v)

    def summed(x: Any) -> Array:
        return ops.reduce_sum(x, (rank - 2,))

    length = ops.neg(ops.real(summed(ops.mul(ops.conj(v), u))))
    phase = ops.neg(ops.div(ops.imag(summed(ops.mul(mask, u))), ops.real(summed(ops.mul(mask, v)))))
    return matrices.diagonal(p), ops.add(u, ops.mul(v, matrices.row(ops.complex(length, phase))))


def _eig_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, compute_left_eigenvectors: bool,
    compute_right_eigenvectors: bool, enable_eigvec_derivs: bool, implementation: Any,
) -> tuple[Any, Any]:  # fmt: skip
    has_vectors = compute_left_eigenvectors or compute_right_eigenvectors
    if has_vectors and not enable_eigvec_derivs:
        raise NotImplementedError(
            "Derivatives of non-symmetric eigenvectors are only valid under assumptions on the input that weft cannot "
            "check (see the enable_eigvec_derivs argument to weft.lax.linalg.eig). Pass enable_eigvec_derivs=True to "
            "weft.lax.linalg.eig to opt in."
        )
    w, *sides = eig_p.bind(
        *primals, compute_left_eigenvectors=compute_left_eigenvectors, compute_right_eigenvectors=True,
        enable_eigvec_derivs=enable_eigvec_derivs or not has_vectors, implementation=implementation,
    )  # fmt: skip
    right, da = sides[-1], ops.convert_element_type(tangents[0], core.get_aval(sides[-1]).dtype)
    if not has_vectors:
        rank = len(shape_of(right))
        moved = ops.reduce_sum(ops.mul(solved(right, da), matrices.transposed(right)), (rank - 1,))
        return [w], [moved]
    dw, d_right = _vectors_jvp(w, right, da)
    outs, moved_outs = [w], [dw]
    if compute_left_eigenvectors:
        _, d_left = _vectors_jvp(ops.conj(w), sides[0], adjoint(da))
        outs.append(sides[0])
        moved_outs.append(d_left)
    if compute_right_eigenvectors:
        outs.append(right)
        moved_outs.append(d_right)
    return outs, moved_outs


eig_p.jvp = _eig_jvp


def eig(
    x: ArrayLike,
    *,
    compute_left_eigenvectors: bool = True,
    compute_right_eigenvectors: bool = True,
    enable_eigvec_derivs: bool = False,
    implementation: EigImplementation | None = None,
    use_magma: bool | None = None,
) -> list[Array]:
    """[w, vl, vr]: the eigenvalues and, if requested, the left and right eigenvectors of x, [..., n, n]; complex.

    x vr = vr diag(w) and vl' x = diag(w) vl'; every vector has length 1 and a real largest component. Derivatives of
    of the vectors need ``enable_eigvec_derivs``; they are valid only if the eigenvalues are distinct and no component
    ties with the largest. NaN and infinities give NaN. ``implementation`` and ``use_magma`` are for other devices.
    ValueError for a matrix that is not square.

    >>> w, vl, vr = lax.linalg.eig(np.float32([[0, -1], [1, 0]]))
    >>> sorted(np.asarray(w).imag.tolist())
    [-1.0, 1.0]
    """
    if use_magma is not None:
        errors.warn(
            "use_magma is deprecated, please use implementation=EigImplementation.MAGMA instead.", DeprecationWarning
        )
        implementation = EigImplementation.MAGMA if use_magma else EigImplementation.LAPACK
    return list(
        eig_p.bind(
            x,
            compute_left_eigenvectors=bool(compute_left_eigenvectors),
            compute_right_eigenvectors=bool(compute_right_eigenvectors),
            enable_eigvec_derivs=bool(enable_eigvec_derivs),
            implementation=implementation,
        )
    )


# ---- schur


def _schur_shapes(a: Shape, *, compute_schur_vectors: bool, **_: Any) -> tuple[Shape, ...]:
    _square("schur", a)
    return (a, a) if compute_schur_vectors else (a,)


def _schur_reference(a: np.ndarray, *, compute_schur_vectors: bool, **_: Any) -> list[np.ndarray]:
    count = 2 if compute_schur_vectors else 1
    if not np.isfinite(a).all() or not len(a):
        return [nans(a.shape, a.dtype)] * count
    output = "complex" if a.dtype.kind == "c" else "real"
    return [x.astype(a.dtype) for x in lazy.scipy_linalg.schur(a, output=output)[:count]]


schur_p = matrix_primitive(
    "schur", (2,), _schur_shapes, _schur_reference,
    lambda a, compute_schur_vectors, **_: ("gees", (a[0], compute_schur_vectors)),
    dtypes=lambda dtype, compute_schur_vectors, **_: (dtype,) * (2 if compute_schur_vectors else 1),
    multiple_results=True,
)  # fmt: skip


def schur(
    x: ArrayLike,
    *,
    compute_schur_vectors: bool = True,
    sort_eig_vals: bool = False,
    select_callable: Callable[..., Any] | None = None,
) -> Any:
    """[t, z] with x = z t z', [..., n, n], z orthonormal, t upper triangular (for real x with 2 x 2 blocks).

    [t] alone without ``compute_schur_vectors``. NotImplementedError for ``sort_eig_vals``; ``select_callable`` is not
    used. ValueError for a matrix that is not square.

    >>> t, z = lax.linalg.schur(np.float32([[1, 2], [0, 3]]))
    >>> t.tolist()
    [[1.0, 2.0], [0.0, 3.0]]
    """
    if sort_eig_vals:
        raise NotImplementedError("The sort feature of LAPACK's gees routine is not implemented.")
    return list(
        schur_p.bind(
            x,
            compute_schur_vectors=bool(compute_schur_vectors),
            sort_eig_vals=sort_eig_vals,
            select_callable=select_callable,
        )
    )


# ---- hessenberg


def _hessenberg_shapes(a: Shape) -> tuple[Shape, Shape]:
    if a[0] != a[-1] or a[0] == 0:
        raise ValueError(f"Argument to Hessenberg reduction must have shape [..., n, n] with n > 0, got shape {a}")
    return a, (a[0] - 1,)


def _hessenberg_reference(a: np.ndarray) -> list[np.ndarray]:
    made, taus, _ = getattr(lazy.scipy_linalg.lapack, matrices.lapack_name(a, "gehrd"))(a)
    return [made, taus]


hessenberg_p = matrix_primitive(
    "hessenberg", (2,), _hessenberg_shapes, _hessenberg_reference, lambda a: ("gehrd", a[:1]),
    dtypes=lambda dtype: (dtype, dtype), multiple_results=True,
)  # fmt: skip


def hessenberg(a: ArrayLike) -> list[Array]:
    """[h, taus]: a matrix similar to a, [..., n, n] with n > 0, that is zero below its first subdiagonal.

    Below the subdiagonal, h holds the reflectors of the transformation, with their factors taus, [..., n-1].

    >>> h, taus = lax.linalg.hessenberg(np.float32([[1, 2], [3, 4]]))
    >>> h.tolist(), taus.tolist()
    ([[1.0, 2.0], [3.0, 4.0]], [0.0])
    """
    return list(hessenberg_p.bind(a))
