"""weft.numpy.linalg: norms, powers and products here, decompositions and solvers from the modules of their own.

norm(f32[3])           ->  jit[name=norm]: mul, reduce_sum, sqrt
matrix_power(f32[3,3]) ->  jit[name=matrix_power]: one product for each bit of the exponent
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import dtypes
from weft import operations as lax
from weft._base import lazy
from weft._base import unbuilt as _unbuilt
from weft._base.array import Array as Array
from weft.dispatch.calls import jit as jit_module
from weft.numpy import axes, promotion, rearrange, reductions
from weft.numpy.array_creation import diagonals, matrices
from weft.numpy.linear_algebra import contractions, einstein
from weft.numpy.pointwise import arithmetic

# Loaded when first used.
_NAMES = lazy.Names(
    "weft.numpy.linalg",
    {
        "numpy.linear_algebra.decompositions": "cholesky eig eigh eigvals eigvalsh qr svd svdvals",
        "numpy.linear_algebra.solving": "cond det inv lstsq matrix_rank pinv slogdet solve tensorinv tensorsolve",
    },
)


def __getattr__(name: str) -> Any:
    return _NAMES.find(name) if name in _NAMES else _unbuilt.missing("weft.numpy.linalg", name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES.modules})


# -- norms ------------------------------------------------------------------------------------------------------------


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Array:
    """The norm of vectors along one axis, of matrices along two, or of all elements (``ord`` and ``axis`` None).

    ``x`` is any array; the result is floating point and real. ``ord`` for vectors: a number, ``inf`` or ``-inf``; for
    matrices: "fro" (and None), "nuc", 1, -1, 2, -2, ``inf`` or ``-inf``. ValueError for another order or number of
    axes.

    >>> norm(weft.numpy.array([3.0, 4.0])).item()
    5.0
    """
    promotion.check_arraylike("jnp.linalg.norm", x)
    named = ord if ord is None or isinstance(ord, str) else float(ord)
    return _norm(x, ord=named, axis=axes.static_axes(axis), keepdims=keepdims)


def _as_norm(x: Any, *, ord: float | str | None, axis: Any, keepdims: bool) -> Any:
    (x,) = promotion.promote_dtypes_inexact(x)
    dims = axes.canonical_axes(axis, len(promotion.shape_of(x)))
    if axis is None and ord is None:
        return _vector_norm(x, 2.0, dims, keepdims)
    if len(dims) == 1:
        return _vector_norm(x, 2.0 if ord is None else ord, dims, keepdims)
    if len(dims) == 2:
        return _matrix_norm(x, ord, dims, keepdims)
    raise ValueError(
        f"Improper number of axes for norm: axis={dims}. Pass one axis to compute a vector-norm, or two axes to "
        "compute a matrix-norm."
    )


_as_norm.__name__ = "norm"
_norm = jit_module.jit(_as_norm, static_argnames=("ord", "axis", "keepdims"))


def _vector_norm(x: Any, ord: float | str, dims: tuple[int, ...], keepdims: bool) -> Any:
    if isinstance(ord, str):
        raise ValueError(f"Invalid order '{ord}' for vector norm.")
    over = {"axis": dims, "keepdims": keepdims}
    if ord == 2:
        squares = lax.real(lax.mul(x, lax.conj(x))) if _is_complex(x) else lax.mul(x, x)
        return lax.sqrt(reductions.sum(squares, **over))
    if ord == 0:
        dtype = dtypes.finfo(promotion.dtype_of(x)).dtype
        return reductions.sum(lax.ne(x, promotion.constant_like(0, x)), dtype=dtype, **over)
    size = lax.abs(x)
    if ord == np.inf:
        return reductions.max(size, initial=0, **over)
    if ord == -np.inf:
        return reductions.min(size, **over)
    if ord == 1:
        return reductions.sum(size, **over)
    powers = lax.pow(size, promotion.constant_like(ord, size))
    return lax.pow(reductions.sum(powers, **over), promotion.constant_like(1 / ord, size))


def _matrix_norm(x: Any, ord: float | str | None, dims: tuple[int, ...], keepdims: bool) -> Any:
    if ord is None or ord in ("f", "fro"):
        return _vector_norm(x, 2.0, dims, keepdims)
    if ord in ("nuc", 2, -2):
        return _singular_norm(x, ord, dims, keepdims)
    if ord not in (1, -1, np.inf, -np.inf):
        raise ValueError(f"Invalid order '{ord if isinstance(ord, str) else f'{ord:g}'}' for matrix norm.")
    summed, compared = dims if abs(ord) == 1 else dims[::-1]
    if summed == compared:
        raise ValueError(f"duplicate value in 'axis': {dims}")
    sums = reductions.sum(lax.abs(x), axis=summed, keepdims=keepdims)
    left = compared if keepdims or compared < summed else compared - 1
    if ord > 0:
        return reductions.max(sums, axis=left, keepdims=keepdims, initial=0)
    return reductions.min(sums, axis=left, keepdims=keepdims)


def _singular_norm(x: Any, ord: float | str, dims: tuple[int, ...], keepdims: bool) -> Any:
    """The largest singular value, the smallest, or the sum of all."""
    if dims[0] == dims[1]:
        raise ValueError(f"duplicate value in 'axis': {dims}")
    s = lazy.submodule("weft.numpy.linear_algebra.decompositions").svd(
        rearrange.moveaxis(x, dims, (-2, -1)), compute_uv=False
    )
    if ord == "nuc":
        found = reductions.sum(s, axis=-1)
    else:
        found = reductions.max(s, axis=-1, initial=0) if ord == 2 else reductions.min(s, axis=-1)
    return rearrange.expand_dims(found, dims) if keepdims else found


def _is_complex(x: Any) -> bool:
    return dtypes.issubdtype(promotion.dtype_of(x), np.complexfloating)


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Array:
    """The norm of the vectors along ``axis`` (an int, several, or None: all), which count as one vector each.

    ``ord`` is a number, ``inf`` or ``-inf``; the result is floating point and real. ValueError for another order.

    >>> vector_norm(weft.numpy.ones((2, 2))).item()
    2.0
    """
    promotion.check_arraylike("jnp.linalg.vector_norm", x)
    (x,) = promotion.promote_dtypes_inexact(x)
    dims = axes.canonical_axes(axis, len(promotion.shape_of(x)))
    return _vector_norm(x, ord if isinstance(ord, str) else float(ord), dims, keepdims)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """The norm of the matrices in the last two axes: "fro", "nuc", 1, -1, 2, -2, ``inf`` or ``-inf``; see ``norm``.

    >>> matrix_norm(weft.numpy.ones((3, 2, 2))).tolist()
    [2.0, 2.0, 2.0]
    """
    promotion.check_arraylike("jnp.linalg.matrix_norm", x)
    return norm(x, ord=ord, keepdims=keepdims, axis=(-2, -1))


# -- powers and products ----------------------------------------------------------------------------------------------


def matrix_power(a: Any, n: int) -> Array:
    """``a`` ([..., m, m]) multiplied ``n`` times by itself; the identity for ``n`` = 0.

    A negative ``n`` inverts first. TypeError for a matrix that is not square or an ``n`` that is no integer.

    >>> matrix_power(weft.numpy.array([[1, 1], [0, 1]]), 5).tolist()
    [[1, 5], [0, 1]]
    """
    promotion.check_arraylike("jnp.linalg.matrix_power", a)
    shape = promotion.shape_of(a)
    if len(shape) < 2:
        raise TypeError(f"{len(shape)}-dimensional array given. Array must be at least two-dimensional")
    if shape[-2] != shape[-1]:
        raise TypeError("Last 2 dimensions of the array must be square")
    try:
        exponent = operator.index(n)
    except TypeError as error:
        raise TypeError(f"exponent must be an integer, got {n}") from error
    return _matrix_power(a, exponent=exponent)


def _as_matrix_power(a: Any, *, exponent: int) -> Any:
    """By squaring (Knuth, The Art of Computer Programming, volume 2, 4.6.3)."""
    if exponent == 0:
        extents = promotion.shape_of(a)
        return promotion.broadcast_to(diagonals.eye(extents[-1], dtype=promotion.dtype_of(a)), extents)
    if exponent < 0:
        a, exponent = lazy.submodule("weft.numpy.linear_algebra.solving").inv(a), -exponent
    product = contractions.matmul
    if exponent == 3:
        return product(product(a, a), a)
    result, square = None, a
    while True:
        if exponent & 1:
            result = square if result is None else product(result, square)
        exponent >>= 1
        if exponent == 0:
            return result
        square = product(square, square)


_as_matrix_power.__name__ = "matrix_power"
_matrix_power = jit_module.jit(_as_matrix_power, static_argnames=("exponent",))


def multi_dot(arrays: Sequence[Any], *, precision: Any = None) -> Array:
    """The product of a chain of matrices, in the order that takes the fewest multiplications.

    The first and the last may be vectors. ValueError for extents that do not meet or fewer than two arrays.

    >>> multi_dot([weft.numpy.ones((2, 3)), weft.numpy.ones((3, 4)), weft.numpy.ones(4)]).tolist()
    [12.0, 12.0]
    """
    if len(arrays) < 2:
        raise ValueError(f"multi_dot: needs at least two arrays, got {len(arrays)}")
    promotion.check_arraylike("jnp.linalg.multi_dot", *arrays)
    shapes = [promotion.shape_of(array) for array in arrays]
    ends = (0, len(arrays) - 1)
    if any(len(shape) != 2 and (len(shape) != 1 or number not in ends) for number, shape in enumerate(shapes)):
        raise ValueError(
            "multi_dot: input arrays must all be two-dimensional, except for the first and last array which may be 1 "
            f"or 2 dimensional. Got array shapes {shapes}"
        )
    if any(left[-1] != right[0] for left, right in itertools.pairwise(shapes)):
        raise ValueError(
            "multi_dot: last dimension of each array must match first dimension of following array. Got array shapes "
            f"{shapes}"
        )
    operands: list[Any] = []
    for number, (array, shape) in enumerate(zip(arrays, shapes, strict=True)):
        operands += [array, [number, number + 1] if len(shape) == 2 else [max(number, 1)]]
    free = [axis for axis, shape in ((0, shapes[0]), (len(arrays), shapes[-1])) if len(shape) == 2]
    return einstein.einsum(*operands, free, optimize="optimal", precision=precision)


# -- the array API's forms of functions of weft.numpy -----------------------------------------------------------------


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Array:
    """The cross product of vectors of three components along ``axis``; ValueError for another extent.

    >>> cross(weft.numpy.array([1, 0, 0]), weft.numpy.array([0, 1, 0])).tolist()
    [0, 0, 1]
    """
    promotion.check_arraylike("jnp.linalg.cross", x1, x2)
    extents = [promotion.shape_of(x)[axis] for x in (x1, x2)]
    if extents != [3, 3]:
        raise ValueError(
            "Both input arrays must be (arrays of) 3-dimensional vectors, but they have "
            f"x1.shape[axis]={extents[0]} and x2.shape[axis]={extents[1]}"
        )
    return contractions.cross(x1, x2, axis=axis)


def diagonal(x: Any, /, *, offset: int = 0) -> Array:
    """The diagonals of the matrices in the last two axes, ``offset`` above the main one.

    >>> diagonal(weft.numpy.array([[1, 2], [3, 4]])).tolist()
    [1, 4]
    """
    promotion.check_arraylike("jnp.linalg.diagonal", x)
    return matrices.diagonal(x, offset=offset, axis1=-2, axis2=-1)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Array:
    """The sums of the diagonals of the matrices in the last two axes, ``offset`` above the main one.

    >>> trace(weft.numpy.array([[1, 2], [3, 4]])).item()
    5
    """
    promotion.check_arraylike("jnp.linalg.trace", x)
    return matrices.trace(x, offset=offset, axis1=-2, axis2=-1, dtype=dtype)


def outer(x1: Any, x2: Any, /) -> Array:
    """The products of all pairs of elements of two vectors; ValueError for other ranks.

    >>> outer(weft.numpy.array([1, 2]), weft.numpy.array([3, 4])).tolist()
    [[3, 4], [6, 8]]
    """
    promotion.check_arraylike("jnp.linalg.outer", x1, x2)
    ranks = [len(promotion.shape_of(x)) for x in (x1, x2)]
    if ranks != [1, 1]:
        raise ValueError(f"Input arrays must be one-dimensional, but they are x1.ndim={ranks[0]} x2.ndim={ranks[1]}")
    return arithmetic.multiply(rearrange.expand_dims(x1, 1), rearrange.expand_dims(x2, 0))


def matmul(x1: Any, x2: Any, /, *, precision: Any = None, preferred_element_type: Any = None) -> Array:
    """The matrix product; see ``weft.numpy.matmul``.

    >>> matmul(weft.numpy.ones((2, 3)), weft.numpy.ones(3)).tolist()
    [3.0, 3.0]
    """
    promotion.check_arraylike("jnp.linalg.matmul", x1, x2)
    return contractions.matmul(x1, x2, precision=precision, preferred_element_type=preferred_element_type)


def tensordot(
    x1: Any,
    x2: Any,
    /,
    *,
    axes: Any = 2,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Array:
    """The sum of products over several axes; see ``weft.numpy.tensordot``.

    >>> tensordot(weft.numpy.ones((2, 3)), weft.numpy.ones((2, 3))).item()
    6.0
    """
    promotion.check_arraylike("jnp.linalg.tensordot", x1, x2)
    return contractions.tensordot(
        x1, x2, axes=axes, precision=precision, preferred_element_type=preferred_element_type, out_sharding=out_sharding
    )


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1, precision: Any = None, preferred_element_type: Any = None) -> Array:
    """The sum of products along one axis, the first operand conjugated; see ``weft.numpy.vecdot``.

    >>> vecdot(weft.numpy.ones((2, 3)), weft.numpy.ones(3)).tolist()
    [3.0, 3.0]
    """
    promotion.check_arraylike("jnp.linalg.vecdot", x1, x2)
    return contractions.vecdot(x1, x2, axis=axis, precision=precision, preferred_element_type=preferred_element_type)


def matrix_transpose(x: Any, /) -> Array:
    """``x`` with its last two axes exchanged; ValueError below rank 2.

    >>> matrix_transpose(weft.numpy.ones((4, 2, 3))).shape
    (4, 3, 2)
    """
    promotion.check_arraylike("jnp.linalg.matrix_transpose", x)
    return rearrange.matrix_transpose(x)
