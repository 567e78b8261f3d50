"""weft.checkpoint: JAX's function that recomputes values, and as its attributes what saves and restores trees."""

from __future__ import annotations

from weft import checkpoints
from weft.autodiff.checkpoint import checkpoint

__all__ = ["checkpoint"]

for _name in checkpoints.__all__:
    setattr(checkpoint, _name, getattr(checkpoints, _name))
