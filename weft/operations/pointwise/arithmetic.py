"""Arithmetic on elements: add, sub, mul, div, rem, powers, max and min, signs, rounding.

Integers wrap; integer division truncates, by zero it gives -1 (remainder: the dividend); max and min propagate
NaN. Complex numbers are computed from their parts (complex_math). See elementwise.py for how a block reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from weft.core.primitive import ALL
from weft.core.tangents import Zero, along, is_undefined
from weft.operations import references, settings
from weft.operations.later import ops
from weft.operations.pointwise import cheaper, complex_math, overflow
from weft.operations.pointwise.elementwise import (
    ANY,
    COMPLEX,
    FLOAT,
    INTEGER,
    NUMBER,
    REAL,
    SIGNED,
    constant,
    elementwise,
    highest,
    lowest,
    widen_reference,
)
from weft.runtime import Array

__all__ = [
    "abs",
    "abs_p",
    "add",
    "add_p",
    "ceil",
    "ceil_p",
    "div",
    "div_p",
    "floor",
    "floor_p",
    "max",
    "max_p",
    "min",
    "min_p",
    "mul",
    "mul_p",
    "mulhi",
    "mulhi_p",
    "neg",
    "neg_p",
    "nextafter",
    "nextafter_p",
    "rem",
    "rem_p",
    "round",
    "round_p",
    "sign",
    "sign_p",
    "sub",
    "sub_p",
]

ArrayLike = Any


def is_complex(value: Any) -> bool:
    return value.dtype.kind == "c"


def by_parts(real: Callable[..., Any], pairs: Callable[..., Any]) -> Callable[..., Any]:
    """A scalar expression that takes the complex form for complex operands."""
    complex_form = complex_math.on_pairs(pairs)

    def scalar(emit: Any, *values: Any, **params: Any) -> Any:
        return (complex_form if values[0].dtype.kind == "c" else real)(emit, *values, **params)

    return scalar


neg_p = elementwise(
    "neg",
    NUMBER,
    scalar=by_parts(lambda emit, x: emit.neg(x), complex_math.neg),
    linear=ALL,
    transpose=lambda ct, x: (neg(ct),),
    reference=widen_reference(np.negative),
    native_half=True,
    wraps=overflow.NEGATION,
    undoes_itself=True,
    rounds_once=True,
)


def neg(x: ArrayLike) -> Array:
    """Elementwise negation; integers wrap.

    >>> lax.neg(np.float32([1, -2])).tolist()
    [-1.0, 2.0]
    """
    return neg_p.bind(x)


def _add_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    out, (left, right) = add(*primals), tangents
    return out, right if type(left) is Zero else left if type(right) is Zero else add(left, right)


add_p = elementwise(
    "add",
    NUMBER,
    NUMBER,
    scalar=by_parts(lambda emit, x, y: emit.add(x, y), complex_math.add),
    jvp=_add_jvp,
    transpose=lambda ct, x, y: (ct, ct),
    reference=np.add,
    wraps=overflow.SUM,
    identity=lambda dtype: 0,
    rounds_once=True,
)


def add(x: ArrayLike, y: ArrayLike) -> Array:
    """Elementwise sum of two arrays of one dtype.

    >>> lax.add(np.float32([1, 2]), np.float32([10, 20])).tolist()
    [11.0, 22.0]
    """
    return add_p.bind(x, y)


def of_reals(identity: Callable[[np.dtype], Any]) -> Callable[[np.dtype], Any]:
    """An identity that complex numbers do not have: beside a part that is infinite or NaN it changes the other."""
    return lambda dtype: None if dtype.kind == "c" else identity(dtype)


def _sub_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    out, (left, right) = sub(*primals), tangents
    return out, left if type(right) is Zero else neg(right) if type(left) is Zero else sub(left, right)


def _sub_transpose(ct: Any, x: Any, y: Any) -> Iterator[Any]:
    yield ct
    yield neg(ct) if is_undefined(y) else None


sub_p = elementwise(
    "sub",
    NUMBER,
    NUMBER,
    scalar=by_parts(lambda emit, x, y: emit.sub(x, y), complex_math.sub),
    jvp=_sub_jvp,
    transpose=_sub_transpose,
    reference=np.subtract,
    wraps=overflow.DIFFERENCE,
    right_identity=of_reals(lambda dtype: 0),  # x - 0.0 is x, also for -0.0
    rounds_once=True,
)


def sub(x: ArrayLike, y: ArrayLike) -> Array:
    """Elementwise difference of two arrays of one dtype.

    >>> lax.sub(np.float32([1, 2]), np.float32([10, 20])).tolist()
    [-9.0, -18.0]
    """
    return sub_p.bind(x, y)


def _mul_scalar(emit: Any, x: Any, y: Any, *, out_dtype: Any = None) -> Any:
    if out_dtype is not None:
        x, y = emit.convert(x, np.dtype(out_dtype)), emit.convert(y, np.dtype(out_dtype))
    return by_parts(lambda emit, x, y: emit.mul(x, y), complex_math.mul)(emit, x, y)


def _mul_result(x: np.dtype, y: np.dtype, *, out_dtype: Any = None) -> np.dtype:
    return x if out_dtype is None else np.dtype(out_dtype)


def _mul_reference(x: Any, y: Any, *, out_dtype: Any = None) -> Any:
    if out_dtype is not None:
        x, y = references.convert(x, out_dtype), references.convert(y, out_dtype)
    return np.multiply(x, y)


def _mul_transpose(ct: Any, x: Any, y: Any, *, out_dtype: Any = None) -> tuple[Any, Any]:
    """The product of the cotangent and the other factor, in the operand's dtype."""
    operand = x if is_undefined(x) else y
    to = None if out_dtype is None else operand.aval.dtype
    return (mul(ct, y, out_dtype=to), None) if operand is x else (None, mul(x, ct, out_dtype=to))


mul_p = elementwise(
    "mul",
    NUMBER,
    NUMBER,
    scalar=_mul_scalar,
    partials=(
        along(lambda t, out, x, y, **dtype: mul(t, y, **dtype)),
        along(lambda t, out, x, y, **dtype: mul(x, t, **dtype)),
    ),
    transpose=_mul_transpose,
    reference=_mul_reference,
    result=_mul_result,
    hide=("out_dtype",),
    wraps=overflow.PRODUCT,
    identity=of_reals(lambda dtype: 1),
    rounds_once=True,
)


def mul(x: ArrayLike, y: ArrayLike, *, out_dtype: Any = None) -> Array:
    """Elementwise product; ``out_dtype`` computes and returns it in another dtype.

    >>> lax.mul(np.float32([1, 2]), np.float32([10, 20])).tolist()
    [10.0, 40.0]
    """
    return mul_p.bind(x, y, out_dtype=out_dtype)


def mul_pairs(left: list[Any], right: list[Any]) -> list[Any]:
    """The product of two values, each with its tangent."""
    return [mul(left[0], right[0]), ops.add_any(mul(left[1], right[0]), mul(left[0], right[1]))]


div_p = elementwise(
    "div",
    NUMBER,
    NUMBER,
    scalar=by_parts(lambda emit, x, y: emit.div(x, y), complex_math.div),
    partials=(
        along(lambda t, out, x, y: div(t, y)),
        along(lambda t, out, x, y: mul(mul(neg(t), x), ops.integer_pow(y, -2))),
    ),
    transpose=lambda ct, x, y: (div(ct, y), None),
    reference=references.trunc_div,
    cost=4.0,
    wraps=overflow.QUOTIENT,
    cheaper=cheaper.quotient,
)


def div(x: ArrayLike, y: ArrayLike) -> Array:
    """Elementwise quotient; integers truncate toward zero, and give -1 (all ones) for a zero divisor.

    >>> lax.div(np.int32([7, -7]), np.int32([2, 2])).tolist()
    [3, -3]
    """
    return div_p.bind(x, y)


rem_p = elementwise(
    "rem",
    REAL,
    REAL,
    scalar=lambda emit, x, y: emit.rem(x, y),
    partials=(
        along(lambda t, out, x, y: t),
        along(lambda t, out, x, y: mul(neg(t), mul(sign(div(x, y)), floor(abs(div(x, y)))))),
    ),
    reference=references.rem,
    cost=8.0,
    cheaper=cheaper.rest,
)


def rem(x: ArrayLike, y: ArrayLike) -> Array:
    """Elementwise remainder with the dividend's sign; an integer divided by zero leaves the dividend.

    >>> lax.rem(np.int32([7, -7]), np.int32([4, 4])).tolist()
    [3, -3]
    """
    return rem_p.bind(x, y)


def _lexicographic(emit: Any, x: Any, y: Any) -> Any:
    """x > y by real part, then imaginary part."""
    x_re, y_re = emit.real(x), emit.real(y)
    by_im = emit.compare("gt", emit.imag(x), emit.imag(y))
    return emit.select(emit.compare("eq", x_re, y_re), emit.compare("gt", x_re, y_re), by_im)


def max_values(emit: Any, x: Any, y: Any) -> Any:
    return emit.select(_lexicographic(emit, x, y), y, x) if is_complex(x) else emit.max(x, y)


def min_values(emit: Any, x: Any, y: Any) -> Any:
    return emit.select(_lexicographic(emit, y, x), y, x) if is_complex(x) else emit.min(x, y)


def _share(out: Any, x: Any, y: Any) -> Any:
    """The derivative of an extremum with respect to x: 1 where x is the result, 1/2 where x equals y, otherwise 0."""
    full_like = ops.full_like
    chosen = ops.select(ops.eq(x, out), full_like(out, 1), full_like(out, 0))
    return div(chosen, ops.select(ops.eq(y, out), full_like(out, 2), full_like(out, 1)))


max_p = elementwise(
    "max",
    ANY,
    ANY,
    scalar=max_values,
    partials=(_share, lambda out, x, y: _share(out, y, x)),
    reference=widen_reference(references.maximum),
    identity=of_reals(lowest),
    keeps_equal=True,
    native_half=True,
)


def max(x: ArrayLike, y: ArrayLike) -> Array:
    """Elementwise maximum; NaN if either operand is. Complex numbers compare by real, then imaginary part.

    >>> lax.max(np.float32([1, 5]), np.float32([3, 2])).tolist()
    [3.0, 5.0]
    """
    return max_p.bind(x, y)


def extreme_pairs(choose: Callable[[Any, Any], Any]) -> Callable[[list[Any], list[Any]], list[Any]]:
    """``max`` or ``min`` of two values, each with its tangent."""

    def combine(left: list[Any], right: list[Any]) -> list[Any]:
        (x, s), (y, t) = left, right
        out = choose(x, y)
        return [out, ops.add_any(mul(s, _share(out, x, y)), mul(t, _share(out, y, x)))]

    return combine


min_p = elementwise(
    "min",
    ANY,
    ANY,
    scalar=min_values,
    partials=(_share, lambda out, x, y: _share(out, y, x)),
    reference=widen_reference(references.minimum),
    identity=of_reals(highest),
    keeps_equal=True,
    native_half=True,
)


def min(x: ArrayLike, y: ArrayLike) -> Array:
    """Elementwise minimum; NaN if either operand is. Complex numbers compare by real, then imaginary part.

    >>> lax.min(np.float32([1, 5]), np.float32([3, 2])).tolist()
    [1.0, 2.0]
    """
    return min_p.bind(x, y)


def _abs_scalar(emit: Any, x: Any) -> Any:
    return complex_math.absolute(complex_math.split(emit, x)).value if is_complex(x) else emit.abs(x)


def real_part_dtype(dtype: np.dtype, **_: Any) -> np.dtype:
    """complex64 -> float32, complex128 -> float64; real dtypes are unchanged."""
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype


def _abs_push(t: Any, out: Any, x: Any) -> Any:
    """The tangent times the sign of x; for complex x the part of the tangent along x, 0 at 0."""
    if not is_complex(x):
        return ops.select(ops.ge(x, constant(x, 0)), t, neg(t))
    direction, modulus = ops.conj(x), ops.convert_element_type(out, x.dtype)
    safe = ops.select(ops.eq(modulus, constant(x, 0)), ops.full_like(modulus, 1), modulus)
    return ops.real(mul(t, div(direction, safe)))


abs_p = elementwise(
    "abs",
    SIGNED | FLOAT | COMPLEX,
    scalar=_abs_scalar,
    partials=(along(_abs_push),),
    reference=widen_reference(np.abs),
    result=real_part_dtype,
    native_half=True,
    wraps=overflow.MAGNITUDE,
)


def abs(x: ArrayLike) -> Array:
    """Elementwise absolute value; the modulus of a complex number.

    >>> lax.abs(np.float32([-1.5, 2.0])).tolist()
    [1.5, 2.0]
    """
    return abs_p.bind(x)


sign_p = elementwise(
    "sign",
    NUMBER,
    scalar=by_parts(lambda emit, x: emit.sign(x), complex_math.sign),
    partials=(None,),
    reference=widen_reference(references.sign),
    cost=2.0,
    native_half=True,
)


def sign(x: ArrayLike) -> Array:
    """Elementwise sign: -1, 0 or 1, keeping signed zeros and NaN; x / |x| for complex numbers.

    >>> lax.sign(np.float32([-3, 0, 5])).tolist()
    [-1.0, 0.0, 1.0]
    """
    return sign_p.bind(x)


floor_p = elementwise(
    "floor",
    FLOAT,
    scalar=lambda emit, x: emit.floor(x),
    partials=(None,),
    reference=widen_reference(np.floor),
    native_half=True,
    rounds_once=True,
)


def floor(x: ArrayLike) -> Array:
    """Elementwise largest whole number not above x.

    >>> lax.floor(np.float32([-1.5, 1.5])).tolist()
    [-2.0, 1.0]
    """
    return floor_p.bind(x)


ceil_p = elementwise(
    "ceil",
    FLOAT,
    scalar=lambda emit, x: emit.ceil(x),
    partials=(None,),
    reference=widen_reference(np.ceil),
    native_half=True,
    rounds_once=True,
)


def ceil(x: ArrayLike) -> Array:
    """Elementwise smallest whole number not below x.

    >>> lax.ceil(np.float32([-1.5, 1.5])).tolist()
    [-1.0, 2.0]
    """
    return ceil_p.bind(x)


def _round_scalar(emit: Any, x: Any, *, rounding_method: settings.RoundingMethod) -> Any:
    even = rounding_method == settings.RoundingMethod.TO_NEAREST_EVEN
    return emit.round_half_even(x) if even else emit.round_half_away(x)


def _round_reference(x: Any, *, rounding_method: settings.RoundingMethod) -> Any:
    even = rounding_method == settings.RoundingMethod.TO_NEAREST_EVEN
    return np.rint(x) if even else references.round_half_away(x)


round_p = elementwise(
    "round",
    FLOAT,
    scalar=_round_scalar,
    partials=(None,),
    reference=widen_reference(_round_reference),
    native_half=True,
)


def round(x: ArrayLike, rounding_method: settings.RoundingMethod = settings.RoundingMethod.AWAY_FROM_ZERO) -> Array:
    """Elementwise rounding to a whole number; halves go away from zero, or to even on request.

    >>> lax.round(np.float32([0.5, 1.5, -2.5])).tolist()
    [1.0, 2.0, -3.0]
    >>> lax.round(np.float32([0.5, 1.5, -2.5]), lax.RoundingMethod.TO_NEAREST_EVEN).tolist()
    [0.0, 2.0, -2.0]
    """
    return round_p.bind(x, rounding_method=settings.RoundingMethod(rounding_method))


def _mulhi_scalar(emit: Any, x: Any, y: Any) -> Any:
    """The high half: up to 32 bits by a product of double width, for 64 by four 32-bit products."""
    bits = 8 * x.dtype.itemsize
    if bits < 64:
        wide = np.dtype(f"{x.dtype.kind}{2 * x.dtype.itemsize}")
        product = emit.mul(emit.convert(x, wide), emit.convert(y, wide))
        shift = emit.shift_right_arithmetic if x.dtype.kind == "i" else emit.shift_right_logical
        return emit.convert(shift(product, emit.const(bits, wide)), x.dtype)
    return _mulhi_64(emit, x, y)


def _mulhi_64(emit: Any, x: Any, y: Any) -> Any:
    mask, half = emit.const(0xFFFFFFFF, x.dtype), emit.const(32, x.dtype)
    upper = emit.shift_right_arithmetic if x.dtype.kind == "i" else emit.shift_right_logical
    x_low, y_low = emit.and_(x, mask), emit.and_(y, mask)
    x_high, y_high = upper(x, half), upper(y, half)
    low = emit.shift_right_logical(emit.mul(x_low, y_low), half)
    first = emit.add(emit.mul(x_high, y_low), low)
    second = emit.add(emit.mul(x_low, y_high), emit.and_(first, mask))
    return emit.add(emit.add(emit.mul(x_high, y_high), upper(first, half)), upper(second, half))


mulhi_p = elementwise(
    "mulhi", INTEGER, INTEGER, scalar=_mulhi_scalar, partials=(None, None), reference=references.mulhi, cost=4.0
)


def mulhi(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The high half of the double-width product of integers.

    >>> lax.mulhi(np.int32(2**30), np.int32(8)).item()
    2
    """
    return mulhi_p.bind(x, y)


nextafter_p = elementwise(
    "nextafter",
    FLOAT,
    FLOAT,
    scalar=lambda emit, x, y: emit.nextafter(x, y),
    jvp=None,
    reference=np.nextafter,
    cost=4.0,
    native_half=True,
)


def nextafter(x1: ArrayLike, x2: ArrayLike) -> Array:
    """The next representable value after x1 in the direction of x2.

    >>> float(lax.nextafter(np.float32(1), np.float32(2))) == 1 + 2**-23
    True
    """
    return nextafter_p.bind(x1, x2)
