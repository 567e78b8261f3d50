"""Batches of small matrices: factorizations unrolled into elementwise operations, so that kernels run along the batch.

    cholesky f32[100000,6,6]   ->   36 vectors f32[100000]; 21 are computed from each other; all are stacked again

A library routine is called once per matrix; for matrices of few rows the call takes longer than the computation.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import core
from weft.operations.later import ops
from weft.runtime import Array

Rows = list[list[Any]]

MOST_ROWS = 8  # largest matrix that is unrolled
LEAST_BATCH = 64  # smallest batch that is unrolled
MOST_TOGETHER = 9  # elements of a right-hand side up to which the solve is fused with its producer


def unrolled(
    function: Callable[..., Any], most_rows: int = MOST_ROWS
) -> Callable[[Sequence[Any], dict[str, Any]], Callable[..., Any] | None]:
    """The slot ``unrolled`` of an operation: ``function`` if the matrices are small and many, otherwise None."""

    def choose(avals: Sequence[Any], params: dict[str, Any]) -> Callable[..., Any] | None:
        matrix = avals[0].shape[-2:]
        count = math.prod(avals[0].shape[:-2])
        if not all(1 <= extent <= most_rows for extent in matrix) or count < LEAST_BATCH:
            return None
        if any(aval.size == 0 for aval in avals):
            return None
        return functools.partial(function, **params)

    return choose


# ---- elements


def _elements(x: Any) -> tuple[Rows, tuple[int, ...]]:
    """(the elements of the matrices, each a vector along the batch, the extents of the batch)."""
    *batch, m, n = core.get_aval(x).shape
    count = math.prod(batch)
    flat = ops.reshape(x, (count, m * n))
    found = [ops.reshape(ops.slice(flat, (0, k), (count, k + 1)), (count,)) for k in range(m * n)]
    return [found[i * n : (i + 1) * n] for i in range(m)], tuple(batch)


def _matrix(rows: Rows, batch: tuple[int, ...]) -> Array:
    """The matrices of elements that are vectors along the batch."""
    m, n = len(rows), len(rows[0])
    count = math.prod(batch)
    columns = [ops.reshape(x, (count, 1)) for row in rows for x in row]
    made = columns[0] if len(columns) == 1 else ops.concatenate(columns, 1)
    return ops.reshape(made, (*batch, m, n))


def _vectors(elements: Sequence[Any], batch: tuple[int, ...]) -> Array:
    count = math.prod(batch)
    columns = [ops.reshape(x, (count, 1)) for x in elements]
    made = columns[0] if len(columns) == 1 else ops.concatenate(columns, 1)
    return ops.reshape(made, (*batch, len(elements)))


def _is_complex(x: Any) -> bool:
    return core.get_aval(x).dtype.kind == "c"


def _conj(x: Any) -> Array:
    return ops.conj(x) if _is_complex(x) else x


def _minus(x: Any, y: Any, z: Any) -> Array:
    """x - y z."""
    return ops.sub(x, ops.mul(y, z))


# ---- factorizations


def cholesky(a: Any) -> Array:
    """Column by column, from the lower triangle; NaN everywhere where a pivot is not positive."""
    rows, batch = _elements(a)
    n, zero = len(rows), ops.full_like(rows[0][0], 0)
    made: Rows = [[zero] * n for _ in range(n)]
    bad = None
    for j in range(n):
        pivot = ops.real(rows[j][j]) if _is_complex(a) else rows[j][j]
        for k in range(j):
            entry = made[j][k]
            pivot = ops.sub(
                pivot, ops.real(ops.mul(entry, ops.conj(entry))) if _is_complex(a) else ops.mul(entry, entry)
            )
        fails = ops.bitwise_not(ops.gt(pivot, ops.full_like(pivot, 0)))
        bad = fails if bad is None else ops.bitwise_or(bad, fails)
        root = ops.sqrt(pivot)
        made[j][j] = ops.convert_element_type(root, core.get_aval(a).dtype)
        for i in range(j + 1, n):
            entry = rows[i][j]
            for k in range(j):
                entry = _minus(entry, made[i][k], _conj(made[j][k]))
            made[i][j] = ops.div(entry, made[j][j])
    nan = ops.full_like(zero, complex(np.nan, np.nan) if _is_complex(a) else np.nan)
    return _matrix([[ops.select(bad, nan, x) for x in row] for row in made], batch)


def _size(x: Any) -> Array:
    """The size by which LAPACK compares pivots: the sum of the parts' absolute values."""
    return ops.add(ops.abs(ops.real(x)), ops.abs(ops.imag(x))) if _is_complex(x) else ops.abs(x)


def lu(a: Any) -> list[Array]:
    """Row by row with partial pivoting: of several largest entries the first is the pivot."""
    rows, batch = _elements(a)
    m, n = len(rows), len(rows[0])
    count = math.prod(batch)
    one, zero = ops.full_like(rows[0][0], 1), ops.full_like(rows[0][0], 0)
    order = [ops.full((count,), i, np.dtype(np.int32)) for i in range(m)]
    pivots = []
    for k in range(min(m, n)):
        most, pivot = _size(rows[k][k]), ops.full((count,), k, np.dtype(np.int32))
        for i in range(k + 1, m):
            size = _size(rows[i][k])
            larger = ops.gt(size, most)
            most, pivot = ops.select(larger, size, most), ops.select(larger, ops.full_like(pivot, i), pivot)
        pivots.append(pivot)
        for i in range(k + 1, m):
            here = ops.eq(pivot, ops.full_like(pivot, i))
            exchanged = [
                (ops.select(here, y, x), ops.select(here, x, y)) for x, y in zip(rows[k], rows[i], strict=True)
            ]
            rows[k], rows[i] = [x for x, _ in exchanged], [y for _, y in exchanged]
            order[k], order[i] = ops.select(here, order[i], order[k]), ops.select(here, order[k], order[i])
        is_zero = ops.eq(rows[k][k], zero)
        divisor = ops.select(is_zero, one, rows[k][k])  # its column is zero too, and stays zero
        for i in range(k + 1, m):
            factor = ops.div(rows[i][k], divisor)
            rows[i] = [*rows[i][:k], factor, *[_minus(rows[i][j], factor, rows[k][j]) for j in range(k + 1, n)]]
    return [_matrix(rows, batch), _vectors(pivots, batch), _vectors(order, batch)]


def _operated(rows: Rows, transpose_a: bool, conjugate_a: bool, left_side: bool) -> Rows:
    """The matrix for the form op(a) x = b: x a = b is a' x' = b'."""
    turned = transpose_a == left_side
    entries = [list(row) for row in zip(*rows, strict=True)] if turned else rows
    return [[_conj(x) for x in row] for row in entries] if conjugate_a else entries


def triangular_solve(
    a: Any, b: Any, *, left_side: bool, lower: bool, transpose_a: bool, conjugate_a: bool, unit_diagonal: bool
) -> Array:
    """By substitution; every element of the right-hand side is a vector along the batch."""
    if math.prod(core.get_aval(b).shape[-2:]) > MOST_TOGETHER:  # in a separate kernel, which has few operands
        a, b = ops.optimization_barrier((a, b))
    (rows, batch), (given, _) = _elements(a), _elements(b)
    n, entries = len(rows), _operated(rows, transpose_a, conjugate_a, left_side)
    is_lower = (lower != transpose_a) == left_side
    known = [list(row) for row in (given if left_side else zip(*given, strict=True))]
    for i in range(n) if is_lower else range(n - 1, -1, -1):
        for j in range(i) if is_lower else range(i + 1, n):
            known[i] = [_minus(x, entries[i][j], y) for x, y in zip(known[i], known[j], strict=True)]
        if not unit_diagonal:
            known[i] = [ops.div(x, entries[i][i]) for x in known[i]]
    return _matrix(known if left_side else [list(row) for row in zip(*known, strict=True)], batch)


# ---- eigenvalues

SWEEPS = {4: 5, 8: 7}  # Jacobi sweeps over all pairs of rows, by bytes of an element: convergence is quadratic
MOST_ROWS_OF_EIGH = 3


def unrolled_eigh(avals: Sequence[Any], params: dict[str, Any]) -> Callable[..., Any] | None:
    """``eigh`` of real matrices if all eigenvalues are requested, otherwise None."""
    if avals[0].dtype.kind == "c" or params["subset_by_index"] not in (None, (0, avals[0].shape[-1])):
        return None
    return unrolled(eigh, MOST_ROWS_OF_EIGH)(avals, params)


def _rotate(rows: Rows, vectors: Rows, p: int, q: int) -> None:
    """Make element (p, q) of a symmetric matrix zero (Golub and Van Loan, "Matrix Computations", section 8.5)."""
    entry = rows[p][q]
    one, zero = ops.full_like(entry, 1), ops.full_like(entry, 0)
    half = ops.div(ops.sub(rows[q][q], rows[p][p]), ops.add(entry, entry))
    size = ops.add(ops.abs(half), ops.sqrt(ops.add(ops.mul(half, half), one)))
    tangent = ops.div(ops.select(ops.lt(half, zero), ops.neg(one), one), size)
    tangent = ops.select(ops.eq(entry, zero), zero, tangent)
    cosine = ops.div(one, ops.sqrt(ops.add(ops.mul(tangent, tangent), one)))
    sine, moved = ops.mul(tangent, cosine), ops.mul(tangent, entry)

    def turned(x: Any, y: Any) -> tuple[Array, Array]:
        return _minus(ops.mul(cosine, x), sine, y), ops.add(ops.mul(sine, x), ops.mul(cosine, y))

    rows[p][p], rows[q][q] = ops.sub(rows[p][p], moved), ops.add(rows[q][q], moved)
    rows[p][q] = rows[q][p] = zero
    for r in range(len(rows)):
        if r not in (p, q):
            rows[r][p], rows[r][q] = turned(rows[r][p], rows[r][q])
            rows[p][r], rows[q][r] = rows[r][p], rows[r][q]
        vectors[r][p], vectors[r][q] = turned(vectors[r][p], vectors[r][q])


def eigh(a: Any, *, lower: bool, **_: Any) -> list[Array]:
    """[v, w] by Jacobi's rotations, w ascending; NaN if an element that is read is not finite."""
    given, batch = _elements(a)
    n = len(given)
    rows = [[given[max(i, j)][min(i, j)] if lower else given[min(i, j)][max(i, j)] for j in range(n)] for i in range(n)]
    one, zero = ops.full_like(rows[0][0], 1), ops.full_like(rows[0][0], 0)
    total = functools.reduce(ops.add, [ops.mul(rows[i][j], zero) for i in range(n) for j in range(i + 1)])
    vectors = [[one if i == j else zero for j in range(n)] for i in range(n)]
    for _sweep in range(SWEEPS[core.get_aval(a).dtype.itemsize]):
        for p in range(n):
            for q in range(p + 1, n):
                _rotate(rows, vectors, p, q)
    columns = [[rows[j][j], *[vectors[i][j] for i in range(n)]] for j in range(n)]
    for last in range(n - 1, 0, -1):  # bubble sort
        for j in range(last):
            wrong = ops.gt(columns[j][0], columns[j + 1][0])
            pairs = list(zip(columns[j], columns[j + 1], strict=True))
            columns[j] = [ops.select(wrong, y, x) for x, y in pairs]
            columns[j + 1] = [ops.select(wrong, x, y) for x, y in pairs]
    bad, nan = ops.ne(total, zero), ops.full_like(zero, np.nan)
    columns = [[ops.select(bad, nan, x) for x in column] for column in columns]
    v = _matrix([[columns[j][i + 1] for j in range(n)] for i in range(n)], batch)
    return [v, _vectors([column[0] for column in columns], batch)]
