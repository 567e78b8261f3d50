"""Powers of elements: squares, fixed integer exponents, and pow of two operands.

Integers wrap. Complex numbers are computed from their parts (complex_math). See elementwise.py for how a block reads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import runtime
from weft.core.tangents import along
from weft.operations import references
from weft.operations.later import ops
from weft.operations.pointwise import cheaper, complex_math, overflow
from weft.operations.pointwise.arithmetic import by_parts, is_complex, mul, of_reals, real_part_dtype, sub
from weft.operations.pointwise.elementwise import (
    COMPLEX,
    FLOAT,
    INTEGER,
    NUMBER,
    broadcast_shape,
    category,
    check_dtype,
    constant,
    elementwise,
)
from weft.runtime import Array

__all__ = ["integer_pow", "integer_pow_p", "pow", "pow_p", "reciprocal", "square", "square_p"]

ArrayLike = Any


square_p = elementwise(
    "square",
    NUMBER,
    scalar=by_parts(lambda emit, x: emit.mul(x, x), complex_math.square),
    partials=(lambda out, x: mul(constant(x, 2), x),),
    reference=np.square,
    wraps=overflow.SQUARE,
)


def square(x: ArrayLike) -> Array:
    """Elementwise x * x.

    >>> lax.square(np.float32([-3, 4])).tolist()
    [9.0, 16.0]
    """
    return square_p.bind(x)


def _integer_pow_scalar(emit: Any, x: Any, *, y: int) -> Any:
    if y == 0:
        return emit.const(1, x.dtype)
    out = complex_math.power_by_squaring(x, -y if y < 0 else y, emit.mul)
    return emit.div(emit.const(1, x.dtype), out) if y < 0 else out


def _integer_pow_typing(x: Any, *, y: int) -> Any:
    check_dtype("integer_pow", 0, x, NUMBER)
    if y < 0 and category(x.dtype) not in FLOAT | COMPLEX:
        raise TypeError(
            f"Integers cannot be raised to negative powers, got integer_pow({x.dtype}[{','.join(map(str, x.shape))}], "
            f"{y}). Convert the base to a float first."
        )
    return runtime.ShapedArray(x.shape, x.dtype, x.weak_type)


def _integer_pow_slope(out: Any, x: Any, *, y: int) -> Any:
    return mul(constant(x, y), x if y == 2 else integer_pow(x, y - 1)) if y else None


integer_pow_p = elementwise(
    "integer_pow",
    NUMBER,
    scalar=by_parts(_integer_pow_scalar, complex_math.integer_pow),
    partials=(_integer_pow_slope,),
    reference=references.integer_pow,
    typing=_integer_pow_typing,
    cost=2.0,
    leaves=lambda dtype, params: params["y"] == 1,
    wraps=overflow.POWER,
)


def integer_pow(x: ArrayLike, y: int) -> Array:
    """Elementwise x ** y for a fixed integer y, by repeated multiplication.

    >>> lax.integer_pow(np.float32([2, 4]), -1).tolist()
    [0.5, 0.25]
    """
    return integer_pow_p.bind(x, y=y)


def reciprocal(x: ArrayLike) -> Array:
    """Elementwise 1 / x.

    >>> lax.reciprocal(np.float32([2, 4])).tolist()
    [0.5, 0.25]
    """
    return integer_pow(x, -1)


def _pow_typing(x: Any, y: Any) -> Any:
    check_dtype("pow", 0, x, FLOAT | COMPLEX)
    check_dtype("pow", 1, y, NUMBER)
    if category(y.dtype) not in INTEGER and x.dtype != y.dtype:
        raise TypeError(
            f"[pow] operands have different dtypes: {x.str_short()}, {y.str_short()}. lax.pow requires arguments to "
            f"have the same dtypes, or an integer exponent"
        )
    return runtime.ShapedArray(broadcast_shape("pow", (x, y)), x.dtype, x.weak_type and y.weak_type)


def _pow_scalar(emit: Any, x: Any, y: Any) -> Any:
    if not is_complex(x):
        return emit.pow(x, y)
    y = y if is_complex(y) else emit.complex(emit.convert(y, real_part_dtype(x.dtype)), _zero_part(emit, x))
    return complex_math.on_pairs(complex_math.power)(emit, x, y)


def _zero_part(emit: Any, x: Any) -> Any:
    return emit.const(0.0, real_part_dtype(x.dtype))


def _pow_slope(out: Any, x: Any, y: Any) -> Any:
    """y x ** (y - 1); an integer exponent of 0 makes it 0 even at x = 0."""
    full_like = ops.full_like
    x, integral = ops.convert_element_type(x, x.dtype), category(y.dtype) in INTEGER
    y = ops.convert_element_type(y, x.dtype)  # both strongly typed, as in JAX
    if not integral:
        return mul(y, pow(x, sub(y, full_like(y, 1))))
    if y.shape != out.shape:
        y = ops.broadcast_in_dim(y, out.shape, range(len(out.shape) - len(y.shape), len(out.shape)))
    is_zero = ops.eq(y, constant(x, 0))
    zeros = full_like(y, 0)
    safe = ops.select(ops.eq(y, constant(x, 0)), full_like(y, 1), y)
    return ops.select(is_zero, zeros, mul(safe, pow(x, sub(y, full_like(y, 1)))))


def _pow_along_exponent(t: Any, out: Any, x: Any, y: Any) -> Any:
    """log(x) x ** y along ``t``, with 0 instead of 0 log 0; strongly typed, as in JAX."""
    slope = mul(ops.log(ops.select(ops.eq(x, constant(x, 0)), ops.full_like(x, 1), x)), out)
    return ops.convert_element_type(mul(t, slope), y.dtype)


pow_p = elementwise(
    "pow",
    FLOAT | COMPLEX,
    NUMBER,
    scalar=_pow_scalar,
    partials=(_pow_slope, along(_pow_along_exponent)),
    reference=references.power,
    typing=_pow_typing,
    cost=20.0,
    right_identity=of_reals(lambda dtype: 1),
    cheaper=cheaper.power,
)


def pow(x: ArrayLike, y: ArrayLike) -> Array:
    """Elementwise x ** y of floating or complex x; the exponent has the same dtype or is an integer.

    >>> lax.pow(np.float32([4, 9]), np.float32([0.5, 2])).tolist()
    [2.0, 81.0]
    """
    return pow_p.bind(x, y)
