"""weft.ad_checkpoint: names of values for the policies of checkpoint, and a look at what is kept."""

from weft import checkpoint_policies
from weft._base import unbuilt as _unbuilt
from weft.autodiff.checkpoint import checkpoint
from weft.autodiff.remat_policy import Offloadable, Recompute, Saveable, checkpoint_name
from weft.autodiff.saved_residuals import print_saved_residuals, saved_residuals

__all__ = [
    "Offloadable", "Recompute", "Saveable", "checkpoint", "checkpoint_name", "checkpoint_policies",
    "print_saved_residuals", "saved_residuals",
]  # fmt: skip
__getattr__ = _unbuilt.fallback("weft.ad_checkpoint")
