"""The trace of ``vmap``: runs every operation of the mapped function on arrays with one more dimension.

``BatchTrace`` runs each operation by its batching rule, in the trace that encloses the mapped call. A value that does
not depend on a mapped argument is not a tracer here, and is computed once. A batching rule has the form
``batch(size, values, dims, **params)`` and returns the result and its mapped dimension; the dimension of a value that
is not mapped is None. A rule shared by all operations of a kind is in this module, others are with the operation.
Operations that refer to the name of the mapped dimension (collectives, primitives with jaxprs as parameters) have a
rule ``batch_axis(axis, values, dims, **params)`` instead.

    mul x:f32[3,2] at 0, y:f32[2]      ->      mul x (broadcast_in_dim y to f32[1,2]), at 0
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import config
from weft._base import lazy
from weft.core import avals, axis_names, kinds
from weft.core.axis_names import Axis
from weft.core.primitive import MISSING, missing_rule
from weft.core.programs.eval import eval_jaxpr
from weft.core.programs.jaxpr import ClosedJaxpr
from weft.core.symbolic.sizes import keeper
from weft.core.tracing import provenance
from weft.core.tracing import trace as tracing
from weft.core.tracing.trace import Trace, set_current
from weft.core.tracing.tracer import Tracer
from weft.operations.data_movement import shape
from weft.operations.mapped import Dim, all_in_front, at, in_front

state = tracing.state


class BatchTracer(Tracer):
    """A value seen without its mapped dimension ``dim``."""

    __slots__ = ("dim", "value")

    def __init__(self, trace: Trace, value: Any, dim: int) -> None:
        whole = avals.get_aval(value)
        self._trace = trace
        self.aval = without_dim(whole, dim)
        self.value = value
        self.dim = dim

    def __repr__(self) -> str:
        return (
            f"BatchTracer(aval={avals.short_text(self.aval)}, batched={avals.short_text(avals.get_aval(self.value))})"
        )

    def _origin(self) -> provenance.Origin | None:
        return self.value._origin() if isinstance(self.value, Tracer) else None


class BatchTrace(Trace):
    """Operations on mapped values; ``parent`` is the trace that encloses the mapped call."""

    __slots__ = ("axis", "parent")

    def __init__(self, parent: Trace, axis: Axis) -> None:
        super().__init__(state.level + 1)
        self.parent = parent
        self.axis = axis

    @property
    def records_tangents(self) -> bool:  # type: ignore[override] - a constant of other traces' classes
        return self.parent.records_tangents

    def owns(self, value: Any) -> bool:
        """Whether ``value`` is a tracer of this trace, and its whole value one of the enclosing trace."""
        return type(value) is BatchTracer and value._trace is self and self.parent.owns(value.value)

    def process(self, primitive: Any, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        values, dims = self.split(args)
        name = self.axis.name
        with set_current(self.parent):
            untouched = all(dim is None for dim in dims) and not primitive.always_batched
            if untouched and (name is None or not axis_names.concerned(primitive, params, name)):
                return self.parent.process(primitive, tuple(values), params)
            out, out_dims = batched(primitive, self.axis, values, dims, params)
        if primitive.multiple_results:
            return [self.join(x, d) for x, d in zip(out, out_dims, strict=True)]
        return self.join(out, out_dims)

    def split(self, args: Sequence[Any]) -> tuple[list[Any], list[Dim]]:
        """(whole values, their mapped dimensions)."""
        values: list[Any] = []
        dims: list[Dim] = []
        for x in args:
            if isinstance(x, BatchTracer) and (x._trace is self or self._again(x._trace)):
                values.append(x.value)
                dims.append(x.dim)
                continue
            is_host = isinstance(x, np.ndarray | np.generic)
            values.append(tracing.wide(x) if is_host and avals.host_aval(x, args).dtype is x.dtype else x)
            dims.append(None)
        return values, dims

    def _again(self, trace: Any) -> bool:
        """Whether ``trace`` is of the same call of ``vmap``: a rule of derivatives is mapped in a trace of its own, and
        may have captured values of the function that it belongs to."""
        return trace.valid and trace.axis is self.axis

    def join(self, value: Any, dim: Dim) -> Any:
        return value if dim is None else BatchTracer(self, value, dim)


def batched(primitive: Any, axis: Axis, values: Sequence[Any], dims: Sequence[Dim], params: dict[str, Any]) -> Any:
    """(result, its dimension) of an operation on whole values; lists of them with ``multiple_results``."""
    if primitive.batch_axis is not None:
        return primitive.batch_axis(axis, list(values), list(dims), **params)
    if primitive.batch is not MISSING:
        return primitive.batch(axis.size, list(values), list(dims), **params)
    general = BY_KIND.get(type(primitive.kind))
    if general is not None:
        return general(primitive, axis.size, list(values), list(dims), params)
    raise missing_rule(
        primitive,
        f"Batching rule for '{primitive.name}' not implemented",
        "batching.primitive_batchers[{name}] = rule, where rule(values, dims, **params) gives (results, their dims)",
    )


# -- kinds ------------------------------------------------------------------------------------------------------------


def _elementwise(primitive: Any, size: int, values: list[Any], dims: list[Dim], params: dict[str, Any]) -> Any:
    out, dim = elementwise(lambda *args: primitive.bind(*args, **params), values, dims)
    return ([out], [dim]) if primitive.multiple_results else (out, dim)


def elementwise(bind: Callable[..., Any], values: list[Any], dims: list[Dim]) -> tuple[Any, int]:
    """Apply an elementwise operation: mapped dimensions that agree stay, otherwise all are moved to the front."""
    shapes = [avals.get_aval(value).shape for value in values]
    mapped = {(s, d) for s, d in zip(shapes, dims, strict=True) if d is not None}
    if len(mapped) == 1 and all(d is not None or s == () for s, d in zip(shapes, dims, strict=True)):
        ((_, dim),) = mapped
        return bind(*values), dim
    rank = max(len(s) - (d is not None) for s, d in zip(shapes, dims, strict=True))
    led = [_mapped_first(v, s, d, rank) for v, s, d in zip(values, shapes, dims, strict=True)]
    return bind(*[_filled(v, d, rank) for v, d in zip(led, dims, strict=True)]), 0


def _mapped_first(value: Any, extents: tuple[int, ...], dim: Dim, rank: int) -> Any:
    """The value with its mapped dimension first, or with a first dimension of extent 1 if it is not mapped."""
    if dim is not None:
        return at(value, dim, 0)
    return value if extents == () or rank == 0 else shape.expand_dims(value, (0,))


def _filled(value: Any, dim: Dim, rank: int) -> Any:
    """A mapped value with dimensions of extent 1 inserted behind the first, so that ``rank`` dimensions follow it."""
    own = avals.get_aval(value).ndim
    return value if dim is None or own > rank else shape.expand_dims(value, tuple(range(own, rank + 1)))


def _reduction(primitive: Any, size: int, values: list[Any], dims: list[Dim], params: dict[str, Any]) -> Any:
    word = "axes" if "axes" in params else "dimensions"
    if word not in params or len(set(dims)) != 1:
        values, dims = all_in_front(size, values, dims), [0] * len(values)
    dim = dims[0]
    assert dim is not None
    axes = tuple([axis + (axis >= dim) for axis in params[word]])
    out = primitive.bind(*values, **{**params, word: axes})
    moved = dim - sum(axis < dim for axis in axes)
    return (out, [moved] * len(out)) if primitive.multiple_results else (out, moved)


def _cumulative(primitive: Any, size: int, values: list[Any], dims: list[Dim], params: dict[str, Any]) -> Any:
    (dim,) = dims
    assert dim is not None
    axis = params["axis"]
    return primitive.bind(*values, **{**params, "axis": axis + (axis >= dim)}), dim


def _identity(primitive: Any, size: int, values: list[Any], dims: list[Dim], params: dict[str, Any]) -> Any:
    out = primitive.bind(*values, **params)
    return (out, dims) if primitive.multiple_results else (out, dims[0])


def _resolve(primitive: Any, size: int, values: list[Any], dims: list[Dim], params: dict[str, Any]) -> Any:
    """Batch a compound operation by batching the operations it expands to."""

    def flat(*args: Any) -> list[Any]:
        out = primitive.kind.expand(*args, **params)
        return list(out) if isinstance(out, (tuple, list)) else [out]

    outs, out_dims = map_flat(flat, Axis(size), values, dims)
    return (outs, out_dims) if primitive.multiple_results else (outs[0], out_dims[0])


BY_KIND: dict[type, Callable[..., Any]] = {
    kinds.Elementwise: _elementwise,
    kinds.Reduction: _reduction,
    kinds.Cumulative: _cumulative,
    kinds.Identity: _identity,
    kinds.Resolve: _resolve,
}


# -- programs ---------------------------------------------------------------------------------------------------------


def map_flat(
    fun: Callable[..., Sequence[Any]], axis: Axis, values: Sequence[Any], dims: Sequence[Dim]
) -> tuple[list[Any], list[Dim]]:
    """(results, their mapped dimensions) of a function on flat lists."""
    trace = BatchTrace(state.trace, axis)
    try:
        with axis_names.bound_axis(axis), set_current(trace):
            outs = list(fun(*[trace.join(x, d) for x, d in zip(values, dims, strict=True)]))
        result = trace.split(outs)
    finally:
        trace.valid = False
    if config.read("check_tracer_leaks"):
        lazy.leaks.watch(trace)
    return result


def batch_jaxpr(
    closed: ClosedJaxpr, axis: Axis, dims: tuple[Dim, ...], wanted: tuple[bool, ...] | None = None
) -> tuple[ClosedJaxpr, tuple[Dim, ...]]:
    """The program on whole values and the mapped dimensions of its results; memoised on the program.

    Results marked in ``wanted`` are mapped even if they depend on no mapped value; with ``wanted`` given, every mapped
    dimension is moved to 0.
    """
    key: Any = ("batch", axis, dims, wanted, tuple([id(const) for const in closed.consts]))
    if keeper(key) is not None:
        return _batch_jaxpr(closed, axis, dims, wanted)
    return closed.jaxpr.memoize(key, lambda jaxpr: (*_batch_jaxpr(closed, axis, dims, wanted), closed.consts))[:2]


def _batch_jaxpr(
    closed: ClosedJaxpr, axis: Axis, dims: tuple[Dim, ...], wanted: tuple[bool, ...] | None
) -> tuple[ClosedJaxpr, tuple[Dim, ...]]:
    jaxpr, size = closed.jaxpr, axis.size
    out_dims: list[Dim] = []

    def flat(*values: Any) -> list[Any]:
        outs, found = map_flat(lambda *args: eval_jaxpr(jaxpr, closed.consts, *args), axis, values, dims)
        if wanted is not None:
            outs = [
                in_front(size, out, dim) if want or dim is not None else out
                for out, dim, want in zip(outs, found, wanted, strict=True)
            ]
            found = [0 if want or dim is not None else None for dim, want in zip(found, wanted, strict=True)]
        out_dims[:] = found
        return outs

    in_avals = [with_dim(v.aval, size, dim) for v, dim in zip(jaxpr.invars, dims, strict=True)]
    made, _ = tracing.trace_to_jaxpr(flat, in_avals, jaxpr.debug_info, of_program=True)
    return made, tuple(out_dims)


def with_dim(aval: Any, size: int, dim: Dim) -> Any:
    """The type of the whole value, given that of an element."""
    if dim is None:
        return aval
    if getattr(aval, "explicit_sharding", None) is not None:
        return lazy.explicit.with_dimension(aval, dim, size)
    return aval.update(shape=(*aval.shape[:dim], size, *aval.shape[dim:]))


def without_dim(aval: Any, dim: Dim) -> Any:
    """The type of an element, given that of the whole value."""
    if dim is None:
        return aval
    if getattr(aval, "explicit_sharding", None) is not None:
        return lazy.explicit.without_dimension(aval, dim)
    return aval.update(shape=(*aval.shape[:dim], *aval.shape[dim + 1 :]))
