"""Derivatives of gather and scatter: each is the other's transpose.

gather         linear in the array; the cotangent is scatter-added to zeros at the same windows
scatter-add    linear in array and updates; the updates' cotangent is gathered
scatter        linear where no element is written twice; otherwise rewritten as a masked scatter-add, in which only
               the last write of every element counts
scatter-min    the tangents of the elements that attained the extremum, in equal shares
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import core, runtime
from weft.core.tangents import Zero, is_undefined
from weft.operations import linear as linear_operations
from weft.operations.data_movement import assemble, shape
from weft.operations.data_movement.gather import gather, gather_p
from weft.operations.data_movement.scatter import (
    any_order,
    combination,
    scatter_add,
    scatter_add_p,
    scatter_max_p,
    scatter_min_p,
    scatter_mul_p,
    scatter_p,
    scatter_sub_p,
)
from weft.operations.pointwise import arithmetic, logic
from weft.operations.settings import GatherDimensionNumbers, ScatterDimensionNumbers

Array = Any
Params = dict[str, Any]
Pair = tuple[Any, Any]


def _aval(value: Any) -> Any:
    return value.aval if is_undefined(value) else core.get_aval(value)


def _options(params: Params, *names: str) -> Params:
    return {name: params[name] for name in (*names, "mode")}


def _filled(aval: Any, value: int) -> Array:
    """An array of a value in the aval's shape and dtype."""
    scalar = np.asarray(value, aval.dtype)[()]
    return shape.broadcast_in_dim(scalar, aval.shape, ()) if aval.shape else scalar


# ---- gather


def _gather_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Pair:
    out = gather_p.bind(*primals, **params)
    if type(tangents[0]) is Zero:
        return out, Zero.from_primal_value(out)
    options = _options(params, "dimension_numbers", "slice_sizes", "indices_are_sorted", "unique_indices")
    return out, gather(tangents[0], primals[1], fill_value=0, **options)


def _gather_transpose(ct: Any, array: Any, indices: Any, **params: Any) -> list[Any]:
    if type(ct) is Zero:
        return [None, None]
    numbers = params["dimension_numbers"]
    scattered = ScatterDimensionNumbers(
        update_window_dims=numbers.offset_dims,
        inserted_window_dims=numbers.collapsed_slice_dims,
        scatter_dims_to_operand_dims=numbers.start_index_map,
        operand_batching_dims=numbers.operand_batching_dims,
        scatter_indices_batching_dims=numbers.start_indices_batching_dims,
    )
    options = _options(params, "indices_are_sorted", "unique_indices")
    jaxpr = combination(arithmetic.add_p, runtime.ShapedArray((), array.aval.dtype), backward=True)
    zeros = _filled(array.aval, 0)
    more = any_order(array.aval.dtype, True, params["indices_are_sorted"])
    back = scatter_add_p.bind(
        zeros, indices, ct, dimension_numbers=scattered, update_jaxpr=jaxpr, update_consts=(), **options, **more
    )
    return [back, None]


gather_p.jvp, gather_p.transpose = _gather_jvp, _gather_transpose


# ---- gather of the elements that a scatter writes


def _gathered_numbers(
    array: Any, updates: Any, numbers: ScatterDimensionNumbers
) -> tuple[GatherDimensionNumbers, tuple[int, ...]]:
    """(dimension numbers, slice sizes) of the gather that reads the windows of a scatter."""
    thin = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    window = iter(numbers.update_window_dims)
    sizes = tuple([1 if dim in thin else updates.shape[next(window)] for dim in range(array.ndim)])
    gathered = GatherDimensionNumbers(
        offset_dims=numbers.update_window_dims,
        collapsed_slice_dims=numbers.inserted_window_dims,
        start_index_map=numbers.scatter_dims_to_operand_dims,
        operand_batching_dims=numbers.operand_batching_dims,
        start_indices_batching_dims=numbers.scatter_indices_batching_dims,
    )
    return gathered, sizes


def _windows(array: Any, indices: Any, updates: Any, params: Params, **options: Any) -> Array:
    """The elements of ``array`` that a scatter updates, in the shape of the updates."""
    numbers, sizes = _gathered_numbers(_aval(array), _aval(updates), params["dimension_numbers"])
    return gather(array, indices, numbers, sizes, **options)


# ---- scatter-add, scatter-sub


def _adding_rules(primitive: core.Primitive, negated: bool) -> None:
    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Pair:
        out = primitive.bind(*primals, **params)
        if type(tangents[0]) is Zero and type(tangents[2]) is Zero:
            return out, Zero.from_primal_value(out)
        array, updates = (linear_operations.instantiate(tangents[k]) for k in (0, 2))
        return out, primitive.bind(array, primals[1], updates, **params)

    def transpose(ct: Any, array: Any, indices: Any, updates: Any, **params: Any) -> list[Any]:
        if type(ct) is Zero:
            return [None, None, None]
        back = None
        if is_undefined(updates):
            back = _windows(ct, indices, updates, params, mode=params["mode"], fill_value=0)
            back = arithmetic.neg(back) if negated else back
        return [ct if is_undefined(array) else None, None, back]

    primitive.jvp, primitive.transpose = jvp, transpose


_adding_rules(scatter_add_p, False)
_adding_rules(scatter_sub_p, True)


# ---- scatter-mul


def _need_unique(params: Params) -> None:
    if not params["unique_indices"]:
        raise NotImplementedError(
            "[scatter_mul] derivatives by the updates are only there with unique_indices=True, "
            "which promises that no element is multiplied twice"
        )


def _mul_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Pair:
    array, indices, updates = primals
    out = scatter_mul_p.bind(array, indices, updates, **params)
    total: Any = Zero.from_primal_value(out)
    if type(tangents[0]) is not Zero:
        total = scatter_mul_p.bind(tangents[0], indices, updates, **params)
    if type(tangents[2]) is not Zero:
        _need_unique(params)
        options = _options(params, "dimension_numbers", "indices_are_sorted", "unique_indices")
        scattered = scatter_add(_filled(_aval(array), 0), indices, tangents[2], **options)
        total = linear_operations.add_any(total, arithmetic.mul(array, scattered))
    return out, total


def _mul_transpose(ct: Any, array: Any, indices: Any, updates: Any, **params: Any) -> list[Any]:
    if type(ct) is Zero:
        return [None, None, None]
    if is_undefined(array):
        jaxpr = combination(arithmetic.mul_p, runtime.ShapedArray((), array.aval.dtype), backward=True)
        return [scatter_mul_p.bind(ct, indices, updates, **{**params, "update_jaxpr": jaxpr}), None, None]
    _need_unique(params)
    product = arithmetic.mul(ct, array)
    return [None, None, _windows(product, indices, updates, params, mode=params["mode"], fill_value=0)]


scatter_mul_p.jvp, scatter_mul_p.transpose = _mul_jvp, _mul_transpose


# ---- scatter


def _scatter_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Pair:
    if params["update_jaxpr"] is not None:
        raise NotImplementedError("[scatter_apply] has no derivative; gather, apply and scatter instead")
    array, indices, updates = primals
    if type(tangents[0]) is Zero and type(tangents[2]) is Zero:
        out = scatter_p.bind(array, indices, updates, **params)
        return out, Zero.from_primal_value(out)
    d_array, d_updates = (linear_operations.instantiate(tangents[k]) for k in (0, 2))
    if params["unique_indices"]:
        out = scatter_p.bind(array, indices, updates, **params)
        return out, scatter_p.bind(d_array, indices, d_updates, **params)
    numbers = _write_numbers(_aval(updates), params["dimension_numbers"])
    none = shape.broadcast_in_dim(np.uint32(0), _aval(array).shape, ())
    last = scatter_p.bind(none, indices, numbers, **params)  # for every element the number of its last write, or 0
    met = _windows(last, indices, updates, params)

    def masked(x: Any, u: Any) -> Pair:
        kept = logic.select_n(logic.eq(last, assemble.full_like(last, 0)), assemble.full_like(x, 0), x)
        return kept, logic.select_n(logic.eq(numbers, met), assemble.full_like(u, 0), u)

    pairs = [masked(array, updates), masked(d_array, d_updates)]
    options = _options(params, "dimension_numbers", "indices_are_sorted", "unique_indices")
    out, tangent = [scatter_add(x, indices, u, **options) for x, u in pairs]
    return out, tangent


def _write_numbers(updates: Any, numbers: ScatterDimensionNumbers) -> Array:
    """Windows filled with their own number: 1, 2, ... in order."""
    sizes = tuple([1 if dim in numbers.update_window_dims else n for dim, n in enumerate(updates.shape)])
    count = int(np.prod(sizes, dtype=np.int64))
    if count >= np.iinfo(np.uint32).max:
        raise NotImplementedError(f"[scatter] the derivative of {count} windows; fewer than 2**32 - 1 are supported")
    counted = shape.reshape(assemble.iota(np.uint32, count), sizes)
    return arithmetic.add(counted, shape.broadcast_in_dim(np.uint32(1), updates.shape, ()))


def _scatter_transpose(ct: Any, array: Any, indices: Any, updates: Any, **params: Any) -> list[Any]:
    if not params["unique_indices"]:
        raise NotImplementedError("[scatter] transposition needs unique_indices=True")
    if type(ct) is Zero:
        return [None, None, None]
    back_array = back_updates = None
    if is_undefined(array):
        back_array = scatter_p.bind(ct, indices, _filled(_aval(updates), 0), **params)
    if is_undefined(updates):
        back_updates = _windows(ct, indices, updates, params, mode=params["mode"], fill_value=0)
    return [back_array, None, back_updates]


scatter_p.jvp, scatter_p.transpose = _scatter_jvp, _scatter_transpose


# ---- scatter-min, scatter-max


def _extremal_jvp(primitive: core.Primitive) -> Any:
    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Pair:
        array, indices, updates = primals
        out = primitive.bind(array, indices, updates, **params)
        if type(tangents[0]) is Zero and type(tangents[2]) is Zero:
            return out, Zero.from_primal_value(out)
        d_array, d_updates = (linear_operations.instantiate(tangents[k]) for k in (0, 2))
        options = _options(params, "dimension_numbers", "indices_are_sorted", "unique_indices")

        def read(x: Any) -> Array:
            return _windows(x, indices, updates, params)

        def count(zeros: Array, u: Any) -> Array:
            """For each update, the sum of ``u`` over all updates of the same element."""
            return read(scatter_add(zeros, indices, u, params["dimension_numbers"], mode=params["mode"]))

        before, after = read(array), read(out)
        won, stayed = logic.eq(updates, after), logic.eq(before, after)
        like = _aval(updates)
        one = np.asarray(1, like.dtype)[()]
        zeros, ones = _filled(_aval(array), 0), _filled(like, 1)
        winners = count(zeros, logic.select_n(won, _filled(like, 0), ones))
        met = count(_filled(_aval(array), 0), _filled(like, 1))
        with_old = arithmetic.div(one, arithmetic.add(winners, one))
        share = logic.select_n(stayed, arithmetic.div(one, winners), with_old)
        share = logic.select_n(won, _filled(like, 0), share)
        old_share = arithmetic.div(one, arithmetic.add(winners, one))
        old_share = logic.select_n(stayed, _filled(like, 0), old_share)
        # every update of an element takes an equal share of its tangent from the old value's
        lost = arithmetic.div(arithmetic.add(np.asarray(-1, like.dtype)[()], old_share), met)
        change = arithmetic.add(arithmetic.mul(read(d_array), lost), arithmetic.mul(d_updates, share))
        return out, scatter_add(d_array, indices, change, **options)

    return jvp


for _primitive in (scatter_min_p, scatter_max_p):
    _primitive.jvp, _primitive.transpose = _extremal_jvp(_primitive), None
