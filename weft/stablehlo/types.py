"""Types and constants of StableHLO as text: ``tensor<2x3xf32>``, ``dense<1.0>``, ``array<i64: 0, 1>``."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from weft import dtypes
from weft.operations.tokens import TOKEN

Shape = tuple[Any, ...]  # extents; one without a value (``symbolic_dims``) is written as ``?``

_ELEMENTS: dict[np.dtype, str] = {
    np.dtype(np.bool_): "i1",
    **{np.dtype(f"i{bits // 8}"): f"i{bits}" for bits in (8, 16, 32, 64)},
    **{np.dtype(f"u{bits // 8}"): f"ui{bits}" for bits in (8, 16, 32, 64)},
    np.dtype(np.float16): "f16",
    np.dtype(np.float32): "f32",
    np.dtype(np.float64): "f64",
    np.dtype(ml_dtypes.bfloat16): "bf16",
    np.dtype(np.complex64): "complex<f32>",
    np.dtype(np.complex128): "complex<f64>",
}
_NAMED = {
    "i2": "int2",
    "i4": "int4",
    "ui2": "uint2",
    "ui4": "uint4",
    "f8E4M3": "float8_e4m3",
    "f8E3M4": "float8_e3m4",
    "f8E4M3FN": "float8_e4m3fn",
    "f8E5M2": "float8_e5m2",
    "f8E4M3B11FNUZ": "float8_e4m3b11fnuz",
    "f8E4M3FNUZ": "float8_e4m3fnuz",
    "f8E5M2FNUZ": "float8_e5m2fnuz",
    "f8E8M0FNU": "float8_e8m0fnu",
    "f4E2M1FN": "float4_e2m1fn",
    "f6E2M3FN": "float6_e2m3fn",
    "f6E3M2FN": "float6_e3m2fn",
}
_ELEMENTS |= {np.dtype(getattr(ml_dtypes, name)): text for text, name in _NAMED.items() if hasattr(ml_dtypes, name)}
DTYPES = {text: dtype for dtype, text in _ELEMENTS.items()}
BOOL, INT32, INT64 = np.dtype(np.bool_), np.dtype(np.int32), np.dtype(np.int64)
MOST_WRITTEN = 8  # more elements than this are written as the hexadecimal of their bytes


def element(dtype: Any) -> str:
    """The element type of a dtype."""
    found = _ELEMENTS.get(dtype)
    if found is None:
        raise NotImplementedError(f"[stablehlo] there is no element type for the dtype {dtype}")
    return found


def stored(dtype: Any) -> np.dtype:
    """The dtype of an array in the text: float0, the tangent of an integer, is written as booleans, as JAX does."""
    return BOOL if dtype == dtypes.float0 else dtype


@functools.cache
def tensor(shape: Shape, dtype: Any) -> str:
    """The type of an array: f32[2,3] is ``tensor<2x3xf32>``; that of a token."""
    if dtype is TOKEN:
        return "!stablehlo.token"
    extents = ["?" if is_open(n) else str(int(n)) for n in shape]
    return f"tensor<{'x'.join([*extents, element(dtype)])}>"


def is_open(extent: Any) -> bool:
    """Whether an extent has no value."""
    return getattr(extent, "is_symbolic", False)


def is_empty(shape: Shape) -> bool:
    """Whether an array of this shape has no elements; one of open extents is taken to have some."""
    return 0 in [n for n in shape if not is_open(n)]


def array(values: Iterable[Any], element_type: str = "i64") -> str:
    """``array<i64: 1, 2>``."""
    listed = ", ".join([str(bool(v)).lower() if element_type == "i1" else str(int(v)) for v in values])
    return f"array<{element_type}: {listed}>" if listed else f"array<{element_type}>"


def listed(values: Iterable[Any]) -> str:
    """``[1, 2]``."""
    return "[" + ", ".join([str(int(v)) for v in values]) + "]"


def padding(pairs: Sequence[Sequence[int]]) -> str:
    """Pairs of amounts as a constant of integers."""
    rows = ", ".join([listed(pair) for pair in pairs])
    return f"dense<[{rows}]> : tensor<{len(pairs)}x2xi64>" if pairs else "dense<> : tensor<0x2xi64>"


def scalar(value: Any, dtype: np.dtype) -> str:
    """One element, exactly."""
    kind = dtype.kind
    if kind == "b":
        return "true" if value else "false"
    if kind == "c":
        part = np.dtype(f"f{dtype.itemsize // 2}")
        number = complex(value)
        return f"({scalar(number.real, part)}, {scalar(number.imag, part)})"
    if kind in "iu" or dtypes.issubdtype(dtype, np.integer):
        return str(int(value))
    number = float(value)
    if number != number or number in (np.inf, -np.inf):
        bits = dtypes.itemsize_bits(dtype)
        pattern = int.from_bytes(np.asarray(value, dtype).tobytes(), "little") & ((1 << bits) - 1)
        return f"0x{pattern:0{(bits + 3) // 4}X}"
    short = f"{number:.6e}"
    if float(short) == number:
        return short
    if dtype == np.float32 and np.float32(short := f"{number:.8e}") == np.float32(number):
        return short
    return f"{number:.16e}"


def dense(value: Any, shape: Shape, dtype: np.dtype) -> str:
    """A constant of this type, of one value everywhere or of an array's elements."""
    array_type = tensor(shape, dtype)
    number = np.asarray(value, dtype)
    if number.ndim == 0:
        return f"dense<{scalar(number[()], dtype)}> : {array_type}"
    if number.size == 0:
        return f"dense<> : {array_type}"
    plain = (dtype.kind in "iufc" and dtype.itemsize * 8 == dtypes.itemsize_bits(dtype)) or dtype == ml_dtypes.bfloat16
    if number.size > MOST_WRITTEN and plain:
        return f'dense<"0x{np.ascontiguousarray(number).tobytes().hex().upper()}"> : {array_type}'
    return f"dense<{_nested(number, dtype)}> : {array_type}"


def _nested(number: Any, dtype: np.dtype) -> str:
    if number.ndim == 0:
        return scalar(number[()], dtype)
    return "[" + ", ".join([_nested(part, dtype) for part in number]) + "]"
