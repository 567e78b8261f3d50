"""SciPy's functions on weft arrays; ``special`` is the first module that is built."""

from __future__ import annotations

from weft import unbuilt as _unbuilt
from weft.scipy import special

__getattr__ = _unbuilt.fallback("weft.scipy")
