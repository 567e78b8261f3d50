"""Checks static integers from the user (shapes, axes, permutations), with errors that name the operation.

    axes((0, np.int64(1)), "reduce_sum")   -> (0, 1)
    axes(0, "reduce_sum")                  -> TypeError: [reduce_sum] axes must be a sequence of integers, got 0

A traced value raises the tracer's own error, which says what it depends on.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import core, errors
from weft._base import lazy
from weft.core.symbolic import sizes

_INTEGERS = frozenset((int, sizes.Size))


def integer(value: Any, name: str, what: str = "axis") -> int:
    """The value as a Python int, or a TypeError."""
    try:
        return sizes.whole(value)
    except TypeError:
        if isinstance(value, core.Tracer):
            raise
        raise TypeError(f"[{name}] {what} must be an integer, got {value!r}") from None


def integers(values: Any, name: str, what: str = "axes") -> tuple[int, ...]:
    """A sequence of integers as a tuple of Python ints, or a TypeError."""
    if type(values) is tuple and _INTEGERS.issuperset(map(type, values)):
        return values
    if isinstance(values, core.Tracer):
        return tuple(integer(value, name, what) for value in values)
    try:
        return tuple(map(sizes.whole, values))
    except TypeError:
        listed = list(values) if hasattr(values, "__iter__") else []
        for value in listed:
            if isinstance(value, core.Tracer):
                operator.index(value)
        raise TypeError(f"[{name}] {what} must be a sequence of integers, got {values!r}") from None


def canonical_shape(name: str, shape: Any, scalar: bool = True) -> tuple[int, ...]:
    """A shape as a tuple of ints, or a TypeError that names the operation; a single number is one dimension."""
    if type(shape) is tuple and _INTEGERS.issuperset(map(type, shape)):
        return shape
    if isinstance(shape, core.Tracer):
        shape = tuple(shape) if shape.ndim else (shape,)
    elif not isinstance(shape, (tuple, list)) and np.ndim(shape) == 0:
        if not scalar:
            raise TypeError(f"[{name}] sizes must be a sequence of integers, got {shape!r}")
        shape = (shape,)
    extents = tuple(shape)
    try:
        return tuple(map(sizes.whole, extents))
    except TypeError:
        pass
    raise shape_error(extents, name)


def shape_error(extents: tuple[Any, ...], name: str = "") -> TypeError:
    """The error for sizes that are not integers; for traced ones it names the argument that they depend on."""
    text = ", ".join(map(str, extents)) + ("," if len(extents) == 1 else "")
    where = f"[{name}] " if name else ""
    message = f"{where}Shapes must be 1D sequences of concrete values of integer type, got ({text})."
    for size in extents:
        if isinstance(size, core.Tracer):
            message += "\nIf using `jit`, try using `static_argnums` or applying `jit` to smaller subfunctions."
            origin = size._origin()
            message += f"\n{origin.text}" if origin is not None else ""
            break
    return TypeError(message)


def canonical_axis(axis: Any, ndim: int, name: str) -> int:
    """A non-negative axis; ValueError if out of bounds."""
    axis = integer(axis, name)
    if not -ndim <= axis < ndim:
        raise errors.AxisError(f"[{name}] axis {axis} is out of bounds for array of dimension {ndim}")
    return axis + ndim if axis < 0 else axis


def placed(make: Callable[[], Any], sharding: Any, name: str, what: str = "out_sharding") -> Any:
    """What ``make()`` gives, lying as an argument says; ``name`` is the function that got the argument ``what``."""
    return lazy.out_shardings.placed(make, sharding, name, what)
