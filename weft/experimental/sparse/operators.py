"""The methods and operators of BCOO arrays, over the functions of this package; they are installed on the class here.

m * 2, m * dense, m * m, m + m, m @ x, m[1:, ::2], m.sum(0)   sparse where the result is, NotImplementedError where
                                                                it would silently be dense (m + 1, m > 0)
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from weft import numpy as jnp
from weft import operations as lax
from weft.experimental.sparse import bcoo_layout, bcoo_products, bcoo_shapes, matrix
from weft.experimental.sparse.batched import BCOO
from weft.experimental.sparse.matrix import JAXSparse


def with_data(mat: BCOO, data: Any) -> BCOO:
    """The array with other values at the same positions."""
    return bcoo_layout.with_buffers(mat, data, mat.indices)


def unique(mat: BCOO) -> BCOO:
    """The array with indices that do not repeat, as functions that are not linear need them."""
    return mat if mat.unique_indices else bcoo_layout.bcoo_sum_duplicates(mat, nse=mat.nse)


def add(a: Any, b: Any) -> Any:
    """The sum of two BCOO arrays (their elements one after the other), or of one and a dense array (dense)."""
    if not isinstance(a, BCOO):
        return add(b, a)
    if not isinstance(b, JAXSparse):
        b = jnp.asarray(b)
        if np.broadcast_shapes(a.shape, b.shape) != b.shape:
            raise NotImplementedError(
                f"[add] {a!r} and a dense array of shape {b.shape}: the result would silently be dense. Use "
                "`todense()` if that is meant"
            )
        return a.todense() + b
    if not isinstance(b, BCOO) or a.shape != b.shape:
        raise NotImplementedError(f"[add] {a!r} and {b!r}: BCOO arrays of one shape can be added")
    if (a.n_batch, a.n_dense) != (b.n_batch, b.n_dense):
        n_batch, n_dense = min(a.n_batch, b.n_batch), min(a.n_dense, b.n_dense)
        a, b = (bcoo_layout.bcoo_update_layout(m, n_batch=n_batch, n_dense=n_dense) for m in (a, b))
    datas = jnp.promote_types(a.dtype, b.dtype)
    rank, batch = a.n_batch, a.batch_shape
    data = [jnp.broadcast_to(m.data.astype(datas), (*batch, *m.data.shape[rank:])) for m in (a, b)]
    indices = [jnp.broadcast_to(m.indices, (*batch, *m.indices.shape[rank:])) for m in (a, b)]
    return BCOO((jnp.concatenate(data, axis=rank), jnp.concatenate(indices, axis=rank)), shape=a.shape)


def subtract(a: Any, b: Any) -> Any:
    """The difference of two BCOO arrays, or of one and a dense array."""
    return add(a, with_data(b, -b.data) if isinstance(b, BCOO) else -jnp.asarray(b))


def multiply(a: Any, b: Any) -> Any:
    """The product element by element: sparse, at the positions of the sparse operand."""
    if not isinstance(a, BCOO):
        return multiply(b, a)
    if isinstance(b, BCOO):
        if a.shape != b.shape:
            shape = np.broadcast_shapes(a.shape, b.shape)
            a, b = (_broadcast(m, shape) for m in (a, b))
        return bcoo_products.bcoo_multiply_sparse(a, b)
    if isinstance(b, JAXSparse):
        raise NotImplementedError(f"[multiply] {a!r} and {b!r}: use BCOO for both")
    shape = np.broadcast_shapes(a.shape, jnp.shape(b))
    a = _broadcast(a, shape)
    factor = bcoo_products.values_at(a, b) if jnp.ndim(b) else b
    return with_data(a, a.data * factor)


def _broadcast(mat: BCOO, shape: tuple[int, ...]) -> BCOO:
    if shape == mat.shape:
        return mat
    dims = tuple(range(len(shape) - mat.ndim, len(shape)))
    return bcoo_shapes.bcoo_broadcast_in_dim(mat, shape=shape, broadcast_dimensions=dims)


def divide(a: Any, b: Any) -> BCOO:
    """A BCOO array divided by a dense one or a number."""
    if isinstance(b, JAXSparse) or not isinstance(a, BCOO):
        raise NotImplementedError("[divide] by a sparse array: zeros would be divided by. Use `todense()` if meant")
    if np.broadcast_shapes(a.shape, jnp.shape(b)) != a.shape:
        raise NotImplementedError(f"[divide] {a!r} by an array of shape {jnp.shape(b)}, which does not broadcast to it")
    return with_data(a, a.data / (bcoo_products.values_at(a, b, fill=1) if jnp.ndim(b) else b))


def power(a: BCOO, exponent: Any) -> BCOO:
    """A BCOO array to a positive power."""
    if isinstance(exponent, JAXSparse) or jnp.ndim(exponent):
        raise NotImplementedError("[power] of a sparse array: only to a power that is one number")
    if not exponent > 0:
        raise NotImplementedError(f"[power] of a sparse array to {exponent}: the result would be dense")
    a = unique(a)
    return with_data(a, a.data**exponent)


def matmul(a: Any, b: Any) -> Any:
    """``a @ b`` where at least one is a BCOO array."""
    for operand in (a, b):
        if isinstance(operand, JAXSparse) and not isinstance(operand, BCOO):
            raise NotImplementedError(f"[matmul] {a!r} @ {b!r}: use BCOO for both")
    a, b = (x if isinstance(x, BCOO) else jnp.asarray(x) for x in (a, b))
    if not a.ndim or not b.ndim:
        raise ValueError(f"[matmul] operands have at least one dimension, got shapes {a.shape} and {b.shape}")
    n_batch = min(a.ndim, b.ndim) - 2 if min(a.ndim, b.ndim) > 2 else 0
    if n_batch and a.shape[:-2] != b.shape[:-2]:
        raise NotImplementedError(f"[matmul] batches of {a.shape} and {b.shape} differ: broadcast the operands first")
    batch = tuple(range(n_batch))
    dims = (((a.ndim - 1,), (max(b.ndim - 2, 0),)), (batch, batch))
    out = bcoo_products.bcoo_dot_general(a, b, dimension_numbers=dims)
    if not n_batch and b.ndim > 2 and a.ndim == 2:  # free dimensions of a stand before the batch of b
        order = (*range(1, b.ndim - 1), 0, b.ndim - 1)
        out = out.transpose(order) if isinstance(out, BCOO) else lax.transpose(out, order)
    return out


# -- parts ------------------------------------------------------------------------------------------------------------


def getitem(mat: BCOO, item: Any) -> BCOO:
    """``mat[item]`` of ints, slices, None, ``...``, and arrays of integers in front."""
    items = list(item) if isinstance(item, tuple) else [item]
    if any(isinstance(x, JAXSparse) or (hasattr(x, "dtype") and x.dtype == np.bool_) for x in items):
        raise NotImplementedError("[getitem] a mask as an index of a sparse array")
    count = sum(x is not None and x is not Ellipsis for x in items)
    if count > mat.ndim or sum(x is Ellipsis for x in items) > 1:
        raise IndexError(f"[getitem] {len(items)} indices for {mat!r}")
    rest = [slice(None)] * (mat.ndim - count)
    where = next((k for k, x in enumerate(items) if x is Ellipsis), None)
    if where is not None:
        items[where : where + 1] = rest
    else:
        items += rest
    if any(_is_array(x) for x in items):
        return _gather(mat, items)
    return _cut(mat, items)


def _is_array(item: Any) -> bool:
    return item is not None and not isinstance(item, slice) and not bcoo_layout.is_integer(item)


def _cut(mat: BCOO, items: list[Any]) -> BCOO:
    """Static indices: one slice, the order reversed where a step is negative, dimensions dropped and added."""
    starts, limits, steps, turned, dropped = [], [], [], [], []
    old = [x for x in items if x is not None]
    for d, (x, extent) in enumerate(zip(old, mat.shape, strict=True)):
        if bcoo_layout.is_integer(x):
            if not -extent <= x < extent:
                raise IndexError(f"[getitem] index {x} is out of bounds for axis {d} of {mat!r}")
            start = operator.index(x) % extent
            x = slice(start, start + 1)
            dropped.append(d)
        positions = range(extent)[x]
        if positions.step < 0:
            positions = positions[::-1]
            turned.append(d)
        starts.append(positions.start if len(positions) else 0)
        limits.append(positions[-1] + 1 if len(positions) else 0)
        steps.append(positions.step)
    whole = (limits == list(mat.shape)) and not any(starts) and set(steps) <= {1}
    if not whole:
        mat = bcoo_shapes.bcoo_slice(mat, start_indices=starts, limit_indices=limits, strides=steps)
    mat = bcoo_shapes.bcoo_rev(mat, turned) if turned else mat
    mat = bcoo_shapes.bcoo_squeeze(mat, dimensions=dropped) if dropped else mat
    kept = [x for x in items if not bcoo_layout.is_integer(x)]
    if None not in kept:
        return mat
    dims = tuple(k for k, x in enumerate(kept) if x is not None)
    shape = [1] * len(kept)
    for d, axis in enumerate(dims):
        shape[axis] = mat.shape[d]
    return bcoo_shapes.bcoo_broadcast_in_dim(mat, shape=shape, broadcast_dimensions=dims)


def _gather(mat: BCOO, items: list[Any]) -> BCOO:
    """Arrays of integers in front of whole dimensions: one batch for each of their elements."""
    count = len([x for x in items if x is not None and not isinstance(x, slice)])
    front, rest = items[:count], items[count:]
    added = any(x is None for x in items)
    whole = all(isinstance(x, slice) and x == slice(None) for x in rest)
    if added or any(isinstance(x, slice) for x in front) or not whole:
        raise NotImplementedError(f"[getitem] {items} of a sparse array: arrays only in front, then whole dimensions")
    positions = jnp.broadcast_arrays(*[jnp.asarray(x) for x in front])
    if not np.issubdtype(positions[0].dtype, np.integer):
        raise TypeError(f"[getitem] indices must be integers, got {positions[0].dtype}")
    wrapped = [jnp.where(p < 0, p + extent, p) for p, extent in zip(positions, mat.shape, strict=False)]
    starts = jnp.stack(wrapped, axis=-1)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(range(starts.ndim - 1, starts.ndim - 1 + len(rest))),
        collapsed_slice_dims=tuple(range(count)),
        start_index_map=tuple(range(count)),
    )
    return bcoo_shapes.bcoo_gather(mat, starts, numbers, (1,) * count + mat.shape[count:])


def _iterate(mat: BCOO) -> Iterator[BCOO]:
    if not mat.ndim:
        raise TypeError("[BCOO] an array without dimensions has no elements to go over")
    return iter([getitem(mat, k) for k in range(mat.shape[0])])


def total(mat: BCOO, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """The sum over ``axis`` (an int or several; all by default): BCOO, or dense where no dimension is left."""
    axes = tuple(range(mat.ndim)) if axis is None else (axis if isinstance(axis, tuple | list) else (axis,))
    if any(not -mat.ndim <= a < mat.ndim for a in axes):
        raise ValueError(f"[sum] axis {axis} is out of bounds for {mat!r}")
    axes = tuple(a % mat.ndim for a in axes)
    mat = mat if dtype is None else astype(mat, dtype)
    out = bcoo_shapes.bcoo_reduce_sum(mat, axes=axes)
    if keepdims:
        kept = tuple(d for d in range(mat.ndim) if d not in axes)
        shape = tuple(1 if d in axes else extent for d, extent in enumerate(mat.shape))
        return bcoo_shapes.bcoo_broadcast_in_dim(out, shape=shape, broadcast_dimensions=kept)
    return out if out.ndim else out.todense()


def astype(mat: BCOO, dtype: Any) -> BCOO:
    """The array with its values in another dtype."""
    return with_data(mat, mat.data.astype(dtype))


def reshape(mat: BCOO, *args: Any, **kwargs: Any) -> BCOO:
    """The array in another shape; one extent may be -1."""
    sizes = tuple(args[0]) if len(args) == 1 and isinstance(args[0], Sequence) else args or tuple(kwargs["shape"])
    if -1 in sizes:
        known = math.prod(size for size in sizes if size != -1)
        sizes = tuple(mat.size // max(known, 1) if size == -1 else size for size in sizes)
    return bcoo_shapes.bcoo_reshape(mat, new_sizes=sizes)


def sum_duplicates(mat: BCOO, nse: int | None = None, remove_zeros: bool = True) -> BCOO:
    """The same array with sorted indices, each once, and without zeros; ``nse`` is needed under ``jit``."""
    return bcoo_layout.bcoo_sum_duplicates(bcoo_layout.remove_zeros(mat) if remove_zeros else mat, nse=nse)


def transpose(mat: BCOO, axes: Sequence[int] | None = None) -> BCOO:
    """The array with its dimensions in another order; by default batch, sparse and dense ones reversed as a whole."""
    order = tuple(reversed(range(mat.ndim))) if axes is None else tuple(a % mat.ndim for a in axes)
    return bcoo_shapes.bcoo_transpose(mat, permutation=order)


def from_scipy_sparse(
    cls: type[BCOO], mat: Any, *, index_dtype: Any = None, n_dense: int = 0, n_batch: int = 0
) -> BCOO:
    """The BCOO matrix of one of SciPy's, whatever its format."""
    matrix.refuse_dimensions_of_scipy("BCOO", n_dense, n_batch)
    ordered = getattr(mat, "format", "") == "csr" and bool(mat.has_sorted_indices)
    coo = mat.tocoo()
    indices = np.stack([coo.row, coo.col], axis=1).astype(index_dtype or np.int32)
    return cls((coo.data, indices), shape=coo.shape, indices_sorted=ordered)


def _dense_result(name: str) -> Callable[..., Any]:
    def compare(self: BCOO, other: Any) -> Any:
        raise NotImplementedError(f"[{name}] of {self!r}: the result would be dense. Use `todense()` if that is meant")

    return compare


def _install() -> None:
    methods: dict[str, Any] = {
        "__add__": add, "__radd__": lambda a, b: add(b, a), "__sub__": subtract,
        "__rsub__": lambda a, b: subtract(b, a),
        "__mul__": multiply, "__rmul__": multiply, "__truediv__": divide, "__rtruediv__": lambda a, b: divide(b, a),
        "__pow__": power, "__matmul__": matmul, "__rmatmul__": lambda a, b: matmul(b, a),
        "__neg__": lambda a: with_data(a, -a.data), "__pos__": lambda a: a,
        "__abs__": lambda a: with_data(unique(a), abs(unique(a).data)),
        "__getitem__": getitem, "__iter__": _iterate, "sum": total, "astype": astype, "reshape": reshape,
        "sum_duplicates": sum_duplicates, "transpose": transpose, "sort_indices": bcoo_layout.bcoo_sort_indices,
        "todense": bcoo_layout.bcoo_todense, "update_layout": bcoo_layout.bcoo_update_layout,
        "fromdense": staticmethod(bcoo_layout.bcoo_fromdense), "from_scipy_sparse": classmethod(from_scipy_sparse),
    }  # fmt: skip
    for name in ("__gt__", "__ge__", "__lt__", "__le__", "__eq__", "__ne__"):
        methods[name] = _dense_result(name)
    for name, method in methods.items():
        setattr(BCOO, name, method)
    BCOO.__hash__ = None  # type: ignore[assignment]  # as of arrays, whose == is by element


_install()
