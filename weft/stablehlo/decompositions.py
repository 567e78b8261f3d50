"""Decompositions of matrices as programs of loops, for compilers without LAPACK.

Cholesky, LU and QR are in ``factorizations``; eigenvalues of Hermitian matrices by Jacobi's rotations, singular values
by one-sided rotations (Golub and Van Loan, "Matrix Computations", 8.5 and 8.6). Each function takes one matrix;
``program`` maps it over a batch.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import lax
from weft.batching.vmap import vmap
from weft.core.avals import get_aval
from weft.stablehlo.factorizations import (
    cholesky,
    column_of,
    conj,
    geqrf,
    householder_product,
    largest_part,
    lu,
    numpy,
    ormqr,
    qr,
    real,
    reflector,
    scaled,
    square,
    swapped,
    with_column,
)

Array = Any
SWEEPS = 16  # rounds of rotations of all pairs; convergence is quadratic, and 6 to 10 are typical


def pivots_to_permutation(pivots: Array, *, permutation_size: int) -> Array:
    rows = numpy().arange(permutation_size).astype(np.int32)
    return lax.fori_loop(0, pivots.shape[0], lambda i, order: swapped(order, i, pivots[i]), rows)


def hessenberg(a: Array) -> tuple[Array, Array]:
    """(h on and above the first subdiagonal and the reflectors below, their factors), as LAPACK's gehrd."""
    jnp = numpy()
    n = a.shape[0]
    if n < 2:
        return a, jnp.zeros(0, a.dtype)
    rows = jnp.arange(n)
    largest = largest_part(a)
    a = scaled(operator.truediv, a, largest)

    def step(j: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        a, taus = state
        v, tau, kept = reflector(column_of(a, j), j + 1, rows)
        later = rows > j
        a = a - jnp.where(later[None, :], tau * (a * v[None, :]).sum(1)[:, None] * conj(v)[None, :], 0)
        a = a - jnp.where(later[None, :], conj(tau) * v[:, None] * (conj(v)[:, None] * a).sum(0)[None, :], 0)
        return with_column(a, j, kept), taus.at[j].set(tau)

    a, taus = lax.fori_loop(0, n - 1, step, (a, jnp.zeros(n - 1, a.dtype)))
    return jnp.where(rows[:, None] <= rows[None, :] + 1, scaled(operator.mul, a, largest), a), taus


# -- systems of equations, and updates --------------------------------------------------------------------------------


def cholesky_update(r: Array, w: Array) -> Array:
    """The upper r1 with r1' r1 = r' r + w w', by Givens rotations."""
    jnp = numpy()
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
    jnp = numpy()
    n = d.shape[0]
    info = np.finfo(d.dtype)
    index = jnp.arange(n)
    dl, du = jnp.where(index == 0, 0, dl).astype(d.dtype), jnp.where(index == n - 1, 0, du).astype(d.dtype)
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
    least = lax.max(size(rows).max() * info.eps, jnp.zeros((), info.dtype) + info.tiny)

    def moved(pivot: Array, wanted: Array) -> Array:
        def overflows(state: tuple[Array, Array]) -> Array:
            own = size(state[0])
            return (own < 1) & ((own == 0) | (wanted * info.tiny > own))

        start = jnp.copysign(least, real(pivot))
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
    jnp = numpy()
    size = lax.sqrt(square(gamma))
    none = size == 0
    divisor = jnp.where(none, 1, size)
    zeta = (beta - alpha) / (2 * divisor)
    t = jnp.where(zeta >= 0, 1, -1) / (abs(zeta) + lax.sqrt(1 + zeta * zeta))
    t = jnp.where(none, 0, t).astype(alpha.dtype)
    c = lax.rsqrt(1 + t * t)
    return c, c * t, jnp.where(none, 1, gamma / divisor).astype(get_aval(gamma).dtype)


def _rotated(a: Array, p: Array, q: Array, c: Array, s: Array, phase: Array) -> Array:
    """a with its columns p and q rotated."""
    x, y = column_of(a, p), column_of(a, q)
    return with_column(with_column(a, p, c * x - s * conj(phase) * y), q, s * phase * x + c * y)


def _swept(n: int, turn: Callable[..., Any], state: Any) -> Any:
    """``turn(p, q, state)`` for all pairs p < q, several times."""
    pairs = [(p, q) for p in range(n) for q in range(p + 1, n)]
    if not pairs:
        return state
    table = numpy().asarray(np.array(pairs, np.int32))
    return lax.fori_loop(
        0, SWEEPS, lambda _, s: lax.fori_loop(0, len(pairs), lambda i, s: turn(table[i, 0], table[i, 1], s), s), state
    )


def eigh(
    a: Array, *, lower: bool, subset_by_index: Any, sort_eigenvalues: bool = True, **_: Any
) -> tuple[Array, Array]:
    """(eigenvectors in columns, eigenvalues in ascending order) of the Hermitian matrix of one triangle."""
    jnp = numpy()
    n = a.shape[0]
    triangle = jnp.tril(a, -1) if lower else jnp.triu(a, 1)
    a = triangle + conj(triangle.T) + jnp.diag(real(jnp.diagonal(a))).astype(a.dtype)
    largest = largest_part(a)
    a = scaled(operator.truediv, a, largest)

    def turn(p: Array, q: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        a, v = state
        c, s, phase = _rotation(real(a[p, p]), real(a[q, q]), a[p, q])
        a = _rotated(a, p, q, c, s, phase)
        a = conj(_rotated(conj(a.T), p, q, c, s, phase).T)
        return a, _rotated(v, p, q, c, s, phase)

    a, v = _swept(n, turn, (a, jnp.eye(n, dtype=a.dtype)))
    values = real(jnp.diagonal(a)) * largest
    order = jnp.argsort(values)
    first, end = (0, n) if subset_by_index is None else subset_by_index
    order = order[first:end]
    return v[:, order], values[order]


def svd(
    a: Array, *, full_matrices: bool, compute_uv: bool, subset_by_index: Any = None, algorithm: Any = None
) -> tuple[Array, ...]:
    """The singular values, descending; with ``compute_uv`` also the left and right vectors."""
    jnp = numpy()
    m, n = a.shape
    if m < n:
        found = svd(conj(a.T), full_matrices=full_matrices, compute_uv=compute_uv)
        return (found[0], conj(found[2].T), conj(found[1].T)) if compute_uv else found
    largest = largest_part(a)
    a = scaled(operator.truediv, a, largest)

    def turn(p: Array, q: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        b, v = state
        x, y = column_of(b, p), column_of(b, q)
        c, s, phase = _rotation(square(x).sum(), square(y).sum(), (conj(x) * y).sum())
        return _rotated(b, p, q, c, s, phase), _rotated(v, p, q, c, s, phase)

    b, v = _swept(n, turn, (a, jnp.eye(n, dtype=a.dtype)))
    values = lax.sqrt(square(b).sum(0))
    order = jnp.argsort(-values)
    sorted_values = values[order] * largest
    if not compute_uv:
        return (sorted_values,)
    # the columns of b are orthogonal: r is diagonal up to rounding, and q has a full set of columns
    u, r, *_ = qr(b[:, order], pivoting=False, full_matrices=full_matrices)
    diagonal = jnp.diagonal(r)
    size = lax.sqrt(square(diagonal))
    sign = jnp.where(size == 0, 1, diagonal / jnp.where(size == 0, 1, size)).astype(a.dtype)
    u = u * jnp.concatenate([sign, jnp.ones(u.shape[1] - n, a.dtype)])[None, :]
    return sorted_values, u, conj(v[:, order].T)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {  # with the ranks of the operands
    "cholesky": (cholesky, (2,)),
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
