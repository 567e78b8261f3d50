"""weft.scipy.sparse: iterative solvers (``linalg``)."""

from weft._base import unbuilt as _unbuilt
from weft.scipy.sparse import linalg

__getattr__ = _unbuilt.fallback("weft.scipy.sparse")
