"""Systems of tridiagonal matrices.

dl[i] x[i-1] + d[i] x[i] + du[i] x[i+1] = b[i]      dl[0] and du[n-1] are not read
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft._base import lazy
from weft.core import tangents as tangent_types
from weft.operations import mapped
from weft.operations.data_movement.shape import shape_of
from weft.operations.later import ops
from weft.operations.linalg import matrices
from weft.operations.linalg.matrices import matrix_primitive, nans
from weft.runtime import Array

ArrayLike = Any
Shape = tuple[int, ...]


def _shape(dl: Shape, d: Shape, du: Shape, b: Shape, **_: Any) -> Shape:
    if dl != d or dl != du:
        raise TypeError("tridiagonal_solve requires that all diagonal arguments have the same shape.")
    if dl != b[:-1]:
        raise TypeError(
            "tridiagonal_solve requires that the leading ndim-1 dimensions of b equal the dimensions of the diagonal "
            "arguments."
        )
    return b


def _reference(
    dl: np.ndarray, d: np.ndarray, du: np.ndarray, b: np.ndarray, *, perturb_singular: bool = False
) -> np.ndarray:
    if b.size == 0:
        return b.copy()
    if perturb_singular:
        return _perturbed(dl, d, du, b)
    routine = getattr(lazy.scipy_linalg.lapack, matrices.lapack_name(b, "gtsv"))
    if len(d) == 1:  # SciPy's wrapper rejects this case
        return nans(b.shape, b.dtype) if d[0] == 0 else b / d[0]
    _, _, _, x, info = routine(dl[1:], d, du[:-1], b)
    return nans(b.shape, b.dtype) if info else x


def _perturbed(dl: np.ndarray, d: np.ndarray, du: np.ndarray, b: np.ndarray) -> np.ndarray:
    """LAPACK's lagtf and lagts, which SciPy does not have."""
    n = len(d)
    upper = np.zeros((n, 3), b.dtype)  # U: its diagonal and the two above
    upper[:, 0], upper[:-1, 1] = d, du[:-1]
    x = b.copy()
    scale = np.abs(upper[0]).sum()
    for i in range(n - 1):
        below = np.array([dl[i + 1], *upper[i + 1, :2]], b.dtype)
        next_scale = np.abs(below).sum()
        if dl[i + 1] == 0:
            scale = next_scale
            continue
        own = 0 if upper[i, 0] == 0 else abs(upper[i, 0]) / scale
        if abs(dl[i + 1]) / next_scale > own:
            upper[i], below = below, upper[i].copy()
            x[[i, i + 1]] = x[[i + 1, i]]
        else:
            scale = next_scale
        factor = below[0] / upper[i, 0]
        upper[i + 1, :2] = (below - factor * upper[i])[1:]
        x[i + 1] -= factor * x[i]
    info = np.finfo(b.dtype)
    step = max(np.abs(upper).max() * info.eps, info.tiny)
    for i in reversed(range(n)):
        x[i] -= sum(upper[i, k] * x[i + k] for k in (1, 2) if i + k < n)
        pivot, move = upper[i, 0], np.copysign(step, np.real(upper[i, 0]))
        while abs(pivot) < 1 and (pivot == 0 or np.abs(x[i]).max() * info.tiny > abs(pivot)):
            pivot, move = pivot + move, move * 2
        x[i] /= pivot
    return x


tridiagonal_solve_p = matrix_primitive(
    "tridiagonal_solve", (1, 1, 1, 2), _shape, _reference,
    lambda dl, d, du, b, *, perturb_singular=False: ("lagts" if perturb_singular else "gtsv", b),
)  # fmt: skip


def _shifted(x: Any, by: int) -> Array:
    """x[..., i + by], zeros outside."""
    rank = len(shape_of(x))
    pads = [(0, 0, 0)] * (rank - 1) + [(-by, by, 0)]
    return ops.pad(x, matrices.constant(x, 0), pads)


def _rows_shifted(x: Any, by: int) -> Array:
    rank = len(shape_of(x))
    return ops.pad(x, matrices.constant(x, 0), [*[(0, 0, 0)] * (rank - 2), (-by, by, 0), (0, 0, 0)])


def _times(dl: Any, d: Any, du: Any, x: Any) -> Array:
    """The matrix of three diagonals times x."""
    made = ops.mul(matrices.column(d), x)
    made = ops.add(made, ops.mul(matrices.column(dl), _rows_shifted(x, -1)))
    return ops.add(made, ops.mul(matrices.column(du), _rows_shifted(x, 1)))


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    """dx = a^-1 (db - da x)."""
    *diagonals, _ = primals
    *moved, right = tangents
    x = tridiagonal_solve_p.bind(*primals, **params)
    if any(type(t) is not tangent_types.Zero for t in moved):
        pairs = zip(diagonals, moved, strict=True)
        dl, d, du = [ops.full_like(p, 0) if type(t) is tangent_types.Zero else t for p, t in pairs]
        right = ops.add_any(right, ops.neg(_times(dl, d, du, x)))
    return x, tridiagonal_solve_p.bind(*diagonals, right, **params)


def _transpose(ct: Any, dl: Any, d: Any, du: Any, b: Any, **params: Any) -> tuple[Any, ...]:
    """Linear in the right-hand side: the transposed matrix has its diagonals exchanged."""
    if not tangent_types.is_undefined(b) or any(map(tangent_types.is_undefined, (dl, d, du))):
        raise NotImplementedError("[tridiagonal_solve] it is linear only in its right-hand side")
    if type(ct) is tangent_types.Zero:
        return None, None, None, tangent_types.Zero(b.aval)
    return None, None, None, tridiagonal_solve_p.bind(_shifted(du, -1), d, _shifted(dl, 1), ct, **params)


def _batch(size: int, values: list[Any], dims: list[mapped.Dim], **params: Any) -> Any:
    """For one matrix the mapped right-hand sides become columns; otherwise all are mapped along dimension 0."""
    if any(dim is not None for dim in dims[:3]):
        return tridiagonal_solve_p.bind(*mapped.all_in_front(size, values, dims), **params), 0
    assert dims[3] is not None
    b = mapped.at(values[3], dims[3], len(shape_of(values[3])) - 2)
    *batch, n, k, m = shape_of(b)
    out = tridiagonal_solve_p.bind(*values[:3], ops.reshape(b, (*batch, n, k * m)), **params)
    return ops.reshape(out, (*batch, n, k, m)), len(batch) + 1


tridiagonal_solve_p.jvp, tridiagonal_solve_p.transpose = _jvp, _transpose
tridiagonal_solve_p.batch = _batch


def tridiagonal_solve(
    dl: ArrayLike, d: ArrayLike, du: ArrayLike, b: ArrayLike, *, perturb_singular: bool = False
) -> Array:
    """x, [..., n, k], that solves a tridiagonal system for b; the diagonals dl, d and du are [..., n].

    dl[i] x[i-1] + d[i] x[i] + du[i] x[i+1] = b[i]; dl[0] and du[n-1] are not read. With pivoting (LAPACK's gtsv). A
    singular matrix gives NaN, or with ``perturb_singular`` a large finite solution: pivots of the factor U that are
    nearly zero are moved by eps * max |U| (LAPACK's lagtf and lagts), as inverse iteration for eigenvectors needs it.
    TypeError for shapes that do not fit.

    >>> dl, d, du = np.float32([0, 1, 1]), np.float32([2, 2, 2]), np.float32([1, 1, 0])
    >>> np.round(np.float32(lax.linalg.tridiagonal_solve(dl, d, du, np.float32([[3], [4], [3]]))), 3).tolist()
    [[1.0], [1.0], [1.0]]
    """
    return tridiagonal_solve_p.bind(dl, d, du, b, perturb_singular=bool(perturb_singular))
