"""Operations used by differentiation: sums of tangents, and symbolic zeros converted to arrays.

add_any f32[3] f32[3] -> f32[3]        the sum of two tangents of one value
instantiate(Zero(f32[3]))              an array of zeros
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import core
from weft.core import tangents
from weft.core.primitive import ALL
from weft.core.sharding import varying
from weft.operations import reductions
from weft.operations.data_movement import assemble, shape
from weft.operations.pointwise import complex_math
from weft.operations.pointwise.arithmetic import by_parts
from weft.operations.pointwise.elementwise import NUMBER, elementwise

Array = Any

add_any_p = elementwise(
    "add_any",
    NUMBER,
    NUMBER,
    scalar=by_parts(lambda emit, x, y: emit.add(x, y), complex_math.add),
    linear=ALL,
    transpose=lambda ct, x, y: (ct, ct),
    reference=np.add,
    identity=lambda dtype: 0,
)


def add_any(x: Any, y: Any) -> Any:
    """The sum of two tangents; either may be a symbolic zero."""
    if type(x) is tangents.Zero:
        return y
    if type(y) is tangents.Zero:
        return x
    return add_any_p.bind(x, y)


def zeros(aval: Any) -> Array:
    """Zeros of a type; for float0 a NumPy array, since weft has no such arrays."""
    return _filled(aval, 0)


def ones(aval: Any) -> Array:
    """Ones of a type."""
    return _filled(aval, 1)


def _filled(aval: Any, value: int) -> Array:
    if aval.dtype == tangents.FLOAT0:
        return np.zeros(aval.shape, tangents.FLOAT0)
    names = getattr(aval, "varying", ())
    if names:
        return varying.widened(_filled(aval.update(varying=()), value), names)
    if aval.shape or not isinstance(aval.dtype, np.dtype):
        return assemble.full_like(aval, value)
    for scalar in (float(value), complex(value)):
        if aval.weak_type and aval is core.get_aval(scalar):  # weakly typed numbers are Python numbers
            return scalar
    return core.wide(np.asarray(value, aval.dtype)[()])


def instantiate(tangent: Any) -> Array:
    """The tangent as an array: zeros for a symbolic zero."""
    return zeros(tangent.aval) if type(tangent) is tangents.Zero else tangent


def unbroadcast(ct: Array, aval: Any) -> Array:
    """The cotangent of an operand that was broadcast: summed over the dimensions it lacked."""
    found = core.get_aval(ct)
    if found.shape == aval.shape:
        return ct
    if not aval.shape:
        return reductions.reduce_sum(ct, range(found.ndim))
    stretched = tuple(axis for axis in range(found.ndim) if aval.shape[axis] == 1 and found.shape[axis] != 1)
    return shape.reshape(reductions.reduce_sum(ct, stretched), aval.shape)


def broadcast_tangent(tangent: Array, aval: Any) -> Array:
    """The tangent of an operand that is broadcast, in the shape of the result."""
    found = core.get_aval(tangent).shape
    if found == aval.shape:
        return tangent
    offset = len(aval.shape) - len(found)
    kept = [axis for axis, extent in enumerate(found) if extent == aval.shape[offset + axis]]
    tangent = shape.reshape(tangent, [found[axis] for axis in kept])
    return assemble.broadcast_in_dim(tangent, aval.shape, [offset + axis for axis in kept])
