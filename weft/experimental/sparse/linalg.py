"""weft.experimental.sparse.linalg: direct solution of sparse systems, largest eigenvalues of large matrices.

spsolve(data, indices, indptr, b)   SciPy's SuperLU, called while the program runs
lobpcg_standard(A, X)               blocks [X, residuals, directions], orthonormal; Rayleigh-Ritz; repeat
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from weft import numpy as jnp
from weft import operations as lax
from weft._base import lazy, unbuilt
from weft.autodiff import implicit
from weft.control import while_loop
from weft.core import avals
from weft.effects import callbacks
from weft.experimental.sparse.csr import CSR, csr_matvec
from weft.experimental.sparse.matrix import JAXSparse

__getattr__ = unbuilt.fallback(__name__)

_times = functools.partial(jnp.matmul, precision=lax.Precision.HIGHEST)


def _superlu(data: Any, indices: Any, indptr: Any, b: Any, transposed: bool) -> Any:
    size = np.shape(b)[0]
    matrix = lazy.scipy_sparse.csr_matrix((np.asarray(data), np.asarray(indices), np.asarray(indptr)), (size, size))
    solved = lazy.scipy_sparse_linalg.spsolve(matrix.T.tocsc() if transposed else matrix.tocsc(), np.asarray(b))
    return np.asarray(solved, np.asarray(b).dtype)


def spsolve(data: Any, indices: Any, indptr: Any, b: Any, tol: float = 1e-6, reorder: int = 1) -> Any:
    """The solution x of ``A x = b``, for the square CSR matrix of ``data``, ``indices`` and ``indptr``.

    SciPy's ``spsolve`` computes it, called back from the program; ``tol`` and ``reorder`` belong to another library and
    make no difference. Differentiable by data and b, both ways. Not under ``vmap`` (NotImplementedError). A singular
    matrix gives NaN or inf, with SciPy's warning.

    >>> from weft.experimental import sparse
    >>> m = sparse.CSR.fromdense(jnp.array([[2.0, 0.0], [1.0, 4.0]]))
    >>> sparse.linalg.spsolve(m.data, m.indices, m.indptr, jnp.array([2.0, 9.0])).tolist()
    [1.0, 2.0]
    """
    data, indices, indptr, b = (jnp.asarray(x) for x in (data, indices, indptr, b))
    if data.dtype != b.dtype:
        raise ValueError(f"[spsolve] data and b must have one dtype, got {data.dtype} and {b.dtype}")
    if b.ndim != 1 or indptr.shape != (b.shape[0] + 1,) or data.ndim != 1 or data.shape != indices.shape:
        raise ValueError(
            f"[spsolve] a square matrix of data {data.shape}, indices {indices.shape} and indptr {indptr.shape} with a "
            f"right-hand side {b.shape}"
        )
    matrix = CSR((data, indices, indptr), shape=(b.shape[0], b.shape[0]))
    aval = avals.get_aval(b)

    def solver(transposed: bool) -> Any:
        def solve(_: Any, right: Any) -> Any:
            def call(data: Any, indices: Any, indptr: Any, right: Any) -> Any:
                return _superlu(data, indices, indptr, right, transposed)

            return callbacks.pure_callback(call, aval, data, indices, indptr, right)

        return solve

    return implicit.custom_linear_solve(lambda x: csr_matvec(matrix, x), b, solver(False), solver(True))


def _orthonormal(x: Any) -> Any:
    return jnp.linalg.qr(x)[0]


def lobpcg_standard(A: Any, X: Any, m: int = 100, tol: float | None = None) -> tuple[Any, Any, Any]:
    """The k largest eigenvalues of a symmetric matrix: ``(theta f[k], U f[n,k], iterations)``, largest first.

    ``A`` is an array, a sparse array or a function that multiplies f[n,k] by the matrix; ``X`` f[n,k] is where the
    search begins, with independent columns and ``5 k < n`` (ValueError otherwise). An eigenpair is found when its
    residual is at most ``tol * 10 * n * (|theta| + |A v|)``; ``tol`` is the dtype's epsilon by default. The method is
    the locally optimal block method of A. Knyazev (SIAM J. Sci. Comput. 23, 2001), without a preconditioner; its block
    is orthonormal at every step. No derivative.

    >>> from weft.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.diag(jnp.arange(30.0)))
    >>> theta, vectors, steps = sparse.linalg.lobpcg_standard(m, weft.random.normal(weft.random.key(0), (30, 2)))
    >>> [round(value, 2) for value in theta.tolist()]
    [29.0, 28.0]
    """
    x = jnp.asarray(X)
    if x.ndim != 2 or not 0 < 5 * x.shape[1] < x.shape[0]:
        raise ValueError(f"[lobpcg_standard] X must be f[n,k] with 0 < 5 k < n, got {x.shape}")
    if isinstance(A, JAXSparse) or hasattr(A, "shape"):
        if tuple(A.shape) != (x.shape[0], x.shape[0]) or A.dtype != x.dtype:
            raise ValueError(f"[lobpcg_standard] A {A.dtype}{A.shape} does not match X {x.dtype}{x.shape}")
        matrix = A if isinstance(A, JAXSparse) else jnp.asarray(A)

        def multiply(v: Any) -> Any:
            return matrix @ v if isinstance(matrix, JAXSparse) else _times(matrix, v)
    else:
        multiply = A
    n, k = x.shape
    tolerance = float(jnp.finfo(x.dtype).eps) if tol is None else tol

    def ritz(basis: Any) -> tuple[Any, Any]:
        """The k largest Ritz values of a basis and their vectors."""
        image = multiply(basis)
        values, vectors = jnp.linalg.eigh(_times(basis.T, image))
        return values[::-1][:k], _times(basis, vectors[:, ::-1][:, :k])

    def step(state: tuple[Any, ...]) -> tuple[Any, ...]:
        count, theta, x, p, residual, _ = state
        basis = _orthonormal(jnp.concatenate([x, residual, p], axis=1))
        theta, new = ritz(basis)
        p = new - _times(x, _times(x.T, new))
        image = multiply(new)
        residual = image - new * theta
        size = jnp.sqrt(jnp.sum(residual**2, axis=0))
        bound = tolerance * 10 * n * (jnp.abs(theta) + jnp.sqrt(jnp.sum(image**2, axis=0)))
        return count + 1, theta, new, p, residual, jnp.sum(size < bound)

    theta, x = ritz(_orthonormal(x))
    first = (jnp.int32(0), theta, x, jnp.zeros_like(x), multiply(x) - x * theta, jnp.sum(jnp.zeros(k, bool)))
    found = while_loop.while_loop(lambda s: (s[0] < m) & (s[5] < k), step, first)
    return found[1], found[2], lax.convert_element_type(found[0], np.int32)
