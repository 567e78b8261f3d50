"""Putting arrays together and taking them apart: concatenate, stack, block, split.

Operands are promoted to one dtype first::

    concatenate([f32[3], i32[2]])  ->  convert_element_type, concatenate[dimension=0]
    split(f32[3,4], 2, axis=1)     ->  split[axis=1 sizes=(2, 2)]
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import core, dtypes, errors, runtime
from weft import operations as lax
from weft._base.array import Array
from weft.dispatch.calls import jit as jit_module
from weft.numpy import axes, promotion, rearrange, small_copies

inline = functools.partial(jit_module.jit, inline=True)
jit = jit_module.jit


def _is_array(x: Any) -> bool:
    return isinstance(x, runtime.Array | core.Tracer | np.ndarray)


def _asked(dtype: Any, name: str) -> Any:
    return None if dtype is None else dtypes.check_user_dtype(dtype, name)


def _converted(arrays: Sequence[Any], dtype: Any) -> list[Any]:
    if dtype is None:
        return [promotion.as_array(x) for x in promotion.promote_dtypes(*arrays)]
    return [promotion.convert(promotion.as_array(x), dtype) for x in arrays]


def concatenate(arrays: Any, axis: int | None = 0, dtype: Any = None) -> Array:
    """Arrays joined along an existing axis (None: all flattened first); all other extents must agree.

    ValueError without arrays or for rank 0, TypeError for unequal shapes.

    >>> concatenate([weft.numpy.ones(1), weft.numpy.zeros(1)]).tolist()
    [1.0, 0.0]
    """
    if dtype is None and type(axis) is int and axis >= 0 and type(arrays) in (list, tuple) and len(arrays) > 1:
        found = small_copies.joined(arrays, axis)
        if found is not None:
            return found
    if _is_array(arrays):
        return _concatenate_rows(arrays, axis, dtype)
    arrays = list(map(promotion.unwrapped, arrays))
    promotion.check_arraylike("concatenate", *arrays)
    if not arrays:
        raise ValueError("Need at least one array to concatenate.")
    if axis is None:
        return concatenate([rearrange.ravel(a) for a in arrays], 0, dtype)
    if promotion.shape_of(arrays[0]) == ():
        raise ValueError("Zero-dimensional arrays cannot be concatenated.")
    axis = axes.canonical_axis(axis, len(promotion.shape_of(arrays[0])))
    found = small_copies.joined(arrays, axis) if dtype is None and len(arrays) > 1 else None
    if found is not None:
        return found
    return _concatenate(*arrays, axis=axis, dtype=_asked(dtype, "concatenate"))


@functools.partial(inline, static_argnames=("axis", "dtype"))
def _concatenate(*arrays: Any, axis: int, dtype: Any) -> Any:
    operands = _converted(arrays, dtype)
    return operands[0] if len(operands) == 1 else lax.concatenate(operands, axis)


@functools.partial(inline, static_argnames=("axis", "dtype"))
def _stack(*arrays: Any, axis: int, dtype: Any) -> Any:
    return lax.stack(_converted(arrays, dtype), axis)


def _concatenate_rows(rows: Any, axis: int | None, dtype: Any) -> Any:
    """One array of arrays: its first axis is merged into ``axis``."""
    extents = promotion.shape_of(rows)
    if len(extents) < 2:
        raise ValueError("Zero-dimensional arrays cannot be concatenated.")
    if axis is None:
        return rearrange.ravel(rows)
    dim = axes.canonical_axis(axis, len(extents) - 1)
    moved = rearrange.moveaxis(rows, 0, dim)
    merged = (*extents[1 : dim + 1], extents[0] * extents[dim + 1], *extents[dim + 2 :])
    result = rearrange.reshape(moved, merged)
    return result if dtype is None else promotion.convert(result, dtypes.check_user_dtype(dtype, "concatenate"))


def concat(arrays: Any, /, *, axis: int | None = 0) -> Array:
    """Arrays joined along an existing axis, the same as ``concatenate``.

    >>> concat([weft.numpy.ones(1), weft.numpy.zeros(1)]).tolist()
    [1.0, 0.0]
    """
    return concatenate(arrays, axis)


def stack(arrays: Any, axis: int = 0, out: None = None, dtype: Any = None) -> Array:
    """Arrays of one shape joined along a new axis; ValueError if the shapes differ.

    >>> stack([weft.numpy.ones(1), weft.numpy.zeros(1)]).tolist()
    [[1.0], [0.0]]
    """
    if dtype is None is out and type(axis) is int and axis >= 0 and type(arrays) in (list, tuple):
        found = small_copies.joined(arrays, axis, stacked=True)
        if found is not None:
            return found
    if out is not None:
        raise NotImplementedError("The 'out' argument to jnp.stack is not supported.")
    if _is_array(arrays):
        axis, asked = axes.canonical_axis(axis, len(promotion.shape_of(arrays))), _asked(dtype, "stack")
        return rearrange.moveaxis(arrays if asked is None else promotion.convert(arrays, asked), 0, axis)
    arrays = list(map(promotion.unwrapped, arrays))
    if not arrays:
        raise ValueError("Need at least one array to stack.")
    promotion.check_arraylike("stack", *arrays)
    shapes = [promotion.shape_of(a) for a in arrays]
    if len(set(shapes)) > 1:
        raise ValueError(
            f"All input arrays must have the same shape. Got {', '.join(map(str, dict.fromkeys(shapes)))}."
        )
    axis = axes.canonical_axis(axis, len(shapes[0]) + 1)
    found = small_copies.joined(arrays, axis, stacked=True) if dtype is None else None
    if found is not None:
        return found
    return _stack(*arrays, axis=axis, dtype=_asked(dtype, "stack"))


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Array, ...]:
    """The slices of ``x`` along ``axis``, without that axis; ValueError for rank 0.

    >>> [part.item() for part in unstack(weft.numpy.arange(2))]
    [0, 1]
    """
    promotion.check_arraylike("unstack", x)
    if promotion.shape_of(x) == ():
        raise ValueError("Unstack requires arrays with rank > 0, however a scalar array was passed.")
    return tuple(lax.unstack(x, axes.canonical_axis(axis, len(promotion.shape_of(x)))))


def _listed(at_least: Any, tup: Any) -> list[Any]:
    return [at_least(part) for part in tup]


def vstack(tup: Any, dtype: Any = None) -> Array:
    """Arrays joined along the first axis, rank-1 arrays as rows.

    >>> vstack([weft.numpy.ones(2), weft.numpy.zeros(2)]).shape
    (2, 2)
    """
    return concatenate(_listed(rearrange.atleast_2d, tup), 0, dtype)


def hstack(tup: Any, dtype: Any = None) -> Array:
    """Arrays joined along the second axis, rank-1 arrays along the first.

    >>> hstack([weft.numpy.ones(2), weft.numpy.zeros(1)]).shape
    (3,)
    """
    parts = _listed(rearrange.atleast_1d, tup)
    if not parts:
        raise ValueError("Need at least one array to concatenate.")
    return concatenate(parts, 0 if len(promotion.shape_of(parts[0])) == 1 else 1, dtype)


def dstack(tup: Any, dtype: Any = None) -> Array:
    """Arrays joined along the third axis.

    >>> dstack([weft.numpy.ones(2), weft.numpy.zeros(2)]).shape
    (1, 2, 2)
    """
    return concatenate(_listed(rearrange.atleast_3d, tup), 2, dtype)


def column_stack(tup: Any) -> Array:
    """Arrays joined as columns; rank-1 arrays become columns.

    >>> column_stack([weft.numpy.ones(2), weft.numpy.zeros(2)]).shape
    (2, 2)
    """
    promotion.check_arraylike("column_stack", *tup)
    parts = [rearrange.atleast_2d(a).T if len(promotion.shape_of(a)) < 2 else promotion.as_array(a) for a in tup]
    return concatenate(parts, 1)


@jit(static_argnames=("axis",))
def append(arr: Any, values: Any, axis: int | None = None) -> Array:
    """``values`` joined to the end of ``arr`` (None: both flattened).

    >>> append(weft.numpy.ones(1), 2.0).tolist()
    [1.0, 2.0]
    """
    if axis is None:
        return concatenate([rearrange.ravel(arr), rearrange.ravel(values)], 0)
    return concatenate([arr, values], axis)


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """Consecutive parts of ``ary`` along ``axis``: equal sections, or cut at the given indices.

    ValueError if the extent cannot be divided equally.

    >>> [part.tolist() for part in split(weft.numpy.arange(4), 2)]
    [[0, 1], [2, 3]]
    """
    return _split("split", ary, indices_or_sections, axis)


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """Consecutive parts of ``ary`` along ``axis``, the first ones longer by one if need be.

    >>> [part.tolist() for part in array_split(weft.numpy.arange(3), 2)]
    [[0, 1], [2]]
    """
    return _split("array_split", ary, indices_or_sections, axis)


def _split(name: str, ary: Any, indices_or_sections: Any, axis: int) -> list[Any]:
    promotion.check_arraylike(name, ary)
    ary = promotion.as_array(ary)
    axis = axes.canonical_axis(operator.index(axis), len(promotion.shape_of(ary)))
    extent = promotion.shape_of(ary)[axis]
    if isinstance(indices_or_sections, core.Tracer):
        raise errors.ConcretizationTypeError(indices_or_sections, f"in jax.numpy.{name} argument 1")
    borders: list[int] = []
    if isinstance(indices_or_sections, tuple | list) or getattr(indices_or_sections, "ndim", 0) > 0:
        cuts = [min(max(_wrapped(cut, extent, name), 0), extent) for cut in indices_or_sections]
        borders = [0, *cuts, extent]
        sizes = [np.int64(max(stop - start, 0)) for start, stop in itertools.pairwise(borders)]
    else:
        if isinstance(indices_or_sections, float | np.floating):  # as NumPy takes 2.0 for 2, and 2.5 too
            indices_or_sections = int(indices_or_sections)
        sections = axes.concrete_int(indices_or_sections, f"in jax.numpy.{name} argument 1")
        if sections < 1:
            raise ValueError(f"number sections must be larger than 0, got {sections}")
        each, rest = divmod(extent, sections)
        if rest and name != "array_split":
            raise ValueError(f"array split does not result in an equal division: rest is {rest}")
        sizes = [np.int64(each + 1)] * rest + [np.int64(each)] * (sections - rest)
    if sum(map(int, sizes)) != extent:  # cuts out of order: overlapping parts
        return _overlapping(ary, borders, axis)
    return list(_parts(ary, sizes=tuple(sizes), axis=axis))


@functools.partial(inline, static_argnames=("sizes", "axis"))
def _parts(ary: Any, *, sizes: tuple[Any, ...], axis: int) -> Any:
    return lax.split_p.bind(ary, sizes=sizes, axis=axis)


def _wrapped(cut: Any, extent: int, name: str) -> int:
    index = axes.concrete_int(cut, f"in jax.numpy.{name} argument 1")
    return index + extent if index < 0 else index


def _overlapping(ary: Any, borders: list[int], axis: int) -> list[Any]:
    pairs = itertools.pairwise(borders)
    return [lax.slice_in_dim(ary, start, max(start, stop), axis=axis) for start, stop in pairs]


def vsplit(ary: Any, indices_or_sections: Any) -> list[Array]:
    """Parts of ``ary`` along the first axis, as ``split`` makes them.

    >>> len(vsplit(weft.numpy.ones((4, 2)), 2))
    2
    """
    return _split("vsplit", ary, indices_or_sections, 0)


def hsplit(ary: Any, indices_or_sections: Any) -> list[Array]:
    """Parts of ``ary`` along the second axis (the first of rank 1), as ``split`` makes them.

    >>> len(hsplit(weft.numpy.ones((4, 2)), 2))
    2
    """
    promotion.check_arraylike("hsplit", ary)
    return _split("hsplit", ary, indices_or_sections, 0 if len(promotion.shape_of(ary)) == 1 else 1)


def dsplit(ary: Any, indices_or_sections: Any) -> list[Array]:
    """Parts of ``ary`` along the third axis, as ``split`` makes them.

    >>> len(dsplit(weft.numpy.ones((1, 2, 4)), 2))
    2
    """
    return _split("dsplit", ary, indices_or_sections, 2)


@jit
def block(arrays: Any) -> Array:
    """An array assembled from nested lists of blocks: the innermost lists are joined along the last axis.

    >>> block([[weft.numpy.ones((1, 1)), weft.numpy.zeros((1, 2))]]).shape
    (1, 3)
    """
    result, _ = _block(arrays)
    return result


def _depth(arrays: Any) -> int:
    return 1 + max((_depth(part) for part in arrays), default=0) if isinstance(arrays, list) else 0


def _block(arrays: Any) -> tuple[Any, int]:
    if isinstance(arrays, tuple):
        raise ValueError(f"jax.numpy.block does not allow tuples, got {arrays}")
    if not isinstance(arrays, list):
        promotion.check_arraylike("block", arrays)
        return promotion.as_array(arrays), 1
    if not arrays:
        raise ValueError("jax.numpy.block does not allow empty list arguments")
    if len({_depth(part) for part in arrays}) > 1:
        raise ValueError("Mismatched list depths in jax.numpy.block")
    parts = [_block(part) for part in arrays]
    depth = parts[0][1]
    rank = max(max(len(promotion.shape_of(part)) for part, _ in parts), depth)
    leveled = [_with_rank(part, rank) for part, _ in parts]
    return concatenate(leveled, -depth), depth + 1


def _with_rank(a: Any, rank: int) -> Any:
    missing = rank - len(promotion.shape_of(a))
    return lax.expand_dims(a, tuple(range(missing))) if missing else a
