"""Types for annotations: what weft's functions accept as an array, and as a dtype."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from weft._base.array import Array


class SupportsDType(Protocol):
    """Anything with a ``dtype``."""

    @property
    def dtype(self) -> np.dtype: ...


ArrayLike = Array | np.ndarray | np.generic | bool | int | float | complex
DTypeLike = str | type[Any] | np.dtype | SupportsDType

__all__ = ["ArrayLike", "DTypeLike"]
