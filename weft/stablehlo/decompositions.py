"""Decompositions of matrices as programs of loops, for compilers without LAPACK.

LU by Gaussian elimination with partial pivoting; QR by Householder's reflectors in LAPACK's form; eigenvalues of
Hermitian matrices by Jacobi's rotations, singular values by one-sided rotations (Golub and Van Loan, "Matrix
Computations", 3.4, 5.2, 8.5 and 8.6). Each function takes one matrix; ``writer`` maps it over a batch.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import lax
from weft._base import lazy
from weft.batching.vmap import vmap
from weft.core.avals import get_aval

Array = Any
SWEEPS = 16  # of rotations of all pairs; convergence is quadratic, and 6 to 10 are typical


def _np() -> Any:
    return lazy.submodule("weft.numpy")


def _real(x: Array) -> Array:
    return lax.real(x) if get_aval(x).dtype.kind == "c" else x


def _conj(x: Array) -> Array:
    return lax.conj(x) if get_aval(x).dtype.kind == "c" else x


def _square(x: Array) -> Array:
    """|x|**2."""
    return _real(x * _conj(x))


def _largest(a: Array) -> Array:
    """The largest part of an entry rounded down to a power of two, by which a is divided so that no square overflows.

    1 for matrices of zeros and for those with infinities or NaNs.
    """
    jnp = _np()
    dtype = np.dtype(f"f{a.dtype.itemsize // 2}" if a.dtype.kind == "c" else a.dtype)
    if 0 in a.shape:
        return jnp.ones((), dtype)
    size = abs(_real(a)).max()
    if a.dtype.kind == "c":
        size = lax.max(size, abs(lax.imag(a)).max())
    bits = np.dtype(f"u{dtype.itemsize}")
    exponent = np.array(np.inf, dtype).view(bits)  # without the mantissa a number is a power of two
    power = lax.bitcast_convert_type(lax.bitcast_convert_type(size, bits) & exponent, dtype)
    # the reciprocal of the largest power would be subnormal
    power = lax.min(power, np.ldexp(dtype.type(1), np.finfo(dtype).maxexp - 2))
    return jnp.where(lax.is_finite(size) & (power > 0), power, 1).astype(dtype)


def _scaled(operation: Callable[[Array, Array], Array], a: Array, size: Array) -> Array:
    """a times or over a real number."""
    if get_aval(a).dtype.kind != "c":
        return operation(a, size)
    return lax.complex(operation(lax.real(a), size), operation(lax.imag(a), size))


def _column(a: Array, j: Array) -> Array:
    return lax.dynamic_index_in_dim(a, j, 1, False)


def _with_column(a: Array, j: Array, column: Array) -> Array:
    return lax.dynamic_update_index_in_dim(a, column, j, 1)


def _swapped(x: Array, i: Array, j: Array) -> Array:
    """Rows i and j exchanged."""
    first, second = (lax.dynamic_index_in_dim(x, k, 0) for k in (i, j))
    x = lax.dynamic_update_index_in_dim(x, second, i, 0)
    return lax.dynamic_update_index_in_dim(x, first, j, 0)


# -- LU ---------------------------------------------------------------------------------------------------------------


def lu(a: Array) -> tuple[Array, Array, Array]:
    """(l below and u above the diagonal, the row that each row is exchanged with, the permutation of rows)."""
    jnp = _np()
    m, n = a.shape
    rows, columns, count = jnp.arange(m), jnp.arange(n), min(m, n)

    def step(j: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        a, pivots, order = state
        column = _column(a, j)
        size = abs(_real(column)) + (abs(lax.imag(column)) if get_aval(a).dtype.kind == "c" else 0)
        pivot = lax.argmax(jnp.where(rows >= j, size, -1), 0, np.int32)
        a, order = _swapped(a, j, pivot), _swapped(order, j, pivot)
        column = _column(a, j)
        corner = column[j]
        factors = jnp.where(rows > j, column / jnp.where(corner == 0, 1, corner), 0)
        row = jnp.where(columns > j, a[j], 0)
        a = a - factors[:, None] * row[None, :]
        below = (rows > j)[:, None] & (columns == j)[None, :]
        return jnp.where(below, factors[:, None], a), pivots.at[j].set(pivot), order

    return lax.fori_loop(0, count, step, (a, jnp.zeros(count, np.int32), rows.astype(np.int32)))


def pivots_to_permutation(pivots: Array, *, permutation_size: int) -> Array:
    rows = _np().arange(permutation_size).astype(np.int32)
    return lax.fori_loop(0, pivots.shape[0], lambda i, order: _swapped(order, i, pivots[i]), rows)


# -- QR ---------------------------------------------------------------------------------------------------------------


def _reflector(x: Array, p: Array, rows: Array) -> tuple[Array, Array, Array]:
    """(v, tau, x with beta at p and v below) of the reflector, 1 at p, that takes x from row p on to beta."""
    jnp = _np()
    dtype = get_aval(x).dtype
    alpha, below = x[p], rows > p
    rest = jnp.where(below, _square(x), 0).sum()
    imaginary = lax.imag(alpha) if dtype.kind == "c" else jnp.zeros_like(rest)
    none = (rest == 0) & (imaginary == 0)
    norm = lax.sqrt(_square(alpha) + rest)
    beta = jnp.where(_real(alpha) >= 0, -norm, norm)
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
    jnp = _np()
    m, n = a.shape
    rows, columns, count = jnp.arange(m), jnp.arange(n), min(m, n)
    largest = _largest(a)
    a = _scaled(operator.truediv, a, largest)

    def step(j: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        a, taus, order = state
        if pivoting:
            lengths = jnp.where(rows[:, None] >= j, _square(a), 0).sum(0)
            longest = lax.argmax(jnp.where(columns >= j, lengths, -1), 0, np.int32)
            a, order = _swapped(a.T, j, longest).T, _swapped(order, j, longest)
        v, tau, kept = _reflector(_column(a, j), j, rows)
        a = a - _conj(tau) * v[:, None] * jnp.where(columns >= j, (_conj(v)[:, None] * a).sum(0), 0)[None, :]
        return _with_column(a, j, kept), taus.at[j].set(tau), order

    start = (a, jnp.zeros(count, a.dtype), columns.astype(np.int32))
    a, taus, order = lax.fori_loop(0, count, step, start)
    made = jnp.where(rows[:, None] <= columns[None, :], _scaled(operator.mul, a, largest), a)
    return (made, taus, order) if pivoting else (made, taus)


def hessenberg(a: Array) -> tuple[Array, Array]:
    """(h on and above the first subdiagonal and the reflectors below, their factors), as LAPACK's gehrd."""
    jnp = _np()
    n = a.shape[0]
    if n < 2:
        return a, jnp.zeros(0, a.dtype)
    rows = jnp.arange(n)
    largest = _largest(a)
    a = _scaled(operator.truediv, a, largest)

    def step(j: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        a, taus = state
        v, tau, kept = _reflector(_column(a, j), j + 1, rows)
        later = rows > j
        a = a - jnp.where(later[None, :], tau * (a * v[None, :]).sum(1)[:, None] * _conj(v)[None, :], 0)
        a = a - jnp.where(later[None, :], _conj(tau) * v[:, None] * (_conj(v)[:, None] * a).sum(0)[None, :], 0)
        return _with_column(a, j, kept), taus.at[j].set(tau)

    a, taus = lax.fori_loop(0, n - 1, step, (a, jnp.zeros(n - 1, a.dtype)))
    return jnp.where(rows[:, None] <= rows[None, :] + 1, _scaled(operator.mul, a, largest), a), taus


def ormqr(a: Array, taus: Array, c: Array, *, left: bool, transpose: bool) -> Array:
    """q c, c q, or with the adjoint of q, for the q of reflectors below the diagonal of a."""
    if not left:
        return _conj(ormqr(a, taus, _conj(c.T), left=True, transpose=not transpose).T)
    jnp = _np()
    rows, count = jnp.arange(a.shape[0]), taus.shape[0]

    def step(i: Array, c: Array) -> Array:
        j = i if transpose else count - 1 - i
        v = jnp.where(rows > j, _column(a, j), jnp.where(rows == j, 1, 0)).astype(a.dtype)
        tau = _conj(taus[j]) if transpose else taus[j]
        return c - tau * v[:, None] * (_conj(v)[:, None] * c).sum(0)[None, :]

    return lax.fori_loop(0, count, step, c)


def householder_product(a: Array, taus: Array) -> Array:
    """The first columns of the product of the reflectors below the diagonal of a."""
    jnp = _np()
    m, n = a.shape
    rows, count = jnp.arange(m), taus.shape[0]

    def step(i: Array, q: Array) -> Array:
        j = count - 1 - i
        v = jnp.where(rows > j, _column(a, j), jnp.where(rows == j, 1, 0)).astype(a.dtype)
        return q - taus[j] * v[:, None] * (_conj(v)[:, None] * q).sum(0)[None, :]

    return lax.fori_loop(0, count, step, jnp.eye(m, n, dtype=a.dtype))


def qr(a: Array, *, pivoting: bool, full_matrices: bool, use_magma: Any = None) -> tuple[Array, ...]:
    jnp = _np()
    m, n = a.shape
    made, taus, *order = geqrf(a, pivoting=pivoting)
    k = m if full_matrices else min(m, n)
    padded = jnp.concatenate([made, jnp.zeros((m, max(0, k - n)), a.dtype)], 1)[:, :k]
    return householder_product(padded, taus), jnp.triu(made[:k]), *order


# -- systems of equations, and updates --------------------------------------------------------------------------------


def cholesky_update(r: Array, w: Array) -> Array:
    """The upper r1 with r1' r1 = r' r + w w', by Givens rotations."""
    jnp = _np()
    columns = jnp.arange(r.shape[0])

    def step(k: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        r, w = state
        x, y, row = r[k, k], w[k], r[k]
        scale = lax.max(abs(x), abs(y))
        a, b = x / jnp.where(y == 0, 1, scale), y / jnp.where(y == 0, 1, scale)
        length = jnp.where(y == 0, 1, lax.sqrt(a * a + b * b))
        c, s = jnp.where(y == 0, 1, a / length), jnp.where(y == 0, 0, -b / length)
        changed = jnp.where(columns >= k, c * row - s * w, row)
        return lax.dynamic_update_index_in_dim(r, changed, k, 0), jnp.where(columns > k, c * w + s * row, w)

    return lax.fori_loop(0, r.shape[0], step, (r, w))[0]


def tridiagonal_solve(dl: Array, d: Array, du: Array, b: Array, *, perturb_singular: bool) -> Array:
    """Elimination with partial pivoting (LAPACK's gtsv); with ``perturb_singular`` by the pivots of lagtf and lagts."""
    jnp = _np()
    n = d.shape[0]
    real = np.finfo(d.dtype)
    place = jnp.arange(n)
    dl, du = jnp.where(place == 0, 0, dl).astype(d.dtype), jnp.where(place == n - 1, 0, du).astype(d.dtype)
    zero = jnp.zeros_like(d)
    rows = jnp.stack([d, du, zero], 1)  # of U: its diagonal and the two above

    def size(x: Array) -> Array:
        return abs(x) if perturb_singular or get_aval(x).dtype.kind != "c" else _one_norm(x)

    def step(i: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        rows, x, scale = state
        row, under = rows[i], jnp.stack([dl[i + 1], d[i + 1], du[i + 1]])
        below_scale = size(under).sum()
        if perturb_singular:
            own = jnp.where(row[0] == 0, 0, size(row[0]) / scale)
            swaps = (under[0] != 0) & (size(under[0]) / jnp.where(under[0] == 0, 1, below_scale) > own)
        else:
            swaps = size(under[0]) > size(row[0])
        top, low = jnp.where(swaps, under, row), jnp.where(swaps, row, under)
        first, second = jnp.where(swaps, x[i + 1], x[i]), jnp.where(swaps, x[i], x[i + 1])
        factor = jnp.where(low[0] == 0, 0, low[0] / top[0]).astype(d.dtype)
        rest = jnp.where(low[0] == 0, low, low - factor * top)  # which keeps the sign of a zero
        rows = rows.at[i].set(top).at[i + 1].set(jnp.stack([rest[1], rest[2], jnp.zeros_like(rest[0])]))
        x = x.at[i].set(first).at[i + 1].set(second - factor * first)
        return rows, x, jnp.where(swaps, scale, below_scale)

    rows, x, _ = lax.fori_loop(0, n - 1, step, (rows, b, size(rows[0]).sum()))
    least = lax.max(size(rows).max() * real.eps, jnp.zeros((), real.dtype) + real.tiny)

    def moved(pivot: Array, wanted: Array) -> Array:
        def overflows(state: tuple[Array, Array]) -> Array:
            own = size(state[0])
            return (own < 1) & ((own == 0) | (wanted * real.tiny > own))

        start = jnp.copysign(least, _real(pivot))
        return lax.while_loop(overflows, lambda s: (s[0] + s[1], s[1] * 2), (pivot, start))[0]

    def back(k: Array, x: Array) -> Array:
        i = n - 1 - k
        after = [jnp.where(i + m < n, rows[i, m], 0) * x[lax.min(i + m, i * 0 + n - 1)] for m in (1, 2)]
        rest = x[i] - after[0] - after[1]
        pivot = moved(rows[i, 0], size(rest).max()) if perturb_singular else rows[i, 0]
        return x.at[i].set(rest / pivot)

    x = lax.fori_loop(0, n, back, x)
    return x if perturb_singular else jnp.where((rows[:, 0] == 0).any(), np.nan, x).astype(b.dtype)


def _one_norm(x: Array) -> Array:
    return abs(lax.real(x)) + abs(lax.imag(x))


# -- rotations --------------------------------------------------------------------------------------------------------


def _rotation(alpha: Array, beta: Array, gamma: Array) -> tuple[Array, Array, Array]:
    """(c, s, phase) that make [[alpha, gamma], [conj gamma, beta]] diagonal; no rotation where gamma is 0."""
    jnp = _np()
    size = lax.sqrt(_square(gamma))
    none = size == 0
    divisor = jnp.where(none, 1, size)
    zeta = (beta - alpha) / (2 * divisor)
    t = jnp.where(zeta >= 0, 1, -1) / (abs(zeta) + lax.sqrt(1 + zeta * zeta))
    t = jnp.where(none, 0, t).astype(alpha.dtype)
    c = lax.rsqrt(1 + t * t)
    return c, c * t, jnp.where(none, 1, gamma / divisor).astype(get_aval(gamma).dtype)


def _rotated(a: Array, p: Array, q: Array, c: Array, s: Array, phase: Array) -> Array:
    """a with its columns p and q rotated."""
    x, y = _column(a, p), _column(a, q)
    return _with_column(_with_column(a, p, c * x - s * _conj(phase) * y), q, s * phase * x + c * y)


def _swept(n: int, turn: Callable[..., Any], state: Any) -> Any:
    """``turn(p, q, state)`` for all pairs p < q, several times."""
    pairs = [(p, q) for p in range(n) for q in range(p + 1, n)]
    if not pairs:
        return state
    table = _np().asarray(np.array(pairs, np.int32))
    return lax.fori_loop(
        0, SWEEPS, lambda _, s: lax.fori_loop(0, len(pairs), lambda i, s: turn(table[i, 0], table[i, 1], s), s), state
    )


def eigh(
    a: Array, *, lower: bool, subset_by_index: Any, sort_eigenvalues: bool = True, **_: Any
) -> tuple[Array, Array]:
    """(eigenvectors in columns, eigenvalues in ascending order) of the Hermitian matrix of one triangle."""
    jnp = _np()
    n = a.shape[0]
    triangle = jnp.tril(a, -1) if lower else jnp.triu(a, 1)
    a = triangle + _conj(triangle.T) + jnp.diag(_real(jnp.diagonal(a))).astype(a.dtype)
    largest = _largest(a)
    a = _scaled(operator.truediv, a, largest)

    def turn(p: Array, q: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        a, v = state
        c, s, phase = _rotation(_real(a[p, p]), _real(a[q, q]), a[p, q])
        a = _rotated(a, p, q, c, s, phase)
        a = _conj(_rotated(_conj(a.T), p, q, c, s, phase).T)
        return a, _rotated(v, p, q, c, s, phase)

    a, v = _swept(n, turn, (a, jnp.eye(n, dtype=a.dtype)))
    values = _real(jnp.diagonal(a)) * largest
    order = jnp.argsort(values)
    first, end = (0, n) if subset_by_index is None else subset_by_index
    order = order[first:end]
    return v[:, order], values[order]


def svd(
    a: Array, *, full_matrices: bool, compute_uv: bool, subset_by_index: Any = None, algorithm: Any = None
) -> tuple[Array, ...]:
    """The singular values, descending; with ``compute_uv`` also the left and right vectors."""
    jnp = _np()
    m, n = a.shape
    if m < n:
        found = svd(_conj(a.T), full_matrices=full_matrices, compute_uv=compute_uv)
        return (found[0], _conj(found[2].T), _conj(found[1].T)) if compute_uv else found
    largest = _largest(a)
    a = _scaled(operator.truediv, a, largest)

    def turn(p: Array, q: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        b, v = state
        x, y = _column(b, p), _column(b, q)
        c, s, phase = _rotation(_square(x).sum(), _square(y).sum(), (_conj(x) * y).sum())
        return _rotated(b, p, q, c, s, phase), _rotated(v, p, q, c, s, phase)

    b, v = _swept(n, turn, (a, jnp.eye(n, dtype=a.dtype)))
    values = lax.sqrt(_square(b).sum(0))
    order = jnp.argsort(-values)
    sorted_values = values[order] * largest
    if not compute_uv:
        return (sorted_values,)
    # the columns of b are orthogonal: r is diagonal up to rounding, and q has a full set of columns
    u, r, *_ = qr(b[:, order], pivoting=False, full_matrices=full_matrices)
    diagonal = jnp.diagonal(r)
    size = lax.sqrt(_square(diagonal))
    sign = jnp.where(size == 0, 1, diagonal / jnp.where(size == 0, 1, size)).astype(a.dtype)
    u = u * jnp.concatenate([sign, jnp.ones(u.shape[1] - n, a.dtype)])[None, :]
    return sorted_values, u, _conj(v[:, order].T)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {  # with the ranks of the operands
    "lu": (lu, (2,)),
    "lu_pivots_to_permutation": (pivots_to_permutation, (1,)),
    "geqrf": (geqrf, (2,)),
    "householder_product": (householder_product, (2, 1)),
    "qr": (qr, (2,)),
    "hessenberg": (hessenberg, (2,)),
    "ormqr": (ormqr, (2, 1, 2)),
    "cholesky_update": (cholesky_update, (2, 1)),
    "tridiagonal_solve": (tridiagonal_solve, (1, 1, 1, 2)),
    "eigh": (eigh, (2,)),
    "svd": (svd, (2,)),
}


def program(name: str, params: dict[str, Any], rank: int) -> Callable[..., Any] | None:
    """The function for operands whose first has this rank, with batch dimensions in front; None if there is none."""
    if name not in PROGRAMS:
        return None
    function, ranks = PROGRAMS[name]
    mapped: Callable[..., Any] = functools.partial(function, **params)
    for _ in range(rank - ranks[0]):
        mapped = vmap(mapped)
    return mapped
