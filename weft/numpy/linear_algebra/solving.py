"""NumPy's solvers and what is computed with them: solve, inv, det, slogdet, lstsq, pinv, rank, condition, tensors.

solve(f32[3,3], f32[3])   ->   jit[name=solve]: lu of the matrix, whose factors custom_linear_solve uses both ways
"""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

import numpy as np

from weft import operations as lax
from weft._base.array import Array
from weft._base.record import NamedTuple
from weft.autodiff import custom_jvp, implicit
from weft.batching.vmap import vmap
from weft.dispatch.calls import jit as jit_module
from weft.numpy import linalg, promotion, rearrange, reductions, searching
from weft.numpy.array_creation import creation, diagonals, matrices
from weft.numpy.linear_algebra import contractions, decompositions
from weft.numpy.pointwise import logic
from weft.operations.linalg import lu as lu_module
from weft.operations.linalg import matrices as blocks
from weft.operations.linalg import qr as qr_module
from weft.operations.linalg.triangular import triangular_solve
from weft.operations.settings import Precision

jit = jit_module.jit


class SlogdetResult(NamedTuple):
    """The sign of a determinant and the logarithm of its absolute value.

    >>> SlogdetResult(1, 2).sign
    1
    """

    sign: Any
    logabsdet: Any


def _inexact(name: str, *arrays: Any) -> tuple[Any, ...]:
    promotion.check_arraylike(name, *arrays)
    return promotion.promote_dtypes_inexact(*arrays)


def _is_complex(x: Any) -> bool:
    return np.issubdtype(promotion.dtype_of(x), np.complexfloating)


def _square(name: str, a: Any) -> tuple[int, ...]:
    extents = promotion.shape_of(a)
    if len(extents) < 2 or extents[-1] != extents[-2]:
        raise ValueError(f"Argument to {name}() must have shape [..., n, n], got {extents}")
    return extents


# -- solve ------------------------------------------------------------------------------------------------------------


@jit(static_argnums=(3,))
def _lu_solve(lu: Any, permutation: Any, b: Any, trans: int) -> Any:
    """x with a x = b (or its transpose) for the factors of a; b is one vector or several columns."""
    is_vector = len(promotion.shape_of(b)) == len(promotion.shape_of(lu)) - 1
    columns = blocks.column(b) if is_vector else b
    x = lu_module.solve_factored(lu, permutation, columns, trans)
    return lax.squeeze(x, (len(promotion.shape_of(x)) - 1,)) if is_vector else x


def solve_matrices(a: Any, b: Any) -> Array:
    """x with a x = b, a [..., m, m] and b [..., m] or [..., m, k] of the same batch.

    The factors are made of ``stop_gradient(a)``: derivatives come from the equation and use the same factors.
    """
    lu, _, permutation = lu_module.lu(lax.stop_gradient(a))
    rank_a, rank_b = len(promotion.shape_of(a)), len(promotion.shape_of(b))

    def times(x: Any) -> Any:
        batch = tuple(range(rank_a - 2))
        numbers = (((rank_a - 1,), (rank_a - 2,)), (batch, batch))
        return lax.dot_general(a, x, numbers, precision=Precision.HIGHEST)

    def solved(right: Any) -> Any:
        return implicit.custom_linear_solve(
            times,
            right,
            solve=lambda _, x: _lu_solve(lu, permutation, x, 0),
            transpose_solve=lambda _, x: _lu_solve(lu, permutation, x, 1),
        )

    return solved(b) if rank_a == rank_b + 1 else vmap(solved, rank_b - 1, rank_b - 1)(b)


@jit
def solve(a: Any, b: Any) -> Array:
    """x with a x = b, a ([..., m, m]) and b ([m] or [..., m, k]) broadcast; real or complex.

    As in NumPy 2, b is a vector only if it has one dimension. By LU factors with partial pivoting; a singular matrix
    gives inf or NaN. ValueError for shapes that do not fit.

    >>> solve(weft.numpy.array([[2.0, 0.0], [0.0, 4.0]]), weft.numpy.array([2.0, 2.0])).tolist()
    [1.0, 0.5]
    """
    a, b = _inexact("jnp.linalg.solve", a, b)
    of_a, of_b = promotion.shape_of(a), promotion.shape_of(b)
    if len(of_a) < 2:
        raise ValueError(f"left hand array must be at least two dimensional; got a.shape={of_a}")
    if len(of_b) > 1 and len(of_a) == len(of_b) + 1 and of_a[-1] == of_b[-1] and of_a[-1] != of_b[-2]:
        raise ValueError(
            f"Invalid shapes for solve: {of_a}, {of_b}. For one vector to each matrix use "
            "solve(a, b[..., None]).squeeze(-1)."
        )
    if of_a[-1] != of_a[-2] or not of_b or of_b[0 if len(of_b) == 1 else -2] != of_a[-1]:
        raise ValueError(
            "The arguments to solve must have shapes a=[..., m, m] and b=[..., m, k] or b=[m]; got "
            f"a={of_a} and b={of_b}"
        )
    if len(of_b) == 1:
        return solve_matrices(a, promotion.broadcast_to(b, of_a[:-1]))
    batch = promotion.broadcast_shapes(of_a[:-2], of_b[:-2])
    return solve_matrices(
        promotion.broadcast_to(a, (*batch, *of_a[-2:])), promotion.broadcast_to(b, (*batch, *of_b[-2:]))
    )


@jit
def inv(a: Any) -> Array:
    """The inverse of a ([..., n, n]), real or complex: the solution of a x = 1.

    A singular matrix gives inf or NaN (NumPy raises). ValueError for a matrix that is not square.

    >>> inv(weft.numpy.array([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    (a,) = _inexact("jnp.linalg.inv", a)
    extents = promotion.shape_of(a)
    if len(extents) < 2 or extents[-1] != extents[-2]:
        raise ValueError(f"Argument to inv must have shape [..., n, n], got {extents}.")
    return solve(a, promotion.broadcast_to(diagonals.eye(extents[-1], dtype=promotion.dtype_of(a)), extents))


# -- determinants -----------------------------------------------------------------------------------------------------


@custom_jvp.custom_jvp
def _slogdet_small(a: Any) -> tuple[Any, Any]:
    """The sign and logarithm of the determinant of matrices of one or two rows, by the formula."""
    value = _det_small(a)
    return lax.sign(value), blocks.real_part(lax.log(lax.abs(value)))


def _det_small(a: Any) -> Any:
    n = promotion.shape_of(a)[-1]
    if n == 1:
        return a[..., 0, 0]
    return lax.sub(lax.mul(a[..., 0, 0], a[..., 1, 1]), lax.mul(a[..., 0, 1], a[..., 1, 0]))


def _moved_sign(sign: Any, moved: Any) -> tuple[Any, Any]:
    """(tangent of the sign, of the logarithm) from d det / det: a real sign does not move."""
    if not _is_complex(sign):
        return creation.zeros_like(sign), moved
    real = lax.real(moved)
    return lax.mul(lax.sub(moved, lax.complex(real, lax.full_like(real, 0))), sign), real


@_slogdet_small.defjvp
def _slogdet_small_jvp(primals: Any, tangents: Any) -> Any:
    (a,), (g,) = primals, tangents
    sign, size = _slogdet_small(a)
    if promotion.shape_of(a)[-1] == 1:
        moved = g[..., 0, 0] / a[..., 0, 0]
    else:
        moved = (
            g[..., 0, 0] * a[..., 1, 1] - g[..., 0, 1] * a[..., 1, 0]
            - g[..., 1, 0] * a[..., 0, 1] + g[..., 1, 1] * a[..., 0, 0]
        ) / _det_small(a)  # fmt: skip
    return (sign, size), _moved_sign(sign, moved)


def _exchanged(pivots: Any) -> Any:
    """How many rows are exchanged with another."""
    extents = promotion.shape_of(pivots)
    indices = lax.broadcasted_iota(promotion.dtype_of(pivots), extents, len(extents) - 1)
    return reductions.count_nonzero(pivots != indices, axis=-1)


@custom_jvp.custom_jvp
def _slogdet_lu(a: Any) -> tuple[Any, Any]:
    """The diagonal of the factors, and how many rows are exchanged."""
    dtype = promotion.dtype_of(a)
    lu, pivots, _ = lu_module.lu(a)
    diagonal = matrices.diagonal(lu, axis1=-2, axis2=-1)
    is_zero = reductions.any(diagonal == promotion.constant(np.zeros((), dtype)), axis=-1)
    parity = _exchanged(pivots)
    size = lax.abs(diagonal)
    if _is_complex(a):
        sign = reductions.prod(diagonal / size.astype(dtype), axis=-1)
    else:
        sign = promotion.constant(np.ones((), dtype))
        parity = parity + reductions.count_nonzero(diagonal < 0, axis=-1)
    turned = (-2 * (parity % 2) + 1).astype(dtype)
    sign = searching.where(is_zero, promotion.constant(np.zeros((), dtype)), sign * turned)
    log = reductions.sum(lax.log(size), axis=-1)
    return sign, searching.where(is_zero, promotion.constant(np.array(-np.inf, promotion.dtype_of(log))), log)


@custom_jvp.custom_jvp
def _slogdet_qr(a: Any) -> tuple[Any, Any]:
    """The diagonal of r, and how many reflections are made."""
    if _is_complex(a):
        raise NotImplementedError("slogdet method='qr' not implemented for complex inputs")
    n = promotion.shape_of(a)[-1]
    r, taus = qr_module.factored(a)
    diagonal = matrices.diagonal(r, axis1=-2, axis2=-1)
    reflected = searching.where(taus[..., : max(n - 1, 0)] != 0, -1, 1)
    sign = reductions.prod(lax.sign(diagonal), axis=-1) * reductions.prod(reflected, axis=-1).astype(r.dtype)
    return sign, reductions.sum(lax.log(lax.abs(diagonal)), axis=-1)


def _slogdet_jvp(primals: Any, tangents: Any) -> Any:
    """d log det a = trace(a^-1 da) (Jacobi)."""
    (a,), (g,) = primals, tangents
    sign, size = slogdet(a)
    return (sign, size), _moved_sign(sign, matrices.trace(solve(a, g), axis1=-1, axis2=-2))


_slogdet_lu.defjvp(_slogdet_jvp)
_slogdet_qr.defjvp(_slogdet_jvp)


@jit(static_argnames=("method",))
def slogdet(a: Any, *, method: str | None = None) -> SlogdetResult:
    """(sign, logabsdet): the determinant of a ([..., n, n]) is sign * exp(logabsdet); the sign is 0 of singular ones.

    ``method`` is "lu" (None) or, for real matrices, "qr". The sign of complex matrices has absolute value 1. ValueError
    for a matrix that is not square or another method.

    >>> sign, size = slogdet(weft.numpy.array([[1.0, 0.0], [0.0, -1.0]]))
    >>> sign.item(), size.item()
    (-1.0, 0.0)
    """
    (a,) = _inexact("jnp.linalg.slogdet", a)
    n = _square("slogdet", a)[-1]
    if method is None or method == "lu":
        return SlogdetResult(*(_slogdet_small(a) if n in (1, 2) else _slogdet_lu(a)))
    if method == "qr":
        return SlogdetResult(*_slogdet_qr(a))
    raise ValueError(f"Unknown slogdet method '{method}'. Supported methods are 'lu' (`None`), and 'qr'.")


@custom_jvp.custom_jvp
def _det(a: Any) -> Any:
    sign, size = slogdet(a)
    return sign * lax.exp(size).astype(sign.dtype)


def _det_and_solved(a: Any, b: Any) -> tuple[Any, Any]:
    """(det a, det(a) a^-1 b), which is defined where one pivot of a is zero.

    x = u^-1 (d l^-1 p b), where d = det(a) but for the last row, which is divided by det(a) / u[n,n] instead of u[n,n].
    """
    n = promotion.shape_of(a)[-1]
    if n == 1:
        return a[..., 0, 0], b
    lu, pivots, permutation = lu_module.lu(a)
    dtype = promotion.dtype_of(lu)
    odd = _exchanged(pivots) % 2
    partial = reductions.cumprod(matrices.diagonal(lu, axis1=-2, axis2=-1), axis=-1)
    partial = partial * (1 - 2 * odd).astype(dtype)[..., None]
    lu = lu.at[..., -1, -1].set(1.0 / partial[..., -2])
    ones = creation.ones(promotion.shape_of(b)[:-1], dtype)
    tried = triangular_solve(lu, ones, left_side=True)
    bad = reductions.any(logic.isnan(tried) | logic.isinf(tried), axis=-1)[..., None, None]
    x = searching.where(bad, 0, b)  # two pivots are zero: so are all cofactors
    x = blocks.take_rows(x, permutation)
    x = triangular_solve(lu, x, left_side=True, lower=True, unit_diagonal=True)
    whole = partial[..., -1, None, None] * x[..., :-1, :]
    x = lax.concatenate([whole, x[..., -1:, :]], len(promotion.shape_of(x)) - 2)
    x = triangular_solve(lu, x, left_side=True)
    return partial[..., -1], searching.where(bad, 0, x)


@_det.defjvp
def _det_jvp(primals: Any, tangents: Any) -> Any:
    """d det a = trace(adj(a) da) (Jacobi)."""
    (a,), (g,) = primals, tangents
    value, z = _det_and_solved(a, g)
    return value, matrices.trace(z, axis1=-1, axis2=-2)


def _det_3x3(a: Any) -> Any:
    def entry(i: int, j: int) -> Any:
        return a[..., i, j]

    return (
        entry(0, 0) * entry(1, 1) * entry(2, 2) + entry(0, 1) * entry(1, 2) * entry(2, 0)
        + entry(0, 2) * entry(1, 0) * entry(2, 1) - entry(0, 2) * entry(1, 1) * entry(2, 0)
        - entry(0, 0) * entry(1, 2) * entry(2, 1) - entry(0, 1) * entry(1, 0) * entry(2, 2)
    )  # fmt: skip


@jit
def det(a: Any) -> Array:
    """The determinants of a ([..., n, n]), real or complex; ValueError for a matrix that is not square.

    >>> det(weft.numpy.array([[1.0, 2.0], [3.0, 4.0]])).item()
    -2.0
    """
    (a,) = _inexact("jnp.linalg.det", a)
    n = _square("_det", a)[-1]
    return _det_small(a) if n == 2 else _det_3x3(a) if n == 3 else _det(a)


# -- least squares ----------------------------------------------------------------------------------------------------


def _lstsq(a: Any, b: Any, rcond: Any, *, numpy_resid: bool = False) -> tuple[Any, Any, Any, Any]:
    a, b = promotion.promote_dtypes_inexact(a, b)
    if promotion.shape_of(a)[:1] != promotion.shape_of(b)[:1]:
        raise ValueError("Leading dimensions of input arrays must match")
    is_vector = len(promotion.shape_of(b)) == 1
    b = b[:, None] if is_vector else b
    for array, words in ((a, "two-dimensional"), (b, "one or two-dimensional")):
        if len(promotion.shape_of(array)) != 2:
            raise TypeError(f"{len(promotion.shape_of(array))}-dimensional array given. Array must be {words}")
    m, n = promotion.shape_of(a)
    if 0 in (m, n):
        s, rank = creation.zeros(0, blocks.real_dtype(a.dtype)), creation.asarray(0)
        x = creation.zeros((n, promotion.shape_of(b)[1]), a.dtype)
    else:
        eps = float(np.finfo(a.dtype).eps)
        limit = eps * max(n, m) if rcond is None else searching.where(rcond < 0, eps, rcond)
        u, s, vt = decompositions.svd(a, full_matrices=False)
        mask = (s > 0) & (s >= creation.asarray(limit, s.dtype) * s[0])
        rank = reductions.sum(mask)
        safe = searching.where(mask, s, 1).astype(a.dtype)
        inverse = searching.where(mask, 1 / safe, 0)[:, None]
        x = blocks.product(blocks.adjoint(vt), inverse * blocks.product(blocks.adjoint(u), b))
    if numpy_resid and (rank < n or m <= n):
        residuals = creation.zeros(0, blocks.real_dtype(a.dtype))
    else:
        residuals = linalg.norm(b - blocks.product(a, x), axis=0) ** 2
    return x[:, 0] if is_vector else x, residuals, rank, s


_jit_lstsq = jit(_lstsq)


def lstsq(a: Any, b: Any, rcond: float | None = None, *, numpy_resid: bool = False) -> tuple[Any, Any, Any, Any]:
    """(x, residuals, rank, s): the x of least norm that minimises the norm of a x - b, a ([m, n]), b ([m] or [m, k]).

    Singular values s of a below ``rcond`` times the largest count as zero (None: the dtype's eps times max(m, n)). The
    residuals, one for each column, are there in any case, unlike NumPy's; with ``numpy_resid`` they are as NumPy's,
    which cannot be jitted. ValueError or TypeError for shapes that do not fit.

    >>> x, residuals, rank, s = lstsq(weft.numpy.array([[1.0], [1.0]]), weft.numpy.array([1.0, 3.0]))
    >>> x.round(3).tolist(), rank.item()
    ([2.0], 1)
    """
    promotion.check_arraylike("jnp.linalg.lstsq", a, b)
    if numpy_resid:
        return _lstsq(a, b, rcond, numpy_resid=True)
    return _jit_lstsq(a, b, rcond)


def pinv(a: Any, rtol: Any = None, hermitian: bool = False, *, rcond: Any = None) -> Array:
    """The pseudo-inverse of a ([..., m, n]): [..., n, m], from the singular values.

    Those below ``rtol`` (of old ``rcond``) times the largest count as zero (None: 10 max(m, n) eps of the dtype).
    ``hermitian`` says that a is symmetric or Hermitian. ValueError for both tolerances.

    >>> pinv(weft.numpy.array([[2.0, 0.0], [0.0, 0.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.0]]
    """
    if rcond is not None:
        if rtol is not None:
            raise ValueError("pinv: only one of rtol and rcond may be specified.")
        rtol = rcond
    (a,) = _inexact("jnp.linalg.pinv", a)
    return _pinv(a, rtol, hermitian)


@functools.partial(custom_jvp.custom_jvp, nondiff_argnums=(1, 2))
@jit(static_argnames=("hermitian",))
def _pinv(a: Any, rtol: Any = None, hermitian: bool = False) -> Any:
    *batch, m, n = promotion.shape_of(a)
    if 0 in (m, n):
        return creation.empty((*batch, n, m), a.dtype)
    a = blocks.conjugated(a)
    if rtol is None:
        rtol = 10.0 * max(m, n) * float(np.finfo(a.dtype).eps)
    u, s, vh = decompositions.svd(a, full_matrices=False, hermitian=hermitian)
    rtol = creation.asarray(rtol, s.dtype)
    rtol = promotion.with_rank(rtol[..., None], s.ndim)
    s = searching.where(s > rtol * s[..., :1], s, np.inf)  # whose inverse is 0
    return contractions.matmul(
        blocks.transposed(vh), blocks.transposed(u) / s[..., None].astype(u.dtype), precision=Precision.HIGHEST
    ).astype(a.dtype)


@_pinv.defjvp
def _pinv_jvp(rtol: Any, hermitian: bool, primals: Any, tangents: Any) -> Any:
    """Golub and Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares problems" (1973)."""
    (a,), (da,) = primals, tangents
    p = _pinv(a, rtol, hermitian)
    hp, hda = blocks.adjoint(p), blocks.adjoint(da)
    times = functools.partial(contractions.matmul, precision=Precision.HIGHEST)
    m, n = promotion.shape_of(a)[-2:]
    if hermitian and m == n:  # of the symmetric part alone
        da = hda = (da + hda) / 2
    moved = -times(times(p, da), p)
    moved = moved + times(p, times(hp, hda)) - times(times(p, times(hp, hda)), times(a, p))
    right = times(times(hda, hp), p)
    return p, moved + right - times(p, times(a, right))


# -- rank and condition -----------------------------------------------------------------------------------------------


@jit(static_argnames=("hermitian",))
def matrix_rank(M: Any, rtol: Any = None, *, hermitian: bool = False, tol: Any = None) -> Array:
    """How many singular values of the matrices ([..., m, n]) count as nonzero; for a vector, whether any element does.

    Those count that are larger than ``rtol`` times the largest one of their matrix (None: max(m, n) times the eps of
    the dtype), as NumPy and the array API standard have it; JAX takes ``rtol`` itself as the bound. ``tol``, of older
    NumPy, is a bound itself. Both broadcast against [...]. ValueError for both.

    >>> matrix_rank(weft.numpy.array([[1.0, 1.0], [1.0, 1.0]])).item()
    1
    """
    if tol is not None and rtol is not None:
        raise ValueError("matrix_rank: only one of tol or rtol may be specified.")
    (M,) = _inexact("jnp.linalg.matrix_rank", M)
    extents = promotion.shape_of(M)
    if len(extents) < 2:
        return reductions.any(M != 0).astype(np.int32)
    s = decompositions.svd(M, full_matrices=False, compute_uv=False, hermitian=hermitian)
    if tol is not None:
        bound = creation.asarray(tol)
    else:
        share = max(extents[-2:]) * float(np.finfo(s.dtype).eps) if rtol is None else creation.asarray(rtol, s.dtype)
        bound = reductions.max(s, axis=-1, initial=0) * share
    return reductions.sum(s > bound[..., None], axis=-1)


@jit(static_argnames=("p",))
def cond(x: Any, p: Any = None) -> Array:
    """The condition number of matrices ([..., m, n]): the norm of order ``p`` times that of the inverse.

    ``p`` None and 2 divide the largest singular value by the smallest, -2 the other way round; others are those of
    ``norm`` and take square matrices. ValueError for an empty matrix or one that does not fit.

    >>> cond(weft.numpy.array([[2.0, 0.0], [0.0, 1.0]])).item()
    2.0
    """
    promotion.check_arraylike("jnp.linalg.cond", x)
    extents = promotion.shape_of(x)
    if len(extents) < 2:
        raise ValueError(f"jnp.linalg.cond: input array must be at least 2D; got arr.shape={extents}")
    if 0 in extents[-2:]:
        raise ValueError(f"jnp.linalg.cond: input array must not be empty; got arr.shape={extents}")
    if p in (None, 2, -2):
        s = decompositions.svdvals(x)
        if p != -2:
            return s[..., 0] / s[..., -1]
        found = s[..., -1] / s[..., 0]
    else:
        if extents[-1] != extents[-2]:
            raise ValueError(f"jnp.linalg.cond: for p={p!r}, array must be square; got arr.shape={extents}")
        found = linalg.norm(x, ord=p, axis=(-2, -1)) * linalg.norm(inv(x), ord=p, axis=(-2, -1))
    had_nan = reductions.any(logic.isnan(creation.asarray(x)), axis=(-2, -1))
    return searching.where(logic.isnan(found) & ~had_nan, np.inf, found)


# -- tensors ----------------------------------------------------------------------------------------------------------


def tensorinv(a: Any, ind: int = 2) -> Array:
    """The inverse of a as a matrix from its last axes to its first ``ind``; the axes are exchanged.

    ValueError where the two sides have different numbers of elements, or ``ind`` is not positive.

    >>> tensorinv(weft.numpy.eye(4).reshape(4, 2, 2), ind=1).shape
    (2, 2, 4)
    """
    promotion.check_arraylike("tensorinv", a)
    count = operator.index(ind)
    if count <= 0:
        raise ValueError(f"ind must be a positive integer; got ind={count}")
    extents = promotion.shape_of(a)
    rows, columns = extents[:count], extents[count:]
    flat = (math.prod(rows), math.prod(columns))
    if flat[0] != flat[1]:
        raise ValueError(
            "tensorinv is only possible when the product of the first `ind` dimensions equals that of the remaining "
            f"dimensions. got arr.shape={extents} with ind={count}."
        )
    return rearrange.reshape(inv(rearrange.reshape(a, flat)), (*columns, *rows))


def tensorsolve(a: Any, b: Any, axes: tuple[int, ...] | None = None) -> Array:
    """x with tensordot(a, x, x.ndim) = b; ``axes`` of a are moved to its end first.

    ValueError for shapes that do not fit.

    >>> tensorsolve(weft.numpy.eye(4).reshape(2, 2, 4), weft.numpy.ones((2, 2))).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    promotion.check_arraylike("tensorsolve", a, b)
    rank = len(promotion.shape_of(a))
    if axes is not None:
        a = rearrange.moveaxis(a, axes, len(axes) * (rank - 1,))
    of_a, of_b = promotion.shape_of(a), promotion.shape_of(b)
    out = of_a[len(of_b) :]
    if of_a[: len(of_b)] != of_b:
        raise ValueError(
            f"After moving axes to end, leading shape of a must match shape of b. got a.shape={of_a}, b.shape={of_b}"
        )
    if math.prod(of_b) != math.prod(out):
        raise ValueError(
            "Input arrays must have prod(a.shape[:b.ndim]) == prod(a.shape[b.ndim:]); got "
            f"a.shape={of_a}, b.ndim={len(of_b)}."
        )
    square = rearrange.reshape(a, (math.prod(of_b), math.prod(out)))
    return rearrange.reshape(solve(square, rearrange.ravel(b)), out)
