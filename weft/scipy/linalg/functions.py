"""Functions of matrices: the exponential and its derivative, the square root, any function by Parlett's recurrence."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

import weft.numpy as jnp
from weft import dtypes
from weft import operations as lax
from weft._base.array import Array
from weft.autodiff import derivatives
from weft.control import branches, scan, while_loop
from weft.dispatch.calls import jit as jit_module
from weft.numpy import linalg, promotion
from weft.numpy.linear_algebra import solving
from weft.numpy.pointwise import vectorized
from weft.operations.linalg import general, matrices
from weft.operations.linalg.triangular import triangular_solve
from weft.scipy.linalg import factored

jit = jit_module.jit

# Higham, "The scaling and squaring method for the matrix exponential revisited" (2005), table 2.3: the degree of the
# Pade approximant for single and double precision, and the 1-norm up to which it is exact to rounding.
DEGREES = {np.dtype(np.float32): (7, 3.925724783138660), np.dtype(np.float64): (13, 5.371920351148152)}


def _square(name: str, a: Any) -> tuple[int, ...]:
    extents = promotion.shape_of(a)
    if len(extents) < 2 or extents[-1] != extents[-2]:
        raise ValueError(f"Expected {name} to be a (batched) square matrix, got {name}.shape={extents}.")
    return extents


# -- exponential ------------------------------------------------------------------------------------------------------


def _approximant(a: Any, degree: int) -> tuple[Any, Any]:
    """(odd, even) powers of the numerator; the denominator is even - odd."""
    b = [math.factorial(2 * degree - k) / (math.factorial(k) * math.factorial(degree - k)) for k in range(degree + 1)]
    b = [x / b[0] for x in b]  # 1, 1/2, ...: within the range of float32
    square = matrices.product(a, a)
    power = identity = jnp.eye(promotion.shape_of(a)[-1], dtype=a.dtype)
    odd, even = b[1] * identity, b[0] * identity
    for k in range(2, degree + 1, 2):
        power = matrices.product(power, square) if k > 2 else square
        even = even + b[k] * power
        if k + 1 <= degree:
            odd = odd + b[k + 1] * power
    return matrices.product(a, odd), even


def _expm(a: Any, *, upper_triangular: bool, max_squarings: int) -> Any:
    degree, reach = DEGREES[matrices.real_dtype(a.dtype)]
    size = linalg.norm(a, 1)
    count = jnp.maximum(0, jnp.ceil(jnp.log2(size / reach)))
    odd, even = _approximant(a / (2**count).astype(a.dtype), degree)
    numerator, denominator = even + odd, even - odd
    if upper_triangular:
        made = triangular_solve(denominator, numerator, left_side=True)
    else:
        made = solving.solve(denominator, numerator)

    def step(x: Any, i: Any) -> tuple[Any, None]:
        return branches.cond(i < count, lambda x: matrices.product(x, x), lambda x: x, x), None

    made, _ = scan.scan(step, made, jnp.arange(max_squarings, dtype=count.dtype))
    return jnp.where(count > max_squarings, np.nan, made)


def _full_precision(name: str, x: Any) -> None:
    if dtypes.finfo(promotion.dtype_of(x)).bits < 32:
        raise TypeError(f"{name}.dtype={promotion.dtype_of(x)} is not supported: convert it to float32 first")


@jit(static_argnames=("upper_triangular", "max_squarings"))
def expm(A: Any, *, upper_triangular: bool = False, max_squarings: int = 16) -> Array:
    """The exponential of A ([..., n, n]), by a Pade approximant of A / 2**s, squared s times.

    NaN where s would be larger than ``max_squarings``. ``upper_triangular`` says that A is. ValueError for a matrix
    that is not square.

    >>> expm(jnp.array([[0.0, 1.0], [0.0, 0.0]])).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    (A,) = promotion.promote_dtypes_inexact(A)
    _full_precision("A", A)
    _square("A", A)
    mapped = functools.partial(_expm, upper_triangular=upper_triangular, max_squarings=max_squarings)
    return vectorized.vectorize(mapped, signature="(n,n)->(n,n)")(A)


@jit(static_argnames=("method", "compute_expm"))
def expm_frechet(A: Any, E: Any, *, method: str | None = None, compute_expm: bool = True) -> Any:
    """(exp(A), its derivative along E), or the derivative alone, for A and E ([..., n, n]).

    ``method`` is not used. ValueError for matrices that are not square or of different shapes.

    >>> expm_frechet(jnp.zeros((2, 2)), jnp.eye(2), compute_expm=False).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    A, E = promotion.promote_dtypes_inexact(A, E)
    _full_precision("A", A)
    if _square("A", A) != _square("E", E):
        raise ValueError(
            f"expected A and E to be the same shape, got A.shape={promotion.shape_of(A)} "
            f"E.shape={promotion.shape_of(E)}"
        )
    made, moved = derivatives.jvp(expm, (A,), (E,))
    return (made, moved) if compute_expm else moved


# -- square root ------------------------------------------------------------------------------------------------------


def _root_of_triangle(t: Any) -> Any:
    """u with u u = t, both upper triangular, column by column (Bjorck and Hammarling, 1983).

    Above the diagonal of column j: (u + u[j, j]) u[:, j] = t[:, j], in which u is known.
    """
    n = promotion.shape_of(t)[0]
    roots, rows = lax.sqrt(jnp.diagonal(t)), jnp.arange(n)

    def step(j: Any, u: Any) -> Any:
        above = rows < j
        pivots = jnp.where(above, roots + roots[j], 1)
        is_zero = pivots == 0  # then the right-hand side is zero too, or there is no root
        system = jnp.triu(jnp.where(above[None, :], u, 0), 1) + jnp.diag(jnp.where(is_zero, 1, pivots))
        x = triangular_solve(system, jnp.where(above, t[:, j], 0), left_side=True)
        x = jnp.where(is_zero & (x != 0), np.inf, x)
        return u.at[:, j].set(jnp.where(rows == j, roots[j], x))

    return while_loop.fori_loop(0, n, step, jnp.diag(roots))


def _sqrtm(a: Any) -> Any:
    t, z = general.schur(a)
    return matrices.product(matrices.product(z, _root_of_triangle(t)), matrices.adjoint(z))


@jit
def _sqrtm_jitted(A: Any) -> Any:
    (A,) = promotion.promote_dtypes_inexact(A)
    _square("A", A)
    return vectorized.vectorize(_sqrtm, signature="(n,n)->(n,n)")(A.astype(matrices.complex_dtype(A.dtype)))


def sqrtm(A: Any, blocksize: int = 1) -> Array:
    """The principal square root of A ([..., n, n]), complex, by its Schur form.

    NotImplementedError for a ``blocksize`` other than 1, ValueError for a matrix that is not square.

    >>> sqrtm(jnp.array([[4.0, 0.0], [0.0, 9.0]])).real.tolist()
    [[2.0, 0.0], [0.0, 3.0]]
    """
    if blocksize > 1:
        raise NotImplementedError("Blocked version is not implemented yet.")
    return _sqrtm_jitted(A)


# -- any function -----------------------------------------------------------------------------------------------------


def _parlett(f: Any, t: Any) -> tuple[Any, Any]:
    """(f(t), the smallest difference of eigenvalues that was divided by), from the values on the diagonal.

    f t = t f, diagonal by diagonal (Golub and Van Loan, "Matrix Computations", algorithm 9.1.1).
    """
    n = promotion.shape_of(t)[0]
    apart = jnp.diagonal(t)[None, :] - jnp.diagonal(t)[:, None]
    offset = jnp.arange(n)[None, :] - jnp.arange(n)[:, None]
    least = jnp.min(jnp.where(offset > 0, jnp.abs(apart), np.inf), initial=np.inf)
    strict, diagonal = jnp.triu(t, 1), jnp.diagonal(f)
    moved = strict * (diagonal[None, :] - diagonal[:, None])
    divisor = jnp.where(apart == 0, float(np.finfo(t.dtype).eps), apart)

    def step(p: Any, f: Any) -> Any:
        above = jnp.triu(f, 1)
        inner = matrices.product(strict, above) - matrices.product(above, strict)
        return jnp.where(offset == p, (moved + inner) / divisor, f)

    return while_loop.fori_loop(1, n, step, f), least


@jit(static_argnames=("func", "disp"))
def funm(A: Any, func: Callable[[Any], Any], disp: bool = True) -> Any:
    """func(A) for a square A ([n, n]), where ``func`` takes a vector of complex numbers, by A's Schur form.

    With ``disp=False`` (func(A), an estimate of the error in the 1-norm). Inexact where eigenvalues are close to each
    other. ValueError for a matrix that is not square.

    >>> funm(jnp.array([[4.0, 1.0], [0.0, 9.0]]), jnp.sqrt).round(3).real.tolist()
    [[2.0, 0.20000000298023224], [0.0, 3.0]]
    """
    (A,) = promotion.promote_dtypes_inexact(A)
    if len(_square("A", A)) != 2:
        raise ValueError("Input must be square array")
    t, z = factored.schur(A, "complex")
    values = jnp.asarray(func(jnp.diagonal(t))).astype(t.dtype)
    made, least = _parlett(jnp.diag(values), t)
    found = matrices.product(matrices.product(z, made), matrices.adjoint(z))
    if disp:
        return found
    eps = float(np.finfo(A.dtype).eps)
    least = jnp.where(least == 0, eps, least)
    error = jnp.minimum(1, jnp.maximum(eps, (eps / least) * linalg.norm(jnp.triu(t, 1), 1)))
    bad = jnp.any(~jnp.isfinite(jnp.abs(found)))
    return found, jnp.where(bad, np.inf, error)
