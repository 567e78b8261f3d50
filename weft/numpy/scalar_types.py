"""``jnp.float32`` and its siblings: dtypes that can be called to make an array.

A scalar type equals and hashes as NumPy's, so that it serves wherever a dtype is asked for; ``isinstance`` never
holds for arrays. Calling one converts: ``float32([1, 2])`` is ``array([1, 2], dtype=float32)``.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from weft.numpy.array_creation import creation


class _ScalarMeta(type):
    """The type of a scalar type: compares by dtype."""

    dtype: np.dtype

    def __hash__(cls) -> int:
        return hash(cls.dtype.type)

    def __eq__(cls, other: object) -> bool:
        return cls is other or cls.dtype.type == other

    def __ne__(cls, other: object) -> bool:
        return not cls == other

    def __call__(cls, x: Any) -> Any:
        return creation.asarray(x, dtype=cls.dtype)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.dtype.type)


def _scalar_type(scalar: type, name: str | None = None) -> Any:
    """The callable dtype for a NumPy (or ml_dtypes) scalar class."""
    name = name or scalar.__name__.rstrip("_")
    doc = f"The dtype {name}: pass it as ``dtype``, or call it to make an array of that dtype."
    return _ScalarMeta(name, (object,), {"dtype": np.dtype(scalar), "__doc__": doc, "__module__": "weft.numpy"})


bool_ = _scalar_type(np.bool_, "bool")
uint1 = _scalar_type(ml_dtypes.uint1)
uint2 = _scalar_type(ml_dtypes.uint2)
uint4 = _scalar_type(ml_dtypes.uint4)
uint8 = _scalar_type(np.uint8)
uint16 = _scalar_type(np.uint16)
uint32 = _scalar_type(np.uint32)
uint64 = _scalar_type(np.uint64)
int1 = _scalar_type(ml_dtypes.int1)
int2 = _scalar_type(ml_dtypes.int2)
int4 = _scalar_type(ml_dtypes.int4)
int8 = _scalar_type(np.int8)
int16 = _scalar_type(np.int16)
int32 = _scalar_type(np.int32)
int64 = _scalar_type(np.int64)
float4_e2m1fn = _scalar_type(ml_dtypes.float4_e2m1fn)
float6_e2m3fn = _scalar_type(ml_dtypes.float6_e2m3fn)
float6_e3m2fn = _scalar_type(ml_dtypes.float6_e3m2fn)
float8_e3m4 = _scalar_type(ml_dtypes.float8_e3m4)
float8_e4m3 = _scalar_type(ml_dtypes.float8_e4m3)
float8_e4m3b11fnuz = _scalar_type(ml_dtypes.float8_e4m3b11fnuz)
float8_e4m3fn = _scalar_type(ml_dtypes.float8_e4m3fn)
float8_e4m3fnuz = _scalar_type(ml_dtypes.float8_e4m3fnuz)
float8_e5m2 = _scalar_type(ml_dtypes.float8_e5m2)
float8_e5m2fnuz = _scalar_type(ml_dtypes.float8_e5m2fnuz)
float8_e8m0fnu = _scalar_type(ml_dtypes.float8_e8m0fnu)
bfloat16 = _scalar_type(ml_dtypes.bfloat16)
float16 = _scalar_type(np.float16)
float32 = single = _scalar_type(np.float32)
float64 = double = _scalar_type(np.float64)
complex64 = csingle = _scalar_type(np.complex64)
complex128 = cdouble = _scalar_type(np.complex128)
int_ = int64
uint = uint64
float_ = float64
complex_ = complex128
