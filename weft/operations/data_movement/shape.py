"""Views: operations that move elements and compute none.

broadcast_in_dim, reshape, transpose, squeeze, slice and rev read each output element from one operand element at an
affine index (kinds.View), so that they cost nothing inside a fused kernel. reshape keeps row-major order.

    transpose[permutation=(1, 0)] f32[2,3] -> f32[3,2]     operand index = (Affine(1), Affine(0))
    slice[0:4:2]                  f32[5]   -> f32[2]       operand index = (Affine(0, start=0, step=2),)
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import core, errors, runtime
from weft.core import kinds
from weft.core.index_maps import FIXED, Affine, IndexMap
from weft.core.primitive import ALL, taken_whole
from weft.operations import key_words, mapped
from weft.operations.later import ops
from weft.operations.pointwise.elementwise import hide_none
from weft.operations.static import canonical_axis, canonical_shape, integer, integers, placed
from weft.runtime import Array

__all__ = [
    "broadcast",
    "broadcast_in_dim",
    "broadcast_in_dim_p",
    "broadcast_like",
    "broadcast_shapes",
    "broadcast_to_rank",
    "collapse",
    "expand_dims",
    "index_in_dim",
    "reshape",
    "reshape_p",
    "rev",
    "rev_p",
    "slice",
    "slice_in_dim",
    "slice_p",
    "squeeze",
    "squeeze_p",
    "transpose",
    "transpose_p",
]

ArrayLike = Any
Shape = Sequence[int]
Params = dict[str, Any]


def _view(
    name: str, typing: Any, index_map: Any, reference: Any, transpose: Any, hide: tuple[str, ...] = ()
) -> core.Primitive:
    """Declare a view: linear, so that its tangent is the same view of the tangent."""
    primitive = core.Primitive(name, kind=kinds.View(index_map=index_map, reference=reference))
    primitive.def_abstract_eval(typing)
    primitive.linear, primitive.transpose = ALL, transpose
    if hide:
        primitive.print_params = hide_none(hide)
    return primitive


# ---- broadcast_in_dim


def _broadcast_typing(
    x: Any, *, shape: tuple[int, ...], broadcast_dimensions: tuple[int, ...], sharding: Any = None
) -> Any:
    name, dims = "broadcast_in_dim", broadcast_dimensions
    if len(dims) != x.ndim:
        raise TypeError(f"{name} broadcast_dimensions must have length equal to operand ndim; got {dims} of {x.ndim}.")
    if shape and min(shape) < 0:
        raise TypeError(f"[{name}] shape must have every element be nonnegative, got {shape}")
    if len(shape) < x.ndim:
        raise TypeError(f"{name} target broadcast shape must have equal or higher rank to the operand shape: {shape}")
    if dims and not 0 <= min(dims) <= max(dims) < len(shape):
        raise TypeError(f"{name} broadcast_dimensions must be a subset of output dimensions, got {dims} for {shape}.")
    if len({*dims}) != len(dims):
        raise TypeError(f"[{name}] broadcast_dimensions must not contain duplicates, got {dims}")
    for axis, (d, extent) in enumerate(zip(dims, x.shape, strict=True)):
        if extent != 1 and extent != shape[d]:
            raise TypeError(
                f"{name} operand dimension sizes must either be 1, or be equal to their corresponding dimensions in "
                f"the target broadcast shape; axis {axis} of {x.shape} is {extent}, axis {d} of {shape} is {shape[d]}."
            )
    return runtime.ShapedArray(shape, x.dtype, x.weak_type)


def _broadcast_map(x: Any, out: Any, params: Params) -> IndexMap:
    dims = params["broadcast_dimensions"]
    old, new = x.shape, out.shape
    return tuple([Affine(d) if old[axis] == new[d] else FIXED for axis, d in enumerate(dims)])


def _broadcast_reference(x: Any, *, shape: Any, broadcast_dimensions: Any, sharding: Any = None) -> Any:
    spread = [1] * len(shape)
    for axis, d in enumerate(broadcast_dimensions):
        spread[d] = x.shape[axis]
    return np.broadcast_to(x.reshape(spread), shape)


def _broadcast_params(params: Params) -> Params:
    dims = params["broadcast_dimensions"]
    shown = {"broadcast_dimensions": dims} if dims else {}
    return shown if params.get("sharding") is None else shown | {"sharding": params["sharding"]}


def _broadcast_transpose(ct: Any, x: Any, *, shape: Any, broadcast_dimensions: Any, sharding: Any = None) -> Any:
    """The sum over the broadcast dimensions; those of extent 1 are kept, in the order of the operand."""
    dims, extents = broadcast_dimensions, x.aval.shape
    kept = [axis for axis, d in enumerate(dims) if extents[axis] == shape[d]]
    order = sorted(kept, key=lambda axis: dims[axis])
    summed = tuple(d for d in builtins.range(len(shape)) if d not in [dims[axis] for axis in kept])
    out = ops.reduce_sum(ct, summed) if summed else ct
    if order != kept:
        out = transpose(out, [order.index(axis) for axis in kept])
    return (out if len(kept) == len(extents) else broadcast_in_dim(out, extents, kept),)


broadcast_in_dim_p = _view(
    "broadcast_in_dim", _broadcast_typing, _broadcast_map, _broadcast_reference, _broadcast_transpose
)
broadcast_in_dim_p.print_params = _broadcast_params
broadcast_in_dim_p.extents = lambda params, shapes: {"shape": shapes.new}
broadcast_in_dim_p.on_words = key_words.broadcast


def _broadcast_batch(size: int, values: list[Any], dims: list[mapped.Dim], **params: Any) -> Any:
    x = mapped.in_front(size, values[0], dims[0])
    params["shape"] = (size, *params["shape"])
    params["broadcast_dimensions"] = (0, *mapped.shifted(params["broadcast_dimensions"]))
    return broadcast_in_dim_p.bind(x, **params), 0


broadcast_in_dim_p.batch = _broadcast_batch


def broadcast_in_dim(
    operand: ArrayLike, shape: Shape, broadcast_dimensions: Sequence[int], *, out_sharding: Any = None
) -> Array:
    """The operand broadcast to ``shape``; operand axis i becomes output axis ``broadcast_dimensions[i]``.

    The dimensions may be in any order, which transposes the operand.

    >>> lax.broadcast_in_dim(np.float32([1, 2]), (2, 3), (0,)).tolist()
    [[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]
    """
    if out_sharding is not None:
        return placed(
            lambda: broadcast_in_dim(operand, shape, broadcast_dimensions),
            out_sharding,
            "broadcast_in_dim",
            "out_sharding",
        )
    shape = canonical_shape("broadcast_in_dim", shape)
    dims = integers(broadcast_dimensions, "broadcast_in_dim", "broadcast_dimensions")
    if _is_array(operand) and operand.shape == shape and dims == tuple(builtins.range(len(shape))):
        return operand
    return broadcast_in_dim_p.bind(operand, shape=shape, broadcast_dimensions=dims, sharding=None)


def _is_array(x: Any) -> bool:
    return isinstance(x, (runtime.Array, core.Tracer))


def shape_of(x: Any) -> tuple[int, ...]:
    return core.get_aval(x).shape


def broadcast(operand: ArrayLike, sizes: Sequence[int], *, out_sharding: Any = None) -> Array:
    """The operand broadcast along new leading dimensions.

    >>> lax.broadcast(np.float32([1, 2]), (2,)).tolist()
    [[1.0, 2.0], [1.0, 2.0]]
    """
    if out_sharding is not None:
        return placed(lambda: broadcast(operand, sizes), out_sharding, "broadcast", "out_sharding")
    sizes = canonical_shape("broadcast", sizes, scalar=False)
    if not sizes and _is_array(operand):
        return operand
    shape = shape_of(operand)
    dims = tuple(builtins.range(len(sizes), len(sizes) + len(shape)))
    return broadcast_in_dim(operand, (*sizes, *shape), dims)


def broadcast_to_rank(x: ArrayLike, rank: int) -> Array:
    """The operand with leading dimensions of extent 1 up to ``rank``.

    >>> lax.broadcast_to_rank(np.float32([1, 2]), 3).shape
    (1, 1, 2)
    """
    shape = shape_of(x)
    if rank <= len(shape):
        return x
    extra = rank - len(shape)
    return broadcast_in_dim(x, (1,) * extra + shape, tuple(builtins.range(extra, rank)))


def broadcast_like(arr: ArrayLike, like_arr: ArrayLike) -> Array:
    """The operand broadcast, by NumPy's rules, to the shape of another array.

    >>> lax.broadcast_like(np.float32([1, 2]), np.zeros((3, 2))).shape
    (3, 2)
    """
    shape, goal = shape_of(arr), shape_of(like_arr)
    if broadcast_shapes(shape, goal) != goal:
        raise ValueError(f"[broadcast_like] cannot broadcast shape {shape} to {goal}")
    return broadcast_in_dim(arr, goal, tuple(builtins.range(len(goal) - len(shape), len(goal))))


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape that NumPy broadcasting gives.

    >>> lax.broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    listed = [canonical_shape("broadcast_shapes", shape) for shape in shapes]
    rank = builtins.max((len(shape) for shape in listed), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in listed]
    out = []
    for extents in zip(*padded, strict=True):
        extent = next((n for n in extents if n != 1), 1)
        if any(n not in (1, extent) for n in extents):
            raise errors.ShapeError(f"[broadcast_shapes] Incompatible shapes for broadcasting: {listed}")
        out.append(extent)
    return tuple(out)


# ---- reshape


def _reshape_typing(
    x: Any, *, new_sizes: tuple[int, ...], dimensions: tuple[int, ...] | None, sharding: Any = None
) -> Any:
    if any(n < 0 for n in new_sizes):
        raise TypeError(f"[reshape] new_sizes must all be positive, got {new_sizes}; lax.reshape infers no extent")
    if math.prod(new_sizes) != x.size:
        raise TypeError(
            f"[reshape] cannot reshape {x.str_short()}, size {x.size}, into shape {new_sizes}, "
            f"size {math.prod(new_sizes)}"
        )
    return runtime.ShapedArray(new_sizes, x.dtype, x.weak_type)


def _transposing(*, new_sizes: tuple[int, ...], dimensions: tuple[int, ...] | None, **_: Any) -> Any:
    """A reshape with ``dimensions`` as a transposition and a reshape."""
    return None if dimensions is None else lambda x: reshape(transpose(x, dimensions), new_sizes)


def _reshape_reference(x: Any, *, new_sizes: tuple[int, ...], dimensions: tuple[int, ...] | None, **_: Any) -> Any:
    return np.reshape(x if dimensions is None else np.transpose(x, dimensions), new_sizes)


reshape_p = core.Primitive("reshape", kind=kinds.Reshape(reference=_reshape_reference, rewrite=_transposing))
reshape_p.def_abstract_eval(_reshape_typing)
reshape_p.extents = lambda params, shapes: {"new_sizes": shapes.new}
reshape_p.on_words = key_words.trailing(new_sizes=key_words.appended, dimensions=key_words.following)


def _reshape_transpose(ct: Any, x: Any, *, dimensions: tuple[int, ...] | None, **_: Any) -> Any:
    extents = x.aval.shape
    if dimensions is None:
        return (reshape(ct, extents),)
    return (transpose(reshape(ct, [extents[d] for d in dimensions]), np.argsort(dimensions).tolist()),)


reshape_p.linear, reshape_p.transpose = ALL, _reshape_transpose


def _reshape_batch(size: int, values: list[Any], dims: list[mapped.Dim], **params: Any) -> Any:
    x = mapped.in_front(size, values[0], dims[0])
    params["new_sizes"] = (size, *params["new_sizes"])
    if params["dimensions"] is not None:
        params["dimensions"] = (0, *mapped.shifted(params["dimensions"]))
    return reshape_p.bind(x, **params), 0


reshape_p.batch = _reshape_batch


def reshape(
    operand: ArrayLike, new_sizes: Shape, dimensions: Sequence[int] | None = None, *, out_sharding: Any = None
) -> Array:
    """The same elements in row-major order under another shape; ``dimensions`` transposes first.

    >>> lax.reshape(np.arange(6), (2, 3)).tolist()
    [[0, 1, 2], [3, 4, 5]]
    """
    if out_sharding is not None:
        return placed(lambda: reshape(operand, new_sizes, dimensions), out_sharding, "reshape", "out_sharding")
    new_sizes = canonical_shape("reshape", new_sizes)
    shape = shape_of(operand)
    if dimensions is not None:
        dims = integers(dimensions, "reshape", "dimensions")
        if sorted(dims) != list(builtins.range(len(shape))):
            raise TypeError(f"[reshape] dimensions {dims} must be a permutation of the axes of shape {shape}")
        if dims != tuple(builtins.range(len(shape))):
            return reshape_p.bind(operand, new_sizes=new_sizes, dimensions=dims, sharding=None)
    if new_sizes == shape and _is_array(operand):
        return operand
    return reshape_p.bind(operand, new_sizes=new_sizes, dimensions=None, sharding=None)


def collapse(operand: Any, start_dimension: int, stop_dimension: int | None = None) -> Array:
    """The dimensions start..stop merged into one.

    >>> lax.collapse(jnp.ones((2, 3, 4)), 1).shape
    (2, 12)
    """
    shape = shape_of(operand)
    start, stop, _ = builtins.slice(start_dimension, stop_dimension).indices(len(shape))
    if stop < start:
        raise ValueError(f"Invalid dimension range passed to collapse: {shape}[{start_dimension}:{stop_dimension}]")
    return reshape(operand, (*shape[:start], math.prod(shape[start:stop]), *shape[stop:]))


# ---- transpose, squeeze, expand_dims


def _transpose_typing(x: Any, *, permutation: tuple[int, ...]) -> Any:
    if sorted(permutation) != list(builtins.range(x.ndim)):
        told = f"got permutation {tuple(permutation)} for operand shape {x.shape}."
        raise TypeError(f"transpose permutation isn't a permutation of operand dimensions, {told}")
    return runtime.ShapedArray(tuple(x.shape[p] for p in permutation), x.dtype, x.weak_type)


def _transpose_map(x: Any, out: Any, params: Params) -> IndexMap:
    permutation = params["permutation"]
    return tuple(Affine(permutation.index(axis)) for axis in builtins.range(x.ndim))


transpose_p = _view(
    "transpose",
    _transpose_typing,
    _transpose_map,
    lambda x, *, permutation: np.transpose(x, permutation),
    lambda ct, x, *, permutation: (transpose(ct, np.argsort(permutation).tolist()),),
)
transpose_p.on_words = key_words.trailing(permutation=key_words.following)


def _transpose_batch(size: int, values: list[Any], dims: list[mapped.Dim], *, permutation: tuple[int, ...]) -> Any:
    (dim,) = dims
    assert dim is not None
    order = (dim, *[p + (p >= dim) for p in permutation])
    return transpose_p.bind(*values, permutation=order), 0


transpose_p.batch = _transpose_batch


def transpose(operand: ArrayLike, permutation: Sequence[int]) -> Array:
    """The axes reordered: output axis i is operand axis ``permutation[i]``.

    >>> lax.transpose(np.ones((2, 3, 4), np.float32), (2, 0, 1)).shape
    (4, 2, 3)
    """
    permutation = integers(permutation, "transpose", "permutation")
    if _is_array(operand) and permutation == tuple(builtins.range(operand.ndim)):
        return operand
    return transpose_p.bind(operand, permutation=permutation)


def _squeeze_typing(x: Any, *, dimensions: tuple[int, ...]) -> Any:
    shape = tuple(n for axis, n in enumerate(x.shape) if axis not in dimensions)
    return runtime.ShapedArray(shape, x.dtype, x.weak_type)


def _squeeze_map(x: Any, out: Any, params: Params) -> IndexMap:
    kept = iter(builtins.range(out.ndim))
    return tuple(FIXED if axis in params["dimensions"] else Affine(next(kept)) for axis in builtins.range(x.ndim))


squeeze_p = _view(
    "squeeze",
    _squeeze_typing,
    _squeeze_map,
    lambda x, *, dimensions: np.squeeze(x, dimensions),
    lambda ct, x, *, dimensions: (expand_dims(ct, dimensions),),
)
squeeze_p.on_words = key_words.trailing()


def _squeeze_batch(size: int, values: list[Any], dims: list[mapped.Dim], *, dimensions: tuple[int, ...]) -> Any:
    (dim,) = dims
    assert dim is not None
    moved = tuple([d + (d >= dim) for d in dimensions])
    return squeeze_p.bind(*values, dimensions=moved), dim - sum(d < dim for d in moved)


squeeze_p.batch = _squeeze_batch


def squeeze(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    """The given dimensions, each of extent 1, removed.

    >>> lax.squeeze(np.ones((1, 3, 1), np.float32), (0,)).shape
    (3, 1)
    """
    shape = shape_of(array)
    dims = tuple(canonical_axis(d, len(shape), "squeeze") for d in dimensions)
    if len(set(dims)) != len(dims):
        raise ValueError(f"[squeeze] dimensions are not unique: {dims}")
    if any(shape[d] != 1 for d in dims):
        raise ValueError(
            f"[squeeze] cannot select an axis to squeeze out which has size not equal to one, "
            f"got shape={shape} and dimensions={dims}"
        )
    dims = tuple(sorted(dims))
    if not dims and _is_array(array):
        return array
    return squeeze_p.bind(array, dimensions=dims)


def expand_dims(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    """New dimensions of extent 1 at the given positions of the result.

    >>> lax.expand_dims(np.float32([1, 2]), (0, 2)).shape
    (1, 2, 1)
    """
    shape = shape_of(array)
    if not dimensions and _is_array(array):
        return array
    rank = len(shape) + len(dimensions)
    new = {canonical_axis(d, rank, "expand_dims") for d in dimensions}
    if len(new) != len(dimensions):
        raise ValueError(f"[expand_dims] repeated axis in {tuple(dimensions)}")
    kept = tuple(d for d in builtins.range(rank) if d not in new)
    sizes = iter(shape)
    return broadcast_in_dim(array, tuple(1 if d in new else next(sizes) for d in builtins.range(rank)), kept)


# ---- slice and rev


def _slice_typing(x: Any, *, start_indices: Any, limit_indices: Any, strides: Any) -> Any:
    steps = (1,) * x.ndim if strides is None else strides
    words = (("start_indices", start_indices), ("limit_indices", limit_indices), ("strides", steps))
    length = "must have length equal to the number of dimensions of the operand"
    wrong = [f"{word} {length}" for word, entry in words if len(entry) != x.ndim]
    for low, high, step, extent in zip(start_indices, limit_indices, steps, x.shape, strict=False):
        wrong += ["start_indices must have every element be nonnegative"] * bool(low < 0)
        wrong += ["limit_indices must be less than or equal to operand shape"] * bool(high > extent)
        wrong += ["limit_indices must be greater than or equal to start_indices"] * bool(low > high)
        wrong += ["strides must be positive"] * bool(step < 1)
    if wrong:
        told = f"{start_indices=}, {limit_indices=}, {strides=} for operand shape {x.shape}"
        raise TypeError(f"slice {wrong[0]}, got {told}.")
    bounds = zip(start_indices, limit_indices, steps, strict=True)
    return runtime.ShapedArray(tuple(-(-(hi - lo) // s) for lo, hi, s in bounds), x.dtype, x.weak_type)


def _slice_map(x: Any, out: Any, params: Params) -> IndexMap:
    steps = (1,) * x.ndim if params["strides"] is None else params["strides"]
    return tuple(Affine(d, params["start_indices"][d], steps[d]) for d in builtins.range(x.ndim))


def _slice_reference(x: Any, *, start_indices: Any, limit_indices: Any, strides: Any) -> Any:
    steps = (1,) * x.ndim if strides is None else strides
    return x[tuple(builtins.slice(*b) for b in zip(start_indices, limit_indices, steps, strict=True))]


def _slice_transpose(ct: Any, x: Any, *, start_indices: Any, limit_indices: Any, strides: Any) -> Any:
    """The cotangent, padded with zeros around and between its elements."""
    steps = (1,) * x.aval.ndim if strides is None else strides
    config = []
    for start, step, n, extent in zip(start_indices, steps, ct.shape, x.aval.shape, strict=True):
        covered = start + (n - 1) * step + 1 if n else start
        config.append((start, extent - covered, step - 1))
    return (ops.pad(ct, np.zeros((), ct.dtype)[()], config),)


slice_p = _view("slice", _slice_typing, _slice_map, _slice_reference, _slice_transpose)
slice_p.extents = taken_whole("limit_indices")
slice_p.on_words = key_words.trailing(
    start_indices=key_words.zeros, limit_indices=key_words.appended, strides=key_words.ones
)


def _slice_batch(
    size: int, values: list[Any], dims: list[mapped.Dim], *, start_indices: Any, limit_indices: Any, strides: Any
) -> Any:
    (dim,) = dims
    assert dim is not None

    def insert(entries: Any, entry: int) -> Any:
        return None if entries is None else (*entries[:dim], entry, *entries[dim:])

    out = slice_p.bind(
        *values, start_indices=insert(start_indices, 0), limit_indices=insert(limit_indices, size),
        strides=insert(strides, 1),
    )  # fmt: skip
    return out, dim


slice_p.batch = _slice_batch


def slice(
    operand: ArrayLike, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None = None
) -> Array:
    """The elements start, start + stride, ... below limit, along every dimension; bounds are not clamped.

    >>> lax.slice(np.arange(10), (1,), (8,), (3,)).tolist()
    [1, 4, 7]
    """
    return slice_p.bind(
        operand,
        start_indices=canonical_shape("slice", start_indices),
        limit_indices=canonical_shape("slice", limit_indices),
        strides=None if strides is None else canonical_shape("slice", strides),
    )


def slice_in_dim(
    operand: ArrayLike, start_index: int | None, limit_index: int | None, stride: int = 1, axis: int = 0
) -> Array:
    """``slice`` along one dimension; None and negative bounds as in Python, but nothing is clamped.

    >>> lax.slice_in_dim(np.arange(6), 1, -1).tolist()
    [1, 2, 3, 4]
    """
    shape = shape_of(operand)
    axis = canonical_axis(axis, len(shape), "slice_in_dim")
    extent = shape[axis]
    start = 0 if start_index is None else integer(start_index, "slice_in_dim", "start_index")
    limit = extent if limit_index is None else integer(limit_index, "slice_in_dim", "limit_index")
    starts, limits, strides = [0] * len(shape), list(shape), [1] * len(shape)
    starts[axis] = start + extent if start < 0 else start
    limits[axis] = limit + extent if limit < 0 else limit
    strides[axis] = integer(stride, "slice_in_dim", "stride")
    return slice(operand, starts, limits, strides)


def index_in_dim(operand: ArrayLike, index: int, axis: int = 0, keepdims: bool = True) -> Array:
    """One position of one dimension, which is kept with extent 1 or dropped.

    >>> lax.index_in_dim(np.int32([[1, 2], [3, 4]]), 1, axis=1, keepdims=False).tolist()
    [2, 4]
    """
    shape = shape_of(operand)
    index, axis = integer(index, "index_in_dim", "index"), canonical_axis(axis, len(shape), "index_in_dim")
    extent = shape[axis]
    wrapped = index + extent if index < 0 else index
    if not 0 <= wrapped < extent:
        raise IndexError(f"[index_in_dim] index {index} is out of bounds for axis {axis} with size {extent}")
    out = slice_in_dim(operand, wrapped, wrapped + 1, 1, axis)
    return out if keepdims else squeeze(out, (axis,))


def _rev_typing(x: Any, *, dimensions: tuple[int, ...]) -> Any:
    if any(d < 0 for d in dimensions):
        raise TypeError(f"[rev] dimensions must have every element be nonnegative, got {dimensions}")
    if len(set(dimensions)) != len(dimensions):
        raise TypeError(f"[rev] dimensions must be unique, got {dimensions}")
    if any(d >= x.ndim for d in dimensions):
        raise TypeError(f"[rev] dimensions must all be less than the rank of {x.str_short()}, got {dimensions}")
    return runtime.ShapedArray(x.shape, x.dtype, x.weak_type)


def _rev_map(x: Any, out: Any, params: Params) -> IndexMap:
    reversed_dims = params["dimensions"]
    return tuple(Affine(d, n - 1, -1) if d in reversed_dims else Affine(d) for d, n in enumerate(x.shape))


rev_p = _view(
    "rev",
    _rev_typing,
    _rev_map,
    lambda x, *, dimensions: np.flip(x, dimensions),
    lambda ct, x, *, dimensions: (rev(ct, dimensions),),
)
rev_p.on_words = key_words.trailing()


def _rev_batch(size: int, values: list[Any], dims: list[mapped.Dim], *, dimensions: tuple[int, ...]) -> Any:
    (dim,) = dims
    assert dim is not None
    return rev_p.bind(*values, dimensions=tuple([d + (d >= dim) for d in dimensions])), dim


rev_p.batch = _rev_batch


def rev(operand: ArrayLike, dimensions: Sequence[int]) -> Array:
    """The order of elements reversed along the given dimensions.

    >>> lax.rev(np.int32([[1, 2], [3, 4]]), (1,)).tolist()
    [[2, 1], [4, 3]]
    """
    return rev_p.bind(operand, dimensions=integers(dimensions, "rev", "dimensions"))


# ---- paddings of windows
