"""Arrays assembled from others or generated: pad, concatenate, stack, split, tile, iota, full.

pad and concatenate are kinds.Assemble (regions of the output); stack, unstack, split, tile and empty are rewritten
into views before fusion (kinds.Resolve).
"""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import core, dtypes, runtime
from weft._base import lazy
from weft.core import kinds
from weft.core.index_maps import Affine, Piece, Region, identity
from weft.core.primitive import ALL
from weft.core.sharding import varying
from weft.core.tangents import Zero, is_undefined
from weft.operations import key_words, mapped, references
from weft.operations.data_movement import shape
from weft.operations.data_movement.shape import broadcast_in_dim, expand_dims, shape_of
from weft.operations.later import ops
from weft.operations.pointwise import convert
from weft.operations.pointwise.arithmetic import sub
from weft.operations.pointwise.elementwise import NUMBER, category, check_same_dtype
from weft.operations.static import canonical_axis, canonical_shape, integer, placed
from weft.runtime import Array

__all__ = [
    "broadcasted_iota",
    "concatenate",
    "concatenate_p",
    "empty",
    "empty_p",
    "full",
    "full_like",
    "iota",
    "iota_p",
    "pad",
    "pad_p",
    "shape_as_value",
    "split",
    "split_p",
    "stack",
    "stack_p",
    "tile",
    "tile_p",
    "unstack",
    "unstack_p",
]

ArrayLike = Any
Params = dict[str, Any]


# ---- pad


def _pad_typing(x: Any, value: Any, *, padding_config: Any) -> Any:
    if x.dtype != value.dtype:
        raise TypeError(f"[pad] operand and padding_value must be same dtype: got {x.str_short()}, {value.str_short()}")
    if value.shape:
        raise ValueError(f"[pad] padding_value must be a scalar, got {value.str_short()}")
    if len(padding_config) != x.ndim:
        raise ValueError(
            f"[pad] length of padding_config must equal the number of axes of operand, got padding_config "
            f"{padding_config} for operand shape {x.shape}"
        )
    if any(inner < 0 for _, _, inner in padding_config):
        raise ValueError(
            f"[pad] interior padding in padding_config must be nonnegative, got padding_config {padding_config}"
        )
    sizes = tuple(_padded(n, config) for n, config in zip(x.shape, padding_config, strict=True))
    if any(n < 0 for n in sizes):
        raise ValueError(
            f"[pad] Dimension size after padding is not at least 0, got result shape {sizes}, for padding_config "
            f"{padding_config} and operand shape {x.shape}"
        )
    return runtime.ShapedArray(sizes, x.dtype, x.weak_type and value.weak_type)


def _padded(extent: int, config: tuple[int, int, int]) -> int:
    low, high, inner = config
    return low + high + (extent + (extent - 1) * inner if extent else 0)


def _pad_pieces(avals: Any, out: Any, params: Params) -> tuple[Piece, ...]:
    """The padding value everywhere, then the operand's elements that are not cut off by negative padding."""
    fill = Piece(1, Region.box((0,) * out.ndim, out.shape), (), True)
    start, step, extent, maps = [], [], [], []
    for axis, (low, _, inner) in enumerate(params["padding_config"]):
        stride = inner + 1
        first = 0 if low >= 0 else -(low // stride)  # the first operand index that lands at or after 0
        room = out.shape[axis] - (low + first * stride)
        count = builtins.max(0, builtins.min(avals[0].shape[axis] - first, -(-room // stride)))
        start.append(low + first * stride)
        step.append(stride)
        extent.append(count)
        maps.append(Affine(axis, first))
    body = Piece(0, Region(tuple(start), tuple(step), tuple(extent)), tuple(maps))
    return (fill,) if 0 in extent else (fill, body)


def _pad_reference(x: Any, value: Any, *, padding_config: Any) -> Any:
    spread = tuple(_padded(n, (0, 0, inner)) for n, (_, _, inner) in zip(x.shape, padding_config, strict=True))
    out = np.full(spread, value, x.dtype)
    out[tuple(builtins.slice(None, None, inner + 1) for _, _, inner in padding_config)] = x
    grow = [(builtins.max(low, 0), builtins.max(high, 0)) for low, high, _ in padding_config]
    cut = tuple(builtins.slice(builtins.max(-low, 0), None if high >= 0 else high) for low, high, _ in padding_config)
    padded = np.full(tuple(n + a + b for n, (a, b) in zip(spread, grow, strict=True)), value, x.dtype)
    padded[tuple(builtins.slice(a, a + n) for n, (a, _) in zip(spread, grow, strict=True))] = out
    return padded[cut]


pad_p = core.Primitive("pad", kind=kinds.Assemble(pieces=_pad_pieces, reference=_pad_reference))
pad_p.def_abstract_eval(_pad_typing)


def _pad_transpose(ct: Any, x: Any, value: Any, *, padding_config: Any) -> tuple[Any, Any]:
    """The operand's cotangent is cut out of ``ct``; that of the padding value is the sum of all other elements."""
    inverse = [(-low, -high, 0) for low, high, _ in padding_config]
    unpadded = pad(ct, np.zeros((), ct.dtype)[()], inverse)
    steps = [inner + 1 for _, _, inner in padding_config]
    back = shape.slice(unpadded, [0] * len(steps), unpadded.shape, steps)
    if not is_undefined(value):
        return back, None
    axes = builtins.range(len(steps))
    rest = sub(ops.reduce_sum(ct, axes), ops.reduce_sum(back, axes))
    return (back if is_undefined(x) else None), rest


pad_p.linear, pad_p.transpose = ALL, _pad_transpose


def _pad_batch(size: int, values: list[Any], dims: list[mapped.Dim], *, padding_config: Any) -> Any:
    x, value = values
    if dims[1] is None:
        dim = dims[0]
        assert dim is not None
        config = (*padding_config[:dim], (0, 0, 0), *padding_config[dim:])
        return pad_p.bind(x, value, padding_config=config), dim
    x = mapped.in_front(size, x, dims[0])
    config = ((0, 0, 0), *padding_config)
    zero = core.get_aval(x).dtype.type(0)
    padded = pad(x, zero, config)
    inside = pad(shape.broadcast(True, core.get_aval(x).shape), False, config)
    fill = shape.broadcast_in_dim(core.wide(value), core.get_aval(padded).shape, (0,))
    return ops.select_n(inside, fill, padded), 0


pad_p.batch = _pad_batch


def pad(operand: ArrayLike, padding_value: ArrayLike, padding_config: Sequence[tuple[int, int, int]]) -> Array:
    """Padding (low, high, interior) along each axis; negative low and high cut elements off.

    >>> lax.pad(np.float32([1, 2]), np.float32(0), ((1, 0, 2),)).tolist()
    [0.0, 1.0, 0.0, 0.0, 2.0]
    """
    config = tuple(
        (integer(low, "pad", "padding"), integer(high, "pad", "padding"), integer(inner, "pad", "padding"))
        for low, high, inner in padding_config
    )
    return pad_p.bind(operand, padding_value, padding_config=config)


# ---- concatenate


def _concatenate_typing(*avals: Any, dimension: int) -> Any:
    if not avals:
        raise TypeError("[concatenate] needs at least one operand")
    first = avals[0]

    def listed() -> str:
        return ", ".join(str(aval.shape) for aval in avals)

    if len({aval.ndim for aval in avals}) != 1:
        raise TypeError(f"Cannot concatenate arrays with different numbers of dimensions: got {listed()}.")
    if not 0 <= dimension < first.ndim:
        raise TypeError(f"concatenate dimension out of bounds: dimension {dimension} for shapes {listed()}.")
    rest = {aval.shape[:dimension] + aval.shape[dimension + 1 :] for aval in avals}
    if len(rest) != 1:
        raise TypeError(
            "Cannot concatenate arrays with shapes that differ in dimensions other than the one being concatenated: "
            f"concatenating along dimension {dimension} for shapes {', '.join(str(aval.shape) for aval in avals)}."
        )
    check_same_dtype("concatenate", avals)
    total = sum(aval.shape[dimension] for aval in avals)
    sizes = (*first.shape[:dimension], total, *first.shape[dimension + 1 :])
    return runtime.ShapedArray(sizes, first.dtype, all(aval.weak_type for aval in avals))


def _concatenate_pieces(avals: Any, out: Any, params: Params) -> tuple[Piece, ...]:
    dimension, offset, pieces = params["dimension"], 0, []
    for i, aval in enumerate(avals):
        start = tuple([offset if d == dimension else 0 for d in builtins.range(out.ndim)])
        if aval.size:
            pieces.append(Piece(i, Region(start, (1,) * out.ndim, aval.shape), identity(out.ndim)))
        offset += aval.shape[dimension]
    return tuple(pieces)


concatenate_p = core.Primitive(
    "concatenate",
    kind=kinds.Assemble(
        pieces=_concatenate_pieces, reference=lambda *xs, dimension: np.concatenate(xs, axis=dimension)
    ),
)
concatenate_p.def_abstract_eval(_concatenate_typing)
concatenate_p.on_words = key_words.trailing()


def _concatenate_transpose(ct: Any, *operands: Any, dimension: int) -> list[Any]:
    avals = [x.aval if is_undefined(x) else core.get_aval(x) for x in operands]
    parts = split(ct, [aval.shape[dimension] for aval in avals], dimension)
    return [part if is_undefined(x) else None for x, part in zip(operands, parts, strict=True)]


concatenate_p.linear, concatenate_p.transpose = ALL, _concatenate_transpose


def _concatenate_batch(size: int, values: list[Any], dims: list[mapped.Dim], *, dimension: int) -> Any:
    return concatenate_p.bind(*mapped.all_in_front(size, values, dims), dimension=dimension + 1), 0


concatenate_p.batch = _concatenate_batch


def concatenate(operands: Any, dimension: int) -> Array:
    """Arrays of one dtype joined along one dimension.

    >>> lax.concatenate([np.float32([1, 2]), np.float32([3])], 0).tolist()
    [1.0, 2.0, 3.0]
    """
    operands = list(operands)
    if not operands:
        raise ValueError("[concatenate] requires a non-empty sequence of arrays")
    if len(operands) == 1 and isinstance(operands[0], (runtime.Array, core.Tracer)):
        return operands[0]
    return concatenate_p.bind(*operands, dimension=integer(dimension, "concatenate", "dimension"))


# ---- stack, unstack, split, tile


def _resolved(name: str, typing: Any, expand: Any, transpose: Any, multiple_results: bool = False) -> core.Primitive:
    """Declare a linear operation that is rewritten into others."""
    primitive = core.Primitive(name, kind=kinds.Resolve(expand=expand), multiple_results=multiple_results)
    primitive.def_abstract_eval(typing)
    primitive.linear, primitive.transpose = ALL, transpose
    return primitive


def _real(ct: Any) -> Any:
    """A cotangent as an array."""
    return full(ct.aval.shape, 0, ct.aval.dtype) if type(ct) is Zero else ct


def _stack_typing(*avals: Any, axis: int) -> Any:
    check_same_dtype("stack", avals)
    listed = ", ".join(aval.str_short() for aval in avals)
    if len({aval.ndim for aval in avals}) != 1:
        raise ValueError(f"[stack] cannot stack arrays with different numbers of dimensions: {listed}")
    if len({aval.shape for aval in avals}) != 1:
        raise ValueError(f"[stack] cannot stack arrays of different shapes: {listed}")
    sizes = (*avals[0].shape[:axis], len(avals), *avals[0].shape[axis:])
    return runtime.ShapedArray(sizes, avals[0].dtype, all(aval.weak_type for aval in avals))


stack_p = _resolved(
    "stack",
    _stack_typing,
    lambda *xs, axis: concatenate([shape.expand_dims(x, (axis,)) for x in xs], axis),
    lambda ct, *xs, axis: unstack(ct, axis),
)


def _stack_batch(size: int, values: list[Any], dims: list[mapped.Dim], *, axis: int) -> Any:
    if len(set(dims)) == 1 and dims[0] is not None and axis <= dims[0]:
        return stack_p.bind(*values, axis=axis), dims[0] + 1
    return stack_p.bind(*mapped.all_in_front(size, values, dims), axis=axis + 1), 0


stack_p.batch = _stack_batch


def stack(operands: Any, axis: int = 0) -> Array:
    """Arrays of one shape and dtype joined along a new axis.

    >>> lax.stack([np.float32([1, 2]), np.float32([3, 4])]).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    operands = list(operands)
    if not operands:
        raise ValueError("[stack] requires a non-empty sequence of arrays")
    return stack_p.bind(*operands, axis=canonical_axis(axis, len(shape_of(operands[0])) + 1, "stack"))


def _unstack_typing(x: Any, *, axis: int) -> Any:
    part = runtime.ShapedArray(x.shape[:axis] + x.shape[axis + 1 :], x.dtype, x.weak_type)
    return [part] * x.shape[axis]


unstack_p = _resolved(
    "unstack",
    _unstack_typing,
    lambda x, *, axis: [shape.index_in_dim(x, i, axis, keepdims=False) for i in builtins.range(x.shape[axis])],
    lambda cts, x, *, axis: (stack([_real(ct) for ct in cts], axis),),
    multiple_results=True,
)


def _unstack_batch(size: int, values: list[Any], dims: list[mapped.Dim], *, axis: int) -> Any:
    outs = unstack_p.bind(mapped.in_front(size, values[0], dims[0]), axis=axis + 1)
    return outs, [0] * len(outs)


unstack_p.batch = _unstack_batch


def unstack(x: ArrayLike, axis: int = 0) -> tuple[Array, ...]:
    """The positions of one axis as separate arrays.

    >>> [part.tolist() for part in lax.unstack(np.int32([[1, 2], [3, 4]]))]
    [[1, 2], [3, 4]]
    """
    return tuple(unstack_p.bind(x, axis=canonical_axis(axis, len(shape_of(x)), "unstack")))


def _split_typing(x: Any, *, sizes: tuple[int, ...], axis: int) -> Any:
    if any(n < 0 for n in sizes):
        raise ValueError(f"Sizes passed to split must be nonnegative, got {list(sizes)}")
    if sum(sizes) != x.shape[axis]:
        raise ValueError(f"[split] sizes {sizes} add up to {sum(sizes)}, but axis {axis} of {x.str_short()} does not")
    return [runtime.ShapedArray((*x.shape[:axis], n, *x.shape[axis + 1 :]), x.dtype, x.weak_type) for n in sizes]


def _split_expand(x: Any, *, sizes: tuple[int, ...], axis: int) -> list[Any]:
    edges = [sum(sizes[:i]) for i in builtins.range(len(sizes) + 1)]
    return [shape.slice_in_dim(x, lo, hi, 1, axis) for lo, hi in itertools.pairwise(edges)]


split_p = _resolved(
    "split",
    _split_typing,
    _split_expand,
    lambda cts, x, *, sizes, axis: (concatenate([_real(ct) for ct in cts], axis),),
    multiple_results=True,
)


def _split_batch(size: int, values: list[Any], dims: list[mapped.Dim], *, sizes: Any, axis: int) -> Any:
    (dim,) = dims
    assert dim is not None
    outs = split_p.bind(*values, sizes=sizes, axis=axis + (axis >= dim))
    return outs, [dim] * len(outs)


split_p.batch = _split_batch


def split(operand: ArrayLike, sizes: Sequence[int], axis: int = 0) -> Sequence[Array]:
    """Consecutive parts of the given sizes along one axis.

    >>> [part.tolist() for part in lax.split(np.int32([1, 2, 3]), (1, 2))]
    [[1], [2, 3]]
    """
    axis = canonical_axis(axis, len(shape_of(operand)), "split")
    return split_p.bind(operand, sizes=canonical_shape("split", sizes), axis=axis)


def _tile_typing(x: Any, *, reps: tuple[int, ...]) -> Any:
    if len(reps) != x.ndim:
        raise TypeError(
            f"[tile] reps length must be equal to the ndim of x, got len(reps)={len(reps)} and x.ndim={x.ndim}: "
            f"reps {reps} for {x.str_short()}"
        )
    if any(n < 0 for n in reps):
        raise TypeError(f"[tile] reps must be nonnegative, got {reps}")
    return runtime.ShapedArray(tuple(n * r for n, r in zip(x.shape, reps, strict=True)), x.dtype, x.weak_type)


def _tile_expand(x: Any, *, reps: tuple[int, ...]) -> Any:
    spread = tuple(n for pair in zip(reps, x.shape, strict=True) for n in pair)
    out = broadcast_in_dim(x, spread, tuple(builtins.range(1, 2 * len(reps), 2)))
    return shape.reshape(out, tuple(n * r for n, r in zip(x.shape, reps, strict=True)))


def _tile_transpose(ct: Any, x: Any, *, reps: tuple[int, ...]) -> Any:
    spread = [n for pair in zip(reps, x.aval.shape, strict=True) for n in pair]
    return (ops.reduce_sum(shape.reshape(ct, spread), builtins.range(0, len(spread), 2)),)


tile_p = _resolved("tile", _tile_typing, _tile_expand, _tile_transpose)


def _tile_batch(size: int, values: list[Any], dims: list[mapped.Dim], *, reps: tuple[int, ...]) -> Any:
    return tile_p.bind(mapped.in_front(size, values[0], dims[0]), reps=(1, *reps)), 0


tile_p.batch = _tile_batch
tile_p.on_words = key_words.trailing(reps=key_words.ones)


def tile(operand: ArrayLike, reps: Sequence[int]) -> Array:
    """The operand repeated ``reps[i]`` times along axis i.

    >>> lax.tile(np.int32([[1, 2]]), (2, 2)).tolist()
    [[1, 2, 1, 2], [1, 2, 1, 2]]
    """
    return tile_p.bind(operand, reps=canonical_shape("tile", reps))


# ---- generated


def _iota_typing(*, dtype: Any, shape: tuple[int, ...], dimension: int, sharding: Any = None) -> Any:
    if category(dtype) not in NUMBER:
        raise TypeError(
            f"iota does not accept dtype {dtype}. Accepted dtypes are subtypes of integer, floating, complexfloating."
        )
    if any(n < 0 for n in shape):
        raise TypeError(f"[iota] shape must have every element be nonnegative, got {shape}")
    if not 0 <= dimension < len(shape):
        raise ValueError(f"[iota] dimension must be between 0 and len(shape), got dimension={dimension}, shape={shape}")
    return runtime.ShapedArray(shape, dtype, False)


def _iota_reference(*, dtype: Any, shape: tuple[int, ...], dimension: int, sharding: Any = None) -> Any:
    column = np.arange(shape[dimension]).astype(dtype)
    return np.broadcast_to(column.reshape([-1] + [1] * (len(shape) - dimension - 1)), shape)


iota_p = core.Primitive(
    "iota", kind=kinds.Generate(dimension=lambda params: params["dimension"], reference=_iota_reference)
)
iota_p.def_abstract_eval(_iota_typing)
iota_p.extents = lambda params, shapes: {"shape": shapes.new}
iota_p.partials, iota_p.transpose = (), None


def iota(dtype: Any, size: int) -> Array:
    """0, 1, ..., size - 1.

    >>> lax.iota(np.float32, 3).tolist()
    [0.0, 1.0, 2.0]
    """
    return broadcasted_iota(dtype, (size,), 0)


def broadcasted_iota(dtype: Any, shape: Sequence[int], dimension: int, *, out_sharding: Any = None) -> Array:
    """An array whose elements are their own index along ``dimension``.

    >>> lax.broadcasted_iota(np.int32, (2, 3), 1).tolist()
    [[0, 1, 2], [0, 1, 2]]
    """
    if out_sharding is not None:
        return placed(
            lambda: broadcasted_iota(dtype, shape, dimension), out_sharding, "broadcasted_iota", "out_sharding"
        )
    return iota_p.bind(
        dtype=dtypes.check_user_dtype(dtype, "broadcasted_iota"),
        shape=canonical_shape("iota", shape),
        dimension=integer(dimension, "iota", "dimension"),
        sharding=None,
    )


def _filled(name: str, sizes: tuple[int, ...], value: ArrayLike, dtype: Any, weak_type: bool) -> Array:
    """``sizes`` filled with the value as ``dtype``; numbers are converted here, without a kernel.

    Typed keys of a number are those whose words all are that number, as in JAX.
    """
    if dtypes.is_extended(dtype) and core.get_aval(value).dtype != dtype:
        words = full((*sizes, *dtype.physical_shape), value, dtype.physical_dtype)
        return dtype.of_words(words)
    if dtypes.narrows(dtype) and isinstance(value, int | float | builtins.complex | np.generic):
        return broadcast_in_dim(convert.of_64_bits(value, dtype), sizes, ())
    if not sizes and core.is_tracing() and not core.get_aval(value).shape:
        return convert.convert(value, dtype, weak_type)  # a literal, as in JAX
    if isinstance(value, int) and not weak_type and isinstance(dtype, np.dtype):
        return broadcast_in_dim(np.asarray(value).astype(dtype)[()], sizes, ())
    aval = core.get_aval(value)
    if aval.shape:
        raise TypeError(f"[{name}] must be called with scalar fill_value, got fill_value.shape {aval.shape}")
    if aval.dtype == dtype and aval.weak_type == weak_type:
        return broadcast_in_dim(value, sizes, ())
    if (
        isinstance(value, (float, np.generic))
        and not weak_type
        and isinstance(dtype, np.dtype)
        and aval.dtype.kind != "c"
    ):
        return broadcast_in_dim(references.convert(np.asarray(value, aval.dtype), dtype)[()], sizes, ())
    return broadcast_in_dim(convert.convert(value, dtype, weak_type), sizes, ())


def full(shape: Any, fill_value: ArrayLike, dtype: Any = None, *, sharding: Any = None) -> Array:
    """An array of one value; the value's own dtype (weakly typed if it is) unless one is given.

    >>> lax.full((2,), 7, np.float32).tolist()
    [7.0, 7.0]
    """
    if sharding is not None:
        return placed(lambda: full(shape, fill_value, dtype), sharding, "full", "sharding")
    sizes = canonical_shape("full", shape)
    if dtype is not None:
        return _filled("full", sizes, fill_value, dtypes.check_user_dtype(dtype, "full"), False)
    aval = core.get_aval(fill_value)
    return _filled("full", sizes, fill_value, aval.dtype, aval.weak_type)


def full_like(x: Any, fill_value: ArrayLike, dtype: Any = None, shape: Any = None, sharding: Any = None) -> Array:
    """``full`` with the shape and dtype of ``x`` where they are not given.

    >>> lax.full_like(np.float32([1, 2]), 7).tolist()
    [7.0, 7.0]
    """
    if sharding is not None:
        return placed(lambda: full_like(x, fill_value, dtype, shape), sharding, "full_like", "sharding")
    like = x if hasattr(x, "shape") and hasattr(x, "dtype") else core.get_aval(x)
    sizes = like.shape if shape is None else canonical_shape("full_like", shape)
    follows = type(x) is runtime.Array and x.place & 1 and not x.weak_type and not core.is_tracing()
    if follows and (sizes == x.shape or x.sharding.is_fully_replicated):
        made = full(sizes, fill_value, like.dtype if dtype is None else dtype)
        return lazy.out_shardings.as_array_lies(made, x)
    weak_type = dtype is None and bool(getattr(like, "weak_type", False))
    if isinstance(dtype, core.Tracer):  # stands for its type, as in JAX
        dtype = dtype.dtype
    wanted = like.dtype if dtype is None else dtypes.check_user_dtype(dtype, "full_like")
    return varying.like(_filled("full_like", sizes, fill_value, wanted, weak_type), x)


def _empty_typing(*, shape: tuple[int, ...], dtype: Any, out_sharding: Any = None) -> Any:
    return runtime.ShapedArray(shape, np.dtype(dtype), False)


empty_p = _resolved(
    "empty", _empty_typing, lambda *, shape, dtype, out_sharding=None: full(shape, 0, np.dtype(dtype)), None
)


def empty(shape: Any, dtype: Any, *, out_sharding: Any = None) -> Array:
    """An array of unspecified values (zeros).

    >>> lax.empty((2, 3), np.float32).shape
    (2, 3)
    """
    if out_sharding is not None:
        return placed(lambda: empty(shape, dtype), out_sharding, "empty", "out_sharding")
    return empty_p.bind(shape=canonical_shape("empty", shape), dtype=dtype, out_sharding=None)


def shape_as_value(shape: Any) -> Array:
    """A shape as a one-dimensional integer array; members may be traced.

    >>> lax.shape_as_value((2, 3)).tolist()
    [2, 3]
    """
    members = list(shape) if isinstance(shape, tuple | list) else ()
    if any(isinstance(n, core.Tracer) for n in members) or (isinstance(shape, core.Tracer) and shape.ndim):
        parts = [expand_dims(convert.convert(n, np.int32), (0,)) for n in shape]
        return concatenate(parts, dimension=0) if parts else full((0,), 0, np.int32)
    sizes = np.asarray(canonical_shape("shape_as_value", shape, scalar=False), np.int32)
    return runtime.array_from_numpy(sizes, runtime.ShapedArray(sizes.shape, sizes.dtype))
