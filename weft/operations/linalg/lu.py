"""LU factors with partial pivoting, and solving with them.

      a[permutation] = l u    l with ones on its diagonal, stored in one array with u; row i is swapped with row
      pivots[i]

Derivative: de Hoog, Anderssen and Lukas, "Differentiation of matrix functionals using triangular factorization" (2011).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import core
from weft._base import lazy
from weft.core import tangents as tangent_types
from weft.operations.data_movement.shape import shape_of
from weft.operations.later import ops
from weft.operations.linalg import matrices, small
from weft.operations.linalg.matrices import INT32, matrix_primitive
from weft.operations.linalg.triangular import triangular_solve
from weft.runtime import Array

ArrayLike = Any


def _lu_shapes(a: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    return a, (min(a),), a[:1]


def _reference(a: np.ndarray) -> list[np.ndarray]:
    m, n = a.shape
    if min(m, n) == 0:
        return [a, np.zeros(0, INT32), np.arange(m, dtype=INT32)]
    factors, pivots, _ = getattr(lazy.scipy_linalg.lapack, matrices.lapack_name(a, "getrf"))(a)
    return [factors, pivots.astype(INT32), _swapped(pivots, permutation_size=m)]


lu_p = matrix_primitive(
    "lu", (2,), _lu_shapes, _reference, lambda shape: ("getrf", shape),
    dtypes=lambda dtype: (dtype, INT32, INT32), multiple_results=True, unrolled=small.unrolled(small.lu),
)  # fmt: skip


def _lu_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """d(l + u) = l tril(w, -1) + triu(w) u, where w = l^-1 p da u^-1; l and u are made square by identities."""
    factors, pivots, permutation = lu_p.bind(*primals)
    *batch, m, n = shape_of(factors)
    k, lead, dtype = min(m, n), [(0, 0, 0)] * len(batch), core.get_aval(factors).dtype
    zero = matrices.constant(factors, 0)
    below = matrices.lower(matrices.part(factors, slice(None), slice(k)), -1)
    left = ops.pad(below, zero, [*lead, (0, 0, 0), (0, m - k, 0)])
    left = ops.add(left, matrices.identity(dtype, m, batch=batch))
    right = ops.pad(
        matrices.upper(matrices.part(factors, slice(k), slice(None))), zero, [*lead, (0, n - k, 0), (0, 0, 0)]
    )
    if n > k:
        rest = matrices.identity(dtype, n - k, batch=batch)
        right = ops.add(right, ops.pad(rest, zero, [*lead, (k, 0, 0), (k, 0, 0)]))
    moved = matrices.take_rows(tangents[0], permutation)
    inner = triangular_solve(left, moved, left_side=True, lower=True, unit_diagonal=True)
    inner = triangular_solve(right, inner, left_side=False, lower=False)
    made = ops.add(matrices.product(left, matrices.lower(inner, -1)), matrices.product(matrices.upper(inner), right))
    whole = [tangent_types.Zero.from_primal_value(x) for x in (pivots, permutation)]
    return [factors, pivots, permutation], [made, *whole]


lu_p.jvp = _lu_jvp


def lu(x: ArrayLike) -> list[Array]:
    """[lu, pivots, permutation] of x, [..., m, n]: x[permutation] = l u, and lu holds both factors.

    ``pivots``, int32[..., min(m, n)]: row i is swapped with row pivots[i], in order. ``permutation``, int32[..., m], is
    the result of these swaps. A singular matrix gives a zero on the diagonal of u.

    >>> [part.tolist() for part in lax.linalg.lu(np.float32([[1, 2], [2, 2]]))]
    [[[2.0, 2.0], [0.5, 1.0]], [1, 1], [1, 0]]
    """
    return list(lu_p.bind(x))


# ---- permutations


def _swapped(pivots: np.ndarray, *, permutation_size: int) -> np.ndarray:
    rows = np.arange(permutation_size, dtype=INT32)
    for i, j in enumerate(pivots):
        rows[[i, j]] = rows[[j, i]]
    return rows


def _permutation_shape(pivots: tuple[int, ...], *, permutation_size: int) -> tuple[int, ...]:
    if permutation_size < pivots[0]:
        raise ValueError(
            f"Output permutation size {permutation_size} has to exceed the trailing dimension of the pivots. Got "
            f"pivots size {pivots[0]}"
        )
    return (permutation_size,)


lu_pivots_to_permutation_p = matrix_primitive(
    "lu_pivots_to_permutation", (1,), _permutation_shape, _swapped,
    lambda pivots, permutation_size: ("swaps", (pivots[0], permutation_size)), integers=frozenset({0}),
)  # fmt: skip


def lu_pivots_to_permutation(pivots: ArrayLike, permutation_size: int) -> Array:
    """The permutation, int32[..., permutation_size], that results when row i is swapped with row pivots[i], in order.

    ``pivots`` are int32[..., k]; ValueError if there are more pivots than rows.

    >>> lax.linalg.lu_pivots_to_permutation(np.int32([2, 2]), 3).tolist()
    [2, 0, 1]
    """
    aval = core.get_aval(pivots)
    if aval.dtype != INT32:
        raise TypeError(f"[lu_pivots_to_permutation] pivots are int32, got {aval.str_short()}")
    return lu_pivots_to_permutation_p.bind(pivots, permutation_size=int(permutation_size))


# ---- solving


def solve_factored(factors: Any, permutation: Any, b: Any, trans: int = 0) -> Array:
    """x with a x = b, [..., m, k], for the factors of a; with ``trans`` 1 or 2 of its (conjugated) transpose."""
    if trans == 0:
        x = matrices.take_rows(b, permutation)
        x = triangular_solve(factors, x, left_side=True, lower=True, unit_diagonal=True)
        return triangular_solve(factors, x, left_side=True)
    if trans not in (1, 2):
        raise ValueError(f"'trans' value must be 0, 1, or 2, got {trans}")
    turned = {"left_side": True, "transpose_a": True, "conjugate_a": trans == 2}
    x = triangular_solve(factors, b, **turned)
    x = triangular_solve(factors, x, lower=True, unit_diagonal=True, **turned)
    rank = len(shape_of(permutation)) - 1
    counted = ops.broadcasted_iota(INT32, shape_of(permutation), rank)
    _, back = ops.sort_key_val(permutation, counted, dimension=rank)
    return matrices.take_rows(x, back)


def solved(a: Any, b: Any) -> Array:
    """x with a x = b, [..., m, k]."""
    factors, _, permutation = lu_p.bind(a)
    return solve_factored(factors, permutation, b)
