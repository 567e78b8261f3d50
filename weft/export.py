"""weft.export: extents without a value, for ``eval_shape``; programs to be run elsewhere are not built and raise."""

from __future__ import annotations

from weft._base import unbuilt
from weft.dispatch.symbolic_dims import is_symbolic_dim, symbolic_shape

__all__ = ["is_symbolic_dim", "symbolic_shape"]
__getattr__ = unbuilt.fallback(__name__)
