"""How each dtype is represented in memory and in registers.

A value has one register element (two for complex numbers). bfloat16 and float16 are computed in float32; bool is a
byte in memory and an i1 in registers; 4-bit and 2-bit integers are a byte in memory and an i8 in registers.
"""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np

from weft._base.record import Record


class Element(Record):
    """``kind``: b bool, i signed, u unsigned, f float32 and float64, h smaller floats, c complex, n narrow integers."""

    kind: str
    register: str  # LLVM type of a lane (of each part, for complex)
    memory: str  # LLVM type in memory (of each part, for complex)
    parts: int
    bits: int  # significant bits of an integer, storage bits of a float part
    signed: bool = False

    @property
    def bytes(self) -> int:
        """Bytes of one part in memory."""
        return 1 if self.kind in "bn" else self.bits // 8

    @property
    def size(self) -> int:
        """Bytes of an element in memory, with all its parts."""
        return self.bytes * self.parts

    @property
    def register_bits(self) -> int:
        """Bits of a lane in a register, from 8 to 32; wider lanes take several registers."""
        return 32 if self.kind in "fhc" else min(8 * self.bytes, 32)


@functools.cache
def of(dtype: np.dtype) -> Element:
    """The element of a dtype."""
    name = dtype.name
    if name == "bool":
        return Element("b", "i1", "i8", 1, 8)
    if name in ("float32", "float64"):
        register = "float" if name == "float32" else "double"
        return Element("f", register, register, 1, 8 * dtype.itemsize)
    if name in ("complex64", "complex128"):
        register = "float" if name == "complex64" else "double"
        return Element("c", register, register, 2, 4 * dtype.itemsize)
    if name == "bfloat16":
        return Element("h", "float", "i16", 1, 16)
    if name == "float16":
        return Element("h", "float", "i16", 1, 16)
    if name.startswith(("float8", "float4", "float6")):
        return Element("h", "float", "i8", 1, 8)
    if name in ("int2", "int4", "uint2", "uint4"):
        return Element("n", "i8", "i8", 1, int(name[-1]), not name.startswith("u"))
    if dtype.kind in "iu":
        bits = 8 * dtype.itemsize
        return Element(dtype.kind, f"i{bits}", f"i{bits}", 1, bits, dtype.kind == "i")
    raise TypeError(f"[codegen] no machine representation of dtype {name}.")


BOOL = np.dtype(np.bool_)
INT32 = np.dtype(np.int32)
INT64 = np.dtype(np.int64)
FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)
COMPLEX64 = np.dtype(np.complex64)
COMPLEX128 = np.dtype(np.complex128)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT16 = np.dtype(np.float16)


def real_of(dtype: np.dtype) -> np.dtype:
    """float32 for complex64, float64 for complex128."""
    return FLOAT32 if dtype == COMPLEX64 else FLOAT64


def complex_of(dtype: np.dtype) -> np.dtype:
    return COMPLEX64 if dtype == FLOAT32 else COMPLEX128
