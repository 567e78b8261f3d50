"""weft.scipy.sparse.linalg: systems whose matrix is known by its products: cg, bicgstab, gmres.

Vectors are pytrees. Derivatives come from the equation (``custom_linear_solve``): the solver runs once more on the
transposed matrix, whatever the number of steps::

    cg(A, b)   ->   custom_linear_solve: while_loop of products by A
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

import weft.numpy as jnp
from weft import operations as lax
from weft import tree_util
from weft._base import unbuilt
from weft._base.array import Array
from weft._base.record import NamedTuple
from weft.autodiff import implicit
from weft.control import while_loop
from weft.numpy import promotion
from weft.operations.linalg.triangular import triangular_solve

__getattr__ = unbuilt.fallback("weft.scipy.sparse.linalg")

Tree = Any
Matrix = Callable[[Tree], Tree]
_map = tree_util.tree_map


# -- vectors ----------------------------------------------------------------------------------------------------------


def _dot(x: Tree, y: Tree) -> Any:
    """The sum of conj(x) y."""
    parts = [jnp.vdot(a, b) for a, b in zip(tree_util.tree_leaves(x), tree_util.tree_leaves(y), strict=True)]
    return sum(parts[1:], parts[0])


def _size(x: Tree) -> Any:
    """The norm, real."""
    return lax.sqrt(jnp.real(_dot(x, x)))


def _add(x: Tree, scale: Any, y: Tree) -> Tree:
    """x + scale y, in the dtypes of x."""
    return _map(lambda a, b: (a + scale * b).astype(a.dtype), x, y)


def _sub(x: Tree, y: Tree) -> Tree:
    return _map(lambda a, b: a - b, x, y)


def _scaled(scale: Any, x: Tree) -> Tree:
    return _map(lambda a: scale.astype(a.dtype) * a, x)


def _divided(x: Any, y: Any) -> Any:
    """x / y, and 0 where y is 0: the solution is found then."""
    return jnp.where(y == 0, 0, x / jnp.where(y == 0, 1, y))


def _as_function(A: Any) -> Matrix:
    """A matrix, an object with ``@`` or a function as a function."""
    if callable(A):
        return A
    if not hasattr(A, "__matmul__"):
        raise TypeError(f"linear operator must be either a function or ndarray: {A}")
    shape = getattr(A, "shape", None)
    if shape is not None and (len(shape) != 2 or shape[0] != shape[1]):
        raise ValueError(f"linear operator must be a square matrix, but has shape: {shape}")
    if isinstance(A, (np.ndarray, Array)):
        return lambda x: jnp.matmul(A, x, precision=lax.Precision.HIGHEST)
    return lambda x: A @ x


def _prepared(A: Any, b: Tree, x0: Tree, M: Any, maxiter: int | None) -> tuple[Matrix, Tree, Tree, Matrix, int]:
    """(the matrix, the right-hand side, the start, the preconditioner, the most steps)."""
    b = _map(lambda x: jnp.asarray(promotion.promote_dtypes_inexact(x)[0]), b)
    x0 = _map(jnp.zeros_like, b) if x0 is None else x0
    if tree_util.tree_structure(x0) != tree_util.tree_structure(b):
        raise ValueError(
            "x0 and b must have matching tree structure: "
            f"{tree_util.tree_structure(x0)} vs {tree_util.tree_structure(b)}"
        )
    shapes = [[promotion.shape_of(x) for x in tree_util.tree_leaves(tree)] for tree in (x0, b)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"arrays in x0 and b must have matching shapes: {shapes[0]} vs {shapes[1]}")
    x0 = _map(lambda x, y: jnp.asarray(x).astype(y.dtype), x0, b)
    steps = 10 * sum(x.size for x in tree_util.tree_leaves(b)) if maxiter is None else operator.index(maxiter)
    return _as_function(A), b, x0, (lambda x: x) if M is None else _as_function(M), steps


def _solved(solve: Callable[[Matrix, Tree], Tree], A: Matrix, b: Tree, symmetric: bool = False) -> tuple[Tree, None]:
    """The solution with the derivatives of the equation."""
    x = implicit.custom_linear_solve(A, b, solve=solve, transpose_solve=solve, symmetric=symmetric)
    return x, None


def _limit(b: Tree, tol: Any, atol: Any) -> Any:
    """The size of a residual that ends the iteration."""
    return jnp.maximum(tol * _size(b), atol)


# -- conjugate gradients ----------------------------------------------------------------------------------------------


def cg(
    A: Any, b: Any, x0: Any = None, *, tol: float = 1e-5, atol: float = 0.0, maxiter: int | None = None, M: Any = None
) -> tuple[Any, None]:
    """(x, None) with A x = b for a Hermitian, positive definite A, by conjugate gradients.

    A is a square matrix, an object with ``@``, or a linear function of trees like b; ``x0`` the start (None: zeros);
    M, likewise, an approximate inverse of A. Ends when the residual is at most max(``tol`` * norm of b, ``atol``), or
    after ``maxiter`` steps (None: ten times the size of b). ValueError for structures and shapes that differ, TypeError
    for an A that is neither.

    >>> x, _ = cg(jnp.array([[4.0, 1.0], [1.0, 3.0]]), jnp.array([5.0, 4.0]))
    >>> x.round(3).tolist()
    [1.0, 1.0]
    """
    matrix, b, x0, inverse, steps = _prepared(A, b, x0, M, maxiter)

    def solve(matvec: Matrix, b: Tree) -> Tree:
        limit = _limit(b, tol, atol)

        def unfinished(state: Any) -> Any:
            _, r, _, _, step = state
            return (_size(r) > limit) & (step < steps)

        def step_of(state: Any) -> Any:
            x, r, gamma, p, step = state
            product = matvec(p)
            alpha = _divided(gamma, _dot(p, product))
            x, r = _add(x, alpha, p), _add(r, -alpha, product)
            z = inverse(r)
            new = _dot(r, z)
            return x, r, new, _add(z, _divided(new, gamma), p), step + 1

        r = _sub(b, matvec(x0))
        z = inverse(r)
        start = (x0, r, _dot(r, z), z, jnp.asarray(0, np.int32))
        return while_loop.while_loop(unfinished, step_of, start)[0]

    return _solved(solve, matrix, b, symmetric=all(map(_is_real, tree_util.tree_leaves(b))))


def _is_real(x: Any) -> bool:
    return not np.issubdtype(promotion.dtype_of(x), np.complexfloating)


# -- stabilised biconjugate gradients ---------------------------------------------------------------------------------


class _Bicg(NamedTuple):
    """The state of bicgstab, in the names of van der Vorst (1992)."""

    x: Any
    r: Any
    alpha: Any
    omega: Any
    rho: Any
    p: Any
    v: Any
    step: Any


def bicgstab(
    A: Any, b: Any, x0: Any = None, *, tol: float = 1e-5, atol: float = 0.0, maxiter: int | None = None, M: Any = None
) -> tuple[Any, None]:
    """(x, None) with A x = b for a general A, by stabilised biconjugate gradients (van der Vorst, 1992).

    The arguments are those of ``cg``. Ends without a solution too, where the method breaks down.

    >>> x, _ = bicgstab(jnp.array([[4.0, 1.0], [-1.0, 3.0]]), jnp.array([5.0, 2.0]))
    >>> x.round(3).tolist()
    [1.0, 1.0]
    """
    matrix, b, x0, inverse, steps = _prepared(A, b, x0, M, maxiter)

    def solve(matvec: Matrix, b: Tree) -> Tree:
        limit = _limit(b, tol, atol)
        shadow = _sub(b, matvec(x0))

        def unfinished(state: _Bicg) -> Any:
            return (_size(state.r) > limit) & (state.step < steps) & (state.step >= 0)

        def step_of(state: _Bicg) -> _Bicg:
            rho = _dot(shadow, state.r)
            beta = _divided(rho, state.rho) * _divided(state.alpha, state.omega)
            p = _add(state.r, beta, _add(state.p, -state.omega, state.v))
            turned = inverse(p)
            v = matvec(turned)
            alpha = _divided(rho, _dot(shadow, v))
            s = _add(state.r, -alpha, v)
            smoothed = inverse(s)
            t = matvec(smoothed)
            is_found = _size(s) <= limit
            omega = jnp.where(is_found, 0, _divided(_dot(t, s), _dot(t, t)))
            x = _add(_add(state.x, alpha, turned), omega, smoothed)
            r = _add(s, -omega, t)
            broken = (rho == 0) | ((omega == 0) & ~is_found) | (alpha == 0)
            return _Bicg(x, r, alpha, omega, rho, p, v, jnp.where(broken, -1, state.step + 1))

        one = jnp.ones((), jnp.result_type(*tree_util.tree_leaves(b)))
        zeros = _map(jnp.zeros_like, b)
        start = _Bicg(x0, shadow, one, one, one, zeros, zeros, jnp.asarray(0, np.int32))
        return while_loop.while_loop(unfinished, step_of, start).x

    return _solved(solve, matrix, b)


# -- generalised minimal residuals ------------------------------------------------------------------------------------


def _arnoldi(matvec: Matrix, basis: Tree, k: Any) -> tuple[Tree, Any]:
    """(the next vector of the basis, orthogonal to those before, a column of the Hessenberg matrix)."""
    rows = tree_util.tree_leaves(basis)[0].shape[0]
    known = jnp.arange(rows) <= k
    v = matvec(_map(lambda q: q[k], basis))

    def projections(v: Tree) -> Any:
        parts = [
            jnp.tensordot(jnp.conj(q), x, axes=x.ndim, precision=lax.Precision.HIGHEST)
            for q, x in zip(tree_util.tree_leaves(basis), tree_util.tree_leaves(v), strict=True)
        ]
        return jnp.where(known, sum(parts[1:], parts[0]), 0)

    column = jnp.zeros(rows, jnp.result_type(*tree_util.tree_leaves(v)))
    for _ in range(2):  # twice is enough (Kahan and Parlett)
        h = projections(v)
        v = _map(lambda x, q, h=h: x - jnp.tensordot(h, q, axes=1, precision=lax.Precision.HIGHEST), v, basis)
        column = column + h
    size = _size(v)
    unit = _scaled(_divided(1.0, size), v)
    basis = _map(lambda q, x: q.at[k + 1].set(x), basis, unit)
    return basis, column.at[k + 1].set(size.astype(column.dtype))


def _restart(matvec: Matrix, inverse: Matrix, b: Tree, x: Tree, restart: int) -> Tree:
    """The best x in the space that ``restart`` products span: least squares by the QR factors of their matrix."""
    r = inverse(_sub(b, matvec(x)))
    size = _size(r)
    first = _scaled(_divided(1.0, size), r)
    basis = _map(lambda u: jnp.zeros((restart + 1, *u.shape), u.dtype).at[0].set(u), first)
    dtype = jnp.result_type(*tree_util.tree_leaves(b))
    hessenberg = jnp.zeros((restart + 1, restart), dtype)

    def step(k: Any, state: Any) -> Any:
        basis, hessenberg = state
        basis, column = _arnoldi(lambda u: inverse(matvec(u)), basis, k)
        return basis, hessenberg.at[:, k].set(column)

    basis, hessenberg = while_loop.fori_loop(0, restart, step, (basis, hessenberg))
    q, upper = jnp.linalg.qr(hessenberg)
    right = jnp.conj(q[0]) * size.astype(dtype)
    pivots = jnp.diagonal(upper)
    is_zero = jnp.abs(pivots) <= float(np.finfo(dtype).eps) * jnp.max(jnp.abs(pivots))  # the space has ended before
    upper = jnp.where(is_zero[:, None], 0, upper) + jnp.diag(jnp.where(is_zero, 1, 0).astype(dtype))
    y = triangular_solve(upper, jnp.where(is_zero, 0, right), left_side=True)
    return _map(lambda x, q: x + jnp.tensordot(y, q[:-1], axes=1, precision=lax.Precision.HIGHEST), x, basis)


def gmres(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: float = 1e-5,
    atol: float = 0.0,
    restart: int = 20,
    maxiter: int | None = None,
    M: Any = None,
    solve_method: str = "batched",
) -> tuple[Any, None]:
    """(x, None) with A x = b for a general A, by generalised minimal residuals, restarted after ``restart`` products.

    The other arguments are those of ``cg``; ``maxiter`` counts restarts. ``solve_method`` "batched" and "incremental"
    are done alike: the residual is looked at between restarts. ValueError for another.

    >>> x, _ = gmres(jnp.array([[4.0, 1.0], [-1.0, 3.0]]), jnp.array([5.0, 2.0]))
    >>> x.round(3).tolist()
    [1.0, 1.0]
    """
    if solve_method not in ("batched", "incremental"):
        raise ValueError(f"invalid solve_method {solve_method}, must be either 'incremental' or 'batched'")
    matrix, b, x0, inverse, steps = _prepared(A, b, x0, M, maxiter)
    inner = min(operator.index(restart), sum(x.size for x in tree_util.tree_leaves(b)))

    def solve(matvec: Matrix, b: Tree) -> Tree:
        limit = _limit(b, tol, atol)

        def unfinished(state: Any) -> Any:
            _, size, step = state
            return (size > limit) & (step < steps)

        def step_of(state: Any) -> Any:
            x = _restart(matvec, inverse, b, state[0], inner)
            return x, _size(_sub(b, matvec(x))), state[2] + 1

        start = (x0, _size(_sub(b, matvec(x0))), jnp.asarray(0, np.int32))
        return while_loop.while_loop(unfinished, step_of, start)[0]

    return _solved(solve, matrix, b)
