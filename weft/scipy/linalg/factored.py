"""SciPy's factorizations: cholesky, lu, qr, svd, schur, hessenberg, eigenvalues of symmetric matrices, polar.

Where SciPy's arguments say how memory is used or whether values are checked, they are accepted and not used.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import weft.numpy as jnp
from weft import operations as lax
from weft._base.array import Array
from weft.control import branches, while_loop
from weft.dispatch.calls import jit as jit_module
from weft.numpy import promotion
from weft.numpy.linear_algebra import polar_factors, solving
from weft.numpy.pointwise import vectorized
from weft.operations.linalg import (
    cholesky as cholesky_module,
)
from weft.operations.linalg import (
    general,
    matrices,
    singular,
    symmetric,
)
from weft.operations.linalg import (
    lu as lu_module,
)
from weft.operations.linalg import (
    qr as qr_module,
)
from weft.scipy.linalg.systems import of_triangle, of_vectors, solve_broadcast

jit = jit_module.jit


def _inexact(a: Any) -> Any:
    (a,) = promotion.promote_dtypes_inexact(a)
    return a


# -- cholesky ---------------------------------------------------------------------------------------------------------


@jit(static_argnames=("lower",))
def _cholesky(a: Any, lower: bool) -> Any:
    a = _inexact(a)
    factor = cholesky_module.cholesky(a if lower else matrices.adjoint(a), symmetrize_input=False)
    return factor if lower else matrices.adjoint(factor)


def cholesky(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """The upper triangular u with u' u = a, or with ``lower`` the lower triangular l with l l' = a ([..., n, n]).

    Only that triangle of a is read. A matrix that is not positive definite gives NaN.

    >>> cholesky(jnp.array([[4.0, 2.0], [2.0, 5.0]])).tolist()
    [[2.0, 1.0], [0.0, 2.0]]
    """
    return _cholesky(a, lower)


def cho_factor(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Any, bool]:
    """(the factor of ``cholesky``, ``lower``), for ``cho_solve``.

    >>> factor, lower = cho_factor(jnp.array([[4.0, 2.0], [2.0, 5.0]]))
    >>> factor.tolist(), lower
    ([[2.0, 1.0], [0.0, 2.0]], False)
    """
    return cholesky(a, lower=lower), lower


@jit(static_argnames=("lower",))
def _cho_solve(c: Any, b: Any, lower: bool) -> Any:
    c, b = promotion.promote_dtypes_inexact(c, b)
    is_vector = of_vectors("cho_solve", c, b)
    b = solve_broadcast(c, b, is_vector, lower=lower, transpose_a=not lower, conjugate_a=not lower)
    return solve_broadcast(c, b, is_vector, lower=lower, transpose_a=lower, conjugate_a=lower)


def cho_solve(c_and_lower: tuple[Any, bool], b: Any, overwrite_b: bool = False, check_finite: bool = True) -> Array:
    """x with a x = b ([n] or [..., n, k]) for the ``cho_factor`` of a ([..., n, n]).

    >>> cho_solve(cho_factor(jnp.array([[4.0, 0.0], [0.0, 2.0]])), jnp.array([4.0, 2.0])).round(3).tolist()
    [1.0, 1.0]
    """
    c, lower = c_and_lower
    return _cho_solve(c, b, lower)


# -- lu ---------------------------------------------------------------------------------------------------------------


@jit(static_argnames=("overwrite_a", "check_finite"))
def lu_factor(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Any, Any]:
    """(lu, pivots) of a ([..., m, n]): both factors in one array, and the row that each row is exchanged with.

    >>> [x.tolist() for x in lu_factor(jnp.array([[1.0, 2.0], [2.0, 2.0]]))]
    [[[2.0, 2.0], [0.5, 1.0]], [1, 1]]
    """
    factors, pivots, _ = lu_module.lu(_inexact(a))
    return factors, pivots


@jit(static_argnames=("trans", "overwrite_b", "check_finite"))
def lu_solve(
    lu_and_piv: tuple[Any, Any], b: Any, trans: int = 0, overwrite_b: bool = False, check_finite: bool = True
) -> Array:
    """x with a x = b ([n] or [..., n, k]) for the ``lu_factor`` of a ([..., n, n]).

    ``trans`` 1 solves with the transpose, 2 with the conjugated one; ValueError for another.

    >>> lu_solve(lu_factor(jnp.array([[1.0, 2.0], [2.0, 2.0]])), jnp.array([3.0, 4.0])).tolist()
    [1.0, 1.0]
    """
    factors, pivots = lu_and_piv
    factors, b = promotion.promote_dtypes_inexact(factors, b)
    order = lu_module.lu_pivots_to_permutation(pivots, promotion.shape_of(factors)[-1])
    is_vector = of_vectors("lu_solve", factors, b)

    def solved(factors: Any, order: Any, b: Any) -> Any:
        columns = b[:, None] if is_vector else b
        x = lu_module.solve_factored(factors, order, columns, trans)
        return x[:, 0] if is_vector else x

    signature = "(n,n),(n),(n)->(n)" if is_vector else "(n,n),(n),(n,k)->(n,k)"
    return vectorized.vectorize(solved, signature=signature)(factors, order, b)


@jit(static_argnames=("permute_l", "overwrite_a", "check_finite"))
def lu(a: Any, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Any, ...]:
    """(p, l, u) with p l u = a ([..., m, n]): a permutation, unit lower and upper triangular; or (p l, u).

    With k = min(m, n) they are [..., m, m], [..., m, k] and [..., k, n].

    >>> [x.tolist() for x in lu(jnp.array([[1.0, 2.0], [2.0, 2.0]]))]
    [[[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [0.5, 1.0]], [[2.0, 2.0], [0.0, 1.0]]]
    """
    a = _inexact(a)
    factors, _, order = lu_module.lu(a)
    m, n = promotion.shape_of(a)[-2:]
    k = min(m, n)
    indices = promotion.with_rank(jnp.arange(m, dtype=order.dtype)[:, None], a.ndim)
    p = (order[..., None, :] == indices).astype(matrices.real_dtype(a.dtype))
    left = jnp.tril(factors, -1)[..., :k] + promotion.with_rank(jnp.eye(m, k, dtype=a.dtype), a.ndim)
    upper = jnp.triu(factors)[..., :k, :]
    return (matrices.product(p.astype(a.dtype), left), upper) if permute_l else (p, left, upper)


# -- qr ---------------------------------------------------------------------------------------------------------------


@jit(static_argnames=("mode", "pivoting"))
def _qr(a: Any, mode: str, pivoting: bool) -> tuple[Any, ...]:
    if mode not in ("full", "r", "economic"):
        raise ValueError(f"Unsupported QR decomposition mode '{mode}'")
    found = qr_module.qr(_inexact(a), pivoting=pivoting, full_matrices=mode != "economic")
    return found[1:] if mode == "r" else found


def qr(
    a: Any,
    overwrite_a: bool = False,
    lwork: Any = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> tuple[Any, ...]:
    """(q, r) with q r = a ([..., m, n]); with ``pivoting`` (q, r, p), where q r = a[:, p].

    ``mode``: "full" gives q [..., m, m], "economic" [..., m, min(m, n)], "r" leaves q out. ValueError for another.

    >>> q, r = qr(jnp.array([[3.0, 1.0], [4.0, 2.0]]))
    >>> jnp.abs(r).round(3).tolist()
    [[5.0, 2.200000047683716], [0.0, 0.4000000059604645]]
    """
    return _qr(a, mode, pivoting)


def qr_multiply(
    a: Any,
    c: Any,
    mode: str = "right",
    pivoting: bool = False,
    conjugate: bool = False,
    overwrite_a: bool = False,
    overwrite_c: bool = False,
) -> tuple[Any, ...]:
    """(c q, r), or (q c, r) with ``mode`` "left", for the q and r of a ([..., m, n]); q is not formed.

    With k = min(m, n): c is [..., k, l] on the right of q, [..., l, m] on its left, or a vector. ``conjugate`` takes
    the complex conjugate of q; with ``pivoting`` the order of the columns is the third result. ValueError for another
    mode and for shapes that do not fit.

    >>> cq, r = qr_multiply(jnp.array([[3.0], [4.0]]), jnp.array([3.0, 4.0]))
    >>> jnp.abs(cq).tolist()
    [5.0]
    """
    if mode not in ("right", "left"):
        raise ValueError(f"mode must be 'right' or 'left', got {mode!r}")
    a, c = promotion.promote_dtypes_inexact(a, c)
    is_vector = len(promotion.shape_of(c)) == 1
    if is_vector:
        c = c[:, None] if mode == "left" else c[None, :]
    m, n = promotion.shape_of(a)[-2:]
    k, inner = min(m, n), promotion.shape_of(c)[-2 if mode == "left" else -1]
    if inner != (k if mode == "left" else m):
        side = f"Q @ c operation: a has shape {promotion.shape_of(a)} so Q has {k} columns, but c has {inner} rows"
        other = f"c @ Q operation: a has shape {promotion.shape_of(a)} so Q has {m} rows, but c has {inner} columns"
        raise ValueError(f"Array shapes are not compatible for {side if mode == 'left' else other}.")
    batch = promotion.broadcast_shapes(promotion.shape_of(a)[:-2], promotion.shape_of(c)[:-2])
    a = promotion.broadcast_to(a, (*batch, m, n))
    c = promotion.broadcast_to(c, (*batch, *promotion.shape_of(c)[-2:]))
    r, taus, *order = qr_module.factored(a, pivoting)
    if m > n and mode == "left":
        c = jnp.concatenate([c, jnp.zeros((*batch, m - k, promotion.shape_of(c)[-1]), c.dtype)], axis=-2)
    if conjugate:  # conj(q) c is (c' q')'
        c = matrices.transposed(c)
    made = qr_module.ormqr(r, taus, c, left=(mode == "left") != conjugate, transpose=conjugate)
    made = matrices.transposed(made) if conjugate else made
    made = made[..., :k] if mode == "right" else made
    return (jnp.ravel(made) if is_vector else made, jnp.triu(r[..., :k, :]), *order)


# -- singular values, determinant, inverse ----------------------------------------------------------------------------


@jit(static_argnames=("full_matrices", "compute_uv"))
def _svd(a: Any, *, full_matrices: bool, compute_uv: bool) -> Any:
    return singular.svd(_inexact(a), full_matrices=full_matrices, compute_uv=compute_uv)


def svd(
    a: Any,
    full_matrices: bool = True,
    compute_uv: bool = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Any:
    """(u, s, vh) with u diag(s) vh = a ([..., m, n]); s alone where not ``compute_uv``. See ``weft.numpy.linalg.svd``.

    ``lapack_driver`` is not used.

    >>> svd(jnp.array([[0.0, 2.0], [1.0, 0.0]]), compute_uv=False).tolist()
    [2.0, 1.0]
    """
    return _svd(a, full_matrices=full_matrices, compute_uv=compute_uv)


def det(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """The determinants of a ([..., n, n]).

    >>> det(jnp.array([[1.0, 2.0], [3.0, 4.0]])).item()
    -2.0
    """
    return solving.det(a)


def inv(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """The inverses of a ([..., n, n]).

    >>> inv(jnp.array([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    return solving.inv(a)


# -- eigenvalues ------------------------------------------------------------------------------------------------------


@jit(static_argnames=("lower", "eigvals_only"))
def _eigh(a: Any, lower: bool, eigvals_only: bool) -> Any:
    a = _inexact(a)
    if len(promotion.shape_of(a)) >= 2 and promotion.shape_of(a)[-1] == promotion.shape_of(a)[-2]:
        a = of_triangle(a, lower)
    v, w = symmetric.eigh(a, lower=lower)
    return w if eigvals_only else (w, v)


def eigh(
    a: Any,
    b: Any = None,
    lower: bool = True,
    eigvals_only: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: None = None,
    type: int = 1,
    check_finite: bool = True,
) -> Any:
    """(w, v): the eigenvalues, ascending, and eigenvectors, as columns, of symmetric or Hermitian a ([..., n, n]).

    w alone with ``eigvals_only``. Only the triangle that ``lower`` names is read. NotImplementedError for ``b``,
    ``eigvals`` and another ``type``.

    >>> eigh(jnp.array([[2.0, 0.0], [0.0, 1.0]]), eigvals_only=True).tolist()
    [1.0, 2.0]
    """
    for name, value, default in (("b", b, None), ("type", type, 1), ("eigvals", eigvals, None)):
        if value is not default and not (name == "type" and value == 1):
            raise NotImplementedError(f"Only the {name}={default} case of eigh is implemented.")
    return _eigh(a, lower, eigvals_only)


@jit(static_argnames=("eigvals_only", "select", "select_range"))
def eigh_tridiagonal(
    d: Any,
    e: Any,
    *,
    eigvals_only: bool = False,
    select: str = "a",
    select_range: tuple[float, float] | None = None,
    tol: float | None = None,
    key: Any = None,
) -> Any:
    """(w, v), or w alone: eigenvalues, ascending, and eigenvectors of a symmetric or Hermitian tridiagonal matrix.

    Its diagonal is d ([n], whose real part counts), the one below it e ([n-1]). ``select`` "a" gives all, "i" those
    numbered ``select_range[0]`` to ``select_range[1]``, both included. ``tol`` and ``key`` are not used. TypeError for
    different dtypes, NotImplementedError for ``select`` "v", ValueError for another.

    >>> eigh_tridiagonal(jnp.array([2.0, 2.0]), jnp.array([1.0]), eigvals_only=True).round(3).tolist()
    [1.0, 3.0]
    """
    d, e = jnp.asarray(d), jnp.asarray(e)
    if d.dtype != e.dtype:
        raise TypeError(f"diagonal and off-diagonal values must have same dtype, got {d.dtype} and {e.dtype}")
    if d.dtype not in matrices.LETTERS:
        raise TypeError(f"eigh_tridiagonal takes float32, float64, complex64 and complex128 only, got {d.dtype}")
    (n,) = promotion.shape_of(d)
    if select == "v":
        raise NotImplementedError("eigh_tridiagonal(..., select='v') is not implemented")
    if select not in ("a", "i"):
        raise ValueError("'select must have a value in {'a', 'i', 'v'}.")
    if select == "i" and select_range is None:
        raise ValueError("for select='i', select_range must be specified.")
    subset = None
    if select == "i" and select_range is not None:
        if select_range[0] > select_range[1]:
            raise ValueError("Got empty index range in select_range.")
        subset = (int(select_range[0]), int(select_range[1]) + 1)
    a = jnp.diag(lax.real(d).astype(d.dtype) if matrices.is_complex(d) else d)
    a = a + jnp.diag(e, -1) if n > 1 else a
    v, w = symmetric.eigh(a, lower=True, symmetrize_input=False, subset_by_index=subset)
    return w if eigvals_only else (w, v)


@jit(static_argnames=("output",))
def _schur(a: Any, output: str) -> list[Any]:
    a = _inexact(a)
    if output == "complex":
        a = a.astype(matrices.complex_dtype(a.dtype))
    return list(general.schur(a))


def schur(a: Any, output: str = "real") -> list[Any]:
    """[t, z] with z t z' = a ([..., n, n]): t upper triangular, z orthonormal.

    With ``output`` "real" the t of a real matrix has blocks of two rows for pairs of complex eigenvalues; "complex" has
    none. ValueError for another.

    >>> t, z = schur(jnp.array([[1.0, 2.0], [0.0, 3.0]]))
    >>> t.tolist()
    [[1.0, 2.0], [0.0, 3.0]]
    """
    if output not in ("real", "complex"):
        raise ValueError(f"Expected 'output' to be either 'real' or 'complex', got output={output!r}.")
    return list(_schur(a, output))


def _complex_form(t: Any, z: Any) -> tuple[Any, Any]:
    """Blocks of two rows are made triangular by rotations, from the last one up."""
    n = promotion.shape_of(t)[0]
    eps = float(np.finfo(t.dtype).eps)

    def rotated(m: Any, t: Any, z: Any) -> tuple[Any, Any]:
        block = lax.dynamic_slice(t, (m - 1, m - 1), (2, 2))
        block = block / lax.reduce_max(lax.abs(block), (0, 1)).astype(t.dtype)  # so that squares stay within range
        a, b, c, d = block[0, 0], block[0, 1], block[1, 0], block[1, 1]
        half = (a - d) / 2
        moved = half + lax.sqrt(half * half + b * c)  # an eigenvalue of the block, less d
        length = lax.sqrt(lax.abs(moved) ** 2 + lax.abs(c) ** 2).astype(t.dtype)
        x, y = moved / length, c / length
        turn = jnp.array([[lax.conj(x), lax.conj(y)], [-y, x]])
        rows = lax.dynamic_slice(t, (m - 1, 0), (2, n))
        t = lax.dynamic_update_slice(t, matrices.product(turn, rows), (m - 1, 0))
        back = matrices.adjoint(turn)
        columns = lax.dynamic_slice(t, (0, m - 1), (n, 2))
        t = lax.dynamic_update_slice(t, matrices.product(columns, back), (0, m - 1))
        columns = lax.dynamic_slice(z, (0, m - 1), (n, 2))
        return t, lax.dynamic_update_slice(z, matrices.product(columns, back), (0, m - 1))

    def step(i: Any, state: Any) -> Any:
        t, z = state
        m = n - i
        is_block = lax.abs(t[m, m - 1]) > eps * (lax.abs(t[m - 1, m - 1]) + lax.abs(t[m, m]))
        t, z = branches.cond(is_block, rotated, lambda m, t, z: (t, z), m, t, z)
        return t.at[m, m - 1].set(0), z

    return while_loop.fori_loop(1, n, step, (t, z)) if n > 1 else (t, z)


@jit(static_argnames=("check_finite",))
def rsf2csf(T: Any, Z: Any, check_finite: bool = True) -> tuple[Any, Any]:
    """The complex Schur form (t, z), t upper triangular, of a real one (T, Z), both [..., n, n].

    ValueError for shapes that do not fit.

    >>> t, z = rsf2csf(jnp.array([[0.0, -1.0], [1.0, 0.0]]), jnp.eye(2))
    >>> sorted(jnp.diagonal(t).imag.round(3).tolist())
    [-1.0, 1.0]
    """
    shapes = [promotion.shape_of(x) for x in (T, Z)]
    for name, extents in zip("TZ", shapes, strict=True):
        if len(extents) < 2 or extents[-1] != extents[-2]:
            raise ValueError(f"Input '{name}' must be square.")
    if shapes[0][-1] != shapes[1][-1]:
        raise ValueError(f"Input array shapes must match: Z: {shapes[1]} vs. T: {shapes[0]}")
    T, Z = promotion.promote_dtypes_inexact(T, Z)
    complex_ = matrices.complex_dtype(promotion.dtype_of(T))
    mapped = vectorized.vectorize(_complex_form, signature="(n,n),(n,n)->(n,n),(n,n)")
    return mapped(T.astype(complex_), Z.astype(complex_))


@jit(static_argnames=("calc_q", "check_finite", "overwrite_a"))
def hessenberg(a: Any, *, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """h, or (h, q) with ``calc_q``: q h q' = a ([..., n, n]), h with nothing below its second diagonal, q orthonormal.

    >>> hessenberg(jnp.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    a = _inexact(a)
    *batch, n = promotion.shape_of(a)[:-1]
    if n == 0:
        return (jnp.zeros_like(a), jnp.zeros_like(a)) if calc_q else jnp.zeros_like(a)
    made, taus = general.hessenberg(a)
    h = jnp.triu(made, -1)
    if not calc_q:
        return h
    q = qr_module.householder_product(made[..., 1:, :-1], taus)
    rank = len(batch)
    q = lax.pad(q, matrices.constant(q, 0), [*[(0, 0, 0)] * rank, (1, 0, 0), (1, 0, 0)])
    return h, q.at[..., 0, 0].set(1)


# -- polar ------------------------------------------------------------------------------------------------------------


def _polar(a: Any, side: str, method: str, eps: float | None, max_iterations: int | None) -> tuple[Any, Any]:
    m, n = promotion.shape_of(a)
    if method == "qdwh":
        if (side == "right") != (m >= n):
            raise NotImplementedError(
                "method='qdwh' only supports m >= n with side='right' and m < n with side='left'; got "
                f"{promotion.shape_of(a)} with side={side!r}. Use method='svd'."
            )
        u, h, _, _ = polar_factors.qdwh(
            a if side == "right" else matrices.adjoint(a), eps=eps, max_iterations=max_iterations
        )
        return (u, h) if side == "right" else (matrices.adjoint(u), matrices.adjoint(h))
    if method != "svd":
        raise ValueError(f"Unknown polar decomposition method {method}.")
    u, s, vh = singular.svd(a, full_matrices=False)
    s = s.astype(u.dtype)[None, :]
    unitary = matrices.product(u, vh)
    if side == "right":
        return unitary, matrices.product(matrices.adjoint(vh) * s, vh)
    return unitary, matrices.product(u * s, matrices.adjoint(u))


@jit(static_argnames=("side", "method", "eps", "max_iterations"))
def polar(
    a: Any, side: str = "right", *, method: str = "qdwh", eps: float | None = None, max_iterations: int | None = None
) -> tuple[Any, Any]:
    """(u, p) with a = u p ([..., m, n]), or a = p u with ``side`` "left": u orthonormal, p positive semidefinite.

    ``method``: "qdwh", by iteration (see ``lax.linalg.qdwh``, whose ``eps`` and ``max_iterations`` these are), for
    m >= n on the right and m < n on the left; or "svd". ValueError for another side or method.

    >>> u, p = polar(jnp.array([[0.0, 2.0], [3.0, 0.0]]), method="svd")
    >>> p.round(3).tolist()
    [[3.0, 0.0], [0.0, 2.0]]
    """
    a = _inexact(a)
    if len(promotion.shape_of(a)) < 2:
        raise ValueError("The input `a` must be at least a 2-D array.")
    if side not in ("right", "left"):
        raise ValueError("The argument `side` must be either 'right' or 'left'.")
    mapped = functools.partial(_polar, side=side, method=method, eps=eps, max_iterations=max_iterations)
    inner = "(n,n)" if side == "right" else "(m,m)"
    return vectorized.vectorize(mapped, signature=f"(m,n)->(m,n),{inner}")(a)
