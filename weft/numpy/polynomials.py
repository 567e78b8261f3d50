"""Polynomials as vectors of coefficients, the highest power first: products, quotients, integrals, given roots.

polydiv(f32[5], f32[3])  ->  a scan: each step takes one coefficient of the quotient and subtracts its multiple
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from weft import core, errors
from weft import operations as lax
from weft._base.array import Array
from weft.control import scan as scan_module
from weft.numpy import convolution, joining, linalg, promotion, rearrange, reductions, searching, sorting
from weft.numpy.array_creation import creation, diagonals, matrices

_NEEDS_VALUES = "trim_leading_zeros=True needs the values of the coefficients, which are traced here"


def _trimmed(x: Any, least: float = 0.0) -> Any:
    """Without leading coefficients of a size of at most ``least``; the last one stays."""
    if isinstance(x, core.Tracer):
        raise errors.ConcretizationTypeError(x, _NEEDS_VALUES)
    large = np.flatnonzero(np.abs(np.asarray(x)) > least)
    return x[min(large[0], len(x) - 1) if large.size else len(x) - 1 :]


def _vectors(name: str, *args: Any) -> tuple[Any, ...]:
    promotion.check_arraylike(name, *args)
    args = promotion.promote_dtypes_inexact(*[rearrange.atleast_1d(x) for x in args])
    for x in args:
        if len(promotion.shape_of(x)) != 1:
            raise ValueError(f"[{name}] Input must be a rank-1 array. Got shape {promotion.shape_of(x)}")
    return tuple([promotion.as_array(x) for x in args])


def polymul(a1: Any, a2: Any, *, trim_leading_zeros: bool = False) -> Array:
    """The coefficients of the product of two polynomials, in floating point.

    Leading zeros stay, unlike in NumPy, unless ``trim_leading_zeros``, which cannot be traced
    (ConcretizationTypeError).

    >>> polymul(np.float32([1, 1]), np.float32([1, -1])).tolist()
    [1.0, 0.0, -1.0]
    """
    a1, a2 = _vectors("polymul", a1, a2)
    if trim_leading_zeros:
        a1, a2 = _trimmed(a1), _trimmed(a2)
    if 0 in (promotion.shape_of(a1) + promotion.shape_of(a2)):
        raise ValueError("[polymul] coefficients must not be empty")
    return convolution.convolve(a1, a2)


def polydiv(u: Any, v: Any, *, trim_leading_zeros: bool = False) -> tuple[Any, Any]:
    """Quotient and remainder of two polynomials, in floating point.

    The remainder is as long as ``u``, with zeros in front, unless ``trim_leading_zeros``, which cannot be traced
    (ConcretizationTypeError). A leading zero of ``v`` gives infinities.

    >>> [x.tolist() for x in polydiv(np.float32([1, 2, 5]), np.float32([1, 3]))]
    [[1.0, -1.0], [0.0, 0.0, 8.0]]
    """
    u, v = _vectors("polydiv", u, v)
    long, short = promotion.shape_of(u)[0], promotion.shape_of(v)[0]
    if short == 0 or long == 0:
        raise ValueError("[polydiv] coefficients must not be empty")
    dtype = promotion.dtype_of(u)
    if long < short:
        return creation.zeros(1, dtype), u
    first = lax.squeeze(lax.slice_in_dim(v, 0, 1), (0,))

    def step(window: Any, following: Any) -> Any:
        quotient = window[0] / first
        rest = window[1:] - quotient * v[1:]
        return joining.concatenate([rest, following[None]]), quotient

    following = joining.concatenate([u[short:], creation.zeros(1, dtype)])
    window, quotient = scan_module.scan(step, u[:short], following)
    remainder = joining.concatenate([creation.zeros(long - short + 1, dtype), window[:-1]])
    if trim_leading_zeros:
        remainder = _trimmed(remainder, float(np.sqrt(np.finfo(np.dtype(dtype)).eps)))
    return lax.convert_element_type(quotient, dtype), promotion.weak_as(remainder, u, v)


def polyint(p: Any, m: int = 1, k: Any = None) -> Array:
    """The coefficients of the ``m``-th integral of a polynomial; ``k`` are its constants (0), the first one innermost.

    ValueError for a negative ``m`` and for constants that are neither one nor ``m``.

    >>> polyint(np.float32([2, 1])).tolist()
    [1.0, 1.0, 0.0]
    """
    m = operator.index(m)
    given = 0 if k is None else k
    promotion.check_arraylike("polyint", p, given)
    p, constants = promotion.promote_dtypes_inexact(p, given)
    if m < 0:
        raise ValueError("Order of integral must be positive (see polyder)")
    shape = promotion.shape_of(constants)
    if len(shape) > 1 or (shape and shape[0] not in (1, m)):
        raise ValueError("k must be a scalar or a rank-1 array of length 1 or m.")
    if len(promotion.shape_of(p)) != 1:
        raise errors.ShapeError(f"[polyint] coefficients are vectors, got shape {promotion.shape_of(p)}")
    dtype = promotion.dtype_of(p)
    if m == 0:
        return promotion.as_array(p)
    whole = joining.concatenate([p, rearrange.broadcast_to(rearrange.ravel(constants), (m,))])
    power = np.arange(promotion.shape_of(whole)[0] - 1, -1, -1)
    # a coefficient was integrated once for each constant that came after it, its own step included
    added = np.concatenate([np.zeros(promotion.shape_of(p)[0], int), np.arange(1, m + 1)])
    divisors = [np.prod(np.arange(n, n - (m - j), -1.0)) if m > j else 1.0 for n, j in zip(power, added, strict=True)]
    return whole / np.array(divisors).astype(dtype)


def poly(seq_of_zeros: Any) -> Array:
    """The coefficients of the polynomial with these roots, or with the eigenvalues of a square matrix as roots.

    The highest power has the coefficient 1. Complex roots give complex coefficients (NumPy: real ones where roots
    come in conjugate pairs). ValueError for other shapes.

    >>> poly(np.float32([1, 2])).tolist()
    [1.0, -3.0, 2.0]
    """
    promotion.check_arraylike("poly", seq_of_zeros)
    (roots,) = promotion.promote_dtypes_inexact(rearrange.atleast_1d(seq_of_zeros))
    shape = promotion.shape_of(roots)
    if len(shape) == 2 and shape[0] == shape[1] and shape[0] > 0:
        roots = linalg.eigvals(roots)
    elif len(shape) != 1:
        raise ValueError(f"input must be 1d or non-empty square 2d array. [poly] got shape {shape}")
    dtype = promotion.dtype_of(roots)
    count = promotion.shape_of(roots)[0]
    if count == 0:
        return creation.ones((1,), dtype)

    def step(coefficients: Any, root: Any) -> Any:
        shifted = joining.concatenate([creation.zeros(1, dtype), coefficients[:-1]])
        return coefficients - root * shifted, None

    start = creation.zeros(count + 1, dtype).at[0].set(1)
    return scan_module.scan(step, start, roots)[0]


def roots(p: Any, *, strip_zeros: bool = True) -> Array:
    """The roots of a polynomial, complex: the eigenvalues of its companion matrix.

    Zeros at both ends of the coefficients are taken off first, which cannot be traced (ConcretizationTypeError); with
    ``strip_zeros=False`` the number of roots is one less than that of coefficients, and for every leading zero the last
    of them is NaN. ValueError for other ranks.

    >>> sorted(roots(np.float32([1, -3, 2])).real.round(3).tolist())
    [1.0, 2.0]
    """
    (p,) = _vectors("roots", p)
    dtype = promotion.dtype_of(p)
    whole = promotion.complex_dtype(dtype)
    if promotion.shape_of(p)[0] < 2:
        return creation.zeros(0, whole)
    behind, leading = 0, None
    if not strip_zeros:
        leading = reductions.argmax(p != 0)
        p = rearrange.roll(p, -leading)
    else:
        if isinstance(p, core.Tracer):
            raise errors.ConcretizationTypeError(p, "strip_zeros=True needs the values of the coefficients")
        indices = np.flatnonzero(np.asarray(p))
        if not indices.size:
            return creation.zeros(0, whole)
        behind = promotion.shape_of(p)[0] - 1 - int(indices[-1])
        p = p[int(indices[0]) : int(indices[-1]) + 1]
    count = promotion.shape_of(p)[0] - 1
    found = creation.zeros(0, whole)
    if count:
        matrix = diagonals.eye(count, k=-1, dtype=dtype).at[0].set(-p[1:] / p[0])
        found = linalg.eigvals(matrix)
    if leading is not None:  # as many roots are zero for the zeros now behind
        found = found[sorting.argsort((found == 0) & (leading > 0))]
        found = searching.where(creation.arange(count) < count - leading, found, complex(np.nan, np.nan))
    return joining.concatenate([promotion.convert(found, whole), creation.zeros(behind, whole)])


def polyfit(
    x: Any, y: Any, deg: int, rcond: Any = None, full: bool = False, w: Any = None, cov: bool | str = False
) -> Any:
    """The polynomial of degree ``deg`` that fits the points (x, y) best, by least squares.

    ``x`` is a vector, ``y`` a vector or a matrix with one data set a column, ``w`` weights. With ``full`` also
    residuals, rank, singular values and ``rcond``; with ``cov`` (True or "unscaled") the covariance of the
    coefficients. ValueError for a negative degree, TypeError for ranks and lengths that do not fit.

    >>> polyfit(np.float32([0, 1, 2]), np.float32([1, 3, 5]), 1).round(3).tolist()
    [2.0, 1.0]
    """
    promotion.check_arraylike("polyfit", x, y)
    order = operator.index(deg) + 1
    x, y = promotion.promote_dtypes_inexact(x, y)
    shape, rows = promotion.shape_of(x), promotion.shape_of(y)
    if order < 1:
        raise ValueError("expected deg >= 0")
    if len(shape) != 1:
        raise TypeError("expected 1D vector for x")
    if shape[0] == 0:
        raise TypeError("expected non-empty vector for x")
    if len(rows) not in (1, 2):
        raise TypeError("expected 1D or 2D array for y")
    if rows[0] != shape[0]:
        raise TypeError("expected x and y to have same length")
    rcond = shape[0] * float(np.finfo(promotion.dtype_of(x)).eps) if rcond is None else rcond
    matrix = matrices.vander(x, order)
    if w is not None:
        promotion.check_arraylike("polyfit", w)
        if promotion.shape_of(w) != shape:
            raise TypeError(
                "expected a 1-d array for weights"
                if len(promotion.shape_of(w)) != 1
                else "expected w and y to have the same length"
            )
        (w,) = promotion.promote_dtypes_inexact(w)
        matrix = matrix * w[:, None]
        y = y * (w if len(rows) == 1 else w[:, None])
    scale = reductions.sum(matrix * matrix, axis=0) ** 0.5
    scaled = matrix / scale[None, :]
    found, residuals, rank, singular = linalg.lstsq(scaled, y, rcond)
    found = found / (scale if len(rows) == 1 else scale[:, None])
    if full:
        return found, residuals, rank, singular, rcond
    if not cov:
        return found
    inverse = linalg.inv(scaled.T @ scaled) / (scale[:, None] * scale[None, :])
    factor: Any = 1
    if cov != "unscaled":
        if shape[0] <= order:
            raise ValueError("the number of data points must exceed order to scale the covariance matrix")
        factor = residuals / (shape[0] - order)
    inverse = inverse if len(rows) == 1 else inverse[:, :, None]
    return found, inverse * promotion.with_rank(factor, inverse.ndim)
