"""weft.checkpoint_policies: which values a checkpointed function keeps."""

from weft._base import unbuilt as _unbuilt
from weft.autodiff.remat_policy import (
    checkpoint_dots,
    checkpoint_dots_with_no_batch_dims,
    dots_saveable,
    dots_with_no_batch_dims_saveable,
    everything_saveable,
    nothing_saveable,
    offload_dot_with_no_batch_dims,
    save_and_offload_only_these_names,
    save_any_names_but_these,
    save_anything_except_these_names,
    save_from_both_policies,
    save_only_these_names,
)

__all__ = [
    "checkpoint_dots", "checkpoint_dots_with_no_batch_dims", "dots_saveable", "dots_with_no_batch_dims_saveable",
    "everything_saveable", "nothing_saveable", "offload_dot_with_no_batch_dims", "save_and_offload_only_these_names",
    "save_any_names_but_these", "save_anything_except_these_names", "save_from_both_policies", "save_only_these_names",
]  # fmt: skip
__getattr__ = _unbuilt.fallback("weft.checkpoint_policies")
