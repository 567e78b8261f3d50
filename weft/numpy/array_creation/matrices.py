"""Triangles, diagonals, window functions, and index grids.

A diagonal is a strided slice of the flattened matrix, so that it needs no gather and keeps every bit::

    tril(f32[3,4])      ->  jit[name=tril]: iota, add, iota, ge, select_n
    diagonal(f32[3,3])  ->  jit[name=diagonal]: reshape[9], slice[strides=(4,)]
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np

from weft import core, dtypes, errors
from weft import operations as lax
from weft._base.array import Array
from weft.dispatch.calls import jit as jit_module
from weft.numpy import axes, promotion, rearrange, reductions
from weft.numpy.array_creation import creation, diagonals
from weft.numpy.pointwise import arithmetic, logic, selection
from weft.numpy.subscripts import index_updates

inline = functools.partial(jit_module.jit, inline=True)
jit = jit_module.jit


def _triangle(name: str, m: Any, k: int) -> Any:
    promotion.check_arraylike(name, m)
    extents = promotion.shape_of(m)
    if len(extents) < 2:
        raise ValueError(f"Argument to jax.numpy.{name} must be at least 2D")
    mask = diagonals.triangle_mask(extents[-2], extents[-1], operator.index(k))
    mask = promotion.broadcast_to(mask, extents)
    zeros = lax.full_like(m, 0)
    return lax.select(mask, m, zeros) if name == "tril" else lax.select(mask, zeros, m)


@functools.partial(jit_module.jit, static_argnames=("k",))
def tril(m: Any, k: int = 0) -> Array:
    """``m`` with zeros above the ``k``-th diagonal of its last two axes.

    >>> tril(weft.numpy.ones((2, 2))).tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    return _triangle("tril", m, k)


@functools.partial(jit_module.jit, static_argnames=("k",))
def triu(m: Any, k: int = 0) -> Array:
    """``m`` with zeros below the ``k``-th diagonal of its last two axes.

    >>> triu(weft.numpy.ones((2, 2))).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    return _triangle("triu", m, operator.index(k) - 1)


def diag(v: Any, k: int = 0) -> Array:
    """A matrix with ``v`` on its ``k``-th diagonal, or the ``k``-th diagonal of a matrix.

    >>> diag(weft.numpy.arange(2)).tolist()
    [[0, 0], [0, 1]]
    """
    promotion.check_arraylike("diag", v)
    return _diag(v, k=operator.index(k))


@functools.partial(jit_module.jit, static_argnames=("k",))
def _diag(v: Any, *, k: int) -> Any:
    extents = promotion.shape_of(v)
    if len(extents) == 2:
        return diagonal(v, offset=k)
    if len(extents) != 1:
        raise ValueError("diag input must be 1d or 2d")
    zero = promotion.constant_like(0, v, any_rank=True)
    size = extents[0] + abs(k)
    padded = lax.pad(v, zero, ((max(0, -k), max(0, k), 0),))
    return selection.where(diagonals.diagonal_mask(size, size, k), lax.expand_dims(padded, (1,)), zero)


def diagflat(v: Any, k: int = 0) -> Array:
    """A matrix with the flattened ``v`` on its ``k``-th diagonal.

    >>> diagflat(weft.numpy.ones((1, 2))).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    promotion.check_arraylike("diagflat", v)
    flat, k = rearrange.ravel(v), operator.index(k)
    count = promotion.shape_of(flat)[0]
    size = count + abs(k)
    zeros = lax.full((size * size,), 0, promotion.dtype_of(flat))
    along = creation.arange(count)
    indices = along + k + along * size if k >= 0 else along + (along - k) * size
    return lax.reshape(index_updates.IndexUpdate(zeros, indices).set(flat), (size, size))


@jit(static_argnames=("offset", "axis1", "axis2"))
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """The elements whose indices along two axes differ by ``offset``, as a new last axis.

    >>> diagonal(weft.numpy.eye(2)).tolist()
    [1.0, 1.0]
    """
    promotion.check_arraylike("diagonal", a)
    if len(promotion.shape_of(a)) < 2:
        raise ValueError("diagonal requires an array of at least two dimensions.")
    first, second = (axes.canonical_axis(axis, len(promotion.shape_of(a))) for axis in (axis1, axis2))
    if first == second:
        raise TypeError(f"[diagonal] axis1={axis1} and axis2={axis2} are the same axis: two different ones are needed")
    a = rearrange.moveaxis(a, (axis1, axis2), (-2, -1))
    *outer, rows, columns = promotion.shape_of(a)
    count = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    start = offset if offset >= 0 else -offset * columns
    flat = lax.reshape(a, (*outer, rows * columns))
    if count == 0:
        return lax.slice_in_dim(flat, 0, 0, axis=len(outer))
    return lax.slice_in_dim(flat, start, start + (count - 1) * (columns + 1) + 1, columns + 1, axis=len(outer))


@jit(static_argnames=("axis1", "axis2", "dtype", "out"))
def trace(a: Any, offset: Any = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: None = None) -> Array:
    """Sum of a diagonal; the last argument ``out`` must be None.

    >>> trace(weft.numpy.eye(3)).item()
    3.0
    """
    promotion.check_arraylike("trace", a)
    reductions.refuse_out("trace", out)
    if not dtypes.issubdtype(promotion.dtype_of(offset), np.integer) or promotion.shape_of(offset):
        raise ValueError(f"[trace] offset must be a scalar integer; got {core.get_aval(offset).str_short()}")
    rank = len(promotion.shape_of(a))
    if axes.canonical_axis(axis1, rank) == axes.canonical_axis(axis2, rank):
        raise ValueError(f"axis1 and axis2 can not be same. axis1={axis1} and axis2={axis2}")
    a = rearrange.moveaxis(a, (axes.canonical_axis(axis1, rank), axes.canonical_axis(axis2, rank)), (-2, -1))
    mask = diagonals.diagonal_mask(promotion.shape_of(a)[-2], promotion.shape_of(a)[-1], offset)
    kept = selection.where(mask, a, lax.full_like(a, 0))
    return reductions.sum(kept, axis=(-2, -1), dtype=dtype)


@jit(static_argnames=("N", "increasing"))
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Array:
    """The powers of ``x`` as columns, the highest first unless ``increasing``.

    >>> vander(weft.numpy.arange(1.0, 3.0)).tolist()
    [[1.0, 1.0], [2.0, 1.0]]
    """
    promotion.check_arraylike("vander", x)
    if len(promotion.shape_of(x)) != 1:
        raise ValueError("x must be a one-dimensional array")
    count = promotion.shape_of(x)[0] if N is None else operator.index(N)
    if count < 0:
        raise ValueError("N must be nonnegative")
    dtype = promotion.dtype_of(x)
    powers = lax.iota(dtype, count)
    if not increasing:
        powers = lax.sub(core.scalar(count - 1, dtype), powers)
    return arithmetic.power(lax.expand_dims(x, (1,)), lax.expand_dims(powers, (0,)))


def _window(name: str, M: int) -> tuple[int, Any]:
    if isinstance(M, core.Tracer):
        raise errors.ConcretizationTypeError(M, f"M argument of jnp.{name}")
    count = operator.index(M)
    return count, dtypes.canonicalize_dtype(np.float64)


def _wave(positions: Any, count: int, factor: float) -> Any:
    """``cos(factor * n / (count - 1))``."""
    dtype = promotion.dtype_of(positions)
    angle = lax.mul(np.asarray(factor).astype(dtype), positions)
    return lax.cos(lax.div(angle, np.asarray(count - 1).astype(dtype)))


def bartlett(M: int) -> Array:
    """A triangular window of ``M`` samples, 0 at both ends.

    >>> bartlett(3).tolist()
    [0.0, 1.0, 0.0]
    """
    count, dtype = _window("bartlett", M)
    if count <= 1:
        return creation.ones(count, dtype)
    one, two = (np.asarray(v).astype(dtype) for v in (1, 2))
    distance = lax.sub(lax.add(lax.mul(two, lax.iota(dtype, count)), one), np.asarray(count).astype(dtype))
    return lax.sub(one, lax.div(lax.abs(distance), np.asarray(count - 1).astype(dtype)))


def blackman(M: int) -> Array:
    """Blackman's window of ``M`` samples.

    >>> blackman(1).tolist()
    [1.0]
    """
    count, dtype = _window("blackman", M)
    if count <= 1:
        return creation.ones(count, dtype)
    positions = lax.iota(dtype, count)
    first = lax.mul(np.asarray(0.5).astype(dtype), _wave(positions, count, 2 * np.pi))
    level = lax.sub(np.asarray(0.42).astype(dtype), first)
    return lax.add(level, lax.mul(np.asarray(0.08).astype(dtype), _wave(positions, count, 4 * np.pi)))


def hamming(M: int) -> Array:
    """Hamming's window of ``M`` samples.

    >>> hamming(1).tolist()
    [1.0]
    """
    count, dtype = _window("hamming", M)
    if count <= 1:
        return creation.ones(count, dtype)
    wave = lax.mul(np.asarray(0.46).astype(dtype), _wave(lax.iota(dtype, count), count, 2 * np.pi))
    return lax.sub(np.asarray(0.54).astype(dtype), wave)


def hanning(M: int) -> Array:
    """Hann's window of ``M`` samples, 0 at both ends.

    >>> hanning(1).tolist()
    [1.0]
    """
    count, dtype = _window("hanning", M)
    if count <= 1:
        return creation.ones(count, dtype)
    rise = lax.sub(np.asarray(1).astype(dtype), _wave(lax.iota(dtype, count), count, 2 * np.pi))
    return lax.mul(np.asarray(0.5).astype(dtype), rise)


def kaiser(M: int, beta: Any) -> Array:
    """Kaiser's window of ``M`` samples, the narrower the larger ``beta``.

    >>> kaiser(3, 0.0).tolist()
    [1.0, 1.0, 1.0]
    """
    count, dtype = _window("kaiser", M)
    if count <= 1:
        return creation.ones(count, dtype)
    points = np.linspace(-1, 1, count)
    arch = np.sqrt((1 - points) * (1 + points)).astype(dtype)
    beta = promotion.convert(beta, dtype)
    height = lax.mul(arch, lax.broadcast(beta, (count,)))
    scaled = lax.div(lax.bessel_i0e(height), lax.broadcast(lax.bessel_i0e(lax.abs(beta)), (count,)))
    return lax.mul(scaled, lax.exp(lax.sub(lax.abs(height), lax.broadcast(lax.abs(beta), (count,)))))


def _matrix_size(name: str, n: Any, k: Any, m: Any) -> tuple[int, int, int]:
    """The numbers of rows, of the diagonal and of columns as integers; TypeError for others and negative sizes."""
    rows, diagonal = operator.index(n), operator.index(k)
    columns = rows if m is None else operator.index(m)
    if rows < 0 or columns < 0:
        raise TypeError(f"[{name}] the matrix must not have negative sizes, got {(rows, columns)}")
    return rows, diagonal, columns


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Any, Any]:
    """Row and column indices of the elements at and below the ``k``-th diagonal of an ``n`` by ``m`` matrix.

    >>> [part.tolist() for part in tril_indices(2)]
    [[0, 1, 1], [0, 0, 1]]
    """
    n, k, m = _matrix_size("tril_indices", n, k, m)
    rows, columns = np.tril_indices(n, k, m)
    return creation.asarray(rows), creation.asarray(columns)


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Any, Any]:
    """Row and column indices of the elements at and above the ``k``-th diagonal of an ``n`` by ``m`` matrix.

    >>> [part.tolist() for part in triu_indices(2)]
    [[0, 0, 1], [0, 1, 1]]
    """
    n, k, m = _matrix_size("triu_indices", n, k, m)
    rows, columns = np.triu_indices(n, k, m)
    return creation.asarray(rows), creation.asarray(columns)


def tril_indices_from(arr: Any, k: int = 0) -> tuple[Any, Any]:
    """``tril_indices`` for the shape of a matrix.

    >>> len(tril_indices_from(weft.numpy.eye(2)))
    2
    """
    promotion.check_arraylike("tril_indices_from", arr)
    rows, columns = _matrix_shape(arr)
    return tril_indices(rows, k, columns)


def triu_indices_from(arr: Any, k: int = 0) -> tuple[Any, Any]:
    """``triu_indices`` for the shape of a matrix.

    >>> len(triu_indices_from(weft.numpy.eye(2)))
    2
    """
    promotion.check_arraylike("triu_indices_from", arr)
    rows, columns = _matrix_shape(arr)
    return triu_indices(rows, k, columns)


def _matrix_shape(arr: Any) -> tuple[int, int]:
    extents = promotion.shape_of(arr)
    if len(extents) != 2:
        raise ValueError("Only 2-D inputs are accepted")
    return extents[0], extents[1]


def diag_indices(n: int, ndim: int = 2) -> tuple[Any, ...]:
    """The indices of the main diagonal of an array with ``ndim`` axes of extent ``n``.

    >>> [part.tolist() for part in diag_indices(2)]
    [[0, 1], [0, 1]]
    """
    count = axes.concrete_int(n, "'n' argument of jnp.diag_indices()")
    rank = axes.concrete_int(ndim, "'ndim' argument of jnp.diag_indices()")
    if count < 0:
        raise ValueError(f"n argument to diag_indices must be nonnegative, got {count}")
    if rank < 0:
        raise ValueError(f"ndim argument to diag_indices must be nonnegative, got {rank}")
    return (lax.iota(dtypes.canonicalize_dtype(np.int64), count),) * rank


def diag_indices_from(arr: Any) -> tuple[Any, ...]:
    """``diag_indices`` for the shape of an array, whose extents must be equal.

    >>> len(diag_indices_from(weft.numpy.eye(2)))
    2
    """
    promotion.check_arraylike("diag_indices_from", arr)
    extents = promotion.shape_of(arr)
    if len(extents) < 2:
        raise ValueError("input array must be at least 2-d")
    if len(set(extents)) != 1:
        raise ValueError("All dimensions of input must be of equal length")
    return diag_indices(extents[0], len(extents))


def ix_(*args: Any) -> tuple[Any, ...]:
    """Rank-1 arrays reshaped so that together they index a grid.

    >>> [part.shape for part in ix_(weft.numpy.arange(2), weft.numpy.arange(3))]
    [(2, 1), (1, 3)]
    """
    promotion.check_arraylike("ix_", *args)
    result = []
    for position, vector in enumerate(args):
        if len(promotion.shape_of(vector)) != 1:
            raise ValueError(
                f"Arguments to jax.numpy.ix_ must be 1-dimensional, got shape {promotion.shape_of(vector)}"
            )
        if promotion.dtype_of(vector) == np.bool_:
            raise NotImplementedError("Boolean arguments to jax.numpy.ix_ are not implemented")
        extents = tuple(promotion.shape_of(vector)[0] if d == position else 1 for d in range(len(args)))
        same = extents == promotion.shape_of(vector)
        result.append(promotion.as_array(vector) if same else lax.broadcast_in_dim(vector, extents, (position,)))
    return tuple(result)


def unravel_index(indices: Any, shape: Any) -> tuple[Any, ...]:
    """Indices of the flattened array as one index array per axis; out-of-range indices are clipped.

    ``shape`` may be traced: an integer, a vector, or a sequence with traced members.

    >>> [part.item() for part in unravel_index(5, (2, 3))]
    [1, 2]
    """
    promotion.check_arraylike("unravel_index", indices)
    extents = _extents(shape)
    index, parts = indices, []
    if not isinstance(shape, tuple | list | int):  # an array of extents has a type, which the indices get
        index = arithmetic.add(index, np.zeros((), promotion.dtype_of(shape)))
    for extent in extents[::-1]:
        index, part = arithmetic.divmod(index, extent)
        parts.append(part)
    # what is left counts whole arrays: -1 for an index from the end, others are out of range
    above = logic.greater(index, 0)
    below = False if dtypes.issubdtype(promotion.dtype_of(index), np.unsignedinteger) else logic.less(index, -1)
    result = []
    for extent, part in zip(extents, parts[::-1], strict=True):
        part = selection.where(below, 0, part)
        last = extent - 1 if isinstance(extent, int) else arithmetic.subtract(extent, 1)
        result.append(selection.where(above, last, part))
    return tuple(result)


def _extents(shape: Any) -> list[Any]:
    """The members of a shape, traced ones as they are."""
    if isinstance(shape, core.Tracer):
        members = list(shape) if shape.ndim else [shape]
    else:
        members = list(shape) if isinstance(shape, list | tuple) else None
    if members is None or not any(isinstance(member, core.Tracer) for member in members):
        return list(axes.canonical_shape(shape))
    return [m if isinstance(m, core.Tracer) else axes.canonical_shape(m)[0] for m in members]
