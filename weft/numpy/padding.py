"""``pad`` in all of NumPy's modes.

A constant is one ``pad`` equation (one per side if the constants differ); the other modes concatenate slices,
reflections or statistics of the array along one axis after the other::

    pad(f32[3], 1)               ->  jit[name=_pad]: pad[padding_config=((1, 1, 0),)]
    pad(f32[4], 1, mode="edge")  ->  jit[name=_pad]: slice, broadcast_in_dim, reshape, ..., concatenate
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import core, dtypes, errors, runtime
from weft import operations as lax
from weft._base.array import Array
from weft.core.symbolic import open_sizes
from weft.dispatch.calls import jit as jit_module
from weft.numpy import promotion, quantiles, rearrange, reductions, small_copies, statistics
from weft.numpy.array_creation import creation, even_spacing
from weft.numpy.pointwise import rounding, vectorized

jit = jit_module.jit

Widths = tuple[tuple[Any, Any], ...]
_STATISTICS: dict[str, Callable[..., Any]] = {
    "maximum": reductions.max,
    "minimum": reductions.min,
    "mean": statistics.mean,
    "median": quantiles.median,
}
_OPTIONS = {
    "constant": ("constant_values",),
    "linear_ramp": ("end_values",),
    "reflect": ("reflect_type",),
    "symmetric": ("reflect_type",),
    **dict.fromkeys(("maximum", "minimum", "mean", "median"), ("stat_length",)),
    **dict.fromkeys(("edge", "empty", "wrap"), ()),
}


def pad(array: Any, pad_width: Any, mode: str = "constant", **kwargs: Any) -> Array:
    """``array`` with more elements before and after along each axis.

    ``mode`` is constant (``constant_values``), edge, empty, linear_ramp (``end_values``), maximum, minimum, mean,
    median (``stat_length``), reflect, symmetric (``reflect_type``) or wrap. ``pad_width`` is a number, a pair, or a
    pair for each axis. NotImplementedError for other modes.

    A function as ``mode`` is called as ``mode(row, (before, after), axis, kwargs)`` for every row along each axis in
    turn, after zeros were added, and gives the row as it shall be.

    >>> pad(weft.numpy.arange(2), 1).tolist()
    [0, 0, 1, 0]
    """
    if type(pad_width) is int and mode == "constant" and not kwargs and type(array) is runtime.Array:
        found = small_copies.padded(array, 0, ((pad_width, pad_width),) * array.ndim)  # the commonest call
        if found is not None:
            return found
    promotion.check_arraylike("pad", array)
    if callable(mode):
        return _pad_by_function(array, _pairs(pad_width, len(promotion.shape_of(array)), "pad_width"), mode, kwargs)
    if mode not in _OPTIONS:
        raise NotImplementedError(f"Unimplemented padding mode '{mode}' for np.pad.")
    unexpected = set(kwargs) - set(_OPTIONS[mode])
    if unexpected:
        raise ValueError(f"unsupported keyword arguments for mode '{mode}': {unexpected}")
    rank = len(promotion.shape_of(array))
    widths = _pairs(pad_width, rank, "pad_width")
    lengths = None if kwargs.get("stat_length") is None else _pairs(kwargs["stat_length"], rank, "stat_length")
    reflect_type = kwargs.get("reflect_type", "even")
    values = kwargs.get("constant_values", 0)
    if mode == "constant" and not isinstance(values, list | tuple) and promotion.shape_of(values) == ():
        found = small_copies.padded(array, values, widths)
        return found if found is not None else _pad_evenly(array, values, widths=widths)
    ends = ()
    if mode == "linear_ramp":
        ends = tuple(map(tuple, np.broadcast_to(np.asarray(kwargs.get("end_values", 0)), (rank, 2)).tolist()))
    return _pad(
        array,
        values,
        widths=widths,
        mode=mode,
        lengths=lengths,
        reflect_type=reflect_type,
        ends=ends,
    )


def _pairs(value: Any, rank: int, name: str) -> Widths:
    """A number, a pair or a list of pairs as one pair per axis."""
    if type(value) is int and 0 <= value < 1 << 32:
        return ((np.int64(value), np.int64(value)),) * rank
    if isinstance(value, dict):
        value = [value.get(d, value.get(d - rank, (0, 0))) for d in range(rank)]
    for width in runtime.tree_leaves(value):
        if isinstance(width, core.Tracer):
            raise errors.ConcretizationTypeError(width, f"{name} argument of jnp.pad")
    given = np.asarray(runtime.tree_map(open_sizes.plain, value))
    if given.dtype.kind not in "iu":
        raise TypeError("`pad_width` must be of integral type.")
    if given.shape not in ((rank, 2), (1, 2), (2,), (1,), (), (rank, 1)):
        raise ValueError(
            f"jnp.pad: {name} with nd={rank} has unsupported shape {given.shape}. "
            f"Valid shapes are ({rank}, 2), (1, 2), (2,), (1,), or ()."
        )
    if given.size and given.min() < 0:
        raise ValueError("index can't contain negative values")
    return tuple((np.int64(low), np.int64(high)) for low, high in np.broadcast_to(given, (rank, 2)))


def _as_pad(array: Any, value: Any, *, widths: Widths) -> Any:
    array = promotion.as_array(array)
    if not promotion.shape_of(array):
        return array
    value = promotion.convert(value, promotion.dtype_of(array))
    return lax.pad_p.bind(array, value, padding_config=tuple((low, high, 0) for low, high in widths))


_as_pad.__name__ = "_pad"
_pad_evenly = functools.partial(jit, static_argnames=("widths",))(_as_pad)


@jit(static_argnames=("widths", "mode", "lengths", "reflect_type", "ends"))
def _pad(array: Any, values: Any, *, widths: Widths, mode: str, lengths: Any, reflect_type: str, ends: Any) -> Any:
    array = promotion.as_array(array)
    if not promotion.shape_of(array):
        return array
    if mode == "constant":
        return _pad_constant(array, widths, values)
    if mode == "linear_ramp":
        return _pad_ramp(array, widths, ends)
    for axis, (before, after) in enumerate(widths):
        low, high = int(before), int(after)
        if mode == "edge":
            array = _pad_edge(array, axis, low, high)
        elif mode == "wrap":
            array = _pad_wrap(array, axis, low, high)
        elif mode == "empty":
            array = _around(array, axis, _blank(array, axis, low), _blank(array, axis, high))
        elif mode in ("reflect", "symmetric"):
            array = _pad_reflect(array, axis, low, high, int(mode == "reflect"), reflect_type)
        else:
            array = _pad_statistic(array, axis, low, high, mode, None if lengths is None else lengths[axis])
    return array


def _around(array: Any, axis: int, before: Any, after: Any) -> Any:
    return lax.concatenate([before, array, after], axis)


def _pad_by_function(array: Any, widths: Widths, function: Callable[..., Any], options: dict[str, Any]) -> Any:
    padded = _pad_evenly(array, 0, widths=widths)
    for axis, width in enumerate(widths):
        padded = vectorized.apply_along_axis(function, axis, padded, width, axis, options)
    return padded


def _pad_constant(array: Any, widths: Widths, values: Any) -> Any:
    dtype, rank = promotion.dtype_of(array), len(widths)
    if isinstance(values, list | tuple):
        values = creation.asarray(values)
    values = rearrange.broadcast_to(promotion.convert(values, dtype), (rank, 2))
    for axis, sides in enumerate(widths):
        for side, width in enumerate(sides):
            if width > 0:
                config: list[tuple[Any, Any, int]] = [(0, 0, 0)] * rank
                config[axis] = (width, 0, 0) if side == 0 else (0, width, 0)
                value = lax.squeeze(lax.slice(values, (axis, side), (axis + 1, side + 1)), (0, 1))
                array = lax.pad_p.bind(array, value, padding_config=tuple(config))
    return array


def _pad_edge(array: Any, axis: int, low: int, high: int) -> Any:
    extent = promotion.shape_of(array)[axis]
    if extent == 0:
        if low or high:
            raise ValueError("Cannot apply 'edge' padding to empty axis")
        return array
    first = rearrange.repeat_evenly(lax.slice_in_dim(array, 0, 1, axis=axis), repeats=low, axis=axis)
    last = rearrange.repeat_evenly(lax.slice_in_dim(array, extent - 1, extent, axis=axis), repeats=high, axis=axis)
    return _around(array, axis, first, last)


def _blank(array: Any, axis: int, width: int) -> Any:
    extents = promotion.shape_of(array)
    return lax.full((*extents[:axis], width, *extents[axis + 1 :]), 0, promotion.dtype_of(array))


def _pad_wrap(array: Any, axis: int, low: int, high: int) -> Any:
    extent = promotion.shape_of(array)[axis]
    if extent == 0:
        if low or high:
            raise ValueError("Cannot apply 'wrap' padding to empty axis")
        return array
    whole_low, part_low = divmod(low, extent)
    whole_high, part_high = divmod(high, extent)
    pieces = [lax.slice_in_dim(array, extent - part_low, extent, axis=axis)] if part_low else []
    pieces += [array] * (whole_low + 1 + whole_high)
    if part_high:
        pieces.append(lax.slice_in_dim(array, 0, part_high, axis=axis))
    return lax.concatenate(pieces, axis) if len(pieces) > 1 else array


def _pad_reflect(array: Any, axis: int, low: int, high: int, offset: int, kind: str) -> Any:
    """Reflections about the first and last element (or the border before it), repeated while padding is left."""
    if kind not in ("even", "odd"):
        raise ValueError(f"jnp.pad: reflect_type must be 'even' or 'odd', got {kind!r}")
    reach = promotion.shape_of(array)[axis] - offset
    if promotion.shape_of(array)[axis] == 0:
        if low or high:
            raise ValueError(f"Cannot apply '{'symmetric' if offset == 0 else 'reflect'}' padding to empty axis")
        return array
    if reach == 0:
        return _pad_edge(array, axis, low, high)
    two = np.asarray(2).astype(promotion.dtype_of(array))
    edge = lax.slice_in_dim(array, 0, 1, axis=axis)
    while low > 0:
        take = min(low, reach)
        part = rearrange.flip(lax.slice_in_dim(array, offset, offset + take, axis=axis), axis)
        if kind == "odd":
            part = lax.sub(lax.mul(two, edge), part)
            edge = lax.slice_in_dim(part, 0, 1, axis=axis)
        array = lax.concatenate([part, array], axis)
        low -= take
    extent = promotion.shape_of(array)[axis]
    edge = lax.slice_in_dim(array, extent - 1, extent, axis=axis)
    while high > 0:
        take, extent = min(high, reach), promotion.shape_of(array)[axis]
        part = rearrange.flip(lax.slice_in_dim(array, extent - offset - take, extent - offset, axis=axis), axis)
        if kind == "odd":
            part = lax.sub(lax.mul(two, edge), part)
            edge = lax.slice_in_dim(part, take - 1, take, axis=axis)
        array = lax.concatenate([array, part], axis)
        high -= take
    return array


def _pad_statistic(array: Any, axis: int, low: int, high: int, mode: str, lengths: Any) -> Any:
    extent, own = promotion.shape_of(array)[axis], promotion.dtype_of(array)
    parts = [array]
    if lengths is not None:
        count_low, count_high = (min(int(n), extent) for n in lengths)
        if count_low == 0 or count_high == 0:
            raise ValueError("stat_length of 0 yields no value for padding")
        head = lax.slice_in_dim(array, 0, count_low, axis=axis)
        parts = [head, lax.slice_in_dim(array, extent - count_high, extent, axis=axis)]
    found = [_STATISTICS[mode](part, axis=axis, keepdims=True) for part in parts]
    if dtypes.issubdtype(own, np.integer) and dtypes.issubdtype(promotion.dtype_of(found[0]), np.inexact):
        found = [rounding.round(value) for value in found]
    found = [promotion.convert(value, own) for value in found]
    return _around(
        array,
        axis,
        rearrange.repeat_evenly(found[0], repeats=low, axis=axis),
        rearrange.repeat_evenly(found[-1], repeats=high, axis=axis),
    )


def _pad_ramp(array: Any, widths: Widths, ends: tuple[tuple[Any, Any], ...]) -> Any:
    for axis, (before, after) in enumerate(widths):
        extent = promotion.shape_of(array)[axis]
        if extent == 0 and (before or after):
            raise ValueError("Cannot apply 'linear_ramp' padding to empty axis")
        first = lax.slice_in_dim(array, 0, 1, axis=axis)
        last = lax.slice_in_dim(array, extent - 1, extent, axis=axis)
        dtype = promotion.dtype_of(array)
        low, high = ends[axis]
        options: dict[str, Any] = {"endpoint": False, "dtype": dtype, "axis": axis}
        ramp_up = even_spacing.linspace(low, lax.squeeze(first, (axis,)), int(before), **options)
        ramp_down = rearrange.flip(even_spacing.linspace(high, lax.squeeze(last, (axis,)), int(after), **options), axis)
        array = _around(array, axis, ramp_up, ramp_down)
    return array
