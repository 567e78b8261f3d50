"""Triangular systems, and products of a matrix with its transpose.

triangular_solve a:f32[3,3] b:f32[3,2]      a x = b with left_side, without x a = b (b f32[2,3])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import core, runtime
from weft._base import lazy
from weft.core import kinds
from weft.core import tangents as tangent_types
from weft.operations import mapped
from weft.operations.data_movement.shape import shape_of
from weft.operations.later import ops
from weft.operations.linalg import matrices, small
from weft.operations.linalg.matrices import matrix_primitive
from weft.operations.pointwise import convert, half_words
from weft.operations.pointwise.elementwise import FLOAT, check_dtype, check_same_dtype
from weft.runtime import Array

ArrayLike = Any


# ---- triangular_solve


def _solve_shape(a: tuple[int, ...], b: tuple[int, ...], *, left_side: bool, **_: Any) -> tuple[int, ...]:
    if a[0] != a[1]:
        raise ValueError(f"The first input to triangular_solve must be a square matrix. Got shape {a}.")
    if a[0] != b[0 if left_side else 1]:
        raise ValueError(f"Incompatible shapes for arguments to triangular_solve: {a} and {b}.")
    return b


def _solve_reference(
    a: np.ndarray, b: np.ndarray, *, left_side: bool, lower: bool, transpose_a: bool, conjugate_a: bool,
    unit_diagonal: bool,
) -> np.ndarray:  # fmt: skip
    a = np.tril(a) if lower else np.triu(a)
    if unit_diagonal:
        a = a - np.diag(np.diag(a)) + np.eye(len(a), dtype=a.dtype)
    a = a.T if transpose_a else a
    a = a.conj() if conjugate_a else a
    is_lower = lower != transpose_a
    if b.size == 0:
        return b.copy()
    if (np.diag(a) == 0).any():  # SciPy raises on a zero that BLAS divides by
        return _substituted(a, b, is_lower) if left_side else _substituted(a.T, b.T, not is_lower).T
    solve = lazy.scipy_linalg.solve_triangular
    if left_side:
        return solve(a, b, lower=is_lower, check_finite=False)
    return solve(a.T, b.T, lower=not is_lower, check_finite=False).T


def _substituted(a: np.ndarray, b: np.ndarray, is_lower: bool) -> np.ndarray:
    """Substitution, row by row."""
    x = b.copy()
    order = range(len(a)) if is_lower else range(len(a) - 1, -1, -1)
    for i in order:
        known = range(i) if is_lower else range(i + 1, len(a))
        for j in known:
            x[i] -= a[i, j] * x[j]
        x[i] /= a[i, i]
    return x


def _solve_routine(a: tuple[int, ...], b: tuple[int, ...], **params: Any) -> tuple[str, tuple[int, ...]]:
    words = ("left_side", "lower", "transpose_a", "conjugate_a", "unit_diagonal")
    return "trsm", (*b, *[params[word] for word in words])


triangular_solve_p = matrix_primitive(
    "triangular_solve", (2, 2), _solve_shape, _solve_reference, _solve_routine,
    unrolled=small.unrolled(small.triangular_solve),
)  # fmt: skip


def _solve_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    """dx = op(a)^-1 (db - op(da) x), the product in the order that takes fewer operations."""
    (a, b), (da, db) = primals, tangents
    x = triangular_solve_p.bind(a, b, **params)
    parts: list[Any] = []
    if type(db) is not tangent_types.Zero:
        parts.append(triangular_solve_p.bind(a, db, **params))
    if type(da) is not tangent_types.Zero:
        k = 1 if params["unit_diagonal"] else 0
        da = ops.neg(matrices.lower(da, -k) if params["lower"] else matrices.upper(da, k))
        da = matrices.transposed(da) if params["transpose_a"] else da
        da = matrices.conjugated(da) if params["conjugate_a"] else da
        m, n = shape_of(b)[-2:]
        first = m > n if params["left_side"] else m < n

        def solved(rhs: Any) -> Array:
            return triangular_solve_p.bind(a, rhs, **params)

        if params["left_side"]:
            parts.append(solved(matrices.product(da, x)) if first else matrices.product(solved(da), x))
        else:
            parts.append(solved(matrices.product(x, da)) if first else matrices.product(x, solved(da)))
    return x, parts[0] if len(parts) == 1 else ops.add_any(*parts)


def _solve_transpose(ct: Any, a: Any, b: Any, *, transpose_a: bool, **params: Any) -> tuple[Any, Any]:
    """Linear in the right-hand side: the transposed system."""
    if not tangent_types.is_undefined(b) or tangent_types.is_undefined(a):
        raise NotImplementedError("[triangular_solve] it is linear only in its right-hand side")
    if type(ct) is tangent_types.Zero:
        return None, tangent_types.Zero(b.aval)
    return None, triangular_solve_p.bind(a, ct, transpose_a=not transpose_a, **params)


def _solve_batch(size: int, values: list[Any], dims: list[mapped.Dim], *, left_side: bool, **params: Any) -> Any:
    """For one matrix the mapped right-hand sides become columns; otherwise all are mapped along dimension 0."""
    (a, b), (of_a, of_b) = values, dims
    if of_a is not None or of_b is None:
        out = triangular_solve_p.bind(*mapped.all_in_front(size, values, dims), left_side=left_side, **params)
        return out, 0
    rank = len(shape_of(b))
    mapped_dim = rank - 1 if left_side else rank - 2
    b = mapped.at(b, of_b, mapped_dim)
    *batch, m, n, k = shape_of(b)
    flat = (*batch, m, n * k) if left_side else (*batch, m * n, k)
    out = triangular_solve_p.bind(a, ops.reshape(b, flat), left_side=left_side, **params)
    return ops.reshape(out, (*batch, m, n, k)), mapped_dim


triangular_solve_p.jvp, triangular_solve_p.transpose = _solve_jvp, _solve_transpose
triangular_solve_p.batch = _solve_batch


def triangular_solve(
    a: ArrayLike,
    b: ArrayLike,
    *,
    left_side: bool = False,
    lower: bool = False,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> Array:
    """x with op(a) x = b (``left_side``) or x op(a) = b, for triangular a, [..., m, m].

    b is [..., m, n] with ``left_side``, without [..., n, m]; [..., m] is a vector. op(a) is a, transposed and
    conjugated as asked for; with ``unit_diagonal`` its diagonal counts as ones. The other triangle is not read. A zero
    on the diagonal gives inf and NaN. Floats of two bytes are solved in float32 and rounded. ValueError for shapes that
    do not fit, TypeError for different dtypes.

    >>> a, b = np.float32([[2, 0], [1, 4]]), np.float32([2, 9])
    >>> lax.linalg.triangular_solve(a, b, left_side=True, lower=True).tolist()
    [1.0, 2.0]
    """
    dtype = core.get_aval(a).dtype
    if dtype in half_words.HALVES and core.get_aval(b).dtype == dtype:
        wide = [convert.convert(x, np.dtype(np.float32), False) for x in (a, b)]
        solved = triangular_solve(
            *wide, left_side=left_side, lower=lower, transpose_a=transpose_a, unit_diagonal=unit_diagonal
        )
        return convert.convert(solved, dtype, False)
    conjugate_a = bool(conjugate_a) and matrices.is_complex(a)
    is_vector = len(shape_of(b)) == len(shape_of(a)) - 1
    if is_vector:
        rank = len(shape_of(b))
        b = ops.expand_dims(b, (rank if left_side else rank - 1,))
    out = triangular_solve_p.bind(
        a, b, left_side=bool(left_side), lower=bool(lower), transpose_a=bool(transpose_a), conjugate_a=conjugate_a,
        unit_diagonal=bool(unit_diagonal),
    )  # fmt: skip
    if is_vector:
        rank = len(shape_of(out))
        return ops.squeeze(out, (rank - 1 if left_side else rank - 2,))
    return out


# ---- symmetric_product


def _product_typing(a: Any, c: Any, *, alpha: float, beta: float) -> Any:
    for number, aval in enumerate((a, c)):
        check_dtype("symmetric_product", number, aval, FLOAT)
    check_same_dtype("symmetric_product", (a, c))
    if a.ndim != c.ndim or a.ndim < 2:
        raise TypeError(f"symmetric_product expects two matrices of one batch, got {a.str_short()} and {c.str_short()}")
    if c.shape[-2] != c.shape[-1] or a.shape[-2] != c.shape[-1]:
        raise ValueError(
            "symmetric_update expects a rectangular matrix of shape (m, n) and a square matrix of shape (m, m). Got "
            f"shapes {a.shape} and {c.shape}."
        )
    return runtime.ShapedArray(c.shape, c.dtype, a.weak_type and c.weak_type)


def _product_expand(a: Any, c: Any, *, alpha: float, beta: float) -> Array:
    made = ops.mul(matrices.product(a, matrices.transposed(a)), matrices.constant(a, alpha))
    return ops.add(made, ops.mul(c, matrices.constant(c, beta)))


symmetric_product_p = core.Primitive("symmetric_product", kind=kinds.Resolve(expand=_product_expand))
symmetric_product_p.def_abstract_eval(_product_typing)
symmetric_product_p.expansion, symmetric_product_p.transpose = _product_expand, None


def _product_batch(size: int, values: list[Any], dims: list[mapped.Dim], **params: Any) -> Any:
    return symmetric_product_p.bind(*mapped.all_in_front(size, values, dims), **params), 0


symmetric_product_p.batch = _product_batch


def symmetric_product(
    a_matrix: ArrayLike,
    c_matrix: ArrayLike,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    symmetrize_output: bool = False,
) -> Array:
    """alpha a a' + beta c for a real a, [..., m, n], and a symmetric c, [..., m, m].

    ``symmetrize_output`` copies the lower triangle to the upper one; they differ only if c is not symmetric.
    ValueError for shapes that do not fit.

    >>> lax.linalg.symmetric_product(np.float32([[1, 2]]), np.float32([[10]]), beta=2.0).tolist()
    [[25.0]]
    """
    made = symmetric_product_p.bind(a_matrix, c_matrix, alpha=float(alpha), beta=float(beta))
    if not symmetrize_output:
        return made
    below = matrices.lower(made, -1)
    return ops.add(matrices.lower(made), matrices.transposed(below))
