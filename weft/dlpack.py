"""weft.dlpack: arrays shared with other libraries."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import dtypes
from weft.numpy import from_dlpack as _from_dlpack

__all__ = ["from_dlpack", "is_supported_dtype"]
_SUPPORTED = frozenset(
    ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32",
     "float64", "complex64", "complex128")
)  # fmt: skip


def from_dlpack(external_array: Any, device: Any = None, copy: bool | None = None) -> Any:
    """An Array on the memory of another library's array, which has ``__dlpack__``; a copy of it if ``copy`` is true.

    Afterwards nobody may write to the other array. ValueError if ``copy`` is false and a copy is needed.

    >>> weft.dlpack.from_dlpack(np.ones(2, np.float32))
    Array([1., 1.], dtype=float32)
    """
    return _from_dlpack(external_array, device=device, copy=copy)


def is_supported_dtype(dtype: Any) -> bool:
    """Whether arrays of a dtype can be shared.

    >>> weft.dlpack.is_supported_dtype("float32"), weft.dlpack.is_supported_dtype("int4")
    (True, False)
    """
    found = np.dtype(getattr(dtypes, dtype, dtype) if isinstance(dtype, str) else dtype)
    return found.name in _SUPPORTED
