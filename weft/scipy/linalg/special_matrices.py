"""Matrices that are written down from a few numbers: Toeplitz, Hankel, companion, Pascal, Fourier and others."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

import weft.numpy as jnp
from weft import dtypes
from weft import operations as lax
from weft._base.array import Array
from weft.dispatch.calls import jit as jit_module
from weft.numpy import promotion
from weft.numpy.pointwise import vectorized

jit = jit_module.jit


def _at_least_vector(name: str, *arrays: Any) -> list[Any]:
    promotion.check_arraylike(name, *arrays)
    return [jnp.atleast_1d(jnp.asarray(x)) for x in arrays]


def _float_dtype() -> np.dtype:
    return np.dtype(dtypes.canonicalize_dtype(np.float64))


# -- from vectors -----------------------------------------------------------------------------------------------------


@jit
def block_diag(*arrs: Any) -> Array:
    """The matrices (or vectors, as rows) one after the other along the diagonal of a matrix; zeros elsewhere.

    ValueError for more than two dimensions.

    >>> block_diag(jnp.array([[1]]), jnp.array([[2, 3]])).tolist()
    [[1, 0, 0], [0, 2, 3]]
    """
    if not arrs:
        arrs = (jnp.zeros((1, 0)),)
    for index, x in enumerate(arrs):
        if len(promotion.shape_of(x)) > 2:
            raise ValueError(
                "Arguments to weft.scipy.linalg.block_diag must have at most 2 dimensions, got shape "
                f"{promotion.shape_of(x)} at argument {index}."
            )
    blocks = [jnp.atleast_2d(x) for x in promotion.promote_dtypes(*arrs)]
    total, start, rows = sum(promotion.shape_of(x)[1] for x in blocks), 0, []
    for x in blocks:
        width = promotion.shape_of(x)[1]
        zero = np.zeros((), promotion.dtype_of(x))[()]
        rows.append(lax.pad(x, zero, [(0, 0, 0), (start, total - width - start, 0)]))
        start += width
    return jnp.concatenate(rows, axis=0)


def _toeplitz(c: Any, r: Any) -> Any:
    (m,), (n,) = promotion.shape_of(c), promotion.shape_of(r)
    if 0 in (m, n):
        return jnp.empty((m, n), jnp.promote_types(c.dtype, r.dtype))
    elements = jnp.concatenate([c[::-1], r[1:]])
    return elements[(m - 1 - np.arange(m))[:, None] + np.arange(n)[None, :]]


def toeplitz(c: Any, r: Any = None) -> Array:
    """The matrix with first column c ([..., m]) and first row r ([..., n], None: the conjugate of c), constant along
    diagonals; r[0] is not used.

    >>> toeplitz(jnp.array([1, 2]), jnp.array([1, 5, 6])).tolist()
    [[1, 5, 6], [2, 1, 5]]
    """
    if r is None:
        promotion.check_arraylike("toeplitz", c)
        r = jnp.conjugate(jnp.asarray(c))
    c, r = _at_least_vector("toeplitz", c, r)
    return vectorized.vectorize(_toeplitz, signature="(m),(n)->(m,n)")(c, r)


def _hankel(c: Any, r: Any) -> Any:
    (m,), (n,) = promotion.shape_of(c), promotion.shape_of(r)
    if 0 in (m, n):
        return jnp.empty((m, n), jnp.promote_types(c.dtype, r.dtype))
    elements = jnp.concatenate([c, r[1:]])
    return elements[np.arange(m)[:, None] + np.arange(n)[None, :]]


def hankel(c: Any, r: Any = None) -> Array:
    """The matrix with first column c ([..., m]) and last row r ([..., n], None: zeros), constant along antidiagonals.

    r[0] is not used. ValueError for scalars.

    >>> hankel(jnp.array([1, 2]), jnp.array([2, 7])).tolist()
    [[1, 2], [2, 7]]
    """
    promotion.check_arraylike("hankel", c)
    c = jnp.asarray(c)
    r = jnp.zeros_like(c) if r is None else jnp.asarray(r)
    for name, x in (("c", c), ("r", r)):
        if len(promotion.shape_of(x)) == 0:
            raise ValueError(f"hankel: {name} must be at least 1-dimensional, got a scalar.")
    rank = max(c.ndim, r.ndim)
    c, r = [lax.expand_dims(x, tuple(range(rank - x.ndim))) if x.ndim < rank else x for x in (c, r)]
    return vectorized.vectorize(_hankel, signature="(m),(n)->(m,n)")(c, r)


def _circulant(c: Any) -> Any:
    indices = np.arange(promotion.shape_of(c)[0])
    return c[(indices[:, None] - indices[None, :]) % max(len(indices), 1)]


def circulant(c: Any) -> Array:
    """The matrix with first column c ([..., n]), every further column turned down by one.

    >>> circulant(jnp.array([1, 2, 3])).tolist()
    [[1, 3, 2], [2, 1, 3], [3, 2, 1]]
    """
    (c,) = _at_least_vector("circulant", c)
    return vectorized.vectorize(_circulant, signature="(n)->(n,n)")(c)


def leslie(f: Any, s: Any) -> Array:
    """The Leslie matrix of fecundities f ([..., n], n > 1) and survivals s ([..., n-1]): first row and subdiagonal.

    ValueError for lengths that do not fit.

    >>> leslie(jnp.array([1, 2]), jnp.array([3])).tolist()
    [[1, 2], [3, 0]]
    """
    f, s = _at_least_vector("leslie", f, s)
    if f.shape[-1] < 2:
        raise ValueError(f"The length of f along the last axis must be at least 2; got shape {f.shape}.")
    if s.shape[-1] != f.shape[-1] - 1:
        raise ValueError(
            "Incorrect lengths for f and s. The length of s along the last axis must be one less than the length of f; "
            f"got f shape {f.shape} and s shape {s.shape}."
        )
    f, s = promotion.promote_dtypes(f, s)
    return vectorized.vectorize(lambda f, s: jnp.diag(s, k=-1).at[0].set(f), signature="(n),(m)->(n,n)")(f, s)


def companion(a: Any) -> Array:
    """The companion matrix of the polynomial with coefficients a ([..., n], n > 1): first row -a[1:] / a[0].

    ValueError for fewer coefficients.

    >>> companion(jnp.array([1.0, -3.0, 2.0])).tolist()
    [[3.0, -2.0], [1.0, 0.0]]
    """
    (a,) = promotion.promote_args_inexact("companion", a)
    a = jnp.atleast_1d(a)
    if a.shape[-1] < 2:
        raise ValueError(f"The length of `a` along the last axis must be at least 2; got shape {a.shape}.")

    def made(a: Any) -> Any:
        row = -a[1:] / a[0]
        return jnp.eye(row.shape[0], k=-1, dtype=row.dtype).at[0].set(row)

    return vectorized.vectorize(made, signature="(n)->(m,m)")(a)


def fiedler(a: Any) -> Array:
    """The absolute differences of all pairs of elements of a ([..., n]).

    >>> fiedler(jnp.array([1, 4])).tolist()
    [[0, 3], [3, 0]]
    """
    (a,) = _at_least_vector("fiedler", a)
    return jnp.abs(a[..., :, None] - a[..., None, :])


def _fiedler_layout(n: int) -> tuple[np.ndarray, np.ndarray]:
    """(which coefficient stands, negated, at each element, 0: none; which elements are one)."""
    coefficients, ones = np.zeros((n, n), int), np.zeros((n, n), bool)
    coefficients[0, 0] = 1
    if n > 1:
        ones[1, 0] = True
    for i in range(0, n, 2):
        if i + 1 < n:
            coefficients[i, i + 1] = i + 2
        if i + 2 < n:
            ones[i, i + 2] = True
        if i >= 2:
            coefficients[i, i - 1] = i + 1
    for i in range(3, n, 2):
        ones[i, i - 2] = True
    return coefficients, ones


def fiedler_companion(a: Any) -> Array:
    """The companion matrix of five diagonals of the polynomial with coefficients a ([..., n], n > 0).

    >>> fiedler_companion(jnp.array([1.0, -3.0, 2.0])).tolist()
    [[3.0, -2.0], [1.0, 0.0]]
    """
    (a,) = promotion.promote_args_inexact("fiedler_companion", a)
    a = jnp.atleast_1d(a)
    if a.shape[-1] == 0:
        raise ValueError(
            "fiedler_companion requires the last axis of 'a' to have nonzero length, but got an array of shape "
            f"{a.shape}."
        )
    n = a.shape[-1] - 1
    coefficients, ones = _fiedler_layout(n) if n else (np.zeros((0, 0), int), np.zeros((0, 0), bool))

    def made(a: Any) -> Any:
        scaled = a / a[0]
        return jnp.where(ones, 1, jnp.where(coefficients > 0, -scaled[coefficients], 0))

    return vectorized.vectorize(made, signature="(n)->(m,m)")(a)


@jit(static_argnames=("n", "mode"))
def convolution_matrix(a: Any, n: int, mode: str = "full") -> Array:
    """The matrix whose product with a vector of ``n`` elements is its convolution with a ([..., m]) in a ``mode``.

    ``mode`` is "full", "valid" or "same"; ValueError for another, for n < 1 and for an empty a.

    >>> convolution_matrix(jnp.array([1, 2]), 2).tolist()
    [[1, 0], [2, 1], [0, 2]]
    """
    n = operator.index(n)
    if n <= 0:
        raise ValueError(f"n must be a positive integer; got {n}.")
    promotion.check_arraylike("convolution_matrix", a)
    a = jnp.asarray(a)
    if a.ndim == 0:
        raise ValueError("convolution_matrix: a must be at least 1-dimensional, got a scalar.")
    m = a.shape[-1]
    if m < 1:
        raise ValueError(f"len(a) must be at least 1; got shape {a.shape}.")
    if mode not in ("full", "valid", "same"):
        raise ValueError(f"mode must be one of 'full', 'valid', 'same'; got {mode!r}.")
    trim = {"full": 0, "same": min(n, m) - 1, "valid": 2 * (min(n, m) - 1)}[mode]
    first, last = trim // 2, m + n - 1 - (trim - trim // 2)
    lead = [(0, 0)] * (a.ndim - 1)
    column = jnp.pad(a, [*lead, (0, n - 1)])[..., first:last]
    row = jnp.pad(jnp.flip(a, axis=-1), [*lead, (0, n - 1)])[..., m - 1 - first : m + n - 1 - first]
    return toeplitz(column, row)


# -- from a size ------------------------------------------------------------------------------------------------------


@jit(static_argnames=("n",))
def hilbert(n: int) -> Array:
    """The n x n matrix with elements 1 / (i + j + 1).

    >>> hilbert(2).tolist()
    [[1.0, 0.5], [0.5, 0.3333333432674408]]
    """
    indices = jnp.arange(n, dtype=_float_dtype())
    return 1 / (indices[:, None] + indices[None, :] + 1)


@jit(static_argnames=("n",))
def invhilbert(n: int) -> Array:
    """The inverse of ``hilbert(n)``, of whole numbers, in floating point.

    >>> invhilbert(2).tolist()
    [[4.0, -6.0], [-6.0, 12.0]]
    """
    comb = math.comb
    rows = [
        [
            (-1) ** (i + j) * (i + j + 1) * comb(n + i, n - j - 1) * comb(n + j, n - i - 1) * comb(i + j, i) ** 2
            for j in range(n)
        ]
        for i in range(n)
    ]
    return jnp.asarray(np.array(rows, np.float64).reshape(n, n), _float_dtype())


def _kind(kind: str | None) -> str:
    valid = ["symmetric", "lower", "upper"]
    if kind is not None and kind not in valid:
        raise ValueError(f"Expected kind to be one of: {valid}; got {kind}")
    return kind or "symmetric"


def _binomials(n: int, signed: bool) -> np.ndarray:
    rows = [[math.comb(i, j) * ((-1) ** (i - j) if signed else 1) for j in range(n)] for i in range(n)]
    return np.array(rows, object).reshape(n, n)


@jit(static_argnames=("n", "kind"))
def pascal(n: int, kind: str | None = None) -> Array:
    """The n x n Pascal matrix in float32: "symmetric" (None), with elements comb(i + j, i), "lower" or "upper".

    ValueError for another ``kind``.

    >>> pascal(3).tolist()
    [[1.0, 1.0, 1.0], [1.0, 2.0, 3.0], [1.0, 3.0, 6.0]]
    """
    lower, which = _binomials(n, False), _kind(kind)
    made = {"lower": lower, "upper": lower.T, "symmetric": lower @ lower.T}[which]
    return jnp.asarray(made.astype(np.float64).astype(np.float32))


@jit(static_argnames=("n", "kind"))
def invpascal(n: int, kind: str | None = None) -> Array:
    """The inverse of ``pascal(n, kind)``, of whole numbers, in floating point.

    >>> invpascal(2).tolist()
    [[2.0, -1.0], [-1.0, 1.0]]
    """
    lower, which = _binomials(n, True), _kind(kind)
    made = {"lower": lower, "upper": lower.T, "symmetric": lower.T @ lower}[which]
    return jnp.asarray(made.astype(np.float64), _float_dtype())


@jit(static_argnames=("n", "full"))
def helmert(n: int, full: bool = False) -> Any:
    """Helmert's matrix: n - 1 orthonormal rows of n elements, each with sum 0; with ``full`` a constant row before.

    ValueError for n < 1.

    >>> helmert(2).round(3).tolist()
    [[0.7070000171661377, -0.7070000171661377]]
    """
    if n < 1:
        raise ValueError(f"n must be a positive integer; got {n}.")
    i, j = jnp.arange(1, n, dtype=_float_dtype())[:, None], jnp.arange(n, dtype=_float_dtype())[None, :]
    length = jnp.sqrt(i * (i + 1))
    made = jnp.where(j < i, 1 / length, jnp.where(j == i, -i / length, 0))
    if full:
        made = jnp.concatenate([jnp.full((1, n), 1 / math.sqrt(n), made.dtype), made], axis=0)
    return made


@jit(static_argnames=("n", "dtype"))
def hadamard(n: int, dtype: Any = int) -> Array:
    """Sylvester's n x n matrix of 1 and -1 with orthogonal rows; n is a power of 2, ValueError for another.

    >>> hadamard(2).tolist()
    [[1, 1], [1, -1]]
    """
    if n < 1 or n & (n - 1):
        raise ValueError(f"n must be a positive power of 2; got {n}.")
    indices = jnp.arange(n, dtype=np.int32)
    odd = lax.population_count(indices[:, None] & indices[None, :]) % 2
    return (1 - 2 * odd).astype(dtype)


@jit(static_argnames=("n", "scale", "dtype"))
def dft(n: int, scale: str | None = None, *, dtype: Any = None) -> Array:
    """The n x n matrix of the discrete Fourier transform, complex; divided by n or its root for ``scale`` "n", "sqrtn".

    ValueError for another scale and for a dtype that is not complex.

    >>> dft(2).real.round(3).tolist()
    [[1.0, 1.0], [1.0, -1.0]]
    """
    if scale not in (None, "sqrtn", "n"):
        raise ValueError(f"scale must be None, 'sqrtn', or 'n'; got {scale!r}.")
    dtype = np.dtype(dtypes.canonicalize_dtype(np.complex128 if dtype is None else dtype))
    if dtype.kind != "c":
        raise ValueError(f"dtype must be a complex floating-point type; got {dtype}.")
    turns = np.arange(n)[:, None] * np.arange(n)[None, :] % max(n, 1)
    waves = jnp.asarray(np.exp(-2j * np.pi * np.arange(n) / max(n, 1)), dtype)[turns]
    return waves / {None: 1, "sqrtn": math.sqrt(n), "n": n}[scale] if scale else waves
