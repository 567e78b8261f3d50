"""weft.interpreters.batching: rules by which ``vmap`` runs a primitive on all elements at once.

    batching.primitive_batchers[p] = rule(values, dims, **params) -> results, dims of results
    batching.axis_primitive_batchers[p] = rule(axis_size, axis_name, None, values, dims, **params)
    batching.fancy_primitive_batchers[p] = rule(axis_data, values, dims, **params)

A rule gets whole values, and for each the dimension that is mapped over, or ``not_mapped`` (None).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.batching import batch_trace, vmap
from weft.batching.batch_trace import BatchTrace, BatchTracer
from weft.core.axis_names import Axis as AxisData
from weft.core.primitive import MISSING, Primitive
from weft.interpreters.rule_tables import RuleTable
from weft.operations import mapped
from weft.operations.data_movement import shape

not_mapped = None

__all__ = [
    "AxisData", "BatchTrace", "BatchTracer", "axis_primitive_batchers", "bdim_at_front", "broadcast",
    "broadcast_batcher", "defbroadcasting", "defreducer", "defvectorized", "expand_dims_batcher",
    "fancy_primitive_batchers", "moveaxis", "not_mapped", "primitive_batchers", "reducer_batcher",
    "register_vmappable", "unregister_vmappable", "vectorized_batcher",
]  # fmt: skip


# -- the tables -------------------------------------------------------------------------------------------------------


def _install(primitive: Primitive, rule: Any) -> None:
    primitive.batch, primitive.batch_axis = MISSING if rule is None else rule, None
    primitive.always_batched = False


def _install_simple(primitive: Primitive, rule: Any) -> None:
    _install(primitive, rule and (lambda size, values, dims, **params: rule(values, dims, **params)))


def _install_fancy(primitive: Primitive, rule: Any) -> None:
    _install(primitive, None)
    primitive.batch_axis = rule
    primitive.always_batched = rule is not None


def _install_axis(primitive: Primitive, rule: Any) -> None:
    _install_fancy(
        primitive,
        rule and (lambda axis, values, dims, **params: rule(axis.size, axis.name, None, values, dims, **params)),
    )


def _own_fancy(primitive: Primitive) -> Any:
    by_size, general = primitive.batch, batch_trace.BY_KIND.get(type(primitive.kind))
    if primitive.batch_axis is not None:
        return primitive.batch_axis
    if by_size is not MISSING and by_size is not None:
        return lambda axis, values, dims, **params: by_size(axis.size, list(values), list(dims), **params)
    return general and (
        lambda axis, values, dims, **params: general(primitive, axis.size, list(values), list(dims), params)
    )


def _own_axis(primitive: Primitive) -> Any:
    rule = _own_fancy(primitive)
    return rule and (
        lambda size, name, trace, values, dims, **params: rule(AxisData(size, name), values, dims, **params)
    )


def _own_simple(primitive: Primitive) -> Any:
    rule = _own_fancy(primitive)
    return rule and (lambda values, dims, **params: rule(AxisData(_mapped_size(values, dims)), values, dims, **params))


def _mapped_size(values: Sequence[Any], dims: Sequence[Any]) -> int:
    """The number of elements that are mapped over."""
    return next(np.shape(value)[dim] for value, dim in zip(values, dims, strict=True) if dim is not None)


primitive_batchers = RuleTable("primitive_batchers", _install_simple, _own_simple)
axis_primitive_batchers = RuleTable("axis_primitive_batchers", _install_axis, _own_axis)
fancy_primitive_batchers = RuleTable("fancy_primitive_batchers", _install_fancy, _own_fancy)


# -- moving dimensions ------------------------------------------------------------------------------------------------


def moveaxis(x: Any, src: int, dst: int) -> Any:
    """The value with dimension ``src`` moved to ``dst``; negative numbers count from the end."""
    rank = len(np.shape(x))
    return mapped.at(x, src % rank, dst % rank)


def broadcast(x: Any, sz: int, axis: int, mesh_axis: Any = None) -> Any:
    """The value repeated along a new dimension ``axis`` of size ``sz``."""
    return mapped.repeated(sz, x, axis)


def bdim_at_front(x: Any, bdim: int | None, size: int, mesh_axis: Any = None) -> Any:
    """The value with its mapped dimension first; repeated ``size`` times if it has none."""
    return mapped.in_front(size, x, bdim)


# -- rules for common cases -------------------------------------------------------------------------------------------


def _results(primitive: Primitive, out: Any, dim: Any) -> tuple[Any, Any]:
    return (out, [dim] * len(out)) if primitive.multiple_results else (out, dim)


def vectorized_batcher(
    prim: Primitive, axis_data: Any, values: Sequence[Any], dims: Sequence[Any], **params: Any
) -> Any:
    """The rule of a primitive that works on elements, of operands that are all mapped along one dimension."""
    if any(dim != dims[0] for dim in dims):
        raise ValueError(
            f"[defvectorized] '{prim}' takes operands mapped along one dimension, got {tuple(dims)}: use "
            "batching.defbroadcasting for operands that are not all mapped"
        )
    return _results(prim, prim.bind(*values, **params), dims[0])


def defvectorized(prim: Primitive) -> None:
    """The primitive works on elements, of operands that are all mapped alike."""
    primitive_batchers[prim] = lambda values, dims, **params: vectorized_batcher(prim, None, values, dims, **params)


def broadcast_batcher(
    prim: Primitive, axis_data: Any, values: Sequence[Any], dims: Sequence[Any], **params: Any
) -> Any:
    """The rule of a primitive that works on elements and broadcasts its operands as NumPy does."""
    shapes = [np.shape(x) for x in values]
    first = next((s, dim) for s, dim in zip(shapes, dims, strict=True) if dim is not None)
    if all((s, dim) == first for s, dim in zip(shapes, dims, strict=True) if s):
        return _results(prim, prim.bind(*values, **params), first[1])
    led = [mapped.in_front(1, x, dim) if s else x for x, s, dim in zip(values, shapes, dims, strict=True)]
    rank = max(len(np.shape(x)) for x in led)
    filled = [
        x if dim is None or len(np.shape(x)) == rank else shape.expand_dims(x, tuple(range(len(np.shape(x)), rank)))
        for x, dim in zip(led, dims, strict=True)
    ]
    return _results(prim, prim.bind(*filled, **params), 0)


def defbroadcasting(prim: Primitive) -> None:
    """The primitive works on elements and broadcasts its operands."""
    primitive_batchers[prim] = lambda values, dims, **params: broadcast_batcher(prim, None, values, dims, **params)


def reducer_batcher(
    prim: Primitive, axis_data: Any, values: Sequence[Any], dims: Sequence[Any], axes: Sequence[int], **params: Any
) -> Any:
    """The rule of a primitive that removes the dimensions ``axes`` of its one operand."""
    (operand,), (dim,) = values, dims
    moved = tuple([axis + (axis >= dim) for axis in axes])
    return prim.bind(operand, axes=moved, **params), dim - sum(axis < dim for axis in moved)


def defreducer(prim: Primitive, identity: Any = None) -> None:
    """The primitive has one operand, and takes away its dimensions ``axes``."""
    primitive_batchers[prim] = lambda values, dims, **params: reducer_batcher(prim, None, values, dims, **params)


def expand_dims_batcher(prim: Primitive, values: Sequence[Any], dims: Sequence[Any], **params: Any) -> Any:
    """The rule of a primitive that lets all its operands have leading dimensions in common."""
    size = _mapped_size(values, dims)
    return _results(prim, prim.bind(*mapped.all_in_front(size, values, dims), **params), 0)


def register_vmappable(
    kind: type, spec_type: type, axis_size_type: type, to_elt: Any, from_elt: Any, make_iota: Any
) -> None:
    """Declare that vmap takes values of ``kind`` apart by rules of their own; using it raises NotImplementedError.

    weft maps over arrays, and over pytrees of arrays: a type that is one of those needs no registration.
    """
    vmap.refused[kind] = spec_type


def unregister_vmappable(kind: type) -> None:
    """Take a declaration back."""
    vmap.refused.pop(kind, None)
