"""The element of each window that a comparison selects: derivatives of maxima and minima of windows.

``select_and_gather_add`` takes the tangent of that element, ``select_and_scatter_add`` gives it the cotangent of its
window, ``select_and_scatter`` does so by any two computations. The selected element is the first for which the
comparison with all later ones holds: of equal elements the first, and an element after a NaN rather than the NaN.

A scatter is computed the other way around: each element adds up the windows that contain it and have selected it.
Which tap a window has selected is found first, as a small integer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import core, runtime
from weft.core import kinds
from weft.core.primitive import registry
from weft.core.tangents import along
from weft.core.window_maps import WindowMap
from weft.operations import general_reduce, mapped, reductions
from weft.operations.later import ops
from weft.operations.pointwise import arithmetic
from weft.operations.pointwise.elementwise import FLOAT, check_dtype, widened
from weft.operations.windowed import window_folds, windows
from weft.runtime import Array

__all__ = ["select_and_gather_add_p", "select_and_scatter_add_p", "select_and_scatter_p"]

Params = dict[str, Any]
Select = Callable[[Any, Any], Any]  # whether the first of two arrays' elements is kept
MOST_WRITTEN = 4096  # regions times taps of a scatter by a computation of the user


def _check_params(name: str, params: Params, source: Any, operand: Any) -> None:
    shape = windows.check_windows(name, operand, params)
    if source.shape != shape:
        raise ValueError(
            f"[{name}] there are {shape} windows in an operand {operand.str_short()}, but the source is "
            f"{source.str_short()}"
        )


def identity_of(select_prim: Any, operand: Any) -> Any:
    """The identity of the extremum that a comparison selects, as a scalar of the operand's dtype."""
    identity = reductions.lowest if select_prim is ops.ge_p else reductions.highest
    return np.asarray(identity(operand.dtype)).astype(operand.dtype)[()]


# ---- which element is selected


def _selected_taps(where: WindowMap, operand: Any, select: Select, absent: Any) -> Array:
    """The number of the tap that each window selects; one past the last where it selects none.

    Taps that do not exist are elements of the value ``absent``, or left out where that is None.
    """
    dtype, none = np.dtype(np.uint8 if where.taps < 256 else np.int32), where.taps

    def body(taps: window_folds.Taps, counts: tuple[int, ...]) -> list[Array]:
        values = {where.number(tap): value for tap, (value,) in taps}
        best, chosen = None, ops.full(counts, dtype.type(none))
        for number in range(where.taps) if absent is not None and taps else values:
            value = values[number] if number in values else ops.full(counts, absent)
            mine = ops.full(counts, dtype.type(number if number in values else none))
            if best is None:
                best, chosen = value, mine
                continue
            keeps = select(best, value)
            best, chosen = ops.select(keeps, best, value), ops.select(keeps, chosen, mine)
        return [chosen]

    return window_folds.by_regions(where, [operand], body)[0]


def _selected_positions(where: WindowMap, operand: Any, select: Select, absent: Any) -> Array:
    """The position of the element that each window selects, in row-major order; the size where it selects none."""
    positions = ops.reshape(ops.iota(np.int32, operand.size), operand.shape)
    empty = [absent, np.False_, np.int32(operand.size)]
    how = window_folds.Fold(_in_any_order(select), empty, starts=False, neutral=True)
    return window_folds.fold(where, [operand, ops.ne(operand, operand), positions], how)[2]


def _in_order(select: Select) -> window_folds.Combine:
    """The selection of (element, value) from pairs that come one after the other."""

    def combine(left: list[Any], right: list[Any]) -> list[Array]:
        keeps = select(left[0], right[0])
        return [ops.select(keeps, a, b) for a, b in zip(left, right, strict=True)]

    return combine


def _in_any_order(select: Select) -> window_folds.Combine:
    """A selection of (element, whether there is a NaN, value): with NaN, comparisons alone are not associative.

    A NaN is never kept against a later element, so the second of two parts is taken if it has a NaN.
    """

    def combine(left: list[Any], right: list[Any]) -> list[Array]:
        keeps = ops.bitwise_and(select(left[0], right[0]), ops.bitwise_not(right[1]))
        element, value = (ops.select(keeps, left[i], right[i]) for i in (0, 2))
        return [element, ops.bitwise_or(left[1], right[1]), value]

    return combine


# ---- scatters, from the elements' side


def _scattered(
    where: WindowMap, operand: Any, source: Any, init: Any, select: Select, scatter: Select, absent: Any = None
) -> Array:
    """The combination of ``init`` and the sources of all windows that select an element, for every element.

    ``absent`` is the identity of the extremum if sources are added up from zero, and None for other computations.
    """
    adds = absent is not None
    shape = operand.shape
    if not source.size or not operand.size:
        return ops.broadcast_in_dim(init, shape, ())
    back = where.transposed(shape)
    regions = window_folds.region_count(back, source.shape)
    written = regions * back.taps
    if adds and (where.taps > window_folds.MOST_TAPS or not _is_short(where, back, operand, source)):
        return _by_positions(where, operand, source, init, select, absent)
    if not adds and max(written, where.taps) > MOST_WRITTEN:
        raise NotImplementedError(
            f"[select_and_scatter] windows of {where.taps} elements at {regions} regions are more than {MOST_WRITTEN}; "
            "select_and_scatter_add has no such bound"
        )
    taps = ops.optimization_barrier(_selected_taps(where, operand, select, absent))  # stored once, read by several
    if window_folds.in_blocks(back):
        return _in_blocks(where, back, taps, source, init, scatter)

    def body(taps_of: window_folds.Taps, counts: tuple[int, ...]) -> list[Array]:
        out = ops.broadcast_in_dim(init, counts, ())
        for tap, (chosen, value) in taps_of:
            number = where.taps - 1 - back.number(tap)
            hit = ops.eq(chosen, ops.full(counts, chosen.dtype.type(number)))
            if adds:
                out = ops.add(out, ops.select(hit, value, ops.full_like(value, 0)))
            else:
                out = ops.select(hit, scatter(out, value), out)
        return [out]

    return window_folds.by_regions(back, [taps, source], body)[0]


def _is_short(where: WindowMap, back: WindowMap, operand: Any, source: Any) -> bool:
    """Whether regions and taps are few enough to be written out."""
    if window_folds.region_count(where, operand.shape) > window_folds.MOST_REGIONS:
        return False
    if window_folds.in_blocks(back):
        return True
    regions = window_folds.region_count(back, source.shape)
    return regions <= window_folds.MOST_REGIONS and back.taps <= window_folds.MOST_TAPS


def _in_blocks(where: WindowMap, back: WindowMap, taps: Any, source: Any, init: Any, scatter: Select) -> Array:
    """Windows that do not overlap: an element is in one of them at most."""

    def body(values: list[Any], positions: list[Any]) -> Array:
        chosen, value = values
        number = None
        for position, one in zip(positions, [one for one in where.along if not one.is_trivial], strict=True):
            scaled = position if number is None else ops.mul(number, np.int32(one.window))
            number = position if number is None else ops.add(scaled, position)
        hit = ops.eq(ops.convert_element_type(chosen, np.int32), number)
        start = ops.broadcast_in_dim(core.wide(init), value.shape, ())
        return ops.select(hit, scatter(start, value), start)

    return window_folds.blocks(back, [taps, source], init, body)


def _by_positions(where: WindowMap, operand: Any, source: Any, init: Any, select: Select, absent: Any) -> Array:
    """Large windows: one addition for each window, at the position that it selects."""
    positions = _selected_positions(where, operand, select, absent)
    flat = ops.broadcast_in_dim(init, (operand.size,), ())
    numbers = ops.ScatterDimensionNumbers((), (0,), (0,))
    indices = ops.reshape(positions, (source.size, 1))
    return ops.reshape(ops.scatter_add(flat, indices, ops.reshape(source, (source.size,)), numbers), operand.shape)


# ---- select_and_scatter_add


def _scatter_add_typing(source: Any, operand: Any, *, select_prim: Any, **params: Any) -> Any:
    check_dtype("select_and_scatter_add", 1, operand, FLOAT)
    if source.dtype != operand.dtype:
        raise TypeError(
            f"[select_and_scatter_add] source and operand must have one dtype, got {source.str_short()} and "
            f"{operand.str_short()}"
        )
    _check_params("select_and_scatter_add", params, source, operand)
    return runtime.ShapedArray(operand.shape, source.dtype, False)


def _scatter_add(source: Any, operand: Any, *, select_prim: Any, **params: Any) -> Array:
    wide = widened(source.dtype)
    widen = source if wide == source.dtype else ops.convert_element_type(source, wide)
    where = windows.window_map(params)
    out = _scattered(
        where, operand, widen, wide.type(0), select_prim.bind, arithmetic.add, identity_of(select_prim, operand)
    )
    return out if wide == source.dtype else ops.convert_element_type(out, source.dtype)


select_and_scatter_add_p = core.Primitive("select_and_scatter_add", kinds.Resolve(expand=_scatter_add))
select_and_scatter_add_p.def_abstract_eval(_scatter_add_typing)


def _scatter_add_transpose(ct: Any, source: Any, operand: Any, *, select_prim: Any, **params: Any) -> tuple[Any, None]:
    ones = (1,) * len(params["window_dimensions"])
    dilations = {"base_dilation": ones, "window_dilation": ones}
    return select_and_gather_add_p.bind(ct, operand, select_prim=select_prim, **params, **dilations), None


def _rebound(primitive_name: str) -> Callable[..., Any]:
    def rule(tangent: Any, out: Any, _: Any, operand: Any, **params: Any) -> Any:
        return registry[primitive_name].bind(tangent, operand, **params)

    return rule


def _batch(size: int, values: list[Any], dims: list[mapped.Dim], primitive: Any, **params: Any) -> Any:
    return primitive.bind(*mapped.all_in_front(size, values, dims), **windows.in_front(params)), 0


select_and_scatter_add_p.partials = (along(_rebound("select_and_scatter_add")), None)
select_and_scatter_add_p.transpose = _scatter_add_transpose
select_and_scatter_add_p.batch = lambda size, values, dims, **params: _batch(
    size, values, dims, select_and_scatter_add_p, **params
)

# ---- select_and_gather_add


def _gather_add_typing(tangents: Any, operand: Any, *, select_prim: Any, **params: Any) -> Any:
    check_dtype("select_and_gather_add", 1, operand, FLOAT)
    if tangents.shape != operand.shape or tangents.dtype != operand.dtype:
        raise TypeError(
            f"[select_and_gather_add] tangents and operand must have one type, got {tangents.str_short()} and "
            f"{operand.str_short()}"
        )
    shape = windows.check_windows("select_and_gather_add", operand, params)
    return runtime.ShapedArray(shape, tangents.dtype, False)


def _gather_add(tangents: Any, operand: Any, *, select_prim: Any, **params: Any) -> Array:
    """A fold of pairs, which begins with the identity of the extremum and tangent zero."""
    where, identity, zero = windows.window_map(params), identity_of(select_prim, operand), operand.dtype.type(0)
    if where.taps > window_folds.MOST_TAPS:
        combine, empty = _in_any_order(select_prim.bind), [identity, np.False_, zero]
        given = [operand, ops.ne(operand, operand), tangents]
    else:
        combine, empty, given = _in_order(select_prim.bind), [identity, zero], [operand, tangents]
    return window_folds.fold(where, given, window_folds.Fold(combine, empty, starts=True, neutral=False))[-1]


select_and_gather_add_p = core.Primitive("select_and_gather_add", kinds.Resolve(expand=_gather_add))
select_and_gather_add_p.def_abstract_eval(_gather_add_typing)


def _gather_add_transpose(ct: Any, tangents: Any, operand: Any, *, select_prim: Any, **params: Any) -> tuple[Any, None]:
    """The scatter. A spread operand is scattered with its gaps filled, which are cut out of the result again."""
    base, dilation = params["base_dilation"], params["window_dilation"]
    if any(d != 1 for d in dilation):
        raise NotImplementedError(
            f"[select_and_gather_add] maxima and minima of windows with window_dilation {dilation} have no gradient; "
            "forward differentiation (weft.jvp) has"
        )
    spread = any(d != 1 for d in base)
    if spread:
        operand = ops.pad(operand, identity_of(select_prim, operand), [(0, 0, d - 1) for d in base])
    names = ("window_dimensions", "window_strides", "padding")
    out = select_and_scatter_add_p.bind(ct, operand, select_prim=select_prim, **{name: params[name] for name in names})
    return (ops.slice(out, (0,) * out.ndim, out.shape, base) if spread else out), None


select_and_gather_add_p.partials = (along(_rebound("select_and_gather_add")), None)
select_and_gather_add_p.transpose = _gather_add_transpose
select_and_gather_add_p.batch = lambda size, values, dims, **params: _batch(
    size, values, dims, select_and_gather_add_p, **params
)

# ---- select_and_scatter


def _scatter_typing(operand: Any, source: Any, init: Any, **params: Any) -> Any:
    if init.shape or init.dtype != source.dtype or source.dtype != operand.dtype:
        listed = ", ".join(aval.str_short() for aval in (operand, source, init))
        raise TypeError(f"[select_and_scatter] operand, source and a scalar must have one dtype, got {listed}")
    _check_params("select_and_scatter", params, source, operand)
    return runtime.ShapedArray(operand.shape, source.dtype, False)


def _computed(jaxpr: Any) -> Select:
    closed = jaxpr if isinstance(jaxpr, core.ClosedJaxpr) else core.ClosedJaxpr(jaxpr, [])
    general_reduce.check_elementwise(closed.jaxpr, "select_and_scatter")

    def run(left: Any, right: Any) -> Array:
        shape = left.shape
        (out,) = general_reduce.combined(closed, [left], [right])
        return out if core.get_aval(out).shape == shape else ops.broadcast_in_dim(out, shape, ())

    return run


def _scatter(operand: Any, source: Any, init: Any, **params: Any) -> Array:
    select, scatter = _computed(params["select_jaxpr"]), _computed(params["scatter_jaxpr"])
    return _scattered(windows.window_map(params), operand, source, init, select, scatter)


select_and_scatter_p = core.Primitive("select_and_scatter", kinds.Resolve(expand=_scatter), memoize=False)
select_and_scatter_p.def_abstract_eval(_scatter_typing)
select_and_scatter_p.jvp, select_and_scatter_p.transpose = None, None


def _scatter_batch(size: int, values: list[Any], dims: list[mapped.Dim], **params: Any) -> Any:
    if dims[2] is not None:
        raise NotImplementedError("[select_and_scatter] vmap over the initial value is not supported")
    operand, source = mapped.all_in_front(size, values[:2], dims[:2])
    return select_and_scatter_p.bind(operand, source, values[2], **windows.in_front(params)), 0


select_and_scatter_p.batch = _scatter_batch
