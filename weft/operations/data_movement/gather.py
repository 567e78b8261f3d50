"""gather: windows of an array at starts that are read from an index array.

Each index vector (a row along the last dimension of the indices) is the start of one window; the windows' dimensions
of extent 1 may be dropped. A start outside the array is clamped, or its whole window is filled. Typing and the
dimension numbers are XLA's (openxla.org/xla/operation_semantics#gather).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import core, dtypes, runtime
from weft.core import kinds
from weft.core.primitive import taken_whole
from weft.core.programs import check_scopes
from weft.operations import key_words, mapped
from weft.operations.pointwise.elementwise import INTEGER, category
from weft.operations.settings import GatherDimensionNumbers, GatherScatterMode
from weft.operations.static import canonical_shape
from weft.runtime import Array

__all__ = ["gather", "gather_p"]

ArrayLike = Any
Params = dict[str, Any]


# ---- checks of dimension numbers, also scatter's


def check_sorted_dims(name: str, what: str, dims: Sequence[int], bound: int) -> None:
    """Dimensions in increasing order, without repetition, inside [0, bound)."""
    check_sorted(name, what, dims)
    check_range(name, what, dims, bound)


def check_sorted(name: str, what: str, dims: Sequence[int]) -> None:
    if list(dims) != sorted(dims):
        raise TypeError(f"[{name}] {what} in {name} op must be sorted; got: {tuple(dims)}")
    check_distinct(name, what, dims)


def check_distinct(name: str, what: str, dims: Sequence[int]) -> None:
    if len(set(dims)) != len(dims):
        raise TypeError(f"[{name}] {what} in {name} op must not repeat; got: {tuple(dims)}")


def check_range(name: str, what: str, dims: Sequence[int], bound: int) -> None:
    outside = [dim for dim in dims if not 0 <= dim < bound]
    if outside:
        got = ", ".join(map(str, outside))
        raise TypeError(f"[{name}] Invalid {what} set in {name} op; valid range is [0, {bound}), got: {got}")


def check_disjoint(name: str, first: tuple[str, Sequence[int]], second: tuple[str, Sequence[int]]) -> None:
    if set(first[1]) & set(second[1]):
        raise TypeError(
            f"[{name}] {first[0]} and {second[0]} in {name} op must be disjoint; got: {tuple(first[1])} and "
            f"{tuple(second[1])}"
        )


def check_indices(name: str, indices: Any) -> None:
    if category(indices.dtype) not in INTEGER:
        raise ValueError(f"[{name}] indices must have an integer type, got {indices.str_short()}")
    if indices.ndim == 0:
        raise TypeError(
            f"[{name}] the last dimension of the indices, which holds index vectors, must be one of their dimensions: "
            f"rank(indices) is 0 and this dimension is -1, got {indices.str_short()}"
        )


def check_index_map(name: str, what: str, index_map: Sequence[int], array: Any, indices: Any) -> None:
    """The array dimensions that are indexed by the components of an index vector."""
    if len(index_map) != indices.shape[-1]:
        raise TypeError(
            f"[{name}] {name.capitalize()} op has {len(index_map)} elements in {what} and the bound of dimension "
            f"index_vector_dim={indices.ndim - 1} of indices is {indices.shape[-1]}. These two numbers must be equal. "
            f"Got {tuple(index_map)} and indices {indices.str_short()}"
        )
    outside = ", ".join(f"{at}->{dim}" for at, dim in enumerate(index_map) if not 0 <= dim < array.ndim)
    if outside:
        mapping = " mapping" if name == "scatter" else ""
        raise TypeError(f"[{name}] Invalid {what}{mapping}; domain is [0, {array.ndim}), got: {outside}")
    check_distinct(name, what, index_map)


def check_batching(
    name: str,
    array: Any,
    indices: Any,
    array_dims: Sequence[int],
    index_dims: Sequence[int],
    what: str,
    disjoint: Sequence[tuple[str, Sequence[int]]],
) -> None:
    """Check the batching dimensions, which the array and the indices share. ``disjoint``: what must not have them."""
    check_sorted_dims(name, "operand_batching_dims", array_dims, array.ndim)
    for other in disjoint:
        check_disjoint(name, other, ("operand_batching_dims", array_dims))
    check_distinct(name, what, index_dims)
    check_range(name, what, index_dims, indices.ndim)
    if indices.ndim - 1 in index_dims:
        raise TypeError(
            f"[{name}] {name.capitalize()} op cannot have the index vector dimension as a batching dimension: "
            f"{what} {tuple(index_dims)} must be without {indices.ndim - 1}"
        )
    if len(array_dims) != len(index_dims):
        raise TypeError(
            f"[{name}] {name.capitalize()} op requires equal numbers of operand_batching_dims and {what}, got "
            f"{tuple(array_dims)} and {tuple(index_dims)}"
        )
    sizes = [tuple(aval.shape[d] for d in dims) for aval, dims in ((array, array_dims), (indices, index_dims))]
    if sizes[0] != sizes[1]:
        raise TypeError(
            f"[{name}] {name.capitalize()} op requires operand batching dimensions and indices batching "
            f"dimensions to have the same shape, got {sizes[0]} and {sizes[1]}"
        )


# ---- typing


def _check_gather(array: Any, indices: Any, numbers: GatherDimensionNumbers, sizes: tuple[int, ...]) -> None:
    name = "gather"
    offset_dims, collapsed, index_map, batching, index_batching = numbers
    check_indices(name, indices)
    out_rank = indices.ndim - 1 + len(offset_dims)
    check_sorted(name, "offset_dims", offset_dims)
    for at, dim in enumerate(offset_dims):
        if not 0 <= dim < out_rank:
            raise TypeError(f"[{name}] Offset dimension {at} in gather op is out of bounds: [0, {out_rank}), got {dim}")
    check_sorted_dims(name, "collapsed_slice_dims", collapsed, array.ndim)
    indexed, dropped = ("start_index_map", index_map), ("collapsed_slice_dims", collapsed)
    check_batching(name, array, indices, batching, index_batching, "start_indices_batching_dims", [dropped, indexed])
    check_index_map(name, *indexed, array, indices)
    _check_slice_sizes(array, numbers, sizes)


def _check_slice_sizes(array: Any, numbers: GatherDimensionNumbers, sizes: tuple[int, ...]) -> None:
    offset_dims, collapsed, _, batching, _ = numbers
    if len(sizes) != array.ndim:
        raise TypeError(
            f"[gather] Gather op must have one slice size for every input dimension; got: "
            f"len(slice_sizes)={len(sizes)}, input_shape.rank={array.ndim}, slice_sizes={sizes} for {array.str_short()}"
        )
    if len(offset_dims) != array.ndim - len(collapsed) - len(batching):
        raise TypeError(
            f"[gather] All components of the offset index in a gather op must either be a offset dimension or "
            f"explicitly collapsed/batching; got len(slice_sizes)={len(sizes)}, output_slice_sizes={offset_dims}, "
            f"collapsed_slice_dims={collapsed}, operand_batching_dims={batching}"
        )
    for dim, (size, extent) in enumerate(zip(sizes, array.shape, strict=True)):
        if not 0 <= size <= extent:
            raise TypeError(
                f"[gather] Slice size at index {dim} in gather op is out of range, must be within "
                f"[0, {extent} + 1), got {size}"
            )
    for dim, size in enumerate(sizes):
        if dim in collapsed and size != 1:
            raise TypeError(
                f"[gather] Gather op can only collapse slice dims with bound 1, but bound is {size} for index "
                f"{dim} at position {collapsed.index(dim)}. These are collapsed_slice_dims {collapsed}"
            )
        if dim in batching and size > 1:
            raise TypeError(
                f"[gather] Gather op can only have operand batching dims with bound 0/1, but bound is {size} for "
                f"index {dim} at position {batching.index(dim)}. These are operand_batching_dims {batching}"
            )


def _gather_typing(
    array: Any,
    indices: Any,
    *,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: tuple[int, ...],
    **_: Any,
) -> Any:
    numbers = dimension_numbers
    _check_gather(array, indices, numbers, slice_sizes)
    dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    window = iter([size for dim, size in enumerate(slice_sizes) if dim not in dropped])
    batch = iter(indices.shape[:-1])
    rank = indices.ndim - 1 + len(numbers.offset_dims)
    shape = tuple([next(window if dim in numbers.offset_dims else batch) for dim in range(rank)])
    return runtime.ShapedArray(shape, array.dtype, array.weak_type)


def moved_dims(
    rank: int, windows_rank: int, window_dims: Sequence[int], thin: Sequence[int], batching: Sequence[tuple[int, int]]
) -> tuple[tuple[int | None, ...], tuple[int, ...]]:
    """(dimension of the windows for each dimension of the array, the same for each leading one of the indices).

    ``thin``: array dimensions that the windows do not have; ``batching``: (array dimension, index dimension).
    """
    batch = tuple([dim for dim in range(windows_rank) if dim not in window_dims])
    walked = iter(window_dims)
    by_batching = dict(batching)
    moved: list[int | None] = []
    for dim in range(rank):
        if dim in by_batching:
            moved.append(batch[by_batching[dim]])
        else:
            moved.append(None if dim in thin else next(walked))
    return tuple(moved), batch


def _gather_windows(avals: Sequence[Any], out: Any, params: Params) -> kinds.Windows:
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    array = avals[0]
    batching = tuple(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    moved, batch = moved_dims(array.ndim, out.ndim, numbers.offset_dims, numbers.collapsed_slice_dims, batching)
    most = tuple([array.shape[dim] - sizes[dim] for dim in numbers.start_index_map])
    return kinds.Windows(numbers.start_index_map, moved, batch, most)


def _gather_fill(out: Any, params: Params) -> Any:
    mode = params["mode"]
    if mode is GatherScatterMode.ONE_HOT:
        raise NotImplementedError("[gather] mode ONE_HOT is not supported; use CLIP, or a product with lax one-hots")
    if mode is not GatherScatterMode.FILL_OR_DROP:
        return None
    value = params["fill_value"]
    return np.asarray(default_fill(out.dtype) if value is None else value).astype(_word(out.dtype))


def _word(dtype: Any) -> Any:
    """The dtype of an element, or of the words of an extended dtype."""
    return dtype.physical_dtype if dtypes.is_extended(dtype) else np.dtype(dtype)


def default_fill(dtype: Any) -> Any:
    """The value by which FILL_OR_DROP fills windows outside: NaN, lowest signed or highest unsigned number, True."""
    word = _word(dtype)
    if dtypes.issubdtype(word, np.inexact):
        return np.nan
    if dtypes.issubdtype(word, np.signedinteger):
        return int(dtypes.iinfo(word).min)
    if dtypes.issubdtype(word, np.unsignedinteger):
        return int(dtypes.iinfo(word).max)
    return True


# ---- reference


def window_positions(
    windows: kinds.Windows, shape: Sequence[int], indices: np.ndarray, windows_shape: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """(flat position in the array of each element of the windows, whether its window is inside); starts clamped."""
    flat = np.zeros(windows_shape, np.int64)
    inside = np.ones(windows_shape, np.bool_)
    strides = [int(np.prod(shape[dim + 1 :], dtype=np.int64)) for dim in range(len(shape))]
    for dim, source in enumerate(windows.moved):
        if source is not None:
            steps = np.arange(windows_shape[source], dtype=np.int64)
            flat += (steps * strides[dim]).reshape([-1 if d == source else 1 for d in range(len(windows_shape))])
    spread = [dim for dim in range(len(windows_shape)) if dim not in windows.batch]
    for k, (dim, most) in enumerate(zip(windows.starts, windows.most, strict=True)):
        given = indices[..., k]
        if given.dtype == np.uint64:
            given = np.minimum(given, np.uint64(np.iinfo(np.int64).max))
        given = given.astype(np.int64)
        flat += np.expand_dims(np.clip(given, 0, max(most, 0)) * strides[dim], tuple(spread))
        inside &= np.expand_dims((given >= 0) & (given <= most), tuple(spread))
    return flat, inside


def _gather_reference(array: Any, indices: Any, **params: Any) -> np.ndarray:
    array, indices = np.asarray(array), np.asarray(indices)
    avals = [runtime.ShapedArray(x.shape, x.dtype) for x in (array, indices)]
    out = _gather_typing(*avals, **params)
    fill = _gather_fill(out, params)
    if not out.size:
        return np.zeros(out.shape, array.dtype)
    flat, inside = window_positions(_gather_windows(avals, out, params), array.shape, indices, out.shape)
    found = array.reshape(-1)[flat]
    return found if fill is None else np.where(inside, found, fill).astype(array.dtype)


gather_p = core.Primitive(
    "gather", kind=kinds.Gather(windows=_gather_windows, fill=_gather_fill, reference=_gather_reference)
)
gather_p.def_abstract_eval(_gather_typing)
gather_p.extents = taken_whole("slice_sizes")
gather_p.on_words = key_words.gather


def _gather_batch(
    size: int, values: list[Any], dims: list[mapped.Dim], *, dimension_numbers: Any, slice_sizes: Any, **params: Any
) -> Any:
    array, indices = values
    numbers = dimension_numbers
    array_dim, indices_dim = dims
    offsets, collapsed, starts = numbers.offset_dims, numbers.collapsed_slice_dims, numbers.start_index_map
    array_batch, indices_batch = numbers.operand_batching_dims, numbers.start_indices_batching_dims
    if array_dim is not None:
        array = mapped.at(array, array_dim, 0)
        collapsed, starts, array_batch = mapped.shifted(collapsed), mapped.shifted(starts), mapped.shifted(array_batch)
    if indices_dim is not None:
        indices = mapped.at(indices, indices_dim, 0)
        indices_batch, offsets = mapped.shifted(indices_batch), mapped.shifted(offsets)
    if array_dim is not None and indices_dim is not None:
        array_batch, indices_batch = (0, *array_batch), (0, *indices_batch)
        slice_sizes = (min(1, size), *slice_sizes)
    elif array_dim is not None:
        offsets, slice_sizes = (0, *mapped.shifted(offsets)), (size, *slice_sizes)
    changed = GatherDimensionNumbers(
        offset_dims=tuple(offsets), collapsed_slice_dims=tuple(collapsed), start_index_map=tuple(starts),
        operand_batching_dims=tuple(array_batch), start_indices_batching_dims=tuple(indices_batch),
    )  # fmt: skip
    return gather_p.bind(array, indices, dimension_numbers=changed, slice_sizes=slice_sizes, **params), 0


gather_p.batch = _gather_batch


# ---- public functions


def gather(
    operand: ArrayLike,
    start_indices: ArrayLike,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: str | GatherScatterMode | None = None,
    fill_value: Any = None,
) -> Array:
    """Windows of ``operand`` of sizes ``slice_sizes``, one for each index vector of ``start_indices``.

    A window that is not inside is, by ``mode``, moved inside ("clip"; also without a mode and for
    "promise_in_bounds") or filled with ``fill_value`` ("fill"; NaN, the lowest signed or the highest unsigned number
    if not given). Raises TypeError for dimension numbers that do not fit the shapes.

    >>> numbers = lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,))
    >>> lax.gather(np.int32([5, 6, 7]), np.int32([[2], [0], [9]]), numbers, (1,)).tolist()
    [7, 5, 7]
    """
    parsed = GatherScatterMode.PROMISE_IN_BOUNDS if mode is None else GatherScatterMode.from_any(mode)
    if parsed is not GatherScatterMode.FILL_OR_DROP:
        fill_value = None
    elif fill_value is None:
        fill_value = default_fill(core.get_aval(operand).dtype)
    with check_scopes.as_given(mode if isinstance(mode, str) else None):
        return gather_p.bind(
            operand,
            start_indices,
            dimension_numbers=dimension_numbers,
            slice_sizes=canonical_shape("gather", slice_sizes),
            indices_are_sorted=bool(indices_are_sorted),
            unique_indices=bool(unique_indices),
            mode=parsed,
            fill_value=fill_value,
        )
