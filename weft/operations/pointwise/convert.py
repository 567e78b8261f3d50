"""Conversion of dtypes, and parts of complex numbers: convert, bitcast, reduce_precision, real, imag, conj, is_finite.

Conversion to integers truncates toward zero and saturates, NaN becomes 0; to bool it asks for non-zero; between
floats it rounds once to nearest even. complex to real drops the imaginary part (with a warning).
"""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from weft import core, dtypes, errors, runtime
from weft.core import kinds
from weft.core.primitive import ALL
from weft.core.programs import printer
from weft.core.tangents import Zero, is_differentiable, is_undefined
from weft.operations import key_words, mapped, references
from weft.operations.later import ops
from weft.operations.pointwise import overflow
from weft.operations.pointwise.arithmetic import is_complex, neg, real_part_dtype
from weft.operations.pointwise.elementwise import (
    BOOL,
    COMPLEX,
    FLOAT,
    bool_result,
    broadcast_shape,
    category,
    check_dtype,
    check_same_dtype,
    elementwise,
)
from weft.operations.static import integer
from weft.runtime import Array

__all__ = [
    "bitcast_convert_type",
    "bitcast_convert_type_p",
    "complex",
    "complex_p",
    "conj",
    "conj_p",
    "convert_element_type",
    "convert_element_type_p",
    "dtype",
    "imag",
    "imag_p",
    "is_finite",
    "is_finite_p",
    "real",
    "real_p",
    "reduce_precision",
    "reduce_precision_p",
]

ArrayLike = Any

WIDEST_FIELD = 2**16 - 1  # bits of an exponent or mantissa that reduce_precision accepts
SINGLE = frozenset({np.dtype(np.float32), np.dtype(np.float64)})


# ---- convert_element_type


def _convert_typing(x: Any, *, new_dtype: Any, weak_type: bool, sharding: Any = None) -> Any:
    if (category(x.dtype) == "key") != (category(new_dtype) == "key"):
        raise ValueError(f"Cannot convert_element_type from {x.dtype} to {new_dtype}: the operand is {x.str_short()}")
    return runtime.ShapedArray(x.shape, new_dtype, weak_type)


def _convert_scalar(emit: Any, x: Any, *, new_dtype: np.dtype, weak_type: bool, sharding: Any = None) -> Any:
    if x.dtype == new_dtype:
        return x
    if new_dtype.kind == "c":
        part = real_part_dtype(new_dtype)
        if is_complex(x):
            return emit.complex(emit.convert(emit.real(x), part), emit.convert(emit.imag(x), part))
        return emit.complex(emit.convert(x, part), emit.const(0.0, part))
    if is_complex(x):
        x = emit.real(x)
    if new_dtype == np.bool_:
        return emit.compare("ne", x, emit.const(0, x.dtype))
    return x if x.dtype == new_dtype else emit.convert(x, new_dtype)


def _convert_jvp(primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
    """The tangent is converted too, unless the result has none."""
    out = convert_element_type_p.bind(*primals, **params)
    if not is_differentiable(params["new_dtype"]):
        return out, Zero.from_primal_value(out)
    return out, convert_element_type_p.bind(*tangents, **params)


def _convert_transpose(ct: Any, x: Any, **params: Any) -> tuple[Any]:
    dtype, weak_type = x.aval.dtype, x.aval.weak_type
    return (convert_element_type_p.bind(ct, new_dtype=dtype, weak_type=weak_type, sharding=None),)


convert_element_type_p = elementwise(
    "convert_element_type",
    scalar=_convert_scalar,
    jvp=_convert_jvp,
    transpose=_convert_transpose,
    reference=lambda x, *, new_dtype, **_: references.convert(np.asarray(x), new_dtype),
    typing=_convert_typing,
    native_half=True,
    hide=("sharding",),
    wraps=overflow.CONVERSION,
    leaves=lambda dtype, params: dtype == params["new_dtype"],
    converts=True,
)


def _convert_fold(values: Any, params: dict[str, Any]) -> Any:
    """A converted literal is a literal."""
    new_dtype = params["new_dtype"]
    if not isinstance(new_dtype, np.dtype):
        return NotImplemented
    (value,) = values
    if not isinstance(value, (bool, int, float, builtins.complex, np.generic, np.ndarray)):
        return NotImplemented
    with np.errstate(all="ignore"):
        array = np.asarray(value, dtypes.result_type(value)) if not isinstance(value, int) else np.asarray(value)
        return references.convert(array, new_dtype)[()]


def _convert_forward(avals: Any, params: dict[str, Any]) -> int | None:
    same = avals[0].dtype == params["new_dtype"] and avals[0].weak_type == params["weak_type"]
    return 0 if same else None


convert_element_type_p.on_words = key_words.converted
convert_element_type_p.def_fold(_convert_fold)
convert_element_type_p.def_forward(_convert_forward)


def convert_element_type(operand: ArrayLike, new_dtype: Any) -> Array:
    """The operand's elements as ``new_dtype``, with JAX's rules for saturation, NaN and complex numbers.

    >>> lax.convert_element_type(np.float32([1.7, -1.7]), np.int32).tolist()
    [1, -1]
    """
    if new_dtype is None:
        raise ValueError("[convert_element_type] dtype must be specified, got None")
    if hasattr(operand, "__jax_array__"):
        operand = operand.__jax_array__()
    dtype = dtypes.check_user_dtype(new_dtype, "convert_element_type")
    if type(operand) is int and dtypes.issubdtype(dtype, np.inexact) and abs(operand) >= 2**31:
        operand = float(operand)  # no int of 32 bits; what it becomes may hold it
    return convert(operand, dtype, weak_type=False)


def convert(operand: ArrayLike, new_dtype: Any = None, weak_type: bool = False) -> Array:
    """``operand`` as exactly ``new_dtype``, which is not narrowed; an operand of that type is returned unchanged."""
    aval = core.get_aval(operand)
    new_dtype = aval.dtype if new_dtype is None else dtypes.as_dtype(new_dtype)
    weak_type = bool(weak_type)
    same: Any = operand
    is_array = isinstance(operand, (runtime.Array, core.Tracer))
    if is_array and aval.dtype == new_dtype and aval.weak_type == weak_type:
        return same
    if category(aval.dtype) in COMPLEX and category(new_dtype) not in COMPLEX:
        errors.warn("Casting complex values to real discards the imaginary part", np.exceptions.ComplexWarning)
    return convert_element_type_p.bind(operand, new_dtype=new_dtype, weak_type=weak_type, sharding=None)


def of_64_bits(value: Any, dtype: np.dtype) -> Array:
    """A host value as one of a dtype that the configuration narrows."""
    return core.wide(references.convert(np.asarray(value), dtype))


def dtype(x: Any) -> Any:
    """The dtype of an array, scalar or tracer in the current configuration.

    >>> lax.dtype(1.0)
    dtype('float32')
    """
    return core.get_aval(x).dtype


# ---- bitcast_convert_type


def _bitcast_typing(x: Any, *, new_dtype: np.dtype) -> Any:
    old, new = x.dtype.itemsize, new_dtype.itemsize
    if x.dtype == new_dtype:
        return runtime.ShapedArray(x.shape, x.dtype)
    if old < new and (not x.shape or x.shape[-1] != new // old):
        raise ValueError(
            f"[bitcast_convert_type] to convert an array of shape {x.shape} from {x.dtype.name} of size {8 * old} bits "
            f"to {new_dtype.name} of size {8 * new}, its last dimension must be {new // old}"
        )
    for dtype in (x.dtype, new_dtype):
        if category(dtype) in BOOL | COMPLEX:
            raise TypeError(
                f"lax.bitcast_convert_type does not support bool or complex values unless the operand and destination "
                f"types match. Got operand dtype={np.dtype(x.dtype).name}, new_dtype={np.dtype(new_dtype).name}."
            )
    if old == new:
        return runtime.ShapedArray(x.shape, new_dtype)
    if old > new:
        return runtime.ShapedArray((*x.shape, old // new), new_dtype)
    return runtime.ShapedArray(x.shape[:-1], new_dtype)


def _bitcast_reference(x: Any, *, new_dtype: np.dtype) -> Any:
    x = np.asarray(x)
    old, new = x.dtype.itemsize, new_dtype.itemsize
    shape = x.shape if old == new else (*x.shape, old // new) if old > new else x.shape[:-1]
    return np.frombuffer(x.tobytes(), new_dtype).reshape(shape)


def _bitcast_batch(size: int, values: list[Any], dims: list[mapped.Dim], *, new_dtype: Any) -> Any:
    return bitcast_convert_type_p.bind(mapped.in_front(size, values[0], dims[0]), new_dtype=new_dtype), 0


bitcast_convert_type_p = elementwise(
    "bitcast_convert_type",
    scalar=lambda emit, x, *, new_dtype: x if x.dtype == new_dtype else emit.bitcast(x, new_dtype),
    partials=(None,),
    reference=_bitcast_reference,
    typing=_bitcast_typing,
    native_half=True,
)
bitcast_convert_type_p.batch = _bitcast_batch


def bitcast_convert_type(operand: ArrayLike, new_dtype: Any) -> Array:
    """The operand's bits read as another dtype; a narrower dtype adds a last dimension, a wider one removes it.

    >>> hex(lax.bitcast_convert_type(np.float32(1), np.uint32).item())
    '0x3f800000'
    """
    if new_dtype is None:
        raise ValueError("[bitcast_convert_type] dtype must be specified, got None")
    new_dtype = dtypes.check_user_dtype(new_dtype, "bitcast_convert_type")
    aval = core.get_aval(operand)
    bits = [dtypes.itemsize_bits(dtype) for dtype in (aval.dtype, new_dtype)]
    if min(bits) < 8 and bits[0] != bits[1]:
        return _bitcast_in_bytes(operand, new_dtype, *bits)
    if aval.dtype.itemsize != new_dtype.itemsize:
        return reinterpret_p.bind(operand, new_dtype=new_dtype)
    return bitcast_convert_type_p.bind(operand, new_dtype=new_dtype)


def _bitcast_in_bytes(x: Any, new_dtype: np.dtype, old: int, new: int) -> Any:
    """Elements of fewer than 8 bits, each in a byte of its own, as parts of wider ones, the first lowest."""
    shape, small = core.get_aval(x).shape, min(old, new)
    if max(old, new) % small or 8 % small:
        raise ValueError(f"[bitcast_convert_type] {new_dtype.name} has {new} bits, no multiple or part of {old}")
    shifts, mask = np.arange(0, min(max(old, new), 8), small, dtype=np.uint8), np.uint8((1 << small) - 1)
    parts, as_bytes = len(shifts), {"new_dtype": np.dtype(np.uint8)}
    if new < old:
        bits = bitcast_convert_type(x, np.uint8) if old >= 8 else bitcast_convert_type_p.bind(x, **as_bytes)
        moved = ops.shift_right_logical(
            ops.expand_dims(bits, (bits.ndim,)), np.broadcast_to(shifts, (*bits.shape, parts))
        )
        whole = ops.reshape(ops.bitwise_and(moved, mask), (*shape, old // new))
        return bitcast_convert_type_p.bind(whole, new_dtype=new_dtype)
    if not shape or shape[-1] != new // old:
        raise ValueError(
            f"[bitcast_convert_type] to widen {core.get_aval(x).str_short()} to {new_dtype.name} "
            f"its last dimension must be {new // old}"
        )
    bits = ops.bitwise_and(bitcast_convert_type_p.bind(x, **as_bytes), mask)
    bits = ops.reshape(bits, (*shape[:-1], max(new // 8, 1), parts))
    whole = ops.reduce_or(ops.shift_left(bits, np.broadcast_to(shifts, bits.shape)), (bits.ndim - 1,))
    if new > 8:
        return bitcast_convert_type(whole, new_dtype)
    return bitcast_convert_type_p.bind(ops.reshape(whole, shape[:-1]), new_dtype=new_dtype)


def _print_reinterpret(eqn: Any, context: Any, settings: Any) -> Any:
    """As JAX prints it, which has one primitive for both forms."""
    named = eqn.replace(primitive=bitcast_convert_type_p)
    return printer.eqn_document(named, sorted(eqn.params), eqn.params, context, settings)


# The form that changes the width has the same typing, but it is an alias of the memory, not elementwise.
reinterpret_p = core.Primitive("reinterpret", kind=kinds.Reshape(reference=_bitcast_reference))
reinterpret_p.def_abstract_eval(_bitcast_typing)
reinterpret_p.print_rule = _print_reinterpret
reinterpret_p.partials, reinterpret_p.transpose = (None,), None


def _reinterpret_batch(size: int, values: list[Any], dims: list[mapped.Dim], *, new_dtype: Any) -> Any:
    return reinterpret_p.bind(mapped.in_front(size, values[0], dims[0]), new_dtype=new_dtype), 0


reinterpret_p.batch = _reinterpret_batch


# ---- reduce_precision


def _reduce_precision_scalar(emit: Any, x: Any, *, exponent_bits: int, mantissa_bits: int) -> Any:
    return emit.reduce_precision(x, exponent_bits, mantissa_bits)


reduce_precision_p = elementwise(
    "reduce_precision",
    FLOAT,
    scalar=_reduce_precision_scalar,
    linear=ALL,  # as in JAX: the tangent is reduced as well
    transpose=lambda ct, x, **params: (reduce_precision_p.bind(ct, **params),),
    reference=references.reduce_precision,
    cost=6.0,
)


def reduce_precision(operand: ArrayLike, exponent_bits: int, mantissa_bits: int) -> Array:
    """Round to a float format of fewer exponent and mantissa bits, keeping the dtype.

    >>> lax.reduce_precision(np.float32(1.2345), 5, 2).item()
    1.25
    """
    exponent_bits = integer(exponent_bits, "reduce_precision", "exponent_bits")
    mantissa_bits = integer(mantissa_bits, "reduce_precision", "mantissa_bits")
    if not 1 <= exponent_bits <= WIDEST_FIELD:
        raise ValueError(f"[reduce_precision] exponent_bits must be in 1..{WIDEST_FIELD}, got {exponent_bits}")
    if not 0 <= mantissa_bits <= WIDEST_FIELD:
        raise ValueError(f"[reduce_precision] mantissa_bits must be in 0..{WIDEST_FIELD}, got {mantissa_bits}")
    return reduce_precision_p.bind(operand, exponent_bits=exponent_bits, mantissa_bits=mantissa_bits)


# ---- complex numbers


def complex_dtype(dtype: np.dtype, *_: Any, **params: Any) -> np.dtype:
    """float32 -> complex64, float64 -> complex128; complex dtypes stay."""
    return dtype if dtype.kind == "c" else np.dtype(f"c{2 * dtype.itemsize}")


def _complex_typing(re: Any, im: Any) -> Any:
    for i, aval in enumerate((re, im)):
        check_dtype("complex", i, aval, FLOAT)
        if aval.dtype not in SINGLE:
            raise TypeError(f"[complex] operand {i} is {aval.str_short()}, but only f32 and f64 make complex numbers")
    check_same_dtype("complex", (re, im))
    shape = broadcast_shape("complex", (re, im))
    return runtime.ShapedArray(shape, complex_dtype(re.dtype), re.weak_type and im.weak_type)


complex_p = elementwise(
    "complex",
    scalar=lambda emit, re, im: emit.complex(re, im),
    linear=ALL,
    transpose=lambda ct, re, im: (
        real(ct) if is_undefined(re) else None,
        imag(neg(ct)) if is_undefined(im) else None,
    ),
    reference=lambda re, im: _join_parts(re, im),
    typing=_complex_typing,
)


def _join_parts(re: Any, im: Any) -> Any:
    out = np.empty(np.broadcast_shapes(re.shape, im.shape), complex_dtype(re.dtype))
    out.real, out.imag = re, im
    return out


def complex(x: ArrayLike, y: ArrayLike) -> Array:
    """Elementwise x + i y.

    >>> lax.complex(np.float32(1), np.float32(2)).item()
    (1+2j)
    """
    return complex_p.bind(x, y)


real_p = elementwise(
    "real",
    COMPLEX,
    scalar=lambda emit, x: emit.real(x),
    linear=ALL,
    transpose=lambda ct, x: (complex(ct, np.zeros((), ct.dtype)[()]),),
    reference=np.real,
    result=real_part_dtype,
)


def real(x: ArrayLike) -> Array:
    """Elementwise real part of complex numbers.

    >>> lax.real(np.complex64(1 + 2j)).item()
    1.0
    """
    return real_p.bind(x)


imag_p = elementwise(
    "imag",
    COMPLEX,
    scalar=lambda emit, x: emit.imag(x),
    linear=ALL,
    transpose=lambda ct, x: (complex(np.zeros((), ct.dtype)[()], neg(ct)),),
    reference=np.imag,
    result=real_part_dtype,
)


def imag(x: ArrayLike) -> Array:
    """Elementwise imaginary part of complex numbers.

    >>> lax.imag(np.complex64(1 + 2j)).item()
    2.0
    """
    return imag_p.bind(x)


def _conj_typing(x: Any, *, input_dtype: Any) -> Any:
    check_dtype("conj", 0, x, FLOAT | COMPLEX)
    if category(x.dtype) in FLOAT and x.dtype not in SINGLE:
        raise TypeError(f"[conj] operand is {x.str_short()}, but only f32 and f64 make complex numbers")
    return runtime.ShapedArray(x.shape, complex_dtype(x.dtype), x.weak_type)


def _conj_scalar(emit: Any, x: Any, *, input_dtype: Any) -> Any:
    if is_complex(x):
        return emit.complex(emit.real(x), emit.neg(emit.imag(x)))
    return emit.complex(x, emit.neg(emit.const(0.0, x.dtype)))


conj_p = elementwise(
    "conj",
    scalar=_conj_scalar,
    linear=ALL,
    transpose=lambda ct, x, *, input_dtype: (conj(ct) if np.dtype(input_dtype).kind == "c" else real(ct),),
    reference=lambda x, **_: np.conj(x.astype(complex_dtype(x.dtype))),
    typing=_conj_typing,
)


def conj(x: ArrayLike) -> Array:
    """Elementwise complex conjugate; a real operand becomes complex.

    >>> lax.conj(np.complex64(1 + 2j)).item()
    (1-2j)
    """
    return conj_p.bind(x, input_dtype=core.get_aval(x).dtype)


is_finite_p = elementwise(
    "is_finite",
    FLOAT,
    scalar=lambda emit, x: emit.is_finite(x),
    partials=(None,),
    reference=np.isfinite,
    result=bool_result,
)


def is_finite(x: ArrayLike) -> Array:
    """Elementwise: neither infinite nor NaN.

    >>> lax.is_finite(np.float32([1, np.inf, np.nan])).tolist()
    [True, False, False]
    """
    return is_finite_p.bind(x)
