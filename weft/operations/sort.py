"""Sorting along one axis: sort of several operands by the first ones, top_k.

The order is total: numbers ascend, -0.0 equals 0.0, NaN is last; complex numbers are ordered by real, then imaginary
part; equal keys keep their order. A single operand is sorted natively. A key of at most 32 bits becomes an unsigned
integer of the same order, above its position in a word of 64 bits. Then all words differ, and the fastest unstable sort
of integers gives the stable order::

    sort f32[3] [2.0, nan, -1.0]   ->  words c000_0000|0, ffff_ffff|1, 407f_ffff|2  ->  sorted, positions 2 0 1
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import core, dtypes, runtime
from weft._base import lazy
from weft.core import kinds
from weft.core import tangents as tangent_types
from weft.operations import mapped
from weft.operations.data_movement.gather import gather
from weft.operations.data_movement.shape import shape_of
from weft.operations.later import ops
from weft.operations.pointwise.elementwise import BOOL, COMPLEX, REAL, category, check_dtype
from weft.operations.settings import GatherDimensionNumbers, GatherScatterMode
from weft.operations.static import canonical_axis, integer
from weft.runtime import Array

__all__ = ["sort", "sort_key_val", "sort_order_p", "sort_p", "top_k", "top_k_p"]

ArrayLike = Any


# ---- order

# Row lengths from which radix sorts are faster than NumPy: of words that have their positions in them, and of
# longer words, 32 bits at a time.
_PACKED_ROW, _HALVES_ROW = 2048, 4096
_BLOCK = 1 << 20  # elements of short rows that are sorted at once, 0.1 s
_FLOATS = frozenset(dtypes.FLOATS)


def order_words(x: np.ndarray, signs: bool = False) -> list[np.ndarray]:
    """Unsigned integers in the same order as the elements; for complex two arrays, the first more significant.

    With ``signs`` -0.0 is below 0.0, and a NaN whose sign is negative below all numbers.
    """
    kind = x.dtype.kind
    if kind == "c":
        return [*order_words(np.ascontiguousarray(np.real(x))), *order_words(np.ascontiguousarray(np.imag(x)))]
    if kind == "b":
        return [x.view(np.uint8)]
    if dtypes.issubdtype(x.dtype, np.unsignedinteger):
        return [x.astype(np.uint8) if x.dtype.kind == "V" else x]
    if dtypes.issubdtype(x.dtype, np.integer):
        whole = x.astype(np.int8) if x.dtype.kind == "V" else x
        word = np.dtype(f"u{whole.dtype.itemsize}")
        return [whole.view(word) ^ word.type(1 << (word.itemsize * 8 - 1))]
    return [_float_words(x, signs)]


@functools.cache
def _byte_words(dtype: np.dtype, signs: bool) -> np.ndarray:
    """The word of every code of a float of one byte: the rank of its value."""
    words = _float_words(np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32), signs)
    return np.unique(words, return_inverse=True)[1].astype(np.uint8)


def _float_words(x: np.ndarray, signs: bool) -> np.ndarray:
    """The bits of floats, inverted for negative ones, so that words ascend as the floats do, with NaN last."""
    if x.dtype.itemsize == 1:
        return _byte_words(x.dtype, signs)[np.ascontiguousarray(x).view(np.uint8)]
    word = np.dtype(f"u{x.dtype.itemsize}")
    sign = word.type(1 << (word.itemsize * 8 - 1))
    x = np.ascontiguousarray(x)
    bits = x.view(word)
    turned = bits.view(f"i{x.dtype.itemsize}") >> (8 * x.dtype.itemsize - 1)  # all ones where negative
    words = turned.view(word)
    words |= sign
    words ^= bits
    zeros = bits == sign
    if not signs and zeros.any():
        words[zeros] = sign  # -0.0 equals 0.0
    nans = x != x
    if nans.any():
        words[nans] = np.iinfo(word).max
        if signs:
            words[nans & (bits >= sign)] = 0
    return words


def stable_order(keys: Sequence[np.ndarray]) -> np.ndarray:
    """The positions that sort dense keys along the last axis; the first key is the most significant."""
    words = [word for key in keys for word in order_words(key)]
    count = words[0].shape[-1]
    if len(words) == 1 and words[0].dtype == np.uint8:
        return runtime.order_bytes(words[0])
    alone = len(words) == 1 and words[0].dtype.itemsize <= 4
    if count < 2**32 and (alone or count >= _HALVES_ROW):
        return _packed_order(words)
    if len(words) == 1:
        return np.argsort(words[0], axis=-1, kind="stable")
    return np.lexsort(words[::-1], axis=-1)


def _packed_order(words: Sequence[np.ndarray]) -> np.ndarray:
    """The stable order of words: 32 bits at a time, with the positions in the bits below."""
    shape = words[0].shape
    packed = np.empty(shape, np.uint64)
    packed[...] = np.arange(shape[-1], dtype=np.uint64)
    if shape[-1] < _PACKED_ROW:  # then there is one word of up to 32 bits
        packed |= words[0].astype(np.uint64) << np.uint64(32)
        runtime.sort_words(packed, "u")
    else:
        for word in reversed(words):
            for shift in range(0, 8 * word.itemsize, 32):
                runtime.sort_positions(packed, word, shift)
    packed &= np.uint64(0xFFFFFFFF)
    return packed.view(np.int64)


def _sort_values(rows: np.ndarray) -> None:
    """Sort rows of real numbers in place, without positions."""
    kind, word = rows.dtype.kind, np.dtype(f"u{rows.dtype.itemsize}")
    if rows.dtype in _FLOATS:
        runtime.sort_words(rows.view(word), "f", int(np.array(np.inf, rows.dtype).view(word)))
    else:
        runtime.sort_words(rows.view(word), "i" if kind == "i" else "u")


def _sort(*operands: Any, dimension: int, is_stable: bool, num_keys: int) -> tuple[np.ndarray, ...]:
    moved = [np.moveaxis(np.asarray(x), dimension, -1) for x in operands]
    if len(moved) == 1 and (moved[0].dtype.kind in "iub" or moved[0].dtype in _FLOATS):
        found = [np.array(moved[0], order="C")]
        _sort_values(found[0])
    else:
        rows = [np.ascontiguousarray(x) for x in moved]
        found = _in_blocks(functools.partial(_sort_rows, num_keys=num_keys), rows)
    return tuple([np.ascontiguousarray(np.moveaxis(x, -1, dimension)) for x in found])


def _in_blocks(function: Callable[[list[np.ndarray]], list[np.ndarray]], rows: list[np.ndarray]) -> list[np.ndarray]:
    """``function`` applied to rows; many short rows are processed in blocks, between which interrupts are handled."""
    count = rows[0].shape[-1]
    if rows[0].size <= _BLOCK or count >= _HALVES_ROW:
        return function(rows)
    flat, step = [x.reshape(-1, count) for x in rows], _BLOCK // count
    parts = []
    for low in range(0, len(flat[0]), step):
        parts.append(function([x[low : low + step] for x in flat]))
        runtime.check_interrupt()
    return [np.concatenate(x).reshape(*rows[0].shape[:-1], x[0].shape[-1]) for x in zip(*parts, strict=True)]


def _sort_rows(rows: list[np.ndarray], num_keys: int) -> list[np.ndarray]:
    order = stable_order(rows[:num_keys])
    return [runtime.take_rows(x, order) for x in rows]


def _sort_typing(*operands: Any, dimension: int, is_stable: bool, num_keys: int) -> list[Any]:
    shapes = [x.shape for x in operands]
    if any(shape != shapes[0] for shape in shapes):
        raise TypeError(f"Arguments to sort must have equal shapes, got: {' '.join(map(str, shapes))}")
    for position, x in enumerate(operands[:num_keys]):
        check_dtype("sort", position, x, BOOL | REAL | COMPLEX)
    return list(operands)


def _along(x: Any, order: Any, axis: int, column: Callable[[Any], Any]) -> Array:
    """``take_along_axis``; ``column`` adds an axis to the positions."""
    if 0 in shape_of(order):
        return ops.full_like(x, 0, shape=shape_of(order))
    batch = tuple([dim for dim in range(len(shape_of(order))) if dim != axis])
    numbers = GatherDimensionNumbers((), (axis,), (axis,), batch, batch)
    sizes = (1,) * len(shape_of(x))
    return gather(x, column(order), numbers, sizes, mode=GatherScatterMode.PROMISE_IN_BOUNDS)


def _moved(tangents: Sequence[Any], order: Any, axis: int, column: Callable[[Any], Any]) -> list[Any]:
    return [x if isinstance(x, tangent_types.Zero) else _along(x, order, axis, column) for x in tangents]


def _sort_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, dimension: int, **params: Any) -> tuple[Any, Any]:
    """Tangents are permuted like their elements."""
    positions = ops.broadcasted_iota(np.dtype(np.uint32), shape_of(primals[0]), dimension)
    *results, order = sort_p.bind(*primals, positions, dimension=dimension, **params)
    return results, _moved(tangents, order, dimension, lambda x: ops.expand_dims(x, (len(shape_of(x)),)))


def _sort_ordering(params: kinds.Params) -> kinds.Ordering:
    return kinds.Ordering(params["dimension"], params["num_keys"])


def _sort_unrolled(avals: Sequence[Any], params: kinds.Params) -> Callable[..., Any] | None:
    networks = lazy.submodule("weft.operations.sorting_networks")
    return networks.of_rows(avals, params["dimension"], params["num_keys"])


sort_p = core.Primitive(
    "sort",
    kind=kinds.External(call=_sort, ordering=_sort_ordering, unrolled=_sort_unrolled),
    multiple_results=True,
)
sort_p.def_abstract_eval(_sort_typing)
sort_p.jvp, sort_p.transpose = _sort_jvp, None


def _sort_batch(size: int, values: list[Any], dims: list[mapped.Dim], *, dimension: int, **params: Any) -> Any:
    first = next(dim for dim in dims if dim is not None)
    values = [
        mapped.repeated(size, x, first) if dim is None else mapped.at(x, dim, first)
        for x, dim in zip(values, dims, strict=True)
    ]
    outs = sort_p.bind(*values, dimension=dimension + (first <= dimension), **params)
    return outs, [first] * len(outs)


sort_p.batch = _sort_batch


# ---- sort_order: what the compiler makes of an argsort, or of a sort with unused results


def _order(
    *operands: Any, dimension: int, num_keys: int, moved: tuple[int, ...], positions: Any, bits: int = 0
) -> tuple[Any, ...]:
    rows = [np.ascontiguousarray(np.moveaxis(np.asarray(x), dimension, -1)) for x in operands]

    def ordered(rows: list[np.ndarray]) -> list[np.ndarray]:
        order = stable_order(rows[:num_keys])
        found = [runtime.take_rows(rows[k], order) for k in moved]
        return found if positions is None else [*found, order.astype(positions)]

    return tuple([np.ascontiguousarray(np.moveaxis(x, -1, dimension)) for x in _in_blocks(ordered, rows)])


def _order_typing(
    *operands: Any, dimension: int, num_keys: int, moved: tuple[int, ...], positions: np.dtype | None, bits: int = 0
) -> list[Any]:
    found = [operands[k] for k in moved]
    return found if positions is None else [*found, runtime.ShapedArray(operands[0].shape, positions, False)]


def _order_ordering(params: kinds.Params) -> kinds.Ordering:
    return kinds.Ordering(params["dimension"], params["num_keys"], None, params["moved"], params.get("bits", 0))


sort_order_p = core.Primitive(
    "sort_order", kind=kinds.External(call=_order, ordering=_order_ordering), multiple_results=True
)
sort_order_p.def_abstract_eval(_order_typing)
sort_order_p.jvp, sort_order_p.transpose, sort_order_p.batch = None, None, None


# ---- top_k


GROUP = 32  # neighbours in a group; the k-th largest group maximum is a lower bound for the k largest elements


def _top_k(x: Any, *, axis: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    rows = np.ascontiguousarray(np.moveaxis(np.asarray(x), axis, -1))
    found = _in_blocks(lambda blocks: _top_k_rows(blocks[0], k), [rows])
    back = [np.ascontiguousarray(np.moveaxis(part, -1, axis)) for part in found]
    return back[0], back[1]


def _top_k_rows(rows: np.ndarray, k: int) -> list[np.ndarray]:
    order = _few_largest(rows, k)
    order = _largest(rows, k) if order is None else order
    return [np.take_along_axis(rows, order, axis=-1), order.astype(np.int32)]


def _few_largest(rows: np.ndarray, k: int) -> np.ndarray | None:
    """Positions of the largest elements; None unless few elements are as large as the k-th largest group."""
    count = rows.shape[-1]
    n_groups = count // GROUP
    if k == 0 or n_groups < 2 * k or not rows.size or rows.dtype.str[1:] not in ("f4", "f8", "i4", "u4", "i8", "u8"):
        return None
    flat = rows.reshape(-1, count)
    groups = flat[:, : n_groups * GROUP].reshape(len(flat), GROUP, n_groups).max(axis=1)
    least = np.partition(groups, n_groups - k, axis=-1)[:, n_groups - k : n_groups - k + 1]
    if (groups != groups).any():
        return None
    row, position = np.divmod(np.flatnonzero(flat >= least), count)
    rest = flat[:, n_groups * GROUP :]
    # NaN counts as the largest, but no comparison with it is true
    if len(row) > 4 * k * len(flat) or (rest != rest).any():
        return None
    found = np.lexsort((~order_words(flat[row, position], signs=True)[0], row))
    first = np.searchsorted(row, np.arange(len(flat)))[:, None]
    return position[found][first + np.arange(k)].reshape(*rows.shape[:-1], k)


def _largest(rows: np.ndarray, k: int) -> np.ndarray:
    """Positions of the largest elements, from a stable sort of all."""
    words = ~order_words(rows, signs=True)[0]  # descending; equal ones in order of position
    if words.dtype.itemsize <= 4:
        packed = (words.astype(np.uint64) << np.uint64(32)) | np.arange(rows.shape[-1], dtype=np.uint64)
        if k and rows.shape[-1] > 256:  # shorter rows are sorted whole as fast
            packed = np.partition(packed, k - 1, axis=-1)[..., :k]
        return (np.sort(packed, axis=-1)[..., :k] & np.uint64(0xFFFFFFFF)).view(np.int64)
    return np.argsort(words, axis=-1, kind="stable")[..., :k]


def _top_k_typing(x: Any, *, axis: int, k: int) -> list[Any]:
    if category(x.dtype) in COMPLEX:
        raise ValueError("top_k is not compatible with complex inputs.")
    check_dtype("top_k", 0, x, BOOL | REAL)
    if k < 0:
        raise ValueError(f"k argument to top_k must be nonnegative, got {k}")
    if k > x.shape[axis]:
        raise ValueError(
            f"k argument to top_k must be no larger than size along axis; got k={k} with shape={list(x.shape)} and "
            f"axis={axis}"
        )
    if x.shape[axis] > np.iinfo(np.int32).max:
        raise ValueError(
            f"top_k returns int32 indices, which will overflow for extents above {np.iinfo(np.int32).max}: "
            f"got {x.str_short()} and axis={axis}"
        )
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    return [runtime.ShapedArray(shape, x.dtype, x.weak_type), runtime.ShapedArray(shape, np.dtype(np.int32), False)]


def _top_k_ordering(params: kinds.Params) -> kinds.Ordering:
    return kinds.Ordering(params["axis"], 1, params["k"])


top_k_p = core.Primitive("top_k", kind=kinds.External(call=_top_k, ordering=_top_k_ordering), multiple_results=True)
top_k_p.def_abstract_eval(_top_k_typing)


def _top_k_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, axis: int, k: int) -> tuple[Any, Any]:
    values, positions = top_k_p.bind(*primals, axis=axis, k=k)
    integers = tangent_types.Zero(tangent_types.tangent_aval(core.get_aval(positions)))
    return [values, positions], [
        *_moved(tangents, positions, axis, lambda x: ops.reshape(x, (*shape_of(x), 1))),
        integers,
    ]


top_k_p.jvp, top_k_p.transpose = _top_k_jvp, None


def _top_k_batch(size: int, values: list[Any], dims: list[mapped.Dim], *, axis: int, k: int) -> Any:
    outs = top_k_p.bind(mapped.in_front(size, values[0], dims[0]), axis=axis + 1, k=k)
    return outs, [0] * len(outs)


top_k_p.batch = _top_k_batch


# ---- public functions


def sort(operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """An array sorted along ``dimension``, or several in the order of the first ``num_keys`` of them.

    NaN is last, -0.0 equals 0.0; equal keys keep their order whatever ``is_stable`` says. Raises TypeError for
    different shapes, ValueError for an impossible ``num_keys`` or dimension.

    >>> [x.tolist() for x in lax.sort((np.int32([3, 1, 2]), np.int32([7, 8, 9])))]
    [[1, 2, 3], [8, 9, 7]]
    """
    several = isinstance(operand, tuple | list)
    operands = list(operand) if several else [operand]
    if not operands:
        raise TypeError("Sort requires at least one operand")
    if not 1 <= num_keys <= len(operands):
        raise ValueError(f"num_keys={num_keys} must be between 1 and len(operand)={len(operands)}")
    axis = canonical_axis(dimension, len(shape_of(operands[0])), "sort")
    found = sort_p.bind(*operands, dimension=axis, is_stable=bool(is_stable), num_keys=int(num_keys))
    return tuple(found) if several else found[0]


def sort_key_val(
    keys: ArrayLike, values: ArrayLike, dimension: int = -1, is_stable: bool = True
) -> tuple[Array, Array]:
    """``keys`` sorted along ``dimension``, and ``values`` permuted like them.

    >>> [x.tolist() for x in lax.sort_key_val(np.int32([3, 1]), np.int32([7, 8]))]
    [[1, 3], [8, 7]]
    """
    return sort((keys, values), dimension=dimension, is_stable=is_stable, num_keys=1)


def top_k(operand: ArrayLike, k: int, *, axis: int = -1) -> list[Array]:
    """The ``k`` largest elements along ``axis``, descending, and positions; the first of equal elements comes first.

    NaN counts as the largest, or, if its sign is negative, as the least; -0.0 as less than 0.0. Raises ValueError for a
    ``k`` beyond the extent.

    >>> [x.tolist() for x in lax.top_k(np.int32([3, 9, 5]), 2)]
    [[9, 5], [1, 2]]
    """
    count = integer(k, "top_k", "k")
    return list(top_k_p.bind(operand, k=count, axis=canonical_axis(axis, len(shape_of(operand)), "top_k")))
