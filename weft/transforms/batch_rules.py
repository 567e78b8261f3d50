"""How operations that move, choose and contract elements are vectorised.

Each rule takes the size of the mapped dimension, whole values, the mapped dimension of each (None: not mapped), and the
operation's parameters; it gives the result and its mapped dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.core import avals
from weft.operations import assemble, contract, convert, index, logic, shape
from weft.operations.gather import GatherDimensionNumbers, GatherScatterMode, gather_p
from weft.operations.mapped import Dim, all_in_front, at, in_front
from weft.operations.scatter import (
    ScatterDimensionNumbers,
    scatter,
    scatter_add_p,
    scatter_max_p,
    scatter_min_p,
    scatter_mul_p,
    scatter_p,
    scatter_sub_p,
)
from weft.operations.sort import sort_p, top_k_p
from weft.transforms.batching import Rule, rules


def _rule(*primitives: Any) -> Callable[[Rule], Rule]:
    def note(rule: Rule) -> Rule:
        rules.update(dict.fromkeys(primitives, rule))
        return rule

    return note


def _rank(value: Any) -> int:
    return avals.get_aval(value).ndim


def _up(dims: Any) -> tuple[int, ...]:
    """Dimensions behind a new first one."""
    return tuple([d + 1 for d in dims])


# -- views ------------------------------------------------------------------------------------------------------------


@_rule(shape.broadcast_in_dim_p)
def _broadcast(size: int, values: list[Any], dims: list[Dim], **params: Any) -> Any:
    x = in_front(size, values[0], dims[0])
    params["shape"] = (size, *params["shape"])
    params["broadcast_dimensions"] = (0, *_up(params["broadcast_dimensions"]))
    return shape.broadcast_in_dim_p.bind(x, **params), 0


@_rule(shape.reshape_p)
def _reshape(size: int, values: list[Any], dims: list[Dim], **params: Any) -> Any:
    x = in_front(size, values[0], dims[0])
    params["new_sizes"] = (size, *params["new_sizes"])
    if params["dimensions"] is not None:
        params["dimensions"] = (0, *_up(params["dimensions"]))
    return shape.reshape_p.bind(x, **params), 0


@_rule(shape.transpose_p)
def _transpose(size: int, values: list[Any], dims: list[Dim], *, permutation: tuple[int, ...]) -> Any:
    (dim,) = dims
    assert dim is not None
    order = (dim, *[p + (p >= dim) for p in permutation])
    return shape.transpose_p.bind(*values, permutation=order), 0


@_rule(shape.squeeze_p)
def _squeeze(size: int, values: list[Any], dims: list[Dim], *, dimensions: tuple[int, ...]) -> Any:
    (dim,) = dims
    assert dim is not None
    moved = tuple([d + (d >= dim) for d in dimensions])
    return shape.squeeze_p.bind(*values, dimensions=moved), dim - sum(d < dim for d in moved)


@_rule(shape.rev_p)
def _rev(size: int, values: list[Any], dims: list[Dim], *, dimensions: tuple[int, ...]) -> Any:
    (dim,) = dims
    assert dim is not None
    return shape.rev_p.bind(*values, dimensions=tuple([d + (d >= dim) for d in dimensions])), dim


@_rule(shape.slice_p)
def _slice(
    size: int, values: list[Any], dims: list[Dim], *, start_indices: Any, limit_indices: Any, strides: Any
) -> Any:
    (dim,) = dims
    assert dim is not None

    def insert(entries: Any, entry: int) -> Any:
        return None if entries is None else (*entries[:dim], entry, *entries[dim:])

    out = shape.slice_p.bind(
        *values, start_indices=insert(start_indices, 0), limit_indices=insert(limit_indices, size),
        strides=insert(strides, 1),
    )  # fmt: skip
    return out, dim


# -- assembly ---------------------------------------------------------------------------------------------------------


@_rule(assemble.pad_p)
def _pad(size: int, values: list[Any], dims: list[Dim], *, padding_config: Any) -> Any:
    x, value = values
    if dims[1] is None:
        dim = dims[0]
        assert dim is not None
        config = (*padding_config[:dim], (0, 0, 0), *padding_config[dim:])
        return assemble.pad_p.bind(x, value, padding_config=config), dim
    x = in_front(size, x, dims[0])
    config = ((0, 0, 0), *padding_config)
    zero = avals.get_aval(x).dtype.type(0)
    padded = assemble.pad(x, zero, config)
    inside = assemble.pad(shape.broadcast(True, avals.get_aval(x).shape), False, config)
    fill = shape.broadcast_in_dim(value, avals.get_aval(padded).shape, (0,))
    return logic.select_n(inside, fill, padded), 0


@_rule(assemble.concatenate_p)
def _concatenate(size: int, values: list[Any], dims: list[Dim], *, dimension: int) -> Any:
    return assemble.concatenate_p.bind(*all_in_front(size, values, dims), dimension=dimension + 1), 0


@_rule(assemble.stack_p)
def _stack(size: int, values: list[Any], dims: list[Dim], *, axis: int) -> Any:
    if len(set(dims)) == 1 and dims[0] is not None and axis <= dims[0]:
        return assemble.stack_p.bind(*values, axis=axis), dims[0] + 1
    return assemble.stack_p.bind(*all_in_front(size, values, dims), axis=axis + 1), 0


@_rule(assemble.unstack_p)
def _unstack(size: int, values: list[Any], dims: list[Dim], *, axis: int) -> Any:
    outs = assemble.unstack_p.bind(in_front(size, values[0], dims[0]), axis=axis + 1)
    return outs, [0] * len(outs)


@_rule(assemble.split_p)
def _split(size: int, values: list[Any], dims: list[Dim], *, sizes: Any, axis: int) -> Any:
    (dim,) = dims
    assert dim is not None
    outs = assemble.split_p.bind(*values, sizes=sizes, axis=axis + (axis >= dim))
    return outs, [dim] * len(outs)


@_rule(assemble.tile_p)
def _tile(size: int, values: list[Any], dims: list[Dim], *, reps: tuple[int, ...]) -> Any:
    return assemble.tile_p.bind(in_front(size, values[0], dims[0]), reps=(1, *reps)), 0


# -- choosing ---------------------------------------------------------------------------------------------------------


@_rule(logic.select_n_p)
def _select(size: int, values: list[Any], dims: list[Dim]) -> Any:
    which, *cases = values
    if all(d == dims[0] and d is not None for d in dims) and len({avals.get_aval(v).shape for v in values}) == 1:
        return logic.select_n_p.bind(*values), dims[0]
    if dims[0] is None and _rank(which) == 0:
        return logic.select_n_p.bind(which, *all_in_front(size, cases, dims[1:])), 0
    cases = all_in_front(size, cases, dims[1:])
    extents = avals.get_aval(cases[0]).shape
    which = in_front(size, which, dims[0])
    if avals.get_aval(which).shape != extents:
        which = shape.broadcast_in_dim(which, extents, (0,))
    return logic.select_n_p.bind(which, *cases), 0


@_rule(logic.clamp_p)
def _clamp(size: int, values: list[Any], dims: list[Dim]) -> Any:
    if dims[0] is None and dims[2] is None and _rank(values[0]) == 0 and _rank(values[2]) == 0:
        return logic.clamp_p.bind(*values), dims[1]
    full = all_in_front(size, values, dims)
    extents = avals.get_aval(full[1]).shape
    full = [v if avals.get_aval(v).shape == extents else shape.broadcast_in_dim(v, extents, (0,)) for v in full]
    return logic.clamp_p.bind(*full), 0


# -- ordering ---------------------------------------------------------------------------------------------------------


@_rule(sort_p)
def _sort(size: int, values: list[Any], dims: list[Dim], *, dimension: int, **params: Any) -> Any:
    outs = sort_p.bind(*all_in_front(size, values, dims), dimension=dimension + 1, **params)
    return outs, [0] * len(outs)


@_rule(top_k_p)
def _top_k(size: int, values: list[Any], dims: list[Dim], *, axis: int, k: int) -> Any:
    outs = top_k_p.bind(in_front(size, values[0], dims[0]), axis=axis + 1, k=k)
    return outs, [0] * len(outs)


# -- products ---------------------------------------------------------------------------------------------------------


@_rule(contract.dot_general_p)
def _dot_general(size: int, values: list[Any], dims: list[Dim], *, dimension_numbers: Any, **params: Any) -> Any:
    sums, batches = ([list(side) for side in pair] for pair in dimension_numbers)
    both = all(dim is not None for dim in dims)
    for side, dim in enumerate(dims):
        if dim is not None:
            sums[side] = [d + (d >= dim) for d in sums[side]]
            batches[side] = [d + (d >= dim) for d in batches[side]]
            if both:
                batches[side].insert(0, dim)
    numbers = (tuple(map(tuple, sums)), tuple(map(tuple, batches)))
    out = contract.dot_general_p.bind(*values, dimension_numbers=numbers, **params)
    if both:
        return out, 0
    side = 0 if dims[0] is not None else 1
    mapped = dims[side]
    assert mapped is not None
    free = [d for d in range(_rank(values[side])) if d not in (*sums[side], *batches[side])]
    before = len(batches[0])
    if side == 1:
        before += len([d for d in range(_rank(values[0])) if d not in (*sums[0], *batches[0])])
    return out, before + free.index(mapped)


# -- indexing ---------------------------------------------------------------------------------------------------------


@_rule(gather_p)
def _gather(
    size: int, values: list[Any], dims: list[Dim], *, dimension_numbers: Any, slice_sizes: Any, **params: Any
) -> Any:
    array, indices = values
    numbers = dimension_numbers
    array_dim, indices_dim = dims
    offsets, collapsed, starts = numbers.offset_dims, numbers.collapsed_slice_dims, numbers.start_index_map
    array_batch, indices_batch = numbers.operand_batching_dims, numbers.start_indices_batching_dims
    if array_dim is not None:
        array = at(array, array_dim, 0)
        collapsed, starts, array_batch = _up(collapsed), _up(starts), _up(array_batch)
    if indices_dim is not None:
        indices = at(indices, indices_dim, 0)
        indices_batch, offsets = _up(indices_batch), _up(offsets)
    if array_dim is not None and indices_dim is not None:
        array_batch, indices_batch = (0, *array_batch), (0, *indices_batch)
        slice_sizes = (1, *slice_sizes)
    elif array_dim is not None:
        offsets, slice_sizes = (0, *_up(offsets)), (size, *slice_sizes)
    changed = GatherDimensionNumbers(
        offset_dims=tuple(offsets), collapsed_slice_dims=tuple(collapsed), start_index_map=tuple(starts),
        operand_batching_dims=tuple(array_batch), start_indices_batching_dims=tuple(indices_batch),
    )  # fmt: skip
    return gather_p.bind(array, indices, dimension_numbers=changed, slice_sizes=slice_sizes, **params), 0


_SCATTERS = (
    scatter_p, scatter_add_p, scatter_sub_p, scatter_mul_p, scatter_min_p,
    scatter_max_p,
)  # fmt: skip


def _scatter_rule(primitive: Any) -> Rule:
    def rule(size: int, values: list[Any], dims: list[Dim], *, dimension_numbers: Any, **params: Any) -> Any:
        array, indices, updates = values
        numbers = dimension_numbers
        array, updates = in_front(size, array, dims[0]), in_front(size, updates, dims[2])
        inserted, starts = _up(numbers.inserted_window_dims), _up(numbers.scatter_dims_to_operand_dims)
        array_batch, indices_batch = _up(numbers.operand_batching_dims), numbers.scatter_indices_batching_dims
        windows = _up(numbers.update_window_dims)
        if dims[1] is None:
            windows = (0, *windows)
        else:
            indices = at(indices, dims[1], 0)
            array_batch, indices_batch = (0, *array_batch), (0, *_up(indices_batch))
        changed = ScatterDimensionNumbers(
            update_window_dims=tuple(windows), inserted_window_dims=tuple(inserted),
            scatter_dims_to_operand_dims=tuple(starts), operand_batching_dims=tuple(array_batch),
            scatter_indices_batching_dims=tuple(indices_batch),
        )  # fmt: skip
        return primitive.bind(array, indices, updates, dimension_numbers=changed, **params), 0

    return rule


for _primitive in _SCATTERS:
    rules[_primitive] = _scatter_rule(_primitive)


def _index_vectors(size: int, starts: list[Any], dims: list[Dim]) -> Any:
    """Scalar starts, some of them mapped, as one index vector for each element."""
    full = [shape.expand_dims(in_front(size, start, dim), (1,)) for start, dim in zip(starts, dims, strict=True)]
    return assemble.concatenate(full, 1)


@_rule(index.dynamic_slice_p)
def _dynamic_slice(size: int, values: list[Any], dims: list[Dim], *, slice_sizes: tuple[int, ...]) -> Any:
    array, *starts = values
    array_dim, *start_dims = dims
    if all(dim is None for dim in start_dims):
        assert array_dim is not None
        zero = avals.get_aval(starts[0]).dtype.type(0) if starts else 0
        starts.insert(array_dim, zero)
        sizes = (*slice_sizes[:array_dim], size, *slice_sizes[array_dim:])
        return index.dynamic_slice_p.bind(array, *starts, slice_sizes=sizes), array_dim
    places = tuple(range(len(slice_sizes)))
    numbers = GatherDimensionNumbers(
        offset_dims=places, collapsed_slice_dims=(), start_index_map=places
    )  # fmt: skip
    return _gather(
        size, [array, _index_vectors(size, starts, start_dims)], [array_dim, 0], dimension_numbers=numbers,
        slice_sizes=slice_sizes, indices_are_sorted=array_dim is not None, unique_indices=array_dim is not None,
        fill_value=None,
        mode=GatherScatterMode.CLIP,
    )  # fmt: skip


@_rule(index.dynamic_update_slice_p)
def _dynamic_update(size: int, values: list[Any], dims: list[Dim]) -> Any:
    array, update, *starts = values
    array_dim, update_dim, *start_dims = dims
    if all(dim is None for dim in start_dims):
        array, update = in_front(size, array, array_dim), in_front(size, update, update_dim)
        zero = avals.get_aval(starts[0]).dtype.type(0) if starts else 0
        return index.dynamic_update_slice_p.bind(array, update, zero, *starts), 0
    places = tuple(range(_rank(array) - (array_dim is not None)))
    array, update = in_front(size, array, array_dim), in_front(size, update, update_dim)
    out = scatter(
        array, _index_vectors(size, starts, start_dims), update,
        ScatterDimensionNumbers(
            update_window_dims=_up(places), inserted_window_dims=(), scatter_dims_to_operand_dims=_up(places),
            operand_batching_dims=(0,), scatter_indices_batching_dims=(0,),
        ),
        indices_are_sorted=True, unique_indices=True, mode=GatherScatterMode.CLIP,
    )  # fmt: skip
    return out, 0


# -- reading bytes as another type ------------------------------------------------------------------------------------


@_rule(convert.bitcast_convert_type_p)
def _bitcast(size: int, values: list[Any], dims: list[Dim], *, new_dtype: Any) -> Any:
    return convert.bitcast_convert_type_p.bind(in_front(size, values[0], dims[0]), new_dtype=new_dtype), 0


@_rule(convert.reinterpret_p)
def _reinterpret(size: int, values: list[Any], dims: list[Dim], *, new_dtype: Any) -> Any:
    return convert.reinterpret_p.bind(in_front(size, values[0], dims[0]), new_dtype=new_dtype), 0
