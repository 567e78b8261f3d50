"""weft.checkpoints: trees of arrays on disk, saved and restored by any number of processes; also weft.checkpoint.save.

    weft.checkpoint.save("run", {"w": w, "step": 100}, step=100, keep=3)
    weft.checkpoint.restore("run")                                          the tree of the highest step

``weft.checkpoint`` is JAX's function that recomputes values instead of storing them; these functions are its
attributes, and names of this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft._base import lazy

if TYPE_CHECKING:
    from weft.checkpoints.folders import CheckpointError
    from weft.checkpoints.restoring import latest_step, restore, shapes, steps
    from weft.checkpoints.saving import Save, save

_NAMES = lazy.Names(
    "weft.checkpoints",
    {
        "checkpoints.folders": "CheckpointError",
        "checkpoints.restoring": "latest_step restore shapes steps",
        "checkpoints.saving": "Save save",
    },
    submodules="folders leaves manifest remat restoring saving stores",
)
__getattr__ = _NAMES.find
