"""What the memory of a reference may be seen as: elements of another dtype, another shape, another order of dimensions.

(u8[4, 128]).bitcast(u32)    ->    u32[1, 128]: four rows are one, the first of them its lowest bits
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from weft import dtypes
from weft._base.record import NamedTuple
from weft.operations.data_movement import shape as shape_module
from weft.operations.pointwise import convert


class Form(NamedTuple):
    """The type of what is seen, the function that gives it of the memory's value, and its inverse."""

    aval: Any
    there: Callable[[Any], Any]
    back: Callable[[Any], Any]


def reshape(aval: Any, shape: Sequence[Any]) -> Form:
    extents = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    wanted = _resolved(aval, tuple(map(operator.index, extents)))
    return Form(
        aval.update(shape=wanted),
        lambda value: shape_module.reshape(value, wanted),
        lambda value: shape_module.reshape(value, aval.shape),
    )


def _resolved(aval: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape with the extent that -1 stands for."""
    rest = math.prod([n for n in shape if n != -1])
    if shape.count(-1) == 1 and rest > 0 and aval.size % rest == 0:
        return tuple([aval.size // rest if n == -1 else n for n in shape])
    if any(n < 0 for n in shape) or rest != aval.size:
        raise ValueError(
            f"[ref] a reference of shape {aval.shape} has {aval.size} elements, which is not shape {shape}"
        )
    return shape


def transpose(aval: Any, permutation: Sequence[Any]) -> Form:
    given = permutation[0] if len(permutation) == 1 and isinstance(permutation[0], (tuple, list)) else permutation
    order = tuple(given) or tuple(reversed(range(aval.ndim)))
    if sorted(order) != list(range(aval.ndim)):
        raise ValueError(f"[ref] transpose of a reference of shape {aval.shape} by {order}: that is no permutation")
    inverse = tuple(sorted(range(aval.ndim), key=order.__getitem__))
    return Form(
        aval.update(shape=tuple([aval.shape[dim] for dim in order])),
        lambda value: shape_module.transpose(value, order),
        lambda value: shape_module.transpose(value, inverse),
    )


def bitcast(aval: Any, dtype: Any) -> Form:
    wanted = dtypes.canonicalize_dtype(dtypes.as_dtype(dtype))
    seen = aval.update(shape=_packed(aval.shape, aval.dtype, wanted), dtype=wanted)
    return Form(seen, functools.partial(packed, dtype=wanted), functools.partial(packed, dtype=aval.dtype))


def packed(x: Any, dtype: Any) -> Any:
    """The bits of an array as elements of another dtype; rows are divided or joined where the widths differ."""
    shape, old, new = shape_module.shape_of(x), x.dtype.itemsize, dtype.itemsize
    wanted = _packed(shape, x.dtype, dtype)
    if old == new:
        return convert.bitcast_convert_type(x, dtype)
    *leading, rows, columns = shape
    if old < new:
        apart = shape_module.reshape(x, (*leading, rows * old // new, new // old, columns))
        return convert.bitcast_convert_type(_swapped(apart), dtype)
    return shape_module.reshape(_swapped(convert.bitcast_convert_type(x, dtype)), wanted)


def _packed(shape: Sequence[int], before: Any, after: Any) -> tuple[int, ...]:
    old, new = before.itemsize, after.itemsize
    if any(dtypes.itemsize_bits(dtype) < 8 for dtype in (before, after)) and before != after:
        raise NotImplementedError(f"[bitcast] {before.name} as {after.name}: elements have less than a byte")
    if old == new:
        return tuple(shape)
    if len(shape) < 2 or shape[-2] * old % new:
        raise ValueError(
            f"[bitcast] {before.name}{list(shape)} as {after.name}: "
            f"elements of {old} bytes become elements of {new} "
            "bytes along the rows (the last dimension but one), whose number must fit"
        )
    return (*shape[:-2], shape[-2] * old // new, shape[-1])


def _swapped(x: Any) -> Any:
    *leading, a, b = range(len(shape_module.shape_of(x)))
    return shape_module.transpose(x, (*leading, b, a))
