"""weft.lax.linalg: matrix decompositions. Not built yet: every documented name raises NotImplementedError."""

from weft import unbuilt as _unbuilt

__getattr__ = _unbuilt.fallback("weft.lax.linalg")
