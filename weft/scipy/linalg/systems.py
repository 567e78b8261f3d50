"""SciPy's solvers: triangular and general systems, systems of positive definite matrices, Sylvester's equation."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import weft.numpy as jnp
from weft import errors
from weft import operations as lax
from weft._base.array import Array
from weft.autodiff import custom_jvp, implicit
from weft.batching.vmap import vmap
from weft.control import branches, while_loop
from weft.dispatch.calls import jit as jit_module
from weft.numpy import promotion
from weft.numpy.linear_algebra import decompositions, solving
from weft.numpy.pointwise import vectorized
from weft.operations.linalg import general, matrices
from weft.operations.linalg.triangular import triangular_solve

jit = jit_module.jit
TRANSPOSED = {0: (False, False), "N": (False, False), 1: (True, False), "T": (True, False), 2: (True, True)}
TRANSPOSED |= {"C": (True, True)}


@functools.partial(custom_jvp.custom_jvp, nondiff_argnums=(1, 2))
def of_triangle(a: Any, lower: bool, conjugate: bool = True) -> Any:
    """The symmetric or, with ``conjugate``, Hermitian matrices from one triangle, which ``a`` ([..., n, n]) holds.

    The other triangle is not read. As in JAX derivatives are those of the whole matrix: a tangent passes as it is.
    """
    known = matrices.lower(a) if lower else matrices.upper(a)
    other = matrices.lower(a, -1) if lower else matrices.upper(a, 1)
    other = matrices.adjoint(other) if conjugate else matrices.transposed(other)
    n = promotion.shape_of(a)[-1]
    return jnp.where(np.tri(n, dtype=bool) if lower else np.tri(n, dtype=bool).T, known, other)


@of_triangle.defjvp
def _of_triangle_jvp(lower: bool, conjugate: bool, primals: Any, tangents: Any) -> Any:
    return of_triangle(*primals, lower, conjugate), tangents[0]


def of_vectors(name: str, a: Any, b: Any) -> bool:
    """Whether b is vectors: it has one dimension or, as of old, one less than a."""
    of_a, of_b = promotion.shape_of(a), promotion.shape_of(b)
    if len(of_b) == 1:
        return True
    old = len(of_a) == len(of_b) + 1 and of_a[-1] == of_b[-1]
    if old:
        errors.warn(
            f"weft.scipy.linalg.{name}: batched 1D solves with b.ndim > 1 are deprecated, and in the future will be "
            f"treated as a batched 2D solve. Use {name}(a, b[..., None]).squeeze(-1) to avoid this warning.",
            category=FutureWarning,
        )
    return old


def solve_broadcast(a: Any, b: Any, is_vector: bool, **options: Any) -> Array:
    """``triangular_solve`` on the left of a and b whose batches are broadcast."""
    signature = "(n,n),(n)->(n)" if is_vector else "(n,n),(n,k)->(n,k)"
    return vectorized.vectorize(functools.partial(triangular_solve, left_side=True, **options), signature=signature)(
        a, b
    )


@jit(static_argnames=("trans", "lower", "unit_diagonal"))
def _solve_triangular(a: Any, b: Any, trans: int | str, lower: bool, unit_diagonal: bool) -> Any:
    if trans not in TRANSPOSED:
        raise ValueError(f"Invalid 'trans' value {trans}")
    transpose_a, conjugate_a = TRANSPOSED[trans]
    a, b = promotion.promote_dtypes_inexact(a, b)
    is_vector = of_vectors("solve_triangular", a, b)
    return solve_broadcast(
        a, b, is_vector, lower=lower, transpose_a=transpose_a, conjugate_a=conjugate_a, unit_diagonal=unit_diagonal
    )


def solve_triangular(
    a: Any,
    b: Any,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    debug: Any = None,
    check_finite: bool = True,
) -> Array:
    """x with a x = b for triangular a ([..., n, n]) and b ([n] or [..., n, k]); the other triangle is not read.

    ``trans`` 1 or "T" solves with the transpose, 2 or "C" with the conjugated one. ``overwrite_b``, ``debug`` and
    ``check_finite`` are not used. ValueError for another ``trans`` and for shapes that do not fit.

    >>> solve_triangular(jnp.array([[2.0, 0.0], [1.0, 4.0]]), jnp.array([2.0, 9.0]), lower=True).tolist()
    [1.0, 2.0]
    """
    return _solve_triangular(a, b, trans, lower, unit_diagonal)


@jit(static_argnames=("assume_a", "lower"))
def _solve(a: Any, b: Any, assume_a: str, lower: bool) -> Any:
    a, b = promotion.promote_dtypes_inexact(a, b)
    of_a, of_b = promotion.shape_of(a), promotion.shape_of(b)
    if assume_a != "gen" and len(of_a) >= 2 and of_a[-1] == of_a[-2]:
        a = of_triangle(a, lower, assume_a != "sym")
    if assume_a != "pos":
        return solving.solve(a, b)
    fits = len(of_a) >= 2 and len(of_b) in (len(of_a), len(of_a) - 1) and of_a[-1] == of_a[-2] == of_b[len(of_a) - 2]
    if not fits:
        raise ValueError(
            f"The arguments to solve must have shapes a=[..., m, m] and b=[..., m, k] or b=[..., m]; got a={of_a} and "
            f"b={of_b}"
        )
    factor = decompositions.cholesky(lax.stop_gradient(a), symmetrize_input=False)
    batch = tuple(range(len(of_a) - 2))

    def times(x: Any) -> Any:
        numbers = (((len(of_a) - 1,), (len(of_a) - 2,)), (batch, batch))
        return lax.dot_general(a, x, numbers, precision=lax.Precision.HIGHEST)

    def solved(right: Any) -> Any:
        def by_factor(_: Any, x: Any) -> Any:
            x = triangular_solve(factor, matrices.column(x), left_side=True, lower=True)
            x = triangular_solve(factor, x, left_side=True, lower=True, transpose_a=True, conjugate_a=True)
            return x[..., 0]

        def transposed(_: Any, x: Any) -> Any:
            return matrices.conjugated(by_factor(_, matrices.conjugated(x)))

        return implicit.custom_linear_solve(times, right, solve=by_factor, transpose_solve=transposed)

    if len(of_a) == len(of_b) + 1:
        return solved(promotion.broadcast_to(b, of_a[:-1]))
    b = promotion.broadcast_to(b, (*of_a[:-1], of_b[-1]))
    return vmap(solved, len(of_b) - 1, len(of_b) - 1)(b)


def solve(
    a: Any,
    b: Any,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    debug: bool = False,
    check_finite: bool = True,
    assume_a: str = "gen",
) -> Array:
    """x with a x = b, a ([..., m, m]) and b ([m] or [..., m, k]).

    ``assume_a``: "gen", "sym" (symmetric) and "her" (Hermitian) are solved by LU factors, "pos" (positive definite) by
    Cholesky factors. All but "gen" read one triangle, ``lower`` says which. ``overwrite_a``, ``overwrite_b``,
    ``debug`` and ``check_finite`` are not used.
    ValueError for another ``assume_a`` and for shapes that do not fit.

    >>> solve(jnp.array([[2.0, 0.0], [0.0, 4.0]]), jnp.array([2.0, 2.0]), assume_a="pos").tolist()
    [1.0, 0.5]
    """
    valid = ["gen", "sym", "her", "pos"]
    if assume_a not in valid:
        raise ValueError(f"Expected assume_a to be one of {valid}; got {assume_a!r}")
    return _solve(a, b, assume_a, lower)


# -- Sylvester's equation ---------------------------------------------------------------------------------------------


def _solve_triangular_sylvester(r: Any, s: Any, f: Any) -> Any:
    """y with r y + y s = f for upper triangular r and s: column by column."""
    m, n = promotion.shape_of(f)
    eye = jnp.eye(m, dtype=r.dtype)

    def step(j: Any, y: Any) -> Any:
        column = jnp.where(jnp.arange(n) < j, s[:, j], 0)
        right = f[:, j] - matrices.product(y, column[:, None])[:, 0]
        return y.at[:, j].set(triangular_solve(r + s[j, j] * eye, right, left_side=True))

    return while_loop.fori_loop(0, n, step, jnp.zeros_like(f))


def _sylvester(a: Any, b: Any, c: Any, *, method: str, tol: float) -> Any:
    complex_ = matrices.complex_dtype(promotion.dtype_of(c))
    if method == "schur":
        r, u = general.schur(a.astype(complex_))
        s, v = general.schur(b.astype(complex_))
        f = matrices.product(matrices.product(matrices.adjoint(u), c.astype(complex_)), v)
        y = _solve_triangular_sylvester(r, s, f)
        x = matrices.product(matrices.product(u, y), matrices.adjoint(v))
        left, right = jnp.diagonal(r), jnp.diagonal(s)
    elif method == "eigen":
        (left, u), (right, v) = decompositions.eig(a), decompositions.eig(b)
        f = solving.solve(u, matrices.product(c.astype(complex_), v))
        x = matrices.product(matrices.product(u, f / (left[:, None] + right[None, :])), solving.inv(v))
    else:
        raise ValueError(f'Unrecognized method {method}. The two valid methods are either "schur" or "eigen".')
    if not matrices.is_complex(c):
        x = lax.real(x)
    singular = jnp.any(jnp.abs(left[:, None] + right[None, :]) < tol)
    return branches.cond(singular, lambda x: jnp.full_like(x, np.nan), lambda x: x, x)


@jit(static_argnames=("method",))
def solve_sylvester(A: Any, B: Any, C: Any, *, method: str = "schur", tol: float = 1e-8) -> Array:
    """x with A x + x B = C: A [..., m, m], B [..., n, n], C [..., m, n], real or complex.

    ``method`` is "schur", by Schur forms, or "eigen", by eigenvectors. NaN where an eigenvalue of A plus one of B is
    smaller than ``tol``. ValueError for another method and for shapes that do not fit.

    >>> solve_sylvester(jnp.array([[1.0]]), jnp.array([[2.0]]), jnp.array([[6.0]])).tolist()
    [[2.0]]
    """
    A, B, C = promotion.promote_dtypes_inexact(A, B, C)
    m, n = promotion.shape_of(C)[-2:]
    if promotion.shape_of(A)[-2:] != (m, m) or promotion.shape_of(B)[-2:] != (n, n):
        shapes = [promotion.shape_of(x) for x in (A, B, C)]
        raise ValueError(f"Incompatible shapes for Sylvester equation:\nA: {shapes[0]}\nB: {shapes[1]}\nC: {shapes[2]}")
    mapped = functools.partial(_sylvester, method=method, tol=tol)
    return vectorized.vectorize(mapped, signature="(m,m),(n,n),(m,n)->(m,n)")(A, B, C)
