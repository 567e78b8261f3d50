"""weft.lax.linalg: matrix decompositions; not built yet, every name raises NotImplementedError."""

from weft.operations.absent import LINALG as _not_built

globals().update(_not_built)
