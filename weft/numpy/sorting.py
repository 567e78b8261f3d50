"""Sorting: sort, argsort, lexsort, partition, and selections by a mask: compress, extract.

NaN comes last, equal elements keep their order; descending is the reverse of ascending::

    argsort(f32[5,4])                     ->  sort[dimension=1 num_keys=1] of x and iota, its second result
    argsort(x, descending=True)           ->  x and iota reversed, sorted, reversed: equal elements keep their order
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import core, dtypes
from weft import operations as lax
from weft._base.array import Array
from weft.dispatch.calls import jit as jit_module
from weft.numpy import axes, promotion, rearrange, reductions
from weft.numpy.array_creation import creation
from weft.numpy.pointwise import selection
from weft.numpy.subscripts import indexing

jit = jit_module.jit


def _refuse(name: str, kind: Any, order: Any) -> None:
    if kind is not None:
        raise TypeError(
            f"'kind' argument to {name} is not supported. Use stable=True or stable=False to specify sort stability."
        )
    if order is not None:
        raise TypeError(f"'order' argument to {name} is not supported.")


def sort(
    a: Any, axis: int | None = -1, *, kind: None = None, order: None = None, stable: bool = True,
    descending: bool = False,
) -> Array:  # fmt: skip
    """``a`` sorted along ``axis`` (None: flattened); NaN last, first if ``descending``.

    >>> sort(weft.numpy.array([3, 1, 2])).tolist()
    [1, 2, 3]
    """
    promotion.check_arraylike("sort", a)
    _refuse("sort", kind, order)
    return _sort(a, axis=axis, stable=bool(stable), descending=bool(descending))


def _named(name: str, function: Any, static: tuple[str, ...]) -> Any:
    function.__name__ = function.__qualname__ = name
    return jit_module.jit(function, static_argnames=static)


def _keys(a: Any) -> tuple[Any, ...]:
    """The keys of a sort: complex numbers in which a part is NaN come last, as in NumPy."""
    return (lax.ne(a, a), a) if dtypes.issubdtype(promotion.dtype_of(a), np.complexfloating) else (a,)


def _sort_program(a: Any, *, axis: int | None, stable: bool, descending: bool) -> Any:
    if axis is None:
        a, axis = rearrange.ravel(a), 0
    dim = axes.canonical_axis(axis, len(promotion.shape_of(a)))
    keys = _keys(a)
    result = lax.sort(keys, dimension=dim, is_stable=stable, num_keys=len(keys))[-1]
    return lax.rev(result, (dim,)) if descending else result


def _argsort_program(a: Any, *, axis: int | None, stable: bool, descending: bool, dtype: Any) -> Any:
    if axis is None:
        a, axis = rearrange.ravel(a), 0
    shape = promotion.shape_of(a)
    dim = axes.canonical_axis(axis, len(shape))
    positions = lax.broadcasted_iota(dtype, shape, dim)
    if descending and stable:  # equal elements are in their old order again when all is reversed once more
        a, positions = lax.rev(a, (dim,)), lax.rev(positions, (dim,))
    keys = _keys(a)
    order = lax.sort((*keys, positions), dimension=dim, is_stable=stable, num_keys=len(keys))[-1]
    return lax.rev(order, (dim,)) if descending else order


_sort = _named("sort", _sort_program, ("axis", "stable", "descending"))
_argsort = _named("argsort", _argsort_program, ("axis", "stable", "descending", "dtype"))


def argsort(
    a: Any, axis: int | None = -1, *, kind: None = None, order: None = None, stable: bool = True,
    descending: bool = False, dtype: Any = None,
) -> Array:  # fmt: skip
    """The positions that sort ``a`` along ``axis`` (None: flattened); the first of equal elements comes first.

    >>> argsort(weft.numpy.array([3, 1, 2])).tolist()
    [1, 2, 0]
    """
    promotion.check_arraylike("argsort", a)
    _refuse("argsort", kind, order)
    if dtype is None:
        target = dtypes.canonicalize_dtype(np.int64)
    else:
        target = dtypes.check_user_dtype(dtype, "argsort")
    return _argsort(a, axis=axis, stable=bool(stable), descending=bool(descending), dtype=target)


@jit(static_argnames=("axis",))
def lexsort(keys: Sequence[Any] | Array, axis: int = -1) -> Array:
    """The positions that sort by the last key, then by the one before it, and so on.

    >>> lexsort((weft.numpy.array([1, 2, 0]), weft.numpy.array([5, 4, 5]))).tolist()
    [1, 2, 0]
    """
    parts = tuple(keys)
    if not parts:
        raise TypeError("need sequence of keys with len > 0 in lexsort")
    if len({promotion.shape_of(part) for part in parts}) > 1:
        raise ValueError("all keys need to be the same shape")
    shape = promotion.shape_of(parts[0])
    integer = dtypes.canonicalize_dtype(np.int64)
    if not shape:
        return promotion.as_array(np.asarray(0, integer))
    dim = axes.canonical_axis(axis, len(shape))
    positions = lax.broadcasted_iota(integer, shape, dim)
    by = [key for part in parts[::-1] for key in _keys(promotion.as_array(part))]
    return lax.sort((*by, positions), dimension=dim, num_keys=len(by))[-1]


@jit
def sort_complex(a: Any) -> Array:
    """``a`` sorted along its last axis, as complex numbers.

    >>> sort_complex(weft.numpy.array([2.0, 1.0])).tolist()
    [(1+0j), (2+0j)]
    """
    promotion.check_arraylike("sort_complex", a)
    result = _sort_program(a, axis=-1, stable=True, descending=False)
    dtype = promotion.dtype_of(a)
    if dtypes.issubdtype(dtype, np.complexfloating):
        return result
    wide = np.dtype(dtype).itemsize == 8
    return promotion.convert(result, dtypes.canonicalize_dtype(np.complex128 if wide else np.complex64))


def _check_position(kth: int, extent: int) -> None:
    if not -extent <= kth < extent:
        raise ValueError(f"kth={kth} is out of bounds for an axis of size {extent}")


@jit(static_argnames=("kth", "axis"))
def partition(a: Any, kth: int, axis: int = -1) -> Array:
    """``a`` with element ``kth`` along ``axis`` where sorting puts it: smaller ones before, larger ones and NaN after.

    Here all are sorted. ValueError for a ``kth`` beyond the axis, NotImplementedError for complex numbers.

    >>> partition(weft.numpy.array([5, 1, 4, 2]), 1)[:2].tolist()
    [1, 2]
    """
    promotion.check_arraylike("partition", a)
    if dtypes.issubdtype(promotion.dtype_of(a), np.complexfloating):
        raise NotImplementedError("jnp.partition for complex dtype is not implemented.")
    dim = axes.canonical_axis(axis, len(promotion.shape_of(a)))
    _check_position(kth, promotion.shape_of(a)[dim])
    return lax.sort(a, dimension=dim)


@jit(static_argnames=("kth", "axis"))
def argpartition(a: Any, kth: int, axis: int = -1) -> Array:
    """The positions that partition ``a`` as ``partition`` does; here those that sort it.

    >>> argpartition(weft.numpy.array([5, 1, 4, 2]), 1)[:2].tolist()
    [1, 3]
    """
    promotion.check_arraylike("argpartition", a)
    if dtypes.issubdtype(promotion.dtype_of(a), np.complexfloating):
        raise NotImplementedError("jnp.argpartition for complex dtype is not implemented.")
    dim = axes.canonical_axis(axis, len(promotion.shape_of(a)))
    _check_position(kth, promotion.shape_of(a)[dim])
    return _argsort_program(a, axis=dim, stable=True, descending=False, dtype=dtypes.canonicalize_dtype(np.int64))


def compress(
    condition: Any, a: Any, axis: int | None = None, *, size: int | None = None, fill_value: Any = 0,
    out: None = None,
) -> Array:  # fmt: skip
    """The elements of ``a`` along ``axis`` (None: flattened) where the vector ``condition`` is true.

    In a trace ``size``, the length of the result, must be given; what is missing is ``fill_value``.

    >>> compress(np.array([True, False, True]), weft.numpy.arange(3)).tolist()
    [0, 2]
    """
    promotion.check_arraylike("compress", condition, a, fill_value)
    reductions.refuse_out("compress", out)
    mask = promotion.as_array(condition)
    if len(promotion.shape_of(mask)) != 1:
        raise ValueError("condition must be a 1D array")
    if axis is None:
        a, axis = rearrange.ravel(a), 0
    rows = rearrange.moveaxis(promotion.as_array(a), axis, 0)
    whole = promotion.shape_of(rows)[0]
    if size is not None and not 0 < size <= whole:
        raise ValueError(
            f"size must be positive and not greater than the size of the array axis; got {size=} for "
            f"a.shape[axis]={whole}"
        )
    mask = promotion.convert(mask, np.dtype(np.bool_))
    kept = min(promotion.shape_of(mask)[0], promotion.shape_of(rows)[0])
    extra = indexing.index(mask, slice(kept, None))
    if not isinstance(extra, core.Tracer) and np.asarray(extra).any():
        raise ValueError("condition contains entries that are out of bounds")
    mask, rows = indexing.index(mask, slice(kept)), indexing.index(rows, slice(kept))
    if size is None:
        return rearrange.moveaxis(indexing.index(rows, mask), 0, axis)
    filled = selection.where(
        lax.expand_dims(mask, range(1, len(promotion.shape_of(rows)))),
        rows,
        creation.array(promotion.as_array(fill_value), dtype=promotion.dtype_of(rows)),
    )
    chosen = indexing.index(filled, argsort(mask, stable=True, descending=True))
    chosen = indexing.index(chosen, slice(size))
    if size > kept:
        tail = lax.full_like(chosen, 0, shape=(size - kept, *promotion.shape_of(rows)[1:]))
        tail = lax.add(tail, promotion.convert(fill_value, promotion.dtype_of(rows)))
        chosen = lax.concatenate([chosen, tail], 0)
    return rearrange.moveaxis(chosen, 0, axis)


def extract(condition: Any, arr: Any, *, size: int | None = None, fill_value: Any = 0) -> Array:
    """The elements of flattened ``arr`` where flattened ``condition`` is true; ``size`` as in ``compress``.

    >>> extract(np.array([True, False]), weft.numpy.array([4, 5])).tolist()
    [4]
    """
    return compress(rearrange.ravel(condition), rearrange.ravel(arr), size=size, fill_value=fill_value)
