"""Reading axes, shapes and counts that a caller gives: canonical, checked, with NumPy's errors.

``canonical_axes((-1, 0), 3)`` is ``(2, 0)``; what is out of bounds, repeated, traced or no integer raises.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from weft import core, errors
from weft.core.symbolic import sizes
from weft.operations import static


def canonical_axis(axis: Any, ndim: int) -> int:
    """``axis`` as an index in ``0..ndim-1``; ValueError if it is out of bounds."""
    index = operator.index(axis)
    if not -ndim <= index < ndim:
        raise errors.AxisError(f"axis {index} is out of bounds for array of dimension {ndim}")
    return index + ndim if index < 0 else index


def canonical_axes(axis: Any, ndim: int, repeats: bool = False) -> tuple[int, ...]:
    """One axis, several, or None (all of them) as a tuple of indices; ValueError for axes repeated without leave."""
    if axis is None:
        return tuple(range(ndim))
    if isinstance(axis, int):
        return (canonical_axis(axis, ndim),)
    if not isinstance(axis, tuple | list):
        axis = as_tuple(axis)
    result = tuple(canonical_axis(a, ndim) for a in axis)
    if len(set(result)) != len(result) and not repeats:
        raise ValueError(f"duplicate value in 'axis': {tuple(axis)}")
    return result


def is_one(value: Any) -> bool:
    """Whether a value stands for one integer, and is not a sequence of them, as an array of them is."""
    return hasattr(value, "__index__") and not getattr(value, "shape", ())


def as_tuple(value: Any) -> tuple[Any, ...]:
    """One axis or several (a sequence, an array) as a hashable tuple; TypeError for what is neither."""
    found = static_axes(value)
    return found if isinstance(found, tuple) else (found,)


def static_axes(axis: Any) -> Any:
    """``axis`` as something hashable: an int, a tuple of ints, or None; TypeError for anything else."""
    if axis is None or type(axis) is int:
        return axis
    try:
        return operator.index(axis)
    except TypeError:
        pass
    try:
        return tuple([operator.index(a) for a in axis])
    except TypeError:
        for value in (axis, *(axis if isinstance(axis, tuple | list) else ())):
            if isinstance(value, core.Tracer):
                raise errors.ConcretizationTypeError(value, "The axis argument must be known statically.") from None
        raise TypeError(f"axis must be None, an integer or a tuple of integers, got {axis!r}") from None


_NEVER_NAMED = ("all", "any", "prod")


def reduced_axes(axis: Any, name: str) -> Any:
    """``static_axes`` of a reduction, which JAX also runs over axes with names; weft has none that could be meant."""
    if axis is None or type(axis) is int:
        return axis
    names = [a for a in (axis if isinstance(axis, tuple | list) else (axis,)) if isinstance(a, str)]
    if names and name in _NEVER_NAMED:
        raise NotImplementedError(f"Named reductions not implemented for jnp.{name}(), got axis={axis!r}")
    if names:
        raise NameError(
            f"Found an unbound axis name: {names[0]}. To fix this, please call psum under `jax.shard_map`. "
            f"[{name}] takes axes by number, got axis={axis!r}"
        )
    return static_axes(axis)


def canonical_shape(shape: Any) -> tuple[int, ...]:
    """A shape given as an integer or a sequence of integers; TypeError for anything that is not concrete."""
    if isinstance(shape, int | np.integer | sizes.Size) or (is_one(shape) and not isinstance(shape, core.Tracer)):
        shape = (shape,)
    elif isinstance(shape, core.Tracer):
        shape = tuple(shape) if shape.ndim else (shape,)
    if not hasattr(shape, "__iter__") or isinstance(shape, set | frozenset | dict):
        raise static.shape_error((shape,))
    try:
        return tuple(map(sizes.whole, shape))
    except TypeError:
        pass
    raise static.shape_error((shape,) if getattr(shape, "shape", None) == () else tuple(shape))


def concrete_int(value: Any, context: str) -> int:
    """A static integer; ConcretizationTypeError (with ``context``) for a tracer."""
    if isinstance(value, core.Tracer):
        raise errors.ConcretizationTypeError(value, context)
    return sizes.whole(value)
