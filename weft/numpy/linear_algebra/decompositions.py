"""NumPy's matrix decompositions over ``weft.lax.linalg``: cholesky, qr, svd, eig and their kin.

qr(f32[4,3])   ->   jit[name=qr]: qr        the results are named tuples, as NumPy's are
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import operations as lax
from weft._base.array import Array
from weft._base.record import NamedTuple
from weft.dispatch.calls import jit as jit_module
from weft.numpy import promotion, rearrange
from weft.numpy.subscripts import taking
from weft.operations.linalg import cholesky as cholesky_module
from weft.operations.linalg import general, matrices, singular, symmetric
from weft.operations.linalg import qr as qr_module

jit = jit_module.jit


class EigResult(NamedTuple):
    """Eigenvalues and, as columns, eigenvectors of a general matrix.

    >>> EigResult(1, 2).eigenvalues
    1
    """

    eigenvalues: Any
    eigenvectors: Any


class EighResult(NamedTuple):
    """Eigenvalues and, as columns, eigenvectors of a symmetric matrix.

    >>> EighResult(1, 2).eigenvectors
    2
    """

    eigenvalues: Any
    eigenvectors: Any


class QRResult(NamedTuple):
    """The factors of a QR decomposition.

    >>> QRResult(1, 2).Q
    1
    """

    Q: Any
    R: Any


class SVDResult(NamedTuple):
    """The factors of a singular value decomposition.

    >>> SVDResult(1, 2, 3).S
    2
    """

    U: Any
    S: Any
    Vh: Any


def _inexact(name: str, a: Any) -> Any:
    promotion.check_arraylike(name, a)
    (a,) = promotion.promote_dtypes_inexact(a)
    return a


@jit(static_argnames=("upper", "symmetrize_input"))
def cholesky(a: Any, *, upper: bool = False, symmetrize_input: bool = True) -> Array:
    """The lower triangular l with l l' = a, or with ``upper`` its conjugated transpose, for a ([..., n, n]).

    Symmetric or Hermitian: a is replaced by (a + a') / 2, or, with ``symmetrize_input=False``, only its lower triangle
    is read. Unlike NumPy's, a matrix that is not positive definite gives NaN. ValueError for a matrix that is not
    square.

    >>> cholesky(weft.numpy.array([[4.0, 2.0], [2.0, 5.0]])).tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    factor = cholesky_module.cholesky(_inexact("jnp.linalg.cholesky", a), symmetrize_input=symmetrize_input)
    return matrices.adjoint(factor) if upper else factor


@jit(static_argnames=("mode",))
def qr(a: Any, mode: str = "reduced") -> Any:
    """(Q, R) with Q R = a ([..., m, n]), Q with orthonormal columns, R upper triangular.

    With k = min(m, n): "reduced" (or "full") gives Q [..., m, k] and R [..., k, n]; "complete" Q [..., m, m] and
    R [..., m, n]; "r" R alone; "raw" LAPACK's reflectors, [..., n, m], and their factors. ValueError for another mode.

    >>> q, r = qr(weft.numpy.array([[3.0, 1.0], [4.0, 2.0]]))
    >>> weft.numpy.abs(r).round(3).tolist()
    [[5.0, 2.200000047683716], [0.0, 0.4000000059604645]]
    """
    a = _inexact("jnp.linalg.qr", a)
    if mode == "raw":
        made, taus = qr_module.factored(a)
        return QRResult(matrices.transposed(made), taus)
    if mode not in ("reduced", "r", "full", "complete"):
        raise ValueError(f"Unsupported QR decomposition mode '{mode}'")
    q, r = qr_module.qr(a, pivoting=False, full_matrices=mode == "complete")
    return r if mode == "r" else QRResult(q, r)


@jit(static_argnames=("full_matrices", "compute_uv", "hermitian", "subset_by_index"))
def svd(
    a: Any,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> Any:
    """(U, S, Vh) with U diag(S) Vh = a ([..., m, n]), S real and descending; S alone where not ``compute_uv``.

    U is [..., m, m] and Vh [..., n, n] with ``full_matrices``, otherwise [..., m, k] and [..., k, n], k = min(m, n).
    ``hermitian`` says that a is symmetric or Hermitian, whose eigenvalues then serve. NaN and infinities give NaN.

    >>> svd(weft.numpy.array([[0.0, 2.0], [1.0, 0.0]])).S.tolist()
    [2.0, 1.0]
    """
    a = _inexact("jnp.linalg.svd", a)
    if hermitian:
        return _hermitian_svd(a, compute_uv, subset_by_index)
    found = singular.svd(a, full_matrices=full_matrices, compute_uv=compute_uv, subset_by_index=subset_by_index)
    return SVDResult(*found) if compute_uv else found


def _hermitian_svd(a: Any, compute_uv: bool, subset_by_index: Any) -> Any:
    """From eigenvalues: their absolute values, with the signs on the right."""
    v, w = symmetric.eigh(a, subset_by_index=subset_by_index)
    s, last = lax.abs(w), len(promotion.shape_of(w)) - 1
    if not compute_uv:
        return lax.rev(lax.sort(s, dimension=last), (last,))
    counted = lax.broadcasted_iota(matrices.INT32, promotion.shape_of(s), last)
    s, order, sign = [lax.rev(x, (last,)) for x in lax.sort((s, counted, lax.sign(w)), dimension=last, num_keys=1)]
    u = taking.take_along_axis(v, rearrange.expand_dims(order, -2), axis=-1)
    right = lax.mul(u, matrices.cast(promotion.broadcast_to(rearrange.expand_dims(sign, -2), promotion.shape_of(u)), u))
    return SVDResult(u, s, matrices.adjoint(right))


def svdvals(x: Any, /) -> Array:
    """The singular values of the matrices in the last two axes, descending; real.

    >>> svdvals(weft.numpy.array([[0.0, 2.0], [1.0, 0.0]])).tolist()
    [2.0, 1.0]
    """
    promotion.check_arraylike("jnp.linalg.svdvals", x)
    return svd(x, compute_uv=False, hermitian=False)


def eig(a: Any) -> EigResult:
    """(eigenvalues, eigenvectors) of general matrices ([..., n, n]), complex; the vectors are columns of length 1.

    ValueError for a matrix that is not square. The vectors have no derivative here (see ``lax.linalg.eig``).

    >>> eig(weft.numpy.array([[2.0, 0.0], [0.0, 3.0]])).eigenvalues.real.tolist()
    [2.0, 3.0]
    """
    w, v = general.eig(_inexact("jnp.linalg.eig", a), compute_left_eigenvectors=False)
    return EigResult(w, v)


@jit
def eigvals(a: Any) -> Array:
    """The eigenvalues of general matrices ([..., n, n]), complex.

    >>> eigvals(weft.numpy.array([[2.0, 0.0], [0.0, 3.0]])).real.tolist()
    [2.0, 3.0]
    """
    a = _inexact("jnp.linalg.eigvals", a)
    return general.eig(a, compute_left_eigenvectors=False, compute_right_eigenvectors=False)[0]


@jit(static_argnames=("UPLO", "symmetrize_input"))
def eigh(a: Any, UPLO: str | None = None, symmetrize_input: bool = True) -> EighResult:
    """(eigenvalues, eigenvectors) of symmetric or Hermitian matrices ([..., n, n]): ascending, columns of length 1.

    a is replaced by (a + a') / 2, or, with ``symmetrize_input=False``, only the triangle that ``UPLO``, "L" or "U",
    names is read. ValueError for another ``UPLO`` and for a matrix that is not square.

    >>> eigh(weft.numpy.array([[2.0, 0.0], [0.0, 1.0]])).eigenvalues.tolist()
    [1.0, 2.0]
    """
    if UPLO not in (None, "L", "U"):
        raise ValueError(f"UPLO must be one of None, 'L', or 'U', got {UPLO}")
    a = _inexact("jnp.linalg.eigh", a)
    v, w = symmetric.eigh(a, lower=UPLO != "U", symmetrize_input=symmetrize_input)
    return EighResult(w, v)


@jit(static_argnames=("UPLO", "symmetrize_input"))
def eigvalsh(a: Any, UPLO: str | None = "L", *, symmetrize_input: bool = True) -> Array:
    """The eigenvalues of symmetric or Hermitian matrices ([..., n, n]), real and ascending; see ``eigh``.

    >>> eigvalsh(weft.numpy.array([[2.0, 0.0], [0.0, 1.0]])).tolist()
    [1.0, 2.0]
    """
    promotion.check_arraylike("jnp.linalg.eigvalsh", a)
    return eigh(a, UPLO, symmetrize_input=symmetrize_input)[0]


def dtype_eps(x: Any) -> float:
    """The distance from 1 to the next number of an inexact dtype."""
    return float(np.finfo(promotion.dtype_of(x)).eps)
