"""When integer operations overflow: whether the exact result of each element does not fit in its dtype.

Each is an elementwise expression on the operands of the operation, and the same in NumPy: the fields ``wraps`` of
kinds, from which checked programs get their guards. Floats and complex numbers never wrap here; conversions from
floats do.

    sum         signed: both operands have one sign and the sum the other; unsigned: the sum is below an operand
    product     it is computed in twice the bits; for 64 bits float64 estimates it, and the exact search looks again
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core import kinds
from weft.core.emit import integer_power

__all__: list[str] = []

BOOL = np.dtype(np.bool_)


def _negative(emit: Any, x: Any) -> Any:
    return emit.compare("lt", x, emit.const(0, x.dtype))


def _exactly(function: Callable[..., Any]) -> Callable[..., Any]:
    """The reference of an operation on Python's integers, whose result is compared with the limits of the dtype."""

    def reference(*arrays: Any, **params: Any) -> np.ndarray:
        dtype = np.dtype(params.get("out_dtype") or arrays[0].dtype)
        if dtype.kind not in "iu":
            return np.zeros(np.broadcast_shapes(*[array.shape for array in arrays]), BOOL)
        limits = np.iinfo(dtype)
        exact = np.asarray(function(*[np.asarray(array).astype(object) for array in arrays], **params), object)
        return np.asarray((exact < limits.min) | (exact > limits.max), BOOL)

    return reference


def _sum(emit: Any, x: Any, y: Any) -> Any:
    total = emit.add(x, y)
    if x.dtype.kind == "u":
        return emit.compare("lt", total, x)
    return _negative(emit, emit.and_(emit.xor(x, total), emit.xor(y, total)))


def _difference(emit: Any, x: Any, y: Any) -> Any:
    if x.dtype.kind == "u":
        return emit.compare("lt", x, y)
    return _negative(emit, emit.and_(emit.xor(x, y), emit.xor(x, emit.sub(x, y))))


def _product(emit: Any, x: Any, y: Any, *, out_dtype: Any = None) -> Any:
    dtype = np.dtype(x.dtype if out_dtype is None else out_dtype)
    if dtype.itemsize < 8 and x.dtype.itemsize < 8:
        wide = np.dtype(np.int64 if dtype.kind == "i" else np.uint64)
        exact = emit.mul(emit.convert(x, wide), emit.convert(y, wide))
        return emit.compare("ne", emit.convert(emit.convert(exact, dtype), wide), exact)
    wide = np.dtype(np.float64)
    estimate = emit.abs(emit.mul(emit.convert(x, wide), emit.convert(y, wide)))
    return emit.compare("ge", estimate, emit.const(float(np.iinfo(dtype).max) * (1 - 2.0**-50), wide))


def _negation(emit: Any, x: Any) -> Any:
    zero = emit.const(0, x.dtype)
    if x.dtype.kind == "u":
        return emit.compare("ne", x, zero)
    return emit.compare("eq", x, emit.const(np.iinfo(x.dtype).min, x.dtype))


def _magnitude(emit: Any, x: Any) -> Any:
    least = 0 if x.dtype.kind == "u" else np.iinfo(x.dtype).min
    return emit.compare("eq" if least else "lt", x, emit.const(least, x.dtype))


def _shift(emit: Any, x: Any, y: Any) -> Any:
    moved = emit.shift_left(x, y)
    back = emit.shift_right_arithmetic(moved, y) if x.dtype.kind == "i" else emit.shift_right_logical(moved, y)
    return emit.compare("ne", back, x)


def _conversion(emit: Any, x: Any, *, new_dtype: Any, **_: Any) -> Any:
    new = np.dtype(new_dtype)
    limits = np.iinfo(new)
    if x.dtype.kind in "iu":
        found = emit.convert(x, new)
        lost = emit.compare("ne", emit.convert(found, x.dtype), x)
        return lost if new.kind == x.dtype.kind else emit.or_(lost, emit.xor(_sign(emit, x), _sign(emit, found)))
    wide = np.dtype(np.float32 if x.dtype.itemsize < 4 else x.dtype)
    x = emit.convert(x, wide)
    most, least = wide.type(float(limits.max) + 1.0), wide.type(limits.min)
    below = wide.type(float(limits.min) - 1.0)
    fits = emit.compare("lt", x, emit.const(most, wide))
    at_least = emit.compare("ge", x, emit.const(least, wide)) if below == least else None
    above = at_least if at_least is not None else emit.compare("gt", x, emit.const(below, wide))
    return emit.not_(emit.and_(fits, above))


def _quotient(emit: Any, x: Any, y: Any) -> Any:
    if x.dtype.kind == "u":
        return emit.const(False, BOOL)
    least = emit.compare("eq", x, emit.const(np.iinfo(x.dtype).min, x.dtype))
    return emit.and_(least, emit.compare("eq", y, emit.const(-1, x.dtype)))


def _power(emit: Any, x: Any, *, y: int) -> Any:
    wide = np.dtype(np.float64)
    estimate = integer_power(emit, emit.abs(emit.convert(x, wide)), y)
    return emit.compare("ge", estimate, emit.const(float(np.iinfo(x.dtype).max) * (1 - 2.0**-44), wide))


def _sign(emit: Any, x: Any) -> Any:
    return _negative(emit, x) if x.dtype.kind == "i" else emit.const(False, BOOL)


def _converted(x: Any, *, new_dtype: Any, **_: Any) -> np.ndarray:
    new = np.dtype(new_dtype)
    if new.kind not in "iu" or np.asarray(x).dtype.kind in "bc":
        return np.zeros(np.shape(x), BOOL)
    limits = np.iinfo(new)
    if np.asarray(x).dtype.kind in "iu":
        exact = np.asarray(x).astype(object)
        return np.asarray((exact < limits.min) | (exact > limits.max), BOOL)
    with np.errstate(all="ignore"):
        wide = np.trunc(np.asarray(x).astype(np.float64))
        return ~((wide >= float(limits.min)) & (wide < float(limits.max) + 1.0))


SUM = kinds.Elementwise(scalar=_sum, reference=_exactly(lambda x, y: x + y), cost=3.0)
DIFFERENCE = kinds.Elementwise(scalar=_difference, reference=_exactly(lambda x, y: x - y), cost=3.0)
PRODUCT = kinds.Elementwise(scalar=_product, reference=_exactly(lambda x, y, **_: x * y), cost=4.0)
SQUARE = kinds.Elementwise(scalar=lambda emit, x: _product(emit, x, x), reference=_exactly(lambda x: x * x), cost=4.0)
QUOTIENT = kinds.Elementwise(
    scalar=_quotient, reference=lambda x, y: np.asarray((y == -1) & (x == np.iinfo(x.dtype).min) & (x < 0), BOOL)
)
POWER = kinds.Elementwise(scalar=_power, reference=_exactly(lambda x, *, y: x**y), cost=4.0)
NEGATION = kinds.Elementwise(scalar=_negation, reference=_exactly(lambda x: -x))
MAGNITUDE = kinds.Elementwise(scalar=_magnitude, reference=_exactly(abs))
SHIFT = kinds.Elementwise(
    scalar=_shift, reference=_exactly(lambda x, y: x * np.frompyfunc(lambda n: 2 ** max(n, 0), 1, 1)(y)), cost=3.0
)
CONVERSION = kinds.Elementwise(scalar=_conversion, reference=_converted, cost=3.0)
