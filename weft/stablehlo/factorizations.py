"""Cholesky, LU and QR factorizations by blocks of columns, for compilers without LAPACK: most of the work is products.

A loop over the blocks factors one (column by column), then updates the others by products (Golub and Van Loan, "Matrix
Computations", 3.2.11, 4.2.9 and 5.2.3). Each round of the loop works on whole columns, where entries that are done are
zero, so that the program is short however large the matrix is. Each function takes one matrix.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np

from weft import lax
from weft._base import lazy
from weft.core.avals import get_aval

Array = Any
BLOCK = 64  # columns of a block
_undivided: ContextVar[bool] = ContextVar("undivided", default=False)


@contextlib.contextmanager
def undivided() -> Iterator[None]:
    """Inside, matrices are one block: the number of blocks is no expression of a size without a value."""
    before = _undivided.set(True)
    try:
        yield
    finally:
        _undivided.reset(before)


def n_blocks(columns: int) -> int:
    """The number of blocks of columns."""
    return 1 if _undivided.get() else -(-columns // BLOCK)


def product(a: Array, b: Array) -> Array:
    """The product in the precision of its operands, also where a device's default is less."""
    return lax.dot(a, b, precision=lax.Precision.HIGHEST)


def repeat(count: int, step: Callable[..., Any], state: Any) -> Any:
    """The state after ``step(i, state)`` for all int32 i below ``count``."""
    return lax.fori_loop(0, count, lambda i, state: step(lax.convert_element_type(i, np.int32), state), state)


def adjoint(a: Array) -> Array:
    return conj(a.T)


def block_of(a: Array, row: Array | None, column: Array | None, rows: int, columns: int) -> Array:
    """A part of a matrix; None: from the first row or column on."""
    start = [np.int32(0) if index is None else index for index in (row, column)]
    return lax.dynamic_slice(a, start, (rows, columns))


def with_block(a: Array, part: Array, row: Array | None, column: Array | None) -> Array:
    start = [np.int32(0) if index is None else index for index in (row, column)]
    return lax.dynamic_update_slice(a, part, start)


def _padded(a: Array, rows: int, columns: int) -> Array:
    """a with rows and columns of zeros behind it."""
    return lax.pad(a, np.zeros((), a.dtype), [(0, rows - a.shape[0], 0), (0, columns - a.shape[1], 0)])


def numpy() -> Any:
    return lazy.submodule("weft.numpy")


def real(x: Array) -> Array:
    return lax.real(x) if get_aval(x).dtype.kind == "c" else x


def conj(x: Array) -> Array:
    return lax.conj(x) if get_aval(x).dtype.kind == "c" else x


def square(x: Array) -> Array:
    """|x|**2."""
    return real(x * conj(x))


def largest_part(a: Array) -> Array:
    """The largest part of an entry rounded down to a power of two, by which a is divided so that no square overflows.

    1 for matrices of zeros and for those with infinities or NaNs.
    """
    jnp = numpy()
    dtype = np.dtype(f"f{a.dtype.itemsize // 2}" if a.dtype.kind == "c" else a.dtype)
    if 0 in a.shape:
        return jnp.ones((), dtype)
    size = abs(real(a)).max()
    if a.dtype.kind == "c":
        size = lax.max(size, abs(lax.imag(a)).max())
    bits = np.dtype(f"u{dtype.itemsize}")
    exponent = np.array(np.inf, dtype).view(bits)  # without the mantissa a number is a power of two
    power = lax.bitcast_convert_type(lax.bitcast_convert_type(size, bits) & exponent, dtype)
    # the reciprocal of the largest power would be subnormal
    power = lax.min(power, np.ldexp(dtype.type(1), np.finfo(dtype).maxexp - 2))
    return jnp.where(lax.is_finite(size) & (power > 0), power, 1).astype(dtype)


def scaled(operation: Callable[[Array, Array], Array], a: Array, size: Array) -> Array:
    """a times or over a real number."""
    if get_aval(a).dtype.kind != "c":
        return operation(a, size)
    return lax.complex(operation(lax.real(a), size), operation(lax.imag(a), size))


def column_of(a: Array, j: Array) -> Array:
    return lax.dynamic_index_in_dim(a, j, 1, False)


def with_column(a: Array, j: Array, column: Array) -> Array:
    return lax.dynamic_update_index_in_dim(a, column, j, 1)


def swapped(x: Array, i: Array, j: Array) -> Array:
    """Rows i and j exchanged."""
    first, second = (lax.dynamic_index_in_dim(x, k, 0) for k in (i, j))
    x = lax.dynamic_update_index_in_dim(x, second, i, 0)
    return lax.dynamic_update_index_in_dim(x, first, j, 0)


# -- Cholesky ---------------------------------------------------------------------------------------------------------


def cholesky(a: Array) -> Array:
    """The lower factor, of the lower triangle; NaN unless the matrix is positive definite."""
    jnp = numpy()
    n, count = a.shape[0], n_blocks(a.shape[0])
    found = _small_cholesky(a) if count < 2 else _large_cholesky(a, count)[:n, :n]
    return jnp.where((real(jnp.diagonal(found)) > 0).all(), found, np.nan).astype(a.dtype)


def _large_cholesky(a: Array, count: int) -> Array:
    """The factor of the matrix with ones behind its diagonal, as many as fill the last block."""
    jnp = numpy()
    size = count * BLOCK
    rows = jnp.arange(size, dtype=np.int32)
    a = _padded(a, size, size) + jnp.diag((rows >= a.shape[0]).astype(a.dtype))

    def step(i: Array, found: Array) -> Array:
        start = i * BLOCK
        done = block_of(found, start, None, BLOCK, size)
        columns = block_of(a, None, start, size, BLOCK) - product(found, adjoint(done))
        corner = _small_cholesky(block_of(columns, start, None, BLOCK, BLOCK))
        below = lax.linalg.triangular_solve(
            corner, columns, left_side=False, lower=True, transpose_a=True, conjugate_a=True
        )
        below = jnp.where((rows >= start + BLOCK)[:, None], below, 0)
        return with_block(with_block(found, below, None, start), corner, start, start)

    return repeat(count, step, jnp.zeros_like(a))


def _small_cholesky(a: Array) -> Array:
    """By elimination without pivots: columns are divided by the roots of the pivots in the end."""
    jnp = numpy()
    rows = jnp.arange(a.shape[0])

    def step(j: Array, a: Array) -> Array:
        below = jnp.where(rows > j, column_of(a, j), 0)
        return a - (below / real(a[j, j]))[:, None] * conj(below)[None, :]

    a = repeat(a.shape[0], step, a)
    roots = lax.sqrt(real(jnp.diagonal(a)))
    lower = rows[:, None] > rows[None, :]
    return jnp.where(lower, scaled(operator.truediv, a, jnp.where(lower, roots[None, :], 1)), jnp.diag(roots))


# -- LU ---------------------------------------------------------------------------------------------------------------


def lu(a: Array) -> tuple[Array, Array, Array]:
    """(l below and u above the diagonal, the row that each row is exchanged with, the permutation of rows)."""
    jnp = numpy()
    m, n = a.shape
    short = min(m, n)
    count = n_blocks(short)
    if count < 2:
        return _eliminated(a, np.int32(0), short)
    height, width = max(m, count * BLOCK), max(n, count * BLOCK)
    rows, columns = jnp.arange(height, dtype=np.int32), jnp.arange(width, dtype=np.int32)

    def step(i: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        a, pivots, order = state
        start, stop = i * BLOCK, (i + 1) * BLOCK
        done, chosen, moved = _eliminated(block_of(a, None, start, height, BLOCK), start, BLOCK)
        a = with_block(a[moved], done, None, start)
        corner, right = [block_of(x, start, None, BLOCK, x.shape[1]) for x in (done, a)]
        solved = lax.linalg.triangular_solve(corner, right, left_side=True, lower=True, unit_diagonal=True)
        a = with_block(a, jnp.where(columns >= stop, solved, right), start, None)
        later = (rows >= stop)[:, None] & (columns >= stop)[None, :]
        a = jnp.where(later, a - product(done, solved), a)
        return a, lax.dynamic_update_slice(pivots, chosen, (start,)), order[moved]

    start = (_padded(a, height, width), jnp.zeros(count * BLOCK, np.int32), rows)
    a, pivots, order = repeat(count, step, start)
    return a[:m, :n], pivots[:short], order[:m]


def _eliminated(a: Array, first: Array, count: int) -> tuple[Array, Array, Array]:
    """The first columns eliminated below the diagonal that begins in row ``first``; the exchanges, the permutation."""
    jnp = numpy()
    m, n = a.shape
    rows, columns = jnp.arange(m, dtype=np.int32), jnp.arange(n, dtype=np.int32)

    def step(i: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        a, pivots, order = state
        j = first + i
        column = column_of(a, i)
        size = abs(real(column)) + (abs(lax.imag(column)) if get_aval(a).dtype.kind == "c" else 0)
        pivot = lax.argmax(jnp.where(rows >= j, size, -1), 0, np.int32)
        a, order = swapped(a, j, pivot), swapped(order, j, pivot)
        column = column_of(a, i)
        corner = column[j]
        factors = jnp.where(rows > j, column / jnp.where(corner == 0, 1, corner), 0)
        row = jnp.where(columns > i, a[j], 0)
        a = a - factors[:, None] * row[None, :]
        below = (rows > j)[:, None] & (columns == i)[None, :]
        return jnp.where(below, factors[:, None], a), pivots.at[i].set(pivot), order

    return repeat(count, step, (a, jnp.zeros(count, np.int32), rows))


# -- QR ---------------------------------------------------------------------------------------------------------------


def reflector(x: Array, p: Array, rows: Array) -> tuple[Array, Array, Array]:
    """(v, tau, x with beta at p and v below) of the reflector, 1 at p, that takes x from row p on to beta."""
    jnp = numpy()
    dtype = get_aval(x).dtype
    alpha, below = x[p], rows > p
    rest = jnp.where(below, square(x), 0).sum()
    imaginary = lax.imag(alpha) if dtype.kind == "c" else jnp.zeros_like(rest)
    none = (rest == 0) & (imaginary == 0)
    norm = lax.sqrt(square(alpha) + rest)
    beta = jnp.where(real(alpha) >= 0, -norm, norm)
    safe = jnp.where(none, 1, beta)
    tau = jnp.where(none, 0, (safe - alpha) / safe).astype(dtype)
    scale = jnp.where(none, 1, alpha - safe)
    v = jnp.where(below, jnp.where(none, 0, x / scale), jnp.where(rows == p, 1, 0)).astype(dtype)
    kept = jnp.where(below, v, jnp.where(rows == p, jnp.where(none, alpha, beta).astype(dtype), x))
    return v, tau, kept


def geqrf(a: Array, *, pivoting: bool) -> tuple[Array, ...]:
    """(r in the upper triangle and the reflectors below, their factors), as LAPACK's geqrf.

    With pivoting also the columns in their order: the longest of those that are left comes next, as in geqp3.
    """
    jnp = numpy()
    m, n = a.shape
    short, largest = min(m, n), largest_part(a)
    a = scaled(operator.truediv, a, largest)
    count, order = n_blocks(short), []
    if pivoting or count < 2:
        a, taus, *order = _reflected(a, np.int32(0), short, pivoting)
    else:
        height, width = max(m, count * BLOCK), max(n, count * BLOCK)
        columns = jnp.arange(width, dtype=np.int32)

        def step(i: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
            a, taus = state
            start = i * BLOCK
            done, factors = _reflected(block_of(a, None, start, height, BLOCK), start, BLOCK, False)
            v, t = _block_reflector(done, factors, start)
            reflected = a - product(v, product(adjoint(t), product(adjoint(v), a)))
            a = jnp.where(columns >= start + BLOCK, reflected, a)
            return with_block(a, done, None, start), lax.dynamic_update_slice(taus, factors, (start,))

        start = (_padded(a, height, width), jnp.zeros(count * BLOCK, a.dtype))
        a, taus = repeat(count, step, start)
        a, taus = a[:m, :n], taus[:short]
    rows, columns = jnp.arange(m), jnp.arange(n)
    made = jnp.where(rows[:, None] <= columns[None, :], scaled(operator.mul, a, largest), a)
    return (made, taus, *order)


def _reflected(a: Array, first: Array, count: int, pivoting: bool) -> tuple[Array, ...]:
    """The first columns reflected to nothing below the diagonal that begins in row ``first``: as ``geqrf``."""
    jnp = numpy()
    m, n = a.shape
    rows, columns = jnp.arange(m, dtype=np.int32), jnp.arange(n, dtype=np.int32)

    def step(i: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        a, taus, *order = state
        j = first + i
        if pivoting:
            lengths = jnp.where(rows[:, None] >= j, square(a), 0).sum(0)
            longest = lax.argmax(jnp.where(columns >= i, lengths, -1), 0, np.int32)
            a, order = swapped(a.T, i, longest).T, [swapped(order[0], i, longest)]
        v, tau, kept = reflector(column_of(a, i), j, rows)
        a = a - conj(tau) * v[:, None] * jnp.where(columns >= i, (conj(v)[:, None] * a).sum(0), 0)[None, :]
        return with_column(a, i, kept), taus.at[i].set(tau), *order

    start = (a, jnp.zeros(count, a.dtype), *([columns] if pivoting else []))
    return repeat(count, step, start)


def _block_reflector(a: Array, taus: Array, first: Array) -> tuple[Array, Array]:
    """(v, t) for which the product of the reflectors in the columns of a is 1 - v t v'.

    Row ``first`` has the 1 of the first of them. t is upper triangular: its inverse has the inverses of the factors on,
    and v' v above the diagonal.
    """
    jnp = numpy()
    diagonal = first + jnp.arange(a.shape[1], dtype=np.int32)[None, :]
    rows = jnp.arange(a.shape[0], dtype=np.int32)[:, None]
    v = jnp.where(rows > diagonal, a, (rows == diagonal).astype(a.dtype))
    above = jnp.triu(product(adjoint(v), v), 1)
    t = lax.linalg.triangular_solve(
        taus[:, None] * above, jnp.diag(taus), left_side=True, lower=False, unit_diagonal=True
    )
    return v, t


def ormqr(a: Array, taus: Array, c: Array, *, left: bool, transpose: bool) -> Array:
    """q c, c q, or with the adjoint of q, for the q of reflectors below the diagonal of a."""
    if not left:
        return conj(ormqr(a, taus, conj(c.T), left=True, transpose=not transpose).T)
    m, short = a.shape[0], taus.shape[0]
    width = max(short, 1) if _undivided.get() else min(BLOCK, max(short, 1))
    count = -(-short // width)
    height = max(m, count * width)
    a, c = _padded(a[:, :short], height, count * width), _padded(c, height, c.shape[1])
    taus = lax.pad(taus, np.zeros((), taus.dtype), [(0, count * width - short, 0)])

    def step(i: Array, c: Array) -> Array:
        start = (i if transpose else count - 1 - i) * width
        v, t = _block_reflector(
            block_of(a, None, start, height, width), lax.dynamic_slice(taus, (start,), (width,)), start
        )
        return c - product(v, product(adjoint(t) if transpose else t, product(adjoint(v), c)))

    return repeat(count, step, c)[:m]


def householder_product(a: Array, taus: Array) -> Array:
    """The first columns of the product of the reflectors below the diagonal of a."""
    identity = numpy().eye(*a.shape, dtype=a.dtype)
    return ormqr(a, taus, identity, left=True, transpose=False)


def qr(a: Array, *, pivoting: bool, full_matrices: bool, use_magma: Any = None) -> tuple[Array, ...]:
    jnp = numpy()
    m, n = a.shape
    made, taus, *order = geqrf(a, pivoting=pivoting)
    k = m if full_matrices else min(m, n)
    padded = jnp.concatenate([made, jnp.zeros((m, max(0, k - n)), a.dtype)], 1)[:, :k]
    return householder_product(padded, taus), jnp.triu(made[:k]), *order
