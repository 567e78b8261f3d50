"""Copies with elements put in, left out or inserted: put, put_along_axis, place, fill_diagonal, delete, insert.

NumPy changes an array in place. Arrays here are immutable, so that ``inplace=False`` must be given, and the changed
copy is returned::

    put(f32[5,4], i32[3], v)          ->  x.at[unravel_index(i)].set(v repeated to i's size)
    delete(f32[5], 1)                 ->  concatenate of x[:1] and x[2:]
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from weft import core, dtypes, errors
from weft import operations as lax
from weft._base.array import Array
from weft.dispatch.calls import jit as jit_module
from weft.numpy import axes, joining, promotion, rearrange, reductions, searching, sorting
from weft.numpy.array_creation import creation, matrices
from weft.numpy.pointwise import arithmetic, selection
from weft.numpy.subscripts import index_updates, indexing

jit = jit_module.jit


def _refuse_inplace(name: str, inplace: bool) -> None:
    if inplace:
        raise ValueError(
            f"jax.numpy.{name} cannot modify arrays in-place, because JAX arrays are immutable. Pass inplace=False to "
            "instead return an updated array."
        )


def _repeated(values: Any, size: int) -> Any:
    """A vector repeated, or cut, to ``size`` elements."""
    own = promotion.shape_of(values)[0]
    if own < size:
        values = lax.tile(values, (-(-size // own),))
    return lax.slice(values, (0,), (size,)) if promotion.shape_of(values)[0] > size else values


def put(a: Any, ind: Any, v: Any, mode: str | None = None, *, inplace: bool = True) -> Array:
    """A copy of ``a`` with ``v``, repeated as often as needed, at the positions ``ind`` of the flattened array.

    ``mode``: None leaves out what is out of bounds, "clip" takes the nearest position, "wrap" counts around.

    >>> put(weft.numpy.zeros(4), np.array([1, 3]), 5.0, inplace=False).tolist()
    [0.0, 5.0, 0.0, 5.0]
    """
    _refuse_inplace("put", inplace)
    promotion.check_arraylike("put", a, ind, v)
    shape = promotion.shape_of(a)
    size = int(np.prod(shape))
    indices, values = rearrange.ravel(ind), rearrange.ravel(v)
    if not size or not promotion.shape_of(indices)[0] or not promotion.shape_of(values)[0]:
        return promotion.as_array(a)
    values = _repeated(values, promotion.shape_of(indices)[0])
    if mode is None:
        options = {"mode": "drop"}
    elif mode == "clip":
        indices, options = selection.clip(indices, 0, size - 1), {"mode": "promise_in_bounds"}
    elif mode == "wrap":
        indices, options = arithmetic.remainder(indices, size), {"mode": "promise_in_bounds"}
    else:
        if mode == "raise":
            raise NotImplementedError("The 'raise' mode to jnp.put is not supported: choose 'clip' or 'wrap'.")
        raise ValueError(f"mode should be one of 'wrap' or 'clip'; got mode={mode!r}")
    return index_updates.IndexUpdate(promotion.as_array(a), matrices.unravel_index(indices, shape)).set(
        values, **options
    )


@jit(static_argnames=("axis", "inplace", "mode"))
def put_along_axis(
    arr: Any, indices: Any, values: Any, axis: int | None, inplace: bool = True, *, mode: str | None = None
) -> Array:
    """A copy of ``arr`` with ``values`` at ``indices`` along ``axis``, for each position of the other axes.

    >>> x = weft.numpy.zeros((2, 2))
    >>> put_along_axis(x, weft.numpy.array([[1], [0]]), 5.0, axis=1, inplace=False).tolist()
    [[0.0, 5.0], [5.0, 0.0]]
    """
    _refuse_inplace("put_along_axis", inplace)
    promotion.check_arraylike("put_along_axis", arr, indices, values)
    shape = promotion.shape_of(arr)
    if axis is None:
        arr, axis = rearrange.ravel(arr), 0
    own, given = promotion.shape_of(arr), promotion.shape_of(indices)
    if len(given) != len(own):
        raise ValueError(f"[put_along_axis] arr has {len(own)} dimensions, but indices have shape {given}")
    dim = axes.canonical_axis(axis, len(own))
    if not promotion.shape_of(values):
        values = promotion.broadcast_to(values, given)
    grid = creation.indices(own, sparse=True)
    target = (*grid[:dim], promotion.as_array(indices), *grid[dim + 1 :])
    result = index_updates.IndexUpdate(promotion.as_array(arr), target).set(values, mode=mode)
    return lax.reshape(result, shape) if own != shape else result


def place(arr: Any, mask: Any, vals: Any, *, inplace: bool = True) -> Array:
    """A copy of ``arr`` with the elements where ``mask`` is true replaced by ``vals``, in order and repeated.

    >>> place(weft.numpy.zeros(3), np.array([True, False, True]), np.float32([5, 6]), inplace=False).tolist()
    [5.0, 0.0, 6.0]
    """
    promotion.check_arraylike("place", arr, mask, vals)
    _refuse_inplace("place", inplace)
    shape = promotion.shape_of(arr)
    size = int(np.prod(shape))
    values = rearrange.ravel(vals)
    if int(np.prod(promotion.shape_of(mask))) != size:
        raise ValueError("place: arr and mask must be the same size")
    if not promotion.shape_of(values)[0]:
        raise ValueError("Cannot place values from an empty array")
    if not size:
        return promotion.as_array(arr)
    indices = searching.nonzero(rearrange.ravel(mask), size=size, fill_value=size)[0]
    flat = rearrange.ravel(arr)
    result = index_updates.IndexUpdate(flat, indices).set(_repeated(values, size), mode="drop")
    return result if len(shape) == 1 else lax.reshape(result, shape)


def fill_diagonal(a: Any, val: Any, wrap: bool = False, *, inplace: bool = True) -> Array:
    """A copy of ``a`` with ``val``, repeated as often as needed, on its main diagonal.

    >>> fill_diagonal(weft.numpy.zeros((2, 2)), 3.0, inplace=False).tolist()
    [[3.0, 0.0], [0.0, 3.0]]
    """
    if inplace:
        raise NotImplementedError("fill_diagonal: arrays are immutable, must use inplace=False")
    if wrap:
        raise NotImplementedError("wrap=True is not implemented, must use wrap=False")
    promotion.check_arraylike("fill_diagonal", a, val)
    shape = promotion.shape_of(a)
    if len(shape) < 2:
        raise ValueError("array must be at least 2-d")
    if len(shape) > 2 and len(set(shape)) > 1:
        raise ValueError("All dimensions of input must be of equal length")
    count = min(shape)
    if len(promotion.shape_of(val)) > 0:
        val = _repeated(rearrange.ravel(val), count)
    along = creation.arange(count)
    return index_updates.IndexUpdate(promotion.as_array(a), (along,) * len(shape)).set(val)


def delete(arr: Any, obj: Any, axis: int | None = None, *, assume_unique_indices: bool = False) -> Array:
    """``arr`` (None: flattened) without the elements at ``obj`` along ``axis``: an integer, a slice, or an array.

    Integers must be known, unless ``assume_unique_indices`` promises that they differ; a mask must be.

    >>> delete(weft.numpy.arange(4), 1).tolist()
    [0, 2, 3]
    """
    promotion.check_arraylike("delete", arr)
    if axis is None:
        arr, axis = rearrange.ravel(arr), 0
    shape = promotion.shape_of(arr)
    dim = axes.canonical_axis(axis, len(shape))
    extent = shape[dim]
    if isinstance(obj, slice):
        obj = np.arange(extent)[obj]
        if obj.size == 0 or (np.diff(obj) == 1).all():
            start = int(obj[0]) if obj.size else 0
            return _joined_around(arr, start, start + obj.size, dim)
    else:
        promotion.check_arraylike("delete", arr, obj)
    if isinstance(obj, core.Tracer) and assume_unique_indices:
        return _delete_unique(arr, obj, dim)
    core.concrete_or_error(None, obj, "'obj' array argument of jnp.delete()")
    obj = np.asarray(obj)
    if obj.dtype.kind not in "iub":
        raise ValueError(f"np.delete(arr, obj): got obj.dtype={obj.dtype}; must be integer or bool.")
    if obj.ndim == 0 and obj.dtype != np.bool_:
        at = operator.index(obj.item())
        if not -extent <= at < extent:
            raise errors.AxisError(f"axis {at} is out of bounds for array of dimension {extent}")
        return _joined_around(arr, at % extent, at % extent + 1, dim)
    mask = np.ones(shape[dim], bool)
    mask[obj] = False
    return indexing.index(promotion.as_array(arr), (slice(None),) * dim + (mask,))


def _joined_around(arr: Any, start: int, stop: int, dim: int) -> Any:
    """``arr`` without ``start`` to ``stop`` along an axis."""
    shape = promotion.shape_of(arr)
    head = lax.slice(arr, (0,) * len(shape), (*shape[:dim], start, *shape[dim + 1 :]))
    tail = lax.slice(arr, (*(0,) * dim, stop, *(0,) * (len(shape) - dim - 1)), shape)
    return joining.concatenate((head, tail), axis=dim)


def _delete_unique(arr: Any, indices: Any, dim: int) -> Any:
    """``arr`` without the elements at distinct indices: each that stays is found by how many go before it."""
    extent = promotion.shape_of(arr)[dim]
    indices = rearrange.ravel(indices)
    count = promotion.shape_of(indices)[0]
    integer = promotion.dtype_of(indices)
    wrapped = selection.where(lax.lt(indices, np.asarray(0, integer)), arithmetic.add(indices, extent), indices)
    ordered = sorting.sort(selection.clip(wrapped, 0, extent))
    gone = arithmetic.subtract(ordered, creation.arange(count))
    stay = creation.arange(extent - count)
    before = lax.ge(*promotion.promote_dtypes(*_grid(stay, gone)))
    sources = arithmetic.add(stay, reductions.sum(before, axis=0))
    return indexing.index(promotion.as_array(arr), (slice(None),) * dim + (sources,))


def _grid(columns: Any, rows: Any) -> tuple[Any, Any]:
    """Two vectors as matrices of one shape, along their second and first axis."""
    shape = (promotion.shape_of(rows)[0], promotion.shape_of(columns)[0])
    return lax.broadcast_in_dim(columns, shape, (1,)), lax.broadcast_in_dim(rows, shape, (0,))


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Array:
    """``arr`` (None: flattened) with ``values`` before the positions ``obj``: an integer, a slice, or an array.

    Several values at one integer are inserted together; positions of an array count in ``arr`` as it was.

    >>> insert(weft.numpy.arange(3), 1, 9).tolist()
    [0, 9, 1, 2]
    """
    promotion.check_arraylike("insert", arr, 0 if isinstance(obj, slice) else obj, values)
    if axis is None:
        arr, axis = rearrange.ravel(arr), 0
    arr = creation.asarray(arr)
    shape = promotion.shape_of(arr)
    values = creation.array(values, copy=False, ndmin=len(shape), dtype=promotion.dtype_of(arr))
    dim, extent = axes.canonical_axis(axis, len(shape)), shape[axis]
    if isinstance(obj, slice):
        indices = creation.arange(*obj.indices(extent))
    else:
        indices = rearrange.ravel(obj)
        if not dtypes.issubdtype(promotion.dtype_of(indices), np.integer):
            raise ValueError(f"jnp.insert(): index array must be integer typed; got {obj}")
    if promotion.shape_of(indices) == (1,):
        if not isinstance(obj, slice) and not promotion.shape_of(obj):
            values = rearrange.moveaxis(values, 0, dim)
        indices = lax.full((promotion.shape_of(values)[dim],), indexing.index(indices, 0))
    count = promotion.shape_of(indices)[0]
    result = lax.full_like(arr, 0, shape=(*shape[:dim], extent + count, *shape[dim + 1 :]))
    negative = lax.lt(indices, np.asarray(0, promotion.dtype_of(indices)))
    indices = selection.clip(selection.where(negative, arithmetic.add(indices, extent), indices), 0, extent)
    order = sorting.argsort(indices)
    target = index_updates.IndexUpdate(indices, order).add(creation.arange(count, dtype=promotion.dtype_of(indices)))
    stays = index_updates.IndexUpdate(creation.ones(extent + count, bool), target).set(False)
    others = searching.nonzero(stays, size=extent)[0]
    front = (slice(None),) * dim
    result = index_updates.IndexUpdate(result, (*front, target)).set(values)
    return index_updates.IndexUpdate(result, (*front, others)).set(arr)
