"""weft.checkpoint: JAX's function that recomputes values, and as its attributes what saves and restores trees."""

from __future__ import annotations

from weft.autodiff.checkpoint import checkpoint
from weft.checkpoints.folders import CheckpointError
from weft.checkpoints.restoring import latest_step, restore, shapes, steps
from weft.checkpoints.saving import Save, save

__all__ = ["checkpoint"]

for _value in (CheckpointError, Save, latest_step, restore, save, shapes, steps):
    setattr(checkpoint, _value.__name__, _value)
