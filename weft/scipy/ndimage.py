"""weft.scipy.ndimage.map_coordinates: an array read between its elements, by the nearest or by linear interpolation."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import dtypes
from weft import numpy as wnp
from weft._base import unbuilt as _unbuilt
from weft._base.array import Array
from weft.numpy import promotion

__getattr__ = _unbuilt.fallback("weft.scipy.ndimage")


def _mirror(index: Any, size: int) -> Any:
    """Reflected at the middle of the first and the last element."""
    span = size - 1
    return wnp.abs((index + span) % (2 * span) - span) if span else wnp.zeros_like(index)


def _reflect(index: Any, size: int) -> Any:
    """Reflected at the outer edges."""
    return wnp.floor_divide(_mirror(2 * index + 1, 2 * size + 1) - 1, 2)


_FIXES: dict[str, Callable[[Any, int], Any]] = {
    "constant": lambda index, size: wnp.clip(index, 0, size - 1),
    "nearest": lambda index, size: wnp.clip(index, 0, size - 1),
    "wrap": lambda index, size: index % size,
    "mirror": _mirror,
    "reflect": _reflect,
}


def _away_from_zero(x: Any) -> Any:
    return wnp.sign(x) * wnp.floor(wnp.abs(x) + 0.5)


def _nodes(coordinate: Any, order: int) -> list[tuple[Any, Any]]:
    """(indices, weights) of the elements that a coordinate reads along one dimension."""
    if order == 0:
        return [(_away_from_zero(coordinate).astype(np.int32), 1)]
    low = wnp.floor(coordinate)
    share = coordinate - low
    index = low.astype(np.int32)
    return [(index, 1 - share), (index + 1, share)]


def map_coordinates(
    input: Any, coordinates: Sequence[Any], order: int, mode: str = "constant", cval: Any = 0.0
) -> Array:
    """The values of ``input`` at ``coordinates``, an array for each of its dimensions, all of one shape.

    ``order`` is 0 (nearest) or 1 (linear). Outside, ``mode`` says what is read: "constant" (``cval``), "nearest",
    "wrap", "mirror" or "reflect". The result has the dtype of ``input``; integers are rounded. ValueError for another
    number of coordinates, NotImplementedError for other orders and modes.

    >>> map_coordinates(np.float32([0, 10, 20]), [np.float32([0.5, 1.25])], 1).tolist()
    [5.0, 12.5]
    """
    promotion.check_arraylike("map_coordinates", input, *coordinates)
    x = wnp.asarray(input)
    shape = promotion.shape_of(x)
    if len(coordinates) != len(shape):
        raise ValueError(f"coordinates must be a sequence of length input.ndim, but {len(coordinates)} != {len(shape)}")
    if mode not in _FIXES:
        raise NotImplementedError(
            f"jax.scipy.ndimage.map_coordinates does not yet support mode {mode}. Currently supported modes are "
            f"{sorted(_FIXES)}."
        )
    if operator.index(order) not in (0, 1):
        raise NotImplementedError("jax.scipy.ndimage.map_coordinates currently requires order<=1")
    positions = promotion.promote_dtypes_inexact(*coordinates) if shape else ()
    parts = []
    for position, size in zip(positions, shape, strict=True):
        nodes = []
        for index, weight in _nodes(position, order):
            inside = (index >= 0) & (index < size) if mode == "constant" else None
            nodes.append((_FIXES[mode](index, size), inside, weight))
        parts.append(nodes)
    total: Any = None
    for chosen in itertools.product(*parts):
        value = x[tuple([index for index, _, _ in chosen])]
        insides = [inside for _, inside, _ in chosen if inside is not None]
        if insides:
            value = wnp.where(functools.reduce(operator.and_, insides), value, wnp.asarray(cval, promotion.dtype_of(x)))
        for _, _, weight in chosen:
            value = value * weight
        total = value if total is None else total + value
    dtype = promotion.dtype_of(x)
    if dtypes.issubdtype(dtype, np.integer):
        total = _away_from_zero(total)
    return promotion.convert(total, dtype)
